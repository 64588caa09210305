"""The checkers behind the exercises.

A chapter's exercise is a stub in one cell and `check("chapter.name", attempt)` in the next. The attempt is compared
with the reference on fresh inputs, or with the answer where a number is asked for.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook import embedding, encoder, heads, multihead, patches, self_attention, training, transformer, vit  # noqa: F401
from vitbook.attention import attention, attention_scores, attention_weights
from vitbook.names import unknown


@dataclass(frozen=True)
class Exercise:
    """What a right attempt does.

    reference: the function to match, or the number to find; inputs: makes the argument lists to try, all their sizes
    different, float64, from a generator; hint: said after a wrong attempt; tolerance: largest relative error.
    """

    reference: Callable | float
    hint: str
    inputs: Callable[[torch.Generator], list[tuple]] = field(default=lambda generator: [()])
    tolerance: float = 1e-6


def check(name: str, attempt) -> None:
    """Say whether the attempt at exercise `name` is right, and if not, where it first differs.

    attempt: a function, or a number (None for not attempted). An exception inside the attempt is passed on as it is, at
    the reader's own line, with a note of what the function was tried on. Raises ValueError for an unknown name.
    """
    if name not in EXERCISES:
        raise ValueError(unknown("exercise", name, EXERCISES))
    exercise = EXERCISES[name]
    if not callable(exercise.reference):
        print(f"{name}: {verdict_on_number(attempt, exercise.reference, exercise.hint)}")
        return
    if attempt is None or attempt is ...:
        print(f"{name}: {NOT_ATTEMPTED}")
        return
    if not callable(attempt):
        print(f"{name}: not yet: expected a function, got {describe(attempt)}. Hint: {exercise.hint}")
        return
    fresh = torch.Generator()
    fresh.seed()  # other numbers at every call; the global generator stays as it is
    for arguments in exercise.inputs(fresh):
        tried = f"tried on: {', '.join(describe(argument) for argument in arguments)}"
        expected = exercise.reference(*deepcopy(arguments))
        try:
            got = attempt(*deepcopy(arguments))  # it may change what it is given
        except Exception as error:
            error.add_note(f"{name}, {tried}\nHint: {exercise.hint}")
            raise
        verdict = verdict_on_result(got, expected, exercise.hint, exercise.tolerance)
        if verdict != RIGHT:
            print(f"{name}: {verdict}" + (f"\n  {tried}" if verdict != NOT_ATTEMPTED else ""))
            return
    print(f"{name}: {RIGHT}")


RIGHT = "right."
NOT_ATTEMPTED = "not attempted yet."


def verdict_on_number(got, expected: float, hint: str) -> str:
    """One sentence on a predicted number, which does not give the answer away."""
    if got is None or got is ...:
        return NOT_ATTEMPTED
    try:
        got = float(got)
    except (TypeError, ValueError, RuntimeError):
        return f"not yet: expected a number, got {describe(got)}."
    if not math.isclose(got, expected, rel_tol=1e-3 if isinstance(expected, float) else 0.0):
        direction = "too small" if got < expected else "too large" if got > expected else "no number"
        return f"not yet: {got:,.10g} is {direction}. Hint: {hint}"
    return RIGHT


def verdict_on_result(got, expected, hint: str, tolerance: float) -> str:
    """One sentence on a function's result: right, not attempted, or what was expected and what came."""
    if got is None or got is ...:
        return NOT_ATTEMPTED
    if getattr(expected, "dtype", None) == torch.bool and getattr(got, "dtype", None) != torch.bool:
        return f"not yet: expected a boolean tensor, got {getattr(got, 'dtype', type(got).__name__)}. Hint: {hint}"
    try:
        got, expected = (torch.as_tensor(value, dtype=torch.float64) for value in (got, expected))
    except (TypeError, ValueError, RuntimeError):
        return f"not yet: expected {describe(expected)}, got {type(got).__name__}. Hint: {hint}"
    if got.shape != expected.shape:
        return f"not yet: expected shape {tuple(expected.shape)}, got {tuple(got.shape)}. Hint: {hint}"
    if not torch.allclose(got, expected, rtol=tolerance, atol=tolerance):
        worst = (got - expected).abs().nan_to_num(torch.inf).argmax()
        numbers = f"expected {expected.flatten()[worst]:.10g}, got {got.flatten()[worst]:.10g}"
        where = f" at {tuple(int(i) for i in torch.unravel_index(worst, got.shape))}" if got.ndim else ""
        return f"not yet: {numbers}{where}. Hint: {hint}"
    return RIGHT


