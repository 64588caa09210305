"""The commands of `vitbook`: each a dataclass, of which tyro makes options and help, and one call.

A command imports what it needs when it is called: help and usage errors need neither torch nor the models.
"""

import json
import math
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional, Suppress

from vitbook_workshop.commands.model_arguments import arguments_of

PROGRAM = "vitbook"
TRAINED = Path("runs/vit_digits")  # where `vitbook train` without options leaves its model


Device = Literal["auto", "cpu", "cuda", "mps"]


def _compute_on(name: Device) -> None:
    """Choose the device of a command. Raises ValueError where it is not there."""
    from vitbook.runtime import choose_device

    choose_device(name)


def _source(checkpoint: Path, weights: str | None) -> Path | str:
    """Where a model is to come from. Raises ValueError where both are named."""
    if weights and checkpoint != TRAINED:
        raise ValueError(f"name a checkpoint or weights, got both: {checkpoint} and {weights}")
    return weights or checkpoint


def _said(row: tuple[str, float]) -> str:
    """A class and its probability, or something that has none, in words."""
    return row[0] if math.isnan(row[1]) else "{} {:.1%}".format(*row)


@dataclass(frozen=True)
class _Start:
    """What the defaults of all other options of `train` depend on."""

    model: str | None = None
    config: Path | None = None
    init: str | None = None
    tune: str | None = None
    task: str | None = None


@dataclass(frozen=True)
class Train:
    """Train a Vision Transformer; without options, a small one on handwritten digits, in under a minute."""

    run: Any  # a vitbook_workshop.training_runs.settings.Run, of which `defaults` makes the options
    config: Path | None = None  # another run's folder, or a recipe's name: its settings, unless options differ
    resume: bool = False  # whether to go on from the last checkpoint in the folder, if there is one
    progress: bool = True  # whether to show a bar
    seeds: int = 1  # how many times to train, each with the next seed, in a folder of its own inside the folder
    device: Device = "auto"  # where to compute; auto takes a CUDA GPU if there is one; mps, Apple's, has not been tried
    weights: Suppress[Any] = None  # those of --init, opened to learn their shape

    def __post_init__(self):
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")

    @classmethod
    def defaults(cls, arguments: Sequence[str]) -> "Train":
        """The command before its options: the run of --config, --model, --init, --tune and --task."""
        from vitbook.pretrained.loading import open_weights
        from vitbook_workshop.training_runs import settings

        start = tyro.cli(_Start, args=arguments, return_unknown_args=True, add_help=False)[0]
        weights = None if start.init is None else open_weights(start.init)
        run = settings.run_of(start.model, start.config, start.init, start.tune, weights)
        return cls(settings.segmenting(run) if start.task == "segment" else run, weights=weights)

    def __call__(self) -> None:
        from vitbook_workshop.training_runs import results, settings, training

        _compute_on(self.device)
        all_runs = training.with_seeds(self.run, self.seeds)
        histories = [self._train(run) for run in all_runs]
        if self.seeds == 1:
            print(f"kept in {self.run.place}; to test it: {PROGRAM} evaluate {self.run.place}")
        else:
            print(results.over_seeds(histories))
            places = " ".join(str(run.place) for run in all_runs)
            print(f"to test them: {PROGRAM} evaluate {places}")
        recipes = [
            name for name, path in settings.RECIPES.items() if settings.read_run(path).dataset == self.run.dataset
        ]
        if recipes and self.run.model == settings.Run.model:
            better = " or ".join(f"--config {name}" for name in recipes)
            print(f"{self.run.model} is made for the digits; for {self.run.dataset} there is {better}")

    def _train(self, run: Any) -> list[dict]:
        """Train once, and print the last record."""
        from vitbook_workshop.training_runs import training

        try:
            records = training.train_run(run, self.resume, self.progress, self.weights)
        except KeyboardInterrupt:
            if not (run.place / "last.json").exists():
                raise KeyboardInterrupt("stopped before the first checkpoint") from None
            quoted = shlex.join if os.name == "posix" else subprocess.list2cmdline
            again = quoted([PROGRAM, "train", "--config", str(run.place / "run.json"), "--resume"])
            if self.seeds > 1:
                again = "the same command with --resume"
            raise KeyboardInterrupt(f"stopped; from the last checkpoint on: {again}") from None
        for name, value in records[-1].items():
            print(f"{name.replace('_', ' '):<20} {value:.6g}")
        return records


