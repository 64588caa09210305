import math

import torch
from torch import nn


class PositionalEncoding(nn.Module):

    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, 1, d_model)
        pe[:, 0, 0::2] = torch.sin(position * div_term)
        pe[:, 0, 1::2] = torch.cos(position * div_term)
        self.register_buffer('pe', pe)

    def forward(self, x):
        x = x + self.pe[:x.size(0)]
        return self.dropout(x)


class TransformerClassifier(nn.Module):

    def __init__(self, n_class: int = 10, d_model: int = 64, n_head: int = 4, d_hid: int = 128,
                 n_layers: int = 3, patch: int = 8, dropout: float = 0.1):
        super().__init__()
        self.d_model = d_model
        self.patch = patch
        self.encoder = nn.Linear(3 * patch * patch, d_model)
        self.pos_encoder = PositionalEncoding(d_model, dropout)
        encoder_layer = nn.TransformerEncoderLayer(d_model, n_head, d_hid, dropout, batch_first=True)
        self.transformer_encoder = nn.TransformerEncoder(encoder_layer, n_layers)
        self.decoder = nn.Linear(d_model, n_class)
        self.init_weights()

    def init_weights(self):
        for p in self.transformer_encoder.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, src):
        src = nn.functional.pixel_unshuffle(src, self.patch)
        src = src.flatten(2).transpose(1, 2)
        src = self.encoder(src) * math.sqrt(self.d_model)
        src = self.pos_encoder(src)
        out = self.transformer_encoder(src)
        return self.decoder(out.mean(dim=1))


def build():
    return TransformerClassifier()
