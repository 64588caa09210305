"""Mistakes in what is done with a model, and in what came after the first: training, maps, the block of today …"""

from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

from vitbook.attention import attention
from vitbook.attention_maps import patch_map, rollout
from vitbook.contrastive import ScaleAndBias, cosines, name_probabilities, sigmoid_loss, softmax_loss
from vitbook.data import Split, split_at_random
from vitbook.dino import agreement_loss, epps_pulley, sigreg, teacher_probabilities
from vitbook.export import quantize
from vitbook.features import standardized
from vitbook.imbalance import balanced_accuracy, balanced_order
from vitbook.mae import MaskedAutoencoder, add_mask_tokens, masked_loss, random_masking
from vitbook.modern import ModernAttention, ModernViT, rotary_angles, rotate
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.painting import guided_guess, on_the_path, train_painter, velocity_loss
from vitbook.tokens import merge_tokens, proportional_attention, same_image, window_attention
from vitbook.training import evaluate, parameter_groups
from vitbook_workshop.faults.mistake_registry import Mistake, wrong_variant

MISTAKES: dict[str, Mistake] = {}
_wrong = partial(wrong_variant, MISTAKES)

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
    "21_modern#a-position-is-a-rotation",
    symptom="Scores depend on where a query is, and not on how far its keys are from it.",
    cause="You rotate the queries and leave the keys. A score sees offsets only if both are turned.",
    caught_by=("queries_and_keys_are_turned_alike",),
    seen_in_a_model=("queries_and_keys_are_turned_alike",),
)
class OnlyQueriesTurned(ModernAttention):
    def project(self, x):
        _, k, v = MultiHeadSelfAttention.project(self, x)
        return super().project(x)[0], self.k_norm(k), v


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


# At work


@_wrong(
    "27_at_work#what-belongs-together-stays-together",
    symptom="A test image gets another answer alone than among the others.",
    cause="Your mean and standard deviation are of training and test images together. Take the training images' alone.",
    caught_by=("others_to_test_do_not_count",),
    of=standardized,
)
def statistics_from_the_test_part(features, known):
    return standardized(features, torch.cat([known, features]))


@_wrong(
    "27_at_work#what-belongs-together-stays-together",
    symptom="The rarer a class, the better it is found in the test; of new images, it is not found.",
    cause="You drew rare images several times before you split, and copies lie on both sides. Split first.",
    caught_by=("no_image_is_on_both_sides",),
    of=split_at_random,
)
def resampled_before_the_split(split, fraction, seed, class_names):
    drawn = balanced_order(split.labels, len(split), torch.Generator().manual_seed(seed))
    return split_at_random(Split(split.images[drawn], split.labels[drawn]), fraction, seed, class_names)


@_wrong(
    "27_at_work#class-by-class",
    symptom="A class is never named, and the number that you report hardly moves.",
    cause="You count images, and most are of a few classes. Take the mean of the recalls, one for each class.",
    caught_by=("every_class_counts_alike",),
    of=balanced_accuracy,
)
def accuracy_on_an_imbalanced_set(confusion):
    return (confusion.trace() / confusion.sum()).item()


# Painting


@_wrong(
    "29_painting#a-straight-path",
    symptom="The loss falls, and what is painted is noise: each step leads away from the image.",
    cause="Your time runs from the image to the noise. Here t = 0 is noise and t = 1 the image, in training and after.",
    caught_by=("a_path_leads_from_noise_to_the_image",),
    of=on_the_path,
)
def time_reversed(images, noise, t):
    return on_the_path(images, noise, 1 - t)


@_wrong(
    "29_painting#a-loss-for-the-velocity",
    symptom="The loss jumps, and single batches undo what the others taught.",
    cause="Your weight 1/(1 − t)² has no bound: near t = 1 one image outweighs all. Take 1 − t for at least 0.05.",
    caught_by=("no_time_outweighs_all_others",),
    of=velocity_loss,
)
def weight_without_a_bound(guess, images, z, t):
    return ((guess - images) / (1 - t)[:, None, None, None]).square().mean()


@_wrong(
    "29_painting#guidance",
    symptom="The more guidance, the less of the class that was asked for.",
    cause="Your guidance leads from the guess of the class to that of none. Start from none, and go toward the class.",
    caught_by=("guidance_leads_to_the_class",),
    of=guided_guess,
)
def guidance_the_other_way(model, z, t, labels, guidance):
    none = torch.full_like(labels, model.anything)
    of_class, of_any = model(z, t, labels), model(z, t, none)
    return of_class + guidance * (of_any - of_class)


@_wrong(
    "29_painting#train-it",
    symptom="What is painted changes with the last batches, and is worse than it could be.",
    cause="You return the weights of the last step. Those to paint with are their running mean.",
    caught_by=("the_running_mean_is_kept",),
    of=train_painter,
)
def running_mean_forgotten(model, *arguments, **settings):
    _, losses = train_painter(model, *arguments, **settings)
    return model, losses
