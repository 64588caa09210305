"""Everything that a training run begins with: from the defaults, a recipe, a run's folder, or weights to begin with."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PureWindowsPath
from typing import Any

from vitbook._common.files import ASSETS, read_whole, write_whole
from vitbook._common.json_config import from_json
from vitbook._common.suggestions import unknown
from vitbook._common.validation import check_choice, check_shares
from vitbook._downloads.datasets import SOURCES
from vitbook.data import Dataset, folder_of, load_dataset
from vitbook.engine import TrainConfig
from vitbook.finetuning import TUNINGS
from vitbook.modern import ModernConfig
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.loading import OpenedWeights
from vitbook.vit import CONFIGS, ViTConfig

RECIPES = {path.stem: path for path in sorted((ASSETS / "recipes").glob("*.json"))}


@dataclass(frozen=True)
class Run:
    """Everything that a training run begins with. Two with the same are the same, on a CPU to the last bit."""

    model: str = "vit_digits"  # a named shape, from which the other options of the model depart
    # weights to begin with: a file, or a name, as timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k or, of any model on
    # the Hub, hf:facebook/dinov2-small; they bring their shape, the head starts from scratch, and positions and colors
    # are made to fit the data
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
    # what is asked of an image: one of the data's classes, or, of a folder with images/ and masks/, each pixel's class
    task: str = "classes"
    # a CSV file in place of sub-folders: columns file, and labels with semicolons between, or number
    labels: Path | None = None
    # a regular expression that finds in each image's name what must not be on both sides of a split, such as a patient
    # or a video: "patient[0-9]+"
    group: str | None = None
    workers: int | None = None  # processes that decode a folder's images; as many as processors if not given
    folder: Path | None = None  # where to keep what comes of it; runs/MODEL if not given
    train: TrainConfig = field(default_factory=TrainConfig)  # how the model is trained
    # its shape; channels, num_classes and, except for a folder's images, image_size are those of the data
    vit: ViTConfig = CONFIGS["vit_digits"]
    cnn: tuple[int, ...] = ()  # widths of a `WhiteningCNN`'s blocks, which is then trained in place of the ViT

    def __post_init__(self):
        check_choice("tune", self.tune, TUNINGS)
        check_choice("task", self.task, ("classes", "segment"))
        check_shares(validation=self.validation)
        if self.tune != "lora" and self.lora_rank != Run.lora_rank:
            raise ValueError(f"lora_rank {self.lora_rank} needs tune lora, got tune {self.tune}")
        if self.tune != "all" and self.init is None:
            raise ValueError(f"tune {self.tune} needs weights to begin with: name init, as vitbook:cifar10")
        if self.task == "segment" and (self.cnn or self.teacher or self.labels):
            raise ValueError("task segment takes a Vision Transformer and masks: drop cnn, teacher and labels")

    @property
    def place(self) -> Path:
        """The folder of what comes of it."""
        return self.folder or Path("runs") / self.model


@dataclass(frozen=True)
class _RunOfLaterParts(Run):
    """As its file describes a run whose weights to begin with have some of the later parts."""

    vit: ModernConfig = ModernConfig()


# How each way of tuning trains unless told otherwise, on photographs. The last three rates are at most half of the best
# that records/transfer.py found: batches are smaller here, and folders may have far fewer photographs.
_PHOTOGRAPHS = dict(epochs=20, batch_size=16, weight_decay=0.05, label_smoothing=0.0, affine=0.5, flip=True)
FOR_TUNING = {
    "probe": dict(**_PHOTOGRAPHS, learning_rate=1e-2),
    "lora": dict(**_PHOTOGRAPHS, learning_rate=5e-3),
    "layers": dict(**_PHOTOGRAPHS, learning_rate=2.5e-3, layer_decay=0.7),
    "all": dict(**_PHOTOGRAPHS, learning_rate=5e-4),
}


def run_of(
    model: str | None = None,
    config: Path | None = None,
    init: str | None = None,
    tune: str | None = None,
    weights: OpenedWeights | None = None,
) -> Run:
    """The run that a file or recipe describes, or the one without options; with another model, or weights, where named.

    config: a file like run.json, the folder of a run, or a key of `RECIPES`; without it, weights named as init are
    trained as `FOR_TUNING` says, with no images set apart to choose by; weights: those of init, where they are open
    already. Raises ValueError for an unknown model or recipe and for a file that describes no run, OSError where there
    is none.
    """
    file = None if config is None else _run_file(config)
    run = Run() if file is None else read_run(file)
    if init is not None and init != run.init:
        if model is not None:
            raise ValueError(f"the weights of init {init!r} have a shape of their own: drop model {model!r}")
        vit = load_pretrained(weights or init, num_classes=0).model.config
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


def segmenting(run: Run) -> Run:
    """The run with the task "segment", if that is another: what would part an image from its mask is off.

    Images are seen in random crops, and a tenth of them is set apart, to choose the epoch of the highest mean IoU.
    """
    if run.task == "segment":
        return run
    train = replace(run.train, affine=0.0, randaugment_ops=0, mixup=0.0, cutmix=0.0, patch_dropout=0.0)
    train = replace(train, label_smoothing=0.0, resize="random", best="miou")
    return replace(run, task="segment", validation=run.validation or 0.1, train=train)


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
    """The run that a JSON file describes: what it leaves out is as in `Run`, or as in the shape that `model` names.

    Raises ValueError where it describes none.
    """
    content = read_whole(path)
    try:
        facts = _with_shape(json.loads(content))
        later = isinstance(facts, dict) and "registers" in (facts.get("vit") or ())
        return Run(**vars(from_json(_RunOfLaterParts if later else Run, facts)))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} describes no run: {error}") from None


def _with_shape(facts: Any) -> Any:
    """A file's settings, with all of the shape that their model names under what they say of it."""
    if not isinstance(facts, dict) or not isinstance(vit := facts.get("vit", {}), dict):
        return facts
    return facts | {"vit": asdict(CONFIGS.get(str(facts.get("model")), Run.vit)) | vit}


def write_run(run: Run) -> None:
    """run.json in the run's folder."""
    run.place.mkdir(parents=True, exist_ok=True)
    write_whole(run.place / "run.json", (json.dumps(asdict(run), indent=2, default=str) + "\n").encode())


def image_folder(run: Run) -> Path | None:
    """Where the images of a run are, if they are the user's own."""
    return None if run.dataset in ("digits", *SOURCES) else folder_of(run.dataset, run.data_dir)


def load_images(run: Run, progress: bool = True) -> Dataset:
    """A run's images. Those of a folder are made square: raises ValueError for another image_size."""
    height, width = run.vit.image_size
    if image_folder(run) and height != width:
        raise ValueError(f"image_size must be a square for a folder's images, got {height}×{width}")
    settings: dict[str, Any] = {"in_files": run.train.resize == "random", "workers": run.workers, "group": run.group}
    settings |= {"labels": run.labels, "masks": run.task == "segment"}
    if image_folder(run):
        settings["image_size"] = height
    return load_dataset(run.dataset, run.data_dir, validation=run.validation, progress=progress, **settings)
