"""The command does what its words say; what it cannot do it says in one line, with an exit code, and no traceback."""

import json
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import foreign
import pytest
import torch
from command import VITBOOK
from PIL import Image
from safetensors.torch import load_file
from small_sets import SMALL_SETS, unpack

from vitbook._downloads.datasets import SOURCES
from vitbook.checkpoint import load_checkpoint, save_checkpoint
from vitbook.data import digits, normalize
from vitbook.pretrained import load_pretrained
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig
from vitbook_workshop.commands import main, reason
from vitbook_workshop.commands.command_line import COMMANDS
from vitbook_workshop.training_runs import results, settings, teachers, trained_models, training

pytest_plugins = ["shared_fixtures"]

SMALL = "--dim 12 --depth 1 --num-heads 3 --mlp-dim 20 --patch-size 4 --epochs 2 --affine 0 --no-progress".split()


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder in which a small model has been trained."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    assert main(["train", "--folder", str(folder), *SMALL, "--learning-rate", "0.02", "--epochs", "12"]) == 0
    return folder


@pytest.fixture(scope="module")
def blind(tmp_path_factory) -> Path:
    """A checkpoint of a model without class token."""
    config = ViTConfig(8, 4, 1, 10, dim=12, depth=1, num_heads=3, mlp_dim=20, pool="mean", class_token=False)
    facts = dict(model=asdict(config), class_names=list("0123456789"), mean=[0.3], std=[0.4])
    return save_checkpoint(tmp_path_factory.mktemp("runs"), "blind", VisionTransformer(config).state_dict(), facts)


@pytest.fixture(scope="module")
def foreigners(tmp_path_factory) -> dict[str, Path]:
    """Weights as timm writes them, for images of 12×12 color pixels and 7 classes, and some that cannot be used."""
    folder = tmp_path_factory.mktemp("weights")
    kinds = dict(file={}, headless=dict(classes=0), distilled=dict(distilled=True))
    for name, changes in kinds.items():
        torch.save(foreign.timm(dim=64, depth=1, **changes), folder / f"{name}.pth")
    return {name: folder / f"{name}.pth" for name in kinds}


def picture(folder: Path, index: int = 0) -> Path:
    """A test digit as a file."""
    path = folder / f"digit{index}.png"
    Image.fromarray(digits().test.images[index, 0].numpy()).save(path)
    return path


# Each command


def test_train_says_where_it_leaves_the_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *SMALL]) == 0
    said = capsys.readouterr()
    assert "validation accuracy" in said.out
    assert said.out.endswith("kept in runs/vit_digits; to test it: vitbook evaluate runs/vit_digits\n")
    assert said.err == ""
    assert main(["evaluate"]) == 0, "without options, the commands go together"


def test_evaluate_says_what_evaluation_says(trained, capsys):
    assert main(["evaluate", str(trained)]) == 0
    line = capsys.readouterr().out
    result = results.evaluate_run(trained)
    assert len(result.labels) == len(digits().test)
    assert torch.equal(result.labels, digits().test.labels)
    assert result.accuracy > 0.5
    right = round(result.accuracy * 360)
    assert line == f"test accuracy {result.accuracy:.2%} ({right} of 360), loss {result.loss:.4f} nats\n"


