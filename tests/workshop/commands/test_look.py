"""A folder of photographs is described as it is: what is broken, what is there twice, and what leaks into the test."""

import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageOps

from vitbook._common.images import decode_reduced
from vitbook.data import album, album_credits, load_folder
from vitbook_workshop.commands import main
from vitbook_workshop.commands.look import difference_hash, look


def photographs(folder: Path) -> Path:
    """The album's animals and vehicles, each as a file in the folder of its kind."""
    for credit, pixels in zip(album_credits(), album(128).images, strict=True):
        kind = "vehicle" if credit["label"] in ("airplane", "automobile", "ship", "truck") else "animal"
        (folder / kind).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        image.save(folder / kind / f"{Path(credit['file']).stem}.png")
    return folder


def test_a_hash_says_where_an_image_gets_darker():
    rows = torch.arange(72, dtype=torch.uint8).view(8, 9)
    rows[::2] = rows[::2].flip(1)
    image = Image.fromarray(rows.numpy())
    expected = torch.zeros(8, 8, dtype=torch.bool)
    expected[::2] = True
    assert torch.equal(difference_hash(image).view(8, 8), expected)
    assert torch.equal(difference_hash(image.resize((90, 80), Image.Resampling.NEAREST)).view(8, 8), expected)


@pytest.mark.parametrize(
    ("change", "near"),
    [
        (lambda image: image.resize((70, 50)), True),
        (lambda image: image.convert("L"), True),
        (ImageOps.mirror, False),
        (lambda image: image.rotate(90), False),
    ],
)
def test_a_smaller_or_gray_copy_is_near_its_original_alone_and_a_turned_one_is_not(tmp_path, change, near):
    folder = photographs(tmp_path / "photographs")
    originals = sorted(folder.rglob("*.png"))
    for path in originals:
        with Image.open(path) as image:
            change(image).save(path.with_name(f"{path.stem}_changed.png"))
    copies = [(path.with_name(f"{path.stem}_changed.png"), path) for path in originals]
    found = [(folder / copy.path, folder / first.path) for copy, first in look(folder).pairs]
    assert found == copies if near else len(found) <= 1  # a car on white looks much the same in a mirror


