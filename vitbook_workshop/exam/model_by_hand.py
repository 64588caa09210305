"""A Vision Transformer whose weights were not learned but written down, and which solves compare exactly."""

from typing import Any

import torch
from torch import Tensor, nn

from vitbook.planted import PATTERNS
from vitbook.vit import VisionTransformer, ViTConfig

CLUES, NAMES, CUE, ANSWER = range(0, 12), range(12, 32), range(32, 36), range(36, 40)  # of a token's 40 numbers
_SURE = 100.0  # so large that a softmax is 0 or 1, and a GELU a ReLU


@torch.no_grad()
def hand_written() -> VisionTransformer:
    """Three blocks of two heads, without LayerNorm, which this needs not.

    The patch projection holds each texture against the red, green and blue of a patch: 12 clues. Block 0 names what
    they show, by its MLP: one number for each texture in each color. Block 1, head 0: every token looks at the gray
    patch and copies its texture, the cue. Block 2, head 1: the class token looks at the colored patch with that texture
    and copies its color. All else is 0.
    """
    model: Any = VisionTransformer(ViTConfig(24, 4, num_classes=4, dim=40, depth=3, num_heads=2, mlp_dim=40)).eval()
    for parameter in model.parameters():
        parameter.zero_()
    for block in model.encoder.blocks:
        block.norm1 = block.norm2 = nn.Identity()
    model.norm = nn.Identity()
    patterns = 2 * PATTERNS[1:5] - 1
    project = model.embedding.patch_embed.proj.weight
    project[CLUES] = torch.einsum("trc,xy->txyrc", patterns, torch.eye(3)).flatten(0, 1) / 16

    # gray has much of all three colors; red has much more red than green and blue together …
    colors = torch.tensor([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, 1, -1.0]])
    least = torch.tensor([1.85, 0.35, 0.3, 0.3, 1.05])
    mlp = model.encoder.blocks[0].mlp
    for name in range(20):  # a step from 0 to 1, made of two ramps
        texture, color = divmod(name, 5)
        for ramp, sign in ((0, 1), (20, -1)):
            mlp.fc1.weight[name + ramp, 3 * texture : 3 * texture + 3] = _SURE * colors[color]
            mlp.fc1.bias[name + ramp] = -_SURE * least[color] + sign / 2
            mlp.fc2.weight[NAMES[name], name + ramp] = sign

    def connect(block: int, head: int, query: Tensor, key: Tensor, value: Tensor, to: range) -> None:
        """Let one head's query, key and value read these maps of a token, (numbers, 40), and write its value there."""
        attn = model.encoder.blocks[block].attn
        for part, rows in enumerate((query, key, value)):
            start = part * 40 + head * 20
            attn.qkv.weight[start : start + len(rows)] = rows
        for number, place in enumerate(to):
            attn.proj.weight[place, head * 20 + number] = 1

    token = torch.eye(40)
    of_gray = token[list(NAMES)[::5]]  # its texture, where the patch is gray
    colored = torch.stack([token[list(NAMES)[5 * t + 1 : 5 * t + 5]].sum(dim=0) for t in range(4)])
    of_color = torch.stack([token[list(NAMES)[color::5]].sum(dim=0) for color in range(1, 5)])
    connect(1, 0, torch.zeros(1, 40), _SURE * of_gray.sum(dim=0, keepdim=True), of_gray, CUE)
    model.encoder.blocks[1].attn.qkv.bias[0] = 1  # whoever asks
    connect(2, 1, token[list(CUE)], _SURE * colored, of_color, ANSWER)
    model.head.weight[:, list(ANSWER)] = 10 * torch.eye(4)
    return model
