"""The code behind *Vision Transformers, Step by Step*: one small module for each chapter, in the book's order."""

import sys

from vitbook._support.moved import Finder

__version__ = "0.1.0"

sys.meta_path.append(Finder())
