"""The pictures of the first page are what the book's model makes of its photograph."""

import draw_cover
import torch
from PIL import Image

from vitbook.data import album_credits


def pixels(picture: Image.Image) -> torch.Tensor:
    return torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).float()


def test_the_stored_cover_is_what_the_script_draws() -> None:
    with Image.open(draw_cover.STATIC / "cover.webp") as stored:
        drawn = draw_cover.cover()
        assert stored.size == drawn.size
        assert (pixels(stored.convert("RGBA")) - pixels(drawn)).abs().mean() < 8  # of 255: compression


def test_the_model_names_the_bird_as_the_caption_says() -> None:
    (entry,) = [entry for entry in album_credits() if entry["file"] == draw_cover.PHOTOGRAPH]
    assert entry["licence"] == "CC0-1.0"
    squares, name = draw_cover.squares()
    assert name == "bird"
    photograph, patches, lit = squares
    assert photograph.shape == patches.shape == lit.shape == (4, draw_cover.SIDE, draw_cover.SIDE)
    assert (patches[3] == 0).any() and (photograph[3] == 1).all()
    assert (lit[:3] <= photograph[:3]).all() and (lit[:3] < photograph[:3]).float().mean() > 0.9
    brightness = lit[:3].sum() / photograph[:3].sum()
    assert 0.2 < brightness < 0.8
    with torch.no_grad():
        attention = draw_cover.seen_by_the_model([e["file"] for e in album_credits()].index(draw_cover.PHOTOGRAPH))[1]
    assert attention.shape == (8, 8) and attention.max() == 1
    assert attention[1:, 1:6].mean() > 1.3 * attention[:, 6:].mean()  # the bird stands in these columns


def test_the_card_has_the_size_that_services_ask_for() -> None:
    with Image.open(draw_cover.STATIC / "card.jpg") as card:
        assert card.size == (1200, 630)
