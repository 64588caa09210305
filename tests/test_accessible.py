"""The repairs that the site's HTML gets; that they suffice is seen in a browser, by tests_site/."""

import accessible
import pytest


@pytest.mark.parametrize(("written", "better"), accessible.REPAIRS.items())
def test_a_repair_is_made_once_and_only_where_it_is_due(written: str, better: str) -> None:
    page = f"<p>before</p>{written}<p>after</p>"
    assert accessible.repaired(page) == f"<p>before</p>{better}<p>after</p>"
    assert accessible.repaired(accessible.repaired(page)) == accessible.repaired(page)
    assert accessible.repaired("<p>before</p>") == "<p>before</p>"
