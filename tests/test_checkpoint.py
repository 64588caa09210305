"""Checkpoints: what is saved comes back, what interrupts the saving does no harm, what is damaged is refused."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from vitbook import checkpoint
from vitbook._support.files import write_whole
from vitbook.checkpoint import (
    load_checkpoint,
    load_optimizer_tensors,
    optimizer_tensors,
    save_checkpoint,
    with_prefix,
    without_prefix,
)


def some_tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(3, 4, generator=generator),
        "transposed": torch.randn(5, 2, generator=generator).T,
        "half": torch.randn(7, generator=generator).bfloat16(),
        "count": torch.tensor(12),
    }


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_saved_comes_back(tmp_path):
    path = save_checkpoint(tmp_path / "run", "last", some_tensors(), {"step": 7, "accuracy": 0.5})
    tensors, facts = load_checkpoint(path)
    assert facts == {"step": 7, "accuracy": 0.5}
    assert tensors.keys() == some_tensors().keys()
    for name, tensor in some_tensors().items():
        assert_close(tensors[name], tensor, rtol=0, atol=0)


def test_tied_weights_come_back_each_under_its_name(tmp_path):
    weight = torch.randn(3, 4)
    path = save_checkpoint(tmp_path, "last", {"one": weight, "other": weight, "part": weight[1:]}, {})
    assert_close(load_checkpoint(path)[0], {"one": weight, "other": weight, "part": weight[1:]}, rtol=0, atol=0)


def test_a_newer_checkpoint_replaces_the_older_of_its_name_alone(tmp_path):
    save_checkpoint(tmp_path, "best", some_tensors(0), {})
    save_checkpoint(tmp_path, "last", some_tensors(1), {})
    save_checkpoint(tmp_path, "last", some_tensors(2), {})
    assert len(files(tmp_path)) == 4
    assert_close(load_checkpoint(tmp_path / "last.json")[0], some_tensors(2))
    assert_close(load_checkpoint(tmp_path / "best.json")[0], some_tensors(0))


@pytest.mark.parametrize("interrupted_call", [0, 1])
def test_an_interrupted_save_leaves_the_old_checkpoint_whole(tmp_path, monkeypatch, interrupted_call):
    path = save_checkpoint(tmp_path, "last", some_tensors(0), {"step": 1})
    before = files(tmp_path)
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
    assert not [name for name in files(tmp_path) if name.endswith(".part")]
    assert set(before) <= set(files(tmp_path))


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
    assert files(tmp_path) == ["file"]


@pytest.mark.parametrize("interrupted_call", [0, 1])
def test_what_a_killed_save_left_is_deleted_by_the_next(tmp_path, monkeypatch, interrupted_call):
    def killed(descriptor):
        if next(calls) == interrupted_call:
            raise KeyboardInterrupt

    for k in range(2):
        calls = iter(range(10))
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(os, "fsync", killed)
            patch.setattr(Path, "unlink", lambda part: None)  # nobody tidies up after a process that is killed
            save_checkpoint(tmp_path, "last", some_tensors(k), {})
    (tmp_path / ".mine.part").touch()
    assert len([name for name in files(tmp_path) if name.endswith(".part")]) == 3
    path = save_checkpoint(tmp_path, "last", some_tensors(2), {})
    tensors = json.loads(path.read_text())["tensors"]
    assert files(tmp_path) == sorted([".mine.part", "last.json", tensors])


def refuse(*_):
    raise PermissionError(13, "The process cannot access the file because it is being used by another process")


def test_a_file_that_somebody_has_open_is_replaced_when_it_is_closed(tmp_path, monkeypatch):
    """As on Windows, where a reader or a virus scanner keeps a file from being replaced."""
    write_whole(tmp_path / "file", b"before")
    real, waited = os.replace, []
    monkeypatch.setattr(checkpoint.time, "sleep", waited.append)
    monkeypatch.setattr(os, "replace", lambda part, path: real(part, path) if len(waited) == 2 else refuse())
    write_whole(tmp_path / "file", b"after")
    assert (tmp_path / "file").read_bytes() == b"after" and 0 < sum(waited) < 1
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError, match="file"):
        write_whole(tmp_path / "file", b"never")
    assert len(waited) > 3 and sum(waited) < 2
    assert (tmp_path / "file").read_bytes() == b"after" and files(tmp_path) == ["file"]


def test_an_old_file_that_somebody_has_open_stays_until_the_next_time(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, "last", some_tensors(0), {})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        path = save_checkpoint(tmp_path, "last", some_tensors(1), {})
    assert_close(load_checkpoint(path)[0], some_tensors(1))
    assert len(files(tmp_path)) == 3
    save_checkpoint(tmp_path, "last", some_tensors(2), {})
    assert len(files(tmp_path)) == 2


def test_a_flipped_bit_is_noticed(tmp_path):
    path = save_checkpoint(tmp_path, "last", some_tensors(), {})
    file = next(tmp_path.glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file.name} is damaged"):
        load_checkpoint(path)


def test_a_truncated_file_is_noticed(tmp_path):
    path = save_checkpoint(tmp_path, "last", some_tensors(), {})
    file = next(tmp_path.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match="damaged"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "{", '{"tensors": 3, "sha256": ""}', '{"tensors": "x.safetensors"}']
)
def test_json_that_is_no_checkpoint_is_refused(tmp_path, content):
    (tmp_path / "last.json").write_text(content)
    with pytest.raises(ValueError, match="last.json should be the JSON of a checkpoint"):
        load_checkpoint(tmp_path / "last.json")


def test_the_tensors_lie_beside_the_json_wherever_it_points(tmp_path):
    path = save_checkpoint(tmp_path / "run", "last", some_tensors(), {})
    document = json.loads(path.read_text())
    (tmp_path / "elsewhere.safetensors").write_bytes(b"not to be read")
    path.write_text(json.dumps(document | {"tensors": "../elsewhere.safetensors"}))
    with pytest.raises(FileNotFoundError, match="run/elsewhere.safetensors"):
        load_checkpoint(path)


def test_a_missing_checkpoint_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="last.json"):
        load_checkpoint(tmp_path / "last.json")


def test_prefixes_are_put_on_and_taken_off():
    tensors = with_prefix("model", some_tensors()) | with_prefix("ema", {"weight": torch.zeros(1)})
    assert without_prefix("model", tensors).keys() == some_tensors().keys()
    assert_close(without_prefix("ema", tensors), {"weight": torch.zeros(1)})


@pytest.mark.parametrize("make", [torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_an_optimiser_goes_on_as_if_never_stopped(make):
    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4)
    optimizer = make(model.parameters())
    train(model, optimizer, 3)
    twin = torch.nn.Linear(3, 4)
    twin.load_state_dict(model.state_dict())
    twin_optimizer = make(twin.parameters())
    load_optimizer_tensors(twin_optimizer, optimizer_tensors(optimizer))
    train(model, optimizer, 3)
    train(twin, twin_optimizer, 3)
    assert_close(twin.weight, model.weight, rtol=0, atol=0)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_what_an_optimiser_keeps_lies_in_memory_as_its_parameters_do(memory_format):
    def convolution():
        return torch.nn.Conv2d(3, 4, 2).to(memory_format=memory_format)

    model, twin = convolution(), convolution()
    optimizer, other = (torch.optim.AdamW(each.parameters(), fused=True) for each in (model, twin))
    model(torch.randn(2, 3, 5, 5)).square().sum().backward()
    optimizer.step()
    saved = {name: tensor.contiguous() for name, tensor in optimizer_tensors(optimizer).items()}
    load_optimizer_tensors(other, saved)
    assert_close(optimizer_tensors(other), optimizer_tensors(optimizer), rtol=0, atol=0)
    for parameter, kept in other.state.items():
        assert all(kept[name].stride() == parameter.stride() for name in ("exp_avg", "exp_avg_sq"))
