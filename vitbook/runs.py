"""A training by its names: which model, on which pictures, kept where; and back from there, to test and to use."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PureWindowsPath

import ignite.distributed as idist
import torch
from torch import Tensor

from vitbook.attention_maps import check_number, class_map, patch_map
from vitbook.checkpoint import load_checkpoint, write_whole
from vitbook.data import Dataset, load_dataset, normalise
from vitbook.engine import TrainConfig, batches, fit
from vitbook.explorer import explore, observe_attention, resized_model
from vitbook.names import unknown
from vitbook.pictures import crop_and_scale, read_picture, to_tensor
from vitbook.pretrained import check_shape, load_pretrained, our_facts
from vitbook.runtime import device
from vitbook.sources import SOURCES
from vitbook.training import Evaluation, evaluate
from vitbook.typed import from_json
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

RECIPES = {path.stem: path for path in sorted((Path(__file__).parent / "assets" / "recipes").glob("*.json"))}
RECORDED = {path.stem: path for path in sorted((Path(__file__).parent / "assets" / "runs").glob("*.json"))}
SPLITS = ("train", "validation", "test")
TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # what it tells each process that it starts; others set some of them
OF_THE_RUN = ("num_classes", "dropout", "attention_dropout", "drop_path")  # what weights to begin with do not settle


@dataclass(frozen=True)
class Run:
    """Everything that a training begins with. Two trainings with the same are the same, on a CPU to the last bit."""

    model: str = "vit_digits"  # a named shape, from which the other options of the model depart
    # weights to begin with: a file, or a name, as timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k; they bring their
    # shape, the head is made new, and positions and colours are made to fit the data
    init: str | None = None
    dataset: str = "digits"  # one that `vitbook datasets` lists, or a folder with a sub-folder for each class
    data_dir: Path | None = None  # where the data set's files are already; without it they are downloaded
    validation: float = 0.1  # share of the training pictures that is set apart to choose by; 0 for none
    folder: Path | None = None  # where to keep what comes of it; runs/MODEL if not given
    train: TrainConfig = field(default_factory=TrainConfig)  # how the model is trained
    # its shape; channels, num_classes and, but for a folder's pictures, image_size are those of the data
    vit: ViTConfig = CONFIGS["vit_digits"]

    @property
    def place(self) -> Path:
        """The folder of what comes of it."""
        return self.folder or Path("runs") / self.model


def run_of(model: str | None = None, config: Path | None = None, init: str | None = None) -> Run:
    """The run that a file or recipe describes, or the one without options; with another model, or weights, where named.

    config: a file like run.json, or a key of `RECIPES`. Raises ValueError for an unknown model or recipe and for a file
    that describes no run, OSError where there is none.
    """
    run = Run() if config is None else read_run(found(config))
    if init is not None and init != run.init:
        if model is not None:
            raise ValueError(f"the weights of init {init!r} have a shape of their own: leave model {model!r} away")
        vit = load_pretrained(init, num_classes=0).model.config
        name = PureWindowsPath(init).name.replace(":", "_").strip(".")  # it knows both slashes; ".." would lead out
        return replace(run, model=name or "init", init=init, vit=vit)
    if model is None or model == run.model:
        return run
    if model not in CONFIGS:
        raise ValueError(unknown("model", model, CONFIGS))
    return replace(run, model=model, init=None, vit=CONFIGS[model])


def found(config: Path) -> Path:
    """The file itself, or the recipe of that name."""
    if config.exists() or config.suffix:
        return config
    if config.name not in RECIPES:
        raise ValueError(unknown("recipe", str(config), RECIPES))
    return RECIPES[config.name]


def read_run(path: Path) -> Run:
    """The run that a JSON file describes. Raises ValueError where it describes none."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        nested = {"train": from_json(TrainConfig, facts["train"]), "vit": from_json(ViTConfig, facts["vit"])}
        return from_json(Run, facts | nested)
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} describes no run: {error!r}") from None


def write_run(run: Run) -> None:
    """run.json in the run's folder."""
    run.place.mkdir(parents=True, exist_ok=True)
    write_whole(run.place / "run.json", (json.dumps(asdict(run), indent=2, default=str) + "\n").encode())


def train_run(run: Run, resume: bool = False, progress: bool = True) -> list[dict]:
    """Train, on the GPU if there is one, and keep run.json, checkpoints and logs in `run.place`. Returns the records.

    resume: whether to go on from the last checkpoint there, if there is one. Where `torchrun` has started several
    processes, each calls this. Errors are those of `load_dataset` and `fit`.
    """
    with processes():
        data = load_pictures(run, progress)
        height, width = data.train.images.shape[2:]
        shape = dict(image_size=(height, width), channels=data.train.images.shape[1], num_classes=len(data.class_names))
        torch.manual_seed(run.train.seed)
        model = VisionTransformer(replace(run.vit, **shape))
        if run.init is not None:
            moments = begin_with(run.init, model)
            data = replace(data, given_moments=moments)
        if idist.get_rank() == 0 and not (run.place / "last.json").exists():
            write_run(run)
        return fit(model.to(place_of_work()), data, run.train, run.place, resume, progress)