def test_a_clean_folder_is_called_clean_and_its_parts_are_those_of_training(tmp_path, capsys):
    folder = photographs(tmp_path / "photographs")
    assert main(["look", str(folder)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "2 classes, 22 photographs"
    assert said[1].split() == ["animal", "14", "train", "11,", "test", "3"]
    assert said[3:6] == [
        "always answering animal would be right for 64%",
        "sizes: 128×128 to 128×128 pixels (height×width), the median of the shorter side is 128",
        "levels: 0 to 255, of which the median photograph uses up to 255",
    ]
    kinds = ["broken files", "copies, byte for byte", "near copies"]
    assert said[6:] == [f"{what}: none" for what in (*kinds, "copies in two classes", "leaks between train and test")]
    found, data = look(folder), load_folder(folder, 8)
    tested = [photo.path.parts[0] for photo in found.photographs if photo.part == "test"]
    assert tested == [data.class_names[k] for k in data.test.labels.tolist()]
    assert len(found.photographs) == len(data.train) + len(data.test)


def test_what_is_wrong_with_a_folder_is_said_and_nothing_is_written(tmp_path, capsys):
    folder = photographs(tmp_path / "photographs")
    drawn = {photo.path.name: photo for photo in look(folder).photographs}
    tested = next(photo for photo in drawn.values() if photo.part == "test")
    shutil.copy(folder / tested.path, folder / "vehicle" / "twin.png")
    with Image.open(folder / "animal" / "bird_duck.png") as duck:
        duck.save(folder / "animal" / "small.jpg", quality=60)
    (folder / "animal" / "torn.png").write_bytes((folder / tested.path).read_bytes()[:2000])
    for number in range(9):
        (folder / "vehicle" / f"note{number}.txt").write_text("no image")
    before = sorted(tmp_path.rglob("*"))
    assert main(["look", str(folder)]) == 1
    said = capsys.readouterr().out
    assert "broken files: 10 (training refuses them)\n  animal/torn.png cannot be read" in said
    assert "  and 5 more\n" in said
    assert f"copies, byte for byte: 1 (one of each is enough)\n  vehicle/twin.png = {tested.path.as_posix()}\n" in said
    assert "near copies: 1 (look at them)\n  animal/small.jpg ~ animal/bird_duck.png\n" in said
    assert (
        f"copies in two classes: 1 (one label is wrong)\n  vehicle/twin.png is vehicle, {tested.path.as_posix()}"
        in said
    )
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("part", ["", "train"])
def test_images_beside_the_classes_are_counted(tmp_path, capsys, part):
    for name in {part, part and "test"}:
        photographs(tmp_path / "all" / name)
    for place in (tmp_path / "all", tmp_path / "all" / part):
        Image.new("RGB", (9, 9)).save(place / "loose.png")
    assert main(["look", str(tmp_path / "all")]) == 0
    rows = ["  loose.png", *(["  train/loose.png"] if part else [])]
    expected = [f"images in no class: {len(rows)} (training leaves them out)", *rows]
    said = capsys.readouterr().out.replace("\\", "/").splitlines()
    assert said[said.index(expected[0]) :][: len(expected)] == expected


def test_a_class_without_photographs_hides_no_other_fault(tmp_path, capsys):
    folder = photographs(tmp_path / "photographs")
    (folder / "empty").mkdir()
    (folder / "vehicle" / "torn.png").write_bytes(b"none")
    assert main(["look", str(folder)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("2 classes, 22 photographs\n") and "broken files: 2 (" in said
    assert "  empty must have at least two images" in said and "  vehicle/torn.png cannot be read" in said


def test_parts_in_folders_of_their_own_are_compared(tmp_path, capsys):
    for part in ("train", "val"):
        photographs(tmp_path / "all" / part)
    found = look(tmp_path / "all")
    assert len(found.leaks) == len(found.pairs) == 22
    assert main(["look", str(tmp_path / "all")]) == 0
    out = capsys.readouterr().out
    assert "leaks between train and val: 22 (delete one of each pair)\n  val/animal/" in out and "  and 17 more" in out


def test_many_copies_of_one_photograph_are_each_named_once(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(30):
            Image.new("L", (16, 16), number % 5).save(tmp_path / name / f"{number}.png")
    found = look(tmp_path)
    assert [copy.path for copy, _ in found.pairs] == [photo.path for photo in found.photographs[1:]]
    assert {first.path.as_posix() for _, first in found.pairs} == {"a/0.png"} and found.leaks


def test_a_camera_file_is_decoded_as_far_as_is_compared_by_processes_of_their_own(tmp_path, monkeypatch):
    """Turned, it is as large as it is seen; torn, it is broken; and its small copy is near it."""
    monkeypatch.setattr("vitbook_workshop.commands.look.FEW", 1)
    folder, exif = photographs(tmp_path), Image.Exif()
    exif[0x0112] = 6
    with Image.open(folder / "animal" / "bird_duck.png") as duck:
        large = duck.resize((1200, 900), Image.Resampling.BICUBIC)
    large.transpose(Image.Transpose.ROTATE_90).save(folder / "animal" / "camera.jpg", quality=92, exif=exif)
    whole = (folder / "animal" / "camera.jpg").read_bytes()
    (folder / "animal" / "torn.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    found = look(folder)
    camera = next(photo for photo in found.photographs if photo.path.name == "camera.jpg")
    assert camera.size == (900, 1200) and len(found.photographs) == 23
    assert [(copy.path.name, first.path.name) for copy, first in found.pairs] == [("camera.jpg", "bird_duck.png")]
    assert len(found.broken) == 1 and found.broken[0].startswith("animal/torn.jpg cannot be read as an image")
    pixels, size = decode_reduced(whole, "it", 128)
    assert size == (900, 1200) and pixels.size == (300, 225)


ONE_DOG = "dog must have at least two images that can be read, has 1"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"cat": 5}, "{folder} must have a sub-folder for each of two or more classes, has 1"),
        ({}, "{folder} must have a sub-folder for each of two or more classes, has 0"),
        ({"cat": 2, "dog": 1}, f"{{folder}} must have two or more classes of photographs; {ONE_DOG}"),
        (
            {"cat": 3, "dog": 2, "broken": 1},
            "{folder} must have two or more classes of photographs; dog/0.png cannot be read as an image: its format "
            f"is unknown; {ONE_DOG}",
        ),
        (None, "No such file or directory: {folder}"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_in_a_line(tmp_path, capsys, files, message):
    folder = tmp_path / "photographs"
    if files is not None:
        folder.mkdir()
        for name, count in files.items():
            for number in range(count if name != "broken" else 0):
                (folder / name).mkdir(exist_ok=True)
                Image.new("L", (9, 9), number).save(folder / name / f"{number}.png")
        if "broken" in files:
            (folder / "dog" / "0.png").write_bytes(b"none")
    before = sorted(tmp_path.rglob("*"))
    assert main(["look", str(folder)]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"vitbook: {message.format(folder=folder)}\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_four_lines_lead_from_a_folder_of_photographs_to_an_answer(tmp_path, monkeypatch, capsys):
    folder = photographs(tmp_path / "photographs")
    monkeypatch.chdir(tmp_path)
    fast = ["--epochs", "2", "--batch-size", "8", "--no-progress"]
    start = ["train", "--init", "vitbook:cifar10", "--tune", "lora", "--dataset", "photographs", *fast]
    assert main(["look", "photographs"]) == main(start) == main(["evaluate", "runs/vitbook_cifar10"]) == 0
    photo = str(folder / "animal" / "bird_duck.png")
    assert main(["predict", photo, "--checkpoint", "runs/vitbook_cifar10"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "test accuracy" in said[-2] and "(" in said[-2] and said[-1].startswith(f"{photo}: ")
    assert {part.split()[0] for part in said[-1].removeprefix(f"{photo}: ").split(", ")} == {"animal", "vehicle"}


def test_groups_in_several_parts_are_named(tmp_path, capsys):
    for part, clips in (("train", (0, 1, 2)), ("test", (2, 3))):
        for clip in clips:
            for kind in "ab":
                (tmp_path / part / kind).mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (9, 9), (60 * clip, 9, 9)).save(tmp_path / part / kind / f"clip{clip}.png")
    assert main(["look", str(tmp_path), "--group", r"clip\d"]) == 0
    said = capsys.readouterr().out
    assert "groups: 4, the largest is clip2 with 4 photographs\n" in said
    assert "groups in several parts: 1 (the test knows them)\n  clip2 in test and train\n" in said
