"""How good a trained model is, class by class, in one file: JSON to compute with, or a page to look at.

scikit-learn computes; `vitbook.imbalance` and `vitbook.confidence` have the same by hand.
"""

import base64
import html
import io
import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from sklearn import metrics
from torch import Tensor

from vitbook._common.files import write_whole
from vitbook.data import Split
from vitbook.image_files import ImageFiles
from vitbook.imbalance import by_class, mean_iou
from vitbook.runtime import device
from vitbook.training import Evaluation, PixelEvaluation, wilson_interval
from vitbook_workshop.commands import plain
from vitbook_workshop.training_runs.results import OpenedRun
from vitbook_workshop.training_runs.segmented import overlay

WORST = 24  # errors that are shown
BINS = 15  # of the largest probability


def report(
    result: Evaluation, class_names: tuple[str, ...], split: Split, validation: Evaluation | None = None
) -> dict[str, Any]:
    """All numbers, as JSON takes them, and names as they are.

    validation: of images to fit a temperature on, which are not those of `result`; without them there is none.
    """
    labels, called = result.labels.numpy(), result.predictions.numpy()
    every = range(len(class_names))
    right, count = int((labels == called).sum()), len(labels)
    precision, recall, f1, support = metrics.precision_recall_fscore_support(
        labels, called, labels=every, zero_division=np.nan
    )
    some = support > 0
    facts: dict[str, Any] = {
        "images": count,
        "accuracy": right / count,
        "accuracy_interval": wilson_interval(right, count),
        "balanced_accuracy": float(np.mean(recall[some])),
        "macro_f1": float(np.nanmean(f1)),
        "always_the_largest_class": float(support.max() / count),
        "loss": result.loss,
        "classes": [
            dict(zip(("name", "precision", "recall", "f1", "n"), (name, *map(float, row), int(n)), strict=True))
            for name, *row, n in zip(class_names, precision, recall, f1, support, strict=True)
        ],
        "never_named": [class_names[k] for k in every if support[k] and not (called == k).any()],
        "confusion": metrics.confusion_matrix(labels, called, labels=every).tolist(),
        "calibration_error": result.calibration_error,
        "calibration": _calibration(result.logits, result.labels),
    }
    if validation is not None:
        temperature = validation.temperature
        cooled = Evaluation(result.logits / temperature, result.labels)
        facts |= {"temperature": temperature, "calibration_error_with_temperature": cooled.calibration_error}
        facts |= {"loss_with_temperature": cooled.loss}
    facts["worst"] = _worst(result, class_names, split)
    return facts


def _calibration(logits: Tensor, labels: Tensor) -> list[dict[str, float]]:
    """For each bin of the largest probability that any image is in: its mean, the share that is right, how many."""
    probability, predicted = logits.double().softmax(dim=-1).max(dim=-1)
    bins = (BINS * probability).ceil().long().clamp(1, BINS)
    rows = []
    for number in bins.unique():
        here = bins == number
        share = (predicted == labels)[here].double().mean().item()
        rows.append({"probability": probability[here].mean().item(), "right": share, "n": int(here.sum())})
    return rows


def _worst(result: Evaluation, class_names: tuple[str, ...], split: Split) -> list[dict[str, Any]]:
    """The wrong answers that the model was surest of, the surest first."""
    probability, predicted = result.logits.softmax(dim=-1).max(dim=-1)
    wrong = (predicted != result.labels).nonzero()[:, 0]
    chosen = wrong[probability[wrong].argsort(descending=True)][:WORST].tolist()
    files = split.images.paths if isinstance(split.images, ImageFiles) else None
    return [
        {
            "image": i if files is None else str(files[i]),
            "is": class_names[int(result.labels[i])],
            "called": class_names[int(predicted[i])],
            "probability": probability[i].item(),
            "place": i,
        }
        for i in chosen
    ]


def write_report(facts: dict[str, Any], path: Path, page: str) -> None:
    """All numbers as JSON where the path ends in .json, else the page; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_finite(facts), indent=2) + "\n" if path.suffix.lower() == ".json" else page
    write_whole(path, text.encode())


def _finite(value: Any) -> Any:
    """The same with null for nan, which JSON does not know."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def lines(facts: dict[str, Any]) -> list[str]:
    """The report in a terminal's width."""
    low, high = facts["accuracy_interval"]
    rows = [
        f"accuracy {facts['accuracy']:.1%} (95 % interval {low:.1%} to {high:.1%}), always answering the largest class "
        f"{facts['always_the_largest_class']:.1%}",
        f"balanced accuracy {facts['balanced_accuracy']:.1%}, macro F1 {facts['macro_f1']:.3f}",
        f"{'class':<24} {'precision':>9} {'recall':>7} {'F1':>7} {'n':>6}",
    ]
    for row in facts["classes"]:
        numbers = "".join(f"{row[name]:>{width}.1%}" for name, width in (("precision", 10), ("recall", 8), ("f1", 8)))
        rows.append(f"{plain(row['name']):<24}{numbers.replace('nan%', '   –')} {row['n']:>6}")
    if facts["never_named"]:
        rows.append(f"never named: {_listed(facts['never_named'])}")
    said = f"probabilities are off by {facts['calibration_error']:.1%} on average"
    if "temperature" in facts:
        after = facts["calibration_error_with_temperature"]
        said += f", by {after:.1%} with logits divided by {facts['temperature']:.2f}, fitted on validation images"
    return [*rows, said]


