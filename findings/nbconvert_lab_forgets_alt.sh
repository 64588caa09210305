#!/bin/sh
# nbconvert 7.17.2: an alternative text that a notebook keeps with an output's image comes through with the template
# "classic". With "lab", the default, it is dropped, and the page says "No description has been provided for this image".
# Guessed: where the converter asks for alternative texts, as its warning does, its default template reads the stored one.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet nbconvert==7.17.2 nbformat==5.11.1
cat > try.py <<'P'
import base64
import logging
import struct
import zlib
from importlib.metadata import version

from bs4 import BeautifulSoup
from nbconvert import HTMLExporter
from nbformat.v4 import new_code_cell, new_notebook, new_output


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


logging.disable(logging.WARNING)
head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
parts = ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0\x80\x80\x80")), (b"IEND", b""))
png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)).decode()
image = new_output("display_data", data={"image/png": png}, metadata={"image/png": {"alt": "one gray pixel"}})
notebook = new_notebook(cells=[new_code_cell("show()", outputs=[image])])

print("nbconvert", version("nbconvert"))
kept = {}
for template in ("classic", "lab"):
    html, _ = HTMLExporter(template_name=template).from_notebook_node(notebook)
    kept[template] = BeautifulSoup(html, "html.parser").img["alt"]
    print(f"{template:<8} alt={kept[template]!r}")
assert kept == {"classic": "one gray pixel", "lab": "No description has been provided for this image"}, kept
P
env/bin/python try.py
