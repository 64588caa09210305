"""The command paints what the package paints, and puts it where it is told."""

import numpy as np
import torch
from PIL import Image

from vitbook.painting import paint, recorded_painter
from vitbook_workshop.commands import main


def test_a_sheet_holds_what_the_recorded_painter_paints_of_a_class(tmp_path, capsys):
    sheet = tmp_path / "new" / "sheet.png"
    assert main(["paint", "--class", "7", "--steps", "2", "--number", "3", "--to", str(sheet)]) == 0
    assert "3 of horse, drawn in " in capsys.readouterr().out
    model, names = recorded_painter()
    assert names[7] == "horse" and sum(parameter.numel() for parameter in model.parameters()) < 1e6
    noise = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    expected = (paint(model, torch.full((3,), 7), 2, 2.0, noise).clamp(-1, 1) + 1) * 127.5
    shown = np.array(Image.open(sheet))
    assert shown.shape == (130, 3 * 130, 3)
    for i in range(3):
        tile = shown[:128:4, 130 * i : 130 * i + 128 : 4]
        assert np.abs(tile.transpose(2, 0, 1) - expected[i].numpy()).max() <= 0.5 + 1e-3


def test_without_a_class_there_is_a_row_of_each_and_another_seed_is_another_sheet(tmp_path):
    made = []
    for seed in "0", "1":
        sheet = tmp_path / f"{seed}.png"
        assert main(["paint", "--steps", "1", "--number", "2", "--seed", seed, "--to", str(sheet)]) == 0
        made.append(np.array(Image.open(sheet)))
    assert made[0].shape == (10 * 130, 2 * 130, 3) and (made[0] != made[1]).any()


def test_a_class_may_be_named(tmp_path):
    sheets = [tmp_path / "a.png", tmp_path / "b.png"]
    for name, sheet in zip(("horse", "7"), sheets, strict=True):
        main(["paint", "--class", name, "--steps", "1", "--number", "1", "--to", str(sheet)])
    assert sheets[0].read_bytes() == sheets[1].read_bytes()
