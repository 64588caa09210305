"""The engine trains as the bare loop does, and goes on after a kill as if nothing had been."""

import json
import math
import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path

import ignite.distributed as idist
import pytest
import torch
import torch._inductor.config
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.testing import assert_close

from vitbook import engine
from vitbook.checkpoint import load_checkpoint
from vitbook.cnn import SmallCNN
from vitbook.data import Split, digits, normalize
from vitbook.engine import ORDER, TrainConfig, Training, average, batches, fit
from vitbook.imbalance import balanced_accuracy, by_class, macro_f1
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import VisionTransformer, create_vit

PLAIN = TrainConfig(epochs=2, batch_size=16, label_smoothing=0.0, affine=0.0)
# every source of random numbers at once
RICH = replace(PLAIN, epochs=3, affine=1.0, crop=1, flip=True, mixup=0.3, cutmix=1.0, ema=0.9, label_smoothing=0.1)
RICH = replace(RICH, randaugment_ops=2, erasing=0.5, optimizer="muon")


@dataclass
class Data:
    """48 digits in 6 batches to train on, 20 to choose by; the test pictures may not be looked at."""

    train: Split
    validation: Split | None
    mean: torch.Tensor
    std: torch.Tensor
    name: str = "digits"
    class_names: tuple[str, ...] = tuple("0123456789")
    task: str = "classes"
    scale: tuple[float, float] = (0.0, 1.0)

    @property
    def test(self):
        raise AssertionError("the test pictures are not for training")


def some_data(validation: bool = True, pictures: int = 50) -> Data:
    every = digits()
    images, labels = every.train.images, every.train.labels
    chosen = Split(images[-20:], labels[-20:]) if validation else None
    return Data(Split(images[:pictures], labels[:pictures]), chosen, every.mean, every.std)


def some_model(**changes) -> VisionTransformer:
    torch.manual_seed(0)
    sizes = dict(dim=12, depth=2, num_heads=3, mlp_dim=20, patch_size=4)
    model = create_vit("vit_digits", **sizes | changes)
    nn.init.normal_(model.head.weight, std=0.1)
    return model


def trained(config: TrainConfig, model: nn.Module | None = None, **settings) -> nn.Module:
    model = model or some_model()
    fit(model, some_data(settings.pop("validation", True)), config, progress=False, **settings)
    return model


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def largest_gap(one: nn.Module, other: nn.Module) -> float:
    """Between any two weights. The keys' biases are left out: they change no attention weight, so that their gradient
    is rounding alone, of which AdamW makes whole steps."""
    gap = 0.0
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        apart = (a - b).abs()
        if name.endswith("qkv.bias"):
            queries, _, values = apart.chunk(3)
            apart = torch.cat([queries, values])
        gap = max(gap, apart.max().item())
    return gap


# What training is


def test_it_takes_the_same_steps_as_the_bare_loop():
    config = replace(PLAIN, label_smoothing=0.1, seed=3)
    data, bare = some_data(validation=False), some_model()
    optimizer = torch.optim.AdamW(parameter_groups(bare, 0.1), lr=3e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, 6, 0))
    for epoch in (1, 2):
        order = torch.randperm(50, generator=torch.Generator().manual_seed(engine._one_seed(3, ORDER, epoch)))
        parts = order[:48].split(16)
        shown = [(normalize(data.train.images[i], data.mean, data.std), data.train.labels[i]) for i in parts]
        train_epoch(bare, shown, optimizer, schedule, label_smoothing=0.1)
    ours = some_model()
    history = fit(ours, data, config, progress=False)
    assert same_weights(ours, bare)
    assert [record["step"] for record in history] == [3, 6]


def test_it_learns():
    history = fit(some_model(), some_data(), replace(PLAIN, epochs=30, learning_rate=1e-2), progress=False)
    assert history[0]["train_loss"] > 2.2
    assert history[-1]["train_loss"] < 0.5
    assert history[-1]["train_accuracy"] > 0.9
    assert history[-1]["validation_accuracy"] > 0.3  # of 20 digits, after 24 others; chance is 0.1


CHANGES = dict(epochs=3, batch_size=8, optimizer="muon", learning_rate=1e-3, warmup=0.5, weight_decay=0.0, seed=1)
CHANGES |= dict(betas=(0.8, 0.9), layer_decay=0.5, clip_norm=0.1, label_smoothing=0.1, patch_dropout=0.5, ema=0.5)
CHANGES |= dict(randaugment_ops=1, affine=1.0, crop=1, flip=True, erasing=0.5, mixup=0.3, cutmix=1.0, bf16=True)
CHANGES |= dict(balance="loss")


