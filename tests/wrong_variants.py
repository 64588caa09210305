"""The smallest wrong variants of what the package computes: mistakes seen in the wild, which the checks must reject."""

import copy
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from vitbook import embedding, encoder, multihead, patches, training, transformer, vit
from vitbook.attention import attention, attention_scores, attention_weights

# Attention


def softmax_over_the_queries(q, k, v, mask=None):
    weights = attention_scores(q, k).softmax(dim=-2)
    return weights @ v, weights


def softmax_over_the_first_axis(q, k, v, mask=None):
    weights = attention_scores(q, k).softmax(dim=0)
    return weights @ v, weights


def no_scale(q, k, v, mask=None):
    return attention(q * math.sqrt(q.shape[-1]), k, v, mask)


def multiplied_by_the_scale(q, k, v, mask=None):
    return attention(q * q.shape[-1], k, v, mask)


def scaled_after_the_softmax(q, k, v, mask=None):
    output, weights = no_scale(q, k, v, mask)
    return output / math.sqrt(q.shape[-1]), weights / math.sqrt(q.shape[-1])


def mask_says_where_not_to_look(q, k, v, mask=None):
    return attention(q, k, v, None if mask is None else ~mask)


def mask_added_as_zero_and_one(q, k, v, mask=None):
    weights = (attention_scores(q, k) + (0 if mask is None else mask)).softmax(dim=-1)
    return weights @ v, weights


def masked_after_the_softmax(q, k, v, mask=None):
    weights = attention(q, k, v)[1] * (1 if mask is None else mask)
    return weights @ v, weights


def nan_where_nothing_is_seen(q, k, v, mask=None):
    hidden = 0 if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    weights = (attention_scores(q, k) + hidden).softmax(dim=-1)
    return weights @ v, weights


# Multi-head attention


class RightHeads(multihead.MultiHeadSelfAttention):
    """The right way, in steps that the mistakes below replace one by one."""

    def forward(self, x, mask=None):
        q, k, v = self.project(x)
        return self.dropout(self.proj(self.merge(self.weigh(q, k, mask) @ v)))

    def weigh(self, q, k, mask):
        return attention_weights(attention_scores(q, k), mask)

    def merge(self, heads):
        return multihead.merge_heads(heads)


class ScaledByTheWholeWidth(RightHeads):
    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / math.sqrt(q.shape[1] * q.shape[-1]), mask)


class HeadsNotSplit(RightHeads):
    def project(self, x):
        return [part.unsqueeze(1) for part in self.qkv(x).chunk(3, dim=-1)]

    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / math.sqrt(q.shape[-1] / self.num_heads), mask)


class ViewWithoutTranspose(RightHeads):
    def project(self, x):
        return [part.reshape(len(x), self.num_heads, x.shape[1], -1) for part in self.qkv(x).chunk(3, dim=-1)]


class MergedWithoutTranspose(RightHeads):
    def merge(self, heads):
        return heads.flatten(2).reshape(heads.shape[0], heads.shape[2], -1)


class QkvInterleaved(RightHeads):
    def project(self, x):
        parts = self.qkv(x).view(*x.shape, 3).unbind(dim=-1)
        return [multihead.split_heads(part, self.num_heads) for part in parts]


