"""The mistakes of the wild, named: each the smallest wrong variant of the right code, beside its symptom.

All were seen in public teaching code. None raises an error: a model with one of them runs, and mostly it even trains.
`MISTAKES` holds them by name, `broken_vit` builds a Vision Transformer that has some of them.
"""

import math
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook import encoder, properties, vit
from vitbook._support.names import unknown
from vitbook.attention import attention, attention_scores, attention_weights
from vitbook.attention_maps import patch_map, rollout
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import EncoderBlock
from vitbook.multihead import MultiHeadSelfAttention, merge_heads, split_heads
from vitbook.patches import PatchEmbedding, patchify
from vitbook.tokens import merge_tokens, proportional_attention, same_image, window_attention
from vitbook.training import evaluate, parameter_groups
from vitbook.transformer import Transformer, causal_mask
from vitbook.vit import VisionTransformer, ViTConfig


@dataclass(frozen=True)
class Mistake:
    """A wrong variant of something right, and what there is to say about it."""

    variant: Callable  # the wrong code
    instead_of: Callable  # the right code, called in the same way
    symptom: str  # what one sees
    cause: str  # what is wrong, said to whoever wrote it
    where: str  # the section that explains it, as a link from another chapter
    caught_by: tuple[Callable, ...]  # the properties that reject it, the most telling first

    @property
    def name(self) -> str:
        """That of the variant; the key in `MISTAKES`."""
        return self.variant.__name__

    @property
    def title(self) -> str:
        """The name, in words."""
        return re.sub(r"(?<!^)(?=[A-Z])|_", " ", self.name).lower()


MISTAKES: dict[str, Mistake] = {}


def mistake(**about) -> Callable[[Callable], Callable]:
    """Put what is defined below into `MISTAKES`, with what is said about it."""

    def register(variant: Callable) -> Callable:
        MISTAKES[variant.__name__] = Mistake(variant=variant, **about)
        return variant

    return register


# Attention


