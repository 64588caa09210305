"""Recording attention, and what is measured on it, against closed forms and loops."""

import math
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vitbook.attention_maps import (
    attention_distance,
    attention_entropy,
    gradient_weighted_attention,
    linear_cka,
    logit_lens,
    only_patches,
    patch_filters,
    patch_map,
    position_similarity,
    recorded_attention,
    residual_stream,
    rollout,
)
from vitbook.distillation import DistilledVisionTransformer
from vitbook.vit import VisionTransformer, ViTConfig

L, B, H = 3, 2, 4  # blocks, images, heads
GRID, PATCH = (2, 3), 5
TOKENS = 1 + GRID[0] * GRID[1]


def small_vit(**changes) -> VisionTransformer:
    sizes = dict(image_size=(8, 12), patch_size=4, channels=3, num_classes=5, dim=24, depth=3, num_heads=4, mlp_dim=48)
    model = VisionTransformer(ViTConfig(**sizes | changes))
    torch.nn.init.normal_(model.head.weight)
    return model


def random_weights(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(L, B, H, TOKENS, TOKENS, dtype=dtype).mul(3).softmax(dim=-1)


@pytest.mark.parametrize("class_token", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_recording_gives_every_blocks_weights_and_leaves_the_output_alone(class_token, training):
    model = small_vit(class_token=class_token, pool="class" if class_token else "mean").double().train(training)
    images = torch.randn(B, 3, 8, 12, dtype=torch.float64)
    plain = model(images)
    with recorded_attention(model) as weights:
        assert_close(model(images), plain)
    assert [tuple(w.shape) for w in weights] == [(B, H, 6 + class_token, 6 + class_token)] * 3
    assert_close(torch.stack(weights).sum(dim=-1), torch.ones(3, B, H, 6 + class_token, dtype=torch.float64))


def test_the_recorded_weights_are_those_that_made_each_blocks_output():
    model = small_vit().double()
    images = torch.randn(B, 3, 8, 12, dtype=torch.float64)
    with recorded_attention(model) as weights:
        model(images)
    z = model.embedding(images)
    for block, recorded in zip(model.encoder.blocks, weights, strict=True):
        assert_close(block.attn.attend(block.norm1(z))[1], recorded)
        z = block(z)


def test_nothing_is_left_behind_also_when_the_body_raises():
    model = small_vit()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    with pytest.raises(RuntimeError, match="in the body"), recorded_attention(model):
        raise RuntimeError("in the body")
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


def test_the_stream_begins_with_the_embedding_and_ends_with_the_last_tokens():
    model = small_vit().double()
    images = torch.randn(B, 3, 8, 12, dtype=torch.float64)
    states = residual_stream(model, images)
    assert states.shape == (1 + 3, B, 7, 24)
    assert_close(states[0], model.embedding(images), rtol=0, atol=0)
    assert_close(model.norm(states[-1]), model.tokens(images), rtol=0, atol=0)
    assert torch.autograd.grad(states[-1].sum(), model.embedding.cls_token)[0].any()


def small_distilled() -> DistilledVisionTransformer:
    model = DistilledVisionTransformer(small_vit().config)
    for head in (model.head, model.head_dist):  # unlike each other
        nn.init.normal_(head.weight)
    return model


@pytest.mark.parametrize(
    "make",
    [small_vit, lambda: small_vit(pool="mean", class_token=False), small_distilled],
    ids=["class token", "mean without class token", "two heads"],
)
def test_the_lens_says_what_a_model_of_the_first_blocks_alone_would_say(make):
    model = make().double()
    images = torch.randn(B, 3, 8, 12, dtype=torch.float64)
    scores = logit_lens(model, residual_stream(model, images))
    assert_close(scores[-1], model(images))
    for blocks in range(4):
        shallow = deepcopy(model)
        shallow.encoder.blocks = shallow.encoder.blocks[:blocks]
        assert_close(scores[blocks], shallow(images))
    for before, after in zip(scores, scores[1:], strict=False):
        assert not torch.allclose(before, after)


@pytest.mark.parametrize("residual", [True, False])
def test_rollout_is_the_product_over_blocks_written_as_loops(residual):
    weights, identity = random_weights(), torch.eye(TOKENS, dtype=torch.float64)
    expected = identity.repeat(B, 1, 1)
    for block in range(L):
        for image in range(B):
            mixed = sum(weights[block, image, head] for head in range(H)) / H
            expected[image] = (0.5 * mixed + 0.5 * identity if residual else mixed) @ expected[image]
    assert_close(rollout(weights, residual=residual), expected)


def test_gradient_weighted_attention_is_the_sum_over_paths_written_as_loops():
    model = small_vit().double()
    images = torch.randn(B, 3, 8, 12, dtype=torch.float64)
    with recorded_attention(model) as weights:
        score = model(images)[:, 2]
    gradients = torch.autograd.grad(score.sum(), weights, retain_graph=True)
    expected = torch.eye(7, dtype=torch.float64).repeat(B, 1, 1)
    for w, g in zip(weights, gradients, strict=True):
        for image in range(B):
            influence = sum((w[image, head] * g[image, head]).relu() for head in range(H)) / H
            expected[image] += influence.detach() @ expected[image]
    assert_close(gradient_weighted_attention(weights, score), expected)


def test_attention_distance_is_the_mean_over_patches():
    weights = random_weights()
    row, column = torch.arange(6) // GRID[1], torch.arange(6) % GRID[1]
    distance = PATCH * torch.hypot((row[:, None] - row).double(), (column[:, None] - column).double())
    among = weights[..., 1:, 1:] / weights[..., 1:, 1:].sum(dim=-1, keepdim=True)
    assert_close(attention_distance(weights, GRID, PATCH), (among * distance).sum(dim=-1).mean(dim=(1, 3)))


def test_entropy_runs_from_one_token_alone_to_all_alike():
    assert_close(attention_entropy(torch.eye(TOKENS).expand(L, B, H, -1, -1)), torch.zeros(L, H))
    uniform = torch.full((L, B, H, TOKENS, TOKENS), 1 / TOKENS)
    assert_close(attention_entropy(uniform), torch.full((L, H), math.log(TOKENS)))


def test_cka_is_the_cosine_of_the_two_tables_of_similarities():
    x, y = torch.randn(30, 7, dtype=torch.float64) + 2, torch.randn(30, 5, dtype=torch.float64) - 1
    centering = torch.eye(30, dtype=torch.float64) - 1 / 30
    tables = [centering @ z @ z.T @ centering for z in (x, y)]  # of the scalar products of all pairs
    assert linear_cka(x, y) == pytest.approx(torch.cosine_similarity(*(t.flatten() for t in tables), dim=0).item())


def test_cka_is_blind_to_rotation_scale_and_shift_but_not_to_stretching():
    x = torch.randn(50, 6, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))[0]
    assert linear_cka(x, 3 * x @ rotation + 5) == pytest.approx(1)
    assert linear_cka(x, x * torch.tensor([10.0, 1, 1, 1, 1, 1], dtype=torch.float64)) < 0.8


def test_position_similarity_is_one_with_itself_and_blind_to_length():
    table = torch.randn(1, TOKENS, 12, dtype=torch.float64)
    similarity = position_similarity(table, GRID)
    assert_close(similarity.flatten(1).diagonal(), torch.ones(TOKENS - 1, dtype=torch.float64))
    assert_close(position_similarity(table * torch.rand(1, TOKENS, 1, dtype=torch.float64).add(0.1), GRID), similarity)
    a, b = table[0, 1], table[0, 6]
    assert_close(similarity[0, 1, 2], a @ b / (a.norm() * b.norm()))


def test_patch_filters_find_the_directions_in_which_filters_differ():
    first, second = torch.linalg.qr(torch.randn(3 * 4 * 4, 2, dtype=torch.float64))[0].T
    amounts = torch.randn(50, 2, dtype=torch.float64) * torch.tensor([5.0, 1.0])
    amounts = torch.linalg.qr(amounts - amounts.mean(dim=0))[0] * torch.tensor([5.0, 1.0])
    weight = (amounts @ torch.stack([first, second]) + 0.3).view(50, 3, 4, 4)
    filters, shares = patch_filters(weight, 2)
    assert filters.shape == (2, 3, 4, 4)
    assert_close((filters.flatten(1) @ torch.stack([first, second]).T).abs(), torch.eye(2, dtype=torch.float64))
    assert_close(shares, torch.tensor([25 / 26, 1 / 26], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_patch_filters_of_tiny_weights_are_finite_and_those_that_are_all_alike_have_none(dtype):
    weight = torch.randn(12, 3, 4, 4, dtype=dtype)
    assert_close(patch_filters(1e-15 * weight, 5)[1], patch_filters(weight, 5)[1])
    for alike in (torch.zeros_like(weight), torch.full_like(weight, 0.1), weight[:1].expand(12, -1, -1, -1)):
        with pytest.raises(ValueError, match="filters that differ, got 12 that are all alike"):
            patch_filters(alike, 2)


def test_each_option_of_rollout_has_an_effect_and_leaves_rows_that_sum_to_one():
    weights = random_weights()
    options = ({}, {"heads": "max"}, {"heads": "min"}, {"residual": False}, {"discard": 0.5})
    variants = [rollout(weights, **option) for option in options]
    for i, one in enumerate(variants):
        assert_close(one.sum(dim=-1), torch.ones(B, TOKENS, dtype=torch.float64))
        assert not any(torch.allclose(one, other) for other in variants[:i])
    with pytest.raises(ValueError, match="discard must lie in 0 … 1, got 2.0"):
        rollout(weights, discard=2.0)


def test_patch_map_arranges_a_row_as_in_the_image():
    weights = random_weights()
    maps = patch_map(weights, GRID, query=4)
    assert maps.shape == (L, B, H, *GRID)
    assert maps[1, 0, 2, 1, 2] == weights[1, 0, 2, 4, 1 + 1 * GRID[1] + 2]


def recording_of(model: nn.Module) -> None:
    with recorded_attention(model):
        pass


def shared() -> VisionTransformer:
    model = small_vit()
    model.encoder.blocks[1] = model.encoder.blocks[0]
    return model


def nested() -> None:
    model = small_vit()
    with recorded_attention(model):
        recording_of(model)


@pytest.mark.door
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: recording_of(nn.Linear(2, 3)), "Linear has no MultiHeadSelfAttention"),
        (lambda w: recording_of(shared()), "blocks of this model share an attention"),
        (lambda w: nested(), "recorded already"),
        (lambda w: logit_lens(small_vit(), torch.ones(B, 7, 24)), r"\(L \+ 1, B, T, D\) with T ≥ 2, got \(2, 7, 24\)"),
        (lambda w: rollout(w[0]), r"\(L, B, h, T, T\) with h ≥ 1, got \(2, 4, 7, 7\)"),
        (lambda w: rollout(w, heads="median"), "mean, max, min, got 'median'"),
        (lambda w: attention_entropy(w[0]), r"\(L, B, h, T, T\)"),
        (lambda w: attention_entropy(w[:, :0]), r"at least one image and one query, got \(3, 0, 4, 7\)"),
        (lambda w: attention_distance(w, (1, 1), PATCH), r"T = 1 \+ 1·1 = 2, got \(3, 2, 4, 7, 7\)"),
        (lambda w: only_patches(w, GRID, num_prefix_tokens=0), r"T = 0 \+ 2·3 = 6, got"),
        (lambda w: gradient_weighted_attention([w[0]], torch.ones(2, 5)), r"\(B,\) = \(2,\), .* got \(2, 5\)"),
        (lambda w: patch_filters(torch.randn(50, 3, 4, 4), 49), "count must lie in 1 … 48, got 49"),
    ],
)
def test_what_would_be_silently_wrong_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(random_weights())
