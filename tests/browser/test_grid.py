"""How a page is laid out: few right edges, and nothing of the text's code behind them."""

import pytest
from visits import Site

WIDE = dict(width=1440, height=900)
PHONE = dict(width=390, height=844)

RIGHT = """
(one) => [...document.querySelectorAll(one)].filter((one) => one.checkVisibility())
  .map((one) => Math.round(one.getBoundingClientRect().right))
"""
CUT = """
() => [...document.querySelectorAll('.highlight pre')].filter((one) => one.checkVisibility())
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent.slice(0, 80))
"""
SIZES = """
() => [...document.querySelectorAll('.bd-article pre')].map((one) => getComputedStyle(one).fontSize)
"""


@pytest.mark.parametrize("width", [1024, 1440])
def test_the_blocks_of_the_landing_page_end_where_columns_end(site: Site, width: int) -> None:
    with site.visit("intro.html", viewport=WIDE | dict(width=width)) as visit:
        [last] = set(visit.page.evaluate(RIGHT, ".cover img"))
        for blocks in (".ways ul", "ul.chapters", ".cover figcaption p"):
            assert set(visit.page.evaluate(RIGHT, f"article {blocks}")) == {last}
        columns = visit.page.evaluate(RIGHT, "article #where-to-begin li")
        assert set(visit.page.evaluate(RIGHT, "ul.chapters > li")) == set(columns)
        second = visit.page.locator("article #where-to-begin li").nth(1).bounding_box()["x"]
        assert visit.page.locator(".cover figcaption").bounding_box()["x"] == pytest.approx(second, abs=2)
        assert set(visit.page.evaluate(RIGHT, ".cover > p, #the-chapters > p:not(.rubric)")) == {columns[1]}


@pytest.mark.parametrize(
    "name", ["chapters/12_data", "chapters/13_attention_maps", "chapters/21_modern", "chapters/27_at_work"]
)
def test_code_is_whole_and_of_one_size_on_a_phone(site: Site, name: str) -> None:
    with site.visit(f"{name}.html", viewport=WIDE) as visit:
        assert visit.page.evaluate(CUT) == []
        visit.page.set_viewport_size(PHONE)
        assert visit.page.evaluate(CUT) == []
        assert len(set(visit.page.evaluate(SIZES))) == 1


def test_the_list_of_sections_holds_its_names(site: Site) -> None:
    with site.visit("api/serving.html", viewport=WIDE) as visit:
        assert (
            visit.page.evaluate(
                "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)"
                "(document.querySelector('.bd-sidebar-secondary'))"
            )
            == 0
        )
