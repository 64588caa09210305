"""What a JSON file says becomes a dataclass only where every value has the type of its field."""

from pathlib import Path

import pytest

from vitbook._common.json_config import from_json
from vitbook.engine import TrainConfig
from vitbook.vit import ViTConfig
from vitbook_workshop.training_runs.settings import Run


@pytest.mark.parametrize(
    ("cls", "facts", "message"),
    [
        (ViTConfig, [], "ViTConfig: .* object, got \\[\\]"),
        (ViTConfig, {"dim": 12.5}, "dim: .* integer, got 12.5"),
        (ViTConfig, {"dim": True}, "dim: .* integer, got True"),
        (ViTConfig, {"image_size": [8, 8, 8]}, "image_size"),
        (ViTConfig, {"stem": ["a"]}, "stem.0: .* integer, got 'a'"),
        (TrainConfig, {"betas": [0.9]}, "betas"),
        (TrainConfig, {"epochs": 10**30}, "epochs"),
        (Run, {"train": {"epochs": "2"}}, "train.epochs: .* integer, got '2'"),
    ],
)
def test_what_is_of_another_type_is_named(cls, facts, message):
    with pytest.raises(ValueError, match=message):
        from_json(cls, facts)


def test_what_is_of_the_right_type_is_taken():
    assert from_json(ViTConfig, {"image_size": [8, 16], "patch_size": 4}) == ViTConfig((8, 16), 4)
    assert from_json(Run, {"folder": "a/b", "validation": 0}) == Run(folder=Path("a/b"), validation=0)
    assert from_json(TrainConfig, {"betas": [0, 0.5]}) == TrainConfig(betas=(0, 0.5))
