"""Features are those of the model, go on where they were stopped, and find what is alike."""

import os
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageOps
from safetensors.torch import load_file

from vitbook._common.images import read_image
from vitbook.data import album, album_credits
from vitbook.pretrained import load_pretrained
from vitbook_workshop.commands import embeddings, main


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Ten photographs of the album, one of them once more, mirrored."""
    monkeypatch.chdir(tmp_path)
    for credit, pixels in list(zip(album_credits(), album(128).images, strict=True))[:10]:
        place = Path("photographs", credit["label"], f"{Path(credit['file']).stem}.png")
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(place)
    first = sorted(Path("photographs").rglob("*.png"))[0]
    ImageOps.mirror(Image.open(first)).save(first.with_name("mirrored.png"))
    return Path("photographs")


def run(command: str, *options: str) -> int:
    return main([command, "photographs", *options, "--weights", "vitbook:cifar10"])


@pytest.mark.parametrize("feature", ["class", "mean", "both"])
def test_features_are_the_models_and_go_on_where_they_were_stopped(folder, feature, monkeypatch, capsys):
    weights, monkey = load_pretrained("vitbook:cifar10"), monkeypatch.context
    if feature != "mean" and not len(weights.model.embedding.prefix_tokens):
        assert run("embed", "--feature", feature) == 1 and "has none: take mean" in capsys.readouterr().err
        return
    embedder = embeddings.embedder
    with monkey() as patch:

        def stopping(*args):
            embed, asked = embedder(*args), []

            def stop(path):
                asked.append(path)
                if len(asked) == 5:
                    raise KeyboardInterrupt
                return embed(path)

            return stop

        patch.setattr(embeddings, "embedder", stopping)
        assert run("embed", "--feature", feature, "--no-normalize") == 130
    assert len(load_file("features.safetensors")["features"]) == 4
    assert run("embed", "--feature", feature, "--no-normalize") == 0
    features = load_file("features.safetensors")["features"]
    files = list(embeddings.files_in(folder))
    with torch.no_grad():
        tokens = weights.model.tokens(torch.cat([weights.preprocessing(read_image(file)) for file in files]))
    prefix = len(weights.model.embedding.prefix_tokens)
    parts = {"class": tokens[:, 0], "mean": tokens[:, prefix:].mean(dim=1)}
    expected = torch.cat(list(parts.values()), dim=1) if feature == "both" else parts[feature]
    close = 1e-3 if torch.cuda.is_available() else 1e-4  # a GPU's convolutions round to TF32
    torch.testing.assert_close(features, expected, rtol=close, atol=close)
    assert run("embed", "--feature", feature) == 1
    assert "has features of normalize False, not True: name another file" in capsys.readouterr().err


def test_a_photograph_that_was_replaced_is_looked_at_again(folder):
    photo = sorted(folder.rglob("*.png"))[0].with_suffix(".bmp")
    for levels in (30, 220):
        Image.new("RGB", (32, 32), (levels, 90, 90)).save(photo)
        assert run("embed", "--feature", "mean") == 0
    kept = load_file("features.safetensors")["features"]
    Path("features.safetensors").unlink()
    assert run("embed", "--feature", "mean") == 0
    assert torch.equal(kept, load_file("features.safetensors")["features"])


def test_another_folder_of_the_same_names_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = []
    for part, levels in (("one", 30), ("other", 220)):
        place = Path(part, "photographs", "a.bmp")
        place.parent.mkdir(parents=True)
        Image.new("RGB", (32, 32), (levels, 90, 90)).save(place)
        os.utime(place, (1e9, 1e9))
        embeddings.embed_folder(place.parent, tmp_path / "features.safetensors", "vitbook:cifar10", "mean")
        found.append(load_file("features.safetensors")["features"])
    assert not torch.allclose(*found)


def test_weights_that_were_trained_again_are_other_weights(folder, monkeypatch, capsys):
    assert run("embed", "--feature", "mean") == 0
    weights = load_pretrained("vitbook:cifar10")
    next(weights.model.parameters()).data[0] += 1
    monkeypatch.setattr(embeddings, "open_model", lambda source: weights)
    assert run("embed", "--feature", "mean") == 1
    assert "has features of other weights, vitbook:cifar10 as it was then, and not" in capsys.readouterr().err


def test_an_image_without_a_suffix_is_one_and_a_text_is_none(folder, capsys):
    photo = sorted(folder.rglob("*.png"))[0]
    shutil.copy(photo, folder / "photo")
    (folder / "README").write_text("Photographs.")
    assert run("similar", str(photo), "--feature", "mean", "--top", "2") == 0
    assert str(folder / "photo") in capsys.readouterr().out


def test_the_photograph_itself_is_the_most_similar_and_its_mirror_image_is_found(folder, capsys):
    asked = str(sorted(folder.rglob("*.png"))[0])
    (folder / "broken.png").write_bytes(b"no image")
    assert run("similar", asked, "--feature", "mean", "--top", "3") == 0
    said = capsys.readouterr()
    first, second, *_ = said.out.splitlines()
    assert first == f"1.000 {asked}" and second.endswith("mirrored.png")
    assert "broken.png cannot be read" in said.err
    assert Image.open("similar.png").size == (640, 178)
    assert run("similar", "--feature", "mean", "--above", "0.95") == 0
    assert "mirrored.png ~ " in capsys.readouterr().out
