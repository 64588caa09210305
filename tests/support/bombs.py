"""Small files that promise or hold far too much, and a program that opens each of them, and says what it cost.

python bombs.py FOLDER    standard output: by name, what opening it raised, and the megabytes that memory grew by
"""

import hashlib
import io
import json
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import foreign
import torch
from PIL import Image
from safetensors.torch import save

from vitbook._support.images import read_image
from vitbook.checkpoint import load_checkpoint
from vitbook.data import album
from vitbook.downloads.archives import open_files
from vitbook.exercises.progress import progress
from vitbook.pretrained import load_pretrained
from vitbook.runs import open_weights, read_run

MUCH = 300_000_000  # bytes; a bomb that burst would take at least so many
FACTS = dict(mean=[0.5], std=[0.5], class_names=list("0123456789"))
SHAPE = dict(image_size=[8, 8], patch_size=4, channels=1, num_classes=10, dim=12, depth=1, num_heads=3, mlp_dim=20)


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(shape: tuple[int, ...], content: bytes) -> bytes:
    """A .npy of zeros whose header says that it has this shape."""
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


def pth(state: dict, method: int = zipfile.ZIP_STORED) -> bytes:
    """As torch saves it, or the same zip packed by another method."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    if method == zipfile.ZIP_STORED:
        return buffer.getvalue()
    with zipfile.ZipFile(buffer) as archive:
        return zipped({name: archive.read(name) for name in archive.namelist()}, method)


def stretched(factor: int) -> dict[str, torch.Tensor]:
    """A checkpoint as timm's, so many times as wide, of one number that is shown over and over."""
    one, axes = torch.zeros(1), {foreign.D: foreign.D * factor, 3 * foreign.D: 3 * foreign.D * factor}
    return {k: one.expand([axes.get(n, n) for n in v.shape]) for k, v in foreign.timm().items()}


def safetensors(header: str | bytes, content: bytes = b"", length: int | None = None) -> bytes:
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + content


def checkpoint(folder: Path, facts: dict, tensors: dict | None = None) -> bytes:
    """The JSON of a checkpoint; its tensors are put beside it."""
    content = save(tensors if tensors is not None else {"a": torch.zeros(3)})
    digest = hashlib.sha256(content).hexdigest()
    (folder / f"a-{digest[:12]}.safetensors").write_bytes(content)
    return json.dumps({"tensors": f"a-{digest[:12]}.safetensors", "sha256": digest, **facts}).encode()


