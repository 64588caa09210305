from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any, Optional

import torch
import torch.utils.checkpoint
from torch import nn


@dataclass
class ModelOutput:
    logits: torch.Tensor = None
    loss: Optional[torch.Tensor] = None
    pooler_output: Optional[torch.Tensor] = None

    def __getitem__(self, k):
        if isinstance(k, str):
            return getattr(self, k)
        return self.to_tuple()[k]

    def to_tuple(self):
        return tuple(getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None)


class PatchViTConfig:
    def __init__(self, **kwargs: Any):
        self.hidden_size = kwargs.pop("hidden_size", 64)
        self.num_hidden_layers = kwargs.pop("num_hidden_layers", 3)
        self.num_attention_heads = kwargs.pop("num_attention_heads", 8)
        self.intermediate_size = kwargs.pop("intermediate_size", 192)
        self.image_size = kwargs.pop("image_size", 32)
        self.patch_size = kwargs.pop("patch_size", 4)
        self.num_labels = kwargs.pop("num_labels", 10)


ACT2FN = OrderedDict(gelu=nn.functional.gelu, relu=nn.functional.relu)


def sdpa_attention_forward(module, query, key, value, scaling, dropout=0.0):
    attn_output = nn.functional.scaled_dot_product_attention(
        query, key, value, dropout_p=dropout, scale=scaling
    )
    return attn_output.contiguous()


class PatchViTEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.patch_embeddings = nn.Conv2d(3, config.hidden_size, config.patch_size, config.patch_size)
        n = (config.image_size // config.patch_size) ** 2
        self.cls_token = nn.Parameter(torch.randn(1, 1, config.hidden_size) * 0.02)
        self.position_embeddings = nn.Parameter(torch.randn(1, n + 1, config.hidden_size) * 0.02)

    def forward(self, pixel_values):
        embeddings = self.patch_embeddings(pixel_values).flatten(2).transpose(1, 2)
        cls_tokens = self.cls_token.expand(pixel_values.shape[0], -1, -1)
        return torch.cat((cls_tokens, embeddings), dim=1) + self.position_embeddings


class PatchViTAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states):
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, self.num_heads, self.head_dim)
        query_states = self.q_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        key_states = self.k_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        value_states = self.v_proj(hidden_states).view(hidden_shape).transpose(1, 2)
        attn_output = sdpa_attention_forward(self, query_states, key_states, value_states, self.scaling)
        return self.o_proj(attn_output.reshape(*input_shape, -1))


class PatchViTEncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = PatchViTAttention(config)
        self.layer_norm1 = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size)
        self.act = ACT2FN["gelu"]

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.self_attn(self.layer_norm1(hidden_states))
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.fc2(self.act(self.fc1(self.layer_norm2(hidden_states))))
        return residual + hidden_states


class PatchViTPooler(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states):
        return torch.tanh(self.dense(hidden_states[:, 0]))


class PatchViTForImageClassification(nn.Module):
    supports_gradient_checkpointing = True

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self.embeddings = PatchViTEmbeddings(config)
        self.layers = nn.ModuleList([PatchViTEncoderLayer(config) for _ in range(config.num_hidden_layers)])
        self.post_layernorm = nn.LayerNorm(config.hidden_size)
        self.pooler = PatchViTPooler(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pixel_values, labels=None, return_dict=True):
        hidden_states = self.embeddings(pixel_values)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                hidden_states = torch.utils.checkpoint.checkpoint(layer, hidden_states, use_reentrant=False)
            else:
                hidden_states = layer(hidden_states)
        pooled = self.pooler(self.post_layernorm(hidden_states))
        logits = self.classifier(pooled)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.view(-1, self.config.num_labels), labels.view(-1))
        out = ModelOutput(logits=logits, loss=loss, pooler_output=pooled)
        return out if return_dict else out.to_tuple()


def build():
    return PatchViTForImageClassification(PatchViTConfig(num_labels=8))
