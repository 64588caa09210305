"""The table of runtimes: each row was measured, refused in words, or converted; the one installed here answers."""

import json

import numpy as np
import pytest
import runtimes
import torch

from vitbook.export import export
from vitbook.pretrained import load_pretrained
from vitbook.recorded import RECORDED


def test_each_runtime_has_a_row_for_each_of_its_files():
    record = json.loads(RECORDED["runtimes"].read_text(encoding="utf-8"))
    expected = [(runtime.name, to) for runtime in runtimes.RUNTIMES for to in runtime.formats]
    assert [(row["runtime"], row["format"]) for row in record["runtimes"]] == expected
    for row in record["runtimes"]:
        said = {"refused", "said", "largest_difference"} & row.keys()
        assert len(said) == 1, row
        if "largest_difference" in row:
            assert all(len(row[f"milliseconds_of_{batch}"]) >= 3 for batch in runtimes.BATCHES)


@pytest.mark.slow
@pytest.mark.door
@torch.no_grad()
def test_a_runtime_is_measured_and_a_refusal_is_put_in_words(tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    weights = load_pretrained("vitbook:cifar10_plain")
    file = export(weights, tmp_path / "model.onnx")
    images = torch.randn(8, 3, 32, 32)
    np.savez(tmp_path / "images.npz", images=images.numpy(), logits=weights.model(images).numpy())

    def answer(name, model):
        runtimes.answer(name, str(model), str(tmp_path / "images.npz"))
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    found = answer("ONNX Runtime", file)
    assert found["largest_difference"] < 1e-4 and not found["answers_nan"]
    (tmp_path / "torn.onnx").write_bytes(file.read_bytes()[:1000])
    assert "torn.onnx" in answer("ONNX Runtime", tmp_path / "torn.onnx")["refused"]
