"""The reader's own Vision Transformer in one file, component by component."""
