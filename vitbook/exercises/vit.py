"""The exercises of chapters/09_vit.ipynb."""

from vitbook import mistakes as wrong
from vitbook.exercises.grading import Exercise, combined
from vitbook.exercises.inputs import images_and_vit, normal

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

_MEAN_OF_ALL = "Your head sees the mean of all tokens; this model's head reads the class token, z[:, 0]."


def _forward(made, images, model):
    z = model.encoder(model.embedding(images))
    y = z.mean(dim=1) if _MEAN_OF_ALL in made else z[:, 0]
    logits = model.head(y if wrong.NoFinalNorm in made else model.norm(y))
    return logits.softmax(dim=-1) if wrong.SoftmaxBeforeCrossEntropy in made else logits


forward = Exercise(
    lambda images, model: model(images),
    "the last LayerNorm comes before the head; the class token alone goes to the head; logits, not probabilities.",
    images_and_vit,
    gradients=True,
    level="hard",
    kind="repair",
) | {
    **combined(_forward, wrong.NoFinalNorm, _MEAN_OF_ALL, wrong.SoftmaxBeforeCrossEntropy),
    "Your head sees the mean of all normalized tokens; this model's head reads the class token, z[:, 0].": (
        lambda images, model: model.head(model.norm(model.encoder(model.embedding(images))).mean(dim=1))
    ),
    "The head is missing: these are D features, not the logits of K classes.": lambda x, model: model.features(x),
}
