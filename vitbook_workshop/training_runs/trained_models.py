"""A trained model by its name, a run's folder, a file or published weights, opened once, and what it says of images."""

import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from vitbook._common.files import read_json, refuse_pipes
from vitbook._common.images import read_pixels
from vitbook._common.json_config import from_json
from vitbook._common.suggestions import listed
from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.contrastive import cosines, name_probabilities
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.pretrained.loading import HARMLESS, OpenedWeights, open_weights
from vitbook.pretrained.preprocessing import STYLES
from vitbook.pretrained.published import FAMILIES
from vitbook.runtime import device
from vitbook.vit import VisionTransformer
from vitbook_workshop.training_runs import lora_files, text_towers


def open_model(source: Path | str) -> Pretrained:
    """A model to use, in evaluation, on the GPU if there is one, and what has to be known for that.

    source: a checkpoint, which is the folder of a run, whose best weights are taken, or a JSON in it in which weights
    are all there is, as in "best"; or, as a string, anybody's weights as in `load_pretrained`, or the folder of an
    adapter, which names the model that it goes on. Raises FileNotFoundError where there is no checkpoint, and what
    `load_pretrained` and `lora_files.load_adapter` raise. Warns of what weights do not tell, and of
    what was dropped or chosen.
    """
    if isinstance(source, Path):
        source = _best_in(source)
    elif (adapter := read_json(Path(source, lora_files.CONFIG))) is not None:
        base = adapter.get("base_model_name_or_path")
        if not base or not isinstance(base, str):
            raise ValueError(f"{source} is an adapter that does not name its model, as base_model_name_or_path")
        weights = open_model(base if Path(base).exists() or ":" in base else f"hf:{base}")
        lora_files.load_adapter(weights.model, Path(source))
        names = weights.class_names or ()
        return replace(weights, class_names=names if len(names) == weights.model.config.num_classes else None)
    if os.path.exists(source):
        refuse_pipes(Path(source))
    opened = replace(open_weights(source), once=True)
    weights = _convolutional(opened) if "widths" in (opened.facts.get("model") or ()) else _loaded(opened)
    if weights.task == "masks":
        weights = _segmenting(weights, opened)
    say_what_is_assumed(weights.notes)
    weights.model.to(device())
    return weights


def _loaded(opened: OpenedWeights) -> Pretrained:
    """As `load_pretrained`, whose errors name its arguments: commands have no options for them."""
    try:
        return load_pretrained(opened)
    except ValueError as error:
        if str(error).endswith("="):
            raise ValueError(f"{error} in Python, to load_pretrained: no option of the command does it") from None
        raise


def _convolutional(opened: OpenedWeights) -> Pretrained:
    """A checkpoint's `WhiteningCNN`."""
    facts = opened.facts
    model = WhiteningCNN(from_json(CNNConfig, facts["model"])).eval()
    model.load_state_dict(opened.content)
    moments = {name: tuple(facts[name]) for name in ("mean", "std")}
    preprocessing = Preprocessing(image_size=model.config.image_size, **STYLES["vitbook"] | moments)
    names, task = tuple(facts["class_names"]), facts.get("task", "classes")
    return Pretrained(model, preprocessing, names, "vitbook", (), facts=facts, task=task)


def _segmenting(weights: Pretrained, opened: OpenedWeights) -> Pretrained:
    """A checkpoint's `Segmenter`, around its backbone. Raises ValueError for a head that does not fit."""
    from vitbook.task_heads import Segmenter  # it needs scipy

    names = tuple(map(str, opened.facts["class_names"]))
    model = Segmenter(weights.model, len(names)).eval()
    try:
        head = {name: tensor for name, tensor in opened.content.items() if name.startswith("head.")}
        model.head.load_state_dict({name.removeprefix("head."): tensor for name, tensor in head.items()})
    except RuntimeError as error:
        raise ValueError(f"{opened.source}: the head does not fit: {error}") from None
    return replace(weights, model=cast(VisionTransformer, model), class_names=names)


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


