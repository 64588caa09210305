"""How many CPU seconds an image file takes on its way to a random resized crop, ours and torchvision's in turns.

    PYTHONPATH=.venv/peers python benchmarks/decoding.py

Photographs scaled to 12 megapixels and to 500 pixels, with the grain of a camera, as JPEGs. The last columns say which
share of ours Pillow's decoder takes, and how much the two images of the same crop differ. For RESULTS.md.
"""

import io
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFile
from vision import import_torchvision

from vitbook.data import photograph
from vitbook.image_files import ImageFiles, random_from, random_resized_crop

SIDE = 224


def camera_file(name: str, sides: tuple[int, int], quality: int) -> bytes:
    """A photograph of as many pixels as a camera's, width and height, with the grain that a camera's has."""
    image = Image.fromarray(photograph(name).permute(1, 2, 0).numpy()).resize(sides, Image.Resampling.BICUBIC)
    grain, content = np.random.RandomState(0).normal(0, 3, (*sides[::-1], 1)), io.BytesIO()
    Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8)).save(content, "JPEG", quality=quality)
    return content.getvalue()


def seconds_of_decoder(read: Callable[[], object]) -> float:
    """CPU seconds that Pillow's decoder takes meanwhile."""
    load, spent = ImageFile.ImageFile.load, [0.0]

    def timed(self):
        start = time.process_time()
        try:
            return load(self)
        finally:
            spent[0] += time.process_time() - start

    ImageFile.ImageFile.load = timed
    try:
        read()
    finally:
        ImageFile.ImageFile.load = load
    return spent[0]


def measure(sides: tuple[int, int], images: int) -> dict[str, float]:
    """CPU milliseconds an image of "ours", "theirs" and our "decoder"; the largest mean "difference" of levels."""
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(("china", "flower")):
            Path(folder, name).mkdir()
            for n in range(2):
                Path(folder, name, f"{n}.jpg").write_bytes(camera_file(name, sides, 92 - 2 * n - i))
        torchvision = import_torchvision()
        transforms, crop = torchvision.transforms, torchvision.transforms.RandomResizedCrop(SIDE)
        ours = ImageFiles.listed(sorted(Path(folder).rglob("*.jpg")), SIDE, Path(folder), 0)
        theirs = torchvision.datasets.ImageFolder(folder, transforms.Compose([crop, transforms.PILToTensor()]))
        taken: dict[str, list[float]] = {"ours": [], "theirs": []}
        turns = [(whose, n) for whose in taken for n in range(images)]
        random.Random(0).shuffle(turns)
        for whose, n in turns:
            start = time.process_time()
            ours.read((n % 4, (n,))) if whose == "ours" else theirs[n % 4]
            taken[whose].append(time.process_time() - start)
        decoding, gaps = [], []
        for n in range(12):
            decoding.append(seconds_of_decoder(lambda n=n: ours.read((n % 4, (n,)))))
            with Image.open(ours.paths[n % 4]) as image:
                left, top, right, bottom = random_resized_crop(image.height, image.width, random_from(n))
                box = [int(top), int(left), int(bottom - top), int(right - left)]
                same = transforms.functional.resized_crop(image.convert("RGB"), *box, [SIDE, SIDE])
            gap = ours.read((n % 4, (n,))).astype(int) - np.asarray(same).transpose(2, 0, 1)
            gaps.append(np.abs(gap).mean())
    each = {whose: 1000 * statistics.mean(some) for whose, some in taken.items()}
    return each | {"decoder": 1000 * statistics.mean(decoding), "difference": float(max(gaps))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| File | Images | Ours, CPU ms | torchvision | Ratio | Decoder | Difference, levels of 255 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for sides, images in (((4000, 3000), 80), ((500, 375), 400)):
        found = measure(sides, images)
        share, ratio = found["decoder"] / found["ours"], found["theirs"] / found["ours"]
        times = f"{found['ours']:.1f} | {found['theirs']:.1f} | {ratio:.2f} | {share:.0%} | {found['difference']:.2f}"
        print(f"| {sides[0]}×{sides[1]} | {images} | {times} |", flush=True)