@pytest.mark.slow
def test_every_setting_of_the_recipe_changes_the_weights(monkeypatch):
    monkeypatch.setattr("vitbook.engine.has_bfloat16", lambda device: True)
    base = trained(PLAIN, validation=False)
    assert same_weights(base, trained(PLAIN, validation=False))
    for name, value in CHANGES.items():
        other = trained(replace(PLAIN, **{name: value}), validation=False)
        assert not same_weights(base, other), name
    strong, weak = (replace(PLAIN, randaugment_ops=1, randaugment_magnitude=value) for value in (9.0, 1.0))
    assert not same_weights(trained(strong, validation=False), trained(weak, validation=False))
    fast, slow = (replace(PLAIN, optimizer="muon", muon_learning_rate=value) for value in (6e-3, 6e-2))
    assert not same_weights(trained(fast, validation=False), trained(slow, validation=False))
    for changes in (dict(teacher_weight=0.2), dict(teacher_temperature=3.0)):
        config, teacher = replace(PLAIN, **changes), some_model(depth=1)
        assert not same_weights(trained(config, teacher=teacher), trained(PLAIN, teacher=teacher)), changes
    elsewhere = {"randaugment_magnitude", "full_patches", "accumulate", "compile", "patience", "checkpoint_steps"}
    elsewhere |= {"muon_learning_rate", "teacher_weight", "teacher_temperature", "resize", "best"}
    assert set(CHANGES) | elsewhere == {field.name for field in fields(TrainConfig)}


def test_layer_decay_is_a_share_of_the_rate_at_every_step():
    """With AdamW's first step, which is as long as the rate, a layer moves by its share of what the head moves."""
    config = replace(PLAIN, epochs=1, batch_size=48, warmup=0.0, weight_decay=0.0, layer_decay=0.1)
    before, after = some_model(), trained(config, validation=False)
    moved = {name: (after.get_parameter(name) - p).abs().median().item() for name, p in before.named_parameters()}
    shares = {"head.bias": 1, "norm.weight": 1, "encoder.blocks.1.mlp.fc1.weight": 0.1}
    shares |= {"encoder.blocks.0.mlp.fc1.weight": 0.01, "embedding.patch_embed.proj.weight": 0.001}
    for name, share in shares.items():
        assert moved[name] == pytest.approx(3e-3 * share, rel=0.02), name


