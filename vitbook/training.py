"""Training, bare: which weights decay, how fast to learn when, one epoch, and how good it got. For any nn.Module."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook._support.validation import check_kind, check_numbers, check_sizes

Batches = Iterable[tuple[Tensor, Tensor]]  # pictures (B, C, H, W) and labels (B,)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Two groups for an optimiser: matrices, which decay, and all else, which does not.

    The weights of torch's linear maps, convolutions and attention decay; biases, the gains of norms, the class token
    and embeddings do not: pulling those towards zero only shifts what they offset, scale or mark.
    """
    check_kind(nn.Module, model=model)
    check_numbers(weight_decay=weight_decay)
    kinds = (nn.Linear, nn.MultiheadAttention, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    kinds += (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    named = [pair for layer in layers for pair in layer.named_parameters(recurse=False)]
    decaying = {id(p) for name, p in named if name.endswith("weight")}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in parameters if id(p) in decaying], "weight_decay": weight_decay},
        {"params": [p for p in parameters if id(p) not in decaying], "weight_decay": 0.0},
    ]


def warmup_cosine(step: int, total_steps: int, warmup_steps: int = 0) -> float:
    """The learning rate at `step` (0, 1, …) as a share of its peak: a straight line up, then half a cosine down to 0.

    Dosovitskiy et al. 2021, appendix B; Loshchilov and Hutter 2017. Step 0 already moves: it has 1/warmup_steps of the
    peak. Raises ValueError unless 0 ≤ warmup_steps < total_steps.
    """
    check_sizes(0, step=step)
    check_sizes(None, total_steps=total_steps, warmup_steps=warmup_steps)
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(f"warmup_steps must lie in 0 … total_steps − 1 = {total_steps - 1}, got {warmup_steps}")
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / (total_steps - warmup_steps))
    return 0.5 * (1 + math.cos(math.pi * progress))


def train_epoch(
    model: nn.Module,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
    clip_norm: float = 1.0,
    label_smoothing: float = 0.0,
    augment: Callable[[Tensor], Tensor] | None = None,
) -> float:
    """Show every batch to the model once, one optimiser step each. Returns the mean loss in nats per picture.

    schedule: stepped after every batch; clip_norm: gradients longer than this are shortened to it, 0 leaves them as
    they are; label_smoothing: share of the target spread evenly over all classes (Szegedy et al. 2016); augment:
    changes the pictures of each batch, (B, C, H, W) → (B, C, H, W). Raises ValueError for a negative clip_norm.
    """
    check_numbers(clip_norm=clip_norm)
    if not clip_norm >= 0:
        raise ValueError(f"clip_norm must be at least 0, got {clip_norm}")
    model.train()
    total, count = 0.0, 0
    for images, labels in on_device_of(model, batches):
        if augment is not None:
            images = augment(images)
        loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm or math.inf)
        optimizer.step()
        if schedule is not None:
            schedule.step()
        total, count = total + loss.detach() * len(labels), count + len(labels)
    if not count:
        raise ValueError("an epoch needs at least one batch, got none")
    return float(total) / count


@dataclass(frozen=True)
class Evaluation:
    """What a model says of some pictures, on the CPU."""

    scores: Tensor  # (N, K), before the softmax
    labels: Tensor  # (N,)

    @property
    def predictions(self) -> Tensor:
        """The class with the highest score, for each picture. (N,)"""
        return self.scores.argmax(dim=-1)

    @property
    def loss(self) -> float:
        """Mean cross-entropy, in nats per picture."""
        return F.cross_entropy(self.scores, self.labels).item()

    @property
    def accuracy(self) -> float:
        """Share of pictures whose prediction is their label, 0 to 1."""
        return (self.predictions == self.labels).double().mean().item()

    @property
    def confusion(self) -> Tensor:
        """How many pictures of class i were taken for class j: row i, column j. int64 (K, K)."""
        num_classes = self.scores.shape[-1]
        pairs = self.labels * num_classes + self.predictions
        return pairs.bincount(minlength=num_classes**2).view(num_classes, num_classes)


@torch.no_grad()
def evaluate(model: nn.Module, batches: Batches) -> Evaluation:
    """The model's scores for every picture, without dropout. The model is left in the mode it was in."""
    check_kind(nn.Module, model=model)
    with keeping_modes(model):
        model.eval()
        pairs = [(model(images).cpu(), labels.cpu()) for images, labels in on_device_of(model, batches)]
    if not pairs:
        raise ValueError("an evaluation needs at least one batch, got none")
    scores, labels = (torch.cat(column) for column in zip(*pairs, strict=True))
    return Evaluation(scores.to(torch.promote_types(scores.dtype, torch.float32)), labels)


@contextmanager
def keeping_modes(model: nn.Module) -> Iterator[None]:
    """After the block, each part of the model is as it was before: in training or in evaluation."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def on_device_of(model: nn.Module, batches: Batches) -> Batches:
    """The same batches, on the device where the model's parameters are."""
    device = getattr(next(model.parameters(), None), "device", None)  # without parameters, where they are
    for images, labels in batches:
        yield images.to(device=device, non_blocking=True), labels.to(device=device, non_blocking=True)


def __getattr__(name: str):
    """`fit` and `TrainConfig` are those of vitbook.engine, which takes a second to import, and so waits to be asked."""
    if name in ("fit", "TrainConfig"):
        from vitbook import engine

        return getattr(engine, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
