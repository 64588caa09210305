"""The ablation takes out what the recipe has; the baseline is that of scikit-learn."""

from dataclasses import replace

import ablation
import baselines
import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from vitbook.data import digits
from vitbook_workshop.training_runs.settings import RECIPES, read_run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ablation.INGREDIENTS)
def test_the_recipe_has_every_ingredient(name):
    run = read_run(RECIPES["cifar10_quick"])
    train, vit = ablation.INGREDIENTS[name]
    assert (replace(run.train, **train), replace(run.vit, **vit)) != (run.train, run.vit)


def test_the_nearest_image_is_the_one_that_scikit_learn_finds():
    data = digits()
    train, test = (split.images.flatten(1) / 255 for split in (data.train, data.test))
    theirs = KNeighborsClassifier(n_neighbors=1).fit(train, data.train.labels).predict(test)
    assert baselines.nearest_labels(test, data).tolist() == theirs.tolist()


def test_the_vote_by_cosine_is_that_of_scikit_learn():
    data = digits()
    train, test = (data.normalize(split.images).flatten(1) for split in (data.train, data.test))
    vote = KNeighborsClassifier(n_neighbors=20, metric="cosine", weights=lambda far: np.exp((1 - far) / 0.07))
    theirs = vote.fit(train, data.train.labels).predict(test)
    assert (baselines.voted_labels(data).numpy() == theirs).mean() > 0.997  # ties in float32