@dataclass(frozen=True)
class Evaluate:
    """Say how good a trained model is on images that it was not trained on."""

    # the folder of a run, or best.json in it; of several, the mean accuracy and its spread as well
    checkpoints: Positional[tuple[Path, ...]] = (TRAINED,)
    split: str = "test"  # which images: test, validation or train
    data_dir: Path | None = None  # where the data set's files are, if no longer where they were
    # where to put a report by class, with the surest wrong answers: a .html to look at, or a .json
    report: Path | None = None
    device: Device = "auto"  # where to compute; auto takes a CUDA GPU if there is one; mps, Apple's, has not been tried

    def __post_init__(self):
        if self.report and len(self.checkpoints) > 1:
            raise ValueError(f"a report is of one run, got {len(self.checkpoints)}")
        if self.report and self.report.suffix.lower() not in (".json", ".html"):
            raise ValueError(f"a report is .json or .html, got {self.report}")

    def __call__(self) -> None:
        from vitbook_workshop.commands import plain
        from vitbook_workshop.training_runs import results

        _compute_on(self.device)
        accuracies = []
        for checkpoint in self.checkpoints or (TRAINED,):
            opened = results.open_run(checkpoint, self.data_dir)
            result = opened.evaluate(self.split)
            if result.task != "classes":
                from vitbook_workshop.commands import report

                names, data, pictures = opened.data.class_names, opened.data, ""
                if result.task == "masks":
                    facts = report.report_masks(result, names)
                    pictures = report.worst_masks(opened, opened.images(self.split), result) if self.report else ""
                else:
                    facts = report.report_targets(result, names, data.scale)
                print(*report.target_lines(facts), sep="\n")
                if self.report:
                    title = plain(f"{opened.run.place} on {self.split} images")
                    report.write_report(facts, self.report, report.target_page(facts, title, pictures))
                    print(plain(f"the report is in {self.report}"))
                continue
            right, count = int((result.predictions == result.labels).sum()), len(result.labels)
            print(f"{self.split} accuracy {result.accuracy:.2%} ({right} of {count}), loss {result.loss:.4f} nats")
            accuracies.append(result.accuracy)
            if self.report:
                from vitbook_workshop.commands import report

                fit_on = opened.data.validation is not None and self.split != "validation"
                known = opened.evaluate("validation") if fit_on else None
                images = opened.images(self.split)
                facts = report.report(result, opened.data.class_names, images, known)
                title = f"{opened.run.place} on {len(images):,} {self.split} images of {opened.data.name}"
                report.write_report(facts, self.report, report.report_page(facts, images, plain(title)))
                print(*report.lines(facts), plain(f"the report is in {self.report}"), sep="\n")
        if len(accuracies) > 1:
            print(f"{self.split} accuracy {results.mean_and_spread(accuracies)}")


@dataclass(frozen=True)
class Predict:
    """Name the likeliest classes of some images."""

    images: Positional[tuple[Path, ...]]  # image files of any size and kind
    checkpoint: Path = TRAINED  # the folder of a run, or best.json in it
    # somebody else's weights instead: a file (.npz, .safetensors, .pth, .pt, .bin), or a name, as "vitbook:NAME" or
    # "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k", which is downloaded once; a wrong one brings up the list; or
    # any model of the Hugging Face Hub, as hf:facebook/dinov2-small
    weights: str | None = None
    # what to look for, in words, one or several in quotes each: of weights with a text tower, CLIP's or SigLIP's
    names: tuple[str, ...] = ()
    top: int = 3  # how many classes to name
    # say "none of these" of what is unlike the run's images, such that at most this share of images like its validation
    # images is turned away falsely, as 0.05
    unknown: float | None = None
    by: Literal["energy", "probability"] = "energy"  # what tells how unlike: all logits, or the largest probability
    # where a model of --task segment puts what it says: NAME_mask.png, whose levels are classes, and NAME_overlay.png;
    # by default in the folder predicted
    masks: Path | None = None
    data_dir: Path | None = None  # where the run's images are, if no longer where they were, for --unknown
    device: Device = "auto"  # where to compute; auto takes a CUDA GPU if there is one; mps, Apple's, has not been tried

    def __post_init__(self):
        if not self.images:
            raise ValueError("predict needs an image file")
        if self.unknown is not None and not 0 < self.unknown < 1:
            raise ValueError(f"unknown is a share of false alarms between 0 and 1, got {self.unknown}")
        if self.unknown is not None and (self.weights or self.names):
            raise ValueError("unknown needs the validation images of a run: name it with --checkpoint")

    def __call__(self) -> int:
        from vitbook_workshop.commands import plain, reason
        from vitbook_workshop.training_runs import trained_models

        _compute_on(self.device)
        unknown = None
        if self.unknown is not None:
            from vitbook.confidence import UNKNOWN_BY
            from vitbook_workshop.training_runs.results import unknown_line

            line, score = unknown_line(self.checkpoint, self.unknown, self.by, self.data_dir), UNKNOWN_BY[self.by]

            def unknown(logits: Any) -> Any:
                return score(logits.float().cpu()) > line

        source = _source(self.checkpoint, self.weights)
        classify, status = trained_models.classifier(source, self.top, self.names, unknown, self.masks), 0
        for path in self.images:
            try:
                said = ", ".join(map(_said, classify(path))) or "none of these"
                print(plain(f"{path}: {said}"))
            except (ValueError, OSError) as error:
                print(f"{PROGRAM}: {reason(error)}", file=sys.stderr)
                status = 1
        return status


