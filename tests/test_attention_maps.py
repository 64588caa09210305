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
    check_number,
    class_map,
    gradient_weighted_attention,
    logit_lens,
    only_patches,
    patch_filters,
    patch_map,
    position_similarity,
    recorded_attention,
    residual_stream,
    rollout,
    without_smallest,
)
from vitbook.distillation import DistilledVisionTransformer
from vitbook.vit import VisionTransformer, ViTConfig

L, B, H = 3, 2, 4  # blocks, pictures, heads
GRID, PATCH = (2, 3), 5
TOKENS = 1 + GRID[0] * GRID[1]


def small_vit(**changes) -> VisionTransformer:
    settings = dict(
        image_size=(8, 12), patch_size=4, channels=3, num_classes=5, dim=24, depth=3, num_heads=4, mlp_dim=48
    )
    model = VisionTransformer(ViTConfig(**settings | changes))
    torch.nn.init.normal_(model.head.weight)
    return model


def random_weights(dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(L, B, H, TOKENS, TOKENS, dtype=dtype).mul(3).softmax(dim=-1)


# Recording


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


def test_recording_keeps_the_latest_call():
    model = small_vit()
    first, second = torch.randn(2, B, 3, 8, 12)
    with recorded_attention(model) as weights:
        model(first)
        model(second)
        twice = torch.stack(weights)
    with recorded_attention(model) as weights:
        model(second)
    assert_close(twice, torch.stack(weights), rtol=0, atol=0)


def test_recording_works_under_autocast():
    model = small_vit()
    images = torch.randn(B, 3, 8, 12)
    with torch.autocast("cpu", torch.bfloat16), recorded_attention(model) as weights:
        recorded = model(images)
    assert recorded.dtype == torch.bfloat16 and len(weights) == 3
    assert_close(recorded.float(), model(images), rtol=0.1, atol=0.2)


def test_nothing_is_left_behind_also_when_the_body_raises():
    model = small_vit()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    with pytest.raises(RuntimeError, match="in the body"), recorded_attention(model):
        raise RuntimeError("in the body")
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


def test_nested_recordings_and_models_without_attention_are_refused():
    model = small_vit()
    with recorded_attention(model), pytest.raises(ValueError, match="already"), recorded_attention(model):
        pass
    with (
        pytest.raises(ValueError, match="Linear has no MultiHeadSelfAttention"),
        recorded_attention(torch.nn.Linear(2, 3)),
    ):
        pass


# The tokens on their way


def test_the_stream_begins_with_the_embedding_and_ends_with_the_last_tokens():
    model = small_vit().double()
    images = torch.randn(B, 3, 8, 12, dtype=torch.float64)
    states = residual_stream(model, images)
    assert states.shape == (1 + 3, B, 7, 24)
    assert_close(states[0], model.embedding(images), rtol=0, atol=0)
    assert_close(model.norm(states[-1]), model.tokens(images), rtol=0, atol=0)
    assert torch.autograd.grad(states[-1].sum(), model.embedding.cls_token)[0].any()


def test_the_changes_of_the_stream_are_what_attention_and_mlp_write():
    model = small_vit(class_token=False, pool="mean").double()
    states = residual_stream(model, torch.randn(B, 3, 8, 12, dtype=torch.float64))
    changes = states.diff(dim=0)
    for z, change, block in zip(states, changes, model.encoder.blocks, strict=False):
        read = block.attn(block.norm1(z))
        assert_close(change, read + block.mlp(block.norm2(z + read)))
    assert_close(states[0] + changes.sum(dim=0), states[-1])


def small_distilled() -> DistilledVisionTransformer:
    model = DistilledVisionTransformer(small_vit().config)
    for head in (model.head, model.head_dist):  # unlike each other
        nn.init.normal_(head.weight)
    return model


@pytest.mark.parametrize(
    "make",
    [
        small_vit,
        lambda: small_vit(pool="mean"),
        lambda: small_vit(pool="mean", class_token=False),
        lambda: small_vit(num_classes=7),
        small_distilled,
    ],
    ids=["class token", "mean", "mean without class token", "other classes", "two heads"],
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


def test_the_lens_leaves_the_model_as_it_was_and_asks_no_hook_of_it():
    model, heard = small_vit(), []
    states = residual_stream(model, torch.randn(B, 3, 8, 12))
    model.register_forward_hook(lambda *call: heard.append(call))
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    logit_lens(model, states)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    assert not heard


def test_the_lens_takes_any_number_of_states_and_pictures_and_works_under_autocast():
    model = small_vit()
    states = residual_stream(model, torch.randn(B, 3, 8, 12))
    assert_close(logit_lens(model, states[1:2]), logit_lens(model, states)[1:2])
    assert logit_lens(model, states[:, :0]).shape == (4, 0, 5)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = logit_lens(model, states)
    assert lowered.dtype == torch.bfloat16
    assert_close(lowered.float(), logit_lens(model, states), rtol=0.1, atol=0.3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda states: states[0], r"states must have shape \(L \+ 1, B, T, 24\), got \(2, 7, 24\)"),
        (lambda states: states[..., 1:], r"states must have shape \(L \+ 1, B, T, 24\), got \(4, 2, 7, 23\)"),
        (lambda states: states[:, :, :1], r"states must hold 2 tokens at least, the last a patch"),
        (lambda states: states.double(), "states must have the weights' dtype torch.float32, got torch.float64"),
        (lambda states: states.tolist(), "states must be a Tensor, got"),
    ],
    ids=["one state", "width", "no patch", "dtype", "list"],
)
def test_states_that_no_lens_can_read_are_named(change, message):
    model = small_vit()
    states = residual_stream(model, torch.randn(B, 3, 8, 12))
    with pytest.raises((TypeError, ValueError), match=message):
        logit_lens(model, change(states))


