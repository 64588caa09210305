"""Any number of tokens: several images in one row, similar tokens merged, attention within windows."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from vitbook.attention import attention_scores
from vitbook.embedding import take_tokens
from vitbook.encoder import Encoder
from vitbook.multihead import MultiHeadSelfAttention, Tokens, merge_heads
from vitbook.patches import Images
from vitbook.positions import Grid
from vitbook.vit import Logits, VisionTransformer


def same_image(owner: Int64[Tensor, "rows tokens"]) -> Bool[Tensor, "rows 1 tokens tokens"]:
    """The block-diagonal mask of packed images: a token may look at the tokens of its own image alone.

    Dehghani et al. 2023 ("Patch n' Pack"), section 2.1. owner: which image each token belongs to; −1 for padding, which
    nobody looks at. The axis of length 1 is for the heads.
    """
    mask = (owner[:, :, None] == owner[:, None, :]) & (owner[:, None, :] >= 0)
    return mask.unsqueeze(1)


def pack(
    sequences: Sequence[Float[Tensor, "_ dim"]], length: int
) -> tuple[Float[Tensor, "rows length dim"], Int64[Tensor, "rows length"]]:
    """Lay sequences of several lengths side by side in rows of `length` tokens, and say whose each token is.

    Each goes into the first row that has room; what stays empty is zeros, and its owner −1. The inverse is `unpack`.
    Raises ValueError for a sequence longer than a row.
    """
    rows: list[list[int]] = []
    for index, sequence in enumerate(sequences):
        if len(sequence) > length:
            raise ValueError(f"a row has {length} tokens, and sequence {index} has {len(sequence)}")
        with_room = [row for row in rows if sum(len(sequences[i]) for i in row) + len(sequence) <= length]
        if not with_room:
            rows.append(row := [])
            with_room = [row]
        with_room[0].append(index)
    packed, owner = [], []
    for row in rows:
        tokens = torch.cat([sequences[i] for i in row])
        whose = torch.cat([torch.full((len(sequences[i]),), i) for i in row])
        packed.append(F.pad(tokens, (0, 0, 0, length - len(tokens))))
        owner.append(F.pad(whose, (0, length - len(whose)), value=-1))
    return torch.stack(packed), torch.stack(owner).to(packed[0].device)


def unpack(
    packed: Float[Tensor, "rows length dim"], owner: Int64[Tensor, "rows length"]
) -> list[Float[Tensor, "_ dim"]]:
    """The sequences that `pack` laid side by side, in their order."""
    return [packed[owner == index] for index in range(int(owner.max()) + 1)]


def packed_features(
    model: VisionTransformer, images: Sequence[Float[Tensor, "channels _ _"]], length: int
) -> Float[Tensor, "images dim"]:
    """What the model's head sees of each of several images of any sizes, computed in rows of `length` tokens.

    The model's positions are interpolated for each image. Differs: Dehghani et al. learn a vector for each row and one
    for each column, as `LearnedPositions2D` does. Raises ValueError for a model with rotary positions.
    """
    _check_unturned(model)
    packed, owner = pack([model.embedding(image.unsqueeze(0), any_size=True).squeeze(0) for image in images], length)
    tokens = unpack(model.norm(model.encoder(packed, same_image(owner))), owner)
    return torch.cat([model.pool(z.unsqueeze(0)) for z in tokens])


def proportional_attention(
    q: Float[Tensor, "batch heads queries d"],
    k: Float[Tensor, "batch heads keys d"],
    v: Float[Tensor, "batch heads keys d_v"],
    size: Float[Tensor, "batch keys"],
) -> Float[Tensor, "batch heads queries d_v"]:
    """softmax(QKᵀ/√d + log s)V: a key that stands for s equal tokens gets the weight of all of them.

    Bolya et al. 2023 ("Token Merging"), Eq. 1, as e^(score + log s) = s·e^score.
    """
    return (attention_scores(q, k) + size.log()[:, None, None, :]).softmax(dim=-1) @ v


def merge_tokens(
    z: Tokens,
    keys: Float[Tensor, "batch tokens d"],
    groups: Float[Tensor, "batch tokens first"],
    r: int,
    num_prefix_tokens: int = 1,
) -> tuple[Float[Tensor, "batch fewer dim"], Float[Tensor, "batch fewer first"]]:
    """Merge the r most similar pairs of tokens into their means. (B, T, D) → (B, T − r, D).

    Bolya et al. 2023, section 3, "bipartite soft matching": every other token is in set A, the rest in set B. Each of
    A is linked to the one of B whose key is most similar to its own (cosine), and the r strongest links merge. Tokens
    before the patches are never merged.

    groups: which of the first tokens each token is made of, 1 or 0; at the start, the identity. A mean weighs each
    token by how many it is made of. r: at most as many as A has patches. Differs: the authors keep only the sizes.
    """
    similarity = F.normalize(keys, dim=-1) @ F.normalize(keys, dim=-1).mT
    similarity[:, :num_prefix_tokens] = similarity[:, :, :num_prefix_tokens] = -torch.inf
    strength, partner = similarity[:, ::2, 1::2].max(dim=-1)  # of each token of A
    order = strength.argsort(dim=-1, descending=True, stable=True)
    merged, kept = order[:, :r], order[:, r:].sort(dim=-1).values

    size = groups.sum(dim=-1, keepdim=True)
    sums = torch.cat([z * size, groups], dim=-1)  # what is added up when tokens merge
    a, b = sums[:, ::2], sums[:, 1::2]
    moved = take_tokens(a, merged)
    b = b.scatter_add(1, partner.gather(1, merged).unsqueeze(-1).expand_as(moved), moved)
    sums = torch.cat([take_tokens(a, kept), b], dim=1)
    z, groups = sums[..., : z.shape[-1]], sums[..., z.shape[-1] :]
    return z / groups.sum(dim=-1, keepdim=True), groups


def drop_tokens(
    z: Tokens,
    keys: Float[Tensor, "batch tokens d"],
    groups: Float[Tensor, "batch tokens first"],
    r: int,
    num_prefix_tokens: int = 1,
) -> tuple[Float[Tensor, "batch fewer dim"], Float[Tensor, "batch fewer first"]]:
    """Leave out r patches of each image, drawn at random: what merging has to beat. (B, T, D) → (B, T − r, D)."""
    order = torch.rand(z.shape[:2], device=z.device)
    order[:, :num_prefix_tokens] = 2.0  # beyond all others
    kept = order.topk(z.shape[1] - r, dim=-1).indices.sort(dim=-1).values
    return take_tokens(z, kept), take_tokens(groups, kept)


def encode_merging(
    encoder: Encoder, z: Tokens, r: int, num_prefix_tokens: int = 1, fewer: Callable = merge_tokens
) -> tuple[Float[Tensor, "batch fewer dim"], Float[Tensor, "batch fewer tokens"]]:
    """Equations 2 and 3 with r tokens fewer after every attention, and what each of the last tokens is made of.

    Bolya et al. 2023, section 3: no training is needed. Where fewer than r pairs are left, all of them merge.
    fewer: `merge_tokens`, or what takes and gives the same.
    """
    groups = torch.eye(z.shape[1]).to(z).expand(len(z), -1, -1)
    for block in encoder.blocks:
        q, k, v = block.attn.project(block.norm1(z))
        heads = proportional_attention(q, k, v, groups.sum(dim=-1))
        z = block.attn.proj(merge_heads(heads)) + z  # Eq. 2
        pairs = (z.shape[1] - num_prefix_tokens) // 2
        z, groups = fewer(z, k.mean(dim=1), groups, min(r, pairs), num_prefix_tokens)
        z = block.mlp(block.norm2(z)) + z  # Eq. 3
    return z, groups


def merging_logits(model: VisionTransformer, images: Images, r: int, fewer: Callable = merge_tokens) -> Logits:
    """The logits of a model that merges r tokens in every block; with r = 0 its own. fewer: as in `encode_merging`.

    A mean over patches counts each merged token as often as patches are in it. Raises ValueError for r below 0, and
    for a model with rotary positions.
    """
    if r < 0:
        raise ValueError(f"r must be 0 or more, got {r}")
    _check_unturned(model)
    z, groups = encode_merging(model.encoder, model.embedding(images), r, len(model.embedding.prefix_tokens), fewer)
    return model.logits(groups.mT @ model.norm(z))


def window_attention(attention: MultiHeadSelfAttention, x: Tokens, grid: Grid, window: int, shift: int = 0) -> Tokens:
    """Attention among the patches of each square window alone. (B, N, D) → (B, N, D), without a class token.

    Liu et al. 2021 ("Swin Transformer"), section 3.2. window: its side in patches; shift: by how many rows and columns
    the windows are moved down and right, half a window in every other block. Windows that then reach over the edge hold
    patches of opposite edges, and a mask keeps these apart. Raises ValueError where windows do not fill the grid.
    """
    if grid[0] % window or grid[1] % window:
        raise ValueError(f"windows of {window}×{window} patches do not fill a grid of {grid[0]}×{grid[1]}")
    image = x.unflatten(1, grid).roll((-shift, -shift), dims=(1, 2))
    windows = rearrange(image, "b (h p) (w q) d -> (b h w) (p q) d", p=window, q=window)
    windows = attention(windows, _same_edge(grid, window, shift).to(x.device).repeat(len(x), 1, 1, 1))
    image = rearrange(windows, "(b h w) (p q) d -> b (h p) (w q) d", h=grid[0] // window, w=grid[1] // window, p=window)
    return image.roll((shift, shift), dims=(1, 2)).flatten(1, 2)


def _same_edge(grid: Grid, window: int, shift: int) -> Bool[Tensor, "windows 1 tokens tokens"]:
    """Which patches of a rolled window are neighbors in the image: those that came from the same edge."""
    rows, columns = (torch.arange(length) >= length - shift for length in grid)
    edge = 2 * rows[:, None] + columns
    edge = rearrange(edge, "(h p) (w q) -> (h w) (p q)", p=window, q=window)
    return same_image(edge)


def _check_unturned(model: VisionTransformer) -> None:
    """Rotary positions turn every row of tokens by the places of one grid."""
    if getattr(model.config, "rotary_base", None) is not None:
        raise ValueError("tokens cannot be packed or merged in a model with rotary positions, which are of one grid")