@dataclass(frozen=True)
class Explain:
    """Draw what a model attends to in an image: through all of its blocks, and head by head in one of them."""

    image: Positional[Path]  # an image file of any size and kind
    checkpoint: Path = TRAINED  # the folder of a run, or best.json in it
    weights: str | None = None  # somebody else's weights instead, as for `predict`
    layer: int = -1  # the block whose heads are drawn, from 0; -1 for the last
    head: int | None = None  # the only head to draw, from 0; every head if not given
    query: tuple[int, int] | None = None  # row and column of the patch that attends, from 0; else the class token
    size: tuple[int, ...] = ()  # height and width to look at, in pixels, or one for both; the model's if not given
    out: Path = Path("attention.png")  # where to put the figure
    html: Path | None = None  # where to put a page in which the model answers, and can be interfered with
    # whether to print of several kinds of maps how good they were where it is known what decides, and on this image
    exam: bool = False
    device: Device = "auto"  # where to compute; auto takes a CUDA GPU if there is one; mps, Apple's, has not been tried

    def __post_init__(self):
        if max(self.size, default=0) > 2**14:
            raise ValueError(f"size must be at most {2**14} pixels, got {max(self.size)}")
        for name, path in (("image", self.image), ("html", self.html)):
            if path and path.resolve() == self.out.resolve():
                raise ValueError(f"out must be another file than {name}, got {path} for both")

    def __call__(self) -> None:
        from vitbook_workshop.commands import explain_file, plain
        from vitbook_workshop.training_runs import trained_models

        _compute_on(self.device)
        weights = trained_models.open_model(_source(self.checkpoint, self.weights))
        if not hasattr(weights.model, "encoder"):
            raise ValueError(f"a {type(weights.model).__name__} has no attention to draw")
        seen = explain_file.explain_image(weights, self.image, self.layer, self.head, self.query, self.size)
        explain_file.write_figure(seen, self.out)
        if self.html:
            explain_file.write_page(weights, self.image, self.html, self.size)
        if seen.resized:
            print(seen.resized)
        if seen.guess:
            print(plain(f"{self.image}: {_said(seen.guess)}"))
        print(plain(f"drawn in {self.out}" + (f", to be explored in {self.html}" if self.html else "")))
        if self.exam:
            from vitbook_workshop.commands import marks_on_image

            print(*marks_on_image.lines(weights, self.image, self.size), sep="\n")


@dataclass(frozen=True)
class Export:
    """Write a trained model to a file that runs without this package, and compare the two."""

    checkpoint: Positional[Path] = TRAINED  # the folder of a run, or best.json in it
    weights: str | None = None  # somebody else's weights instead, as for `predict`
    # ONNX in float32; torch's own format; ONNX with weights of 8 bits, which is for ONNX Runtime
    to: Literal["onnx", "pt2", "int8"] = "onnx"
    any_size: bool = False  # whether it is to take images of any size, and not the model's alone
    most: int = 64  # images at once in torch's own format, for which some runtimes plan memory; ONNX takes any number
    out: Path | None = None  # where to put it; by default model.onnx, model.pt2 or model.int8.onnx

    def __post_init__(self):
        if self.most < 2:
            raise ValueError(f"most must be at least 2, got {self.most}")

    def __call__(self) -> None:
        from vitbook import export
        from vitbook_workshop.training_runs import trained_models

        out = self.out or Path({"int8": "model.int8.onnx"}.get(self.to, f"model.{self.to}"))
        weights = trained_models.open_model(_source(self.checkpoint, self.weights))
        weights.model.cpu()  # where the graph is traced
        export.export(weights, out, self.to, self.any_size, self.most)
        off, largest = export.difference(out, weights.model)
        size = f"{export.FORMATS[self.to]}; {out.stat().st_size:,} bytes; what it wants of an image: {out}.json"
        print(f"{out}: {size}; on random images, logits of up to {largest:.1f} are off by {off:.1e} at most")


