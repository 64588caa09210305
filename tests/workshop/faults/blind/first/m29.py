"""ViT encoder around the stock attention module, with layer scale and stochastic depth."""
import torch
import torch.nn as nn


class StochasticDepth(nn.Module):
    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0.0:
            return x
        keep = torch.rand(x.shape[0], 1, 1, device=x.device) >= self.p
        return x * keep / (1.0 - self.p)


class Block(nn.Module):
    def __init__(self, hidden_dim: int, num_heads: int, mlp_dim: int, drop_path: float):
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden_dim)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, dropout=0.1)
        self.scale_1 = nn.Parameter(torch.full((hidden_dim,), 1e-1))
        self.ln_2 = nn.LayerNorm(hidden_dim)
        self.mlp = nn.Sequential(nn.Linear(hidden_dim, mlp_dim), nn.GELU(), nn.Linear(mlp_dim, hidden_dim))
        self.scale_2 = nn.Parameter(torch.full((hidden_dim,), 1e-1))
        self.drop_path = StochasticDepth(drop_path)

    def forward(self, input: torch.Tensor):
        torch._assert(input.dim() == 3, f"expected (batch, tokens, hidden) but got {input.shape}")
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = input + self.drop_path(self.scale_1 * x)
        y = self.mlp(self.ln_2(x))
        return x + self.drop_path(self.scale_2 * y)


class Encoder(nn.Module):
    def __init__(self, seq_length: int, num_layers: int, num_heads: int, hidden_dim: int, mlp_dim: int):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.layers = nn.Sequential()
        for i in range(num_layers):
            self.layers.add_module(f"encoder_layer_{i}", Block(hidden_dim, num_heads, mlp_dim, 0.05 * i))
        self.ln = nn.LayerNorm(hidden_dim)

    def forward(self, input: torch.Tensor):
        return self.ln(self.layers(input + self.pos_embedding))


class VisionTransformer(nn.Module):
    def __init__(self, image_size=32, patch_size=8, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128,
                 num_classes=10):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, hidden_dim, kernel_size=patch_size, stride=patch_size)
        seq_length = (image_size // patch_size) ** 2
        self.encoder = Encoder(seq_length, num_layers, num_heads, hidden_dim, mlp_dim)
        self.heads = nn.Linear(hidden_dim, num_classes)
        nn.init.zeros_(self.heads.bias)

    def forward(self, x: torch.Tensor):
        x = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        x = self.encoder(x)
        return self.heads(x.mean(dim=1))


def build():
    return VisionTransformer()
