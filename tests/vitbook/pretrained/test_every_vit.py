"""Every Vision Transformer that timm and transformers register: loaded with equal outputs, or refused by name.

`make peers` runs this, and holds the table in every_vit.json, which the page of what was tested shows.
"""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from einops import rearrange
from torch import Tensor, nn
from torch.testing import assert_close

from vitbook.pretrained import load_pretrained
from vitbook.pretrained.config_files import read_stated
from vitbook.pretrained.loading import _config
from vitbook.pretrained.translating import translate

pytest_plugins = ["shared_fixtures"]
pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("double")]
# By library: what comes of it, equal outputs or what the error says, and the names of which that holds
OUTCOMES = json.loads(Path(__file__).with_name("every_vit.json").read_text(encoding="utf-8"))
TABLE = {
    library: {name: what for what, names in outcomes.items() for name in names.split()}
    for library, outcomes in OUTCOMES.items()
}
OF_TIMM = ("vision_transformer", "deit", "eva", "beit", "vision_transformer_hybrid", "vision_transformer_relpos")
OF_TIMM += ("vision_transformer_sam", "naflexvit")
OF_TRANSFORMERS = (
    "vit deit dinov2 dinov2_with_registers dinov3_vit clip siglip siglip2 vit_msn vit_mae ijepa beit".split()
)
OF_TRANSFORMERS += "data2vec yolos vitpose_backbone vitdet aimv2 radio vjepa2 videomae metaclip_2 altclip".split()
OF_TRANSFORMERS += "chinese_clip owlvit sam eomt".split()


@torch.no_grad()
def shaken(model: nn.Module) -> nn.Module:
    """A model in which every number matters: attention that looks at some tokens more, and norms that see little."""
    for parameter in model.parameters():
        wide = parameter.shape[-1] if parameter.ndim > 1 else 25
        parameter.normal_(mean=0.02, std=wide**-0.5)
    return model.double().eval()


@torch.no_grad()
def outcome(folder: Path, outputs: Callable[[nn.Module], tuple[Tensor, Tensor]]) -> str:
    """ "equal", or why the folder is refused; an AssertionError for a silent difference."""
    try:
        loaded = load_pretrained(folder)
    except ValueError as error:
        return str(error).removeprefix(f"{folder}").removeprefix("/config.json").removeprefix(": ").partition(";")[0]
    if not loaded.model.config.num_classes and any("classifier.weight" in note for note in loaded.notes):
        return "equal, without the head, as the notes say"
    ours, theirs = outputs(loaded.model)
    angles = 1e-5 if "dinov3" in loaded.layout else 1e-6  # timm's angles are float32
    assert_close(ours, theirs, rtol=0, atol=angles * max(1.0, theirs.abs().max().item()))
    return "equal"


@pytest.mark.parametrize("name", sorted(TABLE["timm"]))
def test_timms(torchvision, name, tmp_path):
    """One narrow block with as many heads, on 3×3 patches; and of its own width, whether the heads are told right."""
    timm = pytest.importorskip("timm", reason="timm is not installed; make peers installs it")
    expected = TABLE["timm"][name]
    (tmp_path / "config.json").write_text(json.dumps({"architecture": name, "pretrained_cfg": {}}))
    if not expected.startswith(("equal", "unexpected")):  # refused by its name alone
        torch.save({}, tmp_path / "pytorch_model.bin")
        assert expected in outcome(tmp_path, lambda ours: pytest.fail(f"{ours} was loaded"))
        return
    with torch.device("meta"):
        wide = timm.create_model(name, depth=1)
    patch, heads = wide.patch_embed.patch_size[0], wide.blocks[0].attn.num_heads
    if expected == "equal":
        assert _config(translate(wide.state_dict()), None, None, read_stated(tmp_path)).num_heads == heads
    sizes = dict(depth=1, num_classes=5, mlp_ratio=2, img_size=3 * patch, embed_dim=8 * heads, num_heads=heads)
    model = shaken(timm.create_model(name, **sizes))
    timm.models.save_for_hf(model, str(tmp_path), model_args=sizes)
    x = torch.randn(2, 3, 3 * patch, 3 * patch)
    assert expected in outcome(tmp_path, lambda ours: (ours(x), model(x)))