@dataclass(frozen=True)
class Card:
    """Write a trained model's card, and its weights as transformers and timm read them, to hand on."""

    license: str  # under which the data may be used, in the words of the Hugging Face Hub, such as cc-by-4.0
    run: Positional[Path] = TRAINED  # the folder of a run
    out: Path = Path("card")  # a new folder for all of it
    data_dir: Path | None = None  # where the data set's files are, if no longer where they were

    def __call__(self) -> None:
        from vitbook_workshop.commands import card

        written = card.write_card(self.run, self.out, self.license, self.data_dir)
        print(f"{self.out / 'README.md'}, and weights beside it, whose logits are off by {written.off:.1e} at most")
        if written.without:
            print(f"there are none for transformers and timm: {written.without}")


@dataclass(frozen=True)
class Paint:
    """Paint small images from noise, with the painter of CIFAR-10's classes that comes with the package."""

    # the class to paint, by its number, 0 to 9, or its name, as horse; a row of each if not given
    name: Annotated[str | None, tyro.conf.arg(name="class")] = None
    steps: int = 25  # how many steps from noise to image
    guidance: float = 2.0  # how far to go from no class toward this one; 1 for no guidance
    number: int = 10  # how many images of each class
    seed: int = 0  # of the noise
    to: Path = Path("sheet.png")  # where to put them

    def __call__(self) -> None:
        from vitbook_workshop.commands import painted_sheet, plain

        shown = painted_sheet.paint_sheet(self.name, self.steps, self.guidance, self.number, self.seed, self.to)
        print(plain(f"{shown}, drawn in {self.to}"))


@dataclass(frozen=True)
class Summary:
    """List a model's parts, the shape that each gives, and its parameters."""

    model: Positional[str] = "vit_b_16"  # a named shape
    depth: int = 3  # how far parts are taken apart

    def __call__(self) -> None:
        import torchinfo

        from vitbook._common.meta_device import shapes_alone
        from vitbook.vit import create_vit

        with shapes_alone():  # the largest model takes no memory
            model = create_vit(self.model)
        size = (1, model.config.channels, *model.config.image_size)
        print(torchinfo.summary(model, input_size=size, device="meta", depth=self.depth, verbose=0))


@dataclass(frozen=True)
class Look:
    """Say what is in a folder of photographs before training on it: counts, sizes, broken files, copies, leaks."""

    # with a sub-folder for each class, or for each part and in it for each class; or with images and masks
    folder: Positional[Path]
    group: str | None = None  # what must not be in two parts, such as one patient: a pattern, as for `train`

    def __call__(self) -> int:
        from vitbook_workshop.commands import look, plain

        if all((self.folder / name).is_dir() for name in ("images", "masks")):
            print(*map(plain, look.masks_lines(self.folder)), sep="\n")
            return 0
        found = look.look(self.folder, self.group)
        print(*map(plain, found.lines()), sep="\n")
        return int(bool(found.broken))


@dataclass(frozen=True)
class Embed:
    """Write the features of a folder's images to a file, for searching, sorting and classifiers of your own."""

    folder: Positional[Path]  # with images, in sub-folders or not
    checkpoint: Path = TRAINED  # the folder of a run, or best.json in it
    weights: str | None = None  # somebody else's weights instead, as for `predict`
    to: Path = Path("features.safetensors")  # where to put them; what is there already is not computed again
    feature: Literal["class", "mean", "both"] = "class"  # of the class token, the mean of the patches, or both
    normalize: bool = True  # whether each has length 1
    device: Device = "auto"  # as for `train`

    def __call__(self) -> int:
        from vitbook_workshop.commands import embeddings, plain

        _compute_on(self.device)
        source = _source(self.checkpoint, self.weights)
        broken = embeddings.embed_folder(self.folder, self.to, source, self.feature, self.normalize).broken
        print(plain(f"the features are in {self.to}"))
        return int(bool(broken))


