"""What must hold of anybody's model, from outside: what goes in and comes out, its parameters, its logits.

Each check raises `Failed` where it does not, and `NotAsked` where it makes no sense to ask.
"""

import ast
import inspect
import itertools
import math
import re
import textwrap
from collections.abc import Collection, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._common.suggestions import listed
from vitbook_workshop.faults.checks.learning import what_is_drawn
from vitbook_workshop.faults.findings import Failed, NotAsked, attempt, expect, skip_if
from vitbook_workshop.faults.model_under_test import (
    DROPOUTS,
    ModelUnderTest,
    altered,
    apart,
    copy_of,
    dropouts,
    logits_of,
    seeded,
    stacks,
    unregistered,
)

# What goes in and comes out


def logits_come_out(tested: ModelUnderTest) -> str:
    """Returns how the model had to be taken, for its owner."""
    if tested.turned:
        height, width = tested.image_shape[1:]
        raise Failed(
            f"it does not run on {height}×{width} images, and does on {width}×{height}.",
            "height and width have changed places where the image is cut or the positions are counted.",
            "06_patches.ipynb#how-many-and-how-long",
        )
    if tested.not_finite:
        raise Failed(
            f"they are not finite: {tested.not_finite}.",
            "a row of scores that is −inf throughout, by a mask the wrong way around, or a logarithm, a root or a"
            " quotient of 0.",
            "10_training#the-loop-bare",
        )
    expect(tested.batch > 0, textwrap.shorten(tested.error, 400, placeholder=" …"))
    return "; ".join(tested.notes)


def logits_carry_a_gradient(tested: ModelUnderTest) -> None:
    skip_if(not any(p.requires_grad for p in tested.model.parameters()), "no parameter is to be trained")
    logits = seeded(tested.copy(True, tested.without), tested.images())
    if not logits.requires_grad:
        under = "torch.inference_mode()" if logits.is_inference() else "torch.no_grad()"
        raise Failed(
            "its parameters require gradients, and the logits carry none: nothing can be trained.",
            f"forward runs under {under}, sets torch.set_grad_enabled(False), or detaches what it returns.",
        )


def images_stay_as_they_are(tested: ModelUnderTest) -> None:
    model = tested.copy(True, tested.without)
    images = tested.images()
    before = images.clone()
    with torch.no_grad():
        attempt(lambda: seeded(getattr(model, "model", model) if tested.changes_images else model, images))
    changed = int((images != before).sum())
    expect(not changed, f"after a call, {changed} of {images.numel()} numbers of the images given to it are others.")


def every_batch_size_will_do(tested: ModelUnderTest) -> None:
    for batch in (1, 2, 3) if tested.large else (1, 2, 5):
        if batch == tested.batch:
            continue
        logits = attempt(lambda batch=batch: logits_of(tested.brief, tested.images(batch)))
        expect(logits.shape == (batch, tested.num_classes), f"for {batch} images the logits are {tuple(logits.shape)}.")


# What depends on what


def images_count(tested: ModelUnderTest) -> None:
    if tested.blind:
        raise Failed(
            "all images get the same, but for rounding.",
            OVER_THE_BATCH if tested.attends_to_the_batch else "",
        )


OVER_THE_BATCH = (
    "attention over the batch: a token looks at the same place in the other images, and a class token never sees the "
    "patches. nn.MultiheadAttention and nn.TransformerEncoder need batch_first=True."
)


def evaluation_is_deterministic(tested: ModelUnderTest) -> None:
    images = tested.shown.detach()
    with torch.no_grad():
        one, other = tested.answer, tested.brief(images)
    if not tested.same(one, other):
        raise Failed(f"two calls gave logits up to {apart(one, other):.2g} apart.", what_is_drawn(tested))


