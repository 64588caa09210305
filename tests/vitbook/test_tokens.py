"""Any number of tokens: packed equals alone, unmerged equals the model, windows equal masked attention."""

import pytest
import small_models
import torch
from small_models import backbone, of_every_kind
from torch.testing import assert_close

from vitbook import tokens
from vitbook.tokens import encode_merging, merging_logits, pack, packed_features, unpack


def images_of_several_sizes() -> list[torch.Tensor]:
    return [torch.randn(3, height, width, dtype=torch.float64) for height, width in ((8, 12), (4, 4), (12, 8), (8, 8))]


@of_every_kind
@torch.no_grad()
def test_packed_images_have_the_features_that_they_have_alone(changes):
    model, images = backbone(**changes), images_of_several_sizes()
    if "rotary_base" in changes:
        with pytest.raises(ValueError, match="cannot be packed or merged in a model with rotary positions"):
            packed_features(model, images, length=16)
        return
    together = packed_features(model, images, length=16)
    assert_close(together, torch.cat([model.features(image[None], any_size=True) for image in images]))
    assert_close(together[:1], model.features(images[0][None]))  # of the size that the model was made for
    model.resize((12, 8))
    assert_close(together[2:3], model.features(images[2][None]))


def test_packing_fills_the_first_row_with_room_and_unpacking_undoes_it():
    sequences = [torch.randn(length, 4) for length in (5, 4, 2, 3, 1)]
    packed, owner = pack(sequences, length=7)
    assert owner.tolist() == [[0, 0, 0, 0, 0, 2, 2], [1, 1, 1, 1, 3, 3, 3], [4, -1, -1, -1, -1, -1, -1]]
    assert not packed[owner < 0].any()
    for sequence, unpacked in zip(sequences, unpack(packed, owner), strict=True):
        assert_close(unpacked, sequence, rtol=0, atol=0)


def test_a_sequence_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match="a row has 4 tokens, and sequence 1 has 5"):
        pack([torch.zeros(3, 2), torch.zeros(5, 2)], length=4)


@of_every_kind
@torch.no_grad()
def test_merging_nothing_is_the_model(changes):
    model, images = backbone(**changes), small_models.pictures()
    if "rotary_base" in changes:
        with pytest.raises(ValueError, match="cannot be packed or merged in a model with rotary positions"):
            merging_logits(model, images, r=0)
        return
    assert_close(merging_logits(model, images, r=0), model(images))
    assert small_models.differ(merging_logits(model, images, r=1), model(images))


@torch.no_grad()
def test_a_merged_token_counts_in_the_mean_as_often_as_patches_are_in_it():
    model, images = backbone(pool="mean"), small_models.pictures()
    z, groups = encode_merging(model.encoder, model.embedding(images), r=2)
    patches = groups[:, :, 1:].sum(dim=-1, keepdim=True)
    assert_close(
        merging_logits(model, images, r=2), model.head((model.norm(z) * patches).sum(dim=1) / patches.sum(dim=1))
    )


@torch.no_grad()
def test_merging_goes_down_to_the_class_token():
    model, images = backbone(), small_models.pictures()
    z, groups = encode_merging(model.encoder, model.embedding(images), r=9)
    tokens_left = 7
    for _ in model.encoder.blocks:
        tokens_left -= (tokens_left - 1) // 2
    assert z.shape[1] == tokens_left
    assert_close(groups.sum(dim=1), torch.ones(2, 7, dtype=torch.float64))
    assert groups[:, 0].sum(dim=-1).tolist() == [1, 1]  # the class token is alone


@torch.no_grad()
def test_the_most_similar_pair_merges():
    z = torch.tensor([[[9.0, 9], [1, 0], [0, 1], [0.9, 0.1], [-1, 0], [0, -1], [-1, -1]]])  # A: 0 2 4 6, B: 1 3 5
    merged, groups = tokens.merge_tokens(z, z, torch.eye(7)[None], r=1)
    assert_close(groups[0, 5], torch.tensor([0.0, 0, 0, 0, 0, 1, 1]))  # 6 joins 5, at a cosine of 0.71
    assert_close(merged[0], torch.tensor([[9.0, 9], [0, 1], [-1, 0], [1, 0], [0.9, 0.1], [-0.5, -1]]))


@torch.no_grad()
def test_dropping_keeps_the_class_token_and_patches_as_they_were():
    z, groups = torch.randn(3, 9, 5), torch.eye(9).expand(3, -1, -1)
    kept, of = tokens.drop_tokens(z, z, groups, r=6)
    assert_close(kept, of @ z, rtol=0, atol=0)
    assert of.sum(dim=-1).eq(1).all() and of[:, 0, 0].eq(1).all() and of.sum(dim=1).max() == 1
    assert len({tuple(row.tolist()) for row in of.argmax(dim=-1)}) > 1, "each image has its own"
    assert_close(tokens.drop_tokens(z, z, groups, r=0), (z, groups))


@torch.no_grad()
def test_the_last_blocks_merge_changes_no_answer_that_a_class_token_gives():
    model, images = backbone(), small_models.pictures()
    calls = iter([2, 2, 0][-len(model.encoder.blocks) :])

    def but_not_in_the_last(z, keys, groups, r, prefix):
        return tokens.merge_tokens(z, keys, groups, next(calls), prefix)

    assert_close(merging_logits(model, images, 2, but_not_in_the_last), merging_logits(model, images, 2))


def test_fewer_than_no_tokens_cannot_merge():
    with pytest.raises(ValueError, match="r must be 0 or more, got -1"):
        merging_logits(backbone(), small_models.pictures(), -1)


@pytest.mark.door
def test_windows_have_to_fill_the_grid():
    with pytest.raises(ValueError, match="windows of 4×4 patches do not fill a grid of 4×6"):
        tokens.window_attention(None, torch.zeros(1, 24, 12), (4, 6), 4)
