"""Paint images from noise: guess the clean image from a noisy one, take a short step toward the guess, guess again.

z_t = t·x + (1 − t)·ε                      the straight path from noise, t = 0, to an image, t = 1
dz_t/dt = x − ε = (x − z_t) / (1 − t)      the velocity along it
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from vitbook._common.files import ASSETS
from vitbook._common.json_config import from_json
from vitbook._common.validation import check_choice, check_sizes, in_words
from vitbook.checkpoint import load_checkpoint
from vitbook.patches import Images, unpatchify
from vitbook.training import parameter_groups, warmup_cosine
from vitbook.vit import VisionTransformer, ViTConfig

Times = Float[Tensor, " batch"]  # t, from 0 to 1
Labels = Int64[Tensor, " batch"]

LEAST = 0.05  # 1 − t is taken for at least this where something is divided by it, and so is t


def on_the_path(images: Images, noise: Images, t: Times) -> Images:
    """z_t = t·x + (1 − t)·ε: so far from the noise toward the image. Lipman et al. 2023."""
    t = t[:, None, None, None]
    return t * images + (1 - t) * noise


def velocity(guess: Images, z: Images, t: Times) -> Images:
    """v = (x̂ − z_t) / (1 − t), where the path leads if x̂ is its end; 1 − t counts as at least `LEAST`."""
    return (guess - z) / (1 - t).clamp(min=LEAST)[:, None, None, None]


def velocity_loss(guess: Images, images: Images, z: Images, t: Times) -> Float[Tensor, ""]:
    """The mean squared error of the velocity: that of the guess, with a weight 1/(1 − t)² of at most 1/`LEAST`²."""
    return (velocity(guess, z, t) - velocity(images, z, t)).square().mean()


def best_guess(z: Images, t: Times, images: Float[Tensor, "known channels height width"]) -> Images:
    """The mean of x given z_t, if x is one of these images, each as likely: the guess with the least squared error.

    x̂ = Σ softmaxᵢ(−‖z_t − t·xᵢ‖² / 2(1 − t)²) xᵢ, since ε is normal. It is attention: z_t asks, the images are keys
    and values. For two images ±a it is a·tanh(t·⟨a, z_t⟩ / (1 − t)²). t < 1.
    """
    apart = z.flatten(1)[:, None] - t[:, None, None] * images.flatten(1)  # (B, K, CHW)
    scores = -apart.square().sum(dim=-1) / (2 * (1 - t[:, None]) ** 2)
    return torch.einsum("bk,kchw->bchw", scores.softmax(dim=-1), images)


def time_code(t: Times, dim: int) -> Float[Tensor, "batch dim"]:
    """Sines and cosines of a time, as of a position: `sincos_positions` at the place 100·t, sines first."""
    frequency = 100 * 10_000.0 ** (-torch.arange(0, dim, 2, device=t.device) / dim)
    angles = t[:, None] * frequency.to(t.dtype)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


# What the output stands for, and the guess of the image that follows from it
AIMS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "image": lambda out, z, t: out,
    "noise": lambda out, z, t: (z - (1 - t) * out) / t.clamp(min=LEAST),
    "velocity": lambda out, z, t: z + (1 - t) * out,
}


class Painter(nn.Module):
    """A Vision Transformer that guesses the clean image: z_t (B, C, H, W), t (B,), classes (B,) → x̂ (B, C, H, W).

    Li & He 2025: a plain ViT on patches of pixels, which predicts clean ones. Time and class enter as two tokens in
    front of the patches. The last map starts at zero, so that the first guess is gray. Differs: the authors' model has
    adaptive LayerNorm, rotary positions, SwiGLU and RMSNorm; a bottleneck in the patch embedding; 32 class tokens.

    config: of the ViT; num_classes is the number of classes that can be asked for, beside class `anything`, which is
    none of them; aim: what the last map's output stands for, a key of `AIMS`. Raises ValueError for another.
    """

    def __init__(self, config: ViTConfig, aim: str = "image"):
        super().__init__()
        check_choice("aim", aim, AIMS)
        self.aim, self.anything = aim, config.num_classes
        self.backbone = VisionTransformer(replace(config, num_classes=0, class_token=False, pool="mean"))
        self.time = nn.Linear(config.dim, config.dim)
        self.classes = nn.Embedding(config.num_classes + 1, config.dim)
        self.to_pixels = nn.Linear(config.dim, config.patch_size**2 * config.channels)
        nn.init.normal_(self.classes.weight, std=0.02)
        nn.init.zeros_(self.to_pixels.weight)
        nn.init.zeros_(self.to_pixels.bias)

    def forward(self, z: Images, t: Times, labels: Labels) -> Images:
        config = self.backbone.config
        front = torch.stack([self.time(time_code(t, config.dim)), self.classes(labels)], dim=1)
        tokens = torch.cat([front, self.backbone.embedding(z)], dim=1)  # (B, 2 + N, D)
        tokens = self.backbone.norm(self.backbone.encoder(tokens))[:, 2:]
        out = unpatchify(self.to_pixels(tokens), config.patch_size, config.sides)
        return AIMS[self.aim](out, z, t[:, None, None, None])


def guided_guess(model: Painter, z: Images, t: Times, labels: Labels, guidance: float) -> Images:
    """x̂ of no class, and from there `guidance` times the way to that of the class. Ho & Salimans 2022, Eq. 6.

    0: the class is not asked for; 1: no guidance; above 1: more of what the class changes. Differs: in the paper w = 0
    is no guidance, so that `guidance` is their 1 + w.
    """
    if guidance == 1:
        return model(z, t, labels)
    both = model(z.repeat(2, 1, 1, 1), t.repeat(2), torch.cat([torch.full_like(labels, model.anything), labels]))
    of_any, of_class = both.chunk(2)
    return of_any + guidance * (of_class - of_any)


def walk(
    guess: Callable[[Images, Times], Images],
    noise: Images,
    steps: int,
    known: Images | None = None,
    hidden: Bool[Tensor, "height width"] | None = None,
) -> Iterator[tuple[float, Images, Images]]:
    """Euler's steps along the field of a guess, from noise to an image: t, z_t and x̂ at each. The last x̂ is the image.

    z ← z + v/steps, which is 1/(steps that are left) of the way to the guess. known, hidden: an image, and its pixels
    that are to be painted; of the others nothing is guessed, so that z_t keeps to their path.
    """
    z = noise
    for step in range(steps):
        t = step / steps
        with torch.no_grad():
            x = guess(z, z.new_full((len(z),), t))
        x = x if known is None or hidden is None else torch.where(hidden, x, known)
        yield t, z, x
        z = z + (x - z) / (steps - step)


def paint(
    model: Painter,
    labels: Labels,
    steps: int = 25,
    guidance: float = 2.0,
    noise: Images | None = None,
    known: Images | None = None,
    hidden: Bool[Tensor, "height width"] | None = None,
) -> Images:
    """An image of each class, in the range of the images that the model learned from. → (B, C, H, W).

    noise: where to begin, drawn on the CPU if not given; known, hidden: as in `walk`. Raises ValueError for a class
    that the model does not know, images of another size, fewer than one step, and a guidance below 0.
    """
    check_labels(model, labels)
    check_sizes(steps=steps)
    if not guidance >= 0:
        raise ValueError(f"guidance must be at least 0, got {in_words(guidance)}")
    config = model.backbone.config
    if noise is None:
        noise = torch.randn(len(labels), config.channels, *config.sides).to(labels.device)
    model.eval()
    *_, (_, _, image) = walk(lambda z, t: guided_guess(model, z, t, labels, guidance), noise, steps, known, hidden)
    return image


def check_labels(model: Painter, labels: Labels) -> None:
    """Raise ValueError unless each is a class that the model can be asked for, or `anything`."""
    for label in labels.tolist():
        if not 0 <= label <= model.anything:
            last = model.anything - 1
            raise ValueError(f"classes must lie in 0 … {last}, or be {last + 1} for none of them, got {label}")


def painting_loss(model: Painter, images: Images, labels: Labels, dropped: float = 0.1) -> Float[Tensor, ""]:
    """The loss of one batch, each image at a time of its own, and with a share `dropped` of the classes not told.

    t is logistic-normal: the sigmoid of a normal number with mean −0.8 and standard deviation 0.8, as in Li & He 2025.
    """
    t = torch.sigmoid(0.8 * torch.randn(len(images)) - 0.8).to(images)
    untold = (torch.rand(len(images)) < dropped).to(images.device)
    z = on_the_path(images, torch.randn(images.shape).to(images), t)
    guess = model(z, t, labels.masked_fill(untold, model.anything))
    return velocity_loss(guess.float(), images, z, t)


def train_painter(
    model: Painter,
    images: Images,
    labels: Labels,
    epochs: int,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    dropped: float = 0.1,
    decay: float = 0.99,
    augment: Callable[[Images], Images] = lambda images: images,
) -> tuple[Painter, list[float]]:
    """Train on images from −1 to 1 and their classes. Returns the running mean of the weights, and each epoch's loss.

    AdamW at a rate that rises and falls. dropped: as in `painting_loss`, so that guidance has where to start; decay: of
    the running mean, which forgets the random start sooner. Raises ValueError as `paint` does.
    """
    from vitbook.engine import average  # here, because ignite takes seconds to import

    check_labels(model, labels)
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.01), lr=learning_rate, betas=(0.9, 0.95), fused=True)
    steps = epochs * math.ceil(len(images) / batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, steps, steps // 20))
    mean, losses, step = deepcopy(model).eval().requires_grad_(False), [], 0
    model.train()
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(images)).split(batch_size):
            loss = painting_loss(model, augment(images[chosen]), labels[chosen], dropped)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            average(mean, model, min(decay, (1 + step) / (10 + step)))
            total += loss.item() * len(chosen)
        losses.append(total / len(images))
    return mean, losses


def recorded_painter() -> tuple[Painter, tuple[str, ...]]:
    """The painter of CIFAR-10's classes that comes with the package, by `records/painting.py`, and their names."""
    tensors, facts = load_checkpoint(ASSETS / "painters" / "photographs.json")
    model = Painter(from_json(ViTConfig, facts["model"])).eval()
    model.load_state_dict(tensors)
    return model, tuple(facts["class_names"])


# Measured, not admired


def nearest_distances(painted: Images, known: Float[Tensor, "known channels height width"]) -> Float[Tensor, " batch"]:
    """How far each image is from the nearest of the known ones, ‖x − x'‖ over all pixels. A copy is at 0."""
    return torch.cdist(painted.flatten(1), known.flatten(1)).amin(dim=1)


def frechet_distance(some: Float[Tensor, "N D"], others: Float[Tensor, "M D"]) -> float:
    """How far apart two sets of features are, if each is taken for normal: ‖μ − μ'‖² + tr(Σ + Σ' − 2 (Σ Σ')^½).

    Heusel et al. 2017, Eq. 6, who call it FID where the features are those of Inception v3.
    """
    some, others = some.double(), others.double()
    one, two = torch.cov(some.T), torch.cov(others.T)
    values, vectors = torch.linalg.eigh(one)
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    both = torch.linalg.eigvalsh(root @ two @ root).clamp(min=0).sqrt().sum()
    return ((some.mean(0) - others.mean(0)).square().sum() + one.trace() + two.trace() - 2 * both).item()
