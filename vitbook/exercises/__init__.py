"""The exercises of the chapters, and the answers of their check cells.

A chapter's exercise is a stub in one cell and `check("chapter.name", attempt)` in the next. `vitbook.exercises.grading`
judges the attempt against the `Exercise` that stands here under that name; `diagnose` looks at a whole model.
"""

import math
from collections.abc import Callable
from functools import partial
from itertools import chain, combinations
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook import (
    attention_maps,
    embedding,
    encoder,
    multihead,
    patches,
    self_attention,
    transformer,
    vit,
)
from vitbook import mistakes as wrong
from vitbook._support.names import unknown
from vitbook.attention import attention, attention_scores, attention_weights
from vitbook.diagnosis import diagnose  # noqa: F401
from vitbook.distillation import soft_distillation_loss, token_distillation_loss
from vitbook.exercises.grading import Exercise, Wrong, judge
from vitbook.features import neighbour_votes
from vitbook.heads import soft_argmax


def check(name: str, attempt: Any) -> None:
    """Say whether the attempt at exercise `name` is right, and if not, where it differs and what mistake it looks like.

    attempt: a function, or a number; None, or a function in which nothing is written yet, is not attempted. An error
    inside the attempt is printed with the reader's own line. Raises ValueError for an unknown name.
    """
    if name not in EXERCISES:
        raise ValueError(unknown("exercise", name, EXERCISES))
    print(f"{name}: {judge(EXERCISES[name], attempt)}")


# Inputs


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal float64 numbers of the given shape, fresh from `generator`."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def some_order(generator: torch.Generator, length: int) -> Tensor:
    """A random order (T,) of three tokens or more that undoes neither itself nor any token's move: one great cycle."""
    cycle = torch.randperm(length, generator=generator)
    return torch.empty_like(cycle).index_put((cycle,), cycle.roll(1))


def some_mask(generator: torch.Generator, queries: int, keys: int) -> Tensor:
    """A random boolean mask (queries, keys): every query sees a key and misses one, every key is seen and missed."""
    mask = torch.rand(queries, keys, generator=generator) < 0.6
    turn = (torch.arange(queries)[:, None] - torch.arange(keys)) % min(queries, keys)
    return mask.masked_fill(turn == 0, True).masked_fill(turn == 1, False)


def filled(generator: torch.Generator, build: Callable[[], nn.Module]) -> nn.Module:
    """The module that `build` makes, in float64 and in evaluation, every parameter drawn from `generator`."""
    with torch.device("meta"):  # so that the global generator stays as it is
        module = build()
    module = module.to_empty(device="cpu").double().eval()
    for parameter in module.parameters():
        parameter.data = 0.5 * normal(generator, *parameter.shape)
    return module


SMALL_VIT = vit.ViTConfig(image_size=(8, 12), patch_size=4, num_classes=5, dim=12, depth=2, num_heads=3, mlp_dim=20)


# Mistakes


def each(use: Callable, *variants: Callable) -> dict[Wrong, Callable]:
    """For each variant of `vitbook.mistakes`, an attempt. use: (variant, *arguments) → what the attempt does."""
    return {variant: partial(use, variant) for variant in variants}


def together(use: Callable, *made: Callable | str) -> dict[Wrong, Callable]:
    """For some mistakes, alone and several at once, an attempt. use: (mistakes, *arguments) → what the attempt does."""
    some = chain.from_iterable(combinations(made, number) for number in range(1, len(made) + 1))
    return {mistakes if len(mistakes) > 1 else mistakes[0]: partial(use, mistakes) for mistakes in some}


def past(tokens: Tensor) -> Tensor:
    """Which places may be looked at that are not in the future. (B, T) → boolean (T, T)."""
    return transformer.causal_mask(tokens.shape[1])


TURNED = "Your k.T turns all axes round, the batch among them; k.mT turns the last two."


def scale_repair(made: tuple, q: Tensor, k: Tensor) -> Tensor:
    root = math.sqrt(q.shape[-1] * (q.shape[1] if wrong.ScaledByTheWholeWidth in made else 1))
    axis = -2 if wrong.softmax_over_the_queries in made else -1
    if wrong.scaled_after_the_softmax in made:
        return (q @ k.mT).softmax(dim=axis) / root
    return (q @ k.mT / root).softmax(dim=axis)


def turned(code: Tensor, k: int, base: float = 10_000.0, halves: bool = False) -> Tensor:
    """sin + i cos of each pair of columns, turned back by ωk. halves: all sines stand before all cosines."""
    pairs = code.unflatten(-1, (2, -1)).mT if halves else code.unflatten(-1, (-1, 2))
    frequency = base ** (-torch.arange(0, code.shape[-1], 2, dtype=code.dtype) / code.shape[-1])
    hands = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.exp(-1j * k * frequency))
    return (hands.mT if halves else hands).flatten(-2)


def equation_1(x_p: Tensor, E: Tensor, x_class: Tensor, E_pos: Tensor, order: int = 1) -> Tensor:
    """Equation 1. order: −1 for the class token at the end."""
    return torch.cat([x_class.expand(len(x_p), -1, -1), x_p @ E][::order], dim=1) + E_pos


RESHAPED = (
    "Your reshape deals out the numbers as they lie, the width last. Cut the places first, then bring it forward."
)
NOT_ALIGNED = "Your corners are not aligned: align_corners=True."


def resize(made: tuple, pos_embed: Tensor, old_grid: tuple, new_grid: tuple) -> Tensor:
    table = pos_embed[:, 1:].reshape(1, -1, *old_grid)
    if RESHAPED not in made:
        table = pos_embed[:, 1:].unflatten(1, old_grid).permute(0, 3, 1, 2)
    table = F.interpolate(table, size=new_grid, mode="bilinear", align_corners=NOT_ALIGNED not in made)
    return torch.cat([pos_embed[:, :1], table.flatten(2).mT], dim=1)


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, deviation: Tensor, axis: int | tuple = -1) -> Tensor:
    return gain * (x - x.mean(dim=axis, keepdim=True)) / deviation + bias


FIRST_NORMALISED = "What attention is added to is normalised: z itself goes round the first LayerNorm."
SECOND_NORMALISED = "What the MLP is added to is normalised: z itself goes round the second LayerNorm."


def encoder_block(made: tuple, z: Tensor, block: encoder.EncoderBlock) -> Tensor:
    x = block.norm1(z)
    z = block.attn(x) + (x if FIRST_NORMALISED in made else z)
    x = block.norm2(z)
    change = block.mlp(x)
    return (F.gelu(change) if wrong.GeluTwice in made else change) + (x if SECOND_NORMALISED in made else z)


MEAN_OF_ALL = "Your head sees the mean of all tokens; this model's head reads the class token, z[:, 0]."


def vit_forward(made: tuple, images: Tensor, model: vit.VisionTransformer) -> Tensor:
    z = model.encoder(model.embedding(images))
    y = z.mean(dim=1) if MEAN_OF_ALL in made else z[:, 0]
    scores = model.head(y if wrong.NoFinalNorm in made else model.norm(y))
    return scores.softmax(dim=-1) if wrong.SoftmaxBeforeCrossEntropy in made else scores


def smoothed(plain: Tensor, even: Tensor, smoothing: float) -> Tensor:
    """A loss (B,) for the true class and one for the even spread, mixed. → a single number."""
    return ((1 - smoothing) * plain + smoothing * even).mean()


def nll(log_p: Tensor, labels: Tensor) -> Tensor:
    return -log_p[torch.arange(len(labels)), labels]


def steps_of_adamw(w: Tensor, gradients: Tensor, eta: float, decay: float) -> Tensor:
    """A parameter after one step of `torch.optim.AdamW` for each of its gradients. (n,), (steps, n) → (n,)."""
    return steps_of(torch.optim.AdamW, w, gradients, eta, decay)


def steps_of(optimizer: Callable, w: Tensor, gradients: Tensor, eta: float, decay: float) -> Tensor:
    parameter = nn.Parameter(w.clone())
    stepper = optimizer([parameter], lr=eta, weight_decay=decay)
    for gradient in gradients:
        parameter.grad = gradient
        stepper.step()
    return parameter.detach()


def steps_uncorrected(w: Tensor, gradients: Tensor, eta: float, decay: float) -> Tensor:
    m = v = torch.zeros_like(w)
    for g in gradients:
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - eta * decay * w - eta * m / (v.sqrt() + 1e-8)
    return w


