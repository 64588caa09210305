"""The Transformer of 2017 agrees with torch's layers and hides what it must."""

import math

import pytest
import small_models
import torch
from small_models import HEADS, HIDDEN, B, D, S, T, build, close, same_map, shake
from torch import nn

from vitbook.transformer import (
    DecoderLayer,
    EncoderLayer,
    MultiHeadCrossAttention,
    Transformer,
    causal_mask,
    sincos_positions,
)

both_precisions = pytest.mark.usefixtures("precision")
WORDS = torch.tensor([[True] * S, [True] * 4 + [False] * 3])  # (B, S): the second source has 4 words
KINDS = ("weight", "bias")
TORCH = dict(dropout=0.0, batch_first=True, norm_first=False)


def copied(ours: nn.Module, theirs: nn.Module, norms: int) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Pairs of parameters of a layer of ours and of torch's, ours copied into theirs."""
    parts = [
        (shake(ours).attn.qkv, theirs.self_attn, "in_proj_"),
        (ours.attn.proj, theirs.self_attn.out_proj, ""),
    ]
    parts += [(ours.mlp[0], theirs.linear1, ""), (ours.mlp[2], theirs.linear2, "")]
    parts += [(getattr(ours, f"norm{i + 1}"), getattr(theirs, f"norm{i + 1}"), "") for i in range(norms)]
    pairs = [(getattr(one, kind), getattr(other, prefix + kind)) for one, other, prefix in parts for kind in KINDS]
    with torch.no_grad():
        for one, other in pairs:
            other.copy_(one)
    return pairs


def copy_cross_attention(ours: MultiHeadCrossAttention, theirs: nn.MultiheadAttention) -> None:
    parts = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.out_proj.load_state_dict(ours.proj.state_dict())


@both_precisions
@pytest.mark.parametrize("scale", [1.0, 1e-2])  # in small numbers LayerNorm's eps shows
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
def test_the_encoder_layer_equals_torchs(masked, scale):
    ours, theirs = (
        build(EncoderLayer),
        nn.TransformerEncoderLayer(D, HEADS, HIDDEN, activation="relu", **TORCH),
    )
    pairs = copied(ours, theirs, norms=2)
    same_map(
        lambda x: ours(x, WORDS[:, None, None] if masked else None),
        lambda x: theirs(x, src_key_padding_mask=~WORDS if masked else None),
        scale * torch.randn(B, S, D),
        weights=pairs,
    )


@both_precisions
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked memory", "masked memory"])
def test_the_decoder_layer_equals_torchs(masked):
    ours, theirs = (
        build(DecoderLayer),
        nn.TransformerDecoderLayer(D, HEADS, HIDDEN, activation="relu", **TORCH),
    )
    pairs = copied(ours, theirs, norms=3)
    copy_cross_attention(ours.cross, theirs.multihead_attn)
    same_map(
        lambda x, memory: ours(x, memory, causal_mask(T), WORDS[:, None, None] if masked else None),
        lambda x, memory: theirs(x, memory, ~causal_mask(T), memory_key_padding_mask=~WORDS if masked else None),
        *(torch.randn(B, T, D), torch.randn(B, S, D)),
        weights=pairs,
    )


@both_precisions
def test_cross_attention_equals_torchs_and_gives_its_weights():
    ours, theirs = (
        shake(MultiHeadCrossAttention(D, HEADS)),
        nn.MultiheadAttention(D, HEADS, batch_first=True),
    )
    copy_cross_attention(ours, theirs)
    x, memory, mask = torch.randn(B, T, D), torch.randn(B, S, D), WORDS[:, None, None]
    output, weights = ours.attend(x, memory, mask)
    expected = theirs(x, memory, memory, key_padding_mask=~WORDS, average_attn_weights=False)
    close(output, expected[0])
    close(weights, expected[1])
    same_map(
        lambda x, memory: ours(x, memory, mask),
        lambda x, memory: theirs(x, memory, memory, key_padding_mask=~WORDS)[0],
        *(x, memory),
    )


@both_precisions
def test_words_enter_as_root_d_times_embedding_plus_position():
    model, tokens = Transformer(11, D, 1, HEADS, HIDDEN), torch.randint(11, (B, T))
    got = model.embed(tokens, model.source_embedding)
    close(got, math.sqrt(D) * model.source_embedding.weight[tokens] + sincos_positions(T, D))


@both_precisions
def test_writing_is_the_most_probable_next_word_again_and_again():
    model, source, _ = small_models.transformer_and_words(Transformer)
    source[1, 4:] = 0
    written = torch.full((B, 1), 5)
    for _ in range(6):
        written = torch.cat([written, model(source, written)[:, -1:].argmax(dim=-1)], dim=1)
    assert torch.equal(model.write(source, start=5, length=6), written[:, 1:])


def test_examples_do_not_mix():
    model, source, target = small_models.transformer_and_words(Transformer)
    close(model(source, target)[1:], model(source[1:], target[1:]))


def test_dropout_is_on_both_embeddings_and_on_the_output_of_every_sublayer():
    model, source, target = Transformer(11, D, 2, HEADS, HIDDEN, dropout=0.25), *torch.randint(11, (2, B, T))
    rates = []
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.register_forward_hook(lambda module, inputs, output: rates.append(module.p))
    model(source, target)
    assert rates.count(0.25) == 2 + 2 * 2 + 2 * 3  # embeddings, two layers of two sublayers, two of three
