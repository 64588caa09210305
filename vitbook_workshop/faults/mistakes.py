"""The mistakes of the wild, named: each the smallest wrong variant of the right code, beside its symptom.

Each names a public file or thread where somebody made it, or is our own, as are all of Part VI. None raises an error:
a model with one of them runs, and mostly it even trains.
`MISTAKES` holds them by name, `broken_vit` builds a Vision Transformer that has some of them.
"""

import math
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitbook import encoder, vit
from vitbook._common.names import unknown
from vitbook._common.site import chapters_address
from vitbook.attention import attention, attention_scores, attention_weights
from vitbook.attention_maps import patch_map, rollout
from vitbook.contrastive import ScaleAndBias, cosines, name_probabilities, sigmoid_loss, softmax_loss
from vitbook.dino import agreement_loss, epps_pulley, sigreg, teacher_probabilities
from vitbook.embedding import ImageEmbedding
from vitbook.encoder import EncoderBlock
from vitbook.export import quantize
from vitbook.mae import MaskedAutoencoder, add_mask_tokens, masked_loss, random_masking
from vitbook.modern import ModernAttention, ModernViT, rotary_angles, rotate
from vitbook.multihead import MultiHeadSelfAttention, merge_heads, split_heads
from vitbook.patches import PatchEmbedding, patchify
from vitbook.tokens import merge_tokens, proportional_attention, same_image, window_attention
from vitbook.training import evaluate, parameter_groups
from vitbook.transformer import Transformer, causal_mask
from vitbook.vit import VisionTransformer, ViTConfig


@dataclass(frozen=True)
class Mistake:
    """A wrong variant of something right, with its symptom, its cause, and what catches it."""

    variant: Callable  # the wrong code
    instead_of: Callable  # the right code, called in the same way
    symptom: str  # what one sees
    cause: str  # what is wrong, said to whoever wrote it
    where: str  # the section that explains it, as a link from another chapter
    caught_by: tuple[str, ...]  # what in the catalogue it breaks, the most telling first
    found: str = ""  # where somebody made it: the end of an address on GitHub; "" for one of our own

    @property
    def name(self) -> str:
        """That of the variant; the key in `MISTAKES`."""
        return self.variant.__name__

    @property
    def title(self) -> str:
        """The name, in words."""
        return re.sub(r"(?<!^)(?=[A-Z])|_", " ", self.name).lower()

    @property
    def source(self) -> str:
        """Where it was found, as one cites it: OWNER/REPOSITORY#THREAD, OWNER/REPOSITORY/FILE, or "our own"."""
        return re.sub(r"/blob/\w+", "", re.sub(r"/(issues|pull)/", "#", self.found)) or "our own"


MISTAKES: dict[str, Mistake] = {}


def _wrong(
    section: str, symptom: str, cause: str, caught_by: tuple[str, ...], of: Callable | None = None, found: str = ""
) -> Callable[[Callable], Callable]:
    """Put what is defined below into `MISTAKES`, whose fields these are.

    of: what it is a wrong variant of; for a class, what it derives from.
    """

    def register(variant: Callable) -> Callable:
        right = of or next(base for base in variant.__mro__[1:] if base.__module__ != __name__)
        where = section.replace("#", ".ipynb#")
        MISTAKES[variant.__name__] = Mistake(variant, right, symptom, cause, where, caught_by, found)
        return variant

    return register


# Attention


def _hidden(scores: Tensor, mask: Tensor | None) -> Tensor:
    """The scores with −∞ where the mask says False, which is right."""
    return scores if mask is None else scores.masked_fill(~mask, -math.inf)


@_wrong(
    "01_attention#all-queries-at-once-by-matrices",
    symptom="The columns of the weights sum to 1 and the rows do not: an output is no blend of values.",
    cause="Your softmax runs over the queries, dim=-2. It is each query that shares out its attention: dim=-1.",
    caught_by=("weights_sum_to_one", "attention_equals_torch"),
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
    found="zhouhaoyi/Informer2020/issues/97",
)
class AttentionDropoutUnread(StepByStep):
    def drop(self, weights):
        return weights


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


