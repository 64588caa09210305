"""Translation of a functional Keras model into torch; variable names kept."""
import torch
from torch import nn


def mlp(units_in, hidden_units, dropout_rate):
    layers = []
    for units in hidden_units:
        layers += [nn.Linear(units_in, units), nn.GELU(), nn.Dropout(dropout_rate)]
        units_in = units
    return nn.Sequential(*layers)


class Patches(nn.Module):
    def __init__(self, patch_size):
        super().__init__()
        self.patch_size = patch_size

    def forward(self, images):
        b, c, h, w = images.shape
        s = self.patch_size
        patches = images.unfold(2, s, s).unfold(3, s, s)
        return patches.permute(0, 2, 3, 4, 5, 1).reshape(b, (h // s) * (w // s), s * s * c)


class PatchEncoder(nn.Module):
    def __init__(self, num_patches, patch_dim, projection_dim):
        super().__init__()
        self.num_patches = num_patches
        self.projection = nn.Linear(patch_dim, projection_dim)
        self.position_embedding = nn.Embedding(num_patches, projection_dim)

    def forward(self, patch):
        positions = torch.arange(self.num_patches, device=patch.device).unsqueeze(0)
        return self.projection(patch) + self.position_embedding(positions)


class TransformerLayer(nn.Module):
    def __init__(self, projection_dim, num_heads, transformer_units):
        super().__init__()
        self.layer_norm_1 = nn.LayerNorm(projection_dim, eps=1e-6)
        self.attention_layer = nn.MultiheadAttention(projection_dim, num_heads, dropout=0.1, batch_first=True)
        self.layer_norm_2 = nn.LayerNorm(projection_dim, eps=1e-6)
        self.mlp = nn.Sequential(
            mlp(projection_dim, transformer_units, dropout_rate=0.1),
            nn.Linear(transformer_units[-1], projection_dim),
            nn.Dropout(0.1),
        )

    def forward(self, encoded_patches):
        # Layer normalization 1.
        x1 = self.layer_norm_1(encoded_patches)
        # Create a multi-head attention layer.
        attention_output, _ = self.attention_layer(x1, x1, x1)
        # Skip connection 1.
        x2 = attention_output + encoded_patches
        # Layer normalization 2.
        x3 = self.layer_norm_2(x2)
        # MLP.
        x3 = self.mlp(x2)
        # Skip connection 2.
        return x3 + x2


class VitClassifier(nn.Module):
    def __init__(self, num_classes=10, patch_size=8, projection_dim=48, num_heads=4, transformer_layers=3,
                 mlp_head_units=(128,)):
        super().__init__()
        num_patches = (32 // patch_size) ** 2
        self.patches = Patches(patch_size)
        self.patch_encoder = PatchEncoder(num_patches, 3 * patch_size**2, projection_dim)
        self.transformer = nn.Sequential(
            *[TransformerLayer(projection_dim, num_heads, (projection_dim * 2,))
              for _ in range(transformer_layers)]
        )
        self.layer_norm = nn.LayerNorm(projection_dim, eps=1e-6)
        self.dropout = nn.Dropout(0.3)
        self.features = mlp(num_patches * projection_dim, mlp_head_units, dropout_rate=0.3)
        self.logits = nn.Linear(mlp_head_units[-1], num_classes)

    def forward(self, inputs):
        encoded_patches = self.patch_encoder(self.patches(inputs))
        encoded_patches = self.transformer(encoded_patches)
        representation = self.layer_norm(encoded_patches)
        representation = self.dropout(representation.flatten(1))
        return self.logits(self.features(representation))


def build():
    return VitClassifier()
