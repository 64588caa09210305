"""What is measured: rows of model, batch, kind of work and precision."""

from dataclasses import dataclass, replace

from vitbook.vit import CONFIGS, ViTConfig

KINDS = ("forward", "step")
# a name for the table: the package's name, images in a batch on a CPU and on a GPU
SIZES = {
    "cifar": ("vit_cifar", 32, 1024),
    "Ti/16": ("vit_ti_16", 8, 256),
    "S/16": ("vit_s_16", 4, 256),
    "B/16": ("vit_b_16", 2, 128),
}
# A narrow, shallow model, of which attention soon is the larger part
GROWING = replace(CONFIGS["vit_cifar"], depth=2)


@dataclass(frozen=True)
class Row:
    """One line of the table. quick: whether `--quick` measures it too."""

    name: str
    config: ViTConfig
    batch: int
    kind: str
    precision: str
    quick: bool = False


def rows(gpu: bool) -> list[Row]:
    """Every row, in the order of the table."""
    found = []
    both = [(kind, precision) for precision in ("float32", "bfloat16") for kind in KINDS]
    telling = [("forward", "float32"), ("step", "float32"), ("step", "bfloat16")]
    for name, (size, on_cpu, on_gpu) in SIZES.items():
        for kind, precision in both:
            quick = name in ("cifar", "Ti/16") or (name, kind, precision) == ("B/16", "step", "bfloat16")
            found.append(
                Row(f"{name} {kind} {precision}", CONFIGS[size], on_gpu if gpu else on_cpu, kind, precision, quick)
            )
    for tokens in (64, 256, 1024, 4096):
        config = replace(GROWING, image_size=GROWING.patch_size * int(tokens**0.5))
        batch = max(1, (65536 if gpu else 2048) // tokens)
        for kind, precision in telling:
            quick = tokens in (64, 1024) and kind == "step"
            found.append(Row(f"{tokens} patches {kind} {precision}", config, batch, kind, precision, quick))
    for batch in (1, 8, 64, 256):
        for kind, precision in telling:
            quick = batch == 1
            found.append(Row(f"batch {batch} {kind} {precision}", CONFIGS["vit_cifar"], batch, kind, precision, quick))
    for depth in (1, 3, 9, 18):
        config = replace(CONFIGS["vit_cifar"], depth=depth)
        for kind, precision in telling:
            found.append(Row(f"depth {depth} {kind} {precision}", config, 1024 if gpu else 16, kind, precision))
    return found


def chosen(gpu: bool, quick: bool, words: list[str]) -> list[Row]:
    """The rows to measure. words: parts of names; a row is taken if one of them is in its name. Raises ValueError."""
    everything = rows(gpu)
    found = [
        row for row in everything if (row.quick or not quick) and (not words or any(word in row.name for word in words))
    ]
    if not found:
        raise ValueError(f"no row has {' or '.join(words)} in its name; there are {[row.name for row in everything]}")
    return found
