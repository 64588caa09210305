"""A trained model to hand on: its card, and its weights as transformers and timm read them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

import vitbook
from vitbook._common.files import write_whole
from vitbook.checkpoint import save_checkpoint
from vitbook.finetuning import add_lora
from vitbook.pretrained import Pretrained, huggingface_config, load_pretrained, to_huggingface, to_timm
from vitbook.pretrained.layouts import TIMM
from vitbook.pretrained.loading import open_weights
from vitbook.training import wilson_interval
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.commands import plain
from vitbook_workshop.training_runs.lora_files import TRANSFORMERS, save_adapter
from vitbook_workshop.training_runs.results import evaluate_run
from vitbook_workshop.training_runs.settings import Run, read_run
from vitbook_workshop.training_runs.trained_models import open_model


@dataclass(frozen=True)
class Card:
    """What was written, and how well."""

    folder: Path
    without: str  # why other libraries have no class for the model; "" where their files are there
    off: float  # the largest difference of logits, read back from the files, on random images


def write_card(checkpoint: Path, folder: Path, license: str, data_dir: Path | None = None) -> Card:
    """Put README.md and the weights of a run's best epoch into a folder, as it can be uploaded to the Hugging Face Hub.

    The folder itself is one of transformers, with config.json, preprocessor_config.json and model.safetensors; timm/ in
    it is one of timm's. Of models that these have no class for, it holds a checkpoint of ours. Of a run that trained
    LoRA, adapter/ holds that alone, for peft. checkpoint: as in `evaluate_run`; license: under which the data may be
    used, in the Hub's words, such as "cc-by-4.0"; data_dir: where the data set is now. Raises ValueError for a folder
    that holds something already, and what `evaluate_run` raises.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder with --out")
    weights, result = open_model(checkpoint), evaluate_run(checkpoint, "test", data_dir)
    if result.task != "classes":
        raise ValueError(f"a card is of a classifier, and {checkpoint} knows {result.task}")
    run = read_run((checkpoint if checkpoint.is_dir() else checkpoint.parent) / "run.json")
    right, count = int((result.predictions == result.labels).sum()), len(result.labels)
    model, names, files = weights.model.cpu(), weights.class_names or (), {}
    try:
        if type(model.config) is not ViTConfig or not isinstance(model, VisionTransformer):
            raise ValueError(f"a {type(model).__name__} with {type(model.config).__name__} has no class there")
        files = _files_for_transformers(weights, names) | _files_for_timm(weights, names)
        without = ""
    except ValueError as error:
        without = str(error)
    folder.mkdir(parents=True, exist_ok=True)
    if without:
        save_checkpoint(folder, "best", model.state_dict(), dict(weights.facts))
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        write_whole(folder / name, content)
    if run.tune == "lora" and not without:
        alone = VisionTransformer(model.config)
        add_lora(alone, run.lora_rank)
        alone.load_state_dict(open_weights(checkpoint).content)
        layout = TIMM if str(run.init).startswith("timm:") else TRANSFORMERS
        save_adapter(alone, folder / "adapter", str(run.init).removeprefix("hf:"), layout)
    write_whole(
        folder / "README.md", _readme(run, weights, license, right, count, without).encode(errors="backslashreplace")
    )
    x = torch.randn(4, model.config.channels, *weights.preprocessing.image_size)
    with torch.no_grad():
        there = [open_model(folder)] if without else [load_pretrained(folder), load_pretrained(folder / "timm")]
        off = max((one.model.cpu()(x) - model(x)).abs().max().item() for one in there)
    return Card(folder, without, off)


def _text(facts: Mapping[str, Any]) -> bytes:
    text = json.dumps(facts, indent=2, default=str, ensure_ascii=False) + "\n"
    return text.encode(errors="backslashreplace")  # a byte of a name that is no UTF-8 becomes JSON's escape


def _tensors(state: Mapping[str, Tensor]) -> bytes:
    return save({name: tensor.contiguous() for name, tensor in state.items()}, {"format": "pt"})


def _files_for_transformers(weights: Pretrained, names: tuple[str, ...]) -> dict[str, bytes]:
    """What its ViTForImageClassification and its image processors read, by name."""
    config, seen, side = huggingface_config(weights.model), weights.preprocessing, min(weights.model.config.sides)
    config |= dict(id2label=dict(enumerate(names)), label2id={name: k for k, name in enumerate(names)})
    processor = dict(
        image_processor_type="CLIPImageProcessor", do_resize=True, size={"shortest_edge": side}, resample=3
    )
    processor |= dict(do_center_crop=True, crop_size=dict(zip(("height", "width"), seen.image_size, strict=True)))
    processor |= dict(do_rescale=True, rescale_factor=1 / 255, do_normalize=True, do_convert_rgb=len(seen.mean) == 3)
    processor |= dict(image_mean=seen.mean, image_std=seen.std)
    files = {"config.json": _text(config), "preprocessor_config.json": _text(processor)}
    return files | {"model.safetensors": _tensors(to_huggingface(weights.model))}


