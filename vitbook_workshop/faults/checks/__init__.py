"""What must hold, as functions that raise where it does not: of parts of this package, of anybody's model, of a run."""
