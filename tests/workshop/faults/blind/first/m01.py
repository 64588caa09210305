import torch
from torch import nn
from torch.func import functional_call, vmap

# One image goes through `Single`; `Batched` maps it over the leading axis.


class Mixer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.norm = nn.LayerNorm(d)
        self.q = nn.Linear(d, d)
        self.k = nn.Linear(d, d, bias=False)
        self.v = nn.Linear(d, d)
        self.o = nn.Linear(d, d)

    def forward(self, x):
        n, d = x.shape
        y = self.norm(x)
        q = self.q(y).reshape(n, self.h, d // self.h)
        k = self.k(y).reshape(n, self.h, d // self.h)
        v = self.v(y).reshape(n, self.h, d // self.h)
        w = torch.einsum("ihc,jhc->hij", q, k) * (d // self.h) ** -0.5
        y = torch.einsum("hij,jhc->ihc", torch.softmax(w, -1), v)
        return x + self.o(y.reshape(n, d))


class Feed(nn.Module):
    def __init__(self, d, m):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, m)
        self.down = nn.Linear(m, d)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Single(nn.Module):
    def __init__(self, d=48, h=3, depth=3, patch=8, grid=4, classes=10):
        super().__init__()
        self.patch, self.grid = patch, grid
        self.embed = nn.Linear(3 * patch * patch, d)
        self.pos = nn.Parameter(torch.randn(grid * grid, d) * 0.02)
        self.query_token = nn.Parameter(torch.randn(1, d) * 0.02)
        layers = []
        for _ in range(depth):
            layers += [Mixer(d, h), Feed(d, 2 * d)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, classes)

    def forward(self, image):
        g, p = self.grid, self.patch
        patches = image.reshape(3, g, p, g, p).permute(1, 3, 2, 4, 0).reshape(g * g, -1)
        x = self.embed(patches) + self.pos
        x = torch.cat([x, self.query_token], dim=0)
        x = self.norm(self.layers(x))
        return self.head(x[0])


class Batched(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Single()

    def forward(self, images):
        weights = dict(self.inner.named_parameters())
        return vmap(lambda im: functional_call(self.inner, weights, (im,)))(images)


def build():
    return Batched()
