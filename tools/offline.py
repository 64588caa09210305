"""The book for reading without a network: the built site in one zip.

A browser opens it from the folder: no script of it asks a server for anything. The same site makes the same bytes.
"""

import io
import re
import sys
import zipfile
from pathlib import Path

from vitbook._common.files import write_whole

ROOT = Path(__file__).resolve().parent.parent
NAME = "vitbook-offline"

# A tag may have its attributes in any order
ELSEWHERE = re.compile(
    r'<(?:script|img)\b[^>]*\bsrc="https?:[^>]*|<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="https?:[^>]*'
)
AHEAD = re.compile(r'<link rel="preload"[^>]*\bcrossorigin\b[^>]*>')  # browsers forbid it to a page in a folder


def contents(site: Path) -> dict[str, bytes]:
    """Every file of the zip by its path: what the site has, changed where it needs a server.

    Raises FileNotFoundError where there is no built site, ValueError where a page asks another server for something.
    """
    if not (site / "index.html").is_file():
        raise FileNotFoundError(f"{site} holds no built site; make book builds it")
    paths = [path for path in site.rglob("*") if path.is_file() and path.suffix != ".map" and path.name != ".buildinfo"]
    files = {path.relative_to(site).as_posix(): path.read_bytes() for path in paths}
    for name in files:
        if name.endswith(".html"):
            page = AHEAD.sub("", files[name].decode())
            if asked := ELSEWHERE.findall(page):
                raise ValueError(f"expected pages that ask no other server for anything, got {asked} in {name}")
            files[name] = page.encode()
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
