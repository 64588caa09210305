#!/bin/sh
# Pillow 13.0.0: a gray TIFF may state that 0 is white (PhotometricInterpretation 0, as scanners write it). Of 8 bits
# Pillow turns such levels around, so that white is 255; of 16 bits it gives them as they stand, a negative, with nothing
# said in the mode (I;16) or in a warning. Only tag 262 tells. Guessed: that it is done for both depths or for neither,
# since one line of the specification covers them.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet pillow==13.0.0 tifffile==2026.3.3 numpy==2.4.6
cat > try.py <<'P'
import numpy as np
import PIL
import tifffile
from PIL import Image

print("Pillow", PIL.__version__)
white = {}
for bits, kind in ((8, np.uint8), (16, np.uint16)):
    for photometric in ("minisblack", "miniswhite"):
        name = f"{photometric}_{bits}.tif"
        level = (1 << bits) - 1 if photometric == "minisblack" else 0  # white in each
        tifffile.imwrite(name, np.full((4, 4), level, kind), photometric=photometric)
        with Image.open(name) as image:
            read = int(np.asarray(image).max())
            print(f"{photometric}, {bits} bits, all white: mode {image.mode}, tag 262 is {image.tag_v2[262]}, read as {read}")
            white[photometric, bits] = read
assert white["minisblack", 8] == white["miniswhite", 8] == 255
assert white["minisblack", 16] == 65_535 and white["miniswhite", 16] == 0
P
env/bin/python try.py
