"""The images of the landing page are what the book's model makes of its photograph."""

import draw_cover
import torch
from PIL import Image

from vitbook.data import album_credits


def pixels(image: Image.Image) -> torch.Tensor:
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).float()


def test_the_stored_cover_is_what_the_script_draws() -> None:
    with Image.open(draw_cover.STATIC / "cover.webp") as stored:
        drawn = draw_cover.cover()
        assert stored.size == drawn.size
        assert (pixels(stored.convert("RGBA")) - pixels(drawn)).abs().mean() < 8  # of 255: compression


def test_the_model_names_the_bird_and_looks_at_it_as_the_caption_says() -> None:
    index = [entry["file"] for entry in album_credits()].index(draw_cover.PHOTOGRAPH)
    name, attention = draw_cover.seen_by_the_model(index)
    assert name == "bird" and attention.shape == (8, 8) and attention.max() == 1
    assert attention[1:, 1:6].mean() > 1.3 * attention[:, 6:].mean()  # the bird stands in these columns
    photograph, patches, lit = draw_cover.squares()[0]
    assert (patches[3] == 0).any() and (photograph[3] == 1).all()
    assert (lit[:3] <= photograph[:3]).all() and 0.2 < lit[:3].sum() / photograph[:3].sum() < 0.8
