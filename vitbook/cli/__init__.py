"""The command `vitbook`: each of its commands is a dataclass, of which options and help are made, and one call."""

import contextlib
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import torchinfo
import tyro

from vitbook import runs
from vitbook.downloads.datasets import SOURCES
from vitbook.exercises import EXERCISES
from vitbook.exercises.progress import progress
from vitbook.explorer import explain_file
from vitbook.vit import create_vit

PROGRAM = "vitbook"
TRAINED = Path("runs/vit_digits")  # where `vitbook train` without options leaves its model


@dataclass(frozen=True)
class Start:
    """What the defaults of all other options of `train` depend on."""

    model: str | None = None
    config: Path | None = None
    init: str | None = None


@dataclass(frozen=True)
class Train:
    """Train a Vision Transformer; without options, a small one on handwritten digits, in under a minute."""

    run: runs.Run = field(default_factory=runs.Run)
    config: Path | None = None  # run.json of another training or a recipe's name: its settings, unless options differ
    resume: bool = False  # whether to go on from the last checkpoint in the folder, if there is one
    progress: bool = True  # whether to show a bar

    def __call__(self) -> None:
        try:
            records = runs.train_run(self.run, self.resume, self.progress)
        except KeyboardInterrupt:
            if not (self.run.place / "last.json").exists():
                raise KeyboardInterrupt("stopped before the first checkpoint") from None
            quoted = shlex.join if os.name == "posix" else subprocess.list2cmdline
            again = quoted([PROGRAM, "train", "--config", str(self.run.place / "run.json"), "--resume"])
            raise KeyboardInterrupt(f"stopped; from the last checkpoint on: {again}") from None
        for name, value in records[-1].items():
            print(f"{name.replace('_', ' '):<20} {value:.6g}")
        print(f"kept in {self.run.place}; to test it: {PROGRAM} evaluate {self.run.place}")
        recipes = [name for name, path in runs.RECIPES.items() if runs.read_run(path).dataset == self.run.dataset]
        if recipes and self.run.model == runs.Run.model:
            better = " or ".join(f"--config {name}" for name in recipes)
            print(f"{self.run.model} is made for the digits; for {self.run.dataset} there is {better}")


@dataclass(frozen=True)
class Evaluate:
    """Say how good a trained model is on pictures that it was not trained on."""

    checkpoint: tyro.conf.Positional[Path] = TRAINED  # the folder of a training, or a checkpoint's JSON in it
    split: str = "test"  # which pictures: test, validation or train
    data_dir: Path | None = None  # where the data set's files are, if no longer where they were

    def __call__(self) -> None:
        result = runs.evaluate_run(self.checkpoint, self.split, self.data_dir)
        right, all_of_them = int((result.predictions == result.labels).sum()), len(result.labels)
        print(f"{self.split} accuracy {result.accuracy:.2%} ({right} of {all_of_them}), loss {result.loss:.4f} nats")


@dataclass(frozen=True)
class Predict:
    """Name the likeliest classes of some pictures."""

    images: tyro.conf.Positional[tuple[Path, ...]]  # picture files of any size and kind
    checkpoint: Path = TRAINED  # the folder of a training, or a checkpoint's JSON
    # somebody else's weights instead: a file (.npz, .safetensors, .pth, .pt, .bin), or a name, as "vitbook:NAME" or
    # "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", which is downloaded once; a wrong one brings up the list
    weights: str | None = None
    top: int = 3  # how many classes to name

    def __call__(self) -> None:
        if not self.images:
            raise Usage("predict needs a picture file")
        source = self.weights or self.checkpoint
        for path, guesses in zip(self.images, runs.predict_pictures(source, list(self.images), self.top), strict=True):
            print(f"{path}: " + ", ".join(f"{name} {share:.1%}" for name, share in guesses))


@dataclass(frozen=True)
class Explain:
    """Draw what a model attends to in a picture: through all of its blocks, and head by head in one of them."""

    image: tyro.conf.Positional[Path]  # a picture file of any size and kind
    checkpoint: Path = TRAINED  # the folder of a training, or a checkpoint's JSON
    weights: str | None = None  # somebody else's weights instead, as for `predict`
    layer: int = -1  # the block whose heads are drawn, from 0; -1 for the last
    head: int | None = None  # the only head to draw, from 0; every head if not given
    query: tuple[int, int] | None = None  # row and column of the patch that attends, from 0; else the class token
    size: tuple[int, ...] = ()  # height and width to look at, in pixels, or one for both; the model's if not given
    out: Path = Path("attention.png")  # where to put the figure
    html: Path | None = None  # where to put a page with every layer, head and query, if one is wanted

    def __call__(self) -> None:
        weights = runs.open_weights(self.weights or self.checkpoint)
        found = explain_file.explain_image(weights, self.image, self.layer, self.head, self.query, self.size)
        explain_file.write_figure(found, self.out)
        if self.html:
            explain_file.write_page(weights, found.image, self.html)
        if found.resized:
            print(found.resized)
        if found.guess:
            print("{}: {} {:.1%}".format(self.image, *found.guess))
        print(f"drawn in {self.out}" + (f", to be explored in {self.html}" if self.html else ""))


