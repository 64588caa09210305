import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchTokens(nn.Module):
    def __init__(self, chans, patch, image, dim):
        super().__init__()
        self.patch = patch
        self.count = (image // patch) ** 2
        self.project = nn.Linear(chans * patch * patch, dim)

    def forward(self, img):
        cols = F.unfold(img, kernel_size=self.patch, stride=self.patch)
        cols = cols.reshape(len(img), self.count, -1)
        return self.project(cols)


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, queries, context):
        b, tq, d = queries.shape
        tk = context.shape[1]
        q = self.q(queries).view(b, tq, self.heads, -1).transpose(1, 2)
        k, v = self.kv(context).view(b, tk, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5
        y = w.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(b, tq, d))


def feed_forward(dim, mult=3):
    return nn.Sequential(nn.Linear(dim, dim * mult), nn.GELU(), nn.Linear(dim * mult, dim))


class PatchStage(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.att = SelfAttention(dim, heads)
        self.ff = feed_forward(dim)
        self.g1 = nn.Parameter(0.1 * torch.ones(dim))
        self.g2 = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.g1 * self.att(h, h)
        return x + self.g2 * self.ff(self.n2(x))


class ClassStage(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.att = SelfAttention(dim, heads)
        self.ff = feed_forward(dim)
        self.g1 = nn.Parameter(0.1 * torch.ones(dim))
        self.g2 = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, c, x):
        u = self.n1(torch.cat((c, x), dim=1))
        c = c + self.g1 * self.att(u[:, :1], u)
        return c + self.g2 * self.ff(self.n2(c))


class LateClassViT(nn.Module):
    def __init__(self, chans=3, image=24, patch=4, dim=48, heads=4, depth=3, class_depth=2, classes=7):
        super().__init__()
        self.tokens = PatchTokens(chans, patch, image, dim)
        self.position = nn.Parameter(torch.randn(1, self.tokens.count, dim) * 0.02)
        self.stage1 = nn.ModuleList(PatchStage(dim, heads) for _ in range(depth))
        self.cls = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.stage2 = nn.ModuleList(ClassStage(dim, heads) for _ in range(class_depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, img):
        x = self.tokens(img) + self.position
        for layer in self.stage1:
            x = layer(x)
        c = self.cls.expand(len(img), -1, -1)
        for layer in self.stage2:
            c = layer(c, x)
        return self.head(self.norm(c)[:, 0])


def build():
    return LateClassViT()
