"""The properties can fail: each passes the right implementation and rejects wrong variants that it is there for.

Those of the wild are tried in test_mistakes.py; here are others, for the properties that no mistake names.
"""

import inspect

import properties as check
import pytest
import torch

from vitbook import training, transformer
from vitbook.embedding import resize_positions
from vitbook.encoder import Encoder, EncoderBlock
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import PatchEmbedding, unpatchify
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults import checks_of_parts
from vitbook_workshop.faults.mistakes import MISTAKES, StepByStep, as_class, broken_vit


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


def resized_with_rows_for_columns(pos_embed, old_grid, new_grid, prefix=1, **how):
    return resize_positions(pos_embed, old_grid[::-1], new_grid, prefix, **how)


class HeadStartsAtRandom(VisionTransformer):
    def initialize(self):
        self.head.reset_parameters()


def gradients_never_zeroed(model, batches, optimizer):
    optimizer.zero_grad = lambda: None
    return training.train_epoch(model, batches, optimizer)


def evaluated_and_left_in_eval(model, batches):
    evaluation = training.evaluate(model, batches)
    model.eval()
    return evaluation


def warmup_from_zero(step, total_steps, warmup_steps):
    return step / warmup_steps if step < warmup_steps else training.warmup_cosine(step, total_steps, warmup_steps)


LAYERS = [MultiHeadSelfAttention, transformer.EncoderLayer, EncoderBlock, Encoder]
OF_EVERY_LAYER = [check.tokens_have_no_order, check.examples_do_not_mix, check.eval_is_deterministic]

TABLE = [  # the property, what is right, what is wrong
    *((test, layer, []) for test in OF_EVERY_LAYER for layer in LAYERS),
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
    (check.padding_does_not_leak, transformer.Transformer, [PaddingSeenByTheEncoder, PaddingSeenByTheDecoder]),
    (check.sincos_equals_formula, transformer.sincos_positions, [all_sines_before_all_cosines]),
    (check.unpatchify_undoes_patchify, unpatchify, [grid_taken_for_its_transpose]),
    (check.convolution_equals_linear, PatchEmbedding, [as_class(MISTAKES["channels_last_in_a_patch"])[1]]),
    (check.resizing_equals_zoom, resize_positions, [resized_with_rows_for_columns]),
    (
        check.the_order_of_patches_counts,
        VisionTransformer,
        [lambda config: broken_vit(config, "DropoutForgetsThePositions")],
    ),
    (check.first_loss_is_log_k, VisionTransformer, [HeadStartsAtRandom]),
    (check.epoch_equals_the_bare_loop, training.train_epoch, [gradients_never_zeroed]),
    (check.evaluation_leaves_the_mode, training.evaluate, [evaluated_and_left_in_eval]),
    (check.warmup_cosine_equals_formula, training.warmup_cosine, [warmup_from_zero]),
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
        for module in (check, checks_of_parts)
        for name, f in vars(module).items()
        if name[0] != "_" and inspect.isfunction(f)
    }
    signatures = {
        f: inspect.signature(f)
        for f in functions
        if f.__module__ in ("properties", "vitbook_workshop.faults.checks_of_parts")
    }
    signatures = {f: s for f, s in signatures.items() if f.__name__[0] != "_"}
    checks = {f for f, s in signatures.items() if len(s.parameters) == 1 and s.return_annotation is None}
    rejecting = {test for test, _, variants in TABLE if variants}
    assert rejecting | {test for mistake in MISTAKES.values() for test in mistake.caught_by} == checks
