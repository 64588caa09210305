"""What every test may rely on: the same random numbers each time, and two precisions."""

import gc
import re
from importlib.metadata import version
from pathlib import Path

import pytest
from jaxtyping import config, install_import_hook

# torch is imported where it is needed: the process that hands the tests to others does without.

TESTS = Path(__file__).parent
OLD_TORCH = tuple(map(int, re.findall(r"\d+", version("torch"))[:2])) < (2, 10)

gc.set_threshold(200_000, 20, 100)


def pytest_collection_finish() -> None:
    """To look for cycles among thousands of tests takes seconds."""
    gc.freeze()


# The shapes in the signatures of these modules are enforced in their tests.
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
OF_ONE_MODULE = {f"test_{module.split('.')[-1]}" for module in SHAPED_WORKSHOP.split()}


@pytest.fixture(autouse=True)
def shapes_enforced_or_not(request):
    """In the tests of one module alone: what calls many of them is quicker without.

    A test marked `door` gives what a stranger might, and sees the error that the package itself raises.
    """
    of_one = "vitbook" in request.path.relative_to(TESTS).parts or request.path.stem in OF_ONE_MODULE
    config.update("jaxtyping_disable", not of_one or request.node.get_closest_marker("door") is not None)


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
