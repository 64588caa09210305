"""Watching the attention that a model computes, whoever wrote it, by looking at torch's own operations as they run.

A product of two activations that goes through a softmax and meets another product is attention, whatever its module is
called. Which token a number belongs to is read off the number: cutting into heads and joining them only move it.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(eq=False)
class AttentionSeen:
    """One attention, as it was computed."""

    width: int  # over how many numbers the dot products of queries and keys run
    factor: float | None  # what they are multiplied by before the softmax; None where learned, normalized or unknown
    sums: Tensor  # of the weights that each output is blended with; all 1, or not
    hides: str  # "later": each query sees itself, the keys before it, and no others; "earlier": those after it
    queries: Tensor  # (..., T, d)
    keys: Tensor
    weight: nn.Parameter | None  # of the linear map that made the queries
    place: int  # where it begins in that parameter, which may hold those of several
    axis: int  # over which the weights sum to 1, or else the softmax runs: −1 keys, −2 queries, −3 heads, −4 the batch
    inputs: int  # of the linear map that made the queries
    layer: int  # how many attentions, one after another, its queries and keys have come through
    of_queries: int  # the same of its queries alone
    peak: float  # the largest weight of a query, on the average
    combined: bool = False  # its weights are made of those of several softmaxes, or multiplied by what is computed
    split: bool | None = None  # the rows of a head are different tokens; None where that cannot be read off
    joined: bool | None = None  # the output projection gets the answers of one query at a time
    projection: nn.Parameter | None = None  # the weight of the output projection
    into: int = 0  # how many numbers its heads, joined, give for a token
    gives: int = 0  # how many one of its heads gives

    @property
    def map(self) -> tuple[int, int]:
        """What tells the map that made the queries from others, as `Origin.map`."""
        return id(self.weight), self.place

    @property
    def rows_of_keys(self) -> Tensor:
        """(..., keys, d): the product has them as columns, torch's kernels as rows."""
        return self.keys.mT if self.keys.shape[-2] == self.width else self.keys

    def without_numbers(self) -> "AttentionSeen":
        """The same, but for its queries and keys, of which the shapes stay, and its parameters."""
        shapes = {name: getattr(self, name).to("meta") for name in ("sums", "queries", "keys")}
        return replace(self, **shapes, weight=None, projection=None)

    @property
    def keys_seen(self) -> int:
        """How many there are."""
        return self.rows_of_keys.shape[-2]


@dataclass(frozen=True)
class Origin:
    """Where a tensor comes from."""

    # "parameter", "linear", "norm", "activation", "sum", "product", "logsumexp", "log_softmax", "exp", "softmax",
    # "blend"; "" for others
    made_by: str = ""
    factor: float | None = 1.0  # the numbers that it was multiplied by since the last linear map; None for unknown
    width: int = 0  # of the vectors that the linear map or the product took
    weight: nn.Parameter | None = None  # itself, or that of the last linear map
    place: int = 0  # where the map's begins in it, which may hold those of several
    fed: "Origin | None" = None  # the input of that map
    output: Tensor | None = None  # of that map, (..., tokens, D)
    operands: tuple[Tensor, ...] = ()  # of the product
    factors: tuple[Tensor, ...] = ()  # that were multiplied number by number; of the last operation alone
    axis: int = -1  # over which the softmax runs
    mixed: bool = False  # weights need not sum to 1: heads are mixed, or a sink takes a part
    combined: bool = False  # or several softmaxes' are added, or what is computed multiplies them
    shares: Tensor | None = None  # what the softmax gave
    gain: nn.Parameter | None = None  # of the norm
    centered: Tensor | None = None  # what something was subtracted from, just before
    squared: bool = False  # squares of activations, as a norm made by hand takes their mean
    learned: bool = False  # made of parameters, and of constants, alone
    constant: bool = False  # made neither of them nor of an image
    step: int = 0  # of the operation that made its numbers; what only moves them is none
    layer: int = 0  # how many attentions, one after another, they have come through

    @property
    def fed_by(self) -> str:
        """What made the input of that map."""
        return self.fed.made_by if self.fed else ""

    @property
    def map(self) -> tuple[int, int]:
        """What tells the last linear map from others."""
        return id(self.weight), self.place