def _files_for_timm(weights: Pretrained, names: tuple[str, ...]) -> dict[str, bytes]:
    """What `timm.create_model("local-dir:…")` reads, by name."""
    c, seen = weights.model.config, weights.preprocessing
    arguments = dict(img_size=c.sides, patch_size=c.patch_size, in_chans=c.channels, embed_dim=c.dim, depth=c.depth)
    ratio = c.mlp_dim / c.dim
    ratio += 0.5 / c.dim if int(c.dim * ratio) != c.mlp_dim else 0  # timm rounds the product down
    arguments |= dict(num_heads=c.num_heads, mlp_ratio=ratio, qkv_bias=c.qkv_bias)
    looks = dict(input_size=(c.channels, *c.sides), fixed_input_size=True, mean=seen.mean, std=seen.std, crop_pct=1.0)
    looks |= dict(interpolation=seen.interpolation, crop_mode="center", num_classes=c.num_classes)
    looks |= dict(first_conv="patch_embed.proj", classifier="head")
    config = dict(architecture="vit_base_patch16_224", num_classes=c.num_classes, num_features=c.dim)
    config |= dict(global_pool="token", label_names=names, model_args=arguments, pretrained_cfg=looks)
    return {"timm/config.json": _text(config), "timm/model.safetensors": _tensors(to_timm(weights.model))}


def _readme(run: Run, weights: Pretrained, license: str, right: int, count: int, without: str) -> str:
    """The card, with the Hub's metadata before it."""
    c, seen, names = weights.model.config, weights.preprocessing, tuple(map(plain, weights.class_names or ()))
    title, share = f"{run.model} on {Path(run.dataset).name}", right / count
    low, high = wilson_interval(right, count)
    result = {
        "task": {"type": "image-classification"},
        "dataset": {"name": Path(run.dataset).name, "type": Path(run.dataset).name, "split": "test"},
        "metrics": [{"type": "accuracy", "value": round(share, 4), "name": f"accuracy on {count} images"}],
    }
    facts = {
        "license": license,
        "pipeline_tag": "image-classification",
        "library_name": "vitbook" if without else "transformers",
        "tags": ["vision-transformer", "vitbook"],
        "model-index": [{"name": title, "results": [result]}],
    }
    parameters = sum(parameter.numel() for parameter in weights.model.parameters())
    begun = f"the weights {run.init}, tuned as `{run.tune}`" if run.init else "random weights"
    trained = (
        f"{run.train.epochs} epochs in batches of {run.train.batch_size}, learning rate {run.train.learning_rate:g}"
    )
    kind = f"{type(weights.model).__name__}, {getattr(c, 'dim', '')} wide, {getattr(c, 'depth', '')} deep"
    sees = f"{'×'.join(map(str, seen.image_size))} pixels, {'in color' if len(seen.mean) == 3 else 'gray'}"
    moments = f"mean {_numbers(seen.mean)} and standard deviation {_numbers(seen.std)}"
    load = _LOAD_HERE.format(why=without) if without else _LOAD
    load += _LOAD_ADAPTER.format(init=run.init) if run.tune == "lora" and not without else ""
    return (
        "---\n"
        + "".join(f"{key}: {json.dumps(value)}\n" for key, value in facts.items())
        + f"""---

# {title}

{kind}, {parameters:,} parameters, trained with vitbook {vitbook.__version__} from {begun}: {trained}.

**Data.** {run.dataset}, used under {license}. Classes: {", ".join(names)}.

**How good.** Test accuracy {share:.1%}: {right} of {count} images (95 % interval {low:.1%} to {high:.1%}). They were
not trained on, and come from where the training images come from; what it makes of others was not measured. It always
answers with one of its classes.

**What it sees.** The middle of an image in the model's proportions, scaled to {sees}, {seen.interpolation}; from
levels of 0 to 1, {moments}.

## How to load it

{load}"""
    )


_LOAD = """In transformers, with the files of this folder:

```python
from transformers import AutoImageProcessor, ViTForImageClassification

model = ViTForImageClassification.from_pretrained("FOLDER_OR_ID")
prepare = AutoImageProcessor.from_pretrained("FOLDER_OR_ID")
```

In timm, with those of `timm/`:

```python
import timm

model = timm.create_model("local-dir:FOLDER/timm", pretrained=True)
```

Both scale before they cut, where training cuts first: their images may differ by rounding.
"""


_LOAD_ADAPTER = """
With peft, on {init} itself, with images of the size and channels above, `adapter/` alone is enough:

```python
from peft import PeftModel

model = PeftModel.from_pretrained(base, "FOLDER/adapter")
```
"""

_LOAD_HERE = """```python
from vitbook.pretrained import load_pretrained

weights = load_pretrained("FOLDER")
```

There are no files for transformers and timm: {why}.
"""


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