def begin_with(init: str, model: VisionTransformer) -> tuple[Tensor, Tensor]:
    """Give a model all of some weights but their head. Returns the mean and deviation that they want, (C,), (C,).

    Raises ValueError where the model is of another kind or shape than they, image size and channels apart.
    """
    config = model.config
    weights = load_pretrained(init, num_classes=0, image_size=config.image_size, channels=config.channels)
    if type(weights.model) is not type(model):
        raise ValueError(f"{init} is a {type(weights.model).__name__}, expected a {type(model).__name__}")
    for name in (option.name for option in fields(config) if option.name not in OF_THE_RUN):
        if getattr(config, name) != getattr(weights.model.config, name):
            got = f"{getattr(weights.model.config, name)} in {init}, {getattr(config, name)} asked for"
            raise ValueError(f"{name} is {got}")
    model.load_state_dict(model.state_dict() | weights.model.state_dict())
    return torch.tensor(weights.preprocessing.mean), torch.tensor(weights.preprocessing.std)


def load_pictures(run: Run, progress: bool = True) -> Dataset:
    """A run's pictures. Those of a folder are made square: raises ValueError for another image_size."""
    own = run.dataset not in ("digits", *SOURCES)
    height, width = run.vit.image_size
    if own and height != width:
        raise ValueError(f"image_size must be a square for a folder's pictures, got {height}×{width}")
    size = {"image_size": height} if own else {}
    return load_dataset(run.dataset, run.data_dir, validation=run.validation, progress=progress, **size)


def load_trained(checkpoint: Path) -> tuple[VisionTransformer, dict]:
    """A trained model, in evaluation, on the GPU if there is one, and the facts that were saved with it.

    checkpoint: the folder of a run, whose best weights are taken, or a checkpoint's JSON in which weights are all there
    is, as in "best". Raises FileNotFoundError where there is none, ValueError where it is no such checkpoint.
    """
    path = weights_in(checkpoint)
    tensors, facts = load_checkpoint(path)
    try:
        config, pictures, class_names = our_facts(facts, path)
        check_shape(config, tensors)
        model = VisionTransformer(config)
        model.load_state_dict(tensors)
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"{path} does not hold the weights of a VisionTransformer: {error}") from None
    return model.to(device()).eval(), facts | pictures | {"class_names": class_names}


def weights_in(checkpoint: Path) -> Path:
    """The JSON of a run's best weights, or of the checkpoint that was named. Raises FileNotFoundError without."""
    path = checkpoint / "best.json" if checkpoint.is_dir() else checkpoint
    if not path.exists():
        raise FileNotFoundError(f"there is no trained model at {checkpoint}; `vitbook train` makes one")
    return path


def evaluate_run(checkpoint: Path, split: str = "test", data_dir: Path | None = None) -> Evaluation:
    """What a trained model says of the pictures of its run: "test", "validation" or "train".

    checkpoint: as in `load_trained`, with run.json beside it; data_dir: where the data set's files are now.
    """
    if split not in SPLITS:
        raise ValueError(unknown("split", split, SPLITS))
    model, facts = load_trained(checkpoint)
    run = read_run((checkpoint if checkpoint.is_dir() else checkpoint.parent) / "run.json")
    pictures = getattr(load_pictures(replace(run, data_dir=data_dir or run.data_dir)), split)
    if pictures is None:
        raise ValueError(f"{checkpoint} was trained without {split} pictures")
    return evaluate(model, batches(pictures, *moments(facts), run.train.batch_size))


@torch.no_grad()
def predict_pictures(source: Path | str, images: list[Path], top: int = 3) -> list[list[tuple[str, float]]]:
    """For each picture file, the likeliest classes and their probabilities, likeliest first.

    source: a checkpoint, as in `load_trained`, or, as a string, weights as in `load_pretrained`. Of each picture, what
    they want to see is taken; a model of one channel sees it in grey. top: how many classes. Raises ValueError for a
    file that is no picture, and for weights without a head.
    """
    weights = load_pretrained(weights_in(source) if isinstance(source, Path) else source)
    if not weights.model.config.num_classes:
        raise ValueError(f"the weights {source} have no head, and so name no classes")
    model, guesses = weights.model.to(device()), []
    for path in images:
        pixels = weights.preprocessing(read_picture(path.read_bytes(), str(path))).to(device())
        probabilities = model(pixels)[0].softmax(dim=0)
        shares, classes = probabilities.cpu().topk(min(top, len(probabilities)))
        names = [weights.class_names[k] if weights.class_names else f"class {k}" for k in classes.tolist()]
        guesses.append(list(zip(names, shares.tolist(), strict=True)))
    return guesses