def test_a_stream_and_a_lens_are_of_this_books_models():
    images = torch.randn(B, 3, 8, 12)
    for call in (residual_stream, logit_lens):
        with pytest.raises(TypeError, match="model must be a VisionTransformer, got Linear"):
            call(nn.Linear(12, 12), images)
    with pytest.raises(ValueError, match="images must be 8×12"):
        residual_stream(small_vit(), images[..., :8])


# Somebody else's models, as chapter 13 says; timm's are in test_peers.py


def are_all_the_weights(weights, blocks, tokens):
    """What the chapter tells readers to check."""
    assert [tuple(w.shape) for w in weights] == [(B, H, tokens, tokens)] * blocks
    for one in weights:
        assert_close(one.sum(dim=-1), torch.ones(B, H, tokens))


def test_torchs_attention_gives_each_heads_weights_when_asked_and_its_layer_does_not_ask():
    layer = nn.TransformerEncoderLayer(24, H, 48, dropout=0.0, batch_first=True, norm_first=True).eval()
    heard, x = [], torch.randn(B, 7, 24)
    layer.self_attn.register_forward_hook(lambda module, inputs, output: heard.append(output[1]))
    layer(x)
    assert heard == [None]
    y = layer.norm1(x)
    are_all_the_weights([layer.self_attn(y, y, y, need_weights=True, average_attn_weights=False)[1]], 1, 7)


def test_transformers_gives_its_weights_under_eager_attention_alone():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=24, num_hidden_layers=L, num_attention_heads=H, intermediate_size=48
    )
    fused = transformers.ViTModel(config)
    assert fused.config._attn_implementation == "sdpa"
    model = transformers.ViTModel._from_config(config, attn_implementation="eager").eval()
    are_all_the_weights(model(torch.randn(B, 3, 8, 8), output_attentions=True).attentions, L, 5)


# Rollout


def rollout_by_loops(weights, residual=True):
    rolled = [[[float(i == j) for j in range(TOKENS)] for i in range(TOKENS)] for _ in range(B)]
    for block in weights.tolist():
        for picture in range(B):
            mixed = [
                [sum(block[picture][head][i][j] for head in range(H)) / H for j in range(TOKENS)] for i in range(TOKENS)
            ]
            if residual:
                mixed = [[0.5 * mixed[i][j] + 0.5 * (i == j) for j in range(TOKENS)] for i in range(TOKENS)]
            below = rolled[picture]
            rolled[picture] = [
                [sum(mixed[i][k] * below[k][j] for k in range(TOKENS)) for j in range(TOKENS)] for i in range(TOKENS)
            ]
    return torch.tensor(rolled, dtype=torch.float64)


