"""Training as one would at work: the bare loop's steps in an engine that logs, saves, resumes and shares its work.

`fit` is the whole of it. Every random number of step n depends on the seed and on n alone, so a run that was killed and
resumed ends with the very weights of one that was not (on a CPU, with the same number of threads).
"""

import copy
import hashlib
import importlib.metadata
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, cast

import ignite.distributed as idist
import numpy as np
import torch
import torch.nn.functional as F
from ignite.engine import Engine, Events
from ignite.handlers import ProgressBar, TensorboardLogger
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vitbook._common.files import alone_in, remove_parts, write_whole
from vitbook._common.json_config import is_of_type
from vitbook._common.validation import check_choice
from vitbook.augment import augmented, check_magnitude
from vitbook.checkpoint import (
    difference,
    load_checkpoint,
    load_state_tensors,
    remove_leftovers,
    save_checkpoint,
    state_tensors,
)
from vitbook.data import Dataset, Split, normalize
from vitbook.distillation import soft_distillation_loss
from vitbook.embedding import ImageEmbedding
from vitbook.finetuning import layer_groups, train_mode
from vitbook.image_files import ImageFiles, Key, MaskFiles, Reader, middles
from vitbook.imbalance import (
    BALANCES,
    balanced_accuracy,
    balanced_order,
    class_counts,
    class_weights,
    log_prior,
    macro_f1,
    mean_iou,
)
from vitbook.muon import Muon, hidden_matrices
from vitbook.runtime import flushing_denormals, has_bfloat16
from vitbook.targets import target_loss, target_score
from vitbook.training import (
    Evaluation,
    PixelEvaluation,
    evaluate,
    evaluate_pixels,
    keeping_modes,
    parameter_groups,
    warmup_cosine,
)

CHECK_STEPS = 50  # steps from one look at the losses to the next: on a GPU each look waits for all that is under way
# what random numbers are for, so that those of an epoch, of a step and of a crop do not repeat each other
ORDER, STEP, CROP = 0, 1, 2

OPTIMIZERS = ("adamw", "muon")
RESIZES = ("center", "random")
BEST = ("accuracy", "balanced", "macro-f1", "loss", "miou")
_CHOICES = {"optimizer": OPTIMIZERS, "resize": RESIZES, "balance": BALANCES, "best": BEST}