@dataclass(frozen=True)
class NormSeen:
    """One normalization, as it was computed."""

    sizes: tuple[int, ...]  # of the axes that it runs over; of a BatchNorm, how many means and variances it has
    shape: tuple[int, ...]  # of what is normalized
    eps: float | None = None
    correction: float = 0  # variances are divided by the size minus this
    batch_norm: bool = False
    of_batch: bool = False  # by the mean and variance of this batch
    # before any attention: what is normalized, and something computed of each group of its numbers
    before: Tensor | None = None
    after: Tensor | None = None


@dataclass(frozen=True)
class SumSeen:
    """Two tensors of tokens, added."""

    terms: tuple[Origin, Origin]
    step: int
    holds: frozenset[int]  # the earlier sums, by their places in the list, that are a part of it


MOVES = (
    "view _unsafe_view reshape transpose permute t expand unsqueeze squeeze select slice split split_with_sizes unbind "
    "index index_select roll flip neg stack clone _to_copy detach alias chunk contiguous native_dropout unfold "
    "view_as_complex view_as_real copy_ _reshape_alias _conj lift_fresh constant_pad_nd pad"
)
POOLS = "masked_fill masked_fill_ where mean sum amax max avg_pool2d adaptive_avg_pool1d _adaptive_avg_pool2d"
MOVING = set(MOVES.split())
JOINING = {"add", "sub", "mul", "div", "cat", "where"}
KEEPS = MOVING | set(POOLS.split())
ACTIVATIONS = {"gelu", "relu", "silu"}
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "matmul"}
# What learned tokens, such as a class token, go through; other operations make one weight of another
OF_TOKENS = ACTIVATIONS | PRODUCTS - {"mm"} | {"linear", "convolution", "native_layer_norm", "_fused_rms_norm"}


class Enough(Exception):
    """All that was wanted has been seen."""


def made_of_plain(types: tuple[type, ...]) -> bool:
    """Whether an operation takes tensors, such as nested ones, that have it done with plain ones, which can be seen."""
    return any(kind.__torch_dispatch__ is not Tensor.__torch_dispatch__ for kind in types)


class OperationWatch(TorchDispatchMode):
    """Sees operations as they run; those of an nn.TransformerEncoderLayer too, which can run as a single one."""

    def __enter__(self):
        self._at_once = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        return super().__enter__()

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        torch.backends.mha.set_fastpath_enabled(self._at_once)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to hide it from torch.compile, torch would import all of that, for a second

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if made_of_plain(types):
            return NotImplemented
        result = operation(*args, **(kwargs or {}))
        named = dict(zip((a.name for a in operation._schema.arguments), args, strict=False)) | (kwargs or {})
        given = [x for a in args for x in (a if isinstance(a, list | tuple) else [a]) if isinstance(x, Tensor)]
        self.see(operation.overloadpacket.__name__, given, args, named, result)
        return result

    def see(self, name: str, given: list[Tensor], args: tuple, named: dict[str, Any], result: Any) -> None:
        """Called after each operation. given: the tensors among its arguments; named: these by name."""
        raise NotImplementedError


