"""A model is compared with a reference: passed where it does the same, else where they part and which mistake it is."""

import pytest
import torch
from gallery import IMAGE, OfTransformers
from small_models import HEADS, HIDDEN, D, K, small_config
from styles import HfViT, TimmViT
from torch import nn

from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.compare_with_reference import compare
from vitbook_workshop.faults.mistakes import MISTAKES, broken_vit


def ours(*mistakes, **changes) -> VisionTransformer:
    return broken_vit(small_config(dim=D, depth=2, num_heads=HEADS, mlp_dim=HIDDEN, **changes), *mistakes)


def found(model, reference):
    return compare(model, reference, IMAGE, K, "the reference")


def of_transformers():
    return OfTransformers("ViT", layer_norm_eps=1e-6)


@pytest.mark.parametrize(
    ("model", "reference"),
    [(ours, ours), (ours, of_transformers), (of_transformers, ours), (TimmViT, TimmViT)],
    ids=["the same", "fused, apart", "apart, fused", "another library"],
)
def test_models_that_do_the_same_pass_whatever_their_parameters_are_called(model, reference):
    assert found(model(), reference()).result == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["no_scale", "ViewWithoutTranspose", "QkvInterleaved", "NoFinalNorm", "view_without_permute", "GeluTwice"]
)
def test_the_mistake_that_explains_a_difference_is_named(name):
    finding = found(ours(name), of_transformers())
    assert finding.result == "FAILED" and MISTAKES[name].cause in finding.suspect
    assert finding.where == MISTAKES[name].where and "They " in finding.details and " part " in finding.details


@pytest.mark.parametrize(
    ("model", "suspect", "place"),
    [
        (lambda: TimmViT("interleaved"), "number by number", "part before that of blocks.0.attn.proj"),
        (lambda: TimmViT("normalized residual"), "no known mistake", "part before that of blocks.0.norm2"),
        (lambda: TimmViT("keys twice"), "no known mistake", "part before that of blocks.0.attn.proj"),
    ],
)
def test_where_they_part_is_told_of_models_of_any_making(model, suspect, place):
    finding = found(model(), TimmViT())
    assert suspect in finding.suspect and place in finding.details and finding.certainty == "certain"


def test_an_activation_and_an_order_of_the_fused_matrix_are_recognized():
    class Turned(TimmViT):
        def __init__(self):
            super().__init__()
            for block in self.blocks:
                block.attn.qkv.register_forward_hook(lambda layer, x, y: torch.cat(y.chunk(3, -1)[::-1], -1))

    assert "cut into values, keys, queries" in found(Turned(), TimmViT()).suspect
    model = TimmViT()
    for block in model.blocks:
        block.mlp[1] = nn.GELU("tanh")
    assert "its activation is the tanh form of GELU" in found(model, TimmViT()).suspect


def test_another_epsilon_is_named_and_called_small():
    finding = found(HfViT(), ours())
    assert finding.certainty == "likely" and "ε is 1e-12 in its LayerNorms, and 1e-06" in finding.suspect


def test_large_models_are_compared_in_single_precision(monkeypatch):
    monkeypatch.setattr("vitbook_workshop.faults.model_wrapper.LARGE", 0)
    assert found(ours(), of_transformers()).result == "passed"
    finding = found(ours("no_scale"), of_transformers())
    assert "“no scale”" in finding.suspect and "attn.qkv (Linear), and part before" in finding.details


def test_what_has_no_counterpart_is_listed():
    assert "4 parameters of the reference have no counterpart: " in found(ours(), TimmViT()).details


@pytest.mark.parametrize("changes", [dict(num_classes=K + 1), dict(image_size=(16, 16))])
def test_a_reference_for_other_images_or_classes_is_refused(changes):
    with pytest.raises(ValueError, match="the reference"):
        found(ours(), ours(**changes))