def hidden(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores with −∞ where the mask says False, which is right."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


@mistake(
    instead_of=attention,
    symptom="The columns of the weights sum to 1 and the rows do not: an output is no blend of values.",
    cause="Your softmax runs over the queries, dim=-2. It is each query that shares out its attention: dim=-1.",
    where="01_attention.ipynb#all-queries-at-once-by-matrices",
    caught_by=(properties.rows_sum_to_one, properties.attention_equals_torch),
)
def softmax_over_the_queries(q, k, v, mask=None):
    weights = hidden(attention_scores(q, k), mask).softmax(dim=-2)
    return weights @ v, weights


@mistake(
    instead_of=attention,
    symptom="An image's logits depend on which others are in its batch.",
    cause="Your softmax runs over the first axis, dim=0, which is the batch. The keys are the last axis: dim=-1.",
    where="01_attention.ipynb#all-queries-at-once-by-matrices",
    caught_by=(properties.rows_sum_to_one, properties.attention_equals_torch),
)
def softmax_over_the_first_axis(q, k, v, mask=None):
    weights = hidden(attention_scores(q, k), mask).softmax(dim=0)
    return weights @ v, weights


@mistake(
    instead_of=attention,
    symptom="The wider a head, the closer its weights come to 0 and 1, and the less gradient gets through.",
    cause="Your scores are not divided by √D_h.",
    where="02_scale.ipynb#how-large-is-a-dot-product",
    caught_by=(properties.attention_equals_torch,),
)
def no_scale(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT, mask)
    return weights @ v, weights


@mistake(
    instead_of=attention,
    symptom="From the first step on, nearly all of a query's attention goes to one key.",
    cause="Your scores are multiplied by √D_h; they have to be divided by it.",
    where="02_scale.ipynb#no-slope-left",
    caught_by=(properties.attention_equals_torch,),
)
def multiplied_by_the_scale(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT * q.shape[-1] ** 0.5, mask)
    return weights @ v, weights


@mistake(
    instead_of=attention,
    symptom="Rows of the weights sum to 1/√D_h, and the scores are as large as without any scale.",
    cause="You divide by √D_h after the softmax. The scores have to be divided, before it.",
    where="02_scale.ipynb#before-the-softmax-not-after",
    caught_by=(properties.rows_sum_to_one, properties.attention_equals_torch),
)
def scaled_after_the_softmax(q, k, v, mask=None):
    weights = attention_weights(q @ k.mT, mask) / q.shape[-1] ** 0.5
    return weights @ v, weights


@mistake(
    instead_of=attention,
    symptom="Tokens see what should be hidden from them, padding or the future, and nothing else.",
    cause="Your mask hides where it is True. Here, as for torch's fused attention, True means may look.",
    where="01_attention.ipynb#looking-away-a-mask",
    caught_by=(properties.hidden_keys_do_not_leak, properties.attention_equals_torch),
)
def mask_says_where_not_to_look(q, k, v, mask=None):
    weights = hidden(attention_scores(q, k), None if mask is None else ~mask).softmax(dim=-1)
    return weights @ v, weights


@mistake(
    instead_of=attention,
    symptom="What is hidden keeps a share of the attention.",
    cause="Your mask is added to the scores as 0 and 1, which hides nothing. Put −∞ where it is False.",
    where="01_attention.ipynb#looking-away-a-mask",
    caught_by=(properties.hidden_keys_do_not_leak, properties.attention_equals_torch),
)
def mask_added_as_zero_and_one(q, k, v, mask=None):
    weights = (attention_scores(q, k) + (0 if mask is None else mask)).softmax(dim=-1)
    return weights @ v, weights


@mistake(
    instead_of=attention,
    symptom="Rows of the weights sum to less than 1 wherever something is hidden.",
    cause="You set weights to 0 after the softmax, when hidden keys have had their share. Mask the scores, with −∞.",
    where="01_attention.ipynb#looking-away-a-mask",
    caught_by=(properties.rows_sum_to_one, properties.hidden_keys_do_not_leak, properties.attention_equals_torch),
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


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="The weights are flatter than they should be, the more so the more heads there are.",
    cause="Your scores are divided by √D; one head is D_h wide, so it is √D_h.",
    where="02_scale.ipynb#which-d",
    caught_by=(properties.multihead_equals_torch,),
)
class ScaledByTheWholeWidth(StepByStep):
    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / (q.shape[1] * q.shape[-1]) ** 0.5, mask)


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="There is one map of weights a layer, and num_heads changes nothing but the scale.",
    cause="Your queries and keys are never split into heads: all of their width goes into one softmax.",
    where="04_multihead.ipynb#cutting-queries-keys-and-values-into-heads",
    caught_by=(properties.multihead_equals_torch,),
)
class HeadsNotSplit(StepByStep):
    def project(self, x):
        return [part.unsqueeze(1) for part in self.qkv(x).chunk(3, dim=-1)]

    def weigh(self, q, k, mask):
        return attention_weights(q @ k.mT / (q.shape[-1] / self.num_heads) ** 0.5, mask)


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="A head holds all of the first tokens and nothing of the last: permute the tokens, and other numbers come.",
    cause="You cut the width with view(B, h, T, D_h) alone. Cut into (B, T, h, D_h), then exchange tokens and heads.",
    where="04_multihead.ipynb#cutting-queries-keys-and-values-into-heads",
    caught_by=(properties.tokens_have_no_order, properties.multihead_equals_torch),
)
class ViewWithoutTranspose(StepByStep):
    def project(self, x):
        return [part.reshape(len(x), self.num_heads, x.shape[1], -1) for part in self.qkv(x).chunk(3, dim=-1)]


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="An output token holds one head's answers to several tokens: permute the tokens, and other numbers come.",
    cause="You join (B, h, T, D_h) into (B, T, D) with view or reshape alone. Exchange heads and tokens first.",
    where="04_multihead.ipynb#cutting-queries-keys-and-values-into-heads",
    caught_by=(properties.tokens_have_no_order, properties.multihead_equals_torch),
)
class MergedWithoutTranspose(StepByStep):
    def merge(self, heads):
        return heads.reshape(heads.shape[0], heads.shape[2], -1)


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="Trained from scratch it is as good as any; with somebody else's weights it computes nonsense.",
    cause="You cut the 3D columns into (D, 3), so that query, key and value take turns. They lie as (3, D), in blocks.",
    where="04_multihead.ipynb#all-heads-from-one-linear-map",
    caught_by=(properties.multihead_equals_torch,),
)
class QkvInterleaved(StepByStep):
    def project(self, x):
        return [split_heads(part, self.num_heads) for part in self.qkv(x).view(*x.shape, 3).unbind(dim=-1)]


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="A head's queries change with D_h columns of a token and with no other.",
    cause="You cut x into heads before the projections. Every head projects the whole token, all D numbers of it.",
    where="04_multihead.ipynb#all-heads-from-one-linear-map",
    caught_by=(properties.multihead_equals_torch,),
)
class HeadsSeeASlice(StepByStep):
    def project(self, x):
        size = x.shape[-1] // self.num_heads
        own = torch.block_diag(*x.new_ones(self.num_heads, size, size)).repeat(3, 1)
        parts = F.linear(x, self.qkv.weight * own, self.qkv.bias).chunk(3, dim=-1)
        return [split_heads(part, self.num_heads) for part in parts]


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="A head writes into its own D_h columns of a token and into no other.",
    cause="Your heads are concatenated and not projected: W_O is missing.",
    where="04_multihead.ipynb#what-w_o-is-for",
    caught_by=(properties.multihead_equals_torch,),
)
class NoOutputProjection(StepByStep):
    def attend(self, x, mask=None):
        q, k, v = self.project(x)
        weights = self.weigh(q, k, mask)
        return self.dropout(self.merge(self.drop(weights) @ v)), weights


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="An image's logits depend on which others are in its batch, and its patches do not see one another.",
    cause="Your attention runs over the batch. nn.MultiheadAttention and its kin need batch_first=True.",
    where="09_vit.ipynb#one-picture-does-not-touch-another",
    caught_by=(properties.examples_do_not_mix, properties.multihead_equals_torch),
)
class BatchTakenForTokens(StepByStep):
    def attend(self, x, mask=None):
        output, weights = super().attend(x.transpose(0, 1), mask)
        return output.transpose(0, 1), weights


