"""Images and words: the losses, the towers, and what a language model gets."""

import math

import pytest
import torch
import torch.nn.functional as F
from small_models import small_config
from torch.testing import assert_close

from vitbook.contrastive import (
    COLORS,
    PATTERNS,
    PLACES,
    SHAPES,
    Projector,
    ScaleAndBias,
    TextTower,
    TwoTowers,
    cosines,
    describe_scenes,
    draw_scenes,
    mean_direction,
    sigmoid_loss,
    softmax_loss,
)
from vitbook.vit import VisionTransformer

CAPTIONS = ["a red circle", "a blue cross at the top", "red"]


def text_tower(length: int = 7, depth: int = 2) -> TextTower:
    words = "a at the top red blue circle cross".split()
    return TextTower(words, length, dim=12, depth=depth, num_heads=3, hidden_dim=20).double().eval()


def two_towers() -> TwoTowers:
    image = VisionTransformer(small_config(num_classes=0))
    return TwoTowers(image, text_tower(), dim=5, to_logits=ScaleAndBias(10.0, -10.0)).double().eval()


def test_the_gradient_of_the_softmax_loss_is_what_was_said_minus_what_is_right():
    logits = torch.randn(6, 6, dtype=torch.float64, requires_grad=True)
    softmax_loss(logits).backward()
    said = (logits.softmax(dim=0) + logits.softmax(dim=1)) / 2
    assert_close(logits.grad, (said - torch.eye(6)) / 6)


def test_a_bias_changes_the_sigmoid_loss_alone():
    logits = torch.randn(6, 6, dtype=torch.float64)
    assert_close(softmax_loss(logits - 3), softmax_loss(logits))
    assert sigmoid_loss(logits - 3) < sigmoid_loss(logits)
    untrained = torch.full((6, 6), -math.log(5), dtype=torch.float64)  # each pair with the probability 1/6 of a pair
    assert_close(sigmoid_loss(untrained), torch.tensor(math.log(6) + 5 * math.log(6 / 5), dtype=torch.float64))


@torch.no_grad()
def test_the_logits_are_scaled_cosines_of_what_the_towers_say():
    model, images = two_towers(), torch.randn(4, 3, 8, 12, dtype=torch.float64)
    x, y = model.see(images), model.read(CAPTIONS)
    assert_close(x.norm(dim=-1), torch.ones(4, dtype=torch.float64))
    assert_close(model(images, CAPTIONS), 10 * x @ y.mT - 10)


@torch.no_grad()
def test_padding_and_other_captions_do_not_change_a_caption():
    short = text_tower(length=4, depth=1)
    long = text_tower(length=9, depth=1)
    state = short.state_dict()
    state["positions"] = torch.cat([state["positions"], torch.randn(1, 5, 12)], dim=1)
    long.load_state_dict(state)
    caption = CAPTIONS[:1]
    assert_close(long(long.tokenize(CAPTIONS))[:1], short(short.tokenize(caption)))


@torch.no_grad()
def test_the_order_of_words_counts():
    tower = text_tower()
    one, other = tower(tower.tokenize(["red circle blue cross", "blue circle red cross"]))
    assert (one - other).abs().max() > 1e-3


def test_tokens_are_the_words_in_order_with_a_start_and_padding():
    tower = text_tower()
    index = tower.words
    assert list(index)[:2] == ["·", "<"]
    expected = [index[word] for word in ("<", "a", "red", "circle", "·", "·", "·")]
    assert tower.tokenize(CAPTIONS)[0].tolist() == expected


@pytest.mark.door
@pytest.mark.parametrize(
    ("caption", "message"),
    [
        ("a red circle at the top of it", "a caption may have 6 words, got 8: 'a red circle at the top of it'"),
        ("a rad circle", "unknown word 'rad', did you mean 'red'"),
    ],
)
def test_a_caption_that_the_tower_cannot_read_is_refused(caption, message):
    with pytest.raises(ValueError, match=message):
        two_towers().read(["a red circle", caption])


def test_several_prompts_give_one_unit_vector_for_each_name():
    y = torch.randn(3, 4, 5, dtype=torch.float64)
    got = mean_direction(y * torch.rand(3, 4, 1, dtype=torch.float64).add(0.5))  # lengths do not count
    assert_close(got.norm(dim=-1), torch.ones(4, dtype=torch.float64))
    mean = F.normalize(y, dim=-1).mean(dim=0)
    assert_close(cosines(got, mean).diagonal(), torch.ones(4, dtype=torch.float64))
    assert_close(mean_direction(y[:1]), F.normalize(y[0], dim=-1))


@pytest.mark.slow
def test_one_batch_is_learned_by_heart_with_either_loss():
    for loss_of, bias, rate in ((softmax_loss, 0.0, 2e-2), (sigmoid_loss, -10.0, 1e-2)):
        torch.manual_seed(0)
        model, images = two_towers(), torch.randn(3, 3, 8, 12, dtype=torch.float64)
        model.to_logits = ScaleAndBias(10.0, bias).double()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
        for _ in range(75):
            loss = loss_of(model(images, CAPTIONS))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss < 0.05


def test_a_projector_is_two_linear_maps_with_a_gelu_between():
    projector, z = Projector(12, 20), torch.randn(2, 5, 12)
    hidden = F.gelu(z @ projector[0].weight.mT + projector[0].bias)
    assert_close(projector(z), hidden @ projector[2].weight.mT + projector[2].bias)


def test_a_scene_shows_what_its_caption_says():
    scenes = torch.cartesian_prod(torch.arange(len(COLORS)), torch.arange(len(SHAPES)), torch.arange(len(PLACES)))
    images, paints = draw_scenes(scenes), torch.tensor(list(COLORS.values()))
    painted = (images - paints[scenes[:, 0], :, None, None]).abs().amax(dim=1) < 0.16  # four standard deviations
    quarters = painted.unflatten(1, (2, 12)).unflatten(3, (2, 12)).sum(dim=(2, 4)).flatten(1)
    assert (quarters.argmax(dim=1) == scenes[:, 2]).all()
    assert (quarters.amax(dim=1) > 15).all() and (quarters.sum(dim=1) - quarters.amax(dim=1) < 15).all()
    assert describe_scenes(torch.tensor([[2, 1, 3]]), PATTERNS[1]) == ["at the bottom right a blue square"]
