"""A class that reads this book: notebooks for each student, what came back, and what the class has misunderstood.

`vitbook course new` writes the first (roster, student_notebooks), `vitbook course grade` the rest
(submission, grades, report), and `vitbook course quiz` questions with answers to choose from (quiz).
"""
