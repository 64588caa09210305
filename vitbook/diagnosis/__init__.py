"""What ails a Vision Transformer: what must hold of any, tried on a model of the reader's own.

`diagnose` prints the report; `examine` gives it as a list. The model is only looked at: everything is tried on copies.
"""

import itertools
import math
import textwrap
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.diagnosis.watching import Look, is_right_scale, watched
from vitbook.mistakes import IN_A_VIT, MISTAKES, broken_vit
from vitbook.patches import HybridEmbedding
from vitbook.vit import VisionTransformer


@dataclass(frozen=True)
class Finding:
    """What one question to a model came to."""

    name: str  # of the function that asks
    about: str  # what must hold
    result: str  # "passed", "FAILED" or "not asked"
    details: str = ""  # what was seen, or why it was not asked
    suspect: str = ""  # what the failure suggests
    where: str = ""  # the section that explains it, as a link from another chapter


class NotAsked(Exception):
    """A question that makes no sense for this model, and why."""


def diagnose(
    model: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    num_classes: int | None = None,
    *,
    order_counts: bool = True,
    untrained: bool = True,
    overfit: bool = False,
) -> None:
    """Ask a model all that can be asked of one, and print what holds, what does not, and what that suggests.

    model: any module that makes scores (B, K) of pictures (B, C, H, W); image_shape: (C, H, W) and num_classes: K, both
    needed unless the model is a `VisionTransformer`. order_counts: whether the model is meant to know where its patches
    are; untrained: whether it is as it was initialised; overfit: whether to see, too, if it can learn a few pictures
    by heart, which takes up to 500 steps of training.
    """
    findings = examine(model, image_shape, num_classes, order_counts, untrained, overfit)
    for finding in findings:
        reason = f": {finding.details}" if finding.result == "not asked" else ""
        print(_wrapped(f"{finding.result:<9}  {finding.about}{reason}", 11))
        if finding.result == "FAILED":
            print(_wrapped(f"{'':11}{finding.details}", 11))
            print(_wrapped(f"{'':11}Suspect: {finding.suspect}", 11))
            print(f"{'':11}Read chapters/{finding.where}")
    failed = sum(finding.result == "FAILED" for finding in findings)
    asked = sum(finding.result != "not asked" for finding in findings)
    print(f"\n{failed} of {asked} failed." if failed else f"\nNothing found in {asked} questions.")


def examine(
    model: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    num_classes: int | None = None,
    order_counts: bool = True,
    untrained: bool = True,
    overfit: bool = False,
) -> list[Finding]:
    """The report of `diagnose`, as a list. The same arguments.

    Raises ValueError where the form of the pictures or the number of classes is neither given nor known, and
    RuntimeError under `python -O`, in which no question can be asked.
    """
    if not __debug__:
        raise RuntimeError("the questions are assert statements, which python -O leaves out: run without -O")
    if isinstance(model, VisionTransformer):
        image_shape = image_shape or (model.config.channels, *model.config.image_size)
        num_classes = model.config.num_classes if num_classes is None else num_classes
    if image_shape is None or len(image_shape) != 3 or not num_classes:
        raise ValueError(
            f"diagnose needs image_shape (C, H, W) and num_classes, got {image_shape} and {num_classes}; "
            "a model without a head has no scores to ask about"
        )
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        case = Case(model, tuple(image_shape), num_classes, order_counts, untrained, overfit)
        return [ask(question, case) for question in QUESTIONS]