def steps_then_decay(w: Tensor, gradients: Tensor, eta: float, decay: float) -> Tensor:
    m = v = torch.zeros_like(w)
    for t, g in enumerate(gradients, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - eta * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        w = w - eta * decay * w
    return w


def running_mean(start: Tensor, weights: Tensor, beta: float) -> Tensor:
    """The running mean of weights after the last step."""
    mean = start
    for w in weights:
        mean = torch.lerp(w, mean, beta)
    return mean


def last_epoch(accuracies: Tensor, patience: int) -> int:
    """The epoch after which a training with this patience ends."""
    best = 0
    for epoch in range(1, len(accuracies)):
        if accuracies[epoch] > accuracies[best]:
            best = epoch
        if epoch - best >= patience:
            return epoch + 1
    return len(accuracies)


def sum_of_mean_gradients(w: Tensor, x: Tensor, y: Tensor, parts: int) -> Tensor:
    pairs = zip(x.tensor_split(parts), y.tensor_split(parts), strict=True)
    return torch.stack([gradient_in_parts(w, *pair, 1) for pair in pairs]).sum(dim=0)


def votes_of(nearness: Tensor, labels: Tensor, num_classes: int, k: int) -> Tensor:
    return F.one_hot(labels[nearness.topk(k, dim=-1).indices], num_classes).to(nearness.dtype).mean(dim=1)


def gradient_in_parts(w: Tensor, x: Tensor, y: Tensor, parts: int) -> Tensor:
    """The gradient of the mean squared error, which does not depend on the parts."""
    return 2 * x.T @ (x @ w - y) / len(y)


def with_mistakes(made: tuple, images: Tensor, model: vit.VisionTransformer) -> Tensor:
    """What a model computes whose parts make the mistakes, on the same weights. The model is changed."""
    classes = [wrong.as_class(wrong.MISTAKES[mistake.__name__]) for mistake in made]
    for module in list(model.modules()):
        if variants := tuple(variant for right, variant in classes if right is type(module)):
            module.__class__ = type("Mistaken", variants, {})
    return model(images)


def order_gap(block: nn.Module, x: Tensor, order: Tensor) -> Tensor:
    return (block(x[:, order]) - block(x)[:, order]).abs().max()


def some_distillation(generator: torch.Generator, batch: int, num_classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """A student's scores (B, K), labels (B,) and a teacher's scores (B, K)."""
    scores, teacher_scores = 2 * normal(generator, 2, batch, num_classes)
    return scores, torch.randint(num_classes, (batch,), generator=generator), teacher_scores


def weakened_distillation(divisor: float, *given: Any) -> Tensor:
    """The soft loss with its divergence divided by a number that does not belong there."""
    *tensors, share = given
    label, teacher = (soft_distillation_loss(*tensors, extreme) for extreme in (0.0, 1.0))
    return (1 - share) * label + share * teacher / divisor


def gradient_of_soft_distillation(scores: Tensor, *others: Any) -> Tensor:
    """∂ `soft_distillation_loss` / ∂ scores. (B, K)."""
    scores = scores.requires_grad_()
    return torch.autograd.grad(soft_distillation_loss(scores, *others), scores)[0]


def convolution_matrix(kernel: Tensor, length: int) -> Tensor:
    """The matrix of a one-dimensional convolution with zeros beyond the ends. (K,), K odd → (length, length)."""
    units = torch.eye(length, dtype=kernel.dtype).unsqueeze(1)
    return F.conv1d(units, kernel.view(1, 1, -1), padding=len(kernel) // 2)[:, 0].T


def first_of_each_class(labels: Tensor, share: float) -> Tensor:
    """Indices, in order, of the first pictures of each class: a share of them, and one at least. (N,) → (n,)."""
    chosen = []
    for label in labels.unique():
        members = (labels == label).nonzero().flatten()
        chosen.append(members[: max(1, round(share * len(members)))])
    return torch.cat(chosen).sort().values


def receptive_field(kernels: Tensor, strides: Tensor) -> int:
    """How many pixels in a row one output of a stack of convolutions sees. (L,), (L,) → a number."""
    size, step = 1, 1
    for kernel, stride in zip(kernels.tolist(), strides.tolist(), strict=True):
        size, step = size + (kernel - 1) * step, step * stride
    return size


def block_flops(x: Tensor, maps: int, products: int) -> int:
    """B(maps · TD² + products · T²D) for tokens (B, T, D)."""
    batch, tokens, dim = x.shape
    return batch * (maps * tokens * dim**2 + products * tokens**2 * dim)


EXERCISES: dict[str, Exercise] = {
    # chapters/01_attention
    "attention.weights": Exercise(
        lambda scores: scores.softmax(dim=-1),
        "subtract each row's maximum before the exponential, and divide by the sum over the keys, the last axis.",
        lambda g: [(normal(g, 2, 3, 5),), (1000 * normal(g, 4, 9) + 5000 * torch.arange(4)[:, None],)],
        level="easy",
        mistakes={
            wrong.softmax_over_the_queries: lambda scores: scores.softmax(dim=-2),
            wrong.softmax_over_the_first_axis: lambda scores: scores.softmax(dim=0),
            "Your exponentials overflow: exp(1000) is ∞, and ∞/∞ no number. Subtract each row's maximum first.": (
                lambda scores: scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
            ),
            "You subtract one maximum from all rows; a row far below it becomes 0/0. Each row needs its own.": (
                lambda scores: (x := (scores - scores.max()).exp()) / x.sum(dim=-1, keepdim=True)
            ),
            "You divide by the sum of everything; each row has its own: dim=-1, keepdim=True.": (
                lambda scores: (x := (scores - scores.amax(dim=-1, keepdim=True)).exp()) / x.sum()
            ),
            "Maximum and sum are those of everything; each row has its own: dim=-1, keepdim=True.": (
                lambda scores: (x := (scores - scores.max()).exp()) / x.sum()
            ),
            "Your exponentials are not divided by their sum.": (
                lambda scores: (scores - scores.amax(dim=-1, keepdim=True)).exp()
            ),
        },
    ),
    "attention.predict": Exercise(
        2 / 5,
        "exponentiate the four scores first; e to the power of ln 2 is round.",
        level="easy",
        mistakes={
            "That is how much the fourth key counts before the division by the sum.": 2.0,
            "That would be so if all four scores were equal.": 1 / 4,
            "That is what each of the other three keys gets.": 1 / 5,
            "That is the score itself.": math.log(2),
            "That divides the scores; they have to go through the exponential first.": 1.0,
        },
    ),
    "attention.masked": Exercise(
        lambda q, k, v, mask: attention(q, k, v, mask)[0],
        "divide by √d, hide with −∞ where the mask is False, softmax over the keys, multiply with v.",
        lambda g: (
            [
                (normal(g, t, d), normal(g, s, d), normal(g, s, w), some_mask(g, t, s))
                for t, s, d, w in ((3, 5, 4, 2), (4, 6, 9, 7))
            ]
            + [(normal(g, 2, 3, 4), normal(g, 2, 5, 4), normal(g, 2, 5, 6), some_mask(g, 3, 5))]
        ),
        gradients=True,
        mistakes=each(
            lambda variant, q, k, v, mask: variant(q, k, v, mask)[0],
            wrong.no_scale,
            wrong.multiplied_by_the_scale,
            wrong.scaled_after_the_softmax,
            wrong.softmax_over_the_queries,
            wrong.softmax_over_the_first_axis,
            wrong.mask_says_where_not_to_look,
            wrong.mask_added_as_zero_and_one,
            wrong.masked_after_the_softmax,
        )
        | {
            TURNED: lambda q, k, v, mask: (
                (q @ k.T / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf).softmax(-1) @ v
            ),
            "Your mask changes nothing.": lambda q, k, v, mask: attention(q, k, v)[0],
            "You divide by d; it is its root.": (
                lambda q, k, v, mask: attention(q / math.sqrt(q.shape[-1]), k, v, mask)[0]
            ),
            "You return the weights; they are still to be multiplied with v.": (
                lambda q, k, v, mask: attention(q, k, v, mask)[1]
            ),
            "You hide with 0 in place of the score. A score of 0 is as good as any other; −∞ is not.": (
                lambda q, k, v, mask: attention_scores(q, k).masked_fill(~mask, 0.0).softmax(dim=-1) @ v
            ),
        },
        sizes=lambda q, k, v, mask: {"√D_h": q.shape[-1] ** 0.5},
    ),
    # chapters/02_scale
    "scale.jacobian": Exercise(
        lambda weights: torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2),
        "entry (i, j) is wᵢ(1 − wᵢ) where i = j and −wᵢwⱼ elsewhere, for each row of weights by itself.",
        lambda g: [(normal(g, 5).softmax(dim=-1),), (normal(g, 2, 3, 4).softmax(dim=-1),)],
        level="easy",
        mistakes={
            "Your signs are turned round: it is diag(w) − w wᵀ.": (
                lambda w: w.unsqueeze(-1) * w.unsqueeze(-2) - torch.diag_embed(w)
            ),
            "The term diag(w) is missing.": lambda w: -w.unsqueeze(-1) * w.unsqueeze(-2),
            "Only the diagonal is there: weight i depends on the other scores too.": (
                lambda w: torch.diag_embed(w * (1 - w))
            ),
            "You take a softmax of what is one already: w are weights, not scores.": (
                lambda w: torch.diag_embed(w.softmax(-1)) - w.softmax(-1).unsqueeze(-1) * w.softmax(-1).unsqueeze(-2)
            ),
        },
    ),
    "scale.predict": Exercise(
        6,
        "each of the d products has variance 4 · 9; add them, take the root, divide by √d.",
        mistakes={
            "That is a variance; asked for is its root.": 36,
            "That is the standard deviation of q·k, before the division by √d.": 60,
            "That divides by d; it is its root.": 0.6,
            "The variances of two factors are multiplied in a product, not added.": math.sqrt(13),
        },
    ),
    "scale.repair": Exercise(
        lambda q, k: attention_weights(attention_scores(q, k)),
        "divide by √D_h, the width of one head, before the softmax, which runs over the keys, the last axis.",
        lambda g: [(normal(g, b, h, t, d), normal(g, b, h, t, d)) for b, h, t, d in ((1, 2, 3, 4), (2, 6, 4, 7))],
        level="hard",
        kind="repair",
        mistakes=together(
            scale_repair,
            wrong.ScaledByTheWholeWidth,
            wrong.scaled_after_the_softmax,
            wrong.softmax_over_the_queries,
        )
        | {wrong.no_scale: lambda q, k: (q @ k.mT).softmax(dim=-1)},
        sizes=lambda q, k: {
            "√D": math.sqrt(q.shape[1] * q.shape[-1]),
            "D_h": q.shape[-1],
            "√D_h": math.sqrt(q.shape[-1]),
        },
    ),
    # chapters/03_self_attention
    "self_attention.by_hand": Exercise(
        lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v)[0],
        "project x three times, divide the scores by √D_h, softmax over the keys, blend the values.",
        lambda g: [(normal(g, 4, 6), *normal(g, 3, 6, 3)), (normal(g, 2, 5, 7), *normal(g, 3, 7, 4))],
        gradients=True,
        level="easy",
        mistakes=each(
            lambda variant, x, w_q, w_k, w_v: variant(x @ w_q, x @ w_k, x @ w_v)[0],
            wrong.no_scale,
            wrong.multiplied_by_the_scale,
            wrong.scaled_after_the_softmax,
            wrong.softmax_over_the_queries,
            wrong.softmax_over_the_first_axis,
        )
        | {
            wrong.ScaledByTheWholeWidth: (
                lambda x, w_q, w_k, w_v: (x @ w_q @ (x @ w_k).mT / math.sqrt(x.shape[-1])).softmax(dim=-1) @ (x @ w_v)
            ),
            TURNED: lambda x, w_q, w_k, w_v: (x @ w_q @ (x @ w_k).T / math.sqrt(w_q.shape[-1])).softmax(-1) @ (x @ w_v),
            "Your queries and keys have changed places: Q Kᵀ has a row for each query.": (
                lambda x, w_q, w_k, w_v: attention(x @ w_k, x @ w_q, x @ w_v)[0]
            ),
            "Your values are the tokens themselves: x still has to go through W_V.": (
                lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x)[0]
            ),
        },
        sizes=lambda x, w_q, w_k, w_v: {
            "√D": math.sqrt(x.shape[-1]),
            "D_h": w_q.shape[-1],
            "√D_h": math.sqrt(w_q.shape[-1]),
        },
    ),
    "self_attention.count": Exercise(
        sum(p.numel() for p in self_attention.SelfAttention(192, 64).parameters()),
        "three linear maps from 192 to 64, each a matrix and a bias.",
        level="easy",
        mistakes={
            "That leaves out the biases.": 3 * 192 * 64,
            "That is one of the three maps.": 192 * 64 + 64,
            "A bias is as long as what comes out, 64.": 3 * (192 * 64 + 192),
            "There is no output projection here: three maps, not four.": 4 * (192 * 64 + 64),
        },
    ),
    "self_attention.product": Exercise(
        lambda w_q, w_k: w_q @ w_k.T / w_q.shape[-1] ** 0.5,
        "X M Xᵀ must equal Q Kᵀ/√D_h with Q = X W_Q and K = X W_K.",
        lambda g: [(normal(g, 6, 3), normal(g, 6, 3)), (normal(g, 5, 8), normal(g, 5, 8))],
        level="hard",
        kind="derive",
        mistakes={
            wrong.no_scale: lambda w_q, w_k: w_q @ w_k.T,
            wrong.multiplied_by_the_scale: lambda w_q, w_k: w_q @ w_k.T * w_q.shape[-1] ** 0.5,
            wrong.ScaledByTheWholeWidth: lambda w_q, w_k: w_q @ w_k.T / w_q.shape[0] ** 0.5,
            "Your matrices have changed places: M = W_Q W_Kᵀ/√D_h, and this is Mᵀ.": (
                lambda w_q, w_k: w_k @ w_q.T / w_q.shape[-1] ** 0.5
            ),
            "Your product is W_Qᵀ W_K; from X W_Q (X W_K)ᵀ it is W_K that ends up transposed.": (
                lambda w_q, w_k: w_q.T @ w_k / w_q.shape[-1] ** 0.5
            ),
        },
        sizes=lambda w_q, w_k: {
            "√D": math.sqrt(w_q.shape[0]),
            "D_h": w_q.shape[-1],
            "√D_h": math.sqrt(w_q.shape[-1]),
        },
    ),
    # chapters/04_multihead
    "multihead.merge_heads": Exercise(
        multihead.merge_heads,
        "exchange heads and tokens first, then join heads and columns, the last two axes.",
        lambda g: [(normal(g, 2, 3, 5, 4),), (normal(g, 3, 2, 4, 5),), (normal(g, 2, 4, 4, 3),)],
        level="easy",
        mistakes={
            wrong.MergedWithoutTranspose: lambda x: x.reshape(x.shape[0], x.shape[2], -1),
            "Your heads take turns column by column: the heads of a token lie side by side, each in one piece.": (
                lambda x: x.permute(0, 2, 3, 1).flatten(2)
            ),
            "You join heads and tokens: it is heads and columns that make the width.": lambda x: x.flatten(1, 2),
            "You exchange heads and tokens, and do not join heads and columns.": lambda x: x.transpose(1, 2),
        },
    ),
    "multihead.parameters": Exercise(
        4 * 384**2 + 384,
        "four D×D weights; without qkv_bias only W_O keeps its bias, of D numbers.",
        level="easy",
        mistakes={
            "That counts the biases of Q, K and V too.": 4 * 384**2 + 4 * 384,
            "That leaves out the bias of W_O, which stays.": 4 * 384**2,
            "That leaves out W_O.": 3 * 384**2,
            "That leaves out the weights of W_O.": 3 * 384**2 + 384,
            "That keeps the biases of Q, K and V and leaves out W_O's.": 4 * 384**2 + 3 * 384,
        },
    ),
    "multihead.qkv_order": Exercise(
        lambda weight, num_heads: rearrange(weight, "(h three d) D -> (three h d) D", three=3, h=num_heads),
        "the rows are (head, which of the three, column); exchange the first two of these and keep the third.",
        lambda g: [(normal(g, 24, 8), 2), (normal(g, 36, 12), 3), (normal(g, 30, 10), 5)],
        level="hard",
        mistakes={
            "Your rows are where they were.": lambda weight, num_heads: weight,
            "You go the wrong way: theirs is (head, which of the three, column), and you take it for ours.": (
                lambda weight, h: rearrange(weight, "(three h d) D -> (h three d) D", three=3, h=h)
            ),
            "You take theirs for (head, column, which of the three); the three stand in the middle.": (
                lambda weight, h: rearrange(weight, "(h d three) D -> (three h d) D", three=3, h=h)
            ),
            "Your rows end up as (which of the three, column, head); ours are (which of the three, head, column).": (
                lambda weight, h: rearrange(weight, "(h three d) D -> (three d h) D", three=3, h=h)
            ),
        },
    ),
    # chapters/05_transformer
    "transformer.mask": Exercise(
        lambda tokens, padding: transformer.causal_mask(tokens.shape[1]) & transformer.padding_mask(tokens, padding),
        "True = may look: the key is not after the query, and the key (the last axis) is not padding; B comes first.",
        lambda g: [
            (torch.randint(0, 3, (2, 5), generator=g).scatter(1, torch.tensor([[3], [1]]), 0), 0),
            (torch.randint(4, 7, (3, 4), generator=g).scatter(1, torch.tensor([[2], [0], [3]]), 5), 5),
        ],
        mistakes={
            wrong.mask_says_where_not_to_look: (
                lambda tokens, padding: ~(past(tokens) & transformer.padding_mask(tokens, padding))
            ),
            "Your two conditions are joined by “or”: both have to hold.": (
                lambda tokens, padding: past(tokens) | transformer.padding_mask(tokens, padding)
            ),
            "You show the future and hide the past: a query may look at keys that are not after it.": (
                lambda tokens, padding: past(tokens).mT & transformer.padding_mask(tokens, padding)
            ),
            "You show the padding and hide the words.": (
                lambda tokens, padding: past(tokens) & ~transformer.padding_mask(tokens, padding)
            ),
            "You hide from each query its own place too.": (
                lambda tokens, padding: past(tokens).tril(-1) & transformer.padding_mask(tokens, padding)
            ),
            "Your padding is that of the queries (the third axis): it is keys that are hidden (the fourth).": (
                lambda tokens, padding: past(tokens) & transformer.padding_mask(tokens, padding).mT
            ),
            "You hide the padding and show the future.": (
                lambda tokens, padding: transformer.padding_mask(tokens, padding).expand(-1, -1, tokens.shape[1], -1)
            ),
            "The axis of the heads is missing: (B, 1, T, T).": (
                lambda tokens, padding: past(tokens) & (tokens != padding)[:, None]
            ),
        },
    ),
    "transformer.parameters": Exercise(
        16 * 512**2 + 19 * 512,
        "an encoder layer has 12D² + 13D; what has a decoder layer that it has not?",
        mistakes={
            "That is an encoder layer; a decoder layer also looks at what was read.": 12 * 512**2 + 13 * 512,
            "That leaves out the third LayerNorm.": 16 * 512**2 + 17 * 512,
            "That leaves out the biases of the cross-attention.": 16 * 512**2 + 15 * 512,
            "That leaves out the biases and the norms.": 16 * 512**2,
            "That is all six layers; asked for is one.": 6 * (16 * 512**2 + 19 * 512),
        },
    ),
    "transformer.shift": Exercise(
        turned,
        "turn each pair (column 2i: sine, column 2i + 1: cosine) by equation 2, with ω from the width D.",
        lambda g: [
            (transformer.sincos_positions(30, d).double()[torch.randperm(30, generator=g)[:t]], k)
            for t, d, k in ((5, 8, 3), (7, 12, -4))
        ],
        tolerance=1e-5,  # so that clock hands in float32 pass
        level="hard",
        kind="derive",
        mistakes={
            "You turn the other way round: these are the codes k positions back.": lambda code, k: turned(code, -k),
            "Your ω falls half as fast as it should: ωᵢ = 10000^(−2i/D), and i counts pairs.": (
                lambda code, k: turned(code, k, base=100.0)
            ),
            "Your ω falls twice as fast as it should: in 10000^(−2i/D), i counts pairs, not columns.": (
                lambda code, k: turned(code, k, base=1e8)
            ),
            "You take the first half of the columns for sines and the second for cosines: they take turns.": (
                lambda code, k: turned(code, k, halves=True)
            ),
            "Your codes are where they were.": lambda code, k: code,
        },
    ),
    # chapters/06_patches
    "patches.patchify": Exercise(
        patches.patchify,
        "order the six axes as b, row of patches, column of patches, channel, pixel row, pixel column; then join.",
        lambda g: [(normal(g, 2, 3, 8, 12), 4), (normal(g, 1, 2, 15, 10), 5), (normal(g, 3, 1, 4, 6), 2)],
        mistakes=each(
            lambda variant, images, patch_size: variant(images, patch_size),
            wrong.view_without_permute,
            wrong.channels_last_in_a_patch,
        )
        | {
            "Your patches run down the columns of the grid: they are counted along the rows.": (
                lambda x, p: rearrange(x, "b c (h p) (w q) -> b (w h) (c p q)", p=p, q=p)
            ),
            "Inside a patch, your pixel rows and columns have changed places.": (
                lambda x, p: rearrange(x, "b c (h p) (w q) -> b (h w) (c q p)", p=p, q=p)
            ),
            "You exchange no axes: reshape into six, permute, then join.": (
                lambda x, p: x.reshape(len(x), x.shape[1], x.shape[2] // p, p, x.shape[3] // p, p)
            ),
        },
    ),
    "patches.ratio": Exercise(
        (24 / 14) ** 4,
        "count the patches of both pictures, without a class token; the weights are their squares.",
        mistakes={
            "That is the ratio of the patches; each of them has a weight for each.": (24 / 14) ** 2,
            "That is the ratio of the sides.": 24 / 14,
            "That counts a class token; asked for are weights among patches.": (577 / 197) ** 2,
            "That is the old number over the new one.": (14 / 24) ** 4,
        },
    ),
    "patches.kernel": Exercise(
        lambda weight, patch_size: rearrange(weight, "D (p q c) -> D c p q", p=patch_size, q=patch_size),
        "the columns run over row, column, channel: cut them so, then move the channel to the front.",
        lambda g: [(normal(g, 5, 48), 4), (normal(g, 4, 18), 3), (normal(g, 3, 8), 2)],
        level="hard",
        mistakes={
            "You cut the columns into (c p q) at once: theirs are (p q c), and only then may the channel move.": (
                lambda weight, p: rearrange(weight, "D (c p q) -> D c p q", p=p, q=p)
            ),
            "Pixel rows and columns have changed places.": (
                lambda weight, p: rearrange(weight, "D (p q c) -> D c q p", p=p, q=p)
            ),
            "The channel is still the last axis: a convolution's weight is (D, C, P, P).": (
                lambda weight, p: rearrange(weight, "D (p q c) -> D p q c", p=p, q=p)
            ),
        },
    ),
    # chapters/07_embedding
    "embedding.equation_1": Exercise(
        equation_1,
        "multiply with E, put the class token in front of every picture's patches, then add the positions to all.",
        lambda g: [
            (normal(g, b, n, p), normal(g, p, d), normal(g, 1, 1, d), normal(g, 1, n + 1, d))
            for b, n, p, d in ((2, 6, 12, 5), (1, 4, 9, 10), (3, 5, 4, 7))
        ],
        gradients=True,
        level="easy",
        mistakes={
            "Your class token comes last: it is token 0.": partial(equation_1, order=-1),
            "Your positions are not added.": lambda x_p, E, x_class, E_pos: equation_1(x_p, E, x_class, 0 * E_pos),
            "Your class token gets no position: add E_pos after it has been put in front.": (
                lambda x_p, E, x_class, E_pos: equation_1(x_p, E, x_class - E_pos[:, :1], E_pos)
            ),
            "Your class token gets no position, and the patches get the first ones: add E_pos after the cat.": (
                lambda x_p, E, x_class, E_pos: torch.cat(
                    [x_class.expand(len(x_p), -1, -1), x_p @ E + E_pos[:, :-1]], dim=1
                )
            ),
            "The class token is one, and the pictures are several: expand it before the cat.": (
                lambda x_p, E, x_class, E_pos: torch.cat([x_class, x_p @ E], dim=1) + E_pos
            ),
        },
    ),
    "embedding.growth": Exercise(
        (16 * 32 - 14 * 14) * 1024,
        "only the positions grow: count the places of both grids, each D = 1024 wide.",
        mistakes={
            "That is the number of new places; each is D numbers.": 16 * 32 - 14 * 14,
            "That is all of the new positions; asked for is how many more there are.": 16 * 32 * 1024,
            "That is all of the new positions and the class token's; asked for is how many more.": 513 * 1024,
            "The class token has a position before and after: it adds nothing.": (16 * 32 + 1 - 14 * 14) * 1024,
            "The new picture is 256 by 512, not square.": (16 * 16 - 14 * 14) * 1024,
        },
    ),
    "embedding.resize": Exercise(
        lambda pos_embed, old_grid, new_grid: embedding.resize_positions(
            pos_embed, old_grid, new_grid, mode="bilinear", align_corners=True, antialias=False
        ),
        "cut the places into rows and columns before the width moves to the front; align the corners.",
        lambda g: [
            (normal(g, 1, 1 + old[0] * old[1], d), old, new)
            for old, new, d in (((3, 4), (5, 6), 7), ((2, 5), (4, 9), 6), ((4, 4), (7, 3), 5))
        ],
        level="hard",
        kind="repair",
        mistakes=together(resize, RESHAPED, NOT_ALIGNED)
        | {
            "Rows and columns of the old grid have changed places.": (
                lambda pos_embed, old, new: resize((), pos_embed, old[::-1], new)
            ),
            "The class token's row is lost: it stays as it is, in front.": (
                lambda pos_embed, old, new: resize((), pos_embed, old, new)[:, 1:]
            ),
            "You interpolate the class token's row among the patches'. It has no place in the grid: keep it apart.": (
                lambda pos_embed, old, new: (
                    F.interpolate(pos_embed.mT, size=1 + new[0] * new[1], mode="linear", align_corners=True).mT
                )
            ),
        },
    ),
    # chapters/08_encoder
    "encoder.layer_norm": Exercise(
        lambda x, gain, bias, eps: nn.functional.layer_norm(x, gain.shape, gain, bias, eps),
        "mean and variance run over the last axis; the variance is divided by D, not D − 1; ε stands under the root.",
        lambda g: [
            (normal(g, 2, 5, 12), normal(g, 12), normal(g, 12), 1e-6),
            (0.01 * normal(g, 3, 7), normal(g, 7), normal(g, 7), 1e-4),
        ],
        gradients=True,
        level="easy",
        mistakes={
            wrong.UnbiasedVariance: lambda x, gain, bias, eps: layer_norm(
                x, gain, bias, (x.var(dim=-1, keepdim=True) + eps).sqrt()
            ),
            "Your ε stands outside the root.": lambda x, gain, bias, eps: layer_norm(
                x, gain, bias, x.var(dim=-1, correction=0, keepdim=True).sqrt() + eps
            ),
            "Your ε is added to the standard deviation, and your variance is divided by D − 1: correction=0.": (
                lambda x, gain, bias, eps: layer_norm(x, gain, bias, x.std(dim=-1, keepdim=True) + eps)
            ),
            "Your ε is not that of the argument.": lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, gain, bias),
            "Your ε is missing.": lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, gain, bias, 0.0),
            "You divide by the variance; it is its root.": lambda x, gain, bias, eps: layer_norm(
                x, gain, bias, x.var(dim=-1, correction=0, keepdim=True) + eps
            ),
            "Mean and variance run over the tokens: LayerNorm looks at one token at a time, dim=-1.": (
                lambda x, gain, bias, eps: layer_norm(
                    x, gain, bias, (x.var(dim=-2, correction=0, keepdim=True) + eps).sqrt(), -2
                )
            ),
            "Gain and bias are missing.": lambda x, gain, bias, eps: F.layer_norm(x, gain.shape, eps=eps),
        },
    ),
    "encoder.parameters": Exercise(
        12 * (12 * 192**2 + 13 * 192),
        "768 = 4 · 192: a block has 12D² + 13D parameters.",
        mistakes={
            "That is one of the twelve blocks.": 12 * 192**2 + 13 * 192,
            "That leaves out biases and norms.": 12 * 12 * 192**2,
            "That counts the LayerNorm after the encoder.": 12 * (12 * 192**2 + 13 * 192) + 2 * 192,
            "That leaves out the norms.": 12 * (12 * 192**2 + 9 * 192),
            "That is the attention alone.": 12 * (4 * 192**2 + 4 * 192),
        },
    ),
    "encoder.block": Exercise(
        lambda z, block: block(z),
        "each LayerNorm stands before what it feeds, what is added to is not normalised, and there is one GELU.",
        lambda g: [
            (normal(g, 2, 5, 12), filled(g, lambda: encoder.EncoderBlock(12, 3, 20))),
            (normal(g, 3, 4, 10), filled(g, lambda: encoder.EncoderBlock(10, 2, 40))),
        ],
        gradients=True,
        level="hard",
        kind="repair",
        mistakes=together(encoder_block, FIRST_NORMALISED, SECOND_NORMALISED, wrong.GeluTwice)
        | {
            "Each LayerNorm stands after its sum: that is post-norm, the way of 2017.": (
                lambda z, block: block.norm2((z := block.norm1(block.attn(z) + z)) + block.mlp(z))
            ),
            "Nothing is added to what the attention gives: the first residual is missing.": (
                lambda z, block: (z := block.attn(block.norm1(z))) + block.mlp(block.norm2(z))
            ),
            "Nothing is added to what the MLP gives: the second residual is missing.": (
                lambda z, block: block.mlp(block.norm2(block.attn(block.norm1(z)) + z))
            ),
            "Both norms are norm1: the MLP has one of its own, norm2.": (
                lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp(block.norm1(z))
            ),
            "There is no GELU between the two linear maps.": (
                lambda z, block: (z := block.attn(block.norm1(z)) + z) + block.mlp.fc2(block.mlp.fc1(block.norm2(z)))
            ),
        },
    ),
    # chapters/09_vit
    "vit.pool": Exercise(
        lambda z, pool: z[:, 0] if pool == "class" else z[:, 1:].mean(dim=1),
        "the class token is token 0; the mean runs over the tokens, the middle axis, without the class token.",
        lambda g: [(normal(g, 2, 5, 12), "class"), (normal(g, 3, 7, 4), "mean")],
        gradients=True,
        level="easy",
        mistakes={
            wrong.MeanIncludesTheClassToken: lambda z, pool: z[:, 0] if pool == "class" else z.mean(dim=1),
            "Your class token is the last token: it is the first.": (
                lambda z, pool: z[:, -1] if pool == "class" else z[:, :-1].mean(dim=1)
            ),
            "Your mean runs over the channels, the last axis: it runs over the tokens.": (
                lambda z, pool: z[:, 0] if pool == "class" else z[:, 1:].mean(dim=-1)
            ),
            "The two have changed places.": lambda z, pool: z[:, 0] if pool == "mean" else z[:, 1:].mean(dim=1),
            "You take the class token whatever `pool` says.": lambda z, pool: z[:, 0],
            "You take the mean whatever `pool` says.": lambda z, pool: z[:, 1:].mean(dim=1),
        },
    ),
    "vit.quadratic": Exercise(
        6 * 768,
        "set 2T²D equal to 12TD² and solve for T.",
        mistakes={
            "That is for the attention with its four maps; the MLP has two more, of 4D² each.": 2 * 768,
            "There are two products, QKᵀ and that with the values: 2T²D.": 12 * 768,
            "That is for the MLP's maps alone: the attention has four of its own.": 4 * 768,
            "That is how many times the width; asked for is T itself.": 6,
        },
    ),
    "vit.forward": Exercise(
        lambda images, model: model(images),
        "the last LayerNorm comes before the head; the class token alone goes to the head; scores, not probabilities.",
        lambda g: [
            (normal(g, 2, 3, 8, 12), filled(g, lambda: vit.VisionTransformer(SMALL_VIT))),
            (normal(g, 3, 3, 8, 12), filled(g, lambda: vit.VisionTransformer(SMALL_VIT))),
        ],
        gradients=True,
        level="hard",
        kind="repair",
        mistakes=together(vit_forward, wrong.NoFinalNorm, MEAN_OF_ALL, wrong.SoftmaxBeforeCrossEntropy)
        | {
            "Your head sees the mean of all normalised tokens; this model's head reads the class token, z[:, 0].": (
                lambda images, model: model.head(model.norm(model.encoder(model.embedding(images))).mean(dim=1))
            ),
            "There is no head: these are features, D of them, and not the scores of K classes.": (
                lambda images, model: model.features(images)
            ),
        },
    ),
    # chapters/10_training
    "training.loss": Exercise(
        lambda scores, labels, smoothing: F.cross_entropy(scores, labels, label_smoothing=smoothing),
        "log_softmax; minus (1 − smoothing) times the true class's entry, minus smoothing times the mean of all.",
        lambda g: [
            (normal(g, b, k), torch.randint(k, (b,), generator=g), smoothing)
            for b, k, smoothing in ((4, 3, 0.0), (5, 7, 0.1), (2, 10, 0.3))
        ],
        gradients=True,
        mistakes={
            wrong.SoftmaxBeforeCrossEntropy: (
                lambda scores, labels, share: F.cross_entropy(scores.softmax(-1), labels, label_smoothing=share)
            ),
            "Your loss does not depend on the smoothing.": lambda scores, labels, share: F.cross_entropy(
                scores, labels
            ),
            "Your losses are added up; asked for is their mean.": (
                lambda scores, labels, share: F.cross_entropy(scores, labels, label_smoothing=share, reduction="sum")
            ),
            "You return a loss for each picture; asked for is their mean.": (
                lambda scores, labels, share: F.cross_entropy(scores, labels, label_smoothing=share, reduction="none")
            ),
            "The sign is wrong: a loss is minus the logarithm of a probability.": (
                lambda scores, labels, share: -F.cross_entropy(scores, labels, label_smoothing=share)
            ),
            "The logarithm is missing: minus log p, and not minus p.": lambda scores, labels, share: smoothed(
                nll(p := scores.softmax(dim=-1), labels), -p.mean(dim=-1), share
            ),
            "The softmax is missing: it is log_softmax of the scores that is wanted, not the scores.": (
                lambda scores, labels, share: smoothed(nll(scores, labels), -scores.mean(dim=-1), share)
            ),
            "The plain loss keeps its full weight: it has the share 1 − smoothing.": (
                lambda scores, labels, share: smoothed(
                    nll(log_p := scores.log_softmax(dim=-1), labels),
                    -log_p.mean(dim=-1) + nll(log_p, labels),
                    share,
                )
            ),
            "You add the losses of all classes for the even spread; it is their mean.": (
                lambda scores, labels, share: smoothed(
                    nll(log_p := scores.log_softmax(dim=-1), labels), -log_p.sum(dim=-1), share
                )
            ),
            "You spread the smoothing over the wrong classes alone; the true one gets its share of it too.": (
                lambda scores, labels, share: smoothed(
                    nll(log_p := scores.log_softmax(dim=-1), labels),
                    -(log_p.sum(dim=-1) + nll(log_p, labels)) / (scores.shape[-1] - 1),
                    share,
                )
            ),
        },
    ),
    "training.predict": Exercise(
        10 * math.log(2),
        "each of the ten questions is answered with σ(0) = ½.",
        mistakes={
            "That is the softmax cross-entropy; the sigmoid asks ten questions.": math.log(10),
            "That is one of the ten questions.": math.log(2),
            "That is in bits: take the natural logarithm.": 10.0,
            "Each question has two answers, so it costs ln 2 and not ln 10.": 10 * math.log(10),
        },
    ),
    "training.adamw": Exercise(
        steps_of_adamw,
        "the decay must not enter m and v: take eta · decay · w off the weight itself, before Adam's step.",
        lambda g: [
            (normal(g, n), normal(g, steps, n), eta, decay)
            for n, steps, eta, decay in ((3, 1, 3e-3, 0.1), (5, 4, 0.1, 0.3), (2, 7, 0.02, 0.0))
        ],
        level="hard",
        kind="repair",
        mistakes={
            wrong.l2_inside_adam: partial(steps_of, torch.optim.Adam),
            "Your decay is missing.": lambda w, gradients, eta, decay: steps_of_adamw(w, gradients, eta, 0.0),
            "Your decay is not multiplied with the learning rate.": (
                lambda w, gradients, eta, decay: steps_of_adamw(w, gradients, eta, decay / eta)
            ),
            "Your decay takes its share of the new weight, after Adam's step: take it off before.": steps_then_decay,
            "The corrections 1 − 0.9ᵗ and 1 − 0.999ᵗ are missing.": steps_uncorrected,
        },
    ),
    # chapters/11_engine
    "engine.steps": Exercise(
        24_000,
        "4 % are set apart first; a batch that is not full waits; then 64 epochs of that.",
        level="easy",
        mistakes={"The pictures that are set apart are not trained on.": 64 * (50_000 // 128)},
    ),
    "engine.ema": Exercise(
        running_mean,
        "one step after another: mean ← beta · mean + (1 − beta) · weights.",
        lambda g: [
            (normal(g, n), normal(g, steps, n), beta) for n, steps, beta in ((3, 1, 0.9), (5, 4, 0.5), (2, 7, 0.99))
        ],
        level="easy",
        mistakes={
            "Your mean gives beta to the new weights: it belongs to the mean so far.": (
                lambda start, weights, beta: running_mean(start, weights, 1 - beta)
            ),
            "That is the mean of the weights, each counting as much as any other.": (
                lambda start, weights, beta: weights.mean(dim=0)
            ),
            "Your mean begins at zero: it begins at the weights before the first step.": (
                lambda start, weights, beta: running_mean(torch.zeros_like(start), weights, beta)
            ),
        },
    ),
    "engine.patience": Exercise(
        last_epoch,
        "keep the best accuracy and its epoch; end at the first epoch that lies `patience` after that one.",
        lambda g: [
            (torch.randint(4, (n,), generator=g).double() / 4, patience)  # so that some are equal
            for n, patience in ((n, 1 + n % 4) for n in range(9, 40))
        ],
        level="medium",
        mistakes={
            "You take an equal accuracy for a better one.": (
                lambda accuracies, patience: last_epoch(accuracies + 1e-6 * torch.arange(len(accuracies)), patience)
            ),
            "You wait one epoch too long.": lambda accuracies, patience: last_epoch(accuracies, patience + 1),
            "You name the best epoch, not the last.": (lambda accuracies, patience: 1 + int(accuracies.argmax())),
        },
    ),
    "engine.accumulate": Exercise(
        gradient_in_parts,
        "divide each part's sum by the number of pictures in the whole batch.",
        lambda g: [
            (normal(g, d), normal(g, b, d), normal(g, b), parts) for d, b, parts in ((3, 4, 1), (2, 6, 3), (5, 7, 2))
        ],
        level="hard",
        kind="repair",
        mistakes={
            "Each part is divided by its own size, and the parts are added up.": sum_of_mean_gradients,
            "A mean of the parts' means is right only where all parts are of one size.": (
                lambda w, x, y, parts: sum_of_mean_gradients(w, x, y, parts) / parts
            ),
            "The sum is not divided by the number of pictures.": (
                lambda w, x, y, parts: gradient_in_parts(w, x, y, parts) * len(y)
            ),
        },
    ),
    # chapters/12_data
    "data.shifts": Exercise(
        1 / 16,
        "of the 4 moves to the side that differ by less than a patch, one is a whole one.",
        level="easy",
        mistakes={"That counts the moves along one axis; there are two.": 1 / 4},
    ),
    "data.matrix": Exercise(
        convolution_matrix,
        "row i holds the kernel with its middle on the diagonal; what would stick out at either end is cut off.",
        lambda g: [(normal(g, k), n) for k, n in ((3, 5), (5, 7), (1, 4))],
        mistakes={
            "Your kernel is turned round: each row holds it as it is.": (
                lambda kernel, n: convolution_matrix(kernel.flip(0), n)
            ),
        },
    ),
    "data.share": Exercise(
        first_of_each_class,
        "go through the classes one by one; of each, take round(share · its pictures), and one at least; then sort.",
        lambda g: [
            (torch.randint(k, (n,), generator=g), share) for k, n, share in ((3, 40, 0.2), (5, 31, 0.05), (4, 25, 1.0))
        ],
    ),
    "data.reach": Exercise(
        receptive_field,
        "a kernel of k adds k − 1 steps; a step is as many pixels as the strides before it, multiplied together.",
        lambda g: [
            (2 * torch.randint(1, 4, (n,), generator=g) + 1, torch.randint(1, 4, (n,), generator=g)) for n in (5, 3, 8)
        ],
    ),
    # chapters/13_attention_maps
    "attention_maps.predict": Exercise(
        3 / 4,
        "after one block the class token is half patch; in the second it keeps half of that, and takes a half.",
        level="easy",
        mistakes={
            "That is after the first block.": 1 / 2,
            "Without the residual the class token would be all patch; half of it stays in each block.": 1.0,
            "That is what is left of the class token itself.": 1 / 4,
        },
    ),
    "attention_maps.rollout": Exercise(
        attention_maps.rollout,
        "mean over heads, not pictures; each query's row sums to 1; the later block stands on the left.",
        lambda g: [
            (normal(g, blocks, b, h, t, t).softmax(dim=-1),)
            for blocks, b, h, t in ((2, 3, 4, 5), (3, 2, 3, 6), (4, 1, 2, 3))
        ],
        mistakes={
            wrong.rollout_without_the_identity: wrong.rollout_without_the_identity,
            wrong.rollout_normalised_over_the_queries: wrong.rollout_normalised_over_the_queries,
            "Your blocks are multiplied in the wrong order: the later one stands on the left.": (
                lambda weights: attention_maps.rollout(weights.flip(0))
            ),
        },
    ),
    "attention_maps.lengths": Exercise(
        lambda weights, values, w_o: (
            weights * (values @ w_o.unflatten(0, (values.shape[1], -1))).norm(dim=-1)[:, :, None]
        ),
        "multiply each head's values with its own strip of W_O; the length of a key's vector scales that key's column.",
        lambda g: [
            (normal(g, b, h, t, t).softmax(dim=-1), normal(g, b, h, t, d), normal(g, h * d, h * d))
            for b, h, t, d in ((2, 3, 5, 4), (1, 2, 4, 3), (3, 4, 6, 2))
        ],
        mistakes={
            "Those are the weights alone.": lambda weights, values, w_o: weights,
            "You measure the values before W_O; what counts is what it makes of them.": (
                lambda weights, values, w_o: weights * values.norm(dim=-1)[:, :, None]
            ),
        },
    ),
    # chapters/14_attention_distance
    "attention_distance.predict": Exercise(
        128 / 9,
        "list the distances from each of the three patches to all three; the mean of nine numbers.",
        level="easy",
        mistakes={"A patch's distance to itself is 0, and counts.": 128 / 6},
    ),
    "attention_distance.distance": Exercise(
        lambda weights, rows, columns, patch_size: attention_maps.attention_distance(
            weights[None], (rows, columns), patch_size
        )[0],
        "leave out row and column 0, divide each row by its sum, weight the pixels between centres, then take means.",
        lambda g: [
            (normal(g, b, h, 1 + rows * columns, 1 + rows * columns).softmax(dim=-1), rows, columns, patch_size)
            for b, h, rows, columns, patch_size in ((2, 3, 2, 3, 4), (1, 2, 3, 4, 16), (3, 4, 4, 2, 5))
        ],
        mistakes={
            "Your distances are in patches: multiply with the patch's side.": (
                lambda weights, rows, columns, patch_size: attention_maps.attention_distance(
                    weights[None], (rows, columns), 1
                )[0]
            ),
            "Your rows no longer sum to 1 once the class token is left out.": (
                lambda weights, rows, columns, patch_size: (
                    (weights[..., 1:, 1:] * attention_maps.patch_distances((rows, columns), patch_size).to(weights))
                    .sum(dim=-1)
                    .mean(dim=(0, 2))
                )
            ),
        },
    ),
    "attention_distance.entropy": Exercise(
        lambda weights: attention_maps.attention_entropy(weights[None])[0],
        "the sum over keys, with 0 · ln 0 = 0; then the mean over queries and pictures.",
        lambda g: [
            (normal(g, b, h, t, t).masked_fill(~some_mask(g, t, t), -torch.inf).softmax(dim=-1),)
            for b, h, t in ((2, 3, 5), (1, 2, 7), (3, 4, 6))
        ],
        mistakes={
            "That is in bits: take the natural logarithm.": (
                lambda weights: attention_maps.attention_entropy(weights[None])[0] / math.log(2)
            ),
            "Your sign is turned: an entropy is never negative.": (
                lambda weights: -attention_maps.attention_entropy(weights[None])[0]
            ),
            "You add up over the queries: take their mean.": (
                lambda weights: attention_maps.attention_entropy(weights[None])[0] * weights.shape[-1]
            ),
        },
    ),
    "attention_distance.lens": Exercise(
        lambda z, norm, head, k: head(norm(z[:, :, 1:])).softmax(dim=-1)[..., k],
        "leave out the class token, then norm, head and softmax over classes, for all tokens and depths at once.",
        lambda g: [
            (normal(g, depth, b, t, d), *filled(g, lambda d=d, k=k: nn.Sequential(nn.LayerNorm(d), nn.Linear(d, k))), 2)
            for depth, b, t, d, k in ((3, 2, 5, 12, 4), (4, 1, 6, 8, 5))
        ],
        mistakes={
            "Your tokens go to the head without the last LayerNorm.": (
                lambda z, norm, head, k: head(z[:, :, 1:]).softmax(dim=-1)[..., k]
            ),
            "Those are scores, not probabilities.": lambda z, norm, head, k: head(norm(z[:, :, 1:]))[..., k],
        },
    ),
    # chapters/15_pretrained
    "pretrained.numbers": Exercise(
        86_567_656 + 769 * (21_843 - 1_000),
        "only the head differs: 768 weights and a bias for each class.",
        level="easy",
        mistakes={
            "You keep the old head's thousand classes too.": 86_567_656 + 769 * 21_843,
            "The bias of the head is missing.": 86_567_656 + 768 * (21_843 - 1_000),
        },
    ),
    "pretrained.out": Exercise(
        lambda kernel: kernel.flatten(0, 1).T,
        "the first two axes, head and column of the head, are the inputs; torch has outputs first.",
        lambda g: [(normal(g, h, d, h * d),) for h, d in ((3, 4), (2, 5), (5, 3))],
        mistakes={
            "Your matrix is not turned over: torch has outputs first.": lambda kernel: kernel.flatten(0, 1),
        },
    ),
    "pretrained.qkv": Exercise(
        lambda query, key, value: torch.cat([kernel.flatten(1).T for kernel in (query, key, value)]),
        "each kernel becomes its own block of rows, turned over: all of query, then all of key, then all of value.",
        lambda g: [tuple(normal(g, h * d, h, d) for _ in range(3)) for h, d in ((3, 4), (2, 5), (5, 3))],
        mistakes={
            "Your kernels are not turned over: torch has outputs first.": (
                lambda query, key, value: torch.cat([kernel.flatten(1) for kernel in (query, key, value)])
            ),
            "The order is query, key, value.": (
                lambda query, key, value: torch.cat([kernel.flatten(1).T for kernel in (key, query, value)])
            ),
        },
    ),
    "pretrained.fold": Exercise(
        lambda weight, bias, mean, std: bias - torch.einsum("dcpq,c->d", weight, mean / std),
        "the sum of weight · (x − mean)/std falls into a part with x and a part without, which the bias can take in.",
        lambda g: [
            (normal(g, d, c, p, p), normal(g, d), normal(g, c).abs(), normal(g, c).abs() + 0.5)
            for d, c, p in ((5, 3, 4), (7, 1, 2), (4, 2, 3))
        ],
        mistakes={
            "You add what has to be taken away.": (
                lambda weight, bias, mean, std: bias + torch.einsum("dcpq,c->d", weight, mean / std)
            ),
            "You do not divide by the deviation.": (
                lambda weight, bias, mean, std: bias - torch.einsum("dcpq,c->d", weight, mean)
            ),
        },
    ),
    # chapters/16_fine_tuning
    "fine_tuning.tokens": Exercise(
        577,
        "24 patches along each side, and the class token.",
        level="easy",
        mistakes={"The class token is missing.": 576, "That is the number at 224 pixels.": 197},
    ),
    "fine_tuning.votes": Exercise(
        lambda queries, bank, labels, num_classes, k: neighbour_votes(queries, bank, labels, num_classes, k, math.inf),
        "normalise both, multiply, take the k largest cosines of each row, and count their labels.",
        lambda g: [
            (normal(g, m, d), normal(g, n, d), torch.randint(classes, (n,), generator=g), classes, k)
            for m, n, d, classes, k in ((5, 11, 3, 4, 1), (13, 19, 6, 2, 3), (8, 17, 7, 5, 6))
        ],
        level="medium",
        mistakes={
            "You take the products, not the cosines: normalise both first.": (
                lambda queries, bank, labels, num_classes, k: votes_of(queries @ bank.mT, labels, num_classes, k)
            ),
            "You take the distance, not the cosine.": (
                lambda queries, bank, labels, num_classes, k: votes_of(
                    -torch.cdist(queries, bank), labels, num_classes, k
                )
            ),
            "You take those furthest away.": (
                lambda queries, bank, labels, num_classes, k: votes_of(
                    -F.normalize(queries, dim=-1) @ F.normalize(bank, dim=-1).mT, labels, num_classes, k
                )
            ),
        },
    ),
    "fine_tuning.standardise": Exercise(
        lambda train, test: (test - train.mean(dim=0)) / train.std(dim=0),
        "mean and deviation are those of the training features alone.",
        lambda g: [(3 + 2 * normal(g, n, d), normal(g, m, d)) for n, m, d in ((7, 4, 3), (9, 12, 5))],
        level="medium",
        kind="repair",
        mistakes={
            "The test features still have a say.": (
                lambda train, test: (test - torch.cat([train, test]).mean(0)) / torch.cat([train, test]).std(0)
            ),
            "The test features are standardised by themselves: a single picture has no deviation.": (
                lambda train, test: (test - test.mean(dim=0)) / test.std(dim=0)
            ),
        },
    ),
    # chapters/17_distillation
    "distillation.parameters": Exercise(
        2 * 1024 + 1024 * 100 + 100,
        "a token, its position, and a second head with its bias: what size is each?",
        level="easy",
        mistakes={
            "The second head's bias is missing.": 2 * 1024 + 1024 * 100,
            "The position of the new token is missing.": 1024 + 1024 * 100 + 100,
        },
    ),
    "distillation.soft": Exercise(
        soft_distillation_loss,
        "sum over classes, average over pictures; both sides of the divergence at temperature τ, then times τ².",
        lambda g: [
            (*some_distillation(g, b, k), tau, share) for b, k, tau, share in ((4, 3, 3.0, 0.1), (2, 7, 1.5, 0.8))
        ],
        mistakes={
            "τ² is missing before the divergence.": (lambda *given: weakened_distillation(given[-2] ** 2, *given)),
            "Your λ and 1 − λ are exchanged.": lambda *given: soft_distillation_loss(*given[:-1], 1 - given[-1]),
            "Your divergence is a mean over all numbers, classes too: sum over the classes.": (
                lambda *given: weakened_distillation(given[0].shape[-1], *given)
            ),
        },
    ),
    "distillation.token": Exercise(
        token_distillation_loss,
        "each head hears one voice alone, each voice has weight ½, and the teacher's voice is a class.",
        lambda g: [(normal(g, b, k), *some_distillation(g, b, k)) for b, k in ((4, 3), (5, 7))],
        mistakes={
            "You exchange the two heads: the label is the class head's.": (
                lambda first, second, *given: token_distillation_loss(second, first, *given)
            ),
            "Each voice has weight ½.": lambda *given: 2 * token_distillation_loss(*given),
        },
    ),
    "distillation.gradient": Exercise(
        gradient_of_soft_distillation,
        "(1 − λ) times softmax minus one-hot, plus λτ times softmax minus softmax at temperature τ, all divided by B.",
        lambda g: [
            (*some_distillation(g, b, k), tau, share) for b, k, tau, share in ((3, 4, 2.0, 0.3), (5, 2, 0.7, 0.6))
        ],
        mistakes={
            "Your gradient is that of the sum over pictures, not of their mean.": (
                lambda *given: gradient_of_soft_distillation(*given) * len(given[0])
            ),
            "Your sign is turned.": lambda *given: -gradient_of_soft_distillation(*given),
        },
    ),
    # chapters/18_heads
    "heads.iou": Exercise(
        3 / 5,
        "columns are enough: how many have both squares in common, and how many does either of them cover?",
        level="easy",
    ),
    "heads.soft_argmax": Exercise(
        soft_argmax,
        "softmax over all cells of a map together; cell j has its centre at (j + ½) · cell − ½; x goes with columns.",
        lambda g: [(normal(g, 2, 3, 4, 6), 2.0), (3 * normal(g, 3, 1, 7, 5), 6.0), (normal(g, 1, 2, 3, 9), 1.0)],
        mistakes={
            "x and y are exchanged: x goes with columns.": lambda heatmaps, cell: soft_argmax(heatmaps, cell).flip(-1),
            "Your places are in cells: one is `cell` pixels wide.": lambda heatmaps, cell: soft_argmax(heatmaps, 1.0),
        },
    ),
    "heads.votes": Exercise(
        neighbour_votes,
        "divide features by their lengths first; and where two neighbours have one class, add their votes.",
        lambda g: [
            (normal(g, m, d), normal(g, n, d) * normal(g, n, 1).exp(), torch.randint(c, (n,), generator=g), c, k, tau)
            for m, n, d, c, k, tau in ((3, 20, 4, 2, 7, 0.5), (5, 30, 6, 3, 10, 0.07))
        ],
        mistakes={
            "All your votes weigh alike; nearer ones weigh more.": (
                lambda queries, bank, labels, num_classes, k, tau: neighbour_votes(
                    queries, bank, labels, num_classes, k, math.inf
                )
            ),
        },
    ),
    "heads.floor": Exercise(
        math.log(2 * math.pi * math.e * (3 / 2) ** 2),
        "−ln p of the Gaussian's density has the mean ln(2πσ²) + 1; a cell's probability is density times area.",
    ),
    # chapters/19_mistakes
    "mistakes.count": Exercise(
        (10 * 0.9 + 0.5) / 11,
        "each of the eleven batches has one vote: ten say 0.9, the last says 15/30.",
        level="easy",
        mistakes={
            "That counts pictures, as one should; asked for is what the mean of the batches says.": 915 / 1030,
            "There are eleven batches, not ten.": (10 * 0.9 + 0.5) / 10,
            "That leaves the last batch out.": 0.9,
        },
    ),
    "mistakes.order": Exercise(
        order_gap,
        "permute, then the block; the block, then permute; the largest absolute difference of the two.",
        lambda g: [
            (filled(g, build), normal(g, b, t, d), some_order(g, t))
            for build, b, t, d in (
                (lambda: encoder.EncoderBlock(12, 3, 20), 2, 6, 12),
                (lambda: wrong.ViewWithoutTranspose(10, 2), 3, 8, 10),
                (lambda: wrong.MergedWithoutTranspose(8, 4), 4, 7, 8),
            )
        ],
        mistakes={
            "You permute what goes in, and leave what comes out of the other call as it is.": (
                lambda block, x, order: (block(x[:, order]) - block(x)).abs().max()
            ),
            "You undo the order by the order itself; what undoes it is order.argsort().": (
                lambda block, x, order: (block(x[:, order])[:, order] - block(x)).abs().max()
            ),
            "You take the mean of the differences; asked for is the largest.": (
                lambda block, x, order: (block(x[:, order]) - block(x)[:, order]).abs().mean()
            ),
        },
    ),
    "mistakes.repair": Exercise(
        lambda images, model: model(images),
        "ask diagnose(SmallViT(VisionTransformer(small)), (3, 8, 12), 5), mend what it names, and compare the block "
        "with Equations 2 and 3 line by line. The last two are named here.",
        lambda g: [
            (normal(g, 2, 3, 8, 12), filled(g, lambda: vit.VisionTransformer(SMALL_VIT))),
            (normal(g, 3, 3, 8, 12), filled(g, lambda: vit.VisionTransformer(SMALL_VIT))),
        ],
        gradients=True,
        level="hard",
        kind="repair",
        mistakes={
            made: variant
            for made, variant in together(
                with_mistakes,
                wrong.view_without_permute,
                wrong.DropoutForgetsThePositions,
                wrong.ScaledByTheWholeWidth,
                wrong.MergedWithoutTranspose,
                wrong.GeluTwice,
            ).items()
            if not isinstance(made, tuple) or len(made) == 2
        },
    ),
    # chapters/20_speed
    "speed.block": Exercise(
        lambda x: block_flops(x, 24, 4),
        "the four maps of the attention, the two of the MLP, and two products whose cost grows with T².",
        lambda g: [(normal(g, 2, 5, 12),), (normal(g, 3, 40, 8),), (normal(g, 4, 10, 6),)],
        tolerance=1e-12,
        level="easy",
        mistakes={
            "You count a multiply-add as one operation.": lambda x: block_flops(x, 12, 2),
            "You leave out QKᵀ and ·V.": lambda x: block_flops(x, 24, 0),
            "You count one of the two products QKᵀ and ·V.": lambda x: block_flops(x, 24, 2),
            "You forget W_O, or one of Q, K and V.": lambda x: block_flops(x, 22, 4),
            "You count a single picture.": lambda x: block_flops(x[:1], 24, 4),
            "You take the whole batch for one sequence.": lambda x: block_flops(x.flatten(0, 1)[None], 24, 4),
        },
    ),
    "speed.tokens": Exercise(
        4 * 384,
        "set the two products, 4T²D, equal to the MLP's two maps, 16TD².",
        mistakes={
            "That is where they cost as much as the attention's four maps.": 2 * 384,
            "That is where they cost as much as all six maps of the block.": 6 * 384,
            "That sets one of the two products equal to the MLP.": 8 * 384,
        },
    ),
    "speed.bytes": Exercise(
        8 * 12 * 12 * 577**2 * 2,
        "pictures · blocks · heads · T² · bytes, where T counts the class token.",
        tolerance=1e-9,
        mistakes={
            "That leaves out the class token.": 8 * 12 * 12 * 576**2 * 2,
            "That is for one block, or for one head of each.": 8 * 12 * 577**2 * 2,
            "That is for one picture.": 12 * 12 * 577**2 * 2,
            "bfloat16 has two bytes, not four.": 8 * 12 * 12 * 577**2 * 4,
        },
    ),
    "speed.streaming": Exercise(
        lambda q, k, v, size: attention(q, k, v)[0],
        "where the maximum grows from m to m', multiply both the sum and the blend by exp(m − m'); divide at the end.",
        lambda g: [
            (normal(g, t, d), 4 * normal(g, s, d), normal(g, s, w), size)
            for t, s, d, w, size in ((3, 10, 4, 5, 4), (5, 12, 7, 2, 3), (2, 9, 6, 8, 16))
        ],
        level="hard",
        mistakes={
            "Your softmax ends with each stretch of keys; it has to run over all of them.": (
                lambda q, k, v, size: sum(
                    attention(q, some, values)[0] for some, values in zip(k.split(size), v.split(size), strict=True)
                )
            ),
            "You leave out what is before the last stretch of keys.": (
                lambda q, k, v, size: attention(q, k.split(size)[-1], v.split(size)[-1])[0]
            ),
            "Your scores are not divided by √d.": (lambda q, k, v, size: attention_weights(q @ k.mT) @ v),
        },
    ),
}
