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
from vitbook_workshop.faults.mistake_registry import Mistake, wrong_variant

MISTAKES: dict[str, Mistake] = {}
_wrong = partial(wrong_variant, MISTAKES)

# Attention


def _hidden(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores with −∞ where the mask says False, which is right."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


@_wrong(
    "01_attention#all-queries-at-once-by-matrices",
    symptom="The columns of the weights sum to 1 and the rows do not: an output is no blend of values.",
    cause="Your softmax runs over the queries, dim=-2. It is each query that shares out its attention: dim=-1.",
    caught_by=("weights_sum_to_one", "attention_equals_torch"),
    seen_in_a_model=("weights_sum_to_one",),
    of=attention,
    found="labmlai/annotated_deep_learning_paper_implementations/issues/146",
)
def softmax_over_the_queries(q, k, v, mask=None):
    weights = _hidden(attention_scores(q, k), mask).softmax(dim=-2)
    return weights @ v, weights


@_wrong(
    "01_attention#all-queries-at-once-by-matrices",
    symptom="An image's logits depend on which others are in its batch.",
    cause="Your softmax runs over the first axis, dim=0, which is the batch. The keys are the last axis: dim=-1.",
    caught_by=("weights_sum_to_one", "attention_equals_torch"),
    seen_in_a_model=("weights_sum_to_one", "images_do_not_mix"),
    of=attention,
    found="PetrochukM/PyTorch-NLP/issues/2",
)
def softmax_over_the_first_axis(q, k, v, mask=None):
    weights = _hidden(attention_scores(q, k), mask).softmax(dim=0)
    return weights @ v, weights


@_wrong(
    "02_scale#how-large-is-a-dot-product",
    symptom="The wider a head, the closer its weights come to 0 and 1, and the less gradient gets through.",
    cause="Your scores are not divided by √D_h.",
    caught_by=("attention_equals_torch",),
    seen_in_a_model=("scores_are_scaled",),
    of=attention,
    found="huggingface/blog/pull/2893",
)
def no_scale(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT, mask)
    return weights @ v, weights


@_wrong(
    "02_scale#no-slope-left",
    symptom="From the first step on, nearly all of a query's attention goes to one key.",
    cause="Your scores are multiplied by √D_h; they have to be divided by it.",
    caught_by=("attention_equals_torch",),
    seen_in_a_model=("scores_are_scaled",),
    of=attention,
    found="esceptico/perceiver-io/issues/9",
)
def multiplied_by_the_scale(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT * q.shape[-1] ** 0.5, mask)
    return weights @ v, weights


@_wrong(
    "02_scale#before-the-softmax-not-after",
    symptom="Rows of the weights sum to 1/√D_h, and the scores are as large as without any scale.",
    cause="You divide by √D_h after the softmax. The scores have to be divided, before it.",
    caught_by=("weights_sum_to_one", "attention_equals_torch"),
    seen_in_a_model=("weights_sum_to_one", "scores_are_scaled"),
    of=attention,
    found="FrancescoSaverioZuppichini/ViT/issues/2",
)
def scaled_after_the_softmax(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT, mask) / q.shape[-1] ** 0.5
    return weights @ v, weights


@_wrong(
    "01_attention#looking-away-a-mask",
    symptom="Tokens see what should be hidden from them, padding or the future, and nothing else.",
    cause="Your mask hides where it is True. Here, as for torch's fused attention, True means may look.",
    caught_by=("hidden_keys_do_not_leak", "attention_equals_torch"),
    of=attention,
    found="rasbt/LLMs-from-scratch/issues/1061",
)
def mask_says_where_not_to_look(q, k, v, mask=None):
    weights = _hidden(attention_scores(q, k), None if mask is None else ~mask).softmax(dim=-1)
    return weights @ v, weights


@_wrong(
    "01_attention#looking-away-a-mask",
    symptom="What is hidden keeps a share of the attention.",
    cause="Your mask is added to the scores as 0 and 1, which hides nothing. Put −∞ where it is False.",
    caught_by=("hidden_keys_do_not_leak", "attention_equals_torch"),
    of=attention,
    found="open-mmlab/mmdetection/issues/11803",
)
def mask_added_as_zero_and_one(q, k, v, mask=None):
    weights = (attention_scores(q, k) + (0 if mask is None else mask)).softmax(dim=-1)
    return weights @ v, weights


@_wrong(
    "01_attention#looking-away-a-mask",
    symptom="Rows of the weights sum to less than 1 wherever something is hidden.",
    cause="You set weights to 0 after the softmax, when hidden keys have had their share. Mask the scores, with −∞.",
    caught_by=("weights_sum_to_one", "hidden_keys_do_not_leak", "attention_equals_torch"),
    of=attention,
    found="huggingface/pytorch-image-models/pull/2236",
)
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


@_wrong(
    "02_scale#which-d",
    symptom="The weights are flatter than they should be, the more so the more heads there are.",
    cause="Your scores are divided by √D; one head is D_h wide, so it is √D_h.",
    caught_by=("multihead_equals_torch",),
    seen_in_a_model=("scores_are_scaled",),
    found="lucidrains/vit-pytorch/issues/65",
)
class ScaledByTheWholeWidth(StepByStep):
    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / (q.shape[1] * q.shape[-1]) ** 0.5, mask)


