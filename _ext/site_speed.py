"""Pages that can be read before their scripts have come, and that do not jump when their pictures come."""

import re
from pathlib import Path
from urllib.parse import unquote

from PIL import Image
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

# What extensions of Jupyter Book put into every page and no page of this book uses.
UNUSED = ("sphinx-thebe", "design-tabs", "THEBE_JS_URL")
# Draws each icon a second time, as SVG: 1.5 MB before the first word. The theme's fonts have the icons too.
ICONS = re.compile(r'<script src="[^"]*/fontawesome\.js[^"]*"></script>\s*')
PICTURE = re.compile(r"""<img\b((?:[^<>"]|"[^"]*")*?)\s*/?>""")  # a text in quotes may well hold a >
SOURCE = re.compile(r'\bsrc="([^"]+)"')
PLACED = re.compile(r'\s(?:width|loading)="')


def lighten_scripts(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Leave unused scripts and styles out, and run the others after the text is there.

    Of equal inline scripts one copy stays: a second `const` of the same name is an error in the browser's console.
    The page with the results of a search needs its scripts in order and at once.
    """
    seen: set[str] = set()
    kept = []
    for script in context.get("script_files", []):
        attributes = getattr(script, "attributes", {})
        body = attributes.get("body")
        if body in seen or any(name in f"{getattr(script, 'filename', script)} {body}" for name in UNUSED):
            continue
        if body is not None:
            seen.add(body)
        elif pagename == "search":
            attributes.pop("defer", None)  # all pages share these objects
        elif "documentation_options" not in str(script.filename):
            attributes.setdefault("defer", "defer")
        kept.append(script)
    context["script_files"] = kept
    styles = context.get("css_files", [])
    context["css_files"] = [style for style in styles if not any(name in str(style.filename) for name in UNUSED)]


def size_pictures(body: str, folder: Path, originals: dict[str, Path]) -> str:
    """Give each picture of a page its width and height in pixels, and let all but the first load when they are near.

    originals: file name in the built site → the picture, for those that are not yet in their place. Pictures with a
    width or with loading="…" stay as they are, and so do those that are no files.
    """
    count = 0

    def sized(match: re.Match) -> str:
        nonlocal count
        attributes, found = match[1], SOURCE.search(match[1])
        if PLACED.search(attributes) or not found or re.match(r"https?:|data:", found[1]):
            return match[0]
        source = unquote(found[1])
        path = originals.get(source.rpartition("/")[2], folder / source)
        if not path.is_file() or path.suffix == ".svg":
            return match[0]
        with Image.open(path) as picture:
            width, height = picture.size
        count += 1
        late = ' loading="lazy"' if count > 1 else ""
        return f'<img{attributes} width="{width}" height="{height}" decoding="async"{late} />'

    return PICTURE.sub(sized, body)


def place_pictures(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """The same for a page that Sphinx is about to write."""
    if "body" not in context or not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    originals = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
    context["body"] = size_pictures(context["body"], Path(app.outdir, pagename).parent, originals)


def drop_icon_script(app: Sphinx, exception: Exception | None) -> None:
    """Take the script that draws icons out of every page, and out of the site."""
    if exception is not None or not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        lighter = ICONS.sub("", text)
        if lighter != text:
            page.write_text(lighter, encoding="utf-8")
    for part in Path(app.outdir, "_static", "scripts").glob("fontawesome.js*"):
        part.unlink()


def setup(app: Sphinx) -> dict[str, bool | str]:
    app.connect("html-page-context", lighten_scripts, priority=900)
    app.connect("html-page-context", place_pictures, priority=910)
    app.connect("build-finished", drop_icon_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
