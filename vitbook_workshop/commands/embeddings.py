"""Features of a folder's images in one file, what looks like a photograph, and what is there twice."""

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from PIL import Image, ImageDraw
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vitbook._common.files import refuse_pipes, write_whole
from vitbook._common.images import looks_like_image, open_image, read_pixels
from vitbook.data import files_in
from vitbook.pretrained import Pretrained
from vitbook.runtime import device
from vitbook_workshop.commands import plain, reason
from vitbook_workshop.training_runs.trained_models import open_model

FEATURES = ("class", "mean", "both")
OFTEN = 500  # images from one writing to the next
SIDE, COLUMNS = 160, 4  # of a contact sheet: pixels of a picture, pictures in a row
_Image = tuple[str, int, int]  # its name below the folder, its bytes, and when it was changed last


def embedder(weights: Pretrained, source: Path | str, feature: str, normalize: bool) -> Callable[[Path], Tensor]:
    """What gives an image file's feature, (D,): of the class token, the mean of the patches, or both, (2D,).

    source: what the weights are called; normalize: whether a feature has length 1. Raises ValueError for a model
    without what is asked for.
    """
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


@dataclass(frozen=True)
class Bank:
    """The features of a folder's images, and what gives those of another image."""

    files: list[Path]
    features: Float[Tensor, "N D"]
    embed: Callable[[Path], Tensor]
    broken: int  # how many images could not be read


def embed_folder(folder: Path, to: Path, source: Path | str, feature: str = "class", normalize: bool = True) -> Bank:
    """Write the features of all images in a folder, and say which could not be read.

    to: a safetensors file with "features" (N, D), and in its metadata "names" below the folder, the "folder", "sizes"
    in bytes, "times" of the last change in nanoseconds, and what made them. What it holds already, of the same making
    and of files that have not changed since, is not computed again; it is written every `OFTEN` images, so that what is
    stopped goes on. Raises ValueError for a file of another making, and where there is no image that can be read.
    """
    if to.suffix != ".safetensors":
        raise ValueError(f"features go into a .safetensors file, got {to}")
    files = [file for file in files_in(folder) if _is_image(file)]
    if not files:
        raise ValueError(f"there are no images in {folder}")
    weights = open_model(source)
    embed = embedder(weights, source, feature, normalize)
    made = {"weights": str(source), "digest": _digest(weights), "feature": feature, "normalize": str(normalize)}
    before = _kept(to, made, folder)
    done: dict[_Image, Tensor] = {}
    broken, new = 0, 0
    try:
        for file in files:
            known = file.stat()
            image = (file.relative_to(folder).as_posix(), known.st_size, known.st_mtime_ns)
            if image in before:
                done[image] = before[image]
                continue
            try:
                done[image] = embed(file)
            except (ValueError, OSError) as error:
                print(f"vitbook: {reason(error)}", file=sys.stderr)
                broken += 1
                continue
            new += 1
            if new % OFTEN == 0:
                _write(to, done, made, folder)
    finally:
        if done:
            _write(to, done, made, folder)
    if not done:
        raise ValueError(f"none of the images in {folder} can be read")
    return Bank([folder / name for name, _, _ in done], torch.stack(list(done.values())), embed, broken)


def _is_image(file: Path) -> bool:
    """Whether a file's name ends like an image's, or has no ending and the file begins like one."""
    if looks_like_image(file) or file.suffix or not file.is_file():
        return looks_like_image(file)
    try:
        with file.open("rb") as content:
            open_image(content)
    except Exception:  # what is no image can fail in any way
        return False
    return True


def _digest(weights: Pretrained) -> str:
    """The SHA-256 of all that a feature depends on, besides the image."""
    found = hashlib.sha256(repr((weights.model.config, weights.preprocessing)).encode())
    for name, tensor in weights.model.state_dict().items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()


def _write(to: Path, done: dict[_Image, Tensor], made: dict[str, str], folder: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    names, sizes, times = zip(*done, strict=True)
    facts = {"folder": str(folder.resolve()), "names": names, "sizes": sizes, "times": times}
    facts = made | {name: json.dumps(fact) for name, fact in facts.items()}
    write_whole(to, save({"features": torch.stack(list(done.values()))}, facts))


def _kept(file: Path, made: dict[str, str], folder: Path) -> dict[_Image, Tensor]:
    """The features of a folder's images in a file. Raises ValueError where it was made otherwise."""
    if not file.exists():
        return {}
    refuse_pipes(file)
    try:
        with safe_open(file, "pt") as opened:
            facts, features = opened.metadata() or {}, opened.get_tensor("features")
        images = [json.loads(facts[name]) for name in ("names", "sizes", "times")]
        place = json.loads(facts["folder"])
    except (SafetensorError, KeyError, ValueError) as error:
        lacks = f"{error} is not in it, as in those of earlier versions" if isinstance(error, KeyError) else error
        raise ValueError(f"{file} holds no features that can be completed: {lacks}; name another file") from None
    if facts.get("digest") != made["digest"]:
        other = f"other weights, {facts.get('weights')} as it was then, and not {made['weights']} as it is now"
        raise ValueError(f"{file} has features of {other}: name another file")
    for name in ("feature", "normalize"):
        if facts.get(name) != made[name]:
            raise ValueError(f"{file} has features of {name} {facts.get(name)}, not {made[name]}: name another file")
    return dict(zip(zip(*images, strict=True), features, strict=True)) if place == str(folder.resolve()) else {}


def similar(
    folder: Path, photograph: Path, features: Path, source: Path | str, feature: str, top: int
) -> list[tuple[Path, float]]:
    """The images of a folder most like a photograph, and the cosines of their features with its own, highest first.

    features: the file of `embed_folder`, which is made, or completed.
    """
    bank = embed_folder(folder, features, source, feature)
    cosines = bank.features @ bank.embed(photograph)
    best = cosines.topk(min(top, len(bank.files)))
    return [(bank.files[i], cosine) for cosine, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]


def duplicates(
    folder: Path, features: Path, source: Path | str, feature: str, above: float
) -> Iterator[tuple[Path, Path, float]]:
    """Pairs of a folder's images whose features have at least this cosine: copies, mirrored and cropped ones, too."""
    bank = embed_folder(folder, features, source, feature)
    for start in range(0, len(bank.files), 1024):
        cosines = bank.features[start : start + 1024] @ bank.features.T
        for row, other in (cosines >= above).tril(start - 1).nonzero().tolist():
            yield bank.files[start + row], bank.files[other], cosines[row, other].item()


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
