"""`vitbook diagnose` on files that a stranger might have."""

import importlib
import json
import re
import sys
from dataclasses import fields
from functools import cache

import pytest
import torch

from vitbook_workshop import limited_process
from vitbook_workshop.commands import main
from vitbook_workshop.commands.model_arguments import arguments_of
from vitbook_workshop.faults import diagnose_by_name
from vitbook_workshop.faults.checks import models
from vitbook_workshop.faults.diagnose_by_name import examine_by_name
from vitbook_workshop.faults.diagnose_in_child import examine_here
from vitbook_workshop.faults.findings import Finding, exit_status, verdict

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
    print("hello"); return nn.Flatten(0, 1)
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


def found_here(monkeypatch, target: str, **asked) -> dict[str, dict]:
    """The findings, by name, of the code that the process beside runs, without that process."""
    told = told_here(monkeypatch, target, **asked)
    return {finding["name"]: finding for finding in told.values() if isinstance(finding, dict)}


def error_here(monkeypatch, target: str, **asked) -> str:
    """Why there is no model to examine."""
    return told_here(monkeypatch, target, **asked)["error"]


def told_here(monkeypatch, target: str, **asked) -> dict:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # as it would stay
    for name in ("diagnosed", "package", "package.model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    nothing = dict(arguments={}, image_shape=[3, 16, 16], num_classes=None, weights="", like="", like_arguments={})
    nothing |= dict(trained=False, overfit=False, export=False, data="")
    told = {}
    examine_here(lambda **facts: told.update(facts), target=target, **nothing | asked)
    return told


@pytest.mark.slow
def test_nothing_is_found_in_a_right_model(folder, capsys, monkeypatch):
    arguments = {"num_classes": 7}
    assert diagnosed("package/torch.py:ViT", "--args", json.dumps(arguments), "--image-shape", "3", "16", "16") == 0
    out, err = capsys.readouterr()
    assert "Nothing found" in out and "FAILED" not in out and not err
    found = found_here(monkeypatch, "package.model:ViT", arguments=arguments)
    assert {finding["result"] for finding in found.values()} == {"passed", "not asked"}


def test_both_faults_of_a_model_are_named(folder, capsys, monkeypatch):
    once = cache(lambda target, **_: examine_by_name(target, image_shape=(3, 16, 16)))  # for both ways to print it
    monkeypatch.setattr(diagnose_by_name, "examine_by_name", lambda target, *_, **__: once(target))
    arguments = "wrong.py:ViT", "--image-shape", "3", "16", "16"
    assert diagnosed(*arguments) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("FAILED") == 2 and "no scale before the softmax" in out and "transpose" in out
    assert diagnosed(*arguments, "--json") == 1
    findings = json.loads(capsys.readouterr().out)
    failed = [finding["name"] for finding in findings if finding["result"] == "FAILED"]
    assert failed == ["heads_keep_tokens_whole", "scores_are_scaled"]
    assert all(set(finding) == {field.name for field in fields(Finding)} | {"link"} for finding in findings)
    assert {finding["link"] for finding in findings if finding["result"] == "FAILED"} == {
        "https://vitbook.github.io/vitbook/chapters/02_scale.html#which-d",
        "https://vitbook.github.io/vitbook/chapters/04_multihead.html#cutting-queries-keys-and-values-into-heads",
    }


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
        ("bad.py:dies", [], "Python itself stopped, with exit status 7, at: building the model; "),
        ("bad.py:gives", [], "gives returns an object of type dict; expected a torch.nn.Module"),
        ("bad.py:unfit", [], "unfit is of type int"),
        ("bad.py:needs", [], "needs needs width: --args '{\"width\": …}'; its signature is needs(width)"),
        ("bad.py:needs", ["--args", '{"width": 3}'], "images (3, 224, 224) do not go through: RuntimeError"),
        ("bad.py:words", [], "logits should have the shape (3, K), got (9, 224, 224)"),
        ("bad.py:nobody", [], "bad.py has no nobody"),
        ("bad.py", [], "expected package.module:build"),
        ("nowhere.py:ViT", [], "No such file or directory: nowhere.py"),
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


@pytest.mark.parametrize("option", ["--args", "--like-args"])
@pytest.mark.parametrize("wrong", ["[1]", "{", "num_classes=10"])
def test_arguments_are_a_json_object(capsys, option, wrong):
    assert diagnosed("model.py:ViT", option, wrong) == 2
    assert "JSON object" in capsys.readouterr().err


def compared(capsys, *arguments: str) -> dict:
    diagnosed(*arguments, "--image-shape", "3", "16", "16", "--json")
    return next(f for f in json.loads(capsys.readouterr().out) if f["name"] == "same_as_the_reference")


SIZES = {"dim": 24, "depth": 2, "num_heads": 3, "mlp_dim": 48, "patch_size": 4}


@pytest.mark.slow
def test_a_reference_of_other_names_tells_where_a_model_goes_wrong(folder, capsys, monkeypatch):
    def compared_here(target: str, like: str, **sizes) -> dict:
        return found_here(monkeypatch, target, like=like, like_arguments=sizes)["same_as_the_reference"]

    like = "--like", "vit_ti_16", "--like-args", json.dumps(SIZES)
    right = compared_here("package.model:ViT", "vit_ti_16", **SIZES)
    assert right["details"].count("standard deviations") == 1  # ε: 1e-5 and 1e-6
    found = compared(capsys, "wrong.py:ViT", *like)
    assert (
        "up to the output of blocks.0.qkv (Linear), and part before that of blocks.0.out (Linear)" in found["details"]
    )
    assert "“no scale”" in found["suspect"] and "“merged without transpose”" in found["suspect"]
    assert compared_here("wrong.py:ViT", "wrong.py:ViT")["result"] == "passed"


TIMM = (
    RIGHT
    + """
def create_model(name, num_classes, in_chans, img_size):
    assert (name, in_chans, tuple(img_size)) == ("vit_small", 3, (16, 16))
    return ViT(num_classes)
"""
)


@pytest.mark.slow
def test_models_of_timm_are_made_by_their_names(folder, capsys, monkeypatch):
    (folder / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(folder)
    found = compared(capsys, "wrong.py:ViT", "--like", "timm:vit_small")
    assert found["result"] == "FAILED" and "blocks.0.out (Linear)" in found["details"]
    assert diagnosed("wrong.py:ViT", "--image-shape", "3", "16", "16", "--like", "timm:another") == 1
    assert "building another of timm stops with AssertionError" in capsys.readouterr().err


@pytest.mark.slow
def test_models_of_transformers_are_made_by_their_class(folder, capsys):
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48, patch_size=4)
    sizes |= dict(layer_norm_eps=1e-5)
    right = compared(capsys, "package.model:ViT", "--like", "transformers:ViT", "--like-args", json.dumps(sizes))
    assert right["result"] == "passed"


@pytest.mark.slow
def test_a_model_is_tried_on_images_of_a_folder(folder, capsys):
    from PIL import Image

    for label in range(4):
        (folder / "photos" / str(label)).mkdir(parents=True)
        for i in range(12):
            image = Image.new("RGB", (16, 16), (60 * label, 5 * i, 90))
            image.save(folder / "photos" / str(label) / f"{i}.png")
    command = "package.model:ViT", "--image-shape", "3", "16", "16", "--data", "photos", "--json"
    diagnosed(*command)
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["labels_are_in_range"]["result"] == "passed"
    assert findings["one_batch_can_be_learned"]["result"] == "passed"
    diagnosed(*command, "--args", '{"num_classes": 3}')
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert "labels from 0 to 3" in findings["labels_are_in_range"]["details"]


ODD = """
import sys
from collections import namedtuple
from dataclasses import dataclass
import torch
from torch import nn
from package.model import ViT

Pair = namedtuple("Pair", "features scores")

@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor

def odd(take): return type("Odd", (ViT,), {"forward": lambda self, x, targets=None: take(ViT.forward, self, x)})

Pairs = odd(lambda forward, self, x: (forward(self, x), None))
Listed = odd(lambda forward, self, x: [forward(self, x), [x]])
Mapped = odd(lambda forward, self, x: {"loss": None, "logits": forward(self, x), "two": x.mean((2, 3))})
Named = odd(lambda forward, self, x: Pair(self.patches(x), forward(self, x)))
Made = odd(lambda forward, self, x: Output(forward(self, x), x))
class Single(ViT):
    def forward(self, x):
        assert x.ndim == 3
        return super().forward(x[None])[0]
OnCuda = odd(lambda forward, self, x: forward(self.cuda(), x.to("cuda:0")))
LastCast = odd(lambda forward, self, x: forward(self, x).float())
Eight = odd(lambda forward, self, x: forward(self, x.reshape(8, 3, 16, 16)))
Seeds = odd(lambda forward, self, x: torch.manual_seed(0) and forward(self, x))
InPlace = odd(lambda forward, self, x: forward(self, x.sub_(0.5)))
NoGraph = odd(lambda forward, self, x: forward(self, x).detach())
Inference = odd(lambda forward, self, x: torch.inference_mode()(forward)(self, x))
Raises = odd(lambda forward, self, x: forward(self, x if not x.requires_grad else x[:, 0]))
Exits = odd(lambda forward, self, x: sys.exit("done"))
Two = odd(lambda forward, self, x: (forward(self, x), forward(self, x)))
TwoInputs = type("TwoInputs", (ViT,), {"forward": lambda self, x, mask: ViT.forward(self, x)})
class In16(ViT):
    def __init__(self):
        super().__init__()
        self.bfloat16()
    def forward(self, x): return super().forward(x.bfloat16()).float()
class Lazy(ViT):
    def __init__(self):
        super().__init__()
        self.head = nn.LazyLinear(4)
class Norm(nn.LayerNorm):
    def forward(self, x): return super().forward(x.float()).to(x.dtype)
class Norm32(ViT):
    def __init__(self):
        super().__init__()
        self.norm = Norm(24)
        for block in self.blocks: block.norm1, block.norm2 = Norm(24), Norm(24)
def with_optimizer(): model = ViT(); return model, torch.optim.SGD(model.parameters()), nn.CrossEntropyLoss()
def compiled(): return nn.DataParallel(torch.compile(ViT()))
def on_meta():
    with torch.device("meta"): return ViT()
def mlp(): return nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
def two_models(): return ViT(), ViT()
def needs(width, depth, heads=3): pass
"""


@pytest.fixture
def odd(folder, monkeypatch):
    (folder / "odd.py").write_text(ODD)
    return lambda name, **asked: found_here(monkeypatch, f"odd.py:{name}", **asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pairs", "'0' is taken"),
        ("Listed", "'0' is taken"),
        ("Mapped", "'logits' is taken"),
        ("Named", "'scores' is taken"),
        ("Made", "'logits' is taken"),
        ("Single", "asked image by image"),
        ("OnCuda", "here it runs on the CPU"),
        ("In16", "16 bits"),
        ("LastCast", ""),
        ("Norm32", ""),
        ("Seeds", ""),
        ("Lazy", ""),
        ("with_optimizer", "of which the ViT is examined"),
        ("compiled", "DataParallel is examined"),
    ],
)
def test_right_models_are_taken_as_they_come(odd, name, said):
    found = odd(name)
    assert {finding["result"] for finding in found.values()} == {"passed", "not asked"}
    assert said in found["logits_come_out"]["details"]
    assert found["attention_is_seen"]["details"] == "attention recognized in 2 of 2 blocks"
    cast = name in ("In16", "LastCast", "Norm32")
    assert ("a cast to float32, likely meant" in found["float64_works"]["details"]) == cast


