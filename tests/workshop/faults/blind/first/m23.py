import math
import torch
from torch import nn

# Notation: T tokens, D features, d = D / H.  Everything below works on one image.


class OneHead(nn.Module):
    def __init__(self, D, d):
        super().__init__()
        self.Wq = nn.Parameter(torch.randn(D, d) / math.sqrt(D))
        self.Wk = nn.Parameter(torch.randn(D, d) / math.sqrt(D))
        self.Wv = nn.Parameter(torch.randn(D, d) / math.sqrt(D))
        self.d = d

    def forward(self, X):                       # (T, D)
        Q, K, V = X @ self.Wq, X @ self.Wk, X @ self.Wv
        S = Q @ K.T / math.sqrt(self.d)         # (T, T)
        S = S - S.max(dim=1, keepdim=True).values
        E = S.exp()
        A = E / E.sum(dim=1, keepdim=True)
        return A @ V                            # (T, d)


class Heads(nn.Module):
    def __init__(self, D, H):
        super().__init__()
        self.heads = nn.ModuleList(OneHead(D, D // H) for _ in range(H))
        self.Wo = nn.Parameter(torch.randn(D, D) / math.sqrt(D))

    def forward(self, X):
        return torch.cat([h(X) for h in self.heads], dim=1) @ self.Wo


class Block(nn.Module):
    def __init__(self, D, H):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.heads = Heads(D, H)
        self.W1 = nn.Parameter(torch.randn(D, 3 * D) / math.sqrt(D))
        self.b1 = nn.Parameter(torch.zeros(3 * D))
        self.W2 = nn.Parameter(torch.randn(3 * D, D) / math.sqrt(3 * D))
        self.b2 = nn.Parameter(torch.zeros(D))

    def forward(self, X):
        X = X + self.heads(self.ln1(X))
        Z = torch.tanh(self.ln2(X) @ self.W1 + self.b1)
        return X + Z @ self.W2 + self.b2


class AttnPool(nn.Module):
    """One learned question asked of all tokens."""

    def __init__(self, D):
        super().__init__()
        self.question = nn.Parameter(torch.randn(D) / math.sqrt(D))

    def forward(self, X):
        w = torch.softmax(X @ self.question, dim=0)   # (T,)
        return w @ X                                  # (D,)


class MatrixViT(nn.Module):
    def __init__(self, D=48, H=3, L=2, P=8, K=10):
        super().__init__()
        self.P = P
        self.We = nn.Parameter(torch.randn(3 * P * P, D) / math.sqrt(3 * P * P))
        self.Epos = nn.Parameter(torch.randn((32 // P) ** 2, D) * 0.02)
        self.blocks = nn.ModuleList(Block(D, H) for _ in range(L))
        self.ln = nn.LayerNorm(D)
        self.pool = AttnPool(D)
        self.Wc = nn.Parameter(torch.randn(D, K) / math.sqrt(D))
        self.bc = nn.Parameter(torch.zeros(K))

    def cut(self, img):
        P = self.P
        rows = [img[:, r:r + P, c:c + P].reshape(-1) for r in range(0, 32, P) for c in range(0, 32, P)]
        return torch.stack(rows)

    def single(self, img):
        X = self.cut(img) @ self.We + self.Epos
        for b in self.blocks:
            X = b(X)
        return self.pool(self.ln(X)) @ self.Wc + self.bc

    def forward(self, imgs):
        return torch.stack([self.single(i) for i in imgs])


def build():
    return MatrixViT()
