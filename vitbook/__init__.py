"""The code behind *Vision Transformers, Step by Step*: one small module for each chapter, in the book's order."""

__version__ = "0.1.0"
