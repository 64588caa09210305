"""What must hold of anybody's model so that it can learn: gradients come back, and what should be learned is.

Each check raises `Failed` where it does not, and `NotAsked` where it makes no sense to ask.
"""

from torch import Tensor

from vitbook_workshop.faults.findings import Failed, expect, skip_if
from vitbook_workshop.faults.model_under_test import ModelUnderTest
from vitbook_workshop.faults.recorders.made_in_forward import ForwardWatch, Met, looks_like_noise, storage


def backward_runs(tested: ModelUnderTest) -> None:
    error = tested.in_training.error
    if not error:
        return
    suspect = ""
    if "inplace" in error or "in-place" in error:
        suspect = (
            "something is changed in place that backward needs, or a parameter is: x /= … on the softmax's result, "
            "nn.Dropout(inplace=True), self.positions += …"
        )
    raise Failed(f"in training mode, {error}", suspect)


def class_token_and_positions_are_learned(tested: ModelUnderTest) -> None:
    model, images = tested.copy(without=tested.without), tested.images()
    sizes = {True: 0, False: 0}
    for parameter in tested.model.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    skip_if(sizes[True] < sizes[False], "most of it is frozen")
    trained = [p for p in model.parameters() if p.requires_grad]
    with ForwardWatch(images, until_attention=True) as watch:
        model(images)
    if any(met.drawn for met in watch.met):
        one, other = tested.subject(images), tested.subject(images)
        skip_if(not tested.same(one, other), "numbers are drawn in forward, others each time")
        raise Failed("numbers are drawn in forward, the same each time.", what_is_drawn(tested))
    frozen = {storage(p) for p in model.parameters() if not p.requires_grad}
    cut_off = set(map(storage, trained))  # by detach(), say, which is asked elsewhere
    fixed = [met for met in watch.met if storage(met.numbers) not in cut_off]
    tokens = [met for met in fixed if met.how == "token"]
    tables = [met for met in fixed if met.how == "table" and looks_like_noise(met.numbers)]
    said = [
        f"{words} {_size(met.numbers)} {_is_constant(met, frozen)}"
        for words, mets in (("a class token", tokens), ("positions", tables))
        for met in mets[:1]
    ]
    if said:
        doubt = "a table of fixed numbers tells places apart too, and may be meant" if tables else ""
        if tokens and tokens[0].learned_places:
            doubt = "the position of its place is learned, and may be meant to do the same"
        raise Failed(f"{' and '.join(said)}: no gradient changes {'it' if not tables else 'them'}.", likely=doubt)


def _is_constant(met: Met, frozen: set[int]) -> str:
    if storage(met.numbers) in frozen:
        return "with requires_grad=False"
    return "of constant numbers" if met.numbers.any() else "of zeros"


def _size(x: Tensor) -> str:
    return f"({', '.join(map(str, x.shape))})"


def what_is_drawn(tested: ModelUnderTest) -> str:
    """What a model draws at random in evaluation, as a cause; "" where that cannot be seen."""
    causes = {
        "dropout": "F.dropout, dropout_p or a drop path, which do not know of eval(): use nn.Dropout, or let "
        "self.training switch it off. Or an nn.Dropout that eval() does not reach, in a Python list or made in forward",
        "token": "a class token is drawn anew in each forward: nothing of it is learned. Make it an nn.Parameter",
        "table": "positions, or other numbers that are added to the tokens, are drawn anew in each forward: "
        "nothing of them is learned. Make them an nn.Parameter",
        "map": "a linear map is made anew in each forward, with new weights that nobody learns: make it in __init__",
        "noise": "noise is drawn in forward, in evaluation too",
    }
    return "; ".join(causes[how] + sizes for how, sizes in _by_kind(tested.drawn).items()) + "." * bool(tested.drawn)


def _by_kind(met: list[Met]) -> dict[str, str]:
    """Each kind of what is drawn, but for dropout with the size of the first."""
    first = {m.how: m for m in reversed(met)}
    return {how: "" if how == "dropout" else f", of the size {_size(first[how].numbers)}" for how in first}


def no_logit_is_dropped(tested: ModelUnderTest) -> None:
    seen = tested.in_training
    skip_if(seen.logits is None, "in training it does not give logits alone")
    skip_if((seen.in_evaluation == 0).any(), "some logits are 0 in evaluation too")
    zeros = seen.logits == 0
    expect(not zeros.any(), f"in training mode, {int(zeros.sum())} of {zeros.numel()} logits are exactly 0.")
