"""Another head, image size or number of channels; positions are interpolated as the original code does it."""

from dataclasses import asdict

import foreign
import numpy as np
import pytest
import torch
from foreign import DEPTH, HIDDEN, SIDE, D, H, K, P, images
from PIL import Image
from scipy import ndimage
from torch.testing import assert_close

from vitbook.checkpoint import save_checkpoint
from vitbook.pretrained import KERNELS, load_pretrained
from vitbook.vit import VisionTransformer, ViTConfig

POS = "embedding.positions.pos_embed"


@pytest.mark.parametrize("grid", [(5, 5), (2, 2), (4, 7)])
@pytest.mark.parametrize("name", ["google", "timm"])
def test_googles_and_timms_kernel_are_scipys_and_pillows(name, grid):
    state, size = foreign.timm(), (grid[0] * P, grid[1] * P)
    positions = load_pretrained(state, num_heads=H, image_size=size, resize=name).model.state_dict()[POS][0]
    before = state["pos_embed"][0].float()
    assert torch.equal(positions[0], before[0])
    table = before[1:].view(3, 3, D).numpy()
    if name == "google":
        expected = ndimage.zoom(table, (grid[0] / 3, grid[1] / 3, 1), order=1)
    else:  # in which a smaller image is a mean of the larger
        planes = [Image.fromarray(one).resize(grid[::-1], Image.Resampling.BICUBIC) for one in table.transpose(2, 0, 1)]
        expected = np.stack(planes, axis=-1)
    assert_close(positions[1:].numpy(), expected.reshape(-1, D), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("state", "own"),
    [
        (foreign.google(), "google"),
        (foreign.google(big_vision=True), "google"),
        (foreign.timm(), "timm"),
        (foreign.timm(distilled=True), "deit"),
        ({"model": foreign.timm()}, "deit"),
        (foreign.torchvision(), "torchvision"),
    ],
)
def test_a_source_has_its_own_kernel_and_the_notes_name_it(state, own):
    default = load_pretrained(state, num_heads=H, image_size=20)
    for name in KERNELS:
        other = load_pretrained(state, num_heads=H, image_size=20, resize=name)
        same = torch.equal(other.model.state_dict()[POS], default.model.state_dict()[POS])
        assert same == (name == own or {name, own} == {"deit", "hf"})
        assert (other.notes == default.notes) == (name == own)


def test_the_notes_tell_all_changes():
    weights = load_pretrained(foreign.google(), num_classes=4, image_size=(8, 20), channels=1)
    assert weights.model(torch.randn(2, 1, 8, 20)).shape == (2, 4)
    assert weights.model.config == ViTConfig((8, 20), P, 1, 4, D, DEPTH, H, HIDDEN)
    assert weights.preprocessing.image_size == (8, 20)
    assert weights.notes[-3:] == (
        "head: 7 classes dropped, 4 made new, all zeros",
        "patch_embed: kernels of 3 channels added up: 1",
        "positions: (12, 12) pixels resized to (8, 20), as google does it: bilinear, align_corners",
    )
    assert not weights.model.training


def checkpoint(folder, mean: float = 0.5, **changes):
    """One of ours, with random weights."""
    model = VisionTransformer(
        ViTConfig(**dict(image_size=SIDE, patch_size=P, num_classes=K, dim=D, num_heads=H) | changes)
    )
    torch.nn.init.normal_(model.head.weight)
    channels = model.config.channels
    facts = dict(model=asdict(model.config), class_names=list("abcdefg"), mean=[mean] * channels, std=[0.2] * channels)
    return save_checkpoint(folder, "best", model.state_dict(), facts)


def test_another_number_of_classes_makes_a_new_head_of_zeros():
    kept, new, none = (load_pretrained(foreign.google(), num_classes=k).model for k in (K, 4, 0))
    assert kept.head.weight.any() and not new.head.weight.any() and not new.head.bias.any()
    x = images().float()
    assert new(x).shape == (2, 4) and new.config.num_classes == 4
    assert torch.equal(new.features(x), kept.features(x))
    assert torch.equal(none(x), kept.features(x))


def test_both_heads_of_a_distilled_model_are_made_new():
    model = load_pretrained(foreign.timm(distilled=True), num_heads=H, num_classes=4).model
    assert not model.head.weight.any() and model.both_heads(images().float())[1].shape == (2, 4)


def test_a_hidden_layer_before_the_head_goes_only_with_the_head():
    state = foreign.google(hidden=True)
    for num_classes in (None, K):
        with pytest.raises(ValueError, match="pre_logits/kernel: .*a hidden layer, which our model lacks"):
            load_pretrained(state, num_classes=num_classes)
    for num_classes in (0, 3):
        weights = load_pretrained(state, num_classes=num_classes)
        assert {"dropped pre_logits/kernel", "dropped pre_logits/bias"} <= {*weights.notes}
        expected = {name: array for name, array in state.items() if "pre_logits" not in name}
        x = images().float()
        assert torch.equal(weights.model.features(x), load_pretrained(expected, num_classes=0).model(x))


def test_gray_images_see_the_sum_of_the_colors():
    color, gray = (load_pretrained(foreign.google(), channels=channels) for channels in (None, 1))
    x = images(channels=1).float()
    assert_close(gray.model(x), color.model(x.expand(-1, 3, -1, -1)), rtol=1e-5, atol=1e-5)
    assert gray.preprocessing.mean == (0.5,)


def test_further_channels_begin_at_nothing():
    color, more = (load_pretrained(foreign.google(), channels=channels) for channels in (None, 5))
    x = images(channels=5).float()
    assert_close(more.model(x), color.model(x[:, :3]), rtol=1e-5, atol=1e-5)
    assert more.preprocessing.mean == color.preprocessing.mean
    assert "patch_embed: kernels of 3 channels kept, 2 of zeros added: 5" in more.notes


def test_color_images_share_out_the_gray(tmp_path):
    path = checkpoint(tmp_path, mean=0.3, depth=1, mlp_dim=HIDDEN, channels=1)
    color, x = load_pretrained(path, channels=3), images(channels=1).float()
    assert_close(color.model(x.expand(-1, 3, -1, -1)), load_pretrained(path).model(x), rtol=1e-5, atol=1e-5)
    assert color.preprocessing.mean == (0.3, 0.3, 0.3)


def test_a_hybrid_takes_other_classes_sizes_and_channels():
    changed = load_pretrained("vitbook:cifar10", num_classes=7, image_size=(32, 48), channels=1)
    assert changed.model(torch.zeros(2, 1, 32, 48)).shape == (2, 7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(image_size=10), "image 10×10 is not divisible by patch size 4"),
        (dict(channels=2), "channels: the weights have 3, which can become 1 or more than 3, got 2"),
        (dict(resize="tim"), "unknown kernel 'tim', did you mean 'timm'"),
    ],
)
def test_impossible_changes_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        load_pretrained(foreign.timm(), num_heads=H, **changes)
