"""The small CNN: what a convolution has built in."""

import pytest
import torch
from torch.testing import assert_close

from vitbook.cnn import ResidualBlock, SmallCNN


def test_a_shifted_image_has_the_same_features():
    """Away from the border, by a multiple of the strides: what the book means by built-in bias."""
    cnn = SmallCNN(channels=1, num_classes=2, width=4).double().eval()
    patch = torch.randn(1, 1, 6, 6, dtype=torch.float64)
    first, second = torch.zeros(2, 1, 1, 64, 64, dtype=torch.float64)
    first[..., 24:30, 24:30], second[..., 32:38, 28:34] = patch, patch
    assert_close(cnn.features(first), cnn.features(second))
    assert cnn.features(first).shape == (1, 16) and cnn(first).shape == (1, 2)


def test_a_block_is_its_shortcut_where_the_branch_is_zero():
    block = ResidualBlock(3, 3, stride=1)
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 3, 5, 7)
    assert_close(block(x), x)
    assert ResidualBlock(3, 5, stride=2)(x).shape == (2, 5, 3, 4)


@pytest.mark.door
@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (3, 8, 8), (2, 3, 3, 8)])
def test_wrong_images_are_refused(shape):
    with pytest.raises(ValueError, match=r"images must have shape \(B, 3, H, W\)"):
        SmallCNN(3, 10)(torch.zeros(shape))
