"""What waits for a GPU runs through on a CPU, at tiny size, and leaves what it has when its time is over."""

import json
import os
from pathlib import Path

import gpu
import pytest
import torch
from small_sets import SMALL_SETS

from vitbook.data import load_dataset

pytest_plugins = ["shared_fixtures"]


def notebook(folder: Path, *cells: tuple[str, list[dict], list[str]]) -> Path:
    """A file with cells of source, stored outputs and tags."""
    written = [
        {"cell_type": "code", "source": [source], "outputs": outputs, "metadata": {"tags": tags}}
        for source, outputs, tags in cells
    ]
    path = folder / "chapter.ipynb"
    path.write_text(json.dumps({"cells": written, "metadata": {}}))
    return path


@pytest.mark.slow
def test_a_chapter_is_run_and_its_lines_compared(tmp_path):
    def printed(text: str) -> list[dict]:
        return [{"output_type": "stream", "name": "stdout", "text": [text]}]

    value = [{"output_type": "execute_result", "data": {"text/plain": ["[4, 5]"]}}]
    path = notebook(
        tmp_path,
        ("x = 4\nprint('one\\ntwo', x)", printed("one\ntwo 4\n"), []),
        ("print('accuracy ≈0.91 (0.8 to 1)')", printed("accuracy ≈0.87 (0.8 to 1)\n"), []),
        ("[x, x + 1]", value, []),
        ("print('other')", printed("another\n"), []),
        ("print('anything')", printed("else\n"), ["nbval-ignore-output"]),
        ("x / 0", [], []),
        ("print('never')", printed("never\n"), []),
    )
    report = tmp_path / "report.json"
    assert gpu.run_within(120, ["--chapter", str(path), "--out", str(report)], gpu.environment_with(tmp_path)) == 0
    found = json.loads(report.read_text())
    assert (found["cells"], found["run"], found["lines"], found["equal"]) == (7, 5, 5, 4)
    assert found["different"] == [{"stored": ["another"], "now": ["other"]}]
    assert found["error"] == "code cell 5: ZeroDivisionError: division by zero"


def test_cifar10_comes_back_from_what_was_packed(cifar10, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.offline_bundle, "SHEET", 5)
    gpu.offline_bundle.pack_cifar10(tmp_path / "packed", cifar10)
    names = sorted(path.name for path in (tmp_path / "packed" / "cifar10").glob("*.jpg"))
    assert names == ["test_0.jpg", *(f"train_{i}.jpg" for i in range(5))]
    gpu.offline_bundle.unpack(tmp_path / "packed", tmp_path / "there")
    back = load_dataset("cifar10", tmp_path / "there" / "data", validation=0)
    for split, (images, labels) in ((back.train, SMALL_SETS["cifar10"].train), (back.test, SMALL_SETS["cifar10"].test)):
        assert split.labels.tolist() == labels.tolist()
        means = split.images.float().mean(dim=(1, 2, 3))  # JPEG keeps an image's mean, if not the noise of these
        torch.testing.assert_close(means, torch.from_numpy(images).float().mean(dim=(1, 2, 3)), atol=2, rtol=0)


def test_what_travels_leaves_out_what_is_there():
    everything = gpu.offline_bundle.needed("3.12", set())
    assert {"einops", "ipython", "traitlets", "scikit-learn"} < everything, "also what they need in turn"
    assert not {"torch", "numpy", "triton", "vitbook"} & everything
    assert {"scipy", "scikit-learn", "joblib"} <= everything - gpu.offline_bundle.needed(
        "3.12", {"scipy", "scikit-learn"}
    )


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_part_that_is_cut_off_leaves_its_rows(tmp_path, monkeypatch):
    def endless(part):
        while True:
            part.add(number=len(part.rows))

    monkeypatch.setattr(gpu, "steps", endless)
    assert gpu.play(gpu.Part(tmp_path / "steps.json", None, 0.5, tiny=True)) == 0
    found = json.loads((tmp_path / "steps.json").read_text())
    assert found["ended"] == "cut off" and found["rows"][0] == {"number": 0}


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_the_recipe_for_a_gpu_is_trained_and_tested(cifar10, tmp_path):
    assert gpu.play(gpu.Part(tmp_path / "cifar10_gpu.json", cifar10, 600, tiny=True)) == 0
    (row,) = json.loads((tmp_path / "cifar10_gpu.json").read_text())["rows"]
    assert row["seed"] == 0 and row["epochs"] == 1 and 0 <= row["test_accuracy"] <= 1


@pytest.mark.slow
def test_all_parts_run_through(cifar10, tmp_path, capfd):
    options = ["--tiny", "--minutes", "20", "--data", str(cifar10), "--out", str(tmp_path)]
    assert gpu.main(options) == 0, capfd.readouterr().out
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in gpu.PARTS}
    assert all(part["ended"] == "done" and part["rows"] for part in found.values())
    (chapter,) = found["chapters"]["rows"]
    assert chapter["run"] == chapter["cells"] and chapter["equal"] == chapter["lines"] > 0
    assert 0 <= found["cifar10_gpu"]["rows"][0]["test_accuracy"] <= 1
    assert {row["attention"] for row in found["steps"]["rows"]} == {"fused", "explicit"}
    assert [row["batch"] for row in found["latency"]["rows"]] == [1, 2]


@pytest.mark.slow
def test_a_part_that_goes_wrong_says_so(tmp_path, capsys):
    options = ["--tiny", "--out", str(tmp_path), "--data", str(tmp_path / "none"), "--parts", "cifar10_gpu"]
    assert gpu.main(options) == 1
    assert "FileNotFoundError" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_starts(tmp_path, capsys):
    with pytest.raises(SystemExit):
        gpu.main(["--out", str(tmp_path)])
    assert "there is no CUDA GPU here" in capsys.readouterr().err
