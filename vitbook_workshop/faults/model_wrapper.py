"""Anybody's model made ready to be asked: images (B, C, H, W) in, logits (B, K) out, however its forward has them."""

import contextlib
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from types import CellType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.overrides import TorchFunctionMode

from vitbook_workshop.faults.findings import skip_if
from vitbook_workshop.faults.recorders.operations import AttentionSeen, OperationRecorder, OperationWatch
from vitbook_workshop.faults.repeated_blocks import Passing
from vitbook_workshop.faults.whose_error import in_one_line

BATCHES = (3, 2, 4, 5, 8, 16, 32, 64, 1)  # tried in this order; a wrong model may take one size only
LARGE = 2_000_000  # parameters; above that, questions are asked in float32 and of fewer images
_HALVES = (torch.bfloat16, torch.float16)


class Unfit(ValueError):
    """What stands in the way of asking a model anything, in one line."""


@dataclass
class AtStart:
    """What was seen of a model as it is, once."""

    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    layers: list[list[AttentionSeen]] = field(default_factory=list)  # its attentions, without their numbers
    error: Exception | None = None  # why no operation could be watched


@dataclass
class Fit:
    """A model that gives logits (B, K) of images, and how it had to be taken; else batch is 0 and error says why."""

    model: nn.Module
    dtype: torch.dtype = torch.float32
    batch: int = 0  # a number of images that it takes
    num_classes: int = 0
    error: str = ""
    changes_images: bool = False  # its forward writes into the images that it is given
    notes: list[str] = field(default_factory=list)  # for its owner
    at_start: AtStart = field(default_factory=AtStart)


class Taken(nn.Module):
    """A model whose forward is not images in, logits out, in such a way that it is. Its parts keep their names."""

    def __init__(self, model: nn.Module, num_classes: int | None, one_by_one: bool, instead: "Instead | None"):
        super().__init__()
        self.model, self.num_classes, self.one_by_one, self.instead = model, num_classes, one_by_one, instead
        self.clones, self.detaches, self.note, self.plain = False, False, "", not one_by_one and not instead
        self.whole = False  # whether to give all that its forward returns

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        return self.model.named_modules(memo, prefix, remove_duplicate)

    def get_submodule(self, target: str) -> nn.Module:
        return self.model.get_submodule(target)

    def forward(self, images: Tensor) -> Any:
        with self.instead or contextlib.nullcontext():
            images = images.clone() if self.clones else images
            images = images.detach() if self.detaches else images
            if self.one_by_one:
                return torch.cat([self._logits(self.model(image), 1) for image in images])
            return self.model(images) if self.whole else self._logits(self.model(images), len(images))

    def _logits(self, output: Any, batch: int) -> Any:
        if self.one_by_one and isinstance(output, Tensor) and output.ndim == 1:
            output = output[None]
        self.plain &= isinstance(output, Tensor)
        try:
            logits, note = logits_in(output, batch, self.num_classes, self.training)
        except Unfit:
            skip_if(self.training, "in training mode it gives no logits")
            raise
        self.note = self.note or note
        return logits


def logits_in(output: Any, batch: int, num_classes: int | None, training: bool = False) -> tuple[Tensor, str]:
    """The logits (B, K) in what a forward returns, and a note if there is more. In training, of several the first.

    Raises Unfit where there are none, or several that could be meant.
    """
    wanted = f"logits should have the shape ({batch}, {num_classes or 'K'})"
    if isinstance(output, Tensor):
        named = {"": output}
    else:
        named = {str(name): x for name, x in parts_of(output).items() if isinstance(x, Tensor)}
        named = {"logits": named["logits"]} if "logits" in named else named
    real = {name: x for name, x in named.items() if x.ndim == 2 and not x.is_complex()}
    fit = {name: x for name, x in real.items() if x.shape == (batch, num_classes or x.shape[1])}
    whole = [name for name, x in fit.items() if not x.is_floating_point()]
    if whole:
        raise Unfit(f"{wanted} and numbers with a fraction, got {fit[whole[0]].dtype}: an argmax in forward?")
    if len(fit) == 1 or (fit and training):
        name, logits = next(iter(fit.items()))
        return logits, f"of what forward returns, a {type(output).__name__}, {name!r} is taken" if name else ""
    if isinstance(output, Tensor):
        raise Unfit(f"{wanted}, got {tuple(output.shape)}")
    shapes = ", ".join(f"{name!r} {tuple(x.shape)}" for name, x in named.items()) or "no tensor"
    several = "several do; " if fit else ""
    raise Unfit(
        f"{wanted}, got a {type(output).__name__} with {shapes}; {several}return the logits alone, or under 'logits', "
        "as a subclass can whose forward takes them out of super().forward(images)"
    )


