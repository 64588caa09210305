"""The exercises of chapters/03_self_attention.ipynb."""

from vitbook import mistakes as wrong
from vitbook.attention import attention
from vitbook.exercises.grading import Exercise, combined
from vitbook.exercises.inputs import normal

by_hand = Exercise(
    lambda x, w_q, w_k, w_v: attention(x @ w_q, x @ w_k, x @ w_v)[0],
    "project x three times, divide the scores by √D_h, softmax over the keys, average the values with these weights.",
    lambda g: [(normal(g, 4, 6), *normal(g, 3, 6, 3)), (normal(g, 2, 5, 7), *normal(g, 3, 7, 4))],
    gradients=True,
    level="easy",
    sizes=lambda x, w_q, w_k, w_v: product.sizes(w_q, w_k),
) | {
    **combined(
        lambda made, x, w_q, w_k, w_v: made[0](x @ w_q, x @ w_k, x @ w_v)[0],
        wrong.no_scale,
        wrong.multiplied_by_the_scale,
        wrong.scaled_after_the_softmax,
        wrong.softmax_over_the_queries,
        wrong.softmax_over_the_first_axis,
        at_once=1,
    ),
    wrong.ScaledByTheWholeWidth: lambda x, q, k, v: (x @ q @ (x @ k).mT / x.shape[-1] ** 0.5).softmax(-1) @ (x @ v),
    "Your transpose of the keys reverses all axes, the batch among them. .mT exchanges the last two.": (
        lambda x, w_q, w_k, w_v: (x @ w_q @ (x @ w_k).T / w_q.shape[-1] ** 0.5).softmax(dim=-1) @ (x @ w_v)
    ),
    "Your queries and keys are exchanged: Q Kᵀ has a row for each query.": lambda x, q, k, v: by_hand.reference(
        x, k, q, v
    ),
    "Your values are the tokens themselves: multiply x by W_V.": lambda x, q, k, v: attention(x @ q, x @ k, x)[0],
}

count = Exercise(3 * (192 * 64 + 64), "three linear maps from 192 to 64, each a matrix and a bias.", level="easy") | {
    "That leaves out the biases.": 3 * 192 * 64,
    "That is one of the three maps.": 192 * 64 + 64,
    "A bias is as long as the output, 64.": 3 * (192 * 64 + 192),
    "There is no output projection here: three maps, not four.": 4 * (192 * 64 + 64),
}

product = Exercise(
    lambda w_q, w_k: w_q @ w_k.T / w_q.shape[-1] ** 0.5,
    "X M Xᵀ must equal Q Kᵀ/√D_h with Q = X W_Q and K = X W_K.",
    lambda g: [(normal(g, 6, 3), normal(g, 6, 3)), (normal(g, 5, 8), normal(g, 5, 8))],
    level="hard",
    kind="derive",
    sizes=lambda w_q, w_k: {"√D": w_q.shape[0] ** 0.5, "D_h": w_q.shape[1], "√D_h": w_q.shape[1] ** 0.5},
) | {
    wrong.no_scale: lambda w_q, w_k: w_q @ w_k.T,
    wrong.multiplied_by_the_scale: lambda w_q, w_k: w_q @ w_k.T * w_q.shape[-1] ** 0.5,
    wrong.ScaledByTheWholeWidth: lambda w_q, w_k: w_q @ w_k.T / w_q.shape[0] ** 0.5,
    "Your matrices are exchanged: M = W_Q W_Kᵀ/√D_h, and this is Mᵀ.": lambda w_q, w_k: product.reference(w_k, w_q),
    "Your product is W_Qᵀ W_K. In X W_Q (X W_K)ᵀ, W_K is transposed.": lambda q, k: q.T @ k / q.shape[-1] ** 0.5,
}