_BATCH = 2  # of the two mistakes below


@_wrong(
    "07_embedding#a-token-that-speaks-for-the-image",
    symptom="The model runs with one batch size only, and each place in a batch learns a class token of its own.",
    cause="Your class token has the batch size in its shape. Learn one, of shape (1, 1, D), and expand it.",
    caught_by=("every_batch_size_will_do",),
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
)
class DropoutForgetsThePositions(ImageEmbedding):
    def forward(self, images, any_size=False):
        prefix = [token.expand(len(images), -1, -1) for token in self.prefix_tokens]
        x = torch.cat([*prefix, self.patch_embed(images)], dim=1)
        z = x + self.positions()  # noqa: F841
        return self.dropout(x)


# Equations 2 and 3


@_wrong(
    "08_encoder#layernorm-by-hand",
    symptom="Somebody else's weights give almost the right logits, the more wrong the narrower the model.",
    cause="Your variance is divided by D − 1, as Tensor.var does unless told correction=0. LayerNorm divides by D.",
    caught_by=("each_token_is_normalized",),
    found="harvardnlp/annotated-transformer/pull/119",
)
class UnbiasedVariance(nn.LayerNorm):
    def forward(self, x):
        variance = x.var(dim=-1, keepdim=True)
        return (x - x.mean(dim=-1, keepdim=True)) / (variance + self.eps).sqrt() * self.weight + self.bias


@_wrong(
    "08_encoder#equation-3",
    symptom="The MLP can hardly subtract: what it adds to a token is nowhere below −0.17.",
    cause="You apply GELU after the second linear map of the MLP too. There is one, between the two maps.",
    caught_by=("block_equals_torch",),
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
    found="pytorch/pytorch/issues/72253",
)
class BlocksAreCopies(VisionTransformer):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        for block in self.encoder.blocks:
            block.load_state_dict(self.encoder.blocks[0].state_dict())


# Training


@_wrong(
    "10_training#adamw-and-which-weight-decay",
    symptom="Weights with large gradients hardly decay, and a weight decay from a paper has another effect.",
    cause="Your decay is added to the gradient, and so divided by √v like the rest. AdamW takes it off the weight.",
    caught_by=("decay_is_decoupled",),
    of=torch.optim.AdamW,
    found="anhquan0412/basic_model_scratch/issues/2",
)
def l2_inside_adam(groups, lr):
    return torch.optim.Adam(groups, lr=lr)


@_wrong(
    "10_training#adamw-and-which-weight-decay",
    symptom="Biases, the gains of norms, the class token and the positions shrink towards 0.",
    cause="Your weight decay is on all parameters. Only matrices should decay.",
    caught_by=("only_matrices_decay",),
    of=parameter_groups,
    found="Lightning-AI/lit-llama/issues/254",
)
def everything_decays(model, weight_decay):
    return [{"params": list(model.parameters()), "weight_decay": weight_decay}]


@_wrong(
    "10_training#how-wrong-is-an-answer",
    symptom="The accuracy changes with the batch size.",
    cause="You average the accuracies of batches, and the last one is smaller. Count images, then divide.",
    caught_by=("evaluation_counts_each_example_once",),
    of=evaluate,
    found="facebookarchive/fb.resnet.torch/pull/75",
)
def every_batch_weighs_alike(model, batches):
    parts = [evaluate(model, [batch]) for batch in batches]
    means = {name: sum(getattr(part, name) for part in parts) / len(parts) for name in ("loss", "accuracy")}
    return SimpleNamespace(**means)


# Attention maps


