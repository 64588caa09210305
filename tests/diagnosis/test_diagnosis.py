"""A right model passes clean, whoever wrote it; a broken one is told what it has, and nothing that it has not."""

import math
import subprocess
import sys
from dataclasses import dataclass

import notebook_lint as lint
import pytest
import torch
import torch.nn.functional as F
from properties import HEADS, HEIGHT, HIDDEN, WIDTH, C, D, K, P, small_config
from torch import nn

from vitbook import diagnosis
from vitbook.diagnosis import diagnose, examine
from vitbook.exercises import diagnose as from_exercises
from vitbook.mistakes import IN_A_VIT, MISTAKES, broken_vit
from vitbook.patches import HybridEmbedding, conv_stem
from vitbook.vit import VisionTransformer

SHAPE = (C, HEIGHT, WIDTH)


def failed(model: nn.Module, *given, **how) -> set[str]:
    """The names of the questions that a model fails."""
    return {finding.name for finding in examine(model, *given, **how) if finding.result == "FAILED"}


# Right models


class TorchViT(nn.Module):
    """A Vision Transformer of torch's own parts, such as many write first."""

    def __init__(self, pool: str = "class", initialised: bool = True, **layer):
        super().__init__()
        self.patches = nn.Conv2d(C, D, P, stride=P)
        self.cls = nn.Parameter(torch.randn(1, 1, D))
        self.pos = nn.Parameter(torch.randn(1, 7, D))
        settings = dict(dropout=0.1, activation="gelu", batch_first=True, norm_first=True) | layer
        layer = nn.TransformerEncoderLayer(D, HEADS, HIDDEN, **settings)
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(D), enable_nested_tensor=False)
        self.head = nn.Linear(D, K)
        self.pool = pool
        if initialised:
            for parameter in self.encoder.parameters():
                if parameter.ndim > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self, images):
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        x = self.encoder(x)
        return self.head(x[:, 0] if self.pool == "class" else x[:, 1:].mean(dim=1))


