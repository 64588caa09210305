"""What several tests start from. Use: pytest_plugins = ["shared_fixtures"]."""

import importlib.util
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from small_sets import SMALL_SETS, unpack


@pytest.fixture
def double():
    """New tensors and modules are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def cifar10(tmp_path) -> Path:
    """A folder with a few images as CIFAR-10."""
    return unpack(SMALL_SETS["cifar10"], tmp_path / "data" / "cifar-10-batches-bin").parent


@pytest.fixture(scope="module")
def torchvision():
    """torchvision, which timm and vit-pytorch import."""
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed; make peers installs it")
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
    return importlib.import_module("vision").import_torchvision()


@pytest.fixture
def without_onnxscript(monkeypatch):
    """Of what ONNX needs, onnxscript alone is missing."""

    def find(name: str, *place):
        return None if name == "onnxscript" else name if name.startswith("onnx") else find_spec(name, *place)

    monkeypatch.setattr(importlib.util, "find_spec", find)
