"""The table of published weights agrees with itself and our sizes; a name becomes a model, or it is said why not."""

import hashlib

import foreign
import pytest
import torch
from foreign import H, images
from safetensors.torch import save

from vitbook.distillation import DistilledVisionTransformer
from vitbook.pretrained import load_pretrained
from vitbook.pretrained import published as module
from vitbook.pretrained.layouts import GOOGLE
from vitbook.pretrained.published import FAMILIES, PUBLISHED, Published, imagenet_classes
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

pytest_plugins = ["local_mirror"]

SIZES = {"ti_16": "ti_16", "tiny": "ti_16", "s_16": "s_16", "small": "s_16", "b_16": "b_16", "base": "b_16"}
SIZES |= {"b_32": "b_32", "l_16": "l_16", "l_32": "l_32", "large": "l_16"}


def config_of(entry: Published) -> ViTConfig:
    """The shape that a name speaks of."""
    name = entry.name.lower()
    size = next(known for word, known in SIZES.items() if word in name)
    changes = dict(image_size=384) if "384" in name else {}
    if "i21k" in name and "imagenet2012" not in name:
        changes |= dict(num_classes=21843)
    if name.endswith("in21k"):
        changes |= dict(num_classes=0)
    return ViTConfig(**vars(CONFIGS[f"vit_{size}"]) | changes)


@pytest.mark.parametrize("entry", PUBLISHED.values(), ids=PUBLISHED)
def test_sizes_are_those_of_the_numbers_in_the_files(entry):
    distilled = "distilled" in entry.name
    with torch.device("meta"):
        model = (DistilledVisionTransformer if distilled else VisionTransformer)(config_of(entry))
    count = sum(parameter.numel() for parameter in model.parameters())
    count += 768 * 769 * entry.name.endswith("in21k")  # the pooler
    assert 4 * count / 1e6 == pytest.approx(entry.megabytes, rel=2e-3)


def test_addresses_are_whole():
    for entry in PUBLISHED.values():
        address = f"{FAMILIES[entry.family][0]}/{entry.path}"
        assert address.startswith("https://") and "{" not in address and "//" not in address.removeprefix("https://")
        assert all(letter in "0123456789abcdef" for letter in entry.sha256)
        assert (len(entry.sha256) == 8) == (entry.family in ("torchvision", "deit"))
    google = PUBLISHED.get(
        "google:Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224"
    )
    assert google.path == f"{google.name}.npz"
    assert PUBLISHED.get("torchvision:vit_b_16").path == "vit_b_16-c867db91.pth"
    timm = PUBLISHED.get("timm:vit_base_patch16_384.augreg_in21k_ft_in1k")
    assert timm.path == "timm/vit_base_patch16_384.augreg_in21k_ft_in1k/resolve/main/model.safetensors"
    assert timm.crop == 1.0
    assert int(224 / PUBLISHED.get("torchvision:vit_l_16").crop) == 242


def test_published_accuracies_stand_beside_their_files():
    timm = {"tiny_patch16_224": 75.452, "small_patch16_224": 81.402, "base_patch16_224": 84.534}
    timm |= {"large_patch16_224": 85.856, "base_patch16_384": 85.996}
    deit = {"tiny_patch16_224": 72.202, "small_patch16_224": 79.854, "base_patch16_224": 81.846}
    deit |= {"tiny_distilled_patch16_224": 74.476, "small_distilled_patch16_224": 81.164}
    deit |= {"base_distilled_patch16_224": 83.372, "base_patch16_384": 82.89, "base_distilled_patch16_384": 85.224}
    known = {"vit_b_16": 81.072, "vit_b_32": 75.912, "vit_l_16": 79.662, "vit_l_32": 76.972}
    known = {f"torchvision:{name}": top_1 for name, top_1 in known.items()}
    known |= {f"timm:vit_{name}.augreg_in21k_ft_in1k": top_1 for name, top_1 in timm.items()}
    known |= {f"deit:deit_{name}": top_1 for name, top_1 in deit.items()}
    assert {name: entry.top_1 for name, entry in PUBLISHED.items() if entry.top_1 is not None} == known
    assert [entry.crop for entry in PUBLISHED.values() if entry.crop] == [1.0, 0.9256]  # the column behind it


