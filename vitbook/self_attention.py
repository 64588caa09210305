"""Self-attention with one head: queries, keys and values are three views of the same sequence."""

from jaxtyping import Float
from torch import Tensor, nn

from vitbook.attention import Mask, attention


class SelfAttention(nn.Module):
    """Q = XW_Q, K = XW_K, V = XW_V, then softmax(QKᵀ/√D_h)V. (B, T, D) → (B, T, D_h), (B, T, T).

    Vaswani et al. 2017, section 3.2. Each token asks (query), is asked for (key) and gives (value); the three linear
    maps are all there is to learn. Without positions in X and without a mask the map is equivariant: permuting the
    tokens permutes the outputs in the same way.

    dim: width D of the tokens; head_dim: width D_h of queries, keys and values, D if not given.
    """

    def __init__(self, dim: int, head_dim: int | None = None, bias: bool = True):
        super().__init__()
        head_dim = dim if head_dim is None else head_dim
        self.query = nn.Linear(dim, head_dim, bias=bias)
        self.key = nn.Linear(dim, head_dim, bias=bias)
        self.value = nn.Linear(dim, head_dim, bias=bias)

    def forward(
        self, x: Float[Tensor, "*batch tokens dim"], mask: Mask | None = None
    ) -> tuple[Float[Tensor, "*batch tokens head_dim"], Float[Tensor, "*batch tokens tokens"]]:
        """The output and the weights. mask: broadcastable to (B, T, T), True where a query may look."""
        return attention(self.query(x), self.key(x), self.value(x), mask)
