"""Every kind of file gives the tensors that were put in; what is none, is damaged or brings code along is refused."""

import argparse
import os
import pickle

import foreign
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vitbook.checkpoint import save_checkpoint
from vitbook.pretrained.weight_files import read_file, tensors_in

STATE = foreign.timm()


def write(path, state=None):
    state = STATE if state is None else state
    if path.suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in state.items()})
    elif path.suffix == ".safetensors":
        save_file(state, path)
    elif path.suffix == ".json":
        save_checkpoint(path.parent, path.stem, state, {"fact": 1})
    else:
        torch.save(state, path)
    return path


KINDS = [".npz", ".safetensors", ".pth", ".pt", ".bin", ".json"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_put_in_comes_out(tmp_path, kind):
    content, facts = read_file(write(tmp_path / f"weights{kind}"))
    state, nested = tensors_in(content)
    assert state.keys() == STATE.keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in STATE.items())
    assert (nested, facts) == (False, {"fact": 1} if kind == ".json" else {})


def test_a_folder_is_its_best_checkpoint(tmp_path):
    write(tmp_path / "best.json")
    assert read_file(tmp_path)[0].keys() == STATE.keys()


@pytest.mark.parametrize("nest", ["model", "state_dict"])
def test_tensors_are_found_where_training_code_keeps_them(tmp_path, nest):
    torch.save({nest: STATE, "epoch": 3, "optimizer": {"lr": 0.1}}, tmp_path / "a.pth")
    state, nested = tensors_in(read_file(tmp_path / "a.pth")[0])
    assert nested and state.keys() == STATE.keys()


def test_packed_arrays_are_read(tmp_path):
    arrays = {name: tensor.numpy() for name, tensor in STATE.items()}
    np.savez_compressed(tmp_path / "a.npz", **arrays, head=np.zeros((100, 20)))
    assert read_file(tmp_path / "a.npz")[0].keys() == {*STATE, "head"}


def test_two_names_may_share_their_numbers_and_no_more(tmp_path):
    one = torch.rand(300)
    assert tensors_in({"a": one, "b": one})[0].keys() == {"a", "b"}
    with pytest.raises(ValueError, match="weights of 3,600 bytes share 1,200 among them"):
        tensors_in({"a": one, "b": one, "c": one})


def test_the_format_of_old_pickles_is_read(tmp_path):
    torch.save(STATE, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    assert read_file(tmp_path / "a.pth")[0].keys() == STATE.keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "content", [b"", b"no weights, but words\n", b"\x80\x02", b"PK\x03\x04", bytes(range(256)) * 9]
)
def test_other_files_are_refused(tmp_path, kind, content):
    path = tmp_path / f"weights{kind}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"weights{kind} (holds no weights|should be)"):
        read_file(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
def test_files_that_are_cut_short_are_refused(tmp_path, kind, share):
    path = write(tmp_path / f"weights{kind}")
    if kind == ".json":
        path = next(tmp_path.glob("*.safetensors"))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"weights[-\w]*\."):
        read_file(tmp_path / f"weights{kind}")


class Danger:
    """Pickled, a call; unpickled without care, done."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path, zipped):
    danger = Danger(os.mkdir, str(tmp_path / "done"))
    torch.save(STATE | {"norm.bias": danger}, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        ValueError, match="a.pth holds no weights that can be read: to read it would run (posix|nt).mkdir"
    ):
        read_file(tmp_path / "a.pth")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(danger))
    with pytest.raises(ValueError, match="plain.pt holds no weights"):
        read_file(tmp_path / "plain.pt")
    np.savez(tmp_path / "a.npz", cls=np.array([danger], dtype=object))
    with pytest.raises(ValueError, match="a.npz holds no weights.*allow_pickle=False"):
        read_file(tmp_path / "a.npz")
    assert not (tmp_path / "done").exists()


def test_settings_beside_the_weights_are_named(tmp_path):
    torch.save({"model": STATE, "args": argparse.Namespace(lr=0.1)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="to read it would run argparse.Namespace"):
        read_file(tmp_path / "a.pth")


def test_a_file_that_is_not_there_is_a_missing_file(tmp_path):
    for name in (*(f"weights{kind}" for kind in KINDS), "weights.h5", "."):
        with pytest.raises(FileNotFoundError, match="weights|best.json"):
            read_file(tmp_path / name)


def test_other_kinds_of_files_are_named(tmp_path):
    (tmp_path / "weights.h5").write_bytes(b"\x89HDF")
    with pytest.raises(
        ValueError, match="weights.h5 should be a file of weights, .npz, .safetensors, .pth, .pt, .bin or"
    ):
        read_file(tmp_path / "weights.h5")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "weights must be tensors by name, got list"),
        ({"a": 3.0}, "a: expected a tensor of floating-point numbers, got float"),
        ({"a": np.ones(3, int)}, "a: expected a tensor of floating-point numbers, got int64"),
        ({"a": np.ones(3, "V2")}, "a: expected a tensor of floating-point numbers, got .V2"),
        ({"a": np.ones(3, ">f4")}, "a: expected a tensor of floating-point numbers, got >f4"),
        pytest.param(
            {"a": np.ones(3, np.longdouble)},
            "a: expected a tensor of floating-point numbers, got float",
            marks=pytest.mark.skipif(np.dtype(np.longdouble) == np.float64, reason="no longer numbers here"),
        ),
        ({"model": {"a": {}}}, "a: expected a tensor of floating-point numbers, got dict"),
        ({3: torch.ones(2)}, "3: expected a name and a tensor with all of its numbers, got torch.strided"),
        ({"a": torch.ones(2).to_sparse()}, "'a': expected a name and a tensor .*, got torch.sparse_coo"),
        ({"a": torch.ones(2, device="meta")}, "'a': expected a name and a tensor with all of its numbers, got meta"),
    ],
)
def test_what_is_no_tensor_is_named(content, message):
    with pytest.raises(ValueError, match=message):
        tensors_in(content)
