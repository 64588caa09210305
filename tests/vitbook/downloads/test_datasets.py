"""The published layouts, byte by byte, and what is said about files that have another."""

import gzip
import re
from urllib.parse import urlsplit

import numpy as np
import pytest
from small_sets import SMALL_SETS, jpeg, tar_gz, unpack

from vitbook._downloads.datasets import SOURCES

pytestmark = pytest.mark.filterwarnings("error")  # such as torch's over memory that may not be written to
EACH = pytest.mark.parametrize("name", SOURCES)


def load(name: str, folder, **changes: bytes | None):
    """The small set, unpacked with some of its files changed, or None to leave one out."""
    place = unpack(SMALL_SETS[name], folder / SOURCES[name].folder)
    for file, content in changes.items():
        (place / file).unlink(missing_ok=True)
        if content is not None:
            (place / file).write_bytes(content)
    return SOURCES[name].load(folder)


@EACH
def test_a_source_is_complete_and_the_small_set_has_its_names(name):
    source = SOURCES[name]
    assert source.name == name and source.mirrors and source.about
    assert list(source.files) == list(SMALL_SETS[name].published)
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for sha256 in source.files.values())
    for mirror in source.mirrors:
        parts = urlsplit(mirror)
        assert parts.scheme in ("http", "https") and parts.netloc and not mirror.endswith("/") and not parts.query


@pytest.mark.parametrize("name", ["fashion_mnist", "cifar10", "cifar100"])
def test_files_that_a_browser_has_half_unpacked_are_read(tmp_path, name):
    for file, content in SMALL_SETS[name].published.items():
        (tmp_path / file.removesuffix(".gz")).write_bytes(gzip.decompress(content))
    assert np.array_equal(SOURCES[name].load(tmp_path)[0][0], SMALL_SETS[name].train[0])


@EACH
def test_a_published_file_cut_short_is_named(tmp_path, name):
    *whole, (last, content) = SMALL_SETS[name].published.items()
    for file, other in whole:
        (tmp_path / file).write_bytes(other)
    (tmp_path / last).write_bytes(content[: 2 * len(content) // 5])
    with pytest.raises(ValueError, match=f"{last} is damaged or cut short|{last[:9]}.* must be an IDX file"):
        SOURCES[name].load(tmp_path)


def test_the_other_edition_of_cifar10_is_not_taken_for_ours(tmp_path):
    """The one for Python holds pickles, which are programs: they are never opened."""
    pickle = b"cos\nsystem\n(S'touch evil'\ntR."
    files = {f"data_batch_{i}": pickle for i in range(1, 6)} | {"test_batch": pickle, "batches.meta": pickle}
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(tar_gz("cifar-10-batches-py", files))
    with pytest.raises(ValueError, match="cifar-10-binary.tar.gz must contain batches.meta.txt, and does not"):
        SOURCES["cifar10"].load(tmp_path)


def test_a_cifar10_record_is_a_label_and_three_planes_row_by_row(tmp_path):
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


def test_an_idx_file_has_its_lengths_first(tmp_path):
    header = bytes.fromhex("00000803 00000002 0000001c 0000001c")
    images = header + bytes(784) + bytes(3 * 28 + 4) + b"\x63" + bytes(695)
    labels = bytes.fromhex("00000801 00000002 09 04")
    changes = {"train-images-idx3-ubyte": images, "train-labels-idx1-ubyte": labels}
    (got, numbers), _, class_names = load("fashion_mnist", tmp_path, **changes)
    assert got.shape == (2, 1, 28, 28) and got[1, 0, 3, 4] == 0x63 and got.sum() == 0x63
    assert [class_names[number] for number in numbers] == ["ankle boot", "coat"]


def test_a_class_of_tiny_imagenet_without_a_word_has_its_number(tmp_path):
    *_, class_names = load("tiny_imagenet", tmp_path, **{"words.txt": b"n01\tfox\n"})
    assert class_names == ("n03", "fox", "n02")


RECORD, META, BATCH = bytes(3073), "batches.meta.txt", "data_batch_1.bin"
IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
A_JPEG, ANNOTATIONS = "train/n01/images/n01_2.JPEG", "val/val_annotations.txt"
hexed = bytes.fromhex
FAULTS = [
    ("cifar10", {META: None}, f"must contain {META}, and does not"),
    ("cifar10", {META: b"airplane\nbird\n"}, "labels must lie in 0 … 1, got 9"),
    ("cifar10", {BATCH: RECORD[:-1]}, f"{BATCH} must be records of 3,073 bytes, has 3,072"),
    ("cifar10", {BATCH: b"\12" + RECORD[1:]}, f"{BATCH}.*: labels must lie in 0 … 9, got 10"),
    ("fashion_mnist", {LABELS: hexed("00000d01 00000001 00")}, "IDX file of N bytes, begins with 00 00 0d 01"),
    ("fashion_mnist", {IMAGES: hexed("00000803 00000001 00000020 00000020") + bytes(1024)}, "IDX file of N×28×28"),
    ("fashion_mnist", {LABELS: hexed("00000801 00000014 00")}, f"{LABELS} must have 28 bytes by its header, has 9"),
    ("fashion_mnist", {LABELS: hexed("00000801 00000001 00")}, "every image must have a label, got 20 and 1 of them"),
    ("tiny_imagenet", {ANNOTATIONS: b""}, "got 0 and 0 of them"),
    ("tiny_imagenet", {ANNOTATIONS: b"val_1.JPEG\n"}, "val_1.JPEG must show one of the classes in wnids.txt, shows ''"),
    ("tiny_imagenet", {ANNOTATIONS: b"val_99.JPEG\tn01\t0\n"}, "must contain val/images/val_99.JPEG, and does not"),
    ("tiny_imagenet", {"wnids.txt": b"n01\nn02\n"}, "n03_0.JPEG must show one of the classes .*, shows 'n03'"),
    ("tiny_imagenet", {A_JPEG: jpeg(np.zeros((64, 64), np.uint8))[:-99]}, "cannot be read as an image: .*[Tt]runcated"),
    ("tiny_imagenet", {A_JPEG: jpeg(np.zeros((60, 64), np.uint8))}, f"{A_JPEG} must be 64×64, is 60×64"),
]


@pytest.mark.parametrize(("name", "changes", "message"), FAULTS)
def test_another_layout_is_named(tmp_path, name, changes, message):
    with pytest.raises(ValueError, match=f"{SOURCES[name].folder}.*{message}"):
        load(name, tmp_path, **changes)
