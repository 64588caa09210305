"""What search engines and shared links show of a page: its description.

sphinxext-opengraph writes the tags, and sphinx-sitemap the list of pages. They lack: a chapter is described by its
question, and index.html, which only leads on, has the first page's tags.
"""

import re
from html import escape
from pathlib import Path

from docutils import nodes
from site_chapters import chapter_number, read_chapter
from sphinx.application import Sphinx


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
        meta = nodes.meta(name="description", content=question)
        meta.source, meta.line = str(app.env.doc2path(name)), 1  # what translators are told
        doctree.insert(0, meta)


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


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", describe)
    app.connect("build-finished", describe_entrance, priority=900)  # after Jupyter Book has written index.html
