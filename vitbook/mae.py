"""Masked autoencoders: hide most patches of an image, encode the others, paint what is hidden.

Sorting random noise shuffles the patches: the first places are visible. Sorting that order leads every patch back.
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from vitbook.embedding import take_tokens
from vitbook.encoder import LAYER_NORM_EPS, Encoder
from vitbook.patches import Images, patchify, unpatchify
from vitbook.positions import SinCosPositions2D
from vitbook.training import parameter_groups, warmup_cosine
from vitbook.vit import VisionTransformer

Patches = Float[Tensor, "batch patches numbers"]
Noise = Float[Tensor, "batch patches"]
Hidden = Bool[Tensor, "batch patches"]


def random_masking(
    x: Float[Tensor, "batch patches dim"], ratio: float = 0.75, noise: Noise | None = None
) -> tuple[Float[Tensor, "batch visible dim"], Int64[Tensor, "batch patches"], Hidden]:
    """Keep the patches with the least noise. (B, N, D) → visible ones (B, V, D), the way back (B, N), hidden (B, N).

    He et al. 2022, section 3, "Simple implementation". `restore` gives every patch its place in the shuffled order;
    the first V places are visible. V = N − ratio · N, rounded. noise: drawn on the CPU where it is not given.
    Differs: the authors round V down. Raises ValueError unless something is hidden and something visible.
    """
    batch, patches, _ = x.shape
    visible = patches - round(ratio * patches)
    if not 0 < visible < patches:
        raise ValueError(f"ratio must hide some of {patches} patches and leave some, got {ratio}")
    noise = torch.rand(batch, patches).to(x.device) if noise is None else noise
    order = noise.argsort(dim=1)  # the patch at each place
    restore = order.argsort(dim=1)  # the place of each patch
    return take_tokens(x, order[:, :visible]), restore, restore >= visible


def add_mask_tokens(
    visible: Float[Tensor, "batch visible dim"], mask_token: Float[Tensor, "1 1 dim"], restore: Int64[Tensor, "batch N"]
) -> Float[Tensor, "batch N dim"]:
    """Put a mask token in the place of every hidden patch, all in the order of the image. (B, V, D) → (B, N, D)."""
    missing = restore.shape[1] - visible.shape[1]
    shuffled = torch.cat([visible, mask_token.expand(len(visible), missing, -1)], dim=1)
    return take_tokens(shuffled, restore)


def patch_targets(images: Images, patch_size: int, normalized: bool = False) -> Patches:
    """What the decoder is to paint: the pixels of each patch. (B, C, H, W) → (B, N, P²C).

    normalized: each patch less its own mean and over its own standard deviation, He et al. 2022, section 3.
    """
    patches = patchify(images, patch_size)
    if not normalized:
        return patches
    return (patches - patches.mean(dim=-1, keepdim=True)) / (patches.var(dim=-1, keepdim=True) + 1e-6).sqrt()


def masked_loss(predicted: Patches, targets: Patches, hidden: Hidden) -> Float[Tensor, ""]:
    """The mean squared error of the hidden patches alone. He et al. 2022, section 3, "Reconstruction target"."""
    return (predicted - targets).square().mean(dim=-1)[hidden].mean()


class MaskedAutoencoder(nn.Module):
    """A Vision Transformer that sees a share of the patches, and a decoder that paints the others.

    He et al. 2022, section 3. The backbone is any `VisionTransformer`; what it was pretrained to see in part, it
    afterwards sees whole, without the decoder. Differs: the decoder's maps start as torch's own.

    dim, depth, num_heads: of the decoder, the paper's by default; ratio: the share of patches that is hidden.
    """

    def __init__(
        self, backbone: VisionTransformer, dim: int = 512, depth: int = 8, num_heads: int = 16, ratio: float = 0.75
    ):
        super().__init__()
        self.backbone, self.ratio = backbone, ratio
        embedding, config = backbone.embedding, backbone.config
        self.num_prefix_tokens = len(embedding.prefix_tokens)
        self.embed = nn.Linear(config.dim, dim)
        self.mask_token = nn.Parameter(torch.empty(1, 1, dim).normal_(std=0.02))
        self.positions = SinCosPositions2D(embedding.grid, dim, self.num_prefix_tokens)
        self.decoder = Encoder(dim, depth, num_heads, 4 * dim)
        self.norm = nn.LayerNorm(dim, eps=LAYER_NORM_EPS)
        self.to_pixels = nn.Linear(dim, config.patch_size**2 * config.channels)

    def encode(
        self, images: Images, noise: Noise | None = None
    ) -> tuple[Float[Tensor, "batch seen dim"], Int64[Tensor, "batch patches"], Hidden]:
        """The tokens of what is visible, after the backbone's last LayerNorm, and what `random_masking` says."""
        z = self.backbone.embedding(images)  # positions are added before any patch is hidden
        prefix, patches = z[:, : self.num_prefix_tokens], z[:, self.num_prefix_tokens :]
        visible, restore, hidden = random_masking(patches, self.ratio, noise)
        z = self.backbone.encoder(torch.cat([prefix, visible], dim=1))
        return self.backbone.norm(z), restore, hidden

    def decode(self, z: Float[Tensor, "batch seen dim"], restore: Int64[Tensor, "batch patches"]) -> Patches:
        """Every patch, painted from the tokens of the visible ones."""
        z = self.embed(z)
        prefix, visible = z[:, : self.num_prefix_tokens], z[:, self.num_prefix_tokens :]
        z = torch.cat([prefix, add_mask_tokens(visible, self.mask_token, restore)], dim=1) + self.positions()
        z = self.norm(self.decoder(z))
        return self.to_pixels(z[:, self.num_prefix_tokens :])

    def forward(self, images: Images, noise: Noise | None = None) -> tuple[Patches, Hidden]:
        """What is painted for each patch, and which patches were hidden. noise: as in `random_masking`."""
        z, restore, hidden = self.encode(images, noise)
        return self.decode(z, restore), hidden


def paint(images: Images, predicted: Patches, hidden: Hidden, patch_size: int) -> Images:
    """The images with their hidden patches painted over. For a decoder that was trained on pixels as they are."""
    patches = torch.where(hidden[..., None], predicted, patchify(images, patch_size))
    return unpatchify(patches, patch_size, images.shape[2:])


def pretrain(
    model: MaskedAutoencoder,
    images: Images,
    epochs: int,
    batch_size: int = 128,
    learning_rate: float = 2e-3,
    normalized: bool = False,
    augment: Callable[[Images], Images] = lambda images: images,
    bf16: bool = False,
) -> list[float]:
    """Train on images without labels, and return the mean loss of every epoch.

    He et al. 2022, appendix A.1: AdamW with β = (0.9, 0.95) and weight decay 0.05, a cosine after a warm-up.

    images: as the backbone expects them; normalized: whether the targets are, patch by patch; augment: changes the
    images of each batch; bf16: whether products are computed in bfloat16.
    """
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=learning_rate, betas=(0.9, 0.95), fused=True)
    steps = epochs * math.ceil(len(images) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 20))
    model.train()
    losses = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(batch_size):
            batch = augment(images[chosen])
            with torch.autocast(images.device.type, torch.bfloat16, enabled=bf16):
                predicted, hidden = model(batch)
            targets = patch_targets(batch, model.backbone.config.patch_size, normalized)
            loss = masked_loss(predicted.float(), targets, hidden)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        losses.append(total / len(images))
    return losses
