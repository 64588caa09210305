"""What is written for others is what they read: the same tensors, the same logits."""

import json
from dataclasses import replace

import foreign
import pytest
import torch
from foreign import H, images
from safetensors.torch import save_file
from torch.testing import assert_close

from vitbook.pretrained import huggingface_config, load_pretrained, to_huggingface, to_timm
from vitbook.vit import VisionTransformer


@pytest.mark.parametrize("distilled", [False, True])
def test_writing_and_reading_again_changes_nothing(distilled):
    state = foreign.timm(distilled)
    model = load_pretrained(state, num_heads=H).model
    for write in (to_timm, to_huggingface):
        again = load_pretrained(write(model), num_heads=H).model
        assert again.config == model.config
        assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    written = to_timm(model)
    assert written.keys() == state.keys()
    assert all(torch.equal(written[name], tensor.float()) for name, tensor in state.items())
    written["cls_token"].zero_()
    assert model.embedding.cls_token.any()  # a copy was written


@pytest.mark.parametrize("distilled", [False, True])
def test_hugging_face_reads_what_we_write(tmp_path, distilled):
    transformers = pytest.importorskip("transformers")
    ours = load_pretrained(foreign.timm(distilled), num_heads=H).model.double()
    save_file(to_huggingface(ours), tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(huggingface_config(ours)))
    cls = getattr(transformers, huggingface_config(ours)["architectures"][0])
    theirs = cls.from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert_close(ours(images()), theirs(images()).logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(pool="mean"), "timm has pool 'class' and positions 'learned', got 'mean' and 'learned'"),
        (dict(positions="learned_2d"), "got 'class' and 'learned_2d'"),
        (dict(stem=(8,)), "timm has no place for embedding.patch_embed.stem.0.weight"),
    ],
)
def test_what_others_have_no_names_for_is_not_written(changes, message):
    config = load_pretrained(foreign.timm(), num_heads=H).model.config
    with pytest.raises(ValueError, match=message):
        to_timm(VisionTransformer(replace(config, **changes)))
