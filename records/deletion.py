"""Do attention maps find the pixels that a model needs? Delete and insert patches in their order, and look at it.

    python records/deletion.py vitbook/assets/runs/deletion.json --data-dir FOLDER

Deletion replaces an image's patches, the highest of a map first, and follows the probability of the class that the
model named for the whole image: a good map brings it down quickly. Insertion begins with every patch replaced and puts
the same patches back: a good map brings it up quickly (Petsiuk et al. 2018, "RISE"). Patches are replaced by the data
set's mean color, or by a copy of the image that is blurred beyond a patch's size.

Two orders look at no image: by chance, and from the center outwards. A map that is no better than those has found
nothing. And every kind of map is tried with another image's map: one that is no better than that
knows nothing of its own image. A row for each model, order and replacement holds both curves, the area under each as a
share of the whole, and how much larger it is than those of the orders that know less, on the same images, with 95 %
intervals over the images (bootstrap). Some five minutes on a core.
"""

import torch
import torch.nn.functional as F
from harness import Rows, arguments_of, processor, versions
from jaxtyping import Float
from torch import Tensor

from vitbook.attention_maps import gradient_weighted_attention, patch_map, recorded_attention, rollout
from vitbook.data import Split, load_dataset
from vitbook.engine import batches
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

WEIGHTS = {"plain": "vitbook:cifar10_plain", "hybrid": "vitbook:cifar10"}
Images = Float[Tensor, "B C H W"]
Maps = Float[Tensor, "B N"]  # one number a patch: those with the largest come first
MODES = ("deletion", "insertion")
BLIND = ("by chance", "center first")  # orders that look at no image
FOREIGN = ", another image's"
FILLS = {
    "mean color": torch.zeros_like,  # of normalized images
    "blur": lambda images: _blurred(_blurred(_blurred(images))),
}


def _blurred(images: Images) -> Images:
    """The mean of 9×9 pixels; three times this is close to a Gaussian with a standard deviation of 4.5 pixels."""
    return F.avg_pool2d(images, 9, stride=1, padding=4, count_include_pad=False)


def orders(model: VisionTransformer, images: Images, generator: torch.Generator) -> dict[str, Maps]:
    """Each way to rank the patches of these images."""
    with recorded_attention(model) as weights:
        best = model(images).amax(dim=1)
    by_gradient = gradient_weighted_attention(weights, best)
    weights = torch.stack(weights).detach()
    grid, prefix = model.embedding.grid, len(model.embedding.prefix_tokens)
    rows, columns = (torch.arange(side) - (side - 1) / 2 for side in grid)
    from_center = (rows[:, None].square() + columns.square()).flatten().expand(len(images), -1)
    noise = torch.rand(2, *from_center.shape, generator=generator)
    ties = 1e-3 * noise[0]  # patches as far from the center come in an order by chance

    def attended(attention: Float[Tensor, "B T T"]) -> Maps:
        """The class token's attention to each patch; without one, that of all patches on average."""
        if model.config.pool == "class":
            return patch_map(attention, grid, 0, prefix).flatten(1)
        return attention[:, prefix:, prefix:].mean(dim=1)

    maps = {
        "last block's attention": attended(weights[-1].mean(dim=1)),
        "rollout": attended(rollout(weights)),
        "weighted by gradients": attended(by_gradient),
    }
    foreign = {name + FOREIGN: values.roll(1, dims=0) for name, values in maps.items()}
    return maps | foreign | {"center first": ties - from_center, "by chance": noise[1]}


