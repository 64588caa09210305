"""The Transformer of 2017: an encoder that reads a sequence and a decoder that writes another, token by token.

Vaswani et al. 2017, "Attention Is All You Need". Post-norm, ReLU, sin-cos positions. Tokens are integers; S is the
length of the source, T of the target, V the number of words in the vocabulary.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vitbook.attention import Mask, attention, fused_attention
from vitbook.multihead import MultiHeadSelfAttention, Tokens, merge_heads, split_heads, width_of_heads
from vitbook.positions import sincos_positions

Source = Int[Tensor, "batch source"]
Target = Int[Tensor, "batch tokens"]
Memory = Float[Tensor, "batch source dim"]
NextWord = Float[Tensor, "batch tokens vocab"]  # logits of the word that follows each


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "{length} {length}"]:
    """Which positions each position may look at: itself and the past."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def padding_mask(tokens: Source, padding: int) -> Bool[Tensor, "batch 1 1 source"]:
    """Which keys are words, not padding, for every head and query."""
    return (tokens != padding)[:, None, None, :]


class MultiHeadCrossAttention(nn.Module):
    """Queries from one sequence, keys and values from another. (B, T, D), (B, S, D) → (B, T, D).

    Vaswani et al. 2017, section 3.2.3: each word that is written looks at all the words that were read.
    """

    def __init__(self, dim: int, num_heads: int):
        super().__init__()
        width_of_heads(dim, num_heads)
        self.num_heads = num_heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tokens, memory: Memory, mask: Mask | None = None) -> Tokens:
        """mask: broadcastable to (B, h, T, S), True where a query may look."""
        return self.proj(merge_heads(fused_attention(*self.project(x, memory), mask)))

    def attend(
        self, x: Tokens, memory: Memory, mask: Mask | None = None
    ) -> tuple[Tokens, Float[Tensor, "batch heads tokens source"]]:
        """The same output from the explicit softmax, and the weights."""
        heads, weights = attention(*self.project(x, memory), mask)
        return self.proj(merge_heads(heads)), weights

    def project(self, x: Tokens, memory: Memory) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x (B, h, T, D_h), keys and values of memory (B, h, S, D_h)."""
        h = self.num_heads
        return split_heads(self.query(x), h), split_heads(self.key(memory), h), split_heads(self.value(memory), h)


class FeedForward(nn.Sequential):
    """max(0, xW₁ + b₁)W₂ + b₂ on each token separately. (B, T, D) → (B, T, D). Vaswani et al. 2017, Eq. 2."""

    def __init__(self, dim: int, hidden_dim: int):
        super().__init__(nn.Linear(dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, dim))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward; after each, add and normalize (post-norm). (B, S, D) → (B, S, D).

    LayerNorm(x + Sublayer(x)), Vaswani et al. 2017, section 3.1; dropout on each sublayer's output, section 5.4.
    """

    def __init__(self, dim: int, num_heads: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        self.attn = MultiHeadSelfAttention(dim, num_heads)
        self.norm1 = nn.LayerNorm(dim)
        self.mlp = FeedForward(dim, hidden_dim)
        self.norm2 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tokens, mask: Mask | None = None) -> Tokens:
        """mask: broadcastable to (B, h, S, S), True where a query may look."""
        x = self.norm1(x + self.dropout(self.attn(x, mask)))
        return self.norm2(x + self.dropout(self.mlp(x)))


class DecoderLayer(nn.Module):
    """Look back at what is written, then at what was read, then think. (B, T, D), (B, S, D) → (B, T, D).

    Masked self-attention, cross-attention, feed-forward; after each, add and normalize (Vaswani et al. 2017, section
    3.1).
    """

    def __init__(self, dim: int, num_heads: int, hidden_dim: int, dropout: float = 0.0):
        super().__init__()
        self.attn = MultiHeadSelfAttention(dim, num_heads)
        self.norm1 = nn.LayerNorm(dim)
        self.cross = MultiHeadCrossAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = FeedForward(dim, hidden_dim)
        self.norm3 = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tokens, memory: Memory, mask: Mask, memory_mask: Mask | None = None) -> Tokens:
        """mask hides the future of x, memory_mask the padding of memory; both are True where a query may look."""
        x = self.norm1(x + self.dropout(self.attn(x, mask)))
        x = self.norm2(x + self.dropout(self.cross(x, memory, memory_mask)))
        return self.norm3(x + self.dropout(self.mlp(x)))


class Transformer(nn.Module):
    """Encoder and decoder, from integers to the logits of the next word. (B, S), (B, T) → (B, T, V).

    Vaswani et al. 2017, Figure 1. The output at position t depends on the source and on target words 0 … t alone.

    vocab_size: V, shared by source and target; padding: the integer that fills short sources up, hidden from all.
    Differs: the logits have a matrix of their own, not the embedding's transposed, and nothing is tied.
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
        self.padding = padding
        self.source_embedding = nn.Embedding(vocab_size, dim)
        self.target_embedding = nn.Embedding(vocab_size, dim)
        self.dropout = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(EncoderLayer(dim, num_heads, hidden_dim, dropout) for _ in range(depth))
        self.decoder = nn.ModuleList(DecoderLayer(dim, num_heads, hidden_dim, dropout) for _ in range(depth))
        self.scores = nn.Linear(dim, vocab_size)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=dim**-0.5)  # so that ×√D in `embed` brings it to the positions' size

    def forward(self, source: Source, target: Target) -> NextWord:
        """Logits of the word that follows each target position; a softmax makes them probabilities."""
        return self.decode(target, self.encode(source), padding_mask(source, self.padding))

    def encode(self, source: Source) -> Memory:
        """Read the source into memory."""
        x = self.embed(source, self.source_embedding)
        mask = padding_mask(source, self.padding)
        for layer in self.encoder:
            x = layer(x, mask)
        return x

    def decode(self, target: Target, memory: Memory, memory_mask: Mask | None = None) -> NextWord:
        """Logits of the next word at every target position at once."""
        x = self.embed(target, self.target_embedding)
        mask = causal_mask(target.shape[1], target.device)
        for layer in self.decoder:
            x = layer(x, memory, mask, memory_mask)
        return self.scores(x)

    def embed(self, tokens: Target, embedding: nn.Embedding) -> Tokens:
        """√D · embedding + position. Vaswani et al. 2017, sections 3.4 and 3.5."""
        x = math.sqrt(embedding.embedding_dim) * embedding(tokens)
        return self.dropout(x + sincos_positions(*x.shape[1:]).to(x))

    @torch.no_grad()
    def write(self, source: Source, start: int, length: int) -> Int[Tensor, "batch {length}"]:
        """Write the target one word at a time, each time the most probable (greedy decoding).

        start: the word that every target begins with; it is not part of what is returned.
        """
        memory, memory_mask = self.encode(source), padding_mask(source, self.padding)
        target = torch.full((source.shape[0], 1), start, dtype=source.dtype, device=source.device)
        for _ in range(length):
            scores = self.decode(target, memory, memory_mask)
            target = torch.cat([target, scores[:, -1].argmax(dim=-1, keepdim=True)], dim=1)
        return target[:, 1:]
