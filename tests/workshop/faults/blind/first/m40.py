import torch
import torch.nn as nn


class PostNormBlock(nn.Module):
    """Attention Is All You Need ordering: LN(x + f(x))."""

    def __init__(self, d, n_head, d_ff, p):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d, n_head, dropout=p, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d, d_ff), nn.ReLU(), nn.Dropout(p), nn.Linear(d_ff, d))
        self.drop = nn.Dropout(p)
        self.norm_1 = nn.LayerNorm(d)
        self.norm_2 = nn.LayerNorm(d)

    def forward(self, src):
        att, _ = self.self_attn(src, src, src, need_weights=False)
        src = self.norm_1(src + self.drop(att))
        return self.norm_2(src + self.drop(self.ffn(src)))


class ImageEncoder(nn.Module):
    def __init__(self, patch=8, d=64, n_head=8, d_ff=128, n_layers=4, n_out=7, p=0.1):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(3 * patch * patch, d)
        self.pos = nn.Embedding((32 // patch) ** 2, d)
        self.drop = nn.Dropout(p)
        self.layers = nn.ModuleList([PostNormBlock(d, n_head, d_ff, p) for _ in range(n_layers)])
        self.fc = nn.Linear(d, n_out)

    def patches(self, img):
        p = self.patch
        # (B, C, H/p, W/p, p, p)
        t = img.unfold(2, p, p).unfold(3, p, p)
        t = t.permute(0, 2, 3, 1, 4, 5)
        return t.flatten(3).flatten(1, 2)

    def forward(self, img):
        t = self.embed(self.patches(img))
        idx = torch.arange(t.size(1), device=img.device)
        t = self.drop(t + self.pos(idx))
        for layer in self.layers:
            t = layer(t)
        return self.fc(t.mean(dim=1))


def build():
    return ImageEncoder()
