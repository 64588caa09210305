"""The exercises of chapters/09_vit.ipynb."""

from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.exercises.my_vit.components import COMPONENTS
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "09_vit"

pool = Exercise(
    lambda z, pool: z[:, 0] if pool == "class" else z[:, 1:].mean(dim=1),
    "the class token is token 0; the mean runs over the other tokens, axis 1.",
    lambda g: [(normal(g, 2, 5, 12), "class"), (normal(g, 3, 7, 4), "mean")],
    gradients=True,
    level="easy",
) | {
    wrong.MeanIncludesTheClassToken: lambda z, pool: z[:, 0] if pool == "class" else z.mean(dim=1),
    "You take the last token. The class token is the first.": lambda z, pool: (
        z[:, -1] if pool == "class" else z[:, :-1].mean(1)
    ),
    "Your mean runs over the channels. Take it over the tokens.": lambda z, pool: (
        z[:, 0] if pool == "class" else z[:, 1:].mean(dim=-1)
    ),
    "You have exchanged the two kinds of pool.": lambda z, pool: z[:, 0] if pool == "mean" else z[:, 1:].mean(dim=1),
    "You take the class token whatever `pool` says.": lambda z, pool: z[:, 0],
    "You take the mean whatever `pool` says.": lambda z, pool: z[:, 1:].mean(dim=1),
}

_NAMED = {768: "B/16", 192: "Ti/16", 384: "S/16", 1024: "L/16", 1280: "H/14"}


def _tokens(width: int) -> Exercise:
    return Exercise(6 * width, "set 2T²D equal to 12TD² and solve for T.") | {
        "You count only the attention's four maps. The MLP has two more, of 4D² each.": 2 * width,
        "You count only one product. There are two, QKᵀ and the one with the values: 2T²D.": 12 * width,
        "You count only the MLP's maps. The attention has four more.": 4 * width,
        f"That is T as a multiple of the width. Multiply it by {width}.": 6,
    }


quadratic = Personal(
    dict(width=tuple(_NAMED)),
    lambda width: (
        f"At how many tokens $T$ does a block of {_NAMED[width]} spend as much on the two products of attention as on "
        "all its linear maps together? Work it out on paper, and compare it with the figure."
    ),
    _tokens,
).exercise()

ViT = COMPONENTS["ViT"]
