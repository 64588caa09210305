"""Do attention maps find the pixels that a model needs? Delete and insert patches in their order, and look at it.

    python records/deletion.py vitbook/assets/runs/deletion.json --data-dir FOLDER
    python records/deletion.py vitbook/assets/runs/deletion_plain.json --weights vitbook:cifar10_plain \
        --data-dir FOLDER

Deletion replaces an image's patches by its data set's mean color, the highest of a map first, and follows the
probability of the class that the model named for the whole image: a good map brings it down quickly. Insertion begins
with the mean color alone and puts the same patches back: a good map brings it up quickly (Petsiuk et al. 2018, "RISE").
Three orders look at no image: by chance, from the center outwards, from the border inwards. A map that is no better
than those has found nothing. The file holds, for each order, both curves, the area under each as a share of the whole,
and how much larger it is than each of those three on the same images, with 95 % intervals over the images (bootstrap).
About five minutes on a core for each model.
"""

import torch
from harness import arguments_of, write
from jaxtyping import Float
from torch import Tensor

from vitbook.attention_maps import gradient_weighted_attention, patch_map, recorded_attention, rollout
from vitbook.data import Split, load_dataset
from vitbook.engine import batches
from vitbook.pretrained import load_pretrained
from vitbook.vit import VisionTransformer

Images = Float[Tensor, "B C H W"]
Maps = Float[Tensor, "B N"]  # one number a patch: those with the largest come first
MODES = ("deletion", "insertion")
BLIND = ("by chance", "center first", "border first")  # orders that look at no image


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

    return {
        "last block's attention": attended(weights[-1].mean(dim=1)),
        "rollout": attended(rollout(weights)),
        "weighted by gradients": attended(by_gradient),
        "center first": ties - from_center,
        "border first": ties + from_center,
        "by chance": noise[1],
    }


@torch.no_grad()
def curves(model: VisionTransformer, images: Images, maps: Maps, points: int) -> dict[str, Float[Tensor, "B points"]]:
    """The probability of the class named for the whole image, with 0, 1/points, … 1 of the patches deleted, inserted.

    Images are normalized, so that 0 is the mean color.
    """
    logits = model(images)
    named = logits.argmax(dim=1, keepdim=True)

    def sure(logits: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
        return logits.softmax(dim=1).gather(1, named)[:, 0]

    whole, empty = sure(logits), sure(model(torch.zeros_like(images)))
    rank = maps.argsort(dim=1, descending=True).argsort(dim=1).unflatten(1, model.embedding.grid)  # 0 is the first
    side = model.config.patch_size
    rank = rank.repeat_interleave(side, dim=1).repeat_interleave(side, dim=2).unsqueeze(1)  # (B, 1, H, W)
    found = {"deletion": [whole], "insertion": [empty]}
    for point in range(1, points):
        chosen = rank < maps.shape[1] * point / points
        for mode, kept in zip(MODES, (~chosen, chosen), strict=True):
            found[mode].append(sure(model(images * kept)))
    ends = dict(zip(MODES, (empty, whole), strict=True))
    return {mode: torch.stack([*column, ends[mode]], dim=1) for mode, column in found.items()}


def interval(values: Float[Tensor, " B"], generator: torch.Generator) -> list[float]:
    """Mean, and the 95 % interval of it over images drawn again and again."""
    drawn = torch.randint(len(values), (2000, len(values)), generator=generator)
    low, high = values[drawn].mean(dim=1).quantile(torch.tensor([0.025, 0.975], dtype=values.dtype)).tolist()
    return [values.mean().item(), low, high]


def record(model: VisionTransformer, split: Split, moments: tuple[Tensor, Tensor], points: int, seed: int) -> dict:
    """What came of each order, on all images of a split."""
    generator = torch.Generator().manual_seed(seed)
    found: dict[str, dict[str, list[Tensor]]] = {}
    for images, _ in batches(split, *moments, batch_size=100):
        for name, maps in orders(model, images, generator).items():
            for mode, curve in curves(model, images, maps, points).items():
                found.setdefault(name, {}).setdefault(mode, []).append(curve.double())
        print(".", end="", flush=True)
    print()
    whole = {name: {mode: torch.cat(parts) for mode, parts in modes.items()} for name, modes in found.items()}
    areas = {name: {mode: _area(curve) for mode, curve in modes.items()} for name, modes in whole.items()}
    return {
        name: {
            mode: {
                "curve": curve.mean(dim=0).tolist(),
                "area": interval(areas[name][mode], generator),
                "more_than": {blind: interval(areas[name][mode] - areas[blind][mode], generator) for blind in BLIND},
            }
            for mode, curve in modes.items()
        }
        for name, modes in whole.items()
    }


def _area(curve: Float[Tensor, "B points"]) -> Float[Tensor, " B"]:
    """Under each curve, by trapezoids, where the whole is 1."""
    return torch.trapezoid(curve, dim=1) / (curve.shape[1] - 1)


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__, weights=True)
    parser.add_argument("--images", type=int, default=1000, help="how many of the test images")
    parser.add_argument("--points", type=int, default=8, help="steps in which patches are deleted and inserted")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    weights, test = load_pretrained(given.weights), load_dataset("cifar10", given.data_dir).test
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(given.seed))[: given.images]
    split = Split(test.images[chosen], test.labels[chosen])
    settings = {"weights": given.weights, "images": len(split), "points": given.points, "seed": given.seed}
    came_to = record(weights.model, split, weights.preprocessing.moments, given.points, given.seed)
    write(given.file, settings | {"torch": torch.__version__, "orders": came_to})
    for name, modes in came_to.items():
        said = [f"{mode} {{:.3f}} ({{:.3f}} to {{:.3f}})".format(*modes[mode]["area"]) for mode in MODES]
        print(f"{name:<24}" + ", ".join(said))


if __name__ == "__main__":
    main()