class Case:
    """A model to be asked, and what is known of it. All sizes of batch are ones that it takes."""

    def __init__(self, model, image_shape, num_classes, order_counts=True, untrained=True, overfit=False):
        self.model, self.image_shape, self.num_classes = model, image_shape, num_classes
        self.order_counts, self.untrained, self.overfit = order_counts, untrained, overfit
        self.device = device_of(model)
        self.dtype, self.batch, self.error = runs_on(model, image_shape, num_classes)
        channels, height, width = image_shape
        self.turned = not self.batch and runs_on(model, (channels, width, height), num_classes)[1] > 0

    def copy(self, training: bool = False) -> nn.Module:
        """The model as it is."""
        return deepcopy(self.model).to(self.dtype).train(training)

    def shaken(self, training: bool = False) -> nn.Module:
        """The model with some noise on every parameter, so that no zero, as in a new head, hides anything."""
        model = self.copy(training)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(self.normal(*parameter.shape), alpha=0.1)
        return model

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=self.dtype).to(self.device)

    def images(self, batch: int | None = None) -> Tensor:
        return self.normal(self.batch if batch is None else batch, *self.image_shape)

    def labels(self) -> Tensor:
        return torch.randint(self.num_classes, (self.batch,)).to(self.device)

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors of scores are the same, but for rounding."""
        tolerance = 1e-9 if self.dtype == torch.float64 else 1e-4
        return one.shape == other.shape and torch.allclose(one, other, rtol=tolerance, atol=tolerance)

    def looks(self) -> list[Look]:
        """Every attention that the model computes."""
        model, images = self.shaken(), self.images()
        try:
            return watched(lambda: model(images))
        except Exception as error:  # an operation that cannot be watched
            raise NotAsked(f"its attention cannot be watched ({type(error).__name__})") from None


def runs_on(model: nn.Module, image_shape: tuple[int, ...], num_classes: int) -> tuple[torch.dtype, int, str]:
    """A dtype and a size of batch that the model takes, float64 if it can; if none, 0 and what it says in float32."""
    said: dict[torch.dtype, str] = {}
    device = device_of(model)
    for dtype, batch in itertools.product((torch.float64, torch.float32), (3, 2, 4, 5, 8, 16, 32, 64, 1)):
        try:
            scores = deepcopy(model).to(dtype).eval()(torch.randn(batch, *image_shape, dtype=dtype).to(device))
        except Exception as error:
            said.setdefault(dtype, f"{type(error).__name__}: {error}")
            continue
        if isinstance(scores, Tensor) and scores.shape == (batch, num_classes):
            return dtype, batch, ""
        found = tuple(scores.shape) if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
        said.setdefault(dtype, f"scores should have the shape {(batch, num_classes)}, got {found}")
    return torch.float32, 0, said[torch.float32]


def device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@dataclass(frozen=True)
class Question:
    """Something that must hold, and what to think where it does not."""

    ask: Callable[[Case], None]  # raises AssertionError with what was seen, and a better suspect and where if there is
    about: str
    suspect: str
    where: str


QUESTIONS: list[Question] = []


def question(about: str, suspect: str, where: str) -> Callable[[Callable], Callable]:
    """Put what is defined below into `QUESTIONS`."""

    def register(ask: Callable[[Case], None]) -> Callable[[Case], None]:
        QUESTIONS.append(Question(ask, about, suspect, where))
        return ask

    return register


def ask(question: Question, case: Case) -> Finding:
    """One question's answer. A model that cannot be run is asked nothing but whether it can."""
    name, result, details = question.ask.__name__, "passed", ""
    suspect, where = question.suspect, question.where
    try:
        if not case.batch and question.ask not in (scores_come_out, height_comes_first):
            raise NotAsked("the model does not run")
        question.ask(case)
    except NotAsked as reason:
        result, details = "not asked", str(reason)
    except AssertionError as seen:
        details, *better = seen.args or ("an assertion in the model does not hold.",)
        result, (suspect, where) = "FAILED", better or (suspect, where)
    except Exception as error:  # whatever a model of unknown making may do
        result, details = "not asked", f"asking stops with {type(error).__name__}: {error}"
    return Finding(name, question.about, result, details, suspect, where)


