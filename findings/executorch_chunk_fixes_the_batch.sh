#!/bin/sh
# ExecuTorch 1.5.1 with torch 2.13.0: a program exported for 1 to 64 images is lowered to one for the example's 3 alone
# where queries, keys and values are cut by chunk (or split) before torch's fused attention. Cut by unflatten and unbind,
# the same numbers keep their open batch. Guessed: how a tensor is cut makes no difference to what may vary.
# Nothing is said while it is lowered; the program then refuses any other number of images.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet torch==2.13.0
env/bin/pip install --quiet executorch==1.5.1
cat > try.py <<'P'
from importlib.metadata import version

import torch
import torch.nn.functional as F
from executorch.exir import to_edge
from torch import nn


class Attention(nn.Module):
    def __init__(self, cut):
        super().__init__()
        self.qkv, self.cut = nn.Linear(64, 192), cut

    def forward(self, x):
        if self.cut == "chunk":
            parts = [part.unflatten(-1, (2, 32)) for part in self.qkv(x).chunk(3, -1)]
        else:
            parts = self.qkv(x).unflatten(-1, (3, 2, 32)).unbind(2)
        return F.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts))


print("torch", torch.__version__, "executorch", version("executorch"))
kept = {}
for cut in ("chunk", "unbind"):
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(Attention(cut).eval(), (torch.zeros(3, 17, 64),), dynamic_shapes=({0: batch},))
    lowered = to_edge(program).exported_program()
    first = next(node for node in lowered.graph.nodes if node.op == "placeholder" and node.name == "x")
    kept[cut] = not isinstance(first.meta["val"].shape[0], int) and str(first.meta["val"].shape[0]) != "3"
    print(f"cut by {cut}: exported {program.range_constraints}, lowered {lowered.range_constraints}")
    print("  the batch is", "open" if kept[cut] else "fixed")
assert kept == {"chunk": False, "unbind": True}, kept
P
env/bin/python -W ignore try.py