def images_do_not_mix(tested: ModelUnderTest) -> None:
    skip_if(tested.batch == 1, "the model takes one image at a time")
    tested.needs_sight()
    images, before = tested.shown.detach(), tested.answer
    for changed in range(tested.batch):
        others = torch.arange(tested.batch) != changed
        images_now = images.clone()
        images_now[changed] = tested.images()[changed]
        now = logits_of(tested.brief, images_now)
        if not tested.same(now[others], before[others]):
            by = apart(now[others], before[others])
            raise Failed(f"another image {changed} changed the others' logits by up to {by:.2g}.", _what_mixes(tested))


def places_in_a_batch_are_alike(tested: ModelUnderTest) -> None:
    skip_if(tested.batch == 1, "the model takes one image at a time")
    if tested.place_in_batch_counts:
        skip_if(tested.drawn, "it draws random numbers in evaluation")
        torn = any(seen.split is False or seen.joined is False for seen in tested.attentions_if_any)
        skip_if(torn, "attention does not keep tokens whole, across images")
        raise Failed("the same image gets other logits as the first of a batch than as the second.")


def _what_mixes(tested: ModelUnderTest) -> str:
    """What lets the images of a batch touch, if the operations show it."""
    attentions = tested.attentions_if_any
    if tested.attends_to_the_batch:
        return OVER_THE_BATCH
    if attentions and any(norm.of_batch for norm in tested.recorded.norms):
        return "batch statistics: a BatchNorm that stays in training."
    if any(seen.axis == -4 for seen in attentions):
        return "a softmax over the first axis, the batch (dim=0), instead of the keys (dim=-1)."
    return ""


def order_counts(tested: ModelUnderTest) -> None:
    unseen = _exchanged_unseen(tested)
    if not tested.order_counts and not unseen:
        raise Failed(
            "every exchange of patches changes the logits.",
            "something knows where a patch is: positions, a reshape that mixes tokens, or a convolution over them.",
            "07_embedding.ipynb#a-bag-of-patches",
        )
    if tested.order_counts and len(unseen) == 1:
        (alike,), (other,) = unseen, {"rows", "columns"} - unseen
        raise Failed(
            f"exchanging {alike} of patches leaves the logits as they are, but for rounding; {other}, it does not.",
            _by_image(tested)
            or f"{alike} are not told apart: one coordinate stands in both halves of the table of positions, or the "
            "other is missing.",
            "07_embedding.ipynb#four-ways-to-say-where",
        )
    if tested.order_counts and unseen:
        raise Failed("exchanging patches leaves the logits as they are, but for rounding.", _by_image(tested))


def _by_image(tested: ModelUnderTest) -> str:
    by_image = tested.batch > 1 and tested.place_in_batch_counts and not tested.drawn
    return "positions indexed by the image in the batch, and not by the patch in the image." if by_image else ""


def _prime_factors(number: int) -> list[int]:
    return [n for n in range(2, number + 1) if number % n == 0 and all(n % m for m in range(2, n))]


