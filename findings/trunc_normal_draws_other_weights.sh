#!/bin/sh
# torch 2.13.0: from one seed, torch.nn.init.trunc_normal_, which starts the weights of transformers' and torchvision's
# Vision Transformers, draws other numbers than torch 2.11.0 did; normal_, uniform_ and xavier_uniform_ draw the same.
# The distribution is the same one: values outside the bounds are drawn again now, where a uniform draw was put through
# the inverse of the cumulative distribution before. So with standard deviation 1, whatever is drawn after it is another
# number, too: how many are used up depends on the values. Guessed: between two releases half a year apart, on one CPU,
# manual_seed(0) builds one model; where it did not, we looked for the fault in the GPU that happened to be there.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > try.py <<'P'
import torch
from torch.nn import init


def drawn(fill):
    """The first weights of a map of 64 × 64 after a seed, and what is drawn next, to four decimals."""
    torch.manual_seed(0)
    weights = fill(torch.empty(64, 64))
    return [round(x, 4) for x in [*weights[0, :3].tolist(), torch.rand(1).item()]]


print("torch", torch.__version__.split("+")[0])
for name, fill in {
    "uniform_": lambda weights: weights.uniform_(),
    "normal_": lambda weights: weights.normal_(),
    "xavier_uniform_": init.xavier_uniform_,
    "trunc_normal_, std 0.02": lambda weights: init.trunc_normal_(weights, std=0.02),
    "trunc_normal_, std 1": init.trunc_normal_,
}.items():
    print(f"{name:<24}", *drawn(fill))
P
for version in 2.11.0 2.13.0; do
    python3 -m venv "$version"
    "$version/bin/pip" install --quiet "torch==$version" numpy==2.4.6
    "$version/bin/python" try.py | tee "$version.txt"
    rm -rf "$version"
done
same() { [ "$(grep "^$1" 2.11.0.txt)" = "$(grep "^$1" 2.13.0.txt)" ]; }
for name in "uniform_" "normal_" "xavier_uniform_"; do same "$name"; done
if same "trunc_normal_, std 0.02" || same "trunc_normal_, std 1"; then exit 1; fi
last() { grep "^$2" "$1.txt" | awk '{ print $NF }'; }
[ "$(last 2.11.0 "trunc_normal_, std 1")" = "$(last 2.11.0 uniform_)" ]
[ "$(last 2.13.0 "trunc_normal_, std 1")" != "$(last 2.13.0 uniform_)" ]
