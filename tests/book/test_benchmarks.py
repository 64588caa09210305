"""The benchmarks measure what they say: equal work, fair turns, and a table that follows from the numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from vitbook.vit import ViTConfig

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import benchmark  # noqa: E402
import commands  # noqa: E402
import fresh  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402

TINY = ViTConfig(image_size=8, patch_size=4, num_classes=5, dim=24, depth=3, num_heads=3, mlp_dim=40)
CPU = torch.device("cpu")


@pytest.mark.peers
def test_the_peers_that_are_here_do_equal_work():
    models, missing = peers.build(TINY)
    assert set(models) | set(missing) == set(peers.PEERS)
    assert {peers.OURS, peers.OURS_MEAN, "TransformerEncoder", "transformers"} <= set(models)
    counts = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    for name, model in models.items():
        assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 5)
        assert (counts[name] == counts[peers.OURS]) == (not peers.PEERS[name].differs), name


def test_the_peer_of_plain_torch_is_the_same_function_of_the_same_weights():
    """A ViT of this shape, and not merely something of this size."""
    ours, theirs = (peers.PEERS[name].build(TINY).double() for name in (peers.OURS, "TransformerEncoder"))
    torch.nn.init.normal_(ours.head.weight)
    names = {
        "embedding.patch_embed.proj": "patches",
        "embedding.positions.": "",
        "embedding.": "",
        "attn.qkv.": "self_attn.in_proj_",
        "attn.proj": "self_attn.out_proj",
        "mlp.fc1": "linear1",
        "mlp.fc2": "linear2",
        "encoder.blocks": "encoder.layers",
    }
    renamed = {}
    for key, tensor in ours.state_dict().items():
        for mine, its in names.items():
            key = key.replace(mine, its)
        renamed["encoder." + key if key.startswith("norm.") else key] = tensor
    theirs.load_state_dict(renamed)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(theirs(images), ours(images), rtol=1e-10, atol=1e-10)


def test_turns_rotate_and_every_round_counts():
    order: list[str] = []
    functions = {name: (lambda name=name: order.append(name)) for name in "abc"}
    clock = iter(range(10_000))  # a clock that ticks once whenever it is read
    times = measure.side_by_side(functions, rounds=4, turn=1.0, device=CPU, clock=lambda: float(next(clock)))
    assert "".join(order[6:]) == "abc" + "bca" + "cab" + "abc"  # after two calls each to warm up
    assert times == {name: [1.0] * 4 for name in "abc"}


def test_a_ratio_is_taken_round_by_round():
    low, middle, high = measure.ratio([2.0, 40.0, 6.0], [1.0, 10.0, 2.0])  # the machine was ten times as slow for once
    assert (low, middle, high) == (2.5, 3.0, 3.5)
    assert measure.ratio([3.0], [2.0]) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize("precision", measure.PRECISIONS)
def test_a_step_trains_and_a_forward_pass_does_not(precision):
    model = peers.PEERS[peers.OURS].build(TINY)
    before = [p.detach().clone() for p in model.parameters()]
    logits = measure.make_call(model, TINY, 3, "forward", precision, CPU)()
    assert logits.shape == (3, 5) and logits.dtype == measure.PRECISIONS[precision] and not logits.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)) and not model.training
    logits = measure.make_call(model, TINY, 3, "step", precision, CPU)()
    assert logits.dtype == measure.PRECISIONS[precision] and logits.requires_grad and model.training
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_unequal_work_is_refused():
    same = {"a": torch.zeros(2, 5), "b": torch.ones(2, 5)}
    benchmark.check_equal_work(same)
    for other in (torch.zeros(2, 4), torch.zeros(2, 5).bfloat16()):
        with pytest.raises(ValueError, match="one shape and type"):
            benchmark.check_equal_work(same | {"c": other})


def test_the_verdict_follows_from_the_times():
    assert [report.verdict(x, x, x) for x in (0.9, 0.98, 1.02, 1.1)] == ["ahead", "level", "level", "behind"]
    assert report.verdict(0.99, 1.1, 1.2) == report.verdict(0.8, 0.9, 1.01) == "level"  # the rounds disagree
    times = {peers.OURS: [2.0, 2.0], "TransformerEncoder": [3.0, 3.0], "transformers": [1.0, 1.0]}
    assert report.against_the_fastest(times, peers.OURS) == ("transformers", (2.0, 2.0, 2.0))
    assert report.against_the_fastest(times, peers.OURS_MEAN) == ("", (1.0, 1.0, 1.0))


def test_a_run_writes_its_table_and_its_numbers(tmp_path, monkeypatch, capsys):
    tiny = [rows.Row(f"cifar step {p}", TINY, 3, "step", p, quick=True) for p in measure.PRECISIONS]
    monkeypatch.setattr(rows, "rows", lambda gpu: tiny)
    monkeypatch.setattr(benchmark, "has_bfloat16", lambda device: False)
    monkeypatch.setattr(measure, "matmul_call", lambda precision, device: (lambda: None, 1))
    options = f"--rounds 2 --turn 0.001 --only time --threads 1 --device cpu --folder {tmp_path}"
    benchmark.main(options.split())
    (written,) = (tmp_path / "results").glob("*.json")
    results = json.loads(written.read_text())
    (record,) = results["rows"]
    assert record["name"] == "cifar step float32" and set(record["seconds"]) == set(record["parameters"])
    assert all(len(times) == 2 and min(times) > 0 for times in record["seconds"].values())
    page = (tmp_path / "RESULTS.md").read_text()
    assert page == report.to_markdown([results])
    written.with_suffix(".md").write_text("Why it is so.\n")
    report.write(tmp_path)
    assert "%|\n\nWhy it is so.\n\n### Against each" in (tmp_path / "RESULTS.md").read_text().replace("% |", "%|")
    assert "bfloat16 (this device has none of its own)" in page and "step bfloat16" not in page
    machine = results["about"]["machine"]
    for words in ("| cifar step float32 | 3 |", "Threads: 1", machine):
        assert words in page, words


def test_the_commands_are_those_that_make_test_recorded(tmp_path, monkeypatch):
    cases = (("09_vit", 3.0), ("08_encoder", 5.0), ("09_vit", 4.0))
    cells = "".join(f'<testcase classname="chapters.{name}.ipynb" name="Cell" time="{t}"/>' for name, t in cases)
    (tmp_path / "chapters.xml").write_text(f'<testsuites><testsuite time="6.4">{cells}</testsuite></testsuites>')
    monkeypatch.setattr(commands, "build_seconds", lambda: 12.4)
    assert report.command_lines({"commands": commands.measure_commands(tmp_path)}) == [
        ["`make test`, chapters", "6", "2", "09_vit (7), 08_encoder (5)"],
        ["`make book`", "12", "1", ""],
    ]


def test_a_later_run_renews_what_it_measures_and_keeps_the_rest():
    def run(date: str, versions: str, rows: list[str], memory: list, clock: str = "wall") -> dict:
        about = {"date": date, "command": f"run {date}", "rounds": 9, "versions": {"torch": versions}, "missing": {}}
        about["clock"] = clock
        rows = [{"name": name, "seconds": date} for name in rows]
        return {"about": about, "rows": rows, "memory": memory, "imports": {}, "commands": {}}

    both = benchmark.together(run("1", "2.13", ["a", "b"], ["m"]), run("2", "2.13", ["b", "c"], []))
    assert [(row["name"], row["seconds"]) for row in both["rows"]] == [("a", "1"), ("b", "2"), ("c", "2")]
    assert both["memory"] == ["m"] and both["about"]["date"] == "2"
    assert both["about"]["earlier"] == [{"date": "1", "command": "run 1", "rounds": 9}]
    newer = run("3", "2.14", ["a"], [])
    assert benchmark.together(both, newer) == newer  # another torch: nothing of before is kept
    other_clock = run("4", "2.13", ["a"], [], "cpu")
    assert benchmark.together(both, other_clock) == other_clock


@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
def test_memory_is_that_of_the_measured_process_alone():
    """And not of the one that started it, however much that holds."""
    held = bytearray(300_000_000)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import fresh; print(fresh.resident_peak())"
    own = int(subprocess.check_output([sys.executable, "-c", code, str(Path(fresh.__file__).parent)]))
    assert 1e6 < own < len(held)
