import torch
import torch.nn as nn
import torch.nn.functional as F

IMG = 28
PATCH = 4
EMB = 48
HEADS = 4
LAYERS = 3
CLASSES = 10


class MHSA(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(EMB, EMB)
        self.k = nn.Linear(EMB, EMB)
        self.v = nn.Linear(EMB, EMB)
        self.o = nn.Linear(EMB, EMB)

    def forward(self, x):
        B, T, _ = x.shape
        d = EMB // HEADS
        q = self.q(x).view(B, T, HEADS, d).transpose(1, 2)
        k = self.k(x).view(B, T, HEADS, d).transpose(1, 2)
        v = self.v(x).view(B, T, HEADS, d).transpose(1, 2)
        att = torch.matmul(q, k.transpose(2, 3)) / (d ** 0.5)
        att = F.softmax(att, dim=-1)
        out = torch.matmul(att, v)
        out = out.transpose(1, 2).contiguous().view(B, T, EMB)
        return self.o(out)


class EncoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(EMB)
        self.mhsa = MHSA()
        self.norm2 = nn.LayerNorm(EMB)
        self.fc1 = nn.Linear(EMB, EMB * 2)
        self.fc2 = nn.Linear(EMB * 2, EMB)

    def forward(self, x):
        x = x + self.mhsa(self.norm1(x))
        x = x + self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x


class MyViT(nn.Module):
    def __init__(self):
        super().__init__()
        n = (IMG // PATCH) ** 2
        self.patch = nn.Linear(PATCH * PATCH, EMB)
        self.cls = nn.Parameter(torch.rand(1, 1, EMB) * 0.02)
        self.pos = nn.Parameter(torch.rand(1, n + 1, EMB) * 0.02)
        self.enc = nn.ModuleList([EncoderBlock() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(EMB)
        self.fc = nn.Linear(EMB, CLASSES)

    def forward(self, img):
        B = img.size(0)
        x = img.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)
        x = x.reshape(B, -1, PATCH * PATCH)
        x = self.patch(x)
        x = torch.cat([self.cls.repeat(B, 1, 1), x], dim=1)
        x = x + self.pos
        for block in self.enc:
            x = block(x)
        x = self.norm(x)[:, 0]
        x = F.softmax(self.fc(x), dim=1)
        return x


def build():
    return MyViT()


def train(model, loader, epochs=5, lr=1e-3):
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    criterion = nn.CrossEntropyLoss()
    model.train()
    for epoch in range(epochs):
        total, correct, seen = 0.0, 0, 0
        for img, label in loader:
            opt.zero_grad()
            out = model(img)
            loss = criterion(out, label)
            loss.backward()
            opt.step()
            total += loss.item() * len(label)
            correct += (out.argmax(1) == label).sum().item()
            seen += len(label)
        print(f"epoch {epoch}: loss {total / seen:.4f} acc {correct / seen:.4f}")


if __name__ == "__main__":
    data = [(torch.randn(16, 1, IMG, IMG), torch.randint(0, CLASSES, (16,))) for _ in range(4)]
    train(build(), data, epochs=2)