class HeadsSeeASlice(RightHeads):
    def project(self, x):
        mine = torch.block_diag(*torch.ones(self.num_heads, *[x.shape[-1] // self.num_heads] * 2)).repeat(3, 1)
        parts = F.linear(x, self.qkv.weight * mine, self.qkv.bias).chunk(3, dim=-1)
        return [multihead.split_heads(part, self.num_heads) for part in parts]


class NoOutputProjection(RightHeads):
    def forward(self, x, mask=None):
        q, k, v = self.project(x)
        return self.merge(self.weigh(q, k, mask) @ v)


class MaskForgotten(RightHeads):
    def weigh(self, q, k, mask):
        return attention_weights(attention_scores(q, k))


class TokensFirst(nn.MultiheadAttention):
    """torch's own, without batch_first: the examples of a batch look at one another."""

    def forward(self, x):
        return super().forward(x, x, x)[0]


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


class MaskStopsAfterTheFirstLayer(transformer.Transformer):
    def decode(self, target, memory, memory_mask=None):
        x, mask = self.embed(target, self.target_embedding), transformer.causal_mask(target.shape[1])
        for layer in self.decoder:
            x, mask = layer(x, memory, mask, memory_mask), torch.ones_like(mask)
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


def channels_last_in_a_patch(images, patch_size):
    return rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=patch_size, q=patch_size)


def view_without_permute(images, patch_size):
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)


def columns_before_rows(images, patch_size):
    return rearrange(images, "b c (h p) (w q) -> b (w h) (c p q)", p=patch_size, q=patch_size)


def grid_taken_for_its_transpose(flat, patch_size, image_size):
    height, width = image_size
    pictures = patches.unpatchify(flat, patch_size, (width, height))
    return pictures.reshape(len(flat), -1, height, width)


class ChannelsLastWeights(patches.PatchEmbedding):
    def forward(self, images):
        flat = channels_last_in_a_patch(images, self.patch_size)
        return F.linear(flat, self.proj.weight.flatten(1), self.proj.bias)


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


class BatchSizedClassToken(embedding.ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cls_token = nn.Parameter(torch.zeros(2, *self.cls_token.shape[1:]))

    def forward(self, images):
        return torch.cat([self.cls_token, self.patch_embed(images)], dim=1) + self.positions()


def resized_with_rows_for_columns(pos_embed, old_grid, new_grid, prefix=1, **how):
    return embedding.resize_positions(pos_embed, old_grid[::-1], new_grid, prefix, **how)


def resized_not_aligned(pos_embed, old_grid, new_grid, prefix=1, **how):
    return embedding.resize_positions(pos_embed, old_grid, new_grid, prefix, **how | {"align_corners": False})


def resized_with_the_class_row(pos_embed, old_grid, new_grid, prefix=1, **how):
    tokens = prefix + new_grid[0] * new_grid[1]
    return F.interpolate(pos_embed.mT, size=tokens, mode="linear", align_corners=True).mT


# The encoder block


class UnbiasedNorm(nn.LayerNorm):
    def forward(self, x):
        variance = x.var(dim=-1, keepdim=True, correction=1)
        return (x - x.mean(dim=-1, keepdim=True)) / (variance + self.eps).sqrt() * self.weight + self.bias


class UnbiasedVariance(encoder.EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__(dim, num_heads, mlp_dim)
        self.norm1, self.norm2 = UnbiasedNorm(dim, eps=1e-6), UnbiasedNorm(dim, eps=1e-6)


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


class GeluTwice(encoder.EncoderBlock):
    def forward(self, x):
        x = self.attn(self.norm1(x)) + x
        return F.gelu(self.mlp(self.norm2(x))) + x


class TanhGelu(encoder.EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__(dim, num_heads, mlp_dim)
        self.mlp.act = nn.GELU(approximate="tanh")


class FunctionalDropout(encoder.EncoderBlock):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.3)


class BatchNorm(encoder.EncoderBlock):
    def forward(self, x):
        x = self.attn(F.batch_norm(x.mT, None, None, training=True).mT) + x
        return self.mlp(self.norm2(x)) + x


class DeepCopiedBlocks(encoder.Encoder):
    def __init__(self, dim, depth, num_heads, mlp_dim):
        super().__init__(dim, depth, num_heads, mlp_dim)
        self.blocks = nn.ModuleList(copy.deepcopy(self.blocks[0]) for _ in self.blocks)


# The whole model


class NoFinalNorm(vit.VisionTransformer):
    def tokens(self, images):
        return self.encoder(self.embedding(images))


class MeanForClassToken(vit.VisionTransformer):
    def features(self, images):
        return self.tokens(images).mean(dim=1)


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
    def initialise(self):
        self.head.reset_parameters()


# Training


def softmax_before_cross_entropy(model, batches, optimizer):
    return training.train_epoch(nn.Sequential(model, nn.Softmax(dim=-1)), batches, optimizer)


def gradients_never_zeroed(model, batches, optimizer):
    optimizer.zero_grad = lambda: None
    return training.train_epoch(model, batches, optimizer)


def dropout_left_off(model, batches, optimizer):
    model.train = lambda mode=True: model
    return training.train_epoch(model, batches, optimizer)


def mean_of_the_batches_losses(model, batches, optimizer):
    return sum(training.train_epoch(model, [batch], optimizer) for batch in batches) / len(batches)


def every_batch_weighs_alike(model, batches):
    parts = [training.evaluate(model, [batch]) for batch in batches]
    means = {name: sum(getattr(part, name) for part in parts) / len(parts) for name in ("loss", "accuracy")}
    return SimpleNamespace(**means)


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


def everything_decays(model, weight_decay):
    return [{"params": list(model.parameters()), "weight_decay": weight_decay}]


def biases_forgotten(model, weight_decay):
    return training.parameter_groups(model, weight_decay)[:1]


def embeddings_decay_with_the_matrices(model, weight_decay):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def decay_as_l2_in_adam(groups, lr):
    return torch.optim.Adam(groups, lr=lr)


def warmup_from_zero(step, total_steps, warmup_steps):
    return step / warmup_steps if step < warmup_steps else training.warmup_cosine(step, total_steps, warmup_steps)


def cosine_from_the_start(step, total_steps, warmup_steps):
    return min(1, (step + 1) / warmup_steps) * training.warmup_cosine(step, total_steps)
