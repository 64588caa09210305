"""Trained models as teachers: they see the images of a student as their own were normalized."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from vitbook.data import Dataset
from vitbook.patches import Images
from vitbook.pretrained import Pretrained
from vitbook_workshop.training_runs.settings import RECIPES
from vitbook_workshop.training_runs.trained_models import open_model


class Teacher(nn.Module):
    """A model that takes images as they are normalized for another: x·std + mean, normalized as its own were."""

    def __init__(self, weights: Pretrained, data: Dataset):
        super().__init__()
        self.model = weights.model
        mean, std = weights.preprocessing.moments
        self.register_buffer("scale", (data.std / std)[:, None, None])
        self.register_buffer("shift", ((data.mean - mean) / std)[:, None, None])

    def forward(self, images: Images) -> Tensor:
        return self.model(images * self.scale + self.shift)


class Teachers(nn.Module):
    """Several teachers, each with its share of a batch: together they cost what one does. (B, C, H, W) → (B, K).

    A student whose images are shuffled hears each of them on every image in the end; what cross-entropy asks of it is
    then, on average, the mean of their probabilities.
    """

    def __init__(self, members: list[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, images: Images) -> Tensor:
        shares = images.chunk(len(self.members))  # the last may be smaller, or missing
        return torch.cat([member(share) for member, share in zip(self.members, shares, strict=False)])


def load_teacher(source: str, data: Dataset) -> nn.Module:
    """Weights to learn from, ready for the images of `data`: a `Teacher`, or `Teachers` for a run of several seeds.

    Raises ValueError unless size and classes are the same, FileNotFoundError where there are none, with what trains
    them.
    """
    if seeds := sorted(map(str, Path(source).glob("seed_*"))):
        return Teachers([load_teacher(seed, data) for seed in seeds])
    recipe = Path(source).name
    if recipe in RECIPES and not os.path.exists(source):
        raise FileNotFoundError(f"there is no teacher at {source}; `vitbook train --config {recipe}` trains it")
    weights = open_model(source)
    names, config = weights.class_names, weights.model.config
    theirs = {"images": (config.channels, *config.image_size), "classes": names or config.num_classes}
    ours = {
        "images": tuple(data.train.images.shape[1:]),
        "classes": data.class_names if names else len(data.class_names),
    }
    for name, wanted in ours.items():
        if theirs[name] != wanted:
            raise ValueError(f"teacher {source} must know the data's {name} {wanted}, got {theirs[name]}")
    return Teacher(weights, data)
