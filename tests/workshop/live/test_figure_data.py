"""What is packed for a browser: models that the scripts compute, and no others."""

from dataclasses import replace

import pytest
from explored import PREPARE, small_vit

from vitbook.cnn import SmallCNN
from vitbook.modern import ModernConfig, ModernViT
from vitbook.pretrained import Pretrained
from vitbook.task_heads import HiddenLayerHead
from vitbook.vit import VisionTransformer
from vitbook_workshop.live import figure_data
from vitbook_workshop.live.figure_data import packed_model


def trained(**changes) -> Pretrained:
    return Pretrained(small_vit(**changes), PREPARE, None, "vitbook", ())


@pytest.mark.door
@pytest.mark.parametrize("switch", ["fc_norm", "class_and_mean"])
def test_what_the_scripts_would_compute_otherwise_is_refused(switch):
    settings = vars(small_vit().config) | {switch: True} | ({"pool": "mean"} if switch == "fc_norm" else {})
    with pytest.raises(ValueError, match=f"the page does not compute models with {switch}"):
        packed_model(replace(trained(), model=ModernViT(ModernConfig(**settings))))


@pytest.mark.door
def test_a_model_that_is_not_computed_is_refused(monkeypatch):
    class Other(VisionTransformer):
        pass

    for model in (SmallCNN(3, 10), Other(trained().model.config)):
        with pytest.raises(ValueError, match=f"model must be one of VisionTransformer, .*, got {type(model).__name__}"):
            packed_model(replace(trained(), model=model))
    changed = trained()
    changed.model.head = HiddenLayerHead(24, 5, 4)
    with pytest.raises(ValueError, match="the parts that its config says, which head.bias, head.head.bias, .* are not"):
        packed_model(changed)
    with pytest.raises(ValueError, match="the model's 4 channels must be those of the preprocessing, got 3 channels"):
        packed_model(trained(channels=4))
    monkeypatch.setattr(figure_data, "MOST_NUMBERS", 10_000)
    with pytest.raises(ValueError, match="at most 10,000 parameters, as a page's script can hold no more, got "):
        packed_model(trained())
