import math
import torch
from torch import nn
from torch.func import vmap


def rms(x, g):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * g


class Layer(nn.Module):
    def __init__(self, d, heads, dh, hidden):
        super().__init__()
        s = d ** -0.5
        self.g_att = nn.Parameter(torch.ones(d))
        self.wq = nn.Parameter(torch.randn(heads, d, dh) * s)
        self.wk = nn.Parameter(torch.randn(heads, d, dh) * s)
        self.wv = nn.Parameter(torch.randn(heads, d, dh) * s)
        self.wo = nn.Parameter(torch.randn(heads, dh, d) * (heads * dh) ** -0.5)
        self.g_mlp = nn.Parameter(torch.ones(d))
        self.w_gate = nn.Parameter(torch.randn(d, hidden) * s)
        self.w_up = nn.Parameter(torch.randn(d, hidden) * s)
        self.w_down = nn.Parameter(torch.randn(hidden, d) * hidden ** -0.5)

    def forward(self, x):
        u = rms(x, self.g_att)

        def head(wq, wk, wv, wo):
            q, k, v = u @ wq, u @ wk, u @ wv
            a = torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), dim=1)
            return a @ v @ wo

        x = x + vmap(head)(self.wq, self.wk, self.wv, self.wo).sum(0)
        u = rms(x, self.g_mlp)
        gate = u @ self.w_gate
        return x + (gate * torch.sigmoid(gate) * (u @ self.w_up)) @ self.w_down


class Net(nn.Module):
    def __init__(self, c=1, side=16, p=4, d=48, heads=3, dh=16, hidden=96, depth=3, k=5):
        super().__init__()
        self.p = p
        t = (side // p) ** 2
        self.w_in = nn.Parameter(torch.randn(c * p * p, d) * (c * p * p) ** -0.5)
        self.pos = nn.Parameter(torch.randn(t, d) * 0.02)
        self.layers = nn.ModuleList([Layer(d, heads, dh, hidden) for _ in range(depth)])
        self.g_out = nn.Parameter(torch.ones(d))
        self.w_out = nn.Parameter(torch.randn(d, k) * d ** -0.5)
        self.b_out = nn.Parameter(torch.zeros(k))

    def one(self, img):
        p = self.p
        rows = []
        for i in range(0, img.shape[1], p):
            for j in range(0, img.shape[2], p):
                rows.append(img[:, i:i + p, j:j + p].reshape(-1))
        x = torch.stack(rows) @ self.w_in + self.pos
        for layer in self.layers:
            x = layer(x)
        return rms(x, self.g_out).mean(0) @ self.w_out + self.b_out

    def forward(self, images):
        return vmap(self.one)(images)


def build():
    return Net()
