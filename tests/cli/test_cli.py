"""The command does what its words say; what it cannot do it says in one line, with an exit code, and no traceback."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import foreign
import pytest
import torch
from PIL import Image
from small_sets import SMALL_SETS, unpack

pytest.importorskip("vitbook.downloads.datasets")

from vitbook import plotting, runs
from vitbook._support.images import crop_and_scale, to_tensor
from vitbook.attention_maps import recorded_attention, rollout
from vitbook.checkpoint import load_checkpoint, save_checkpoint
from vitbook.cli import main
from vitbook.data import digits, normalise, photograph
from vitbook.downloads.datasets import SOURCES
from vitbook.exercises import EXERCISES
from vitbook.explorer import explore
from vitbook.pretrained import load_pretrained
from vitbook.vit import CONFIGS, VisionTransformer, ViTConfig

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


def picture(folder: Path, index: int = 0) -> Path:
    """A test digit as a file."""
    path = folder / f"digit{index}.png"
    Image.fromarray(digits().test.images[index, 0].numpy()).save(path)
    return path


# Each command


def test_train_keeps_what_it_was_asked_and_what_came_of_it(trained):
    run = runs.read_run(trained / "run.json")
    assert (run.vit.dim, run.vit.depth, run.train.epochs, run.train.learning_rate) == (12, 1, 12, 0.02)
    assert (run.model, run.dataset, run.place) == ("vit_digits", "digits", trained)
    _, facts = load_checkpoint(trained / "last.json")
    assert facts["step"] == 12 * 20
    assert facts["config"] == json.loads((trained / "run.json").read_text())["train"]
    assert len((trained / "log.jsonl").read_text().splitlines()) == 12


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
    result = runs.evaluate_run(trained)
    assert len(result.labels) == len(digits().test)
    assert torch.equal(result.labels, digits().test.labels)
    assert result.accuracy > 0.5
    right = round(result.accuracy * 360)
    assert line == f"test accuracy {result.accuracy:.2%} ({right} of 360), loss {result.loss:.4f} nats\n"


def test_evaluate_on_validation_says_what_training_said(trained):
    result = runs.evaluate_run(trained / "best.json", "validation")
    _, facts = load_checkpoint(trained / "best.json")
    assert result.accuracy == pytest.approx(facts["best"]["validation_accuracy"])
    assert result.loss == pytest.approx(facts["best"]["validation_loss"], rel=1e-5)


def test_predict_names_classes_with_probabilities(trained, tmp_path, capsys):
    paths = [picture(tmp_path, index) for index in range(3)]
    assert main(["predict", *map(str, paths), "--checkpoint", str(trained), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    result = runs.evaluate_run(trained)
    for line, path, scores in zip(lines, paths, result.scores, strict=False):
        shares, classes = scores.softmax(dim=0).topk(2)
        words = ", ".join(f"{k} {share:.1%}" for k, share in zip(classes.tolist(), shares.tolist(), strict=True))
        assert line == f"{path}: {words}"
    assert len(lines) == 3


def test_predict_takes_pictures_of_any_size_and_kind(trained, tmp_path):
    large = Image.open(picture(tmp_path)).convert("CMYK").resize((64, 64), Image.Resampling.NEAREST)
    large.save(tmp_path / "large.jpg", quality=100)
    (small,), (other,) = (
        runs.predict_pictures(trained, [picture(tmp_path)]),
        runs.predict_pictures(trained, [tmp_path / "large.jpg"]),
    )
    assert small[0][0] == other[0][0]
    assert sum(share for _, share in runs.predict_pictures(trained, [picture(tmp_path)], top=99)[0]) == pytest.approx(1)


def test_predict_sees_colours_in_grey_where_the_model_does(trained, tmp_path):
    red, green = (Image.open(picture(tmp_path, index)) for index in (0, 1))
    coloured = Image.merge("RGB", (red, green, Image.new("L", red.size)))
    coloured.save(tmp_path / "coloured.png")
    coloured.convert("L").save(tmp_path / "grey.png")
    one, other = runs.predict_pictures(trained, [tmp_path / "coloured.png", tmp_path / "grey.png"])
    assert one == other
    assert one != runs.predict_pictures(trained, [picture(tmp_path, 0)])[0]


def recorded(folder: Path, image_size: tuple[int, int] = (8, 8)) -> tuple[torch.Tensor, torch.Tensor]:
    """The first test digit as a trained model sees it, and its weights (L, 1, h, T, T)."""
    weights = runs.open_weights(folder)
    model, seen = weights.model, weights.preprocessing
    model.resize(image_size)
    scaled = crop_and_scale(Image.fromarray(digits().test.images[0, 0].numpy()).convert("RGB"), *image_size)
    pixels = to_tensor(scaled)[None, :1]
    with torch.no_grad(), recorded_attention(model) as attention:
        model(normalise(pixels, torch.tensor(seen.mean), torch.tensor(seen.std)))
    return pixels[0], torch.stack(attention)


def explained(monkeypatch, arguments: list[str]) -> tuple[tuple, dict]:
    """What the command `explain` draws."""
    drawn = []
    draw = plotting.draw_explanation
    monkeypatch.setattr(plotting, "draw_explanation", lambda *a, **k: drawn.append((a, k)) or draw(*a, **k))
    assert main(["explain", *arguments]) == 0
    return drawn[0]


def test_explain_draws_the_picture_the_rollout_and_every_head_of_the_last_block(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (pixels, rolled, heads, titles), query = explained(
        monkeypatch, [str(picture(tmp_path)), "--checkpoint", str(trained)]
    )
    saw, weights = recorded(trained)
    assert torch.equal(pixels, saw) and query == dict(query=None)
    torch.testing.assert_close(rolled, rollout(weights)[0, 0, 1:].view(2, 2))
    torch.testing.assert_close(torch.stack(heads), weights[-1, 0, :, 0, 1:].view(3, 2, 2))
    assert titles == ["block 0, head 0", "block 0, head 1", "block 0, head 2"]
    ((name, share),) = runs.predict_pictures(trained, [picture(tmp_path)], top=1)[0]
    assert capsys.readouterr().out == f"{picture(tmp_path)}: {name} {share:.1%}\ndrawn in attention.png\n"
    assert Image.open("attention.png").size[0] == 960


def test_explain_takes_a_head_a_query_and_another_size_and_says_that_positions_were_resized(
    trained, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "new" / "figure.png"
    options = "--head -1 --query 1 2 --size 8 12 --layer 0".split()
    place = [str(picture(tmp_path)), "--checkpoint", str(trained), "--out", str(out)]
    (pixels, rolled, heads, titles), query = explained(monkeypatch, [*place, *options])
    saw, weights = recorded(trained, (8, 12))
    assert torch.equal(pixels, saw) and query == dict(query=5)
    torch.testing.assert_close(rolled, rollout(weights)[0, 6, 1:].view(2, 3))
    torch.testing.assert_close(torch.stack(heads), weights[0, :, 2, 6, 1:].view(1, 2, 3))
    assert titles == ["block 0, head 2"]
    said = capsys.readouterr().out
    assert said.startswith("Positions were resized from 2×2 to 2×3 patches.\n") and said.endswith(f"drawn in {out}\n")
    assert [path.name for path in out.parent.iterdir()] == ["figure.png"]


def test_explain_without_a_class_token_asks_a_patch(blind, tmp_path, monkeypatch):
    place = [str(picture(tmp_path)), "--checkpoint", str(blind), "--out", str(tmp_path / "figure.png")]
    (_, rolled, _, _), query = explained(monkeypatch, [*place, "--query", "0", "1"])
    assert query == dict(query=1)
    torch.testing.assert_close(rolled, rollout(recorded(blind)[1])[0, 1].view(2, 2))


def test_explain_writes_a_page_to_explore_as_well(trained, tmp_path, capsys):
    place = [str(picture(tmp_path)), "--checkpoint", str(trained), "--out", str(tmp_path / "figure.png")]
    assert main(["explain", *place, "--size", "16", "--html", str(tmp_path / "new" / "page.html")]) == 0
    assert capsys.readouterr().out.endswith(f"figure.png, to be explored in {tmp_path / 'new' / 'page.html'}\n")
    page = (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    weights = runs.open_weights(trained)
    images = recorded(trained, (16, 16))[0][None]
    moments = (torch.tensor(weights.preprocessing.mean), torch.tensor(weights.preprocessing.std))
    made = explore(weights.model, images, lambda x: normalise(x, *moments), class_names=weights.class_names)
    assert made.html in page


def test_what_cannot_be_written_leaves_what_was_there(trained, tmp_path, monkeypatch, capsys):
    out = tmp_path / "figure.png"
    out.write_bytes(b"before")

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert main(["explain", str(picture(tmp_path)), "--checkpoint", str(trained), "--out", str(out)]) == 1
    assert capsys.readouterr().err == "vitbook: No space left on device\n"
    assert out.read_bytes() == b"before" and len(list(tmp_path.iterdir())) == 2


def test_summary_counts_parameters(capsys):
    assert main(["summary", "vit_h_14", "--depth", "1"]) == 0
    assert "Total params: 632,045,800" in capsys.readouterr().out


def test_what_cannot_be_written_in_a_files_encoding_is_replaced(tmp_path):
    """As where Windows puts what is printed into a file."""
    narrow = os.environ | dict(PYTHONIOENCODING="cp1252")
    done = subprocess.run([sys.executable, "-m", "vitbook", "summary", "vit_digits"], env=narrow, capture_output=True)
    assert done.returncode == 0 and b"charmap" not in done.stderr
    assert b"VisionTransformer" in done.stdout and b"?" in done.stdout


def test_datasets_lists_all_that_load(capsys):
    assert main(["datasets"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["digits", *runs.SOURCES, "FOLDER"]


def test_exercises_lists_them_all_by_chapter_with_level_and_kind(capsys):
    assert main(["exercises"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == list(EXERCISES)
    assert ["scale.repair", "hard", "repair"] in rows
    chapters = [row[0].split(".")[0] for row in rows]
    assert chapters == sorted(chapters, key=chapters.index), "a chapter's exercises stand together"


def test_exercises_says_which_a_notebook_has_solved(tmp_path, capsys):
    cells = [
        dict(cell_type="code", source=f"check({name!r}, mine)", outputs=[dict(text=f"{name}: {said}\n")])
        for name, said in (("scale.predict", "right."), ("scale.repair", "not attempted yet."))
    ]
    (tmp_path / "mine.ipynb").write_text(json.dumps(dict(cells=cells)))
    assert main(["exercises", "--notebook", str(tmp_path / "mine.ipynb")]) == 0
    first, second, _, total = capsys.readouterr().out.splitlines()
    assert first.split() == ["scale.predict", "medium", "predict", "solved"]
    assert second.split() == ["scale.repair", "hard", "repair", "not", "attempted"]
    assert total == "1 of 2 solved"


# Options


def weights(folder: Path) -> str:
    return json.loads((folder / "best.json").read_text())["sha256"]


def test_a_config_repeats_its_run_and_options_depart_from_it(tmp_path):
    one, again, other = (tmp_path / name for name in ("one", "again", "other"))
    assert main(["train", *SMALL, "--folder", str(one), "--seed", "7", "--drop-path", "0.2"]) == 0
    config = ["--config", str(one / "run.json"), "--no-progress"]
    assert main(["train", *config, "--folder", str(again)]) == 0
    assert main(["train", *config, "--folder", str(other), "--seed", "8"]) == 0
    assert weights(one) == weights(again) != weights(other)
    first, last = (runs.read_run(folder / "run.json") for folder in (one, other))
    assert (first.vit, last.train.seed) == (last.vit, 8)


def test_recipes_are_runs(capsys):
    main(["recipes"])
    listed = capsys.readouterr().out
    assert list(runs.RECIPES) == [
        "cifar100",
        "cifar10_gpu",
        "cifar10_hour",
        "cifar10_quick",
        "fashion_mnist",
        "tiny_imagenet",
    ]
    assert {read.dataset for read in map(runs.read_run, runs.RECIPES.values())} == set(SMALL_SETS)
    for name, path in runs.RECIPES.items():
        assert name in listed
        run = runs.run_of(config=Path(name))
        assert json.loads(json.dumps(asdict(run), default=str)) == json.loads(path.read_text())
        assert name.startswith(run.dataset) and run.folder == Path("runs") / name and run.data_dir is None


@pytest.mark.parametrize("name", runs.RECIPES)
def test_a_recipe_trains(name, tmp_path):
    """A dry run on a few pictures in the layout of the data set: some steps, a checkpoint, a test."""
    recipe = runs.run_of(config=Path(name))
    small = SMALL_SETS[recipe.dataset]
    unpack(small, tmp_path / "data" / SOURCES[recipe.dataset].folder)
    train = replace(recipe.train, epochs=1, batch_size=4, compile=False)
    run = replace(recipe, train=train, data_dir=tmp_path / "data", folder=tmp_path / "run", validation=0.2)
    records = runs.train_run(run, progress=False)
    assert records[0]["step"] >= 2
    assert records[0]["train_loss"] == pytest.approx(math.log(len(small.class_names)), abs=1.5)
    assert runs.open_weights(tmp_path / "run").class_names == small.class_names
    assert 0 <= runs.evaluate_run(tmp_path / "run").accuracy <= 1


def test_the_model_for_the_digits_is_not_recommended_for_other_pictures(tmp_path, capsys):
    unpack(SMALL_SETS["cifar100"], tmp_path / "data" / SOURCES["cifar100"].folder)
    options = ["train", "--epochs", "1", "--batch-size", "8", "--validation", "0", "--no-progress"]
    own = ["--folder", str(tmp_path / "run"), "--dataset", "cifar100", "--data-dir", str(tmp_path / "data")]
    assert main([*options, *own]) == 0
    assert "vit_digits is made for the digits; for cifar100 there is --config cifar100\n" in capsys.readouterr().out
    assert main([*options, "--folder", str(tmp_path / "digits")]) == 0
    assert "made for" not in capsys.readouterr().out


def test_a_named_model_brings_its_shape():
    for name in ("vit_digits", "vit_cifar"):
        assert runs.run_of(name).vit == CONFIGS[name]


def test_help_explains_every_setting(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    for option in ("--epochs", "--drop-path", "--dataset", "--config", "--resume", "--checkpoint-steps"):
        assert option in said
    assert "share of the target spread evenly over all classes" in said


def test_resume_goes_on_and_a_folder_in_use_is_not_written_over(tmp_path, capsys):
    options = ["train", *SMALL, "--folder", str(tmp_path / "run")]
    assert main(options) == 0
    before = weights(tmp_path / "run")
    assert main([*options, "--resume"]) == 0
    capsys.readouterr()
    assert main([*options, "--epochs", "3"]) == 1
    assert "already holds a training" in capsys.readouterr().err
    assert weights(tmp_path / "run") == before
    assert runs.read_run(tmp_path / "run" / "run.json").train.epochs == 2


# Errors


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("", 2, "Expected one of {train, evaluate, predict, explain, summary, datasets, recipes, exercises}"),
        ("trian", 2, "Unrecognized options: trian"),
        ("train --epoch 3", 2, "Unrecognized options: --epoch, 3 Perhaps you meant: --epochs INT"),
        ("train --epochs many", 2, "Error parsing --epochs"),
        ("train --epochs 0", 2, "epochs must be finite, at least 1, got 0"),
        ("train --dim 13", 2, "dim 13 is not divisible by num_heads 4"),
        ("train --model vit_b16", 2, "unknown model 'vit_b16', did you mean 'vit_b_16'?"),
        ("train --config nowhere.json", 2, "No such file or directory: nowhere.json"),
        ("train --config {broken}", 2, "describes no run"),
        ("train --dataset {empty} --image-size 8 16", 1, "must be a square for a folder's pictures, got 8×16"),
        ("train --dataset cifar11", 1, "unknown data set 'cifar11', did you mean 'cifar10'?"),
        ("train --model vit_b_16", 1, "image 8×8 is not divisible by patch size 16"),
        ("train --dataset cifar10 --data-dir {empty}", 1, "cifar10"),
        ("train --batch-size 5000", 1, "batch_size must be at most 1295, the training pictures, got 5000"),
        ("evaluate {empty}/none", 1, "there is no trained model at"),
        ("evaluate {broken}", 1, "should be the JSON of a checkpoint"),
        ("evaluate {trained} --split all", 1, "unknown split 'all'"),
        ("evaluate {trained}/last.json", 1, "unexpected model.embedding"),
        ("predict", 2, "predict needs a picture file"),
        ("predict {broken} --checkpoint {trained}", 1, "cannot be read as an image"),
        ("predict {empty}/none.png --checkpoint {trained}", 1, "No such file or directory"),
        ("explain", 2, "a picture file of any size and kind (required)"),
        ("explain {digit} --checkpoint {empty}/none", 1, "there is no trained model at"),
        ("explain {broken} --checkpoint {trained}", 1, "cannot be read as an image"),
        (
            "explain {digit} --checkpoint {trained} --layer 1",
            1,
            "layer must lie in 0 … 0, or -1 … -1 from the end, got 1",
        ),
        (
            "explain {digit} --checkpoint {trained} --head 3",
            1,
            "head must lie in 0 … 2, or -3 … -1 from the end, got 3",
        ),
        ("explain {digit} --checkpoint {trained} --query 2 0", 1, "row must lie in 0 … 1"),
        ("explain {digit} --checkpoint {trained} --query 0 2", 1, "column must lie in 0 … 1"),
        ("explain {digit} --checkpoint {trained} --query 0", 2, "--query"),
        ("explain {digit} --checkpoint {trained} --size 10", 1, "image 10×10 is not divisible by patch size 4"),
        ("explain {digit} --checkpoint {trained} --size 8 8 8", 1, "size must be height and width in pixels"),
        ("explain {digit} --checkpoint {trained} --out a.pdf", 1, "must end in .png, got a.pdf"),
        ("explain {digit} --checkpoint {trained} --out {broken}/a.png", 1, "File exists"),
        (
            "explain {digit} --checkpoint {blind}",
            1,
            "no class token (num_prefix_tokens 0) whose attention could be shown: name a patch as query",
        ),
        ("summary vit_b16", 1, "unknown model 'vit_b16', did you mean 'vit_b_16'?"),
        ("exercises --notebook nowhere.ipynb", 1, "No such file or directory: nowhere.ipynb"),
        ("exercises --notebook {broken}", 1, "is no Jupyter notebook"),
    ],
)
def test_an_error_is_one_line_with_a_code(tmp_path, monkeypatch, capsys, trained, blind, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text('{"epochs": 3}')
    places = dict(empty=tmp_path / "empty", broken=tmp_path / "broken.json", trained=trained, blind=blind)
    places["digit"] = picture(tmp_path)
    assert main(arguments.format(**places).split()) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("vitbook: ") and said.err.count("\n") == 1
    assert message in said.err
    assert not list(tmp_path.glob("attention*"))


def hear_interrupts() -> None:
    """Undo, in a new process, that shells deafen what they run in the background to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_cleanly_and_the_training_can_go_on(tmp_path):
    folder = tmp_path / "run"
    options = ["train", *SMALL, "--epochs", "2000", "--folder", str(folder)]
    process = subprocess.Popen(
        [sys.executable, "-m", "vitbook", *options],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    )
    while not (folder / "last.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    again = f"vitbook train --config {folder / 'run.json'} --resume"
    assert said.endswith(f"vitbook: stopped; from the last checkpoint on: {again}\n")
    assert "Traceback" not in said
    assert process.returncode == 130
    _, facts = load_checkpoint(folder / "last.json")
    assert 0 < facts["step"] < 40_000
    assert runs.read_run(folder / "run.json").train.epochs == 2000


def test_ctrl_c_before_the_first_checkpoint_promises_nothing(tmp_path, capsys, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "train_run", stopped)
    place = tmp_path / "my run"
    assert main(["train", "--folder", str(place)]) == 130
    assert capsys.readouterr().err == "vitbook: stopped before the first checkpoint\n"
    place.mkdir()
    (place / "last.json").touch()
    assert main(["train", "--folder", str(place)]) == 130
    quote = "'" if os.name == "posix" else '"'
    assert f"--config {quote}{place / 'run.json'}{quote} --resume" in capsys.readouterr().err


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
    assert "has other train pictures than" in capsys.readouterr().err
    assert main(["train", "--folder", str(tmp_path / "run"), *SMALL, *options, "--resume"]) == 1
    assert "holds another training: pictures.train is" in capsys.readouterr().err
    (pictures / "bee").rename(pictures / "dog")
    assert main(["evaluate", str(tmp_path / "run")]) == 1
    assert "knows classes ('ant', 'bee', 'cow')" in capsys.readouterr().err


def test_a_training_goes_on_where_it_was_moved_to(tmp_path, capsys):
    assert main(["train", "--folder", str(tmp_path / "before"), *SMALL]) == 0
    (tmp_path / "before").rename(tmp_path / "after")
    assert main(["train", "--config", str(tmp_path / "after" / "run.json"), "--no-progress"]) == 1
    assert "already holds a training" in capsys.readouterr().err
    assert main(["train", "--config", str(tmp_path / "after" / "run.json"), "--resume", "--no-progress"]) == 0
    assert not (tmp_path / "before").exists()
    config = tmp_path / "after" / "run.json"
    assert runs.run_of(config=config).place == tmp_path / "after"
    assert runs.run_of("vit_cifar", config).folder == tmp_path / "before", "another model is another training"


def test_a_recipe_is_no_training_of_the_folder_one_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last.json").touch()
    name, path = next(iter(runs.RECIPES.items()))
    assert runs.run_of(config=Path(name)).folder == runs.read_run(path).folder


def test_run_json_says_what_shape_was_trained(tmp_path):
    assert main(["train", "--folder", str(tmp_path / "run"), *SMALL, "--image-size", "28", "--channels", "3"]) == 0
    vit = runs.read_run(tmp_path / "run" / "run.json").vit
    assert (vit.image_size, vit.channels) == ((8, 8), 1)


def test_a_training_with_other_weights_to_begin_with_is_not_gone_on_with(tmp_path, weights_file, capsys):
    options = ["train", "--folder", str(tmp_path / "run"), *NO_STEPS]
    assert main([*options, "--init", str(weights_file)]) == 0
    other = tmp_path / "other.pth"
    other.write_bytes(weights_file.read_bytes())
    assert main([*options, "--init", str(other), "--resume"]) == 1
    assert f"holds another training: init is {weights_file} there, {other} here" in capsys.readouterr().err


# Several processes


def test_torchruns_processes_work_together(tmp_path):
    """Two processes, started as torchrun starts them, on the loopback interface, leave what one leaves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = dict(
        WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1"
    )
    command = [sys.executable, "-m", "vitbook", "train", *SMALL, "--folder", str(tmp_path / "two")]
    processes = [
        subprocess.Popen(command, env=os.environ | shared | dict(RANK=str(rank), LOCAL_RANK=str(rank)))
        for rank in range(2)
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert main(["train", *SMALL, "--folder", str(tmp_path / "one")]) == 0
    one, two = (load_checkpoint(tmp_path / name / "last.json")[1]["history"] for name in ("one", "two"))
    for ours, theirs in zip(one, two, strict=True):
        assert theirs["validation_loss"] == pytest.approx(ours["validation_loss"], rel=1e-3)
        assert theirs["train_loss"] == pytest.approx(ours["train_loss"], rel=1e-3)


@pytest.mark.parametrize("missing", ["RANK", "LOCAL_RANK", "WORLD_SIZE"])
def test_who_was_not_started_by_torchrun_works_alone(monkeypatch, missing):
    """WORLD_SIZE alone is set by some clusters and containers."""
    for name in {"RANK", "LOCAL_RANK", "WORLD_SIZE"} - {missing}:
        monkeypatch.setenv(name, "0")
    monkeypatch.delenv(missing, raising=False)
    monkeypatch.setattr(runs.idist, "initialize", None)
    with runs.processes():
        pass


@pytest.mark.parametrize(("gpu", "nccl", "backend"), [(0, 0, "gloo"), (0, 1, "gloo"), (1, 0, "gloo"), (1, 1, "nccl")])
def test_processes_talk_through_what_torch_has(monkeypatch, gpu, nccl, backend):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")
    asked = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpu))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: bool(nccl))
    monkeypatch.setattr(runs.idist, "initialize", asked.append)
    monkeypatch.setattr(runs.idist, "finalize", lambda: None)
    with runs.processes():
        assert asked == [backend]


# Weights of others


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory) -> Path:
    """Weights as timm writes them, for pictures of 12×12 coloured pixels and 7 classes."""
    path = tmp_path_factory.mktemp("weights") / "small.pth"
    torch.save(foreign.timm(dim=64, depth=1), path)
    return path


NO_STEPS = "--epochs 1 --learning-rate 0 --affine 0 --no-progress".split()


def test_train_begins_with_the_weights_of_others(tmp_path, weights_file, capsys):
    folder = tmp_path / "run"
    assert main(["train", "--init", str(weights_file), "--folder", str(folder), *NO_STEPS]) == 0
    expected = load_pretrained(weights_file, num_classes=10, image_size=8, channels=1)
    tensors, facts = load_checkpoint(folder / "best.json")
    assert tensors.keys() == expected.model.state_dict().keys()
    assert all(torch.equal(tensor, expected.model.state_dict()[name]) for name, tensor in tensors.items())
    assert (facts["mean"], facts["std"]) == ([0.5], [0.5]), "the pictures are as the weights want them"
    run = runs.read_run(folder / "run.json")
    assert (run.init, run.vit.dim, run.vit.depth, run.model) == (str(weights_file), 64, 1, "small.pth")
    assert main(["train", "--config", str(folder / "run.json"), "--no-progress", "--folder", str(tmp_path / "2")]) == 0
    assert weights(folder) == weights(tmp_path / "2")
    assert main(["train", "--config", str(folder / "run.json"), "--no-progress", "--resume"]) == 0
    assert main(["evaluate", str(folder)]) == 0
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("init", "model"),
    [
        ("runs/vit_digits/", "vit_digits"),
        ("runs/small/best.json", "best.json"),
        ("C:\\Users\\me\\best.json", "best.json"),
        ("..\\weights\\big.pth", "big.pth"),
        ("../..", "init"),
        ("timm:vit_tiny_patch16_224", "timm_vit_tiny_patch16_224"),
    ],
)
def test_a_run_is_named_after_the_weights_it_begins_with(monkeypatch, weights_file, init, model):
    pretrained = load_pretrained(weights_file)
    monkeypatch.setattr(runs, "load_pretrained", lambda *_, **__: pretrained)
    assert runs.run_of(init=init).place == Path("runs") / model


def test_train_changes_the_weights_that_it_began_with(tmp_path, weights_file):
    options = ["--dropout", "0.1", "--epochs", "1", "--affine", "0", "--no-progress"]
    assert main(["train", "--init", str(weights_file), "--folder", str(tmp_path), *options]) == 0
    model = runs.open_weights(tmp_path).model
    before = load_pretrained(weights_file).model.state_dict()
    assert not torch.equal(model.cpu().state_dict()["norm.bias"], before["norm.bias"])
    assert model.config.dropout == 0.1


def test_a_named_model_has_no_weights_to_begin_with(tmp_path, weights_file):
    config = tmp_path / "run.json"
    runs.write_run(runs.Run(init=str(weights_file), model="small.pth", folder=tmp_path))
    assert runs.run_of(config=config).init == str(weights_file)
    assert runs.run_of("vit_cifar", config).init is None


def test_predict_uses_the_weights_of_others(tmp_path, weights_file, capsys, monkeypatch):
    path = tmp_path / "picture.png"
    Image.fromarray(photograph("portrait").permute(1, 2, 0).numpy()).save(path)
    assert main(["predict", "--weights", str(weights_file), str(path), "--top", "2"]) == 0
    pretrained = load_pretrained(weights_file)
    with torch.no_grad():
        scores = pretrained.model(pretrained.preprocessing(photograph("portrait")))[0]
    shares, classes = scores.softmax(dim=0).topk(2)
    words = ", ".join(f"class {k} {share:.1%}" for k, share in zip(classes.tolist(), shares.tolist(), strict=True))
    assert capsys.readouterr().out == f"{path}: {words}\n"

    monkeypatch.setattr("vitbook.pretrained.loading.ASSETS", tmp_path)
    facts = dict(model=asdict(pretrained.model.config), class_names=list("abcdefg"), mean=[0.5] * 3, std=[0.5] * 3)
    save_checkpoint(tmp_path / "weights", "small", pretrained.model.state_dict(), facts)
    assert main(["predict", "--weights", "vitbook:small", str(path), "--top", "1"]) == 0
    assert capsys.readouterr().out.split()[-2] in facts["class_names"]


def test_explain_looks_into_the_weights_of_others(tmp_path, weights_file, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explain", str(picture(tmp_path)), "--weights", str(weights_file), "--html", "page.html"]) == 0
    guess = capsys.readouterr().out.splitlines()[0]
    assert main(["predict", str(picture(tmp_path)), "--weights", str(weights_file), "--top", "1"]) == 0
    assert capsys.readouterr().out == guess + "\n"
    assert {path.name for path in tmp_path.iterdir()} >= {"attention.png", "page.html"}


def test_help_explains_where_weights_come_from(capsys):
    for command, option in (("train", "--init"), ("predict", "--weights")):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert option in said and "timm:vit_tiny_patch16_224.augreg_in21k_ft_in1k" in said


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("train --init timm:vit_tiny", 2, "unknown weights 'timm:vit_tiny'. There are timm:vit_tiny_patch16_224"),
        ("train --init {folder}/none.npz", 2, "No such file or directory"),
        ("train --init {empty}", 2, "empty.pth holds no weights that can be read"),
        ("train --init {file} --model vit_cifar", 2, "leave model 'vit_cifar' away"),
        ("train --init {file} --dim 66", 1, "dim is 64 in"),
        ("train --init {distilled}", 1, "is a DistilledVisionTransformer, expected a VisionTransformer"),
        ("train --init {file} --folder {folder}/run --dataset fashion_mnist --data-dir {folder}", 1, "fashion_mnist"),
        ("predict --weights {folder}/none.npz {picture}", 1, "No such file or directory"),
        ("predict --weights {file} {picture} --top 0", 1, "top must be at least 1, got 0"),
        ("predict --weights vitbook:none {picture}", 1, "unknown weights 'vitbook:none'"),
        ("predict --weights {empty} {picture}", 1, "empty.pth holds no weights that can be read"),
        ("predict --weights {headless} {picture}", 1, "have no head, and so name no classes"),
    ],
)
def test_weights_that_are_none_are_one_line_with_a_code(tmp_path, capsys, weights_file, arguments, code, message):
    (tmp_path / "empty.pth").touch()
    torch.save(foreign.timm(dim=64, depth=1, classes=0), tmp_path / "headless.pth")
    torch.save(foreign.timm(distilled=True, dim=64, depth=1), tmp_path / "distilled.pth")
    places = dict(folder=tmp_path, empty=tmp_path / "empty.pth", headless=tmp_path / "headless.pth")
    places |= dict(distilled=tmp_path / "distilled.pth")
    arguments = arguments.format(file=weights_file, picture=picture(tmp_path), **places)
    assert main(arguments.split()) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("vitbook: ") and said.err.count("\n") == 1
    assert message in said.err
