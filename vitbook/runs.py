"""A training run by its names: which model, on which images, kept where; and back from there, to test and to use."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PureWindowsPath

import ignite.distributed as idist
import torch
from torch import Tensor

from vitbook._support.files import alone_in, read_whole, refuse_pipes, write_whole
from vitbook._support.images import read_image
from vitbook._support.json_config import from_json
from vitbook._support.names import unknown
from vitbook.checkpoint import load_checkpoint
from vitbook.data import Dataset, load_dataset
from vitbook.downloads.datasets import SOURCES
from vitbook.engine import TrainConfig, batches, fingerprint, fit
from vitbook.pretrained import Pretrained, load_pretrained
from vitbook.runtime import device
from vitbook.training import Evaluation, evaluate
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

RECIPES = {path.stem: path for path in sorted((Path(__file__).parent / "assets" / "recipes").glob("*.json"))}
RECORDED = {path.stem: path for path in sorted((Path(__file__).parent / "assets" / "runs").glob("*.json"))}
SPLITS = ("train", "validation", "test")
_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # what it tells each process that it starts; others set some of them
_NOT_IN_WEIGHTS = ("num_classes", "dropout", "attention_dropout", "drop_path")  # what weights do not settle


@dataclass(frozen=True)
class Run:
    """Everything that a training run begins with. Two with the same are the same, on a CPU to the last bit."""

    model: str = "vit_digits"  # a named shape, from which the other options of the model depart
    # weights to begin with: a file, or a name, as timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k; they bring their
    # shape, the head starts from scratch, and positions and colors are made to fit the data
    init: str | None = None
    dataset: str = "digits"  # one that `vitbook datasets` lists, or a folder with a sub-folder for each class
    data_dir: Path | None = None  # where the data set's files are already; without it they are downloaded
    validation: float = 0.1  # share of the training images that is set apart to choose by; 0 for none
    folder: Path | None = None  # where to keep what comes of it; runs/MODEL if not given
    train: TrainConfig = field(default_factory=TrainConfig)  # how the model is trained
    # its shape; channels, num_classes and, except for a folder's images, image_size are those of the data
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
    run = Run() if config is None else read_run(_run_file(config))
    if init is not None and init != run.init:
        if model is not None:
            raise ValueError(f"the weights of init {init!r} have a shape of their own: drop model {model!r}")
        vit = load_pretrained(init, num_classes=0).model.config
        name = PureWindowsPath(init).name.replace(":", "_").strip(".")  # it knows both slashes; ".." would lead out
        return replace(run, model=name or "init", init=init, vit=vit)
    if model is None or model == run.model:
        moved = config is not None and config.exists() and (config.parent / "last.json").exists()
        return replace(run, folder=config.parent) if moved else run  # it goes on where its run.json is now
    if model not in CONFIGS:
        raise ValueError(unknown("model", model, CONFIGS))
    return replace(run, model=model, init=None, vit=CONFIGS[model])


def _run_file(config: Path) -> Path:
    """The file itself, or the recipe of that name."""
    if config.exists() or config.suffix:
        return config
    if config.name not in RECIPES:
        raise ValueError(unknown("recipe", str(config), RECIPES))
    return RECIPES[config.name]


def read_run(path: Path) -> Run:
    """The run that a JSON file describes. Raises ValueError where it describes none."""
    content = read_whole(path)
    try:
        return from_json(Run, json.loads(content))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} describes no run: {error}") from None


def write_run(run: Run) -> None:
    """run.json in the run's folder."""
    run.place.mkdir(parents=True, exist_ok=True)
    write_whole(run.place / "run.json", (json.dumps(asdict(run), indent=2, default=str) + "\n").encode())


def train_run(run: Run, resume: bool = False, progress: bool = True) -> list[dict]:
    """Train, on the GPU if there is one, and keep run.json, checkpoints and logs in `run.place`. Returns the records.

    resume: whether to go on from the last checkpoint there, if there is one. Where `torchrun` has started several
    processes, each calls this. Errors are those of `load_dataset` and `fit`, and ValueError for a folder among the
    images, where every later run would take it for a class.
    """
    images = _image_folder(run)
    if images and run.place.resolve().is_relative_to(images.resolve()):
        raise ValueError(f"folder must be outside the images in {images}, got {run.place}")
    with _processes():
        data = _load_data(run, progress)
        height, width = data.train.images.shape[2:]
        shape = dict(image_size=(height, width), channels=data.train.images.shape[1], num_classes=len(data.class_names))
        torch.manual_seed(run.train.seed)
        model = VisionTransformer(replace(run.vit, **shape))
        if run.init is not None:
            data = replace(data, given_moments=_begin_with(run.init, model))
        run = replace(run, vit=model.config)
        with alone_in(run.place) if idist.get_rank() == 0 else nullcontext():
            if resume and all((run.place / name).exists() for name in ("last.json", "run.json")):
                before = read_run(run.place / "run.json").init
                if before != run.init:
                    raise ValueError(f"{run.place} holds another run: init is {before} there, {run.init} here")
            if idist.get_rank() == 0 and not (run.place / "last.json").exists():
                write_run(run)
            on = idist.device() if torch.cuda.is_available() else torch.device("cpu")  # one GPU each, or the CPU
            return fit(model.to(on), data, run.train, run.place, resume, progress)


