"""Checkpoints and settings made to do harm, or that came to harm, are refused in a line, with their names.

Weights, archives, images and notebooks are refused in the tests of their modules. `make reliability` tries many more.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from vitbook_workshop.commands import main
from vitbook_workshop.training_runs.trained_models import open_model


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    small = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --patch-size 4 --epochs 1 --affine 0 --no-progress".split()
    assert main(["train", "--folder", str(folder), *small]) == 0
    return folder


SHAPE = dict(image_size=[8, 8], patch_size=4, channels=1, num_classes=10, dim=12, depth=1, num_heads=3, mlp_dim=20)
BOMBS = {
    "deep.json": b"[" * 200_000,
    "digits.json": b'{"tensors": ' + b"1" * 5000 + b"}",
    "blocks.json": dict(depth=10**9),
    "wide.json": dict(dim=3 * 2**20, mlp_dim=2**40),
    "wider.json": dict(dim=3 * 2**60),
    "classes.json": dict(num_classes=2**40),
    "grid.json": dict(image_size=[2**16, 2**16], patch_size=1, positions="sincos_2d"),
}
OPEN_EACH = """
import json, resource, sys
from pathlib import Path
from vitbook_workshop.training_runs.settings import read_run
from vitbook_workshop.training_runs.trained_models import open_model
for path in map(Path, sys.argv[1:]):
    for opened in (open_model, read_run):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            opened(path)
        except Exception as error:
            grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            grew /= 2**20 if sys.platform == "darwin" else 2**10
            print(json.dumps([path.name, type(error).__name__, str(error), grew]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="how much memory a process has held, POSIX alone tells")
def test_a_bomb_is_refused_by_name_and_does_not_burst(tmp_path):
    content = save({"a": torch.zeros(3)})
    (tmp_path / "a.safetensors").write_bytes(content)
    facts = dict(tensors="a.safetensors", sha256=hashlib.sha256(content).hexdigest(), mean=[0.5], std=[0.5])
    for name, bomb in BOMBS.items():
        document = facts | dict(class_names=list("0123456789"), model=SHAPE | bomb) if isinstance(bomb, dict) else None
        (tmp_path / name).write_bytes(json.dumps(document).encode() if document else bomb)
    command = [sys.executable, "-c", OPEN_EACH, *(str(tmp_path / name) for name in BOMBS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, *_ in results] == [name for name in BOMBS for _ in range(2)], "each was refused"
    for name, error, message, grew in results:
        assert error == "ValueError" and name in message and grew < 60, (name, error, message, grew)


def mutations(content: bytes, number: int):
    """The content cut short, with a bit flipped, with a piece dropped, doubled, or put in."""
    dice = random.Random(2)
    for _ in range(number):
        at, length = dice.randrange(len(content)), dice.choice((1, 4, 64))
        before, piece, behind = content[:at], content[at : at + length], content[at + length :]
        junk = dice.choice((b"\xff" * length, b"[" * 2000, b'"a":1,', b"null", b"1e999", b"\\ud800", b"\0"))
        flipped = bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]
        yield before + dice.choice((b"", flipped, behind, piece + piece + behind, junk + behind))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", [40, pytest.param(3000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("part", ["facts", "tensors"])
def test_a_damaged_checkpoint_is_refused_or_read(tmp_path, trained, part, number):
    """Of the tensors the SHA-256 is put right each time, as somebody would who means harm."""
    path, refused = tmp_path / "best.json", 0
    facts = json.loads((trained / "best.json").read_text())
    whole = {"facts": (trained / "best.json").read_bytes(), "tensors": (trained / facts["tensors"]).read_bytes()}
    for changed in mutations(whole[part][:2000], number):
        files = whole | {part: changed + whole[part][2000:]}
        if part == "tensors":
            files["facts"] = json.dumps(facts | {"sha256": hashlib.sha256(files[part]).hexdigest()}).encode()
        path.write_bytes(files["facts"])
        (tmp_path / facts["tensors"]).write_bytes(files["tensors"])
        try:
            open_model(path)
        except (ValueError, OSError) as error:
            refused += 1
            message = f"{error} {getattr(error, 'filename', '')}"
            assert path.stem in message or str(tmp_path) in message, f"{error!r} names no file"
    assert refused > number / 4


@pytest.mark.parametrize("text", ["[]", "3", "null", '{"train": 3, "vit": {}}', "{", "\x00"])
def test_json_that_describes_no_run_is_a_line(tmp_path, capsys, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    assert main(["train", "--config", str(path), "--no-progress"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("vitbook: ") and said.count("\n") == 1 and f"{path} describes no run" in said
