"""What a JSON file says becomes a dataclass only where every value has the type of its field."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from vitbook._support.json_config import from_json
from vitbook.engine import TrainConfig
from vitbook.runs import Run
from vitbook.vit import CONFIGS, ViTConfig


@pytest.mark.parametrize(
    ("cls", "facts", "message"),
    [
        (ViTConfig, [], "ViTConfig: .* object, got \\[\\]"),
        (ViTConfig, {"size": 3}, "size: "),
        (ViTConfig, {"dim": 12.5}, "dim: .* integer, got 12.5"),
        (ViTConfig, {"dim": True}, "dim: .* integer, got True"),
        (ViTConfig, {"qkv_bias": 1}, "qkv_bias: .* boolean, got 1"),
        (ViTConfig, {"image_size": [8, 8, 8]}, "image_size"),
        (ViTConfig, {"stem": ["a"]}, "stem.0: .* integer, got 'a'"),
        (ViTConfig, {"dim": 13}, "dim 13 is not divisible by num_heads 12"),
        (TrainConfig, {"betas": [0.9]}, "betas"),
        (TrainConfig, {"epochs": 10**30}, "epochs"),
        (Run, {"folder": 3}, "folder: .*, got 3"),
        (Run, {"train": {"epochs": "2"}}, "train.epochs: .* integer, got '2'"),
        (Run, {"vit": 3}, "vit: .* object, got 3"),
    ],
)
def test_what_is_of_another_type_is_named(cls, facts, message):
    with pytest.raises(ValueError, match=message):
        from_json(cls, facts)


def test_what_is_of_the_right_type_is_taken():
    assert from_json(ViTConfig, {"image_size": [8, 16], "patch_size": 4}) == ViTConfig((8, 16), 4)
    assert from_json(Run, {"folder": "a/b", "validation": 0}) == Run(folder=Path("a/b"), validation=0)
    assert from_json(TrainConfig, {"betas": [0, 0.5]}) == TrainConfig(betas=(0, 0.5))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_named_shape_comes_back_from_its_json(name):
    assert from_json(ViTConfig, json.loads(json.dumps(asdict(CONFIGS[name])))) == CONFIGS[name]