def describe(value) -> str:
    """A tensor's shape, a module's name, anything else as it prints."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return type(value).__name__ if isinstance(value, nn.Module) else repr(value)


def normal(generator: torch.Generator, *shape: int) -> Tensor:
    """Standard normal float64 numbers of the given shape, fresh from `generator`."""
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def some_mask(generator: torch.Generator, queries: int, keys: int) -> Tensor:
    """A random boolean mask (queries, keys) in which every query may look at one key at least."""
    mask = torch.rand(queries, keys, generator=generator) < 0.6
    mask[:, 0] = True
    return mask


def filled(generator: torch.Generator, build: Callable[[], nn.Module]) -> nn.Module:
    """The module that `build` makes, in float64 and in evaluation, every parameter drawn from `generator`."""
    with torch.device("meta"):  # so that the global generator stays as it is
        module = build()
    module = module.to_empty(device="cpu").double().eval()
    for parameter in module.parameters():
        parameter.data = 0.5 * normal(generator, *parameter.shape)
    return module


SMALL_VIT = vit.ViTConfig(image_size=(8, 12), patch_size=4, num_classes=5, dim=12, depth=2, num_heads=3, mlp_dim=20)


def steps_of_adamw(w: Tensor, gradients: Tensor, eta: float, decay: float) -> Tensor:
    """A parameter after one step of `torch.optim.AdamW` for each of its gradients. (n,), (steps, n) → (n,)."""
    parameter = nn.Parameter(w.clone())
    optimizer = torch.optim.AdamW([parameter], lr=eta, weight_decay=decay)
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
    return parameter.detach()


def running_mean(start: Tensor, weights: Tensor, beta: float) -> Tensor:
    """The running mean of weights after the last step."""
    mean = start
    for w in weights:
        mean = torch.lerp(w, mean, beta)
    return mean


def last_epoch(accuracies: list[float], patience: int) -> int:
    """The epoch after which a training with this patience ends."""
    best = 0
    for epoch in range(1, len(accuracies)):
        if accuracies[epoch] > accuracies[best]:
            best = epoch
        if epoch - best >= patience:
            return epoch + 1
    return len(accuracies)


def gradient_in_parts(w: Tensor, x: Tensor, y: Tensor, parts: int) -> Tensor:
    """The gradient of the mean squared error, which does not depend on the parts."""
    return 2 * x.T @ (x @ w - y) / len(y)


EXERCISES: dict[str, Exercise] = {
    # chapters/01_attention
    "attention.weights": Exercise(
        lambda scores: scores.softmax(dim=-1),
        "subtract each row's maximum before the exponential, and divide by the sum over the keys, the last axis.",
        lambda g: [(normal(g, 2, 3, 5),), (1000 * normal(g, 4, 7),)],
    ),
    "attention.predict": Exercise(2 / 5, "exponentiate the four scores first; e to the power of ln 2 is round."),
    "attention.masked": Exercise(
        lambda q, k, v, mask: attention(q, k, v, mask)[0],
        "divide by √d, hide with −∞ where the mask is False, softmax over the keys, multiply with v.",
        lambda g: (
            [
                (normal(g, t, d), normal(g, s, d), normal(g, s, w), some_mask(g, t, s))
                for t, s, d, w in ((3, 5, 4, 2), (2, 6, 9, 7))
            ]
            + [(normal(g, 2, 3, 4), normal(g, 2, 5, 4), normal(g, 2, 5, 6), some_mask(g, 3, 5))]
        ),
    ),
    # chapters/02_scale
    "scale.jacobian": Exercise(
        lambda weights: torch.diag_embed(weights) - weights.unsqueeze(-1) * weights.unsqueeze(-2),
        "entry (i, j) is wᵢ(1 − wᵢ) where i = j and −wᵢwⱼ elsewhere, for each row of weights by itself.",
        lambda g: [(normal(g, 5).softmax(dim=-1),), (normal(g, 2, 3, 4).softmax(dim=-1),)],
    ),
    "scale.predict": Exercise(6, "each of the d products has variance 4 · 9; add them, take the root, divide by √d."),
    "scale.repair": Exercise(
        lambda q, k: attention_weights(attention_scores(q, k)),
        "divide by √D_h, the width of one head, before the softmax, which runs over the keys, the last axis.",
        lambda g: [(normal(g, b, h, t, d), normal(g, b, h, t, d)) for b, h, t, d in ((2, 3, 5, 4), (1, 6, 4, 7))],
    ),
    # chapters/03_self_attention
    "self_attention.by_hand": Exercise(
        lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v)[0],
        "project x three times, divide the scores by √D_h, softmax over the keys, blend the values.",
        lambda g: [(normal(g, 4, 6), *normal(g, 3, 6, 3)), (normal(g, 2, 5, 7), *normal(g, 3, 7, 4))],
    ),
    "self_attention.count": Exercise(
        sum(p.numel() for p in self_attention.SelfAttention(192, 64).parameters()),
        "three linear maps from 192 to 64, each a matrix and a bias.",
    ),
    "self_attention.product": Exercise(
        lambda w_q, w_k: w_q @ w_k.T / w_q.shape[-1] ** 0.5,
        "X M Xᵀ must equal Q Kᵀ/√D_h with Q = X W_Q and K = X W_K.",
        lambda g: [(normal(g, 6, 3), normal(g, 6, 3)), (normal(g, 5, 8), normal(g, 5, 8))],
    ),
    # chapters/04_multihead
    "multihead.merge_heads": Exercise(
        multihead.merge_heads,
        "exchange heads and tokens first, then join heads and columns, the last two axes.",
        lambda g: [(normal(g, 2, 3, 5, 4),), (normal(g, 3, 2, 4, 5),), (normal(g, 2, 4, 4, 3),)],
    ),
    "multihead.parameters": Exercise(
        4 * 384**2 + 384, "four D×D weights; without qkv_bias only W_O keeps its bias, of D numbers."
    ),
    "multihead.qkv_order": Exercise(
        lambda weight, num_heads: multihead.rearrange(weight, "(h three d) D -> (three h d) D", three=3, h=num_heads),
        "the rows are (head, which of the three, column); exchange the first two of these and keep the third.",
        lambda g: [(normal(g, 36, 12), 3), (normal(g, 30, 10), 5), (normal(g, 24, 8), 2)],
    ),
    # chapters/05_transformer
    "transformer.mask": Exercise(
        lambda tokens, padding: transformer.causal_mask(tokens.shape[1]) & transformer.padding_mask(tokens, padding),
        "True = may look: the key is not after the query, and the key (the last axis) is not padding; B comes first.",
        lambda g: [
            (torch.randint(0, 3, (2, 5), generator=g), 0),
            (torch.randint(4, 7, (3, 4), generator=g), 5),
        ],
    ),
    "transformer.parameters": Exercise(
        16 * 512**2 + 19 * 512, "an encoder layer has 12D² + 13D; what has a decoder layer that it has not?"
    ),
    "transformer.shift": Exercise(
        lambda code, k: torch.view_as_real(  # sin + i cos, turned back by ωk
            torch.view_as_complex(code.unflatten(-1, (-1, 2)))
            * torch.exp(-1j * k * 10_000.0 ** (-torch.arange(0, code.shape[-1], 2, dtype=code.dtype) / code.shape[-1]))
        ).flatten(-2),
        "turn each pair (column 2i: sine, column 2i + 1: cosine) by equation 2, with ω from the width D.",
        lambda g: [
            (transformer.sincos_positions(30, d).double()[torch.randperm(30, generator=g)[:t]], k)
            for t, d, k in ((5, 8, 3), (7, 12, -4))
        ],
        tolerance=1e-5,  # so that clock hands in float32 pass
    ),
    # chapters/06_patches
    "patches.patchify": Exercise(
        patches.patchify,
        "order the six axes as b, row of patches, column of patches, channel, pixel row, pixel column; then join.",
        lambda g: [(normal(g, 2, 3, 8, 12), 4), (normal(g, 1, 2, 15, 5), 5), (normal(g, 3, 1, 4, 6), 2)],
    ),
    "patches.ratio": Exercise(
        (24 / 14) ** 4, "count the patches of both pictures, without a class token; the weights are their squares."
    ),
    "patches.kernel": Exercise(
        lambda weight, patch_size: patches.rearrange(weight, "D (p q c) -> D c p q", p=patch_size, q=patch_size),
        "the columns run over row, column, channel: cut them so, then move the channel to the front.",
        lambda g: [(normal(g, 5, 48), 4), (normal(g, 4, 18), 3), (normal(g, 3, 8), 2)],
    ),
    # chapters/07_embedding
    "embedding.equation_1": Exercise(
        lambda x_p, E, x_class, E_pos: torch.cat([x_class.expand(len(x_p), -1, -1), x_p @ E], dim=1) + E_pos,
        "multiply with E, put the class token in front of every picture's patches, then add the positions to all.",
        lambda g: [
            (normal(g, b, n, p), normal(g, p, d), normal(g, 1, 1, d), normal(g, 1, n + 1, d))
            for b, n, p, d in ((2, 6, 12, 5), (1, 4, 9, 10), (3, 5, 4, 7))
        ],
    ),
    "embedding.growth": Exercise(
        (16 * 32 - 14 * 14) * 1024, "only the positions grow: count the places of both grids, each D = 1024 wide."
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
    ),
    # chapters/08_encoder
    "encoder.layer_norm": Exercise(
        lambda x, gain, bias, eps: nn.functional.layer_norm(x, gain.shape, gain, bias, eps),
        "mean and variance run over the last axis; the variance is divided by D, not D − 1; ε stands under the root.",
        lambda g: [
            (normal(g, 2, 5, 12), normal(g, 12), normal(g, 12), 1e-6),
            (0.01 * normal(g, 3, 7), normal(g, 7), normal(g, 7), 1e-4),
        ],
    ),
    "encoder.parameters": Exercise(12 * (12 * 192**2 + 13 * 192), "768 = 4 · 192: a block has 12D² + 13D parameters."),
    "encoder.block": Exercise(
        lambda z, block: block(z),
        "each LayerNorm stands before what it feeds, what is added to is not normalised, and there is one GELU.",
        lambda g: [
            (normal(g, 2, 5, 12), filled(g, lambda: encoder.EncoderBlock(12, 3, 20))),
            (normal(g, 3, 4, 10), filled(g, lambda: encoder.EncoderBlock(10, 2, 40))),
        ],
    ),
    # chapters/09_vit
    "vit.pool": Exercise(
        lambda z, pool: z[:, 0] if pool == "class" else z[:, 1:].mean(dim=1),
        "the class token is token 0; the mean runs over the tokens, the middle axis, without the class token.",
        lambda g: [(normal(g, 2, 5, 12), "class"), (normal(g, 3, 7, 4), "mean")],
    ),
    "vit.quadratic": Exercise(6 * 768, "set 2T²D equal to 12TD² and solve for T."),
    "vit.forward": Exercise(
        lambda images, model: model(images),
        "the last LayerNorm comes before the head; the class token alone goes to the head; scores, not probabilities.",
        lambda g: [
            (normal(g, 2, 3, 8, 12), filled(g, lambda: vit.VisionTransformer(SMALL_VIT))),
            (normal(g, 3, 3, 8, 12), filled(g, lambda: vit.VisionTransformer(SMALL_VIT))),
        ],
    ),
    # chapters/10_training
    "training.loss": Exercise(
        lambda scores, labels, smoothing: F.cross_entropy(scores, labels, label_smoothing=smoothing),
        "log_softmax; minus (1 − smoothing) times the true class's entry, minus smoothing times the mean of all.",
        lambda g: [
            (normal(g, b, k), torch.randint(k, (b,), generator=g), smoothing)
            for b, k, smoothing in ((4, 3, 0.0), (5, 7, 0.1), (2, 10, 0.3))
        ],
    ),
    "training.predict": Exercise(10 * math.log(2), "each of the ten questions is answered with σ(0) = ½."),
    "training.adamw": Exercise(
        steps_of_adamw,
        "the decay must not enter m and v: take eta · decay · w off the weight itself, before Adam's step.",
        lambda g: [
            (normal(g, n), normal(g, steps, n), eta, decay)
            for n, steps, eta, decay in ((3, 1, 3e-3, 0.1), (5, 4, 0.1, 0.3), (2, 7, 0.02, 0.0))
        ],
    ),
    # chapters/11_engine
    "engine.steps": Exercise(
        24_000, "4 % are set apart first; a batch that is not full waits; then 64 epochs of that."
    ),
    "engine.ema": Exercise(
        running_mean,
        "one step after another: mean ← beta · mean + (1 − beta) · weights.",
        lambda g: [
            (normal(g, n), normal(g, steps, n), beta) for n, steps, beta in ((3, 1, 0.9), (5, 4, 0.5), (2, 7, 0.99))
        ],
    ),
    "engine.patience": Exercise(
        last_epoch,
        "keep the best accuracy and its epoch; end at the first epoch that lies `patience` after that one.",
        lambda g: [
            ([0.3, 0.5, 0.4, 0.45, 0.6, 0.7], 2),
            ([0.3, 0.5, 0.4, 0.6, 0.6, 0.5, 0.9], 2),
            ([0.1, 0.2, 0.3], 1),
            ([0.2, 0.2, 0.5], 1),
            (torch.rand(12, generator=g).tolist(), 3),
        ],
    ),
    "engine.accumulate": Exercise(
        gradient_in_parts,
        "divide each part's sum by the number of pictures in the whole batch.",
        lambda g: [
            (normal(g, d), normal(g, b, d), normal(g, b), parts) for d, b, parts in ((3, 4, 1), (2, 6, 3), (5, 7, 2))
        ],
    ),
    # chapters/16_fine_tuning
    "fine_tuning.tokens": Exercise(577, "24 patches along each side, and the class token."),
    "fine_tuning.votes": Exercise(
        lambda queries, bank, labels, num_classes, k: heads.neighbour_votes(
            queries, bank, labels, num_classes, k, math.inf
        ),
        "normalise both, multiply, take the k largest cosines of each row, and count their labels.",
        lambda g: [
            (normal(g, m, d), normal(g, n, d), torch.randint(classes, (n,), generator=g), classes, k)
            for m, n, d, classes, k in ((2, 7, 3, 4, 1), (3, 9, 5, 2, 3), (4, 6, 8, 5, 6))
        ],
    ),
    "fine_tuning.standardise": Exercise(
        lambda train, test: (test - train.mean(dim=0)) / train.std(dim=0),
        "mean and deviation are those of the training features alone.",
        lambda g: [(3 + 2 * normal(g, n, d), normal(g, m, d)) for n, m, d in ((7, 4, 3), (9, 12, 5))],
    ),
}
