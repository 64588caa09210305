"""A model beside one that should compute the same: the same weights in both, the place where they part, and why.

Weights are matched by name and shape where those are the same, else by shape, in the order in which they are used.
"""

import itertools
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from unittest.mock import patch

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook._common.suggestions import listed
from vitbook.pretrained import load_pretrained, load_weights
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.findings import Finding
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES, make_mistakes
from vitbook_workshop.faults.model_under_test import ModelUnderTest, apart, each_output, logits_of, seeded
from vitbook_workshop.faults.recorders.operations import OperationRecorder, attentions_of

WHERE = "15_pretrained.ipynb#the-whole-model"
ACTIVATIONS = {  # what may stand in the place of F.gelu
    "the tanh form of GELU": (F.gelu, "tanh"),
    "GELU by erf": (F.gelu, "none"),
    "x · sigmoid(1.702 x)": (lambda x: x * torch.sigmoid(1.702 * x),),
    "ReLU": (F.relu,),
}
THIRDS = ("queries", "keys", "values")
INTERLEAVED = {"(h d three) ...": "number by number", "(h three d) ...": "head by head"}
ORDERS = list(itertools.permutations(range(3)))  # the usual one first


def compare(
    model: nn.Module, reference: nn.Module, image_shape: tuple[int, int, int], num_classes: int, name: str
) -> Finding:
    """Whether a model gives the logits of a reference with the same weights; where not, since which module, and why.

    Both are left as they are. name: the reference's, for the report.

    Raises ValueError where one of them does not run on the images, or the shapes of their logits differ.
    """
    sure = "certain", "both were run on the same images"
    asked = "same_as_the_reference", f"with the same weights, it gives the logits of {name}"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tested = ModelUnderTest(model, image_shape, num_classes)
        if not tested.batch:
            raise ValueError(f"the model does not run: {tested.error}")
        images = tested.images()
        mine, expected = _trace(tested.subject, images)
        epsilon, usual, also = _epsilon(model), _epsilon(reference), ""
        if None not in (epsilon, usual) and epsilon != usual:
            also = f"ε is {epsilon:g} in its LayerNorms, and {usual:g} in the other's."
        best, agreed, tolerance = None, -1, 1e-5 if tested.dtype == torch.float64 else 1e-3
        for twin in _twins(tested.subject, reference, images, name):
            theirs, logits = _trace(twin.model, images)
            if logits.shape != expected.shape:
                shapes = f"{tuple(logits.shape)}, and those of the model {tuple(expected.shape)}"
                raise ValueError(f"the logits of {name} have the shape {shapes}")
            if tested.same(logits, expected):
                return Finding(*asked, "passed", where=WHERE)
            if also:
                twin = Twin(_with_epsilon(twin.model, epsilon), twin.left_over)
                theirs, aligned = _trace(twin.model, images)
                if tested.same(aligned, expected):
                    by = apart(logits, expected) / expected.std().item()
                    details = f"The logits are up to {by:.2g} standard deviations apart."
                    return Finding(*asked, "FAILED", details, also, _NORM, "likely", "the difference is a small one")
            known = [_is_known(output, [other for _, other in theirs], tolerance) for _, output in mine]
            if sum(known) > agreed:
                best, agreed, parting = twin, sum(known), _parting(mine, known)
                by = apart(logits, expected) / expected.std().item()
        details = f"{parting} The logits are up to {by:.2g} standard deviations apart."
        if best.left_over:
            count, names = len(best.left_over), listed(best.left_over)
            details += f" {count} parameters of the reference have no counterpart: {names}."
        for cause, where, logits in _explanations(tested, best.model, images):
            if tested.same(logits, expected):
                return Finding(*asked, "FAILED", details, f"{cause} {also}".strip(), where, *sure)
    cause = "what stands between those two; no known mistake makes just this difference."
    return Finding(*asked, "FAILED", details, f"{cause} {also}".strip(), WHERE, *sure)


# The same weights


@dataclass(frozen=True)
class Twin:
    """The reference with the model's weights."""

    model: nn.Module
    left_over: tuple[str, ...] = ()  # parameters of the reference without a counterpart in the model