@torch.no_grad()
def curves(
    model: VisionTransformer, images: Images, ranked: dict[str, Maps], points: int, fill: Images
) -> dict[str, dict[str, Float[Tensor, "B points"]]]:
    """The probability of the class named for the whole image, with 0, 1/points, … 1 of the patches deleted, inserted.

    ranked: maps by name; fill: what stands in the place of a deleted patch.
    """
    logits = model(images)
    named = logits.argmax(dim=1, keepdim=True)

    def sure(logits: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
        return logits.softmax(dim=1).gather(1, named)[:, 0]

    whole, empty = sure(logits), sure(model(fill))
    ends = dict(zip(MODES, ((whole, empty), (empty, whole)), strict=True))
    found = {}
    for name, maps in ranked.items():
        rank = maps.argsort(dim=1, descending=True).argsort(dim=1).unflatten(1, model.embedding.grid)  # 0 is the first
        side = model.config.patch_size
        rank = rank.repeat_interleave(side, dim=1).repeat_interleave(side, dim=2).unsqueeze(1)  # (B, 1, H, W)
        columns = {mode: [ends[mode][0]] for mode in MODES}
        for point in range(1, points):
            chosen = rank < maps.shape[1] * point / points
            for mode, kept in zip(MODES, (~chosen, chosen), strict=True):
                columns[mode].append(sure(model(torch.where(kept, images, fill))))
        found[name] = {mode: torch.stack([*column, ends[mode][1]], dim=1) for mode, column in columns.items()}
    return found


def interval(values: Float[Tensor, " B"], generator: torch.Generator) -> list[float]:
    """Mean, and the 95 % interval of it over images drawn again and again."""
    drawn = torch.randint(len(values), (2000, len(values)), generator=generator)
    low, high = values[drawn].mean(dim=1).quantile(torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    return [values.mean().item(), low, high]


def measured(
    model: VisionTransformer, split: Split, moments: tuple[Tensor, Tensor], points: int, seed: int, fill: str
) -> dict[str, dict[str, Float[Tensor, "N points"]]]:
    """The curves of each order and mode, on all images of a split."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, dict[str, list[Tensor]]] = {}
    for images, _ in batches(split, *moments, batch_size=100):
        ranked = orders(model, images, generator)
        for name, modes in curves(model, images, ranked, points, FILLS[fill](images)).items():
            for mode, curve in modes.items():
                found.setdefault(name, {}).setdefault(mode, []).append(curve.double())
    return {name: {mode: torch.cat(parts) for mode, parts in modes.items()} for name, modes in found.items()}


def record(whole: dict[str, dict[str, Float[Tensor, "N points"]]], seed: int) -> dict[str, dict[str, dict]]:
    """What came of each order: its mean curve, the area under it, and how much more that is than others'."""
    generator = torch.Generator().manual_seed(seed)
    areas = {name: {mode: area(curve) for mode, curve in modes.items()} for name, modes in whole.items()}
    return {
        name: {
            mode: {
                "curve": curve.mean(dim=0).tolist(),
                "area": interval(areas[name][mode], generator),
                "more_than": {
                    other: interval(areas[name][mode] - areas[other][mode], generator)
                    for other in (*BLIND, name + FOREIGN)
                    if other in areas
                },
            }
            for mode, curve in modes.items()
        }
        for name, modes in whole.items()
    }


def area(curve: Float[Tensor, "B points"]) -> Float[Tensor, " B"]:
    """Under each curve, by trapezoids, where the whole is 1."""
    return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--models", nargs="+", default=list(WEIGHTS), help="which to look into")
    parser.add_argument("--images", type=int, default=600, help="how many of the test images")
    parser.add_argument("--points", type=int, default=4, help="steps in which patches are deleted and inserted")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    test, rows = load_dataset("cifar10", given.data_dir).test, Rows(given.file, "rows", points=given.points)
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(given.seed))[: given.images]
    split = Split(test.images[chosen], test.labels[chosen])
    for name in given.models:
        for fill in FILLS:
            key = {"model": name, "fill": fill, "rate": None, "seed": given.seed, "n": len(split)}
            if rows.find(**key):
                continue
            loaded = load_pretrained(WEIGHTS[name])
            found = measured(loaded.model, split, loaded.preprocessing.moments, given.points, given.seed, fill)
            for order, modes in record(found, given.seed).items():
                rows.add({"arm": order, **key, **modes, "processor": processor(), **versions()})


if __name__ == "__main__":
    main()