def test_the_last_steps_see_every_patch():
    seen = []
    model = some_model()
    patches = model.config.image_size[0] * model.config.image_size[1] // model.config.patch_size**2
    model.encoder.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].shape[1] - 1))
    trained(replace(PLAIN, epochs=2, patch_dropout=0.5, full_patches=0.34), model, validation=False)
    assert seen == [patches // 2] * 4 + [patches] * 2  # 6 steps, of which 0.66 · 6 = 3.96 are over after 4
    assert model.embedding.patch_dropout == 0


def test_dropout_and_drop_path_follow_the_seed_and_leave_the_callers_random_numbers_alone():
    models = []
    for settings in (dict(dropout=0.3), dict(drop_path=0.3), dict()):
        one, other = (some_model(**settings) for _ in range(2))
        torch.manual_seed(5)
        before = torch.get_rng_state()
        trained(PLAIN, one)
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(7)
        trained(PLAIN, other)
        assert same_weights(one, other)
        models.append(one)
    assert not same_weights(models[0], models[2])
    assert not same_weights(models[1], models[2])


def test_a_run_seeds_its_own_device_alone(monkeypatch):
    seeded, model = [], some_model()

    @contextmanager
    def current(device):
        seeded.append(str(device))
        yield
        seeded.append("before")

    monkeypatch.setattr(torch.cuda, "device", current)
    for module in (torch.cuda, torch.mps):
        monkeypatch.setattr(module, "manual_seed", seeded.append)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    trained(PLAIN, model)
    assert seeded == []
    engine._seed_generators(torch.device("cuda:1"), 5)
    drawn = torch.rand(3)
    torch.default_generator.manual_seed(5)
    assert seeded == ["cuda:1", 5, "before"] and torch.equal(drawn, torch.rand(3))
    seeded.clear()
    engine._seed_generators(torch.device("mps"), 6)
    assert seeded == [6]


def test_a_batch_in_parts_is_the_batch():
    whole, parts = some_model(), some_model()
    one = fit(whole, some_data(), PLAIN, progress=False)
    other = fit(parts, some_data(), replace(PLAIN, accumulate=4), progress=False)
    assert largest_gap(whole, some_model()) > 5e-3
    assert largest_gap(whole, parts) < 1e-4
    for mine, theirs in zip(one, other, strict=True):
        assert without_times(theirs) == pytest.approx(without_times(mine), rel=1e-3)


def test_bfloat16_stays_near_float32(monkeypatch):
    monkeypatch.setattr("vitbook.engine.has_bfloat16", lambda device: True)
    assert 0 < largest_gap(trained(PLAIN), trained(replace(PLAIN, bf16=True))) < 0.02


def test_a_device_without_bfloat16_trains_in_float32_and_says_so(monkeypatch):
    monkeypatch.setattr("vitbook.engine.has_bfloat16", lambda device: False)
    with pytest.warns(UserWarning, match="CPU has no bfloat16 of its own .*: training in float32"):
        model = trained(replace(PLAIN, bf16=True))
    assert same_weights(model, trained(PLAIN))


COMPILED = replace(PLAIN, epochs=2, patch_dropout=0.5, full_patches=0.5, ema=0.9)


@pytest.mark.slow
@pytest.mark.door  # torch cannot trace the checking of shapes
def test_what_torch_traces_trains_to_the_same_weights(monkeypatch):
    """The whole of torch.compile but the code that it writes in the end, for which it needs a C++ compiler."""
    compiled, compile = [], partial(torch.compile, backend="aot_eager")
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or compile(model))
    assert largest_gap(trained(replace(COMPILED, compile=True)), trained(COMPILED)) < 1e-5
    assert len(compiled) == 1


@pytest.mark.slow
@pytest.mark.door
@pytest.mark.parametrize("bf16", [False, True])
def test_compiled_code_trains_to_the_same_weights(bf16, monkeypatch):
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("torch.compile needs a C++ compiler")
    monkeypatch.setattr("vitbook.engine.has_bfloat16", lambda device: True)
    config = replace(COMPILED, bf16=bf16)
    with torch._inductor.config.patch(fallback_random=True):  # else it draws other patches to leave out
        compiled = trained(replace(config, compile=True))
    assert largest_gap(compiled, trained(config)) < (0.02 if bf16 else 1e-4)


def test_the_running_mean_is_what_its_formula_says():
    mean, model = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    nn.init.constant_(model.weight, 5.0)
    model.running_mean += 2
    average(mean, model, 0.9)
    assert_close(mean.weight.detach(), torch.full((3,), 0.9 * 1 + 0.1 * 5))
    assert_close(mean.running_mean, model.running_mean)


def test_the_running_mean_is_evaluated_and_kept(tmp_path):
    model = trained(replace(PLAIN, ema=0.9), folder=tmp_path, validation=False)  # the last weights are the best
    tensors, _ = load_checkpoint(tmp_path / "last.json")
    best, _ = load_checkpoint(tmp_path / "best.json")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, tensors[f"ema.{name}"]) and torch.equal(tensor, best[name])
    assert not torch.equal(tensors["ema.head.weight"], tensors["model.head.weight"])


def test_the_models_mode_is_left_as_it_was():
    one, other = trained(PLAIN, some_model(dropout=0.3).eval()), trained(PLAIN, some_model(dropout=0.3).train())
    assert (one.training, other.training) == (False, True)
    assert same_weights(one, other)
    part = some_model().train()
    part.norm.eval()
    assert trained(PLAIN, part).training and not part.norm.training and part.encoder.training


def test_an_interrupted_training_leaves_the_model_in_its_mode_with_every_patch():
    model = Interrupted(some_model(), 2).eval()
    with pytest.raises(Power):
        trained(replace(PLAIN, patch_dropout=0.5), model)
    assert not any(module.training for module in model.modules())
    assert model.model.embedding.patch_dropout == 0


# What is written


