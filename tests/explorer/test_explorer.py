"""The figure shows the model's own numbers, in any browser, to mouse, touch and keyboard alike."""

import base64
import json
import re
import zlib
from html import unescape
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from vitbook.attention_maps import gradient_weighted_attention, recorded_attention, rollout
from vitbook.data import photograph
from vitbook.explorer import Explorer, explore
from vitbook.vit import VisionTransformer, ViTConfig

pytest_plugins = ["browser"]

PREFIX = 1
NAMES = ["class token"] + [f"row {row}, column {column}" for row in range(3) for column in range(5)]
TITLES = ("<i>portrait</i>", "</script>flower")
CLASSES = ("cat", "dog", "$& {query}", "owl")


def small_vit(**changes) -> VisionTransformer:
    """Two blocks of three heads with weights large enough that attention is far from even."""
    torch.manual_seed(3)
    settings = dict(image_size=(12, 20), patch_size=4, num_classes=4, dim=24, depth=2, num_heads=3, mlp_dim=48)
    model = VisionTransformer(ViTConfig(**settings | changes))
    for block in model.encoder.blocks:
        block.attn.qkv.weight.data *= 2
    if model.config.num_classes:
        torch.nn.init.normal_(model.head.weight)
        model.head.bias.data[2] = 50.0  # whose name has signs that mean something to scripts
    return model.eval()


def prepare(images: torch.Tensor) -> torch.Tensor:
    return (images / 255 - 0.5) / 0.25


def photos(height: int = 12, width: int = 20) -> torch.Tensor:
    """Two cuts from photographs."""
    return torch.stack([photograph(name)[:, 40 : 40 + height, 80 : 80 + width] for name in ("portrait", "flower")])


def facts(explorer: Explorer) -> dict:
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', explorer.html, re.S)[1])


def unpacked(explorer: Explorer) -> torch.Tensor:
    """The weights that the HTML holds. (images, maps, T, T)"""
    held = facts(explorer)
    content = zlib.decompress(base64.b64decode(held["weights"]))
    tokens = len(held["names"])
    maps = held["layers"] * held["stored"] + len(held["views"]) - held["layers"]
    shape = (len(held["images"]), maps, tokens)
    tops = np.frombuffer(content, "<f4", np.prod(shape)).reshape(shape)
    codes = np.frombuffer(content, np.uint8, offset=tops.nbytes).reshape(*shape, tokens)
    return torch.from_numpy(tops[..., None].astype(np.float64) * codes / held["levels"])


def recorded(model: VisionTransformer, images: torch.Tensor) -> torch.Tensor:
    """(L, B, h, T, T)"""
    with torch.no_grad(), recorded_attention(model) as weights:
        model(prepare(images))
    return torch.stack(weights)


def relevance(model: VisionTransformer, images: torch.Tensor) -> torch.Tensor:
    with recorded_attention(model) as weights:
        logits = model(prepare(images))
    others = gradient_weighted_attention(weights, logits.amax(dim=1)) - torch.eye(len(weights[0][0, 0]))
    return others / others.sum(dim=-1, keepdim=True)


def assert_within_a_step(held: torch.Tensor, expected: torch.Tensor) -> None:
    """Off by at most 1/256 of the row's largest, and by rounding in float32. (…, T)"""
    tops = expected.amax(dim=-1, keepdim=True).double()
    assert ((held - expected).abs() <= tops / 256 * (1 + 1e-4)).all()


# What the HTML holds


def test_it_holds_every_weight_to_a_256th_of_the_largest_in_its_row():
    model, images = small_vit(), photos()
    weights = recorded(model, images)
    held = unpacked(explore(model, images, prepare))
    assert_within_a_step(held[:, :6], weights.permute(1, 0, 2, 3, 4).flatten(1, 2))
    assert_within_a_step(held[:, 6], rollout(weights))
    assert_within_a_step(held[:, 7], relevance(model, images))
    assert_close(held[:, :6].amax(dim=-1).float(), weights.amax(dim=-1).permute(1, 0, 2, 3).flatten(1, 2))
    assert (held[:, :6].amax(dim=-1) > 0.25).any(), "these heads look at something"


