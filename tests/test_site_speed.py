"""Scripts wait for the text, pictures keep their place."""

import re
from pathlib import Path
from types import SimpleNamespace

import pydata_sphinx_theme
import pytest
from PIL import Image
from site_speed import ICONS, lighten_scripts, size_pictures


def script(filename: str | None = None, **attributes: str) -> SimpleNamespace:
    return SimpleNamespace(filename=filename, attributes=attributes)


def kept(page: str, *scripts: SimpleNamespace) -> list[tuple[str | None, bool]]:
    context = {"script_files": list(scripts), "css_files": []}
    lighten_scripts(None, page, "", context, None)
    return [(s.filename or s.attributes["body"], "defer" in s.attributes) for s in context["script_files"]]


def test_scripts_are_deferred_unused_ones_left_out_and_repeated_ones_kept_once() -> None:
    scripts = [script("_static/documentation_options.js"), script("_static/doctools.js"), script(body="let a")]
    scripts += [script(body="let a"), script("_static/sphinx-thebe.js"), script(body="const THEBE_JS_URL = 1")]
    assert kept("intro", *scripts) == [
        ("_static/documentation_options.js", False),  # an inline script sets something in it
        ("_static/doctools.js", True),
        ("let a", False),
    ]


def test_the_search_page_keeps_its_order() -> None:
    shared = script("_static/doctools.js")  # as Sphinx does: one object for all pages
    for page, deferred in (("intro", True), ("search", False), ("notation", True)):
        assert kept(page, shared) == [("_static/doctools.js", deferred)]


def test_unused_styles_are_left_out() -> None:
    context = {"css_files": [script("_static/sphinx-thebe.css"), script("_static/book.css")]}
    lighten_scripts(None, "intro", "", context, None)
    assert [style.filename for style in context["css_files"]] == ["_static/book.css"]


def test_pictures_have_a_size_and_all_but_the_first_wait(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    Image.new("RGB", (50, 40)).save(tmp_path / "b.png")
    body = '<p><img alt="x > y" src="../_images/a.png" /><img alt="b" src="_images/hash.png"></p>'
    sized = size_pictures(body, tmp_path, {"a.png": tmp_path / "a.png", "hash.png": tmp_path / "b.png"})
    first, second = re.findall(r"<img.*?/>", sized)
    assert 'width="30" height="20"' in first and "lazy" not in first
    assert 'width="50" height="40"' in second and 'loading="lazy"' in second


@pytest.mark.parametrize(
    "picture",
    [
        '<img alt="" src="https://x.org/a.png" />',
        '<img alt="" src="data:image/png;base64,AA==" />',
        '<img alt="" src="missing.png" />',
        '<img alt="" src="a.png" width="10" />',
        '<img width="10" alt="" src="a.png" />',
    ],
)
def test_other_pictures_stay_as_they_are(tmp_path: Path, picture: str) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    assert size_pictures(picture, tmp_path, {}) == picture


def test_the_icon_script_is_found_as_the_theme_writes_it() -> None:
    macros = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static/webpack-macros.html"
    assert len(ICONS.findall(macros.read_text(encoding="utf-8"))) == 1