@pytest.mark.parametrize("residual", [True, False])
def test_rollout_is_the_product_over_blocks_written_as_loops(residual):
    weights = random_weights()
    assert_close(rollout(weights, residual=residual), rollout_by_loops(weights, residual))


@pytest.mark.parametrize("heads", ["mean", "max", "min"])
@pytest.mark.parametrize("discard", [0.0, 0.5, 0.95])
def test_rollout_rows_sum_to_one(heads, discard):
    rows = rollout(random_weights(), heads=heads, discard=discard).sum(dim=-1)
    assert_close(rows, torch.ones(B, TOKENS, dtype=torch.float64))


def test_rollout_of_a_picture_does_not_depend_on_the_others():
    weights = random_weights()
    for discard in (0.0, 0.7):
        alone = rollout(weights[:, 1:], discard=discard)
        assert_close(rollout(weights, discard=discard)[1:], alone)


def test_each_option_of_rollout_has_an_effect():
    weights = random_weights()
    variants = [rollout(weights, **kw) for kw in ({}, {"heads": "max"}, {"heads": "min"}, {"residual": False})]
    variants.append(rollout(weights, discard=0.5))
    for i, one in enumerate(variants):
        for other in variants[:i]:
            assert not torch.allclose(one, other)


def test_rollout_refuses_what_it_cannot_roll():
    weights = random_weights()
    with pytest.raises(ValueError, match=r"\(L, B, h, T, T\), got \(2, 4, 7, 7\)"):
        rollout(weights[0])
    with pytest.raises(ValueError, match="mean, max, min, got 'median'"):
        rollout(weights, heads="median")
    with pytest.raises(ValueError, match="below 1, got 1"):
        rollout(weights, discard=1)


# Gradient-weighted attention


def test_gradient_weighted_attention_is_the_sum_over_paths_written_as_loops():
    model = small_vit().double()
    images = torch.randn(B, 3, 8, 12, dtype=torch.float64)
    with recorded_attention(model) as weights:
        score = model(images)[:, 2]
    gradients = torch.autograd.grad(score.sum(), weights, retain_graph=True)
    expected = torch.eye(7, dtype=torch.float64).repeat(B, 1, 1)
    for w, g in zip(weights, gradients, strict=True):
        for picture in range(B):
            influence = sum((w[picture, head] * g[picture, head]).relu() for head in range(H)) / H
            expected[picture] += influence.detach() @ expected[picture]
    assert_close(gradient_weighted_attention(weights, score), expected)


def test_gradient_weighted_attention_depends_on_the_class():
    model = small_vit()
    with recorded_attention(model) as weights:
        scores = model(torch.randn(B, 3, 8, 12))
    maps = []
    for k in (0, 1):
        with recorded_attention(model) as weights:
            scores = model(torch.ones(B, 3, 8, 12))
        maps.append(gradient_weighted_attention(weights, scores[:, k]))
    assert not torch.allclose(*maps)
    with pytest.raises(ValueError, match=r"\(B,\) = \(2,\), one for each picture, got \(2, 5\)"):
        gradient_weighted_attention(weights, scores)


# Distance and entropy


@pytest.mark.parametrize(
    ("grid", "patch_size", "expected"),
    [((14, 14), 16, 116.492), ((7, 7), 32, 115.503), ((16, 16), 14, 116.565), ((8, 8), 4, 16.546)],
)
def test_uniform_attention_looks_as_far_as_the_closed_form_says(grid, patch_size, expected):
    patches = grid[0] * grid[1]
    uniform = torch.full((1, 1, 1, patches, patches), 1 / patches)
    assert attention_distance(uniform, grid, patch_size, num_prefix_tokens=0).item() == pytest.approx(
        expected, abs=5e-4
    )


def test_attention_to_itself_has_distance_zero():
    itself = torch.eye(TOKENS).expand(L, B, H, -1, -1)
    assert_close(attention_distance(itself, GRID, PATCH), torch.zeros(L, H))


