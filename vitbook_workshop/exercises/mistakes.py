"""The exercises of chapters/19_mistakes.ipynb."""

from vitbook.encoder import EncoderBlock
from vitbook_workshop.exercises.grader.inputs import images_and_vit, normal, random_module, random_order
from vitbook_workshop.exercises.grader.judging import Exercise, Personal, combined
from vitbook_workshop.faults.mistakes import make_mistakes
from vitbook_workshop.faults.mistakes import parts as wrong

CHAPTER = "19_mistakes"


def _count(right: int, last: int) -> Exercise:
    share, rest = right / 100, last / 30
    hint = f"each of the eleven batches has one vote: ten say {share}, the last says {last}/30."
    return Exercise((10 * share + rest) / 11, hint, level="easy") | {
        "That counts images, as one should. The question is what the mean of the batches says.": (
            (10 * right + last) / 1030
        ),
        "There are eleven batches, not ten.": (10 * share + rest) / 10,
        "That leaves out the last batch.": share,
    }


count = Personal(
    dict(right=(90, 80, 95), last=(15, 12, 18)),
    lambda right, last: f"The model is right on {right} images of every full batch, and on {last} of the last.",
    _count,
).exercise()


def _difference(block, x, order):
    return block(x[:, order]) - block(x)[:, order]


def _blocks(g):
    """A right block, and two wrong ones: the largest difference is positive in one, negative in the other."""
    cases = [(random_module(g, lambda: EncoderBlock(12, 3, 20)), normal(g, 2, 6, 12), random_order(g, 6))]
    for build, sign, (b, t, d) in (
        (lambda: wrong.ViewWithoutTranspose(10, 2), 1, (3, 8, 10)),
        (lambda: wrong.MergedWithoutTranspose(8, 4), -1, (4, 7, 8)),
    ):
        block, x, order = random_module(g, build), normal(g, b, t, d), random_order(g, t)
        difference = _difference(block, x, order)
        if sign * (difference.max() + difference.min()) < 0:
            block.proj.weight.data.neg_()  # which turns the sign of all differences
        cases.append((block, x, order))
    return cases


order = Exercise(
    lambda block, x, order: _difference(block, x, order).abs().max(),
    "permute, then the block; the block, then permute; the largest absolute difference of the two.",
    _blocks,
) | {
    "You permute what goes in, and not what comes out of the other call.": lambda f, x, i: (
        (f(x[:, i]) - f(x)).abs().max()
    ),
    "You undo the order by itself, not by order.argsort().": lambda f, x, i: (f(x[:, i])[:, i] - f(x)).abs().max(),
    "You take the mean of the differences instead of the largest.": lambda *given: _difference(*given).abs().mean(),
    "You take no absolute values: the largest difference may be negative.": lambda *given: _difference(*given).max(),
}


def _with_mistakes(made, images, model):
    """What a model computes, on the same weights, if its parts make the mistakes. The model is changed."""
    make_mistakes(model, *(mistake.__name__ for mistake in made))
    return model(images)


repair = Exercise(
    lambda images, model: model(images),
    "ask diagnose(SmallViT(VisionTransformer(small)), (3, 8, 12), 5), fix what it names, and compare the block "
    "with Equations 2 and 3 line by line. The last two are named here.",
    images_and_vit,
    gradients=True,
    level="hard",
    kind="repair",
) | combined(
    _with_mistakes,
    wrong.view_without_permute,
    wrong.DropoutForgetsThePositions,
    wrong.ScaledByTheWholeWidth,
    wrong.MergedWithoutTranspose,
    wrong.GeluTwice,
    at_once=2,
)