def test_predict_names_classes_with_probabilities(trained, tmp_path, capsys):
    paths = [picture(tmp_path, index) for index in range(3)]
    assert main(["predict", *map(str, paths), "--checkpoint", str(trained), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    result = results.evaluate_run(trained)
    for line, path, logits in zip(lines, paths, result.logits, strict=False):
        shares, classes = logits.softmax(dim=0).topk(2)
        words = ", ".join(f"{k} {share:.1%}" for k, share in zip(classes.tolist(), shares.tolist(), strict=True))
        assert line == f"{path}: {words}"
    assert len(lines) == 3


def test_predict_goes_on_after_a_file_that_is_no_image(trained, tmp_path, capsys):
    (tmp_path / "torn.png").write_bytes(b"none")
    paths = [
        str(picture(tmp_path, 0)),
        str(tmp_path / "torn.png"),
        str(tmp_path / "none.png"),
        str(picture(tmp_path, 1)),
    ]
    assert main(["predict", *paths, "--checkpoint", str(trained)]) == 1
    said = capsys.readouterr()
    assert [line.partition(": ")[0] for line in said.out.splitlines()] == [paths[0], paths[3]]
    torn, none = said.err.splitlines()
    assert torn.startswith(f"vitbook: {paths[1]} cannot be read") and none.startswith("vitbook: No such file")


def test_what_weights_do_not_tell_is_said_in_a_line(foreigners, tmp_path):
    with pytest.warns(UserWarning, match="mean, std, crop and interpolation are assumed to be those of timm"):
        assert main(["predict", str(picture(tmp_path)), "--weights", str(foreigners["file"])]) == 0
    assert warnings.formatwarning("one\n two", UserWarning, "file.py", 3) == "vitbook: one two\n"


def test_explain_draws_a_figure_and_a_page_of_what_it_is_asked(trained, tmp_path, capsys):
    """The numbers in them are in tests/workshop/live/test_explain_file.py."""
    out, page = tmp_path / "new" / "figure.png", tmp_path / "new" / "page.html"
    place = [str(picture(tmp_path)), "--checkpoint", str(trained), "--out", str(out), "--html", str(page)]
    assert main(["explain", *place, *"--head -1 --query 1 2 --size 8 12 --layer 0".split()]) == 0
    said = capsys.readouterr().out
    assert said.startswith("Positions were resized from 2×2 to 2×3 patches.\n")
    assert said.endswith(f"drawn in {out}, to be explored in {page}\n")
    assert {path.name for path in out.parent.iterdir()} == {"figure.png", "page.html"}


@pytest.mark.door  # a check of shapes would make symbolic sizes fixed ones
def test_export_writes_a_file_that_gives_the_models_logits(trained, tmp_path, capsys):
    assert main(["export", str(trained), "--to", "pt2", "--out", str(tmp_path / "new" / "model.pt2")]) == 0
    said = capsys.readouterr().out
    assert "model.pt2: " in said and float(re.findall(r"off by (\S+) at most", said)[0]) < 1e-4


@pytest.mark.door
def test_export_takes_a_model_from_the_gpu(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(
        trained_models, "device", lambda: torch.float64
    )  # stands for a GPU: no float32 goes with what is there
    monkeypatch.setattr(torch.nn.Module, "cpu", torch.nn.Module.float)
    assert main(["export", str(trained), "--to", "pt2", "--out", str(tmp_path / "model.pt2")]) == 0


def test_export_says_what_is_not_installed(trained, tmp_path, without_onnxscript, capsys):
    assert main(["export", str(trained), "--out", str(tmp_path / "model.onnx")]) == 1
    said = "vitbook: ONNX needs onnxscript, which is not installed: pip install"
    assert capsys.readouterr().err.startswith(said)


def test_summary_counts_parameters(capsys):
    assert main(["summary", "vit_h_14", "--depth", "1"]) == 0
    assert "Total params: 632,045,800" in capsys.readouterr().out


def test_datasets_lists_all_that_load(capsys):
    assert main(["datasets"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["digits", *SOURCES, "FOLDER"]


# Options


def weights(folder: Path) -> str:
    return json.loads((folder / "best.json").read_text())["sha256"]


def test_a_config_repeats_its_run_and_options_depart_from_it(tmp_path):
    one, again, other = (tmp_path / name for name in ("one", "again", "other"))
    assert main(["train", *SMALL, "--folder", str(one), "--seed", "7", "--drop-path", "0.2"]) == 0
    config = ["--config", str(one / "run.json"), "--no-progress"]
    assert main(["train", "--config", str(one), "--no-progress", "--folder", str(again)]) == 0
    assert main(["train", *config, "--folder", str(other), "--seed", "8"]) == 0
    assert weights(one) == weights(again) != weights(other)
    first, last = (settings.read_run(folder / "run.json") for folder in (one, other))
    assert (first.vit, last.train.seed) == (last.vit, 8)


def test_recipes_are_runs(capsys):
    main(["recipes"])
    listed = capsys.readouterr().out
    assert "taught by runs/cifar10_teacher" in listed and "not measured yet" in listed
    record = json.loads(results.RECORDED["cifar10_quick"].read_text())
    assert f"test accuracy {record['test_accuracy']:.1%}" in listed
    for name in settings.RECIPES:
        run = settings.run_of(config=Path(name))
        assert run.model in CONFIGS or run.cnn
        assert name in listed and name.startswith(run.dataset) and run.folder == Path("runs") / name


@pytest.mark.parametrize("path", settings.RECIPES.values(), ids=settings.RECIPES)
def test_a_recipe_states_what_differs_from_the_defaults_and_its_runs_state_all(path, tmp_path):
    run, stated = settings.read_run(path), json.loads(path.read_text())
    default = asdict(replace(settings.Run(), vit=CONFIGS.get(run.model, settings.Run.vit)))
    default = json.loads(json.dumps(default, default=str))
    settings.write_run(replace(run, folder=tmp_path))
    written = json.loads((tmp_path / "run.json").read_text())
    for part in ("train", "vit"):
        ours, all_of_them = stated.pop(part, {}), default.pop(part)
        assert all(all_of_them[name] != value for name, value in ours.items()), "a default is repeated"
        assert written.pop(part) == all_of_them | ours
    assert all(default[name] != value for name, value in stated.items())
    assert written == default | stated | {"folder": str(tmp_path)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "cifar10_plain")) for name in settings.RECIPES]
)
def test_a_recipe_trains(name, tmp_path):
    """A dry run on a few pictures in the layout of the data set: some steps, a checkpoint, a test."""
    recipe = settings.run_of(config=Path(name))
    small = SMALL_SETS[recipe.dataset]
    unpack(small, tmp_path / "data" / SOURCES[recipe.dataset].folder)
    train = replace(recipe.train, epochs=1, batch_size=4, compile=False)
    run = replace(recipe, train=train, data_dir=tmp_path / "data", folder=tmp_path / "run", validation=0.2)
    if recipe.teacher:
        teacher = replace(run, teacher=None, folder=tmp_path / "teacher", vit=CONFIGS["vit_cifar"], cnn=(4, 6))
        training.train_run(teacher, progress=False)
        run = replace(run, teacher=str(teacher.folder))
    records = training.train_run(run, progress=False)
    assert records[0]["step"] >= 2
    assert 0 < records[0]["train_loss"] < math.log(len(small.class_names)) + 1.5
    if not recipe.teacher:  # one that has learned little itself is soon agreed with
        assert records[0]["train_loss"] > math.log(len(small.class_names)) - 1.5
    assert trained_models.open_model(tmp_path / "run").class_names == small.class_names
    assert 0 <= results.evaluate_run(tmp_path / "run").accuracy <= 1


# Help, which comes at once, and errors


def test_help_and_usage_errors_import_neither_torch_nor_what_needs_it(capsys):
    code = "import sys; from vitbook_workshop.commands import main\nfor a in sys.argv[1:]:\n"
    code += "    try: main(a.split())\n    except SystemExit: pass\n"
    code += "print(*({'torch', 'torchinfo', 'ignite', 'sklearn', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    calls = ["--help", "", "trian", "predict", "explain --query 0", "evaluate --help", "summary --depth x"]
    done = subprocess.run([sys.executable, "-c", code, *calls], capture_output=True, text=True)
    *errors, modules = done.stderr.splitlines()
    assert modules == "" and len(errors) == 5 and all(line.startswith("vitbook: ") for line in errors)
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_the_version_is_said_in_a_line(capsys):
    assert main(["--version"]) == 0
    assert re.fullmatch(r"vitbook \d+\.\d+\.\d+, torch \S+, Python \S+\n", capsys.readouterr().out)


def test_what_is_not_installed_is_named_with_the_extra_that_brings_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torchinfo", None)
    assert main(["summary"]) == 1
    said = 'vitbook: this needs torchinfo, which is not installed: pip install "vitbook[book]"\n'
    assert capsys.readouterr().err == said
    for name, extra in (("ignite.engine", "train"), ("sklearn", "train"), ("matplotlib", "book"), ("scipy", "book")):
        assert reason(ModuleNotFoundError("", name=name)).endswith(f'pip install "vitbook[{extra}]"')


HUGE = str(10**23)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("", 2, "a command is needed: train, evaluate,"),
        ("trian", 2, "unknown command 'trian', did you mean 'train'?"),
        ("train --epoch 3", 2, "Unrecognized options: --epoch, 3 Perhaps you meant: --epochs INT"),
        ("train --epochs 0", 2, "vitbook: epochs must be at least 1, got 0 (see vitbook train --help)"),
        (f"train --image-size {HUGE}", 2, "vitbook: image_size"),
        ("train --dataset {own} --image-size 8 16", 1, "must be a square for a folder's images, got 8×16"),
        ("train --dataset {own} --folder {own}/run", 1, "folder must be outside the images in {own}, got {own}/run"),
        ("train --data-dir {own}/none", 1, "data_dir must be a folder, and there is none at {own}/none"),
        ("train --batch-size 5000", 1, "batch_size must be at most 1295, the training images, got 5000"),
        ("evaluate {own}/none", 1, "there is no trained model at"),
        ("evaluate {trained} --split all", 1, "unknown split 'all'"),
        ("predict", 2, "vitbook: predict needs an image file"),
        ("explain {digit} --checkpoint {trained} --head 3", 1, "head must lie in 0 … 2"),
        (f"explain {{digit}} --checkpoint {{trained}} --size {HUGE}", 2, "size must be at most 16384 pixels, got 1000"),
        (
            "explain {digit} --checkpoint {trained} --size 4096",
            1,
            "makes 1,048,576 patches, whose attention in 3",
        ),
        ("explain {digit} --checkpoint {trained} --out a.png --html ./a.png", 2, "out must be another file than html"),
        ("explain {digit} --checkpoint {trained} --out {digit}", 2, "out must be another file than image"),
        ("explain {digit} --checkpoint {trained} --out a.pdf", 1, "must end in .png, got a.pdf"),
        ("explain {digit} --checkpoint {blind}", 1, "name a patch as query"),
        ("train --init {broken}", 2, "{broken}"),
        ("train --init {file} --dim 66", 1, "dim must be 64 as in {file}, got 66"),
        ("train --tune lora", 2, "tune lora needs weights to begin with: name init, as vitbook:cifar10"),
        ("train --init {file} --tune half", 2, "tune must be one of probe, lora, layers, all, got 'half'"),
        ("train --init {file} --tune lora --lora-rank 65", 1, "rank must be at most 64, the narrower side of the map"),
        ("train --init {file} --layer-decay 2", 1, "decay must be above 0 and at most 1, got 2.0"),
        ("predict --weights {file} {digit} --top 0", 1, "top must be at least 1, got 0"),
        ("predict --weights {headless} {digit}", 1, "have no head, and so name no classes"),
        ("predict {digit} --checkpoint {trained} --weights vitbook:mae", 1, "name a checkpoint or weights, got both: "),
        ("predict {digit} --weights cifar10", 1, "unknown weights 'cifar10', did you mean 'vitbook:cifar10'?"),
        ("export {trained} --out runs/new.foo", 1, "in the format onnx must end in .onnx, got runs/new.foo"),
        ("predict {digit} --checkpoint {trained} --masks x", 1, "masks are what a model of --task segment says, and "),
        ("train --init {file} --lora-rank 4", 2, "lora_rank 4 needs tune lora, got tune all"),
        ("train --validation 1.5", 2, "validation must lie in 0 … 1, got 1.5"),
        pytest.param(
            "train --device cuda",
            1,
            "device cuda was asked for, and torch finds none",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        ("paint --class 10", 1, "unknown class '10'. There are airplane, automobile, "),
        ("paint --class hose", 1, "unknown class 'hose', did you mean 'horse'? There are "),
        ("paint --class 7 --steps 0", 1, "steps must be at least 1, got 0"),
        ("paint --class 7 --guidance -1", 1, "guidance must be at least 0, got -1.0"),
        ("paint --class 7 --number 0", 1, "number must be at least 1, got 0"),
        ("paint --class 7 --to sheet.gif", 1, "a sheet is a .png, got sheet.gif"),
        ("train --folder=", 2, "an argument is empty; is a variable of the shell not set?"),
        ("evaluate vitbook:cifar10", 1, "published weights are named so: --weights vitbook:cifar10"),
        ("evaluate {trained}/last.json", 1, "last.json is what a run is resumed from; its weights to use are in best"),
    ],
)
def test_an_error_is_one_line_with_a_code(
    tmp_path, monkeypatch, capsys, trained, blind, foreigners, arguments, code, message
):
    monkeypatch.chdir(tmp_path)
    places = dict(own=tmp_path / "own", broken=tmp_path / "broken.json", trained=trained, blind=blind)
    places |= foreigners | dict(digit=picture(tmp_path))
    places["own"].mkdir()
    places["broken"].write_text('{"epochs": 3}')
    assert main(arguments.format(**places).split()) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("vitbook: ") and said.err.count("\n") == 1
    assert message.format(**places) in said.err
    assert not list(tmp_path.glob("attention*")) and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("module", ["tyro", "torch"])
def test_ctrl_c_during_the_imports_is_a_line(module):
    """What Ctrl-C raises is raised while that module is looked for."""
    code = f"""if True:
        import sys
        from vitbook_workshop.commands import main
        class Stop:
            def find_spec(name, path=None, target=None):
                if name == {module!r}:
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Stop)
        sys.exit(main(["train"]))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (130, "vitbook: stopped\n", "")


def test_ctrl_c_that_an_import_swallows_is_a_line_all_the_same():
    """As numpy's does, which then cannot be imported again."""
    code = """if True:
        import signal, sys
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a script runs tests in the background
        from vitbook_workshop.commands import main
        class Stop:
            def find_spec(name, path=None, target=None):
                if name == "tyro":
                    try:
                        signal.raise_signal(signal.SIGINT)
                    except KeyboardInterrupt:
                        raise ImportError("cannot load module more than once per process") from None
        sys.meta_path.insert(0, Stop)
        sys.exit(main())"""
    done = subprocess.run([sys.executable, "-c", code, "look"], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (130, "vitbook: stopped\n", "")


@pytest.mark.skipif(os.name != "posix", reason="a shell closes what it is told to")
@pytest.mark.parametrize(
    ("redirect", "code", "says"),
    [
        (">&-", 1, "vitbook: standard output is closed, and what this would have said is lost\n"),
        ("2>&- >/dev/null", 0, ""),
        ("<&- >/dev/null", 0, ""),
        (">/dev/full", 1, "vitbook: [Errno 28] No space left on device\n"),
    ],
)
def test_closed_and_full_outputs_are_a_line_at_most(redirect, code, says):
    done = subprocess.run(f"{VITBOOK} --help {redirect}", shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, says)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_that_would_steer_a_terminal_or_are_no_utf8_are_escaped(tmp_path, capsys):
    for name in (b"a\xff", b"b\x1b[31m"):
        folder = os.fsencode(tmp_path) + b"/" + name
        os.mkdir(folder)
        for i in range(2):
            Image.new("RGB", (9, 9), (90 * i, 0, 0)).save(os.fsdecode(folder) + f"/{i}.png")
    assert main(["look", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "a\\udcff " in said and "b\\x1b[31m " in said and "\x1b" not in said
    said.encode()


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a closed pipe is another error")
def test_a_reader_that_goes_away_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([VITBOOK, "--help"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_ends_cleanly_and_the_training_can_go_on(tmp_path, capsys):
    folder = tmp_path / "run"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells deafen what runs in the background
    try:
        threading.Thread(target=press_ctrl_c_when, args=((folder / "last.json").exists,), daemon=True).start()
        assert main(["train", *SMALL, "--epochs", "2000", "--folder", str(folder)]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    said = capsys.readouterr().err
    again = f"vitbook train --config {folder / 'run.json'} --resume"
    assert said.endswith(f"vitbook: stopped; from the last checkpoint on: {again}\n")
    assert "Traceback" not in said
    _, facts = load_checkpoint(folder / "last.json")
    assert 0 < facts["step"] < 40_000
    assert settings.read_run(folder / "run.json").train.epochs == 2000


def press_ctrl_c_when(it_is_time: Callable[[], bool]) -> None:
    """Called in a thread: the main thread is interrupted, as by a signal."""
    while not it_is_time():
        time.sleep(0.02)
    signal.raise_signal(signal.SIGINT)


def own_pictures(folder: Path, each: int = 6) -> Path:
    """Three classes of pictures, each of a grey level of its own."""
    for label, name in enumerate(("ant", "bee", "cow")):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            Image.new("L", (8, 8), 60 * label + i).save(folder / name / f"{i}.png")
    return folder


def test_a_model_is_tested_on_what_it_was_not_trained_on_or_not_at_all(tmp_path, capsys):
    pictures = own_pictures(tmp_path / "pictures")
    options = ["--dataset", str(pictures), "--image-size", "8", "--batch-size", "4", "--validation", "0.2"]
    assert main(["train", "--folder", str(tmp_path / "run"), *SMALL, *options]) == 0
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    Image.new("L", (8, 8), 9).save(pictures / "ant" / "another.png")
    assert main(["evaluate", str(tmp_path / "run")]) == 1
    assert "has other train images than" in capsys.readouterr().err
    assert main(["train", "--folder", str(tmp_path / "run"), *SMALL, *options, "--resume"]) == 1
    assert "holds another run: images.train is" in capsys.readouterr().err
    (pictures / "bee").rename(pictures / "dog")
    assert main(["evaluate", str(tmp_path / "run")]) == 1
    assert "knows classes ('ant', 'bee', 'cow')" in capsys.readouterr().err


def test_a_training_goes_on_where_it_was_moved_to(tmp_path, capsys):
    assert main(["train", "--folder", str(tmp_path / "before"), *SMALL]) == 0
    (tmp_path / "before").rename(tmp_path / "after")
    assert main(["train", "--config", str(tmp_path / "after" / "run.json"), "--no-progress"]) == 1
    assert "already holds a training run" in capsys.readouterr().err
    assert main(["train", "--config", str(tmp_path / "after" / "run.json"), "--resume", "--no-progress"]) == 0
    assert not (tmp_path / "before").exists()


# Files that are opened once


@pytest.fixture
def opened(monkeypatch) -> Counter[str]:
    """How often each file has been opened to be read, by its name."""
    counts: Counter[str] = Counter()

    def counting(open_it, reads=lambda mode="r", *_, **__: "r" in mode):
        def open_and_count(file, *arguments, **options):
            counts[os.path.basename(str(file))] += reads(*arguments, **options)
            return open_it(file, *arguments, **options)

        return open_and_count

    monkeypatch.setattr("io.open", counting(open))
    monkeypatch.setattr("builtins.open", counting(open))
    monkeypatch.setattr("vitbook.pretrained.weight_files.load_file", counting(load_file, lambda: True))
    return counts


@pytest.mark.parametrize("command", ["evaluate", "predict --checkpoint", "explain --checkpoint", "export"])
def test_a_command_opens_its_checkpoint_once(command, trained, tmp_path, monkeypatch, opened):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vitbook.export.export", lambda *_: 1 / 0)  # its graph has tests of its own
    name, *option = command.split()
    image = [str(picture(tmp_path))] if option else []
    assert main([name, *image, *option, str(trained)]) == (name == "export")
    tensors = json.loads((trained / "best.json").read_text())["tensors"]
    assert (opened["best.json"], opened[tensors]) == (2, 1), "the second is this test's"


@pytest.mark.parametrize("command", ["predict digit0.png --weights", "train --epochs 1 --no-progress --seeds 2 --init"])
def test_a_command_opens_the_weights_of_others_once(command, tmp_path, foreigners, monkeypatch, opened):
    monkeypatch.chdir(tmp_path)
    picture(tmp_path)
    opened.clear()
    assert main([*command.split(), str(foreigners["file"])]) == 0
    assert opened["file.pth"] == 1


# Several processes


@pytest.mark.slow
def test_torchruns_processes_work_together(tmp_path):
    """Two processes, started as torchrun starts them, on the loopback interface: the first leaves what one leaves.

    Up to sums that are rounded in another order. The keys' biases change no attention weight, so that their gradient
    is rounding alone, of which AdamW makes whole steps.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    command = ["train", *SMALL, "--accumulate", "2", "--ema", "0.9", "--folder"]
    processes = [
        subprocess.Popen(
            [VITBOOK, *command, str(tmp_path / rank)],
            env=os.environ | both | dict(RANK=rank, LOCAL_RANK=rank),
        )
        for rank in "01"
    ]
    assert [process.wait(180) for process in processes] == [0, 0]
    assert not (tmp_path / "1").exists()
    assert main([*command, str(tmp_path / "one")]) == 0
    (one, facts), (two, others) = (load_checkpoint(tmp_path / name / "last.json") for name in ("one", "0"))
    for ours, theirs in zip(facts["history"], others["history"], strict=True):
        for key in ("train_loss", "gradient_norm", "validation_loss", "validation_accuracy"):
            assert theirs[key] == pytest.approx(ours[key], rel=1e-3)
    for name in one:
        if not name.endswith("qkv.bias"):
            torch.testing.assert_close(two[name], one[name], rtol=0, atol=1e-4)


# Weights of others


NO_STEPS = "--epochs 1 --learning-rate 0 --affine 0 --no-progress".split()


def test_train_begins_with_the_weights_of_others(tmp_path, foreigners, capsys):
    folder, weights_file = tmp_path / "run", foreigners["file"]
    assert main(["train", "--init", str(weights_file), "--folder", str(folder), *NO_STEPS]) == 0
    expected = load_pretrained(weights_file, num_classes=10, image_size=8, channels=1)
    tensors, facts = load_checkpoint(folder / "best.json")
    assert tensors.keys() == expected.model.state_dict().keys()
    assert all(torch.equal(tensor, expected.model.state_dict()[name]) for name, tensor in tensors.items())
    assert (facts["mean"], facts["std"]) == ([0.5], [0.5]), "the pictures are as the weights want them"
    run = settings.read_run(folder / "run.json")
    assert (run.init, run.vit.dim, run.vit.depth, run.model) == (str(weights_file), 64, 1, "file.pth")
    assert main(["train", "--config", str(folder / "run.json"), "--no-progress", "--folder", str(tmp_path / "2")]) == 0
    assert weights(folder) == weights(tmp_path / "2")
    assert main(["train", "--config", str(folder / "run.json"), "--no-progress", "--resume"]) == 0
    assert main(["evaluate", str(folder)]) == 0
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["layer scale", "distilled"])
def test_training_begins_with_every_kind_of_model_that_is_loaded(tmp_path, kind):
    state = foreign.timm(distilled=kind == "distilled", dim=64)
    if kind == "layer scale":
        state |= {f"blocks.{i}.ls{n}.gamma": torch.rand(64) for i in range(foreign.DEPTH) for n in (1, 2)}
    torch.save(state, tmp_path / "theirs.pth")
    folder = tmp_path / "run"
    assert main(["train", "--init", str(tmp_path / "theirs.pth"), "--folder", str(folder), *NO_STEPS]) == 0
    expected = load_pretrained(tmp_path / "theirs.pth", num_classes=10, image_size=8, channels=1).model
    kept = load_pretrained(folder).model
    assert type(kept) is type(expected) and kept.config == expected.config
    assert all(torch.equal(tensor, expected.state_dict()[name]) for name, tensor in kept.state_dict().items())
    again = ["train", "--config", str(folder / "run.json"), "--no-progress"]
    assert main([*again, "--resume"]) == main([*again, "--folder", str(tmp_path / "2")]) == 0
    assert weights(folder) == weights(tmp_path / "2")


@pytest.mark.parametrize(
    "tune", ["lora", *(pytest.param(way, marks=pytest.mark.slow) for way in ("probe", "layers", "all"))]
)
def test_each_way_of_tuning_trains_what_it_says_and_its_weights_open_as_any_others(tmp_path, foreigners, capsys, tune):
    folder, source = tmp_path / "run", foreigners["file"]
    options = ["--init", str(source), "--tune", tune, "--folder", str(folder), "--no-progress"]
    assert main(["train", *options, "--epochs", "1", "--batch-size", "100"]) == 0
    run, tensors = settings.read_run(folder / "run.json"), load_checkpoint(folder / "last.json")[0]
    assert (run.tune, run.train.learning_rate) == (tune, settings.FOR_TUNING[tune]["learning_rate"])
    assert (run.train.layer_decay < 1) == (tune == "layers") and run.validation == 0
    before = load_pretrained(source, num_classes=10, image_size=8, channels=1).model.state_dict()
    after = trained_models.open_model(folder).model.cpu().state_dict()
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    head, maps = {"head.weight", "head.bias"}, {"encoder.blocks.0.attn.qkv.weight"}
    assert changed == {"probe": head, "lora": head | maps}.get(tune, set(before))
    assert any("lora_" in name for name in tensors) == (tune == "lora")
    again = ["train", "--config", str(folder / "run.json"), "--resume", "--no-progress"]
    assert main(again) == main(["evaluate", str(folder)]) == 0
    capsys.readouterr()
    assert main([*again, "--tune", "all" if tune == "probe" else "probe"]) == 1
    assert f"holds another run: tune is {tune} there" in capsys.readouterr().err


# Teachers and seeds


@pytest.fixture(scope="module")
def cnn(tmp_path_factory) -> Path:
    """A folder in which a small convolutional network has been trained on the digits."""
    folder = tmp_path_factory.mktemp("runs") / "cnn"
    assert main(["train", "--folder", str(folder), *SMALL, "--cnn", "6", "8", "--optimizer", "muon"]) == 0
    return folder


def test_a_convolutional_network_is_trained_tested_and_used_by_the_same_commands(cnn, tmp_path, capsys):
    capsys.readouterr()
    assert main(["evaluate", str(cnn)]) == 0
    assert main(["predict", str(picture(tmp_path)), "--checkpoint", str(cnn)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert results.evaluate_run(cnn).accuracy > 0.3
    assert main(["explain", str(picture(tmp_path)), "--checkpoint", str(cnn), "--out", str(tmp_path / "a.png")]) == 1
    assert "has no attention" in capsys.readouterr().err
    assert main(["train", "--init", str(cnn)]) == 2
    assert "expected a Vision Transformer, got a convolutional network" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["cnn", "trained"])
def test_a_model_learns_from_a_teacher_given_by_its_path(kind, request, tmp_path, capsys):
    teacher = request.getfixturevalue(kind)
    folders = [tmp_path / "taught", tmp_path / "alone"]
    for folder, options in zip(folders, (["--teacher", str(teacher)], []), strict=True):
        assert main(["train", "--folder", str(folder), *SMALL, *options]) == 0
    taught, alone = (load_checkpoint(folder / "last.json") for folder in folders)
    assert not torch.equal(taught[0]["model.head.weight"], alone[0]["model.head.weight"])
    assert len(taught[1]["teacher"]) == 64 and alone[1]["teacher"] is None
    assert settings.read_run(folders[0] / "run.json").teacher == str(teacher)
    capsys.readouterr()
    assert main(["train", "--folder", str(folders[0]), *SMALL, "--resume"]) == 1
    assert "holds another run: teacher is" in capsys.readouterr().err


def test_a_teacher_sees_the_images_as_its_own_were_normalized(trained):
    data = digits()
    other = replace(data, given_moments=(torch.tensor([0.1]), torch.tensor([0.7])))
    images = data.test.images[:5]
    with torch.no_grad():
        expected = trained_models.open_model(trained).model.cpu()(normalize(images, *moments_of(trained)))
        taught = teachers.load_teacher(str(trained), other).cpu()(other.normalize(images))
    torch.testing.assert_close(taught, expected, atol=1e-4, rtol=1e-4)


def moments_of(folder: Path) -> list[torch.Tensor]:
    """Mean and standard deviation of a run's images."""
    facts = load_checkpoint(folder / "best.json")[1]
    return [torch.tensor(facts[name]) for name in ("mean", "std")]


def test_a_teacher_that_does_not_fit_is_refused_before_training_starts(trained, tmp_path, capsys):
    pictures, folder = own_pictures(tmp_path / "pictures"), tmp_path / "run"
    own = ["--dataset", str(pictures), "--batch-size", "4", "--validation", "0.2"]
    for options, message in (
        ([*own, "--image-size", "8"], "must know the data's images ("),
        ([*own, "--image-size", "16"], "must know the data's images ("),
        (["--teacher", str(tmp_path / "none")], f"{tmp_path}/none"),
        (["--teacher", "runs/cifar10_teacher"], "`vitbook train --config cifar10_teacher` trains it"),
        (["--teacher", "vitbook:none"], "unknown weights 'vitbook:none'"),
    ):
        assert main(["train", "--folder", str(folder), *SMALL, "--teacher", str(trained), *options]) == 1
        assert message in capsys.readouterr().err
        assert not (folder / "last.json").exists()


@pytest.mark.slow
def test_of_a_run_of_several_seeds_each_teaches_its_share_of_a_batch(tmp_path):
    folder, data = tmp_path / "run", digits()
    assert main(["train", "--folder", str(folder), *SMALL, "--seeds", "2"]) == 0
    images = data.normalize(data.test.images[:5])
    with torch.no_grad():
        both, *each = (
            teachers.load_teacher(str(folder / part), data).cpu().eval()(images) for part in ("", "seed_0", "seed_1")
        )
    torch.testing.assert_close(both, torch.cat([each[0][:3], each[1][3:]]))
    assert main(["train", "--folder", str(tmp_path / "taught"), *SMALL, "--teacher", str(folder)]) == 0


def test_training_says_itself_where_it_goes_wrong(tmp_path, capsys):
    spoiled = ["--folder", str(tmp_path / "spoiled"), *SMALL, "--learning-rate", "1e30", "--clip-norm", "0"]
    assert main(["train", *spoiled]) == 1
    said = capsys.readouterr().err.splitlines()
    assert any(line.startswith("vitbook: not so: ") and " step " in line for line in said), said
    assert main(["train", "--folder", str(tmp_path / "right"), *SMALL]) == 0
    assert "not so" not in capsys.readouterr().err


def test_several_seeds_train_in_folders_of_their_own_and_mean_and_spread_are_said(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "--folder", str(folder), *SMALL, "--seeds", "2", "--seed", "5"]) == 0
    said = capsys.readouterr().out
    histories = [json.loads((folder / f"seed_{n}" / "last.json").read_text())["history"] for n in (5, 6)]
    one, other = (max(record["validation_accuracy"] for record in history) for history in histories)
    spread = 100 * abs(one - other) / 2**0.5
    assert f"validation accuracy {(one + other) / 2:.2%} ± {spread:.2f} (" in said
    assert histories[0][-1]["train_loss"] != histories[1][-1]["train_loss"]
    places = [str(folder / f"seed_{n}") for n in (5, 6)]
    with pytest.raises(FileNotFoundError, match=f"a run for each seed: name {places[0]} or {places[1]}"):
        trained_models.open_model(folder)
    assert said.endswith(f"vitbook evaluate {' '.join(places)}\n")
    assert main(["evaluate", *places]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    mean = sum(results.evaluate_run(Path(place)).accuracy for place in places) / 2
    assert last.startswith(f"test accuracy {mean:.2%} ± ")
