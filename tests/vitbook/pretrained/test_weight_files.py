"""Every kind of file gives the tensors that were put in; what is none, is damaged or contains code is refused.

Files that are made to do harm are in tests/vitbook/test_hostile.py.
"""

import argparse
import os
import random
import re

import foreign
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitbook.checkpoint import save_checkpoint
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.weight_files import read_file, tensors_in

STATE = foreign.timm(depth=1)
KINDS = [".npz", ".safetensors", ".pth", ".pt", ".bin", ".json"]


def write(path, state=STATE):
    if path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    elif path.suffix == ".safetensors":
        save_file(state, path)
    elif path.suffix == ".json":
        save_checkpoint(path.parent, path.stem, state, {"fact": 1})
    else:
        torch.save(state, path)
    return path


def equal(state, expected=STATE) -> bool:
    return state.keys() == expected.keys() and all(torch.equal(state[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_put_in_comes_out(tmp_path, kind):
    content, facts = read_file(write(tmp_path / f"weights{kind}"))
    state, nest, notes = tensors_in(content)
    assert equal(state) and not notes
    assert (nest, facts) == ("", {"fact": 1} if kind == ".json" else {})


@pytest.mark.parametrize("nest", ["model", "state_dict", "model_state_dict"])
def test_tensors_are_taken_from_where_training_code_keeps_them(tmp_path, nest):
    torch.save({nest: STATE, "epoch": 3, "optimizer": {"lr": 0.1}}, tmp_path / "a.pth")
    state, key, _ = tensors_in(read_file(tmp_path / "a.pth")[0])
    assert key == nest and equal(state)


def test_two_names_may_share_their_numbers_and_no_more():
    one = torch.rand(300)
    assert tensors_in({"a": one, "b": one})[0].keys() == {"a", "b"}
    with pytest.raises(ValueError, match="weights of 3,600 bytes share 1,200 among them"):
        tensors_in({"a": one, "b": one, "c": one})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [".pth", ".npz"])
def test_a_flipped_bit_is_noticed_or_changes_nothing(tmp_path, kind):
    """Anywhere in the file, and where the list of its members could hide one.

    Marked as a folder (byte 38 of its entry), torch would read nothing of it; with a longer comment (byte 32), zipfile
    would pass over the next.
    """
    path, dice = write(tmp_path / f"weights{kind}", {"a": torch.rand(30), "b": torch.rand(9)}), random.Random(0)
    content, expected = path.read_bytes(), tensors_in(read_file(path)[0])[0]
    flips = [(dice.randrange(len(content)), dice.randrange(8)) for _ in range(150)]
    for entry in (match.start() for match in re.finditer(b"PK\x01\x02", content)):
        flips += [(entry + 38, 4), *((entry + 32, bit) for bit in range(8))]
    refused = 0
    for at, bit in flips:
        flipped = bytearray(content)
        flipped[at] ^= 1 << bit
        path.write_bytes(flipped)
        try:
            assert equal(tensors_in(read_file(path)[0])[0], expected), f"bit {bit} of byte {at} changed unnoticed"
        except ValueError as error:
            assert str(path) in str(error)
            refused += 1
    assert refused > 75


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_cut_short_or_of_another_kind_are_refused(tmp_path, kind):
    path = write(tmp_path / f"weights{kind}")
    part = next(tmp_path.glob("*.safetensors")) if kind == ".json" else path
    content = part.read_bytes()
    for damaged in (
        *(content[: int(share * len(content))] for share in (0, 0.02, 0.5, 0.98)),
        b"no weights, but words",
    ):
        part.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"weights[-\w]*\."):
            read_file(path)
    for other in (b"\x80\x02", b"PK\x03\x04", bytes(range(256)) * 9):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=f"weights{kind} (holds no weights|must be the JSON)"):
            read_file(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "last",
            "last.json holds no weights .*: it is what a run is resumed from; its weights to use are in best.json",
        ),
        ("best", r"holds no weights .*: it has the tensors of best.json; name best.json, which states the rest"),
    ],
)
def test_of_a_runs_files_the_one_to_name_is_named(tmp_path, name, message):
    path = save_checkpoint(tmp_path, name, STATE, {"fact": 1})
    tensors = next(tmp_path.glob("*.safetensors"))
    with pytest.raises(ValueError, match=message):
        load_pretrained(path if name == "last" else tensors, num_heads=foreign.H)
    path.unlink()
    assert load_pretrained(tensors, num_heads=foreign.H).layout == "timm"


