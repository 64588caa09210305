"""The book for reading without a network: the built site, MathJax and its fonts within it, in one zip.

A browser opens it from the folder: no script of it asks a server for anything. The same site makes the same bytes.
"""

import base64
import io
import re
import sys
import zipfile
from pathlib import Path

import npm

from vitbook._support.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
NAME = "vitbook-offline"
SCRIPT = "es5/tex-mml-chtml.js"
FONTS = "es5/output/chtml/fonts/woff-v2/"
ASKED = re.compile(
    rf'<script[^>]*\bsrc="https://[^"]*mathjax@{re.escape(npm.MATHJAX.version)}/{SCRIPT}"[^>]*></script>'
)

# A tag may have its attributes in any order
ELSEWHERE = re.compile(
    r'<(?:script|img)\b[^>]*\bsrc="https?:[^>]*|<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="https?:[^>]*'
)


def mathjax() -> str:
    """MathJax with its fonts inside: some browsers load no font from a folder beside the page's own."""
    files = npm.files(npm.MATHJAX)

    def font(match: re.Match) -> str:
        return "data:font/woff;base64," + base64.b64encode(files[FONTS + match[1]]).decode()

    return re.sub(r"%%URL%%/(\w+-?\w*\.woff)", font, files[SCRIPT].decode())


def offline_page(html: str) -> str:
    """A page that takes MathJax from the book's own folder.

    Raises ValueError where it would still ask another server for a script or a style.
    """
    root = re.search(r'data-content_root="([^"]*)"', html)
    own = f'<script defer="defer" src="{root[1] if root else ""}_static/mathjax.js"></script>'
    html = ASKED.sub(own, html)
    if asked := ELSEWHERE.findall(html):
        raise ValueError(f"expected a page that asks other servers only for MathJax {npm.MATHJAX.version}, got {asked}")
    return html


def contents(site: Path) -> dict[str, bytes]:
    """Every file of the zip by its path: what the site has, changed where it needs a network.

    Raises FileNotFoundError where there is no built site.
    """
    if not (site / "index.html").is_file():
        raise FileNotFoundError(f"{site} holds no built site; make book builds it")
    paths = [path for path in site.rglob("*") if path.is_file() and path.suffix != ".map" and path.name != ".buildinfo"]
    files = {path.relative_to(site).as_posix(): path.read_bytes() for path in paths}
    for name in files:
        if name.endswith(".html") and not name.startswith("_static/"):
            files[name] = offline_page(files[name].decode()).encode()
    # The search would fetch a summary of each page that it finds, which browsers forbid to a page in a folder.
    options = files["_static/documentation_options.js"].decode()
    files["_static/documentation_options.js"] = re.sub(r"(SHOW_SEARCH_SUMMARY:) *true", r"\1 false", options).encode()
    files["_static/mathjax.js"] = mathjax().encode()
    files["_static/mathjax-license.txt"] = npm.files(npm.MATHJAX)["LICENSE"]
    return files


def write(site: Path, target: Path) -> Path:
    """Write the zip, and nothing where something is missing."""
    files, packed = contents(site), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{NAME}/{name}")
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, files[name])
    write_whole(target, packed.getvalue())
    return target


def main() -> None:
    made = write(ROOT / "_build" / "html", ROOT / "_build" / f"{NAME}.zip")
    sys.stdout.write(f"{made.relative_to(ROOT)}: unpack it and open {NAME}/index.html\n")


if __name__ == "__main__":
    main()
