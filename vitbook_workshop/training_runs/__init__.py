"""A training run as its owner knows it, by a name or a folder: its settings, the run, and what came of it."""
