"""A training run by its names: which model, on which images, kept where; and back from there, to test and to use."""

import json
import os
import statistics
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path, PureWindowsPath

import ignite.distributed as idist
import torch
from torch import Tensor, nn

from vitbook._common.files import ASSETS, alone_in, read_whole, refuse_pipes, write_whole
from vitbook._common.images import read_image
from vitbook._common.json_config import from_json
from vitbook._common.names import unknown
from vitbook._common.validation import check_choice, check_shares
from vitbook._downloads.datasets import SOURCES
from vitbook.checkpoint import load_checkpoint
from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.data import Dataset, Images, load_dataset
from vitbook.engine import TrainConfig, batches, check_fit, fingerprint, fit
from vitbook.finetuning import TUNINGS, prepare
from vitbook.pretrained import Preprocessing, Pretrained, load_pretrained
from vitbook.pretrained.loading import NOT_STATED
from vitbook.pretrained.preprocessing import STYLES
from vitbook.pretrained.published import FAMILIES
from vitbook.recorded import RECORDED
from vitbook.runtime import device
from vitbook.training import Evaluation, evaluate
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

RECIPES = {path.stem: path for path in sorted((ASSETS / "recipes").glob("*.json"))}
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
    # what of those weights is trained: the head alone (probe), LoRA beside the attention's maps too (lora), or all of
    # them, with rates that fall from the head down (layers) or the same rate (all)
    tune: str = "all"
    lora_rank: int = 8  # r of LoRA's matrices
    # weights to learn from, of the same classes and image size: the folder of a run, or a file or name as for init;
    # where the run has several seeds, each teaches its share of every batch
    teacher: str | None = None
    dataset: str = "digits"  # one that `vitbook datasets` lists, or a folder with a sub-folder for each class
    data_dir: Path | None = None  # where the data set's files are already; without it they are downloaded
    validation: float = 0.1  # share of the training images that is set apart to choose by; 0 for none
    folder: Path | None = None  # where to keep what comes of it; runs/MODEL if not given
    train: TrainConfig = field(default_factory=TrainConfig)  # how the model is trained
    # its shape; channels, num_classes and, except for a folder's images, image_size are those of the data
    vit: ViTConfig = CONFIGS["vit_digits"]
    cnn: tuple[int, ...] = ()  # widths of a `WhiteningCNN`'s blocks, which is then trained in place of the ViT

    def __post_init__(self):
        check_choice("tune", self.tune, TUNINGS)
        check_shares(validation=self.validation)
        if self.tune != "lora" and self.lora_rank != Run.lora_rank:
            raise ValueError(f"lora_rank {self.lora_rank} needs tune lora, got tune {self.tune}")
        if self.tune != "all" and self.init is None:
            raise ValueError(f"tune {self.tune} needs weights to begin with: name init, as vitbook:cifar10")

    @property
    def place(self) -> Path:
        """The folder of what comes of it."""
        return self.folder or Path("runs") / self.model


# How each way of tuning trains unless told otherwise, on photographs. The last three rates are at most half of the best
# that records/record_transfer.py found: batches are smaller here, and folders may have far fewer photographs.
_PHOTOGRAPHS = dict(epochs=20, batch_size=16, weight_decay=0.05, label_smoothing=0.0, affine=0.5, flip=True)
FOR_TUNING = {
    "probe": dict(**_PHOTOGRAPHS, learning_rate=1e-2),
    "lora": dict(**_PHOTOGRAPHS, learning_rate=5e-3),
    "layers": dict(**_PHOTOGRAPHS, learning_rate=2.5e-3, layer_decay=0.7),
    "all": dict(**_PHOTOGRAPHS, learning_rate=5e-4),
}


