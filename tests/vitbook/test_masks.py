"""A folder of images and masks: read strictly, moved together, learned, and resumed to the last bit."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn import metrics
from torch.testing import assert_close

from vitbook._common.images import read_levels
from vitbook.augment import augmented
from vitbook.data import album, album_masks, load_dataset, load_masks
from vitbook.engine import TrainConfig, Training, batches, fit
from vitbook.finetuning import layer_groups, prepare
from vitbook.image_files import MaskFiles
from vitbook.imbalance import mean_iou
from vitbook.pretrained import load_pretrained
from vitbook.targets import IGNORED, target_loss, target_score
from vitbook.task_heads import Segmenter, intersection_over_union
from vitbook.training import evaluate_pixels
from vitbook.vit import create_vit

TRAIN = TrainConfig(epochs=2, batch_size=4, resize="random", affine=0.0, flip=True, crop=2, best="miou", warmup=0.0)


@pytest.fixture(scope="module")
def outlined(tmp_path_factory) -> Path:
    """The album's twelve photographs with outlines, one of them to be turned, one mask with a palette, two unsure."""
    folder = tmp_path_factory.mktemp("outlined")
    places, masks = album_masks(128)
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("images/more", "masks/more"):
        (folder / name).mkdir(parents=True)
    for i, (pixels, mask) in enumerate(zip(album(128).images[places], masks.numpy(), strict=True)):
        place, levels = f"more/{i}" if i % 2 else str(i), mask[: 100 + i].astype(np.uint8)
        levels[:8] = IGNORED if i < 2 else levels[:8]
        image = Image.fromarray(pixels[:, : 100 + i].permute(1, 2, 0).numpy())
        if i == 3:
            image.transpose(Image.Transpose.ROTATE_90).save(folder / "images" / f"{place}.jpg", exif=exif, quality=95)
        else:
            image.save(folder / "images" / f"{place}.{('jpg', 'webp', 'png')[i % 3]}", quality=95)
        png = Image.fromarray(levels, "L").convert("P") if i == 4 else Image.fromarray(levels)
        if i == 4:
            png.putpalette([0, 0, 0, 200, 30, 60])
        png.save(folder / "masks" / f"{place}.png")
    (folder / "classes.txt").write_text("\ufeffbackground\nsubject\n\n", encoding="utf-8")
    return folder


def model(image_size: int = 16, num_classes: int = 2) -> Segmenter:
    torch.manual_seed(0)
    sizes = dict(image_size=image_size, channels=3, num_classes=0, dim=12, depth=1, num_heads=3, mlp_dim=12)
    return Segmenter(create_vit("vit_digits", patch_size=4, **sizes), num_classes)


