"""What the figures know, as numbers that a script can hold: models, photographs, digits, positions, a recorded run."""

import base64
import io
import math
from dataclasses import asdict
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import load_file, save
from torch import nn

from vitbook._common.files import ASSETS
from vitbook._common.meta_device import shapes_alone
from vitbook._common.suggestions import listed
from vitbook.attention_maps import position_similarity
from vitbook.data import Split, album_credits, digits
from vitbook.distillation import DistilledVisionTransformer
from vitbook.finetuning import merged
from vitbook.modern import ModernViT
from vitbook.planted import COLORS, CONFIG, TEXTURES
from vitbook.positions import sincos_positions, sincos_positions_2d
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.vit import CONFIGS, VisionTransformer
from vitbook_workshop.exam.head_table import twin_scenes
from vitbook_workshop.exam.sittings import exam_model

EXAM_SCENES = 6
FIRST = "bird_kingfisher"  # of the album
MODELS = (VisionTransformer, ModernViT, DistilledVisionTransformer)  # that forward.js and modern.js compute
MOST_NUMBERS = 100_000_000  # of a model: in float32, 533 of the 536 million letters that Chromium takes in a script
FILE_BYTES = 2**24  # of weights, in base64: browsers limit how long a text can be


def check_model(model: nn.Module) -> None:
    """Raise ValueError for a model that the scripts do not compute, or that no page could hold."""
    if type(model) not in MODELS:
        names = ", ".join(kind.__name__ for kind in MODELS)
        raise ValueError(f"model must be one of {names}, which the page computes, got {type(model).__name__}")
    for switch in ("fc_norm", "class_and_mean"):
        if getattr(model.config, switch, False):
            raise ValueError(f"the page does not compute models with {switch}")
    if (count := sum(p.numel() for p in model.parameters())) > MOST_NUMBERS:
        limit = f"at most {MOST_NUMBERS:,} parameters, as a page's script can hold no more"
        raise ValueError(f"model must have {limit}, got {count:,}")
    with shapes_alone():
        expected = type(model)(model.config).state_dict().items()
    got = {name: tensor.shape for name, tensor in merged(model.state_dict()).items()}
    if differing := sorted(name for name, _ in {(name, part.shape) for name, part in expected} ^ set(got.items())):
        raise ValueError(f"model must have the parts that its config says, which {listed(differing)} are not")


def packed_model(trained: Pretrained) -> dict:
    """A model and how it wants to see images, for worker.js.

    A tensor is float16 where that loses nothing, else float32; LoRA is merged. Without classes the names of these are
    an empty list. prefix: names of the tokens before the patches.

    Raises ValueError as `check_model`, and where the preprocessing has other channels than the model.
    """
    model, preprocessing = trained.model, asdict(trained.preprocessing)
    check_model(model)
    if len(preprocessing["mean"]) != model.config.channels:
        has = f"{len(preprocessing['mean'])} channels"
        raise ValueError(f"the model's {model.config.channels} channels must be those of the preprocessing, got {has}")
    tensors = {name: _small(x) for name, x in merged(model.state_dict()).items() if x.is_floating_point()}
    embedding, angles = model.embedding, getattr(model.encoder.blocks[0].attn, "angles", None)
    prefix = len(embedding.prefix_tokens)
    tensors["embedding.positions.pos_embed"] = _small(embedding.positions().expand(-1, -1, model.config.dim))
    if angles is not None:
        tensors["angles"] = _small(angles)
    firsts = ["the class token"] * model.config.class_token + ["the distillation token"] * hasattr(model, "head_dist")
    preprocessing.pop("image_size")  # the config has it
    return dict(
        type=type(model).__name__,
        config=asdict(model.config),
        preprocessing=preprocessing,
        classes=list(trained.class_names or [f"class {k}" for k in range(model.config.num_classes)]),
        prefix=firsts + [f"register {i}" for i in range(prefix - len(firsts))],
        tensors=[base64.b64encode(save(some)).decode() for some in _files(tensors)],
    )


