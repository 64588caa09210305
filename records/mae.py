"""Pretrain a masked autoencoder without labels, keep its weights, and write down what can be read off its features.

    python records/mae.py --data-dir FOLDER

As it is, it trains on CIFAR-10's pixels as they are, so that it can complete images; `--normalized` takes each patch's
mean and size away, for better features. The record goes to vitbook/assets/runs/mae.json, the weights in float16, about
1.6 MB, to vitbook/assets/weights/mae.json and the safetensors beside it: `load_pretrained("vitbook:mae")` takes the
encoder from it, and leaves the decoder. A command that is repeated with more seeds adds their runs.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import torch
from harness import Rows, write
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from vitbook._common.files import ASSETS
from vitbook.augment import random_crop, random_flip
from vitbook.checkpoint import save_checkpoint
from vitbook.data import Dataset, Split, load_dataset
from vitbook.engine import batches
from vitbook.features import collect_features, neighbor_votes
from vitbook.mae import MaskedAutoencoder, pretrain
from vitbook.runtime import device, has_bfloat16
from vitbook.vit import VisionTransformer, ViTConfig


def autoencoder(data: Dataset, given: argparse.Namespace) -> MaskedAutoencoder:
    """One for the data set's images, with a decoder two thirds as wide and two blocks deep."""
    channels, *image_size = data.train.images.shape[1:]
    vit = ViTConfig(
        image_size=tuple(image_size), patch_size=given.patch_size, channels=channels, num_classes=0, dim=given.dim,
        depth=given.depth, num_heads=given.num_heads, mlp_dim=4 * given.dim, pool="mean", positions="sincos_2d",
    )  # fmt: skip
    return MaskedAutoencoder(VisionTransformer(vit), 2 * given.dim // 3, 2, given.num_heads, given.ratio)


def read_off(backbone: VisionTransformer, data: Dataset) -> dict[str, float]:
    """The share of test images whose class 20 neighbors and a linear probe find in the features of whole images."""
    moments = [moment.to(device()) for moment in data.moments]

    def features(split: Split) -> torch.Tensor:
        return collect_features(backbone, batches(split, *moments, 500))[0]

    known, asked = features(data.train), features(data.test)
    labels, right, classes = data.train.labels, data.test.labels, len(data.class_names)
    votes = torch.cat([neighbor_votes(some, known, labels, classes) for some in asked.split(500)])
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=500)).fit(known, labels)
    return {
        "neighbors": (votes.argmax(dim=1) == right).double().mean().item(),
        "probe": float(probe.score(asked, right)),
    }


def run(data: Dataset, given: argparse.Namespace, seed: int) -> tuple[MaskedAutoencoder, dict]:
    """A model trained with this seed, and what there is to write down of it."""
    torch.manual_seed(seed)
    model = autoencoder(data, given).to(device())
    before = read_off(model.backbone, data)
    started = time.process_time()
    losses = pretrain(
        model,
        data.normalize(data.train.images).to(device()),
        given.epochs,
        given.batch_size,
        given.learning_rate,
        given.normalized,
        augment=lambda images: random_flip(random_crop(images, 4)),
        bf16=has_bfloat16(device()),
    )
    seconds = time.process_time() - started
    losses = [round(loss, 4) for loss in losses]
    after = read_off(model.backbone, data)
    return model, {"core_seconds": round(seconds), "losses": losses, "before": before, "after": after}


def keep(name: str, tensors: dict[str, torch.Tensor], data: Dataset, facts: dict, assets: Path) -> None:
    """Write the record to assets/runs, and the weights in float16 to assets/weights, with what is needed to load them.

    facts: the record; "model" is the config of the backbone, which has no head, so that there are no class names.
    """
    needed = {key: facts[key] for key in ("about", "dataset", "model", "before", "after")}
    needed |= {"class_names": [], "mean": data.mean.tolist(), "std": data.std.tolist(), "recipe": name}
    save_checkpoint(assets / "weights", name, {key: tensor.half() for key, tensor in tensors.items()}, needed)
    write(assets / "runs" / f"{name}.json", facts)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--assets", type=Path, default=ASSETS, help="where to keep the record and the weights")
    parser.add_argument("--about", default="", help="what data, which machine: a sentence")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--data-dir", type=Path, help="where the data set's files are; without it they are downloaded")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=1.5e-3)
    parser.add_argument("--ratio", type=float, default=0.75, help="the share of patches that is hidden")
    parser.add_argument("--normalized", action="store_true", help="normalize the pixels of each target")
    parser.add_argument("--patch-size", type=int, default=4)
    parser.add_argument("--dim", type=int, default=96)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[0, 1], help="one run each; the first one's weights are kept"
    )
    given = parser.parse_args(arguments)
    data = load_dataset(given.dataset, given.data_dir, validation=0.0)
    settings = {name: value for name, value in vars(given).items() if not isinstance(value, Path)}
    file = given.assets / "runs" / "mae.json"
    before = json.loads(file.read_text())["settings"] if file.exists() else {}
    if before | {"seeds": before.get("seeds", [])[:1]} != settings | {"seeds": given.seeds[:1]}:
        model, first = run(data, given, given.seeds[0])
        facts = {
            "about": given.about,
            "dataset": data.name,
            "settings": settings,
            "model": asdict(model.backbone.config),
            **first,
            "test_images": len(data.test),
            "torch": torch.__version__,
            "more_seeds": [],
        }
        keep("mae", model.state_dict(), data, facts, given.assets)
        print("before {before}\nafter  {after}".format(**facts))
    Rows(file, "more_seeds").fill(lambda seed: run(data, given, seed)[1], [{"seed": seed} for seed in given.seeds[1:]])


if __name__ == "__main__":
    main()
