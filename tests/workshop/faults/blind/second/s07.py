import torch
import torch.nn as nn


class EncoderLayer(nn.Module):
    def __init__(self, width, nhead, ff):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, nhead)
        self.ln_a = nn.LayerNorm(width)
        self.ln_b = nn.LayerNorm(width)
        self.up = nn.Linear(width, ff)
        self.down = nn.Linear(ff, width)
        self.relu = nn.ReLU()

    def forward(self, src):
        out, _ = self.self_attn(src, src, src, need_weights=False)
        src = self.ln_a(src + out)
        out = self.down(self.relu(self.up(src)))
        return self.ln_b(src + out)


class SequenceFirstViT(nn.Module):
    def __init__(self, width=56, nhead=4, ff=112, layers=3, num_classes=8):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1),
            nn.GroupNorm(4, 24),
            nn.ReLU(),
            nn.Conv2d(24, width, 2, stride=2),
        )
        self.summary = nn.Parameter(torch.empty(1, 1, width))
        self.where = nn.Parameter(torch.empty(8 * 8 + 1, 1, width))
        nn.init.normal_(self.summary, std=0.02)
        nn.init.normal_(self.where, std=0.02)
        self.ln_in = nn.LayerNorm(width)
        self.layers = nn.ModuleList([EncoderLayer(width, nhead, ff) for _ in range(layers)])
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, pixels):
        fmap = self.stem(pixels)
        b = fmap.size(0)
        seq = fmap.flatten(start_dim=2).permute(2, 0, 1)
        seq = torch.cat([seq, self.summary.expand(1, b, -1)], dim=0)
        seq = self.ln_in(seq + self.where)
        for layer in self.layers:
            seq = layer(seq)
        return self.classifier(seq[-1])


def build():
    return SequenceFirstViT()
