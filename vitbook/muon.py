"""Muon: every matrix of weights moves by the orthogonalized mean of its gradients.

M ← 0.95 M + 0.05 G
W ← W − η (0.2 √max(r, c) UVᵀ + λW), where UΣVᵀ = 0.95 M + 0.05 G, and W is r×c

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/. The scale is that of Liu et al. 2025, "Muon is Scalable
for LLM Training": a step is then as long as AdamW's usually are. What is no matrix inside the network (biases, gains,
tokens), its first layer and its last stay with AdamW.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitbook.runtime import has_bfloat16
from vitbook.training import parameter_groups

QUERIES_KEYS_VALUES = ("qkv.weight", "in_proj_weight")  # names of three matrices in one weight
Matrices = Float[Tensor, "n r c"]


class Muon(torch.optim.Optimizer):
    """For weights by name: of convolutions as well, (C_out, C_in, k, k) as matrices C_out × C_in·k²; Q, K and V that
    lie in one weight are three matrices.

    Differs: torch's Muon takes only what is one matrix, and computes in bfloat16 where that is emulated, which takes
    many times as long.
    """

    def __init__(self, weights: dict[str, nn.Parameter], lr: float, weight_decay: float):
        self.matrices = [3 if name.endswith(QUERIES_KEYS_VALUES) else 1 for name in weights]
        super().__init__(list(weights.values()), dict(lr=lr, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] (it takes none)
        (group,) = self.param_groups
        for weight, n in zip(group["params"], self.matrices, strict=True):
            if weight.grad is None:
                continue
            kept = self.state[weight]
            mean = kept["mean"] = kept.get("mean", torch.zeros_like(weight)).lerp(weight.grad, 0.05)
            matrices = weight.grad.lerp(mean, 0.95).flatten(1).unflatten(0, (n, -1))  # (n, r, c)
            length = 0.2 * max(matrices.shape[1:]) ** 0.5
            weight.mul_(1 - group["lr"] * group["weight_decay"])
            weight.sub_(orthogonalized(matrices).reshape(weight.shape), alpha=group["lr"] * length)


def orthogonalized(matrices: Matrices) -> Matrices:
    """UVᵀ of each matrix UΣVᵀ, nearly, by five Newton-Schulz steps: X ← aX + (bA + cA²)X, where A = XXᵀ.

    An odd polynomial of X is that polynomial of each singular value, and turns no singular vector. a, b and c are
    Jordan et al.'s. Values above a 500th of X's length end between 0.68 and 1.21; smaller ones grow almost a⁵ = 485
    times. In bfloat16 where the hardware has it.
    """
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    x = wide.bfloat16() if has_bfloat16(wide.device) else wide
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x if wide is matrices else x.mT).to(matrices.dtype)


def hidden_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """By name, the weights that Muon is for: of all layers' that decay but the first layer's and the last's."""
    decaying = {id(weight) for weight in parameter_groups(model, 1.0)[0]["params"]}
    every = [(name, weight) for name, weight in model.named_parameters() if name.endswith("weight")]
    matrices = [(name, weight) for name, weight in every if weight.ndim > 1]
    return {name: weight for name, weight in matrices[1:-1] if id(weight) in decaying}
