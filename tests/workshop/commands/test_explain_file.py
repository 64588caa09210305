"""What `vitbook explain` finds and draws; tests/workshop/commands/test_cli.py calls it as a reader does."""

import math
from dataclasses import replace
from pathlib import Path

import foreign
import pytest
import torch
from PIL import Image

from vitbook.attention_maps import recorded_attention, rollout
from vitbook.data import photograph
from vitbook.pretrained import Pretrained, load_pretrained
from vitbook.pretrained.adapting import adapt
from vitbook_workshop.commands import marks_on_image
from vitbook_workshop.commands.explain_file import explain_image, write_figure, write_page


@pytest.fixture
def picture(tmp_path) -> Path:
    Image.fromarray(photograph("portrait").permute(1, 2, 0).numpy()).save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


def weights(kind: str = "plain") -> Pretrained:
    """Weights as timm writes them, two blocks deep, for pictures of 12×12 coloured pixels."""
    changes = {"plain": {}, "distilled": dict(distilled=True), "headless": dict(classes=0)}[kind]
    return load_pretrained(foreign.timm(dim=64, depth=2, **changes))


@pytest.mark.parametrize("kind", ["plain", "distilled", "headless"])
def test_the_weights_of_others_are_explained_as_they_attend(picture, kind):
    own = weights(kind)
    found = explain_image(own, picture)
    with torch.no_grad(), recorded_attention(own.model) as recorded:
        scores = own.model(own.preprocessing(photograph("portrait")))[0]
    grid, before = own.model.embedding.grid, 2 if kind == "distilled" else 1
    assert torch.equal(found.image, own.preprocessing.view(photograph("portrait"))[0])
    torch.testing.assert_close(found.rollout, rollout(torch.stack(recorded))[0, 0, before:].view(grid))
    torch.testing.assert_close(torch.stack(list(found.heads.values())), recorded[-1][0, :, 0, before:].view(-1, *grid))
    assert (found.query, found.layer, found.resized) == (None, 1, "")
    if kind == "headless":
        assert found.guess is None
    else:
        share, best = scores.softmax(dim=0).max(dim=0)
        assert found.guess == (f"class {best}", pytest.approx(share.item()))


@pytest.mark.parametrize("task", ["labels", "number"])
def test_what_is_no_class_is_said_as_predict_says_it(picture, tmp_path, task):
    own = replace(weights(), task=task, facts={"scale": (1.7e9, 50.0)})
    if task == "number":
        adapt(own.model, "timm", num_classes=1)
        torch.nn.init.constant_(own.model.head.bias, 0.5)
    with torch.no_grad():
        scores = own.model(own.preprocessing(photograph("portrait")))[0]
    name, share = explain_image(own, picture).guess
    if task == "number":
        assert name == "1700000025.00" and math.isnan(share)
    else:
        assert share == pytest.approx(scores.sigmoid().max().item())
    write_page(own, picture, tmp_path / "page.html")
    assert "it gives 64 features" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert own.model.config.num_classes == len(scores), "the model itself keeps its head"
    with pytest.raises(ValueError, match=f"explain a class, and this model has {task}"):
        next(marks_on_image.lines(own, picture))


def test_a_patch_of_a_distilled_model_asks_for_itself(picture):
    own = weights("distilled")
    rows, columns = own.model.embedding.grid
    found = explain_image(own, picture, layer=0, head=0, query=(1, 0))
    with torch.no_grad(), recorded_attention(own.model) as recorded:
        own.model(own.preprocessing(photograph("portrait")))
    assert found.query == columns and list(found.heads) == [0]
    torch.testing.assert_close(found.heads[0], recorded[0][0, 0, 2 + columns, 2:].view(rows, columns))


def test_attention_and_logits_that_are_not_finite_are_refused(picture):
    own = weights()
    for layer in (own.model.encoder.blocks[0].attn.qkv, own.model.head):
        whole = layer.weight.data.clone()
        layer.weight.data.fill_(torch.nan)
        with pytest.raises(ValueError, match="are not finite"):
            explain_image(own, picture)
        layer.weight.data = whole


def test_figure_and_page_are_written(picture, tmp_path):
    own = weights()
    found = explain_image(own, picture, size=(12, 16))
    assert found.resized.startswith("Positions were resized from 3×3 to 3×4 patches")
    write_figure(found, tmp_path / "new" / "figure.png")
    assert Image.open(tmp_path / "new" / "figure.png").size[0] == 960
    with pytest.raises(ValueError, match="must end in .png, got .*figure.jpg"):
        write_figure(found, tmp_path / "figure.jpg")
    write_page(own, picture, tmp_path / "page.html", size=(12, 16))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "picture.png" in page and found.resized in page
    guess, share = found.guess
    assert f"The model says {guess} ({100 * share:.1f}\u00a0%)." in page
