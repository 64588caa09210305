"""The data at hand: shapes, ranges, splits, statistics, and the order in which it is seen."""

from dataclasses import replace

import numpy as np
import properties as check
import pytest
import torch
from on_a_gpu import OnAGpu
from sklearn.datasets import load_digits

from vitbook.data import PHOTOGRAPHS, Dataset, Split, digits, normalise, photograph


@pytest.fixture(scope="module")
def data():
    return digits()


def test_the_digits_are_all_there_and_in_one_split_alone(data):
    raw = load_digits()
    images = torch.cat([data.train.images, data.test.images])
    labels = torch.cat([data.train.labels, data.test.labels])
    got = sorted(zip(images.flatten(1).tolist(), labels.tolist(), strict=True))
    stretched = np.round(raw.data * 255 / 16).astype(int).tolist()
    assert got == sorted(zip(stretched, raw.target.tolist(), strict=True))


def test_the_digits_have_the_documented_form(data):
    assert (data.name, data.class_names) == ("digits", tuple("0123456789"))
    for split in (data.train, data.test):
        assert split.images.shape == (len(split), 1, 8, 8) and split.labels.shape == (len(split),)
        assert (split.images.dtype, split.labels.dtype) == (torch.uint8, torch.int64)
        assert (split.images.min(), split.images.max()) == (0, 255)
    assert (len(data.train), len(data.test)) == (1437, 360)


@pytest.mark.parametrize("test_fraction", [0.2, 0.5])
def test_every_class_is_in_proportion(test_fraction):
    data = digits(test_fraction)
    train, test = (split.labels.bincount() for split in (data.train, data.test))
    assert ((test - test_fraction * (train + test)).abs() < 1).all()


def test_the_split_follows_the_seed(data):
    assert torch.equal(digits().test.images, data.test.images)
    assert not torch.equal(digits(seed=1).test.images, data.test.images)


