"""`explore` makes the figure `ask` of any model and images: what a notebook has of it, and what it refuses."""

import pytest
import torch
from explored import PREPARE, photos, small_vit, still

from vitbook.cnn import SmallCNN
from vitbook.pretrained import Preprocessing
from vitbook_workshop.live.your_model import explore


@pytest.mark.parametrize("changes", [{}, dict(class_token=False, pool="mean"), dict(channels=1)], ids=str)
def test_a_notebook_has_a_still_that_says_what_the_model_says(changes):
    model = small_vit(dropout=0.5, **changes).train()
    prepare = PREPARE if model.config.channels == 3 else Preprocessing((0.5,), (0.25,), (12, 20))
    figure = explore(model, photos(), prepare)
    assert model.training
    with torch.no_grad():
        share, k = model.eval()(prepare(photos()[0]))[0].softmax(dim=-1).max(dim=-1)
    assert f"The model says class {k} ({100 * share:.1f} %)." in still(figure)
    assert ("the class token" if model.config.class_token else "the first patch") + " attends to" in still(figure)
    assert "Live in the page that save writes." in still(figure)
    assert figure == explore(model, photos(), prepare)


@pytest.mark.door
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(images=photos().float()), r"images must be uint8 .*got torch.float32 \(2, 3, 30, 50\)"),
        (dict(images=photos()[0]), r"got torch.uint8 \(3, 30, 50\)"),
        (dict(prepare=Preprocessing(PREPARE.mean, PREPARE.std, (14, 20))), "14×20 is not divisible by patch size 4"),
        (dict(prepare=PREPARE.normalize), "prepare must be a Preprocessing"),
        (dict(titles=["one"]), "titles must be 2, one for each image, got 1"),
        (dict(class_names=["cat", "dog"]), "class_names must be 4, one for each class, got 2"),
        (dict(model=SmallCNN(3, 10)), "model must be one of VisionTransformer, .*, got SmallCNN"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        explore(**dict(model=small_vit(), images=photos(), prepare=PREPARE) | changes)
