"""What can be seen of a training loop: hooks on model, optimizer, loss and schedule, removed at the end."""

import math
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook

from vitbook._common.suggestions import listed
from vitbook_workshop.faults.model_under_test import tensors_in, where_it_begins

FIRST, EVERY = 20, 20  # the first steps are looked at one by one, then one in twenty
DENSE = 200  # steps in which every loss and enough images are kept
MAX_IMAGES = 1000  # kept, at 8×8 pixels, to compare neighbors
MAX_PROBES, PROBE_SIZE = 4, 2_000_000  # matrices whose updates are measured, and the most numbers in one
SUM = 2  # torch's number for reduction="sum"


@dataclass
class LossSeen:
    """One call of cross-entropy on the model's logits."""

    step: int
    value: Tensor  # nats, mean over what was predicted
    num_classes: int


@dataclass
class LoopRecorder:
    """Follows one model and its optimizer. Counts steps of the optimizer; looks closely at some of them."""

    model: nn.Module
    optimizer: torch.optim.Optimizer

    step: int = 0
    resumed: bool = False  # whether the optimizer had taken steps before
    losses: list[LossSeen] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)  # the largest learning rate of each step
    updates: dict[int, float] = field(default_factory=dict)  # step → |Δw|/|w|, median over the probes
    shortened: list[float] = field(default_factory=list)  # gradient at the step over gradient after backward
    zeroed: list[bool] = field(default_factory=list)  # whether some backward before the step found the gradient empty
    looks: int = 0  # steps at which gradients were looked at
    reached: set[int] = field(default_factory=set)  # ids of parameters that had a gradient
    elsewhere: set[int] = field(default_factory=set)  # ids of parameters of other optimizers that took steps
    modes: list[bool] = field(default_factory=list)  # model.training at each training forward that was looked at
    forwards_without_gradient: Counter = field(default_factory=Counter)  # model.training → how often
    inputs: list[tuple[float, float, float, float]] = field(default_factory=list)  # min, max, mean, std
    entry: nn.Module | None = None  # the first layer with weights that runs
    probabilities: list[str] = field(default_factory=list)  # what the rows given to the loss look like
    images: list[Tensor] = field(default_factory=list)  # (B, C, 8, 8)
    labels: list[Tensor] = field(default_factory=list)
    out_of_range: tuple[int, int, int] | None = None  # smallest and largest label, number of classes
    schedulers: dict[int, Any] = field(default_factory=dict)
    scheduled: Counter = field(default_factory=Counter)  # "in time", "before", "first" → how often
    not_finite: str = ""  # where and when the first NaN or infinity came
    _fresh: bool = False  # a training forward since the last step
    _pulled: bool = False  # a backward since the last forward
    _early: bool = False  # a schedule stepped since that backward
    _pooled: Tensor | None = None
    _call: tuple = ()
    _length: Tensor | None = None
    _before: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    _depth: int = 0
    _empty: bool | None = None  # whether some backward since the last step found the gradient empty; None before one
    _entry_hooks: list = field(default_factory=list)

    def __post_init__(self):
        self.resumed = any(self.optimizer.state.values())
        owned = [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]
        matrices = [p for p in owned if p.ndim > 1 and len(p) > 1 and p.numel() <= PROBE_SIZE]  # no class token
        stride = max(1, math.ceil(len(matrices) / MAX_PROBES))
        self.probes = matrices[::stride]
        self.first = owned[0] if owned else None
        self.last = owned[-1] if owned else None

    def attach(self, stack: ExitStack) -> None:
        """Put the hooks on; the stack takes them off."""
        hooks = [
            self.model.register_forward_pre_hook(self._before_forward, with_kwargs=True),
            self.model.register_forward_hook(self._after_forward),
            self.optimizer.register_step_pre_hook(self._before_step),
            self.optimizer.register_step_post_hook(self._after_step),
            register_optimizer_step_post_hook(self._after_any_step),
        ]
        if self.last is not None:
            hooks.append(self.last.register_hook(self._before_accumulation))
            hooks.append(self.last.register_post_accumulate_grad_hook(self._after_accumulation))
        for hook in hooks:
            stack.callback(hook.remove)
        for name, wants_logs in (
            ("cross_entropy_loss", False),
            ("nll_loss_nd", True),
        ):  # what torch.nn.functional calls
            original = getattr(torch._C._nn, name)
            stack.enter_context(patch.object(torch._C._nn, name, self._loss(original, wants_logs)))
        for kind in vars(lr_scheduler).values():
            if isinstance(kind, type) and "step" in vars(kind) and issubclass(kind, _SCHEDULERS):
                stack.enter_context(patch.object(kind, "step", self._schedule(kind.step)))
        scaler = torch.amp.GradScaler
        stack.enter_context(patch.object(scaler, "unscale_", self._unscale(scaler.unscale_)))
        stack.callback(self._forget)

    def _forget(self) -> None:
        self._leave_entry()
        self._call, self._before, self._pooled, self._length = (), [], None, None

    @property
    def looking(self) -> bool:
        return self.step < FIRST or self.step % EVERY == 0

    # Forward

    def _before_forward(self, model: nn.Module, args: tuple, kwargs: dict) -> None:
        if not torch.is_grad_enabled():
            self.forwards_without_gradient[model.training] += 1
            return
        self._fresh, self._pulled, self._early = True, False, False
        device = next((p.device.type for p in model.parameters()), "cpu")
        self._call = (args, kwargs, device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        self._pooled = None
        if self.looking or self._wants_images:
            self.modes.append(model.training)
            images = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim == 4), None)
            if images is not None and self._wants_images:
                self._pooled = F.adaptive_avg_pool2d(images.detach().float(), 8).cpu()
        if self.step < FIRST and len(self.inputs) < FIRST:
            self._watch_entry()

    @property
    def _wants_images(self) -> bool:
        return self.step < DENSE and sum(map(len, self.labels)) < MAX_IMAGES

    def _watch_entry(self) -> None:
        """See what goes into the first layer with weights, once."""
        leaves = [self.entry] if self.entry is not None else [m for m in self.model.modules() if _is_leaf(m)]

        def look(module: nn.Module, args: tuple) -> None:
            self._leave_entry()
            self.entry = module
            x = next((x for x in args if isinstance(x, Tensor)), None)
            if x is not None and x.numel() > 1:
                x = x.detach().float()
                self.inputs.append((x.min().item(), x.max().item(), x.mean().item(), x.std().item()))

        self._entry_hooks = [leaf.register_forward_pre_hook(look) for leaf in leaves]

    def _leave_entry(self) -> None:
        for hook in self._entry_hooks:
            hook.remove()
        self._entry_hooks = []

    def _after_forward(self, model: nn.Module, args: tuple, output: Any) -> None:
        self._leave_entry()
        if torch.is_grad_enabled() and not self.not_finite:
            logits = next(tensors_in(output), None)
            if logits is not None and logits.is_floating_point() and logits.requires_grad and self._checks(logits):
                if not logits.detach().abs().amax().isfinite():
                    self.not_finite = f"in the forward pass of step {self.step + 1}: {self._where_forward()}"

    def _checks(self, x: Tensor) -> bool:
        """Whether to look for NaN: on a GPU each look waits for it."""
        return x.numel() > 0 and (self.looking or x.device.type == "cpu")

    @torch.no_grad()
    def _where_forward(self) -> str:
        """Run the last forward pass once more, and name the first module whose output is not finite."""
        args, kwargs, device, autocast, dtype = self._call
        if not all(x.isfinite().all() for x in tensors_in((args, kwargs)) if x.is_floating_point()):
            return "the images themselves are not finite"
        broken = [name for name, p in self.model.named_parameters() if not p.isfinite().all()]
        if broken:
            return f"{listed(broken, 3)} had become NaN or infinite in the step before"
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        try:
            context = torch.autocast(device, dtype) if autocast else nullcontext()
            with torch.random.fork_rng(), context:
                forward = partial(self.model.forward, *args, **kwargs)
                return where_it_begins(self.model, forward, lambda x: bool(x.isfinite().all()))
        finally:
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)

    # Loss

    def _loss(self, original: Callable, wants_logs: bool) -> Callable:
        """Torch's loss (input, target, weight, reduction, ignore_index, …), which looks at what it is given."""

        def loss_seen(logits, target, *args, **kwargs):
            ours = self._fresh and torch.is_grad_enabled() and logits.requires_grad and logits.ndim >= 2
            if ours:
                self._see_logits(logits, target, wants_logs, _argument(args, kwargs, 2, "ignore_index", -100))
            loss = original(logits, target, *args, **kwargs)
            if ours:
                self._see_loss(loss, logits, _argument(args, kwargs, 1, "reduction", 1))
            return loss

        return loss_seen

    def _see_logits(self, logits: Tensor, target: Tensor, wants_logs: bool, ignored: int) -> None:
        if not (self.looking or self._wants_images):
            return
        x, num_classes = logits.detach().float(), logits.shape[1]
        if not target.is_floating_point():
            wanted = target[target != ignored]
            whole = self._pooled is not None and target.ndim == 1 and len(wanted) == len(target) == len(self._pooled)
            if wanted.numel() and self.out_of_range is None:
                low, high = int(wanted.min()), int(wanted.max())
                if low < 0 or high >= num_classes:
                    self.out_of_range = (low, high, num_classes)
            if whole and self._pooled.isfinite().all():
                self.images.append(self._pooled)
                self.labels.append(target.detach().cpu())
        self._pooled = None
        if self.step >= FIRST:
            return
        if wants_logs:
            log = x.exp().sum(dim=1)
            self.probabilities.append("log" if torch.allclose(log, torch.ones_like(log), atol=0.01) else "not log")
        elif (x >= 0).all():
            sums = x.sum(dim=1)
            one = torch.allclose(sums, torch.ones_like(sums), atol=0.01)
            self.probabilities.append("shares" if one else "up to 1" if (x <= 1).all() else "not negative")
        else:
            self.probabilities.append("logits")

    def _see_loss(self, loss: Tensor, logits: Tensor, reduction: int) -> None:
        if self.step >= DENSE and not self.looking:
            return
        value = loss.detach().float()
        value = value / (logits.numel() / logits.shape[1]) if reduction == SUM else value.mean()
        self.losses.append(LossSeen(self.step, value, logits.shape[1]))
        if not self.not_finite and self._checks(value) and not value.isfinite():
            self.not_finite = f"in the loss of step {self.step + 1}: the logits are finite, the loss of them is not"

    # Backward

    def _before_accumulation(self, gradient: Tensor) -> None:
        if self.looking and self._empty is not True:
            kept = self.last.grad
            self._empty = kept is None or not bool(kept.any())
        self._pulled = True

    def _after_accumulation(self, parameter: Tensor) -> None:
        if self.looking:
            self._length = parameter.grad.detach().norm()

    def _unscale(self, original: Callable) -> Callable:
        def unscale_(scaler, optimizer):
            result = original(scaler, optimizer)
            if optimizer is self.optimizer and self.last is not None and self.last.grad is not None:
                self._length = self.last.grad.detach().norm()
            return result

        return unscale_

    # Step

    def _before_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        self.rates.append(max(float(group["lr"]) for group in optimizer.param_groups))
        if self._early:
            self.scheduled["before"] += 1
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)  # args[0] is the optimizer
        fused_scaling = getattr(optimizer, "grad_scale", None) is not None
        if closure is None and not fused_scaling:
            self._see_gradients()
            if self.looking and self._length is not None and self.last.grad is not None:
                length = self._length.item()
                if 0 < length < math.inf:
                    self.shortened.append(self.last.grad.norm().item() / length)
        if self.looking:
            self._before = [(p, p.detach().clone()) for p in self.probes]

    def _see_gradients(self) -> None:
        if self.first is not None and not self.not_finite and self.first.grad is not None:
            if self._checks(self.first.grad) and not self.first.grad.norm().isfinite():
                named = [(n, p) for n, p in self.model.named_parameters() if p.grad is not None]
                broken = [name for name, p in named if not p.grad.isfinite().all()]
                if broken:
                    last = broken[-1].rpartition(".")[0] or broken[-1]
                    self.not_finite = (
                        f"in the backward pass of step {self.step + 1}: the gradients of {len(broken)} of {len(named)} "
                        f"parameters are not finite, the one nearest to the logits is that of {last}"
                    )

    def _after_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        if self.looking:
            self.looks += 1
            for group in optimizer.param_groups:
                self.reached |= {id(p) for p in group["params"] if p.grad is not None}
            ratios = [((p.detach() - old).norm() / old.norm()).item() for p, old in self._before if p.grad is not None]
            ratios = sorted(ratio for ratio in ratios if math.isfinite(ratio))
            if ratios:
                self.updates[self.step] = ratios[len(ratios) // 2]
        if self._empty is not None and self.step:
            self.zeroed.append(self._empty)
        self._before, self._length, self._empty = [], None, None
        self.step += 1
        self._fresh, self._pulled, self._early = False, False, False

    def _after_any_step(self, optimizer: torch.optim.Optimizer, args: tuple, kwargs: dict) -> None:
        if optimizer is not self.optimizer:
            self.elsewhere |= {id(p) for group in optimizer.param_groups for p in group["params"]}

    # Schedule

    def _schedule(self, original: Callable) -> Callable:
        def step(scheduler, *args, **kwargs):
            ours = scheduler.optimizer is self.optimizer and getattr(scheduler, "_step_count", 1) > 0
            if ours:
                self.schedulers[id(scheduler)] = scheduler
            if ours and not self._depth:
                if self._pulled:
                    self._early = True
                elif not self.step and not self.resumed and not self._fresh:
                    self.scheduled["first"] += 1
                else:
                    self.scheduled["in time"] += 1
            self._depth += 1
            try:
                return original(scheduler, *args, **kwargs)
            finally:
                self._depth -= 1

        return step


_SCHEDULERS = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)


def _is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None and next(module.parameters(), None) is not None


def _argument(args: tuple, kwargs: dict, position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)
