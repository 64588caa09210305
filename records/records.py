"""What the commands here share: the first of their arguments, and how they write down what they found."""

import json
from argparse import ArgumentParser
from pathlib import Path

from vitbook._common.files import write_whole


def arguments_of(doc: str, data_dir: bool = True, dataset: bool = False, weights: bool = False) -> ArgumentParser:
    """A parser that knows the file to write and, where asked for, where images are, which, and whose weights."""
    parser = ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("file", type=Path, help="the JSON to write")
    if weights:
        parser.add_argument("--weights", default="vitbook:cifar10", help="the model to look into")
    if dataset:
        parser.add_argument("--dataset", default="cifar10")
    if data_dir:
        parser.add_argument("--data-dir", type=Path, help="where the images' files are; without it they are downloaded")
    return parser


def write(file: Path, found: object) -> None:
    """As JSON, in one step, in a folder that is made where there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, (json.dumps(found, indent=1) + "\n").encode())
