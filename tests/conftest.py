"""What every test may rely on: the same random numbers each time, and two precisions."""

import pytest
import torch


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)


@pytest.fixture(params=[torch.float64, torch.float32], ids=["float64", "float32"])
def precision(request):
    """New tensors and modules are of this dtype; properties.TOLERANCE says how close equal is."""
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)