@pytest.mark.parametrize(
    ("name", "question", "said"),
    [
        ("InPlace", "images_stay_as_they_are", "numbers of the images given to it are others"),
        ("NoGraph", "logits_carry_a_gradient", "the logits carry none"),
        ("Inference", "logits_carry_a_gradient", "the logits carry none"),
        ("Eight", "every_batch_size_will_do", "invalid for input of size"),
    ],
)
def test_what_cannot_be_right_is_one_failure(odd, name, question, said):
    found = odd(name)
    assert [one["name"] for one in found.values() if one["result"] not in ("passed", "not asked")] == [question]
    assert found[question]["result"] == "FAILED" and said in found[question]["details"]


def test_a_question_that_stops_in_the_models_code_is_no_pass(odd):
    stopped = [Finding(**one) for one in odd("Raises").values() if one["result"] == "STOPPED"]
    assert stopped and all(".py, line" in finding.details for finding in stopped)
    assert exit_status(stopped) == 1 and verdict(stopped)[-1].endswith("no pass.")


def test_a_mistake_of_the_tools_is_not_the_models(odd, monkeypatch):
    monkeypatch.setattr(models, "math", None)
    findings = [Finding(**one) for one in odd("Pairs").values()]
    errors = [finding for finding in findings if finding.result == "ERROR"]
    assert all(finding.details.startswith("could not look inside: AttributeError") for finding in errors)
    assert errors and "vitbook" in errors[0].details and exit_status(findings) == 2