@dataclass(frozen=True)
class Similar:
    """Show what in a folder looks most like a photograph; or, without one, list what is there twice."""

    folder: Positional[Path]  # with images, in sub-folders or not
    photograph: Positional[tuple[Path, ...]] = ()  # one image file
    checkpoint: Path = TRAINED  # the folder of a run, or best.json in it
    weights: str | None = None  # somebody else's weights instead, as for `predict`
    features: Path = Path("features.safetensors")  # the file that `embed` writes; it is made or completed
    feature: Literal["class", "mean", "both"] = "class"  # as for `embed`
    top: int = 12  # how many to show
    above: float = 0.97  # the cosine from which on two images of the folder count as the same
    out: Path = Path("similar.png")  # where to put the contact sheet
    device: Device = "auto"  # as for `train`

    def __post_init__(self):
        if len(self.photograph) > 1 or self.top < 1:
            raise ValueError(f"expected one photograph and top at least 1, got {len(self.photograph)} and {self.top}")

    def __call__(self) -> None:
        from vitbook_workshop.commands import embeddings, plain

        _compute_on(self.device)
        source = _source(self.checkpoint, self.weights)
        if not self.photograph:
            pairs = embeddings.duplicates(self.folder, self.features, source, self.feature, self.above)
            rows = [plain(f"{one} ~ {other} {cosine:.3f}") for one, other, cosine in pairs]
            print(*rows, f"{len(rows)} pairs with a cosine of at least {self.above}", sep="\n")
            return
        asked = self.photograph[0]
        found = embeddings.similar(self.folder, asked, self.features, source, self.feature, self.top)
        shown = [(asked, "asked"), *((path, f"{cosine:.3f} {path.name}") for path, cosine in found)]
        embeddings.contact_sheet(shown, self.out)
        print(*(plain(f"{cosine:.3f} {path}") for path, cosine in found), plain(f"drawn in {self.out}"), sep="\n")


@dataclass(frozen=True)
class Datasets:
    """List the data sets that there are."""

    def __call__(self) -> None:
        from vitbook._downloads.datasets import SOURCES

        print("digits          1,797 gray 8×8 images of handwritten digits, 10 classes; comes with scikit-learn")
        for name, source in SOURCES.items():
            print(f"{name:<15} {source.about}")
        print("FOLDER          your own images, a sub-folder for each class")


@dataclass(frozen=True)
class Recipes:
    """List the recipes that `vitbook train --config` takes by name."""

    def __call__(self) -> None:
        from vitbook_workshop.training_runs import results, settings

        for name, path in settings.RECIPES.items():
            run = settings.read_run(path)
            shape, train = run.vit, run.train
            size = f"{shape.dim} wide, {shape.depth} deep{', on a convolutional stem' if shape.stem else ''}"
            if run.cnn:
                size = f"a convolutional network, {' to '.join(map(str, run.cnn))} wide"
            taught = f", taught by {run.teacher}" if run.teacher else ""
            print(f"{name:<23} {run.dataset}, {train.epochs} epochs in batches of {train.batch_size}, {size}{taught}")
            print(f"{'':<23} {results.recorded(name)}")


