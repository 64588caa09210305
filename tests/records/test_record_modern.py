"""Chapter 21's arms differ in what their names say, and chapter 1's readers are asked what they were shown."""

import json
from dataclasses import asdict

import modern as record
import pytest
import recall
import torch
import torch.nn.functional as F


def changed(arm: str, control: str) -> set[str]:
    """The fields of the config in which two arms differ."""
    ours, theirs = (asdict(record.build(name).config) for name in (arm, control))
    return {field for field in ours if ours[field] != theirs[field]}


def test_attention_pooling_and_its_control_differ_in_one_thing():
    assert changed("attention pooling, no class token", "mean pooling, no class token") == {"attention_pool"}
    for arm in ("RMSNorm", "QK-norm", "LayerScale from 0.1", "4 registers", "no positions"):
        assert len(changed(arm, "plain")) == 1
    assert changed("rotary, no learned positions", "no positions") == {"rotary_base"}


def test_what_the_head_sees_is_scaled_or_normalized():
    def logits(arm: str, x: torch.Tensor) -> torch.Tensor:
        head = record.build(arm).head
        torch.nn.init.normal_(head.weight, generator=torch.Generator().manual_seed(0))
        return head(x)

    x = F.layer_norm(torch.randn(5, 32), (32,))
    torch.testing.assert_close(logits("attention pooling, doubled", x), 4 * logits("plain, halved", x))
    normalized = logits("attention pooling, normalized", 3 * x + 1)
    torch.testing.assert_close(normalized, 2 * logits("plain, halved", x), rtol=1e-4, atol=1e-4)


def test_the_right_answer_is_the_symbol_at_the_place_asked_for():
    symbols, asked, truth = recall.drawn(7, length=4)
    assert truth.tolist() == [row[place] for row, place in zip(symbols.tolist(), asked.tolist(), strict=True)]


@pytest.mark.slow
def test_a_command_goes_on_where_it_was_stopped(tmp_path, capsys, monkeypatch):
    few = ["--rates", "0.02", "--seeds", "0", "--arms", "plain", "plain, halved"]
    record.main([str(tmp_path / "one"), "--epochs", "1", *few])
    monkeypatch.setitem(recall.ARMS, "4 symbols, 300 steps", (4, 3))
    recall.main([str(tmp_path / "two"), "--seeds", "0", "--arms", "4 symbols, 300 steps"])
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one", "two"))
    assert [row["arm"] for row in one["rows"]] == ["plain", "plain, halved"] and one["rows"][0]["n"] == 360
    assert len(two) >= 4 and [row["n"] for row in two if not row["tuning"]] == [recall.JUDGED]
    capsys.readouterr()
    record.main([str(tmp_path / "one"), "--epochs", "1", *few])
    assert not capsys.readouterr().out
