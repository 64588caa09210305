"""Images are packed into one jagged nested tensor; each may bring its own number of patches."""
import torch
import torch.nn.functional as F
from torch import nn


class PackedBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.norm1 = nn.LayerNorm(dim)
        self.norm2 = nn.LayerNorm(dim)
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.v = nn.Linear(dim, dim)
        self.o = nn.Linear(dim, dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def split(self, t):
        return t.unflatten(-1, [self.heads, self.dim // self.heads]).transpose(1, 2)

    def forward(self, x):
        y = self.norm1(x)
        a = F.scaled_dot_product_attention(self.split(self.q(y)), self.split(self.k(y)), self.split(self.v(y)))
        x = x + self.o(a.transpose(1, 2).flatten(-2))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class PackedViT(nn.Module):
    def __init__(self, patch=4, max_side=8, dim=48, heads=3, depth=2, classes=5):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.row = nn.Parameter(torch.randn(max_side, dim) * 0.02)
        self.col = nn.Parameter(torch.randn(max_side, dim) * 0.02)
        self.cls = nn.Parameter(torch.randn(1, dim) * 0.02)
        self.blocks = nn.ModuleList([PackedBlock(dim, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def tokens_of(self, image):
        c, h, w = image.shape
        p = self.patch
        gh, gw = h // p, w // p
        t = image.reshape(c, gh, p, gw, p).permute(1, 3, 0, 2, 4).reshape(gh, gw, c * p * p)
        t = self.embed(t) + self.row[:gh, None] + self.col[None, :gw]
        return torch.cat([self.cls, t.reshape(gh * gw, -1)])

    def forward(self, images):
        """images: a (B, 3, H, W) tensor or a list of (3, H_i, W_i) tensors."""
        x = torch.nested.as_nested_tensor([self.tokens_of(im) for im in images], layout=torch.jagged)
        for block in self.blocks:
            x = block(x)
        # first row of every sequence
        first = x.values()[x.offsets()[:-1]]
        return self.head(self.norm(first))


def build():
    return PackedViT()