@dataclass(frozen=True)
class Diagnose:
    """Find what is wrong with anybody's Vision Transformer. It runs the code that it is pointed at.

    Exit status: 0 if all could be asked and nothing was found; 1 if something was found, or the model's code stops with
    an error; 2 if vitbook could not look, attention is not recognized in every block, or the time was over.
    """

    # what builds the model, as my_package.my_model:build or model.py:ViT, whose code is run, in a process of its own;
    # or weights, which are read without running anything: a folder of `train`, a file, or a name as for `predict`; or
    # a model of a library with random weights, as timm:vit_base_patch16_224, transformers:ViT or vit_ti_16
    target: Positional[str]
    args: str = "{}"  # what to build it with, as JSON: '{"num_classes": 10}', or a .json or .yaml file of that
    weights: str = ""  # a file with the state_dict of what is built; it then counts as trained
    image_shape: tuple[int, int, int] | None = None  # channels, height and width; else the usual ones are tried
    num_classes: int | None = None  # as many as it has logits, if not given
    trained: bool = False  # whether it has been trained, as weights have; else it is asked how it starts, too
    overfit: bool = False  # whether to see if it can learn a few images by heart, in up to 500 steps
    export: bool = False  # whether to try torch.export
    like: str = ""  # a target that should give the same logits with the same weights, as timm:vit_base_patch16_224
    like_args: str = "{}"  # what to build that with, as --args; it gets the model's image size and number of classes
    data: str = ""  # a folder of images or a data set as for `train`, to try training on, too
    json: bool = False  # whether to print the findings as JSON
    progress: bool = False  # whether to say what is being asked, also where nobody sits at a terminal
    timeout: float = 300  # after how many seconds to stop; what was answered until then is reported

    def __post_init__(self):
        for name in ("args", "like_args"):
            arguments_of(f"--{name.replace('_', '-')}", getattr(self, name))

    def __call__(self) -> int:
        from vitbook_workshop.faults.diagnose_by_name import examine_by_name
        from vitbook_workshop.faults.findings import exit_status, report

        in_terminal = sys.stderr.isatty() and "CI" not in os.environ

        def show(doing: str) -> None:
            print(
                *(["\r\x1b[K", doing[:76]] if in_terminal else [doing, "\n"]),
                sep="",
                end="",
                file=sys.stderr,
                flush=True,
            )

        options = dict(weights=self.weights, trained=self.trained, overfit=self.overfit, export=self.export)
        options |= dict(data=self.data, like=self.like, like_arguments=arguments_of("--like-args", self.like_args))
        try:
            came = examine_by_name(
                self.target,
                arguments_of("--args", self.args),
                self.image_shape,
                self.num_classes,
                timeout=self.timeout,
                progress=show if self.progress or in_terminal else None,
                **options,
            )
        finally:
            if in_terminal:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        if came.printed:
            first, *more = came.printed.splitlines()
            print(f"the code printed: {first[:200]}{' …' if more else ''}", file=sys.stderr)
        if self.json:
            print(json.dumps([vars(finding) | {"link": finding.link} for finding in came.findings], indent=2))
        else:
            report(came.findings)
        return 130 if came.interrupted else exit_status(came.findings)


@dataclass(frozen=True)
class Exam:
    """Mark your own way to explain a model, on models of which it is known what decides. It runs your code."""

    # mymethod.py:explain or package.module:explain, a function (model, image, class) → map (rows, columns) of patches,
    # whose code is run in a process of its own
    target: Positional[str]
    scenes: int = 100  # how many of each of four tasks
    json: bool = False  # whether to print the report as JSON
    timeout: float = 600  # after how many seconds to stop

    def __post_init__(self):
        if not 2 <= self.scenes <= 10_000:
            raise ValueError(f"scenes must lie in 2 … 10000, got {self.scenes}")

    def __call__(self) -> None:
        from vitbook_workshop.exam import marks

        report = marks.examine(self.target, self.scenes, self.timeout)
        print(marks.as_json(report) if self.json else "\n".join(marks.report_lines(report)))


@dataclass(frozen=True)
class Exercises:
    """List the exercises of all chapters, and which a notebook has solved; or build a model in a file of your own."""

    # start, check or next, a file such as my_vit.py, and after check photographs for the finished model to name;
    # without any of them, the exercises of all chapters are listed
    task: Positional[tuple[str, ...]] = ()
    notebook: Path | None = None  # a saved chapter that you worked in; its stored answers are read, nothing is run
    watch: bool = False  # whether to check again at every save of the file, until Ctrl-C

    def __post_init__(self):
        if self.task and (self.task[0] not in ("start", "check", "next") or len(self.task) < 2):
            raise ValueError(f"expected start, check or next, and a file such as my_vit.py, got {' '.join(self.task)}")
        if len(self.task) > 2 and self.task[0] != "check":
            raise ValueError(f"{self.task[0]} takes one file, got {len(self.task) - 1}")

    def __call__(self) -> int | None:
        if self.task:
            from vitbook_workshop.exercises.my_vit import check

            return check.run(*self.task[:2], self.task[2:], self.watch)
        from vitbook_workshop.exercises import EXERCISES
        from vitbook_workshop.exercises.grader.progress import progress

        done = progress(self.notebook) if self.notebook else {}
        for name, exercise in EXERCISES.items():
            if name in done or not self.notebook:
                print(f"{name:<32}{exercise.level:<8}{exercise.kind:<9}{done.get(name, '')}".rstrip())
        if self.notebook:
            print(f"\n{list(done.values()).count('solved')} of {len(done)} solved")


