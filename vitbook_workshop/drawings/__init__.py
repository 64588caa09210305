"""The book's drawings, each a function that returns what a notebook shows: `drawings.vit(here="patches")`."""

from vitbook_workshop.drawings.model import PLACES, vit
from vitbook_workshop.drawings.steps import (
    encoder_decoder,
    heads,
    image_and_words,
    match_and_blend,
    norms,
    painter,
    patch_to_token,
    queries_keys_values,
    tiles,
    training_step,
    two_tokens,
)
from vitbook_workshop.drawings.svg import Drawing

__all__ = ["PLACES", "Drawing", "encoder_decoder", "heads", "match_and_blend", "norms", "painter"]
__all__ += ["image_and_words", "patch_to_token", "queries_keys_values", "tiles", "training_step", "two_tokens", "vit"]
