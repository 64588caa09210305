"""Training loops as people write them: right ones, and ones with a fault, named by the question that must find it."""

import copy
import math
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import patch

import torch
import torch.nn.functional as F
from ignite.engine import Engine, Events, create_supervised_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from vitbook.data import load_dataset
from vitbook.engine import TrainConfig, fit
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import create_vit
from vitbook_workshop.faults.watch_training import TrainingReport, watch

K, BATCH, STEPS = 10, 32, 60
DIGITS = load_dataset("digits", validation=0.1)


class ViT(nn.Module):
    """A home-made one."""

    def __init__(self, dim=32, dropout=0.1, classes=K):
        super().__init__()
        self.patches = nn.Conv2d(1, dim, 2, 2)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, 17, dim))
        block = (dim, 4, 2 * dim, dropout, "gelu")
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(*block, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def features(self, images):
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.norm(x[:, 0])

    def forward(self, images):
        return self.head(self.features(images))


IMAGES, LABELS = DIGITS.normalize(DIGITS.train.images), DIGITS.train.labels


def batches(images=IMAGES, labels=LABELS, steps=STEPS, size=BATCH, shuffle=True):
    loader = DataLoader(TensorDataset(images, labels), size, shuffle=shuffle, drop_last=True)
    while True:
        for batch in loader:
            yield batch
            steps -= 1
            if not steps:
                return


def adamw(model, lr=1e-3, decay=0.05):
    return torch.optim.AdamW(parameter_groups(model, decay), lr=lr)


def train(
    model=None,
    optimizer=None,
    data=None,
    steps=STEPS,
    prepare: Callable = lambda model: None,
    loss=F.cross_entropy,
    augment: Callable = lambda images: images,
    objective: Callable | None = None,
    after_backward: Callable = lambda model: None,
    schedule=None,
    zero=True,
):
    """The loop of most tutorials, with places where something can be put in.

    objective: (model, images, labels) → loss, in place of `loss` and `augment`.
    """
    model = model or ViT()
    objective = objective or (lambda model, images, labels: loss(model(augment(images)), labels))
    prepare(model)
    optimizer = optimizer(model) if optimizer else adamw(model)
    schedule = schedule and schedule(optimizer)
    model.train()
    with watch(model, optimizer) as report:
        for images, labels in data or batches(steps=steps):
            if zero:
                optimizer.zero_grad()
            objective(model, images, labels).backward()
            after_backward(model)
            optimizer.step()
            if schedule:
                schedule.step()
    return report


# Right ones


def from_the_book():
    model = create_vit("vit_digits")
    optimizer = adamw(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, 180, 20))
    with watch(model, optimizer) as report:
        for epoch in range(2):
            loader = DIGITS.loader(DIGITS.train, BATCH, shuffle=True, seed=epoch)
            train_epoch(model, loader, optimizer, schedule)
            evaluate(model, DIGITS.loader(DIGITS.validation, 50))
    return report


def engine_fit(**changes):
    """`fit` makes its optimizer itself; that is caught where it is made."""
    made, original, model = [], torch.optim.AdamW, create_vit("vit_digits")
    reports = []

    def make(*args, **kwargs):
        made.append(original(*args, **kwargs))
        entered = watch(model, made[0])
        reports.append((entered, entered.__enter__()))
        return made[0]

    with patch("torch.optim.AdamW", make):
        fit(model, DIGITS, TrainConfig(**dict(epochs=3, batch_size=32) | changes), progress=False)
    reports[0][0].__exit__(None, None, None)
    return reports[0][1]


def mixed_precision(dtype=torch.bfloat16):
    model = ViT()
    optimizer, scaler = adamw(model), torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
    with watch(model, optimizer) as report:
        for images, labels in batches():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype):
                loss = F.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    return report


