"""The published layouts, byte by byte, and what is said about files that have another."""

import re
from urllib.parse import urlsplit

import numpy as np
import pytest
from small_sets import SMALL_SETS, jpeg, put_in_place, tar_gz, unpack

from vitbook.downloads.datasets import SOURCES

pytestmark = pytest.mark.filterwarnings("error")  # such as torch's over memory that may not be written to
EACH = pytest.mark.parametrize("name", SOURCES)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    put_in_place(monkeypatch, "http://127.0.0.1:1")


def load(name: str, folder, **changes: bytes | None):
    """The small set, unpacked with some of its files changed, or None to leave one out."""
    small = SMALL_SETS[name]
    place = unpack(small, folder / SOURCES[name].folder)
    for file, content in changes.items():
        (place / file).unlink(missing_ok=True)
        if content is not None:
            (place / file).write_bytes(content)
    return SOURCES[name].load(folder)


# The addresses


@EACH
def test_what_is_said_of_a_source_is_complete(name, monkeypatch):
    monkeypatch.undo()  # the true sources
    source = SOURCES[name]
    assert source.name == name and source.mirrors and source.about
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in source.files.values())
    for mirror in source.mirrors:
        parts = urlsplit(mirror)
        assert parts.scheme in ("http", "https") and parts.netloc and not mirror.endswith("/") and not parts.query


def test_the_small_sets_have_the_names_of_the_published_ones(monkeypatch):
    monkeypatch.undo()
    assert {name: list(source.files) for name, source in SOURCES.items()} == {
        name: list(small.published) for name, small in SMALL_SETS.items()
    }


# CIFAR: a record is its labels and a red, a green and a blue plane, row by row


def test_a_cifar10_record_byte_by_byte(tmp_path):
    record = bytearray(1 + 3072)
    record[0] = 7
    record[1 + 2 * 32 + 5] = 101  # red, row 2, column 5
    record[1 + 1024 + 31] = 102  # green, row 0, column 31
    record[1 + 2048 + 31 * 32] = 103  # blue, row 31, column 0
    (images, labels), _, class_names = load("cifar10", tmp_path, **{"data_batch_1.bin": bytes(record)})
    assert labels[0] == 7 and class_names[7] == "horse"
    assert (images[0, 0, 2, 5], images[0, 1, 0, 31], images[0, 2, 31, 0]) == (101, 102, 103)
    assert images[0].sum() == 101 + 102 + 103


def test_of_the_two_labels_of_cifar100_the_fine_one_counts(tmp_path):
    record = bytes([19, 42]) + bytes([9]) + bytes(3071)
    (images, labels), _, class_names = load("cifar100", tmp_path, **{"train.bin": record})
    assert labels.tolist() == [42] and class_names[42] == "kind_42"
    assert images[0, 0, 0, 0] == 9 and images.sum() == 9


RECORD = bytes(3073)
CIFAR10_FAULTS = {
    "a batch is missing": ({"data_batch_3.bin": None}, "should contain data_batch_3.bin, and does not"),
    "the names are missing": ({"batches.meta.txt": None}, "should contain batches.meta.txt, and does not"),
    "a batch is cut short": (
        {"data_batch_5.bin": RECORD[:-1]},
        "data_batch_5.bin should be records of 3,073 bytes, has 3,072",
    ),
    "a batch is too long": (
        {"test_batch.bin": RECORD + b"!"},
        "test_batch.bin should be records of 3,073 bytes, has 3,074",
    ),
    "a batch is empty": ({"data_batch_1.bin": b""}, "data_batch_1.bin should be records of 3,073 bytes, has 0"),
    "a label names no class": (
        {"data_batch_2.bin": b"\12" + RECORD[1:]},
        "data_batch_2.bin.*: labels should lie in 0 … 9, got 10",
    ),
    "the names are no text": ({"batches.meta.txt": b"\xff\xfe"}, "batches.meta.txt should be text in UTF-8"),
    "there are too few names": ({"batches.meta.txt": b"airplane\nbird\n"}, "labels should lie in 0 … 1, got 9"),
}


@pytest.mark.parametrize("fault", CIFAR10_FAULTS)
def test_a_wrong_layout_of_cifar10_is_named(tmp_path, fault):
    changes, message = CIFAR10_FAULTS[fault]
    with pytest.raises(ValueError, match=f"cifar-10-batches-bin.*{message}"):
        load("cifar10", tmp_path, **changes)


def test_the_other_edition_of_cifar10_is_not_taken_for_ours(tmp_path):
    """The one for Python holds pickles, which are programs: they are never opened."""
    pickle = b"cos\nsystem\n(S'touch evil'\ntR."
    files = {f"data_batch_{i}": pickle for i in range(1, 6)} | {"test_batch": pickle, "batches.meta": pickle}
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(tar_gz("cifar-10-batches-py", files))
    with pytest.raises(ValueError, match="cifar-10-binary.tar.gz should contain batches.meta.txt, and does not"):
        SOURCES["cifar10"].load(tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "fashion_mnist", "tiny_imagenet"])
@pytest.mark.parametrize("keep", [0.0, 0.4, 0.9])
def test_a_published_file_cut_short_is_named(tmp_path, name, keep):
    *whole, (last, content) = SMALL_SETS[name].published.items()
    for file, other in whole:
        (tmp_path / file).write_bytes(other)
    (tmp_path / last).write_bytes(content[: int(keep * len(content))])
    with pytest.raises(ValueError, match=f"{last} is damaged or cut short|{last[:9]}.* should be an IDX file"):
        SOURCES[name].load(tmp_path)