def run_of(
    model: str | None = None, config: Path | None = None, init: str | None = None, tune: str | None = None
) -> Run:
    """The run that a file or recipe describes, or the one without options; with another model, or weights, where named.

    config: a file like run.json, the folder of a run, or a key of `RECIPES`; without it, weights named as init are
    trained as `FOR_TUNING` says, with no images set apart to choose by. Raises ValueError for an unknown model or
    recipe and for a file that describes no run, OSError where there is none.
    """
    file = None if config is None else _run_file(config)
    run = Run() if file is None else read_run(file)
    if init is not None and init != run.init:
        if model is not None:
            raise ValueError(f"the weights of init {init!r} have a shape of their own: drop model {model!r}")
        vit = load_pretrained(init, num_classes=0).model.config
        name = PureWindowsPath(init).name.replace(":", "_").strip(".")  # it knows both slashes; ".." would lead out
        run = replace(run, model=name or "init", init=init, vit=vit, tune=tune or run.tune)
        if file is None:
            run = replace(run, validation=0.0, train=TrainConfig(**FOR_TUNING[run.tune]))
        return run
    if tune is not None:
        run = replace(run, tune=tune)
    if model is None or model == run.model:
        moved = file is not None and file.exists() and (file.parent / "last.json").exists()
        return replace(run, folder=file.parent) if moved else run  # it goes on where its run.json is now
    if model not in CONFIGS:
        raise ValueError(unknown("model", model, CONFIGS))
    return replace(run, model=model, init=None, vit=CONFIGS[model])


def _run_file(config: Path) -> Path:
    """The file itself, the one in a run's folder, or the recipe of that name."""
    if (config / "run.json").is_file():
        return config / "run.json"
    if config.is_file() or config.suffix:
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
        run = replace(run, vit=replace(run.vit, **shape))
        if run.cnn:
            model = WhiteningCNN(CNNConfig(**shape, widths=run.cnn))
            model.whiten(data.normalize(data.train.images[:5000]))
        else:
            model = VisionTransformer(run.vit)
        if run.init is not None:
            data = replace(data, given_moments=_begin_with(run.init, model))
            prepare(model, run.tune, run.lora_rank)
        teacher = run.teacher and load_teacher(run.teacher, data)
        check_fit(model, data, run.train)
        with alone_in(run.place) if idist.get_rank() == 0 else nullcontext():
            if resume and all((run.place / name).exists() for name in ("last.json", "run.json")):
                before = read_run(run.place / "run.json")
                for name in ("init", "tune", "lora_rank"):
                    theirs, ours = getattr(before, name), getattr(run, name)
                    if theirs != ours:
                        raise ValueError(f"{run.place} holds another run: {name} is {theirs} there, {ours} here")
            if idist.get_rank() == 0 and not (run.place / "last.json").exists():
                write_run(run)
            on = idist.device() if torch.cuda.is_available() else torch.device("cpu")  # one GPU each, or the CPU
            return fit(model.to(on), data, run.train, run.place, resume, progress, teacher)


def with_seeds(run: Run, seeds: int) -> list[Run]:
    """The run itself; or, for several seeds, one with each from its own on, in folders seed_0, seed_1, … of its own."""
    if seeds == 1:
        return [run]
    every = range(run.train.seed, run.train.seed + seeds)
    return [replace(run, folder=run.place / f"seed_{n}", train=replace(run.train, seed=n)) for n in every]


def over_seeds(histories: list[list[dict]]) -> str:
    """What runs of several seeds came to: validation accuracy at its best, or training accuracy where there is none."""
    if "validation_accuracy" in histories[0][-1]:
        best = [max(record["validation_accuracy"] for record in history) for history in histories]
        return f"validation accuracy {mean_and_spread(best)}"
    return f"training accuracy {mean_and_spread([history[-1]['train_accuracy'] for history in histories])}"


def mean_and_spread(accuracies: list[float]) -> str:
    """Mean, standard deviation (of a sample, n − 1) and range of some shares, in percent."""
    mean, spread = statistics.mean(accuracies), statistics.stdev(accuracies)
    low, high = min(accuracies), max(accuracies)
    return f"{mean:.2%} ± {100 * spread:.2f} ({low:.2%} to {high:.2%}, {len(accuracies)} runs)"


