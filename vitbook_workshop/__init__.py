"""What serves the reader beside the book: exercises, faults, live figures, drawings, and the command `vitbook`."""
