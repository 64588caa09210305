"""The small figures of chapters 2, 6 and 7 show torch's numbers, by mouse, finger and keyboard, on a phone."""

import base64
import re

import numpy as np
import pytest
import torch

from vitbook._support.images import decode_image
from vitbook.attention_maps import position_similarity
from vitbook.explorer import live
from vitbook.patches import patchify
from vitbook.positions import sincos_positions, sincos_positions_2d
from vitbook.pretrained import load_pretrained

pytest_plugins = ["browser"]


@pytest.fixture
def figure(request, browser, tmp_path):
    """The page of a figure, started, on a phone."""
    getattr(live, request.param)().save(tmp_path / "figure.html")
    browser.screen(360, 740, phone=True)
    browser.open(tmp_path / "figure.html")
    browser.page.locator(".live-start").click()
    browser.page.locator(".sentence:not(:empty)").wait_for()
    yield browser.page
    assert browser.errors == []
    assert browser.page.evaluate("document.documentElement.scrollWidth") <= 360


def numbers(text: str) -> list[float]:
    return [float(number.replace("−", "-").replace(",", "")) for number in re.findall(r"[−\d][\d,]*(?:\.\d+)?", text)]


@pytest.mark.parametrize("figure", ["scale"], indirect=True)
def test_scores_and_weights_are_those_of_torch_at_every_width(figure, browser):
    packed = live.packed_vectors()

    def vector(text: str) -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(base64.b64decode(text), np.int8).copy()) * packed["unit"]

    query, keys = vector(packed["query"]), torch.stack([vector(text) for text in packed["keys"]])
    assert 0.9 < torch.cat([query, keys.flatten()]).std() < 1.1
    figure.locator("[name=width]").focus()
    browser.press("Home")
    for d in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        assert figure.locator("output").inner_text() == str(d)
        scores = keys[:, :d] @ query[:d]
        for name, expected in {"raw": scores, "scaled": scores / d**0.5}.items():
            shown = [
                numbers(row.inner_text().replace("\u2002", " "))
                for row in figure.locator(f"[data-column={name}] .bars li").all()
            ]
            got = torch.tensor([(score, share / 100) for score, share in ([row[-2], row[-1]] for row in shown)])
            torch.testing.assert_close(got[:, 0], expected, atol=0.0051, rtol=0)
            torch.testing.assert_close(got[:, 1], expected.softmax(dim=0), atol=0.00051, rtol=0)
        spread = numbers(figure.locator(".sentence").inner_text())[1]
        assert spread == pytest.approx(scores.std().item(), abs=0.0051)
        browser.press("ArrowRight")


@pytest.mark.parametrize("figure", ["patches"], indirect=True)
def test_patches_are_those_of_patchify(figure, browser):
    photograph = live.album()[0]
    image = decode_image(base64.b64decode(photograph["src"].partition(",")[2]), "kingfisher")
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
    figure.locator("[name=size]").focus()
    browser.press("Home")
    for size in (4, 8, 16, 32, 64):
        tokens = patchify(pixels, size)[0]
        box = figure.locator(".cut").bounding_box()
        figure.touchscreen.tap(box["x"] + 0.7 * box["width"], box["y"] + 0.3 * box["height"])
        assert_shows(figure, tokens, size, 0.7, 0.3)
        figure.locator(".cut").focus()
        browser.press("ArrowLeft")
        assert_shows(figure, tokens, size, 0.7 - size / 128, 0.3)
        figure.locator("[name=size]").focus()
        browser.press("ArrowRight")


def assert_shows(figure, tokens: torch.Tensor, size: int, x: float, y: float) -> None:
    grid = 128 // size
    counts = [numbers(text)[0] for text in figure.locator("tbody td").all_inner_texts()]
    assert counts == [len(tokens), tokens.shape[1], len(tokens) ** 2]
    token, row, column, *mean = numbers(figure.locator(".sentence").inner_text())
    assert (row, column) == (int(y * grid), max(0, int(x * grid))) and token == row * grid + column
    expected = tokens[int(token)].reshape(3, size * size).mean(dim=1)
    torch.testing.assert_close(torch.tensor(mean), expected, atol=0.051, rtol=0)


@pytest.mark.parametrize("figure", ["places"], indirect=True)
def test_positions_are_as_similar_as_torch_says(figure, browser):
    model = load_pretrained("vitbook:cifar10_plain").model
    rows, columns = model.embedding.grid
    tables = {
        "learned": model.embedding.positions().detach()[:, 1:],
        "sines_2d": sincos_positions_2d((rows, columns), model.config.dim)[None],
        "sines": sincos_positions(rows * columns, model.config.dim)[None],
    }
    for kind, table in tables.items():
        figure.locator(f"[value={kind}]").check()
        for place in (0, rows * columns - 3):
            figure.locator(".places [role=gridcell]").nth(place).tap()
            browser.press("ArrowRight")
            shown = [numbers(text)[0] for text in figure.locator(".places [role=gridcell]").all_inner_texts()]
            expected = position_similarity(table, (rows, columns), 0)[place + 1].flatten()
            torch.testing.assert_close(torch.tensor(shown), expected, atol=0.0051, rtol=0)
            assert f"From row {(place + 1) // columns}, column {(place + 1) % columns}: " in (
                figure.locator(".sentence").inner_text()
            )
