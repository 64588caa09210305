"""Every drawing: what a notebook and a screen reader get."""

import re
from xml.etree import ElementTree

import pytest
from every_drawing import ALL

from vitbook_workshop import drawings

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ALL)
def test_a_drawing_is_an_image_with_words_for_it(name: str) -> None:
    bundle = ALL[name]()._repr_mimebundle_()
    assert bundle == ALL[name]()._repr_mimebundle_()
    root = ElementTree.fromstring(bundle["image/svg+xml"])
    assert root.tag == SVG + "svg" and root.get("role") == "img"
    title, alt = root.findtext(SVG + "title"), root.findtext(SVG + "desc")
    assert alt == root.get("aria-label") == bundle["text/plain"]
    assert 5 < len(title) < 80 < len(alt) < 700
    assert not re.search(r'\bid="', bundle["image/svg+xml"])  # several stand in one page


@pytest.mark.door
def test_a_place_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="here must be None or one of patches, .*, got 'patch'"):
        drawings.vit("patch")
