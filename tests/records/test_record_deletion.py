"""Patches are deleted and inserted in the order of a map, and what a model then says is recorded."""

import json
from types import SimpleNamespace

import deletion
import pytest
import torch
from torch import nn

pytest_plugins = ["shared_fixtures"]
pytestmark = pytest.mark.slow


class OnePatch(nn.Module):
    """Sees the patch in row 1, column 0, alone."""

    config = SimpleNamespace(patch_size=2)
    embedding = SimpleNamespace(grid=(2, 3))

    def forward(self, images):
        seen = images[:, :, 2:4, :2].mean(dim=(1, 2, 3))
        return torch.stack([seen, -seen], dim=1)


def test_the_patch_that_decides_is_deleted_and_inserted_at_its_turn():
    images = torch.full((2, 1, 4, 6), 3.0)
    maps = torch.tensor([[0.1, 0.2, 0.3, 0.9, 0.4, 0.5], [0.6, 0.2, 0.3, 0.1, 0.4, 0.5]])  # first, and last
    found = deletion.curves(OnePatch(), images, maps, points=3)
    sure, even = torch.sigmoid(torch.tensor(6.0)).item(), 0.5
    torch.testing.assert_close(found["deletion"], torch.tensor([[sure, even, even, even], [sure, sure, sure, even]]))
    torch.testing.assert_close(found["insertion"], torch.tensor([[even, sure, sure, sure], [even, even, even, sure]]))
    areas = deletion._area(found["deletion"])
    torch.testing.assert_close(areas, torch.tensor([(sure + 5 * even) / 6, (5 * sure + even) / 6]))


def test_an_interval_is_as_wide_as_the_error_of_the_mean():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, low, high = deletion.interval(values, torch.Generator().manual_seed(1))
    assert mean == pytest.approx(values.mean().item())
    assert high - low == pytest.approx(2 * 1.96 * values.std().item() / 20, rel=0.1)


def test_every_order_is_recorded(tmp_path, cifar10, capsys):
    file = tmp_path / "deletion.json"
    deletion.main([str(file), "--data-dir", str(cifar10), "--images", "3", "--points", "2"])
    document = json.loads(file.read_text())
    assert len(document["orders"]) == 6
    assert all(f"\n{name}" in said for said in [capsys.readouterr().out] for name in document["orders"])
    for modes in document["orders"].values():
        deleted, inserted = (modes[mode]["curve"] for mode in deletion.MODES)
        assert deleted[0] == pytest.approx(inserted[-1]) and deleted[-1] == pytest.approx(inserted[0])
        mean, low, high = modes["deletion"]["area"]
        assert low <= mean <= high
    for blind in deletion.BLIND:
        assert document["orders"][blind]["deletion"]["more_than"][blind] == [0.0, 0.0, 0.0]