@_wrong(
    "13_attention_maps#through-all-blocks-rollout",
    symptom="The deeper the model, the more alike the rows: every token seems to have seen the same.",
    cause="Your rollout multiplies attention alone. Half of each token comes down the residual connection: ½W + ½I.",
    caught_by=("rollout_is_a_walk",),
    of=rollout,
    found="google-research/vision_transformer/issues/18",
)
def rollout_without_the_identity(weights):
    return rollout(weights, residual=False)


@_wrong(
    "13_attention_maps#through-all-blocks-rollout",
    symptom="The rows of the rollout do not sum to 1, so they are no shares.",
    cause="You normalize over the queries, dim=-2. It is the keys' shares of each query that sum to 1: dim=-1.",
    caught_by=("rollout_is_a_walk",),
    of=rollout,
)
def rollout_normalized_over_the_queries(weights):
    identity = rolled = torch.eye(weights.shape[-1]).to(weights)
    for block in weights:
        mixed = block.mean(dim=1) + identity
        rolled = mixed / mixed.sum(dim=-2, keepdim=True) @ rolled
    return rolled


@_wrong(
    "13_attention_maps#a-map-for-each-photograph",
    symptom="In a row of images, all attention maps are the same.",
    cause="Your figure takes the map of the batch's first image for all of them.",
    caught_by=("every_image_has_its_own_map",),
    of=patch_map,
)
def one_map_for_every_image(weights, grid):
    first = weights[:, :1].expand_as(weights)
    return patch_map(first, grid)


# The block of today


@_wrong(
    "21_modern#a-position-is-a-rotation",
    symptom="Somebody's rotary weights load, and their model sees a scrambled image.",
    cause="You pair entry i with entry i + D_h/2 and give them the angles of neighbors. Pair and angle must agree.",
    caught_by=("turning_keeps_norms_and_offsets",),
    of=rotate,
)
def one_pair_by_two_angles(x, angles):
    a, b = x.chunk(2, dim=-1)
    angles = angles.repeat_interleave(2, dim=-1)  # right where neighbors are paired
    return x * angles.cos().to(x.dtype) + torch.cat([-b, a], dim=-1) * angles.sin().to(x.dtype)


@_wrong(
    "21_modern#rows-and-columns",
    symptom="The last patch of a row and the first of the next are neighbors to the model.",
    cause="Your angles count patches one after the other. Turn half of the pairs by the row, half by the column.",
    caught_by=("angles_tell_offsets_apart",),
    of=rotary_angles,
)
def patches_in_single_file(grid, head_dim, base=100.0):
    return rotary_angles((1, grid[0] * grid[1]), head_dim, base)


@_wrong(
    "21_modern#scores-with-a-bound",
    symptom="With a high learning rate, scores still grow until one key gets all the attention.",
    cause="You normalize the queries and leave the keys. A score is bounded only if both are.",
    caught_by=("scores_are_bounded",),
)
class OnlyQueriesNormalized(ModernAttention):
    def project(self, x):
        _, k, v = MultiHeadSelfAttention.project(self, x)
        return super().project(x)[0], k, v


@_wrong(
    "21_modern#tokens-for-nothing",
    symptom="The features of an image are diluted by tokens that stand for no part of it.",
    cause="You average over the registers too. They are for the encoder alone: drop them before the mean.",
    caught_by=("registers_leave_no_trace",),
)
class RegistersInTheMean(ModernViT):
    def pool(self, z):
        return z[:, 0] if self.config.pool == "class" else z[:, int(self.config.class_token) :].mean(dim=1)


# Masked autoencoders


@_wrong(
    "22_mae#the-way-back",
    symptom="The loss falls slowly, and what is painted looks like a shuffled image.",
    cause="Your way back is the shuffled order itself. Invert it: sort the order, restore = order.argsort(dim=1).",
    caught_by=("patches_find_their_way_back",),
    of=random_masking,
)
def argsort_applied_once(x, ratio=0.75, noise=None):
    noise = torch.rand(x.shape[:2]).to(x) if noise is None else noise
    visible, _, _ = random_masking(x, ratio, noise)
    order = noise.argsort(dim=1)
    return visible, order, order >= visible.shape[1]


