import torch
from torch import nn


class ChannelNorm(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w = nn.Parameter(torch.ones(c, 1, 1))
        self.b = nn.Parameter(torch.zeros(c, 1, 1))

    def forward(self, x):
        v, m = torch.var_mean(x, dim=1, keepdim=True, unbiased=False)
        return (x - m) / (v + 1e-6).sqrt() * self.w + self.b


class Mixer(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Conv2d(c, c, 1)
        self.to_k = nn.Conv2d(c, c, 1, bias=False)
        self.to_v = nn.Conv2d(c, c, 1)
        self.mix = nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        d = c // self.heads
        q = self.to_q(x).reshape(b * self.heads, d, h * w)
        k = self.to_k(x).reshape(b * self.heads, d, h * w)
        v = self.to_v(x).reshape(b * self.heads, d, h * w)
        s = torch.bmm(k.transpose(1, 2), q) / d ** 0.5
        s = s.softmax(dim=1)
        y = torch.bmm(v, s)
        return self.mix(y.reshape(b, c, h, w))


class Unit(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.locate = nn.Conv2d(c, c, 3, padding=1, groups=c)
        self.n1 = ChannelNorm(c)
        self.att = Mixer(c, heads)
        self.n2 = ChannelNorm(c)
        self.ffn = nn.Sequential(nn.Conv2d(c, 3 * c, 1), nn.Hardswish(), nn.Conv2d(3 * c, c, 1))

    def forward(self, x):
        x = x + self.locate(x)
        x = x + self.att(self.n1(x))
        x = x + self.ffn(self.n2(x))
        return x


class ConvStemFormer(nn.Module):
    def __init__(self, c=64, heads=4, depth=3, classes=6):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish(),
            nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.Hardswish(),
            nn.Conv2d(32, c, 3, 2, 1, bias=False), nn.BatchNorm2d(c),
        )
        self.body = nn.Sequential(*[Unit(c, heads) for _ in range(depth)])
        self.tail = nn.Sequential(
            ChannelNorm(c),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(c, classes),
        )

    def forward(self, x):
        return self.tail(self.body(self.stem(x)))


def build():
    return ConvStemFormer()
