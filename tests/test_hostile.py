"""Files made to do harm, and files that came to harm, are refused in a line, with their names, and no harm is done.

Where a file comes from is its reader's to choose, so it may hold anything. `make reliability` tries many more.
"""

import hashlib
import io
import json
import os
import pickle
import random
import subprocess
import sys
import tarfile
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import get_type_hints

import bombs
import foreign
import killed
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save
from small_sets import SMALL_SETS

from vitbook import engine
from vitbook._support.images import FORMATS, read_picture
from vitbook._support.json_config import conforms
from vitbook.cli import main
from vitbook.data import load_dataset
from vitbook.engine import fit
from vitbook.exercises.progress import progress
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.weight_files import read_file
from vitbook.runs import Run, open_weights, read_run

HERE = Path(__file__).parent


# Nothing is executed


class Danger:
    """Pickled, a call; unpickled without care, done."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def dangers(place: Path) -> list[Danger]:
    """Each of them would leave something at this place."""
    source = f"open({str(place)!r}, 'w').close()"
    return [
        Danger(os.mkdir, str(place)),
        Danger(os.system, f"touch {place}"),
        Danger(eval, source),
        Danger(exec, source),
        Danger(subprocess.Popen, [sys.executable, "-c", source]),
        Danger(Path.touch, place),
        Danger(torch.save, torch.zeros(1), str(place)),
        Danger(np.save, str(place), np.zeros(1)),
    ]


def carriers(danger: Danger) -> dict[str, bytes]:
    """Files of every kind that hold it."""
    files, state = {}, {"a": torch.zeros(2), "b": danger}
    for zipped in (True, False):
        buffer = io.BytesIO()
        torch.save(state, buffer, _use_new_zipfile_serialization=zipped)
        files |= {f"torch{int(zipped)}{kind}": buffer.getvalue() for kind in (".pth", ".pt", ".bin")}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        files[f"plain{protocol}.pt"] = pickle.dumps(state, protocol)
    arrays = {"a": np.array([danger], dtype=object), "b": np.array([(1, danger)], dtype=[("n", int), ("d", object)])}
    for name, array in arrays.items():
        buffer, single = io.BytesIO(), io.BytesIO()
        np.savez(buffer, array)
        np.save(single, array, allow_pickle=True)
        files |= {f"{name}.npz": buffer.getvalue(), f"{name}-single.npz": single.getvalue()}
        files[f"{name}.npy"] = single.getvalue()
    files["raw.npz"] = bombs.zipped({"a.npy": pickle.dumps(danger), "b": pickle.dumps(danger)})
    files["pickle.safetensors"] = pickle.dumps(danger)
    files["pickle.json"] = pickle.dumps(danger)
    names = ("m/data.pkl", "m/constants.pkl", "m/version")
    files["script.pt"] = bombs.zipped(dict.fromkeys(names, pickle.dumps(danger)))
    return files


@pytest.mark.parametrize("which", range(8))
def test_code_that_a_file_brings_along_is_not_run(tmp_path, which):
    place = tmp_path / "done"
    for name, content in carriers(dangers(place)[which]).items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError, match=name.replace(".", r"\.")), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            load_pretrained(path)
    assert not list(tmp_path.glob("done*"))


def test_the_tars_of_an_early_torch_are_refused_before_torch_sees_them(tmp_path, monkeypatch):
    """torch before 2.6 unpickles them with code and all, whatever it is asked (CVE-2025-32434)."""
    danger = pickle.dumps(Danger(os.mkdir, str(tmp_path / "done")))
    with tarfile.open(tmp_path / "early.pth", "w") as archive:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            member = tarfile.TarInfo(name)
            member.size = len(danger)
            archive.addfile(member, io.BytesIO(danger))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch has seen it"))
    with pytest.raises(ValueError, match="early.pth holds no weights that can be read: a .tar of an early torch"):
        read_file(tmp_path / "early.pth")


# Nothing takes more memory than it should


@pytest.fixture(scope="module")
def burst(tmp_path_factory) -> dict[str, dict]:
    """What opening each bomb came to, in a process of its own."""
    folder = tmp_path_factory.mktemp("bombs")
    bombs.make(folder)
    command = [sys.executable, str(HERE / "support" / "bombs.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(os.name != "posix", reason="how much memory a process has held, POSIX alone tells")
@pytest.mark.parametrize("name", bombs.BOMBS)
def test_a_bomb_is_refused_by_name_and_does_not_burst(burst, name):
    found = burst[name]
    assert found["raised"] in ("ValueError", "Unfit"), found
    assert name in found["message"] and "\n" not in found["message"]
    assert found["grew"] < 60, found


# Damage


def mutations(content: bytes, number: int, seed: int):
    """The content cut short, flipped in a bit, with pieces changed, doubled, left out or put in."""
    dice = random.Random(seed)
    for _ in range(number):
        changed, at = bytearray(content), dice.randrange(len(content))
        length = dice.choice((1, 1, 2, 4, 8, 64))
        kind = dice.randrange(8)
        if kind == 0:
            del changed[at:]
        elif kind <= 2:
            changed[at] ^= 1 << dice.randrange(8)
        elif kind == 3:
            changed[at : at + length] = dice.choice((b"\xff", b"\0", b"\x7f", b"9", b"-")) * length
        elif kind == 4:
            changed[at : at + length] = dice.randbytes(length)
        elif kind == 5:
            changed[at:at] = changed[at : at + length]
        elif kind == 6:
            del changed[at : at + length]
        else:
            changed[at:at] = dice.choice((b"[" * 2000, b'{"a":', b'"a":1,', b"null", b"1e999", b"\\ud800", b"\0"))
        yield bytes(changed)


def weights_as(kind: str) -> bytes:
    """Weights of timm's layout, as a file of this kind."""
    state, buffer = {name: tensor.float() for name, tensor in foreign.timm().items()}, io.BytesIO()
    if kind == "npz":
        np.savez(buffer, **{name: tensor.numpy() for name, tensor in state.items()})
    elif kind == "safetensors":
        return save(state)
    else:
        torch.save(state, buffer, _use_new_zipfile_serialization=kind == "pth")
    return buffer.getvalue()