def test_images_and_masks_are_pairs_wherever_they_lie(outlined):
    data = load_dataset(outlined, image_size=64, masks=True, workers=0, validation=0.2)
    assert (data.task, data.class_names) == ("masks", ("background", "subject"))
    assert [len(part) for part in (data.train, data.validation, data.test)] == [8, 2, 2]
    places, masks = album_masks(128)
    for images, found in batches(data.train, data.mean, data.std, 5):
        assert images.shape[1:] == (3, 64, 64) and found.shape[1:] == (64, 64) and found.dtype == torch.int64
    for path, mask in zip(data.train.images.paths, data.train.labels, strict=True):
        i = int(Path(path).stem)
        middle = masks[i][: 100 + i, (28 - i) // 2 : (28 - i) // 2 + 100 + i].float()
        expected = F.interpolate(middle[None, None], (64, 64), mode="nearest-exact")[0, 0]
        known = mask != IGNORED
        assert (mask[known] == expected[known]).float().mean() > 0.97, i
        assert known.all() == (i > 1)


@pytest.mark.parametrize("mode", ["1", "L;2", "L;4", "L", "P", "I;16"])
def test_levels_are_the_numbers_that_the_file_stores(tmp_path, mode):
    """Also of gray levels of two and four bits, which Pillow stretches, and of palettes, which have colors."""
    levels = np.arange(12).reshape(3, 4) % {"1": 2, "L;2": 4}.get(mode, 12)
    path = tmp_path / "it.png"
    if mode == "P":
        image = Image.fromarray(levels.astype(np.uint8)).convert("P")
        image.putpalette(list(range(255, 255 - 36, -1)))
        image.save(path)
    elif mode.startswith("L;"):
        _gray_png(path, levels, int(mode[2:]))
        assert np.asarray(Image.open(path)).max() == 255 // (2 ** int(mode[2:]) - 1) * levels.max()
    else:
        Image.fromarray({"1": levels > 0, "I;16": levels.astype(np.uint16)}.get(mode, levels.astype(np.uint8))).save(
            path
        )
    assert np.array_equal(read_levels(path), levels) and read_levels(path).dtype == np.uint8


def _gray_png(path: Path, levels: np.ndarray, bits: int) -> None:
    """A grayscale PNG of fewer than eight bits, which Pillow reads and does not write."""
    import zlib

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    rows = b""
    for row in levels:
        packed = "".join(f"{level:0{bits}b}" for level in row)
        rows += b"\0" + bytes(int(packed[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(packed), 8))
    head = levels.shape[1].to_bytes(4, "big") + levels.shape[0].to_bytes(4, "big") + bytes([bits, 0, 0, 0, 0])
    content = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + content)


def test_a_crop_a_mirror_and_a_move_take_the_mask_along(tmp_path):
    """The images are as red as their masks say."""
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    random = np.random.RandomState(0)
    for n in range(4):
        levels = np.kron(random.randint(0, 4, (6, 9)), np.ones((40, 40), int)).astype(np.uint8)
        Image.fromarray(levels).save(tmp_path / "masks" / f"{n}.png")
        Image.fromarray(np.stack([levels * 60] * 3, axis=2)).save(tmp_path / "images" / f"{n}.jpg", quality=98)
    data = load_masks(tmp_path, 48, workers=0)
    images, masks = data.train.images, data.train.labels
    for key in [(0, None), *((n % 3, (7, n)) for n in range(9))]:
        red, mask = torch.from_numpy(images.read(key))[:1].float(), torch.from_numpy(masks.read(key)).long()
        assert ((red[0] / 60).round() == mask).float().mean() > 0.9
        config = replace(TRAIN, crop=7)
        moved, with_it = augmented(red[None].byte(), mask[None], config, torch.zeros(1), torch.ones(1), 4)
        assert ((moved[0, 0] * 255 / 60).round() == with_it[0]).float().mean() > 0.9
        other = torch.from_numpy(masks.read((key[0], (8, 8)))).long()
        assert not torch.equal(other, mask)


def test_losses_and_scores_leave_out_what_is_ignored():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 3, 4, 5, generator=generator)
    masks = torch.randint(3, (2, 4, 5), generator=generator)
    masks[0, :2] = IGNORED
    known = masks != IGNORED
    rows = logits.movedim(1, -1)[known]
    assert target_loss(logits, masks, "masks") == pytest.approx(F.cross_entropy(rows, masks[known]).item(), rel=1e-5)
    assert target_score(logits, masks, "masks") == pytest.approx((rows.argmax(dim=1) == masks[known]).float().mean())
    assert target_loss(logits, torch.full_like(masks, IGNORED), "masks") == 0
    found = evaluate_pixels(torch.nn.Identity(), [(logits[:1], masks[:1]), (logits[1:], masks[1:])], 3)
    assert found.loss == pytest.approx(F.cross_entropy(rows, masks[known]).item(), rel=1e-5)
    assert found.confusion.tolist() == metrics.confusion_matrix(masks[known], rows.argmax(dim=1)).tolist()
    iou = intersection_over_union(rows.argmax(dim=1), masks[known], 3)
    assert mean_iou(found.confusion) == pytest.approx(iou.mean().item())
    assert found.accuracy == pytest.approx((rows.argmax(dim=1) == masks[known]).double().mean())


@pytest.mark.parametrize("tune", ["probe", pytest.param("layers", marks=pytest.mark.slow)])
def test_it_is_learned_on_a_frozen_backbone_and_on_one_that_is_tuned(outlined, tune):
    data = load_masks(outlined, 32, workers=0).with_validation(0.2)
    weights = load_pretrained("vitbook:cifar10_plain", num_classes=0)
    segmenter = Segmenter(weights.model, 2)
    before = {name: tensor.clone() for name, tensor in segmenter.state_dict().items()}
    prepare(segmenter, tune)
    config = TrainConfig(epochs=6, batch_size=4, affine=0.0, learning_rate=0.02, label_smoothing=0.0, best="miou")
    if tune == "layers":
        config = replace(config, learning_rate=1e-3, layer_decay=0.7)
        shares = [group["share"] for group in layer_groups(segmenter, 0.1, 0.7)]
        assert shares[0] == 1 and shares[-1] == pytest.approx(0.7 ** (weights.model.config.depth + 1))
    records = fit(segmenter, data, config, progress=False)
    assert records[-1]["train_loss"] < 0.8 * records[0]["train_loss"] and records[-1]["train_accuracy"] > 0.7
    assert records[-1]["validation_miou"] > 0.4
    moved = {name.split(".")[0] for name, tensor in segmenter.state_dict().items() if not tensor.equal(before[name])}
    assert moved == ({"head"} if tune == "probe" else {"head", "backbone"})
    best = max(records, key=lambda record: record["validation_miou"])
    found = evaluate_pixels(segmenter, batches(data.validation, data.mean, data.std, 4), 2)
    assert mean_iou(found.confusion) == pytest.approx(best["validation_miou"])


