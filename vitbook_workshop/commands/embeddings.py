"""Features of a folder's images in one file, what looks like a photograph, and what is there twice."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vitbook._common.files import refuse_pipes, write_whole
from vitbook._common.images import looks_like_image, read_pixels
from vitbook.data import files_in
from vitbook.runtime import device
from vitbook_workshop.commands import plain, reason
from vitbook_workshop.training_runs.trained_models import open_model

FEATURES = ("class", "mean", "both")
OFTEN = 500  # images from one writing to the next
SIDE, COLUMNS = 160, 4  # of a contact sheet: pixels of a picture, pictures in a row


def embedder(source: Path | str, feature: str, normalize: bool) -> Callable[[Path], Tensor]:
    """What gives an image file's feature, (D,): of the class token, the mean of the patches, or both, (2D,).

    normalize: whether it has length 1. Raises ValueError for a model without what is asked for.
    """
    weights = open_model(source)
    model = weights.model
    if not hasattr(model, "tokens"):
        raise ValueError(f"a {type(model).__name__} has no tokens to take features of")
    if feature != "mean" and not len(model.embedding.prefix_tokens):
        raise ValueError(f"feature {feature} needs a class token, and {source} has none: take mean")

    @torch.no_grad()
    def embed(path: Path) -> Tensor:
        tokens = model.tokens(weights.preprocessing(read_pixels(path)).to(device()))[0].float().cpu()
        rows, columns = model.embedding.grid
        parts = {"class": tokens[0], "mean": tokens[-rows * columns :].mean(dim=0)}
        taken = torch.cat(list(parts.values())) if feature == "both" else parts[feature]
        return F.normalize(taken, dim=0) if normalize else taken

    return embed


def embed_folder(folder: Path, to: Path, source: Path | str, feature: str = "class", normalize: bool = True) -> int:
    """Write the features of all images in a folder, and say which could not be read. Returns how many these are.

    to: a safetensors file with "features" (N, D), and in its metadata "names" below the folder, "sizes" in bytes and
    what made them. What it holds already, of the same making, is not computed again; it is written every `OFTEN`
    images, so that what is stopped goes on. Raises ValueError for a file of another making.
    """
    if to.suffix != ".safetensors":
        raise ValueError(f"features go into a .safetensors file, got {to}")
    made = {"weights": str(source), "feature": feature, "normalize": str(normalize)}
    names, sizes, known = _kept(to, made)
    before = {pair: known[i] for i, pair in enumerate(zip(names, sizes, strict=True))}
    files = [file for file in files_in(folder) if looks_like_image(file)]
    if not files:
        raise ValueError(f"there are no images in {folder}")
    done: dict[tuple[str, int], Tensor] = {}
    embed, broken, new = None, 0, 0
    try:
        for file in files:
            pair = (file.relative_to(folder).as_posix(), file.stat().st_size)
            if pair in before:
                done[pair] = before[pair]
                continue
            embed = embed or embedder(source, feature, normalize)
            try:
                done[pair] = embed(file)
            except (ValueError, OSError) as error:
                print(f"vitbook: {reason(error)}", file=sys.stderr)
                broken += 1
                continue
            new += 1
            if new % OFTEN == 0:
                _write(to, done, made)
    finally:
        if done:
            _write(to, done, made)
    return broken


def _write(to: Path, done: dict[tuple[str, int], Tensor], made: dict[str, str]) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    names, sizes = zip(*done, strict=True)
    facts = made | {"names": json.dumps(names), "sizes": json.dumps(sizes)}
    write_whole(to, save({"features": torch.stack(list(done.values()))}, facts))


def _kept(file: Path, made: dict[str, str]) -> tuple[list[str], list[int], Tensor]:
    """Names, sizes and features in a file. Raises ValueError where it was made otherwise."""
    if not file.exists():
        return [], [], torch.empty(0)
    refuse_pipes(file)
    try:
        with safe_open(file, "pt") as opened:
            facts, features = opened.metadata() or {}, opened.get_tensor("features")
        names, sizes = json.loads(facts["names"]), json.loads(facts["sizes"])
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"{file} does not hold features: {error}") from None
    for name, ours in made.items():
        if facts.get(name) != ours:
            raise ValueError(f"{file} has features of {name} {facts.get(name)}, not {ours}: name another file")
    return names, sizes, features


def similar(
    folder: Path, photograph: Path, features: Path, source: Path | str, feature: str, top: int
) -> list[tuple[Path, float]]:
    """The images of a folder most like a photograph, and the cosines of their features with its own, highest first.

    features: the file of `embed_folder`, which is made, or completed.
    """
    embed_folder(folder, features, source, feature)
    names, _, bank = _kept(features, {"weights": str(source), "feature": feature, "normalize": "True"})
    cosines = bank @ embedder(source, feature, True)(photograph)
    best = cosines.topk(min(top, len(names)))
    return [(folder / names[i], cosine) for cosine, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]


def duplicates(
    folder: Path, features: Path, source: Path | str, feature: str, above: float
) -> Iterator[tuple[Path, Path, float]]:
    """Pairs of a folder's images whose features have at least this cosine: copies, mirrored and cropped ones, too."""
    embed_folder(folder, features, source, feature)
    names, _, bank = _kept(features, {"weights": str(source), "feature": feature, "normalize": "True"})
    for start in range(0, len(bank), 1024):
        cosines = bank[start : start + 1024] @ bank.T
        for row, other in (cosines >= above).tril(start - 1).nonzero().tolist():
            yield folder / names[start + row], folder / names[other], cosines[row, other].item()


def contact_sheet(shown: Sequence[tuple[Path, str]], to: Path) -> None:
    """Pictures with a line below each, as one PNG. Raises ValueError for another suffix."""
    if to.suffix.lower() != ".png":
        raise ValueError(f"a contact sheet is a .png, got {to}")
    rows, high = -(-len(shown) // COLUMNS), SIDE + 18
    sheet = Image.new("RGB", (COLUMNS * SIDE, rows * high), "white")
    pen = ImageDraw.Draw(sheet)
    for i, (path, line) in enumerate(shown):
        left, top = i % COLUMNS * SIDE, i // COLUMNS * high
        levels = np.asarray(read_pixels(path))[..., :3]
        small = Image.fromarray(np.ascontiguousarray(levels))
        small.thumbnail((SIDE - 6, SIDE - 6))
        sheet.paste(small, (left + (SIDE - small.width) // 2, top + (SIDE - small.height) // 2))
        pen.text((left + 4, top + SIDE), plain(line)[:26].encode("latin-1", "replace"), fill="black")
    to.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(to)