def test_mean_and_deviation_are_numpys(data):
    pixels = data.train.images.numpy() / 255
    np.testing.assert_allclose(data.mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(data.std, pixels.std(axis=(0, 2, 3)), rtol=1e-6)


def test_normalised_training_pictures_have_mean_0_and_deviation_1(data):
    images = data.normalise(data.train.images)
    assert images.dtype == torch.float32
    torch.testing.assert_close(images.mean(), torch.tensor(0.0), rtol=0, atol=1e-5)
    torch.testing.assert_close(images.std(correction=0), torch.tensor(1.0), rtol=0, atol=1e-5)


@pytest.mark.parametrize("level", [0, 200])
def test_a_channel_of_one_level_becomes_0(level):
    images = torch.randint(256, (4, 3, 5, 6), dtype=torch.uint8)
    images[:, 1] = level
    data = Dataset("red and blue", Split(images, torch.zeros(4, dtype=torch.int64)), None, ("one",))
    assert data.std[1] == 1 and data.std[0] < 1
    assert data.normalise(images).isfinite().all() and not data.normalise(images)[:, 1].any()


def test_a_data_set_may_lie_on_a_gpu(data):
    train = Split(data.train.images.as_subclass(OnAGpu), data.train.labels.as_subclass(OnAGpu))
    there, here = (one.with_validation(0.25) for one in (replace(data, train=train), data))
    for ours, theirs in ((here.train, there.train), (here.validation, there.validation)):
        assert isinstance(theirs.images, OnAGpu) and torch.equal(theirs.images.cpu(), ours.images)
        assert isinstance(theirs.labels, OnAGpu) and torch.equal(theirs.labels.cpu(), ours.labels)
    assert torch.equal(there.mean, here.mean) and torch.equal(there.std, here.std)


def test_each_channel_is_normalised_by_its_own_numbers():
    images = torch.randint(256, (2, 3, 4, 5), dtype=torch.uint8)
    mean, std = torch.tensor([0.1, 0.5, 0.7]), torch.tensor([0.2, 0.3, 0.4])
    got = normalise(images, mean, std)
    for channel in range(3):
        check.close(got[:, channel], (images[:, channel] / 255 - mean[channel]) / std[channel])


def test_a_loader_gives_every_normalised_picture_with_its_label_in_order(data):
    batches = list(data.loader(data.test, 50))
    assert [len(labels) for _, labels in batches] == [50] * 7 + [10]
    images, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert torch.equal(images, data.normalise(data.test.images))
    assert torch.equal(labels, data.test.labels)


def test_a_shuffled_loader_follows_its_seed_and_no_other_random_number(data):
    def orders(seed):
        torch.rand(1)  # what else is drawn does not matter
        loader = data.loader(data.test, 360, shuffle=True, seed=seed)
        return [next(iter(loader)) for _ in range(2)]

    (first, second), again, other = orders(0), orders(0), orders(1)
    assert torch.equal(first[1], again[0][1]) and torch.equal(second[1], again[1][1])
    assert not torch.equal(first[1], second[1]), "each epoch has an order of its own"
    assert not torch.equal(first[1], other[0][1])
    key = {tuple(x.flatten().tolist()): y for x, y in zip(first[0], first[1].tolist(), strict=True)}
    assert all(key[tuple(x.flatten().tolist())] == y for x, y in zip(second[0], second[1].tolist(), strict=True))


@pytest.mark.parametrize(("share", "each"), [(0.01, 1), (0.05, 7), (0.2, 29), (1, None)])
def test_a_share_of_every_class_is_repeated_in_turn_to_the_old_length(data, share, each):
    few = data.with_share(share).train
    assert len(few) == len(data.train) == 1437
    distinct, times = torch.cat([few.images.flatten(1).long(), few.labels[:, None]], dim=1).unique(
        dim=0, return_counts=True
    )
    per_class = distinct[:, -1].bincount()
    whole = {
        (tuple(x.flatten().tolist()), y) for x, y in zip(data.train.images, data.train.labels.tolist(), strict=True)
    }
    assert {(tuple(row[:-1].tolist()), int(row[-1])) for row in distinct} <= whole
    if each is None:
        assert torch.equal(few.images, data.train.images) and torch.equal(few.labels, data.train.labels)
    else:
        assert (per_class - each).abs().max() <= 1 and times.max() - times.min() <= 1


def test_a_share_follows_its_seed_and_may_have_another_length(data):
    one, again, other = (data.with_share(0.05, seed) for seed in (0, 0, 1))
    assert torch.equal(one.train.images, again.train.images)
    assert not torch.equal(one.train.images, other.train.images)
    longer = data.with_share(0.05, length=2000).train
    assert len(longer) == 2000 and torch.equal(longer.images[:1437], one.train.images)
    assert torch.equal(data.with_share(1, length=7).train.labels, data.train.labels[:7])
    assert one.test is data.test and not torch.equal(one.mean, data.mean), "statistics are of the pictures at hand"


@pytest.mark.parametrize(("name", "size"), [("china", (427, 640)), ("flower", (427, 640)), ("portrait", (224, 224))])
def test_each_photograph_has_the_documented_form(name, size):
    picture = photograph(name)
    assert (picture.shape, picture.dtype) == ((3, *size), torch.uint8)
    assert picture.is_contiguous() and picture.min() < 20 and picture.max() > 235


def test_a_photograph_is_the_readers_own_copy():
    assert set(PHOTOGRAPHS) == {"china", "flower", "portrait"}
    before = photograph("china").clone()
    photograph("china").zero_()
    assert torch.equal(photograph("china"), before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: digits().with_share(0.0), "between 0 and 1, got 0.0"),
        (lambda: digits().with_share(1.5), "between 0 and 1, got 1.5"),
        (lambda: digits().with_share(0.5, length=0), "length must be at least 1, got 0"),
        (lambda: photograph("chine"), "china, flower, portrait, got 'chine'"),
        (lambda: normalise(torch.rand(2, 3, 4, 5), torch.ones(3), torch.ones(3)), "uint8, 0 to 255, got torch.float32"),
        (
            lambda: normalise(torch.zeros(2, 1, 4, 5, dtype=torch.uint8), torch.ones(3), torch.ones(3)),
            r"with C = 3, got \(2, 1, 4, 5\)",
        ),
        (
            lambda: normalise(torch.zeros(3, 4, 5, dtype=torch.uint8), torch.ones(3), torch.ones(3)),
            r"\(B, C, H, W\) .* got \(3, 4, 5\)",
        ),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