def parts_of(output: Any) -> dict[Any, Any]:
    """What a tuple, list, dict, namedtuple, dataclass or another object holds, by name or place."""
    if isinstance(output, Mapping):
        return dict(output)
    if hasattr(output, "_fields"):
        return dict(zip(output._fields, output, strict=True))
    if isinstance(output, tuple | list):
        return dict(enumerate(output))
    return dict(getattr(output, "__dict__", {}))


class Instead(TorchFunctionMode):
    """Meanwhile, what asks for CUDA gets the CPU, and what asks for 16 bits gets another precision."""

    def __init__(self, dtype: torch.dtype | None, cpu: bool):
        super().__init__()
        self.dtype, self.cpu = dtype, cpu

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if self.cpu and name == "cuda" and args:
            return args[0]
        if self.dtype and name in ("bfloat16", "half"):
            return args[0].to(self.dtype)
        named = {key: self._changed(value) for key, value in (kwargs or {}).items()}
        return func(*map(self._changed, args), **named)

    def _changed(self, x: Any) -> Any:
        if self.cpu and isinstance(x, str | torch.device) and str(x).startswith("cuda"):
            return "cpu"
        return self.dtype if self.dtype and isinstance(x, torch.dtype) and x in _HALVES else x


class _Rounds(OperationWatch):
    """Notes whether float64 is cast to float32 on the way."""

    seen = False

    def see(self, name, given, args, named, result) -> None:
        if name == "_to_copy" and result.dtype == torch.float32:
            self.seen |= given[0].dtype == torch.float64 and given[0].numel() > 1