@dataclass(frozen=True)
class CourseNew:
    """Write a folder for each student: chapters without solutions, with numbers and a broken model of one's own."""

    folder: Positional[Path]  # a new one, for students/, solutions/ and course.json, which holds the answers
    students: Path  # a CSV with a column name, and a column id where two have the same name
    chapters: str = "1-9"  # which, as 1-9 or 1,3,5
    seed: int = 0  # the same seed makes the same course
    book: Path = Path()  # a clone of this book, which has chapters/

    def __call__(self) -> None:
        from vitbook_workshop.course import roster, student_notebooks

        if self.folder.exists() and any(self.folder.iterdir()):
            raise ValueError(f"{self.folder} must be new, and holds {next(self.folder.iterdir()).name}")
        chapters = student_notebooks.chapters_of(self.book, self.chapters)
        course = roster.draw(roster.read_names(self.students), tuple(chapters), self.seed)
        self.folder.mkdir(parents=True, exist_ok=True)
        student_notebooks.write_all(course, self.folder, chapters)
        course.write(self.folder)
        print(f"{len(course.students)} students, {len(chapters)} chapters, each with a model to repair")
        print(f"hand out {self.folder / 'students'}; keep course.json and solutions/ to yourself")
        print(f"to grade what comes back: {PROGRAM} course grade {self.folder} --csv grades.csv --html report.html")


@dataclass(frozen=True)
class CourseGrade:
    """Judge what students have handed in, each in a process of its own; run it again to go on where it stopped."""

    folder: Positional[Path]  # what `course new` wrote
    submissions: Path | None = None  # a folder with one for each student; by default students/ in the folder
    csv: Path | None = None  # where to write the states of all exercises
    html: Path | None = None  # where to write the report
    named: bool = False  # whether the report has students' names, in place of pseudonyms
    workers: int = 2  # how many at a time

    def __call__(self) -> None:
        from vitbook_workshop.course import grades, report, roster

        course = roster.read(self.folder)
        submissions = self.submissions or self.folder / "students"
        if not submissions.is_dir():
            raise ValueError(f"{submissions} must be a folder with one for each student")
        graded = grades.grade(course, self.folder, submissions, self.workers)
        for path, write in ((self.csv, report.write_csv), (self.html, partial(report.write_html, named=self.named))):
            if path:
                write(path, course, graded)
                print(f"wrote {path}")
        for mistake, who in list(report.misconceptions(graded).items())[:5]:
            print(f"{len({slug for slug, _ in who}):>4} of {len(graded)}: {mistake}")


@dataclass(frozen=True)
class CourseQuiz:
    """Write questions with answers to choose from, five a chapter: to print, with a key, and for Moodle."""

    folder: Positional[Path]  # for quiz.md, key.md and moodle.xml
    chapters: str = "1-9"  # which, as 1-9 or 1,3,5
    seed: int = 0  # draws the order of questions and answers

    def __call__(self) -> None:
        from vitbook._common.files import write_whole
        from vitbook_workshop.course import quiz, student_notebooks

        there = {int(name[:2]): name for name in quiz.chapters()}
        chosen = [there[number] for number in student_notebooks.numbers_of(self.chapters, there)]
        asked = [question for name in chosen for question in quiz.questions(name, self.seed)]
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in (
            ("quiz.md", quiz.markdown(asked).encode()),
            ("key.md", quiz.markdown(asked, key=True).encode()),
            ("moodle.xml", quiz.moodle(asked)),
        ):
            write_whole(self.folder / name, content)
            print(f"wrote {self.folder / name}")


@dataclass(frozen=True)
class Course:
    """Give this book to a class: notebooks for each student, grades, and what the class has misunderstood."""

    work: (
        Annotated[CourseNew, tyro.conf.subcommand("new", prefix_name=False)]
        | Annotated[CourseGrade, tyro.conf.subcommand("grade", prefix_name=False)]
        | Annotated[CourseQuiz, tyro.conf.subcommand("quiz", prefix_name=False)]
    )

    def __call__(self) -> None:
        self.work()


COMMANDS = {
    command.__name__.lower(): command
    for command in (
        Train,
        Evaluate,
        Predict,
        Explain,
        Export,
        Card,
        Paint,
        Summary,
        Look,
        Embed,
        Similar,
        Datasets,
        Recipes,
        Diagnose,
        Exam,
        Exercises,
        Course,
    )
}
