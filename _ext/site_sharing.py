"""What search engines and shared links show of a page: its description, sitemap.xml and robots.txt.

sphinxext-opengraph writes the tags; all addresses derive from the repository's (site_address).
"""

import re
from pathlib import Path
from urllib.parse import urljoin
from xml.sax.saxutils import escape

from docutils import nodes
from site_chapters import chapter_number, read_chapter
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder


def plain_text(markdown: str) -> str:
    """One line of a chapter without its markup: a description is shown as it is."""
    text = re.sub(r"\$([^$]+)\$", lambda math: math[1].replace("\\sqrt ", "√").replace("\\", ""), markdown)
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("*", "").replace("`", "")


def describe(app: Sphinx, doctree: nodes.document) -> None:
    """A chapter is described by the question that it asks first."""
    name = app.env.docname
    if chapter_number(name) is not None:
        question = plain_text(read_chapter(Path(app.srcdir), name).question)
        app.env.metadata[name]["og:description"] = question
        doctree.insert(0, nodes.meta(name="description", content=question))


def sitemap(base: str, pages: list[str]) -> str:
    """The pages' addresses as the XML that search engines read."""
    urls = "".join(f"  <url><loc>{escape(urljoin(base, page))}</loc></url>\n" for page in pages)
    head = '<?xml version="1.0" encoding="utf-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    return f"{head}{urls}</urlset>\n"


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    base = app.config.html_baseurl
    pages = [app.builder.get_target_uri(name) for name in sorted(app.env.found_docs)]
    out = Path(app.outdir)
    (out / "sitemap.xml").write_text(sitemap(base, pages), encoding="utf-8")
    (out / "robots.txt").write_text(f"User-agent: *\nAllow: /\nSitemap: {urljoin(base, 'sitemap.xml')}\n", "utf-8")


def describe_entrance(app: Sphinx, exception: Exception | None) -> None:
    """index.html only leads on to the first page; give it that page's tags, since it is what people share."""
    first, index = (Path(app.outdir, f"{name}.html") for name in (app.config.root_doc, "index"))
    if exception is not None or first == index or not (first.exists() and index.exists()):
        return
    tags = re.findall(r'<meta (?:property="og:|name="(?:description|twitter:))[^>]*>', first.read_text("utf-8"))
    title, joined = escape(app.config.html_title), "\n".join(tags)
    index.write_text(
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n<title>{title}</title>\n{joined}\n'
        f'<meta http-equiv="refresh" content="0; url={first.name}" />\n</head>\n'
        f'<body><a href="{first.name}">{title}</a></body>\n</html>\n',
        encoding="utf-8",
    )


def setup(app: Sphinx) -> dict[str, bool | str]:
    app.connect("doctree-read", describe)
    app.connect("build-finished", write_sitemap)
    app.connect("build-finished", describe_entrance, priority=900)  # after Jupyter Book has written index.html
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
