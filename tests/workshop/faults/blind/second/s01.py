import torch
from torch import nn
import torch.nn.functional as F


def lecun_normal(*shape, fan_in):
    return nn.Parameter(torch.randn(*shape) * fan_in ** -0.5)


class LayerNorm(nn.Module):
    def __init__(self, features, epsilon=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.epsilon = epsilon

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        var = (x * x).mean(dim=-1, keepdim=True) - mean * mean
        y = (x - mean) * torch.rsqrt(var.clamp_min(0.0) + self.epsilon)
        return y * self.scale + self.bias


class Dense(nn.Module):
    def __init__(self, inp, features):
        super().__init__()
        self.kernel = lecun_normal(inp, features, fan_in=inp)
        self.bias = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.einsum("...i,io->...o", x, self.kernel) + self.bias


class DenseGeneralIn(nn.Module):
    def __init__(self, inp, heads, width):
        super().__init__()
        self.kernel = lecun_normal(inp, heads, width, fan_in=inp)
        self.bias = nn.Parameter(torch.zeros(heads, width))

    def forward(self, x):
        return torch.einsum("bqd,dhk->bqhk", x, self.kernel) + self.bias


class DenseGeneralOut(nn.Module):
    def __init__(self, heads, width, out):
        super().__init__()
        self.kernel = lecun_normal(heads, width, out, fan_in=heads * width)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x):
        return torch.einsum("bqhk,hkd->bqd", x, self.kernel) + self.bias


class MultiHeadDotProductAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        width = dim // heads
        self.query = DenseGeneralIn(dim, heads, width)
        self.key = DenseGeneralIn(dim, heads, width)
        self.value = DenseGeneralIn(dim, heads, width)
        self.out = DenseGeneralOut(heads, width, dim)

    def forward(self, inputs_q, inputs_kv):
        query = self.query(inputs_q)
        key = self.key(inputs_kv)
        value = self.value(inputs_kv)
        query = query / query.shape[-1] ** 0.5
        weights = torch.einsum("bqhd,bkhd->bhqk", query, key)
        weights = torch.softmax(weights, dim=-1)
        return self.out(torch.einsum("bhqk,bkhd->bqhd", weights, value))


class MlpBlock(nn.Module):
    def __init__(self, dim, mlp_dim):
        super().__init__()
        self.Dense_0 = Dense(dim, mlp_dim)
        self.Dense_1 = Dense(mlp_dim, dim)

    def forward(self, x):
        return self.Dense_1(F.gelu(self.Dense_0(x), approximate="tanh"))


class Encoder1DBlock(nn.Module):
    def __init__(self, dim, mlp_dim, heads):
        super().__init__()
        self.LayerNorm_0 = LayerNorm(dim)
        self.MultiHeadDotProductAttention_1 = MultiHeadDotProductAttention(dim, heads)
        self.LayerNorm_2 = LayerNorm(dim)
        self.MlpBlock_3 = MlpBlock(dim, mlp_dim)

    def forward(self, inputs):
        x = self.LayerNorm_0(inputs)
        x = self.MultiHeadDotProductAttention_1(x, x)
        x = x + inputs
        y = self.LayerNorm_2(x)
        y = self.MlpBlock_3(y)
        return x + y


class VisionTransformer(nn.Module):
    def __init__(self, num_classes=10, patch=4, size=32, dim=64, depth=3, mlp_dim=128, heads=4):
        super().__init__()
        self.patch = patch
        self.embedding_kernel = lecun_normal(patch, patch, 3, dim, fan_in=patch * patch * 3)
        self.embedding_bias = nn.Parameter(torch.zeros(dim))
        n = (size // patch) ** 2
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.posembed_input = nn.Parameter(torch.randn(1, n + 1, dim) * 0.02)
        self.depth = depth
        for i in range(depth):
            self.add_module(f"encoderblock_{i}", Encoder1DBlock(dim, mlp_dim, heads))
        self.encoder_norm = LayerNorm(dim)
        self.head = Dense(dim, num_classes)

    def forward(self, images):
        x = images.permute(0, 2, 3, 1)
        n, h, w, c = x.shape
        p = self.patch
        x = x.reshape(n, h // p, p, w // p, p, c)
        x = torch.einsum("nhpwqc,pqcd->nhwd", x, self.embedding_kernel) + self.embedding_bias
        x = x.reshape(n, -1, x.shape[-1])
        x = torch.cat([self.cls.expand(n, -1, -1), x], dim=1)
        x = x + self.posembed_input
        for i in range(self.depth):
            x = getattr(self, f"encoderblock_{i}")(x)
        x = self.encoder_norm(x)
        return self.head(x[:, 0])


def build():
    return VisionTransformer()
