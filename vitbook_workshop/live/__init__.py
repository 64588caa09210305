"""Figures that answer in a page, without server or network: what a model says, and what every head attends to.

`explore` makes one of any model and images; the others are the book's own, each by its name.
"""

from vitbook_workshop.live.figures import ask, exam, paint, patches, places, query, scale, shares, steps, train
from vitbook_workshop.live.your_model import explore

__all__ = ["ask", "exam", "explore", "paint", "patches", "places", "query", "scale", "shares", "steps", "train"]