@pytest.mark.slow
def test_a_run_ends_with_the_same_weights_whoever_reads_and_wherever_it_is_interrupted(outlined, tmp_path, monkeypatch):
    def train(place: Path, workers: int, stop: int = 0) -> list[torch.Tensor]:
        data = load_masks(outlined, 16, workers=workers).with_validation(0.2)
        config, save = replace(TRAIN, checkpoint_steps=1), Training.save

        def saved(self, *args):
            save(self, *args)
            if self.step == stop:
                raise KeyboardInterrupt

        if stop:
            with monkeypatch.context() as patch:
                patch.setattr(Training, "save", saved)
                with pytest.raises(KeyboardInterrupt):
                    fit(model(), data, config, place, progress=False)
        trained = model()
        fit(trained, data, config, place, resume=bool(stop), progress=False)
        return list(trained.parameters())

    whole = train(tmp_path / "whole", 0)
    for workers, stop in ((2, 0), (1, 1), (0, 3)):
        again = train(tmp_path / f"{workers} {stop}", workers, stop)
        assert all(torch.equal(one, other) for one, other in zip(whole, again, strict=True)), (workers, stop)
    shutil.copytree(outlined, tmp_path / "other")
    Image.new("L", (128, 100)).save(tmp_path / "other" / "masks" / "0.png", compress_level=0)
    with pytest.raises(ValueError, match=r"holds another run: images\.(train|validation) is"):
        others = load_masks(tmp_path / "other", 16, workers=0).with_validation(0.2)
        fit(model(), replace(others, name=outlined.name), replace(TRAIN, checkpoint_steps=1), tmp_path / "whole", True)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "masks" / "0.png").unlink(), r"0\.jpg has no mask .*0\.png; so it is for 1 of 12$"),
        (
            lambda folder: Image.new("L", (100, 128)).save(folder / "masks" / "0.png"),
            r"masks/0\.png is 128×100 pixels \(height×width\), .*images/0\.jpg is 100×128$",
        ),
        (
            lambda folder: Image.new("RGB", (128, 100)).save(folder / "masks" / "0.png"),
            r"0\.png must have one level a class, in gray or a palette, and has colors \(RGB\)$",
        ),
        (
            lambda folder: Image.new("L", (128, 100), 7).save(folder / "masks" / "0.png"),
            r"0\.png has level 7, and .*classes\.txt names 2 classes, from 0 on$",
        ),
        (
            lambda folder: Image.new("I;16", (128, 100), 700).save(folder / "masks" / "0.png"),
            r"0\.png has level 700: classes are levels below 255$",
        ),
        (
            lambda folder: (folder / "classes.txt").write_bytes("Hund\nKätzchen".encode("latin-1")),
            r"classes\.txt is no text in UTF-8: .*0xe4",
        ),
        (lambda folder: (folder / "masks" / "0.png").write_bytes(b"GIF89a"), r"0\.png cannot be read as a mask"),
        (lambda folder: shutil.rmtree(folder / "masks"), r"must hold the folders images and masks$"),
        (
            lambda folder: [
                (folder / "classes.txt").unlink(),
                *(
                    Image.fromarray(np.where(read_levels(path), 255, 0).astype(np.uint8)).save(path)
                    for path in (folder / "masks").rglob("*.png")
                ),
            ],
            r"masks must have two or more classes, has level 0 alone: level 255 is no class$",
        ),
        (
            lambda folder: [path.unlink() for path in (folder / "images").rglob("*.*") if path.stem != "0"],
            r"images must have two or more images, has 1$",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_line(outlined, tmp_path, spoil, message):
    folder = tmp_path / "it"
    shutil.copytree(outlined, folder)
    spoil(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_masks(folder, 16, workers=0)


def test_a_mask_that_changes_meanwhile_stops_the_run_in_a_line(outlined, tmp_path):
    shutil.copytree(outlined, tmp_path / "it")
    data = load_masks(tmp_path / "it", 16, workers=1)
    Image.new("L", (128, 100), 1).save(data.train.labels.paths[2], compress_level=0)
    with pytest.raises(ValueError, match=r"\.png has changed since it was listed"):
        fit(model(), data, replace(TRAIN, best="accuracy"), progress=False)


def test_what_would_part_an_image_from_its_mask_is_refused(outlined):
    data = load_masks(outlined, 16, workers=0).with_validation(0.2)
    for name, value in (("affine", 1.0), ("randaugment_ops", 1), ("mixup", 0.2), ("patch_dropout", 0.5)):
        with pytest.raises(ValueError, match=f"{name} is for classes, and these images have masks"):
            fit(model(), data, replace(TRAIN, **{name: value}), progress=False)
    with pytest.raises(ValueError, match=r"model must give logits of shape \(B, K, H, W\) = \(4, 2, 16, 16\)"):
        fit(create_vit("vit_digits", image_size=16, channels=3, num_classes=2), data, TRAIN, progress=False)


def test_a_segmenter_is_its_backbone_under_the_head(outlined):
    segmenter = model().eval()
    torch.nn.init.normal_(segmenter.head.proj.weight)
    x = torch.randn(2, 3, 16, 16)
    tokens = segmenter.backbone.tokens(x)[:, 1:]
    by_hand = tokens @ segmenter.head.proj.weight[:, :, 0, 0].T + segmenter.head.proj.bias
    by_hand = F.interpolate(by_hand.mT.unflatten(2, (4, 4)), scale_factor=4, mode="bilinear")
    assert_close(segmenter(x), by_hand)
    assert segmenter.config.num_classes == 2 and isinstance(load_masks(outlined, 16).test.labels, MaskFiles)
