"""A model under examination: copies of it to try things on, and what is known of it."""

import itertools
import math
import textwrap
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from vitbook_workshop.faults.findings import NotAsked, skip_if
from vitbook_workshop.faults.model_wrapper import Taken, copy_of, device_of, fit, in_dtype, is_large, parts_of
from vitbook_workshop.faults.recorders.made_in_forward import Met, drawn_in_forward
from vitbook_workshop.faults.recorders.operations import AttentionSeen, OperationRecorder, matrices
from vitbook_workshop.faults.repeated_blocks import OF_ANY_MODULE, Passing, calls_of, spare

REPEATED = 65_537  # a prime
DROPOUTS = nn.modules.dropout._DropoutNd  # nn.Dropout and its kin


class ModelUnderTest:
    """A model to be asked, and what its owner says of it. All sizes of batch are ones that it takes."""

    def __init__(
        self, model, image_shape, num_classes=None, order_counts=True, untrained=True, overfit=False, export=False
    ):
        fitting = fit(model, image_shape, num_classes)
        self.model, self.image_shape, self.num_classes = fitting.model, image_shape, fitting.num_classes or num_classes
        self.order_counts, self.untrained, self.overfit, self.export = order_counts, untrained, overfit, export
        self.dtype, self.batch, self.error, self.notes = fitting.dtype, fitting.batch, fitting.error, fitting.notes
        self.changes_images, self.at_start = fitting.changes_images, fitting.at_start
        self.large, self.device = is_large(self.model), device_of(self.model)
        self._random = torch.Generator().manual_seed(1)  # the model's own draws change none of what it gets
        self.not_finite = ""  # where its numbers are no longer finite; it is then asked no more
        if not _is_finite(fitting.at_start.logits):
            model, images = self.copy(), self.images()
            self.not_finite, self.batch = where_it_begins(model, lambda: logits_of(model, images), _is_finite), 0
        channels, height, width = image_shape
        stuck = not self.batch and not self.not_finite
        self.turned = stuck and height != width and fit(model, (channels, width, height), num_classes).batch > 0

    def copy(self, training: bool = False, without: Collection[nn.Module] = ()) -> nn.Module:
        """The model as it is; without: those of its blocks that are left out."""
        return in_dtype(copy_of(self.model, without), self.dtype).train(training)

    def shaken(self, training: bool = False, without: Collection[nn.Module] = ()) -> nn.Module:
        """The model with some noise on every parameter, so that no zero, as in a new head, hides anything.

        The wider a layer, the less of it, so that attention stays soft.
        """
        model = self.copy(training, without)
        if isinstance(model, Taken):
            model.whole = training  # what is returned beside the logits is for the loss
        with torch.no_grad():
            for parameter in model.parameters():
                width = math.prod(parameter.shape[1:]) if parameter.ndim in (2, 4) else 1
                parameter.add_(self._noise(*parameter.shape), alpha=min(0.1, 0.5 * width**-0.5))
        return model

    @cached_property
    def subject(self) -> nn.Module:
        """One copy with noise, for the questions that change nothing of it."""
        model = self.shaken().requires_grad_()
        self._own = {id(parameter) for parameter in model.parameters()}
        return model

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self.dtype, generator=self._random).to(self.device)

    def _noise(self, *shape: int) -> Tensor:
        """As `normal`. Of many numbers the first are repeated, in no two rows at one place; to draw all takes long."""
        count = math.prod(shape)
        few = self.normal(min(count, REPEATED))
        return few.repeat(-(-count // max(1, len(few))))[:count].view(shape)

    def images(self, batch: int | None = None) -> Tensor:
        return self.normal(self.batch if batch is None else batch, *self.image_shape)

    def labels(self) -> Tensor:
        return torch.randint(self.num_classes, (self.batch,), generator=self._random).to(self.device)

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors hold the same numbers, but for rounding."""
        if one.shape != other.shape:
            return False
        tolerance = 1e-9 if self.dtype == torch.float64 else 1e-4
        return bool((one - other).abs().max() <= tolerance * other.abs().max().clamp(min=1))

    @cached_property
    def blind(self) -> bool:
        """Whether the logits do not depend on the image, but for rounding."""
        try:
            if self.logits.requires_grad and self.gradients.of_images.any():
                return False
        except RuntimeError:  # from a backward pass that is broken: the numbers have to tell
            pass
        return self.same(self.logits, logits_of(self.subject, self.images()))

    @cached_property
    def place_in_batch_counts(self) -> bool:
        """Whether equal images of one batch get different logits."""
        logits = logits_of(self.brief, self.shown.detach()[:1].expand_as(self.shown).clone())
        return not self.same(logits, logits[:1].expand_as(logits))

    def needs_sight(self) -> None:
        skip_if(self.blind, "the logits do not depend on the image")

    def record(
        self,
        model: nn.Module,
        images: Tensor,
        until_attention: bool = False,
        silent: Collection[tuple[int, int]] = (),
    ) -> tuple[OperationRecorder, Tensor | None]:
        """What was seen of the model's operations, and its logits; or of those up to its first attention, and None.

        silent: maps that give zeros meanwhile.
        """
        recorded, logits = OperationRecorder(images, until_attention, everything=not silent, silent=silent), None
        try:
            with recorded:
                logits = seeded(model, images)
        except Exception:  # of `Enough`, TorchScript makes an error of its own
            if not (until_attention and recorded.attentions):
                raise
        return recorded, logits

    @cached_property
    def shown(self) -> Tensor:
        """The images with which `subject` is watched."""
        return self.images().requires_grad_()

    @cached_property
    def _watched(self) -> tuple[OperationRecorder | Exception, Tensor]:
        """What was seen of the operations of `subject`, or why nothing was, and its logits."""
        lists = list(stacks(self.subject)) if self.large else []
        with calls_of([block for blocks in lists for block in blocks]) as calls:
            try:
                seen = self.record(self.subject, self.shown)
            except Exception as error:
                seen = error, _first(seeded(self.subject, self.shown))
        self._spare = {id(block) for blocks in lists for block in spare(blocks, calls)}
        return seen

    @property
    def recorded(self) -> OperationRecorder:
        """What was seen of the operations of `subject`."""
        seen = self._watched[0]
        if isinstance(seen, Exception):
            raise seen
        return seen

    @cached_property
    def strangers(self) -> list[nn.Parameter]:
        """Parameters to be trained that `subject` calculates with, and that it did not have before."""
        seen = self._watched[0]
        if isinstance(seen, Exception):
            return []
        return [p for i, p in seen.used.items() if i in seen.trained - self._own and p.requires_grad]

    @cached_property
    def strangers_again(self) -> set[int]:
        """Ids of those of another call."""
        with torch.no_grad():
            recorded, _ = self.record(self.subject, self.shown.detach())
        return recorded.used.keys() - self._own

    @property
    def logits(self) -> Tensor:
        """What `subject` gives of `shown`."""
        return self._watched[1]

    @cached_property
    def _shorter(self) -> tuple[nn.Module, OperationRecorder, Tensor, list[nn.Module]] | None:
        """`brief`, what is seen of it and `without`; of a large model that has blocks to spare and runs so."""
        if not self.large:
            return None
        with suppress(Exception):
            shape, parts = self.logits.shape, dict(self.model.named_modules())
            spare = [parts[name] for name, part in self.subject.named_modules() if id(part) in self._spare]
            if not spare:
                return None
            model = self.shaken(without=spare).requires_grad_()
            with torch.no_grad():
                recorded, answer = self.record(model, self.shown.detach())
            if answer is not None and answer.shape == shape:
                return model, recorded, answer, spare
        return None

    @property
    def brief(self) -> nn.Module:
        """For what all blocks have in common: another `subject`, of a large model one `without` its spare blocks."""
        return self._shorter[0] if self._shorter else self.subject

    @property
    def recorded_in_brief(self) -> OperationRecorder:
        """What was seen of the operations of `brief`."""
        return self._shorter[1] if self._shorter else self.recorded

    @cached_property
    def answer(self) -> Tensor:
        """What `brief` gives of `shown`, without a graph."""
        return self._shorter[2] if self._shorter else logits_of(self.subject, self.shown.detach())

    @property
    def without(self) -> list[nn.Module]:
        """Blocks of a large model that differ from others in their numbers alone, and are left out of `brief`."""
        return self._shorter[3] if self._shorter else []

    @cached_property
    def gradients(self) -> "Gradients":
        """Where those of `logits` are not 0."""
        seen = self._watched[0]
        last = [one.queries for one in seen.layers[-1]] if isinstance(seen, OperationRecorder) and seen.layers else []
        return self.gradients_of(self.subject, self.logits, self.shown, *last)

    def gradients_of(self, model: nn.Module, output: Any, images: Tensor, *queries: Tensor) -> "Gradients":
        """Where those of a mixture of its output are not 0, for all that the model's owner means to train.

        Of images, and in float64, where they are no rounding of 0.
        """
        trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        named = {n: p for n, p in model.named_parameters() if n in trained or not trained}
        named = {n: p for n, p in named.items() if "mask_token" not in n and p.numel()}  # the mask's is for pretraining
        outputs = [x for x in tensors_in(output) if x.requires_grad and not x.is_complex()]
        skip_if(not outputs, "its logits carry no gradient")
        mixture = torch.stack([(x * self.normal(*x.shape)).sum() for x in outputs]).sum()
        wanted = [*named.values(), images, *(x for x in queries if x.requires_grad)]
        slopes = torch.autograd.grad(mixture, wanted, allow_unused=True, retain_graph=True)
        some = [None if slope is None else slope.ne(0) for slope in slopes]
        if self.dtype == torch.float64 and (of_images := slopes[len(named)]) is not None:
            largest = max(slope.abs().max() for slope in slopes if slope is not None)
            some[len(named)] = of_images.abs() > 1e-12 * largest
        others = (torch.zeros_like(x).bool() if y is None else y for x, y in zip(wanted, some, strict=True))
        of_images, *of_queries = itertools.islice(others, len(named), None)
        return Gradients(dict(zip(named, some, strict=False)), of_images, of_queries)

    @property
    def attentions(self) -> list[AttentionSeen]:
        """Every attention that the model computes; at least one."""
        skip_if(not self.recorded.attentions, "no attention was seen")
        return self.recorded.attentions

    @cached_property
    def drawn(self) -> list[Met]:
        """What it draws at random in evaluation."""
        return drawn_in_forward(self.subject, self.images().requires_grad_())

    @cached_property
    def in_training(self) -> "TrainingPass":
        """A forward and a backward pass in training mode; then as many more forward as make 200 logits, at most 8."""
        model, images, seen = self.shaken(True, self.without), self.images(), TrainingPass()
        left_out = {id(part) for block in self.without for part in block.modules()}
        seen.called |= {name for name, part in self.model.named_modules() if id(part) in left_out}  # as others are
        with ExitStack() as stack:
            for name, part in model.named_modules():
                if isinstance(part, DROPOUTS):
                    note = partial(lambda name, *_: seen.called.add(name), name)
                    stack.callback(part.register_forward_pre_hook(note).remove)
            try:
                output = seeded(model, images)
            except Exception as error:  # not every model trains on images alone; one that cannot for this reason, never
                seen.error = _said("the forward pass", error) if "place" in str(error) else ""
                return seen
        try:
            trained = [p for p in model.parameters() if p.requires_grad]
            sums = [
                (x * self.normal(*x.shape)).sum() for x in tensors_in(output) if x.requires_grad and not x.is_complex()
            ]
            if sums:
                torch.autograd.grad(torch.stack(sums).sum(), trained, allow_unused=True)
        except Exception as error:
            seen.error = _said("backward", error)
        if isinstance(output, Tensor):
            more = min(8, 200 // output.numel())
            seen.logits = torch.cat([output.detach(), *(logits_of(model, images, 2 + i) for i in range(more))])
            seen.in_evaluation = logits_of(model.eval(), images)
        return seen

    @cached_property
    def attention_seen(self) -> tuple[int, int]:
        """In how many of its blocks attention was recognized, and how many they are: (n, blocks).

        Blocks are what stands in lists of modules of one kind, the outermost ones; without such a list, what is seen.
        """
        looking = {id(seen.weight) for seen in self.attentions_if_any}
        lists = [[{id(p) for p in block.parameters()} for block in stack] for stack in stacks(self.subject)]
        outer = [one for one in lists if not any(set().union(*one) < set().union(*other) for other in lists)]
        attending = [blocks for blocks in outer if any(looking & block for block in blocks)]
        if attending:
            seen = [bool(looking & block) for blocks in attending for block in blocks]
            return sum(seen), len(seen)
        layers = len(self.recorded.layers) if looking else 0
        return layers, max([layers, *map(len, outer)])

    @cached_property
    def changed_rows(self) -> tuple[Tensor, Tensor]:
        """Which rows of the first attention's queries and keys change with the first image: (matrices, T) each."""
        skip_if(self.batch == 1, "the model takes one image at a time")
        other = self.shown.detach().clone()
        other[0] = self.images(1)[0]
        looks = [self.attentions[0], *self.record(self.subject, other, until_attention=True)[0].attentions]
        rows = [[matrices(x.detach()) for x in (look.queries, look.rows_of_keys)] for look in looks]
        queries, keys = ((a - b).abs().amax(-1) > 1e-6 * a.abs().max() for a, b in zip(*rows, strict=True))
        return queries, keys

    @property
    def attends_to_the_batch(self) -> bool:
        """Whether the tokens that attend to one another are one of each image."""
        try:
            queries, _ = self.changed_rows
        except NotAsked:
            return False
        of_first = queries[:, 0] & (queries.sum(1) == 1)  # not so of a class token, which is the same for all
        return queries.shape[1] == self.batch and bool(of_first.float().mean() > 0.5)

    @property
    def keeps_tokens_whole(self) -> bool:
        """Whether no attention tears tokens or hides some; else, what is not read may follow from that."""
        return not any(seen.hides or seen.split is False or seen.joined is False for seen in self.attentions)

    def needs_whole_tokens(self) -> None:
        skip_if(not self.keeps_tokens_whole, "attention does not keep tokens whole, or sees a part of them only")

    @cached_property
    def attentions_if_any(self) -> list[AttentionSeen]:
        try:
            return self.attentions
        except NotAsked:
            return []


@dataclass
class Gradients:
    """Where gradients are not 0."""

    of_parameters: dict[str, Tensor | None]  # by name; None for one that has no part in it
    of_images: Tensor
    of_queries: list[Tensor]  # of the last layer's attentions


@dataclass
class TrainingPass:
    """What came of a model in training mode."""

    error: str = ""  # of the backward pass, or of a forward pass that cannot be trained through
    called: set[str] = field(default_factory=set)  # names of the nn.Dropout modules that were
    logits: Tensor | None = None  # (several batches, K); None where it gives something else
    in_evaluation: Tensor | None = None  # (B, K), of the same images


def _said(what: str, error: Exception) -> str:
    return textwrap.shorten(f"{what} raises {type(error).__name__}: {error}", 240, placeholder=" …")


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists, dictionaries and dataclasses; of one that has logits, these alone."""
    if isinstance(value, Tensor):
        yield from value.unbind() if value.is_nested else [value]
    elif not isinstance(value, str | nn.Module):
        parts = parts_of(value)
        for part in [parts["logits"]] if "logits" in parts else parts.values():
            yield from tensors_in(part)


def seeded(model: nn.Module, x: Tensor, seed: int = 1) -> Tensor:
    """The model's output, with the same random numbers at every call with this seed, in case it draws any."""
    start = torch.default_generator.manual_seed if x.device.type == "cpu" else torch.manual_seed  # of all devices: slow
    with torch.random.fork_rng():
        start(seed)
        return model(x)


def logits_of(model: nn.Module, images: Tensor, seed: int = 1) -> Tensor:
    """Its output without a graph, with the same random numbers at every call with this seed.

    Of a model that gives more in training, the first.
    """
    with torch.no_grad():
        return _first(seeded(model, images, seed))


def _first(output: Any) -> Tensor:
    tensor = next(tensors_in(output), None)
    skip_if(tensor is None, "no tensor is found in what it returns")
    return tensor


@contextmanager
def altered(model: nn.Module, parameters: set[int], alter: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Meanwhile, the parameters of a model with those ids are others. No graph notices."""
    kept = [(p, p.data) for p in model.parameters() if id(p) in parameters]
    try:
        for parameter, data in kept:
            parameter.data = alter(data)
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


def _is_finite(x: Tensor) -> bool:
    """Whether no number is NaN or +inf; −inf a class may get that is left out."""
    return not bool(x.isnan().any() or x.isposinf().any())


@contextmanager
def each_output(model: nn.Module, look: Callable[[str, Any], None]) -> Iterator[None]:
    """Meanwhile, look at what each part of a model gives, under a name such as "norm1 (LayerNorm)"."""
    with ExitStack() as stack:
        for name, part in model.named_modules():
            if name:
                name = f"{name} ({type(part).__name__})"
                hook = part.register_forward_hook(lambda part, got, output, name=name: look(name, output))
                stack.callback(hook.remove)
        yield


def where_it_begins(model: nn.Module, run: Callable[[], Any], is_finite: Callable[[Tensor], bool]) -> str:
    """The first part of a model whose numbers are not finite while it runs, in words."""
    found: list[str] = []

    def look(name: str, output: Any) -> None:
        if not all(is_finite(x) for x in tensors_in(output) if x.is_floating_point()):
            found.append(name)

    with each_output(model, look):
        run()
    return f"it begins in {found[0]}" if found else "it begins in the model's own forward"


def apart(one: Tensor, other: Tensor) -> float:
    """By how much two tensors differ at most."""
    return (one - other).abs().max().item()


def depends(x: Tensor, images: Tensor) -> bool:
    """Whether a gradient reaches the images."""
    if not x.requires_grad:
        return False
    (slope,) = torch.autograd.grad((x * torch.randn_like(x)).sum(), images, allow_unused=True, retain_graph=True)
    return slope is not None and bool(slope.any())


def stacks(model: nn.Module) -> Iterator[list[nn.Module]]:
    """Lists of modules of one kind with matrices in them, such as the blocks."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            children = [part for part in module if not isinstance(part, Passing | None)]
            kinds = {(type(m), tuple(p.shape for p in m.parameters())) for m in children}
            if len(kinds) == 1 < len(children) and sum(p.ndim > 1 for p in children[0].parameters()) > 1:
                yield children


def unregistered(model: nn.Module) -> Iterator[tuple[str, int]]:
    """Attributes that keep something to learn where parameters() does not find it, and how many numbers."""
    registered = {id(parameter) for parameter in model.parameters()}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in OF_ANY_MODULE:
                continue
            lost = {id(x): x for x in _learned_in(value) if id(x) not in registered and not _is_computed(x, registered)}
            if lost:
                yield ".".join(filter(None, [path, name])), sum(x.numel() for x in lost.values())


def _learned_in(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """What can be learned in lists and dictionaries, also of lists and dictionaries, and in modules that they hold."""
    if isinstance(value, nn.Module):
        yield from (parameter for parameter in value.parameters() if parameter.requires_grad)
    elif isinstance(value, Tensor):
        yield from [value] if value.requires_grad else []
    elif depth and isinstance(value, list | tuple | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _learned_in(one, depth - 1)


def _is_computed(x: Tensor, registered: set[int]) -> bool:
    """Whether all that x is computed of, if it is, are registered parameters, as of a weight that hooks compute."""
    reached, ahead, leaves = set(), [x.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node and node not in reached:
            reached.add(node)
            leaves |= {id(node.variable)} if hasattr(node, "variable") else set()
            ahead += [following for following, _ in node.next_functions]
    return bool(leaves) and leaves <= registered


def dropouts(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Where a model keeps the probability of a dropout that is not 0: (name for all blocks, module, attribute)."""
    for name, module in model.named_modules():
        is_dropout = isinstance(module, DROPOUTS) or type(module).__name__.endswith("DropPath")
        notes = [a for a in vars(module) if "drop" in a]
        for attribute in ("p", "drop_prob") if is_dropout else notes:
            rate = getattr(module, attribute, None)
            if not isinstance(rate, float) or not 0 < rate <= 1:
                continue
            if not is_dropout and _is_noted(module, attribute, rate):
                continue
            kind = [part for part in name.split(".") if part and not part.isdigit()] + [attribute] * (attribute != "p")
            yield ".".join(kind), module, attribute


def _is_noted(module: nn.Module, attribute: str, rate: float) -> bool:
    """Whether the rate only stands beside a part that has it; of a drop path's, the blocks may have shares."""
    if getattr(module, "p", None) == rate:
        return True
    inside = [
        (type(part).__name__ + name, value)
        for part in module.modules()
        if part is not module
        for name, value in vars(part).items()
        if isinstance(value, float) and (name == "p" or "drop" in name)
    ]
    of_blocks = "path" in attribute and any("path" in name.lower() and 0 < value <= rate for name, value in inside)
    return of_blocks or any(math.isclose(value, rate, rel_tol=1e-3) for _, value in inside)
