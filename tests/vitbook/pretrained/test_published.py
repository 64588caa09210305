"""A name of published weights becomes a model, or the error says why not."""

import hashlib
from dataclasses import replace

import foreign
import pytest
import torch
from foreign import H, images
from safetensors.torch import save

from vitbook.pretrained import load_pretrained
from vitbook.pretrained.published import FAMILIES, PUBLISHED, Published, imagenet_classes

pytest_plugins = ["local_mirror"]


def test_an_unknown_name_brings_up_the_nearest_of_its_family():
    with pytest.raises(ValueError, match="'torchvision:vit_b16', did you mean 'torchvision:vit_b_16'") as error:
        load_pretrained("torchvision:vit_b16")
    assert "google:" not in str(error.value)
    for source in ("weights.npz", "C:/weights.npz"):
        with pytest.raises(FileNotFoundError):
            load_pretrained(source)


@pytest.fixture
def small(monkeypatch, mirror):
    """A small file in the place of a large one."""
    content = save({name: t.float().contiguous() for name, t in foreign.timm(dim=192, depth=1).items()})
    digits = hashlib.sha256(content).hexdigest()[:8]
    entry = Published("timm", "small", len(content) / 1e6, digits)
    monkeypatch.setitem(PUBLISHED, "timm:small", entry)
    mirror.files[entry.path] = content
    return entry


def test_a_name_becomes_a_model(mirror, small, capfd):
    weights = load_pretrained("timm:small", mirrors=[mirror("good")], progress=False)
    expected = load_pretrained(foreign.timm(dim=192, depth=1))
    assert torch.equal(weights.model(images().float()), expected.model(images().float()))
    assert (weights.layout, weights.notes) == ("timm", ())
    assert weights.preprocessing.mean == (0.5, 0.5, 0.5)
    assert capfd.readouterr() == ("", "")
    load_pretrained("timm:small", mirrors=[mirror("good")])
    assert mirror.asked == [f"good/{small.path}"]


def test_without_a_network_the_error_says_what_to_put_where(monkeypatch, cache, small):
    monkeypatch.setitem(FAMILIES, "timm", ("http://127.0.0.1:1", FAMILIES["timm"][1]))
    with pytest.raises(ConnectionError) as caught:
        load_pretrained("timm:small")
    assert small.sha256 in str(caught.value)
    assert f"{cache}/timm/small/resolve/main/model.safetensors" in str(caught.value)


def test_a_file_under_its_published_name_is_known(tmp_path, monkeypatch):
    for family, content in (
        ("torchvision", foreign.torchvision(published=True)),
        ("deit", {"model": foreign.timm(classes=1000)}),
    ):
        monkeypatch.setitem(PUBLISHED, f"{family}:small", Published(family, "small", 1.0, "01234567", 0.5))
        torch.save(content, tmp_path / "small-01234567.pth")
        weights = load_pretrained(tmp_path / "small-01234567.pth", num_heads=H)
        assert weights.notes == () and weights.preprocessing.crop == 0.5
        assert weights.preprocessing.mean == (0.485, 0.456, 0.406)
        assert weights.class_names == (imagenet_classes() if family == "deit" else None)  # 7 classes are not ImageNet's
        assert load_pretrained(tmp_path / "small-01234567.pth", num_heads=H, num_classes=3).class_names is None
        monkeypatch.delitem(PUBLISHED, f"{family}:small")


def test_a_file_without_a_published_sha256_is_trusted_on_first_use_and_said_to_be(monkeypatch, mirror, small):
    monkeypatch.setitem(PUBLISHED, "timm:small", replace(small, sha256=""))
    weights = load_pretrained("timm:small", mirrors=[mirror("good")], progress=False)
    assert weights.notes[-1].startswith("its SHA-256 is not published: what came first is trusted")


def test_a_download_stops_at_the_stated_size(monkeypatch, mirror, small):
    mirror.files[small.path] = bytes(10 * len(mirror.files[small.path]))
    monkeypatch.setitem(FAMILIES, "timm", (mirror("good"), FAMILIES["timm"][1]))
    with pytest.raises(ConnectionError, match="more than the 0.[0-9]+ MB that are expected"):
        load_pretrained("timm:small", progress=False)