def test_log_and_checkpoints_hold_what_happened(tmp_path):
    model, data = some_model(), some_data()
    history = fit(model, data, PLAIN, tmp_path / "run", progress=False)
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == history
    names = "epoch step lr train_loss train_accuracy gradient_norm validation_loss validation_accuracy"
    assert list(history[0]) == [*names.split(), "images_per_second", "seconds"]
    assert [record["epoch"] for record in history] == [1, 2]
    assert history[0]["seconds"] < history[1]["seconds"]

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("epoch/validation_loss")] == [3, 6]
    assert events.Scalars("epoch/train_loss")[1].value == pytest.approx(history[1]["train_loss"])

    result = evaluate(model, batches(data.validation, data.mean, data.std, 16))
    best = max(history, key=lambda record: record["validation_accuracy"])
    assert best["validation_loss"] == pytest.approx(result.loss, rel=1e-6)
    assert best["validation_accuracy"] == pytest.approx(result.accuracy)

    tensors, facts = load_checkpoint(tmp_path / "run" / "last.json")
    assert (facts["step"], facts["history"], facts["dataset"]) == (6, history, "digits")
    assert TrainConfig(**facts["config"]) == PLAIN
    assert facts["model"] == json.loads(json.dumps(asdict(model.config)))
    assert facts["class_names"] == list("0123456789")
    assert_close(torch.tensor(facts["mean"]), data.mean, rtol=0, atol=0)
    assert_close(torch.tensor(facts["std"]), data.std, rtol=0, atol=0)
    best, facts = load_checkpoint(tmp_path / "run" / "best.json")
    assert facts["best"] == max(history, key=lambda record: record["validation_accuracy"])
    model.load_state_dict(best, strict=True)


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained(PLAIN)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_run_is_not_written_over_even_if_only_the_best_is_left(tmp_path):
    trained(PLAIN, folder=tmp_path)
    before = (tmp_path / "best.json").read_text()
    with pytest.raises(ValueError, match="already holds a training run: resume it, or name another folder"):
        trained(PLAIN, folder=tmp_path)
    (tmp_path / "last.json").unlink()
    with pytest.raises(ValueError, match="already holds the best of a training run: name another folder"):
        trained(PLAIN, folder=tmp_path)
    assert (tmp_path / "best.json").read_text() == before
    trained(PLAIN, folder=tmp_path, resume=True)


# Stopping early


def test_patience_ends_and_the_best_weights_are_left(tmp_path):
    accuracies = iter([0.3, 0.5, 0.4, 0.5, 0.1, 0.9])
    weights = []

    class Scripted(engine.Training):
        def validate(self):
            weights.append({name: tensor.clone() for name, tensor in self.model.state_dict().items()})
            return {"validation_loss": 1.0, "validation_accuracy": next(accuracies)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "Training", Scripted)
        model = some_model()
        history = fit(model, some_data(), replace(PLAIN, epochs=20, patience=3), tmp_path, progress=False)
        assert len(history) == 5
        assert load_checkpoint(tmp_path / "best.json")[1]["best"]["epoch"] == 2
        assert all(torch.equal(tensor, weights[1][name]) for name, tensor in model.state_dict().items())
        again = some_model()
        assert fit(again, some_data(), replace(PLAIN, epochs=20, patience=3), tmp_path, True, False) == history
        assert same_weights(again, model)


# Errors


class Spoiled(nn.Module):
    """From a certain call on, scores or their gradients are not finite."""

    def __init__(self, call: int, what: str):
        super().__init__()
        self.model, self.calls, self.call, self.what = some_model(), 0, call, what

    def forward(self, images):
        scores = self.model(images)
        self.calls += self.training
        if self.training and self.calls == self.call:
            if self.what == "loss":
                return scores * math.nan
            scores.register_hook(lambda gradient: gradient / 0)
        return scores


@pytest.mark.parametrize("what", ["loss", "gradient"])
@pytest.mark.parametrize(("checkpoint_steps", "spoiled", "saved"), [(0, 5, 3), (2, 5, 4), (2, 4, 2)])
def test_what_is_not_finite_stops_training_and_spoils_no_checkpoint(tmp_path, what, checkpoint_steps, spoiled, saved):
    config = replace(PLAIN, checkpoint_steps=checkpoint_steps)
    with pytest.raises(FloatingPointError, match=rf"in step {spoiled}, epoch 2; the last checkpoint is .*last\.json"):
        trained(config, Spoiled(spoiled, what), folder=tmp_path)
    tensors, facts = load_checkpoint(tmp_path / "last.json")
    assert facts["step"] == saved
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert all(tensor.isfinite().all() for tensor in load_checkpoint(tmp_path / "best.json")[0].values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(batch_size=51), "batch_size must be at most 50, the training images, got 51"),
        (dict(accumulate=3), "batch_size must be divisible by 1 processes × accumulate 3, got 16"),
        (dict(patience=2), "patience 2 needs validation images"),
        (dict(crop=100), "crop must be less than .*, the images' side in pixels, got 100"),
    ],
)
def test_what_does_not_fit_the_data_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        trained(replace(PLAIN, **changes), validation=False)


