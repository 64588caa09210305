"""A training run from its settings to its records: images, model, weights to begin with, teacher, and `fit`."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from typing import cast

import ignite.distributed as idist
import torch
from torch import Tensor, nn

from vitbook._common.files import alone_in
from vitbook.cnn import CNNConfig, WhiteningCNN
from vitbook.data import loaded
from vitbook.engine import check_fit, fit
from vitbook.finetuning import prepare
from vitbook.image_files import ImageFiles
from vitbook.pretrained import load_pretrained
from vitbook.pretrained.loading import OpenedWeights
from vitbook.runtime import device
from vitbook.task_heads import Segmenter
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.training_runs.settings import Run, image_folder, load_images, read_run, write_run
from vitbook_workshop.training_runs.teachers import load_teacher
from vitbook_workshop.training_runs.trained_models import say_what_is_assumed

_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE")  # what it tells each process that it starts; others set some of them
_NOT_IN_WEIGHTS = ("num_classes", "dropout", "attention_dropout", "drop_path")  # what weights do not settle


def train_run(
    run: Run, resume: bool = False, progress: bool = True, weights: OpenedWeights | None = None
) -> list[dict]:
    """Train, on the GPU if there is one, and keep run.json, checkpoints and logs in `run.place`. Returns the records.

    resume: whether to go on from the last checkpoint there, if there is one; weights: those of `run.init`, where they
    are open already. Where `torchrun` has started several processes, each calls this. Errors are those of
    `load_dataset` and `fit`, and ValueError for a folder among the images, where every later run would take it for a
    class.
    """
    images = image_folder(run)
    if images and run.place.resolve().is_relative_to(images.resolve()):
        raise ValueError(f"folder must be outside the images in {images}, got {run.place}")
    with _processes():
        data = load_images(run, progress)
        if data.in_files and idist.get_rank() == 0:
            images = cast(ImageFiles, data.train.images)
            print(f"{len(images):,} photographs to train on stay in their files; {images.workers} processes read them")
        height, width = data.train.images.shape[2:]
        shape = dict(image_size=(height, width), channels=data.train.images.shape[1], num_classes=len(data.class_names))
        torch.manual_seed(run.train.seed)
        run = replace(run, vit=replace(run.vit, **shape))
        if run.cnn and run.init is not None:
            raise ValueError(f"init {run.init} is for a Vision Transformer: drop it, or cnn {run.cnn}")
        if run.cnn:
            model = WhiteningCNN(CNNConfig(**shape, widths=run.cnn))
            model.whiten(data.normalize(loaded(data.train.images[:5000])))
        elif run.init is not None:
            vit = replace(run.vit, num_classes=0) if data.task == "masks" else run.vit
            model, moments = _begun_with(run.init, vit, weights)
            data = replace(data, given_moments=moments)
            prepare(model, run.tune, run.lora_rank)
        else:
            model = VisionTransformer(run.vit if data.task != "masks" else replace(run.vit, num_classes=0))
        if data.task == "masks":
            model = Segmenter(cast(VisionTransformer, model), len(data.class_names))
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
            several = idist.get_world_size() > 1 and torch.cuda.is_available()  # one GPU each
            on = idist.device() if several else device()
            watched = None if run.train.compile or idist.get_world_size() > 1 else _watched
            return fit(model.to(on), data, run.train, run.place, resume, progress, teacher, watched)


@contextmanager
def _watched(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[Callable[[], None]]:
    """Say once each what is found wrong in the steps meanwhile; see `vitbook_workshop.faults.watch_training`."""
    from vitbook_workshop.faults.checks import training as checks
    from vitbook_workshop.faults.watch_training import OF_TRAINING, answer, watch

    worth_saying = (checks.first_loss_is_not_above_ln_k, checks.all_is_finite, checks.parameters_are_trained)
    asked = [must_hold for must_hold in OF_TRAINING if must_hold.of_training in worth_saying]
    said: set[str] = set()
    with watch(model, optimizer) as report:

        def say() -> None:
            for must_hold in asked:
                finding = answer(must_hold, must_hold.of_training, report.recorder)
                if finding.result == "FAILED" and finding.about not in said:
                    said.add(finding.about)
                    print(f"vitbook: not so: {finding.about}: {' '.join(finding.lines)}", file=sys.stderr)

        try:
            yield say
        finally:
            say()


def with_seeds(run: Run, seeds: int) -> list[Run]:
    """The run itself; or, for several seeds, one with each from its own on, in folders seed_0, seed_1, … of its own."""
    if seeds == 1:
        return [run]
    every = range(run.train.seed, run.train.seed + seeds)
    return [replace(run, folder=run.place / f"seed_{n}", train=replace(run.train, seed=n)) for n in every]


def _begun_with(
    init: str, config: ViTConfig, opened: OpenedWeights | None
) -> tuple[VisionTransformer, tuple[Tensor, Tensor] | None]:
    """A model with all of some weights but their head, and their mean and standard deviation of images, (C,) and (C,).

    The latter is None where there are more channels than the weights know.
    Raises ValueError where the config is of another shape than they, image size and channels apart.
    """
    weights = load_pretrained(opened or init, num_classes=0, image_size=config.image_size, channels=config.channels)
    say_what_is_assumed(weights.notes)
    theirs = weights.model.config
    for name in (option.name for option in fields(theirs) if option.name not in _NOT_IN_WEIGHTS):
        if (ours := getattr(config, name, None)) != getattr(theirs, name):
            raise ValueError(f"{name} must be {getattr(theirs, name)} as in {init}, got {ours}")
    model = type(weights.model)(config)
    model.load_state_dict(model.state_dict() | weights.model.state_dict())
    moments = weights.preprocessing.moments
    return model, moments if len(moments[0]) == config.channels else None


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