def scaled_without_clipping():
    model = ViT()
    optimizer, scaler = adamw(model), torch.amp.GradScaler("cpu")
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    with watch(model, optimizer) as report:
        for images, labels in batches():
            with torch.autocast("cpu", torch.float16):
                loss = criterion(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            schedule.step()
    return report


def accumulation(parts=4):
    model = ViT()
    optimizer = adamw(model)
    optimizer.zero_grad()
    with watch(model, optimizer) as report:
        for i, (images, labels) in enumerate(batches(steps=STEPS * parts)):
            loss = F.cross_entropy(model(images), labels) / parts
            loss.backward()
            if (i + 1) % parts == 0:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
    return report


def running_mean():
    model = ViT()
    ema = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = adamw(model)
    with watch(model, optimizer) as report:
        for images, labels in batches():
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update_parameters(model)
        with torch.no_grad():
            ema.eval()
            ema(IMAGES[:100])
    return report


def ignite_engine():
    model = ViT()
    optimizer = adamw(model)
    trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        model.eval()
        with torch.inference_mode():
            model(IMAGES[:200])

    with watch(model, optimizer) as report:
        trainer.run(DIGITS.loader(DIGITS.train, BATCH, shuffle=True), max_epochs=2)
    return report


def ignite_by_hand():
    model = ViT()
    optimizer = adamw(model)

    def step(engine, batch):
        model.train()
        optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(model(batch[0]), dim=-1), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    with watch(model, optimizer) as report:
        Engine(step).run(list(batches()), max_epochs=1)
    return report


def hugging_face():
    """transformers' own model, loss and schedule."""
    from transformers import ViTConfig, ViTForImageClassification, get_cosine_schedule_with_warmup

    config = ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, num_labels=K,
    )  # fmt: skip
    model = ViTForImageClassification(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    schedule = get_cosine_schedule_with_warmup(optimizer, 10, STEPS)
    with watch(model, optimizer) as report:
        for images, labels in batches():
            model(pixel_values=images, labels=labels).loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return report


def pretrained():
    """A model to fine-tune."""
    torch.manual_seed(1)
    model = ViT(classes=5)
    train(model, lambda _: adamw(model, 3e-3), batches(IMAGES[LABELS < 5], LABELS[LABELS < 5], 40))
    model.head = nn.Linear(32, K)
    return model


def freeze(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("head")


def linear_probe():
    model = pretrained()
    optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1, momentum=0.9)
    model.eval()
    model.head.train()
    with watch(model, optimizer) as report:
        for images, labels in batches():
            with torch.no_grad():
                features = model.features(images)
            optimizer.zero_grad()
            F.cross_entropy(model.head(features), labels).backward()
            optimizer.step()
    return report


def with_closure(kind):
    def run():
        model = ViT(dropout=0.0)
        optimizer = kind(model.parameters())
        with watch(model, optimizer) as report:
            for images, labels in batches(steps=25):

                def closure(images=images, labels=labels):
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(images), labels)
                    loss.backward()
                    return loss

                optimizer.step(closure)
        return report

    return run


def epochs(rate=1e-3, evaluation=True, back=True, schedule=None, per_step=False, count=3, no_grad=True):
    """With validation after each epoch."""

    def run():
        model = ViT()
        optimizer = adamw(model, rate)
        plan = schedule and schedule(optimizer)
        with watch(model, optimizer) as report:
            for epoch in range(count):
                if back or not epoch:
                    model.train()
                for images, labels in batches(steps=40):
                    optimizer.zero_grad()
                    F.cross_entropy(model(images), labels).backward()
                    optimizer.step()
                    if plan and per_step:
                        plan.step()
                if plan and not per_step:
                    plan.step()
                if evaluation:
                    model.eval()
                with torch.no_grad():
                    for images, _ in batches(IMAGES[:300], LABELS[:300], 4):
                        model(images)
        return report

    return run


def two_optimizers(of_head="all", watched=0, others_every=1, schedules=False, apart=False):
    """One for the blocks, one for the rest, both watched; apart: each with a forward and a backward pass of its own."""

    def run():
        model = ViT()
        rest = [p for name, p in model.named_parameters() if not name.startswith("blocks")]
        rest = (
            [p for p in rest if p is not model.head.weight and p is not model.head.bias] if of_head == "none" else rest
        )
        pair = [AdamW(model.blocks.parameters(), 1e-3), SGD(rest, 0.05, momentum=0.9)]
        plans = [lr.CosineAnnealingLR(one, STEPS) for one in pair] if schedules else []
        with watch(model, pair[0]) as one, watch(model, pair[1]) as other:
            for step, (images, labels) in enumerate(batches()):
                if not apart:
                    for optimizer in pair:
                        optimizer.zero_grad()
                    F.cross_entropy(model(images), labels).backward()
                for i, optimizer in enumerate(pair):
                    if apart:
                        optimizer.zero_grad()
                        F.cross_entropy(model(images), labels).backward()
                    if i == watched or step % others_every == 0:
                        optimizer.step()
                for plan in plans:
                    plan.step()
        return (one, other)[watched]

    return run


def home_made_loss(logits, labels):
    return -(F.log_softmax(logits, dim=-1) * F.one_hot(labels, K)).sum(dim=-1).mean()