def test_settings_beside_the_weights_are_not_run(tmp_path):
    torch.save({"model": STATE, "args": argparse.Namespace(lr=0.1)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="to read it would run argparse.Namespace"):
        read_file(tmp_path / "a.pth")


@pytest.mark.parametrize("load", [read_file, load_pretrained])
def test_a_missing_file_a_folder_and_a_pipe_are_named(tmp_path, load):
    for name in (*(f"weights{kind}" for kind in KINDS), "weights.h5"):
        with pytest.raises(FileNotFoundError, match=name):
            load(tmp_path / name)
    (tmp_path / "weights.pth").mkdir()
    with pytest.raises(FileNotFoundError, match="weights.pth.*best.json"):
        load(tmp_path / "weights.pth")
    (tmp_path / "weights.h5").write_bytes(b"\x89HDF")
    with pytest.raises(ValueError, match="weights.h5 holds no weights that can be read: it is HDF5, as Keras"):
        load(tmp_path / "weights.h5")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("kind", [".pth", ".safetensors"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, kind):
    os.mkfifo(tmp_path / f"weights{kind}")
    with pytest.raises(ValueError, match=f"weights{kind} must be a file, got a pipe or a device"):
        load_pretrained(tmp_path / f"weights{kind}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 3.0}, "'a': expected a tensor of floating-point numbers under a name, got float"),
        ({"a": np.ones(3, int)}, "'a': expected .* got int64"),
        ({3: torch.ones(2)}, "3: expected .* under a name"),
        ({"a": torch.ones(2).to_sparse()}, "a: expected a tensor with all of its numbers, got torch.sparse_coo"),
        ({"a": torch.ones(2, device="meta")}, "a: expected .* on meta"),
    ],
)
def test_what_is_no_tensor_is_named(content, message):
    with pytest.raises(ValueError, match=message):
        tensors_in(content)


OTHER = {name: tensor + 1 for name, tensor in STATE.items()}
TWO = {f"student.{n}": t for n, t in STATE.items()} | {f"teacher.{n}": t for n, t in OTHER.items()}


@pytest.mark.parametrize(
    ("content", "part", "first"),
    [
        ({"state_dict": STATE, "state_dict_ema": OTHER}, "", OTHER),
        ({"model": STATE, "model_ema": OTHER}, "model", STATE),
        ({"student": STATE, "teacher": {"net": OTHER}}, "teacher.net", OTHER),
        (TWO, "teacher", OTHER),
        ({"state_dict": TWO}, "teacher", OTHER),
        ({"state_dict": TWO}, "state_dict.teacher", OTHER),
        ({"model": STATE, "model_ema": {"module": OTHER}}, "model_ema", OTHER),
        ({"state": {"model": STATE}, "model": {"depth": 2}}, "", STATE),
    ],
    ids=["mean", "named", "nested", "by the names", "inside", "by all", "above", "beside a config"],
)
def test_of_several_models_the_mean_is_taken_or_the_one_that_is_named(tmp_path, content, part, first):
    torch.save(content, tmp_path / "a.pth")
    weights = load_pretrained(f"{tmp_path}/a.pth#{part}".removesuffix("#"), num_heads=foreign.H)
    assert torch.equal(weights.model.embedding.cls_token, first["cls_token"].float())
    assert any("the mean over training" in note for note in weights.notes) == (not part and first is OTHER)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"student": STATE, "teacher": OTHER}, "there are 2 models, 'student' and 'teacher': say which, as #student"),
        (
            {f"{tower}.{n}": t for tower in ("teacher", "student") for n, t in STATE.items()},
            "there are 2 image towers, 'student' and 'teacher': say which",
        ),
    ],
)
def test_of_two_models_none_is_taken_by_chance(content, message):
    with pytest.raises(ValueError, match=message):
        load_pretrained(content, num_heads=foreign.H)


@pytest.mark.parametrize("content", [TWO, {"state_dict": TWO}, {"model_a": STATE, "model_ba": OTHER}])
def test_the_names_that_errors_offer_are_taken(tmp_path, content):
    torch.save(content, tmp_path / "a.pth")
    for wrong in ("", "#state"):
        with pytest.raises(ValueError, match="there are ") as caught:
            load_pretrained(f"{tmp_path}/a.pth{wrong}", num_heads=foreign.H)
        names = re.findall(r"'([\w.]+)'", str(caught.value))
        tokens = [
            load_pretrained(f"{tmp_path}/a.pth#{n}", num_heads=foreign.H).model.embedding.cls_token for n in names
        ]
        assert len(tokens) == 2 and not torch.equal(*tokens)


