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
    found = deletion.curves(OnePatch(), images, {"": maps}, points=3, fill=torch.zeros_like(images))[""]
    sure, even = torch.sigmoid(torch.tensor(6.0)).item(), 0.5
    torch.testing.assert_close(found["deletion"], torch.tensor([[sure, even, even, even], [sure, sure, sure, even]]))
    torch.testing.assert_close(found["insertion"], torch.tensor([[even, sure, sure, sure], [even, even, even, sure]]))
    areas = deletion.area(found["deletion"])
    torch.testing.assert_close(areas, torch.tensor([(sure + 5 * even) / 6, (5 * sure + even) / 6]))


def test_an_interval_is_as_wide_as_the_error_of_the_mean():
    values = torch.randn(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, low, high = deletion.interval(values, torch.Generator().manual_seed(1))
    assert mean == pytest.approx(values.mean().item())
    assert high - low == pytest.approx(2 * 1.96 * values.std().item() / 20, rel=0.1)


def test_a_patch_is_replaced_by_what_stands_in_its_place_in_the_fill():
    images, maps = torch.full((1, 1, 4, 6), 3.0), torch.tensor([[0.1, 0.2, 0.3, 0.9, 0.4, 0.5]])
    fill = torch.zeros_like(images)
    fill[:, :, 2:4, :2] = 1.0  # of the patch that is seen
    found = deletion.curves(OnePatch(), images, {"": maps}, points=3, fill=fill)[""]
    assert found["deletion"][0].tolist() == pytest.approx(
        [torch.sigmoid(torch.tensor(x)).item() for x in (6.0, 2, 2, 2)]
    )


def test_a_blurred_image_keeps_its_mean_and_little_else():
    images = torch.randn(2, 3, 32, 32)
    blurred = deletion.FILLS["blur"](images)
    assert blurred.std() < 0.1 * images.std()
    flat = torch.ones(1, 3, 32, 32)
    torch.testing.assert_close(deletion.FILLS["blur"](flat), flat)


def test_every_order_is_recorded(tmp_path, cifar10):
    file = tmp_path / "deletion.json"
    few = ["--data-dir", str(cifar10), "--images", "3", "--points", "2"]
    deletion.main([str(file), *few, "--models", "hybrid"])
    document = json.loads(file.read_text())
    rows = {(row["fill"], row["arm"]): row for row in document["rows"]}
    assert len(rows) == len(document["rows"]) == 2 * 8
    for (fill, arm), row in rows.items():
        deleted, inserted = (row[mode]["curve"] for mode in deletion.MODES)
        assert deleted[0] == pytest.approx(inserted[-1]) and deleted[-1] == pytest.approx(inserted[0])
        mean, low, high = row["deletion"]["area"]
        assert low <= mean <= high
        if arm + deletion.FOREIGN in {name for _, name in rows}:
            rival = rows[fill, arm + deletion.FOREIGN]["deletion"]["area"][0]
            assert row["deletion"]["more_than"][arm + deletion.FOREIGN][0] == pytest.approx(mean - rival)
    for blind in deletion.BLIND:
        assert rows["blur", blind]["deletion"]["more_than"][blind] == [0.0, 0.0, 0.0]
    before = file.read_text()
    deletion.main([str(file), *few, "--models", "hybrid"])
    assert file.read_text() == before
