"""Chapter 28's figure: answers, maps and carried heads are torch's, by mouse, finger and keyboard, on a phone."""

import base64
import re

import numpy as np
import pytest
import torch
from asking import close

from vitbook.activation_patching import head, moved, patched
from vitbook.planted import COLORS
from vitbook_workshop.exam.methods import METHODS
from vitbook_workshop.exam.sittings import exam_model
from vitbook_workshop.live import figure_data, figures

BUTTONS = {"last": "last block's attention", "rollout": "rollout", "occlusion": "occlusion, gray"}
SCENES = figure_data.packed_exam()["scenes"]
MODEL = exam_model("compare")


@pytest.fixture
def figure(browser, tmp_path):
    figures.exam().save(tmp_path / "exam.html")
    browser.screen(390, 844, phone=True)
    browser.page.emulate_media(color_scheme="dark")
    browser.open(tmp_path / "exam.html")
    browser.page.locator(".live-start").click()
    settled(browser.page)
    yield browser.page
    assert browser.errors == [] and browser.page.evaluate("document.documentElement.scrollWidth") <= 390


def settled(page) -> None:
    page.locator(".figure[aria-busy=false]").wait_for()


def pixels(text: str, side: int) -> torch.Tensor:
    levels = np.frombuffer(base64.b64decode(text), np.uint8).reshape(side, side, 3).copy()
    return torch.from_numpy(levels).permute(2, 0, 1).float() / 127.5 - 1


def inputs(scene: dict, change: str = "") -> torch.Tensor:
    """The scene or one of its twins, (1, 3, 24, 24)."""
    image = pixels(scene["pixels"], 24)
    if change:
        row, column = divmod(scene["key"][change == "color"], 6)
        image[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = pixels(scene[change], 4)
    return image[None]


def shares(page, column: str) -> torch.Tensor:
    settled(page)
    texts = page.locator(f"[data-column={column}] .bars b").all_inner_texts()
    return torch.tensor([float(text.partition("\u00a0")[0]) / 100 for text in texts])


@torch.no_grad()
def said(images: torch.Tensor) -> torch.Tensor:
    return MODEL(images)[0].softmax(dim=-1)


def places(patches: list[int]) -> str:
    return " and ".join(f"row {patch // 6}, column {patch % 6}" for patch in patches)


def test_scenes_and_twins_are_answered_by_their_keys():
    for scene in SCENES:
        cue, match = (scene["patches"][place].split() for place in scene["key"])
        assert cue[0] == "gray" and cue[1] == match[1] and match[0] != "gray"
        same = [what for what in scene["patches"].values() if what.endswith(cue[1])]
        answers = [COLORS[1 + said(inputs(scene, change)).argmax()] for change in ("", "cue", "color")]
        assert len(same) == 2 and answers[0] == match[0] and match[0] not in answers[1:]


def test_in_every_image_three_maps_point_where_torch_says(figure):
    total = dict.fromkeys(BUTTONS, 0)
    for number, scene in enumerate(SCENES):
        figure.locator("[name=scene]").select_option(label=str(number + 1))
        settled(figure)
        assert figure.locator("[name=last]").is_disabled() and figure.locator(".key").count() == 0
        figure.locator("[name=key]").click()
        images = inputs(scene)
        close(shares(figure, "untouched"), said(images))
        for button, method in BUTTONS.items():
            figure.locator(f"[name={button}]").click()
            figure.locator(f"[name={button}][aria-pressed=true]").wait_for()
            highest = METHODS[method](MODEL, images, said(images).argmax()[None])[0].flatten().topk(2).indices.tolist()
            right = len(set(highest) & set(scene["key"]))
            total[button] += right
            caption = figure.locator(".caption").inner_text().replace("\u00a0", " ")
            assert caption.endswith(f" points at {places(highest)}: {right} of 2 right, precision {50 * right} %.")
            framed = figure.locator(".pointed").evaluate_all("(cells) => cells.map((cell) => +cell.dataset.patch)")
            assert sorted(framed) == sorted(highest)
        rows = [row.split("\t")[2] for row in figure.locator(".maps tbody").inner_text().split("\n")]
        assert rows == [f"{right} of {2 * number + 2}" for right in (0, *total.values())]


def test_a_reader_points_and_blanks_by_keyboard_alone(figure, browser):
    scene = SCENES[0]
    figure.locator("[data-patch='0']").focus()

    def go(there: int, here: int) -> None:
        (down, right), (top, left) = divmod(there, 6), divmod(here, 6)
        for key, steps in {"Down": down - top, "Up": top - down, "Right": right - left, "Left": left - right}.items():
            for _ in range(steps):
                browser.press(f"Arrow{key}")

    other = 0 if 0 not in scene["key"] else 1
    for there, here in zip([other, *scene["key"]], [0, other, scene["key"][0]], strict=True):
        go(there, here)
        browser.press("Enter")
    assert figure.locator("[aria-selected=true]").count() == 2
    assert figure.locator(".caption").inner_text() == f"You have marked {places(scene['key'])}."
    browser.press("Enter")  # the mark is taken back
    maps, changed = figure.locator("[name=last]"), figure.locator("[data-column=changed]")
    assert maps.is_disabled() and changed.is_hidden()
    figure.locator("[name=key]").focus()
    browser.press("Enter")
    assert maps.is_enabled() and changed.is_hidden()
    assert figure.locator(".caption").inner_text() == f"You had 1 of the two. The key: {places(scene['key'])}."
    assert "in the key" in figure.locator(f"[data-patch='{scene['key'][1]}']").get_attribute("aria-label")
    figure.locator(f"[data-patch='{scene['key'][1]}']").focus()
    browser.press("Space")
    images = inputs(scene)
    row, column = divmod(scene["key"][1], 6)
    images[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 0
    figure.locator(".covered").wait_for()
    assert changed.is_visible()
    close(shares(figure, "changed"), said(images))
    figure.locator("[name=reset]").click()
    close(shares(figure, "changed"), said(inputs(scene)))


@pytest.mark.parametrize("change", ["cue", "color"])
def test_a_carried_head_moves_the_answer_as_in_torch(figure, change):
    scene = SCENES[1]
    figure.locator("[name=scene]").select_option(label="2")
    settled(figure)
    figure.locator("[name=key]").click()
    figure.locator("[name=twin]").select_option(change)
    here, there = inputs(scene), inputs(scene, change)
    for block, number in ((0, 2), (1, 0), (1, 1), (2, 3)):
        part = [head(MODEL, block, number)]
        figure.locator("[name=head]").select_option(f"{block}.{number}")
        figure.locator(".sentence", has_text=f"block {block}, head {number}").wait_for()
        close(shares(figure, "changed"), patched(MODEL, here, there, part)[0].softmax(dim=-1))
        text = figure.locator(".sentence").inner_text().replace("−", "-")
        assert f"whose answer is {COLORS[1 + said(there).argmax()]}" in text
        way = float(re.search(r"it goes (-?[\d.]+) of the way", text)[1])
        assert way == pytest.approx(moved(MODEL, here, there, part).item(), abs=0.0051)
