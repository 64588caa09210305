"""What the theme's and Sphinx's HTML lacks for readers with a keyboard, a screen reader, or eyes that need contrast.

The colors are in _static/book.css. The browser suite, tests/browser/, holds every page against WCAG 2.2 AA.
"""

import re
from html import unescape
from pathlib import Path

from PIL import Image
from sphinx.application import Sphinx

# Each is what is written, and what it becomes; all can be applied twice.
REPAIRS = {
    # A role that WAI-ARIA has withdrawn; the entries stand in a list.
    'role="doc-biblioentry"': 'role="listitem"',
    # The corner of a table has no words, and so is no heading.
    '<th class="head"><p></p></th>': "<td></td>",
    # All of a page belongs to a landmark; the sidebar's title and buttons belonged to none.
    '<div id="pst-primary-sidebar" class': '<div id="pst-primary-sidebar" role="complementary" aria-label="Book" class',
    # A button is named by the words on it: "Search Ctrl+K".
    'search-button-field search-button__button pst-js-only" title="Search" aria-label="Search"': (
        'search-button-field search-button__button pst-js-only" title="Search"'
    ),
    # So is a folded cell: "Show code cell source".
    '<summary aria-label="Toggle hidden content">': "<summary>",
    # What unfolds the pages below one, in the contents, is an arrow without words.
    '<summary><span class="toctree-toggle"': '<summary aria-label="Pages below this one"><span class="toctree-toggle"',
    # Marks for a mouse, a stop for Tab at every heading; the list of sections has the same addresses.
    '<a class="headerlink" href': '<a class="headerlink" tabindex="-1" href',
    # The buttons above the text say what they lead to; on a phone, one word of that stands below each.
    'title="Toggle primary sidebar"': 'title="Chapters" aria-label="Chapters"',
    'title="Toggle secondary sidebar"': 'title="Sections of this page" aria-label="Sections of this page"',
    'aria-label="Launch interactive content"': 'title="Run in Colab" aria-label="Run in Colab"',
    'aria-label="Source repositories"': 'title="Source on GitHub" aria-label="Source on GitHub"',
    'aria-label="Download this page"': 'title="Save this page" aria-label="Save this page"',
    '<span class="btn__text-container">.ipynb</span>': '<span class="btn__text-container">Notebook</span>',
    '<span class="btn__text-container">.pdf</span>': '<span class="btn__text-container">PDF, by printing</span>',
    # The three images on the switch of colors have titles, which are not its name.
    ' data-mode="light" title="Light"': ' data-mode="light"',
    ' data-mode="dark"  title="Dark"': ' data-mode="dark"',
    ' data-mode="auto"  title="System Settings"': ' data-mode="auto"',
}


# Draws each icon a second time, as SVG: 1.5 MB before the first word. The theme's fonts have the icons too.
ICONS = re.compile(r'<script src="[^"]*/fontawesome\.js[^"]*"></script>\s*')

# Without their size, what stands below them would move when they come.
IMAGE = re.compile(r'<img (?![^>]*\bwidth=)(?=[^>]*\ssrc="([^"]*\b_images/[^"]+)")')

# The arguments of a long signature, one a line: <dd> in a <dl> that has no <dt>.
ARGUMENTS = re.compile(
    r'(?<=<span class="sig-paren">\(</span>)\s*<dl>\s*(.*?)</dl>\s*(?=<span class="sig-paren">\)</span>)', re.S
)

# Formulas with what stands at them without a space, such as a comma, which browsers would put on the next line.
FORMULA = re.compile(r'(?:[^\s<>]*<span class="math[^>]*>.*?</span>)+[^\s<>]*', re.S)


# Code, and what it has printed; from here on a line may be wrapped on a phone.
LONG = 40
DEEP = 16  # letters: what is wrapped begins no further to the right
LISTING = re.compile(r'(?<=<div class="highlight"><pre>).*?(?=</pre>)', re.S)
TAG = re.compile(r"<[^>]*>")