def read_pixels(path: Path, image_size: tuple[int, int], channels: int) -> Tensor:
    """The middle of a picture file, as much as fits in these proportions, scaled. uint8 (1, channels, H, W).

    Of one channel it is in grey. Raises ValueError for a file that is no picture.
    """
    picture = crop_and_scale(read_picture(path.read_bytes(), str(path)), *image_size)
    if channels == 1:
        picture = picture.convert("L").convert("RGB")
    return to_tensor(picture)[None, :channels]


@dataclass(frozen=True)
class Explanation:
    """What one token, the query, attends to in a picture."""

    picture: Tensor  # uint8 (C, H, W), as the model saw it
    query: int | None  # the number of the patch that asks; None for the class token
    rollout: Tensor  # (rows, columns): how much of each patch has reached the query through all blocks
    layer: int
    heads: dict[int, Tensor]  # (rows, columns) by head: what the query attends to in that layer
    guess: tuple[str, float] | None  # the likeliest class and its probability; None for a model without classes
    resized: str  # that positions were resized, in words; "" where they were not


def explain_picture(
    model: VisionTransformer,
    facts: dict,
    image: Path,
    layer: int = -1,
    head: int | None = None,
    query: tuple[int, int] | None = None,
    size: tuple[int, ...] = (),
) -> Explanation:
    """What a model attends to in a picture file, cropped and scaled as by `predict_pictures`.

    model, facts: as from `load_trained`; layer, head: from 0, or from −1 at the end; every head if None.
    query: row and column of a patch, from 0; the class token if None.
    size: height and width in pixels, or one number for both, to which the picture is scaled, and the positions with it;
        the model's own if empty.

    Raises ValueError for a layer, head or patch that there is not, for None as the query of a model without class
    token, for a size that patches do not divide, and for a file that is no picture.
    """
    if len(size) > 2 or min(size, default=1) < 1:
        raise ValueError(f"size must be height and width in pixels, or one number for both, got {size}")
    image_size = (size[0], size[-1]) if size else model.config.image_size
    model, resized = resized_model(model, image_size)
    grid, prefix = model.embedding.grid, int(model.config.class_token)
    patch = None
    if query is not None:
        row, column = (check_number(*one) for one in zip(("row", "column"), query, grid, strict=True))
        patch = row * grid[1] + column
    pixels = read_pixels(image, image_size, model.config.channels)
    weights, rolled, _, scores = observe_attention(model, normalise(pixels.to(device()), *moments(facts)))

    def shown(attention: Tensor) -> Tensor:
        """(1, T, T) → (rows, columns)"""
        if patch is None:
            return class_map(attention, grid, prefix)[0]
        return patch_map(attention, grid, prefix + patch, prefix)[0]

    layer = check_number("layer", layer, len(weights))
    heads = range(weights.shape[2]) if head is None else [check_number("head", head, weights.shape[2])]
    maps = {head: shown(weights[layer, :, head]) for head in heads}
    guess = None
    if scores is not None:
        share, best = scores[0].softmax(dim=0).max(dim=0)
        guess = facts["class_names"][best], share.item()
    return Explanation(pixels[0], patch, shown(rolled), layer, maps, guess, resized)


def write_explanation(explanation: Explanation, path: Path) -> None:
    """The picture, the rollout and the heads of an `Explanation` as a PNG, written whole or not at all.

    Raises ValueError where the path does not end in .png.
    """
    from vitbook import plotting  # matplotlib takes a second to import, and only this needs it

    if path.suffix.lower() != ".png":
        raise ValueError(f"the figure is a PNG, and its path must end in .png, got {path}")
    titles = [f"block {explanation.layer}, head {head}" for head in explanation.heads]
    heads = list(explanation.heads.values())
    figure = plotting.draw_explanation(explanation.picture, explanation.rollout, heads, titles, query=explanation.query)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, plotting.to_png(figure))


def write_explorer(model: VisionTransformer, facts: dict, explanation: Explanation, path: Path) -> None:
    """The page in which to explore an explained picture, all its layers, heads and queries."""
    page = explore(
        model,
        explanation.picture[None],
        lambda images: normalise(images.to(device()), *moments(facts)),
        class_names=facts["class_names"],
        max_bytes=None,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    page.save(path)


def moments(facts: dict) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation with which a model was trained, on its device. (C,), (C,)"""
    return torch.tensor(facts["mean"], device=device()), torch.tensor(facts["std"], device=device())


@contextmanager
def processes() -> Iterator[None]:
    """Meanwhile, work together with the other processes that `torchrun` has started, if it has."""
    if not all(name in os.environ for name in TORCHRUN):
        yield
        return
    nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()  # Windows has none
    idist.initialize("nccl" if nccl else "gloo")
    try:
        yield
    finally:
        idist.finalize()


def place_of_work() -> torch.device:
    """The device of this process: one GPU each, or the CPU."""
    return idist.device() if torch.cuda.is_available() else torch.device("cpu")