def test_a_model_that_does_not_fit_is_named():
    with pytest.raises(ValueError, match="model must have weights to train, this Flatten has none"):
        trained(PLAIN, nn.Flatten())
    with pytest.raises(ValueError, match="patch_dropout needs a model with patches, got SmallCNN"):
        trained(replace(PLAIN, patch_dropout=0.5), SmallCNN(channels=1, num_classes=10, width=2))
    with pytest.raises(ValueError, match="layer-wise rates need encoder blocks, a SmallCNN has none"):
        trained(replace(PLAIN, layer_decay=0.5), SmallCNN(channels=1, num_classes=10, width=2))
    with pytest.raises(ValueError, match="layer_decay 0.5 needs optimizer adamw, got muon"):
        trained(replace(PLAIN, layer_decay=0.5, optimizer="muon"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(epochs=0), "epochs must be at least 1, got 0"),
        (dict(epochs=2.5), "epochs must be of type int, got 2.5"),
        (dict(epochs="2"), "epochs must be of type int, got '2'"),
        (dict(crop=10**23), "crop must be at least 0 and less than 2147483648, got 1000"),
        (dict(seed=True), "seed must be of type int, got True"),
        (dict(seed=2**63), "seed must be at least 0 and less than 9223372036854775808"),
        (dict(flip=1), "flip must be of type bool, got 1"),
        (dict(learning_rate=math.nan), "learning_rate must be finite, at least 0, got nan"),
        (dict(weight_decay=math.inf), "weight_decay must be finite, at least 0, got inf"),
        (dict(clip_norm=-1), "clip_norm must be finite, at least 0, got -1"),
        (dict(patch_dropout=1.0), "patch_dropout must be finite, at least 0 and less than 1, got 1.0"),
        (dict(randaugment_magnitude=30.5), "RandAugment's magnitude must lie in 0 … 30, got 30.5"),
        (dict(betas=(0.9,)), r"betas must be of type tuple.*, got \(0.9,\)"),
        (dict(betas=None), "betas must be of type tuple.*, got None"),
        (dict(betas=(0.9, "x")), "betas must be of type tuple"),
        (dict(betas=(0.9, 1.0)), r"betas must be finite, at least 0 and less than 1, got \(0.9, 1.0\)"),
    ],
)
def test_a_setting_out_of_range_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        TrainConfig(**changes)


# Going on


class Power(Exception):
    """It went out."""


class Interrupted(nn.Module):
    """Raises at one call, between forward and backward."""

    def __init__(self, model: nn.Module, call: int):
        super().__init__()
        self.model, self.config, self.calls, self.call = model, model.config, 0, call

    def forward(self, images):
        self.calls += self.training
        if self.calls == self.call:
            raise Power
        return self.model(images)


def without_times(record: dict) -> dict:
    """Without what the clock says."""
    return {name: value for name, value in record.items() if name not in ("images_per_second", "seconds")}


@pytest.mark.parametrize("checkpoint_steps", [pytest.param(0, marks=pytest.mark.slow), 4])
def test_a_training_interrupted_at_any_step_ends_as_if_it_had_not_been(tmp_path, checkpoint_steps):
    config = replace(RICH, checkpoint_steps=checkpoint_steps)
    settings = dict(dropout=0.1, drop_path=0.1)

    def model(call=-1):
        return Interrupted(some_model(**settings), call)

    whole = model()
    history = fit(whole, some_data(), config, tmp_path / "whole", progress=False)
    for call in (1, 3, 4, 5, 9):
        folder = tmp_path / str(call)
        with pytest.raises(Power):
            fit(model(call), some_data(), config, folder, progress=False)
        resumed = model()
        again = fit(resumed, some_data(), config, folder, resume=True, progress=False)
        assert resumed.calls <= 9 - (call - 1) + (checkpoint_steps or 3) - 1, "it went on, not back to the start"
        assert same_weights(resumed, whole), f"interrupted at step {call}"
        assert list(map(without_times, again)) == list(map(without_times, history))
        assert len((folder / "log.jsonl").read_text().splitlines()) == 3
        for name in ("last", "best"):
            ours, theirs = (load_checkpoint(place / f"{name}.json")[0] for place in (folder, tmp_path / "whole"))
            assert_close(ours, theirs, rtol=0, atol=0)