def mixup(model, images, labels):
    share, other = float(torch.rand(())), torch.randperm(len(images))
    logits = model(share * images + (1 - share) * images[other])
    return share * F.cross_entropy(logits, labels) + (1 - share) * F.cross_entropy(logits, labels[other])


def distilled():
    teacher = ViT().eval()

    def objective(model, images, labels):
        with torch.no_grad():
            target = teacher(images).softmax(dim=-1)
        logits = model(images)
        return F.cross_entropy(logits, labels) + F.kl_div(logits.log_softmax(dim=-1), target, reduction="batchmean")

    return train(objective=objective)


def resumed():
    model = ViT()
    before, optimizer = adamw(model), adamw(model)
    train(model, lambda _: before)
    optimizer.load_state_dict(before.state_dict())
    return train(model, lambda _: optimizer)


lr = torch.optim.lr_scheduler
AdamW, Adam, SGD = torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD


def by(kind, rate, **settings):
    """An optimizer of all parameters in one group."""
    return lambda model: kind(model.parameters(), rate, **settings)


RIGHT: dict[str, Callable] = {
    "plain": train,
    "AdamW as it comes": lambda: train(optimizer=by(AdamW, 3e-4)),
    "Adam": lambda: train(optimizer=by(Adam, 1e-3)),
    "Adam with a little decay": lambda: train(optimizer=by(Adam, 1e-3, weight_decay=1e-4)),
    "SGD": lambda: train(optimizer=by(SGD, 0.05)),
    "SGD with momentum": lambda: train(optimizer=by(SGD, 0.03, momentum=0.9, nesterov=True, weight_decay=5e-4)),
    "the book's loop": from_the_book,
    "the book's engine": engine_fit,
    "the engine, all of it": lambda: engine_fit(mixup=0.8, cutmix=1.0, ema=0.9, accumulate=2, bf16=True, erasing=0.2),
    "bfloat16": mixed_precision,
    "float16, scaled and clipped": lambda: mixed_precision(torch.float16),
    "float16, scaled": scaled_without_clipping,
    "accumulation": accumulation,
    "running mean": running_mean,
    "Ignite's trainer": ignite_engine,
    "Ignite by hand, nll": ignite_by_hand,
    "Hugging Face": hugging_face,
    "fine-tuning": lambda: train(pretrained(), by(AdamW, 2e-5)),
    "fine-tuning by SGD": lambda: train(pretrained(), by(SGD, 1e-3, momentum=0.9)),
    "frozen backbone": lambda: train(
        pretrained(), lambda m: torch.optim.AdamW((p for p in m.parameters() if p.requires_grad), 1e-3), prepare=freeze
    ),
    "frozen, all in the optimizer": lambda: train(pretrained(), by(AdamW, 1e-3), prepare=freeze),
    "head alone in the optimizer": lambda: train(pretrained(), lambda m: torch.optim.AdamW(m.head.parameters(), 1e-3)),
    "linear probe": linear_probe,
    "LBFGS": with_closure(lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3)),
    "SGD with a closure": with_closure(lambda p: torch.optim.SGD(p, 0.05)),
    "epochs": epochs(),
    "a schedule by epochs": epochs(schedule=lambda o: lr.CosineAnnealingLR(o, 3)),
    "a schedule by steps": epochs(schedule=lambda o: lr.CosineAnnealingLR(o, 120), per_step=True),
    "OneCycle": epochs(3e-4, schedule=lambda o: lr.OneCycleLR(o, 3e-3, total_steps=121), per_step=True),
    "warm-up, then cosine": epochs(
        schedule=lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.01, 1.0, 20), lr.CosineAnnealingLR(o, 100)], [20]),
        per_step=True,
    ),
    "the start of a long warm-up": lambda: train(schedule=lambda o: lr.LambdaLR(o, lambda s: min(1.0, s / 5000))),
    "decay by epochs": epochs(schedule=lambda o: lr.StepLR(o, 1, 0.1)),
    "two optimizers": two_optimizers(),
    "two optimizers, the second": two_optimizers(watched=1),
    "two optimizers in turn": two_optimizers(apart=True, schedules=True),
    "two optimizers, one now and then": two_optimizers(others_every=4, apart=True),
    "home-made loss": lambda: train(loss=home_made_loss),
    "label smoothing": lambda: train(loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
    "summed loss": lambda: train(loss=lambda x, y: F.cross_entropy(x, y, reduction="sum") / len(y)),
    "mixup": lambda: train(objective=mixup),
    "distillation": distilled,
    "resumed": resumed,
    "clipped at 1": lambda: train(after_backward=lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1.0)),
    "SAM-like second pass": lambda: train(
        loss=lambda x, y: F.cross_entropy(x, y) + 0.1 * F.cross_entropy(x.flip(0), y.flip(0))
    ),
    "half-half normalization": lambda: train(data=batches(DIGITS.train.images.float() / 127.5 - 1, LABELS)),
    "noise": lambda: train(augment=lambda x: x + 0.3 * torch.randn_like(x)),
    "many steps": lambda: train(steps=400),
    "a single step": lambda: train(steps=1),
    "no step": lambda: train(data=iter(())),
}

