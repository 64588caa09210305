"""Font Awesome with the icons that the site shows, out of two thousand: 8 KB in place of 300.

The theme's style sheet and fonts hold all of them. Kept are those that a page names by class and those that the style
sheets name by number.
"""

import re
from pathlib import Path

from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx

NAMED = re.compile(r"\bfa-[a-z0-9-]+")
RULE = re.compile(r"((?:\.fa-[a-z0-9-]+:before,?)+)\{content:\"\\([0-9a-f]+)\"\}")
NUMBER = re.compile(r"\\(f[0-9a-f]{3})")
FACE = re.compile(r"src:url\(([^)]*/(fa-[a-z]+-\d+))\.woff2\)[^;}]*")


def fewer_icons(css: str, used: set[str]) -> tuple[str, set[int]]:
    """The style sheet without the rules of icons that nobody names, and the numbers of the others."""

    def kept(rule: re.Match) -> str:
        names = set(NAMED.findall(rule[1])) & used
        return rule[0] if names else ""

    css = RULE.sub(kept, css)
    css = FACE.sub(lambda face: f'src:url({face[1]}.woff) format("woff")', css)
    return css, {int(number, 16) for number in NUMBER.findall(css)}


def subset(source: Path, numbers: set[int]) -> None:
    """The font with these glyphs alone, beside the whole one, which goes, and its compressed copy."""
    font, options = TTFont(source), Options(flavor="woff", desubroutinize=True)
    shorter = Subsetter(options)
    shorter.populate(unicodes=numbers)
    shorter.subset(font)
    font.flavor = "woff"
    font.save(source.with_suffix(".woff"))
    source.unlink()
    source.with_suffix(".woff2").unlink(missing_ok=True)


def shrink(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    fonts = sorted(folder.glob("_static/vendor/fontawesome/webfonts/*.ttf"))
    if not fonts:
        return  # done before: the page that was built again names the same icons
    used = {name for page in folder.rglob("*.html") for name in NAMED.findall(page.read_text(encoding="utf-8"))}
    numbers = set()
    for path in folder.glob("_static/styles/*.css"):
        css, found = fewer_icons(path.read_text(encoding="utf-8"), used)
        path.write_text(css, encoding="utf-8")
        numbers |= found
    for font in fonts:
        subset(font, numbers)


def setup(app: Sphinx) -> None:
    app.connect("build-finished", shrink)