def _files(tensors: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Tensors in as many files as they need, each of FILE_BYTES or of one tensor."""
    files: list[dict[str, torch.Tensor]] = [{}]
    for name, tensor in tensors.items():
        if files[-1] and sum(other.nbytes for other in files[-1].values()) + tensor.nbytes > FILE_BYTES:
            files.append({})
        files[-1][name] = tensor
    return files


def _small(tensor: torch.Tensor) -> torch.Tensor:
    """In float16 where that loses nothing, else in float32."""
    tensor = tensor.detach().float().cpu().contiguous()
    half = tensor.half()
    return half if torch.equal(half.float(), tensor) else tensor


def album() -> list[dict]:
    """The album's photographs as they are in the package, the landing page's first."""
    photographs = []
    for credit in sorted(album_credits(), key=lambda credit: not credit["file"].startswith(FIRST)):
        name, content = Path(credit["file"]).stem, (ASSETS / "album" / credit["file"]).read_bytes()
        photographs.append(
            dict(
                name=name,
                title=name.replace("_", ": "),
                credit=f"Photograph: {credit['author']}, {credit['licence']}.",
                src=f"data:image/jpeg;base64,{base64.b64encode(content).decode()}",
            )
        )
    return photographs


def photograph(name: str, title: str, credit: str, image: Image.Image) -> dict:
    """An image for `ask`, kept to the bit. name: in the page's address; credit: a sentence that stands below."""
    return dict(name=name, title=title, credit=credit, src=data_address(image, "PNG"))


def data_address(picture: Image.Image, kind: str) -> str:
    """An image as a data: address."""
    file = io.BytesIO()
    picture.save(file, kind, quality=80)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


def packed_digits() -> dict:
    """The digits that a reader's browser learns from, and the model that learns them, for learner.js."""
    data = digits()

    def packed(split: Split) -> dict:
        parts = dict(images=split.images.flatten(1), labels=split.labels.byte())
        return {name: base64.b64encode(part.numpy().tobytes()).decode() for name, part in parts.items()}

    return dict(
        config=asdict(CONFIGS["vit_digits"]),
        train=packed(data.train),
        test=packed(data.test),
        mean=data.mean.tolist(),
        std=data.std.tolist(),
    )


def packed_exam() -> dict:
    """Scenes of compare for exam.js, each with its key, the gray patch first, and the patch in which each twin differs.

    Pixels are whole levels, so that the page and its reader see the same. All that the model answers wrongly, or alike
    for a scene and its twin, are left out.
    """
    model, size = exam_model("compare"), CONFIG.patch_size
    twins = {change: twin_scenes(change, 4 * EXAM_SCENES) for change in ("cue", "color")}
    here = twins["cue"][0]
    levels = {"pixels": _levels(here.images)} | {change: _levels(pair[1].images) for change, pair in twins.items()}
    with torch.no_grad():
        told = {name: model(x.float() / 127.5 - 1).argmax(dim=1) for name, x in levels.items()}
    right = told["pixels"] == here.labels
    for change, (_, there) in twins.items():
        right &= (told[change] == there.labels) & (there.labels != here.labels)
    scenes = []
    for i in right.nonzero()[:EXAM_SCENES, 0].tolist():
        textures, colors = here.textures[i].flatten(), here.colors[i].flatten()
        key = sorted(here.key[i].flatten().nonzero()[:, 0].tolist(), key=lambda place: colors[place].item())
        patches = {n: f"{COLORS[colors[n]]} {TEXTURES[textures[n]]}" for n in textures.nonzero()[:, 0].tolist()}
        scene = dict(pixels=_packed_levels(levels["pixels"][i]), key=key, patches=patches)
        for change, place in zip(("cue", "color"), key, strict=True):
            row, column = (size * part for part in divmod(place, 6))
            scene[change] = _packed_levels(levels[change][i, :, row : row + size, column : column + size])
        scenes.append(scene)
    preprocessing = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, image_size=(24, 24))  # −1 is black, 1 white
    trained = Pretrained(model, preprocessing, COLORS[1:], "vitbook", ())
    return dict(model=packed_model(trained), scenes=scenes)