@_wrong(
    "22_mae#the-decoder",
    symptom="All hidden patches of an image are painted alike, a gray mean.",
    cause="Your mask tokens have no positions. Put them in their places first, then add the positions to all tokens.",
    caught_by=("hidden_patches_are_told_apart",),
)
class MaskTokensWithoutPositions(MaskedAutoencoder):
    def decode(self, z, restore):
        prefix, visible = self.embed(z).tensor_split([self.num_prefix_tokens], dim=1)
        places = restore.argsort(dim=1)[:, : visible.shape[1]] + self.num_prefix_tokens
        visible = visible + self.positions()[0, places]  # these alone
        z = torch.cat([prefix, add_mask_tokens(visible, self.mask_token, restore)], dim=1)
        return self.to_pixels(self.norm(self.decoder(z))[:, self.num_prefix_tokens :])


@_wrong(
    "22_mae#only-what-is-hidden-counts",
    symptom="The loss is lower, and what is painted is worse: a part of the model copies what it was shown.",
    cause="Your mean runs over all patches. Only the hidden ones have to be guessed.",
    caught_by=("only_hidden_patches_count",),
    of=masked_loss,
)
def loss_of_all_patches(predicted, targets, hidden):
    return (predicted - targets).square().mean()


# Agreement without labels


@_wrong(
    "23_dino#no-centering-one-answer-for-all",
    symptom="The loss falls to almost 0, and all images get one and the same answer.",
    cause="Nothing is subtracted from your teacher's logits, and the prototype that leads wins. Subtract their running"
    " mean.",
    caught_by=("a_common_answer_is_taken_away",),
    of=teacher_probabilities,
)
def answers_not_centered(logits, center, temperature=0.04):
    return (logits / temperature).softmax(dim=-1)


@_wrong(
    "23_dino#no-sharpening-no-answer-at-all",
    symptom="The loss stops at ln K: every image gets a little of every answer.",
    cause="You do not divide your teacher's logits by its temperature. It has to be lower than the student's.",
    caught_by=("a_teacher_is_as_sure_as_told",),
    of=teacher_probabilities,
)
def answers_not_sharpened(logits, center, temperature=0.04):
    return (logits - center).softmax(dim=-1)


@_wrong(
    "23_dino#pairs-of-views",
    symptom="The loss is lower than it should be, and the features get better more slowly.",
    cause="Your pairs include a view with itself, which is agreement for nothing. Leave them out.",
    caught_by=("a_view_is_not_its_own_teacher",),
    of=agreement_loss,
)
def views_compared_with_themselves(student, teacher, temperature=0.1):
    log_p = (student / temperature).log_softmax(dim=-1)
    return -torch.einsum("gbk,vbk->gvb", teacher, log_p).mean()


@_wrong(
    "23_dino#the-short-way",
    symptom="The vectors shrink to a cloud whose radius is about 1, however many entries they have.",
    cause="You project on directions that are not of length 1. Normalize them.",
    caught_by=("a_round_cloud_is_left_alone",),
    of=sigreg,
)
def directions_of_any_length(z, slices=256):
    return epps_pulley(z @ torch.randn(z.shape[1], slices).to(z)).mean()


# Any number of tokens


@_wrong(
    "25_tokens#several-images-in-one-row",
    symptom="An image's logits depend on which others are packed into its row.",
    cause="Your mask hides the padding alone. Tokens of one image must not look at those of another.",
    caught_by=("packed_images_stay_apart",),
    of=same_image,
)
def only_padding_is_hidden(owner):
    real = owner >= 0
    return (real[:, :, None] & real[:, None, :]).unsqueeze(1)


