"""What is wrong with a model on a data set: tried as a copy, in a short training run whose loop is right."""

import copy
import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from vitbook.data import Dataset
from vitbook.training import parameter_groups
from vitbook.vit import VisionTransformer, ViTConfig
from vitbook_workshop.faults.checks.models import learned_by_heart
from vitbook_workshop.faults.findings import Failed, Finding, NotAsked, skip_if
from vitbook_workshop.faults.invariants import INVARIANTS
from vitbook_workshop.faults.watch_training import answer, watch

OF_DATA = [must_hold for must_hold in INVARIANTS.values() if must_hold.of_data]


def examine_on_data(
    model: nn.Module | None,
    dataset: Dataset,
    *,
    steps: int = 100,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    seconds: float = 60.0,
    progress: Callable[[str], None] | None = None,
) -> list[Finding]:
    """Ask a data set, and a copy of a model in a short, right training run on it, all that can be asked.

    model: (B, C, H, W) → (B, K) for the data set's K classes; None for a small Vision Transformer. It is trained by
    AdamW with warm-up for at most `steps` steps and `seconds` seconds, then as long on 16 images that it should learn
    by heart. progress: is called with what is done next. Random numbers are the same at every call.
    """
    devices = [] if model is None else sorted({p.device.index for p in model.parameters() if p.is_cuda})
    with torch.random.fork_rng(devices), torch.enable_grad():
        torch.manual_seed(0)
        if model is None:
            model = _small_vit(dataset)
        say = progress or (lambda text: None)
        say("comparing images and labels")
        findings = [answer(must_hold, must_hold.of_data, dataset) for must_hold in OF_DATA]
        say(f"training for {steps} steps")
        findings += _try_training(copy.deepcopy(model), dataset, steps, batch_size, learning_rate, seconds)
        say("learning 16 images by heart")
        by_heart = INVARIANTS["one_batch_can_be_learned"]
        findings.append(answer(by_heart, _learn_by_heart, copy.deepcopy(model), dataset, learning_rate, seconds))
    return findings


def _small_vit(dataset: Dataset) -> VisionTransformer:
    channels, *size = dataset.train.images.shape[1:]
    patch = next((p for p in range(max(1, max(size) // 8), 0, -1) if all(side % p == 0 for side in size)), 1)
    kinds = len(dataset.class_names)
    return VisionTransformer(ViTConfig(tuple(size), patch, channels, kinds, dim=64, depth=3, num_heads=4, mlp_dim=128))


def _try_training(model, dataset, steps, batch_size, learning_rate, seconds) -> list[Finding]:
    """The answers to what `watch` asks, of a run whose loop is right."""
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(parameter_groups(model.train(), 0.05), lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=min(20, steps))
    end, batches = time.monotonic() + seconds, iter(())
    with watch(model, optimizer) as report:
        for step in range(steps):
            batch = next(batches, None)
            if batch is None:
                batches = iter(dataset.loader(dataset.train, batch_size, shuffle=True, seed=step))
                batch = next(batches)
            images, labels = (x.to(device) for x in batch)
            try:
                loss = F.cross_entropy(model(images), labels)
            except (IndexError, RuntimeError):
                if report.recorder.out_of_range:
                    break
                raise
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if time.monotonic() > end or report.recorder.not_finite:
                break
    return [finding for finding in report.findings if finding.name not in _SETTLED]


_SETTLED = {  # asked of the whole data set already, or right by construction here
    "labels_match_images", "batches_mix_classes", "only_matrices_decay", "schedule_fits", "gradients_are_zeroed",
    "gradients_are_not_always_clipped", "trains_in_training_mode", "evaluates_in_evaluation_mode",
    "rate_is_not_too_small",
}  # fmt: skip


def _learn_by_heart(model, dataset: Dataset, learning_rate: float, seconds: float) -> None:
    device, end = next(model.parameters()).device, time.monotonic() + seconds
    chosen = torch.randperm(len(dataset.train))[:16]
    images = dataset.normalize(dataset.train.images[chosen]).to(device)
    labels = dataset.train.labels[chosen].to(device)
    kinds = len(labels.unique())
    skip_if(kinds < 2, "16 images show a single class")
    losses, steps = learned_by_heart(model, images, labels, learning_rate), 300
    for step in range(steps):
        try:
            loss = next(losses)
        except (IndexError, RuntimeError) as error:
            raise NotAsked(f"the model does not run on them: {error}") from None
        if loss < 0.1:
            return
        late = f"after {step} steps in {seconds:.0f} s the loss is {loss.item():.2f}, which decides nothing"
        skip_if(time.monotonic() > end, late)
    raise Failed(
        f"after {steps} steps on the same 16 images of {kinds} classes the loss is {loss.item():.2f}.",
        likely="another learning rate may do it" if loss < 0.7 * math.log(kinds) else "",
    )
