"""CLIP, SigLIP and SigLIP 2 whole: the image tower as `load_pretrained` reads it, and the text tower beside it."""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitbook._common.files import read_json
from vitbook._common.meta_device import shapes_alone
from vitbook._common.suggestions import listed
from vitbook.contrastive import ScaleAndBias, SubwordTextTower, TwoTowers
from vitbook.modern import ModernConfig
from vitbook.pretrained.config_files import ACTIVATION
from vitbook.pretrained.hub import fetch_from_hub
from vitbook.pretrained.layouts import TABLES, Layout
from vitbook.pretrained.loading import load_pretrained, open_weights
from vitbook.pretrained.preprocessing import Preprocessing
from vitbook.pretrained.weight_files import tensors_in

TEXT_TOWERS = [TABLES[f"{name}_TEXT"] for name in ("CLIP", "SIGLIP", "CLIP_HUB", "CLIP_CUSTOM", "SIGLIP_HUB")]

# What a text_config leaves out where it is as transformers' classes have it
_DEFAULTS: dict[str, dict[str, Any]] = {
    "clip": dict(hidden_act="quick_gelu", layer_norm_eps=1e-5, num_attention_heads=8, eos_token_id=49407),
    "siglip": dict(hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, num_attention_heads=12),
}
_BESIDE = re.compile(r".*(position_ids|attn_mask)")  # buffers of old files, which hold nothing that was learned


@dataclass(frozen=True)
class PretrainedTowers:
    """Two towers with somebody's weights, in evaluation mode, and what one has to know to use them."""

    model: TwoTowers
    preprocessing: Preprocessing  # of images; the text tower prepares prompts itself
    sigmoid: bool  # whether each name was a question of its own in training, as `name_probabilities` takes it
    notes: tuple[str, ...]  # what was assumed


def load_towers(source: str | Path, progress: bool = True) -> PretrainedTowers:
    """An image and a text tower of the shape that the weights have, with the weights. On the CPU.

    source: an id of the Hub, "hf:openai/clip-vit-base-patch32", or a folder as it has them, or the file of weights in
    such a folder: with tokenizer.json beside them, and config.json or open_clip_config.json for what is to be known of
    them. progress: whether to show bars of downloads. SigLIP reads all prompts in lower case, the first SigLIP without
    punctuation, as they were trained; padding is hidden from it where transformers would hide it. Raises ValueError for
    weights without a text tower and those that do not fit, FileNotFoundError without a tokenizer, ImportError without
    the library tokenizers, and what `fetch_from_hub` raises.
    """
    name = str(source)
    path = fetch_from_hub(name[3:], progress) if name.startswith("hf:") else Path(source).expanduser()
    opened = replace(open_weights(path), source=name, once=True)
    seen = load_pretrained(opened)
    folder = path if path.is_dir() else path.parent
    state = tensors_in(opened.content)[0]
    try:
        text, project, to_logits = _text_tower(state, folder, vars(seen.model.config).get("activation", "gelu"))
        image, width = seen.model, project.out_features
        if (images := getattr(image.head, "out_features", image.config.dim)) != width:
            raise ValueError(f"the towers do not meet: images become {images} numbers, and prompts {width}")
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # settings beside weights may be anything
        raise ValueError(f"{name}: {error}") from None
    model = TwoTowers(image, text, width, to_logits)
    model.project_text, model.project_image, image.head = project, image.head, nn.Identity()
    notes = tuple(note for note in seen.notes if not note.startswith("dropped what is not the image tower's"))
    return PretrainedTowers(model.eval(), seen.preprocessing, "logit_bias" in state, notes)