class OperationRecorder(OperationWatch):
    """Inside `with OperationRecorder() as recorded`, every attention that is computed is noted in recorded.attentions.

    images: what the model gets; where they are given, it is known what is made neither of them nor of parameters.
    until_attention: raise `Enough` after the first one. everything: read the tokens of all attentions off their
    numbers, not only those of the first two. silent: maps, as in `Origin.map`, that give zeros meanwhile.
    """

    def __init__(
        self,
        images: Tensor | None = None,
        until_attention: bool = False,
        everything: bool = True,
        silent: Collection[tuple[int, int]] = (),
    ):
        super().__init__()
        self.until_attention, self.everything, self.silent = until_attention, everything, silent
        self.attentions: list[AttentionSeen] = []
        self.linear: list[Origin] = []  # the outputs of all linear maps
        # maps D → M → D, M > D, nothing between; and maps D → M → fewer than M
        self.no_activation: list[tuple[nn.Parameter | None, nn.Parameter | None]] = []
        self.to_fewer: list[tuple[nn.Parameter | None, nn.Parameter | None]] = []
        self.activations_twice = 0  # one right after another
        self.branches_activated = 0  # what is added to the tokens (B, T, D) comes right from an activation
        self.added_twice: set[int] = set()  # sums to which tokens (B, T, D) are added that are a part of them already
        self.norms: list[NormSeen] = []
        self.sums: list[SumSeen] = []  # of tokens
        self.gains: set[int] = set()  # ids of the vectors that multiply normalized tokens
        self.lost: set[str] = set()  # operations that could not be followed
        self.feature_map: Tensor | None = None  # (B, D, H, W), of the last convolution before any attention
        self.used: dict[int, nn.Parameter] = {}  # parameters by id, in the order in which operations take them
        self.trained: set[int] = set()  # ids of those of which gradients come back
        self.steps = 0
        self._parts: dict[int, set[int]] = {}  # sum → what it is the sum of
        self._held: dict[int, frozenset[int]] = {}  # tensor → sums of tokens that are a part of it, by their places
        self._origins: dict[int, tuple[Origin, Tensor]] = {}  # with the tensor, so that no other takes over its id
        self._of_nothing = Origin(constant=images is not None)
        self._batch = 0 if images is None else len(images)
        if images is not None:
            self._origins[id(images)] = Origin(), images
        self._unprojected: list[AttentionSeen] = []
        self._blends: list[tuple[AttentionSeen, Tensor]] = []  # outputs (..., T, D_h) of attention, not yet projected

    def __exit__(self, *error) -> None:
        super().__exit__(*error)
        self._origins.clear()  # they hold every tensor there was
        self._parts.clear()
        self._held.clear()

    def see(self, name: str, tensors: list[Tensor], args: tuple, named: dict[str, Any], result: Any) -> None:
        self.steps, before = self.steps + 1, self.attentions[:]
        try:
            origin = self._origin_of(name, tensors, args, named, result) if tensors else Origin()
        except Enough:
            raise
        except Exception:  # whatever tensors of unknown making may do
            self.lost.add(name)
            origin = Origin()
        squared = name in ("pow", "square") or (name == "mul" and len(tensors) == 2 and tensors[0] is tensors[1])
        centered = tensors[0] if name in ("sub", "sub_") else origin.centered if squared else None
        layer = max((self.origin(x).layer for x in tensors), default=0) + (len(self.attentions) > len(before))
        squared = squared and origin.made_by != "parameter"
        step = origin.step if name in MOVING else self.steps
        of = [self.origin(x) for x in tensors] or [self._of_nothing]
        made = {"constant": all(x.constant for x in of), "learned": name not in OF_TOKENS and self._is_learned(of)}
        origin = replace(origin, layer=layer, step=step, squared=squared, centered=centered, **made)
        if self.silent and self.linear and self.linear[-1].step == self.steps and self.linear[-1].map in self.silent:
            result.zero_()
        held = self._holds(tensors) if name.removesuffix("_") in MOVING | JOINING else frozenset()
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self._origins[id(tensor)] = origin, tensor
                if held:
                    self._held[id(tensor)] = held | self._held.get(id(tensor), frozenset())
                if name.endswith("_") and tensor._base is not None:  # written into a part of it
                    self._origins[id(tensor._base)] = origin, tensor._base

    def _holds(self, tensors: list[Tensor]) -> frozenset[int]:
        return frozenset().union(*(self._held.get(id(x), ()) for x in tensors))

    @property
    def layers(self) -> list[list[AttentionSeen]]:
        """The attentions: in one list those of a layer, which may look at images or heads one by one."""
        layers: dict[tuple[int, int], list[AttentionSeen]] = {}
        for seen in self.attentions:
            layers.setdefault((seen.layer, id(seen.projection)), []).append(seen)
        return list(layers.values())

    def origin(self, x: Any) -> Origin:
        if id(x) in self._origins:
            return self._origins[id(x)][0]
        return Origin("parameter", weight=x, learned=True) if isinstance(x, nn.Parameter) else self._of_nothing

    @staticmethod
    def _is_learned(origins: list[Origin]) -> bool:
        return any(x.learned for x in origins) and all(x.learned or x.constant for x in origins)

    def _origin_of(self, name: str, tensors: list[Tensor], args: tuple, named: dict, result: Any) -> Origin:
        if not name.endswith("_"):  # which begins a parameter
            taken = {id(x): x for x in tensors if isinstance(x, nn.Parameter)}
            self.used |= taken
            self.trained |= taken.keys() if torch.is_grad_enabled() else set()
        main = max(tensors, key=lambda x: (self.origin(x).operands != (), x.numel()))
        if name.startswith("new_") or name.endswith("_like"):
            return Origin()
        if name == "copy_":
            main = tensors[-1]
        else:
            name = name.removesuffix("_")
        origin = self.origin(main)
        self._note_norm(name, main, named, origin, result)
        if name == "sum" and origin.factors:
            return self._summed(*origin.factors, named["dim"], result)
        if name == "masked_fill" and origin.made_by == "linear":
            return replace(origin, made_by="")  # where it is negative, say
        if name in KEEPS:
            return origin
        if name not in OF_TOKENS and (weight := self._computed(tensors, result)):
            return weight
        if name == "cat":
            if len({self.origin(x).made_by for x in tensors}) == 1:
                return origin
            return replace(origin, mixed=True) if origin.operands else replace(origin, made_by="")  # a sink, or others
        if name in ("add", "sub", "mul", "div"):
            origins = [self.origin(x) for x in tensors]
            blend = next((x for x in origins if x.made_by == "blend"), None)
            if blend and len(tensors) == 2 and all(o.made_by == "blend" or o.operands for o in origins):
                for seen in self._unprojected if name in ("mul", "div") else ():
                    seen.sums = torch.ones(1)  # the answers are divided by the sums, at the end or tile by tile
                return blend
        if name in ("add", "sub") and self._mixes(tensors):
            return replace(origin, mixed=True, combined=True)
        if name == "sub" and origin.operands:  # the largest score, for a safe softmax, or the logarithm of the sum
            total = next((x for x in map(self.origin, tensors) if x.made_by == "logsumexp"), None)
            return replace(origin, made_by="log_softmax", axis=total.axis) if total else origin
        if name == "add":
            return self._added(origin, tensors, result)
        if name in ("mul", "div"):
            other = args[1] if main is args[0] else args[0]
            return replace(
                self._scaled(origin, main, other, name == "div", result), factors=_factors(name, main, other)
            )
        if name == "exp" and origin.made_by in ("product", "log_softmax"):
            return replace(origin, made_by="exp" if origin.made_by == "product" else "softmax", shares=result)
        if origin.made_by == "product" and ("softmax" in name or name == "logsumexp"):
            axis = named["dim"][0] if name == "logsumexp" else named["dim"]
            made_by = next(kind for kind in ("logsumexp", "log_softmax", "softmax") if kind in name)
            return replace(origin, made_by=made_by, axis=axis % main.ndim - main.ndim, shares=result)
        if name in PRODUCTS:
            return self._multiplied(*tensors[-2:], named.get("alpha", 1.0), result)
        if name == "linear":
            return self._mapped(main, origin, tensors[1], result, main.shape[-1])
        if name == "convolution":
            x, weight = tensors[:2]
            if result.ndim == 4 and not self.attentions:
                self.feature_map = result
            return self._mapped(x.flatten(2).mT, self.origin(x), weight, result.flatten(2).mT, weight[0].numel())
        if name.startswith("_scaled_dot_product"):
            return self._fused(*tensors[:3], named, result[0])
        if name in ACTIVATIONS and not origin.operands:
            self.activations_twice += origin.made_by == "activation"
            return replace(origin, made_by="activation", factor=None)
        if origin.made_by == "softmax":
            return replace(origin, mixed=True)
        if origin.operands:
            return replace(origin, factor=None)  # scores, bounded or normalized
        if "norm" in name:
            gain = next((x for x in tensors if isinstance(x, nn.Parameter) and x.ndim == 1), None)
            self.gains |= {id(gain)} - {id(None)}
            return replace(origin, made_by="norm", factor=None, gain=gain)
        return replace(origin, made_by="", factor=None)

    def _computed(self, of: list[Tensor], result: Any) -> Origin | None:
        """What is computed of parameters, such as a matrix with rows of length 1: one of them, if it has its size."""
        if not self._is_learned([self.origin(x) for x in of]):
            return None
        result = result[0] if isinstance(result, tuple | list) else result
        alike = (self.origin(x) for x in of if x.numel() == result.numel())
        return next((x for x in alike if x.made_by == "parameter"), None)

    def _mixes(self, terms: list[Tensor]) -> bool:
        """Whether weights of a softmax are added to or subtracted from others, or from what else is computed."""
        made = [self.origin(x).made_by if x.requires_grad else "parameter" for x in terms]
        return "softmax" in made and "parameter" not in made and len(terms) > 1

    def _note_norm(self, name: str, x: Tensor, named: dict, origin: Origin, result: Any) -> None:
        """Remember a normalization of activations, or the variance that a hand-made one computes."""
        shape, result = tuple(x.shape), result[0] if isinstance(result, tuple) else result
        before = x if origin.centered is None else origin.centered
        tensors = {} if self.attentions else {"before": before, "after": result}
        if name in ("native_layer_norm", "_fused_rms_norm"):
            self.norms.append(NormSeen(tuple(named["normalized_shape"]), shape, named.get("eps"), **tensors))
        elif name == "native_group_norm":
            together = shape[1] // named["group"]
            self.norms.append(NormSeen((together, *shape[2:]), shape, named.get("eps"), **tensors))
        elif "batch_norm" in name and shape[0] == 1 < self._batch and not shape[1] % self._batch:
            each = (self._batch, shape[1] // self._batch, *shape[2:])  # as torch computes an instance norm
            self.norms.append(NormSeen(shape[2:], each))
        elif "batch_norm" in name:
            training = bool(named.get("training")) and "no_training" not in name
            self.norms.append(NormSeen(shape[1:2], shape, batch_norm=True, of_batch=training))
        elif name in ("var", "std", "var_mean", "std_mean") and named.get("keepdim") and origin.made_by != "parameter":
            axes = [axis % x.ndim for axis in named.get("dim") or range(x.ndim)]
            correction = named.get("correction", 1 if named.get("unbiased", True) else 0)
            correction = 1 if correction is None else correction
            self.norms.append(NormSeen(tuple(shape[i] for i in axes), shape, correction=correction, **tensors))
        elif (name == "mean" and named.get("keepdim") and origin.squared) or (
            name == "linalg_vector_norm" and named.get("keepdim") and len(shape) == 3 and not origin.learned
        ):
            axes = [axis % x.ndim for axis in named.get("dim") or range(x.ndim)]
            self.norms.append(NormSeen(tuple(shape[i] for i in axes), shape, **tensors))

    def _added(self, origin: Origin, terms: list[Tensor], result: Tensor) -> Origin:
        """x + y: a bias, a mask or positions on attention scores, a residual, or the halves of a rotation."""
        if origin.operands:
            return replace(origin, mixed=origin.mixed or origin.made_by == "exp")  # 1 + the sum, which divides them
        if any(isinstance(x, nn.Parameter) and x.ndim == 1 for x in terms):
            return replace(origin, output=_rows(result)) if origin.made_by == "linear" else origin
        factor = next((f for x in terms if (f := self.origin(x).factor) != 1.0), 1.0)
        alike = len(terms) == 2 and terms[0].shape == terms[1].shape
        if alike and self._holds_tokens(result, *terms):
            self._held[id(result)] = frozenset({len(self.sums)})
            self.sums.append(SumSeen((self.origin(terms[0]), self.origin(terms[1])), self.steps, self._holds(terms)))
            self.branches_activated += any(self.origin(x).made_by == "activation" for x in terms)
            own = [set() if self.origin(x).learned else {id(x)} for x in terms]
            one, other = (self._parts.get(id(x), set()) | mine for x, mine in zip(terms, own, strict=True))
            self.added_twice |= {id(result)} if one & other else set()
            self._parts[id(result)] = one | other
            joined = next((x for x in terms if self.origin(x).made_by == "blend"), None)
            if joined is not None:
                self._projected(joined, None)
        return replace(origin, made_by="sum" if alike else "", factor=factor)

    def _holds_tokens(self, result: Tensor, *terms: Tensor) -> bool:
        """Whether it is (B, T, D), or, after an attention, (T, D), (B · T, D) or a map (B, D, H, W)."""
        if result.ndim == 3:
            return True
        after = any(self.origin(x).layer for x in terms)
        return after and (result.ndim == 4 or len(result) % self.attentions[0].queries.shape[-2] == 0)

    def _scaled(self, origin: Origin, x: Tensor, other: Any, divided: bool, result: Tensor) -> Origin:
        """x · y or x / y: a scale, a gain, a normalization, or half of a rotation."""
        if origin.made_by == "exp" and isinstance(other, Tensor) and self.origin(other).made_by == "exp":
            axes = [i - x.ndim for i in range(x.ndim) if other.shape[i] == 1 < x.shape[i]]
            mixed = origin.mixed or self.origin(other).mixed
            return replace(origin, made_by="softmax", axis=axes[0] if axes else -1, mixed=mixed, shares=result)
        if origin.made_by == "softmax":  # the sums of the weights will tell, but of a gate
            gated = isinstance(other, Tensor) and other.requires_grad and not divided
            return replace(origin, mixed=True, combined=True) if gated else origin
        if not isinstance(other, Tensor) or other.ndim == 0:
            if origin.made_by == "sum" and other == (2 if divided else 0.5):
                self.added_twice.discard(id(x))  # the mean of two streams
            learned = origin.factor is None or (isinstance(other, Tensor) and other.requires_grad)
            return replace(origin, factor=None if learned else origin.factor * float(other) ** (-1 if divided else 1))
        if origin.operands or (isinstance(other, nn.Parameter) and other.ndim == 1):
            if origin.made_by == "norm":
                self.gains.add(id(other))
            return replace(origin, factor=None, gain=other if origin.made_by == "norm" else origin.gain)
        of_all = divided and other.ndim == x.ndim and any(o == 1 < n for o, n in zip(other.shape, x.shape, strict=True))
        if of_all or other.shape[-1] == 1 or other.stride(-1) == 0:  # one number for each token, or for each channel
            return replace(origin, made_by="norm", factor=None)
        constant = not other.requires_grad or self.origin(other).factor == 1.0
        return replace(origin, made_by="", factor=origin.factor if constant else None)

    def _multiplied(self, left: Tensor, right: Tensor, alpha: float, result: Tensor) -> Origin:
        """A product of matrices: a linear map, attention scores, or a blend of values."""
        a, b = self.origin(left), self.origin(right)
        if b.made_by == "parameter" != a.made_by:
            return self._mapped(left, a, right, result, left.shape[-1])
        if a.made_by == "parameter" != b.made_by:
            return self._mapped(right.mT, b, left, result.mT, left.shape[-1])
        if a.made_by == b.made_by == "parameter":
            return Origin()
        if b.constant != a.constant:  # a fixed map, such as one drawn at random once
            return replace(a if b.constant else b, made_by="", factor=None)
        if a.operands and (of := _weights(a, left)):
            return self._blended(of, left, right, b, result)
        if b.operands and (of := _weights(b, right.mT)):
            return self._blended(of, right.mT, left.mT, a, result.mT)
        factor = None if None in (a.factor, b.factor) else a.factor * b.factor * alpha
        return Origin("product", factor, left.shape[-1], a.weight, a.place, a.fed, operands=(left, right))

    def _summed(self, one: Tensor, other: Tensor, axes: list[int], result: Tensor) -> Origin:
        """A product of matrices, or of a vector and a matrix, by numbers that were multiplied one by one."""
        axes = [axis % one.ndim - one.ndim for axis in axes]
        left, right = (one, other) if one.shape[-axes[0] - 3] == 1 or self.origin(one).operands else (other, one)
        a, b = self.origin(left), self.origin(right)
        whole = left.ndim > 2 and right.shape[-3] == 1 < left.shape[-3]  # not of one query alone
        if axes == [-2] and left.shape[-1] == 1 and a.operands and (of := _weights(a, left[..., 0])):
            if whole:
                return self._blended(of, left[..., 0], right.squeeze(-3), b, result)
            return self._blended(of, left.mT, right, b, result[..., None, :])
        if axes == [-1] and left.shape[-2] == 1 and None not in (a.weight, b.weight) and not a.operands:
            factor = None if None in (a.factor, b.factor) else a.factor * b.factor
            rows = (left.squeeze(-2), right.squeeze(-3)) if whole else (left, right)
            return Origin("product", factor, left.shape[-1], a.weight, a.place, a.fed, operands=rows)
        return Origin()

    def _blended(self, origin: Origin, weights: Tensor, values: Tensor, of_values: Origin, result: Tensor) -> Origin:
        sums = {axis: weights.sum(dim=axis, dtype=torch.float64) for axis in range(-1, -weights.ndim - 1, -1)}
        if weights.element_size() == 2:
            sums = {axis: sum.round(decimals=2) for axis, sum in sums.items()}  # weights of 8 or 11 bits
        axis = next((axis for axis, sum in sums.items() if torch.allclose(sum, torch.ones_like(sum))), None)
        if axis is None or (axis < -2 and weights.ndim < 4):
            axis = _shared_out_over(origin, weights)
            if axis == -3 == -weights.ndim and len(weights) == self._batch:
                axis = -4  # a head alone, of all images
        sums = {-1: torch.ones(1)} if origin.mixed else sums
        seen = self._seen(
            origin.factor,
            sums[-1],
            hidden_side(weights == 0),
            *origin.operands,
            axis,
            weights.amax(-1) / (weights.sum(-1) if origin.made_by == "exp" else 1),
        )
        seen.combined = origin.combined
        return self._noted(seen, values, of_values, result)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, named: dict, result: Tensor) -> Origin:
        """torch's own kernels, which form neither scores nor weights."""
        a, b = self.origin(q), self.origin(k)
        scale = named.get("scale") or q.shape[-1] ** -0.5
        factor = None if None in (a.factor, b.factor) else a.factor * b.factor * scale
        mask = named.get("attn_mask", named.get("attn_bias"))
        hides = "later" if named.get("is_causal") else "" if mask is None else hidden_side(mask.isneginf())
        scores = scale * matrices(q)[0] @ matrices(k)[0].mT  # of one head
        seen = self._seen(factor, torch.ones(1), hides, q, k, -1, scores.softmax(-1).amax(-1))
        return self._noted(seen, v, self.origin(v), result)

    def _seen(
        self, factor: float | None, sums: Tensor, hides: str, q: Tensor, k: Tensor, axis: int, peaks: Tensor
    ) -> AttentionSeen:
        a, layer = self.origin(q), max(self.origin(q).layer, self.origin(k).layer)
        peak = peaks.detach().float().mean().item()
        of = a.weight, a.place, axis, a.width, layer, a.layer
        return AttentionSeen(q.shape[-1], factor, sums, hides, q, k, *of, peak)

    def _noted(self, seen: AttentionSeen, values: Tensor, origin: Origin, result: Tensor) -> Origin:
        if origin.made_by == "linear" and origin.output is not None and (self.everything or len(self.attentions) < 2):
            tokens = token_of(matrices(values)[-1], [origin.output])
            if tokens is not None and one_in_each_row(tokens):
                seen.split = len(tokens.mode(dim=-1).values.unique()) == len(tokens)
        seen.gives = values.shape[-1]
        self.attentions.append(seen)
        self._unprojected.append(seen)
        if self.until_attention:
            raise Enough
        if seen.split:
            self._blends.append((seen, result))
        return Origin("blend", width=values.shape[-1])

    def _mapped(self, x: Tensor, origin: Origin, weight: Tensor, output: Tensor, width: int) -> Origin:
        """A linear map of x (..., tokens, D), whose origin is given. width: how many numbers each output is made of."""
        if origin.operands and x.numel() == math.prod(origin.operands[0].shape[:-1]) * origin.operands[1].shape[-1]:
            return replace(origin, factor=None, mixed=origin.made_by == "softmax")  # scores or weights of all heads
        parameter = self.origin(weight).weight
        follows = origin.made_by == "linear" and origin.width < width == x.shape[-1]
        if follows and origin.width == output.shape[-1]:
            self.no_activation.append((origin.weight, parameter))
        elif follows and width > output.shape[-1] and origin.output is not None and origin.weight is not None:
            if origin.output.shape[-1] == width and origin.weight.ndim == weight.ndim == 2:
                self.to_fewer.append((origin.weight, parameter))
        if origin.made_by == "blend":
            self._projected(x, parameter)
        place = 0 if parameter is None else weight.storage_offset() - parameter.storage_offset()
        self.linear.append(Origin("linear", 1.0, width, parameter, place, origin, output, step=self.steps))
        return self.linear[-1]

    def _projected(self, joined: Tensor, parameter: nn.Parameter | None) -> None:
        """The answers of the last attentions have been joined, and go through a map or to the tokens."""
        for seen in self._unprojected:
            seen.projection, seen.into = parameter, joined.shape[-1]
        self._unprojected.clear()
        if self._blends and parameter is not None:
            tokens = token_of(joined, [result for _, result in self._blends])
            for seen, _ in self._blends:
                seen.joined = None if tokens is None else one_in_each_row(tokens)
        self._blends.clear()