def _exchanged_unseen(tested: ModelUnderTest) -> set[str]:
    """Whether strips of the image that are rows, or columns, of patches can be exchanged unnoticed by the logits."""
    tested.needs_sight()
    images, logits, unseen = tested.shown.detach(), tested.answer, set()
    little = apart(logits_of(tested.brief, tested.images()), logits) * (1e-6 if tested.dtype == torch.float64 else 1e-4)
    for axis, name in ((2, "rows"), (3, "columns")):
        side = images.shape[axis]
        for strips in _prime_factors(side):  # one of them divides the side of the grid of patches
            if apart(logits_of(tested.brief, images.roll(side // strips, dims=axis)), logits) < little:
                unseen.add(name)
                break
    return unseen


def every_pixel_counts(tested: ModelUnderTest) -> None:
    tested.needs_sight()
    read = torch.zeros(tested.image_shape, dtype=torch.bool, device=tested.device)
    for again in range(4):  # the zeros of a ReLU are elsewhere each time
        gradients = tested.gradients
        if again:
            model, images = tested.shaken().requires_grad_(), tested.images().requires_grad_()
            gradients = tested.gradients_of(model, seeded(model, images), images)
        read |= gradients.of_images.any(dim=0)
        if read.all():
            return
    skip_if(not read.any(), "no gradient reaches the images, although they count")
    unread = ~read.any(dim=0)
    lines = [
        f"{int(whole.sum())} {name}"
        for name, whole in (("rows", unread.all(1)), ("columns", unread.all(0)))
        if whole.any()
    ]
    channels = [f"channel {i}" for i, channel in enumerate(read) if not channel.any()]
    rows, columns = (int(unread.any(axis).sum()) for axis in (1, 0))
    rectangle = int(unread.sum()) == rows * columns > 3 and bool((read == ~unread).all())
    if rectangle and not lines and not channels:
        raise Failed(
            f"no gradient reaches {rows}×{columns} pixels of the image, a rectangle.",
            "a patch that is cut off, or overwritten: x[:, :-1], or a class token put in the place of the first patch.",
            likely="a model may choose its patches",
        )
    if not lines and not channels:
        raise NotAsked(
            f"{int((~read).sum())} of {read.numel()} numbers are not read, but no whole row, column or channel"
        )
    raise Failed(f"no gradient reaches {' and '.join(lines + channels)} of the image.")


# Parameters


def parameters_play_a_part(tested: ModelUnderTest) -> None:
    slopes = tested.gradients.of_parameters
    idle = [name for name, slope in slopes.items() if slope is None or (slope.ndim > 1 and not slope.any())]
    for again in range(8):
        if not idle or (again and not _some_of_a_kind(idle, slopes)):
            break
        # in training, as some models keep for evaluation what they compute of a parameter; again, as of several experts
        # an image may need others
        model, images = tested.shaken(training=True).requires_grad_(), tested.images().requires_grad_()
        in_training = tested.gradients_of(model, seeded(model, images), images).of_parameters
        idle = [name for name in idle if in_training[name] is None or not in_training[name].any()]
    reason = _why_gradients_say_little(tested)
    if reason:  # then what no operation takes is idle, and nothing else is known to be
        taken = {name for name, p in tested.subject.named_parameters() if id(p) in tested.recorded.used}
        idle = [name for name in idle if name not in taken]
    detached = _that_count(tested, idle)
    unused = [name for name in idle if name not in detached]
    found = [Failed(f"no gradient reaches {listed(unused)}.", _NEVER_CALLED)] if unused else []
    if detached:
        found.append(Failed(f"no gradient reaches {listed(detached)}, although the logits depend on it.", _DETACHED))
    frozen = _frozen_maps(tested)
    if frozen:
        found.append(
            Failed(f"{listed(frozen)} has requires_grad=False.", "a part that is frozen, and so never trained.")
        )
    if not reason and tested.attentions_if_any and tested.keeps_tokens_whole:
        found += [
            said for name, slope in slopes.items() if slope is not None and (said := _idle_rows(tested, name, slope))
        ]
    skip_if(reason and not found, reason)
    if found:
        likely = "it may be frozen on purpose" if len(found) == bool(frozen) else ""
        evidence, causes = (
            dict.fromkeys(words) for words in zip(*((f.evidence, f.suspect) for f in found), strict=True)
        )
        raise Failed(" ".join(evidence), " ".join(causes), found[0].where, likely)


def _some_of_a_kind(idle: list[str], of: Collection[str]) -> bool:
    """Whether one of them has the name of another parameter, but for its number, that is not among them."""
    others = {_of_all_blocks(name) for name in of if name not in idle}
    return any(_of_all_blocks(name) in others for name in idle)


_NEVER_CALLED = (
    "a layer that is made and never called, such as an output projection, a last LayerNorm or positions; or its result "
    "is thrown away."
)
_DETACHED = "a part that runs under torch.no_grad(), or is cut off by detach() or .data: it acts, and is never trained."


def _why_gradients_say_little(tested: ModelUnderTest) -> str:
    if tested.blind:
        return "the logits do not depend on the image"
    if tested.attends_to_the_batch:
        return "attention runs over the batch"
    if any(seen.keys_seen == 1 for seen in tested.attentions_if_any):
        return "an attention has a single key, so that queries make no difference"
    return ""


def _that_count(tested: ModelUnderTest, names: list[str]) -> list[str]:
    """Those of a model's parameters on which its logits depend, although no gradient comes back."""
    named, images = dict(tested.subject.named_parameters()), tested.shown.detach()

    def count(*changed: str) -> bool:
        numbers = {id(named[name]) for name in changed}
        with altered(tested.subject, numbers, lambda p: p + tested.normal(*p.shape)):
            return not tested.same(logits_of(tested.subject, images), tested.logits)

    return [name for name in names if count(name)] if names and count(*names) else []


def _frozen_maps(tested: ModelUnderTest) -> list[str]:
    """Frozen weights of linear maps, where the rest is not frozen."""
    sizes = {name: p.numel() for name, p in tested.model.named_parameters() if not p.requires_grad}
    if not 0 < 4 * sum(sizes.values()) < sum(p.numel() for p in tested.model.parameters()):
        return []
    maps = {id(linear.weight) for linear in tested.recorded.linear}
    return [name for name in sizes if id(tested.subject.get_parameter(name)) in maps]


def _idle_rows(tested: ModelUnderTest, name: str, slope: Tensor) -> Failed | None:
    """Of a table with a row for each token, a row that is idle; of a linear map, as many together as it has inputs."""
    if slope.ndim != 2 and not (slope.ndim == 3 and slope.shape[0] == 1):
        return None
    idle = ~slope.flatten(0, -2).any(dim=1)
    if not idle.any():
        return None
    tokens = tested.attentions[0].queries.shape[-2]
    if (
        len(idle) == tokens
        and not _by_image(tested)
        and all(norm.sizes != tuple(slope.shape) for norm in tested.recorded.norms)
    ):
        which = ", ".join(str(i) for i in idle.nonzero().flatten()[:4].tolist())
        return Failed(
            f"{name} has a row for each of {tokens} tokens; no gradient reaches row {which}.",
            "positions that some tokens do not get, such as the class token, which stands in front after the cat.",
            "07_embedding.ipynb#equation-1-complete",
        )
    if id(tested.subject.get_parameter(name)) not in {id(linear.weight) for linear in tested.recorded.linear}:
        return None  # a table, of which a longer sequence would take more rows
    together = max(len(list(run)) for row, run in itertools.groupby(idle.tolist()) if row)
    inputs = slope.shape[-1]
    if inputs <= together < len(idle) and inputs in [seen.inputs for seen in tested.attentions]:
        said = f"no gradient reaches {int(idle.sum())} of the {len(idle)} rows of {name}"
        with altered(tested.subject, {id(tested.subject.get_parameter(name))}, lambda p: p + idle[:, None] * p.std()):
            if not tested.same(logits_of(tested.subject, tested.shown.detach()), tested.logits):
                return Failed(f"{said}, although the logits depend on them.", _DETACHED)
        return Failed(
            f"{said}.",
            "queries, keys and values: one of them is taken twice, and another is never used.",
            "04_multihead.ipynb#all-heads-from-one-linear-map",
        )
    heads = [seen.gives for seen in tested.attentions if seen.weight is tested.subject.get_parameter(name)]
    if heads and 0 < min(heads) <= together < inputs:
        return Failed(
            f"no gradient reaches {int(idle.sum())} of the {len(idle)} rows of {name}.",
            "a head: what it gives is thrown away, or another's stands in its place.",
            "04_multihead.ipynb#all-heads-from-one-linear-map",
            likely="a head may be switched off on purpose",
        )
    return None


def learned_things_are_registered(tested: ModelUnderTest) -> None:
    lost = [f"{where} has {count:,} numbers to learn" for where, count in unregistered(tested.model)]
    expect(not lost, f"{', '.join(lost[:4])} that model.parameters() lacks.")
    strange = tested.strangers
    made = [p for p in strange if id(p) not in tested.strangers_again]
    if made:
        drawn = any(met.how != "dropout" for met in tested.drawn)
        skip_if(drawn, "each call draws parameters of its own, so that two calls differ")
        raise Failed(
            f"each call makes parameters of its own, of {' and '.join(str(tuple(p.shape)) for p in made[:3])}.",
            "an nn.Parameter or a layer that is made in forward: it is another at every call, and nothing of it is"
            " learned. It belongs in __init__.",
        )
    if strange:
        raise Failed(
            f"it calculates with {sum(p.numel() for p in strange):,} numbers to learn that model.parameters() lacks.",
            "a layer of the class or of the module, or one in an object that is no nn.Module: it has to be an attribute"
            " of a module, set in __init__.",
        )


def every_dropout_acts(tested: ModelUnderTest) -> None:
    """Asked with the same random numbers, so that a dropout that never stops hides none that never acts."""
    unread = list(_unread_arguments(tested.model))
    skip_if(not unread and not _places_of_dropout(tested, tested.model), "there is none, or each is 0")
    model, images = tested.shaken(True, tested.without), tested.images()
    places = _places_of_dropout(tested, model)
    rates = {kind: rate for kind, module, attribute in places if (rate := getattr(module, attribute))}

    def logits(acting: str, seed: int) -> Tensor:
        for kind, module, attribute in places:
            setattr(module, attribute, 0.5 if kind == acting else 0.0)
        return logits_of(model, images, seed)

    without = {seed: logits("", seed) for seed in range(2)}
    never = [
        kind
        for kind in dict.fromkeys(kind for kind, _, _ in places)
        if all(tested.same(logits(kind, seed), expected) for seed, expected in without.items())
    ]
    found = [f"{kind} changes nothing in training." for kind in never]
    found += [f"no line of its constructor reads the argument {name}." for name in unread]
    suspect = "" if found else _KEPT
    if not found and (whole := _drops_the_stream(tested, places, model)):
        raise Failed(
            f"where {whole} drops nearly all, nothing is left of what stands before the blocks.",
            "the sum goes through it, x = drop_path(x + f(x)), and what was there is dropped, too. It should be"
            " x + drop_path(f(x)).",
        )
    if most := [f"{kind} drops {rate:.0%} of its input." for kind, rate in rates.items() if rate >= 0.75]:
        suspect = f"a probability that nothing reads; and {_KEPT}" if found else _KEPT
    doubt = "no recipe drops as much, but it can be meant" if most and not found else ""
    if found and not unread and not set(never) & set(rates):
        doubt = "its probability is 0 here, so that nothing is lost until it is set"
    if found or most:
        raise Failed(" ".join(found + most), suspect, likely=doubt)


def _drops_the_stream(tested: ModelUnderTest, places: list[tuple[str, nn.Module, str]], model: nn.Module) -> str:
    """The kind of a drop path that, at a rate near 1, leaves nothing of what stands before the blocks; "" for none."""
    in_blocks = {id(part) for stack in stacks(model) for block in stack for part in block.modules()}
    names = {kind: f"{kind} {type(part).__name__}".lower() for kind, part, _ in places if id(part) in in_blocks}
    kinds = [kind for kind, name in names.items() if re.search("drop_?path|stochastic_?depth", name)]
    if not kinds or not tested.attentions_if_any:
        return ""
    used, first = list(tested.recorded.used), id(tested.attentions[0].weight)
    before = set(used[: used.index(first)]) if first in used else set()
    embedding = {id(model.get_parameter(name)) for name, p in tested.subject.named_parameters() if id(p) in before}
    for kind in kinds if embedding else []:
        for other, module, attribute in places:
            setattr(module, attribute, 1 - 1e-6 if other == kind else 0.0)
        logits = logits_of(model, tested.images())
        with altered(model, embedding, lambda p: p + torch.randn_like(p)):
            if tested.same(logits, logits_of(model, tested.images())):
                return kind
    return ""


def _places_of_dropout(tested: ModelUnderTest, model: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """Where a copy of the model keeps the probability of a dropout that is to act: not 0, or of one never called."""
    places, frozen = list(dropouts(model)), _frozen_parts(model)
    if tested.in_training.logits is not None:
        idle = [(name, part) for name, part in model.named_modules() if name not in tested.in_training.called]
        places += [
            (_of_all_blocks(name), part, "p") for name, part in idle if isinstance(part, DROPOUTS) and not part.p
        ]
    return [place for place in places if id(place[1]) not in frozen]


_KEPT = "the probability to keep given as that to drop: nn.Dropout(0.1) keeps 90 %."


def _frozen_parts(model: nn.Module) -> set[int]:
    """The ids of modules that are not trained, such as a teacher's, where others are."""
    if not any(p.requires_grad for p in model.parameters()):
        return set()
    parts = [part for part in model.modules() if next(part.parameters(), None) is not None]
    frozen = [part for part in parts if not any(p.requires_grad for p in part.parameters())]
    return {id(inside) for part in frozen for inside in part.modules()}


def _unread_arguments(model: nn.Module) -> Iterator[str]:
    """Arguments for a dropout that no line of a constructor reads, as CLASS(NAME)."""
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        try:
            (function,) = ast.parse(textwrap.dedent(inspect.getsource(kind.__init__))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # no source to read
            continue
        if isinstance(function, ast.FunctionDef):
            read = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            given = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
            yield from (f"{kind.__name__}({name})" for name in given if "drop" in name and not read & {name, "locals"})


def blocks_start_different(tested: ModelUnderTest) -> None:
    skip_if(not tested.untrained, "the model is trained")
    for stack in stacks(tested.model):
        different = len(set(map(id, stack)))
        if different < len(stack):
            raise Failed(
                f"{len(stack)} layers in a row are {different}: two blocks are one.",
                "one block put into the list several times: [Block()] * depth.",
                likely="layers can share their weights on purpose",
            )
    alike: dict[tuple, list[tuple[str, Tensor]]] = {}
    for name, p in tested.model.named_parameters():
        if p.ndim > 1 and p.requires_grad and p.numel():
            alike.setdefault((_of_all_blocks(name), p.shape), []).append((name, p.detach()))
    several = [named for named in alike.values() if len(named) > 1]
    skip_if(not several, "no two layers of one kind in it")
    copied = [pair for named in several if (pair := _copies(named))]
    if copied:
        share = (
            "" if len(copied) == len(several) else f" So it is in {len(copied)} of {len(several)} matrices of a layer."
        )
        in_projection = all("in_proj_weight" in one for one, _ in copied) and share
        raise Failed(
            f"{' and '.join(copied[0])} start with the same numbers.{share}",
            "nn.TransformerEncoder copies its layer, and drawing every nn.Linear anew leaves in_proj_weight as it was."
            if in_projection
            else "",
        )


def _copies(named: list[tuple[str, Tensor]]) -> tuple[str, str] | None:
    """The names of two that start with the same numbers, drawn at random: no zeros, and no pattern."""
    first: dict[tuple, tuple[str, Tensor]] = {}
    for name, x in named:
        key = tuple(x.flatten()[:4].tolist())
        if (
            key in first
            and torch.equal(first[key][1], x)
            and 2 * len(x.flatten()[:4096].unique()) > len(x.flatten()[:4096])
        ):
            return first[key][0], name
        first.setdefault(key, (name, x))
    return None


def _of_all_blocks(name: str) -> str:
    """The name of a part without the number of its block."""
    return re.sub(r"\d+", "*", name)


NORMS = nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm


def norms_start_at_one(tested: ModelUnderTest) -> None:
    """Asked of torch's norms, and of what else multiplies normalized tokens; one number for all may be meant."""
    skip_if(not tested.untrained, "the model is trained")
    gains = tested.recorded.gains if tested.attentions_if_any else set()
    here = {name for name, p in tested.subject.named_parameters() if id(p) in gains}
    here |= {f"{name}.weight" for name, part in tested.model.named_modules() if isinstance(part, NORMS)}
    starts = {name: p.detach() for name, p in tested.model.named_parameters() if name in here and p.ndim == 1}
    skip_if(not starts, "no gains of norms were seen")
    drawn = [name for name, gain in starts.items() if gain.ne(gain[:1]).any() and (gain - 1).abs().amax() > 0.5]
    if drawn:
        least, most = (pick(starts[name] for name in drawn) for pick in (_least, _most))
        raise Failed(f"{listed(drawn)} start between {least:.2g} and {most:.2g}.")


def _least(gains: Iterator[Tensor]) -> float:
    return min(gain.min().item() for gain in gains)


def _most(gains: Iterator[Tensor]) -> float:
    return max(gain.max().item() for gain in gains)


# Logits and losses


def logits_are_no_probabilities(tested: ModelUnderTest) -> None:
    positive = negative = False
    for again in range(8):
        logits = logits_of(tested.shaken(), tested.images()) if again else tested.answer
        ones = torch.ones_like(logits[:, 0])
        positive, negative = positive or bool((logits > 0).any()), negative or bool((logits < 0).any())
        if positive and negative:
            break
    if positive and negative:
        if tested.answer.abs().max() <= 1 and _stay_below_one(tested):
            raise Failed(
                "all lie between −1 and 1, and do so with a head a thousand times as large.",
                "a tanh after the head, or logits made a vector of length 1: the loss cannot come near 0.",
                likely="the loss may multiply them, as by a temperature",
            )
        return
    if not negative and tested.same(logits.sum(dim=-1), ones):
        twice = logits.amax() <= math.e * logits.amin()  # shares of shares, which lie between 0 and 1
        raise Failed(
            "none is negative, and each row sums to 1.",
            "a softmax in the model, applied twice. F.cross_entropy has one itself, and is to get neither."
            if twice
            else "",
        )
    if not negative:
        raise Failed("none is negative.", "a sigmoid or a ReLU after the head, which has to give any number.")
    if tested.same(logits.exp().sum(dim=-1), ones):
        raise Failed(
            "none is positive, and the exponentials of each row sum to 1.",
            "log_softmax in the model: these are log-probabilities, for F.nll_loss. F.cross_entropy takes logits.",
            likely="the loss may be F.nll_loss, and F.cross_entropy gives the same of either",
        )
    raise Failed("none is positive.", "a logarithm after the head, as in nn.LogSigmoid, which has to give any number.")


def _stay_below_one(tested: ModelUnderTest) -> bool:
    """Whether it is not seen in the logits that the last linear map, and what is one number, gives a thousandfold."""
    head = next((one for one in reversed(tested.recorded.linear) if one.output.shape[-1] == tested.num_classes), None)
    if head is None or head.weight is None:
        return False
    larger = {id(head.weight)} | {id(p) for p in tested.subject.parameters() if p.numel() == 1}
    with torch.no_grad(), altered(tested.subject, larger, lambda p: 1000 * p):
        recorded, logits = tested.record(tested.subject, tested.shown.detach())
    output = next((one.output for one in reversed(recorded.linear) if one.map == head.map), None)
    grew = output is not None and bool(output.abs().max() > 100 * head.output.detach().abs().max())
    return grew and logits is not None and bool(logits.abs().max() <= 1)


def export_works(tested: ModelUnderTest) -> None:
    skip_if(not tested.export, "--export, or export=True, asks it")
    with torch.no_grad():
        attempt(lambda: torch.export.export(copy_of(tested.model).eval(), (tested.images().float(),)))


def first_loss_is_near_ln_k(tested: ModelUnderTest) -> None:
    skip_if(not tested.untrained, "the model is trained")
    logits = tested.at_start.logits
    loss = (logits.logsumexp(dim=-1) - logits.mean(dim=-1)).mean().item()  # of every label, not of a few by chance
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
    skip_if(not tested.overfit, "--overfit, or overfit=True, asks it, by up to 500 steps of training")
    model, images, labels = tested.copy(training=True), tested.images(), tested.labels()
    for loss in itertools.islice(learned_by_heart(model, images, labels, 3e-3), 500):
        if loss < 0.01:
            return
    raise Failed(f"after 500 steps the loss is still {loss:.2g}.")
