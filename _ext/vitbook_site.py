"""What the site adds to the chapters, which are plain Markdown: each part is a module beside this one.

The notebooks have to read well on GitHub, in Colab and in JupyterLab, so nothing here may need a special syntax there.
"""

import importlib

from sphinx.application import Sphinx

PARTS = (
    "site_address",  # the repository's and the site's address, and links to Colab
    "site_callouts",  # "> **Note.** …" becomes a box
    "site_equations",  # tags and anchors, and formulas drawn
    "site_execution",  # stored outputs, and what made them
    "site_figures",  # a class for cells that draw one
    "site_live",  # figures that compute in the page
    "site_drawings",  # drawings in the page's colors
    "site_questions",  # questions with answers to choose from, before a chapter's exercises
    "site_chapters",  # numbers of chapters and figures, and the table on the landing page
    "citations",  # names and years lead to the references
    "glossary_links",  # the first mention of a term leads to the glossary
    "api_reference",  # a page for each part's modules
    "site_search",  # what is searched, a section at a time
    "tested",  # the numbers of the last test run
    "site_icons",  # a font of the icons that are shown
    "site_dark_figures",  # plots a second time, for dark pages
    "accessible",  # keyboards, screen readers, contrast
    "site_epub",  # the book as an EPUB
    "site_sharing",  # descriptions for search engines and shared links
)


def setup(app: Sphinx) -> dict[str, bool | str]:
    for part in PARTS:
        importlib.import_module(part).setup(app)
    return {"version": "3", "parallel_read_safe": True, "parallel_write_safe": False}  # one MathJax answers in order
