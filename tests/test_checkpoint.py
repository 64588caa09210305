"""Checkpoints: what is saved comes back, what interrupts the saving does no harm, what is damaged is refused."""

import json
import os

import pytest
import torch
from torch.testing import assert_close

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
