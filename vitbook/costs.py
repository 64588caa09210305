"""What a Vision Transformer costs, by formula: floating-point operations and bytes. Nothing here runs a model.

A multiply-add counts as two operations (FLOPs). Softmax, GELU, LayerNorm and sums are left out of the FLOPs: they are
few beside the matrix products, though not always quick.
"""

from vitbook._common.meta_device import shapes_alone
from vitbook.patches import grid_size
from vitbook.vit import VisionTransformer, ViTConfig


def number_of_tokens(config: ViTConfig) -> int:
    """T: the patches, and the class token if there is one. Raises ValueError unless config is a plain `ViTConfig`."""
    if type(config) is not ViTConfig:  # one derived from it has parts that nothing here counts
        raise ValueError(f"the formulas are for a plain ViTConfig, got a {type(config).__name__}")
    rows, columns = grid_size(config.sides, config.patch_size)
    return rows * columns + int(config.class_token)


def linear_flops(tokens: int, dim: int, mlp_dim: int) -> int:
    """The linear maps of a block, for one image: 2T(4D² + 2D·D_MLP)."""
    return 2 * tokens * (4 * dim**2 + 2 * dim * mlp_dim)


def attention_flops(tokens: int, dim: int) -> int:
    """The two products QKᵀ and ·V of a block, for one image: 4T²D, whatever the number of heads."""
    return 4 * tokens**2 * dim


def forward_flops(config: ViTConfig) -> int:
    """The matrix products for one image: patches, blocks, head. Raises ValueError for a config with a stem."""
    if config.stem:
        raise ValueError(f"the stem's convolutions are not counted: the config must have none, got {config.stem}")
    c, T = config, number_of_tokens(config)
    patches = 2 * (T - int(c.class_token)) * c.patch_size**2 * c.channels * c.dim
    block = linear_flops(T, c.dim, c.mlp_dim) + attention_flops(T, c.dim)
    return patches + c.depth * block + 2 * c.dim * c.num_classes


def training_flops(config: ViTConfig) -> int:
    """A training step for one image: three times the forward pass, for a product of two has two gradients."""
    return 3 * forward_flops(config)


def weight_bytes(config: ViTConfig) -> int:
    """One block's attention weights for one image, which only the explicit softmax stores: h·T² numbers in float32."""
    return 4 * config.num_heads * number_of_tokens(config) ** 2


def activation_bytes(config: ViTConfig) -> int:
    """What the blocks keep of one image for the backward pass: L·T(8D + 2D_MLP) numbers in float32.

    Of each token a block keeps z, LN(z), Q, K, V, the blend, z' and LN(z'), each D wide, and what enters and leaves the
    GELU. The explicit softmax keeps the attention weights, too, and dropout would add to it.
    """
    c = config
    return 4 * c.depth * number_of_tokens(c) * (8 * c.dim + 2 * c.mlp_dim)


def training_bytes(config: ViTConfig, batch: int) -> int:
    """What training in float32 holds: four numbers for each weight, and what the blocks keep of `batch` images.

    The four are the weight itself, its gradient, and the two means of Adam (Kingma and Ba 2015).
    """
    with shapes_alone():
        weights = sum(parameter.numel() for parameter in VisionTransformer(config).parameters())
    return 4 * 4 * weights + batch * activation_bytes(config)


def product_intensity(m: int, k: int, n: int, bytes_per_number: int = 4) -> float:
    """FLOPs for each byte moved by a product (m, k)·(k, n), if each number is moved once: 2mkn / b(mk + kn + mn)."""
    return 2 * m * k * n / (bytes_per_number * (m * k + k * n + m * n))


def roofline(intensity: float, peak: float, bandwidth: float) -> float:
    """The most FLOPs a second that memory and arithmetic allow: min(peak, intensity · bandwidth).

    Williams, Waterman and Patterson 2009. intensity: FLOPs a byte; peak: FLOPs a second; bandwidth: bytes a second.
    """
    return min(peak, intensity * bandwidth)