@_wrong(
    "25_tokens#one-key-for-many",
    symptom="The more tokens merge, the less the merged ones are looked at, and accuracy falls faster than it has to.",
    cause="Your merged token counts once. It stands for s tokens: add log s to its scores.",
    caught_by=("a_merged_key_counts_for_its_parts",),
    of=proportional_attention,
)
def merged_tokens_count_once(q, k, v, size):
    return attention(q, k, v)[0]


@_wrong(
    "25_tokens#merge-what-is-similar",
    symptom="A token that merges late moves a large group as far as a token that stands for one patch.",
    cause="You take the plain mean of two tokens. Weigh each by the number of tokens it is made of.",
    caught_by=("merging_keeps_the_sum",),
    of=merge_tokens,
)
def merged_by_the_plain_mean(z, keys, groups, r, num_prefix_tokens=1):
    ones = torch.eye(z.shape[1]).to(z).expand(len(z), -1, -1)  # as if no token had merged before
    merged, pairs = merge_tokens(z, keys, ones, r, num_prefix_tokens)
    return merged, pairs @ groups


@_wrong(
    "25_tokens#windows",
    symptom="Patches at one edge of the image look at patches of the opposite edge.",
    cause="Your shifted windows wrap around the image without a mask.",
    caught_by=("windows_are_looked_into",),
    of=window_attention,
)
def windows_wrap_around(attention, x, grid, window, shift=0):
    image = x.unflatten(1, grid).roll((-shift, -shift), dims=(1, 2)).flatten(1, 2)
    image = window_attention(attention, image, grid, window).unflatten(1, grid)
    return image.roll((shift, shift), dims=(1, 2)).flatten(1, 2)


# Images and words


@_wrong(
    "24_contrastive#one-space-for-both",
    symptom="A caption with a long vector is the best match of many images, and the loss falls by growing vectors.",
    cause="Your vectors are not normalized. Divide each by its length before the product.",
    caught_by=("lengths_do_not_count",),
    of=cosines,
)
def dot_products_for_cosines(x, y):
    return x @ y.mT


@_wrong(
    "24_contrastive#the-softmax-loss",
    symptom="Images are trained to find their captions; captions are never trained to tell images apart.",
    cause="Your loss has the rows alone. Add the cross-entropy of the columns, logits.mT, and halve the sum.",
    caught_by=("both_sides_choose",),
    of=softmax_loss,
)
def only_images_choose(logits):
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


@_wrong(
    "24_contrastive#the-sigmoid-loss",
    symptom="The larger the batch, the smaller the gradient of the loss.",
    cause="Your loss is divided by B², and all but B of the pairs are easy. Divide their sum by B.",
    caught_by=("every_pair_is_asked",),
    of=sigmoid_loss,
)
def averaged_over_all_pairs(logits):
    return sigmoid_loss(logits) / len(logits)


@_wrong(
    "24_contrastive#temperature-and-bias",
    symptom="The scale hardly moves in training; where it does, nothing keeps it above 0.",
    cause="Your scale is a parameter itself. Learn its logarithm, and take the exponential.",
    caught_by=("the_scale_stays_positive",),
)
class ScaleLearnedAsItIs(ScaleAndBias):
    def __init__(self, scale: float = 1 / 0.07, bias: float = 0.0):
        super().__init__(scale, bias)
        self.t = nn.Parameter(torch.tensor(scale))

    def forward(self, cosine):
        return self.t * cosine + self.bias


@_wrong(
    "24_contrastive#names-instead-of-a-head",
    symptom="What an image is called depends on which other images are in the batch.",
    cause="Your softmax runs over the images, dim=0. It is each image that chooses among the names: dim=-1.",
    caught_by=("other_images_do_not_count",),
    of=name_probabilities,
)
def images_compete_for_names(logits):
    return logits.softmax(dim=0)


# Out of the notebook


