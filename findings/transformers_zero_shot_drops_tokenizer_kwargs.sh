#!/bin/sh
# transformers 5.23.0: the zero-shot-image-classification pipeline takes tokenizer_kwargs, and its preprocess has an
# argument of this name, but what is given arrives nowhere: no error, no warning, the same tokens.
# Guessed: padding="max_length", max_length=16 pads every label to 16 tokens, as the tokenizer itself does when asked.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet torch==2.13.0
env/bin/pip install --quiet transformers==5.23.0 pillow==13.0.0
cat > try.py <<'P'
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast, pipeline
from transformers.models.clip import CLIPImageProcessor

print("transformers", transformers.__version__, "torch", torch.__version__)
words = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "a", "photo", "of", "This", "is", "bird", "moose"])}
plain = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]")
small = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
config = CLIPConfig(
    text_config=small | dict(vocab_size=len(words), max_position_embeddings=32, eos_token_id=8),
    vision_config=small | dict(image_size=32, patch_size=16),
    projection_dim=32,
)
model = CLIPModel(config).eval()
processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
ask = pipeline("zero-shot-image-classification", model=model, tokenizer=tokenizer, image_processor=processor)

lengths = {}
wanted = dict(padding="max_length", max_length=16)
model.text_model.register_forward_pre_hook(
    lambda module, arguments, named: lengths.__setitem__(way, named["input_ids"].shape[1]), with_kwargs=True
)
for way, more in (("without", {}), ("with tokenizer_kwargs", {"tokenizer_kwargs": wanted})):
    ask(Image.new("RGB", (32, 32)), candidate_labels=["bird", "moose"], **more)
lengths["the tokenizer itself"] = tokenizer(["This is a photo of bird"], **wanted, return_tensors="pt").input_ids.shape[1]
print(lengths)
assert lengths["without"] == lengths["with tokenizer_kwargs"] < 16 == lengths["the tokenizer itself"], lengths
P
env/bin/python -W ignore try.py