@mistake(
    instead_of=MultiHeadSelfAttention,
    symptom="A model with attention dropout trains as one without.",
    cause="Your attention dropout is an argument that nothing reads.",
    where="01_attention.ipynb#dropout-on-the-weights",
    caught_by=(properties.every_dropout_acts,),
)
class AttentionDropoutUnread(StepByStep):
    def drop(self, weights):
        return weights


@mistake(
    instead_of=Transformer,
    symptom="The loss in training comes close to 0, and what the model writes is no good: it has read the answer.",
    cause="Your mask reaches the first layer alone. In the others every position sees the future.",
    where="05_transformer.ipynb#what-must-not-be-seen",
    caught_by=(properties.the_future_does_not_leak,),
)
class MaskStopsAfterTheFirstLayer(Transformer):
    def decode(self, target, memory, memory_mask=None):
        x, mask = self.embed(target, self.target_embedding), causal_mask(target.shape[1])
        for layer in self.decoder:
            x, mask = layer(x, memory, mask, memory_mask), torch.ones_like(mask)
        return self.scores(x)


# Equation 1


@mistake(
    instead_of=patchify,
    symptom="Put back together, the patches do not show the image. The model trains all the same.",
    cause="You cut the image with view or reshape alone, which deals out rows of pixels. Exchange axes between.",
    where="06_patches.ipynb#view-does-not-cut",
    caught_by=(properties.patchify_equals_loops,),
)
def view_without_permute(images, patch_size):
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)


@mistake(
    instead_of=patchify,
    symptom="Trained from scratch it is as good as any; with the weights of a convolution it computes nonsense.",
    cause="Inside a patch your numbers run (p q c), channel last. As in a convolution's weight, it should be (c p q).",
    where="06_patches.ipynb#the-order-inside-a-patch",
    caught_by=(properties.patchify_equals_loops,),
)
def channels_last_in_a_patch(images, patch_size):
    return rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=patch_size, q=patch_size)


BATCH = 2  # of the two mistakes below