def _text_tower(
    state: Mapping[str, Tensor], folder: Path, activation: str
) -> tuple[SubwordTextTower, nn.Linear, ScaleAndBias]:
    """The text tower in a file, its projection and what makes logits. activation: the image tower's."""
    layout = next((one for one in TEXT_TOWERS if all(n in state for row in one.rows(0) for n in row.theirs)), None)
    if layout is None:
        raise ValueError(f"no text tower of CLIP or SigLIP is in it: it begins with {listed(state)}")
    block = re.escape(layout.prefix + layout.block).replace(r"\{i\}", r"(\d+)")
    rows = layout.rows(len({match[1] for name in state if (match := re.match(block, name))}))
    wanted = {name for row in rows for name in row.theirs} | {"logit_scale"}
    wanted |= {"logit_bias"} if layout.name == "siglip" else set()
    begins = layout.prefix or layout.block.partition(".")[0] + "."
    wrong = [f"missing {name}" for name in sorted(wanted - state.keys())]
    others = {name for name in state if name.startswith(begins) and not _BESIDE.fullmatch(name)}
    wrong += [f"unexpected {name}" for name in sorted(others - wanted)]
    if wrong:
        raise ValueError(f"the text tower does not fit: {listed(wrong)}")
    ours = {row.ours: row.read(state) for row in rows}
    if infinite := [name for name, tensor in ours.items() if not all(end.isfinite() for end in tensor.aminmax())]:
        raise ValueError(f"the text tower's {infinite[0]}: expected finite numbers, got NaN or infinity")
    (vocabulary, dim), length = ours["embedding.weight"].shape, ours["positions"].shape[1]
    settings: dict[str, Any] = _stated(folder, layout) or {"num_heads": max(dim // 64, 1), "activation": activation}
    causal, end, clean = layout.name == "clip", settings.pop("end", None), settings.pop("clean", None)
    depth, hidden = sum(name.endswith("fc1.weight") for name in ours), ours["encoder.blocks.0.mlp.fc1.weight"].shape[0]
    plain: dict[str, Any] = dict(
        num_classes=0, dim=dim, depth=depth, mlp_dim=hidden, norm_eps=_DEFAULTS[layout.name]["layer_norm_eps"]
    )
    tokenizer, padding, hides = _tokenizer(folder, vocabulary, length, end, clean)
    encoder, hides = ModernConfig(**plain | settings), hides and not causal  # whose tokens see no padding anyway
    with shapes_alone():
        tower = SubwordTextTower(encoder, vocabulary, length, tokenizer, causal, end, padding, hides)
    weight, bias = ours.pop("project.weight"), ours.pop("project.bias", None)
    project, to_logits = nn.Linear(dim, len(weight), bias is not None), ScaleAndBias()
    project.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    t, b = state["logit_scale"], state.get("logit_bias", torch.zeros(1))
    to_logits.load_state_dict({"t": t.reshape(()), "bias": b.reshape(())})
    try:
        numbers = {name: tensor.to(torch.get_default_dtype()).contiguous() for name, tensor in ours.items()}
        tower.load_state_dict(numbers, assign=True)  # which keeps those that are mapped from a file
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from None
    return tower, project, to_logits


def _stated(folder: Path, layout: Layout) -> dict[str, Any]:
    """What the files beside weights state of a text tower: fields of `ModernConfig`, "end", and "clean" of OpenCLIP."""
    if config := (read_json(folder / "config.json") or {}).get("text_config"):
        config = _DEFAULTS[layout.name] | config
        if (act := config["hidden_act"]) not in ACTIVATION:
            raise ValueError(f"hidden_act {act!r} of the text tower: known are {', '.join(ACTIVATION)}")
        end = config.get("eos_token_id")
        settings = dict(num_heads=config["num_attention_heads"], norm_eps=float(config["layer_norm_eps"]))
        # a wrong number of old files of CLIP's, in which the highest is the sign
        return settings | dict(activation=ACTIVATION[act], end=end if layout.name == "clip" and end != 2 else None)
    whole = (read_json(folder / "open_clip_config.json") or {}).get("model_cfg") or {}
    if not (config := whole.get("text_cfg")):
        return {}
    if config.get("pool_type", "argmax") != ("argmax" if layout.name == "clip" else "last"):
        raise ValueError(f"pool_type {config['pool_type']!r} of the text tower is not read")
    tanh = (config.get("act_kwargs") or {}).get("approximate") == "tanh"
    activation = "quick_gelu" if whole.get("quick_gelu") else "gelu_tanh" if tanh else "gelu"
    eps = (config.get("norm_kwargs") or {}).get("eps", 1e-5)
    clean = (config.get("tokenizer_kwargs") or {}).get("clean", "lower")
    return dict(num_heads=config["heads"], norm_eps=float(eps), activation=activation, clean=clean)


def _tokenizer(
    folder: Path, vocabulary: int, length: int, end: int | None, clean: str | None
) -> tuple[Callable[[Sequence[str]], list[list[int]]], int, bool]:
    """What makes integers of prompts, by the tokenizer.json in a folder; what fills them up; whether that is hidden.

    end: the sign that must be behind a prompt; clean: what OpenCLIP does to prompts, None if it is not OpenCLIP's.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ImportError('to read prompts needs tokenizers: pip install "vitbook[hub]"') from None
    path, config = folder / "tokenizer.json", read_json(folder / "tokenizer_config.json") or {}
    if not path.exists():
        raise FileNotFoundError(f"there is no tokenizer.json beside the weights, in {folder}, to read prompts with")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise ValueError(f"{path} is no tokenizer: {error}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if (highest := max(tokenizer.get_vocab().values(), default=0)) >= vocabulary:
        raise ValueError(f"{path} counts to {highest}, and the text tower has {vocabulary} tokens")
    signs = tokenizer.encode("").ids
    if end is not None and end not in signs:
        raise ValueError(f"{path} does not put the sign {end} behind a prompt, at which the text tower answers")
    kind, sign = str(config.get("tokenizer_class")), config.get("pad_token")
    sign = sign.get("content") if isinstance(sign, dict) else sign
    padding = tokenizer.token_to_id(str(sign)) or 0
    lower = clean is not None or kind.startswith(("Siglip", "Gemma"))
    bare = clean == "canonicalize" or kind.startswith("SiglipTokenizer")
    punctuation = str.maketrans("", "", string.punctuation)
    # of a tokenizer_config.json, what transformers takes where nothing is stated; a sign of a prompt is never hidden
    hides = bool(config) and clean is None and padding not in signs
    hides = hides and "attention_mask" in config.get("model_input_names", ["attention_mask"])
    left = config.get("padding_side", "left" if kind.startswith(("Siglip2", "Gemma")) else "right") == "left"

    def read(prompts: Sequence[str]) -> list[list[int]]:
        plain = [prompt.lower() if lower else prompt for prompt in prompts]
        plain = [" ".join(prompt.translate(punctuation).split()) if bare else prompt for prompt in plain]
        rows = [encoding.ids for encoding in tokenizer.encode_batch(plain)]
        return [[padding] * (length - len(row)) + row for row in rows] if left else rows

    return read, padding, hides