def classifier(
    source: Path | str,
    top: int = 3,
    names: Sequence[str] = (),
    unknown: Callable[[Tensor], Tensor] | None = None,
    masks: Path | None = None,
) -> Callable[[Path], list[tuple[str, float]]]:
    """What names the likeliest classes of an image file, and their probabilities, likeliest first.

    Of a model that gives a number, its name is the number, and nan stands in place of a probability; of several numbers
    each stands behind its name. Of labels, of which several may hold, the probability is each one's own.

    source: as in `open_model`, or with names as in `text_towers.load_towers`. Of each image, what the weights want to
    see is taken; a model of one channel sees it in gray. top: how many classes; names: what the classes are, as prompts
    for weights with a text tower; unknown: says of logits (B, K) which show none of the classes (B,), for which nothing
    is named; masks: a folder for what a model says that names the class of each pixel, "predicted" if None, see
    `segmented`: the likeliest classes are then those of most pixels, and probabilities are their shares.
    Raises ValueError for weights without a head, for those that need names, and for masks of any other model; what it
    returns, for a file that is no image.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if masks and names:
        raise ValueError("masks are what a model of --task segment says, and names ask another: drop one")
    if names:
        answer_to, preprocessing = _by_words(source, names)
    else:
        weights = open_model(source)
        if weights.task == "masks":
            from vitbook_workshop.training_runs.segmented import segmented

            return lambda image: segmented(weights, image, masks or Path("predicted"), top)
        _check_head(source, weights)
        if masks:
            raise ValueError(
                f"masks are what a model of --task segment says, and {source} answers with {task_of(weights)}"
            )
        answer_to, preprocessing = weights.model, weights.preprocessing

    @torch.no_grad()
    def name(image: Path) -> list[tuple[str, float]]:
        answer = answer_to(preprocessing(read_pixels(image)).to(device()))
        if unknown is not None and unknown(answer).item():
            return []
        return _likeliest(answer[0], names, top) if names else said_by(weights, answer[0], top)

    return name


def said_by(weights: Pretrained, logits: Tensor, top: int = 1) -> list[tuple[str, float]]:
    """What the logits of one image mean, (K,): the likeliest classes or labels and their probabilities, or numbers.

    Beside a number stands nan. It is printed to a thousandth of the standard deviation of those that were learned, if
    that is known; of several, behind its name.
    """
    task, scale, known = task_of(weights), weights.facts.get("scale"), weights.class_names or ()
    if task != "number":
        return _likeliest(logits.sigmoid() if task == "labels" else logits.softmax(dim=-1), known, top)
    places = f".{max(0, 3 - math.floor(math.log10(scale[1])))}f" if scale else ".4g"
    mean, std = scale or (0.0, 1.0)
    numbers = [f"{number * std + mean:{places}}" for number in logits.tolist()]
    if len(numbers) > 1:
        numbers = [f"{known[k] if known else f'number {k}'} {number}" for k, number in enumerate(numbers)]
    return [(number, math.nan) for number in numbers]


def task_of(weights: Pretrained) -> str:
    """What a model answers with, one of `vitbook.targets.TASKS`; "" where its head, if it has one, names nothing."""
    projects = any(line.ours == "head.weight" and "proj" in line.theirs for line in weights.names.outside)
    return "" if projects or not weights.model.config.num_classes else weights.task


def _likeliest(probabilities: Tensor, known: Sequence[str], top: int) -> list[tuple[str, float]]:
    shares, classes = probabilities.cpu().topk(min(top, len(probabilities)))
    named = [known[k] if known else f"class {k}" for k in classes.tolist()]
    return list(zip(named, shares.tolist(), strict=True))


def _check_head(source: Path | str, weights: Pretrained) -> None:
    """Raise ValueError for a model whose head names nothing, or that has none."""
    if not weights.model.config.num_classes:
        dropped = "; ".join(note for note in weights.notes if note.startswith("dropped"))
        raise ValueError(f"the weights {source} have no head, and so name no classes{dropped and f': {dropped}'}")
    if not task_of(weights):
        raise ValueError(f"the head of {source} is no classifier: say what to look for, as --names 'a cat' 'a dog'")


@torch.no_grad()
def _by_words(source: Path | str, names: Sequence[str]) -> tuple[Callable[[Tensor], Tensor], Preprocessing]:
    """The probabilities of names in words, by two towers."""
    towers = text_towers.load_towers(source)
    if len(names) == 1 and not towers.sigmoid:
        raise ValueError(f"of one name, {names[0]!r}, a softmax always says 100 %: name what else there may be, too")
    say_what_is_assumed(towers.notes)
    model = towers.model.to(device())
    words = model.read(names)
    return (
        lambda x: name_probabilities(model.to_logits(cosines(model.see(x), words)), towers.sigmoid),
        towers.preprocessing,
    )


def say_what_is_assumed(notes: Iterable[str]) -> None:
    """Say what weights do not tell, and what of them was dropped, changed or not read, unless that is harmless."""
    said = [note for note in notes if not HARMLESS.fullmatch(note)]
    dropped = [note for note in said if re.fullmatch(r"dropped \S+", note)]
    together = [f"dropped {listed(note.removeprefix('dropped ') for note in dropped)}"] if dropped else []
    for note in [note for note in said if note not in dropped] + together:
        warnings.warn(note, stacklevel=3)


def predict_images(source: Path | str, images: list[Path], top: int = 3) -> list[list[tuple[str, float]]]:
    """For each image file, what `classifier` says of it; errors are its own."""
    return list(map(classifier(source, top), images))