# The least value of a setting, and what it stays below; of all others, 0 and infinity, or what torch can count to.
_RANGES = {
    **dict.fromkeys(("epochs", "batch_size", "accumulate"), (1, 2**31)),
    **dict.fromkeys(("warmup", "label_smoothing", "erasing", "patch_dropout", "full_patches", "ema", "betas"), (0, 1)),
    "teacher_weight": (0, 1),
    "teacher_temperature": (0.01, math.inf),
    "seed": (0, 2**63),
}


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; what is not named here, `fit` does not do. The defaults suit `vit_digits`.

    Raises ValueError for a value of the wrong type or out of range.
    """

    epochs: int = 60  # how often every image is shown
    batch_size: int = 64  # images in one step of the optimizer, over all processes
    optimizer: str = "adamw"  # adamw, or muon for the matrices inside the network and AdamW for all else
    learning_rate: float = 3e-3  # AdamW's, at its peak
    muon_learning_rate: float = 6e-3  # Muon's, at its peak
    warmup: float = 0.1  # share of the steps in which the learning rate rises; then it falls to 0 along a cosine
    weight_decay: float = 0.1  # of matrices alone
    betas: tuple[float, float] = (0.9, 0.999)  # AdamW's
    layer_decay: float = 1.0  # learning rate of a layer as a share of the next one's; 1 for the same everywhere
    clip_norm: float = 1.0  # longer gradients are shortened to this; 0 leaves them as they are
    label_smoothing: float = 0.1  # share of the target spread evenly over all classes
    # how rare classes count as much as others: drawn as often (sample), weighted (loss) or by adjusted logits (logits)
    balance: str = "none"
    best: str = "accuracy"  # what of validation chooses the epoch that is kept: also balanced, macro-f1, loss or miou
    teacher_weight: float = 0.9  # share of the loss that listens to the teacher, where there is one; the rest to labels
    teacher_temperature: float = 1.0  # by which logits are divided before student and teacher are compared
    randaugment_ops: int = 0  # RandAugment's operations on each image; 0 for none
    randaugment_magnitude: float = 9.0  # how far they go; at 10 as far as the paper's
    # how a folder's photographs become the model's size: their middle, or a random resized crop (timm's, torchvision's)
    resize: str = "center"
    affine: float = 1.0  # strength of random turns, moves and zooms: at 1 up to 10°, 8 % and 10 %
    crop: int = 0  # pixels by which images are moved at most along each axis
    flip: bool = False  # whether half of the images are mirrored, left to right
    erasing: float = 0.0  # share of the images in which a rectangle is blotted out
    mixup: float = 0.0  # mixup's α; 0 for none
    cutmix: float = 0.0  # CutMix's α; 0 for none; with both, each batch gets one of them by chance
    patch_dropout: float = 0.0  # share of its patches that each image does without, except at the end
    full_patches: float = 0.25  # share of the steps, the last ones, in which every image has all its patches
    ema: float = 0.0  # decay of the running mean of the weights, which is evaluated in their place; 0 for none
    accumulate: int = 1  # parts in which a batch goes through the model, one after another, to save memory
    bf16: bool = False  # whether products are computed in bfloat16, where the device has it; elsewhere in float32
    compile: bool = False  # whether torch.compile makes the model quicker, after minutes or seconds of preparation
    patience: int = 0  # epochs without a better validation accuracy after which training stops; 0 for never
    checkpoint_steps: int = 0  # steps from one checkpoint to the next; 0 for one each epoch
    seed: int = 0  # of every random number in training

    def __post_init__(self):
        if isinstance(self.betas, list):
            object.__setattr__(self, "betas", tuple(self.betas))  # JSON has only lists
        for field in fields(self):
            name, kind, value = field.name, field.type, getattr(self, field.name)
            if kind is str:
                check_choice(name, value, _CHOICES[name])
                continue
            if not is_of_type(kind, value):
                named = kind.__name__ if isinstance(kind, type) else kind
                raise ValueError(f"{name} must be of type {named}, got {value!r}")
            numbers = value if name == "betas" else (value,)
            least, below = _RANGES.get(name, (0, math.inf if kind is float else 2**31))
            if not all(least <= number < below for number in numbers):
                finite = "" if kind is int else "finite, "
                limit = f" and less than {below}" if below < 100 or below <= max(numbers) < math.inf else ""
                raise ValueError(f"{name} must be {finite}at least {least}{limit}, got {value}")
        check_magnitude(self.randaugment_magnitude)


def fit(
    model: nn.Module,
    data: Dataset,
    config: TrainConfig | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    teacher: nn.Module | None = None,
    watch: Callable[[nn.Module, torch.optim.Optimizer], AbstractContextManager[Callable[[], None]]] | None = None,
) -> list[dict]:
    """Train a model on `data.train`, on the device where it is. Returns one record an epoch, as in the log.

    model: (B, C, H, W) → (B, K), for the K classes of `data.class_names`; of masks, (B, K, H, W). It is left with the
        weights that were best on `data.validation`, as config.best says, or the last where there is none; with their
        running mean where config.ema is given.
    data.test is not touched.
    folder: where to keep the checkpoints "last" (to go on from) and "best" (to use), log.jsonl with one record a line,
        and TensorBoard's events. Without one, nothing is written.
    resume: whether to go on from the checkpoint "last" in `folder`, if there is one.
    progress: whether to show a bar.
    teacher: a model of the same images and classes, whose logits the model learns to give, as config.teacher_weight
        says; see `vitbook.distillation`.
    watch: entered around all steps, with the model and its optimizer; what it gives is called after each epoch.

    Records: epoch (from 1), step (so far), lr, train_loss (nats an image), train_accuracy (both of the images as they
    were shown), gradient_norm (all three: mean over the epoch's steps), validation_loss, validation_accuracy,
    validation_balanced or validation_macro_f1 where config.best asks for it, of masks validation_miou,
    images_per_second, seconds (so far, of training alone). Images that fill no batch wait for the next epoch.

    Several processes, as `torchrun` starts them, share every batch among them; the first alone writes.

    Raises ValueError where model, data and config do not fit together, where `folder` is in use, or holds a run and
    resume is False, or where that run was another; FloatingPointError where the loss or the gradient is no longer
    finite, the checkpoints being those from before; OSError, with the path, where the disk is full or may not be
    written to: what was saved before is whole then, and can be resumed.
    """
    config = config or TrainConfig()
    with ExitStack() as stack:
        training = Training(model, data, config, None if folder is None else Path(folder), teacher)
        stack.callback(training.close)
        if training.writes:
            stack.enter_context(alone_in(training.folder))
        training.start(resume)

        engine = Engine(training.take_step)
        engine.logger.disabled = True  # it would announce exceptions that are raised all the same
        engine.add_event_handler(Events.EPOCH_STARTED, training.shuffle)
        engine.add_event_handler(Events.ITERATION_STARTED, training.set_learning_rate)
        engine.add_event_handler(Events.ITERATION_COMPLETED(every=CHECK_STEPS), training.check_curve)
        if config.checkpoint_steps:
            every = Events.ITERATION_COMPLETED(every=config.checkpoint_steps)
            engine.add_event_handler(every, training.save_within_epoch)
        engine.add_event_handler(Events.EPOCH_COMPLETED, training.record_epoch)
        if progress and training.rank == 0:
            bar, often = ProgressBar(), Events.ITERATION_COMPLETED(every=10)  # it draws each time
            headline = ("train_loss", "validation_loss", "validation_accuracy")
            last = engine.state.metrics
            bar.attach(engine, event_name=often, output_transform=lambda _: {k: last[k] for k in headline if k in last})
            stack.callback(lambda: bar.pbar and bar.pbar.close())  # where it is interrupted
        if training.writes:
            board = stack.enter_context(_events_in(training.folder / "tensorboard", training.step + 1))
            steps = {"global_step_transform": lambda *_: training.step}
            board.attach_output_handler(engine, Events.EPOCH_COMPLETED, tag="epoch", metric_names="all", **steps)
            engine.add_event_handler(Events.EPOCH_COMPLETED, board.writer.flush)  # before the next checkpoint
        if watch is not None:
            say = stack.enter_context(watch(training.model, training.optimizer))
            engine.add_event_handler(Events.EPOCH_COMPLETED, lambda _: say())
        engine.add_event_handler(Events.EPOCH_COMPLETED, training.finish_epoch)

        stack.enter_context(flushing_denormals())
        stack.enter_context(keeping_modes(training.model))
        stack.callback(training.set_patch_dropout, 0.0)
        alone = training.device.type in ("cpu", "mps")  # the caller's random numbers stay as they are, mps's apart
        kind = "cpu" if alone else training.device.type
        stack.enter_context(torch.random.fork_rng([] if alone else [training.device], device_type=kind))
        if not training.finished:
            engine.load_state_dict(
                {"iteration": training.step, "epoch_length": training.epoch_steps, "max_epochs": config.epochs}
            )
            engine.run()
    training.model.load_state_dict(training.best_weights)
    return training.history


def check_fit(model: nn.Module, data: Dataset, config: TrainConfig) -> None:
    """Raise ValueError where `fit` would, because model, data and config do not fit together."""
    processes = idist.get_world_size()
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"model must have weights to train, this {type(model).__name__} has none")
    if config.batch_size > len(data.train):
        limit = f"at most {len(data.train)}, the training images"
        raise ValueError(f"batch_size must be {limit}, got {config.batch_size}")
    if config.batch_size % (processes * config.accumulate):
        parts = f"{processes} processes × accumulate {config.accumulate}"
        raise ValueError(f"batch_size must be divisible by {parts}, got {config.batch_size}")
    if config.crop >= (side := min(data.train.images.shape[2:])):
        raise ValueError(f"crop must be less than {side}, the images' side in pixels, got {config.crop}")
    if config.resize == "random" and not isinstance(data.train.images, ImageFiles):
        raise ValueError("resize random needs images in files, got images that have their size already")
    if config.patience and data.validation is None:
        raise ValueError(f"patience {config.patience} needs validation images, got none")
    if data.task != "classes":
        unfit = {"mixup": config.mixup, "cutmix": config.cutmix, "balance": config.balance != "none"}
        if data.task == "masks":  # these would move the image and leave its mask, or leave patches out of it
            names = ("affine", "randaugment_ops", "patch_dropout")
            unfit |= {name: getattr(config, name) for name in names}
        elif config.best not in ("accuracy", "loss"):
            unfit[f"best {config.best}"] = True
        for name, asked in unfit.items():
            if asked:
                raise ValueError(f"{name} is for classes, and these images have {data.task}")
    elif config.best == "miou":
        raise ValueError(f"best miou is for masks, and these images have {data.task}")
    if config.best != "accuracy" and data.validation is None:
        raise ValueError(f"best {config.best} needs validation images, got none")
    if config.layer_decay != 1 and config.optimizer != "adamw":
        raise ValueError(f"layer_decay {config.layer_decay} needs optimizer adamw, got {config.optimizer}")
    if config.layer_decay != 1:
        layer_groups(model, config.weight_decay, config.layer_decay)
    if config.patch_dropout and not any(hasattr(module, "patch_dropout") for module in model.modules()):
        raise ValueError(f"patch_dropout needs a model with patches, got {type(model).__name__}")


class Training:
    """A training run's state, and what each event does to it."""

    def __init__(
        self, model: nn.Module, data: Dataset, config: TrainConfig, folder: Path | None, teacher: nn.Module | None
    ):
        model = getattr(model, "_orig_mod", model)  # compiled before, its weights would be saved under other names
        self.model, self.data, self.config = model, data, config
        self.folder = cast(Path, folder)  # asked for only where there is one
        self.rank, self.processes = idist.get_rank(), idist.get_world_size()
        self.writes = folder is not None and self.rank == 0
        self.embeddings = [module for module in model.modules() if isinstance(module, ImageEmbedding)]
        self.epoch_steps = len(data.train) // config.batch_size
        self.total_steps = config.epochs * self.epoch_steps
        check_fit(model, data, config)

        self.device = next(model.parameters()).device
        masked = isinstance(data.train.labels, MaskFiles)
        self.labels: Any = data.train.labels if masked else cast(Tensor, data.train.labels).to(self.device)
        self.images, self.reader = data.train.images, None
        if isinstance(self.images, ImageFiles):
            self.reader = Reader(self.images, *([self.labels] if masked else []))
        else:
            self.images = self.images.to(self.device)
        counts = class_counts(self.labels, len(data.class_names)) if config.balance != "none" else self.labels
        self.weights = class_weights(counts) if config.balance == "loss" else None  # of the classes in the loss
        self.prior = log_prior(counts) if config.balance == "logits" else None
        self.mean, self.std = data.mean.to(self.device), data.std.to(self.device)
        if teacher is not None and data.task != "classes":
            raise ValueError(f"a teacher is for classes, and these images have {data.task}")
        if teacher is not None:
            teacher = copy.deepcopy(teacher).to(self.device).eval().requires_grad_(False)
        self.teacher = teacher
        hidden = hidden_matrices(model) if config.optimizer == "muon" else {}
        muons, groups = set(hidden.values()), parameter_groups(model, config.weight_decay)
        if config.layer_decay != 1:
            groups = layer_groups(model, config.weight_decay, config.layer_decay)
        for group in groups:
            group["params"] = [parameter for parameter in group["params"] if parameter not in muons]
        fused = self.device.type in ("cpu", "cuda")
        self.optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=fused)
        self.muon = Muon(hidden, config.muon_learning_rate, config.weight_decay) if hidden else None
        self.ema = copy.deepcopy(model).eval().requires_grad_(False) if config.ema else None
        self.evaluated = model if self.ema is None else self.ema  # the model whose weights count
        self.network = model if self.processes == 1 else DistributedDataParallel(model)
        if config.compile:
            self.network = torch.compile(self.network)
        has = has_bfloat16(self.device)
        self.autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=config.bf16 and has)
        if config.bf16 and not has and self.rank == 0:
            lacks = "has no bfloat16 of its own and would take many times as long over it: training in float32"
            warnings.warn(f"this {self.device.type.upper()} {lacks}", stacklevel=3)

        self.step = 0  # steps taken
        self.seconds = 0.0  # of training so far
        self.history: list[dict] = []
        self.best: dict = {}  # the record of the epoch that was best
        self.best_weights: dict[str, Tensor] = {}
        self.curve = torch.zeros(self.epoch_steps, 3, device=self.device)  # loss, accuracy, length of the gradient
        self.read: Iterator[tuple[Tensor, ...]] = iter(())  # of images in files, this epoch's batches that are left
        self.state = dict(model=model, ema=self.ema, optimizer=self.optimizer, muon=self.muon, curve=self.curve)
        described = getattr(model, "config", None)
        self.identity = {  # what makes this run this one: a resumed one must agree with it
            "config": asdict(config),
            "model": asdict(described) if is_dataclass(described) and not isinstance(described, type) else None,
            "dataset": data.name,
            "task": data.task,
            "scale": list(data.scale),
            "class_names": list(data.class_names),
            "images": {part: fingerprint(getattr(data, part)) for part in ("train", "validation")},
            "mean": data.mean.tolist(),
            "std": data.std.tolist(),
            "teacher": None if teacher is None else _digest(*teacher.state_dict().values()),
        }

    def close(self) -> None:
        """End the processes that read files."""
        self.read = iter(())
        if self.reader is not None:
            self.reader.close()

    # One step

    def shuffle(self, engine: Engine) -> None:
        """Put the images in this epoch's order."""
        train_mode(self.model)
        generator = torch.Generator().manual_seed(_one_seed(self.config.seed, ORDER, engine.state.epoch))
        if self.config.balance == "sample":
            order = balanced_order(self.labels.cpu(), len(self.labels), generator)
        else:
            order = torch.randperm(len(self.labels), generator=generator)
        self.order = order.to(self.device)
        if self.reader is not None:
            self.read = self.reader.read(self.keys(engine.state.epoch))
        self.clock = time.perf_counter()

    def set_learning_rate(self) -> None:
        """The learning rate of the step to come."""
        warmup = int(self.config.warmup * self.total_steps)
        share = warmup_cosine(self.step, self.total_steps, warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * share * group.get("share", 1.0)
        for group in self.muon.param_groups if self.muon else ():
            group["lr"] = self.config.muon_learning_rate * share

    def take_step(self, engine: Engine, _: None) -> None:
        """Forward, backward, and one step of the optimizer."""
        config, position = self.config, self.step % self.epoch_steps
        _seed_generators(self.device, _one_seed(config.seed, STEP, self.step, self.rank))
        last = self.step >= (1 - config.full_patches) * self.total_steps
        self.set_patch_dropout(0.0 if last else config.patch_dropout)
        images, targets = self.batch(position)
        losses, accuracies = [], []
        for some, wanted in zip(images.chunk(config.accumulate), targets.chunk(config.accumulate), strict=True):
            with self.autocast:
                logits = self.network(some)
                taught = self.ask_teacher(some)
            loss = self.loss(logits, wanted, taught)
            (loss / config.accumulate).backward()
            losses.append(loss.detach())
            if self.data.task != "classes":
                accuracies.append(target_score(logits.detach().float(), wanted, self.data.task))
                continue
            classes = wanted if wanted.ndim == 1 else wanted.argmax(dim=1)
            accuracies.append((logits.argmax(dim=1) == classes).float().mean())
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), config.clip_norm or math.inf)
        self.optimizer.step()
        if self.muon:
            self.muon.step()
        self.model.zero_grad()
        self.step += 1
        if self.ema is not None:
            decay = min(config.ema, (1 + self.step) / (10 + self.step))  # at first, forget the random start soon
            average(self.ema, self.model, decay)
        self.curve[position] = torch.stack([torch.stack(losses).mean(), torch.stack(accuracies).mean(), norm])

    def set_patch_dropout(self, share: float) -> None:
        """Drop this share of the patches from now on."""
        for embedding in self.embeddings:
            embedding.patch_dropout = share

    def chosen(self, position: int) -> slice:
        """Which places in the epoch's order are this process's share of a batch."""
        share = self.config.batch_size // self.processes
        start = position * self.config.batch_size + self.rank * share
        return slice(start, start + share)

    def keys(self, epoch: int) -> list[list[Key]]:
        """What is still to be read in an epoch: each image by its number, its crop by seed, epoch, place and number."""
        order, batches = self.order.tolist(), range(self.step % self.epoch_steps, self.epoch_steps)
        drawn = (self.config.seed, CROP, epoch) if self.config.resize == "random" else None
        keys: list[Key] = [(i, drawn and (*drawn, place, i)) for place, i in enumerate(order)]
        return [keys[self.chosen(position)] for position in batches]

    def batch(self, position: int) -> tuple[Tensor, Tensor]:
        """This process's share of a batch, augmented: (b, C, H, W), and labels, targets (b, K) or masks (b, H, W)."""
        chosen = self.order[self.chosen(position)]
        images, *masks = (self.images[chosen],) if self.reader is None else next(self.read)
        labels = masks[0].to(self.device).long() if masks else self.labels[chosen]
        moments, num_classes = (self.mean, self.std), len(self.data.class_names)
        return augmented(cast(Tensor, images).to(self.device), cast(Tensor, labels), self.config, *moments, num_classes)

    @torch.no_grad()
    def ask_teacher(self, images: Tensor) -> Tensor | None:
        """The teacher's logits, (b, K); None without one."""
        return None if self.teacher is None else self.teacher(images)

    def loss(self, logits: Tensor, targets: Tensor, taught: Tensor | None = None) -> Tensor:
        """Mean cross-entropy in nats. (b, K), and labels (b,) or targets (b, K) → ().

        With the teacher's logits Z_t (b, K), (1 − λ) CE + λτ² KL(ψ(Z_t/τ) ‖ ψ(Z/τ)), λ the teacher's weight and τ the
        temperature.
        """
        pixels = tuple(targets.shape[1:]) if targets.ndim == 3 else ()
        expected = (len(targets), len(self.data.class_names), *pixels)
        if logits.shape != expected:
            words = f"({'B, K, H, W' if pixels else 'B, K'}) = {expected}, K the data's classes"
            raise ValueError(f"model must give logits of shape {words}, got {tuple(logits.shape)}")
        if self.data.task != "classes":
            return target_loss(logits.float(), targets, self.data.task, self.config.label_smoothing)
        adjusted = logits.float() if self.prior is None else logits.float() + self.prior
        from_labels = F.cross_entropy(adjusted, targets, self.weights, label_smoothing=self.config.label_smoothing)
        if taught is None:
            return from_labels
        labels = targets if targets.ndim == 1 else targets.argmax(dim=1)  # they do not count where the weight is 1
        share, temperature = self.config.teacher_weight, self.config.teacher_temperature
        from_teacher = soft_distillation_loss(logits, labels, taught, temperature, weight=1.0)
        return (1 - share) * from_labels + share * from_teacher

    # After some steps

    # ignite.handlers.TerminateOnNan looks at every step, for which a GPU has to wait, and does not say which it was.
    def check_curve(self) -> Tensor:
        """The epoch's curve so far, (steps, 3). Raises FloatingPointError where loss or gradient is not finite."""
        taken = (self.step - 1) % self.epoch_steps + 1
        curve = self.curve[:taken]
        if self.processes > 1:  # the mean over the processes, of which a second look changes nothing
            curve.copy_(cast(Tensor, idist.all_reduce(curve.clone())) / self.processes)
        finite = curve[:, [0, 2]].isfinite().all(dim=1).tolist()
        if not all(finite):
            bad = finite.index(False)
            loss, _, norm = curve[bad].tolist()
            last = f"the last checkpoint is {self.folder / 'last.json'}" if self.has("last") else "no checkpoint yet"
            raise FloatingPointError(
                f"loss {loss:.4g} with a gradient of length {norm:.4g} in step {self.step - taken + bad + 1}, "
                f"epoch {(self.step - 1) // self.epoch_steps + 1}; {last}. Try a smaller learning rate."
            )
        return curve

    def record_epoch(self, engine: Engine) -> None:
        """Add the epoch's record to the history, and give it to Ignite's loggers."""
        loss, accuracy, norm = self.check_curve().mean(dim=0).tolist()
        before = self.history[-1]["seconds"] if self.history else 0.0
        self.count_seconds()
        record = {
            "epoch": engine.state.epoch,
            "step": self.step,
            "lr": self.optimizer.param_groups[0]["lr"],
            "train_loss": loss,
            "train_accuracy": accuracy,
            "gradient_norm": norm,
            **self.validate(),
            "images_per_second": self.epoch_steps * self.config.batch_size / (self.seconds - before),
            "seconds": self.seconds,
        }
        self.history.append(record)
        engine.state.metrics.update(record)

    def validate(self) -> dict[str, float]:
        """What the validation images say, if there are any, which the processes share among them."""
        if self.data.validation is None:
            return {}
        split = self.data.validation
        task = self.data.task
        images = cast(Tensor | ImageFiles, split.images[self.rank :: self.processes])
        split = Split(images, cast(Tensor, split.labels[self.rank :: self.processes]))
        sums = torch.zeros(3 + len(self.data.class_names) ** 2, dtype=torch.float64)
        if len(split):  # of few images, some processes get none
            with self.autocast:
                result = evaluated(self.evaluated, self.data, split, (self.mean, self.std), self.config.batch_size)
            means = torch.tensor([result.loss, result.accuracy, 1.0], dtype=torch.float64)
            counted = task in ("classes", "masks")
            confusion = result.confusion.flatten().double() if counted else torch.zeros(len(sums) - 3)
            sums = torch.cat([means * len(split), confusion])
        if self.processes > 1:
            sums = cast(Tensor, idist.all_reduce(sums.to(self.device))).cpu()
        loss, accuracy = (sums[:2] / sums[2]).tolist()
        found = {"validation_loss": loss, "validation_accuracy": accuracy}
        confusion = sums[3:].view(len(self.data.class_names), -1)
        if self.config.best == "balanced":
            found["validation_balanced"] = balanced_accuracy(confusion)
        if self.config.best == "macro-f1":
            found["validation_macro_f1"] = macro_f1(confusion)
        if task == "masks":
            found["validation_miou"] = mean_iou(confusion)
        return found

    def better(self, record: dict, than: dict) -> bool:
        """Whether an epoch's record is better than that of the best so far, by what config.best names."""
        name = f"validation_{self.config.best.replace('-', '_')}"
        if not than:
            return True
        return record[name] < than[name] if self.config.best == "loss" else record[name] > than[name]

    def finish_epoch(self, engine: Engine) -> None:
        """Log, keep the weights if they are the best, save, and stop where all is done."""
        record = self.history[-1]
        if self.writes:  # the whole history: no line is left of what a killed run did after its last checkpoint
            lines = "".join(json.dumps(record) + "\n" for record in self.history)
            write_whole(self.folder / "log.jsonl", lines.encode())
        if self.better(record, self.best) if "validation_accuracy" in record else self.finished:
            self.best = record
            self.best_weights = {name: tensor.clone() for name, tensor in self.evaluated.state_dict().items()}
            self.save("best", self.best_weights)
        due = self.step % self.config.checkpoint_steps == 0 if self.config.checkpoint_steps else True
        if due or self.finished:
            self.save("last", state_tensors(self.state))
        if self.finished:
            engine.terminate()

    # ignite.handlers.EarlyStopping counts by itself, which a resumed run would have to restore; the records say it all.
    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or patience has come to its end."""
        epoch = self.step // self.epoch_steps
        waited = epoch - self.best["epoch"] if self.best else 0
        return epoch == self.config.epochs or 0 < self.config.patience <= waited

    def count_seconds(self) -> None:
        """Add the time since the last call."""
        now = time.perf_counter()
        self.seconds, self.clock = self.seconds + now - self.clock, now

    # Checkpoints

    def has(self, name: str) -> bool:
        """Whether the folder holds a checkpoint of this name."""
        return self.folder is not None and (self.folder / f"{name}.json").exists()

    def save_within_epoch(self) -> None:
        """Save "last", unless `finish_epoch` is about to."""
        if self.step % self.epoch_steps:
            self.check_curve()
            self.count_seconds()
            self.save("last", state_tensors(self.state))

    def save(self, name: str, tensors: dict[str, Tensor]) -> None:
        """A checkpoint, if this process writes."""
        if self.writes:
            facts = {"step": self.step, "seconds": self.seconds, "best": self.best, "history": self.history}
            save_checkpoint(self.folder, name, tensors, self.identity | facts | {"versions": _versions()})
        self.clock = time.perf_counter()  # the time that saving takes is not training's

    def start(self, resume: bool) -> None:
        """Begin, or go back to the checkpoint "last" in the folder. Raises ValueError where neither is right."""
        for name, what in (("last", "a training run: resume it, or"), ("best", "the best of a training run:")):
            if self.has(name) and not resume:
                raise ValueError(f"{self.folder} already holds {what} name another folder")
        if self.has("last"):
            self._load(self.folder / "last.json")
        if self.writes:
            remove_parts(self.folder)
            for name in ("last", "best") if self.has("last") else ():
                if self.has(name):
                    remove_leftovers(self.folder / f"{name}.json")

    def _load(self, path: Path) -> None:
        """Go back to a checkpoint. Raises ValueError for that of another run, or of none."""
        tensors, facts = load_checkpoint(path)
        for name, ours in json.loads(json.dumps(self.identity)).items():  # tuples become lists, as in the file
            if facts.get(name) != ours:
                changed = ": files were added, changed or taken away" if name == "images" else ""
                raise ValueError(f"{path.parent} holds another run: {difference(name, facts.get(name), ours)}{changed}")
        if self.rank == 0 and (theirs := facts.get("versions")) != _versions():
            other = difference("versions", theirs, _versions())
            warnings.warn(f"{path.parent}: {other}: it goes on, but may not end with the same weights", stacklevel=4)
        try:
            self.step, self.seconds, self.history = int(facts["step"]), float(facts["seconds"]), list(facts["history"])
            if not 0 < self.step <= self.total_steps or len(self.history) != self.step // self.epoch_steps:
                raise ValueError(f"step {self.step} of {self.total_steps}, {len(self.history)} epochs in its history")
            if facts["best"]:  # may be newer than "last"
                self.best_weights, newest = load_checkpoint(path.with_name("best.json"))
                self.best = {**newest["best"], "epoch": int(newest["best"]["epoch"])}
                self.model.load_state_dict(self.best_weights)  # in the end they have to fit
            load_state_tensors(self.state, tensors)
        except torch.OutOfMemoryError:  # a RuntimeError, but no fault of the checkpoint's
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
            raise ValueError(f"{path} does not hold what a run goes on from: {error!r}") from None


def batches(split: Split, mean: Tensor, std: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A split's images, normalized on the device of mean and std, and labels: (B, C, H, W) and (B,) or (B, H, W)."""
    if isinstance(split.labels, MaskFiles):
        pairs = middles(batch_size, cast(ImageFiles, split.images), split.labels)
        pairs = ((images, masks.long()) for images, masks in pairs)
    else:
        pairs = zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True)
    for images, labels in pairs:
        yield normalize(images.to(mean.device), mean, std), labels.to(mean.device)