@_wrong(
    "04_multihead#cutting-queries-keys-and-values-into-heads",
    symptom="There is one map of weights a layer, and num_heads changes nothing but the scale.",
    cause="Your queries and keys are never split into heads: all of their width goes into one softmax.",
    caught_by=("multihead_equals_torch",),
    seen_in_a_model=("scores_are_scaled",),
)
class HeadsNotSplit(StepByStep):
    def project(self, x):
        return [part.unsqueeze(1) for part in self.qkv(x).chunk(3, dim=-1)]

    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / (q.shape[-1] / self.num_heads) ** 0.5, mask)


@_wrong(
    "04_multihead#cutting-queries-keys-and-values-into-heads",
    symptom="A head holds all of the first tokens and nothing of the last: permuted tokens do not give permuted"
    " outputs.",
    cause="You cut the width with view(B, h, T, D_h) alone. Cut into (B, T, h, D_h), then exchange tokens and heads.",
    caught_by=("tokens_have_no_order", "multihead_equals_torch"),
    seen_in_a_model=("heads_keep_tokens_whole",),
    found="reczoo/FuxiCTR/issues/30",
)
class ViewWithoutTranspose(StepByStep):
    def project(self, x):
        return [part.reshape(len(x), self.num_heads, x.shape[1], -1) for part in self.qkv(x).chunk(3, dim=-1)]


@_wrong(
    "04_multihead#cutting-queries-keys-and-values-into-heads",
    symptom="An output token holds one head's answers to several tokens: permuted tokens do not give permuted outputs.",
    cause="You join (B, h, T, D_h) into (B, T, D) with view or reshape alone. Exchange heads and tokens first.",
    caught_by=("tokens_have_no_order", "multihead_equals_torch"),
    seen_in_a_model=("heads_keep_tokens_whole",),
    found="jsbaan/transformer-from-scratch/pull/6",
)
class MergedWithoutTranspose(StepByStep):
    def merge(self, heads):
        return heads.reshape(heads.shape[0], heads.shape[2], -1)


@_wrong(
    "04_multihead#all-heads-from-one-linear-map",
    symptom="Trained from scratch it is as good as any; with somebody else's weights it computes nonsense.",
    cause="You cut the 3D columns into (D, 3), so that query, key and value take turns. They lie as (3, D), in blocks.",
    caught_by=("multihead_equals_torch",),
    found="FrancescoSaverioZuppichini/ViT/blob/a9b7e146885fb39bc3f8592c54fc01a30e927e66/README.md",
)
class QkvInterleaved(StepByStep):
    def project(self, x):
        return [split_heads(part, self.num_heads) for part in self.qkv(x).view(*x.shape, 3).unbind(dim=-1)]