def _factors(name: str, x: Tensor, other: Any) -> tuple[Tensor, ...]:
    """Both, where a sum of what was multiplied may be a product of matrices, (…, T, 1, d) · (…, 1, T, d) say."""
    alike = name == "div" or not isinstance(other, Tensor) or other.ndim != x.ndim or other.shape == x.shape
    return () if alike else (x, other)


def _weights(origin: Origin, x: Tensor) -> Origin | None:
    """The origin of attention weights x (…, T), by its making or by its numbers; None for other scores."""
    sums = x.sum(-1)
    made = origin.made_by in ("softmax", "exp") or (
        bool((x >= 0).all()) and torch.allclose(sums, torch.ones_like(sums))
    )
    return origin if made else None


def _shared_out_over(origin: Origin, weights: Tensor) -> int:
    """What the softmax's axis holds, whatever its layout, by where its numbers stand in the weights (…, T_q, T_k)."""
    given = origin.shares
    if given is None or given.shape == weights.shape:
        return origin.axis
    for line in given.movedim(origin.axis, -1).reshape(-1, given.shape[origin.axis])[:50]:
        places = [(weights == number).nonzero() for number in line[:2]]
        if [len(place) for place in places] != [1, 1]:  # they were changed, or others are the same
            continue
        step = (places[1] - places[0])[0]
        axis = int(step.nonzero()[-1]) - weights.ndim
        if axis != -3 or weights.ndim > 3:
            return axis
        return -3 if step[0] == 1 and len(line) < len(weights) else -4  # (B·h, T_q, T_k): an image's heads in a row
    return origin.axis


