"""The components of the reader's model: two right styles pass, mistakes are named, the stubs are to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from vitbook_workshop.exercises.grader.judging import NOT_ATTEMPTED, RIGHT, explanation, judge
from vitbook_workshop.exercises.my_vit.check import STUBS
from vitbook_workshop.exercises.my_vit.components import COMPONENTS
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES
from vitbook_workshop.faults.mistakes import parts as wrong

SOLUTIONS = Path(__file__).parent / "my_vit"
BUILT_IN = (SOLUTIONS / "built_in.py").read_text(encoding="utf-8")
LISTED = [(name, made) for name, exercise in COMPONENTS.items() for made in exercise.mistakes]

LAYER_NORMS = "nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)"
BLOCKS = "nn.ModuleList(EncoderBlock(dim, num_heads, mlp_dim) for _ in range(depth))"
LINEARS = "nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim)"
LAST = "x + self.mlp(self.norm2(x))"
ATTENDED = "x = x + self.attn(self.norm1(x))"
ONE_BLOCK = "nn.ModuleList([EncoderBlock(dim, num_heads, mlp_dim)] * depth)"
COPIES = f"nn.ModuleList(__import__('copy').deepcopy(one) for one in {ONE_BLOCK})"

# What is changed in a right solution: component, mistake, text of the solution, what stands there instead.
MADE = [
    ("attend", wrong.softmax_over_the_queries, "softmax(-1)", "softmax(-2)"),
    ("attention_scores", wrong.no_scale, " / q.shape[-1] ** 0.5", ""),
    ("project", wrong.QkvInterleaved, "qkv(x).chunk(3, dim=-1)", "qkv(x).unflatten(-1, (-1, 3)).unbind(-1)"),
    ("MultiHeadAttention", wrong.MergedWithoutTranspose, ".transpose(1, 2).flatten(2))", ".reshape(x.shape))"),
    ("MLP", wrong.GeluTwice, "self.fc2(F.gelu(self.fc1(x)))", "F.gelu(self.fc2(F.gelu(self.fc1(x))))"),
    ("MLP", wrong.SizesFixed, LINEARS, "nn.Linear(8, 10), nn.Linear(10, 8)"),
    ("Embedding", wrong.BatchSizedClassToken, "torch.zeros(1, 1, dim)", "torch.zeros(2, 1, dim)"),
    ("Embedding", wrong.BatchSizedPositions, "torch.randn(1, num_patches", "torch.randn(2, num_patches"),
    ("EncoderBlock", wrong.UnbiasedVariance, LAYER_NORMS, "Norm(dim, eps=1e-6), Norm(dim, eps=1e-6)"),
    ("EncoderBlock", "default ε", LAYER_NORMS, "nn.LayerNorm(dim), nn.LayerNorm(dim)"),
    ("EncoderBlock", wrong.FunctionalDropout, LAST, f"F.dropout({LAST}, 0.1)"),
    ("Encoder", wrong.BlocksAreCopies, BLOCKS, COPIES),
    ("Encoder", "all blocks are one and the same module", BLOCKS, ONE_BLOCK),
    ("Encoder", "it holds no parameters; layers that are in", BLOCKS, BLOCKS.replace("nn.ModuleList", "list")),
    (
        "EncoderBlock",
        "An operation in place overwrites what the gradient needs",
        ATTENDED,
        ATTENDED.replace("x = x +", "x +="),
    ),
    ("ViT", wrong.NoFinalNorm, "self.norm(self.encoder(", "(self.encoder("),
    ("ViT", "the class token, z[:, 0]", "(images)))[:, 0])", "(images))).mean(1))"),
    ("ViT", "parameters missing: encoder.blocks.0.norm1.weight", "self.encoder", "self.transformer"),
]
NORM = """
class Norm(nn.LayerNorm):
    def forward(self, x):
        return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias
"""
# Of those that a Vision Transformer can have, these need what the reader's model lacks, dropout or a choice of pools,
ELSEWHERE = {"AttentionDropoutUnread", "DropoutForgetsThePositions", "MeanIncludesTheClassToken", "DropoutOnTheLogits"}
# and the grader has other words for these: parameters that are missing or get no gradient, logits that differ.
ELSEWHERE |= {"ClassTokenNeverLearned", "PositionsNeverLearned", "PositionsDrawnInForward", "PatchesUnderNoGrad"}
ELSEWHERE |= {"WeightsChangedInPlace", "AttentionIsCopied", "SoftmaxTwice", "LogProbabilitiesForLogits"}
ELSEWHERE |= {"HeadReadsOnePatch", "unfolded_without_permute", "NormOverTokens", "ResidualOfTheNorm"}
ELSEWHERE |= {"OneNormForTwoPlaces", "BlocksNotChained", "AttentionStartsOneHot"}
ELSEWHERE |= {"NormsDrawnLikeMatrices", "PositionsOfTheBatch"}


def said(name: str, source: str) -> str:
    """What the grader says of a component of the reader's file, in one line, without the values of symbols."""
    written = {}
    exec(compile(source, "my_vit.py", "exec"), written)
    return " ".join(str(judge(COMPONENTS[name], written[name])).split())


@pytest.mark.parametrize("name", COMPONENTS)
@pytest.mark.parametrize("style", ["loops", "built_in"])
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
    printed = " ".join(str(judge(bare, exercise.mistakes[made])).split())
    known = {mistake for others in exercise.mistakes for mistake in others}
    assert printed.startswith("not yet")
    assert {mistake for mistake in known if explanation(mistake) in printed} == set(made)


@pytest.mark.parametrize(("name", "mistake", "right", "instead"), MADE)
def test_a_mistake_in_the_readers_file_is_named(name, mistake, right, instead):
    assert BUILT_IN.count(right) >= 1
    printed = said(name, BUILT_IN.replace(right, instead) + NORM)
    title = mistake if isinstance(mistake, str) else f"“{MISTAKES[mistake.__name__].title}”"
    assert printed.startswith("not yet") and title in printed


def test_every_mistake_that_the_readers_model_can_have_is_among_them():
    mistakes = [mistake for _, mistake, *_ in MADE] + [mistake for _, made in LISTED for mistake in made]
    assert set(IN_A_VIT) - ELSEWHERE <= {mistake.__name__ for mistake in mistakes if callable(mistake)}
