"""The small figures of chapters 2, 6, 7 and 10 show torch's numbers, by mouse, finger and keyboard, on a phone."""

import base64
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from vitbook._common.images import decode_image
from vitbook.attention_maps import position_similarity
from vitbook.data import digits
from vitbook.patches import patchify
from vitbook.positions import sincos_positions, sincos_positions_2d
from vitbook.pretrained import load_pretrained
from vitbook.recorded import RECORDED
from vitbook_workshop.live import figure_data, figures


@pytest.fixture
def figure(request, browser, tmp_path):
    """The page of a figure, started, on a phone."""
    getattr(figures, request.param)().save(tmp_path / "figure.html")
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
    packed = figure_data.packed_vectors()

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
    photograph = figure_data.album()[0]
    image = decode_image(base64.b64decode(photograph["src"].partition(",")[2]), "kingfisher")
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float()
    figure.locator("[name=size]").focus()
    browser.press("Home")
    for size in (4, 8, 16, 32, 64):
        tokens = patchify(pixels, size)[0]
        browser.tap(figure.locator(".cut"), (0.7, 0.3), "lostpointercapture")
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
            browser.tap(figure.locator(".places [role=gridcell]").nth(place))
            browser.press("ArrowRight")
            shown = [numbers(text)[0] for text in figure.locator(".places [role=gridcell]").all_inner_texts()]
            expected = position_similarity(table, (rows, columns), 0)[place + 1].flatten()
            torch.testing.assert_close(torch.tensor(shown), expected, atol=0.0051, rtol=0)
            assert f"From row {(place + 1) // columns}, column {(place + 1) % columns}: " in (
                figure.locator(".sentence").inner_text()
            )


def fullness(canvas, xs: list[float], ys: list[float]) -> torch.Tensor:
    """How full a canvas is, 0 … 1, at each x of each y."""
    read = """(canvas, [xs, ys]) => ys.map((y) => xs.map((x) =>
        canvas.getContext("2d").getImageData(x, y, 1, 1).data[3] / 255))"""
    return torch.tensor(canvas.evaluate(read, [xs, ys]))


@pytest.mark.parametrize("figure", ["steps"], indirect=True)
def test_a_recorded_run_is_shown_as_torch_left_it(figure, browser):
    run = load_file(RECORDED["flat"].with_name("steps.safetensors"))
    at, label = figure.locator, digits().test.labels[0].item()
    at("[name=moment]").focus()
    for moment, epoch in enumerate(run["epochs"].tolist()):
        loss, accuracy = run["loss"][epoch].item(), run["accuracy"][epoch].item()
        said = numbers(at(".sentence").inner_text())
        expected = [23 * epoch, loss, 100 * accuracy, label, label, 100 * run["probability"][moment].item()]
        assert said == [pytest.approx(number, abs=0.0551) for number in expected]  # packed to 0.01 %, shown to 0.1 %
        spoken = at("[name=moment]").get_attribute("aria-valuetext")
        assert spoken.startswith(f"epoch {epoch} of 40: ") and spoken.endswith("\u00a0% of the test digits right")
        if moment % 5 == 0:
            head, attention, similar = (run[name][moment].float() for name in ("head", "attention", "similarity"))
            drawn = fullness(at(".weights"), [10 * n + 4 for n in range(64)], [10 * n + 4 for n in range(10)])
            torch.testing.assert_close(drawn, (1 + head / run["head"].abs().max()) / 2, atol=0.02, rtol=0)
            for n, heads_own in enumerate(attention.flatten(0, 1)):
                drawn = fullness(at(".heads canvas").nth(n), [0, 2, 4, 6], [0, 2, 4, 6])
                clear = 0.12 + 0.88 * heads_own.reshape(4, 4) / heads_own.max()
                torch.testing.assert_close(drawn, clear, atol=0.03, rtol=0)
            centers = [40 * map + 9 * place + 4 for map in range(4) for place in range(4)]
            drawn = fullness(at(".alike"), centers, centers).unflatten(1, (4, 4)).unflatten(0, (4, 4))
            drawn = drawn.transpose(1, 2).reshape(16, 16)  # of each map, its places
            torch.testing.assert_close(drawn, (1 + similar) / 2, atol=0.02, rtol=0)
        browser.press("ArrowRight")
    assert at("[name=moment]").input_value() == str(len(run["epochs"]) - 1)
