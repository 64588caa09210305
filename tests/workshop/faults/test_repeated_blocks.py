"""A deep model is asked by means of a few of its blocks where they are alike, and a fault of one alone is found."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from gallery import IMAGE
from small_models import D, K, small_config
from styles import TimmBlock, TimmViT
from torch import nn

from vitbook.vit import VisionTransformer
from vitbook_workshop.faults import model_wrapper
from vitbook_workshop.faults.diagnosis import examine
from vitbook_workshop.faults.model_under_test import ModelUnderTest, copy_of

pytestmark = pytest.mark.door  # the models are anybody's
DEPTH, ONE = 7, 2  # neither the first, nor the one in the middle, nor the last


@pytest.fixture(autouse=True)
def every_model_is_large(monkeypatch):
    monkeypatch.setattr(model_wrapper, "LARGE", 0)


def left_out(model: nn.Module) -> int:
    return len(ModelUnderTest(model, IMAGE, K).without)


def failures(model: nn.Module) -> set[str]:
    return {finding.name for finding in examine(model, IMAGE, K) if finding.result == "FAILED"}


class Mixing(TimmBlock):
    def forward(self, x):
        return super().forward(x) + x.mean(dim=0, keepdim=True)


class Single(TimmBlock):
    def forward(self, x):
        return super().forward(F.linear(x, torch.eye(D)))


class Replacing(TimmBlock):
    def forward(self, x):
        x = self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def a_fault_of(part: str, fault: str):
    def make(model):
        model.blocks[ONE].get_submodule(part).faults = (fault,)

    return make


def a_class(kind: type):
    def make(model):
        model.blocks[ONE].__class__ = kind

    return make


def is_changed_from_outside(model):
    model.blocks[ONE].register_forward_hook(lambda block, got, output: output + torch.rand_like(output))


def test_of_blocks_alike_three_stay():
    for model in (TimmViT(depth=DEPTH), VisionTransformer(small_config(depth=DEPTH))):
        assert left_out(model) == DEPTH - 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "question"),
    [
        (a_fault_of("attn", "dropout"), "evaluation_is_deterministic"),
        (a_fault_of("attn", "causal"), "tokens_see_the_later_ones"),
        (a_fault_of("attn", "scaled twice"), "scores_are_scaled"),
        (a_fault_of("attn", "merge"), "heads_keep_tokens_whole"),
        (a_class(Mixing), "images_do_not_mix"),
        (a_class(Single), "float64_works"),
        (a_class(Replacing), "blocks_add"),
        (is_changed_from_outside, "evaluation_is_deterministic"),
    ],
)
def test_a_fault_of_one_block_is_found(make, question):
    model = TimmViT(depth=DEPTH)
    make(model)
    assert left_out(model) == 0
    assert question in failures(model)


def test_faults_of_all_blocks_are_found_by_means_of_a_few():
    model = TimmViT("dropout", "scaled twice", depth=DEPTH)
    assert left_out(model) == DEPTH - 3
    assert failures(model) == {"evaluation_is_deterministic", "scores_are_scaled"}


def test_a_fault_between_two_blocks_is_found():
    class Drops(TimmViT):
        def forward(self, images):
            x = self.embed(images)
            for i, block in enumerate(self.blocks):
                x = block(F.dropout(x) if i == ONE else x)
            return self.head(self.norm(x)[:, 0])

    model = Drops(depth=DEPTH)
    assert left_out(model) == 0
    assert "evaluation_is_deterministic" in failures(model)


def test_nothing_holds_a_copy_that_is_no_longer_needed():
    copy = weakref.ref(copy_of(TimmViT()))
    assert copy() is None


def test_what_one_block_does_not_learn_is_found_though_it_is_left_out():
    model = TimmViT(depth=DEPTH)
    model.blocks[ONE].mlp[0].weight.requires_grad_(False)
    assert left_out(model) == DEPTH - 3
    assert failures(model) == {"parameters_play_a_part"}


def test_what_does_not_run_with_few_blocks_is_asked_with_all():
    class Reads(TimmViT):
        def forward(self, images):
            assert all(block.attn for block in self.blocks)
            return super().forward(images)

    assert left_out(Reads(depth=DEPTH)) == 0
    assert left_out(TimmViT(depth=3)) == 0


def test_a_right_model_of_many_blocks_passes_clean():
    assert not failures(TimmViT(depth=DEPTH))
