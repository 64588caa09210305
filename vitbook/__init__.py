"""The code behind *Vision Transformers, Step by Step*: what its chapters derive, one small module for each idea."""

__version__ = "0.1.0"
