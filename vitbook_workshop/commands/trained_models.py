"""A trained model by its name, a run's folder, a file or published weights, opened once, and what it says of images."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

from vitbook._common.files import refuse_pipes
from vitbook._common.images import read_image
from vitbook._common.json_config import from_json
from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.pretrained.loading import NOT_STATED, OpenedWeights, open_weights
from vitbook.pretrained.preprocessing import STYLES
from vitbook.pretrained.published import FAMILIES
from vitbook.runtime import device


def open_model(source: Path | str) -> Pretrained:
    """A model to use, in evaluation, on the GPU if there is one, and what has to be known for that.

    source: a checkpoint, which is the folder of a run, whose best weights are taken, or a JSON in it in which weights
    are all there is, as in "best"; or, as a string, anybody's weights as in `load_pretrained`. Raises FileNotFoundError
    where there is no checkpoint, and what `load_pretrained` raises. Warns of what weights do not tell.
    """
    if isinstance(source, Path):
        source = _best_in(source)
    if os.path.exists(source):
        refuse_pipes(Path(source))
    opened = open_weights(source)
    weights = _convolutional(opened) if "widths" in (opened.facts.get("model") or ()) else load_pretrained(opened)
    for note in (note for note in weights.notes if note.endswith(NOT_STATED)):
        warnings.warn(note, stacklevel=2)
    weights.model.to(device())
    return weights


def _convolutional(opened: OpenedWeights) -> Pretrained:
    """A checkpoint's `WhiteningCNN`."""
    facts = opened.facts
    model = WhiteningCNN(from_json(CNNConfig, facts["model"])).eval()
    model.load_state_dict(opened.content)
    moments = {name: tuple(facts[name]) for name in ("mean", "std")}
    preprocessing = Preprocessing(image_size=model.config.image_size, **STYLES["vitbook"] | moments)
    return Pretrained(model, preprocessing, tuple(facts["class_names"]), "vitbook", (), facts=facts)


def _best_in(checkpoint: Path) -> Path:
    """The JSON of a run's best weights, or of the checkpoint that was named.

    Raises FileNotFoundError where there is none, ValueError for one that is there to resume from.
    """
    path = checkpoint / "best.json" if checkpoint.is_dir() else checkpoint
    if path.name == "last.json":
        raise ValueError(f"{path} is what a run is resumed from; its weights to use are in best.json")
    if not path.exists():
        hint = "`vitbook train` makes one"
        if seeds := sorted(str(seed) for seed in checkpoint.glob("seed_*")):
            hint = f"it holds a run for each seed: name {' or '.join(seeds)}"
        if str(checkpoint).startswith(tuple(f"{family}:" for family in ("vitbook", *FAMILIES))):
            hint = f"published weights are named so: --weights {checkpoint}"
        raise FileNotFoundError(f"there is no trained model at {checkpoint}; {hint}")
    return path


def classifier(source: Path | str, top: int = 3) -> Callable[[Path], list[tuple[str, float]]]:
    """What names the likeliest classes of an image file, and their probabilities, likeliest first.

    source: as in `open_model`. Of each image, what the weights want to see is taken; a model of one channel sees it
    in gray. top: how many classes. Raises ValueError for weights without a head; what it returns, for a file that is no
    image.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    weights = open_model(source)
    if not weights.model.config.num_classes:
        raise ValueError(f"the weights {source} have no head, and so name no classes")

    @torch.no_grad()
    def name(image: Path) -> list[tuple[str, float]]:
        pixels = weights.preprocessing(read_image(image)).to(device())
        probabilities = weights.model(pixels)[0].softmax(dim=0)
        shares, classes = probabilities.cpu().topk(min(top, len(probabilities)))
        names = [weights.class_names[k] if weights.class_names else f"class {k}" for k in classes.tolist()]
        return list(zip(names, shares.tolist(), strict=True))

    return name


def predict_images(source: Path | str, images: list[Path], top: int = 3) -> list[list[tuple[str, float]]]:
    """For each image file, what `classifier` says of it; errors are its own."""
    return list(map(classifier(source, top), images))