def _twins(model: nn.Module, reference: nn.Module, images: Tensor, name: str) -> Iterator[Twin]:
    """The reference with the model's weights, in each way in which they can be meant."""
    reference = deepcopy(reference).to(images).eval()
    ours, theirs = ({n: p.detach() for n, p in m.named_parameters()} for m in (model, reference))
    if {n: p.shape for n, p in ours.items()} == {n: p.shape for n, p in theirs.items()}:
        yield Twin(_filled(reference, ours, False))
        return
    try:
        used = [_in_order_of_use(m, images) for m in (model, reference)]
    except Exception as error:  # the reference is anybody's too
        raise ValueError(f"{name} does not run on these images: {error}") from None
    fused = [any(map(_is_fused, side.values())) for side in used]
    cut = fused[0] != fused[1]  # one matrix makes queries, keys and values here, and three do there
    for order, channels_last in itertools.product(ORDERS if cut else ORDERS[:1], (False, True)):
        ours = _pieces(used[0], cut and fused[0], order)
        theirs = _pieces(used[1], cut and fused[1], order)
        waiting: dict[tuple, list[Tensor]] = {}
        for _, x in ours:
            waiting.setdefault(_shape(x), []).append(x)
        found: dict[str, list[Tensor]] = {}
        for key, x in theirs:
            if waiting.get(_shape(x)):
                found.setdefault(key, []).append(waiting[_shape(x)].pop(0))
        whole = {}
        for key, parts in found.items():
            if len(parts) == 3:  # back from their own order into that of the fused matrix
                parts = [parts[order.index(i)] for i in range(3)]
            whole[key] = torch.cat(parts) if len(parts) > 1 else parts[0]
        twin = _filled(reference, whole, channels_last)
        yield Twin(twin, tuple(key for key in used[1] if key not in whole))


def _in_order_of_use(model: nn.Module, images: Tensor) -> dict[str, Tensor]:
    with OperationRecorder() as recorded:
        seeded(model, images)
    place = {key: i for i, key in enumerate(recorded.used)}
    named = sorted(model.named_parameters(), key=lambda item: place.get(id(item[1]), len(place)))
    return {name: p.detach() for name, p in named}


def _is_fused(weight: Tensor) -> bool:
    return weight.ndim == 2 and weight.shape[0] == 3 * weight.shape[1]


