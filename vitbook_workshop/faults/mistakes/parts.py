"""Mistakes in the parts of a Vision Transformer, from attention to the whole model: each the smallest wrong variant."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook.attention import attention, attention_scores, attention_weights
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import EncoderBlock
from vitbook.multihead import MultiHeadSelfAttention, merge_heads, split_heads
from vitbook.patches import patchify
from vitbook.transformer import Transformer, causal_mask
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.mistakes.card import Mistake, wrong_variant

MISTAKES: dict[str, Mistake] = {}
_wrong = partial(wrong_variant, MISTAKES)

# Attention


def _hidden(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores with −∞ where the mask says False, which is right."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


@_wrong(attention)
def softmax_over_the_queries(q, k, v, mask=None):
    weights = _hidden(attention_scores(q, k), mask).softmax(dim=-2)
    return weights @ v, weights


@_wrong(attention)
def softmax_over_the_first_axis(q, k, v, mask=None):
    weights = _hidden(attention_scores(q, k), mask).softmax(dim=0)
    return weights @ v, weights


@_wrong(attention)
def no_scale(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT, mask)
    return weights @ v, weights


@_wrong(attention)
def multiplied_by_the_scale(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT * q.shape[-1] ** 0.5, mask)
    return weights @ v, weights


@_wrong(attention)
def scaled_after_the_softmax(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT, mask) / q.shape[-1] ** 0.5
    return weights @ v, weights


@_wrong(attention)
def mask_says_where_not_to_look(q, k, v, mask=None):
    weights = _hidden(attention_scores(q, k), None if mask is None else ~mask).softmax(dim=-1)
    return weights @ v, weights


@_wrong(attention)
def mask_added_as_zero_and_one(q, k, v, mask=None):
    weights = (attention_scores(q, k) + (0 if mask is None else mask)).softmax(dim=-1)
    return weights @ v, weights


@_wrong(attention)
def masked_after_the_softmax(q, k, v, mask=None):
    weights = attention(q, k, v)[1] * (1 if mask is None else mask)
    return weights @ v, weights


# Several heads


class StepByStep(MultiHeadSelfAttention):
    """The right way, in steps that the mistakes below replace one by one."""

    def forward(self, x, mask=None):
        return self.attend(x, mask)[0]

    def attend(self, x, mask=None):
        q, k, v = self.project(x)
        weights = self.weigh(q, k, mask)
        return self.dropout(self.proj(self.merge(self.drop(weights) @ v))), weights

    def weigh(self, q, k, mask):
        return attention_weights(attention_scores(q, k), mask)

    def drop(self, weights):
        return F.dropout(weights, self.attention_dropout, self.training)

    def merge(self, heads):
        return merge_heads(heads)


@_wrong()
class ScaledByTheWholeWidth(StepByStep):
    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / (q.shape[1] * q.shape[-1]) ** 0.5, mask)


@_wrong()
class HeadsNotSplit(StepByStep):
    def project(self, x):
        return [part.unsqueeze(1) for part in self.qkv(x).chunk(3, dim=-1)]

    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / (q.shape[-1] / self.num_heads) ** 0.5, mask)


@_wrong()
class ViewWithoutTranspose(StepByStep):
    def project(self, x):
        return [part.reshape(len(x), self.num_heads, x.shape[1], -1) for part in self.qkv(x).chunk(3, dim=-1)]


@_wrong()
class MergedWithoutTranspose(StepByStep):
    def merge(self, heads):
        return heads.reshape(heads.shape[0], heads.shape[2], -1)


@_wrong()
class QkvInterleaved(StepByStep):
    def project(self, x):
        return [split_heads(part, self.num_heads) for part in self.qkv(x).view(*x.shape, 3).unbind(dim=-1)]


@_wrong()
class HeadsSeeASlice(StepByStep):
    def project(self, x):
        size = x.shape[-1] // self.num_heads
        own = torch.block_diag(*x.new_ones(self.num_heads, size, size)).repeat(3, 1)
        parts = F.linear(x, self.qkv.weight * own, self.qkv.bias).chunk(3, dim=-1)
        return [split_heads(part, self.num_heads) for part in parts]


@_wrong()
class NoOutputProjection(StepByStep):
    def attend(self, x, mask=None):
        q, k, v = self.project(x)
        weights = self.weigh(q, k, mask)
        return self.dropout(self.merge(self.drop(weights) @ v)), weights


@_wrong()
class BatchTakenForTokens(StepByStep):
    def attend(self, x, mask=None):
        output, weights = super().attend(x.transpose(0, 1), mask)
        return output.transpose(0, 1), weights


@_wrong()
class AttentionDropoutUnread(StepByStep):
    def drop(self, weights):
        return weights


@_wrong()
class WeightsChangedInPlace(StepByStep):
    def drop(self, weights):
        weights /= weights.sum(dim=-1, keepdim=True)
        return super().drop(weights)


@_wrong()
class MaskStopsAfterTheFirstLayer(Transformer):
    def decode(self, target, memory, memory_mask=None):
        x, mask = self.embed(target, self.target_embedding), causal_mask(target.shape[1])
        for layer in self.decoder:
            x, mask = layer(x, memory, mask, memory_mask), torch.ones_like(mask)
        return self.scores(x)


# Equation 1


@_wrong(patchify)
def view_without_permute(images, patch_size):
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)


@_wrong(patchify)
def channels_last_in_a_patch(images, patch_size):
    return rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=patch_size, q=patch_size)


@_wrong(patchify)
def unfolded_without_permute(images, patch_size):
    patches = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return patches.reshape(len(images), -1, images.shape[1] * patch_size**2)


_BATCH = 2  # of the two mistakes below


@_wrong()
class BatchSizedClassToken(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cls_token = nn.Parameter(self.cls_token.repeat(_BATCH, 1, 1))


@_wrong()
class BatchSizedPositions(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.positions.pos_embed = nn.Parameter(self.positions.pos_embed.repeat(_BATCH, 1, 1))


@_wrong()
class DropoutForgetsThePositions(ImageEmbedding):
    def forward(self, images, any_size=False):
        prefix = [token.expand(len(images), -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, self.patch_embed(images)], dim=1)
        z = x + self.positions()  # noqa: F841
        return self.dropout(x)


@_wrong()
class ClassTokenNeverLearned(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        token = torch.randn(self.cls_token.shape)
        del self.cls_token
        self.register_buffer("cls_token", token)


@_wrong()
class PositionsOfTheBatch(ImageEmbedding):
    def forward(self, images, any_size=False):
        prefix = [token.expand(len(images), -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, self.patch_embed(images)], dim=1)
        table = self.positions()[0]  # (T, D); a larger batch takes it from the start again
        return self.dropout(x + table[torch.arange(len(x)) % len(table)][:, None])


@_wrong()
class PositionsNeverLearned(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        table = self.positions.pos_embed.detach()
        del self.positions.pos_embed
        self.positions.register_buffer("pos_embed", table)


@_wrong()
class PositionsDrawnInForward(ImageEmbedding):
    def forward(self, images, any_size=False):
        prefix = [token.expand(len(images), -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, self.patch_embed(images)], dim=1)
        return self.dropout(x + 0.02 * torch.randn(x.shape[1:]).to(x))


@_wrong()
class PatchesUnderNoGrad(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.patch_embed.register_forward_hook(lambda module, images, patches: patches.detach())


# Equations 2 and 3


@_wrong()
class UnbiasedVariance(nn.LayerNorm):
    def forward(self, x):
        variance = x.var(dim=-1, keepdim=True)
        return (x - x.mean(dim=-1, keepdim=True)) / (variance + self.eps).sqrt() * self.weight + self.bias


@_wrong()
class NormOverTokens(nn.LayerNorm):
    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-2, correction=0, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


@_wrong()
class ResidualOfTheNorm(EncoderBlock):
    def forward(self, x, mask=None):
        x = self.norm1(x)
        x = self.attn(x, mask) + x
        return self.mlp(self.norm2(x)) + x


@_wrong()
class OneNormForTwoPlaces(EncoderBlock):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.norm2 = self.norm1


@_wrong()
class GeluTwice(EncoderBlock):
    def forward(self, x, mask=None):
        x = self.attn(self.norm1(x), mask) + x
        return F.gelu(self.mlp(self.norm2(x))) + x


@_wrong()
class FunctionalDropout(EncoderBlock):
    def forward(self, x, mask=None):
        return F.dropout(super().forward(x, mask), 0.1)


@_wrong()
class SizesFixed(EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim, *dropouts):
        super().__init__(dim, num_heads, 4 * 768, *dropouts)


# Equation 4


@_wrong()
class NoFinalNorm(VisionTransformer):
    def tokens(self, images, any_size=False):
        return self.encoder(self.embedding(images, any_size))


@_wrong()
class MeanIncludesTheClassToken(VisionTransformer):
    def pool(self, z):
        return z.mean(dim=1)


@_wrong()
class SoftmaxBeforeCrossEntropy(VisionTransformer):
    def logits(self, z):
        return super().logits(z).softmax(dim=-1)


@_wrong()
class BlocksAreCopies(VisionTransformer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for block in self.encoder.blocks:
            block.load_state_dict(self.encoder.blocks[0].state_dict())


@_wrong()
class AttentionIsCopied(VisionTransformer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for block in self.encoder.blocks:
            block.attn.load_state_dict(self.encoder.blocks[0].attn.state_dict())


@_wrong()
class DropoutOnTheLogits(VisionTransformer):
    def logits(self, z):
        return F.dropout(super().logits(z), 0.1, self.training)


@_wrong()
class SoftmaxTwice(VisionTransformer):
    def logits(self, z):
        return super().logits(z).softmax(dim=-1).softmax(dim=-1)


@_wrong()
class LogProbabilitiesForLogits(VisionTransformer):
    def logits(self, z):
        return super().logits(z).log_softmax(dim=-1)


@_wrong()
class HeadReadsOnePatch(VisionTransformer):
    def pool(self, z):
        return z[:, 1]


@_wrong()
class BlocksNotChained(VisionTransformer):
    def tokens(self, images, any_size=False):
        x = self.embedding(images, any_size)
        for block in self.encoder.blocks:
            out = block(x)
        return self.norm(out)


@_wrong()
class AttentionStartsOneHot(VisionTransformer):
    def initialize(self):
        super().initialize()
        for block in self.encoder.blocks:
            nn.init.normal_(block.attn.qkv.weight)


@_wrong()
class NormsDrawnLikeMatrices(VisionTransformer):
    def initialize(self):
        super().initialize()
        for part in self.modules():
            if isinstance(part, nn.LayerNorm):
                nn.init.normal_(part.weight, std=0.02)
