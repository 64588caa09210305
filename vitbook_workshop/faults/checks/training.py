"""What must hold of a training run, as a `LoopRecorder` has seen it.

Each check raises `Failed` where it does not, and `NotAsked` where too little was seen.
"""

import math
import statistics

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from vitbook._common.suggestions import listed
from vitbook_workshop.faults.checks.data import neighbors_agree
from vitbook_workshop.faults.findings import Failed, NotAsked, skip_if
from vitbook_workshop.faults.model_under_test import dropouts
from vitbook_workshop.faults.recorders.loops import LoopRecorder

MIN_STEPS = 20  # before anything is said of how a run goes


# The loss


def loss_gets_logits(run: LoopRecorder) -> None:
    seen = run.probabilities
    skip_if(len(seen) < 2, "no cross-entropy of the model's logits was seen")
    if all(kind == "shares" for kind in seen):
        raise Failed(f"in {len(seen)} of {len(seen)} batches the rows given to cross-entropy sum to 1.")
    if all(kind == "not log" for kind in seen):
        raise Failed(f"in {len(seen)} of {len(seen)} batches exp of what F.nll_loss gets does not sum to 1.")
    if len(seen) >= 5 and all(kind in ("shares", "up to 1", "not negative") for kind in seen):
        raise Failed(
            f"in {len(seen)} of {len(seen)} batches no logit is negative.",
            "an activation after the head, a sigmoid or ReLU. Logits need none.",
            likely="a model could have such logits by chance",
        )


def labels_are_in_range(run: LoopRecorder) -> None:
    if run.out_of_range:
        low, high, classes = run.out_of_range
        raise Failed(f"labels from {low} to {high} were seen, and the model has {classes} logits: 0 to {classes - 1}.")
    skip_if(not run.labels, "no labels were seen")
    labels, classes = torch.cat(run.labels), run.losses[0].num_classes if run.losses else 0
    kinds = set(labels.tolist())
    if len(labels) >= 20 * classes > 20 and kinds == set(range(1, classes)):
        raise Failed(
            f"of {classes} classes, {classes - 1} occur in {len(labels)} labels, and class 0 never.",
            likely="class 0 may be rare, or kept for the background",
        )


def batches_mix_classes(run: LoopRecorder) -> None:
    batches = [labels for labels in run.labels if len(labels) >= 8]
    classes = run.losses[0].num_classes if run.losses else 0
    skip_if(len(batches) < 5 or classes < 4, "fewer than 5 batches of 8 labels or 4 classes were seen")
    single = sum(len(labels.unique()) <= 2 and (labels.diff() != 0).sum() <= 1 for labels in batches)
    if single > 0.8 * len(batches):
        raise Failed(f"in {single} of {len(batches)} batches all labels are of one class, or of one and then the next.")


def first_loss_is_not_above_ln_k(run: LoopRecorder) -> None:
    skip_if(run.resumed, "the optimizer had taken steps before")
    first = [seen for seen in run.losses if not seen.step]
    skip_if(not first, "no cross-entropy of the model's logits was seen")
    loss, expected = _mean(seen.value.item() for seen in first), math.log(first[0].num_classes)
    if math.isfinite(loss) and loss > expected + 1.5:
        raise Failed(
            f"it is {loss:.2f}, and ln {first[0].num_classes} = {expected:.2f}.",
            likely="a model trained before may know worse",
        )


def all_is_finite(run: LoopRecorder) -> None:
    if run.not_finite:
        raise Failed(f"{run.not_finite}.")
    skip_if(not run.step, "no step was taken")


# The images


def images_are_normalized_once(run: LoopRecorder) -> None:
    skip_if(len(run.inputs) < 3 or run.entry is None, "fewer than 3 batches were seen")
    skip_if("Norm" in type(run.entry).__name__, "the model begins with a norm of its own")
    low, high = min(seen[0] for seen in run.inputs), max(seen[1] for seen in run.inputs)
    mean, std = (_mean(seen[i] for seen in run.inputs) for i in (2, 3))
    numbers = (
        f"the first layer gets numbers from {low:.3g} to {high:.3g}, mean {mean:.3g}, standard deviation {std:.3g}"
    )
    if low >= 0 and high > 20:
        raise Failed(f"{numbers}.", "pixels from 0 to 255, neither divided by 255 nor normalized.")
    if high - low > 40 and std > 20:
        raise Failed(f"{numbers}.", "mean and standard deviation of pixels from 0 to 1, used on pixels to 255.")
    if std > 2 or abs(mean) > 2.2:
        raise Failed(f"{numbers}.", "normalized twice, or with the mean and standard deviation of other images.")
    if std < 0.05:
        raise Failed(f"{numbers}.", "divided by 255 twice, or images without contrast.")
    if low >= 0 and high <= 1:
        raise Failed(
            f"{numbers}.",
            "never normalized: subtract each channel's mean and divide by its standard deviation.",
            likely="a model may be meant for pixels from 0 to 1",
        )


