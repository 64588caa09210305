#!/bin/sh
# vit-pytorch 1.26.11: SimpleViT of simple_vit_with_qk_norm takes num_classes and gives no logits: its output has the
# width of a token, (B, dim). Guessed: (B, num_classes), as SimpleViT of simple_vit gives.
# With as many classes as dim or fewer, cross-entropy accepts it, and training goes on with classes that do not exist.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet torch==2.13.0
env/bin/pip install --quiet einops==0.8.2
env/bin/pip install --quiet --no-deps vit-pytorch==1.26.11
cat > try.py <<'P'
import sys
import types
from importlib.metadata import version

import torch

for name in ("torchvision", "torchvision.transforms"):  # imported by other models of the package alone
    sys.modules[name] = types.ModuleType(name)
sys.modules["torchvision"].transforms = sys.modules["torchvision.transforms"]
from vit_pytorch import simple_vit, simple_vit_with_qk_norm

print("vit-pytorch", version("vit-pytorch"), "torch", torch.__version__)
sizes = dict(image_size=32, patch_size=8, num_classes=10, dim=64, depth=2, heads=2, mlp_dim=128)
shapes = {}
for module in (simple_vit, simple_vit_with_qk_norm):
    logits = module.SimpleViT(**sizes)(torch.randn(3, 3, 32, 32))
    shapes[module.__name__.rpartition(".")[2]] = tuple(logits.shape)
print(shapes)
assert shapes == {"simple_vit": (3, 10), "simple_vit_with_qk_norm": (3, 64)}, shapes
P
env/bin/python -W ignore try.py