@dataclass
class Ways:
    """How a reader's own model does each step; each can be replaced by a wrong way."""

    cut = staticmethod(lambda x: x.view(len(x), C, 2, P, 3, P).permute(0, 2, 4, 1, 3, 5).reshape(len(x), 6, C * P * P))
    place = staticmethod(lambda x, pos: x + pos)
    split = staticmethod(lambda x: x.view(len(x), -1, HEADS, D // HEADS).transpose(1, 2))
    weigh = staticmethod(lambda q, k: (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1))
    merge = staticmethod(lambda x: x.transpose(1, 2).flatten(2))
    end = staticmethod(lambda scores: scores)


class OwnBlock(nn.Module):
    def __init__(self, ways: Ways):
        super().__init__()
        self.ways = ways
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.to_q, self.to_k, self.to_v, self.out = (nn.Linear(D, D) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Dropout(0.1), nn.Linear(HIDDEN, D))

    def forward(self, x):
        y = self.ln1(x)
        q, k, v = (self.ways.split(linear(y)) for linear in (self.to_q, self.to_k, self.to_v))
        x = x + self.out(self.ways.merge(self.ways.weigh(q, k) @ v))
        return x + self.mlp(self.ln2(x))


class OwnViT(nn.Module):
    """A Vision Transformer with names of its own and nothing of this package."""

    def __init__(self, **ways):
        super().__init__()
        self.ways = Ways()
        for name, way in ways.items():
            setattr(self.ways, name, way)
        self.project = nn.Linear(C * P * P, D)
        self.where = nn.Parameter(0.02 * torch.randn(1, 6, D))
        self.layers = nn.ModuleList(OwnBlock(self.ways) for _ in range(2))
        self.norm, self.classify = nn.LayerNorm(D), nn.Linear(D, K)

    def forward(self, images):
        x = self.ways.place(self.project(self.ways.cut(images)), self.where)
        for layer in self.layers:
            x = layer(x)
        return self.ways.end(self.classify(self.norm(x).mean(dim=1)))


def hybrid() -> VisionTransformer:
    return VisionTransformer(small_config(), HybridEmbedding(conv_stem(C, (6,)), 6, 2, D, 2))


RIGHT = {
    "class": lambda: VisionTransformer(small_config()),
    "mean": lambda: VisionTransformer(small_config(pool="mean")),
    "no class token": lambda: VisionTransformer(small_config(pool="mean", class_token=False)),
    "sin-cos": lambda: VisionTransformer(small_config(positions="sincos_2d")),
    "2-D": lambda: VisionTransformer(small_config(positions="learned_2d", qkv_bias=False, depth=1)),
    "dropout": lambda: VisionTransformer(small_config(dropout=0.1, attention_dropout=0.2, drop_path=0.3)),
    "hybrid": hybrid,
    "torch": TorchViT,
    "torch, mean": lambda: TorchViT("mean", dropout=0.0),
    "torch, post-norm": lambda: TorchViT(norm_first=False, activation="relu"),
    "a reader's own": OwnViT,
    "fused": lambda: OwnViT(weigh=lambda q, k: F.scaled_dot_product_attention(q, k, torch.eye(6).to(q))),
}


@pytest.mark.parametrize("build", RIGHT.values(), ids=RIGHT)
def test_a_right_model_passes_clean(build, capsys):
    model = build()
    assert failed(model, SHAPE, K) == set()
    diagnose(model, SHAPE, K)
    said = capsys.readouterr().out
    assert "Nothing found in " in said and "FAILED" not in said and "Suspect" not in said


@pytest.mark.parametrize("build", [RIGHT["class"], RIGHT["torch, mean"]])
def test_a_right_model_learns_a_few_pictures_by_heart(build):
    assert failed(build(), SHAPE, K, overfit=True) == set()


def test_without_positions_the_order_must_not_count():
    bag = VisionTransformer(small_config(positions="none", pool="mean", class_token=False))
    assert failed(bag) == {"order_counts"}
    assert failed(bag, order_counts=False) == set()
    assert failed(VisionTransformer(small_config()), order_counts=False) == {"order_does_not_count"}


def test_a_trained_model_is_not_asked_how_it_started():
    model = VisionTransformer(small_config())
    nn.init.normal_(model.head.weight, std=30)
    assert failed(model) == {"first_loss_is_near_ln_k"}
    assert failed(model, untrained=False) == set()


# The named mistakes

SEEN_FROM_OUTSIDE = {
    "softmax_over_the_queries": {"weights_sum_to_one"},
    "softmax_over_the_first_axis": {"weights_sum_to_one", "pictures_do_not_mix"},
    "no_scale": {"scores_are_scaled"},
    "multiplied_by_the_scale": {"scores_are_scaled"},
    "scaled_after_the_softmax": {"weights_sum_to_one", "scores_are_scaled"},
    "ScaledByTheWholeWidth": {"scores_are_scaled"},
    "HeadsNotSplit": {"scores_are_scaled"},
    "ViewWithoutTranspose": {"blocks_know_no_order"},
    "MergedWithoutTranspose": {"blocks_know_no_order"},
    "NoOutputProjection": {"parameters_play_a_part"},
    "BatchTakenForTokens": {"pictures_count", "parameters_play_a_part"},
    "AttentionDropoutUnread": {"dropouts_act"},
    "view_without_permute": {"a_token_is_a_rectangle"},
    "BatchSizedClassToken": {"every_batch_size_will_do"},
    "BatchSizedPositions": {"every_batch_size_will_do"},
    "DropoutForgetsThePositions": {"order_counts", "parameters_play_a_part"},
    "FunctionalDropout": {"evaluation_is_deterministic"},
    "NoFinalNorm": {"parameters_play_a_part"},
    "SoftmaxBeforeCrossEntropy": {"scores_are_no_probabilities"},
    "BlocksAreCopies": {"blocks_start_different"},
}
INVISIBLE = {"AttentionDropoutUnread", "BlocksAreCopies"}  # in evaluation, when nothing is learned yet


@pytest.mark.parametrize("name", IN_A_VIT)
def test_each_mistake_in_a_model_is_reported_as_itself(name):
    model = broken_vit(small_config(attention_dropout=0.1), name)
    findings = {finding.name: finding for finding in examine(model) if finding.result == "FAILED"}
    assert set(findings) - {"equations_hold"} == SEEN_FROM_OUTSIDE.get(name, set())
    if name in INVISIBLE:
        assert "equations_hold" not in findings
        return
    mistake, finding = MISTAKES[name], findings["equations_hold"]
    assert finding.details == f"it does what a model does with “{mistake.title}”."
    assert (finding.suspect, finding.where) == (mistake.cause, mistake.where)


def test_attention_over_the_batch_with_a_mean_mixes_pictures():
    model = broken_vit(small_config(pool="mean"), "BatchTakenForTokens")
    assert failed(model) >= {"pictures_do_not_mix", "equations_hold"}


def test_several_mistakes_are_each_seen_and_not_taken_for_one():
    model = broken_vit(small_config(), "HeadsNotSplit", "SoftmaxBeforeCrossEntropy")
    findings = {finding.name: finding for finding in examine(model) if finding.result == "FAILED"}
    assert set(findings) == {"scores_are_scaled", "scores_are_no_probabilities", "equations_hold"}
    assert findings["equations_hold"].details == "it is neither those nor any one of the known mistakes."


def test_a_softmax_in_the_model_cannot_be_learned_past():
    model = broken_vit(small_config(), "SoftmaxBeforeCrossEntropy")
    assert "one_batch_can_be_learned" in failed(model, overfit=True)


# Mistakes in models that are not this package's


def batch_norm(x):
    return F.batch_norm(x, None, None, training=True)


BROKEN = {
    "batch_first forgotten": (
        lambda: TorchViT("mean", batch_first=False),
        {"pictures_do_not_mix", "parameters_play_a_part"},
    ),
    "torch's copies": (lambda: TorchViT(initialised=False), {"blocks_start_different"}),
    "no scale": (lambda: OwnViT(weigh=lambda q, k: (q @ k.mT).softmax(-1)), {"scores_are_scaled"}),
    "√D": (lambda: OwnViT(weigh=lambda q, k: (q @ k.mT / D**0.5).softmax(-1)), {"scores_are_scaled"}),
    "queries": (lambda: OwnViT(weigh=lambda q, k: (q @ k.mT / 2).softmax(-2)), {"weights_sum_to_one"}),
    "view for heads": (lambda: OwnViT(split=lambda x: x.view(len(x), HEADS, -1, 4)), {"blocks_know_no_order"}),
    "view for tokens": (lambda: OwnViT(merge=lambda x: x.reshape(len(x), -1, D)), {"blocks_know_no_order"}),
    "view for patches": (lambda: OwnViT(cut=lambda x: x.reshape(len(x), 6, -1)), {"a_token_is_a_rectangle"}),
    "width first": (
        lambda: OwnViT(cut=lambda x: x.view(len(x), C, 3, P, 2, P).permute(0, 2, 4, 1, 3, 5).reshape(len(x), 6, -1)),
        {"a_token_is_a_rectangle"},
    ),
    "no positions": (lambda: OwnViT(place=lambda x, pos: x), {"order_counts", "parameters_play_a_part"}),
    "functional dropout": (
        lambda: OwnViT(place=lambda x, pos: F.dropout(x + pos, 0.1)),
        {"evaluation_is_deterministic"},
    ),
    "softmax": (lambda: OwnViT(end=lambda scores: scores.softmax(-1)), {"scores_are_no_probabilities"}),
    "batch statistics": (lambda: OwnViT(end=batch_norm), {"pictures_do_not_mix", "every_batch_size_will_do"}),
    "wide head": (lambda: OwnViT(end=lambda scores: 100 * scores), {"first_loss_is_near_ln_k"}),
    "a float32 constant": (
        lambda: OwnViT(place=lambda x, pos: (x + pos) @ torch.eye(D)),
        {"float64_works"},
    ),
}


@pytest.mark.parametrize(("build", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_mistake_in_anybodys_model_is_seen(build, expected):
    assert failed(build(), SHAPE, K) == expected


def test_height_and_width_exchanged_are_told_from_other_sizes():
    turned = VisionTransformer(small_config(image_size=(WIDTH, HEIGHT)))
    assert failed(turned, SHAPE, K) == {"scores_come_out", "height_comes_first"}
    other = VisionTransformer(small_config(image_size=(16, 16)))
    assert failed(other, SHAPE, K) == {"scores_come_out"}


def test_a_model_that_does_not_run_is_asked_no_more(capsys):
    diagnose(nn.Linear(3, K), SHAPE, K)
    said = " ".join(capsys.readouterr().out.split())
    assert "FAILED pictures (B, C, H, W) go in" in said and "1 of 1 failed." in said
    assert said.count("the model does not run") == len(diagnosis.QUESTIONS) - 1


def test_what_ails_a_model_is_not_that_its_device_has_no_float64():
    class OnMps(nn.Linear):
        def to(self, dtype):
            if dtype == torch.float64:
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
            return super().to(dtype)

    (finding,) = (f for f in examine(OnMps(3, K), SHAPE, K) if f.result == "FAILED")
    assert "mat1 and mat2 shapes cannot be multiplied" in finding.details and "MPS" not in finding.details


def test_more_than_scores_returned_is_said():
    class Two(nn.Module):
        def forward(self, images):
            return images, images

    (finding,) = (f for f in examine(Two(), SHAPE, K) if f.result == "FAILED")
    assert finding.details == f"scores should have the shape (3, {K}), got a tuple"


# The report


def test_the_model_and_the_random_numbers_stay_as_they_were():
    model = VisionTransformer(small_config(dropout=0.1)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    examine(model, overfit=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training and all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_the_report_is_the_same_each_time(capsys):
    model = broken_vit(small_config(), "no_scale")
    for _ in range(2):
        diagnose(model)
    one, other = capsys.readouterr().out.split("2 of ")[:2]
    assert one == other.split("\n", 1)[1] and "Read chapters/02_scale.ipynb#" in one
    assert "multiplied by 1.000." in " ".join(one.split())


def test_under_no_grad_it_asks_the_same():
    with torch.no_grad():
        assert failed(VisionTransformer(small_config())) == set()


def test_every_question_can_fail():
    reached = {name for names in SEEN_FROM_OUTSIDE.values() for name in names}
    reached |= {name for _, names in BROKEN.values() for name in names}
    reached |= {"scores_come_out", "height_comes_first", "order_does_not_count", "one_batch_can_be_learned"}
    assert reached | {"equations_hold"} == {question.ask.__name__ for question in diagnosis.QUESTIONS}


def test_every_question_says_where_to_read():
    for question in diagnosis.QUESTIONS:
        chapter, _, anchor = question.where.partition("#")
        assert anchor in lint.page_anchors(lint.CHAPTERS / chapter), question.where


@pytest.mark.parametrize("given", [(), (SHAPE,), ((HEIGHT, WIDTH), K), (SHAPE, 0)])
def test_what_is_not_known_has_to_be_given(given):
    with pytest.raises(ValueError, match=r"diagnose needs image_shape \(C, H, W\) and num_classes, got"):
        examine(TorchViT(), *given)


def test_it_is_called_from_exercises_too():
    assert from_exercises is diagnose


def test_without_assertions_no_question_can_be_asked():
    code = (
        "from vitbook.diagnosis import diagnose; from vitbook.vit import create_vit; diagnose(create_vit('vit_digits'))"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert "RuntimeError: the questions are assert statements, which python -O leaves out" in done.stderr
