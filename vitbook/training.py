"""Training, bare: which weights decay, how fast to learn when, one epoch, and how good the model got."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from vitbook.confidence import fitted_temperature
from vitbook.targets import IGNORED, target_loss, target_score

Batches = Iterable[tuple[Tensor, Tensor]]  # images (B, C, H, W) and labels (B,)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Two groups for an optimizer: matrices, which decay, and all else, which does not.

    The weights of torch's linear maps, convolutions and attention decay; biases, the gains of norms, the class token
    and embeddings do not, as in the authors' later code.
    """
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
    """Show every batch to the model once, one optimizer step each. Returns the mean loss in nats per image.

    schedule: stepped after every batch; clip_norm: gradients longer than this are shortened to it, 0 leaves them as
    they are; label_smoothing: share of the target spread evenly over all classes (Szegedy et al. 2016); augment:
    changes the images of each batch, (B, C, H, W) → (B, C, H, W). Raises ValueError where there are no batches.
    """
    if not clip_norm >= 0:
        raise ValueError(f"clip_norm must be at least 0, got {clip_norm}")  # below 0 it would turn gradients around
    model.train()
    total, count = 0.0, 0
    for images, labels in _on_device_of(model, batches):
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
        raise ValueError("batches must hold at least one batch, got none")  # as of a generator in its second epoch
    return float(total) / count


@dataclass(frozen=True)
class Evaluation:
    """What a model says of some images, on the CPU."""

    logits: Float[Tensor, "N K"]
    labels: Int[Tensor, " N"] | Float[Tensor, "N K"]
    task: str = "classes"  # one of `vitbook.targets.TASKS`

    @property
    def predictions(self) -> Int[Tensor, " N"]:
        """The class with the highest logit, for each image."""
        return self.logits.argmax(dim=-1)

    @property
    def loss(self) -> float:
        """Mean cross-entropy, in nats per image; of labels and numbers, `target_loss`."""
        if self.task != "classes":
            return target_loss(self.logits, self.labels, self.task).item()
        return F.cross_entropy(self.logits, self.labels).item()

    @property
    def accuracy(self) -> float:
        """Share of images whose prediction is their label, 0 to 1; of labels and numbers, `target_score`."""
        if self.task != "classes":
            return target_score(self.logits, self.labels, self.task).item()
        return (self.predictions == self.labels).double().mean().item()

    @property
    def calibration_error(self) -> float:
        """By how much the highest probability and the share of right answers differ, 0 to 1, in 15 bins of the former.

        Σ |B|/N · |accuracy(B) − mean probability(B)| over the bins B; Guo et al. 2017, Eq. 3 ("ECE").
        """
        probability, predicted = self.logits.double().softmax(dim=-1).max(dim=-1)
        gaps = (predicted == self.labels).double() - probability
        bins = (15 * probability).ceil().long().clamp(1, 15) - 1
        return gaps.new_zeros(15).index_add(0, bins, gaps).abs().sum().item() / len(gaps)

    @property
    def temperature(self) -> float:
        """By what to divide logits, so that probabilities mean what they say here; see `fitted_temperature`."""
        return fitted_temperature(self.logits, self.labels)

    @property
    def confusion(self) -> Int[Tensor, "K K"]:
        """How many images of class i were taken for class j: row i, column j."""
        num_classes = self.logits.shape[-1]
        pairs = self.labels * num_classes + self.predictions
        return pairs.bincount(minlength=num_classes**2).view(num_classes, num_classes)


@dataclass(frozen=True)
class PixelEvaluation:
    """What a model says of some images' pixels, counted."""

    confusion: Int[Tensor, "K K"]  # how many pixels of class i were taken for class j, those that are ignored apart
    loss: float  # mean cross-entropy, in nats per pixel
    right: Float[Tensor, " N"]  # share of each image's pixels whose prediction is their class
    task: str = "masks"

    @property
    def accuracy(self) -> float:
        """Share of pixels whose prediction is their class."""
        return self.confusion.diagonal().sum().item() / max(self.confusion.sum().item(), 1)


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The ends of the 95 % interval, from 0 to 1, of a share of which right of count were seen (Wilson 1927)."""
    z = 1.96
    middle = (right + z**2 / 2) / (count + z**2)
    reach = z * math.sqrt(right * (count - right) / count + z**2 / 4) / (count + z**2)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


@torch.no_grad()
def evaluate(model: nn.Module, batches: Batches, task: str = "classes") -> Evaluation:
    """The model's logits for every image, without dropout. The model is left in the mode it was in.

    Raises ValueError where there are no batches.
    """
    with keeping_modes(model):
        model.eval()
        pairs = [(model(images).cpu(), labels.cpu()) for images, labels in _on_device_of(model, batches)]
    if not pairs:
        raise ValueError("batches must hold at least one batch, got none")
    logits, labels = (torch.cat(column) for column in zip(*pairs, strict=True))
    return Evaluation(logits.to(torch.promote_types(logits.dtype, torch.float32)), labels, task)


@torch.no_grad()
def evaluate_pixels(model: nn.Module, batches: Batches, num_classes: int) -> PixelEvaluation:
    """As `evaluate`, of images (B, C, H, W) and masks (B, H, W), whose logits would fill the memory."""
    confusion, loss, right = torch.zeros(num_classes**2, dtype=torch.int64), 0.0, []
    with keeping_modes(model):
        model.eval()
        for images, masks in _on_device_of(model, batches):
            logits, asked = model(images).float(), masks != IGNORED
            loss += target_loss(logits, masks, "masks").item() * int(asked.sum())
            said = logits.argmax(dim=1)
            right.append(((said == masks).flatten(1).sum(dim=1) / asked.flatten(1).sum(dim=1).clamp(min=1)).cpu())
            pairs = masks[asked] * num_classes + said[asked]
            confusion += pairs.bincount(minlength=num_classes**2).cpu()
    return PixelEvaluation(confusion.view(num_classes, -1), loss / max(int(confusion.sum()), 1), torch.cat(right))


@contextmanager
def keeping_modes(model: nn.Module) -> Iterator[None]:
    """After the block, each part of the model is as it was before: in training or in evaluation."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _on_device_of(model: nn.Module, batches: Batches) -> Batches:
    """The same batches, on the device where the model's parameters are."""
    device = getattr(next(model.parameters(), None), "device", None)  # without parameters, where they are
    for images, labels in batches:
        yield images.to(device=device, non_blocking=True), labels.to(device=device, non_blocking=True)
