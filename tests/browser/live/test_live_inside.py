"""The drawing whose parts can be pressed: each shows torch's numbers, by mouse, finger and keyboard, on one screen."""

from pathlib import Path

import pytest
import torch
from asking import logits, photograph

from vitbook.attention import attention_scores, attention_weights
from vitbook.multihead import merge_heads, split_heads
from vitbook.patches import patchify
from vitbook.pretrained import load_pretrained
from vitbook_workshop import drawings
from vitbook_workshop.drawings.model import PARTS
from vitbook_workshop.live import figure_data, figures
from vitbook_workshop.live.bundles import scripts_for
from vitbook_workshop.live.inside import MODEL, inside

STYLE = Path(__file__).resolve().parents[3] / "_static" / "book.css"
SIGNED = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const sign = (i) => (data[i] < data[i + 2] ? -1 : 1); // blue, or orange
  return Array.from({ length: data.length / 4 }, (_, i) => sign(4 * i) * (data[4 * i + 3] / 255) ** 2);
}"""


@pytest.fixture(scope="module")
def trained():
    return load_pretrained(f"vitbook:{MODEL}")


@pytest.fixture(scope="module")
def path(trained, tmp_path_factory):
    data: dict[str, object] = {
        f"model-{MODEL}": figure_data.packed_model(trained),
        "photograph": figure_data.album()[0],
    }
    still = f"<style>{STYLE.read_text(encoding='utf-8')}</style>{inside(drawings.vit().svg(), 'answer')}"
    path = tmp_path_factory.mktemp("inside") / "inside.html"
    figures.LiveFigure(still, "Look inside", scripts_for("inside", data)).save(path)
    return path


@pytest.fixture
def page(browser, path):
    browser.screen(390, 844, phone=True)
    browser.open(path)
    yield browser.page
    assert browser.errors == []


@torch.no_grad()
def expected(trained, block: int, head: int) -> dict[str, torch.Tensor]:
    """What each part of the drawing holds in torch, with one block and one head."""
    model, images, left = trained.model, trained.preprocessing(photograph()), {}
    names = {module: name for name, module in model.named_modules()}
    hooks = [
        module.register_forward_hook(lambda module, _, out: left.update({names[module]: out[0]})) for module in names
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    own = f"encoder.blocks.{block}"
    came = left[f"encoder.blocks.{block - 1}"] if block else left["embedding"]
    q, k, v = (split_heads(x[None], model.config.num_heads)[0] for x in left[f"{own}.attn.qkv"].chunk(3, dim=-1))
    weights = attention_weights(attention_scores(q, k))
    said = logits(trained, photograph())[:, None]
    return dict(
        patches=patchify(images, model.config.patch_size)[0],
        tokens=left["embedding"],
        block=left[own],
        logits=said,
        answer=said.softmax(dim=0),
        norm1=left[f"{own}.norm1"],
        attention=left[f"{own}.attn"],
        sum=came + left[f"{own}.attn"],
        norm2=left[f"{own}.norm2"],
        mlp=left[f"{own}.mlp"],
        end=left[own],
        entering=left[f"{own}.norm1"],
        queries=q[head],
        keys=k[head],
        values=v[head],
        scores=attention_scores(q, k)[head],
        weights=weights[head],
        blend=(weights @ v)[head],
        heads=merge_heads((weights @ v)[None])[0],
    )


def press(page, part: str) -> None:
    page.locator(f"[data-part={part}]:is(button)").click()
    page.locator(".inside[aria-busy=false]").wait_for()


def table(page) -> torch.Tensor:
    rows = [row.locator("td").all_inner_texts() for row in page.locator("tbody tr").all()]
    return torch.tensor([[float(number.replace("−", "-")) for number in row] for row in rows])


@pytest.mark.parametrize(("block", "head"), [(0, 0), (3, 2), (5, 3)])
def test_every_part_shows_the_shape_and_the_numbers_of_torch(page, browser, trained, block: int, head: int) -> None:
    parts = expected(trained, block, head)
    assert parts.keys() == PARTS.keys()
    press(page, "patches")
    page.locator("[name=block]").evaluate("(select, block) => { select.value = block; }", str(block))
    page.locator("[name=head]").evaluate("(select, head) => { select.value = head; }", str(head))
    for part, tensor in parts.items():
        press(page, part)
        shape = str(tuple(tensor.shape)) if tensor.shape[1] > 1 else f"({len(tensor)},)"
        words = PARTS[part][0]
        assert page.locator(".part").inner_text().startswith(f"{words[0].upper()}{words[1:]} {shape}: ")
        torch.testing.assert_close(table(page), tensor[:3, :4], atol=5.1e-4, rtol=0)
        ends = [float(end.replace("−", "-")) for end in page.locator(".extent b").all_inner_texts()]
        assert ends == pytest.approx([tensor.min().item(), tensor.max().item()], abs=0.0051)
        drawn = torch.tensor(page.locator(".map canvas").evaluate(SIGNED)).reshape(tensor.shape)
        torch.testing.assert_close(drawn, tensor / tensor.abs().max(), atol=0.005, rtol=0)
    assert page.locator(".bars b").first.inner_text() == f"{100 * parts['answer'].max():.1f}\u00a0%"


def test_a_frame_is_moved_over_the_numbers_by_keys_and_by_finger(page, browser, trained) -> None:
    tensor = expected(trained, 0, 0)["weights"]
    press(page, "weights")
    page.locator(".map").focus()
    for key in ("ArrowLeft", "ArrowDown", "ArrowDown", "ArrowRight"):
        browser.press(key)
    torch.testing.assert_close(table(page), tensor[2:5, 1:5], atol=5.1e-4, rtol=0)
    assert page.locator("tbody th").first.inner_text() == "patch 1"
    browser.tap(page.locator(".map"), (0.5, 0.25), "lostpointercapture")
    names = [page.locator(f"{part} th").first.inner_text() for part in ("tbody", "thead")]
    row, column = (1 + int(name.removeprefix("patch ")) for name in names)
    assert abs(row - 0.25 * 65) < 2 and abs(column - 0.5 * 65) < 2, "a row is hardly higher than a pixel"
    torch.testing.assert_close(table(page), tensor[row : row + 3, column : column + 4], atol=5.1e-4, rtol=0)
    press(page, "answer")  # ten rows and one column
    torch.testing.assert_close(table(page), expected(trained, 0, 0)["answer"][7:], atol=5.1e-4, rtol=0)


def test_by_keyboard_alone_with_one_stop_for_all_parts(page, browser) -> None:
    browser.press("Tab")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft"):
        browser.press(key)
    assert page.evaluate("document.activeElement.dataset.part") == "block"
    browser.press("Tab")
    assert page.evaluate("document.activeElement.className") == "live-start"
    browser.press("Enter")
    page.locator(".inside[aria-busy=false]").wait_for()
    browser.until("document.activeElement.dataset.part === 'answer'")
    assert page.locator("[aria-pressed=true]").get_attribute("aria-label") == PARTS["answer"][0]
    browser.press("ArrowLeft")
    browser.press("Enter")
    assert page.locator(".part").inner_text().startswith("The head: the logits (10,): classes")
    assert page.locator("[name=block]").is_disabled()


def test_parts_can_be_hit_on_a_small_phone(page, browser) -> None:
    browser.screen(340, 640, phone=True)
    for part in page.locator("button[data-part]").all():
        box = part.bounding_box()
        assert min(box["width"], box["height"]) >= 24
    press(page, "tokens")
    assert page.evaluate("document.documentElement.scrollWidth") <= 340


def test_parts_lie_apart_within_the_drawing() -> None:
    frames = [frame for _, frame in PARTS.values()]
    for n, (x, y, w, h) in enumerate(frames):
        assert min(w, h) >= 30 and x >= 0 and y >= 0 and x + w <= 360 and y + h <= 364
        for a, b, c, d in frames[:n]:
            assert min(x + w, a + c) <= max(x, a) + 1 or min(y + h, b + d) <= max(y, b) + 1


@pytest.mark.parametrize("mode", ["light", "phone"])
@pytest.mark.parametrize("chapter", ["03_self_attention", "04_multihead", "07_embedding", "08_encoder", "09_vit"])
def test_on_the_site_a_press_loads_it_and_all_is_on_one_screen(site, chapter: str, mode: str) -> None:
    screen = dict(width=390, height=844) if mode == "phone" else dict(width=1280, height=900)
    with site.visit(f"chapters/{chapter}.html", mode, viewport=screen) as visit:
        asked = []
        visit.page.on("request", lambda request: asked.append(request.url))
        host = visit.page.locator("[data-figure=inside]").first
        host.locator("svg").hover(position=dict(x=2, y=2))
        host.locator("[data-part=keys]").hover()
        host.locator("[data-part=keys]").focus()
        assert not [address for address in asked if "/live/" in address], "before a press"
        host.locator("[data-part=keys]").click()
        host.locator(".inside[aria-busy=false]").wait_for()
        assert any(f"model-{MODEL}" in address for address in asked)
        header = visit.page.locator(".bd-header-article").bounding_box()["height"]
        for part in PARTS:
            host.locator(f"[data-part={part}]").click()
            assert host.bounding_box()["height"] <= screen["height"] - header
        visit.page.emulate_media(media="print")
        assert host.locator("svg").is_visible()
        assert host.locator(":is(button, select, canvas)").locator("visible=true").count() == 0
        assert visit.complaints == []
