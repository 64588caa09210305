"""Mark every kind of map on models of which it is known what decides, and ask whether deletion ranks them so too.

    python records/exam.py vitbook/assets/runs/exam.json --models FOLDER
    python records/exam.py vitbook/assets/runs/exam_deletion.json --photographs [--data-dir FOLDER]

Twenty small Vision Transformers are trained, five seeds of each task of `vitbook.planted`, and of compare with true
watermarks, all at one rate, and kept in FOLDER; with --ship, those of seed 0 become vitbook/assets/exam.safetensors.
Each method's maps of a hundred new scenes that a model answers rightly are marked by the key. A row holds precision
at k, AUC and the share of scenes whose whole key comes first, each with the 95 % interval over scenes. Beside the rows,
"heads" says of each model of compare through which head the answer goes.

With --photographs, most of the methods rank the patches of photographs for the models of chapter 13, and a row holds
the areas under the curves of deletion and insertion, as in `deletion.py`. Eleven minutes on a core in all.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from deletion import WEIGHTS, area, curves
from harness import Rows, arguments_of
from safetensors.torch import load_file, save_file

from vitbook.data import Split, load_dataset
from vitbook.engine import batches
from vitbook.planted import CONFIG, planted
from vitbook.pretrained import load_pretrained
from vitbook.runtime import seed_everything
from vitbook.training import parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import VisionTransformer
from vitbook_workshop.exam.head_table import head_table, twins
from vitbook_workshop.exam.methods import ALL
from vitbook_workshop.exam.sittings import SHIPPED, SITTINGS, Sitting, graded, interval, sitting

STEPS = {"find": 250, "compare": 400, "count": 800, "watermark": 300}
RATE, BATCH, DECAY, SEEDS = 2e-3, 64, 0.05, range(5)


def trained(name: str, seed: int, steps: int) -> VisionTransformer:
    """A model for one of `SITTINGS`, none of whose scenes is shown twice."""
    seed_everything(seed)
    generator = torch.Generator().manual_seed(seed)
    task, watermark = ("compare", "true") if name == "watermark" else (name, "none")
    model = VisionTransformer(CONFIG)
    optimizer = torch.optim.AdamW(parameter_groups(model, DECAY), lr=RATE, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 10))
    drawn = (planted(task, BATCH, generator, watermark) for _ in range(steps))
    train_epoch(model, ((scenes.images, scenes.labels) for scenes in drawn), optimizer, schedule)
    return model.eval().requires_grad_(False)


def kept(folder: Path, name: str, seed: int) -> VisionTransformer:
    """The model of a name and seed, from the folder or trained now, in half precision as it is shipped."""
    path = folder / f"{name}-{seed}.safetensors"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        began = time.process_time()
        state = trained(name, seed, STEPS[name]).state_dict()
        save_file({key: x.half() for key, x in state.items()}, path)
        print(f"{path.name}: trained in {time.process_time() - began:.0f} CPU seconds", flush=True)
    model = VisionTransformer(CONFIG).eval()
    model.load_state_dict(load_file(path))
    return model


@torch.no_grad()
def follows(model: VisionTransformer) -> dict[str, float]:
    """The shares of new scenes whose answer is the task's, and the watermark's, where the watermark is random."""
    scenes = planted("compare", 500, torch.Generator().manual_seed(2_000_000), "random")
    answers, corner = model(scenes.images).argmax(dim=1), scenes.textures.flatten(1).amax(dim=1) - 5
    return {
        "follows_the_task": (answers == scenes.labels).double().mean().item(),
        "follows_the_watermark": (answers == corner).double().mean().item(),
    }


@torch.no_grad()
def accuracy(name: str, model: VisionTransformer) -> float:
    """On a thousand new scenes."""
    task, watermark = ("compare", "true") if name == "watermark" else (name, "none")
    scenes = planted(task, 1000, torch.Generator().manual_seed(3_000_000), watermark)
    return (model(scenes.images).argmax(dim=1) == scenes.labels).double().mean().item()


def mark(file: Path, models: Path, seeds: Sequence[int], count: int) -> None:
    """A row for each method, task and seed."""
    rows = Rows(file, "rows")
    for seed in seeds:
        for name in SITTINGS:
            keys = [{"arm": arm, "rate": None, "seed": seed, "task": name} for arm in ALL]
            if all(rows.find(**key) for key in keys):
                continue
            model = kept(models, name, seed)
            facts = {"accuracy": accuracy(name, model)} | (follows(model) if name == "watermark" else {})
            asked = sitting(name, count, model)

            def make(arm: str, asked: Sitting = asked, facts: dict = facts, **_: object) -> dict:
                return graded(ALL[arm], asked) | facts

            rows.fill(make, keys)
    heads = Rows(file, "heads")
    for seed in seeds:
        heads.once(lambda: through_heads(kept(models, "compare", seed)), seed=seed)  # noqa: B023 — called at once


def through_heads(model: VisionTransformer) -> dict[str, list[list[float]]]:
    """How far compare's answer goes through each head, with another cue and with another color."""
    tables = {change: head_table(model, *twins(change)) for change in ("cue", "color")}
    return {change: [[round(x, 3) for x in row] for row in table.tolist()] for change, table in tables.items()}


def on_photographs(file: Path, data_dir: Path | None, count: int) -> None:
    """A row for each method and model of chapter 13."""
    test, rows = load_dataset("cifar10", data_dir).test, Rows(file, "rows")
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(1))[:count]
    for name, weights in WEIGHTS.items():
        loaded = load_pretrained(weights)
        images, _ = next(batches(Split(test.images[chosen], test.labels[chosen]), *loaded.preprocessing.moments, count))
        with torch.no_grad():
            classes = loaded.model(images).argmax(dim=1)

        def make(arm: str, vit: VisionTransformer = loaded.model, images=images, classes=classes, **_) -> dict:
            maps = {arm: ALL[arm](vit, images, classes).detach().flatten(1)}
            found = curves(vit, images, maps, 8, torch.zeros_like(images))[arm]
            return {"n": count} | {mode: interval(area(curve)) for mode, curve in found.items()}

        arms = [arm for arm in ALL if arm not in ("RISE", "SHAP")]  # hundreds of calls for each image
        rows.fill(make, [{"arm": arm, "rate": None, "seed": 0, "model": name} for arm in arms])


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--models", type=Path, help="where the trained models are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--scenes", type=int, default=100)
    parser.add_argument("--ship", action="store_true", help="write the package's models")
    parser.add_argument("--photographs", type=int, nargs="?", const=48, help="how many, of CIFAR-10's test images")
    given = parser.parse_args(arguments)
    if given.photographs:
        return on_photographs(given.file, given.data_dir, given.photographs)
    mark(given.file, given.models, given.seeds, given.scenes)
    if given.ship:
        shipped = {name: load_file(given.models / f"{name}-0.safetensors") for name in SITTINGS}
        save_file({f"{name}.{key}": x for name, some in shipped.items() for key, x in some.items()}, SHIPPED)


if __name__ == "__main__":
    main()
