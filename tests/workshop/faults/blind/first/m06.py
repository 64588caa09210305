"""Port of a channels-last functional model.  Names follow the original layers."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Dense(nn.Module):
    def __init__(self, fan_in, units, activation=None):
        super().__init__()
        limit = math.sqrt(6.0 / (fan_in + units))
        self.kernel = nn.Parameter(torch.empty(fan_in, units).uniform_(-limit, limit))
        self.bias = nn.Parameter(torch.zeros(units))
        self.activation = activation

    def forward(self, inputs):
        outputs = torch.tensordot(inputs, self.kernel, dims=([-1], [0])) + self.bias
        return outputs if self.activation is None else self.activation(outputs)


class LayerNormalization(nn.Module):
    def __init__(self, units, epsilon=1e-3):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(units))
        self.beta = nn.Parameter(torch.zeros(units))
        self.epsilon = epsilon

    def forward(self, inputs):
        mean = inputs.mean(dim=-1, keepdim=True)
        variance = ((inputs - mean) ** 2).mean(dim=-1, keepdim=True)
        return self.gamma * (inputs - mean) / torch.sqrt(variance + self.epsilon) + self.beta


class MultiHeadAttention(nn.Module):
    def __init__(self, num_heads, key_dim, width):
        super().__init__()
        self.num_heads, self.key_dim = num_heads, key_dim
        self.query_dense = Dense(width, num_heads * key_dim)
        self.key_dense = Dense(width, num_heads * key_dim)
        self.value_dense = Dense(width, num_heads * key_dim)
        self.output_dense = Dense(num_heads * key_dim, width)

    def forward(self, query, value):
        shape = (self.num_heads, self.key_dim)
        q = self.query_dense(query).unflatten(-1, shape) * (1.0 / math.sqrt(self.key_dim))
        k = self.key_dense(value).unflatten(-1, shape)
        v = self.value_dense(value).unflatten(-1, shape)
        scores = torch.einsum("BSNH,BTNH->BNTS", k, q)
        scores = torch.softmax(scores, dim=-1)
        attended = torch.einsum("BNTS,BSNH->BTNH", scores, v)
        return self.output_dense(attended.flatten(-2))


class PatchEncoder(nn.Module):
    def __init__(self, patch_size, image_size, width):
        super().__init__()
        self.patch_size = patch_size
        num_patches = (image_size // patch_size) ** 2
        self.projection = Dense(3 * patch_size**2, width)
        self.position_embedding = nn.Embedding(num_patches, width)
        nn.init.uniform_(self.position_embedding.weight, -0.05, 0.05)
        self.register_buffer("positions", torch.arange(num_patches))

    def forward(self, images):
        batch, height, width, channels = images.shape
        p = self.patch_size
        grid = images.reshape(batch, height // p, p, width // p, p, channels)
        patches = grid.transpose(2, 3).reshape(batch, -1, p * p * channels)
        return self.projection(patches) + self.position_embedding(self.positions)


class VitClassifier(nn.Module):
    def __init__(self, width=48, num_heads=4, transformer_layers=2, mlp_head_units=(96,), num_classes=10, rate=0.1):
        super().__init__()
        self.patch_encoder = PatchEncoder(8, 32, width)
        self.norms_1 = nn.ModuleList([LayerNormalization(width, 1e-6) for _ in range(transformer_layers)])
        self.norms_2 = nn.ModuleList([LayerNormalization(width, 1e-6) for _ in range(transformer_layers)])
        self.attentions = nn.ModuleList(
            [MultiHeadAttention(num_heads, width // num_heads, width) for _ in range(transformer_layers)]
        )
        self.mlps = nn.ModuleList(
            [
                nn.Sequential(Dense(width, width * 2, F.gelu), nn.Dropout(rate), Dense(width * 2, width), nn.Dropout(rate))
                for _ in range(transformer_layers)
            ]
        )
        self.final_norm = LayerNormalization(width, 1e-6)
        units = (16 * width,) + mlp_head_units
        self.mlp_head = nn.Sequential(*[Dense(a, b, F.gelu) for a, b in zip(units[:-1], units[1:])])
        self.logits = Dense(units[-1], num_classes)
        self.rate = rate

    def forward(self, inputs):
        encoded_patches = self.patch_encoder(inputs.permute(0, 2, 3, 1))
        for i in range(len(self.attentions)):
            x1 = self.norms_1[i](encoded_patches)
            attention_output = self.attentions[i](x1, x1)
            x2 = attention_output + encoded_patches
            x3 = self.norms_2[i](x2)
            x3 = self.mlps[i](x3)
            encoded_patches = x3 + x2
        representation = self.final_norm(encoded_patches)
        representation = torch.flatten(representation, start_dim=1)
        representation = F.dropout(representation, self.rate, training=self.training)
        return self.logits(self.mlp_head(representation))


def build():
    return VitClassifier()