def report_masks(result: PixelEvaluation, names: tuple[str, ...]) -> dict[str, Any]:
    """All numbers of a model that names the class of each pixel, of the pixels of all images together."""
    counts = result.confusion
    there, called, count = counts.sum(dim=1), counts.sum(dim=0), max(int(counts.sum()), 1)
    columns = (*by_class(counts), there / count)
    rows = [
        {"name": name, "iou": f1 / (2 - f1), "precision": precision, "recall": recall, "share": share}
        for name, precision, recall, f1, share in zip(names, *(column.tolist() for column in columns), strict=True)
    ]
    found = {
        "images": len(result.right),
        "accuracy": result.accuracy,
        "mean_iou": mean_iou(counts),
        "loss": result.loss,
    }
    never = [row["name"] for row, n, said in zip(rows, there, called, strict=True) if n and not said]
    return found | {"masks": rows, "never_named": never, "confusion": counts.tolist()}


def report_targets(result: Evaluation, names: tuple[str, ...], scale: tuple[float, float]) -> dict[str, Any]:
    """All numbers of a model that says which labels hold, or a number: then in the units of its table."""
    scores, wanted = result.logits.double().numpy(), result.labels.double().numpy()
    if result.task == "number":
        scores, wanted = scores[:, 0] * scale[1] + scale[0], wanted[:, 0] * scale[1] + scale[0]
        return {
            "images": len(wanted),
            "mean_absolute_error": float(metrics.mean_absolute_error(wanted, scores)),
            "root_mean_squared_error": float(np.sqrt(metrics.mean_squared_error(wanted, scores))),
            "r2": float(metrics.r2_score(wanted, scores)),
        }
    rows = []
    for k, name in enumerate(names):
        there, said = wanted[:, k] > 0.5, scores[:, k] > 0
        both = 0 < there.sum() < len(there)
        precision, recall, f1, _ = metrics.precision_recall_fscore_support(
            there, said, average="binary", zero_division=np.nan
        )
        area = float(metrics.roc_auc_score(there, scores[:, k])) if both else math.nan
        average = float(metrics.average_precision_score(there, scores[:, k])) if there.any() else math.nan
        row = {"name": name, "precision": float(precision), "recall": float(recall), "f1": float(f1)}
        rows.append(row | {"auroc": area, "average_precision": average, "n": int(there.sum())})
    found = {"images": len(wanted), "loss": result.loss, "accuracy": result.accuracy, "labels": rows}
    for name in ("average_precision", "auroc", "f1"):
        some = [row[name] for row in rows if not math.isnan(row[name])]
        found[f"mean_{name}"] = float(np.mean(some)) if some else math.nan
    return found


def target_lines(facts: dict[str, Any]) -> list[str]:
    """The same, of labels, a number or masks, in a terminal's width."""
    if "masks" in facts:
        head = "{images} images, mean IoU {mean_iou:.1%}, {accuracy:.1%} of the pixels, loss {loss:.4f} nats"
        rows = [f"{'class':<24}     IoU precision  recall  of all pixels"]
        for row in facts["masks"]:
            numbers = zip((row[key] for key in ("iou", "precision", "recall", "share")), (8, 10, 8, 15), strict=True)
            rows.append(f"{plain(row['name']):<24}{''.join(f'{_percent(share):>{width}}' for share, width in numbers)}")
        never = [f"never named: {_listed(facts['never_named'])}"] if facts["never_named"] else []
        return [head.format(**facts), *rows, *never]
    if "labels" not in facts:
        names = ("mean_absolute_error", "root_mean_squared_error", "r2")
        return [f"{facts['images']} images", *(f"{name.replace('_', ' ')} {facts[name]:.4g}" for name in names)]
    head = "{images} images, mean average precision {mean_average_precision:.3f}, mean AUROC {mean_auroc:.3f}"
    keys = ("precision", "recall", "f1", "auroc", "average_precision")
    rows = [f"{'label':<24} precision   recall       F1    AUROC       AP      n"]
    rows += [
        f"{plain(row['name']):<24}{''.join(f'{row[key]:>9.3f}' for key in keys)} {row['n']:>6}"
        for row in facts["labels"]
    ]
    return [head.format(**facts), *(row.replace("nan", "  –") for row in rows)]


