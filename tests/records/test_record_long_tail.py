"""Very unequal classes: what is drawn, that each way finds more of the rare class, and what is written down."""

import json

import long_tail as record
import pytest
import torch

from vitbook.recorded import evidence

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


def test_classes_are_as_large_as_asked_and_no_photograph_is_in_two_parts():
    pool = torch.arange(60.0)[:, None], torch.arange(60) % 3
    train, validation, classes = record.drawn(pool, seed=1, counts=[12, 5, 2], held=4)
    assert [int((train[1] == k).sum()) for k in classes] == [12, 5, 2]
    assert validation[1].bincount().tolist() == [4, 4, 4]
    assert len(torch.cat([train[0], validation[0]]).unique()) == 12 + 5 + 2 + 12
    assert (train[0][:, 0] % 3 == train[1]).all()


def test_each_way_finds_more_of_the_rare_class():
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 380 + [1] * 20)
    x = torch.randn(400, 2, generator=generator) + labels[:, None]
    rare = torch.randn(500, 2, generator=generator) + 1

    def found(way: str, hidden: bool) -> float:
        head = record.trained((x, labels), 2, hidden, way, rate=1e-2, seed=0, epochs=20)
        return (head(rare).argmax(dim=1) == 1).double().mean().item()

    for hidden in (False, True):
        plain = found("plain", hidden)
        assert plain < 0.4 and all(found(way, hidden) > plain + 0.2 for way in ("sample", "loss", "logits"))


def test_every_head_and_way_is_recorded_once(tmp_path, cifar10):
    file = tmp_path / "long_tail.json"
    few = "--seeds 0 1 --epochs 1 --held 1 --counts 2 2 2 2 2 1 1 1 1 1".split()
    for _ in range(2):
        record.main([str(file), "--data-dir", str(cifar10), *few])
        rows = json.loads(file.read_text())["rows"]
        keys = [(row["arm"], row["rate"], row["seed"], row["tuning"]) for row in rows]
        assert len(set(keys)) == len(keys)
    assert (evidence(rows).arms, evidence(rows).seeds, evidence(rows).n) == (10, 2, (20, 20))
    for row in rows:
        if not row["tuning"]:  # the test has equally many of each class
            assert sum(row["recalls"]) / 10 == pytest.approx(row["test_accuracy"])
