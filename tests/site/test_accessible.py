"""The repairs that the site's HTML gets; that they suffice is seen in a browser, by tests/browser/."""

import accessible
import pytest


@pytest.mark.parametrize(("written", "better"), accessible.REPAIRS.items())
def test_a_repair_is_made_once_and_only_where_it_is_due(written: str, better: str) -> None:
    page = f"<p>before</p>{written}<p>after</p>"
    assert accessible.repaired(page) == f"<p>before</p>{better}<p>after</p>"
    assert accessible.repaired(accessible.repaired(page)) == accessible.repaired(page)
    assert accessible.repaired("<p>before</p>") == "<p>before</p>"


def test_the_arguments_of_a_long_signature_are_lines_and_no_list() -> None:
    opening, closing = '<span class="sig-paren">(</span>', '<span class="sig-paren">)</span>'
    page = f"<dl><dt>{opening}\n\n<dl>\n<dd><em>a</em>,</dd>\n</dl>\n\n{closing}</dt><dd>What it does.</dd></dl>"
    lines = '<span class="sig-lines"><span class="sig-line"><em>a</em>,</span>\n</span>'
    repaired = f"<dl><dt>{opening}{lines}{closing}</dt><dd>What it does.</dd></dl>"
    assert accessible.repaired(page) == accessible.repaired(repaired) == repaired