@torch.no_grad()
def worst_masks(opened: OpenedRun, split: Split, result: PixelEvaluation) -> str:
    """As HTML, the images of fewest right pixels: each as it is, under its mask, and under what the model says."""
    figures = []
    for place in result.right.argsort()[: WORST // 2].tolist():
        image, mask = cast(tuple[Tensor, Tensor], (split.images[place], split.labels[place]))
        said = opened.weights.model(opened.weights.preprocessing.normalize(image[None]).to(device()))[0].argmax(dim=0)
        shown = image[:3].permute(1, 2, 0).numpy()
        over = [overlay(shown, levels.cpu().numpy().astype(np.uint8)) for levels in (mask, said)]
        three = torch.from_numpy(np.concatenate([shown, *over], axis=1)).permute(2, 0, 1)
        name = plain(Path(cast(ImageFiles, split.images).paths[place]).name)
        caption = html.escape(f"{name}: {result.right[place]:.0%} right")
        figures.append(
            f'<figure><img src="{picture(three)}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'
        )
    style = "figure{display:inline-block;margin:.4rem}figure img{width:24rem;max-width:100%}"
    head = "<h2>The worst images</h2><p>Each as it is, under its mask, and under what the model says.</p>"
    return f"<style>{style}</style>{head}{''.join(figures)}"


def target_page(facts: dict[str, Any], title: str, pictures: str = "") -> str:
    """A page of labels, a number or masks; pictures: HTML to stand below."""
    lines = html.escape("\n".join(target_lines(facts)))
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
    return f"{head}<pre>{lines}</pre>{pictures}</html>\n"


_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color-scheme:light dark}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}td,th{padding:.2rem .6rem;text-align:right}
th:first-child,td:first-child{text-align:left}figure{display:inline-block;width:9rem;margin:.4rem;vertical-align:top}
figure img{width:100%;image-rendering:auto}figcaption{font-size:.85rem;overflow-wrap:anywhere}"""


def report_page(facts: dict[str, Any], split: Split, title: str) -> str:
    """The report as a page, with the surest wrong answers."""
    names = [html.escape(plain(row["name"])) for row in facts["classes"]]
    summary = "".join(f"<p>{html.escape(row)}</p>" for row in (lines(facts)[:2] + lines(facts)[-1:]))
    never = facts["never_named"]
    summary += f"<p><strong>Never named: {html.escape(_listed(never))}</strong></p>" if never else ""
    by_class = _table(
        ("class", "precision", "recall", "F1", "images"),
        [
            (name, *(_percent(row[key]) for key in ("precision", "recall", "f1")), f"{row['n']:,}")
            for name, row in zip(names, facts["classes"], strict=True)
        ],
    )
    cells = []
    for name, row in zip(names, facts["confusion"], strict=True):
        shades = (f'<td style="background:rgba(0,114,178,{n / max(sum(row), 1):.2f})">{n}</td>' for n in row)
        cells.append(f'<tr><th scope="row">{name}</th>{"".join(shades)}</tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in ("is \\ called", *names))
    confusion = f"<table><tr>{head}</tr>{''.join(cells)}</table>"
    calibration = _table(
        ("mean probability", "share that is right", "images"),
        [(_percent(row["probability"]), _percent(row["right"]), f"{row['n']:,}") for row in facts["calibration"]],
    )
    worst = "".join(_figure(row, split) for row in facts["worst"]) or "<p>There is no wrong answer.</p>"
    title = html.escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>{summary}<h2>By class</h2>{by_class}"
        f"<h2>Confusion</h2><p>Rows: what an image is. Columns: what it was called.</p>{confusion}"
        f"<h2>Calibration</h2>{calibration}<h2>The surest wrong answers</h2>{worst}</html>\n"
    )


def _listed(names: list[str]) -> str:
    return plain(", ".join(names))


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:.1%}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Cells are HTML already."""
    top = "".join(f'<th scope="col">{name}</th>' for name in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _figure(row: dict[str, Any], split: Split) -> str:
    """One image and what it was taken for."""
    image = split.images[row["place"]]
    said = html.escape(plain(f"{row['is']}, called {row['called']} ({row['probability']:.0%})"))
    return f'<figure><img src="{picture(image)}" alt="{said}"><figcaption>{said}</figcaption></figure>'


def picture(image: Tensor) -> str:
    """uint8 (C, H, W) as an address that holds the picture itself; of more than three channels, their first three."""
    shown = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    file = io.BytesIO()
    Image.fromarray(shown.permute(1, 2, 0).contiguous().numpy()).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