def test_without_attention_it_is_not_wholly_examined(odd):
    findings = [Finding(**one) for one in odd("mlp").values()]
    assert "Not wholly examined: no attention is recognized" in verdict(findings)[0] and exit_status(findings) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Exits", "forward ends Python by SystemExit: done (odd.py, line"),
        ("Two", "several do; return the logits alone"),
        ("TwoInputs", "its forward needs mask beside the images"),
        ("on_meta", "on the meta device"),
        ("two_models", "with ViT and ViT; expected one"),
        ("needs", 'needs width and depth: --args \'{"width": …, "depth": …}\''),
        ("Nobody", "odd.py has no Nobody; it has "),
    ],
)
def test_why_a_model_cannot_be_asked_is_said(folder, monkeypatch, name, said):
    (folder / "odd.py").write_text(ODD)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ValueError, match=re.escape(said)):
        raise ValueError(error_here(monkeypatch, f"odd.py:{name}"))


def test_weights_beside_the_code_count_as_trained(odd, folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    state = importlib.import_module("package.model").ViT().state_dict()
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}}, "w.pth")
    found = odd("Seeds", weights="w.pth")
    assert found["first_loss_is_near_ln_k"]["details"] == "the model is trained"
    torch.save({"cls": torch.zeros(1, 1, 3), "extra": torch.zeros(1)}, "w.pth")
    error = error_here(monkeypatch, "odd.py:Seeds", weights="w.pth")
    assert "w.pth does not fit the model: missing pos" in error and "unexpected extra" in error
    assert "cls should have the shape (1, 1, 24), got (1, 1, 3)" in error


