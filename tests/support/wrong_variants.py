"""More wrong variants of what the package computes, beside the named ones of `vitbook.mistakes`."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from vitbook import embedding, encoder, patches, training, transformer, vit
from vitbook.attention import attention_scores, attention_weights
from vitbook.mistakes import StepByStep

# Attention


def nan_where_nothing_is_seen(q, k, v, mask=None):
    hidden = 0 if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    weights = (attention_scores(q, k) + hidden).softmax(dim=-1)
    return weights @ v, weights


# Multi-head attention


class MaskForgotten(StepByStep):
    def weigh(self, q, k, mask):
        return attention_weights(attention_scores(q, k))


# Masks and the Transformer of 2017


def future_mask_off_by_one(length, device=None):
    return torch.ones(length, length, dtype=torch.bool).tril(1)


def past_mask_off_by_one(length, device=None):
    return torch.ones(length, length, dtype=torch.bool).tril(-1)


def causal_mask_flipped(length, device=None):
    return ~transformer.causal_mask(length)


def padding_mask_flipped(tokens, padding):
    return ~transformer.padding_mask(tokens, padding)


class FutureMaskOffByOne(transformer.Transformer):
    def decode(self, target, memory, memory_mask=None):
        x = self.embed(target, self.target_embedding)
        for layer in self.decoder:
            x = layer(x, memory, future_mask_off_by_one(x.shape[1]), memory_mask)
        return self.scores(x)


class PaddingSeenByTheEncoder(transformer.Transformer):
    def encode(self, source):
        x = self.embed(source, self.source_embedding)
        for layer in self.encoder:
            x = layer(x)
        return x


class PaddingSeenByTheDecoder(transformer.Transformer):
    def forward(self, source, target):
        return self.decode(target, self.encode(source))


def all_sines_before_all_cosines(length, dim):
    table = transformer.sincos_positions(length, dim)
    return torch.cat([table[:, ::2], table[:, 1::2]], dim=-1)


def too_many_frequencies(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(dim) / dim)
    return torch.where(torch.arange(dim) % 2 == 0, angles.sin(), angles.cos())


# Patches


def columns_before_rows(images, patch_size):
    return rearrange(images, "b c (h p) (w q) -> b (w h) (c p q)", p=patch_size, q=patch_size)


def grid_taken_for_its_transpose(flat, patch_size, image_size):
    height, width = image_size
    pictures = patches.unpatchify(flat, patch_size, (width, height))
    return pictures.reshape(len(flat), -1, height, width)


class OverlappingPatches(patches.PatchEmbedding):
    def forward(self, images):
        proj = F.conv2d(images, self.proj.weight, self.proj.bias, stride=self.patch_size, padding=1)
        return proj.flatten(2).mT


# Equation 1


class ClassTokenLast(embedding.ImageEmbedding):
    def forward(self, images):
        x = torch.cat([self.patch_embed(images), self.cls_token.expand(len(images), -1, -1)], dim=1)
        return x + self.positions()


class PositionsForgotten(embedding.ImageEmbedding):
    def forward(self, images):
        return super().forward(images) - self.positions()


class ClassTokenWithoutPosition(embedding.ImageEmbedding):
    def forward(self, images):
        position = self.positions()[:, 0]
        return torch.cat([super().forward(images)[:, :1] - position, super().forward(images)[:, 1:]], dim=1)


def resized_with_rows_for_columns(pos_embed, old_grid, new_grid, prefix=1, **how):
    return embedding.resize_positions(pos_embed, old_grid[::-1], new_grid, prefix, **how)


def resized_not_aligned(pos_embed, old_grid, new_grid, prefix=1, **how):
    return embedding.resize_positions(pos_embed, old_grid, new_grid, prefix, **how | {"align_corners": False})


def resized_with_the_class_row(pos_embed, old_grid, new_grid, prefix=1, **how):
    tokens = prefix + new_grid[0] * new_grid[1]
    return F.interpolate(pos_embed.mT, size=tokens, mode="linear", align_corners=True).mT


# The encoder block


class TorchsOwnEps(encoder.EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__(dim, num_heads, mlp_dim)
        self.norm1.eps = self.norm2.eps = 1e-5


class NoFirstResidual(encoder.EncoderBlock):
    def forward(self, x):
        x = self.attn(self.norm1(x))
        return self.mlp(self.norm2(x)) + x


class NoSecondResidual(encoder.EncoderBlock):
    def forward(self, x):
        x = self.attn(self.norm1(x)) + x
        return self.mlp(self.norm2(x))


class ResidualOfTheNormalised(encoder.EncoderBlock):
    def forward(self, x):
        x = self.norm1(x)
        x = self.norm2(self.attn(x) + x)
        return self.mlp(x) + x


class NormAfterwards(encoder.EncoderBlock):
    def forward(self, x):
        x = self.norm1(self.attn(x) + x)
        return self.norm2(self.mlp(x) + x)


class TanhGelu(encoder.EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__(dim, num_heads, mlp_dim)
        self.mlp.act = nn.GELU(approximate="tanh")


class BatchNorm(encoder.EncoderBlock):
    def forward(self, x):
        x = self.attn(F.batch_norm(x.mT, None, None, training=True).mT) + x
        return self.mlp(self.norm2(x)) + x


# The whole model


class LastTokenForClassToken(vit.VisionTransformer):
    def features(self, images):
        return self.tokens(images)[:, -1]


class OneBlockUsedThroughout(vit.VisionTransformer):
    def tokens(self, images):
        z = self.embedding(images)
        for _ in self.encoder.blocks:
            z = self.encoder.blocks[0](z)
        return self.norm(z)


class HeadStartsAtRandom(vit.VisionTransformer):
    def initialize(self):
        self.head.reset_parameters()


# Training


def gradients_never_zeroed(model, batches, optimizer):
    optimizer.zero_grad = lambda: None
    return training.train_epoch(model, batches, optimizer)


def dropout_left_off(model, batches, optimizer):
    model.train = lambda mode=True: model
    return training.train_epoch(model, batches, optimizer)


def mean_of_the_batches_losses(model, batches, optimizer):
    return sum(training.train_epoch(model, [batch], optimizer) for batch in batches) / len(batches)


def evaluated_with_dropout(model, batches):
    scores, labels = zip(*((model.train()(x).detach(), labels) for x, labels in batches), strict=True)
    return training.Evaluation(torch.cat(scores), torch.cat(labels))


def evaluated_and_left_in_eval(model, batches):
    evaluation = training.evaluate(model, batches)
    model.eval()
    return evaluation


def evaluated_and_left_in_training(model, batches):
    evaluation = training.evaluate(model, batches)
    model.train()
    return evaluation


def biases_forgotten(model, weight_decay):
    return training.parameter_groups(model, weight_decay)[:1]


def embeddings_decay_with_the_matrices(model, weight_decay):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def warmup_from_zero(step, total_steps, warmup_steps):
    return step / warmup_steps if step < warmup_steps else training.warmup_cosine(step, total_steps, warmup_steps)


def cosine_from_the_start(step, total_steps, warmup_steps):
    return min(1, (step + 1) / warmup_steps) * training.warmup_cosine(step, total_steps)
