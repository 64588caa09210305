"""The checks can fail: each passes the right implementation and rejects the mistakes that it is there for."""

import inspect

import properties as check
import pytest
import torch
import wrong_variants as wrong

from vitbook.attention import attention
from vitbook.embedding import ImageEmbedding, resize_positions
from vitbook.encoder import Encoder, EncoderBlock
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import PatchEmbedding, patchify, unpatchify
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.transformer import Transformer, causal_mask, padding_mask, sincos_positions
from vitbook.vit import VisionTransformer

# (the check, what is right, what is wrong)
TABLE = [
    (
        check.attention_equals_torch,
        attention,
        [
            wrong.softmax_over_the_queries,
            wrong.softmax_over_the_first_axis,
            wrong.no_scale,
            wrong.multiplied_by_the_scale,
            wrong.scaled_after_the_softmax,
            wrong.mask_says_where_not_to_look,
            wrong.mask_added_as_zero_and_one,
            wrong.masked_after_the_softmax,
            wrong.nan_where_nothing_is_seen,
        ],
    ),
    (
        check.rows_sum_to_one,
        attention,
        [
            wrong.softmax_over_the_queries,
            wrong.softmax_over_the_first_axis,
            wrong.scaled_after_the_softmax,
            wrong.masked_after_the_softmax,
            wrong.nan_where_nothing_is_seen,
        ],
    ),
    (
        check.hidden_keys_do_not_leak,
        attention,
        [
            wrong.mask_says_where_not_to_look,
            wrong.mask_added_as_zero_and_one,
            wrong.masked_after_the_softmax,
        ],
    ),
    (
        check.multihead_equals_torch,
        MultiHeadSelfAttention,
        [
            wrong.ScaledByTheWholeWidth,
            wrong.HeadsNotSplit,
            wrong.ViewWithoutTranspose,
            wrong.MergedWithoutTranspose,
            wrong.QkvInterleaved,
            wrong.HeadsSeeASlice,
            wrong.NoOutputProjection,
            wrong.MaskForgotten,
        ],
    ),
    (check.multihead_equals_torch, wrong.RightHeads, []),  # so that the mistakes above are the only ones
    (
        check.tokens_have_no_order,
        EncoderBlock,
        [wrong.ViewWithoutTranspose, wrong.MergedWithoutTranspose, wrong.FunctionalDropout],
    ),
    (check.examples_do_not_mix, EncoderBlock, [wrong.TokensFirst, wrong.BatchNorm]),
    (check.eval_is_deterministic, EncoderBlock, [wrong.FunctionalDropout]),
    (
        check.only_the_past_is_seen,
        causal_mask,
        [wrong.future_mask_off_by_one, wrong.past_mask_off_by_one, wrong.causal_mask_flipped],
    ),
    (check.only_words_are_seen, padding_mask, [wrong.padding_mask_flipped]),
    (
        check.the_future_does_not_leak,
        Transformer,
        [wrong.FutureMaskOffByOne, wrong.MaskStopsAfterTheFirstLayer],
    ),
    (check.padding_does_not_leak, Transformer, [wrong.PaddingSeenByTheEncoder, wrong.PaddingSeenByTheDecoder]),
    (
        check.sincos_equals_formula,
        sincos_positions,
        [wrong.all_sines_before_all_cosines, wrong.too_many_frequencies],
    ),
    (
        check.patchify_equals_loops,
        patchify,
        [wrong.channels_last_in_a_patch, wrong.view_without_permute, wrong.columns_before_rows],
    ),
    (check.unpatchify_undoes_patchify, unpatchify, [wrong.grid_taken_for_its_transpose]),
    (check.convolution_equals_linear, PatchEmbedding, [wrong.ChannelsLastWeights, wrong.OverlappingPatches]),
    (
        check.embedding_equals_equation_1,
        ImageEmbedding,
        [wrong.ClassTokenLast, wrong.PositionsForgotten, wrong.ClassTokenWithoutPosition],
    ),
    (check.parameters_fit_every_batch, ImageEmbedding, [wrong.BatchSizedClassToken]),
    (
        check.resizing_equals_zoom,
        resize_positions,
        [wrong.resized_with_rows_for_columns, wrong.resized_not_aligned, wrong.resized_with_the_class_row],
    ),
    (
        check.block_equals_torch,
        EncoderBlock,
        [
            wrong.UnbiasedVariance,
            wrong.TorchsOwnEps,
            wrong.NoFirstResidual,
            wrong.NoSecondResidual,
            wrong.ResidualOfTheNormalised,
            wrong.NormAfterwards,
            wrong.GeluTwice,
            wrong.TanhGelu,
            wrong.FunctionalDropout,
            wrong.BatchNorm,
        ],
    ),
    (check.blocks_start_different, Encoder, [wrong.DeepCopiedBlocks]),
    (
        check.vit_equals_equations_1_to_4,
        VisionTransformer,
        [
            wrong.NoFinalNorm,
            wrong.MeanForClassToken,
            wrong.LastTokenForClassToken,
            wrong.OneBlockUsedThroughout,
        ],
    ),
    (
        check.mean_pooling_ignores_the_class_token,
        VisionTransformer,
        [wrong.MeanForClassToken],
    ),
    (check.first_loss_is_log_k, VisionTransformer, [wrong.HeadStartsAtRandom]),
    (
        check.epoch_equals_the_bare_loop,
        train_epoch,
        [
            wrong.softmax_before_cross_entropy,
            wrong.gradients_never_zeroed,
            wrong.dropout_left_off,
            wrong.mean_of_the_batches_losses,
        ],
    ),
    (
        check.evaluation_counts_each_example_once,
        evaluate,
        [wrong.every_batch_weighs_alike, wrong.evaluated_with_dropout],
    ),
    (
        check.evaluation_leaves_the_mode,
        evaluate,
        [wrong.evaluated_and_left_in_eval, wrong.evaluated_and_left_in_training],
    ),
    (
        check.only_matrices_decay,
        parameter_groups,
        [wrong.everything_decays, wrong.biases_forgotten, wrong.embeddings_decay_with_the_matrices],
    ),
    (check.decay_is_decoupled, torch.optim.AdamW, [wrong.decay_as_l2_in_adam]),
    (
        check.warmup_cosine_equals_formula,
        warmup_cosine,
        [wrong.warmup_from_zero, wrong.cosine_from_the_start],
    ),
]

RIGHT = [(test, right) for test, right, _ in TABLE]
WRONG = [(test, variant) for test, _, variants in TABLE for variant in variants]


def name(value) -> str:
    return value.__name__


pytestmark = pytest.mark.usefixtures("precision")


@pytest.mark.parametrize(("test", "right"), RIGHT, ids=name)
def test_the_right_implementation_passes(test, right):
    test(right)


@pytest.mark.parametrize(("test", "variant"), WRONG, ids=name)
def test_the_wrong_variant_is_rejected(test, variant):
    with pytest.raises(AssertionError):
        test(variant)


def defined_in(module) -> list:
    """The functions and classes that a module defines itself."""
    return [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]


def test_every_wrong_variant_is_tried():
    scaffolding = {wrong.RightHeads, wrong.UnbiasedNorm}
    assert {variant for _, variant in WRONG} == set(defined_in(wrong)) - scaffolding


def test_every_check_can_fail():
    signatures = {value: inspect.signature(value) for value in defined_in(check)}
    checks = {value for value, s in signatures.items() if len(s.parameters) == 1 and s.return_annotation is None}
    assert {test for test, _ in WRONG} == checks
