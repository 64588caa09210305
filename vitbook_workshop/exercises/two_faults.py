"""A Vision Transformer in one file that runs, learns, and has two faults: each student of a course repairs one's own.

`start/small_vit.py` is right; a fault exchanges a piece of it. No chapter has this exercise.
"""

import itertools
from collections.abc import Callable
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor, nn

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Refused
from vitbook_workshop.faults.mistakes import MISTAKES

_SCORES = "queries @ keys.transpose(-2, -1) / head_dim**0.5"
_ANSWER = "return self.head(self.norm(x)[:, 0])"
_CHAIN = "        for block in self.blocks:\n            x = block(x)\n"

# The mistake by its name in the catalogue, the right piece, which stands in the file once, and the wrong one.
FAULTS = {
    "softmax_over_the_queries": ("scores.softmax(dim=-1)", "scores.softmax(dim=-2)"),
    "softmax_over_the_first_axis": ("scores.softmax(dim=-1)", "scores.softmax(dim=0)"),
    "no_scale": (_SCORES, "queries @ keys.transpose(-2, -1)"),
    "multiplied_by_the_scale": (_SCORES, _SCORES.replace("/", "*")),
    "ScaledByTheWholeWidth": (_SCORES, _SCORES.replace("head_dim", "dim")),
    "MergedWithoutTranspose": ("mixed.transpose(1, 2).reshape(", "mixed.reshape("),
    "view_without_permute": ("pixels.permute(0, 2, 4, 1, 3, 5).reshape(", "pixels.reshape("),
    "ResidualOfTheNorm": ("x = x + self.mlp(self.norm2(x))", "x = self.norm2(x) + self.mlp(self.norm2(x))"),
    "OneNormForTwoPlaces": ("x = x + self.mlp(self.norm2(x))", "x = x + self.mlp(self.norm1(x))"),
    "GeluTwice": ("return self.narrow(F.gelu(self.widen(x)))", "return F.gelu(self.narrow(F.gelu(self.widen(x))))"),
    "NoFinalNorm": (_ANSWER, "return self.head(x[:, 0])"),
    "HeadReadsOnePatch": (_ANSWER, "return self.head(self.norm(x)[:, 1])"),
    "SoftmaxBeforeCrossEntropy": (_ANSWER, f"{_ANSWER}.softmax(dim=-1)"),
    "BlocksNotChained": (
        _CHAIN,
        _CHAIN.replace("block(x)", "block(z)").replace("        for", "        z = x\n        for"),
    ),
}


def source(*faults: str) -> str:
    """The file with these faults; without any, the right one."""
    text = (files(__package__) / "start" / "small_vit.py").read_text(encoding="utf-8")
    for fault in faults:
        text = text.replace(*FAULTS[fault])
    return text


def pairs() -> list[tuple[str, str]]:
    """Two faults that can stand in one file, as they do not lie in one piece of it."""
    return [(a, b) for a, b in itertools.combinations(FAULTS, 2) if FAULTS[a][0] != FAULTS[b][0]]


@cache
def _model(*faults: str) -> nn.Module:
    names: dict = {"__name__": "small_vit"}
    exec(compile(source(*faults), "small_vit.py", "exec"), names)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = names["ViT"]().double().eval()
    with torch.no_grad():  # everything visible: norms that do something, positions of some size
        for number, parameter in enumerate(model.parameters()):
            wave = torch.arange(parameter.numel(), dtype=torch.float64).add(number).sin()
            parameter.add_(0.3 * wave.view_as(parameter))
    return model


def _answers(*faults: str) -> Callable[[Tensor], Tensor]:
    return lambda images: _model(*faults)(images)


def _repaired(attempt: type[nn.Module]) -> Callable[[Tensor], Tensor]:
    """The reader's class with the weights of the right one. Raises Refused where they do not fit."""

    def answer(images: Tensor) -> Tensor:
        try:
            model = attempt().double().eval()
            model.load_state_dict(_model().state_dict())
        except (TypeError, RuntimeError, AttributeError) as error:
            raise Refused(f"keep the names and sizes of all parameters: {str(error).splitlines()[0]}") from None
        return model(images)

    return answer


def _variants(*faults: str) -> tuple[Callable, ...]:
    return tuple(MISTAKES[fault].variant for fault in faults)


repaired = Exercise(
    lambda images: _answers()(images),
    "ask it what chapter 19 asks: whose weights sum to 1, what mixes heads, which patches belong together.",
    lambda g: [(normal(g, 2, 3, 16, 16),), (normal(g, 3, 3, 16, 16),)],
    kind="repair",
    level="hard",
    adapt=_repaired,
    mistakes={_variants(*faults): _answers(*faults) for faults in (*((fault,) for fault in FAULTS), *pairs())},
)
