"""What is asked of a model: each function looks for one thing that must hold, and raises `Failed` where it does not."""

import itertools
import math
import textwrap
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.diagnosis.case import Case, NotAsked, depends, dropouts, seeded, stacks
from vitbook.diagnosis.watching import is_right_scale
from vitbook.mistakes import IN_A_VIT, MISTAKES, broken_vit
from vitbook.patches import HybridEmbedding
from vitbook.vit import VisionTransformer


@dataclass
class Failed(Exception):
    """What was seen, and a better suspect and section than the question's own, if there are."""

    evidence: str
    suspect: str = ""
    where: str = ""


@dataclass(frozen=True)
class Question:
    """Something that must hold, and what to think where it does not."""

    ask: Callable[[Case], None]  # raises Failed or NotAsked
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


def _expect(holds: bool, evidence: str) -> None:
    if not holds:
        raise Failed(evidence)


def _attempt(run: Callable[[], Any]) -> Any:
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
def logits_come_out(case: Case) -> None:
    if case.turned:
        height, width = case.image_shape[1:]
        raise Failed(
            f"it does not run on {height}×{width} images, and does on {width}×{height}.",
            "height and width have changed places where the image is cut or the positions are counted.",
            "06_patches.ipynb#how-many-and-how-long",
        )
    _expect(case.batch > 0, textwrap.shorten(case.error, 300, placeholder=" …"))


@question(
    "any number of images makes a batch",
    suspect="a class token or positions with the batch size in their shape; they should be (1, …) and expand.",
    where="07_embedding.ipynb#a-token-that-speaks-for-the-picture",
)
def every_batch_size_will_do(case: Case) -> None:
    model = case.shaken()
    for batch in (1, 2, 5):
        logits = _attempt(lambda batch=batch: model(case.images(batch)))
        _expect(logits.shape == (batch, case.num_classes), f"for {batch} images the logits are {tuple(logits.shape)}.")


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
    logits = _attempt(lambda: model(case.images().double()))
    _expect(logits.dtype == torch.float64, f"the logits are {logits.dtype}.")


# What depends on what


@question(
    "other images get other logits",
    suspect="a class token that never sees the patches, as under attention over the batch, or a head that reads"
    " something else.",
    where="07_embedding.ipynb#a-token-that-speaks-for-the-picture",
)
def images_count(case: Case) -> None:
    _expect(not case.blind, "all images get the same.")


@question(
    "in evaluation, the same image gets the same logits",
    suspect="F.dropout, which does not know of eval(): use nn.Dropout or pass training=self.training.",
    where="08_encoder.ipynb#dropout-and-where-it-goes",
)
def evaluation_is_deterministic(case: Case) -> None:
    model, images = case.shaken(), case.images()
    _expect(case.same(model(images), model(images)), "two calls gave different logits.")


@question(
    "in evaluation, an image's logits do not depend on the others in its batch",
    suspect="attention over the batch (nn.MultiheadAttention and nn.TransformerEncoder without batch_first=True), a"
    " softmax over dim=0, a reshape that mixes images, one image's class token for all, or batch statistics.",
    where="09_vit.ipynb#one-picture-does-not-touch-another",
)
def images_do_not_mix(case: Case) -> None:
    if case.batch == 1:
        raise NotAsked("the model takes one image at a time")
    case.needs_sight()
    model, images = case.shaken(), case.images()
    before = seeded(model, images)
    for changed in range(case.batch):
        others = torch.arange(case.batch) != changed
        images_now = images.clone()
        images_now[changed] = case.images()[changed]
        now = seeded(model, images_now)
        _expect(case.same(now[others], before[others]), "another image in the batch changed an image's logits.")