def small_cnn() -> nn.Module:
    """In channels_last, as records/until_flat.py trains it."""
    torch.manual_seed(0)
    return SmallCNN(channels=1, num_classes=10, width=8).to(memory_format=torch.channels_last)


class Tied(nn.Module):
    """Two layers of which one weight is the other's."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)
        self.other.weight = self.one.weight

    def forward(self, images):
        return self.head(torch.relu(self.other(torch.relu(self.one(images.flatten(1))))))


@pytest.mark.parametrize("make", [small_cnn, Tied])
def test_weights_in_another_order_or_tied_are_gone_on_with_as_well(tmp_path, monkeypatch, make):
    config = replace(PLAIN, checkpoint_steps=4)
    whole, killed, resumed = make(), make(), make()
    trained(config, whole, validation=False)
    with monkeypatch.context() as patch, pytest.raises(Power):
        step = engine.Training.take_step

        def stop(training, *arguments):
            if training.step == 5:
                raise Power
            step(training, *arguments)

        patch.setattr(engine.Training, "take_step", stop)
        trained(config, killed, folder=tmp_path, validation=False)
    trained(config, resumed, folder=tmp_path, resume=True, validation=False)
    assert same_weights(resumed, whole)
    assert not same_weights(killed, whole)


def logged_steps(folder: Path) -> list[int]:
    """The steps at which TensorBoard has a point."""
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return [event.step for event in events.Scalars("epoch/train_loss")]


def wait_for_the_next_second() -> None:
    """TensorBoard reads its files in the order of their names, which begin with the second in which each was made."""
    time.sleep(1 - time.time() % 1)


def test_an_epoch_that_ended_without_its_record_is_not_taken_for_done(tmp_path, monkeypatch):
    """The power goes out between the last step of an epoch and the end of its evaluation."""
    config = replace(RICH, checkpoint_steps=1)
    whole = fit(some_model(), some_data(), config, tmp_path / "whole", progress=False)
    calls = iter(range(10))

    def evaluate_once(*arguments):
        if next(calls):
            raise Power
        return evaluate(*arguments)

    with monkeypatch.context() as patch, pytest.raises(Power):
        patch.setattr(engine, "evaluate", evaluate_once)
        fit(some_model(), some_data(), config, tmp_path / "killed", progress=False)
    wait_for_the_next_second()
    again = fit(some_model(), some_data(), config, tmp_path / "killed", resume=True, progress=False)
    assert list(map(without_times, again)) == list(map(without_times, whole))
    assert logged_steps(tmp_path / "killed") == [3, 6, 9]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(step="x"), "does not hold what a run goes on from"),
        (dict(step=10**6), "step 1000000 of 6"),
        (dict(step=0), "step 0 of 6"),
        (dict(seconds=None), "does not hold what a run goes on from"),
        (dict(history=3), "does not hold what a run goes on from"),
        (dict(history=[]), "step 6 of 6, 0 epochs in its history"),
        (dict(config={}), "holds another run"),
    ],
)
def test_a_run_does_not_go_on_from_what_is_none(tmp_path, changes, message):
    trained(PLAIN, folder=tmp_path)
    path = tmp_path / "last.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=message) as caught:
        trained(PLAIN, folder=tmp_path, resume=True)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("balance", ["sample", "loss", "logits"])
def test_of_a_rare_class_more_is_found_when_classes_count_alike(balance):
    """Four threes to 40 eights, whose pixels are much the same."""
    every, found = digits(), {}
    chosen = torch.cat([(every.train.labels == k).nonzero()[:n, 0] for k, n in ((8, 40), (3, 4))])
    few = Split(every.train.images[chosen], (every.train.labels[chosen] == 3).long())
    test = every.test.select(torch.isin(every.test.labels, torch.tensor([3, 8])))
    test = replace(test, labels=(test.labels == 3).long())
    for how in ("none", balance):
        model = some_model(num_classes=2)
        data = Data(few, None, every.mean, every.std, class_names=("8", "3"))
        fit(model, data, replace(PLAIN, epochs=6, batch_size=11, learning_rate=3e-3, balance=how), progress=False)
        found[how] = by_class(evaluate(model, batches(test, every.mean, every.std, 100)).confusion)[1]
    assert found[balance][1] > found["none"][1] + 0.1, "the rare class"


@pytest.mark.parametrize("best", ["balanced", "macro-f1", "loss"])
def test_the_epoch_that_is_kept_is_the_best_by_what_was_asked_for(best, tmp_path):
    model = some_model()
    records = fit(model, some_data(), replace(PLAIN, epochs=4, learning_rate=0.02, best=best), tmp_path, progress=False)
    values = [record[f"validation_{best.replace('-', '_')}"] for record in records]
    wanted = min(values) if best == "loss" else max(values)
    kept = json.loads((tmp_path / "best.json").read_text())["best"]
    assert kept["epoch"] == values.index(wanted) + 1
    result = evaluate(model, batches(some_data().validation, some_data().mean, some_data().std, 7))
    now = {"balanced": balanced_accuracy, "macro-f1": macro_f1}.get(best, lambda _: result.loss)(result.confusion)
    assert now == pytest.approx(wanted, abs=1e-6)
    with pytest.raises(ValueError, match=f"best {best} needs validation images, got none"):
        fit(model, some_data(validation=False), replace(PLAIN, best=best), progress=False)


def test_a_finished_training_stays_as_it_is(tmp_path):
    model = trained(PLAIN, folder=tmp_path)
    before = (tmp_path / "last.json").read_text()
    again = some_model()
    assert len(fit(again, some_data(), PLAIN, tmp_path, resume=True, progress=False)) == 2
    assert same_weights(again, model)
    assert (tmp_path / "last.json").read_text() == before


def test_another_version_of_a_library_is_said(tmp_path):
    trained(PLAIN, folder=tmp_path)
    facts = json.loads((tmp_path / "last.json").read_text())
    facts["versions"]["torch"] = "1.0"
    (tmp_path / "last.json").write_text(json.dumps(facts))
    with pytest.warns(UserWarning, match="versions.torch is 1.0 there, .* here: it goes on, but may not end with the"):
        trained(PLAIN, folder=tmp_path, resume=True)


def test_another_run_is_not_gone_on_with(tmp_path):
    """Also one on other images, though their mean and standard deviation are said to be the same."""
    trained(PLAIN, folder=tmp_path)
    with pytest.raises(ValueError, match="holds another run: config.epochs is 2 there, 9 here"):
        trained(replace(PLAIN, epochs=9), folder=tmp_path, resume=True)
    with pytest.raises(ValueError, match="model.depth is 2 there, 1 here"):
        trained(PLAIN, some_model(depth=1), folder=tmp_path, resume=True)
    for part in ("train", "validation"):
        data = some_data()
        getattr(data, part).images[3, 0, 0, 0] += 1
        with pytest.raises(ValueError, match=f"holds another run: images.{part} is [0-9a-f]{{64}} there"):
            fit(some_model(), data, PLAIN, tmp_path, resume=True, progress=False)


def test_a_model_that_is_compiled_already_is_saved_under_its_own_names(tmp_path):
    model = some_model()
    fit(torch.compile(model, backend="eager"), some_data(), PLAIN, tmp_path, progress=False)
    assert load_checkpoint(tmp_path / "best.json")[0].keys() == model.state_dict().keys()


@pytest.mark.parametrize(("num_classes", "mixup"), [(0, 0.0), (5, 0.0), (20, 0.0), (20, 0.4)])
def test_a_model_for_another_number_of_classes_is_named(num_classes, mixup):
    with pytest.raises(ValueError, match=r"logits of shape \(B, K\) = \(16, 10\), K the data's classes, got \(16, "):
        fit(create_vit("vit_digits", num_classes=num_classes), some_data(), replace(PLAIN, mixup=mixup), progress=False)


def test_a_process_without_validation_pictures_leaves_the_judgement_to_the_others(monkeypatch):
    training = Training(some_model(), some_data(), PLAIN, None, None)
    expected = training.validate()
    training.rank, training.processes = 20, 21  # of 20 pictures
    theirs = torch.tensor([*expected.values(), 1.0, *[0.0] * 100], dtype=torch.float64) * 20  # zeros: the confusion
    monkeypatch.setattr(idist, "all_reduce", lambda sums: sums + theirs)
    assert training.validate() == pytest.approx(expected)