def evaluated(
    model: nn.Module, data: Dataset, split: Split, moments: tuple[Tensor, Tensor], batch_size: int
) -> Evaluation | PixelEvaluation:
    """What a model says of a split of a data set, which it sees normalized by `moments`, on their device."""
    some = batches(split, *moments, batch_size)
    if data.task == "masks":
        return evaluate_pixels(model, some, len(data.class_names))
    return evaluate(model, some, data.task)


def _versions() -> dict[str, str]:
    """What a run was computed with."""
    return {package: importlib.metadata.version(package) for package in ("torch", "vitbook")}


def fingerprint(split: Split | None) -> str | None:
    """The SHA-256 of images, or of their files' names and sizes, and of their labels; None where there are none."""
    if split is None:
        return None
    if isinstance(split.images, ImageFiles):
        labels = split.labels
        digest = labels.fingerprint() if isinstance(labels, ImageFiles) else _digest(labels)
        return hashlib.sha256((split.images.fingerprint() + digest).encode()).hexdigest()
    return _digest(split.images, cast(Tensor, split.labels))


def _digest(*tensors: Tensor) -> str:
    """The SHA-256 of some tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


# ignite.handlers.EMAHandler takes one kernel a weight where this takes one for all, and its warm-up is a straight line.
@torch.no_grad()
def average(mean: nn.Module, model: nn.Module, decay: float) -> None:
    """Move a running mean of weights towards the weights: mean ← decay · mean + (1 − decay) · weights."""
    means: list[Tensor] = list(mean.parameters())
    weights: list[Tensor] = list(model.parameters())
    torch._foreach_lerp_(means, weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]
    for kept, buffer in zip(mean.buffers(), model.buffers(), strict=True):
        kept.copy_(buffer)


@contextmanager
def _events_in(folder: Path, purge_step: int) -> Iterator[TensorboardLogger]:
    """TensorBoard's events in a folder; those that a stopped run left there from purge_step on no longer count.

    An OSError meanwhile that names no file is of the thread that writes them, and gets their folder.
    """
    try:
        board = TensorboardLogger(folder, purge_step=purge_step)
        with board:
            yield board
    except OSError as error:
        if error.errno is not None:
            error.filename = os.fsdecode(error.filename or folder)
        raise


def _seed_generators(device: torch.device, seed: int) -> None:
    """Start the random numbers of the CPU and of one device; torch.manual_seed would start those of every GPU."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)


def _one_seed(*numbers: int) -> int:
    """One seed from several numbers; others give another."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1
