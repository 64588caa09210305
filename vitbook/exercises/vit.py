"""The exercises of chapters/09_vit.ipynb."""

from vitbook import mistakes as wrong
from vitbook.exercises.grading import Exercise
from vitbook.exercises.inputs import normal
from vitbook.exercises.my_vit import COMPONENTS

pool = Exercise(
    lambda z, pool: z[:, 0] if pool == "class" else z[:, 1:].mean(dim=1),
    "the class token is token 0; the mean runs over the tokens, the middle axis, without the class token.",
    lambda g: [(normal(g, 2, 5, 12), "class"), (normal(g, 3, 7, 4), "mean")],
    gradients=True,
    level="easy",
) | {
    wrong.MeanIncludesTheClassToken: lambda z, pool: z[:, 0] if pool == "class" else z.mean(dim=1),
    "Your class token is the last, not the first.": lambda z, pool: z[:, -1] if pool == "class" else z[:, :-1].mean(1),
    "Your mean runs over channels, not tokens.": lambda z, pool: z[:, 0] if pool == "class" else z[:, 1:].mean(dim=-1),
    "The two are exchanged.": lambda z, pool: z[:, 0] if pool == "mean" else z[:, 1:].mean(dim=1),
    "You take the class token whatever `pool` says.": lambda z, pool: z[:, 0],
    "You take the mean whatever `pool` says.": lambda z, pool: z[:, 1:].mean(dim=1),
}

quadratic = Exercise(6 * 768, "set 2T²D equal to 12TD² and solve for T.") | {
    "That is for the attention with its four maps. The MLP has two more, of 4D² each.": 2 * 768,
    "There are two products, QKᵀ and that with the values: 2T²D.": 12 * 768,
    "That is for the MLP's maps alone. The attention has four of its own.": 4 * 768,
    "That is T as a multiple of the width; multiply by 768.": 6,
}

ViT = COMPONENTS["ViT"]
