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
from vitbook_workshop.faults.mistakes.card import Mistake, wrong_variant

MISTAKES: dict[str, Mistake] = {}
_wrong = partial(wrong_variant, MISTAKES)

# Training


@_wrong(torch.optim.AdamW)
def l2_inside_adam(groups, lr):
    return torch.optim.Adam(groups, lr=lr)


@_wrong(parameter_groups)
def everything_decays(model, weight_decay):
    return [{"params": list(model.parameters()), "weight_decay": weight_decay}]


@_wrong(evaluate)
def every_batch_weighs_alike(model, batches):
    parts = [evaluate(model, [batch]) for batch in batches]
    means = {name: sum(getattr(part, name) for part in parts) / len(parts) for name in ("loss", "accuracy")}
    return SimpleNamespace(**means)


# Attention maps


@_wrong(rollout)
def rollout_without_the_identity(weights):
    return rollout(weights, residual=False)


@_wrong(rollout)
def rollout_normalized_over_the_queries(weights):
    identity = rolled = torch.eye(weights.shape[-1]).to(weights)
    for block in weights:
        mixed = block.mean(dim=1) + identity
        rolled = mixed / mixed.sum(dim=-2, keepdim=True) @ rolled
    return rolled


@_wrong(patch_map)
def one_map_for_every_image(weights, grid):
    first = weights[:, :1].expand_as(weights)
    return patch_map(first, grid)


# The block of today


@_wrong(rotate)
def one_pair_by_two_angles(x, angles):
    a, b = x.chunk(2, dim=-1)
    angles = angles.repeat_interleave(2, dim=-1)  # right where neighbors are paired
    return x * angles.cos().to(x.dtype) + torch.cat([-b, a], dim=-1) * angles.sin().to(x.dtype)


@_wrong()
class OnlyQueriesTurned(ModernAttention):
    def project(self, x):
        _, k, v = MultiHeadSelfAttention.project(self, x)
        return super().project(x)[0], self.k_norm(k), v


@_wrong(rotary_angles)
def patches_in_single_file(grid, head_dim, base=100.0):
    return rotary_angles((1, grid[0] * grid[1]), head_dim, base)


@_wrong()
class OnlyQueriesNormalized(ModernAttention):
    def project(self, x):
        _, k, v = MultiHeadSelfAttention.project(self, x)
        return super().project(x)[0], k, v


@_wrong()
class RegistersInTheMean(ModernViT):
    def pool(self, z):
        return z[:, 0] if self.config.pool == "class" else z[:, int(self.config.class_token) :].mean(dim=1)


# Masked autoencoders


@_wrong(random_masking)
def argsort_applied_once(x, ratio=0.75, noise=None):
    noise = torch.rand(x.shape[:2]).to(x) if noise is None else noise
    visible, _, _ = random_masking(x, ratio, noise)
    order = noise.argsort(dim=1)
    return visible, order, order >= visible.shape[1]


@_wrong()
class MaskTokensWithoutPositions(MaskedAutoencoder):
    def decode(self, z, restore):
        prefix, visible = self.embed(z).tensor_split([self.num_prefix_tokens], dim=1)
        places = restore.argsort(dim=1)[:, : visible.shape[1]] + self.num_prefix_tokens
        visible = visible + self.positions()[0, places]  # these alone
        z = torch.cat([prefix, add_mask_tokens(visible, self.mask_token, restore)], dim=1)
        return self.to_pixels(self.norm(self.decoder(z))[:, self.num_prefix_tokens :])


@_wrong(masked_loss)
def loss_of_all_patches(predicted, targets, hidden):
    return (predicted - targets).square().mean()


# Agreement without labels


@_wrong(teacher_probabilities)
def answers_not_centered(logits, center, temperature=0.04):
    return (logits / temperature).softmax(dim=-1)


@_wrong(teacher_probabilities)
def answers_not_sharpened(logits, center, temperature=0.04):
    return (logits - center).softmax(dim=-1)