def _pieces(weights: dict[str, Tensor], cut: bool, order: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    """Each parameter by name; fused ones, and their biases, in thirds, in this order."""
    makers = {name.rpartition(".")[0] for name, x in weights.items() if _is_fused(x)}
    for name, x in weights.items():
        if cut and name.rpartition(".")[0] in makers and len(x) % 3 == 0:
            thirds = x.chunk(3)
            yield from ((name, thirds[i]) for i in order)
        else:
            yield name, x


def _shape(x: Tensor) -> tuple[int, ...]:
    """Without axes of 1, and with a kernel's (D, C, P, P) as (D, CPP)."""
    shape = tuple(x.squeeze().shape)
    return (shape[0], x.numel() // shape[0]) if len(shape) > 2 else shape


@torch.no_grad()
def _filled(reference: nn.Module, weights: dict[str, Tensor], channels_last: bool) -> nn.Module:
    """channels_last: a matrix that stands for a convolution has its inputs as (P, P, C)."""
    twin = deepcopy(reference)
    for name, place in twin.named_parameters():
        if name not in weights:
            continue
        x = weights[name]
        if channels_last and x.ndim == 4 > place.ndim:
            x = rearrange(x, "d c p q -> d p q c")
        if channels_last and place.ndim == 4 > x.ndim:
            x = rearrange(x, "d (p q c) -> d c p q", p=place.shape[2], q=place.shape[3])
        place.copy_(x.reshape(place.shape))
    return twin


# Where they part


def _trace(model: nn.Module, images: Tensor) -> tuple[list[tuple[str, Tensor]], Tensor]:
    """What each module gives, in the order in which they end, and the logits."""
    outputs: list[tuple[str, Tensor]] = []

    def keep(name: str, output: object) -> None:
        x = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(x, Tensor) and x.is_floating_point():
            outputs.append((name, _summary(x)))

    with each_output(model, keep):
        return outputs, logits_of(model, images)


def _summary(x: Tensor) -> Tensor:
    """Of a tensor, and of its thirds, what no layout changes: how many numbers, and what they are on the whole."""
    x = x.detach().double()
    parts = [x, *x.chunk(3, dim=-1)] if x.ndim and x.shape[-1] % 3 == 0 else [x]
    return torch.stack(
        [torch.stack([x.new_tensor(y.numel()), y.mean(), y.abs().mean(), y.std(), y.min(), y.max()]) for y in parts]
    )


def _is_known(output: Tensor, others: list[Tensor], tolerance: float) -> bool:
    """Whether an output, or each of its thirds, is among others or their thirds."""
    known = torch.cat([*others, output.new_zeros(0, output.shape[1])])

    def among(one: Tensor) -> bool:
        near = (known - one).abs() <= tolerance * one[2]
        return bool((near.all(dim=1) & (known[:, 0] == one[0])).any())

    return among(output[0]) or (len(output) == 4 and all(map(among, output[1:])))


def _parting(mine: list[tuple[str, Tensor]], known: list[bool]) -> str:
    """The last module whose output the reference has too, and the next one."""
    last = max((i for i, agrees in enumerate(known) if agrees), default=-1)
    after = next((name for name, _ in mine[last + 1 :]), "the logits")
    if last < 0:
        return f"They part at once: the output of {after}, the first module, is none of the reference's."
    return f"They agree up to the output of {mine[last][0]}, and part before that of {after}."


# Why


def _explanations(tested: ModelUnderTest, twin: nn.Module, images: Tensor) -> Iterator[tuple[str, str, Tensor]]:
    """What may be wrong, where to read about it, and the logits of the reference if it had just that."""
    for name, (activation, *form) in ACTIVATIONS.items():

        def instead(x, approximate="none", activation=activation, form=form):
            return activation(x, approximate=form[0]) if form else activation(x)

        with patch("torch.nn.functional.gelu", instead):
            yield f"its activation is {name}.", _GELU, logits_of(twin, images)
    for order in ORDERS[1:]:
        names = ", ".join(THIRDS[i] for i in order)
        turned = _reordered(twin, lambda x, order=order: torch.cat([x.chunk(3)[order.index(i)] for i in range(3)]))
        cause = f"the fused matrix is cut into {names}; it makes queries, keys, values in this order."
        yield cause, _QKV, logits_of(turned, images)
    for axes, how in INTERLEAVED.items():
        cause = f"queries, keys and values are taken from the fused matrix {how}; it makes all queries first."
        for h in {seen.inputs // seen.width for seen in tested.attentions_if_any} - {0}:
            back = f"{axes} -> (three h d) ..."
            turned = _reordered(twin, lambda x, back=back, h=h: rearrange(x, back, three=3, h=h))
            yield cause, _QKV, logits_of(turned, images)
    ours = _of_this_package(tested, twin, images)
    if ours is None:
        return
    for count in (1,) if tested.large else (1, 2):
        for names in itertools.combinations(IN_A_VIT, count):
            wrong = deepcopy(ours)
            make_mistakes(wrong, *names)
            try:
                logits = logits_of(wrong, images)
            except (RuntimeError, ValueError, AttributeError):
                continue  # a mistake that these sizes do not admit
            made = [MISTAKES[name] for name in names]
            cause = " And ".join(f"“{mistake.title}”. {mistake.cause}" for mistake in made)
            yield cause, made[0].where, logits


_NORM = "08_encoder.ipynb#layernorm-by-hand"
_GELU = "15_pretrained.ipynb#two-kinds-of-gelu"
_QKV = "04_multihead.ipynb#all-heads-from-one-linear-map"


def _with_epsilon(model: nn.Module, epsilon: float) -> nn.Module:
    model = deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = epsilon
    return model


def _epsilon(model: nn.Module) -> float | None:
    return next((module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)), None)


@torch.no_grad()
def _reordered(model: nn.Module, order: Callable[[Tensor], Tensor]) -> nn.Module:
    """A copy whose fused matrices have their rows in another order."""
    model = deepcopy(model)
    weights = dict(model.named_parameters())
    makers = {name.rpartition(".")[0] for name, x in weights.items() if _is_fused(x)}
    for name, x in weights.items():
        if name.rpartition(".")[0] in makers and len(x) % 3 == 0:
            x.copy_(order(x.clone()))
    return model


def _of_this_package(tested: ModelUnderTest, twin: nn.Module, images: Tensor) -> VisionTransformer | None:
    """The reference as a model of this package, if its weights are in a known layout and give the same logits."""
    if isinstance(twin, VisionTransformer):
        return twin
    state = {name: x.detach() for name, x in twin.named_parameters()}
    heads = [seen.inputs // seen.width for seen in attentions_of(lambda: logits_of(twin, images)) if seen.inputs]
    try:
        ours = load_pretrained(state, num_heads=heads[0], image_size=tuple(images.shape[2:])).model.to(images)
        load_weights(ours, state)  # in their own precision
    except (ValueError, IndexError, RuntimeError):
        return None
    ours = _with_epsilon(ours, _epsilon(twin) or 1e-6)
    return ours if tested.same(logits_of(ours, images), logits_of(twin, images)) else None
