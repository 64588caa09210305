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

from vitbook._support.files import write_whole
from vitbook._support.images import read_picture
from vitbook._support.json_config import from_json
from vitbook._support.names import unknown
from vitbook._support.validation import check_sizes
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
        moved = config is not None and config.exists() and (config.parent / "last.json").exists()
        return replace(run, folder=config.parent) if moved else run  # it goes on where its run.json is now
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
        run = replace(run, vit=model.config)
        if resume and all((run.place / name).exists() for name in ("last.json", "run.json")):
            before = read_run(run.place / "run.json").init
            if before != run.init:
                raise ValueError(f"{run.place} holds another training: init is {before} there, {run.init} here")
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


def open_weights(source: Path | str) -> Pretrained:
    """A model to use, in evaluation, on the GPU if there is one, and what has to be known for that.

    source: a checkpoint, which is the folder of a run, whose best weights are taken, or a JSON in it in which weights
    are all there is, as in "best"; or, as a string, anybody's weights as in `load_pretrained`. Raises FileNotFoundError
    where there is no checkpoint, and what `load_pretrained` raises.
    """
    weights = load_pretrained(weights_in(source) if isinstance(source, Path) else source)
    weights.model.to(device())
    return weights


def weights_in(checkpoint: Path) -> Path:
    """The JSON of a run's best weights, or of the checkpoint that was named. Raises FileNotFoundError without."""
    path = checkpoint / "best.json" if checkpoint.is_dir() else checkpoint
    if not path.exists():
        raise FileNotFoundError(f"there is no trained model at {checkpoint}; `vitbook train` makes one")
    return path


def evaluate_run(checkpoint: Path, split: str = "test", data_dir: Path | None = None) -> Evaluation:
    """What a trained model says of the pictures of its run: "test", "validation" or "train".

    checkpoint: as in `open_weights`, with run.json beside it; data_dir: where the data set's files are now.
    """
    if split not in SPLITS:
        raise ValueError(unknown("split", split, SPLITS))
    weights = open_weights(checkpoint)
    run = read_run((checkpoint if checkpoint.is_dir() else checkpoint.parent) / "run.json")
    data = load_pictures(replace(run, data_dir=data_dir or run.data_dir))
    if data.class_names != weights.class_names:
        raise ValueError(f"{checkpoint} knows classes {weights.class_names}, {run.dataset} has {data.class_names}")
    known = load_checkpoint(weights_in(checkpoint))[1].get("pictures")
    for part in ("train", "validation") if isinstance(known, dict) else ():  # older checkpoints do not tell
        if fingerprint(getattr(data, part)) != known.get(part):
            raise ValueError(f"{run.dataset} has other {part} pictures than {checkpoint} was trained with")
    pictures = getattr(data, split)
    if pictures is None:
        raise ValueError(f"{checkpoint} was trained without {split} pictures")
    seen = weights.preprocessing
    mean, std = (torch.tensor(moment, device=device()) for moment in (seen.mean, seen.std))
    return evaluate(weights.model, batches(pictures, mean, std, run.train.batch_size))


@torch.no_grad()
def predict_pictures(source: Path | str, images: list[Path], top: int = 3) -> list[list[tuple[str, float]]]:
    """For each picture file, the likeliest classes and their probabilities, likeliest first.

    source: as in `open_weights`. Of each picture, what the weights want to see is taken; a model of one channel sees it
    in grey. top: how many classes. Raises ValueError for a file that is no picture, and for weights without a head.
    """
    check_sizes(top=top)
    weights, guesses = open_weights(source), []
    if not weights.model.config.num_classes:
        raise ValueError(f"the weights {source} have no head, and so name no classes")
    for path in images:
        pixels = weights.preprocessing(read_picture(path.read_bytes(), str(path))).to(device())
        probabilities = weights.model(pixels)[0].softmax(dim=0)
        shares, classes = probabilities.cpu().topk(min(top, len(probabilities)))
        names = [weights.class_names[k] if weights.class_names else f"class {k}" for k in classes.tolist()]
        guesses.append(list(zip(names, shares.tolist(), strict=True)))
    return guesses


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
