"""What is asked of a model from outside: what goes in and comes out, its parameters, its logits.

Each function looks for one thing that must hold, and raises `Failed` where it does not.
"""

import copy
import itertools
import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._common.names import listed
from vitbook_workshop.faults.model_under_test import (
    ModelUnderTest,
    NotAsked,
    apart,
    dropouts,
    logits_of,
    seeded,
    skip_if,
    stacks,
    unregistered,
)


@dataclass
class Failed(Exception):
    """What was seen, in numbers, and a better suspect and section than the question's own, if there are."""

    evidence: str
    suspect: str = ""
    where: str = ""
    likely: str = ""  # why the failure is likely a mistake and not certainly; "" for the question's own


@dataclass(frozen=True)
class Question:
    """Something that must hold, and what to think where it does not."""

    ask: Callable[
        ..., None
    ]  # of a `ModelUnderTest`, a `LoopRecorder` or what is asked about; raises Failed or NotAsked
    about: str
    suspect: str
    where: str
    likely: str = ""  # why a failure is likely a mistake and not certainly; "" if it is certainly one


def register_question(
    about: str, suspect: str, where: str, likely: str = "", *, questions: list[Question]
) -> Callable[[Callable], Callable]:
    """Put what is defined below into a list of questions."""

    def register(ask: Callable) -> Callable:
        questions.append(Question(ask, about, suspect, where, likely))
        return ask

    return register


QUESTIONS: list[Question] = []
question = partial(register_question, questions=QUESTIONS)


def expect(holds: bool, evidence: str) -> None:
    if not holds:
        raise Failed(evidence)


