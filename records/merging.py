"""Have fewer tokens in the book's two models for CIFAR-10: what accuracy is left on all test images, and what time?

    python records/merging.py vitbook/assets/runs/merging.json --data-dir FOLDER

Similar patches merge (`merge_tokens`), r in each block. Four controls have as few tokens at the end: pairs drawn at
random merge; r patches drawn at random are left out after each attention; all of them are left out at once, before the
first block or after its attention. How many answers are right, and how many are lost and won beside the model as it is.
Then CPU milliseconds for 1 image and for 50, in rounds in which the ways come in another order each time, as medians.
Nothing is trained. Some fifteen minutes on a core.
"""

import random
import statistics
import time
from collections.abc import Callable
from functools import cache, partial

import torch
from harness import Rows, arguments_of
from torch import Tensor

from vitbook.data import Split, load_dataset
from vitbook.embedding import take_tokens
from vitbook.engine import batches
from vitbook.pretrained import load_pretrained
from vitbook.tokens import drop_tokens, encode_merging, merge_tokens, merging_logits
from vitbook.vit import VisionTransformer

Answer = Callable[[Tensor], Tensor]
TRIED = {"hybrid": ("vitbook:cifar10", (12, 16)), "plain": ("vitbook:cifar10_plain", (8,))}  # r
AS_IT_IS = "as it is"
TIMED = ("similar pairs", "random pairs", "random drop")  # that have fewer tokens block by block


def of_random_keys(z: Tensor, keys: Tensor, *more: object) -> tuple[Tensor, Tensor]:
    """Merge pairs that nothing chose."""
    return merge_tokens(z, torch.randn_like(keys), *more)


def few(z: Tensor, left: int) -> Tensor:
    """The class token and `left` − 1 patches, drawn at random for each image."""
    kept = 1 + torch.rand(len(z), z.shape[1] - 1).topk(left - 1, dim=1).indices
    return take_tokens(z, torch.cat([torch.zeros(len(z), 1, dtype=torch.long), kept], dim=1))


def with_few_patches(model: VisionTransformer, images: Tensor, left: int, attentions: int = 0) -> Tensor:
    """The logits where all patches but few are left out at once: before the first block, or after its attention."""
    z = model.embedding(images)
    if not attentions:
        return model.logits(model.norm(model.encoder(few(z, left))))
    first, *later = model.encoder.blocks
    z = few(first.attn(first.norm1(z)) + z, left)
    z = first.mlp(first.norm2(z)) + z
    for block in later:
        z = block(z)
    return model.logits(model.norm(z))


def tokens_left(model: VisionTransformer, r: int) -> int:
    return encode_merging(model.encoder, model.embedding(torch.zeros(1, 3, 32, 32)), r)[0].shape[1]


WAYS = {  # from a model, images and r to logits
    "similar pairs": lambda model, images, r: merging_logits(model, images, r),
    "random pairs": lambda model, images, r: merging_logits(model, images, r, of_random_keys),
    "random drop": lambda model, images, r: merging_logits(model, images, r, drop_tokens),
    "random drop at once": lambda model, images, r: with_few_patches(model, images, tokens_left(model, r)),
    "random drop after one attention": lambda model, images, r: with_few_patches(
        model, images, tokens_left(model, r), 1
    ),
}


@torch.no_grad()
def classes(answer: Answer, split: Split, moments: tuple[Tensor, Tensor]) -> Tensor:
    return torch.cat([answer(images).argmax(dim=1) for images, _ in batches(split, *moments, 250)])


@torch.no_grad()
def medians(answers: dict[str, Answer], images: Tensor, rounds: int, seed: int) -> dict[str, float]:
    """CPU milliseconds of each, one after the other in every round, in an order drawn at random."""
    drawn, spent = random.Random(seed), {name: [] for name in answers}
    for answer in answers.values():
        answer(images)
    for _ in range(rounds):
        for name in drawn.sample(list(answers), len(answers)):
            began = time.process_time()
            answers[name](images)
            spent[name].append(1000 * (time.process_time() - began))
    return {name: statistics.median(times) for name, times in spent.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--models", nargs="+", default=list(TRIED), help="which to try")
    parser.add_argument("--images", type=int, default=10_000, help="how many of the test images")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=200, help="in which 1 image is timed; a tenth of them for 50")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    test = load_dataset("cifar10", given.data_dir, validation=0.0).test
    split = Split(test.images[: given.images], test.labels[: given.images])

    @cache
    def deterministic(name: str, r: int) -> Tensor:
        """What the model says as it is (r = 0) or merging similar pairs: the same for every seed."""
        loaded = load_pretrained(TRIED[name][0])
        return classes(partial(merging_logits, loaded.model, r=r), split, loaded.preprocessing.moments)

    def judge(arm: str, model: str, r: int, seed: int, **_: object) -> dict:
        loaded = load_pretrained(TRIED[model][0])
        torch.manual_seed(seed)
        if arm in (AS_IT_IS, "similar pairs"):
            said = deterministic(model, r)
        else:
            answer = partial(WAYS[arm], loaded.model, r=r)
            said = classes(answer, split, loaded.preprocessing.moments)
        before, right = deterministic(model, 0) == split.labels, said == split.labels
        counts = {"right": right, "lost": before & ~right, "won": right & ~before}
        return {"n": len(split), "tokens_left": tokens_left(loaded.model, r)} | {
            name: int(those.sum()) for name, those in counts.items()
        }

    def take_time(model: str, images: int) -> dict:
        loaded = load_pretrained(TRIED[model][0]).model
        answers: dict[str, Answer] = {AS_IT_IS: loaded}
        for r in TRIED[model][1]:
            answers |= {f"{name}, r = {r}": partial(WAYS[name], loaded, r=r) for name in TIMED}
        some = torch.randn(images, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        rounds = given.rounds if images == 1 else given.rounds // 10
        return {"rounds": rounds, "milliseconds": medians(answers, some, rounds, seed=0)}

    tried = [
        {"arm": arm, "model": model, "r": r, "rate": None, "seed": seed}
        for model in given.models
        for r in (0, *TRIED[model][1])
        for seed in given.seeds
        for arm in (WAYS if r else [AS_IT_IS])
    ]
    Rows(given.file, "rows").fill(judge, tried)
    Rows(given.file, "times").fill(
        take_time, [dict(model=name, images=count) for name in given.models for count in (1, 50)]
    )


if __name__ == "__main__":
    main()
