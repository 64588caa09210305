"""The components of the reader's model: three right styles pass, every mistake is named, the stubs are to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from vitbook import mistakes as wrong
from vitbook.exercises.grading import NOT_ATTEMPTED, RIGHT, explanation, judge
from vitbook.exercises.my_vit import COMPONENTS
from vitbook.exercises.reader import STUBS

SOLUTIONS = Path(__file__).parent / "my_vit"
BUILT_IN = (SOLUTIONS / "built_in.py").read_text(encoding="utf-8")
LISTED = [(name, made) for name, exercise in COMPONENTS.items() for made in exercise.mistakes]

SPLIT = "y.unflatten(-1, (self.h, -1)).transpose(1, 2) for y in project(x, self.qkv)"
ATTENTION = "F.scaled_dot_product_attention(q, k, v)"
LAYER_NORMS = "nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)"
BLOCKS = "nn.ModuleList(EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth))"
HAND = "(q @ k.mT / q.shape[-1] ** 0.5)"

# What is changed in a right solution: component, mistake, text of the solution, what stands there instead.
MADE = [
    ("attend", wrong.softmax_over_the_queries, "softmax(-1)", "softmax(-2)"),
    ("attend", wrong.softmax_over_the_first_axis, "softmax(-1)", "softmax(0)"),
    ("attend", wrong.scaled_after_the_softmax, "softmax(-1)", "softmax(-1) / v.shape[-1] ** 0.5"),
    ("attention_scores", wrong.no_scale, " / q.shape[-1] ** 0.5", ""),
    ("attention_scores", wrong.multiplied_by_the_scale, "/ q.shape[-1]", "* q.shape[-1]"),
    ("project", wrong.QkvInterleaved, "qkv(x).chunk(3, dim=-1)", "qkv(x).unflatten(-1, (-1, 3)).unbind(-1)"),
    ("MultiHeadAttention", wrong.no_scale, ATTENTION, "((q @ k.mT).softmax(-1) @ v)"),
    ("MultiHeadAttention", wrong.softmax_over_the_queries, ATTENTION, f"({HAND}.softmax(-2) @ v)"),
    ("MultiHeadAttention", wrong.softmax_over_the_first_axis, ATTENTION, f"({HAND}.softmax(0) @ v)"),
    ("MultiHeadAttention", wrong.ScaledByTheWholeWidth, ATTENTION, "((q @ k.mT / x.shape[-1] ** 0.5).softmax(-1) @ v)"),
    (
        "MultiHeadAttention",
        wrong.HeadsNotSplit,
        f"({SPLIT})\n        return self.proj({ATTENTION}",
        "(y[:, None] for y in project(x, self.qkv))\n"
        "        return self.proj(((q @ k.mT / (x.shape[-1] / self.h) ** 0.5).softmax(-1) @ v)",
    ),
    (
        "MultiHeadAttention",
        wrong.ViewWithoutTranspose,
        "y.unflatten(-1, (self.h, -1)).transpose(1, 2)",
        "y.reshape(len(x), self.h, x.shape[1], -1)",
    ),
    ("MultiHeadAttention", wrong.MergedWithoutTranspose, ".transpose(1, 2).flatten(2))", ".reshape(x.shape))"),
    ("MultiHeadAttention", wrong.NoOutputProjection, "return self.proj", "return "),
    (
        "MultiHeadAttention",
        wrong.HeadsSeeASlice,
        SPLIT,
        "torch.stack([F.linear(x[..., i * w : i * w + w], rows[i * w : i * w + w, i * w : i * w + w],"
        " bias[i * w : i * w + w]) for i in range(self.h)], 1) for w in [x.shape[-1] // self.h]"
        " for rows, bias in zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3))",
    ),
    (
        "MultiHeadAttention",
        wrong.BatchTakenForTokens,
        f"{SPLIT})\n        return self.proj({ATTENTION}.transpose(1, 2).flatten(2))",
        f"{SPLIT.replace('project(x', 'project(x.transpose(0, 1)')})\n"
        f"        return self.proj({ATTENTION}.transpose(1, 2).flatten(2)).transpose(0, 1)",
    ),
    ("MLP", wrong.GeluTwice, "self.fc2(F.gelu(self.fc1(x)))", "F.gelu(self.fc2(F.gelu(self.fc1(x))))"),
    (
        "MLP",
        wrong.SizesFixed,
        "nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)",
        "nn.Linear(8, 10), nn.Linear(10, 8)",
    ),
    (
        "PatchEmbedding",
        wrong.view_without_permute,
        "self.proj(images).flatten(2).mT",
        "images.reshape(len(images), -1, self.proj.weight[0].numel())"
        " @ self.proj.weight.flatten(1).mT + self.proj.bias",
    ),
    (
        "PatchEmbedding",
        wrong.channels_last_in_a_patch,
        "self.proj(images).flatten(2).mT",
        "F.unfold(images, p := self.proj.kernel_size, stride=p).mT.unflatten(-1, (images.shape[1], -1)).mT.flatten(2)"
        " @ self.proj.weight.flatten(1).mT + self.proj.bias",
    ),
    ("Embedding", wrong.BatchSizedClassToken, "torch.zeros(1, 1, dim)", "torch.zeros(2, 1, dim)"),
    ("Embedding", wrong.BatchSizedPositions, "torch.randn(1, num_patches", "torch.randn(2, num_patches"),
    ("EncoderBlock", wrong.GeluTwice, "x + self.mlp(self.norm2(x))", "x + F.gelu(self.mlp(self.norm2(x)))"),
    ("EncoderBlock", wrong.UnbiasedVariance, LAYER_NORMS, "Norm(dim, eps=1e-6), Norm(dim, eps=1e-6)"),
    ("EncoderBlock", "torch's own ε", LAYER_NORMS, "nn.LayerNorm(dim), nn.LayerNorm(dim)"),
    (
        "EncoderBlock",
        wrong.FunctionalDropout,
        "x + self.mlp(self.norm2(x))",
        "F.dropout(x + self.mlp(self.norm2(x)), 0.1)",
    ),
    ("Encoder", wrong.BlocksAreCopies, BLOCKS, "nn.ModuleList([EncoderBlock(dim, num_heads, mlp_dim)] * depth)"),
    ("Encoder", "parameters missing: blocks.0.norm1.weight", BLOCKS, BLOCKS.replace("nn.ModuleList", "list")),
    (
        "ViT",
        wrong.NoFinalNorm,
        "self.norm(self.encoder(self.embedding(images)))",
        "self.encoder(self.embedding(images))",
    ),
    ("ViT", wrong.SoftmaxBeforeCrossEntropy, "(images)))[:, 0])", "(images)))[:, 0]).softmax(-1)"),
    ("ViT", "the class token, z[:, 0]", "(images)))[:, 0])", "(images))).mean(1))"),
    ("ViT", "parameters missing: encoder.blocks.0.norm1.weight", "self.encoder", "self.transformer"),
]
NORM = """
class Norm(nn.LayerNorm):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias
"""
# Of those that a Vision Transformer can have, these need what the reader's model lacks: dropout, a choice of pools.
ELSEWHERE = {"AttentionDropoutUnread", "DropoutForgetsThePositions", "MeanIncludesTheClassToken"}


def said(name: str, source: str) -> str:
    """What the grader says of a component of the reader's file, in one line, without the values of symbols."""
    written = {}
    exec(compile(source, "my_vit.py", "exec"), written)
    return " ".join(judge(COMPONENTS[name], written[name]).split())


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("style", ["loops", "einsum", "built_in"])
def test_a_right_component_passes_in_every_style(style, name):
    assert said(name, (SOLUTIONS / f"{style}.py").read_text(encoding="utf-8")) == RIGHT


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_stub_is_not_attempted(name):
    assert said(name, STUBS.read_text(encoding="utf-8")) == NOT_ATTEMPTED


