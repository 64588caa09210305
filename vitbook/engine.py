"""Training as one would at work: the bare loop's steps in an engine that logs, saves, resumes and shares its work.

`fit` is the whole of it. Every random number of step n depends on the seed and on n alone, so a training that was
killed and resumed ends with the very weights of one that was not (on a CPU, with the same number of threads).
"""

import copy
import hashlib
import importlib.metadata
import json
import math
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import numpy as np
import torch
import torch.nn.functional as F
from ignite.engine import Engine, Events
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from vitbook._support.files import remove_parts, write_whole
from vitbook._support.json_config import conforms
from vitbook._support.validation import check_kind
from vitbook.augment import cutmix, mixup, rand_augment, random_affine, random_crop, random_erasing, random_flip
from vitbook.checkpoint import (
    load_checkpoint,
    load_optimizer_tensors,
    optimizer_tensors,
    remove_leftovers,
    save_checkpoint,
    with_prefix,
    without_prefix,
)
from vitbook.data import Dataset, Split, normalise
from vitbook.runtime import has_bfloat16
from vitbook.training import evaluate, keeping_modes, parameter_groups, warmup_cosine

CHECK_STEPS = 50  # steps from one look at the losses to the next: on a GPU each look waits for all that is under way
# settings that are less than 1
SHARES = ("warmup", "label_smoothing", "erasing", "patch_dropout", "full_patches", "ema")
ORDER, STEP = 0, 1  # what random numbers are for, so that those of an epoch and of a step do not repeat each other


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained; what is not named here, `fit` does not do. The values given suit `vit_digits`.

    Raises ValueError for a value of the wrong type or out of range.
    """

    epochs: int = 60  # how often every picture is shown
    batch_size: int = 64  # pictures in one step of the optimiser, over all processes
    learning_rate: float = 3e-3  # AdamW's, at its peak
    warmup: float = 0.1  # share of the steps in which the learning rate rises; then it falls to 0 along a cosine
    weight_decay: float = 0.1  # AdamW's, of matrices alone
    betas: tuple[float, float] = (0.9, 0.999)  # AdamW's
    clip_norm: float = 1.0  # longer gradients are shortened to this; 0 leaves them as they are
    label_smoothing: float = 0.1  # share of the target spread evenly over all classes
    randaugment_ops: int = 0  # RandAugment's operations on each picture; 0 for none
    randaugment_magnitude: float = 9.0  # how far they go; at 10 as far as the paper's
    affine: float = 1.0  # strength of random turns, moves and zooms: at 1 up to 10°, 8 % and 10 %
    crop: int = 0  # pixels by which pictures are moved at most along each axis
    flip: bool = False  # whether half of the pictures are mirrored, left to right
    erasing: float = 0.0  # share of the pictures in which a rectangle is blotted out
    mixup: float = 0.0  # mixup's α; 0 for none
    cutmix: float = 0.0  # CutMix's α; 0 for none; with both, each batch gets one of them by chance
    patch_dropout: float = 0.0  # share of its patches that each picture does without, except at the end
    full_patches: float = 0.25  # share of the steps, the last ones, in which every picture has all its patches
    ema: float = 0.0  # decay of the running mean of the weights, which is evaluated in their place; 0 for none
    accumulate: int = 1  # parts in which a batch goes through the model, one after another, to save memory
    bf16: bool = False  # whether products are computed in bfloat16, where the device has it; elsewhere in float32
    compile: bool = False  # whether torch.compile makes the model quicker, after minutes or seconds of preparation
    patience: int = 0  # epochs without a better validation accuracy after which training stops; 0 for never
    checkpoint_steps: int = 0  # steps from one checkpoint to the next; 0 for one each epoch
    seed: int = 0  # of every random number in training

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "betas":
                two = isinstance(value, tuple | list) and len(value) == 2
                if not two or not all(isinstance(beta, float | int) and 0 <= beta < 1 for beta in value):
                    raise ValueError(f"betas must be two numbers, at least 0 and less than 1, got {value}")
                object.__setattr__(self, "betas", tuple(value))  # JSON has lists alone
                continue
            if not conforms(value, field.type):
                raise ValueError(f"{field.name} must be of type {field.type.__name__}, got {value!r}")
            low = 1 if field.name in ("epochs", "batch_size", "accumulate") else 0
            high = 1 if field.name in SHARES else math.inf
            if field.type is not bool and not low <= value < high:
                below = "" if high == math.inf else f" and less than {high}"
                raise ValueError(f"{field.name} must be finite, at least {low}{below}, got {value}")


def fit(
    model: nn.Module,
    data: Dataset,
    config: TrainConfig | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> list[dict]:
    """Train a model on `data.train`, on the device where it is. Returns one record an epoch, as in the log.

    model: (B, C, H, W) → (B, K), for the K classes of `data.class_names`. It is left with the weights that were best on
        `data.validation`, or the last where there is none; with their running mean where config.ema is given.
    data.test is not touched.
    folder: where to keep the checkpoints "last" (to go on from) and "best" (to use), log.jsonl with one record a line,
        and TensorBoard's events. Without one, nothing is written.
    resume: whether to go on from the checkpoint "last" in `folder`, if there is one.
    progress: whether to show a bar.

    Records: epoch (from 1), step (so far), lr, train_loss (nats a picture), train_accuracy (both of the pictures as
    they were shown), gradient_norm (all three: mean over the epoch's steps), validation_loss, validation_accuracy,
    pictures_per_second, seconds (so far, of training alone). Pictures that fill no batch wait for the next epoch.

    Several processes, as `torchrun` starts them, share every batch among them; the first alone writes.

    Raises ValueError where model, data and config do not fit together, where `folder` already holds a training and
    resume is False, or where that training was another; FloatingPointError where the loss or the gradient is no longer
    finite, the checkpoints being those from before; OSError, with the path, where the disk is full or may not be
    written to: what was saved before is whole then, and can be resumed.
    """
    training = Training(model, data, config or TrainConfig(), None if folder is None else Path(folder))
    if training.has_checkpoint and not resume:
        raise ValueError(f"{folder} already holds a training: resume it, or name another folder")
    if folder is not None and not resume and (training.folder / "best.json").exists():
        raise ValueError(f"{folder} already holds the best of a training: name another folder")
    if training.has_checkpoint:
        training.load()
    if training.writes:
        remove_parts(training.folder)

    engine = Engine(training.take_step)
    engine.logger.disabled = True  # it would announce exceptions that are raised all the same
    engine.add_event_handler(Events.EPOCH_STARTED, training.start_epoch)
    engine.add_event_handler(Events.ITERATION_STARTED, training.set_learning_rate)
    engine.add_event_handler(Events.ITERATION_COMPLETED(every=CHECK_STEPS), training.check)
    if training.config.checkpoint_steps:
        every = Events.ITERATION_COMPLETED(every=training.config.checkpoint_steps)
        engine.add_event_handler(every, training.save_within_epoch)
    engine.add_event_handler(Events.EPOCH_COMPLETED, training.record_epoch)

    with ExitStack() as stack:
        stack.enter_context(keeping_modes(training.model))  # also where it is interrupted
        stack.callback(training.leave_every_patch)
        if idist.get_rank() == 0 and progress:
            bar = stack.enter_context(tqdm(total=training.total_steps, initial=training.step, unit="step"))
            engine.add_event_handler(Events.ITERATION_COMPLETED, lambda: bar.update())
            engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: bar.set_postfix_str(training.headline()))
        if training.writes:
            board = stack.enter_context(events_in(training.folder / "tensorboard", training.step + 1))
            engine.add_event_handler(Events.EPOCH_COMPLETED, lambda: training.write_log(board))
        engine.add_event_handler(Events.EPOCH_COMPLETED, training.finish_epoch)
        device = training.device
        devices = [] if device.type == "cpu" else [device]  # the caller's random numbers stay as they are
        stack.enter_context(torch.random.fork_rng(devices, device_type=device.type))
        if not training.finished:
            engine.load_state_dict(
                {"iteration": training.step, "epoch_length": training.epoch_steps, "max_epochs": training.config.epochs}
            )
            engine.run()
    training.leave_best_weights()
    return training.history


class Training:
    """A training's state, and what each event does to it."""

    def __init__(self, model: nn.Module, data: Dataset, config: TrainConfig, folder: Path | None):
        check_kind(nn.Module, model=model)
        model = getattr(model, "_orig_mod", model)  # compiled before, its weights would be saved under other names
        self.model, self.data, self.config, self.folder = model, data, config, folder
        if not any(parameter.requires_grad for parameter in model.parameters()):
            raise ValueError(f"model must have weights to train, this {type(model).__name__} has none")
        self.device = next(model.parameters()).device
        self.rank, self.processes = idist.get_rank(), idist.get_world_size()
        self.writes = folder is not None and self.rank == 0

        self.epoch_steps = len(data.train) // config.batch_size
        self.total_steps = config.epochs * self.epoch_steps
        if not self.epoch_steps:
            raise ValueError(
                f"batch_size must be at most {len(data.train)}, the training pictures, got {config.batch_size}"
            )
        if config.patience and data.validation is None:
            raise ValueError(f"patience {config.patience} needs validation pictures, and there are none")
        if config.batch_size % (self.processes * config.accumulate):
            parts = f"{self.processes} processes × accumulate {config.accumulate}"
            raise ValueError(f"batch_size {config.batch_size} is not divisible by {parts}")

        self.embeddings = [module for module in model.modules() if hasattr(module, "patch_dropout")]
        if config.patch_dropout and not self.embeddings:
            raise ValueError(
                f"patch_dropout {config.patch_dropout} needs a model with patches, got {type(model).__name__}"
            )

        self.pictures = {part: fingerprint(getattr(data, part)) for part in ("train", "validation")}
        self.images, self.labels = (part.to(self.device) for part in (data.train.images, data.train.labels))
        self.mean, self.std = data.mean.to(self.device), data.std.to(self.device)
        fused = self.device.type in ("cpu", "cuda")
        groups = parameter_groups(model, config.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=fused)
        self.ema = copy.deepcopy(model).eval().requires_grad_(False) if config.ema else None
        self.bf16 = config.bf16 and has_bfloat16(self.device)
        if config.bf16 and not self.bf16 and self.rank == 0:
            warnings.warn(
                f"this {self.device.type.upper()} has no bfloat16 of its own and would take many times as long over "
                "it: training in float32",
                stacklevel=3,
            )
        self.network = model if self.processes == 1 else DistributedDataParallel(model)
        if config.compile:
            self.network = torch.compile(self.network)

        self.step = 0  # steps taken
        self.seconds = 0.0  # of training so far
        self.history: list[dict] = []
        self.best: dict = {}  # the record of the epoch that was best
        self.best_weights: dict[str, Tensor] = {}
        self.curve = torch.zeros(self.epoch_steps, 3, device=self.device)  # loss, accuracy, length of the gradient

    # One step

    def start_epoch(self, engine: Engine) -> None:
        """Put the pictures in this epoch's order."""
        self.model.train()
        generator = torch.Generator().manual_seed(folded(self.config.seed, ORDER, engine.state.epoch))
        self.order = torch.randperm(len(self.labels), generator=generator).to(self.device)
        self.clock = time.perf_counter()

    def set_learning_rate(self) -> None:
        """The learning rate of the step to come."""
        warmup = int(self.config.warmup * self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.learning_rate * warmup_cosine(self.step, self.total_steps, warmup)

    def take_step(self, engine: Engine, batch: None) -> None:
        """Forward, backward, and one step of the optimiser."""
        seed_generators(self.device, folded(self.config.seed, STEP, self.step, self.rank))
        position = self.step % self.epoch_steps
        self.set_patch_dropout()
        images, targets = self.batch(position)
        losses, right = [], []
        parts, num_classes = self.config.accumulate, len(self.data.class_names)
        for some, wanted in zip(images.chunk(parts), targets.chunk(parts), strict=True):
            with self.autocast():
                scores = self.network(some)
            if scores.shape != (len(some), num_classes):
                expected = f"(B, K) = {(len(some), num_classes)}, K the data's classes"
                raise ValueError(f"model must give scores of shape {expected}, got {tuple(scores.shape)}")
            loss = F.cross_entropy(scores.float(), wanted, label_smoothing=self.config.label_smoothing)
            (loss / parts).backward()
            losses.append(loss.detach())
            right.append(
                (scores.argmax(dim=1) == (wanted if wanted.ndim == 1 else wanted.argmax(dim=1))).float().mean()
            )
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or math.inf)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        if self.ema is not None:
            decay = min(self.config.ema, (1 + self.step) / (10 + self.step))  # at first, forget the random start soon
            average(self.ema, self.model, decay)
        self.curve[position] = torch.stack([torch.stack(losses).mean(), torch.stack(right).mean(), norm])

    def set_patch_dropout(self) -> None:
        """Leave patches out, until the last steps."""
        last = self.step >= (1 - self.config.full_patches) * self.total_steps
        for embedding in self.embeddings:
            embedding.patch_dropout = 0.0 if last else self.config.patch_dropout

    def batch(self, position: int) -> tuple[Tensor, Tensor]:
        """This process's share of a batch of the epoch: normalised and augmented pictures, labels or targets.

        (b, C, H, W), and (b,) or (b, K), where b is batch_size over the number of processes.
        """
        config = self.config
        share = config.batch_size // self.processes
        start = position * config.batch_size + self.rank * share
        chosen = self.order[start : start + share]
        images, targets = self.images[chosen], self.labels[chosen]
        if config.randaugment_ops:
            images = rand_augment(images, config.randaugment_ops, config.randaugment_magnitude)
        images = normalise(images, self.mean, self.std)
        if config.affine:
            images = random_affine(images, 10 * config.affine, 0.08 * config.affine, 0.1 * config.affine)
        if config.crop:
            images = random_crop(images, config.crop)
        if config.flip:
            images = random_flip(images)
        if config.erasing:
            images = random_erasing(images, config.erasing)
        mixes = [(mix, alpha) for mix, alpha in ((mixup, config.mixup), (cutmix, config.cutmix)) if alpha]
        if mixes:
            mix, alpha = mixes[int(torch.randint(len(mixes), ()))]
            images, targets = mix(images, F.one_hot(targets, len(self.data.class_names)).float(), alpha)
        return images, targets

    def autocast(self) -> torch.autocast:
        """A context in which products are computed in bfloat16, if the config asks for it and the device has it."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16)

    # After some steps

    def check(self) -> Tensor:
        """The epoch's curve so far, (steps, 3). Raises FloatingPointError where loss or gradient is not finite."""
        taken = (self.step - 1) % self.epoch_steps + 1
        curve = self.curve[:taken]
        if self.processes > 1:  # the mean over the processes, of which a second look changes nothing
            curve.copy_(idist.all_reduce(curve.clone()) / self.processes)
        finite = curve[:, [0, 2]].isfinite().all(dim=1).tolist()
        if not all(finite):
            bad = finite.index(False)
            loss, _, norm = curve[bad].tolist()
            last = f"the last checkpoint is {self.folder / 'last.json'}" if self.has_checkpoint else "no checkpoint yet"
            raise FloatingPointError(
                f"loss {loss:.4g} with a gradient of length {norm:.4g} in step {self.step - taken + bad + 1}, "
                f"epoch {(self.step - 1) // self.epoch_steps + 1}; {last}. Try a smaller learning rate."
            )
        return curve

    def record_epoch(self, engine: Engine) -> None:
        """Add what the epoch came to."""
        loss, accuracy, norm = self.check().mean(dim=0).tolist()
        before = self.history[-1]["seconds"] if self.history else 0.0
        self.count_seconds()
        self.history.append(
            {
                "epoch": engine.state.epoch,
                "step": self.step,
                "lr": self.optimizer.param_groups[0]["lr"],
                "train_loss": loss,
                "train_accuracy": accuracy,
                "gradient_norm": norm,
                **self.validate(),
                "pictures_per_second": self.epoch_steps * self.config.batch_size / (self.seconds - before),
                "seconds": self.seconds,
            }
        )

    def finish_epoch(self, engine: Engine) -> None:
        """Keep the weights if they are the best, save, and see whether patience has come to its end."""
        record = self.history[-1]
        if "validation_accuracy" in record:
            better = record["validation_accuracy"] > self.best.get("validation_accuracy", -1)
        else:
            better = self.finished
        if better:
            self.best = record
            self.best_weights = {name: tensor.clone() for name, tensor in self.evaluated.state_dict().items()}
            self.save("best", self.best_weights)
        due = self.step % self.config.checkpoint_steps == 0 if self.config.checkpoint_steps else True
        if due or self.finished:
            self.save("last", self.tensors())
        if self.finished:
            engine.terminate()

    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the validation pictures, if there are any, which the processes share among them."""
        if self.data.validation is None:
            return {}
        split = self.data.validation
        split = Split(split.images[self.rank :: self.processes], split.labels[self.rank :: self.processes])
        sums = torch.zeros(3, dtype=torch.float64)
        if len(split):  # of few pictures, some processes get none
            with self.autocast():
                result = evaluate(self.evaluated, batches(split, self.mean, self.std, self.config.batch_size))
            sums = torch.tensor([result.loss, result.accuracy, 1.0], dtype=torch.float64) * len(split)
        if self.processes > 1:
            sums = idist.all_reduce(sums.to(self.device)).cpu()
        loss, accuracy, _ = (sums / sums[2]).tolist()
        return {"validation_loss": loss, "validation_accuracy": accuracy}

    def headline(self) -> str:
        """The latest record, for the bar."""
        record = self.history[-1]
        shown = ("train_loss", "validation_loss", "validation_accuracy")
        return ", ".join(f"{name} {record[name]:.3f}".replace("_", " ") for name in shown if name in record)

    def write_log(self, board: SummaryWriter) -> None:
        """The whole history as JSON lines, which leaves no line of what a killed run did after its last checkpoint."""
        lines = "".join(json.dumps(record) + "\n" for record in self.history)
        write_whole(self.folder / "log.jsonl", lines.encode())
        for name, value in self.history[-1].items():
            board.add_scalar(name, value, self.step)
        board.flush()  # before the checkpoint after which nobody writes these again

    def count_seconds(self) -> None:
        """Add the time since the last call."""
        now = time.perf_counter()
        self.seconds, self.clock = self.seconds + now - self.clock, now

    # Checkpoints

    @property
    def evaluated(self) -> nn.Module:
        """The model whose weights count: the running mean, where there is one."""
        return self.model if self.ema is None else self.ema

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or patience has come to its end."""
        epoch = self.step // self.epoch_steps
        waited = epoch - self.best["epoch"] if self.best else 0
        return epoch == self.config.epochs or 0 < self.config.patience <= waited

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to go on from."""
        return self.folder is not None and (self.folder / "last.json").exists()

    def tensors(self) -> dict[str, Tensor]:
        """All that changes from step to step."""
        return (
            with_prefix("model", self.model.state_dict())
            | with_prefix("ema", self.ema.state_dict() if self.ema is not None else {})
            | with_prefix("optimizer", optimizer_tensors(self.optimizer))
            | {"curve": self.curve}
        )

    def identity(self) -> dict:
        """What makes this training this one: a resumed one must agree with it."""
        settings = getattr(self.model, "config", None)
        return {
            "config": asdict(self.config),
            "model": asdict(settings) if is_dataclass(settings) else None,
            "dataset": self.data.name,
            "class_names": list(self.data.class_names),
            "pictures": self.pictures,
            "mean": self.data.mean.tolist(),
            "std": self.data.std.tolist(),
        }

    def save_within_epoch(self) -> None:
        """Save "last", unless `finish_epoch` is about to."""
        if self.step % self.epoch_steps:
            self.check()
            self.count_seconds()
            self.save("last", self.tensors())

    def save(self, name: str, tensors: dict[str, Tensor]) -> None:
        """A checkpoint, if this process writes."""
        if self.writes:
            state = {"step": self.step, "seconds": self.seconds, "best": self.best, "history": self.history}
            versions = {package: importlib.metadata.version(package) for package in ("torch", "vitbook")}
            save_checkpoint(self.folder, name, tensors, self.identity() | state | {"versions": versions})
        self.clock = time.perf_counter()  # the time that saving takes is not training's

    def load(self) -> None:
        """Go back to the checkpoint "last". Raises ValueError for that of another training, or of none."""
        place = self.folder / "last.json"
        tensors, facts = load_checkpoint(place)
        mine = json.loads(json.dumps(self.identity()))  # tuples become lists, as in the file
        for name, value in mine.items():
            if facts.get(name) != value:
                raise ValueError(f"{self.folder} holds another training: {difference(name, facts.get(name), value)}")
        try:
            saved = [place]
            if facts["best"]:
                saved.append(self.folder / "best.json")  # may be newer than "last"
                self.best_weights, newest = load_checkpoint(saved[1])
                self.best = {**newest["best"], "epoch": int(newest["best"]["epoch"])}
                self.model.load_state_dict(self.best_weights)  # in the end they have to fit
            self.model.load_state_dict(without_prefix("model", tensors))
            if self.ema is not None:
                self.ema.load_state_dict(without_prefix("ema", tensors))
            load_optimizer_tensors(self.optimizer, without_prefix("optimizer", tensors))
            self.curve.copy_(tensors["curve"])
            self.step, self.seconds, self.history = int(facts["step"]), float(facts["seconds"]), list(facts["history"])
            if not 0 < self.step <= self.total_steps:
                raise ValueError(f"step {self.step} of {self.total_steps}")
        except torch.OutOfMemoryError:  # a RuntimeError, but no fault of the checkpoint's
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
            raise ValueError(f"{place} does not hold what a training goes on from: {error!r}") from None
        for path in saved if self.writes else []:
            remove_leftovers(path)

    def leave_best_weights(self) -> None:
        """Give the model the weights to use."""
        self.model.load_state_dict(self.best_weights)

    def leave_every_patch(self) -> None:
        """Let the model see whole pictures again."""
        for embedding in self.embeddings:
            embedding.patch_dropout = 0.0


def batches(split: Split, mean: Tensor, std: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """A split's pictures, normalised on the device of mean and std, and labels: (B, C, H, W) and (B,)."""
    for images, labels in zip(split.images.split(batch_size), split.labels.split(batch_size), strict=True):
        yield normalise(images.to(mean.device), mean, std), labels.to(mean.device)


@contextmanager
def events_in(folder: Path, purge_step: int) -> Iterator[SummaryWriter]:
    """TensorBoard's events in a folder; those that a stopped training left there from purge_step on no longer count.

    An OSError meanwhile that names no file is of the thread that writes them, and gets their folder.
    """
    try:
        with SummaryWriter(folder, purge_step=purge_step) as board:
            yield board
    except OSError as error:
        if error.errno is not None:
            error.filename = os.fsdecode(error.filename or folder)
        raise


def fingerprint(split: Split | None) -> str | None:
    """The SHA-256 of some pictures and their labels; None where there are none."""
    if split is None:
        return None
    digest = hashlib.sha256()
    for part in (split.images, split.labels):
        digest.update(part.cpu().contiguous().numpy())
    return digest.hexdigest()


def seed_generators(device: torch.device, seed: int) -> None:
    """Start the random numbers of the CPU and of one device; torch.manual_seed would start those of every GPU."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type != "cpu":
        getattr(torch, device.type).manual_seed(seed)


def folded(*numbers: int) -> int:
    """One seed from several numbers; others give another."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]) >> 1


@torch.no_grad()
def average(mean: nn.Module, model: nn.Module, decay: float) -> None:
    """Move a running mean of weights towards the weights: mean ← decay · mean + (1 − decay) · weights."""
    torch._foreach_lerp_(list(mean.parameters()), list(model.parameters()), 1 - decay)
    for kept, buffer in zip(mean.buffers(), model.buffers(), strict=True):
        kept.copy_(buffer)


def difference(name: str, theirs: Any, mine: Any) -> str:
    """Where two facts differ: "config.epochs is 20 there, 30 here"."""
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in theirs | mine:
            if theirs.get(key) != mine.get(key):
                return difference(f"{name}.{key}", theirs.get(key), mine.get(key))
    return f"{name} is {theirs} there, {mine} here"
