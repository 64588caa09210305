"""Checkpoints: what is saved comes back, what interrupts the saving does no harm, what is damaged is refused."""

import hashlib
import json
import os
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitbook._common import files
from vitbook._common.files import read_whole, write_whole
from vitbook.checkpoint import load_checkpoint, load_state_tensors, save_checkpoint, state_tensors


def some_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(3, 4, generator=generator),
        "transposed": torch.randn(5, 2, generator=generator).T,
        "half": torch.randn(7, generator=generator).bfloat16(),
        "count": torch.tensor(12),
    }


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_tied_weights_come_back_each_under_its_name(tmp_path):
    weight = torch.randn(3, 4)
    path = save_checkpoint(tmp_path, "last", {"one": weight, "other": weight, "part": weight[1:]}, {})
    assert_close(load_checkpoint(path)[0], {"one": weight, "other": weight, "part": weight[1:]}, rtol=0, atol=0)


def test_a_newer_checkpoint_replaces_the_older_of_its_name_alone(tmp_path):
    save_checkpoint(tmp_path, "best", some_tensors(0), {})
    save_checkpoint(tmp_path, "last", some_tensors(1), {})
    save_checkpoint(tmp_path, "last", some_tensors(2), {})
    assert len(names(tmp_path)) == 4
    assert_close(load_checkpoint(tmp_path / "last.json")[0], some_tensors(2))
    assert_close(load_checkpoint(tmp_path / "best.json")[0], some_tensors(0))


@pytest.mark.parametrize("interrupted_call", [0, 1])
def test_an_interrupted_save_leaves_the_old_checkpoint_whole(tmp_path, monkeypatch, interrupted_call):
    path = save_checkpoint(tmp_path, "last", some_tensors(0), {"step": 1})
    before = names(tmp_path)
    calls = iter(range(10))
    real = os.fsync

    def full_disk(descriptor):
        if next(calls) == interrupted_call:
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path, "last", some_tensors(1), {"step": 2})
    tensors, facts = load_checkpoint(path)
    assert facts == {"step": 1}
    assert_close(tensors, some_tensors(0))
    assert not [name for name in names(tmp_path) if name.endswith(".part")]
    assert set(before) <= set(names(tmp_path))


def test_two_that_write_one_file_at_once_leave_it_whole(tmp_path, monkeypatch):
    """As processes do that download the same weights: one begins while the other is about to end."""
    real = os.fsync

    def write_between(descriptor):
        monkeypatch.setattr(os, "fsync", real)
        write_whole(tmp_path / "file", b"other")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", write_between)
    write_whole(tmp_path / "file", b"one")
    assert (tmp_path / "file").read_bytes() == b"one"
    assert names(tmp_path) == ["file"]


def refuse(*_):
    raise PermissionError(13, "The process cannot access the file because it is being used by another process")


def test_a_file_that_somebody_has_open_is_replaced_when_it_is_closed(tmp_path, monkeypatch):
    """As on Windows, where a reader or a virus scanner keeps a file from being replaced."""
    write_whole(tmp_path / "file", b"before")
    real, waited = os.replace, []
    monkeypatch.setattr(files.time, "sleep", waited.append)
    monkeypatch.setattr(os, "replace", lambda part, path: real(part, path) if len(waited) == 2 else refuse())
    write_whole(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"after" and 0 < sum(waited) < 1
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError, match="file"):
        write_whole(tmp_path / "file", b"never")
    assert len(waited) > 3 and sum(waited) < 2
    assert (tmp_path / "file").read_bytes() == b"after" and names(tmp_path) == ["file"]


@pytest.mark.parametrize("damage", [lambda c: c[:-3] + bytes([c[-3] ^ 1]) + c[-2:], lambda c: c[:-10]])
def test_a_flipped_bit_and_a_missing_end_are_noticed(tmp_path, damage):
    path = save_checkpoint(tmp_path, "last", some_tensors(), {})
    file = next(tmp_path.glob("*.safetensors"))
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=f"{file.name} is damaged"):
        load_checkpoint(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"tensors": 3, "sha256": ""}'])
def test_json_that_is_no_checkpoint_is_refused(tmp_path, content):
    (tmp_path / "last.json").write_text(content)
    with pytest.raises(ValueError, match="last.json must be the JSON of a checkpoint"):
        load_checkpoint(tmp_path / "last.json")


def test_the_tensors_lie_beside_the_json_wherever_it_points(tmp_path):
    path = save_checkpoint(tmp_path / "run", "last", some_tensors(), {})
    document = json.loads(path.read_text())
    (tmp_path / "elsewhere.safetensors").write_bytes(b"not to be read")
    path.write_text(json.dumps(document | {"tensors": "../elsewhere.safetensors"}))
    with pytest.raises(FileNotFoundError, match="run/elsewhere.safetensors"):
        load_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, (10**12).to_bytes(8, "little") + b"{}", pickle.dumps({"a": 1})])
def test_tensors_that_are_none_are_refused_though_their_hash_is_right(tmp_path, content):
    path = save_checkpoint(tmp_path, "last", some_tensors(), {})
    facts = json.loads(path.read_text())
    (tmp_path / facts["tensors"]).write_bytes(content)
    path.write_text(json.dumps(facts | {"sha256": hashlib.sha256(content).hexdigest()}))
    with pytest.raises(ValueError, match=f"{facts['tensors']} is no safetensors file"):
        load_checkpoint(path)


@pytest.mark.skipif(os.name != "posix", reason="pipes with names are of POSIX")
def test_a_pipe_is_refused_before_it_makes_its_reader_wait(tmp_path):
    os.mkfifo(tmp_path / "last.json")
    for read in (load_checkpoint, read_whole):
        with pytest.raises(ValueError, match="last.json must be a file, got a pipe or a device"):
            read(tmp_path / "last.json")


def train(model: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor) -> None:
    for _ in range(3):
        optimizer.zero_grad()
        model(images).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "make", [lambda p: torch.optim.AdamW(p, fused=True), lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9)]
)
def test_a_state_goes_on_as_if_never_stopped(tmp_path, make, memory_format):
    """And what an optimizer keeps lies in memory as its parameters do."""

    def state() -> dict:
        model = nn.Conv2d(3, 4, 2).to(memory_format=memory_format)
        return {"model": model, "ema": None, "optimizer": make(model.parameters()), "curve": torch.zeros(3)}

    one, twin = state(), state()
    images = torch.randn(2, 3, 5, 5)
    train(one["model"], one["optimizer"], images)
    one["curve"] += 1
    path = save_checkpoint(tmp_path, "last", state_tensors(one), {})
    load_state_tensors(twin, load_checkpoint(path)[0])
    assert_close(twin["curve"], torch.ones(3))
    for each in (one, twin):
        train(each["model"], each["optimizer"], images)
    assert_close(twin["model"].weight, one["model"].weight, rtol=0, atol=0)
    for parameter, kept in twin["optimizer"].state.items():
        tensors = [tensor for tensor in kept.values() if tensor.shape == parameter.shape]
        assert tensors and all(tensor.stride() == parameter.stride() for tensor in tensors)