# Wrong ones


class SoftmaxViT(ViT):
    def forward(self, images):
        return super().forward(images).softmax(dim=-1)


class SigmoidViT(ViT):
    def forward(self, images):
        return super().forward(images).sigmoid()


class DetachedViT(ViT):
    def features(self, images):
        return super().features(images.detach()).detach()


class Unused(ViT):
    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(32, 32)


class BreakingViT(ViT):
    """A layer after the blocks that makes NaN from step 30 on, in the forward or in the backward pass."""

    def __init__(self, forward):
        super().__init__()
        self.middle = Breaking(forward)

    def features(self, images):
        x = super().features(images)
        return x + self.middle(x)


class Breaking(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.weight, self.in_forward, self.calls = nn.Parameter(torch.ones(1)), forward, 0

    def forward(self, x):
        self.calls += 1
        if self.calls < 30:
            return self.weight * x
        if self.in_forward:
            return self.weight * torch.log(-x.abs())
        return self.weight * torch.sqrt((x - x.detach()) ** 2)  # 0, with a slope of NaN


def wide_head(model):
    nn.init.normal_(model.head.weight, std=3.0)


def replaced_head():
    model = ViT(classes=7)
    optimizer = adamw(model)
    model.head = nn.Linear(32, K)
    return train(model, lambda _: optimizer)


def copied():
    model = ViT()
    optimizer = adamw(model)
    return train(copy.deepcopy(model), lambda _: optimizer)


def scheduler_first(every_step):
    def run():
        model = ViT()
        optimizer = adamw(model)
        schedule = lr.StepLR(optimizer, 1, 0.5) if not every_step else lr.CosineAnnealingLR(optimizer, 100)
        with watch(model, optimizer) as report:
            for _ in range(2):
                if not every_step:
                    schedule.step()
                for images, labels in batches(steps=30):
                    loss = F.cross_entropy(model(images), labels)
                    optimizer.zero_grad()
                    loss.backward()
                    if every_step:
                        schedule.step()
                    optimizer.step()
        return report

    return run


def without(part):
    return lambda m: torch.optim.AdamW(
        parameter_groups(nn.ModuleList([c for n, c in m.named_children() if n != part]), 0.05), 1e-3
    )


def zero_another(model):
    SGD(ViT().parameters(), 0.1).zero_grad()


def no_decay_of_biases(model):
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    rest = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    return AdamW([{"params": rest, "weight_decay": 0.05}, {"params": biases, "weight_decay": 0.0}], lr=1e-3)


def warm_by_epochs(optimizer):
    return lr.LambdaLR(optimizer, lambda step: step / 100)  # the first epoch's rate is 0


def clip(limit):
    return lambda m: nn.utils.clip_grad_norm_(m.parameters(), limit)


SORTED = LABELS.sort().indices
PIXELS = DIGITS.train.images.float()
SHUFFLED = LABELS[torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(3))]