def in_words(made) -> str:
    """The name of a test: no addresses, which differ from process to process."""
    return made if isinstance(made, str) else " and ".join(getattr(one, "__name__", str(one)[:40]) for one in made)


@pytest.mark.parametrize(("name", "made"), LISTED, ids=in_words)
def test_every_listed_mistake_is_refused_and_called_by_its_name_alone(name, made):
    exercise = COMPONENTS[name]
    bare = replace(exercise, sizes=lambda *arguments: {})
    printed = " ".join(judge(bare, exercise.mistakes[made]).split())
    known = {mistake for others in exercise.mistakes for mistake in others}
    assert printed.startswith("not yet")
    assert {mistake for mistake in known if explanation(mistake) in printed} == set(made)


@pytest.mark.parametrize(("name", "mistake", "right", "instead"), MADE)
def test_a_mistake_in_the_readers_file_is_named(name, mistake, right, instead):
    assert BUILT_IN.count(right) >= 1
    printed = said(name, BUILT_IN.replace(right, instead) + NORM)
    title = mistake if isinstance(mistake, str) else f"“{wrong.MISTAKES[mistake.__name__].title}”"
    assert printed.startswith("not yet") and title in printed


def test_every_mistake_that_the_readers_model_can_have_is_among_them():
    named = {mistake.__name__ for _, mistake, *_ in MADE if callable(mistake)}
    assert set(wrong.IN_A_VIT) - ELSEWHERE == named