@_wrong(
    "04_multihead#all-heads-from-one-linear-map",
    symptom="A head's queries change with D_h columns of a token and with no other.",
    cause="You cut x into heads before the projections. Every head projects the whole token, all D numbers of it.",
    caught_by=("multihead_equals_torch",),
    found="aladdinpersson/Machine-Learning-Collection/issues/3",
)
class HeadsSeeASlice(StepByStep):
    def project(self, x):
        size = x.shape[-1] // self.num_heads
        own = torch.block_diag(*x.new_ones(self.num_heads, size, size)).repeat(3, 1)
        parts = F.linear(x, self.qkv.weight * own, self.qkv.bias).chunk(3, dim=-1)
        return [split_heads(part, self.num_heads) for part in parts]


@_wrong(
    "04_multihead#what-w_o-is-for",
    symptom="A head writes into its own D_h columns of a token and into no other.",
    cause="Your heads are concatenated and not projected: W_O is missing.",
    caught_by=("multihead_equals_torch",),
    seen_in_a_model=("parameters_play_a_part", "heads_are_joined_by_a_map"),
    found="Kyubyong/transformer/issues/117",
)
class NoOutputProjection(StepByStep):
    def attend(self, x, mask=None):
        q, k, v = self.project(x)
        weights = self.weigh(q, k, mask)
        return self.dropout(self.merge(self.drop(weights) @ v)), weights


@_wrong(
    "09_vit#one-image-does-not-touch-another",
    symptom="An image's logits depend on which others are in its batch, and its patches do not see one another.",
    cause="Your attention runs over the batch. nn.MultiheadAttention and its kin need batch_first=True.",
    caught_by=("images_do_not_mix", "multihead_equals_torch"),
    seen_in_a_model=("images_count",),
    found="om-ai-lab/OmDet/issues/19",
)
class BatchTakenForTokens(StepByStep):
    def attend(self, x, mask=None):
        output, weights = super().attend(x.transpose(0, 1), mask)
        return output.transpose(0, 1), weights


@_wrong(
    "01_attention#dropout-on-the-weights",
    symptom="A model with attention dropout trains as one without.",
    cause="Your attention dropout is an argument that nothing reads.",
    caught_by=("every_dropout_acts",),
    seen_in_a_model=("every_dropout_acts",),
    found="zhouhaoyi/Informer2020/issues/97",
)
class AttentionDropoutUnread(StepByStep):
    def drop(self, weights):
        return weights


@_wrong(
    "10_training#the-loop-bare",
    symptom="Logits are right, and the first backward pass stops with a RuntimeError about an in-place operation.",
    cause="You change the softmax's result in place, and backward needs it as it was: write w = w / …, not w /= ….",
    caught_by=("backward_runs",),
    seen_in_a_model=("backward_runs",),
)
class WeightsChangedInPlace(StepByStep):
    def drop(self, weights):
        weights /= weights.sum(dim=-1, keepdim=True)
        return super().drop(weights)


@_wrong(
    "05_transformer#what-must-not-be-seen",
    symptom="The loss in training comes close to 0, and what the model writes is no good: it has read the answer.",
    cause="Your mask reaches the first layer alone. In the others every position sees the future.",
    caught_by=("the_future_does_not_leak",),
    found="keras-team/keras-hub/issues/137",
)
class MaskStopsAfterTheFirstLayer(Transformer):
    def decode(self, target, memory, memory_mask=None):
        x, mask = self.embed(target, self.target_embedding), causal_mask(target.shape[1])
        for layer in self.decoder:
            x, mask = layer(x, memory, mask, memory_mask), torch.ones_like(mask)
        return self.scores(x)


# Equation 1


@_wrong(
    "06_patches#view-does-not-cut",
    symptom="Put back together, the patches do not show the image. The model trains all the same.",
    cause="You cut the image with view or reshape alone, which deals out rows of pixels. Exchange axes between.",
    caught_by=("patchify_equals_loops",),
    seen_in_a_model=("a_token_is_a_rectangle",),
    of=patchify,
    found="UdbhavPrasad072300/Transformer-Implementations/issues/5",
)
def view_without_permute(images, patch_size):
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)