def test_the_table_has_every_name_of_timm(torchvision):
    timm = pytest.importorskip("timm", reason="timm is not installed; make peers installs it")
    assert set(TABLE["timm"]) == {name for module in OF_TIMM for name in timm.list_models(module=module)}


SIZES = dict(image_size=24, patch_size=8, hidden_size=36, num_hidden_layers=2, num_attention_heads=3)
SIZES |= dict(intermediate_size=52, num_labels=5, layer_norm_eps=1e-3, num_channels=3)
WORDS = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=9, vocab_size=11)


def classes_of_transformers(transformers) -> dict[str, type]:
    """The classes of these families that take images alone and can be made of a config."""
    found = {}
    for family in OF_TRANSFORMERS:
        modules = [name for name in dir(getattr(transformers.models, family)) if name.startswith("modeling_")]
        for module in (getattr(getattr(transformers.models, family), name) for name in modules):
            for name in getattr(module, "__all__", ()):
                cls = getattr(module, name)
                if inspect.isclass(cls) and issubclass(cls, transformers.PreTrainedModel):
                    sees = cls.main_input_name == "pixel_values" or hasattr(cls, "get_image_features")
                    if not re.search("PreTrained|Segmentation", name) and sees:
                        found[name] = cls
    return found


def made(cls: type) -> nn.Module:
    """A small model of a class of transformers."""
    kind = cls.config_class
    sizes = SIZES | (dict(image_size=[24, 24]) if "yolos" in kind.model_type else {})
    sizes |= dict(num_patches=9) if "siglip2" in kind.model_type else {}
    given = sizes | dict(mask_ratio=0.0)
    if hasattr(kind(), "vision_config"):
        given = dict(vision_config=sizes, text_config=WORDS, projection_dim=10, num_labels=5)
    return shaken(cls(kind(**given)))


def answers(model: nn.Module, x: Tensor) -> list[Tensor]:
    """What a model of transformers says of images, the more telling first."""
    given: dict = dict(pixel_values=x)
    if "siglip2" in model.config.model_type:
        given = dict(pixel_values=rearrange(x, "b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8))
        given |= dict(pixel_attention_mask=torch.ones(2, 9), spatial_shapes=torch.tensor([[3, 3]] * 2))
    elif model.config.model_type == "vit_mae":
        given |= dict(noise=torch.arange(9.0).expand(2, -1))
    model = model.base_model if "MaskedImageModeling" in type(model).__name__ else model  # whose decoder is dropped
    out = model.get_image_features(**given) if hasattr(model, "get_image_features") else model(**given)
    if isinstance(out, Tensor):
        return [out]
    if getattr(out, "feature_maps", None):
        return [out.feature_maps[-1].flatten(2).mT]
    names = ("logits", "image_embeds", "pooler_output", "last_hidden_state")
    return [out[name] for name in names if getattr(out, name, None) is not None]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (i % 3 > 0))
        for i, name in enumerate(sorted(TABLE["transformers"]))
    ],
)
def test_transformers(name, tmp_path):
    transformers = pytest.importorskip("transformers")
    model = made(classes_of_transformers(transformers)[name])
    model.save_pretrained(tmp_path)
    x = torch.randn(2, 3, 24, 24)

    def outputs(ours: nn.Module) -> tuple[Tensor, Tensor]:
        theirs = answers(model, x)
        if ours.config.num_classes or theirs[0].ndim == 2 and not hasattr(model, "pooler"):
            return ours(x), theirs[0]
        return ours.tokens(x)[:, -theirs[-1].shape[1] :], theirs[-1]

    assert TABLE["transformers"][name] in outcome(tmp_path, outputs)


def test_the_table_has_every_class_of_transformers():
    transformers = pytest.importorskip("transformers")
    assert set(TABLE["transformers"]) == set(classes_of_transformers(transformers))
