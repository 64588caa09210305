"""Self-attention with one head: queries, keys and values are three views of the same sequence."""

from torch import Tensor, nn

from vitbook._support.validation import check_fits, check_sizes, check_tensors
from vitbook.attention import attention


class SelfAttention(nn.Module):
    """Q = XW_Q, K = XW_K, V = XW_V, then softmax(QKᵀ/√D_h)V. (B, T, D) → (B, T, D_h), (B, T, T).

    Vaswani et al. 2017, section 3.2. Each token asks (query), is asked for (key) and gives (value); the three linear
    maps are all there is to learn. Without positions in X the map is equivariant: permute the tokens, and the outputs
    are permuted alike.

    dim: width D of the tokens; head_dim: width D_h of queries, keys and values, D if not given.
    """

    def __init__(self, dim: int, head_dim: int | None = None, bias: bool = True):
        super().__init__()
        head_dim = dim if head_dim is None else head_dim
        check_sizes(dim=dim, head_dim=head_dim)
        self.query = nn.Linear(dim, head_dim, bias=bias)
        self.key = nn.Linear(dim, head_dim, bias=bias)
        self.value = nn.Linear(dim, head_dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Output (B, T, D_h) and weights (B, T, T). mask: boolean, broadcastable to (B, T, T), True = may look."""
        check_tokens(x, self.query.weight)
        return attention(self.query(x), self.key(x), self.value(x), mask)


def check_tokens(x: Tensor, weight: Tensor, name: str = "x") -> None:
    """Raise TypeError or ValueError unless x has shape (B, T, D), and dtype and device of a weight (..., D, ...).

    D is the length of the weight's second axis, T at least 1.
    """
    check_tensors(**{name: x})
    if x.ndim != 3 or x.shape[-1] != weight.shape[1]:
        raise ValueError(f"{name} must have shape (B, T, D) with D = {weight.shape[1]}, got {tuple(x.shape)}")
    if not x.shape[1]:
        raise ValueError(f"{name} must have at least one token, got shape {tuple(x.shape)}")
    check_fits(name, x, weight)
