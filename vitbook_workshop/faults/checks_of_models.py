"""What must hold of anybody's model, from outside: what goes in and comes out, its parameters, its logits.

Each check raises `Failed` where it does not, and `NotAsked` where it makes no sense to ask.
"""

import copy
import itertools
import math
import textwrap
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._common.suggestions import listed
from vitbook_workshop.faults.findings import Failed, NotAsked, attempt, expect, skip_if
from vitbook_workshop.faults.model_under_test import (
    ModelUnderTest,
    apart,
    dropouts,
    logits_of,
    seeded,
    stacks,
    unregistered,
)

# What goes in and comes out


def logits_come_out(tested: ModelUnderTest) -> None:
    if tested.turned:
        height, width = tested.image_shape[1:]
        raise Failed(
            f"it does not run on {height}×{width} images, and does on {width}×{height}.",
            "height and width have changed places where the image is cut or the positions are counted.",
            "06_patches.ipynb#how-many-and-how-long",
        )
    expect(tested.batch > 0, textwrap.shorten(tested.error, 300, placeholder=" …"))


def every_batch_size_will_do(tested: ModelUnderTest) -> None:
    model = tested.subject
    for batch in (1, 2, 3) if tested.large else (1, 2, 5):
        logits = attempt(lambda batch=batch: logits_of(model, tested.images(batch)))
        expect(logits.shape == (batch, tested.num_classes), f"for {batch} images the logits are {tuple(logits.shape)}.")


def float64_works(tested: ModelUnderTest) -> None:
    skip_if(tested.device.type == "mps", "this device has no float64")
    skip_if(next(unregistered(tested.model), None), "it holds layers that double() does not reach")
    model = copy.deepcopy(tested.model).double().eval()
    logits = attempt(lambda: logits_of(model, tested.images(1 if tested.large else None).double()))
    expect(logits.dtype == torch.float64, f"the logits are {logits.dtype}.")


# What depends on what


def images_count(tested: ModelUnderTest) -> None:
    expect(not tested.blind, "all images get the same, and no gradient reaches a pixel.")


def evaluation_is_deterministic(tested: ModelUnderTest) -> None:
    images = tested.images()
    with torch.no_grad():
        one, other = tested.subject(images), tested.subject(images)
    expect(tested.same(one, other), f"two calls gave logits up to {apart(one, other):.2g} apart.")


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
    if attentions and any(norm.of_batch for norm in tested.recorded.norms):
        return "batch statistics: a BatchNorm that stays in training."
    if any(seen.axis == -4 for seen in attentions):
        return "a softmax over the first axis, the batch (dim=0), instead of the keys (dim=-1)."
    if _attends_to_the_batch(tested):
        return "attention over the batch: nn.MultiheadAttention and nn.TransformerEncoder need batch_first=True."
    return ""


def _attends_to_the_batch(tested: ModelUnderTest) -> bool:
    attentions = tested.attentions_if_any
    return bool(attentions) and all(seen.queries.shape[-2] == tested.batch for seen in attentions)


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
    if len(idle) == tokens and all(norm.sizes != tuple(slope.shape) for norm in tested.recorded.norms):
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


def learned_things_are_registered(tested: ModelUnderTest) -> None:
    for where, count in unregistered(tested.model):
        raise Failed(f"{where} has {count:,} numbers to learn that model.parameters() lacks.")


def every_dropout_acts(tested: ModelUnderTest) -> None:
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


def logits_are_no_probabilities(tested: ModelUnderTest) -> None:
    for _ in range(8):
        logits = logits_of(tested.shaken(), tested.images())
        if (logits < 0).any():
            return
    sums = logits.sum(dim=-1)
    if tested.same(sums, torch.ones_like(sums)):
        raise Failed("none is negative, and each row sums to 1.")
    raise Failed("none is negative.", "a sigmoid or a ReLU after the head, which has to give any number.")


def autocast_works(tested: ModelUnderTest) -> None:
    images = tested.images().float()
    model = copy.deepcopy(tested.model).float().eval()
    with torch.no_grad(), torch.autocast(tested.device.type, torch.bfloat16):
        logits = attempt(lambda: model(images))
    expect(bool(logits.isfinite().all()), "in bfloat16 some logits are infinite or NaN.")


def export_works(tested: ModelUnderTest) -> None:
    skip_if(not tested.export, "export=True asks it")
    with torch.no_grad():
        attempt(lambda: torch.export.export(copy.deepcopy(tested.model).eval(), (tested.images().float(),)))


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


def one_batch_can_be_learned(tested: ModelUnderTest) -> None:
    skip_if(not tested.overfit, "overfit=True asks it, by up to 500 steps of training")
    model, images, labels = tested.copy(training=True), tested.images(), tested.labels()
    for loss in itertools.islice(learned_by_heart(model, images, labels, 3e-3), 500):
        if loss < 0.01:
            return
    raise Failed(f"after 500 steps the loss is still {loss:.2g}.")