def test_towers_are_told_apart_by_whole_words():
    towers = {f"{tower}.{n}": t for tower in ("net_a", "net_ba") for n, t in STATE.items()}
    with pytest.raises(ValueError, match="2 image towers, 'net_a' and 'net_ba': say which, as #net_a"):
        load_pretrained(towers, num_heads=foreign.H)


def test_what_trainers_leave_in_names_and_beside_the_model_is_dropped():
    wrapped = {f"model.{name.replace('attn.', '_orig_mod.attn.')}": tensor for name, tensor in STATE.items()}
    beside = {"criterion.weight": torch.ones(3), "n_averaged": torch.tensor(3), "model.mean": torch.zeros(3)}
    weights = load_pretrained(wrapped | beside, num_heads=foreign.H)
    assert "dropped what is not the image tower's: criterion.weight, n_averaged, model.mean" in weights.notes
    plain = load_pretrained(STATE, num_heads=foreign.H).model.state_dict()
    assert all(torch.equal(tensor, plain[name]) for name, tensor in weights.model.state_dict().items())


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [
        (b"GGUF\x03\0\0\0", "GGUF"),
        (b"\x08\x09\x12\x07pytorch", "ONNX"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\x1f\x8b\x08\x00", "a compressed archive"),
    ],
)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_files_of_other_kinds_are_called_what_they_are(tmp_path, beginning, kind, suffix):
    (tmp_path / f"a{suffix}").write_bytes(beginning + bytes(200))
    with pytest.raises(ValueError, match=f"a{suffix} holds no weights that can be read: it is {kind}"):
        load_pretrained(tmp_path / f"a{suffix}")


@pytest.mark.filterwarnings("ignore")
def test_programs_and_whole_models_are_called_what_they_are(tmp_path):
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "a.pth")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "b.pth")
    for name, kind in (("a", "it is TorchScript"), ("b", "torch.nn.modules.linear.Linear, a whole model")):
        with pytest.raises(ValueError, match=kind):
            load_pretrained(tmp_path / f"{name}.pth")


@pytest.mark.parametrize(
    ("inside", "kind"),
    [
        ("adapter_config.json", "an adapter of peft"),
        (".metadata", "dcp_to_torch_save"),
        ("_CHECKPOINT_METADATA", "Orbax"),
        ("checkpoint-5/model.safetensors", "weights are in checkpoint-5: name one of these"),
    ],
)
def test_a_folder_without_weights_says_what_it_is(tmp_path, inside, kind):
    (tmp_path / inside).parent.mkdir(exist_ok=True)
    (tmp_path / inside).write_bytes(b"{}")
    with pytest.raises(ValueError, match=f"{kind}.*; expected model.safetensors.* got {inside.partition('/')[0]}"):
        load_pretrained(str(tmp_path))


def test_bfloat16_of_jax_and_dots_of_flax_are_read(tmp_path):
    arrays = {name: torch.from_numpy(array).bfloat16() for name, array in foreign.google().items()}
    np.savez(tmp_path / "a.npz", **{name: t.view(torch.int16).numpy().view("V2") for name, t in arrays.items()})
    save_file({name.replace("/", "."): t.contiguous() for name, t in arrays.items()}, tmp_path / "a.safetensors")
    one, two = (load_pretrained(tmp_path / name).model.state_dict() for name in ("a.npz", "a.safetensors"))
    assert all(torch.equal(tensor, two[name]) and tensor.isfinite().all() for name, tensor in one.items())


@pytest.mark.parametrize(("version", "refused"), [("2.9.1+cpu", True), ("2.10.0", False)])
def test_strangers_pickles_need_a_torch_that_reads_them_safely(tmp_path, monkeypatch, version, refused):
    paths = [write(tmp_path / f"a{kind}") for kind in (".pth", ".safetensors")]
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr("vitbook.pretrained.weight_files._SAFE_PICKLES", (2, 10))
    assert equal(tensors_in(read_file(paths[1])[0])[0]) and equal(tensors_in(read_file(paths[0], trusted=True)[0])[0])
    if refused:
        with pytest.raises(ValueError, match=r"a.pth.*2.9.1\+cpu.*CVE-2026-24747.*install torch 2.10"):
            read_file(paths[0])
    else:
        read_file(paths[0])


def test_models_of_one_file_share_no_numbers(tmp_path):
    path = write(tmp_path / "a.safetensors", {name: tensor.float() for name, tensor in STATE.items()})
    one, two = (load_pretrained(path, num_heads=foreign.H).model for _ in range(2))
    before = path.read_bytes()
    torch.nn.init.zeros_(one.norm.weight)
    assert two.norm.weight.all() and path.read_bytes() == before