def png(width: int, height: int, *others: tuple[bytes, bytes]) -> bytes:
    """A black PNG of one bit a pixel, with other chunks before its pixels."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), *others]
    chunks += [(b"IDAT", zlib.compress(bytes(height * (width // 8 + 1)), 1)), (b"IEND", b"")]
    packed = (struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def with_size(kind: str, place: int | None, layout: str, size: tuple[int, int]) -> bytes:
    """A small image whose header says that it is larger; place None: where a JPEG says it."""
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16)).save(buffer, kind)
    content = bytearray(buffer.getvalue())
    struct.pack_into(layout, content, content.index(b"\xff\xc0") + 5 if place is None else place, *size)
    return bytes(content)


def read_archive(path: Path) -> list[bytes]:
    with open_files([path], 10_000_000) as files:
        return [files.read(name) for name in files.readers]


def huge(folder: Path, **changes) -> bytes:
    return checkpoint(folder, dict(model=SHAPE | changes, **FACTS))


DEEP = b"[" * 200_000
DIGITS = b'{"cells": ' + b"1" * 5000 + b"}"


def promise(*entries: tuple[str, list[int], int, int], size: int = 64, dtype: str = "F32") -> bytes:
    """A .safetensors whose header promises tensors of these names, shapes and places in `size` bytes."""
    listed = (
        f'"{name}": {json.dumps({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]})}'
        for name, shape, begin, end in entries
    )
    return safetensors("{" + ", ".join(listed) + "}", bytes(size))


# what opens it → name → what makes it, from the folder where it will lie
MADE: dict[Callable, dict[str, Callable[[Path], bytes]]] = {
    load_pretrained: {
        "packed.npz": lambda _: zipped({"a.npy": npy((MUCH // 4,), bytes(MUCH))}),
        "promised.npz": lambda _: zipped({"a.npy": npy((10**12,), bytes(1000))}, zipfile.ZIP_STORED),
        "negative.npz": lambda _: zipped({"a.npy": npy((-5, -7), bytes(1000))}, zipfile.ZIP_STORED),
        "objects.npz": lambda _: zipped({"a.npy": npy((2,), b"").replace(b"'<f4'", b"'|O' ")}),
        "packed.pth": lambda _: pth({"a": torch.zeros(MUCH // 4)}, zipfile.ZIP_DEFLATED),
        "stretched.pth": lambda _: pth(stretched(3000)),
        "shared.pth": lambda _: pth({f"{k}": v for one in [torch.zeros(10**6)] for k, v in enumerate([one] * 3000)}),
        "length.safetensors": lambda _: safetensors("{}", length=2**63),
        "beyond.safetensors": lambda _: safetensors("{}", length=10**9),
        "promised.safetensors": lambda _: promise(("a", [2**40], 0, 2**42)),
        "overflow.safetensors": lambda _: promise(("a", [2**33, 2**33], 0, 64)),
        "negative.safetensors": lambda _: promise(("a", [4], -16, 0)),
        "backwards.safetensors": lambda _: promise(("a", [4], 16, 0), size=16),
        "overlapping.safetensors": lambda _: promise(("a", [4], 0, 16), ("b", [4], 8, 24), size=24),
        "gaps.safetensors": lambda _: promise(("a", [4], 0, 16), ("b", [4], 32, 48), size=48),
        "twice.safetensors": lambda _: promise(("a", [4], 0, 16), ("a", [4], 16, 32), size=32),
        "kind.safetensors": lambda _: promise(("a", [4], 0, 16), size=16, dtype="F99"),
        "deep.safetensors": lambda _: safetensors(DEEP),
        "wider.json": lambda folder: huge(folder, dim=3 * 2**60),
        "classes.json": lambda folder: huge(folder, num_classes=2**40),
    },
    load_checkpoint: {"deep.json": lambda _: DEEP, "digits.json": lambda _: DIGITS},
    read_run: {"deep-run.json": lambda _: DEEP},
    progress: {"deep.ipynb": lambda _: DEEP, "digits.ipynb": lambda _: DIGITS},
    open_weights: {
        "blocks.json": lambda folder: huge(folder, depth=10**9),
        "wide.json": lambda folder: huge(folder, dim=3 * 2**20, mlp_dim=2**40),
        "grid.json": lambda folder: huge(folder, image_size=[2**16, 2**16], patch_size=1, positions="sincos_2d"),
    },
    read_archive: {
        "packed.tar.gz": lambda _: zlib.compress(bytes(MUCH), 1, 31),
        "packed.zip": lambda _: zipped({"top/a": bytes(MUCH)}),
    },
    read_image: {
        "large.png": lambda _: png(20_000, 20_000),
        "text.png": lambda _: png(16, 16, (b"zTXt", b"a\0\0" + zlib.compress(bytes(MUCH), 1))),
        "profile.png": lambda _: png(16, 16, (b"iCCP", b"a\0\0" + zlib.compress(bytes(MUCH), 1))),
        "large.jpg": lambda _: with_size("JPEG", None, ">HH", (65_000, 65_000)),
        "large.gif": lambda _: with_size("GIF", 6, "<HH", (65_000, 65_000)),
        "large.bmp": lambda _: with_size("BMP", 18, "<ii", (2**30, 2**30)),
        "large.ppm": lambda _: b"P6 1000000 1000000 255\n" + bytes(48),
    },
}
BOMBS = {name: (make, opened) for opened, bombs in MADE.items() for name, make in bombs.items()}


def megabytes() -> float:
    """The most memory that this process has held at any time."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def main(folder: Path) -> dict[str, dict]:
    torch.set_num_threads(1)
    load_pretrained("vitbook:cifar10")  # what is loaded once, for good
    album(128)
    found = {}
    for name, (_, opened) in BOMBS.items():
        path, before = folder / name, megabytes()
        try:
            raised, message = "nothing", repr(opened(path))[:200]
        except Exception as error:
            raised, message = type(error).__name__, str(error)
        found[name] = dict(raised=raised, message=message, grew=megabytes() - before)
    return found


def make(folder: Path) -> None:
    for name, (content, _) in BOMBS.items():
        (folder / name).write_bytes(content(folder))


if __name__ == "__main__":
    if sys.argv[2:] == ["make"]:
        make(Path(sys.argv[1]))
    else:
        json.dump(main(Path(sys.argv[1])), sys.stdout, indent=1)
