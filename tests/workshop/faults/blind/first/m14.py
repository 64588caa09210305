import math
from torch import nn
import torch

# Single-image transformer: every tensor below is a matrix with one row per patch.


def softmax_rows(M):
    M = M - M.amax(1, keepdim=True)
    M = torch.exp(M)
    return M / M.sum(1, keepdim=True)


class Encoder(nn.Module):
    def __init__(self, width, n_heads, hidden):
        super().__init__()
        self.n_heads = n_heads
        self.h = width // n_heads
        self.Q = nn.ModuleList([nn.Linear(width, self.h) for _ in range(n_heads)])
        self.K = nn.ModuleList([nn.Linear(width, self.h) for _ in range(n_heads)])
        self.V = nn.ModuleList([nn.Linear(width, self.h) for _ in range(n_heads)])
        self.join = nn.Linear(width, width)
        self.ln_a = nn.LayerNorm(width)
        self.ln_b = nn.LayerNorm(width)
        self.fc_in = nn.Linear(width, hidden)
        self.fc_out = nn.Linear(hidden, width)

    def attend(self, X):
        pieces = []
        for i in range(self.n_heads):
            q, k, v = self.Q[i](X), self.K[i](X), self.V[i](X)
            pieces.append(softmax_rows(q @ k.t() / math.sqrt(self.h)) @ v)
        return self.join(torch.hstack(pieces))

    def transform(self, X):
        return self.fc_out(nn.functional.gelu(self.fc_in(X)))

    def forward(self, X):
        Y = X + self.attend(self.ln_a(X))
        Z = self.transform(self.ln_b(Y))
        return Z


class LoopViT(nn.Module):
    def __init__(self, patch=8, width=40, n_heads=4, hidden=120, layers=3, classes=10):
        super().__init__()
        self.patch = patch
        per_side = 32 // patch
        self.lift = nn.Linear(3 * patch ** 2, width)
        self.row_code = nn.Embedding(per_side, width)
        self.col_code = nn.Embedding(per_side, width)
        for code in (self.row_code, self.col_code):
            nn.init.normal_(code.weight, std=0.02)
        self.encoders = nn.ModuleList([Encoder(width, n_heads, hidden) for _ in range(layers)])
        self.ln = nn.LayerNorm(width)
        self.out = nn.Linear(width, classes)

    def one(self, image):
        p = self.patch
        rows = []
        for i, strip in enumerate(image.split(p, dim=1)):
            for j, tile in enumerate(strip.split(p, dim=2)):
                rows.append(self.lift(tile.flatten()) + self.row_code.weight[i] + self.col_code.weight[j])
        X = torch.vstack(rows)
        for enc in self.encoders:
            X = enc(X)
        return self.out(self.ln(X).mean(0))

    def forward(self, images):
        return torch.vstack([self.one(im) for im in images])


def build():
    return LoopViT()