def _rows(x: Tensor) -> Tensor:
    """(..., tokens, D) as one matrix; a single vector has one row."""
    return x.reshape(-1, x.shape[-1])


def matrices(x: Tensor) -> Tensor:
    """(..., T, D) as matrices (n, T, D), of which one alone may be all."""
    return x.reshape(-1, *x.shape[-2:])


def token_of(x: Tensor, outputs: list[Tensor]) -> Tensor | None:
    """Of which token of the outputs (..., tokens, D) each number of x is a part; None where x holds other numbers."""
    numbers, order = torch.cat([y.detach().flatten() for y in outputs]).sort()
    tokens = torch.cat([torch.arange(y.shape[-2], device=y.device)[:, None].expand(y.shape).flatten() for y in outputs])
    x = x.detach().contiguous()
    places = torch.searchsorted(numbers, x).clamp(max=len(numbers) - 1)
    moved = (numbers[places] == x).float().mean() > 0.9
    distinct = (numbers[1:] != numbers[:-1]).float().mean() > 0.9
    return tokens[order][places] if moved and distinct else None


def one_in_each_row(tokens: Tensor) -> bool:
    """Whether a row holds numbers of one token; a few may be equal by chance."""
    return (tokens == tokens.mode(dim=-1, keepdim=True).values).float().mean().item() > 0.75


def hidden_side(hidden: Tensor) -> str:
    """Which keys are hidden from each query, and no others: "later" ones, "earlier" ones, or ""; (..., T_q, T_k).

    A query from which every key is hidden by a large number, in place of −inf, sees all of them.
    """
    if min(hidden.shape[-2:]) < 3 or hidden.shape[-1] != hidden.shape[-2]:
        return ""
    every, mirrored = torch.ones_like(hidden), hidden.flip(-2, -1)
    if torch.equal(hidden, every.triu(1)):
        return "later"
    itself_too = torch.equal(mirrored[..., 1:, :], every.triu()[..., 1:, :])
    return "earlier" if itself_too or torch.equal(mirrored, every.triu(1)) else ""


def attentions_of(call: Callable[[], object]) -> list[AttentionSeen]:
    """Every attention that is computed during a call."""
    with OperationRecorder() as recorded:
        call()
    return recorded.attentions


def is_right_scale(seen: AttentionSeen) -> bool:
    """Whether the dot products are divided by √ of what they run over."""
    return math.isclose(seen.factor, seen.width**-0.5, rel_tol=1e-4)