def attempt(run: Callable[[], Any]) -> Any:
    """What `run` returns; an error of the model's is a failure."""
    try:
        return run()
    except Exception as error:
        raise Failed(textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")) from None


# What goes in and comes out


@question(
    "images (B, C, H, W) go in, and logits (B, K) come out",
    suspect="a size fixed at some number, a head for other classes, or more than the logits returned.",
    where="09_vit.ipynb#the-four-equations-together",
)
def logits_come_out(tested: ModelUnderTest) -> None:
    if tested.turned:
        height, width = tested.image_shape[1:]
        raise Failed(
            f"it does not run on {height}×{width} images, and does on {width}×{height}.",
            "height and width have changed places where the image is cut or the positions are counted.",
            "06_patches.ipynb#how-many-and-how-long",
        )
    expect(tested.batch > 0, textwrap.shorten(tested.error, 300, placeholder=" …"))


@question(
    "any number of images makes a batch",
    suspect="a class token or positions with the batch size in their shape; they should be (1, …) and expand.",
    where="07_embedding.ipynb#a-token-that-speaks-for-the-image",
)
def every_batch_size_will_do(tested: ModelUnderTest) -> None:
    model = tested.subject
    for batch in (1, 2, 3) if tested.large else (1, 2, 5):
        logits = attempt(lambda batch=batch: logits_of(model, tested.images(batch)))
        expect(logits.shape == (batch, tested.num_classes), f"for {batch} images the logits are {tuple(logits.shape)}.")


@question(
    "in float64 it calculates in float64",
    suspect="a tensor made inside forward without dtype and device of x, or kept as a plain attribute: use"
    " register_buffer, or x.new_zeros and the like.",
    where="07_embedding.ipynb#four-ways-to-say-where",
)
def float64_works(tested: ModelUnderTest) -> None:
    skip_if(tested.device.type == "mps", "this device has no float64")
    skip_if(next(unregistered(tested.model), None), "it holds layers that double() does not reach")
    model = copy.deepcopy(tested.model).double().eval()
    logits = attempt(lambda: logits_of(model, tested.images(1 if tested.large else None).double()))
    expect(logits.dtype == torch.float64, f"the logits are {logits.dtype}.")


# What depends on what


@question(
    "other images get other logits",
    suspect="a class token that never sees the patches, as under attention over the batch, or a head that reads"
    " something else.",
    where="07_embedding.ipynb#a-token-that-speaks-for-the-image",
)
def images_count(tested: ModelUnderTest) -> None:
    expect(not tested.blind, "all images get the same, and no gradient reaches a pixel.")


@question(
    "in evaluation, the same image gets the same logits",
    suspect="F.dropout, which does not know of eval(): use nn.Dropout or pass training=self.training.",
    where="08_encoder.ipynb#dropout-and-where-it-goes",
)
def evaluation_is_deterministic(tested: ModelUnderTest) -> None:
    images = tested.images()
    with torch.no_grad():
        one, other = tested.subject(images), tested.subject(images)
    expect(tested.same(one, other), f"two calls gave logits up to {apart(one, other):.2g} apart.")


@question(
    "in evaluation, an image's logits do not depend on the others in its batch",
    suspect="attention over the batch (nn.MultiheadAttention and nn.TransformerEncoder without batch_first=True), a"
    " softmax over dim=0, a reshape that mixes images, one image's class token for all, or batch statistics.",
    where="09_vit.ipynb#one-image-does-not-touch-another",
)
def images_do_not_mix(tested: ModelUnderTest) -> None:
    skip_if(tested.batch == 1, "the model takes one image at a time")
    tested.needs_sight()
    images = tested.images()
    before = logits_of(tested.subject, images)
    for changed in range(tested.batch):
        others = torch.arange(tested.batch) != changed
        images_now = images.clone()
        images_now[changed] = tested.images()[changed]
        now = logits_of(tested.subject, images_now)
        if not tested.same(now[others], before[others]):
            by = apart(now[others], before[others])
            raise Failed(f"another image {changed} changed the others' logits by up to {by:.2g}.", _what_mixes(tested))


def _what_mixes(tested: ModelUnderTest) -> str:
    """What lets the images of a batch touch, if the operations show it."""
    attentions = tested.attentions_if_any
    if attentions and any(norm.of_batch for norm in tested.watched.norms):
        return "batch statistics: a BatchNorm that stays in training."
    if any(seen.axis == -4 for seen in attentions):
        return "a softmax over the first axis, the batch (dim=0), instead of the keys (dim=-1)."
    if _attends_to_the_batch(tested):
        return "attention over the batch: nn.MultiheadAttention and nn.TransformerEncoder need batch_first=True."
    return ""


def _attends_to_the_batch(tested: ModelUnderTest) -> bool:
    attentions = tested.attentions_if_any
    return bool(attentions) and all(seen.queries.shape[-2] == tested.batch for seen in attentions)


@question(
    "the order of the patches counts, if it is meant to",
    suspect="positions are missing, or they are added to something that is thrown away (dropout on x instead of x +"
    " positions).",
    where="07_embedding.ipynb#a-bag-of-patches",
)
def order_counts(tested: ModelUnderTest) -> None:
    if tested.order_counts:
        expect(not _knows_no_order(tested), "exchanging patches leaves the logits as they are, but for rounding.")
    elif not _knows_no_order(tested):
        raise Failed(
            "every exchange of patches changes the logits.",
            "something knows where a patch is: positions, a reshape that mixes tokens, or a convolution over them.",
            "07_embedding.ipynb#a-bag-of-patches",
        )


def _prime_factors(number: int) -> list[int]:
    return [n for n in range(2, number + 1) if number % n == 0 and all(n % m for m in range(2, n))]


def _knows_no_order(tested: ModelUnderTest) -> bool:
    """Whether there is a way to exchange strips of the image that the logits do not notice."""
    tested.needs_sight()
    images = tested.images()
    logits = logits_of(tested.subject, images)
    little = apart(logits_of(tested.subject, tested.images()), logits) * (
        1e-6 if tested.dtype == torch.float64 else 1e-4
    )
    for axis in (2, 3):
        side = images.shape[axis]
        for strips in _prime_factors(side):  # one of them divides the side of the grid of patches
            if apart(logits_of(tested.subject, images.roll(side // strips, dims=axis)), logits) < little:
                return True
    return False


@question(
    "every pixel counts",
    suspect="a slice that cuts too much away, or a patch size that does not divide the sizes: a remainder is dropped.",
    where="06_patches.ipynb#how-many-and-how-long",
)
def every_pixel_counts(tested: ModelUnderTest) -> None:
    tested.needs_sight()
    read = torch.zeros(tested.image_shape, dtype=torch.bool, device=tested.device)
    for _ in range(4):  # the zeros of a ReLU are elsewhere each time
        images = tested.images().requires_grad_()
        logits = seeded(tested.shaken(), images)
        (slope,) = torch.autograd.grad((logits * tested.normal(*logits.shape)).sum(), images)
        read |= slope.ne(0).any(dim=0)
        if read.all():
            return
    unread = ~read.any(dim=0)
    lines = [
        f"{int(whole.sum())} {name}"
        for name, whole in (("rows", unread.all(1)), ("columns", unread.all(0)))
        if whole.any()
    ]
    channels = [f"channel {i}" for i, channel in enumerate(read) if not channel.any()]
    if not lines and not channels:
        raise NotAsked(
            f"{int((~read).sum())} of {read.numel()} numbers are not read, but no whole row, column or channel"
        )
    raise Failed(f"no gradient reaches {' and '.join(lines + channels)} of the image.")


# Parameters


@question(
    "every parameter has a part in the logits",
    suspect="a layer that is made and never called, such as an output projection, a last LayerNorm or positions.",
    where="04_multihead.ipynb#what-w_o-is-for",
)
def parameters_play_a_part(tested: ModelUnderTest) -> None:
    tested.needs_sight()
    skip_if(_attends_to_the_batch(tested), "attention runs over the batch")
    if any(seen.keys_seen == 1 for seen in tested.attentions_if_any):
        raise NotAsked("an attention has a single key, so that queries make no difference")
    slopes = _slopes(tested, tested.subject)
    idle = [name for name, slope in slopes.items() if slope is None or (slope.ndim > 1 and not slope.any())]
    if idle:  # in evaluation; some models keep there what they compute of a parameter in training
        in_training = _slopes(tested, tested.shaken(training=True).requires_grad_())
        idle = [name for name in idle if in_training[name] is None or not in_training[name].any()]
    expect(not idle, f"no gradient reaches {listed(idle)}.")
    if tested.attentions_if_any and tested.keeps_tokens_whole:
        for name, slope in slopes.items():
            if slope is not None:
                _expect_no_idle_rows(tested, name, slope)


def _slopes(tested: ModelUnderTest, model: nn.Module) -> dict[str, Tensor | None]:
    """The gradients of all that the model's owner means to train, by name."""
    trained = {name for name, parameter in tested.model.named_parameters() if parameter.requires_grad}
    named = {n: p for n, p in model.named_parameters() if n in trained or not trained}
    named = {name: p for name, p in named.items() if "mask_token" not in name}  # for pretraining
    logits = seeded(model, tested.images())
    mixture = (logits * tested.normal(*logits.shape)).sum()
    return dict(zip(named, torch.autograd.grad(mixture, list(named.values()), allow_unused=True), strict=True))


def _expect_no_idle_rows(tested: ModelUnderTest, name: str, slope: Tensor) -> None:
    """Of a table with a row for each token, no row is idle; of a linear map, not as many together as it has inputs."""
    if slope.ndim != 2 and not (slope.ndim == 3 and slope.shape[0] == 1):
        return
    idle = ~slope.flatten(0, -2).any(dim=1)
    if not idle.any():
        return
    tokens = tested.attentions[0].queries.shape[-2]
    if len(idle) == tokens and all(norm.sizes != tuple(slope.shape) for norm in tested.watched.norms):
        which = ", ".join(str(i) for i in idle.nonzero().flatten()[:4].tolist())
        raise Failed(
            f"{name} has a row for each of {tokens} tokens; no gradient reaches row {which}.",
            "positions that some tokens do not get, such as the class token, which stands in front after the cat.",
            "07_embedding.ipynb#equation-1-complete",
        )
    together = max(len(list(run)) for row, run in itertools.groupby(idle.tolist()) if row)
    inputs = slope.shape[-1]
    if inputs <= together < len(idle) and inputs in [seen.inputs for seen in tested.attentions]:
        raise Failed(
            f"no gradient reaches {int(idle.sum())} of the {len(idle)} rows of {name}.",
            "queries, keys and values: one of them is taken twice, and another is never used.",
            "04_multihead.ipynb#all-heads-from-one-linear-map",
        )


@question(
    "what is learned is registered",
    suspect="layers in a Python list or dict (use nn.ModuleList), or a tensor that is no nn.Parameter: the"
    " optimizer, state_dict() and to() do not see them.",
    where="08_encoder.ipynb#the-encoder",
)
def learned_things_are_registered(tested: ModelUnderTest) -> None:
    for where, count in unregistered(tested.model):
        raise Failed(f"{where} has {count:,} numbers to learn that model.parameters() lacks.")


@question(
    "every dropout acts", suspect="a probability that nothing reads.", where="01_attention.ipynb#dropout-on-the-weights"
)
def dropouts_act(tested: ModelUnderTest) -> None:
    rates = {kind: getattr(module, attribute) for kind, module, attribute in dropouts(tested.model)}
    skip_if(not rates, "there is none")
    for kind, rate in rates.items():
        if rate >= 0.75:
            raise Failed(
                f"{kind} drops {rate:.0%} of its input.",
                "the probability to keep given as that to drop: nn.Dropout(0.1) keeps 90 %.",
                likely="no recipe drops as much, but it can be meant",
            )
    for tried in rates:
        model, images = tested.shaken(training=True), tested.images()
        for kind, module, attribute in list(dropouts(model)):
            setattr(module, attribute, 0.5 if kind == tried else 0.0)
        logits = model(images)
        expect(any(not tested.same(model(images), logits) for _ in range(4)), f"{tried} changes nothing in training.")


@question(
    "the blocks start with different weights",
    suspect="blocks copied from one, by copy.deepcopy or by nn.TransformerEncoder: draw their weights separately.",
    where="08_encoder.ipynb#the-encoder",
)
def blocks_start_different(tested: ModelUnderTest) -> None:
    skip_if(not tested.untrained, "the model is trained")
    blocks = list(stacks(tested.model))
    skip_if(not blocks, "no list of blocks in it")
    for one, other in (pair for stack in blocks for pair in itertools.pairwise(stack)):
        if one is other:
            raise Failed("two blocks are one.", "one block put into the list several times: [Block()] * depth.")
        pairs = [(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True) if p.ndim > 1]
        expect(not all(torch.equal(p, q) for p, q in pairs), "two blocks have the same weights.")


# Logits and losses


@question(
    "logits are no probabilities",
    suspect="a softmax in the model. F.cross_entropy has one itself; twice, the loss cannot come near 0.",
    where="10_training.ipynb#how-wrong-is-an-answer",
)
def logits_are_no_probabilities(tested: ModelUnderTest) -> None:
    for _ in range(8):
        logits = logits_of(tested.shaken(), tested.images())
        if (logits < 0).any():
            return
    sums = logits.sum(dim=-1)
    if tested.same(sums, torch.ones_like(sums)):
        raise Failed("none is negative, and each row sums to 1.")
    raise Failed("none is negative.", "a sigmoid or a ReLU after the head, which has to give any number.")


@question(
    "it runs under autocast",
    suspect="tensors of two dtypes meet: one is made inside forward with a dtype of its own, or written into in place.",
    where="11_engine.ipynb#fewer-bits",
)
def autocast_works(tested: ModelUnderTest) -> None:
    images = tested.images().float()
    model = copy.deepcopy(tested.model).float().eval()
    with torch.no_grad(), torch.autocast(tested.device.type, torch.bfloat16):
        logits = attempt(lambda: model(images))
    expect(bool(logits.isfinite().all()), "in bfloat16 some logits are infinite or NaN.")


@question(
    "it can be exported",
    suspect="forward depends on the numbers in a tensor: .item(), an if, or a loop over them.",
    where="09_vit.ipynb#the-four-equations-together",
    likely="torch.export knows no loops over data, and a model may well need them",
)
def export_works(tested: ModelUnderTest) -> None:
    skip_if(not tested.export, "export=True asks it")
    with torch.no_grad():
        attempt(lambda: torch.export.export(copy.deepcopy(tested.model).eval(), (tested.images().float(),)))


@question(
    "the first loss is near ln K",
    suspect="a head or tokens that start too large: a last LayerNorm that is missing, weights drawn too wide.",
    where="10_training.ipynb#the-first-loss-is-ln-k",
)
def first_loss_is_near_ln_k(tested: ModelUnderTest) -> None:
    skip_if(not tested.untrained, "the model is trained")
    logits = logits_of(tested.copy(), tested.images())
    loss = F.cross_entropy(logits, tested.labels()).item()
    expected = math.log(tested.num_classes)
    evidence = f"it is {loss:.1f}, and ln {tested.num_classes} = {expected:.1f}; the logits' standard deviation is"
    expect(abs(loss - expected) < 1.5, f"{evidence} {logits.std().item():.2g}.")


def learned_by_heart(model: nn.Module, images: Tensor, labels: Tensor, learning_rate: float) -> Iterator[Tensor]:
    """The loss of one batch at each step of training on it alone, without dropout."""
    for _, module, attribute in list(dropouts(model)):
        setattr(module, attribute, 0.0)
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=learning_rate, weight_decay=0.0)
    while True:
        loss = F.cross_entropy(model(images), labels)
        yield loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


@question(
    "a few images can be learned by heart",
    suspect="anything that hinders learning: a softmax before the loss, a part without gradient, a scale that leaves no"
    " slope.",
    where="10_training.ipynb#the-loop-bare",
)
def one_batch_can_be_learned(tested: ModelUnderTest) -> None:
    skip_if(not tested.overfit, "overfit=True asks it, by up to 500 steps of training")
    model, images, labels = tested.copy(training=True), tested.images(), tested.labels()
    for loss in itertools.islice(learned_by_heart(model, images, labels, 3e-3), 500):
        if loss < 0.01:
            return
    raise Failed(f"after 500 steps the loss is still {loss:.2g}.")
