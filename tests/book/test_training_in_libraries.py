"""What chapters 11 and 16 say of other libraries, "In your library", as those that are installed do it."""

import copy

import pytest
import torch
from torch import nn

pytest_plugins = ["shared_fixtures"]


@pytest.fixture
def timm(torchvision):
    return pytest.importorskip("timm")


@pytest.fixture
def small(timm) -> nn.Module:
    sizes = dict(img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=3, num_classes=5)
    return timm.create_model("vit_tiny_patch16_224", **sizes)


@pytest.fixture
def transformers_vit(torchvision) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96)
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=5)
    )


def decayed(model: nn.Module, optimizer: torch.optim.Optimizer) -> set[str]:
    names = {parameter: name for name, parameter in model.named_parameters()}
    return {names[p] for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return sorted({round(group["lr"], 9) for group in optimizer.param_groups})


# Chapter 11


@pytest.mark.peers
def test_what_weight_decay_spares(small, transformers_vit, tmp_path):
    from timm.optim import create_optimizer_v2
    from transformers import Trainer, TrainingArguments

    assert not any(
        name.endswith("bias") or "norm" in name or name in ("cls_token", "pos_embed")
        for name in decayed(small, create_optimizer_v2(small, opt="adamw", weight_decay=0.1))
    )
    named = Trainer(transformers_vit, TrainingArguments(tmp_path)).get_decay_parameter_names(transformers_vit)
    assert not any(name.endswith("bias") or "norm" in name for name in named)
    assert {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings"} <= set(named)
    given = TrainingArguments(tmp_path)
    assert (given.weight_decay, given.warmup_steps, given.lr_scheduler_type) == (0, 0, "linear")
    assert decayed(small, torch.optim.AdamW(small.parameters())) == {name for name, _ in small.named_parameters()}


@pytest.mark.peers
def test_who_sorts_the_weights_for_muon(small):
    from timm.optim import create_optimizer_v2

    with pytest.raises(ValueError, match="only supports 2D"):
        torch.optim.Muon(small.parameters())
    optimizer = create_optimizer_v2(small, opt="muon", lr=1e-3)
    before = copy.deepcopy(small.state_dict())
    small(torch.randn(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    assert not any(torch.equal(before[name], p) for name, p in small.named_parameters() if p.grad.any())
    by_adamw = {name for name, p in small.named_parameters() if "exp_avg" in optimizer.state[p]}
    assert "head.bias" in by_adamw and not {"head.weight", "patch_embed.proj.weight"} & by_adamw


@pytest.mark.peers
def test_how_much_of_the_first_steps_a_running_mean_remembers(timm):
    for warms, low, high in ((False, 0.74, 0.75), (True, 0, 1e-6)):
        model = nn.Linear(1, 1, bias=False)
        nn.init.ones_(model.weight)
        ema = timm.utils.ModelEmaV3(model, use_warmup=warms)
        for step in range(3000):
            if step == 3:
                nn.init.zeros_(model.weight)
            ema.update(model, step)
        assert ema.decay == 0.9999 and low <= ema.module.weight.item() <= high


@pytest.mark.peers
def test_mixup_of_timm_has_one_share_a_batch_and_even_batches(timm):
    mix = timm.data.Mixup(mixup_alpha=0.8, num_classes=5, label_smoothing=0.0)
    _, targets = mix(torch.randn(4, 3, 8, 8), torch.arange(4))
    assert len({round(value, 4) for value in targets.max(dim=1).values.tolist()}) == 1
    with pytest.raises(AssertionError, match="even"):
        mix(torch.randn(3, 3, 8, 8), torch.arange(3))


@pytest.mark.slow
def test_when_torch_compiles_again_and_what_it_calls_the_weights():
    compiled = []

    def backend(graph, example):
        compiled.append(graph)
        return graph

    torch.compiler.reset()
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    network = torch.compile(model, backend=backend)
    counts = []
    for training, gradients, batch in (
        (True, True, 8), (True, True, 8), (False, True, 8), (False, False, 8), (True, True, 5), (True, True, 3)
    ):  # fmt: skip
        model.train(training)
        with torch.set_grad_enabled(gradients):
            network(torch.randn(batch, 4))
        counts.append(len(compiled))
    torch.compiler.reset()
    assert counts == [1, 1, 2, 3, 4, 4]
    assert all(name.startswith("_orig_mod.") for name in network.state_dict())


def test_fully_sharded_is_there():
    from torch.distributed.fsdp import fully_shard

    assert callable(fully_shard)


# Chapter 16


@pytest.mark.peers
def test_where_lora_goes(transformers_vit, small):
    peft = pytest.importorskip("peft")

    def adapted(model: nn.Module, *maps: str, **settings) -> set[str]:
        config = peft.LoraConfig(r=4, target_modules=list(maps), **settings)
        found = peft.get_peft_model(copy.deepcopy(model), config)
        return {name for name, parameter in found.named_parameters() if parameter.requires_grad}

    with pytest.raises(ValueError, match="(T|t)arget"):
        adapted(transformers_vit, "query", "value")
    names = adapted(transformers_vit, "q_proj", "v_proj")
    assert any("vit.layers.0.attention.q_proj.lora_A" in name for name in names)
    assert not any("classifier" in name for name in names), "the new head stays random"
    assert any("classifier" in n for n in adapted(transformers_vit, "q_proj", modules_to_save=["classifier"]))
    assert any("attn.qkv.lora_A" in name for name in adapted(small, "qkv", modules_to_save=["head"]))


@pytest.mark.peers
def test_who_reads_the_layers_share_of_the_rate(small):
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler

    def optimizer() -> torch.optim.Optimizer:
        return create_optimizer_v2(small, opt="adamw", lr=1e-3, layer_decay=0.7)

    shares = sorted({round(group["lr_scale"], 6) for group in optimizer().param_groups})
    assert shares == [round(0.7**power, 6) for power in range(4, -1, -1)]
    alone = optimizer()
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(alone, 10)
    alone.step()
    schedule.step()
    assert len(rates(alone)) == 1
    theirs = optimizer()
    CosineLRScheduler(theirs, t_initial=10)
    assert rates(theirs) == [round(1e-3 * share, 9) for share in shares]


@pytest.mark.peers
def test_what_a_new_head_and_a_new_size_take(small):
    small.reset_classifier(7)
    small.set_input_size(img_size=64)
    assert small(torch.randn(1, 3, 64, 64)).shape == (1, 7)