def copy_of(model: nn.Module, without: Collection[nn.Module] = ()) -> nn.Module:
    """A copy, also of a model that keeps what came of its last run, or what cannot be copied and is then shared.

    Functions that it keeps, and that know a part of it, know the copy's. without: blocks that are left out; what they
    would get goes on.
    """
    memo: dict[int, Any] = {id(block): Passing() for block in without}
    functions: list[FunctionType] = []
    for module in model.modules():
        for name, value in vars(module).items():
            if type(value) is OrderedDict and not value:  # hooks, mostly; deepcopy takes them apart one by one
                memo[id(value)] = OrderedDict()
            elif name not in ("_parameters", "_buffers", "_modules"):
                _keep(value, memo, functions)
    for function in functions:
        cells = tuple(CellType() for _ in function.__closure__ or ())
        named = function.__name__, function.__defaults__, cells
        memo[id(function)] = twin = FunctionType(function.__code__, function.__globals__, *named)
        twin.__kwdefaults__ = function.__kwdefaults__
        vars(twin).update(vars(function))
    copy = deepcopy(model, memo)
    for function in functions:
        for cell, of in zip(memo[id(function)].__closure__ or (), function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # of a cell that is empty yet
                cell.cell_contents = memo.get(id(of.cell_contents), of.cell_contents)
    return copy


def _keep(value: Any, memo: dict[int, Any], functions: list[FunctionType]) -> None:
    """Remember what stands in a copy for what deepcopy cannot copy, and which functions know other things."""
    if isinstance(value, Tensor):
        if not value.is_leaf:
            memo[id(value)] = value.detach().clone()
    elif isinstance(value, list | tuple | set):
        for one in value:
            _keep(one, memo, functions)
    elif isinstance(value, dict):
        for one in value.values():
            _keep(one, memo, functions)
    elif isinstance(value, FunctionType) and value.__closure__:
        functions.append(value)
    elif not isinstance(value, nn.Module | str | int | float | type | Callable | None):
        try:
            deepcopy(value)
        except Exception:
            memo[id(value)] = value


def in_dtype(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The model, its numbers cast in place; complex ones, such as rotations, stay complex, as they do not by `to`."""
    return model._apply(lambda x: x.to(dtype) if x.is_floating_point() else x)


def inner(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """The model inside what compiles it or spreads it over devices, and a note of that."""
    notes: list[str] = []
    while True:
        if hasattr(model, "_orig_mod"):
            model, said = model._orig_mod, "it is compiled; what was compiled is examined"
        elif isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model, said = model.module, "the model inside DataParallel is examined"
        else:
            return model, notes
        notes.append(said)


def is_lazy(x: Tensor) -> bool:
    return isinstance(x, UninitializedParameter | UninitializedBuffer)


def is_large(model: nn.Module) -> bool:
    return sum(p.numel() for p in model.parameters() if not is_lazy(p)) > LARGE


def device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))


def _on_cpu(model: nn.Module) -> bool:
    return device_of(model).type == "cpu"


def filled(model: nn.Module, image_shape: tuple[int, ...]) -> nn.Module:
    """A copy whose lazy parameters have their shapes; the model itself if it has none.

    Raises Unfit where it does not run.
    """
    if not any(map(is_lazy, itertools.chain(model.parameters(), model.buffers()))):
        return model
    error = None
    for batch in BATCHES:
        copy = deepcopy(model).eval()
        try:
            with torch.no_grad():
                copy(torch.randn(batch, *image_shape))
            return copy.train(model.training)
        except (Exception, SystemExit) as stop:
            error = error or stop
    raise Unfit(in_one_line(error)) from None


def fit(model: nn.Module, image_shape: tuple[int, ...], num_classes: int | None) -> Fit:
    """Find how a model can be asked: in which precision, in batches of which size, and where its logits are.

    image_shape: (C, H, W); num_classes: as many as it has logits if not given. The model stays as it is. A small model
    is asked in float64 if it can, so that rounding hides nothing.
    """
    model, notes = inner(model)
    try:
        _refuse_at_sight(model)
        model = filled(model, image_shape)
    except Unfit as error:
        return Fit(model, error=str(error), notes=notes)
    first = Fit(model, notes=notes)
    for way in (dict(), dict(instead=True), dict(one_by_one=True)):
        if "instead" in way and not _asks_for_another(first.error):
            continue
        found = _fit(model, image_shape, num_classes, **way)
        first.error = first.error or found.error
        if found.batch:
            found.notes = notes + found.notes
            return found
    return first


def fits(model: nn.Module, image_shape: tuple[int, ...]) -> bool:
    """Whether a model, as it is, takes one or a few images of this shape."""
    model = copy_of(inner(model)[0]).eval()
    images = torch.randn(8, *image_shape)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    for some in (images[:2], images[:1], images, images[0]):
        with contextlib.suppress(Exception, SystemExit), torch.no_grad(), Instead(None, cpu=_on_cpu(model)):
            model(some.to(device_of(model), dtype))
            return True
    return False


def _asks_for_another(error: str) -> bool:
    """Whether an error is about another device or 16 bits."""
    words = ("BFloat16", "Half", "bfloat16", "float16", "CUDA", "cuda", "NVIDIA")
    return any(word in error for word in words)


def _refuse_at_sight(model: nn.Module) -> None:
    """Raises Unfit where no image needs to be tried."""
    if any(x.is_meta for x in itertools.chain(model.parameters(), model.buffers())):
        raise Unfit("it is on the meta device, where parameters have shapes and no numbers; build it on the CPU")
    if isinstance(model, torch.jit.ScriptModule):
        raise Unfit("it is a ScriptModule, which cannot be looked inside; name the module that it was made of")
    try:
        takes = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return
    if not takes:
        raise Unfit("its forward takes nothing; expected images (B, C, H, W)")
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    more = [one.name for one in takes[1:] if one.default is one.empty and one.kind not in starred]
    if more and takes[0].kind not in starred:
        names = " and ".join(more)
        raise Unfit(f"its forward needs {names} beside the images; give {names} a default, or wrap it in a module")


def _fit(model, image_shape, num_classes, one_by_one: bool = False, instead: bool = False) -> Fit:
    """One way to ask it, tried in each precision and size of batch."""
    large, errors, rounded = is_large(model), {}, None
    batches = sorted(BATCHES, key=lambda batch: batch != 2) if large else BATCHES
    for dtype in (torch.float32, torch.float64) if large else (torch.float64, torch.float32):
        try:
            other = Instead(dtype, cpu=_on_cpu(model)) if instead else None
            taken = Taken(in_dtype(copy_of(model), dtype), num_classes, one_by_one, other).eval()
        except Exception as error:
            errors.setdefault(dtype, f"copying it stops with {in_one_line(error)}")
            continue
        for batch in batches[:1] if one_by_one else batches:
            images = torch.randn(batch, *image_shape, dtype=dtype).to(device_of(taken))
            before = images.clone()
            try:
                start = _watched(taken, images)
            except (Exception, SystemExit) as error:
                ends = "forward ends Python by " * isinstance(error, SystemExit)
                errors.setdefault(dtype, str(error) if isinstance(error, Unfit) else ends + in_one_line(error))
                continue
            if start.logits.device != images.device:
                return Fit(model, error=f"it moves to {start.logits.device} by itself, from {images.device}")
            found = _found(model, taken, start, images, not torch.equal(images, before))
            if dtype == torch.float64 and _rounds(taken.eval(), before):
                rounded = found
                break
            return found
    return rounded or Fit(model, error=errors.get(torch.float32) or next(iter(errors.values())))


def _watched(model: nn.Module, images: Tensor) -> AtStart:
    with torch.no_grad():
        try:
            with OperationRecorder(images, everything=False) as recorded:
                logits = model(images)
        except Exception as error:  # of the model, which stops again, or of watching it
            return AtStart(model(images), [], error)
    return AtStart(logits, [[seen.without_numbers() for seen in layer] for layer in recorded.layers])


def _found(model: nn.Module, taken: Taken, at_start: AtStart, images: Tensor, changes_images: bool) -> Fit:
    """What `fit` returns of a copy that has been tried."""
    taken.train()
    for some in (images[:1], images) if is_large(model) else (images,):
        with contextlib.suppress(Exception, SystemExit), torch.no_grad():
            taken(some)  # may return more in training
            break
    logits = at_start.logits
    notes = [taken.note] * bool(taken.note)
    if taken.one_by_one:
        notes.append("its forward takes one image (C, H, W), and is asked image by image")
    if taken.instead:
        cpu = " on the CPU" * taken.instead.cpu
        notes.append(f"it asks for CUDA or 16 bits of its own accord; here it runs{cpu} in {logits.dtype}")
    detaches = not _takes_gradients(taken.eval(), images)
    if detaches:
        notes.append("it takes no images that require a gradient, as numpy does not, and gets others")
    if not taken.plain or changes_images or detaches:
        model, given = Taken(model, taken.num_classes or logits.shape[1], taken.one_by_one, taken.instead), model
        model.train(given.training)
        model.clones, model.detaches = changes_images, detaches
    return Fit(model, logits.dtype, len(logits), logits.shape[1], "", changes_images, notes, at_start)


def _takes_gradients(model: nn.Module, images: Tensor) -> bool:
    """Whether images that require a gradient go through, too."""
    try:
        with torch.enable_grad():
            model(images[:1].clone().requires_grad_())
    except Exception as error:
        return "requires grad" not in str(error)
    return True


def _rounds(model: nn.Module, images: Tensor) -> bool:
    """Whether float64 is cast to float32 on the way."""
    with contextlib.suppress(Exception), torch.no_grad(), _Rounds() as rounds:
        model(images)
        return rounds.seen
    return False
