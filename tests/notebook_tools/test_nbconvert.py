"""`jupyter nbconvert --to html` of all chapters, as configured: each link leads to a page and an anchor there."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
CHAPTERS = sorted((ROOT / "chapters").glob("*.ipynb"))


def test_links_between_chapters_lead_to_pages_and_anchors(tmp_path):
    options = ["--to", "html", "--config", str(ROOT / "tools" / "nbconvert_links.py"), "--output-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "nbconvert", *options, *map(str, CHAPTERS)], check=True)
    pages = {path.name: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in tmp_path.iterdir()}
    anchors = {name: {tag["id"] for tag in page.find_all(id=True)} for name, page in pages.items()}
    asked = [
        (name, *urldefrag(unquote(link["href"])))
        for name, page in pages.items()
        for link in page.find_all("a", href=True)
        if not link["href"].startswith(("http", "..", "mailto")) and "anchor-link" not in link.get("class", ())
    ]
    assert len(pages) == len(CHAPTERS) and len(asked) > 300
    lost = [one for one in asked if one[2] not in anchors.get(one[1] or one[0], ()) and (one[2] or one[1] not in pages)]
    assert not lost, lost
