import torch
import torch.nn as nn


class ViTClassifier(nn.Module):
    def __init__(self, image_size=32, patch_size=8, in_channels=3, num_classes=10,
                 hidden_size=64, num_layers=3, num_heads=4, intermediate_size=160):
        super().__init__()
        self.num_patches = (image_size // patch_size) ** 2
        self.patch_embeddings = nn.Conv2d(in_channels, hidden_size, kernel_size=patch_size, stride=patch_size)
        self.cls_token = nn.Parameter(torch.randn(1, 1, hidden_size) * 0.02)
        self.position_embeddings = nn.Parameter(torch.randn(1, self.num_patches + 1, hidden_size) * 0.02)
        self.dropout = nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(
            d_model=hidden_size,
            nhead=num_heads,
            dim_feedforward=intermediate_size,
            dropout=0.1,
            activation="gelu", norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, norm=nn.LayerNorm(hidden_size), enable_nested_tensor=False)
        self.mlp_head = nn.Sequential(
            nn.Linear(hidden_size, hidden_size),
            nn.Tanh(),
            nn.Linear(hidden_size, num_classes),
        )

    def forward(self, pixel_values):
        batch_size = pixel_values.shape[0]
        embeddings = self.patch_embeddings(pixel_values)
        embeddings = embeddings.flatten(2).transpose(1, 2)
        cls_tokens = self.cls_token.expand(batch_size, -1, -1)
        embeddings = torch.cat((cls_tokens, embeddings), dim=1)
        embeddings = self.dropout(embeddings + self.position_embeddings)
        encoded = self.encoder(embeddings)
        return self.mlp_head(encoded[:, 0, :])


def build():
    return ViTClassifier()