@mistake(
    instead_of=ImageEmbedding,
    symptom="The model runs with one batch size only, and each place in a batch learns a class token of its own.",
    cause="Your class token has the batch size in its shape. Learn one, of shape (1, 1, D), and expand it.",
    where="07_embedding.ipynb#a-token-that-speaks-for-the-picture",
    caught_by=(properties.parameters_fit_every_batch,),
)
class BatchSizedClassToken(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.cls_token = nn.Parameter(self.cls_token.repeat(BATCH, 1, 1))


@mistake(
    instead_of=ImageEmbedding,
    symptom="The model runs with one batch size only, and each place in a batch learns positions of its own.",
    cause="Your positions have the batch size in their shape. Learn one table, (1, N + 1, D); adding broadcasts it.",
    where="07_embedding.ipynb#equation-1-complete",
    caught_by=(properties.parameters_fit_every_batch,),
)
class BatchSizedPositions(ImageEmbedding):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.positions.pos_embed = nn.Parameter(self.positions.pos_embed.repeat(BATCH, 1, 1))


@mistake(
    instead_of=ImageEmbedding,
    symptom="Shuffle the patches of an image, and its logits stay as they are.",
    cause="Your dropout is applied to x and not to x + positions: the sum is thrown away, and no place is known.",
    where="07_embedding.ipynb#equation-1-complete",
    caught_by=(properties.embedding_equals_equation_1,),
)
class DropoutForgetsThePositions(ImageEmbedding):
    def forward(self, images):
        x = self.patch_embed(images)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        z = x + self.positions()  # noqa: F841
        return self.dropout(x)


# Equations 2 and 3


@mistake(
    instead_of=nn.LayerNorm,
    symptom="Somebody else's weights give almost the right logits, the more wrong the narrower the model.",
    cause="Your variance is divided by D − 1, as Tensor.var does unless told correction=0. LayerNorm divides by D.",
    where="08_encoder.ipynb#layernorm-by-hand",
    caught_by=(properties.norm_makes_variance_one,),
)
class UnbiasedVariance(nn.LayerNorm):
    def forward(self, x):
        variance = x.var(dim=-1, keepdim=True)
        return (x - x.mean(dim=-1, keepdim=True)) / (variance + self.eps).sqrt() * self.weight + self.bias


@mistake(
    instead_of=EncoderBlock,
    symptom="The MLP can hardly subtract: what it adds to a token is nowhere below −0.17.",
    cause="You apply GELU after the second linear map of the MLP too. There is one, between the two maps.",
    where="08_encoder.ipynb#equation-3",
    caught_by=(properties.block_equals_torch,),
)
class GeluTwice(EncoderBlock):
    def forward(self, x):
        x = self.attn(self.norm1(x)) + x
        return F.gelu(self.mlp(self.norm2(x))) + x


@mistake(
    instead_of=EncoderBlock,
    symptom="In evaluation, the same image gets other logits at every call.",
    cause="You call F.dropout, which does not know of eval(). Use nn.Dropout, or pass training=self.training.",
    where="08_encoder.ipynb#dropout-and-where-it-goes",
    caught_by=(properties.eval_is_deterministic, properties.tokens_have_no_order, properties.block_equals_torch),
)
class FunctionalDropout(EncoderBlock):
    def forward(self, x):
        return F.dropout(super().forward(x), 0.1)


@mistake(
    instead_of=EncoderBlock,
    symptom="Another width asked for, the same number of parameters, or an error deep inside.",
    cause="A layer takes its size from a fixed number or a global variable, and not from its arguments.",
    where="08_encoder.ipynb#how-large-is-a-block",
    caught_by=(properties.sizes_follow_the_arguments,),
)
class SizesFixed(EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim, *dropouts):
        super().__init__(dim, num_heads, 4 * 768, *dropouts)


# Equation 4


@mistake(
    instead_of=VisionTransformer,
    symptom="The head gets numbers whose size grows with every block.",
    cause="Your tokens go to the head without the last LayerNorm.",
    where="09_vit.ipynb#equation-4",
    caught_by=(properties.vit_equals_equations_1_to_4,),
)
class NoFinalNorm(VisionTransformer):
    def tokens(self, images):
        return self.encoder(self.embedding(images))


@mistake(
    instead_of=VisionTransformer,
    symptom="Hardly anything: one token too many in the mean.",
    cause="Your mean runs over all tokens, the class token among them. Leave it out: z[:, 1:].",
    where="09_vit.ipynb#one-vector-for-a-picture-the-class-token-or-the-mean",
    caught_by=(properties.mean_pooling_ignores_the_class_token, properties.vit_equals_equations_1_to_4),
)
class MeanIncludesTheClassToken(VisionTransformer):
    def features(self, images):
        return self.tokens(images).mean(dim=1)


@mistake(
    instead_of=VisionTransformer,
    symptom="The loss starts at ln K, falls slowly, and cannot come near 0.",
    cause="Your logits are probabilities already. The softmax belongs to F.cross_entropy, which applies it itself.",
    where="10_training.ipynb#how-wrong-is-an-answer",
    caught_by=(properties.scores_are_no_probabilities, properties.vit_equals_equations_1_to_4),
)
class SoftmaxBeforeCrossEntropy(VisionTransformer):
    def forward(self, images):
        return super().forward(images).softmax(dim=-1)


@mistake(
    instead_of=VisionTransformer,
    symptom="At the start all blocks have the same weights.",
    cause="Your blocks start as copies of one (copy.deepcopy, as in nn.TransformerEncoder). Draw each one separately.",
    where="08_encoder.ipynb#the-encoder",
    caught_by=(properties.blocks_start_different,),
)
class BlocksAreCopies(VisionTransformer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for block in self.encoder.blocks:
            block.load_state_dict(self.encoder.blocks[0].state_dict())


# Training


@mistake(
    instead_of=torch.optim.AdamW,
    symptom="Weights with large gradients hardly decay, and a weight decay from a paper has another effect.",
    cause="Your decay is added to the gradient, and so divided by √v like the rest. AdamW takes it off the weight.",
    where="10_training.ipynb#adamw-and-which-weight-decay",
    caught_by=(properties.decay_is_decoupled,),
)
def l2_inside_adam(groups, lr):
    return torch.optim.Adam(groups, lr=lr)


@mistake(
    instead_of=parameter_groups,
    symptom="Biases, the gains of norms, the class token and the positions shrink towards 0.",
    cause="Your weight decay is on all parameters. Only matrices should decay.",
    where="10_training.ipynb#adamw-and-which-weight-decay",
    caught_by=(properties.only_matrices_decay,),
)
def everything_decays(model, weight_decay):
    return [{"params": list(model.parameters()), "weight_decay": weight_decay}]


@mistake(
    instead_of=evaluate,
    symptom="The accuracy changes with the batch size.",
    cause="You average the accuracies of batches, and the last one is smaller. Count images, then divide.",
    where="10_training.ipynb#how-wrong-is-an-answer",
    caught_by=(properties.evaluation_counts_each_example_once,),
)
def every_batch_weighs_alike(model, batches):
    parts = [evaluate(model, [batch]) for batch in batches]
    means = {name: sum(getattr(part, name) for part in parts) / len(parts) for name in ("loss", "accuracy")}
    return SimpleNamespace(**means)


# Attention maps


@mistake(
    instead_of=rollout,
    symptom="The deeper the model, the more alike the rows: every token seems to have seen the same.",
    cause="Your rollout multiplies attention alone. Half of each token comes down the residual connection: ½W + ½I.",
    where="13_attention_maps.ipynb#through-all-blocks-rollout",
    caught_by=(properties.rollout_is_a_walk,),
)
def rollout_without_the_identity(weights):
    return rollout(weights, residual=False)


@mistake(
    instead_of=rollout,
    symptom="The rows of the rollout do not sum to 1, so they are no shares.",
    cause="You normalize over the queries, dim=-2. It is the keys' shares of each query that sum to 1: dim=-1.",
    where="13_attention_maps.ipynb#through-all-blocks-rollout",
    caught_by=(properties.rollout_is_a_walk,),
)
def rollout_normalised_over_the_queries(weights):
    identity = rolled = torch.eye(weights.shape[-1]).to(weights)
    for block in weights:
        mixed = block.mean(dim=1) + identity
        rolled = mixed / mixed.sum(dim=-2, keepdim=True) @ rolled
    return rolled


@mistake(
    instead_of=patch_map,
    symptom="In a row of images, all attention maps are the same.",
    cause="Your figure takes the map of the batch's first image for all of them.",
    where="13_attention_maps.ipynb#sixteen-pictures",
    caught_by=(properties.every_picture_has_its_own_map,),
)
def one_map_for_every_picture(weights, grid):
    first = weights[:, :1].expand_as(weights)
    return patch_map(first, grid)


# Any number of tokens


@mistake(
    instead_of=same_image,
    symptom="An image's logits depend on which others are packed into its row.",
    cause="Your mask hides the padding alone. Tokens of one image must not look at those of another.",
    where="25_tokens.ipynb#several-images-in-one-row",
    caught_by=(properties.packed_images_stay_apart,),
)
def only_padding_is_hidden(owner):
    real = owner >= 0
    return (real[:, :, None] & real[:, None, :]).unsqueeze(1)


@mistake(
    instead_of=proportional_attention,
    symptom="The more tokens merge, the less the merged ones are looked at, and accuracy falls faster than it has to.",
    cause="Your merged token counts once. It stands for s tokens: add log s to its scores.",
    where="25_tokens.ipynb#one-key-for-many",
    caught_by=(properties.a_merged_key_counts_for_its_parts,),
)
def merged_tokens_count_once(q, k, v, size):
    return attention(q, k, v)[0]


@mistake(
    instead_of=merge_tokens,
    symptom="A token that merges late moves a large group as far as a token that stands for one patch.",
    cause="You take the plain mean of two tokens. Weigh each by the number of tokens it is made of.",
    where="25_tokens.ipynb#merge-what-is-similar",
    caught_by=(properties.merging_keeps_the_sum,),
)
def merged_by_the_plain_mean(z, keys, groups, r, num_prefix_tokens=1):
    ones = torch.eye(z.shape[1]).to(z).expand(len(z), -1, -1)  # as if no token had merged before
    merged, pairs = merge_tokens(z, keys, ones, r, num_prefix_tokens)
    return merged, pairs @ groups


@mistake(
    instead_of=window_attention,
    symptom="Patches at one edge of the image look at patches of the opposite edge.",
    cause="Your shifted windows wrap around the image without a mask.",
    where="25_tokens.ipynb#windows",
    caught_by=(properties.windows_are_looked_into,),
)
def windows_wrap_around(attention, x, grid, window, shift=0):
    image = x.unflatten(1, grid).roll((-shift, -shift), dims=(1, 2)).flatten(1, 2)
    image = window_attention(attention, image, grid, window).unflatten(1, grid)
    return image.roll((shift, shift), dims=(1, 2)).flatten(1, 2)


# A whole model with mistakes in it

# where a class is looked up when a VisionTransformer is built
USED_IN = {
    MultiHeadSelfAttention: encoder,
    EncoderBlock: encoder,
    ImageEmbedding: vit,
    PatchEmbedding: vit,
    nn.LayerNorm: nn,
}


def broken_vit(config: ViTConfig, *names: str) -> VisionTransformer:
    """A Vision Transformer that has the named mistakes, each one of `IN_A_VIT`, with random weights.

    Raises ValueError for any other name.
    """
    build = VisionTransformer
    with ExitStack() as stack:
        for name in names:
            if name not in IN_A_VIT:
                raise ValueError(unknown("mistake of a Vision Transformer", name, IN_A_VIT))
            right, wrong = as_class(MISTAKES[name])
            if right is VisionTransformer:
                build = wrong
            else:
                stack.enter_context(patch.object(USED_IN[right], right.__name__, wrong))
        return build(config)


def as_class(mistake: Mistake) -> tuple[Callable, Callable]:
    """The class of modules in which the mistake is made, as it should be and with the mistake."""
    right, wrong = mistake.instead_of, mistake.variant
    if right is attention:

        class WrongAttention(StepByStep):
            def weigh(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
                return wrong(q, k, k, mask)[1]  # the weights do not depend on the values

        return MultiHeadSelfAttention, WrongAttention
    if right is patchify:

        class WrongPatches(PatchEmbedding):
            def forward(self, images: Tensor) -> Tensor:
                return F.linear(wrong(images, self.patch_size), self.proj.weight.flatten(1), self.proj.bias)

        return PatchEmbedding, WrongPatches
    return right, wrong


IN_A_VIT = [
    name
    for name, wrong in MISTAKES.items()
    if as_class(wrong)[0] in (VisionTransformer, *USED_IN) and "mask" not in name  # a Vision Transformer hides nothing
]
