"""Muon: every matrix of weights moves by the orthogonalized mean of its gradients.

M ← 0.95 M + 0.05 G
W ← W − η (0.2 √max(r, c) UVᵀ + λW), where UΣVᵀ = 0.95 M + 0.05 G, and W is r×c

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; five Newton-Schulz steps take the place of the singular
value decomposition. The scale is that of Liu et al. 2025, "Muon is Scalable for LLM Training": a step is then as long
as AdamW's usually are. What is no matrix inside the network (biases, gains, tokens), its first layer and its last stay
with AdamW.
"""

import torch
from torch import Tensor, nn

from vitbook.training import parameter_groups

QUERIES_KEYS_VALUES = ("qkv.weight", "in_proj_weight")  # names of three matrices in one weight


class Muon(torch.optim.Muon):
    """torch's Muon, for weights of convolutions as well, (C_out, C_in, k, k) as matrices C_out × C_in·k², and for Q, K
    and V that lie in one weight, each a matrix of its own. torch's takes only what is one matrix."""

    def __init__(self, weights: dict[str, nn.Parameter], lr: float, weight_decay: float):
        self.weights = weights
        self.matrices = {name: _matrices(name, weight.detach(), weight) for name, weight in weights.items()}
        every = [matrix for matrices in self.matrices.values() for matrix in matrices]
        super().__init__(every, lr=lr, weight_decay=weight_decay, momentum=0.95, adjust_lr_fn="match_rms_adamw")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for name, weight in self.weights.items():
            used = weight.grad is not None
            gradients = _matrices(name, weight.grad, weight) if used else [None] * len(self.matrices[name])
            for matrix, gradient in zip(self.matrices[name], gradients, strict=True):
                matrix.grad = gradient
        super().step()


def _matrices(name: str, tensor: Tensor, weight: nn.Parameter) -> tuple[Tensor, ...]:
    """A weight, or its gradient, as the matrices that it holds; of a weight, in the same memory."""
    if not weight.is_contiguous():  # in channels_last; in which order the columns come makes no difference
        tensor = tensor.movedim(1, -1)
    return tensor.flatten(1).chunk(3 if name.endswith(QUERIES_KEYS_VALUES) else 1)


def hidden_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """By name, the weights that Muon is for: of all layers' that decay but the first layer's and the last's."""
    decaying = {id(weight) for weight in parameter_groups(model, 1.0)[0]["params"]}
    every = [(name, weight) for name, weight in model.named_parameters() if name.endswith("weight")]
    matrices = [(name, weight) for name, weight in every if weight.ndim > 1]
    return {name: weight for name, weight in matrices[1:-1] if id(weight) in decaying}
