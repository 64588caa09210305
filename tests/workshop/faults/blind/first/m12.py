from dataclasses import dataclass
from typing import Optional, Tuple

import torch
from torch import nn


@dataclass
class TinyVitConfig:
    image_size: int = 32
    patch_size: int = 4
    num_channels: int = 3
    hidden_size: int = 64
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    intermediate_size: int = 128
    hidden_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    num_labels: int = 10


@dataclass
class ClassifierOutput:
    logits: torch.Tensor
    loss: Optional[torch.Tensor] = None
    hidden_states: Optional[Tuple[torch.Tensor, ...]] = None


class TinyVitRelativeBias(nn.Module):
    def __init__(self, config: TinyVitConfig):
        super().__init__()
        side = config.image_size // config.patch_size
        self.table = nn.Parameter(torch.zeros((2 * side - 1) ** 2, config.num_attention_heads))
        ys, xs = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        coords = torch.stack([ys.flatten(), xs.flatten()])
        rel = coords[:, :, None] - coords[:, None, :] + side - 1
        self.register_buffer("index", rel[0] * (2 * side - 1) + rel[1], persistent=False)

    def forward(self) -> torch.Tensor:
        return self.table[self.index].permute(2, 0, 1).unsqueeze(0)


class TinyVitSelfAttention(nn.Module):
    def __init__(self, config: TinyVitConfig):
        super().__init__()
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.relative_position_bias = TinyVitRelativeBias(config)

    def transpose_for_scores(self, x: torch.Tensor) -> torch.Tensor:
        new_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        return x.view(new_shape).permute(0, 2, 1, 3)

    def forward(self, hidden_states: torch.Tensor, head_mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        q = self.transpose_for_scores(self.query(hidden_states))
        k = self.transpose_for_scores(self.key(hidden_states))
        v = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(q, k.transpose(-1, -2)) / self.attention_head_size**0.5
        probs = nn.functional.softmax(scores + self.relative_position_bias(), dim=-1)
        if head_mask is not None:
            probs = probs * head_mask.view(1, -1, 1, 1)
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        context = context.view(context.size()[:-2] + (self.num_attention_heads * self.attention_head_size,))
        return self.dense(context)


class TinyVitLayer(nn.Module):
    def __init__(self, config: TinyVitConfig):
        super().__init__()
        self.attention = TinyVitSelfAttention(config)
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layernorm_before = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.layernorm_after = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states, head_mask=None):
        attended = self.attention(self.layernorm_before(hidden_states), head_mask)
        hidden_states = hidden_states + self.dropout(attended)
        expanded = nn.functional.gelu(self.intermediate(self.layernorm_after(hidden_states)))
        return hidden_states + self.dropout(self.output(expanded))


class TinyVitForImageClassification(nn.Module):
    def __init__(self, config: TinyVitConfig):
        super().__init__()
        self.config = config
        self.projection = nn.Conv2d(
            config.num_channels, config.hidden_size, config.patch_size, stride=config.patch_size
        )
        seq = (config.image_size // config.patch_size) ** 2
        self.position_embeddings = nn.Parameter(torch.randn(1, seq, config.hidden_size) * config.initializer_range)
        self.layer = nn.ModuleList([TinyVitLayer(config) for _ in range(config.num_hidden_layers)])
        self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            nn.init.trunc_normal_(module.weight, std=self.config.initializer_range)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, TinyVitRelativeBias):
            nn.init.trunc_normal_(module.table, std=self.config.initializer_range)

    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: Optional[torch.Tensor] = None,
        head_mask: Optional[torch.Tensor] = None,
        output_hidden_states: bool = False,
    ) -> ClassifierOutput:
        hidden = self.projection(pixel_values).flatten(2).transpose(1, 2) + self.position_embeddings
        collected = (hidden,)
        for layer in self.layer:
            hidden = layer(hidden, head_mask)
            collected = collected + (hidden,)
        logits = self.classifier(self.layernorm(hidden).mean(dim=1))
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return ClassifierOutput(logits, loss, collected if output_hidden_states else None)


def build():
    return TinyVitForImageClassification(TinyVitConfig())