def recorded(recipe: str) -> str:
    """What the recorded run of a recipe came to, in words: accuracy, its mean over seeds if there are several; time."""
    if recipe not in RECORDED:
        return "not measured yet"
    record = json.loads(RECORDED[recipe].read_text())
    last = record["history"][-1]
    time = f"{record.get('core_seconds', last['seconds']) / 60:.0f} minutes"
    if "core_seconds" in record:
        time += f" of one core{', those of its teacher included' if record.get('teacher_core_seconds') else ''}"
    if last["epoch"] != read_run(RECIPES[recipe]).train.epochs:
        time += f" ({last['epoch']} epochs)"
    accuracies = record.get("test_accuracies", [record["test_accuracy"]])
    seeds = f"mean of {len(accuracies)} seeds" if len(accuracies) > 1 else "one seed"
    return f"test accuracy {record['test_accuracy']:.1%} ({seeds}) after {time}: {record['about']}"


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
    weights = open_weights(source)
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
    return weights.preprocessing.moments


def _image_folder(run: Run) -> Path | None:
    """Where the images of a run are, if they are the user's own."""
    return None if run.dataset in ("digits", *SOURCES) else Path(run.data_dir or "", run.dataset).expanduser()


def _load_data(run: Run, progress: bool = True) -> Dataset:
    """A run's images. Those of a folder are made square: raises ValueError for another image_size."""
    height, width = run.vit.image_size
    if _image_folder(run) and height != width:
        raise ValueError(f"image_size must be a square for a folder's images, got {height}×{width}")
    size = {"image_size": height} if _image_folder(run) else {}
    return load_dataset(run.dataset, run.data_dir, validation=run.validation, progress=progress, **size)


def open_weights(source: Path | str) -> Pretrained:
    """A model to use, in evaluation, on the GPU if there is one, and what has to be known for that.

    source: a checkpoint, which is the folder of a run, whose best weights are taken, or a JSON in it in which weights
    are all there is, as in "best"; or, as a string, anybody's weights as in `load_pretrained`. Raises FileNotFoundError
    where there is no checkpoint, and what `load_pretrained` raises. Warns of what weights do not tell.
    """
    if isinstance(source, Path):
        source = _best_in(source)
    if os.path.exists(source):
        refuse_pipes(Path(source))
    weights = _open_cnn(source) or load_pretrained(source)
    for note in (note for note in weights.notes if note.endswith(NOT_STATED)):
        warnings.warn(note, stacklevel=2)
    weights.model.to(device())
    return weights


def _open_cnn(source: Path | str) -> Pretrained | None:
    """A checkpoint's `WhiteningCNN`; None for anything else."""
    path = Path(source, "best.json") if Path(source).is_dir() else Path(source)
    if path.suffix != ".json" or not path.is_file():
        return None
    tensors, facts = load_checkpoint(path)
    if "widths" not in (facts.get("model") or ()):
        return None
    model = WhiteningCNN(from_json(CNNConfig, facts["model"])).eval()
    model.load_state_dict(tensors)
    moments = {name: tuple(facts[name]) for name in ("mean", "std")}
    preprocessing = Preprocessing(image_size=model.config.image_size, **STYLES["vitbook"] | moments)
    return Pretrained(model, preprocessing, tuple(facts["class_names"]), "vitbook", ())


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
    facts = load_checkpoint(_best_in(checkpoint))[1]
    known = facts.get("images")
    for part in ("train", "validation") if isinstance(known, dict) else ():  # not every checkpoint tells
        if fingerprint(getattr(data, part)) != known.get(part):
            raise ValueError(f"{run.dataset} has other {part} images than {checkpoint} was trained with")
    images = getattr(data, split)
    if images is None:
        raise ValueError(f"the run of {checkpoint} has no {split} images")
    moments = (moment.to(device()) for moment in weights.preprocessing.moments)
    return evaluate(weights.model, batches(images, *moments, run.train.batch_size))


def classifier(source: Path | str, top: int = 3) -> Callable[[Path], list[tuple[str, float]]]:
    """What names the likeliest classes of an image file, and their probabilities, likeliest first.

    source: as in `open_weights`. Of each image, what the weights want to see is taken; a model of one channel sees it
    in gray. top: how many classes. Raises ValueError for weights without a head; what it returns, for a file that is no
    image.
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    weights = open_weights(source)
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
