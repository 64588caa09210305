"""CLIP, SigLIP and SigLIP 2 whole: what Hugging Face's classes say of images and prompts, from random weights."""

import json
import sys
from pathlib import Path

import pytest
import torch
from einops import rearrange
from foreign import fused, renamed, shaken
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.testing import assert_close

from vitbook._common.files import ASSETS
from vitbook.contrastive import cosines
from vitbook_workshop.commands import main
from vitbook_workshop.training_runs.text_towers import load_towers
from vitbook_workshop.training_runs.trained_models import classifier

transformers = pytest.importorskip("transformers")
pytest_plugins = ["shared_fixtures", "local_hub"]
pytestmark = pytest.mark.usefixtures("double")
SIDE, P, LENGTH, WORDS = 28, 7, 12, 90
VISION = dict(image_size=SIDE, patch_size=P, hidden_size=36, num_hidden_layers=2, num_attention_heads=3)
VISION |= dict(intermediate_size=52)
TEXT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, vocab_size=WORDS)
TEXT |= dict(max_position_embeddings=LENGTH)
PHOTO = ASSETS / "album" / "cat_yarn.jpg"
PROMPTS = ["a kingfisher", "A moose, by the red lake", "a cat with yarn"]


def write_tokenizer(folder: Path, kind: str) -> int:
    """A small one that puts a sign behind a prompt, and for CLIP before it. Returns the number of the last sign.

    What is stated of it is as in the published files of SigLIP and SigLIP 2.
    """
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if kind == "CLIPTokenizer":
        tokenizer.normalizer = normalizers.Lowercase()
    trainer = trainers.BpeTrainer(special_tokens=["<pad>", "<s>", "<unk>"], vocab_size=WORDS - 1)
    tokenizer.train_from_iterator([*PROMPTS, *map(str.lower, PROMPTS)], trainer)
    tokenizer.add_special_tokens(["</s>"])
    end = tokenizer.token_to_id("</s>")
    single = "<s> $A </s>" if kind == "CLIPTokenizer" else "$A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<s>", 1), ("</s>", end)])
    folder.mkdir(exist_ok=True)
    tokenizer.enable_padding(length=99)  # which a file may hold, and which is not the tower's
    tokenizer.enable_truncation(max_length=3)
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"tokenizer_class": kind, "pad_token": "</s>" if kind == "CLIPTokenizer" else "<pad>"}
    facts |= {"padding_side": "right"} | ({} if kind == "CLIPTokenizer" else {"model_input_names": ["input_ids"]})
    (folder / "tokenizer_config.json").write_text(json.dumps(facts))
    return end