def test_attention_distance_is_the_mean_written_as_loops():
    weights = random_weights()
    expected = torch.zeros(L, H, dtype=torch.float64)
    places = [(row, column) for row in range(GRID[0]) for column in range(GRID[1])]
    for block in range(L):
        for head in range(H):
            for picture in range(B):
                for i, (y, x) in enumerate(places):
                    row = weights[block, picture, head, 1 + i, 1:]
                    for share, (v, u) in zip(row / row.sum(), places, strict=True):
                        expected[block, head] += share * PATCH * math.hypot(y - v, x - u) / (B * len(places))
    assert_close(attention_distance(weights, GRID, PATCH), expected)


def test_the_class_token_does_not_count_towards_distance():
    weights = random_weights()
    changed = weights.clone()
    changed[..., 0, :] = changed[..., 0, :].flip(-1)  # as a query
    changed[..., 1:, :] *= 0.5
    changed[..., 1:, 0] += 0.5  # as a key
    assert_close(attention_distance(changed, GRID, PATCH), attention_distance(weights, GRID, PATCH))


def test_entropy_runs_from_one_token_alone_to_all_alike():
    assert_close(attention_entropy(torch.eye(TOKENS).expand(L, B, H, -1, -1)), torch.zeros(L, H))
    uniform = torch.full((L, B, H, TOKENS, TOKENS), 1 / TOKENS)
    assert_close(attention_entropy(uniform), torch.full((L, H), math.log(TOKENS)))


# Maps, positions, filters


def test_patch_map_lays_a_row_out_as_the_picture_lies():
    weights = random_weights()
    maps = patch_map(weights, GRID, query=4)
    assert maps.shape == (L, B, H, *GRID)
    assert maps[1, 0, 2, 1, 2] == weights[1, 0, 2, 4, 1 + 1 * GRID[1] + 2]
    with pytest.raises(ValueError, match="one of 7 tokens, got 7"):
        patch_map(weights, GRID, query=7)
    with pytest.raises(ValueError, match="1 \\+ 3·3 = 10 tokens expected, got 7"):
        patch_map(weights, (3, 3))


def test_the_class_tokens_map_is_its_row_and_needs_a_class_token():
    weights = random_weights()
    assert_close(class_map(weights, GRID), weights[..., 0, 1:].unflatten(-1, GRID), rtol=0, atol=0)
    distilled = class_map(weights, (1, 5), num_prefix_tokens=2)
    assert_close(distilled, weights[..., 0, 2:].unflatten(-1, (1, 5)), rtol=0, atol=0)
    with pytest.raises(ValueError, match="no class token.*name a patch as query"):
        class_map(weights, (1, 7), num_prefix_tokens=0)


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (4, 4), (-1, 4), (-5, 0)])
def test_numbers_count_from_either_end(number, expected):
    assert check_number("layer", number, 5) == expected


@pytest.mark.parametrize("number", [5, -6])
def test_a_number_that_there_is_not_is_named(number):
    with pytest.raises(ValueError, match=f"head must lie in 0 … 4, or -5 … -1 from the end, got {number}"):
        check_number("head", number, 5)


def test_the_weights_among_patches_sum_to_one_again():
    among = only_patches(random_weights(), GRID)
    assert_close(among.sum(dim=-1), torch.ones(L, B, H, TOKENS - 1, dtype=torch.float64))


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
    with pytest.raises(ValueError, match=r"1 … 48, got 49"):
        patch_filters(weight, 49)


def test_a_rollout_needs_a_head():
    with pytest.raises(ValueError, match=r"weights must have at least one head, got shape \(1, 2, 0, 3, 3\)"):
        rollout(torch.zeros(1, 2, 0, 3, 3))


def test_the_smallest_are_those_of_numbers():
    with pytest.raises(ValueError, match="weights must be floating-point, got torch.bool"):
        without_smallest(torch.ones(1, 2, 2, dtype=torch.bool), 0.5)


def test_an_attention_in_two_places_cannot_be_recorded():
    model = small_vit()
    model.encoder.blocks[1] = model.encoder.blocks[0]
    with pytest.raises(ValueError, match="blocks of this model share an attention"), recorded_attention(model):
        pass