WRONG: dict[str, dict[str, Callable]] = {  # the question that must find them → loops with one fault each
    "loss_gets_logits": {
        "softmax in the model": lambda: train(SoftmaxViT()),
        "softmax in the loop": lambda: train(loss=lambda x, y: nn.CrossEntropyLoss()(x.softmax(1), y)),
        "sigmoid in the model": lambda: train(SigmoidViT()),
        "nll of logits": lambda: train(loss=nn.NLLLoss()),
        "nll of shares": lambda: train(loss=lambda x, y: F.nll_loss(x.softmax(-1), y)),
    },
    "first_loss_is_not_above_ln_k": {
        "wide head": lambda: train(prepare=wide_head),
        "logits times 30": lambda: train(loss=lambda x, y: F.cross_entropy(30 * x, y)),
    },
    "labels_are_in_range": {
        "labels from 1": lambda: train(data=batches(IMAGES, LABELS + 1)),
        "labels from 1, head for 11": lambda: train(ViT(classes=11), data=batches(IMAGES, LABELS + 1)),
        "head for 7": lambda: train(ViT(classes=7)),
    },
    "batches_mix_classes": {"not shuffled": lambda: train(data=batches(IMAGES[SORTED], LABELS[SORTED], shuffle=False))},
    "labels_match_images": {
        "shuffled labels": lambda: train(data=batches(labels=SHUFFLED)),
        "labels of the next image": lambda: train(data=batches(labels=LABELS.roll(1))),
    },
    "rate_is_not_too_large": {
        "AdamW at 0.1": lambda: train(optimizer=by(AdamW, 0.1)),
        "AdamW at 0.3": lambda: train(optimizer=by(AdamW, 0.3)),
        "SGD at 10": lambda: train(optimizer=by(SGD, 10.0)),
        "SGD at 3, momentum": lambda: train(optimizer=by(SGD, 3.0, momentum=0.9)),
    },
    "rate_is_not_too_small": {
        "AdamW at 1e-8": lambda: train(optimizer=by(AdamW, 1e-8)),
        "AdamW at 1e-7": lambda: train(optimizer=by(AdamW, 1e-7)),
        "SGD at 1e-5": lambda: train(optimizer=by(SGD, 1e-5, momentum=0.9)),
        "SGD at Adam's 1e-4": lambda: train(optimizer=by(SGD, 1e-4)),
    },
    "images_are_normalized_once": {
        "normalized twice": lambda: train(augment=lambda x: (x - DIGITS.mean) / DIGITS.std),
        "never normalized": lambda: train(data=batches(PIXELS / 255, LABELS)),
        "pixels to 255": lambda: train(data=batches(PIXELS, LABELS)),
        "255 and then normalized": lambda: train(data=batches((PIXELS - 0.3) / 0.37, LABELS)),
        "divided by 255 twice": lambda: train(data=batches(PIXELS / 255 / 255, LABELS)),
    },
    "schedule_fits": {
        "schedule before the optimizer": scheduler_first(True),
        "schedule before the epoch": scheduler_first(False),
        "cosine of epochs, each step": epochs(schedule=lambda o: lr.CosineAnnealingLR(o, 3), per_step=True),
        "decay of epochs, each step": epochs(schedule=lambda o: lr.StepLR(o, 10, 0.1), per_step=True),
        "warm-up of steps, each epoch": epochs(schedule=warm_by_epochs),
        "exponential, each step": epochs(schedule=lambda o: lr.ExponentialLR(o, 0.9), per_step=True),
    },
    "only_matrices_decay": {
        "decay on everything": lambda: train(optimizer=by(AdamW, 1e-3, weight_decay=0.1)),
        "decay on norms": lambda: train(optimizer=no_decay_of_biases),
        "Adam's decay": lambda: train(optimizer=lambda m: torch.optim.Adam(parameter_groups(m, 0.1), 1e-3)),
    },
    "gradients_are_not_always_clipped": {
        "clipped at 0.01": lambda: train(after_backward=clip(0.01)),
        "clipped by value": lambda: train(after_backward=lambda m: nn.utils.clip_grad_value_(m.parameters(), 1e-4)),
    },
    "gradients_are_zeroed": {
        "never zeroed": lambda: train(zero=False),
        "another optimizer zeroed": lambda: train(zero=False, after_backward=zero_another),
    },
    "parameters_are_trained": {
        "head in neither optimizer": two_optimizers(of_head="none"),
        "positions not in the optimizer": lambda: train(optimizer=without("none")),
        "head not in the optimizer": lambda: train(optimizer=without("head")),
        "head replaced later": replaced_head,
        "model copied later": copied,
        "detached": lambda: train(DetachedViT()),
        "unused layer": lambda: train(Unused()),
        "head frozen": lambda: train(prepare=lambda m: m.head.requires_grad_(False)),
    },
    "trains_in_training_mode": {"eval, and never back": epochs(back=False)},
    "evaluates_in_evaluation_mode": {"evaluated with dropout": epochs(evaluation=False)},
    "all_is_finite": {
        "NaN in the forward pass": lambda: train(BreakingViT(True)),
        "NaN in the backward pass": lambda: train(BreakingViT(False)),
        "NaN in an image": lambda: train(augment=lambda x: x.masked_fill(torch.rand_like(x) < 1e-4, math.nan)),
        "NaN in the loss": lambda: train(loss=lambda x, y: F.cross_entropy(x, torch.full_like(y, -100))),
    },
}


def reported(run: Callable):
    """The report of a loop, also of one that ends with an error of torch's."""
    reports, original = [], TrainingReport.__init__

    def keep(self, recorder):
        original(self, recorder)
        reports.append(self)

    with patch.object(TrainingReport, "__init__", keep), suppress(IndexError):
        run()
    return reports[-1]
