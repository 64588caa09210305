"""The properties can fail: each passes the right implementation and rejects wrong variants that it is there for.

Those of the wild are tried in test_mistakes.py; here are the others.
"""

import inspect

import properties as check
import pytest
import wrong_variants as wrong
from tables import accepted_and_rejected, defined_in

from vitbook import properties
from vitbook.attention import attention
from vitbook.embedding import ImageEmbedding, resize_positions
from vitbook.encoder import EncoderBlock
from vitbook.mistakes import MISTAKES, StepByStep, as_class, broken_vit
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import PatchEmbedding, patchify, unpatchify
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.transformer import Transformer, causal_mask, padding_mask, sincos_positions
from vitbook.vit import VisionTransformer


def positions_vanish(config):
    return broken_vit(config, "DropoutForgetsThePositions")


ChannelsLastWeights = as_class(MISTAKES["channels_last_in_a_patch"])[1]

# (the property, what is right, what is wrong)
TABLE = [
    (check.attention_equals_torch, attention, [wrong.nan_where_nothing_is_seen]),
    (check.rows_sum_to_one, attention, [wrong.nan_where_nothing_is_seen]),
    (check.multihead_equals_torch, MultiHeadSelfAttention, [wrong.MaskForgotten]),
    (check.multihead_equals_torch, StepByStep, []),  # so that the mistakes built on it are the only ones
    (check.every_dropout_acts, StepByStep, []),
    (check.examples_do_not_mix, EncoderBlock, [wrong.BatchNorm]),
    (
        check.only_the_past_is_seen,
        causal_mask,
        [wrong.future_mask_off_by_one, wrong.past_mask_off_by_one, wrong.causal_mask_flipped],
    ),
    (check.only_words_are_seen, padding_mask, [wrong.padding_mask_flipped]),
    (check.the_future_does_not_leak, Transformer, [wrong.FutureMaskOffByOne]),
    (check.padding_does_not_leak, Transformer, [wrong.PaddingSeenByTheEncoder, wrong.PaddingSeenByTheDecoder]),
    (check.sincos_equals_formula, sincos_positions, [wrong.all_sines_before_all_cosines, wrong.too_many_frequencies]),
    (check.patchify_equals_loops, patchify, [wrong.columns_before_rows]),
    (check.unpatchify_undoes_patchify, unpatchify, [wrong.grid_taken_for_its_transpose]),
    (check.convolution_equals_linear, PatchEmbedding, [wrong.OverlappingPatches, ChannelsLastWeights]),
    (
        check.embedding_equals_equation_1,
        ImageEmbedding,
        [wrong.ClassTokenLast, wrong.PositionsForgotten, wrong.ClassTokenWithoutPosition],
    ),
    (
        check.resizing_equals_zoom,
        resize_positions,
        [wrong.resized_with_rows_for_columns, wrong.resized_not_aligned, wrong.resized_with_the_class_row],
    ),
    (
        check.block_equals_torch,
        EncoderBlock,
        [
            wrong.TorchsOwnEps,
            wrong.NoFirstResidual,
            wrong.NoSecondResidual,
            wrong.ResidualOfTheNormalised,
            wrong.NormAfterwards,
            wrong.TanhGelu,
            wrong.BatchNorm,
        ],
    ),
    (
        check.vit_equals_equations_1_to_4,
        VisionTransformer,
        [wrong.LastTokenForClassToken, wrong.OneBlockUsedThroughout],
    ),
    (check.the_order_of_patches_counts, VisionTransformer, [positions_vanish]),
    (check.first_loss_is_log_k, VisionTransformer, [wrong.HeadStartsAtRandom]),
    (
        check.epoch_equals_the_bare_loop,
        train_epoch,
        [wrong.gradients_never_zeroed, wrong.dropout_left_off, wrong.mean_of_the_batches_losses],
    ),
    (check.evaluation_counts_each_example_once, evaluate, [wrong.evaluated_with_dropout]),
    (
        check.evaluation_leaves_the_mode,
        evaluate,
        [wrong.evaluated_and_left_in_eval, wrong.evaluated_and_left_in_training],
    ),
    (
        check.only_matrices_decay,
        parameter_groups,
        [wrong.biases_forgotten, wrong.embeddings_decay_with_the_matrices],
    ),
    (check.warmup_cosine_equals_formula, warmup_cosine, [wrong.warmup_from_zero, wrong.cosine_from_the_start]),
]

WRONG = [(test, variant) for test, _, variants in TABLE for variant in variants]

pytestmark = pytest.mark.usefixtures("precision")
test_the_right_implementation_passes, test_the_wrong_variant_is_rejected = accepted_and_rejected(TABLE)


def test_every_wrong_variant_is_tried():
    assert {variant for _, variant in WRONG} >= defined_in(wrong)


def test_every_property_can_fail():
    signatures = {value: inspect.signature(value) for module in (check, properties) for value in defined_in(module)}
    checks = {
        value
        for value, s in signatures.items()
        if len(s.parameters) == 1 and s.return_annotation is None and value.__name__[0] != "_"
    }
    tried = {test for test, _ in WRONG} | {test for mistake in MISTAKES.values() for test in mistake.caught_by}
    assert tried == checks
