"""Photographs that stay in their files are the same images, whoever decodes them, and cost little."""

import importlib
import io
import multiprocessing
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitbook._common.images import read_crop
from vitbook.data import album, load_folder, photograph
from vitbook.engine import TrainConfig, fit
from vitbook.image_files import RATIO, SCALE, ImageFiles, random_from, random_resized_crop
from vitbook.vit import create_vit

pytest_plugins = ["shared_fixtures"]

RANDOM = TrainConfig(epochs=2, batch_size=4, resize="random", affine=0.0, flip=True, warmup=0.0, checkpoint_steps=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Twenty photographs in two classes, in several formats, one of them to be turned."""
    folder = tmp_path_factory.mktemp("photographs")
    exif = Image.Exif()
    exif[0x0112] = 6
    for i, pixels in enumerate(album(128).images[:20]):
        place = folder / "ab"[i % 2]
        place.mkdir(exist_ok=True)
        image = Image.fromarray(pixels.permute(1, 2, 0).numpy()).resize((150 + 8 * i, 128))
        image.save(place / f"{i}.{('jpg', 'png', 'webp')[i % 3]}", **({"exif": exif} if i == 6 else {}))
    return folder


def model():
    torch.manual_seed(0)
    return create_vit("vit_digits", image_size=8, channels=3, num_classes=2, dim=12, depth=1, num_heads=3, mlp_dim=12)


def test_the_middle_is_that_of_images_in_memory(folder):
    kept, read = load_folder(folder, 24), load_folder(folder, 24, in_files=True, workers=0)
    assert isinstance(read.train.images, ImageFiles) and read.train.images.shape == kept.train.images.shape
    for part in ("train", "test"):
        ours, theirs = getattr(read, part), getattr(kept, part)
        assert torch.equal(ours.labels, theirs.labels)
        assert (ours.images.load().int() - theirs.images.int()).abs().float().mean(dim=(1, 2, 3)).max() <= 1
        assert torch.equal(ours.images[2], ours.images.load()[2])
    assert read.mean.allclose(kept.mean, atol=0.005)


def test_a_folder_too_large_for_memory_stays_in_files(folder, monkeypatch):
    monkeypatch.setattr("vitbook.data.MAX_BYTES", 20 * 3 * 24**2 - 1)
    assert load_folder(folder, 24).in_files and not load_folder(folder, 23).in_files


@pytest.mark.slow
def test_a_run_ends_with_the_same_weights_whoever_reads_and_wherever_it_is_interrupted(folder, tmp_path, monkeypatch):
    def train(place: Path, workers: int, stop: int = 0) -> list[torch.Tensor]:
        data, trained = load_folder(folder, 8, in_files=True, workers=workers).with_validation(0.2), model()
        if stop:
            with monkeypatch.context() as patch:
                from vitbook.engine import Training

                save = Training.save

                def saved(self, *args):
                    save(self, *args)
                    if self.step == stop:
                        raise KeyboardInterrupt

                patch.setattr(Training, "save", saved)
                with pytest.raises(KeyboardInterrupt):
                    fit(trained, data, RANDOM, place, progress=False)
            trained = model()
        fit(trained, data, RANDOM, place, resume=bool(stop), progress=False)
        return list(trained.parameters())

    whole = train(tmp_path / "whole", 0)
    for workers, stop in ((2, 0), (1, 2), (0, 4)):
        again = train(tmp_path / f"{workers} {stop}", workers, stop)
        assert all(torch.equal(one, other) for one, other in zip(whole, again, strict=True)), (workers, stop)


@pytest.mark.parametrize("stops", [False, True])
def test_no_process_that_reads_outlives_the_run_or_is_waited_for(folder, monkeypatch, stops):
    """As garbage in a circle each would be waited for, five seconds long."""
    if stops:
        monkeypatch.setattr("vitbook.engine.Training.finish_epoch", lambda *_: 1 / 0)
    data = load_folder(folder, 8, in_files=True, workers=2).with_validation(0.2)
    with pytest.raises(ZeroDivisionError) if stops else nullcontext():
        fit(model(), data, RANDOM, progress=False)
    assert not multiprocessing.active_children()


def test_crops_differ_from_epoch_to_epoch_and_stay_in_the_bounds(folder):
    images = load_folder(folder, 16, in_files=True, workers=0).train.images
    assert not (images.read((0, (0, 1))) == images.read((0, (0, 2)))).all()
    random = np.random.RandomState(0)
    for height, width in ((40, 60), (100, 20), (3, 200)):
        boxes = [random_resized_crop(height, width, random) for _ in range(200)]
        for left, top, right, bottom in boxes:
            assert 0 <= left < right <= width and 0 <= top < bottom <= height
        if width < 4 * height:
            shares = np.array(
                [(right - left) * (bottom - top) / (height * width) for left, top, right, bottom in boxes]
            )
            assert SCALE[0] - 0.02 < shares.min() < 0.2 and shares.max() > (
                0.8 if width < 2 * height < 6 * width else 0
            )
            assert all(RATIO[0] - 0.1 < (r - le) / (b - t) < RATIO[1] + 0.2 for le, t, r, b in boxes)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_file_that_changes_or_goes_is_named_in_a_line(folder, tmp_path, workers):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for path in (folder / name).iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    data = load_folder(tmp_path, 8, in_files=True, workers=workers)
    path = Path(data.train.images.paths[3])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"has changed since it was listed: it had [\d,]+ bytes, now it has [\d,]+$"):
        fit(model(), data, RANDOM, progress=False)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=path.name):
        fit(model(), data, RANDOM, progress=False)


def test_another_file_is_another_run(folder):
    images = load_folder(folder, 8, in_files=True, workers=0).train.images
    assert images.fingerprint() == images[:].fingerprint() != images[1:].fingerprint()
    assert replace(images, bytes=images.bytes + 1).fingerprint() != images.fingerprint()


def test_random_crops_need_files(folder):
    with pytest.raises(ValueError, match="resize random needs images in files"):
        fit(model(), load_folder(folder, 8), RANDOM, progress=False)


def large(name: str, sides: tuple[int, int], quality: int = 92) -> bytes:
    """A photograph scaled to as many pixels as a camera's, with the grain that a camera's has."""
    image = Image.fromarray(photograph(name).permute(1, 2, 0).numpy()).resize(sides, Image.Resampling.BICUBIC)
    grain = np.random.RandomState(0).normal(0, 3, (*sides[::-1], 1))
    content = io.BytesIO()
    Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8)).save(content, "JPEG", quality=quality)
    return content.getvalue()


@pytest.mark.parametrize("turn", [1, 6])
def test_no_more_of_a_jpeg_is_decoded_than_a_crop_needs_and_nobody_sees_it(tmp_path, turn):
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.open(io.BytesIO(large("china", (1600, 1200)))).save(tmp_path / "it.jpg", quality=92, exif=exif)
    with Image.open(tmp_path / "it.jpg") as image:
        whole = image.convert("RGB") if turn == 1 else image.transpose(Image.Transpose.ROTATE_270).convert("RGB")
    for n in range(12):
        box = random_resized_crop(whole.height, whole.width, random_from(n))
        got = read_crop(tmp_path / "it.jpg", lambda *_, box=box: box, 96, "BILINEAR")
        expected = np.asarray(whole.crop(box).resize((96, 96), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        assert np.abs(got.astype(int) - expected).mean() <= 1


def test_a_jpeg_damaged_within_the_crop_is_named(tmp_path):
    content = large("china", (800, 600))
    (tmp_path / "it.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="it.jpg cannot be read as an image: .*truncated"):
        read_crop(tmp_path / "it.jpg", lambda height, width: (0, 0, width, height - 40), 96, "BILINEAR")


@pytest.mark.peers
@pytest.mark.parametrize(("sides", "least"), [((4000, 3000), 2.0), ((500, 375), 0.95)])
def test_files_are_read_faster_than_torchvision_reads_them_into_the_same_pixels(torchvision, sides, least):
    """CPU time for an image, in turns; benchmarks/RESULTS.md has it. The bounds leave room for a busy machine."""
    decoding = importlib.import_module("decoding")  # of benchmarks/, which the fixture has found
    found = decoding.measure(sides, 24)
    assert found["theirs"] / found["ours"] >= least and found["difference"] <= 1, found
