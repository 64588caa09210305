"""A run that is looked into on the way ends as one that is not, and what is written down is what the model says."""

from dataclasses import replace

import pytest
import steps
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from vitbook.augment import random_affine
from vitbook.data import Split, digits
from vitbook.runtime import seed_everything
from vitbook.training import evaluate, parameter_groups, train_epoch, warmup_cosine
from vitbook.vit import create_vit

pytestmark = pytest.mark.slow


def test_looking_changes_nothing_and_finds_what_is_there(tmp_path, monkeypatch):
    whole = digits()
    data = replace(whole, train=Split(whole.train.images[:130], whole.train.labels[:130]))
    monkeypatch.setattr(steps, "digits", lambda: data)
    steps.main([str(tmp_path / "steps"), "--epochs", "2", "--seed", "3"])
    found = load_file(tmp_path / "steps")

    seed_everything(3)
    model = create_vit("vit_digits")
    batches = data.loader(data.train, 64, shuffle=True)
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay=0.3), lr=3e-3, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: warmup_cosine(step, 6, 0))
    for _ in range(2):
        train_epoch(model, batches, optimizer, schedule, label_smoothing=0.1, augment=random_affine)
    assert torch.equal(found["head"][2], model.head.weight.detach().half())
    result = evaluate(model, data.loader(data.test, 64))
    assert found["loss"][2] == result.loss and found["accuracy"][2] == torch.tensor(result.accuracy)
    assert found["probability"][2] == result.logits[0].softmax(dim=0)[data.test.labels[0]]

    assert found["epochs"].tolist() == [0, 1, 2]
    torch.testing.assert_close(found["loss"][0], torch.tensor(10.0).log())
    assert not found["head"][0].any() and found["attention"].shape == (3, 4, 4, 16)
    positions = model.embedding.positions.pos_embed[0, 1:].detach()
    similarity = F.cosine_similarity(positions[:, None], positions[None], dim=-1)
    torch.testing.assert_close(found["similarity"][2].float(), similarity, atol=1e-3, rtol=0)
    block, z = model.encoder.blocks[0], model.embedding(data.normalize(data.test.images[:1]))
    q, k, _ = block.attn.project(block.norm1(z))  # (B, h, T, D_h)
    weights = (q[0, :, :1] @ k[0].mT / 16**0.5).softmax(dim=-1)[:, 0, 1:]
    torch.testing.assert_close(found["attention"][2, 0].float(), weights.detach(), atol=1e-3, rtol=0)
