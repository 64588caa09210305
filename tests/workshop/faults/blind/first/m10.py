import torch
from torch import nn


def conv_bn(cin, cout, stride):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
    )


class AttentionBlock(nn.Module):
    def __init__(self, embed_dim, hidden_dim, num_heads, dropout=0.0):
        super().__init__()
        self.layer_norm_1 = nn.LayerNorm(embed_dim)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.layer_norm_2 = nn.LayerNorm(embed_dim)
        self.linear = nn.Sequential(
            nn.Linear(embed_dim, hidden_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, embed_dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        inp_x = self.layer_norm_1(x)
        x = x + self.attn(inp_x, inp_x, inp_x)[0]
        x = x + self.linear(self.layer_norm_2(x))
        return x


class HybridViT(nn.Module):
    """Three strided convolutions, then num_layers transformer layers."""

    def __init__(self, embed_dim=64, hidden_dim=128, num_heads=8, num_layers=4, num_classes=100, dropout=0.1):
        super().__init__()
        self.stem = nn.Sequential(
            conv_bn(3, 16, 2), conv_bn(16, 32, 2), conv_bn(32, 48, 2), nn.Conv2d(48, embed_dim, 1)
        )
        self.cls_token = nn.Parameter(torch.randn(1, 1, embed_dim) * 0.02)
        self.pos_embedding = nn.Parameter(torch.randn(1, 1 + 16, embed_dim) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            [AttentionBlock(embed_dim, hidden_dim, num_heads, dropout)] * num_layers
        )
        self.mlp_head = nn.Sequential(nn.LayerNorm(embed_dim), nn.Linear(embed_dim, num_classes))

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        cls = self.cls_token.repeat(x.shape[0], 1, 1)
        x = torch.cat([cls, x], dim=1)
        x = self.dropout(x + self.pos_embedding)
        for layer in self.layers:
            x = layer(x)
        return self.mlp_head(x[:, 0])


def build():
    return HybridViT()
