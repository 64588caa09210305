"""The properties can fail: each passes the right implementation and rejects wrong variants that it is there for.

Those of the wild are tried in test_mistakes.py; here are others, foremost for the properties that no mistake names.
"""

import inspect

import properties as check
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitbook import properties, training, transformer
from vitbook.embedding import ImageEmbedding, resize_positions
from vitbook.encoder import EncoderBlock
from vitbook.mistakes import MISTAKES, StepByStep, as_class, broken_vit
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import PatchEmbedding, unpatchify
from vitbook.vit import VisionTransformer


class MaskForgotten(StepByStep):
    def weigh(self, q, k, mask):
        return super().weigh(q, k, None)


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


def grid_taken_for_its_transpose(flat, patch_size, image_size):
    height, width = image_size
    return unpatchify(flat, patch_size, (width, height)).reshape(len(flat), -1, height, width)


class ClassTokenWithoutPosition(ImageEmbedding):
    def forward(self, images):
        z = super().forward(images)
        return torch.cat([z[:, :1] - self.positions()[:, :1], z[:, 1:]], dim=1)


def resized_with_rows_for_columns(pos_embed, old_grid, new_grid, prefix=1, **how):
    return resize_positions(pos_embed, old_grid[::-1], new_grid, prefix, **how)


def resized_with_the_class_row(pos_embed, old_grid, new_grid, prefix=1, **how):
    tokens = prefix + new_grid[0] * new_grid[1]
    return F.interpolate(pos_embed.mT, size=tokens, mode="linear", align_corners=True).mT


class TorchsOwnEps(EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__(dim, num_heads, mlp_dim)
        self.norm1.eps = self.norm2.eps = 1e-5


class TanhGelu(EncoderBlock):
    def __init__(self, dim, num_heads, mlp_dim):
        super().__init__(dim, num_heads, mlp_dim)
        self.mlp.act = nn.GELU(approximate="tanh")


class NoFirstResidual(EncoderBlock):
    def forward(self, x):
        x = self.attn(self.norm1(x))
        return self.mlp(self.norm2(x)) + x


class LastTokenForClassToken(VisionTransformer):
    def features(self, images):
        return self.tokens(images)[:, -1]


class OneBlockUsedThroughout(VisionTransformer):
    def tokens(self, images):
        z = self.embedding(images)
        for _ in self.encoder.blocks:
            z = self.encoder.blocks[0](z)
        return self.norm(z)


class HeadStartsAtRandom(VisionTransformer):
    def initialize(self):
        self.head.reset_parameters()


def gradients_never_zeroed(model, batches, optimizer):
    optimizer.zero_grad = lambda: None
    return training.train_epoch(model, batches, optimizer)


def dropout_left_off(model, batches, optimizer):
    model.train = lambda mode=True: model
    return training.train_epoch(model, batches, optimizer)


def mean_of_the_batches_losses(model, batches, optimizer):
    return sum(training.train_epoch(model, [batch], optimizer) for batch in batches) / len(batches)


def evaluated_and_left_in_eval(model, batches):
    evaluation = training.evaluate(model, batches)
    model.eval()
    return evaluation


def warmup_from_zero(step, total_steps, warmup_steps):
    return step / warmup_steps if step < warmup_steps else training.warmup_cosine(step, total_steps, warmup_steps)


def cosine_from_the_start(step, total_steps, warmup_steps):
    return min(1, (step + 1) / warmup_steps) * training.warmup_cosine(step, total_steps)


TABLE = [  # the property, what is right, what is wrong
    (check.multihead_equals_torch, MultiHeadSelfAttention, [MaskForgotten]),
    (check.multihead_equals_torch, StepByStep, []),  # so that the mistakes built on it are the only ones
    (check.every_dropout_acts, StepByStep, []),
    (
        check.only_the_past_is_seen,
        transformer.causal_mask,
        [lambda n: torch.ones(n, n).tril(1) > 0, lambda n: torch.ones(n, n).tril(-1) > 0],
    ),
    (
        check.only_words_are_seen,
        transformer.padding_mask,
        [lambda tokens, padding: ~transformer.padding_mask(tokens, padding)],
    ),
    (
        check.padding_does_not_leak,
        transformer.Transformer,
        [PaddingSeenByTheEncoder, PaddingSeenByTheDecoder],
    ),
    (check.sincos_equals_formula, transformer.sincos_positions, [all_sines_before_all_cosines]),
    (check.unpatchify_undoes_patchify, unpatchify, [grid_taken_for_its_transpose]),
    (check.convolution_equals_linear, PatchEmbedding, [as_class(MISTAKES["channels_last_in_a_patch"])[1]]),
    (check.embedding_equals_equation_1, ImageEmbedding, [ClassTokenWithoutPosition]),
    (check.resizing_equals_zoom, resize_positions, [resized_with_rows_for_columns, resized_with_the_class_row]),
    (check.block_equals_torch, EncoderBlock, [TorchsOwnEps, TanhGelu, NoFirstResidual]),
    (check.vit_equals_equations_1_to_4, VisionTransformer, [LastTokenForClassToken, OneBlockUsedThroughout]),
    (
        check.the_order_of_patches_counts,
        VisionTransformer,
        [lambda config: broken_vit(config, "DropoutForgetsThePositions")],
    ),
    (check.first_loss_is_log_k, VisionTransformer, [HeadStartsAtRandom]),
    (
        check.epoch_equals_the_bare_loop,
        training.train_epoch,
        [gradients_never_zeroed, dropout_left_off, mean_of_the_batches_losses],
    ),
    (check.evaluation_leaves_the_mode, training.evaluate, [evaluated_and_left_in_eval]),
    (check.warmup_cosine_equals_formula, training.warmup_cosine, [warmup_from_zero, cosine_from_the_start]),
]

pytestmark = pytest.mark.usefixtures("precision")


@pytest.mark.parametrize(("test", "right", "variants"), TABLE)
def test_the_right_implementation_passes_and_the_wrong_variants_are_rejected(test, right, variants):
    test(right)
    for wrong in variants:
        with pytest.raises(AssertionError):
            test(wrong)


def test_every_property_can_fail():
    functions = {
        f
        for module in (check, properties)
        for name, f in vars(module).items()
        if name[0] != "_" and inspect.isfunction(f)
    }
    signatures = {f: inspect.signature(f) for f in functions if f.__module__ in ("properties", "vitbook.properties")}
    signatures = {f: s for f, s in signatures.items() if f.__name__[0] != "_"}
    checks = {f for f, s in signatures.items() if len(s.parameters) == 1 and s.return_annotation is None}
    rejecting = {test for test, _, variants in TABLE if variants}
    assert rejecting | {test for mistake in MISTAKES.values() for test in mistake.caught_by} == checks