def _levels(images: torch.Tensor) -> torch.Tensor:
    """−1 to 1 in whole levels, 0 to 255."""
    return ((images + 1) * 127.5).round().clamp(0, 255).byte()


def _packed_levels(image: torch.Tensor) -> str:
    """(3, H, W), red, green and blue of each pixel, row by row, in base64."""
    return base64.b64encode(image.permute(1, 2, 0).contiguous().numpy().tobytes()).decode()


def packed_vectors() -> dict:
    """A query and eight keys (512,), normally distributed, for scale.js: whole numbers of 32nds, one byte each."""
    query, *keys = (_bytes(vector) for vector in vectors())
    return dict(unit=1 / 32, query=query, keys=keys)


def vectors() -> torch.Tensor:
    """Normally distributed numbers (9, 512), in whole 32nds."""
    return (torch.randn(9, 512, generator=torch.Generator().manual_seed(0)) * 32).round().clamp(-128, 127)


def packed_places() -> dict:
    """Cosine similarities of positions, learned and from sines, for places.js: whole hundredths, one byte each."""
    model = load_pretrained("vitbook:cifar10_plain").model
    rows, columns = model.embedding.grid
    dim = model.config.dim
    tables = dict(
        learned=model.embedding.positions().detach()[:, -rows * columns :],
        sines_2d=sincos_positions_2d((rows, columns), dim)[None],
        sines=sincos_positions(rows * columns, dim)[None],
    )
    similar = {name: position_similarity(table, (rows, columns), 0) for name, table in tables.items()}
    return dict(grid=rows, tables={name: _bytes(100 * maps) for name, maps in similar.items()})


def packed_run() -> dict:
    """The recorded run for steps.js: maps in whole 31sts, one letter each."""
    run, data = recorded_run(), digits()
    places = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    apart = torch.cdist(places, places, p=1)  # steps across and down
    similarity, attention, head = (run[name].float() for name in ("similarity", "attention", "head"))
    facts = [run["probability"], attention.amax(dim=(1, 2, 3)), similarity[:, apart == 1].mean(dim=1)]
    facts += [similarity[:, apart > 1].mean(dim=1), head.std(dim=(1, 2))]
    return dict(
        epochs=run["epochs"].tolist(),
        steps=math.ceil(len(data.train) / 64),
        losses=_rounded(run["loss"]),
        accuracies=_rounded(run["accuracy"]),
        facts=_rounded(torch.stack(facts, dim=1)),
        image=data.test.images[0].flatten().tolist(),
        label=data.test.labels[0].item(),
        heads=attention.shape[2],
        attention=_letters(attention / attention.amax(dim=-1, keepdim=True)),
        alike=_letters(similarity),
        head=_letters(head / head.abs().max()),
    )


def recorded_run() -> dict[str, torch.Tensor]:
    """What records/steps.py wrote."""
    return load_file(ASSETS / "runs" / "steps.safetensors")


def _rounded(numbers: torch.Tensor) -> list:
    return (numbers.double() * 10_000).round().div(10_000).tolist()


def _letters(numbers: torch.Tensor) -> str:
    """Numbers from −1 to 1 in whole 31sts, a letter each, from ">" to "|": gzip shortens them as it cannot base64."""
    return (93 + 31 * numbers).round().clamp(62, 124).to(torch.uint8).numpy().tobytes().decode()


def _bytes(numbers: torch.Tensor) -> str:
    """Whole numbers, −128 to 127, in base64."""
    return base64.b64encode(numbers.round().clamp(-128, 127).to(torch.int8).numpy().tobytes()).decode()