# Fashion-MNIST: IDX files


def test_an_idx_file_byte_by_byte(tmp_path):
    images = (
        bytes.fromhex("00000803 00000002 0000001c 0000001c") + bytes(784) + bytes(3 * 28 + 4) + b"\x63" + bytes(695)
    )
    labels = bytes.fromhex("00000801 00000002 09 04")
    changes = {"train-images-idx3-ubyte": images, "train-labels-idx1-ubyte": labels}
    (got, numbers), _, class_names = load("fashion_mnist", tmp_path, **changes)
    assert got.shape == (2, 1, 28, 28) and got[1, 0, 3, 4] == 0x63 and got.sum() == 0x63
    assert [class_names[number] for number in numbers] == ["ankle boot", "coat"]


IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
FASHION_FAULTS = {
    "a file is missing": ({LABELS: None}, f"should contain {LABELS}, and does not"),
    "another kind of number": (
        {LABELS: bytes.fromhex("00000d01 00000001 00")},
        f"{LABELS} should be an IDX file of N bytes, begins with 00 00 0d 01",
    ),
    "another number of axes": (
        {LABELS: bytes.fromhex("00000802 00000001 00")},
        f"{LABELS} should be an IDX file of N bytes, begins with 00 00 08 02",
    ),
    "pictures for labels": (
        {LABELS: SMALL_SETS["fashion_mnist"].unpacked[IMAGES]},
        f"{LABELS} should be an IDX file of N bytes",
    ),
    "pictures of another size": (
        {IMAGES: bytes.fromhex("00000803 00000001 00000020 00000020") + bytes(1024)},
        f"{IMAGES} should be an IDX file of N×28×28 bytes, begins with 00 00 08 03 00 00 00 01 00 00 00 20",
    ),
    "no header": ({IMAGES: b"\0\0"}, f"{IMAGES} should be an IDX file of N×28×28 bytes, begins with 00 00$"),
    "cut short": (
        {LABELS: bytes.fromhex("00000801 00000014 00")},
        f"{LABELS} should have 28 bytes by its header, has 9",
    ),
    "too long": (
        {LABELS: bytes.fromhex("00000801 00000001 0000")},
        f"{LABELS} should have 9 bytes by its header, has 10",
    ),
    "a count beyond all files": (
        {LABELS: bytes.fromhex("00000801 ffffffff 00")},
        "should have 4,294,967,303 bytes by its header",
    ),
    "labels too few": (
        {LABELS: bytes.fromhex("00000801 00000001 00")},
        f"{LABELS}: every picture should have a label, got 20 and 1 of them",
    ),
    "no picture": (
        {LABELS: bytes.fromhex("00000801 00000000"), IMAGES: bytes.fromhex("00000803 00000000 0000001c 0000001c")},
        "got 0 and 0 of them",
    ),
    "a label of no class": (
        {LABELS: bytes.fromhex("00000801 00000014") + bytes([10] * 20)},
        f"{LABELS}: labels should lie in 0 … 9, got 10",
    ),
}


@pytest.mark.parametrize("fault", FASHION_FAULTS)
def test_a_wrong_layout_of_fashion_mnist_is_named(tmp_path, fault):
    changes, message = FASHION_FAULTS[fault]
    with pytest.raises(ValueError, match=f"raw.*{message}"):
        load("fashion_mnist", tmp_path, **changes)


# Tiny-ImageNet: JPEGs in folders

A_JPEG = "train/n01/images/n01_2.JPEG"
ANNOTATIONS = "val/val_annotations.txt"
TINY_FAULTS = {
    "no list of classes": ({"wnids.txt": None}, "should contain wnids.txt, and does not"),
    "no words": ({"words.txt": None}, "should contain words.txt, and does not"),
    "no annotations": ({ANNOTATIONS: None}, f"should contain {ANNOTATIONS}, and does not"),
    "empty annotations": ({ANNOTATIONS: b""}, "got 0 and 0 of them"),
    "an annotation without a class": (
        {ANNOTATIONS: b"val_1.JPEG\n"},
        "val/images/val_1.JPEG should show one of the classes in wnids.txt, shows ''",
    ),
    "an annotation without a picture": (
        {ANNOTATIONS: b"val_99.JPEG\tn01\t0\t0\t1\t1\n"},
        "should contain val/images/val_99.JPEG, and does not",
    ),
    "a folder of no class": (
        {"wnids.txt": b"n01\nn02\n"},
        "n03_0.JPEG should show one of the classes in wnids.txt, shows 'n03'",
    ),
    "a file that is no picture": ({A_JPEG: b"hello"}, f"{A_JPEG} is no picture that can be read"),
    "a picture cut short": (
        {A_JPEG: SMALL_SETS["tiny_imagenet"].unpacked[A_JPEG][:-99]},
        f"{A_JPEG} is no picture that can be read: .*truncated",
    ),
    "a picture of another size": ({A_JPEG: jpeg(np.zeros((60, 64), np.uint8))}, f"{A_JPEG} should be 64×64, is 60×64"),
}


@pytest.mark.parametrize("fault", TINY_FAULTS)
def test_a_wrong_layout_of_tiny_imagenet_is_named(tmp_path, fault):
    changes, message = TINY_FAULTS[fault]
    with pytest.raises(ValueError, match=f"tiny-imagenet-200.*{message}"):
        load("tiny_imagenet", tmp_path, **changes)


def test_a_class_without_a_word_has_its_number(tmp_path):
    *_, class_names = load("tiny_imagenet", tmp_path, **{"words.txt": b"n01\tfox\n"})
    assert class_names == ("n03", "fox", "n02")