def test_chosen_layers_and_heads_are_those_that_are_kept():
    model, images = small_vit(), photos()
    made = explore(model, images, prepare, layers=[-1], heads=[2, 0])
    weights = recorded(model, images)
    assert_within_a_step(unpacked(made)[:, :2], weights[1][:, [2, 0]])
    assert_within_a_step(unpacked(made)[:, 2], rollout(weights))
    assert facts(made)["heads"] == ["head 2", "head 0"], "no mean of some heads"
    assert [view["name"] for view in facts(made)["views"]] == ["Block 1", "Rollout", "Gradient-weighted"]


def test_the_model_is_left_as_it_was_and_shown_in_evaluation():
    model, images = small_vit(dropout=0.5).train(), photos()
    made = explore(model, images, prepare)
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert_within_a_step(unpacked(made)[:, 6], rollout(recorded(model.eval(), images)))


def test_images_of_another_size_have_positions_resized_in_a_copy_and_it_says_so():
    model, images = small_vit(), photos(16, 12)
    made = explore(model, images, prepare)
    assert model.config.image_size == (12, 20)
    model.resize((16, 12))
    assert_within_a_step(unpacked(made)[:, 6], rollout(recorded(model, images)))
    assert facts(made)["note"] == "Positions were resized from 3×5 to 4×3 patches."
    assert facts(explore(model, images, prepare))["note"] == ""


def test_without_a_class_token_and_without_classes_there_is_less_to_choose():
    model, images = small_vit(class_token=False, pool="mean", num_classes=0), photos()
    made = explore(model, images, prepare)
    assert (facts(made)["prefix"], facts(made)["names"]) == (0, NAMES[1:])
    assert [view["name"] for view in facts(made)["views"]] == ["Block 0", "Block 1", "Rollout"]
    assert facts(made)["names"][facts(made)["query"]] == "row 1, column 2", "the one in the middle"
    assert_within_a_step(unpacked(made)[:, 6], rollout(recorded(model, images)))


def test_two_images_of_64_patches_with_6_blocks_of_4_heads_fit_and_more_say_what_to_do():
    model = small_vit(image_size=32, depth=6, num_heads=4)
    images = torch.cat([photos(32, 32), photos(32, 32).flip(3)])
    assert len(explore(model, images[:2], prepare).html.encode()) < 300_000
    assert len(explore(model, images, prepare, layers=[-1]).html.encode()) < 300_000
    with pytest.raises(ValueError, match="over 300,000: take fewer images, layers or heads"):
        explore(model, images, prepare)
    assert len(explore(model, images, prepare, max_bytes=None).html) > 300_000


def test_it_is_the_same_every_time_and_asks_for_nothing_from_elsewhere():
    one, other = (explore(small_vit(), photos(), prepare, titles=TITLES) for _ in range(2))
    assert one == other
    assert not re.search(r"https?:|//\w+\.\w|@import|<link|\bfetch\(|\bimport\b|Math\.random|Date", one.html)
    assert repr(one) == "Explorer(about='Attention, blocks: 2, heads: 3, patches: 3×5, images: 2')"
    assert one._repr_html_() == one.html


