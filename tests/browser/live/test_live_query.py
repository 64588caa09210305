"""Chapter 1's small figure: a query among keys, by mouse, finger and keyboard, with the numbers of `attention`."""

import pytest
import torch

from vitbook.attention import attention, attention_scores
from vitbook_workshop.live import figures

KEYS = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
VALUES = torch.tensor([[0.0], [10], [20], [30]])


@pytest.fixture
def figure(browser, tmp_path):
    figures.query().save(tmp_path / "query.html")
    browser.screen(360, 740, phone=True)
    browser.open(tmp_path / "query.html")
    browser.page.locator(".live-start").click()
    browser.page.locator(".sentence:not(:empty)").wait_for()
    yield browser.page
    assert browser.errors == []


def assert_shows(page, *query: float) -> None:
    q = torch.tensor([query])
    answer, weights = attention(q, KEYS, VALUES)
    rows = [row.split("\t") for row in page.locator("tbody").inner_text().split("\n")]
    shown = torch.tensor([[float(number.replace("−", "-")) for number in row[1:]] for row in rows])
    expected = torch.stack([attention_scores(q, KEYS)[0], weights[0], VALUES[:, 0]], dim=1)
    torch.testing.assert_close(shown, expected, atol=0.0051, rtol=0)
    assert page.locator(".sentence").inner_text().endswith(f"the answer is {answer.item():.2f}.")


def test_weights_and_answer_follow_the_query(figure, browser):
    assert_shows(figure, 2.0, 1.0)
    figure.locator(".plane").focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowRight"):
        browser.press(key)
    assert_shows(figure, 2.2, 1.4)
    box = figure.locator(".plane").bounding_box()
    unit = box["width"] * 36 / 320
    place = 0.5 - 2 * unit / box["width"], 0.5 + 3 * unit / box["height"]
    browser.tap(figure.locator(".plane"), place, "lostpointercapture")
    assert_shows(figure, -2.0, -3.0)
    for name, place in {"none": (0.0, 0.0), "between": (1.0, 1.0), "sure": (-4.0, 0.0)}.items():
        figure.locator(f"[name={name}]").click()
        assert_shows(figure, *place)
    assert figure.evaluate("document.documentElement.scrollWidth") <= 360
