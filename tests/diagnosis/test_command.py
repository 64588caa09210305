"""`vitbook diagnose` on files that a stranger might have."""

import json
from dataclasses import fields

import pytest

from vitbook.cli import main
from vitbook.diagnosis import Finding

RIGHT = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(dim), nn.LayerNorm(dim), heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT * (D // self.heads) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(B, T, D))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, num_classes=4, dim=24):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, 4)
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 17, dim))
        self.blocks = nn.Sequential(Block(dim, 3), Block(dim, 3))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).mT
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])
"""
FAULTS = {" * (D // self.heads) ** -0.5": "", "(weights @ v).transpose(1, 2)": "(weights @ v)"}
BAD = """
import time, os
from torch import nn
unfit = 3
def raises(): raise RuntimeError("no NVIDIA driver\\non this machine")
def hangs(): time.sleep(1000)
def ends(): raise SystemExit(3)
def dies(): os._exit(7)
def gives(): return {"model": 1}
def needs(width): return nn.Linear(width, 2)
def words():
    print("hello"); return nn.Flatten(0)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "torch.py").write_text(RIGHT)  # a name that Python knows otherwise
    (tmp_path / "package" / "model.py").write_text(RIGHT)
    wrong = RIGHT
    for right, fault in FAULTS.items():
        assert wrong.count(right) == 1
        wrong = wrong.replace(right, fault)
    (tmp_path / "wrong.py").write_text(wrong)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "broken.py").write_text("def build(:")
    return tmp_path


def diagnosed(*arguments: str) -> int:
    return main(["diagnose", *arguments])


@pytest.mark.parametrize("target", ["package/torch.py:ViT", "package.model:ViT"])
def test_nothing_is_found_in_a_right_model(folder, capsys, target):
    assert diagnosed(target, "--args", '{"num_classes": 7}', "--image-shape", "3", "16", "16") == 0
    out, err = capsys.readouterr()
    assert "Nothing found" in out and "FAILED" not in out and not err


def test_both_faults_of_a_model_are_named(folder, capsys):
    arguments = "wrong.py:ViT", "--image-shape", "3", "16", "16"
    assert diagnosed(*arguments) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("FAILED") == 2 and "no scale before the softmax" in out and "transpose" in out
    assert diagnosed(*arguments, "--json") == 1
    findings = json.loads(capsys.readouterr().out)
    failed = [finding["name"] for finding in findings if finding["result"] == "FAILED"]
    assert failed == ["heads_keep_tokens_whole", "scores_are_scaled"]
    assert all(set(finding) == {field.name for field in fields(Finding)} for finding in findings)


@pytest.mark.slow
def test_a_model_of_transformers_is_diagnosed_by_its_logits(folder, capsys):
    (folder / "hf.py").write_text(
        "from transformers import ViTConfig, ViTForImageClassification\n"
        "def build(**settings): return ViTForImageClassification(ViTConfig(num_labels=5, **settings))"
    )
    settings = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=96)
    settings |= dict(image_size=16, patch_size=4)
    assert diagnosed("hf.py:build", "--args", json.dumps(settings), "--image-shape", "3", "16", "16") == 0
    assert "Nothing found" in capsys.readouterr().out


@pytest.mark.slow
def test_weights_are_diagnosed_by_name(capsys):
    assert diagnosed("vitbook:cifar10", "--json") == 0
    findings = {finding["name"]: finding["result"] for finding in json.loads(capsys.readouterr().out)}
    assert findings["first_loss_is_near_ln_k"] == "not asked"  # they are trained
    assert findings["every_pixel_counts"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        (
            "bad.py:raises",
            [],
            "building it with {} stops with RuntimeError: no NVIDIA driver on this machine (bad.py, ",
        ),
        ("bad.py:hangs", ["--timeout", "10"], "stopped after 10 s, at: building the model"),
        ("bad.py:ends", [], "stops with SystemExit: 3"),
        ("bad.py:dies", [], "Python itself stopped at: building the model (exit status 7"),
        ("bad.py:gives", [], "gives returns an object of type dict; expected a torch.nn.Module"),
        ("bad.py:unfit", [], "unfit is of type int"),
        ("bad.py:needs", [], "missing 1 required positional argument: 'width'"),
        ("bad.py:needs", ["--args", '{"width": 3}'], "images (3, 224, 224) do not go through: RuntimeError"),
        ("bad.py:words", [], "logits (B, K) should come out, got the shape (301056,)"),
        ("bad.py:nobody", [], "bad.py has no nobody"),
        ("bad.py", [], "expected package.module:build"),
        ("nowhere.py:ViT", [], "there is no such file"),
        ("nowhere.model:ViT", [], "ModuleNotFoundError: No module named 'nowhere'"),
        ("broken.py:build", [], "importing broken.py stops with SyntaxError"),
        ("vitbook:nothing", [], "vitbook:nothing"),
        ("nothing.pth", [], "nothing.pth"),
    ],
)
def test_what_cannot_be_examined_is_said_in_one_line(folder, capsys, target, options, said):
    assert diagnosed(target, *options) == 1
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and said in err and "Traceback" not in err


@pytest.mark.parametrize("wrong", ["[1]", "{", "num_classes=10"])
def test_arguments_are_a_json_object(capsys, wrong):
    assert diagnosed("model.py:ViT", "--args", wrong) == 2
    assert "JSON object" in capsys.readouterr().err


def test_a_pickle_is_never_run(folder, capsys):
    import pickle

    class Hostile:
        def __reduce__(self):
            return eval, ("open('ran', 'w')",)

    (folder / "model.pth").write_bytes(pickle.dumps(Hostile()))
    assert diagnosed("model.pth") == 1
    assert not (folder / "ran").exists() and capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_what_a_build_prints_is_passed_on_beside_the_report(folder, capsys):
    (folder / "loud.py").write_text(RIGHT + "\nprint('made\\nby me')")
    assert diagnosed("loud.py:ViT", "--image-shape", "3", "16", "16", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out) and err == "the code printed: made …\n"
