"""The repairs that the site's HTML gets; that they suffice is seen in a browser, by tests_site/."""

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
    argument = '<em class="sig-param"><span class="n">{}</span></em>,'
    listed = "".join(f"<dd>{argument.format(name)}</dd>\n" for name in "ab")
    lines = "".join(f'<span class="sig-line">{argument.format(name)}</span>\n' for name in "ab")
    page = f"<dl><dt>{opening}\n\n<dl>\n{listed}</dl>\n\n{closing}</dt><dd>What it does.</dd></dl>"
    repaired = f'<dl><dt>{opening}<span class="sig-lines">{lines}</span>{closing}</dt><dd>What it does.</dd></dl>'
    assert accessible.repaired(page) == repaired
    assert accessible.repaired(repaired) == repaired
    short = f"<dl><dt>{opening}{argument.format('a')}{closing}</dt></dl>"
    assert accessible.repaired(short) == short
