"""Each check of a part can fail: it passes the right implementation and rejects wrong variants that it is there for.

Those of the wild are tried in test_mistakes.py; here are others, for the checks that no mistake names.
"""

import pytest
import torch

from vitbook import training, transformer
from vitbook.encoder import Encoder, EncoderBlock
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import PatchEmbedding, unpatchify
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.invariants import INVARIANTS
from vitbook_workshop.faults.mistakes import MISTAKES, as_class, broken_vit
from vitbook_workshop.faults.mistakes.parts import StepByStep


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
OF_EVERY_LAYER = ["tokens_have_no_order", "images_do_not_mix", "evaluation_is_deterministic"]

TABLE = [  # what must hold, what is right, what is wrong
    *((test, layer, []) for test in OF_EVERY_LAYER for layer in LAYERS),
    ("multihead_equals_torch", StepByStep, []),  # so that the mistakes built on it are the only ones
    ("every_dropout_acts", StepByStep, []),
    (
        "only_the_past_is_seen",
        transformer.causal_mask,
        [lambda n: torch.ones(n, n).tril(1) > 0, lambda n: torch.ones(n, n).tril(-1) > 0],
    ),
    (
        "only_words_are_seen",
        transformer.padding_mask,
        [lambda tokens, padding: ~transformer.padding_mask(tokens, padding)],
    ),
    ("padding_does_not_leak", transformer.Transformer, [PaddingSeenByTheEncoder, PaddingSeenByTheDecoder]),
    ("sincos_equals_formula", transformer.sincos_positions, [all_sines_before_all_cosines]),
    ("unpatchify_undoes_patchify", unpatchify, [grid_taken_for_its_transpose]),
    ("convolution_equals_linear", PatchEmbedding, [as_class(MISTAKES["channels_last_in_a_patch"])[1]]),
    (
        "order_counts",
        VisionTransformer,
        [lambda config: broken_vit(config, "DropoutForgetsThePositions")],
    ),
    ("first_loss_is_near_ln_k", VisionTransformer, [HeadStartsAtRandom]),
    ("epoch_equals_the_bare_loop", training.train_epoch, [gradients_never_zeroed]),
    ("evaluation_leaves_the_mode", training.evaluate, [evaluated_and_left_in_eval]),
    ("warmup_cosine_equals_formula", training.warmup_cosine, [warmup_from_zero]),
]

pytestmark = pytest.mark.usefixtures("precision")


@pytest.mark.parametrize(("name", "right", "variants"), TABLE)
def test_the_right_implementation_passes_and_the_wrong_variants_are_rejected(name, right, variants):
    check = INVARIANTS[name].of_part
    check(right)
    for wrong in variants:
        with pytest.raises(AssertionError):
            check(wrong)


def test_every_check_of_a_part_can_fail():
    rejecting = {name for name, _, variants in TABLE if variants}
    rejecting |= {name for mistake in MISTAKES.values() for name in mistake.caught_by}
    assert rejecting == {name for name, must_hold in INVARIANTS.items() if must_hold.of_part}