def test_googles_smallest_file_holds_200_arrays():
    """Of 5,717,416 numbers, as many as our model."""
    depth = CONFIGS["vit_ti_16"].depth
    names = [name for row in GOOGLE.rows(depth) if row.ours != "-" for name in row.theirs]
    assert len(names) == len(set(names)) == 200
    with torch.device("meta"):
        model = VisionTransformer(CONFIGS["vit_ti_16"])
    assert sum(parameter.numel() for parameter in model.parameters()) == 5_717_416
    assert {row.ours for row in GOOGLE.rows(depth)} - {"-"} == set(model.state_dict())


def test_other_sources_are_none_and_unknown_names_bring_up_the_nearest():
    assert PUBLISHED.get("weights.npz") is None
    assert PUBLISHED.get("C:/weights.npz") is None
    with pytest.raises(ValueError, match="unknown weights 'torchvision:vit_b16', did you mean 'torchvision:vit_b_16'"):
        PUBLISHED.get("torchvision:vit_b16")


def test_imagenets_classes_have_names():
    names = imagenet_classes()
    assert len(names) == len(set(names)) == 1000
    assert all(name == name.strip() and name for name in names)
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
    pictures = images().float()
    assert torch.equal(weights.model(pictures), expected.model(pictures))
    assert (weights.layout, weights.notes) == ("timm", ())
    assert weights.preprocessing.mean == (0.5, 0.5, 0.5)
    assert capfd.readouterr() == ("", "")
    load_pretrained("timm:small", mirrors=[mirror("good")])
    assert mirror.asked == [f"good/{small.path}"]


def test_a_bar_is_shown(mirror, small, capfd):
    load_pretrained("timm:small", mirrors=[mirror("good")], progress=True)
    assert "model.safetensors: 100%" in capfd.readouterr().err


def test_without_a_network_it_is_said_what_to_put_where(monkeypatch, cache, small):
    monkeypatch.setitem(FAMILIES, "timm", ("http://127.0.0.1:1", FAMILIES["timm"][1]))
    with pytest.raises(ConnectionError) as caught:
        load_pretrained("timm:small")
    told = f"Get it by another way ({small.megabytes:.1f} MB, SHA-256 begins {small.sha256}) and put it at {cache}/"
    assert told + "timm/small/resolve/main/model.safetensors, or use the file where it is" in str(caught.value)


def test_a_file_under_its_published_name_is_known(tmp_path, monkeypatch):
    entry = Published("torchvision", "vit_small", 1.0, "01234567")
    monkeypatch.setitem(PUBLISHED, "torchvision:vit_small", entry)
    torch.save(foreign.torchvision(old=True), tmp_path / "vit_small-01234567.pth")
    weights = load_pretrained(tmp_path / "vit_small-01234567.pth", num_heads=H)
    assert weights.notes == ()
    assert weights.preprocessing.mean == (0.485, 0.456, 0.406)
    assert weights.class_names is None  # 7 classes are not ImageNet's


def test_heads_of_a_thousand_classes_are_imagenets(tmp_path, monkeypatch):
    monkeypatch.setitem(PUBLISHED, "deit:small", Published("deit", "small", 1.0, "01234567"))
    torch.save({"model": foreign.timm(classes=1000, dim=192, depth=1)}, tmp_path / "small-01234567.pth")
    assert load_pretrained(tmp_path / "small-01234567.pth").class_names == imagenet_classes()
    assert load_pretrained(tmp_path / "small-01234567.pth", num_classes=3).class_names is None
