"""The Transformer of 2017: an encoder that reads a sequence and a decoder that writes another, token by token.

Vaswani et al. 2017, "Attention Is All You Need". Post-norm, ReLU, sin-cos positions. Tokens are integers; S is the
length of the source, T of the target, V the number of words in the vocabulary.
"""

import math

import torch
from torch import Tensor, nn

from vitbook._support.validation import check_kind, check_positive, check_shape, check_shares, check_sizes, in_words
from vitbook.attention import attention, fused_attention
from vitbook.multihead import MultiHeadSelfAttention, check_num_heads, merge_heads, split_heads
from vitbook.self_attention import check_tokens


def sincos_positions(length: int, dim: int, base: float = 10_000.0) -> Tensor:
    """A fixed code for each position. → (length, D), entries in [−1, 1].

    PE(t, 2i) = sin(t / base^(2i/D)), PE(t, 2i + 1) = cos(t / base^(2i/D)): pairs of clock hands, from one turn every 2π
    positions to one every 2π · base. Vaswani et al. 2017, section 3.5.

    Raises ValueError where dim is odd.
    """
    check_sizes(0, length=length, dim=dim)
    check_positive(base=base)
    if dim % 2:
        raise ValueError(f"sin and cos come in pairs: dim must be even, got {dim}")
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    frequency = base ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angles = position * frequency
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1).to(torch.get_default_dtype())


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Which positions each position may look at: itself and the past. → boolean (T, T), True where it may."""
    check_sizes(0, length=length)
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def padding_mask(tokens: Tensor, padding: int) -> Tensor:
    """Which keys are words, not padding, for every head and query. (B, S) → boolean (B, 1, 1, S), True for words."""
    check_shape("tokens", tokens, "B", "S")
    check_sizes(None, padding=padding)
    return (tokens != padding)[:, None, None, :]


class MultiHeadCrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another. (B, T, D), (B, S, D) → (B, T, D).

    Vaswani et al. 2017, section 3.2.3: each word that is written looks at all the words that were read.
    """

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        check_num_heads(dim, num_heads)
        self.num_heads = num_heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """mask: boolean, broadcastable to (B, h, T, S), True where a query may look."""
        return self.proj(merge_heads(fused_attention(*self.project(x, memory), mask)))

    def attend(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The same output by the explicit softmax, and the weights (B, h, T, S)."""
        heads, weights = attention(*self.project(x, memory), mask)
        return self.proj(merge_heads(heads)), weights

    def project(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x (B, h, T, D_h), keys and values of memory (B, h, S, D_h)."""
        check_tokens(x, self.query.weight)
        check_tokens(memory, self.key.weight, "memory")
        h = self.num_heads
        return split_heads(self.query(x), h), split_heads(self.key(memory), h), split_heads(self.value(memory), h)


class FeedForward(nn.Sequential):
    """max(0, xW₁ + b₁)W₂ + b₂ on each token by itself. (B, T, D) → (B, T, D). Vaswani et al. 2017, Eq. 2."""

    def __init__(self, dim: int, hidden_dim: int):
        check_sizes(dim=dim, hidden_dim=hidden_dim)
        super().__init__(nn.Linear(dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, dim))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; after each, add and normalise (post-norm). (B, S, D) → (B, S, D).

    LayerNorm(x + Sublayer(x)), Vaswani et al. 2017, section 3.1; dropout on each sublayer's output, section 5.4.
    """

    def __init__(self, dim: int, num_heads: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        check_shares(dropout=dropout)
        self.attn = MultiHeadSelfAttention(dim, num_heads)
        self.norm1 = nn.LayerNorm(dim)
        self.mlp = FeedForward(dim, hidden_dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """mask: boolean, broadcastable to (B, h, S, S), True where a query may look."""
        x = self.norm1(x + self.dropout(self.attn(x, mask)))
        return self.norm2(x + self.dropout(self.mlp(x)))


class DecoderLayer(nn.Module):
    """Look back at what is written, then at what was read, then think. (B, T, D), (B, S, D) → (B, T, D).

    Masked self-attention, cross-attention, feed-forward; after each, add and normalise (Vaswani et al. 2017, section
    3.1).
    """

    def __init__(self, dim: int, num_heads: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        check_shares(dropout=dropout)
        self.attn = MultiHeadSelfAttention(dim, num_heads)
        self.norm1 = nn.LayerNorm(dim)
        self.cross = MultiHeadCrossAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = FeedForward(dim, hidden_dim)
        self.norm3 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        """mask hides the future of x, memory_mask the padding of memory; both boolean, True where a query may look."""
        x = self.norm1(x + self.dropout(self.attn(x, mask)))
        x = self.norm2(x + self.dropout(self.cross(x, memory, memory_mask)))
        return self.norm3(x + self.dropout(self.mlp(x)))


class Transformer(nn.Module):
    """Encoder and decoder, from integers to the scores of the next word. (B, S), (B, T) → (B, T, V).

    Vaswani et al. 2017, Figure 1. The output at position t depends on the source and on target words 0 … t alone.

    vocab_size: V, shared by source and target; padding: the integer that fills short sources up, hidden from all.
    Differs: the scores have a matrix of their own, not the embedding's transposed, and nothing is tied.
    """

    def __init__(
        self,
        vocab_size: int,
        dim: int,
        depth: int,
        num_heads: int,
        hidden_dim: int,
        padding: int = 0,
        dropout: float = 0.0,
    ):
        super().__init__()
        check_sizes(vocab_size=vocab_size, dim=dim, depth=depth)
        check_sizes(None, padding=padding)
        check_shares(dropout=dropout)
        self.padding = padding
        self.source_embedding = nn.Embedding(vocab_size, dim)
        self.target_embedding = nn.Embedding(vocab_size, dim)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(EncoderLayer(dim, num_heads, hidden_dim, dropout) for _ in range(depth))
        self.decoder = nn.ModuleList(DecoderLayer(dim, num_heads, hidden_dim, dropout) for _ in range(depth))
        self.scores = nn.Linear(dim, vocab_size)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=dim**-0.5)  # so that ×√D in `embed` brings it to the positions' size

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Scores (B, T, V) of the word that follows each target position; a softmax makes them probabilities."""
        return self.decode(target, self.encode(source), padding_mask(source, self.padding))

    def encode(self, source: Tensor) -> Tensor:
        """Read the source. (B, S) → memory (B, S, D)."""
        x = self.embed(source, self.source_embedding)
        mask = padding_mask(source, self.padding)
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def decode(self, target: Tensor, memory: Tensor, memory_mask: Tensor | None = None) -> Tensor:
        """Score the next word at every target position at once. (B, T), (B, S, D) → (B, T, V)."""
        x = self.embed(target, self.target_embedding)
        mask = causal_mask(target.shape[1], target.device)
        for layer in self.decoder:
            x = layer(x, memory, mask, memory_mask)
        return self.scores(x)

    def embed(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        """√D · embedding + position. (B, T) integers → (B, T, D). Vaswani et al. 2017, sections 3.4 and 3.5."""
        check_kind(Tensor, tokens=tokens)
        check_kind(nn.Embedding, embedding=embedding)
        if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"tokens must be integers (B, T), got {in_words(tokens)}")
        dim = embedding.embedding_dim
        try:
            x = math.sqrt(dim) * embedding(tokens)
        except IndexError:  # a CPU tells, and only then are the values read
            got = f"{tokens.min()} … {tokens.max()}"
            raise ValueError(f"tokens must lie in 0 … {embedding.num_embeddings - 1}, got {got}") from None
        return self.dropout(x + sincos_positions(tokens.shape[1], dim).to(x))

    @torch.no_grad()
    def write(self, source: Tensor, start: int, length: int) -> Tensor:
        """Write the target one word at a time, each time the most probable (greedy decoding). (B, S) → (B, length).

        start: the word that every target begins with; it is not part of what is returned.
        """
        check_sizes(0, start=start, length=length)
        memory, memory_mask = self.encode(source), padding_mask(source, self.padding)
        target = torch.full((source.shape[0], 1), start, dtype=source.dtype, device=source.device)
        for _ in range(length):
            scores = self.decode(target, memory, memory_mask)
            target = torch.cat([target, scores[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
        return target[:, 1:]