def attempt(run: Callable[[], Any]) -> Any:
    """What `run` returns; an error of the model's is a failed assertion."""
    try:
        return run()
    except Exception as error:
        raise AssertionError(textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")) from None


# The form of things


@question(
    "pictures (B, C, H, W) go in, and scores (B, K) come out",
    suspect="height and width exchanged, a size fixed at some number, a head for other classes, or more than the scores"
    " returned.",
    where="09_vit.ipynb#the-four-equations-together",
)
def scores_come_out(case: Case) -> None:
    assert case.batch, textwrap.shorten(case.error, 300, placeholder=" …")


@question(
    "height comes before width",
    suspect="height and width have changed places where the picture is cut or the positions are counted.",
    where="06_patches.ipynb#how-many-and-how-long",
)
def height_comes_first(case: Case) -> None:
    if case.image_shape[1] == case.image_shape[2]:
        raise NotAsked("these pictures are square")
    if not case.batch and not case.turned:
        raise NotAsked("the model does not run")
    height, width = case.image_shape[1:]
    assert not case.turned, f"it does not run on {height}×{width} pictures, and does on {width}×{height}."


@question(
    "any number of pictures makes a batch",
    suspect="a class token or positions with the batch size in their shape; they should be (1, …) and expand.",
    where="07_embedding.ipynb#a-token-that-speaks-for-the-picture",
)
def every_batch_size_will_do(case: Case) -> None:
    model = case.shaken()
    for batch in (1, 2, 5):
        scores = attempt(lambda batch=batch: model(case.images(batch)))
        assert scores.shape == (batch, case.num_classes), f"for {batch} pictures the scores are {tuple(scores.shape)}."


@question(
    "in float64 it calculates in float64",
    suspect="a tensor made inside forward without dtype and device of x, or kept as a plain attribute: use"
    " register_buffer, or x.new_zeros and the like.",
    where="07_embedding.ipynb#four-ways-to-say-where",
)
def float64_works(case: Case) -> None:
    if case.device.type == "mps":
        raise NotAsked("this device has no float64")
    model = deepcopy(case.model).double().eval()
    scores = attempt(lambda: model(case.images().double()))
    assert scores.dtype == torch.float64, f"the scores are {scores.dtype}."


# What depends on what


@question(
    "other pictures get other scores",
    suspect="a class token that never sees the patches, as under attention over the batch, or a head that reads"
    " something else.",
    where="07_embedding.ipynb#a-token-that-speaks-for-the-picture",
)
def pictures_count(case: Case) -> None:
    assert not _is_blind(case), "all pictures get the same."


@question(
    "in evaluation, the same picture gets the same scores",
    suspect="F.dropout, which does not know of eval(): use nn.Dropout or pass training=self.training.",
    where="08_encoder.ipynb#dropout-and-where-it-goes",
)
def evaluation_is_deterministic(case: Case) -> None:
    model, images = case.shaken(), case.images()
    assert case.same(model(images), model(images)), "two calls gave different scores."


@question(
    "in evaluation, a picture's scores do not depend on the others in its batch",
    suspect="attention over the batch (nn.MultiheadAttention and nn.TransformerEncoder without batch_first=True), a"
    " softmax over dim=0, a reshape that mixes pictures, or batch statistics.",
    where="09_vit.ipynb#one-picture-does-not-touch-another",
)
def pictures_do_not_mix(case: Case) -> None:
    if case.batch == 1:
        raise NotAsked("the model takes one picture at a time")
    if _is_blind(case):
        raise NotAsked("the scores do not depend on the picture")
    model, images = case.shaken(), case.images()
    others = torch.cat([images[:1], case.images()[1:]])
    one, other = (_seeded(model, batch)[0] for batch in (images, others))
    assert case.same(one, other), "the first picture's scores changed with the other pictures."


@question(
    "every token belongs to one rectangle of the picture",
    suspect="a picture cut by view or reshape alone: the axes have to be exchanged before they are joined.",
    where="06_patches.ipynb#view-does-not-cut",
)
def a_token_is_a_rectangle(case: Case) -> None:
    model, images = case.shaken(), case.images().requires_grad_()
    tokens = _first_tokens(model, images)
    if tokens is None:
        raise NotAsked("no part of the model gives the tokens")
    token = tokens[0, tokens.shape[1] // 2]
    (slope,) = torch.autograd.grad((token * torch.linspace(-1, 2, len(token)).to(token)).sum(), images)
    seen = slope[0] != 0  # (C, H, W)
    if not seen.any():
        raise NotAsked("the token in the middle is not one of the picture")
    rows, columns = seen.any(dim=2).any(dim=0), seen.any(dim=1).any(dim=0)
    assert (seen == (_filled(rows)[:, None] & _filled(columns))).all(), "a token is made of scattered pixels."


@question(
    "the order of the patches counts",
    suspect="positions are missing, or they are added to something that is thrown away (dropout on x instead of x +"
    " positions).",
    where="07_embedding.ipynb#a-bag-of-patches",
)
def order_counts(case: Case) -> None:
    if not case.order_counts:
        raise NotAsked("it is not meant to")
    assert not _knows_no_order(case), "exchanging patches leaves the scores as they are."


@question(
    "the order of the patches does not count",
    suspect="something knows where a patch is: positions, a reshape that mixes tokens, or a convolution over them.",
    where="06_patches.ipynb#a-bag-of-patches",
)
def order_does_not_count(case: Case) -> None:
    if case.order_counts:
        raise NotAsked("it is meant to")
    assert _knows_no_order(case), "every exchange of patches changes the scores."


@question(
    "permute the tokens before a block, and they come out permuted",
    suspect="view(B, h, T, D_h) without a transpose, or heads joined without one: tokens get mixed up.",
    where="04_multihead.ipynb#cutting-queries-keys-and-values-into-heads",
)
def blocks_know_no_order(case: Case) -> None:
    model = case.shaken()
    seen = {}
    blocks = [block for blocks in _stacks(model) for block in blocks]
    for block in blocks:
        block.register_forward_hook(lambda block, inputs, output: seen.update({block: (inputs, output)}))
    _seeded(model, case.images())
    asked = [b for b, (x, y) in seen.items() if len(x) == 1 and isinstance(y, Tensor) and x[0].shape == y.shape]
    asked = [block for block in asked if seen[block][1].ndim == 3]
    if not asked:
        raise NotAsked("no list of blocks (B, T, D) → (B, T, D) in it")
    for block in asked:
        x = case.normal(*seen[block][1].shape)
        if not case.same(block(x), block(x)):
            raise NotAsked("they are random")
        order = torch.arange(x.shape[1]).roll(1)
        assert case.same(block(x[:, order]), block(x)[:, order]), "other tokens come out."


# Attention, as it is computed


@question(
    "each query's weights sum to 1",
    suspect="a softmax over the queries (dim=-2) or the batch (dim=0) instead of the keys (dim=-1), or weights changed"
    " after the softmax: scaled, or masked.",
    where="01_attention.ipynb#all-queries-at-once-by-matrices",
)
def weights_sum_to_one(case: Case) -> None:
    looks = _asked_looks(case)
    wrong = sum(not torch.allclose(look.sums, torch.ones_like(look.sums), atol=1e-4) for look in looks)
    assert not wrong, f"in {wrong} of {len(looks)} attentions they do not."


@question(
    "dot products are divided by √ of what they run over, D_h",
    suspect="no scale, √D for √D_h, times in place of over, a scale after the softmax or twice; or heads never split.",
    where="02_scale.ipynb#which-d",
)
def scores_are_scaled(case: Case) -> None:
    for look in _asked_looks(case):
        assert is_right_scale(look), (
            f"they run over {look.width} numbers, which asks for 1/√{look.width} = {look.width**-0.5:.3f}; before the "
            f"softmax they are multiplied by {look.factor:.3f}."
        )


# Parameters


@question(
    "every parameter has a part in the scores",
    suspect="a layer that is made and never called, such as an output projection, a last LayerNorm or positions.",
    where="04_multihead.ipynb#what-w_o-is-for",
)
def parameters_play_a_part(case: Case) -> None:
    model = case.shaken()
    scores = _seeded(model, case.images())
    names, parameters = zip(*((n, p) for n, p in model.named_parameters() if p.requires_grad), strict=True)
    slopes = torch.autograd.grad((scores * case.normal(*scores.shape)).sum(), parameters, allow_unused=True)
    idle = [
        name for name, slope in zip(names, slopes, strict=True) if slope is None or (slope.ndim > 1 and not slope.any())
    ]
    assert not idle, f"no gradient reaches {', '.join(idle[:4])}{' …' if len(idle) > 4 else ''}."


@question(
    "every dropout acts",
    suspect="a probability that nothing reads.",
    where="01_attention.ipynb#dropout-on-the-weights",
)
def dropouts_act(case: Case) -> None:
    places = list(_dropouts(case.model))
    if not places:
        raise NotAsked("there is none")
    for kind in dict.fromkeys(_kind(place) for place in places):
        model, images = case.shaken(training=True), case.images()
        for name, attribute in _dropouts(model):
            setattr(model.get_submodule(name), attribute, 0.5 if _kind((name, attribute)) == kind else 0.0)
        assert not case.same(model(images), model(images)), f"{kind} changes nothing in training."


@question(
    "the blocks start with different weights",
    suspect="blocks copied from one, by copy.deepcopy or by nn.TransformerEncoder: draw their weights anew.",
    where="08_encoder.ipynb#the-encoder",
)
def blocks_start_different(case: Case) -> None:
    if not case.untrained:
        raise NotAsked("the model is trained")
    stacks = [stack for stack in _stacks(case.model) if len(stack) > 1]
    if not stacks:
        raise NotAsked("no list of blocks in it")
    for one, other in (pair for stack in stacks for pair in itertools.pairwise(stack)):
        pairs = [(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True) if p.ndim > 1]
        assert not all(torch.equal(p, q) for p, q in pairs), "two blocks have the same weights."


# Scores and losses


@question(
    "scores are no probabilities",
    suspect="a softmax in the model. F.cross_entropy has one itself; twice, the loss cannot come near 0.",
    where="10_training.ipynb#how-wrong-is-an-answer",
)
def scores_are_no_probabilities(case: Case) -> None:
    scores = _seeded(case.shaken(), case.images())
    ones = torch.ones_like(scores[:, 0])
    assert (scores < 0).any() or not torch.allclose(scores.sum(dim=-1), ones, atol=1e-4), "the rows sum to 1."


@question(
    "the first loss is near ln K",
    suspect="a head or tokens that start too large: a last LayerNorm that is missing, weights drawn too wide.",
    where="10_training.ipynb#the-first-loss-is-ln-k",
)
def first_loss_is_near_ln_k(case: Case) -> None:
    if not case.untrained:
        raise NotAsked("the model is trained")
    loss = F.cross_entropy(_seeded(case.copy(), case.images()), case.labels()).item()
    expected = math.log(case.num_classes)
    assert abs(loss - expected) < 1.5, f"it is {loss:.1f}, and ln {case.num_classes} = {expected:.1f}."


@question(
    "a few pictures can be learned by heart",
    suspect="anything that hinders learning: a softmax before the loss, a part without gradient, a scale that leaves no"
    " slope.",
    where="10_training.ipynb#the-loop-bare",
)
def one_batch_can_be_learned(case: Case) -> None:
    if not case.overfit:
        raise NotAsked("overfit=True asks it, by up to 500 steps of training")
    model, images, labels = case.copy(training=True), case.images(), case.labels()
    for name, attribute in _dropouts(model):
        setattr(model.get_submodule(name), attribute, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []
    while not losses or (losses[-1] >= 0.01 and len(losses) < 500):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.01, f"after {len(losses)} steps the loss is still {losses[-1]:.2g}."


@question(
    "it is Equations 1 to 4",
    suspect="several mistakes at once, or one that has no name yet. Mend what is named above, and ask again.",
    where="09_vit.ipynb#the-four-equations-together",
)
def equations_hold(case: Case) -> None:
    if not isinstance(case.model, VisionTransformer) or isinstance(case.model.embedding.patch_embed, HybridEmbedding):
        raise NotAsked("not built of this book's parts; so a second GELU, say, or a variance over D − 1 cannot be seen")
    model, images = case.shaken(), case.images()
    expected = _seeded(model, images)

    def agrees(*mistakes: str) -> bool:
        twin = broken_vit(case.model.config, *mistakes).to(images).eval()
        ours, theirs = ({n: x.shape for n, x in m.state_dict().items()} for m in (model, twin))
        if ours != theirs:
            return False
        twin.load_state_dict(model.state_dict())
        return case.same(_seeded(twin, images), expected)

    if agrees():
        return
    likely = [MISTAKES[name] for name in IN_A_VIT if agrees(name)]
    if likely:
        names, causes = (" Or: ".join(said) for said in zip(*((f"“{m.title}”", m.cause) for m in likely), strict=True))
        raise AssertionError(f"it does what a model does with {names}.", causes, likely[0].where)
    raise AssertionError("it is neither those nor any one of the known mistakes.")


# Tools


def _seeded(model: nn.Module, x: Tensor) -> Tensor:
    """The model's output, with the same random numbers at every call, in case it draws any."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return model(x)


def _stacks(model: nn.Module) -> Iterator[list[nn.Module]]:
    """Lists of modules of one kind with matrices in them: the blocks."""
    for module in model.modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            children = list(module)
            alike = {(type(m), tuple(p.shape for p in m.parameters())) for m in children}
            if len(alike) == 1 and sum(p.ndim > 1 for p in children[0].parameters()) > 1:
                yield children


def _first_tokens(model: nn.Module, images: Tensor) -> Tensor | None:
    """What the first part gives whose output is one of tokens or a map of them. → (B, T, D)."""
    tokens: list[Tensor] = []
    maps: list[Tensor] = []

    def keep(module: nn.Module, inputs: tuple, output: Any) -> None:
        if isinstance(output, Tensor) and output.requires_grad and output.ndim in (3, 4) and module is not model:
            (tokens if output.ndim == 3 else maps).append(output)

    hooks = [module.register_forward_hook(keep) for module in model.modules()]
    model(images)
    for hook in hooks:
        hook.remove()
    found = [x for x in (*tokens, *(x.flatten(2).mT for x in maps)) if len(x) == len(images) and x.shape[1] > 1]
    return found[0] if found else None


def _filled(line: Tensor) -> Tensor:
    """A boolean line with all between its first and its last True filled in."""
    places = line.nonzero().flatten()
    filled = torch.zeros_like(line)
    filled[places[0] : places[-1] + 1] = True
    return filled


def _is_blind(case: Case) -> bool:
    """Whether the scores do not depend on the pictures."""
    model = case.shaken()
    return case.same(_seeded(model, case.images()), _seeded(model, case.images()))


def _knows_no_order(case: Case) -> bool:
    """Whether there is a way to exchange strips of the picture that the scores do not notice."""
    if _is_blind(case):
        raise NotAsked("the scores do not depend on the picture")
    model, images = case.shaken(), case.images()
    scores = _seeded(model, images)
    for axis in (2, 3):
        side = images.shape[axis]
        for strips in (n for n in range(2, side + 1) if side % n == 0):
            if case.same(_seeded(model, images.roll(side // strips, dims=axis)), scores):
                return True
    return False


def _asked_looks(case: Case) -> list[Look]:
    looks = case.looks()
    if not looks:
        raise NotAsked("no attention was seen")
    return looks


DROPOUTS = ("dropout", "attention_dropout", "attn_dropout", "dropout_p", "drop_path", "drop_prob")


def _dropouts(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Where a model keeps the probability of a dropout that is not 0: (module's name, attribute)."""
    for name, module in model.named_modules():
        modules = isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ == "DropPath"
        for attribute in ("p",) if modules else DROPOUTS:
            value = getattr(module, attribute, None)
            if isinstance(value, float) and value > 0:
                yield name, attribute


def _kind(place: tuple[str, str]) -> str:
    """What all blocks call the same dropout: the place's name without the block's number."""
    name, attribute = place
    parts = [part for part in name.split(".") if not part.isdigit()]
    return ".".join(parts + ([attribute] if attribute != "p" else []))


def _wrapped(text: str, indent: int) -> str:
    return textwrap.fill(text, 90, subsequent_indent=" " * indent, break_long_words=False, drop_whitespace=True)
