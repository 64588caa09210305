import torch
from torch import nn
from torch.func import vmap

# The network is written for one image and lifted over the batch with vmap.


def patches_of(image, p):
    c, h, w = image.shape
    x = image.reshape(c, h // p, p, w // p, p)
    return torch.einsum("cipjq->ijpqc", x).reshape(-1, p * p * c)


def attend(q, k, v):
    """q, k, v: (N, d) of one head."""
    logits = q @ k.mT * q.shape[-1] ** -0.5
    return logits.softmax(-1) @ v


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.pre_attn = nn.RMSNorm(dim)
        self.pre_mlp = nn.RMSNorm(dim)
        self.query = nn.Linear(dim, dim, bias=False)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):                                  # (N, D)
        y = self.pre_attn(x)
        split = lambda t: t.unflatten(-1, (self.heads, -1))
        q, k, v = split(self.query(y)), split(self.key(y)), split(self.value(y))
        o = vmap(attend, in_dims=1, out_dims=1)(q, k, v)   # over heads
        x = x + self.out(o.flatten(1))
        return x + self.mlp(self.pre_mlp(x))


class Lifted(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2, patch=4, classes=10):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, dim)
        self.position = nn.Parameter(0.02 * torch.randn((32 // patch) ** 2, dim))
        self.summary = nn.Parameter(0.02 * torch.randn(1, dim))
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, classes)

    def single(self, image):
        x = self.embed(patches_of(image, self.patch)) + self.position
        x = torch.cat([x, self.summary])
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x[-1]))

    def forward(self, images):
        return vmap(self.single)(images)


def build():
    return Lifted()
