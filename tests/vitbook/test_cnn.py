"""The small CNN: what a convolution has built in."""

import pytest
import torch
from torch.testing import assert_close

from vitbook.cnn import CNNConfig, ResidualBlock, SmallCNN, WhiteningCNN


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


def whitening_cnn(**changes) -> WhiteningCNN:
    torch.manual_seed(0)
    return WhiteningCNN(CNNConfig(**dict(image_size=(12, 10), channels=2, num_classes=7, widths=(5, 6)) | changes))


def test_the_quick_network_has_its_shapes_and_the_count_of_its_paper():
    model = whitening_cnn()
    assert model(torch.randn(3, 2, 12, 10)).shape == (3, 7)
    full = WhiteningCNN(CNNConfig())
    weights = sum(p.numel() for p in full.parameters())
    convolutions = 24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256
    assert weights == 9 * convolutions + 24 * 12 + 24 + 2 * 2 * (64 + 256 + 256) + 2570


def test_whitened_patches_are_uncorrelated_with_variance_1():
    images = torch.randn(64, 2, 12, 10).cumsum(dim=3)  # neighbors resemble each other
    model = whitening_cnn()
    model.whiten(images, eps=0.0)
    outputs = model.whitening(images).detach().transpose(0, 1).flatten(1)[:8]
    assert_close(outputs.cov(), torch.eye(8), atol=1e-3, rtol=0)
    assert torch.equal(model.whitening.weight[8:], -model.whitening.weight[:8])
    model(images).sum().backward()
    assert model.whitening.weight.grad is None


@pytest.mark.door
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(widths=()), "widths must be at least 1"),
        (dict(widths=(4, 0)), "widths must"),
        (dict(image_size=(4, 32)), "more than 4 pixels for 2 blocks"),
        (dict(num_classes=0), "num_classes must"),
    ],
)
def test_networks_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        whitening_cnn(**changes)


@pytest.mark.door
def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"\(C, H, W\) = \(2, 12, 10\), got \(1, 2, 10, 12\)"):
        whitening_cnn()(torch.randn(1, 2, 10, 12))
