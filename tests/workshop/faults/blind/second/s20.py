import torch
import torch.nn as nn


class Head(nn.Module):
    def __init__(self, n_embd, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.query = nn.Linear(n_embd, head_dim, bias=False)
        self.key = nn.Linear(n_embd, head_dim, bias=False)
        self.value = nn.Linear(n_embd, head_dim, bias=False)

    def forward(self, x):
        q, k, v = self.query(x), self.key(x), self.value(x)
        scores = q @ k.T / self.head_dim ** -0.5
        weights = torch.softmax(scores, dim=-1)
        return weights @ v


class MultiHead(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.heads = nn.ModuleList([Head(n_embd, n_embd // n_head) for _ in range(n_head)])
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        return self.proj(torch.cat([h(x) for h in self.heads], dim=-1))


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.ln1 = nn.LayerNorm(n_embd)
        self.sa = MultiHead(n_embd, n_head)
        self.ln2 = nn.LayerNorm(n_embd)
        self.ffwd = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd),
            nn.ReLU(),
            nn.Linear(4 * n_embd, n_embd),
        )

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        x = x + self.ffwd(self.ln2(x))
        return x


class TinyViT(nn.Module):
    def __init__(self, channels=1, size=24, patch=6, n_embd=48, n_head=3, n_layer=2, n_class=10):
        super().__init__()
        self.patch = patch
        n = (size // patch) ** 2
        self.embed = nn.Linear(channels * patch * patch, n_embd)
        self.cls = nn.Parameter(torch.randn(1, n_embd) * 0.02)
        self.position = nn.Embedding(n + 1, n_embd)
        self.blocks = nn.Sequential(*[Block(n_embd, n_head) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, n_class)

    def encode(self, image):
        c = image.shape[0]
        p = self.patch
        x = image.unfold(1, p, p).unfold(2, p, p)
        x = x.permute(1, 2, 0, 3, 4).reshape(-1, c * p * p)
        x = torch.cat([self.cls, self.embed(x)], dim=0)
        x = x + self.position(torch.arange(len(x), device=x.device))
        return self.ln_f(self.blocks(x))[0]

    def forward(self, images):
        return self.lm_head(torch.stack([self.encode(im) for im in images]))


def build():
    return TinyViT()
