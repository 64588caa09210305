"""An exam with an answer key for maps that claim to show what decided: the methods, the marks, and a stranger's own."""
