# Assignment: classify CIFAR images with a transformer
import torch
import torch.nn as nn


def get_sinusoid_table(n_position, d_hid):
    table = torch.zeros(n_position, d_hid)
    for pos in range(n_position):
        for i in range(0, d_hid, 2):
            angle = pos / (10000 ** (i / d_hid))
            table[pos, i] = torch.sin(torch.tensor(angle))
            table[pos, i + 1] = torch.cos(torch.tensor(angle))
    return table


def patchify(images, n_patches):
    b, c, h, w = images.shape
    size = h // n_patches
    return images.reshape(b, n_patches ** 2, c * size * size)


class EncoderBlock(nn.Module):
    def __init__(self, hidden_d, n_heads, mlp_ratio=3):
        super(EncoderBlock, self).__init__()
        self.norm1 = nn.LayerNorm(hidden_d)
        self.mhsa = nn.MultiheadAttention(hidden_d, n_heads, batch_first=True)
        self.norm2 = nn.LayerNorm(hidden_d)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_d, mlp_ratio * hidden_d),
            nn.GELU(),
            nn.Linear(mlp_ratio * hidden_d, hidden_d)
        )

    def forward(self, x):
        normed = self.norm1(x)
        attn_out, attn_weights = self.mhsa(normed, normed, normed)
        out = x + attn_out
        out = out + self.mlp(self.norm2(out))
        return out


class StudentViT(nn.Module):
    def __init__(self, chw=(3, 32, 32), n_patches=8, n_blocks=3, hidden_d=48, n_heads=4, out_d=10):
        super(StudentViT, self).__init__()
        self.chw = chw
        self.n_patches = n_patches
        self.input_d = int(chw[0] * (chw[1] / n_patches) * (chw[2] / n_patches))
        self.linear_mapper = nn.Linear(self.input_d, hidden_d)
        self.class_token = nn.Parameter(torch.rand(1, hidden_d))
        self.register_buffer('positional_embeddings', get_sinusoid_table(n_patches ** 2 + 1, hidden_d), persistent=False)
        self.blocks = nn.ModuleList([EncoderBlock(hidden_d, n_heads) for _ in range(n_blocks)])
        self.norm = nn.LayerNorm(hidden_d)
        self.mlp_head = nn.Linear(hidden_d, out_d)

    def forward(self, images):
        n = images.shape[0]
        patches = patchify(images, self.n_patches)
        tokens = self.linear_mapper(patches)
        tokens = torch.cat((self.class_token.expand(n, 1, -1), tokens), dim=1)
        out = tokens + self.positional_embeddings.unsqueeze(0)
        for block in self.blocks:
            out = block(out)
        out = self.norm(out)[:, 0]
        return self.mlp_head(out)


def build():
    return StudentViT()