# Code in a table, whose long names would take the other columns' room.
NARROW = re.compile(r'(?<=<span class="pre">)[^<]*_[^<]*(?=</span></code>)')
CELL = re.compile(r"<td.*?</td>", re.S)

# Code in the list of a page's sections: the names of modules, wider than the list.
ENTRY = re.compile(r'(nav-link" href="#[^"]*"><code[^>]*><span class="pre">)([^<]*)(?=</span></code>)')

# Where the text's own controls begin, behind the bar of buttons above it; the page of results has no text.
SKIP = ('<a href="#main-content">Skip to main content</a>', '<a href="#text">Skip to the text</a>')
TEXT = ('<article class="bd-article">', '<article class="bd-article" id="text" tabindex="-1">')


def plain_arguments(match: re.Match) -> str:
    """The same lines without a list's claims; their look is in _static/reference.css."""
    lines = match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'


def with_hanging_lines(listing: re.Match) -> str:
    return "".join(map(hanging, listing[0].splitlines(keepends=True)))


def hanging(line: str) -> str:
    """A line of a listing; a long one goes on, where it is wrapped, below its fourth letter, prose below its first."""
    plain = unescape(TAG.sub("", line)).rstrip("\n")
    if len(plain) <= LONG or 'class="long"' in line:
        return line
    prose = plain.lstrip().startswith("#") or 'class="sd"' in line
    indent = min(len(plain) - len(plain.lstrip()) + (0 if prose else 4), DEEP)
    body = line.rstrip("\n")
    return f'<span class="long" style="--indent: {indent}">{body}</span>{line[len(body) :]}'


def breakable(cell: re.Match) -> str:
    """A cell whose names may break behind an underscore."""
    return NARROW.sub(lambda name: name[0].replace("_", "_<wbr>"), cell[0])


def repaired(html: str) -> str:
    for written, better in REPAIRS.items():
        html = html.replace(written, better)
    if TEXT[0] in html:
        html = html.replace(*SKIP).replace(*TEXT)
    if 'class="unbroken"' not in html:
        html = FORMULA.sub(r'<span class="unbroken">\g<0></span>', html)
    html = CELL.sub(breakable, LISTING.sub(with_hanging_lines, html))
    html = ENTRY.sub(lambda entry: entry[1] + re.sub(r"(?<=[._])(?=\w)", "<wbr>", entry[2]), html)
    return ARGUMENTS.sub(plain_arguments, SPHINX_SEARCH.sub("", ICONS.sub("", html)))


# Jupyter Book loads these on every page, some twice, and no page uses them.
UNUSED = re.compile("thebe|toggle|design-tabs|sphinx-design|sphinx_highlight")

# Of the page of results: its search is _static/search.js.
SPHINX_SEARCH = re.compile(r'<script src="(?:_static/searchtools|_static/language_data|searchindex)\.js"></script>\s*')


def load_less(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Of scripts and styles only what the page uses, and the words before the scripts."""
    for kind in ("script_files", "css_files"):
        context[kind] = [file for file in context[kind] if not UNUSED.search(str(vars(file)).lower())]
    for script in context["script_files"]:
        if pagename == "search":  # whose own scripts need the others at once; all pages share these objects
            script.attributes.pop("defer", None)
        elif script.filename and "documentation_options" not in str(script.filename):
            script.attributes["defer"] = "defer"


def sized(html: str, folder: Path) -> str:
    """Each image of a page with its width and height."""

    def with_size(match: re.Match) -> str:
        with Image.open(folder / match[1]) as image:
            return f'<img width="{image.width}" height="{image.height}" '

    return IMAGE.sub(with_size, html)


def repair_pages(app: Sphinx, error: Exception | None) -> None:
    """Repair every page that was written; one that was not is as it was left the last time."""
    if error or app.builder.format != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        if (better := sized(repaired(html), path.parent)) != html:
            path.write_text(better, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", load_less, priority=900)
    app.connect("build-finished", repair_pages)
