import math
import torch
import torch.nn as nn


def sincos_2d(h, w, d):
    """Fixed (h*w, d) table: half of the channels for rows, half for columns."""
    assert d % 4 == 0
    omega = torch.exp(torch.arange(d // 4) * (-math.log(10000.0) / (d // 4)))
    yy, xx = torch.meshgrid(torch.arange(h).float(), torch.arange(w).float(), indexing="ij")
    y = yy.reshape(-1, 1) * omega
    x = xx.reshape(-1, 1) * omega
    return torch.cat([y.sin(), y.cos(), x.sin(), x.cos()], dim=1)


class SeqFirstViT(nn.Module):
    """Runs in (S, B, E) throughout, the layout nn.TransformerEncoder uses unless told otherwise."""

    def __init__(self, image=28, patch=7, channels=1, dim=64, heads=4, layers=3, classes=10):
        super().__init__()
        grid = image // patch
        self.to_tokens = nn.Conv2d(channels, dim, kernel_size=patch, stride=patch)
        self.register_buffer("pe", sincos_2d(grid, grid, dim).unsqueeze(1))
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        nn.init.normal_(self.cls, std=0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, dim_feedforward=2 * dim, dropout=0.0, activation="gelu", norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(dim), enable_nested_tensor=False
        )
        # clones made by nn.TransformerEncoder start identical; draw each afresh
        for p in self.encoder.parameters():
            if p.dim() == 2:
                nn.init.xavier_uniform_(p)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        t = self.to_tokens(x).flatten(2).permute(2, 0, 1)
        t = t + self.pe
        cls = self.cls.expand(1, t.shape[1], -1)
        t = torch.cat((cls, t), dim=0)
        t = self.encoder(t)
        return self.head(t[0])


def build():
    return SeqFirstViT()