@question(
    "every token belongs to one rectangle of the image",
    suspect="an image cut by view or reshape alone: the axes have to be exchanged before they are joined.",
    where="06_patches.ipynb#view-does-not-cut",
)
def a_token_is_a_rectangle(case: Case) -> None:
    """Asked of the rows of the first queries, each made of one token."""
    pixels, tokens = 0, []
    for _ in range(8):  # the zeros of a ReLU are elsewhere each time
        model, images = case.shaken().requires_grad_(), case.images().requires_grad_()
        attentions = case.watch(model, images)[0].attentions
        if not attentions or not attentions[0].queries.requires_grad:
            raise NotAsked("no attention was seen")
        rows = attentions[0].queries.flatten(0, -3)[-1]
        middle = rows[len(rows) // 2 :][:3]
        slopes = [torch.autograd.grad(row @ case.normal(len(row)), images, retain_graph=True)[0] for row in middle]
        pixels = pixels + torch.stack(slopes).ne(0)  # (tokens, B, C, H, W)
        of_images = [token[token.flatten(1).any(dim=1)] for token in pixels]
        tokens = [token[0] for token in of_images if len(token) == 1]  # no class token, and no mixture of images
        if all(map(_is_patch, tokens)):
            break
    if not tokens:
        raise NotAsked("no token of one image was seen")
    _expect(all(map(_is_patch, tokens)), "a token is made of scattered pixels.")


def _is_patch(counts: Tensor) -> bool:
    """Whether the pixels (C, H, W) that a token depends on lie together: a rectangle, or one with corners cut off."""
    pixels = counts > 0
    area = pixels.any(dim=0)
    if not (_unbroken(area) and _unbroken(area.mT)):
        return False
    rectangle = area.sum() == area.any(dim=0).sum() * area.any(dim=1).sum()
    if not rectangle and _unbroken(area.flatten()[None]):
        return False  # the end of a row, some rows, the start of a row
    every_channel = pixels.flatten(1).any(dim=1).all()
    return bool(every_channel or pixels.sum() == 1 or not _unbroken(pixels.flatten()[None]))


def _unbroken(lines: Tensor) -> bool:
    """Whether what is True in each line (lines, places) is one run."""
    runs = (lines[:, 1:] & ~lines[:, :-1]).sum(dim=1) + lines[:, 0]
    return bool((runs <= 1).all())


@question(
    "the order of the patches counts, if it is meant to",
    suspect="positions are missing, or they are added to something that is thrown away (dropout on x instead of x +"
    " positions).",
    where="07_embedding.ipynb#a-bag-of-patches",
)
def order_counts(case: Case) -> None:
    if case.order_counts:
        _expect(not _knows_no_order(case), "exchanging patches leaves the logits as they are.")
    elif not _knows_no_order(case):
        raise Failed(
            "every exchange of patches changes the logits.",
            "something knows where a patch is: positions, a reshape that mixes tokens, or a convolution over them.",
            "06_patches.ipynb#a-bag-of-patches",
        )


def _knows_no_order(case: Case) -> bool:
    """Whether there is a way to exchange strips of the image that the logits do not notice."""
    case.needs_sight()
    model, images = case.shaken(), case.images()
    logits = seeded(model, images)
    little = (seeded(model, case.images()) - logits).abs().max() * (1e-6 if case.dtype == torch.float64 else 1e-3)
    for axis in (2, 3):
        side = images.shape[axis]
        for strips in (n for n in range(2, side + 1) if side % n == 0):
            if (seeded(model, images.roll(side // strips, dims=axis)) - logits).abs().max() < little:
                return True
    return False


# Attention and blocks, as they are computed


@question(
    "heads get whole tokens, and give them back",
    suspect="view(B, h, T, D_h) without a transpose, heads joined without one, or a fused kernel fed (B, T, h, D_h).",
    where="04_multihead.ipynb#cutting-queries-keys-and-values-into-heads",
)
def heads_keep_tokens_whole(case: Case) -> None:
    attentions = case.attentions
    if all(seen.split is None for seen in attentions):
        raise NotAsked("what happens to its values cannot be followed")
    _expect(all(seen.split is not False for seen in attentions), "several rows of a head come from the same token.")
    _expect(
        all(seen.joined is not False for seen in attentions), "the output projection gets several tokens in one row."
    )


@question(
    "each query's weights sum to 1",
    suspect="a softmax over the queries (dim=-2) or the batch (dim=0) instead of the keys (dim=-1), or weights changed"
    " after the softmax: scaled, or masked.",
    where="01_attention.ipynb#all-queries-at-once-by-matrices",
)
def weights_sum_to_one(case: Case) -> None:
    attentions = case.attentions
    wrong = sum(not torch.allclose(seen.sums, torch.ones_like(seen.sums), atol=1e-4) for seen in attentions)
    _expect(not wrong, f"in {wrong} of {len(attentions)} attentions they do not.")


@question(
    "dot products are divided by √ of what they run over, D_h",
    suspect="no scale, √D for √D_h, times in place of over, a scale after the softmax or twice; or heads never split.",
    where="02_scale.ipynb#which-d",
)
def scores_are_scaled(case: Case) -> None:
    known = [seen for seen in case.attentions if seen.factor is not None]
    if not known:
        raise NotAsked("its queries are normalized, or its scale is learned")
    for seen in known:
        _expect(
            is_right_scale(seen),
            f"they run over {seen.width} numbers, which asks for 1/√{seen.width} = {seen.width**-0.5:.3f}; before the "
            f"softmax they are multiplied by {seen.factor:.3f}.",
        )


@question(
    "every token may look at every other",
    suspect="a causal mask, as in a language model. The patches of an image have no past and no future.",
    where="05_transformer.ipynb#what-must-not-be-seen",
)
def tokens_see_the_later_ones(case: Case) -> None:
    causal = sum(seen.causal for seen in case.attentions)
    _expect(not causal, f"in {causal} of {len(case.attentions)} attentions no token sees a later one.")


@question(
    "each block adds to what was there",
    suspect="a residual connection is missing: x = x + attention(norm(x)), x = x + mlp(norm(x)).",
    where="08_encoder.ipynb#equation-2",
)
def blocks_add(case: Case) -> None:
    """With the matrices of all blocks but the last at 0, the last one can still tell images apart."""
    case.needs_sight()
    model, watch, _ = case.watched
    looking = {id(seen.weight) for seen in case.attentions}
    last = id(case.attentions[-1].weight)
    parts = [{id(p): p for p in part.parameters()} for stack in stacks(model) for part in stack]
    kept = {key for part in parts if last in part for key in part}
    mapping = {id(linear.weight) for linear in watch.linear}
    silenced = {key for part in parts if looking & set(part) for key in part} & mapping - kept
    if not silenced or not kept:
        raise NotAsked("no list of several blocks in it")
    model = deepcopy(model)
    originals = case.watched[0].parameters()
    with torch.no_grad():
        for original, parameter in zip(originals, model.parameters(), strict=True):
            if id(original) in silenced:
                parameter.zero_()
    images = case.images().requires_grad_()
    attention = case.watch(model, images)[0].attentions[-1]
    _expect(
        depends(attention.queries, images) or depends(attention.keys, images),
        "where the layers of the others add nothing, the last block gets nothing of the image.",
    )


@question(
    "a nonlinearity stands between the two maps of an MLP",
    suspect="GELU is missing: two linear maps in a row are no more than one.",
    where="08_encoder.ipynb#equation-3",
)
def mlps_have_an_activation(case: Case) -> None:
    model, watch, _ = case.watched
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    pairs = [" and ".join(names.get(id(weight), "?") for weight in pair) for pair in watch.no_activation]
    _expect(not pairs, f"nothing stands between {pairs[0]}." if pairs else "")


@question(
    "the head gets normalized tokens",
    suspect="the last LayerNorm is missing: in a pre-norm encoder the tokens grow with every block.",
    where="09_vit.ipynb#equation-4",
)
def head_gets_normalized_tokens(case: Case) -> None:
    _, watch, logits = case.watched
    head = watch.past(logits)
    if head.made_by != "linear" or all(linear.fed_by != "norm" for linear in watch.linear):
        raise NotAsked("no linear head, or no norms before the layers")
    _expect(head.fed_by != "sum", "it gets the sum of the last block's residual connection.")


# Parameters


@question(
    "every parameter has a part in the logits",
    suspect="a layer that is made and never called, such as an output projection, a last LayerNorm or positions.",
    where="04_multihead.ipynb#what-w_o-is-for",
)
def parameters_play_a_part(case: Case) -> None:
    model = case.shaken()
    logits = seeded(model, case.images())
    named = [
        (n, p) for n, p in model.named_parameters() if p.requires_grad and "mask_token" not in n
    ]  # for pretraining
    slopes = torch.autograd.grad((logits * case.normal(*logits.shape)).sum(), [p for _, p in named], allow_unused=True)
    idle = [n for (n, p), slope in zip(named, slopes, strict=True) if slope is None or (p.ndim > 1 and not slope.any())]
    _expect(not idle, f"no gradient reaches {', '.join(idle[:4])}{' …' if len(idle) > 4 else ''}.")


@question(
    "every dropout acts",
    suspect="a probability that nothing reads.",
    where="01_attention.ipynb#dropout-on-the-weights",
)
def dropouts_act(case: Case) -> None:
    kinds = list(dict.fromkeys(kind for kind, _, _ in dropouts(case.model)))
    if not kinds:
        raise NotAsked("there is none")
    for tried in kinds:
        model, images = case.shaken(training=True), case.images()
        for kind, module, attribute in list(dropouts(model)):
            setattr(module, attribute, 0.5 if kind == tried else 0.0)
        logits = model(images)
        _expect(any(not case.same(model(images), logits) for _ in range(4)), f"{tried} changes nothing in training.")


@question(
    "the blocks start with different weights",
    suspect="blocks copied from one, by copy.deepcopy or by nn.TransformerEncoder: draw their weights separately.",
    where="08_encoder.ipynb#the-encoder",
)
def blocks_start_different(case: Case) -> None:
    if not case.untrained:
        raise NotAsked("the model is trained")
    blocks = list(stacks(case.model))
    if not blocks:
        raise NotAsked("no list of blocks in it")
    for one, other in (pair for stack in blocks for pair in itertools.pairwise(stack)):
        pairs = [(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True) if p.ndim > 1]
        _expect(not all(torch.equal(p, q) for p, q in pairs), "two blocks have the same weights.")


# Logits and losses


@question(
    "logits are no probabilities",
    suspect="a softmax in the model. F.cross_entropy has one itself; twice, the loss cannot come near 0.",
    where="10_training.ipynb#how-wrong-is-an-answer",
)
def logits_are_no_probabilities(case: Case) -> None:
    logits = torch.cat([seeded(case.shaken(), case.images()) for _ in range(8)])
    if (logits < 0).any():
        return
    sums = case.same(logits.sum(dim=-1), torch.ones_like(logits[:, 0]))
    raise Failed("the rows sum to 1." if sums else "none is negative.")


@question(
    "the first loss is near ln K",
    suspect="a head or tokens that start too large: a last LayerNorm that is missing, weights drawn too wide.",
    where="10_training.ipynb#the-first-loss-is-ln-k",
)
def first_loss_is_near_ln_k(case: Case) -> None:
    if not case.untrained:
        raise NotAsked("the model is trained")
    loss = F.cross_entropy(seeded(case.copy(), case.images()), case.labels()).item()
    expected = math.log(case.num_classes)
    _expect(abs(loss - expected) < 1.5, f"it is {loss:.1f}, and ln {case.num_classes} = {expected:.1f}.")


@question(
    "a few images can be learned by heart",
    suspect="anything that hinders learning: a softmax before the loss, a part without gradient, a scale that leaves no"
    " slope.",
    where="10_training.ipynb#the-loop-bare",
)
def one_batch_can_be_learned(case: Case) -> None:
    if not case.overfit:
        raise NotAsked("overfit=True asks it, by up to 500 steps of training")
    model, images, labels = case.copy(training=True), case.images(), case.labels()
    for _, module, attribute in list(dropouts(model)):
        setattr(module, attribute, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for _ in range(500):
        loss = F.cross_entropy(model(images), labels)
        if loss < 0.01:
            return
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    raise Failed(f"after 500 steps the loss is still {loss:.2g}.")


@question(
    "it is Equations 1 to 4",
    suspect="several mistakes at once, or one that has no name yet. Fix what is named above, and ask again.",
    where="09_vit.ipynb#the-four-equations-together",
)
def equations_hold(case: Case) -> None:
    if not isinstance(case.model, VisionTransformer) or isinstance(case.model.embedding.patch_embed, HybridEmbedding):
        raise NotAsked("not built of this book's parts; so a second GELU, say, or a variance over D − 1 cannot be seen")
    model, images = case.shaken(), case.images()
    expected = seeded(model, images)

    def agrees(*mistakes: str) -> bool:
        twin = broken_vit(case.model.config, *mistakes).to(images).eval()
        ours, theirs = ({n: x.shape for n, x in m.state_dict().items()} for m in (model, twin))
        if ours != theirs:
            return False
        twin.load_state_dict(model.state_dict())
        return case.same(seeded(twin, images), expected)

    if agrees():
        return
    likely = [MISTAKES[name] for name in IN_A_VIT if agrees(name)]
    if not likely:
        raise Failed("it is neither those nor any one of the known mistakes.")
    titles = " Or: ".join(f"“{mistake.title}”" for mistake in likely)
    causes = " Or: ".join(mistake.cause for mistake in likely)
    raise Failed(f"it does what a model does with {titles}.", causes, likely[0].where)