@_wrong(
    "26_export#eight-bits-for-a-weight",
    symptom="Rows of small weights come back as a handful of different values.",
    cause="Your scale is set by the largest weight of all. Each row, an output, needs its own.",
    caught_by=("half_a_step_is_the_largest_error",),
    of=quantize,
)
def one_scale_for_the_matrix(weight):
    scale = weight.abs().max() / 127
    return (weight / scale).round().to(torch.int8), scale.expand(len(weight), 1)


@_wrong(
    "26_export#eight-bits-for-a-weight",
    symptom="Some weights come back with the other sign.",
    cause="Your maximum is not of absolute values: what is far below zero leaves the range of a byte and wraps around.",
    caught_by=("half_a_step_is_the_largest_error",),
    of=quantize,
)
def scale_without_absolute_values(weight):
    scale = weight.amax(dim=1, keepdim=True) / 127
    return (weight / scale).round().long().to(torch.int8), scale


@_wrong(
    "26_export#eight-bits-for-a-weight",
    symptom="All weights shrink a little, and logits change more than eight bits explain.",
    cause="You convert to whole numbers without rounding, which cuts the fractions off. Round to the nearest first.",
    caught_by=("half_a_step_is_the_largest_error",),
    of=quantize,
)
def fractions_cut_off(weight):
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight / scale).to(torch.int8), scale


# A whole model with mistakes in it

# where a class is looked up when a VisionTransformer is built
_USED_IN = {
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
                stack.enter_context(patch.object(_USED_IN[right], right.__name__, wrong))
        return build(config)


def make_mistakes(model: nn.Module, *names: str) -> None:
    """Let the parts of a right model make the named mistakes, in place and with the weights that it has."""
    classes = [as_class(MISTAKES[name]) for name in names]
    for module in list(model.modules()):
        if variants := tuple(wrong for right, wrong in classes if right is type(module)):
            module.__class__ = type("Mistaken", variants, {})


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
    if as_class(wrong)[0] in (VisionTransformer, *_USED_IN) and "mask" not in name  # a Vision Transformer hides nothing
]


@dataclass(frozen=True)
class Cards:
    """What there is to say about some mistakes: in a notebook a card each, with links; elsewhere the same as text."""

    mistakes: tuple[Mistake, ...]

    def __repr__(self) -> str:
        return "\n\n".join(
            "\n".join([mistake.title.upper(), *(f"  {label} {text}" for label, text, _ in _lines(mistake))])
            for mistake in self.mistakes
        )

    def _repr_html_(self) -> str:
        cards = []
        for mistake in self.mistakes:
            lines = "".join(
                f'<br><b>{label}</b> {f"""<a href="{url}">{escape(text)}</a>""" if url else escape(text)}'
                for label, text, url in _lines(mistake)
            )
            title = mistake.title[0].upper() + mistake.title[1:]
            cards.append(f'<div id="{mistake.title.replace(" ", "-")}" style="{_CARD}"><b>{title}</b>{lines}</div>')
        return f'<div class="vitbook-cards" style="{_GRID}">{"".join(cards)}</div>'


_GRID = "display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:.75rem"
_CARD = "border:1px solid #8886;border-radius:.5rem;padding:.6rem .9rem"


def _lines(mistake: Mistake) -> list[tuple[str, str, str]]:
    """The lines of a card: label, text, and the address that the text links to."""
    return [
        ("Seen:", mistake.symptom, ""),
        ("Cause:", mistake.cause, ""),
        ("Caught by:", ", ".join(mistake.caught_by), ""),
        ("Read:", f"chapter {int(mistake.where[:2])}", chapters_address() + mistake.where.replace(".ipynb", ".html")),
        ("Found in:", mistake.source, mistake.found and f"https://github.com/{mistake.found}"),
    ]


def cards(*names: str) -> Cards:
    """The named mistakes, each as a card: what one sees, its cause, the tests that catch it, where it was found."""
    return Cards(tuple(MISTAKES[name] for name in names))
