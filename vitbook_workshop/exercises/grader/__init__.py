"""How an attempt is judged: exercises and mistakes, random inputs, classes as attempts, what a notebook has solved."""