@dataclass(frozen=True)
class Summary:
    """List a model's parts, the shape that each gives, and its parameters."""

    model: tyro.conf.Positional[str] = "vit_b_16"  # a named shape
    depth: int = 3  # how far parts are taken apart

    def __call__(self) -> None:
        with torch.device("meta"):  # shapes without numbers: the largest model takes no memory
            model = create_vit(self.model)
        size = (1, model.config.channels, *model.config.image_size)
        print(torchinfo.summary(model, input_size=size, device="meta", depth=self.depth, verbose=0))


@dataclass(frozen=True)
class Datasets:
    """List the data sets that there are."""

    def __call__(self) -> None:
        print("digits          1,797 grey 8×8 pictures of handwritten digits, 10 classes; comes with scikit-learn")
        for name, source in SOURCES.items():
            print(f"{name:<15} {source.about}")
        print("FOLDER          your own pictures, a sub-folder for each class")


@dataclass(frozen=True)
class Recipes:
    """List the recipes that `vitbook train --config` takes by name."""

    def __call__(self) -> None:
        for name, path in runs.RECIPES.items():
            run = runs.read_run(path)
            shape, train = run.vit, run.train
            size = f"{shape.dim} wide, {shape.depth} deep{', on a convolutional stem' if shape.stem else ''}"
            print(f"{name:<20} {run.dataset}, {train.epochs} epochs in batches of {train.batch_size}, {size}")


@dataclass(frozen=True)
class Exercises:
    """List the exercises of all chapters, and which of them a notebook has solved."""

    notebook: Path | None = None  # a saved chapter that you worked in; its stored answers are read, nothing is run

    def __call__(self) -> None:
        done = progress(self.notebook) if self.notebook else {}
        for name, exercise in EXERCISES.items():
            if name in done or not self.notebook:
                print(f"{name:<32}{exercise.level:<8}{exercise.kind:<9}{done.get(name, '')}".rstrip())
        if self.notebook:
            print(f"\n{list(done.values()).count('solved')} of {len(done)} solved")


class Usage(Exception):
    """The command line is not one that can be understood."""


def parse(
    arguments: Sequence[str],
) -> Train | Evaluate | Predict | Explain | Summary | Datasets | Recipes | Exercises:
    """The command that the arguments describe. Raises Usage where they describe none."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            start = tyro.cli(Start, args=arguments, return_unknown_args=True, add_help=False)[0]
            train = Train(runs.run_of(start.model, start.config, start.init))
            commands = (
                Annotated[Train, tyro.conf.subcommand("train", default=train)]
                | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
                | Annotated[Predict, tyro.conf.subcommand("predict")]
                | Annotated[Explain, tyro.conf.subcommand("explain")]
                | Annotated[Summary, tyro.conf.subcommand("summary")]
                | Annotated[Datasets, tyro.conf.subcommand("datasets")]
                | Annotated[Recipes, tyro.conf.subcommand("recipes")]
                | Annotated[Exercises, tyro.conf.subcommand("exercises")]
            )
            return tyro.cli(
                commands,
                prog=PROGRAM,
                description="Train Vision Transformers, test them and use them.",
                args=arguments,
                config=(tyro.conf.OmitArgPrefixes,),
            )
    except SystemExit as stop:
        if not stop.code:  # help was asked for and given
            raise
        rows = [row.strip(" │|") for row in said.getvalue().split("For full helptext")[0].splitlines()[1:]]
        message = one_line(" ".join(row for row in rows if row.strip("─-")))  # without the box around it
        raise Usage(f"{message} (see {PROGRAM} --help)") from None
    except (ValueError, OSError) as error:
        raise Usage(reason(error)) from None


def reason(error: BaseException) -> str:
    """What an error says, in one line."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.strerror}: {error.filename}"
    return one_line(str(error)) or type(error).__name__


def one_line(message: str) -> str:
    """The same words in a single line."""
    return " ".join(message.split())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0, 1 for an error, 2 for wrong usage, 130 for Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")  # a file or pipe takes few characters on Windows
    try:
        parse(sys.argv[1:] if arguments is None else arguments)()
        return 0
    except Usage as error:
        code, message = 2, reason(error)
    except KeyboardInterrupt as error:
        code, message = 130, reason(error)
    except (ValueError, OSError, ArithmeticError, RuntimeError) as error:
        code, message = 1, reason(error)
    print(f"{PROGRAM}: {message}", file=sys.stderr)
    return code