@_wrong(
    "06_patches#the-order-inside-a-patch",
    symptom="Trained from scratch it is as good as any; with the weights of a convolution it computes nonsense.",
    cause="Inside a patch your numbers run (p q c), channel last. As in a convolution's weight, it should be (c p q).",
    caught_by=("patchify_equals_loops",),
    of=patchify,
    found="FrancescoSaverioZuppichini/ViT/blob/30969be4634c293762e95ab3ef23cacb52ba86ba/main.py",
)
def channels_last_in_a_patch(images, patch_size):
    return rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=patch_size, q=patch_size)


@_wrong(
    "06_patches#view-does-not-cut",
    symptom="On gray images nothing is wrong. In color a token is three neighboring patches of one channel.",
    cause="You unfold twice and reshape (B, C, h, w, P, P) at once. Permute first: (0, 2, 3, 1, 4, 5).",
    caught_by=("patchify_equals_loops",),
    seen_in_a_model=("a_token_is_a_rectangle",),
    of=patchify,
)
def unfolded_without_permute(images, patch_size):
    patches = images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)
    return patches.reshape(len(images), -1, images.shape[1] * patch_size**2)


_BATCH = 2  # of the two mistakes below


@_wrong(
    "07_embedding#a-token-that-speaks-for-the-image",
    symptom="The model runs with one batch size only, and each place in a batch learns a class token of its own.",
    cause="Your class token has the batch size in its shape. Learn one, of shape (1, 1, D), and expand it.",
    caught_by=("every_batch_size_will_do",),
    seen_in_a_model=("every_batch_size_will_do", "places_in_a_batch_are_alike"),
    found="MuhammadArdiPutra/medium_articles/pull/1",
)
class BatchSizedClassToken(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cls_token = nn.Parameter(self.cls_token.repeat(_BATCH, 1, 1))


@_wrong(
    "07_embedding#equation-1-complete",
    symptom="The model runs with one batch size only, and each place in a batch learns positions of its own.",
    cause="Your positions have the batch size in their shape. Learn one table, (1, N + 1, D); adding broadcasts it.",
    caught_by=("every_batch_size_will_do",),
    seen_in_a_model=("every_batch_size_will_do", "places_in_a_batch_are_alike"),
    found="MuhammadArdiPutra/medium_articles/pull/1",
)
class BatchSizedPositions(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.positions.pos_embed = nn.Parameter(self.positions.pos_embed.repeat(_BATCH, 1, 1))


@_wrong(
    "07_embedding#equation-1-complete",
    symptom="Shuffle the patches of an image, and its logits stay as they are.",
    cause="Your dropout is applied to x and not to x + positions: the sum is thrown away, and no place is known.",
    caught_by=("embedding_equals_equation_1",),
    seen_in_a_model=("order_counts", "parameters_play_a_part"),
)
class DropoutForgetsThePositions(ImageEmbedding):
    def forward(self, images, any_size=False):
        prefix = [token.expand(len(images), -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, self.patch_embed(images)], dim=1)
        z = x + self.positions()  # noqa: F841
        return self.dropout(x)


@_wrong(
    "07_embedding#a-token-that-speaks-for-the-image",
    symptom="The model has D parameters fewer than it should, and what the class token starts as, it stays.",
    cause="Your class token is a buffer, or made in forward. What is to be learned is an nn.Parameter.",
    caught_by=("parameters_play_a_part",),
    seen_in_a_model=("class_token_and_positions_are_learned",),
)
class ClassTokenNeverLearned(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        token = torch.randn(self.cls_token.shape)
        del self.cls_token
        self.register_buffer("cls_token", token)


@_wrong(
    "07_embedding#equation-1-complete",
    symptom="The same image gets other logits at another place of its batch, and no patch knows where it is.",
    cause="Your positions are indexed by the image: pe[:x.size(0)] on tokens (B, T, D). It is pe[:, :x.size(1)].",
    caught_by=("embedding_equals_equation_1",),
    seen_in_a_model=("order_counts", "places_in_a_batch_are_alike"),
)
class PositionsOfTheBatch(ImageEmbedding):
    def forward(self, images, any_size=False):
        prefix = [token.expand(len(images), -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, self.patch_embed(images)], dim=1)
        table = self.positions()[0]  # (T, D); a larger batch takes it from the start again
        return self.dropout(x + table[torch.arange(len(x)) % len(table)][:, None])


@_wrong(
    "07_embedding#four-ways-to-say-where",
    symptom="The positions after training are those before it, and accuracy is little better than without any.",
    cause="Your table of positions is a buffer of random numbers. Learn it, or compute sines and cosines.",
    caught_by=("parameters_play_a_part",),
    seen_in_a_model=("class_token_and_positions_are_learned",),
)
class PositionsNeverLearned(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        table = self.positions.pos_embed.detach()
        del self.positions.pos_embed
        self.positions.register_buffer("pos_embed", table)


@_wrong(
    "07_embedding#equation-1-complete",
    symptom="In evaluation, the same image gets other logits at every call, and no dropout is to blame.",
    cause="You draw positions in forward: at every call a place has other ones. Make them once, as an nn.Parameter.",
    caught_by=("embedding_equals_equation_1", "parameters_play_a_part"),
    seen_in_a_model=("evaluation_is_deterministic", "parameters_play_a_part"),
)
class PositionsDrawnInForward(ImageEmbedding):
    def forward(self, images, any_size=False):
        prefix = [token.expand(len(images), -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, self.patch_embed(images)], dim=1)
        return self.dropout(x + 0.02 * torch.randn(x.shape[1:]).to(x))


@_wrong(
    "07_embedding#equation-1-complete",
    symptom="The patch projection after training is the one before it. Accuracy hardly suffers.",
    cause="You cut and project under torch.no_grad(), or detach the patches: no gradient comes back to the projection.",
    caught_by=("parameters_play_a_part",),
    seen_in_a_model=("parameters_play_a_part",),
)
class PatchesUnderNoGrad(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.patch_embed.register_forward_hook(lambda module, images, patches: patches.detach())


# Equations 2 and 3


@_wrong(
    "08_encoder#layernorm-by-hand",
    symptom="Somebody else's weights give almost the right logits, the more wrong the narrower the model.",
    cause="Your variance is divided by D − 1, as Tensor.var does unless told correction=0. LayerNorm divides by D.",
    caught_by=("each_token_is_normalized",),
    seen_in_a_model=("each_token_is_normalized",),
    found="harvardnlp/annotated-transformer/pull/119",
)
class UnbiasedVariance(nn.LayerNorm):
    def forward(self, x):
        variance = x.var(dim=-1, keepdim=True)
        return (x - x.mean(dim=-1, keepdim=True)) / (variance + self.eps).sqrt() * self.weight + self.bias


@_wrong(
    "08_encoder#layernorm-by-hand",
    symptom="A token changes with the others before any attention, and no token has mean 0 and variance 1.",
    cause="Your norm takes mean and variance over the tokens, axis 1 of (B, T, D). LayerNorm runs over the last axis.",
    caught_by=("each_token_is_normalized",),
    seen_in_a_model=("each_token_is_normalized",),
)
class NormOverTokens(nn.LayerNorm):
    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=-2, correction=0, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias


@_wrong(
    "08_encoder#equation-2",
    symptom="Nothing passes a block unchanged: what the first blocks have written gets smaller with each one.",
    cause="You write x = norm(x) and then x = x + attention(x): the residual carries the normalized tokens.",
    caught_by=("block_equals_torch",),
    seen_in_a_model=("blocks_add",),
)
class ResidualOfTheNorm(EncoderBlock):
    def forward(self, x, mask=None):
        x = self.norm1(x)
        x = self.attn(x, mask) + x
        return self.mlp(self.norm2(x)) + x


@_wrong(
    "08_encoder#the-whole-block",
    symptom="Hardly anything: a block has 2D parameters too few, and what one branch learns the other has to share.",
    cause="Your block has one LayerNorm for both of its places. Attention and MLP each get one of their own.",
    caught_by=("block_equals_torch",),
    seen_in_a_model=("both_branches_get_normalized_tokens",),
)
class OneNormForTwoPlaces(EncoderBlock):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.norm2 = self.norm1


@_wrong(
    "08_encoder#equation-3",
    symptom="The MLP can hardly subtract: what it adds to a token is nowhere below −0.17.",
    cause="You apply GELU after the second linear map of the MLP too. There is one, between the two maps.",
    caught_by=("block_equals_torch",),
    seen_in_a_model=("mlps_have_an_activation",),
    found="namedtensor/notation/issues/72",
)
class GeluTwice(EncoderBlock):
    def forward(self, x, mask=None):
        x = self.attn(self.norm1(x), mask) + x
        return F.gelu(self.mlp(self.norm2(x))) + x


@_wrong(
    "08_encoder#dropout-and-where-it-goes",
    symptom="In evaluation, the same image gets other logits at every call.",
    cause="You call F.dropout, which does not know of eval(). Use nn.Dropout, or pass training=self.training.",
    caught_by=("evaluation_is_deterministic", "tokens_have_no_order", "block_equals_torch"),
    seen_in_a_model=("evaluation_is_deterministic",),
    found="delip/PyTorchNLPBook/issues/28",
)
class FunctionalDropout(EncoderBlock):
    def forward(self, x, mask=None):
        return F.dropout(super().forward(x, mask), 0.1)


@_wrong(
    "08_encoder#how-large-is-a-block",
    symptom="You ask for another width, and get the same number of parameters, or an error from deep inside.",
    cause="A layer takes its size from a fixed number or a global variable, and not from its arguments.",
    caught_by=("sizes_follow_the_arguments",),
    found="uygarkurt/ViT-PyTorch/pull/1",
)
class SizesFixed(EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim, *dropouts):
        super().__init__(dim, num_heads, 4 * 768, *dropouts)


# Equation 4


@_wrong(
    "09_vit#equation-4",
    symptom="The head gets numbers whose size grows with every block.",
    cause="Your tokens go to the head without the last LayerNorm.",
    caught_by=("equations_hold",),
    seen_in_a_model=("parameters_play_a_part", "head_gets_normalized_tokens"),
    found="NVIDIA-NeMo/Speech/pull/2197",
)
class NoFinalNorm(VisionTransformer):
    def tokens(self, images, any_size=False):
        return self.encoder(self.embedding(images, any_size))


@_wrong(
    "09_vit#one-vector-for-an-image-the-class-token-or-the-mean",
    symptom="Hardly anything: one token too many in the mean.",
    cause="Your mean runs over all tokens, the class token among them. Leave it out: z[:, 1:].",
    caught_by=("mean_pooling_ignores_the_class_token", "equations_hold"),
    found="lucidrains/vit-pytorch/issues/226",
)
class MeanIncludesTheClassToken(VisionTransformer):
    def pool(self, z):
        return z.mean(dim=1)


@_wrong(
    "10_training#how-wrong-is-an-answer",
    symptom="The loss starts at ln K, falls slowly, and cannot come near 0.",
    cause="Your logits are probabilities already. The softmax belongs to F.cross_entropy, which applies it itself.",
    caught_by=("logits_are_no_probabilities", "equations_hold"),
    seen_in_a_model=("logits_are_no_probabilities",),
    found="bowang-lab/Transformer-GCN-QA/pull/32",
)
class SoftmaxBeforeCrossEntropy(VisionTransformer):
    def logits(self, z):
        return super().logits(z).softmax(dim=-1)


@_wrong(
    "08_encoder#the-encoder",
    symptom="At the start all blocks have the same weights.",
    cause="Your blocks start as copies of one (copy.deepcopy, as in nn.TransformerEncoder). Draw each one separately.",
    caught_by=("blocks_start_different",),
    seen_in_a_model=("blocks_start_different",),
    found="pytorch/pytorch/issues/72253",
)
class BlocksAreCopies(VisionTransformer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for block in self.encoder.blocks:
            block.load_state_dict(self.encoder.blocks[0].state_dict())


@_wrong(
    "08_encoder#the-encoder",
    symptom="At the start all blocks have the same attention; their MLPs differ.",
    cause="You draw every nn.Linear of your copied blocks again, which leaves torch's in_proj_weight as it was.",
    caught_by=("blocks_start_different",),
    seen_in_a_model=("blocks_start_different",),
)
class AttentionIsCopied(VisionTransformer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for block in self.encoder.blocks:
            block.attn.load_state_dict(self.encoder.blocks[0].attn.state_dict())


@_wrong(
    "08_encoder#dropout-and-where-it-goes",
    symptom="The loss in training is higher than in evaluation on the same images, even when all are learned.",
    cause="You apply dropout after the head: a class whose logit is dropped is neither right nor wrong. Put it before.",
    caught_by=("no_logit_is_dropped",),
    seen_in_a_model=("no_logit_is_dropped",),
)
class DropoutOnTheLogits(VisionTransformer):
    def logits(self, z):
        return F.dropout(super().logits(z), 0.1, self.training)


@_wrong(
    "10_training#how-wrong-is-an-answer",
    symptom="The loss hardly leaves ln K, since no probability is more than e times another.",
    cause="You apply a softmax to what a softmax gave. Neither belongs in the model.",
    caught_by=("logits_are_no_probabilities", "equations_hold"),
    seen_in_a_model=("logits_are_no_probabilities",),
)
class SoftmaxTwice(VisionTransformer):
    def logits(self, z):
        return super().logits(z).softmax(dim=-1).softmax(dim=-1)


@_wrong(
    "10_training#how-wrong-is-an-answer",
    symptom="Nothing in training: F.cross_entropy gives the same. Averaged or added to others' logits, they are wrong.",
    cause="Your model ends in log_softmax, as F.nll_loss needs it. F.cross_entropy takes logits.",
    caught_by=("logits_are_no_probabilities", "equations_hold"),
    seen_in_a_model=("logits_are_no_probabilities",),
)
class LogProbabilitiesForLogits(VisionTransformer):
    def logits(self, z):
        return super().logits(z).log_softmax(dim=-1)


@_wrong(
    "09_vit#one-vector-for-an-image-the-class-token-or-the-mean",
    symptom="The class token is computed in every block and read by nobody.",
    cause="Your head reads z[:, 1], which is the first patch. The class token is z[:, 0].",
    caught_by=("equations_hold",),
    seen_in_a_model=("patches_are_read_alike",),
)
class HeadReadsOnePatch(VisionTransformer):
    def pool(self, z):
        return z[:, 1]


@_wrong(
    "08_encoder#the-encoder",
    symptom="More blocks take more time and make nothing better; all but the last keep their first weights.",
    cause="In `for block in blocks: out = block(x)` each block gets the embedding. Hand the tokens on: x = block(x).",
    caught_by=("equations_hold",),
    seen_in_a_model=("blocks_add", "parameters_play_a_part"),
)
class BlocksNotChained(VisionTransformer):
    def tokens(self, images, any_size=False):
        x = self.embedding(images, any_size)
        for block in self.encoder.blocks:
            out = block(x)
        return self.norm(out)


@_wrong(
    "02_scale#no-slope-left",
    symptom="Before training each query has chosen one key, and the softmax has no slope to choose another.",
    cause="Your weights are drawn by torch.randn, with standard deviation 1. Draw them with 0.02 or 1/√D.",
    caught_by=("attention_starts_soft",),
    seen_in_a_model=("attention_starts_soft",),
)
class AttentionStartsOneHot(VisionTransformer):
    def initialize(self):
        super().initialize()
        for block in self.encoder.blocks:
            nn.init.normal_(block.attn.qkv.weight)


@_wrong(
    "08_encoder#layernorm-by-hand",
    symptom="Each norm starts by making its tokens fifty times smaller, and what a branch adds at first is nearly 0.",
    cause="You draw every parameter from N(0, 0.02), the norms' gains too. Those start at 1: draw matrices alone.",
    caught_by=("norms_start_at_one",),
    seen_in_a_model=("norms_start_at_one",),
)
class NormsDrawnLikeMatrices(VisionTransformer):
    def initialize(self):
        super().initialize()
        for part in self.modules():
            if isinstance(part, nn.LayerNorm):
                nn.init.normal_(part.weight, std=0.02)