@_wrong(agreement_loss)
def views_compared_with_themselves(student, teacher, temperature=0.1):
    log_p = (student / temperature).log_softmax(dim=-1)
    return -torch.einsum("gbk,vbk->gvb", teacher, log_p).mean()


@_wrong(sigreg)
def directions_of_any_length(z, slices=256):
    return epps_pulley(z @ torch.randn(z.shape[1], slices).to(z)).mean()


# Any number of tokens


@_wrong(same_image)
def only_padding_is_hidden(owner):
    real = owner >= 0
    return (real[:, :, None] & real[:, None, :]).unsqueeze(1)


@_wrong(proportional_attention)
def merged_tokens_count_once(q, k, v, size):
    return attention(q, k, v)[0]


@_wrong(merge_tokens)
def merged_by_the_plain_mean(z, keys, groups, r, num_prefix_tokens=1):
    ones = torch.eye(z.shape[1]).to(z).expand(len(z), -1, -1)  # as if no token had merged before
    merged, pairs = merge_tokens(z, keys, ones, r, num_prefix_tokens)
    return merged, pairs @ groups


@_wrong(window_attention)
def windows_wrap_around(attention, x, grid, window, shift=0):
    image = x.unflatten(1, grid).roll((-shift, -shift), dims=(1, 2)).flatten(1, 2)
    image = window_attention(attention, image, grid, window).unflatten(1, grid)
    return image.roll((shift, shift), dims=(1, 2)).flatten(1, 2)


# Images and words


@_wrong(cosines)
def dot_products_for_cosines(x, y):
    return x @ y.mT


@_wrong(softmax_loss)
def only_images_choose(logits):
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


@_wrong(sigmoid_loss)
def averaged_over_all_pairs(logits):
    return sigmoid_loss(logits) / len(logits)


@_wrong()
class ScaleLearnedAsItIs(ScaleAndBias):
    def __init__(self, scale: float = 1 / 0.07, bias: float = 0.0):
        super().__init__(scale, bias)
        self.t = nn.Parameter(torch.tensor(scale))

    def forward(self, cosine):
        return self.t * cosine + self.bias


@_wrong(name_probabilities)
def images_compete_for_names(logits):
    return logits.softmax(dim=0)


# Out of the notebook


@_wrong(quantize)
def one_scale_for_the_matrix(weight):
    scale = weight.abs().max() / 127
    return (weight / scale).round().to(torch.int8), scale.expand(len(weight), 1)


@_wrong(quantize)
def scale_without_absolute_values(weight):
    scale = weight.amax(dim=1, keepdim=True) / 127
    return (weight / scale).round().long().to(torch.int8), scale


@_wrong(quantize)
def fractions_cut_off(weight):
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return (weight / scale).to(torch.int8), scale


# At work


@_wrong(standardized)
def statistics_from_the_test_part(features, known):
    return standardized(features, torch.cat([known, features]))


@_wrong(split_at_random)
def resampled_before_the_split(split, fraction, seed, class_names):
    drawn = balanced_order(split.labels, len(split), torch.Generator().manual_seed(seed))
    return split_at_random(Split(split.images[drawn], split.labels[drawn]), fraction, seed, class_names)


@_wrong(balanced_accuracy)
def accuracy_on_an_imbalanced_set(confusion):
    return (confusion.trace() / confusion.sum()).item()


# Painting


@_wrong(on_the_path)
def time_reversed(images, noise, t):
    return on_the_path(images, noise, 1 - t)


@_wrong(velocity_loss)
def weight_without_a_bound(guess, images, z, t):
    return ((guess - images) / (1 - t)[:, None, None, None]).square().mean()


@_wrong(guided_guess)
def guidance_the_other_way(model, z, t, labels, guidance):
    none = torch.full_like(labels, model.anything)
    of_class, of_any = model(z, t, labels), model(z, t, none)
    return of_class + guidance * (of_any - of_class)


@_wrong(train_painter)
def running_mean_forgotten(model, *arguments, **settings):
    _, losses = train_painter(model, *arguments, **settings)
    return model, losses