def head_of(content: bytes) -> bytes:
    """The part in which the structure of the file is, and a few numbers."""
    return content[:6000]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    small = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --patch-size 4 --epochs 1 --affine 0 --no-progress".split()
    assert main(["train", "--folder", str(folder), *small]) == 0
    return folder


def attempt(opened, path: Path) -> bool:
    """Whether a file was refused; with a ValueError or an OSError that names it, or not at all."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened(path)
    except (ValueError, OSError) as error:
        message = f"{error} {getattr(error, 'filename', '')}"
        assert path.stem in message or str(path.parent) in message, f"{error!r} names no file"
        return True
    return False


MANY = pytest.mark.parametrize("number", [60, pytest.param(3000, marks=pytest.mark.slow)])


@MANY
@pytest.mark.parametrize("kind", ["npz", "safetensors", "pth", "bin"])
def test_damaged_weights_are_refused_or_read(tmp_path, kind, number):
    """Half of the changes are in the first part of the file, where its structure lies."""
    content, path = weights_as(kind), tmp_path / f"weights.{kind}"
    refused = 0
    for part, rest in ((content, b""), (head_of(content), content[6000:])):
        for changed in mutations(part, number // 2, seed=1):
            path.write_bytes(changed + rest)
            refused += attempt(lambda path: load_pretrained(path, num_heads=foreign.H), path)
    assert refused > number / 4


@MANY
@pytest.mark.parametrize("part", ["facts", "tensors"])
def test_a_damaged_checkpoint_is_refused_or_read(tmp_path, trained, part, number):
    """Of the tensors the SHA-256 is put right each time, as somebody would who means harm."""
    path = tmp_path / "best.json"
    facts = json.loads((trained / "best.json").read_text())
    tensors = (trained / facts["tensors"]).read_bytes()
    (tmp_path / facts["tensors"]).write_bytes(tensors)
    refused = 0
    if part == "tensors":
        for changed in mutations(tensors[:2000], number, seed=2):
            content = changed + tensors[2000:]
            (tmp_path / facts["tensors"]).write_bytes(content)
            path.write_text(json.dumps(facts | {"sha256": hashlib.sha256(content).hexdigest()}))
            refused += attempt(open_weights, path)
    else:
        for changed in mutations((trained / "best.json").read_bytes(), number, seed=3):
            path.write_bytes(changed)
            refused += attempt(open_weights, path)
    assert refused > number / 4


@MANY
def test_a_damaged_run_is_refused_or_has_all_its_types(tmp_path, trained, number):
    path = tmp_path / "run.json"
    for changed in mutations((trained / "run.json").read_bytes(), number, seed=4):
        path.write_bytes(changed)
        attempt(read_run, path)


@MANY
def test_a_damaged_notebook_is_refused_or_read(tmp_path, number):
    path = tmp_path / "mine.ipynb"
    cells = [dict(cell_type="code", source=["check(", "'a.b', mine)"], outputs=[dict(text=["a.b: ", "right.\n"])])]
    for changed in mutations(json.dumps(dict(cells=cells * 3, nbformat=4)).encode(), 3 * number, seed=5):
        path.write_bytes(changed)
        attempt(progress, path)


@MANY
@pytest.mark.parametrize("name", SMALL_SETS)
def test_a_damaged_data_set_is_refused_or_read(tmp_path, name, number):
    files = SMALL_SETS[name].published
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    for k, (file, content) in enumerate(files.items()):
        for changed in mutations(content, number // (4 * len(files)) + 1, seed=k):
            (tmp_path / file).write_bytes(changed)
            try:
                load_dataset(name, tmp_path)
            except (ValueError, OSError) as error:
                assert str(error), f"{error!r} says nothing"
        (tmp_path / file).write_bytes(content)


@MANY
@pytest.mark.parametrize("kind", FORMATS)
def test_a_picture_cut_short_or_changed_is_refused_or_read(kind, number):
    pixels = np.random.RandomState(0).randint(0, 256, (24, 40, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    content = buffer.getvalue()
    cut = (content[: len(content) * k // number] for k in range(number))
    for changed in (*cut, *mutations(content, number, seed=6)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert read_picture(changed, "it").mode == "RGB"
        except ValueError as error:
            assert str(error).startswith("it cannot be read as an image: ")


# Wrong types


WRONG = [None, True, 0, -1, 2.5, 1e400, -1e400, float("nan"), 10**30, "x", "", "\0", [], {}, [1], ["8", 8], [[8], 8]]


@pytest.mark.parametrize("part", ["", "train", "vit"])
def test_every_setting_of_a_wrong_type_is_refused_by_name(tmp_path, part):
    path = tmp_path / "run.json"
    whole = json.loads(json.dumps(asdict(Run()), default=str))
    names = list(whole[part] if part else whole)
    for name in names:
        refused = 0
        for value in WRONG:
            document = json.loads(json.dumps(whole))
            (document[part] if part else document)[name] = value
            path.write_text(json.dumps(document))
            try:
                run = read_run(path)
            except ValueError as error:
                refused += 1
                message = str(error).lower()  # a whole "train" is a TrainConfig, patch_size a patch size
                assert str(path) in str(error) and (name in message or name.replace("_", " ") in message)
            else:
                assert all(conforms(value, kind) for value, kind in types_of(run)), f"{name} = {value!r}"
        assert refused >= 8, f"{name} takes nearly anything"


def types_of(run: Run):
    """Each setting and the type that it should have."""
    for settings in (run, run.train, run.vit):
        for name, kind in get_type_hints(type(settings)).items():
            value = getattr(settings, name)
            yield (str(value) if isinstance(value, Path) else value), kind


@pytest.mark.parametrize(
    "text", ["[]", "3", '"run"', "null", "{}", '{"train": 3, "vit": {}}', '{"train": {}, "vit": 3}']
)
def test_json_that_describes_no_run_is_a_line(tmp_path, capsys, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    assert main(["train", "--config", str(path), "--no-progress"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("vitbook: ") and said.count("\n") == 1 and f"{path} describes no run" in said


# A training that is resumed from a checkpoint of something else


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(step="x"), "does not hold what a training goes on from"),
        (dict(step=10**6), "step 1000000 of"),
        (dict(step=0), "step 0 of"),
        (dict(seconds=None), "does not hold what a training goes on from"),
        (dict(history=3), "does not hold what a training goes on from"),
        (dict(config={}), "holds another training"),
    ],
)
def test_a_training_does_not_go_on_from_what_is_no_training(tmp_path, monkeypatch, changes, message):
    monkeypatch.setattr(engine, "time", engine.time)  # which `killed` replaces
    killed.train(tmp_path)
    path = tmp_path / "last.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=message) as caught:
        fit(killed.some_model(), killed.DATA, killed.CONFIG, tmp_path, resume=True, progress=False)
    assert str(tmp_path) in str(caught.value)