def labels_match_images(run: LoopRecorder) -> None:
    skip_if(not run.labels, "no images with one label each were seen")
    neighbors_agree(torch.cat(run.images), torch.cat(run.labels))


# The learning rate and its schedule


def rate_is_not_too_large(run: LoopRecorder) -> None:
    losses = _losses(run)
    skip_if(len(losses) < (4 if run.not_finite else MIN_STEPS), f"fewer than {MIN_STEPS} steps were seen")
    start = max(_mean(losses[:2]), math.log(run.losses[0].num_classes))
    peak = max(statistics.median(losses[i : i + 3]) for i in range(1, len(losses) - 2))
    update = max((run.updates[step] for step in run.updates if step < MIN_STEPS), default=0.0)
    sizes = f"learning rate {max(run.rates):.3g}, largest update of a matrix {update:.2g} of its size"
    warmup = "" if run.rates[0] < 0.5 * max(run.rates) else ", without warm-up"
    if peak > 1.5 * start + 1:
        raise Failed(f"the loss rises from {losses[0]:.2f} to {peak:.2f} ({sizes}{warmup}).")
    late = losses[len(losses) // 2 :]
    stuck = len(losses) >= 2 * MIN_STEPS and _mean(late) > 0.97 * math.log(run.losses[0].num_classes)
    if stuck and update > 0.3:
        raise Failed(
            f"after {len(losses)} steps the loss is {_mean(late):.2f}, no better than ln K ({sizes}{warmup}).",
            likely="a task that cannot be learned looks similar",
        )


def rate_is_not_too_small(run: LoopRecorder) -> None:
    losses = _losses(run)
    skip_if(len(losses) < MIN_STEPS or not run.updates, f"fewer than {MIN_STEPS} steps were seen")
    peak = _peak_rate(run)
    classes = math.log(run.losses[0].num_classes)
    skip_if(run.rates[-1] == max(run.rates) > 2 * run.rates[0], "the learning rate still rises")
    skip_if(_mean(losses[-10:]) < 0.3 * classes, "the loss is small")
    rates = {step: run.rates[step] for step in run.updates if run.rates[step] > 1e-3 * peak}
    skip_if(not rates, "the schedule keeps it near 0")
    update = statistics.median(run.updates[step] * peak / rate for step, rate in rates.items())  # at the full rate
    before, after = _mean(losses[: len(losses) // 2]), _mean(losses[len(losses) // 2 :])
    if update < 3e-5 and before - after < 0.03 * classes:
        raise Failed(
            f"at the learning rate {peak:.3g} a step changes a matrix by {update:.1g} of its size, and the loss goes "
            f"from {before:.3f} in the first to {after:.3f} in the second half of {len(losses)} steps.",
            likely="" if update < 1e-7 else "a model that is nearly as good as it can be moves as little",
        )


def schedule_fits(run: LoopRecorder) -> None:
    skip_if(not run.step, "no step was taken")
    if run.scheduled["before"] >= 2:
        raise Failed(
            f"in {run.scheduled['before']} of {run.step} steps scheduler.step() comes between backward() and "
            "optimizer.step()."
        )
    if run.scheduled["first"] == 1:
        raise Failed(f"scheduler.step() comes before the first optimizer.step(), which then has {run.rates[0]:.3g}.")
    for scheduler in run.schedulers.values():
        if isinstance(scheduler, CosineAnnealingLR) and scheduler.last_epoch > 1.5 * scheduler.T_max:
            raise Failed(
                f"CosineAnnealingLR has T_max={scheduler.T_max} and was stepped {scheduler.last_epoch} times in "
                f"{run.step} optimizer steps: past T_max the learning rate rises again.",
                likely="it may be meant to go up and down",
            )
    peak = _peak_rate(run)
    still = sum(rate < 1e-4 * peak for rate in run.rates)
    if still >= max(MIN_STEPS, 0.2 * run.step):
        raise Failed(
            f"in {still} of {run.step} steps the learning rate is less than a ten-thousandth of its peak, {peak:.3g}."
        )


# The optimizer


def only_matrices_decay(run: LoopRecorder) -> None:
    """Less than 0.02 is not asked about: AdamW's default is 0.01, which with usual learning rates does nothing."""
    names = {id(p): name for name, p in run.model.named_parameters()}
    groups = [group for group in run.optimizer.param_groups if group.get("weight_decay", 0) >= 0.02]
    for group in groups:
        small = [p for p in group["params"] if p.requires_grad and p.ndim < 2]
        if small:
            count = sum(len(other["params"]) for other in run.optimizer.param_groups)
            raise Failed(
                f"weight_decay={group['weight_decay']} acts on {len(small)} biases and gains of {count} parameters, "
                f"such as {names.get(id(small[0]), 'one outside the model')}."
            )
    coupled = [group for group in groups if not group.get("decoupled_weight_decay")]
    if coupled and type(run.optimizer) is torch.optim.Adam:
        raise Failed(
            f"torch.optim.Adam with weight_decay={coupled[0]['weight_decay']}, which it adds to the gradient.",
            "Adam in place of AdamW, which takes the decay off the weight.",
            likely="it may be meant so",
        )


def gradients_are_zeroed(run: LoopRecorder) -> None:
    skip_if(len(run.zeroed) < 2, "fewer than 3 steps were seen")
    kept = run.zeroed.count(False)
    if kept == len(run.zeroed):
        raise Failed(f"in {kept} of {kept} steps the gradient of the step before was still there at backward().")


def gradients_are_not_always_clipped(run: LoopRecorder) -> None:
    factors = run.shortened
    skip_if(len(factors) < MIN_STEPS, f"fewer than {MIN_STEPS} steps were seen")
    median = statistics.median(factors)
    if max(factors) < 0.1 and statistics.pstdev(factors) > 1e-3 * median:  # a constant factor is a mean over parts
        raise Failed(
            f"in {len(factors)} of {len(factors)} steps the gradient is shortened, in the median to {median:.2g} of "
            "its length.",
            likely="where gradients are known to be that large, it may be meant so",
        )


def parameters_are_trained(run: LoopRecorder) -> None:
    skip_if(run.looks < 3, "fewer than 3 steps were seen")
    named = list(run.model.named_parameters())
    owned = {id(p): p for group in run.optimizer.param_groups for p in group["params"]}
    mine = {id(p) for _, p in named}
    foreign = [p for key, p in owned.items() if key not in mine and p.requires_grad and key not in run.reached]
    if foreign:
        raise Failed(
            f"{len(foreign)} of the optimizer's {len(owned)} parameters are not the model's, and get no gradient.",
            "an optimizer that was built before the model, or its head, was replaced or copied.",
        )
    trainable = [(name, p) for name, p in named if p.requires_grad and "mask_token" not in name]
    trainable = [(name, p) for name, p in trainable if id(p) in owned or id(p) not in run.elsewhere]
    absent = [name for name, p in trainable if id(p) not in owned]
    head = named[-1][0].rpartition(".")[0]
    if absent and (2 * len(absent) < len(trainable) or any(name.startswith(head) for name in absent)):
        raise Failed(f"{len(absent)} of {len(trainable)} parameters are in no optimizer: {listed(absent, 3)}.")
    idle = [name for name, p in trainable if id(p) in owned and id(p) not in run.reached]
    if idle:
        raise Failed(f"no gradient reaches {len(idle)} of {len(trainable)} parameters: {listed(idle, 3)}.")
    frozen = [name for name, p in named if not p.requires_grad]
    if trainable and any(name.startswith(head) for name in frozen) and run.looks:
        raise Failed(
            f"the last layer, {head}, is frozen, and {len(trainable)} parameters are not.", likely="it may be meant so"
        )


# Training and evaluation


def trains_in_training_mode(run: LoopRecorder) -> None:
    skip_if(not run.modes, "no forward pass was seen")
    skip_if(not _has_modes(run.model), "it has no dropout and no BatchNorm, to which that makes a difference")
    wrong = run.modes.count(False)
    changed = run.modes[0] and not run.modes[-1]
    if wrong < 2 or not (changed or wrong == len(run.modes)):
        return
    if any(not p.requires_grad for p in run.model.parameters()):
        raise NotAsked("part of the model is frozen, and may be kept as in evaluation")
    since = f", from forward pass {run.modes.index(False) + 1} on" if changed else ""
    raise Failed(
        f"{wrong} of {len(run.modes)} forward passes in training were in evaluation mode{since}.",
        likely="" if changed else "fine-tuning without dropout may be meant so",
    )


def evaluates_in_evaluation_mode(run: LoopRecorder) -> None:
    counts = run.forwards_without_gradient
    skip_if(not counts.total(), "no evaluation was seen")
    skip_if(not _has_modes(run.model), "it has no dropout and no BatchNorm, to which that makes a difference")
    if counts[True] >= 3 and counts[True] > counts[False]:
        raise Failed(
            f"{counts[True]} of {counts.total()} forward passes without gradients were in training mode.",
            likely="random targets, or averages over dropout, may be meant",
        )


# Tools


def _losses(run: LoopRecorder) -> list[float]:
    """The mean loss of each step that was seen, where it is finite."""
    values = torch.stack([seen.value for seen in run.losses]).tolist() if run.losses else []
    steps: dict[int, list[float]] = {}
    for seen, value in zip(run.losses, values, strict=True):
        steps.setdefault(seen.step, []).append(value)
    return [loss for loss in map(_mean, steps.values()) if math.isfinite(loss)]


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def _peak_rate(run: LoopRecorder) -> float:
    """The learning rate at its peak, as the optimizer's groups or the steps seen tell it."""
    return max([*run.rates, *(float(group.get("initial_lr", 0)) for group in run.optimizer.param_groups)])


def _has_modes(model: nn.Module) -> bool:
    """Whether training mode makes a difference."""
    norms = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
    return norms or next(dropouts(model), None) is not None