def test_arguments_come_from_files_too(tmp_path):
    (tmp_path / "a.yaml").write_text("num_classes: 7")
    (tmp_path / "a.json").write_text('{"num_classes": 7}')
    (tmp_path / "b.yaml").write_text("[")
    for name in ("a.yaml", "a.json"):
        assert arguments_of("--args", str(tmp_path / name)) == {"num_classes": 7}
    with pytest.raises(ValueError, match=r"--args must be a JSON object.*got .*b\.yaml"):
        arguments_of("--args", str(tmp_path / "b.yaml"))


@pytest.mark.parametrize("late", [True, False])
def test_what_is_answered_until_an_early_end_is_reported(capsys, monkeypatch, late):
    def ended(*_):
        facts = _[-1]
        facts |= {"finding 0": vars(Finding("one", "one holds", "passed")), "doing": "another holds"}
        if not late:
            raise KeyboardInterrupt
        return limited_process.Outcome(facts, "stopped after 9 s", True)

    monkeypatch.setattr(limited_process, "run", ended)
    assert diagnosed("vit_ti_16") == (2 if late else 130)
    out = " ".join(capsys.readouterr().out.split())
    assert "passed one holds" in out and "at: another holds" in out and "no pass" in out


@pytest.mark.slow
def test_of_data_and_model_each_question_is_asked_once(monkeypatch):
    found = found_here(monkeypatch, "vit_digits", image_shape=None, data="digits")
    assert found["one_batch_can_be_learned"]["result"] == "passed"
    assert len({finding["about"] for finding in found.values()}) == len(found)


def test_progress_is_said_where_it_is_asked_for(capsys, monkeypatch):
    def run(work, asked, limits, doing, facts):
        doing and doing("one holds")
        facts["finding 0"] = vars(Finding("one", "one holds", "passed"))
        return limited_process.Outcome(facts)

    monkeypatch.setattr(limited_process, "run", run)
    assert diagnosed("vit_ti_16") == 0 and not capsys.readouterr().err
    assert diagnosed("vit_ti_16", "--progress") == 0 and capsys.readouterr().err == "one holds\n"


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