def write(kind: str, folder: Path, **text) -> torch.nn.Module:
    """A model of transformers with both towers, and its folder."""
    tokenizer = {"CLIP": "CLIPTokenizer", "Siglip": "SiglipTokenizer", "Siglip2": "GemmaTokenizer"}[kind]
    end = write_tokenizer(folder, tokenizer)
    text = TEXT | dict(eos_token_id=end) | text
    vision, more = dict(VISION), {}
    if kind == "CLIP":
        text, vision, more = text | dict(projection_dim=10), vision | dict(projection_dim=10), dict(projection_dim=10)
    else:
        text |= dict(projection_size=VISION["hidden_size"])
    if kind == "Siglip2":
        vision |= dict(num_patches=(SIDE // P) ** 2)
        del vision["image_size"]
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision, **more)
    model = shaken(getattr(transformers, f"{kind}Model")(config))
    with torch.no_grad():
        model.logit_scale.fill_(2.5)
    model.save_pretrained(folder)
    return model


def theirs(model: torch.nn.Module, images: Tensor, input_ids: Tensor, **mask: Tensor) -> Tensor:
    """Their logits of images with prompts."""
    seen = {"pixel_values": images}
    if type(model).__name__ == "Siglip2Model":
        cut = rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=P, q=P)
        sides = torch.full((len(images), 2), SIDE // P)
        seen = {"pixel_values": cut, "pixel_attention_mask": torch.ones(cut.shape[:2]), "spatial_shapes": sides}
    with torch.no_grad():
        return model(input_ids=input_ids, **mask, **seen).logits_per_image


@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("kind", ["CLIP", "Siglip", "Siglip2"])
def test_logits_of_prompts_padded_and_not(kind, activation, tmp_path):
    model = write(kind, tmp_path, **({"hidden_act": activation} if activation else {}))
    towers, images = load_towers(tmp_path), torch.randn(2, 3, SIDE, SIDE)
    padded = towers.model.text.tokenize(PROMPTS)
    assert padded.shape == (3, LENGTH)
    with torch.no_grad():
        assert_close(towers.model(images, PROMPTS), theirs(model, images, padded), rtol=0, atol=1e-6)
        for row, count in zip(padded, [len(ids) for ids in towers.model.text.tokenizer(PROMPTS)], strict=True):
            words = towers.model.project_text(towers.model.text(row[None, :count]))
            ours = towers.model.to_logits(cosines(towers.model.see(images), words))
            assert_close(ours, theirs(model, images, row[None, :count]), rtol=0, atol=1e-6)
    assert towers.sigmoid == (kind != "CLIP")


@pytest.mark.parametrize("stated", [{}, {"padding_side": "left"}, {"model_input_names": ["input_ids"]}])
@pytest.mark.parametrize("kind", ["CLIP", "Siglip", "Siglip2"])
def test_prompts_are_prepared_as_transformers_prepares_them(kind, stated, tmp_path):
    """Its own tokenizer, with whatever its file says of padding, beside ours."""
    if kind == "CLIP" and "padding_side" in stated:
        return  # which moves every token away from its position in training
    model, prompts = write(kind, tmp_path), ["a kingfisher", "a cat with yarn"]
    facts = {"tokenizer_class": "TokenizersBackend", "pad_token": "<pad>", "model_max_length": LENGTH}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(facts | stated))
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    towers, images = load_towers(tmp_path), torch.randn(2, 3, SIDE, SIDE)
    prepared = tokenizer(prompts, padding="max_length", return_tensors="pt", return_token_type_ids=False)
    assert prepared.input_ids.equal(towers.model.text.tokenize(prompts))
    assert ("attention_mask" in prepared) == ("model_input_names" not in stated)
    with torch.no_grad():
        ours = towers.model(images, prompts)
        assert_close(ours, theirs(model, images, **prepared), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_a_photograph_gets_the_probabilities_of_the_librarys_own_pipeline(kind, tmp_path):
    model, prompts = (
        write(kind, tmp_path, max_position_embeddings=64),
        ["a kingfisher", "a cat with yarn", "a red lake"],
    )
    facts = {"tokenizer_class": "TokenizersBackend", "pad_token": "<pad>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(facts))
    side = {"height": SIDE, "width": SIDE}
    seen = transformers.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size=side)
    seen = seen if kind == "CLIP" else transformers.SiglipImageProcessorPil(size=side)
    seen.save_pretrained(tmp_path)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    task = "zero-shot-image-classification"
    name = transformers.pipeline(task, model=model, tokenizer=tokenizer, image_processor=seen)
    said = name(str(PHOTO), candidate_labels=prompts, hypothesis_template="{}")
    ours = classifier(str(tmp_path), names=prompts)(PHOTO)
    assert dict(ours) == pytest.approx({one["label"]: one["score"] for one in said}, abs=1e-6)


def test_clip_answers_at_the_first_end_sign_and_old_files_at_the_highest(tmp_path):
    tokens = torch.randint(3, WORDS - 2, (4, LENGTH))
    for end in (2, 5):
        model = write("CLIP", tmp_path)
        facts = json.loads((tmp_path / "config.json").read_text())
        facts["text_config"]["eos_token_id"] = model.text_model.eos_token_id = end
        (tmp_path / "config.json").write_text(json.dumps(facts))
        tokens[:, 4:8] = end
        if end == 5:
            with pytest.raises(ValueError, match="does not put the sign 5 behind a prompt"):
                load_towers(tmp_path)
            continue
        with torch.no_grad():
            ours = load_towers(tmp_path).model.text(tokens)
            assert_close(ours, model.text_model(tokens).pooler_output, rtol=0, atol=1e-6)


def in_openclips_names(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    state = fused(dict(state), ("q_proj.", "k_proj.", "v_proj."), "in_proj_")
    names = {r"^vision_model\.(embeddings\.)?": "visual.", "patch_embedding": "conv1", "self_attn": "attn"}
    names |= {r"^text_model\.(embeddings\.)?": prefix, r"token_embedding\.weight": "token_embedding.weight"}
    names |= {r"position_embedding\.weight": "positional_embedding", "pre_layrnorm": "ln_pre"}
    names |= {"post_layernorm": "ln_post", r"encoder\.layers": "transformer.resblocks", "layer_norm": "ln_"}
    state = renamed(state, names | {r"final_ln_": "ln_final", "fc1": "c_fc", "fc2": "c_proj"})
    state |= {"visual.proj": state.pop("visual_projection.weight").T.contiguous()}
    return state | {f"{prefix}text_projection": state.pop("text_projection.weight").T.contiguous()}


@pytest.mark.parametrize("prefix", ["", "text."])
def test_the_names_of_openclip(prefix, tmp_path):
    model = write("CLIP", tmp_path, hidden_act="quick_gelu")
    state = load_file(tmp_path / "model.safetensors")
    save_file(in_openclips_names(state, prefix), tmp_path / "model.safetensors")
    (tmp_path / "config.json").unlink()
    facts = {
        "vision_cfg": {"width": 36, "head_width": 12, "image_size": SIDE},
        "text_cfg": {"heads": 3},
        "quick_gelu": True,
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": facts}))
    towers, images = load_towers(tmp_path / "model.safetensors"), torch.randn(2, 3, SIDE, SIDE)
    with torch.no_grad():
        logits = theirs(model, images, towers.model.text.tokenize(PROMPTS))
        assert_close(towers.model(images, PROMPTS), logits, rtol=0, atol=1e-6)
    facts["text_cfg"] |= {"tokenizer_kwargs": {"clean": "canonicalize"}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": facts}))
    tokenize = load_towers(tmp_path).model.text.tokenize
    assert tokenize(["A  Cat!"]).equal(tokenize(["a cat"]))


def test_siglip_reads_in_lower_case_and_the_first_without_punctuation(tmp_path):
    for kind, same in (("Siglip", True), ("Siglip2", False)):
        write(kind, tmp_path / kind)
        text = load_towers(tmp_path / kind).model.text
        assert torch.equal(text.tokenize(["A  Cat!"]), text.tokenize(["a cat"])) == same
        assert torch.equal(text.tokenize(["A Cat"]), text.tokenize(["a cat"]))


@pytest.mark.parametrize("kind", ["CLIP", "Siglip2"])
def test_the_command_names_a_photograph_by_words(kind, tmp_path, capsys, hub):
    write(kind, tmp_path / "towers")
    hub.models["somebody/towers"] = tmp_path / "towers"
    said = []
    for weights in (str(tmp_path / "towers"), "hf:somebody/towers"):
        assert main(["predict", str(PHOTO), "--weights", weights, "--names", *PROMPTS]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and all(prompt in said[0] for prompt in PROMPTS)
    shares = [float(part.rpartition(" ")[2]) for part in said[0].strip().split("%")[:-1]]
    assert shares == sorted(shares, reverse=True)
    assert (abs(sum(shares) - 100) < 0.2) == (kind == "CLIP")


def test_what_is_wrong_is_one_line(tmp_path, capsys, monkeypatch):
    def said(*names: str) -> str:
        code = main(["predict", str(PHOTO), "--weights", str(tmp_path / "towers"), *names])
        error = capsys.readouterr().err.splitlines()
        assert code == 1 and len(error) == 1, error
        return error[0]

    write("CLIP", tmp_path / "towers")
    capsys.readouterr()
    long = "a red kingfisher by the lake with a moose and a cat " * 3
    assert "a prompt may have 12 tokens, signs included, got" in said("--names", "a moose", long)
    assert "is no classifier" in said() and "--names" in said()
    drawn = tmp_path / "attention.png"
    assert main(["explain", str(PHOTO), "--weights", str(tmp_path / "towers"), "--out", str(drawn)]) == 0
    assert capsys.readouterr().out == f"drawn in {drawn}\n", "nor does explain name a class"
    assert "a softmax always says 100 %" in said("--names", "a moose")
    state = load_file(tmp_path / "towers" / "model.safetensors")
    wrong = {"logit_scale": None, "text_model.final_layer_norm.bias": torch.zeros(24) / 0}
    wrong |= {"text_model.encoder.layers.0.mlp.fc1.bias": torch.zeros(3), "text_model.other": torch.zeros(1)}
    messages = ("missing logit_scale", "finite numbers", "size mismatch", "unexpected text_model.other")
    for (name, tensor), message in zip(wrong.items(), messages, strict=True):
        changed = {key: t for key, t in (state | {name: tensor}).items() if t is not None}
        save_file(changed, tmp_path / "towers" / "model.safetensors")
        assert message in said("--names", "a moose")
    save_file(state, tmp_path / "towers" / "model.safetensors")
    (tmp_path / "towers" / "tokenizer.json").write_text("{}")
    assert "is no tokenizer" in said("--names", "a moose")
    (tmp_path / "towers" / "tokenizer.json").unlink()
    assert "no tokenizer.json beside the weights" in said("--names", "a moose")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert 'pip install "vitbook[hub]"' in said("--names", "a moose")
    vision = {name: tensor for name, tensor in state.items() if not name.startswith("text")}
    save_file(vision, tmp_path / "towers" / "model.safetensors")
    assert "no text tower of CLIP or SigLIP" in said("--names", "a moose")