@pytest.mark.door
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(images=photos().float()), r"images must be uint8 .*got torch.float32 \(2, 3, 12, 20\)"),
        (dict(images=photos()[0]), r"got torch.uint8 \(3, 12, 20\)"),
        (dict(images=photos(14, 20)), "image 14×20 is not divisible by patch size 4"),
        (dict(titles=["one"]), "titles must be 2, one for each image, got 1"),
        (dict(class_names=["cat", "dog"]), "class_names must be 4, one for each class, got 2"),
        (dict(layers=[2]), r"layer must lie in 0 … 1, or -2 … -1 from the end, got 2"),
        (dict(prepare=lambda images: images * torch.nan), "not finite"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        explore(**dict(model=small_vit(), images=photos(), prepare=prepare) | changes)


def test_without_scripts_and_styles_one_view_is_left_in_words_and_as_an_image():
    """What viewers leave of it that let no scripts in: text of other tags stays, that of scripts and styles goes."""
    model, images = small_vit(), photos()
    left = re.sub(r"<(script|style).*?</\1>", "", explore(model, images, prepare).html, flags=re.S)
    row = recorded(model, images)[1, 0].mean(dim=0)[0]
    words = unescape(re.sub(r"<[^>]+>", " ", left))
    named = [
        (NAMES.index(name), float(share)) for name, share in re.findall(r"(row \d, column \d) +([\d.]+)\s%", words)
    ]
    assert [share for _, share in named] == sorted((share for _, share in named), reverse=True)
    for (token, share), top in zip(named, row[1:].topk(5).values.tolist(), strict=True):
        assert share == pytest.approx(100 * row[token].item(), abs=0.5) == pytest.approx(100 * top, abs=0.5)
    assert "Block 1, mean of 3 heads: what the class token attends to" in words
    assert re.search(r'<img src="data:image/[^"]+" alt="[^"]{40,}"', left)
    assert "{" not in words and "Layer" not in words


# What a reader meets in a browser

FIGURE = "document.querySelector('.vitbook-explorer').shadowRoot"


class Figure:
    """The first explorer of the page that a browser shows."""

    def __init__(self, browser, path: Path):
        self.browser = browser
        browser.open(path)
        browser.until(f"!!{FIGURE}")
        browser.until(f"[...{FIGURE}.querySelectorAll('img')].every((image) => image.complete)")

    def value(self, expression: str):
        """An expression in which `root` is the figure's shadow root."""
        return self.browser.value(f"(root => {expression})({FIGURE})")

    def weights(self) -> torch.Tensor:
        """What the cells say in their data. (T,)"""
        cells = self.value("[...root.querySelectorAll('[role=gridcell]')].map((cell) => cell.dataset.weight)")
        return torch.tensor([float(cell) for cell in cells], dtype=torch.float64)

    def table(self) -> list[tuple[str, float]]:
        """What the table says: a name and per cent."""
        rows = self.value("[...root.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((c) => c.innerText))")
        return [(name, float(re.fullmatch(r"([\d.]+)\s%", share)[1])) for name, share in rows]

    def caption(self) -> str:
        return self.value("root.querySelector('caption').innerText")

    def focused(self) -> str:
        """What has the keyboard's attention."""
        return self.value("root.activeElement?.name || root.activeElement?.getAttribute('aria-label') || ''")

    def query(self) -> int:
        return int(self.value("root.querySelector('[aria-selected=true]').dataset.token"))

    def place(self, token: int) -> tuple[float, float]:
        """The middle of a token's cell on the screen."""
        box = self.value(f"root.querySelector('[data-token=\"{token}\"]').getBoundingClientRect().toJSON()")
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def assert_weights(self, heads: torch.Tensor) -> None:
        """The cells hold the mean of some heads' rows (h, T), each rounded by itself."""
        tops = heads.amax(dim=-1).double().mean()
        assert (self.weights() - heads.mean(dim=0)).abs().max() <= tops / 256 * (1 + 1e-4)

    def assert_shows(self, heads: torch.Tensor) -> None:
        """Cells, their names and the table say what the mean of some heads' rows (h, T) is."""
        self.assert_weights(heads)
        row = heads.mean(dim=0)
        labels = self.value("[...root.querySelectorAll('[role=gridcell]')].map((cell) => cell.ariaLabel)")
        for label, name, share in zip(labels, NAMES, self.weights().tolist(), strict=True):
            assert label == f"{name}: {100 * share:.1f}\u00a0%"
        *top, prefix, others = self.table()
        step = 100 * heads.amax(dim=-1).mean().item() / 256 + 0.051
        for (name, share), largest in zip(top, row[PREFIX:].topk(5).values.tolist(), strict=True):
            assert share == pytest.approx(100 * largest, abs=step)
            assert share == pytest.approx(100 * row[NAMES.index(name)].item(), abs=step)
        assert len({name for name, _ in top}) == 5
        rest = row.sum() - row[0] - row[PREFIX:].topk(5).values.sum()
        assert prefix[0] == "class token" and others[0] == "the other 10 patches"
        assert prefix[1] == pytest.approx(100 * row[0].item(), abs=step)
        assert others[1] == pytest.approx(100 * rest.item(), abs=15 * step)


@pytest.fixture(scope="module")
def shown() -> dict:
    """What the explorer on the page has to show: by layer and head, (B, T, h, T), of which the mean is shown."""
    model, images = small_vit(), photos()
    weights = recorded(model, images)
    rolled = rollout(weights)
    weights = weights.transpose(2, 3)  # (L, B, T, h, T)
    heads = {(layer, head): weights[layer, :, :, head : head + 1] for layer in range(2) for head in range(3)}
    means = {(layer, "mean"): weights[layer] for layer in range(2)}
    return heads | means | {"rollout": rolled.unsqueeze(2), "gradient": relevance(model, images).unsqueeze(2)}


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "explorer.html"
    explore(small_vit(), photos(), prepare, titles=TITLES, class_names=CLASSES).save(path)
    return path


@pytest.fixture
def figure(browser, page):
    browser.screen()
    browser.prefer("light")
    figure = Figure(browser, page)
    yield figure
    assert browser.errors == []


def test_at_first_it_shows_what_the_class_token_attends_to_in_the_last_block(figure, shown):
    figure.assert_shows(shown[1, "mean"][0, 0])
    assert figure.caption() == "Block 1, mean of 3 heads: what the class token attends to"
    assert figure.query() == 0
    assert figure.value("root.querySelector('.title').innerText").startswith("<i>portrait</i> · the model says ")


def test_the_mouse_shows_by_pointing_and_chooses_by_a_click(figure, shown):
    browser = figure.browser
    browser.mouse(*figure.place(7))
    figure.assert_shows(shown[1, "mean"][0, 7])
    assert figure.caption().endswith("what row 1, column 1 attends to")
    assert figure.value("root.querySelector('.live').getAttribute('aria-live')") == "off", "pointing is not read out"
    browser.mouse(*figure.place(9), click=True)
    browser.mouse(1, 1)
    figure.assert_shows(shown[1, "mean"][0, 9])
    assert (figure.query(), figure.focused()[:15]) == (9, "row 1, column 3")
    assert figure.value("root.querySelector('.live').getAttribute('aria-live')") == "polite"


def test_everything_can_be_chosen_by_keyboard_alone(figure, shown):
    press = figure.browser.press
    press("Tab")
    assert figure.focused() == "image"
    press("ArrowRight")
    figure.assert_shows(shown[1, "mean"][1, 0])
    assert figure.value("root.querySelector('.title').innerText").startswith("</script>flower · the model says ")
    press("Tab")
    assert figure.focused() == "view"
    press("ArrowUp")
    figure.assert_shows(shown[0, "mean"][1, 0])
    press("Tab")
    assert figure.focused() == "head"
    for head in range(3):
        press("ArrowDown")
        figure.assert_shows(shown[0, head][1, 0])
    assert figure.caption() == "Block 0, head 2: what the class token attends to"
    press("Tab")
    assert figure.focused() == "query"
    press("ArrowDown")
    press("ArrowDown")
    figure.assert_shows(shown[0, 2][1, 2])
    press("Tab")
    assert figure.focused().startswith("row 0, column 1: ")
    for key, token in [
        *(("ArrowLeft", 1), ("ArrowDown", 6), ("End", 10), ("ArrowRight", 10), ("ArrowDown", 15), ("ArrowDown", 15)),
        *(("Home", 11), ("ArrowUp", 6), ("ArrowUp", 1), ("ArrowUp", 0), ("ArrowUp", 0), ("ArrowDown", 1)),
    ]:
        press(key)
        assert figure.query() == token, key
        assert figure.focused().startswith(NAMES[token])
        figure.assert_weights(shown[0, 2][1, token])
    press("End", control=True)
    figure.assert_shows(shown[0, 2][1, 15])
    press("Home", control=True)
    assert figure.query() == 0
    assert figure.value("[...root.querySelectorAll('[role=gridcell]')].filter((c) => c.tabIndex === 0).length") == 1


def test_colors_follow_the_weights_on_the_scale_that_the_legend_states(figure, shown):
    def colors() -> torch.Tensor:
        read = "[...root.querySelectorAll('[role=gridcell]')].map((cell) => cell.style.getPropertyValue('--color'))"
        return torch.tensor([[int(part) for part in re.findall(r"\d+", color)] for color in figure.value(read)])

    row = shown[1, "mean"][0, 0].mean(dim=0)
    for largest in (row[1:].max().item(), shown[1, "mean"][0].mean(dim=1)[:, 1:].max().item()):
        assert figure.value("root.querySelector('.most').innerText") == f"{100 * largest:.1f}\u00a0%"
        expected = torch.tensor(matplotlib.colormaps["viridis"]((row / largest).clamp(max=1).numpy())[:, :3]) * 255
        assert_close(colors().double(), expected, atol=9, rtol=0)
        figure.value("root.querySelector('[name=common]').click()")


def test_on_a_phone_a_tap_chooses_and_nothing_scrolls_sideways(browser, page, shown):
    browser.screen(360, 740, phone=True)
    figure = Figure(browser, page)
    assert browser.value("document.documentElement.scrollWidth") == 360
    figure.value("root.querySelector('.patches').scrollIntoView()")
    browser.tap(*figure.place(8))
    browser.until(f"{FIGURE}.querySelector('[data-token=\"8\"]').ariaSelected === 'true'")
    figure.assert_shows(shown[1, "mean"][0, 8])
    small = figure.value(
        "[...root.querySelectorAll('select, input, [role=gridcell]')].map((one) => one.getBoundingClientRect())"
        ".filter((box) => Math.min(box.width, box.height) < 24).length"
    )
    assert small == 0, "touch targets of at least 24 pixels"
    wide = figure.value(
        "[...root.querySelectorAll('*')].map((one) => one.getBoundingClientRect())"
        ".filter((box) => box.left < -0.5 || box.right > 360.5).length"
    )
    assert wide == 0


@pytest.mark.parametrize(
    ("system", "theme", "dark"),
    [
        ("light", "", False),
        ("dark", "", True),
        ("light", "document.documentElement.dataset.theme = 'dark'", True),
        ("dark", "document.body.dataset.jpThemeLight = 'true'", False),
        ("light", "document.documentElement.setAttribute('theme', 'dark')", True),
        ("dark", "document.body.className = 'vscode-light'", False),
    ],
)
def test_the_page_decides_about_light_and_dark_and_else_the_system(browser, page, system, theme, dark):
    """That words can then be read, axe says, in tests/browser/."""
    browser.screen()
    browser.prefer(system)
    figure = Figure(browser, page)
    browser.value(theme or "0")
    browser.until(f"{FIGURE}.host.dataset.scheme === '{'dark' if dark else 'light'}'")
    assert figure.value("root.host.dataset.scheme") == ("dark" if dark else "light")


def test_a_browser_that_cannot_open_it_says_so_beside_the_still_view(browser, page):
    browser.before_each_page("delete window.DecompressionStream")
    browser.open(page)
    browser.until("document.body.innerText.includes('could not be opened: DecompressionStream is not defined')")
    assert browser.value(FIGURE) is None
    assert browser.value("document.querySelectorAll('.still tbody tr').length") == 6