def _begin_with(init: str, model: VisionTransformer) -> tuple[Tensor, Tensor]:
    """Give a model all of some weights but their head. Returns their mean and standard deviation of images, (C,), (C,).

    Raises ValueError where the model is of another kind or shape than they, image size and channels apart.
    """
    config = model.config
    weights = load_pretrained(init, num_classes=0, image_size=config.image_size, channels=config.channels)
    if type(weights.model) is not type(model):
        raise ValueError(f"{init} must be a {type(model).__name__}, got a {type(weights.model).__name__}")
    for name in (option.name for option in fields(config) if option.name not in _NOT_IN_WEIGHTS):
        theirs, ours = getattr(weights.model.config, name), getattr(config, name)
        if ours != theirs:
            raise ValueError(f"{name} must be {theirs} as in {init}, got {ours}")
    model.load_state_dict(model.state_dict() | weights.model.state_dict())
    return torch.tensor(weights.preprocessing.mean), torch.tensor(weights.preprocessing.std)


def _image_folder(run: Run) -> Path | None:
    """Where the images of a run are, if they are the user's own."""
    return None if run.dataset in ("digits", *SOURCES) else Path(run.data_dir or "", run.dataset).expanduser()


def _load_data(run: Run, progress: bool = True) -> Dataset:
    """A run's images. Those of a folder are made square: raises ValueError for another image_size."""
    height, width = run.vit.image_size
    if run.data_dir is not None and not run.data_dir.expanduser().is_dir():
        raise ValueError(f"data_dir must be a folder that exists, got {run.data_dir}")
    if _image_folder(run) and height != width:
        raise ValueError(f"image_size must be a square for a folder's images, got {height}×{width}")
    size = {"image_size": height} if _image_folder(run) else {}
    return load_dataset(run.dataset, run.data_dir, validation=run.validation, progress=progress, **size)


def open_weights(source: Path | str) -> Pretrained:
    """A model to use, in evaluation, on the GPU if there is one, and what has to be known for that.

    source: a checkpoint, which is the folder of a run, whose best weights are taken, or a JSON in it in which weights
    are all there is, as in "best"; or, as a string, anybody's weights as in `load_pretrained`. Raises FileNotFoundError
    where there is no checkpoint, and what `load_pretrained` raises.
    """
    if isinstance(source, Path):
        source = _best_in(source)
    if os.path.exists(source):
        refuse_pipes(Path(source))
    weights = load_pretrained(source)
    weights.model.to(device())
    return weights


def _best_in(checkpoint: Path) -> Path:
    """The JSON of a run's best weights, or of the checkpoint that was named. Raises FileNotFoundError without."""
    path = checkpoint / "best.json" if checkpoint.is_dir() else checkpoint
    if not path.exists():
        raise FileNotFoundError(f"there is no trained model at {checkpoint}; `vitbook train` makes one")
    return path


def evaluate_run(checkpoint: Path, split: str = "test", data_dir: Path | None = None) -> Evaluation:
    """What a trained model says of the images of its run: "test", "validation" or "train".

    checkpoint: as in `open_weights`, with run.json beside it; data_dir: where the data set's files are now.
    """
    if split not in SPLITS:
        raise ValueError(unknown("split", split, SPLITS))
    weights = open_weights(checkpoint)
    run = read_run((checkpoint if checkpoint.is_dir() else checkpoint.parent) / "run.json")
    data = _load_data(replace(run, data_dir=data_dir or run.data_dir))
    if data.class_names != weights.class_names:
        raise ValueError(f"{checkpoint} knows classes {weights.class_names}, {run.dataset} has {data.class_names}")
    known = load_checkpoint(_best_in(checkpoint))[1].get("pictures")
    for part in ("train", "validation") if isinstance(known, dict) else ():  # older checkpoints do not tell
        if fingerprint(getattr(data, part)) != known.get(part):
            raise ValueError(f"{run.dataset} has other {part} images than {checkpoint} was trained with")
    images = getattr(data, split)
    if images is None:
        raise ValueError(f"the run of {checkpoint} has no {split} images")
    seen = weights.preprocessing
    mean, std = (torch.tensor(moment, device=device()) for moment in (seen.mean, seen.std))
    return evaluate(weights.model, batches(images, mean, std, run.train.batch_size))


@torch.no_grad()
def predict_images(source: Path | str, images: list[Path], top: int = 3) -> list[list[tuple[str, float]]]:
    """For each image file, the likeliest classes and their probabilities, likeliest first.

    source: as in `open_weights`. Of each image, what the weights want to see is taken; a model of one channel sees it
    in gray. top: how many classes. Raises ValueError for a file that is no image, and for weights without a head.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    weights, guesses = open_weights(source), []
    if not weights.model.config.num_classes:
        raise ValueError(f"the weights {source} have no head, and so name no classes")
    for path in images:
        pixels = weights.preprocessing(read_image(path)).to(device())
        probabilities = weights.model(pixels)[0].softmax(dim=0)
        shares, classes = probabilities.cpu().topk(min(top, len(probabilities)))
        names = [weights.class_names[k] if weights.class_names else f"class {k}" for k in classes.tolist()]
        guesses.append(list(zip(names, shares.tolist(), strict=True)))
    return guesses


@contextmanager
def _processes() -> Iterator[None]:
    """Meanwhile, work together with the other processes that `torchrun` has started, if it has."""
    if not all(name in os.environ for name in _TORCHRUN):
        yield
        return
    nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()  # Windows has none
    idist.initialize("nccl" if nccl else "gloo")
    try:
        yield
    finally:
        idist.finalize()
