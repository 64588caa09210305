"""The table of published weights agrees with our sizes; a name becomes a model, or the error says why not."""

import hashlib
from dataclasses import replace

import foreign
import pytest
import torch
from foreign import H, images
from safetensors.torch import save

from vitbook.distillation import DistilledVisionTransformer
from vitbook.pretrained import load_pretrained, published
from vitbook.pretrained.published import FAMILIES, PUBLISHED, Published, imagenet_classes
from vitbook.vit import CONFIGS, VisionTransformer

pytest_plugins = ["local_mirror"]

SIZES = {"ti_16": "ti_16", "tiny": "ti_16", "s_16": "s_16", "small": "s_16", "b_16": "b_16", "base": "b_16"}
SIZES |= {"b_32": "b_32", "l_16": "l_16", "l_32": "l_32", "large": "l_16"}


@pytest.mark.parametrize("entry", PUBLISHED.values(), ids=PUBLISHED)
def test_sizes_are_those_of_the_numbers_in_the_files(entry):
    name = entry.name.lower()
    config = CONFIGS[f"vit_{next(size for word, size in SIZES.items() if word in name)}"]
    config = replace(config, image_size=384) if "384" in name else config
    config = replace(config, num_classes=21843) if "i21k" in name and "imagenet2012" not in name else config
    pooler = 768 * 769 * name.endswith("in21k")
    config = replace(config, num_classes=0) if pooler else config
    with torch.device("meta"):
        model = (DistilledVisionTransformer if "distilled" in name else VisionTransformer)(config)
    count = sum(parameter.numel() for parameter in model.parameters()) + pooler
    assert 4 * count / 1e6 == pytest.approx(entry.megabytes, rel=2e-3)
    assert (len(entry.sha256) == 8) == (entry.family in ("torchvision", "deit"))
    assert entry.top_1 is None or 70 < entry.top_1 < 90


def test_a_line_of_the_table_gives_path_and_crop():
    assert published is not PUBLISHED and published.PUBLISHED is PUBLISHED  # the module, under its own name
    assert PUBLISHED["torchvision:vit_b_16"].path == "vit_b_16-c867db91.pth"
    assert [(name, entry.crop) for name, entry in PUBLISHED.items() if entry.crop] == [
        ("timm:vit_base_patch16_384.augreg_in21k_ft_in1k", 1.0),
        ("torchvision:vit_l_16", 0.9256),
    ]


def test_an_unknown_name_brings_up_the_nearest_of_its_family():
    with pytest.raises(
        ValueError, match="unknown weights 'torchvision:vit_b16', did you mean 'torchvision:vit_b_16'"
    ) as error:
        load_pretrained("torchvision:vit_b16")
    assert "google:" not in str(error.value)
    for source in ("weights.npz", "C:/weights.npz"):
        with pytest.raises(FileNotFoundError):
            load_pretrained(source)


def test_imagenets_classes_have_names():
    names = imagenet_classes()
    assert len(names) == len(set(names)) == 1000
    chosen = {0: "tench", 1: "goldfish", 281: "tabby", 285: "Egyptian cat", 417: "balloon", 999: "toilet tissue"}
    assert {k: names[k] for k in chosen} == chosen


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


def test_a_bar_is_shown(mirror, small, capfd):
    load_pretrained("timm:small", mirrors=[mirror("good")], progress=True)
    assert "model.safetensors: 100%" in capfd.readouterr().err


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
