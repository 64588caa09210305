"""What travels to a machine without a network: the packages that it lacks as wheels, and CIFAR-10 as JPEG."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIVEN = ("torch", "numpy")  # what such a machine brings itself, with all that torch needs
PLATFORMS = ["manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 40))]
QUALITY = 75  # of the images as JPEG
SHEET = 100  # images in a row and in a column of one JPEG; its compression takes each 8×8 pixels by themselves


def pack(folder: Path, data: Path | None, python: str, there: set[str]) -> None:
    """What the book imports beyond torch and numpy, as wheels for Linux, and CIFAR-10 as JPEG, in a folder."""
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "requirements.txt").read_text(), flags=re.M))
    wanted = [f"{name}=={pins[name]}" if name in pins else name for name in sorted(needed(python, there))]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", python, "--implementation", "cp", "--dest", str(folder / "wheels")]
    subprocess.run([*command, *(f"--platform={name}" for name in PLATFORMS), *wanted], check=True)
    if data is not None:
        pack_cifar10(folder, data)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {len(wanted)} wheels{', CIFAR-10' if data else ''}, {size / 2**20:.1f} MiB")


def needed(python: str, there: set[str]) -> set[str]:
    """The packages that pyproject.toml asks for and what they ask for in turn, without those that are there."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *sum(project["optional-dependencies"].values(), [])]
    found, queue = set(), [Requirement(line) for line in asked]
    on = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "extra": ""}
    while queue:
        one = queue.pop()
        name = canonicalize_name(one.name)
        if name in {*found, *there, *GIVEN, "vitbook"} or one.marker and not one.marker.evaluate(on):
            continue
        found.add(name)
        queue += map(Requirement, importlib.metadata.requires(name) or ())
    return found


def pack_cifar10(folder: Path, data: Path) -> None:
    """The images of each of CIFAR-10's six files as one JPEG, left to right and top to bottom, and their labels."""
    from PIL import Image

    from vitbook.data import load_dataset

    dataset = load_dataset("cifar10", data, validation=0)
    parts = {f"train_{i}": images for i, images in enumerate(dataset.train.images.tensor_split(5))}
    labels = {f"train_{i}": labels for i, labels in enumerate(dataset.train.labels.tensor_split(5))}
    (folder / "cifar10").mkdir(parents=True, exist_ok=True)
    for name, images in (parts | {"test_0": dataset.test.images}).items():
        sheet = images.new_zeros(SHEET**2, 3, 32, 32)
        sheet[: len(images)] = images
        sheet = sheet.unflatten(0, (SHEET, SHEET)).permute(0, 3, 1, 4, 2).reshape(SHEET * 32, SHEET * 32, 3)
        file = folder / "cifar10" / f"{name}.jpg"
        Image.fromarray(sheet.numpy()).save(file, quality=QUALITY, subsampling=0, optimize=True)
        file.with_suffix(".labels").write_bytes(bytes(labels.get(name, dataset.test.labels).tolist()))


def unpack(packed: Path, folder: Path) -> None:
    """Packages in folder/site, with the project's own name, version and addresses; CIFAR-10 in folder/data."""
    for wheel in sorted((packed / "wheels").glob("*.whl")):
        zipfile.ZipFile(wheel).extractall(folder / "site")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = re.findall(r'__version__ = "(.+)"', (ROOT / "vitbook" / "__init__.py").read_text(encoding="utf-8"))[0]
    metadata = folder / "site" / "vitbook.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}"]
    lines += [f"Project-URL: {name}, {address}" for name, address in project["urls"].items()]
    metadata.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if (packed / "cifar10").is_dir():
        unpack_cifar10(packed / "cifar10", folder / "data" / "cifar-10-batches-bin")


def unpack_cifar10(packed: Path, folder: Path) -> None:
    """The files that `load_dataset` reads: a byte for the label and three planes of 32×32 bytes for each image."""
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True)
    names = "airplane automobile bird cat deer dog frog horse ship truck".split()
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n")
    files = {f"data_batch_{i + 1}.bin": f"train_{i}" for i in range(5)} | {"test_batch.bin": "test_0"}
    for name, stem in files.items():
        labels = np.frombuffer((packed / f"{stem}.labels").read_bytes(), np.uint8)
        sheet = np.asarray(Image.open(packed / f"{stem}.jpg")).reshape(SHEET, 32, SHEET, 32, 3)
        images = sheet.transpose(0, 2, 4, 1, 3).reshape(SHEET**2, -1)[: len(labels)]
        np.concatenate([labels[:, None], images], axis=1).tofile(folder / name)
