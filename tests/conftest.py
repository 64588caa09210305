"""What every test may rely on: the same random numbers each time, and two precisions."""

import gc
import re
from importlib.metadata import version

import pytest
from jaxtyping import config, install_import_hook

# torch is imported where it is needed: the process that hands the tests to others does without.

OLD_TORCH = tuple(map(int, re.findall(r"\d+", version("torch"))[:2])) < (2, 10)

gc.set_threshold(200_000, 20, 100)  # to look for cycles among thousands of tests that are collected takes seconds

# The shapes in the signatures of these modules are enforced in the tests.
SHAPED = """
    attention self_attention multihead transformer positions patches embedding encoder vit
    data augment _common.images attention_maps pretrained.preprocessing features task_heads distillation costs
    cnn training tokens mae dino contrastive modern finetuning planted attribution activation_patching
    painting
"""
SHAPED_WORKSHOP = "live.your_model commands.explain_file exam.maps_from_papers"
install_import_hook(
    [f"vitbook.{module}" for module in SHAPED.split()]
    + [f"vitbook_workshop.{module}" for module in SHAPED_WORKSHOP.split()],
    "shapes.check",
)


@pytest.fixture(autouse=True)
def shapes_unenforced(request):
    """A test marked `door` gives what a stranger might, and sees the error that the package itself raises."""
    config.update("jaxtyping_disable", request.node.get_closest_marker("door") is not None)


@pytest.fixture(autouse=True)
def same_random_numbers():
    import torch

    # torch.manual_seed keeps for a GPU that may yet come who has called it, which takes longer than many a test
    seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
    seed(0)


@pytest.fixture(autouse=True)
def pickles_are_our_own(monkeypatch):
    """Old releases of torch refuse pickles of strangers, which those of the tests are not."""
    if OLD_TORCH:
        monkeypatch.setattr("vitbook.pretrained.weight_files._SAFE_PICKLES", (2, 5))


@pytest.fixture(params=["float64", "float32"])
def precision(request):
    """New tensors and modules are of this dtype; small_examples.TOLERANCE says how close equal is."""
    import torch

    torch.set_default_dtype(dtype := getattr(torch, request.param))
    yield dtype
    torch.set_default_dtype(torch.float32)
