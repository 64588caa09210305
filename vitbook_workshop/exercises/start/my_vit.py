"""My Vision Transformer, written from torch alone: one component for each of chapters 1 to 9, chapter 8 has two.

Replace each `raise NotImplementedError` by your own code, then run

    vitbook exercises check my_vit.py      # what is right, what is not, and why
    vitbook exercises next my_vit.py       # what to write next

Names matter: trained weights are loaded into your model by the names of its parameters. B images, T tokens, D numbers
in each, h heads of width D_h = D/h, N patches of P×P pixels with C channels, K classes.
"""

import torch  # noqa: F401
from torch import nn


def attend(scores, v):
    """Chapter 1. Softmax each query's scores over the keys, then average the values with these weights.

    scores (..., T, S), v (..., S, D_h) → (..., T, D_h)
    """
    raise NotImplementedError


def attention_scores(q, k):
    """Chapter 2. QKᵀ/√D_h: how well each query matches each key, on a scale that does not grow with the width.

    q (..., T, D_h), k (..., S, D_h) → (..., T, S)
    """
    raise NotImplementedError


def project(x, qkv):
    """Chapter 3. Queries, keys and values of the tokens x, all three from one linear map `qkv`, D → 3D.

    The output of `qkv` holds D numbers for the query, then D for the key, then D for the value.
    x (B, T, D) → a tuple of three, each (B, T, D)
    """
    raise NotImplementedError


class MultiHeadAttention(nn.Module):
    """Chapter 4. Cut queries, keys and values into h heads, attend in each, lay the heads side by side, project.

    Parameters: qkv, a Linear D → 3D; proj, a Linear D → D. (B, T, D) → (B, T, D)
    """

    def __init__(self, dim, num_heads):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class MLP(nn.Module):
    """Chapter 5. The feed-forward network, on each token separately: linear, GELU (in 2017 it was ReLU), linear.

    Parameters: fc1, a Linear D → hidden_dim; fc2, a Linear hidden_dim → D. (B, T, D) → (B, T, D)
    """

    def __init__(self, dim, hidden_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class PatchEmbedding(nn.Module):
    """Chapter 6. Cut images into patches, row by row, and map each to a token by one and the same linear map.

    Parameters: proj, a Conv2d C → D with kernel and stride P. (B, C, H, W) → (B, N, D)
    """

    def __init__(self, patch_size, channels, dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, images):
        raise NotImplementedError


class Embedding(nn.Module):
    """Chapter 7. Equation 1: the class token in front of each image's patches, and a learned position added to each.

    patch_embed: any module that turns images into patch tokens, (B, C, H, W) → (B, N, D); num_patches: N.
    Parameters: those of patch_embed; cls_token (1, 1, D); pos_embed (1, N + 1, D). (B, C, H, W) → (B, N + 1, D)
    """

    def __init__(self, patch_embed, num_patches, dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, images):
        raise NotImplementedError


class EncoderBlock(nn.Module):
    """Chapter 8. Equations 2 and 3: LayerNorm, then attention, added to x; LayerNorm, then MLP, added again.

    Parameters: norm1 and norm2, each a LayerNorm with eps=1e-6; attn; mlp. (B, T, D) → (B, T, D)
    """

    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class Encoder(nn.Module):
    """Chapter 8. L = depth blocks, one after the other, each with weights of its own.

    Parameters: blocks, a ModuleList. (B, T, D) → (B, T, D)
    """

    def __init__(self, dim, depth, num_heads, mlp_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, x):
        raise NotImplementedError


class ViT(nn.Module):
    """Chapter 9. The whole model: embedding, encoder, LayerNorm, and a linear head on the class token.

    image_size: side of the square images in pixels.
    Parameters: embedding; encoder; norm, a LayerNorm with eps=1e-6; head, a Linear D → K. (B, C, H, W) → (B, K) logits
    """

    def __init__(self, image_size, patch_size, channels, num_classes, dim, depth, num_heads, mlp_dim):
        super().__init__()
        raise NotImplementedError

    def forward(self, images):
        raise NotImplementedError
