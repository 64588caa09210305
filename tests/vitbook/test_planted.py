"""The key is true by construction: what is in it changes the answer, and what is not in it does not."""

import pytest
import torch

from vitbook.planted import COLORS, TASKS, TEXTURES, Scenes, planted, render


def drawn(task: str, count: int = 300, watermark: str = "none", seed: int = 0) -> Scenes:
    return planted(task, count, torch.Generator().manual_seed(seed), watermark)


def by_hand(task: str, textures: list[list[int]], colors: list[list[int]]) -> tuple[int, set]:
    """Answer and key of one scene, patch by patch."""
    cells = {(r, c): (textures[r][c], colors[r][c]) for r in range(6) for c in range(6)}
    shown = {place: cell for place, cell in cells.items() if 0 < cell[0] < len(TEXTURES)}
    colored = {place: cell for place, cell in shown.items() if cell[1] > 0}
    if task == "find":
        (place,) = (place for place, cell in colored.items() if TEXTURES[cell[0]] == "checks")
        return cells[place][1] - 1, {place}
    ((cue, (texture, _)),) = (item for item in shown.items() if item[1][1] == 0)
    same = {place for place, cell in colored.items() if cell[0] == texture}
    if task == "compare":
        (place,) = same
        return cells[place][1] - 1, {cue, place}
    return len(same) - 1, {cue} | same


@pytest.mark.parametrize("watermark", ["none", "true", "random"])
@pytest.mark.parametrize("task", TASKS)
def test_answers_and_keys_are_those_of_the_rules_read_patch_by_patch(task, watermark):
    scenes = drawn(task, watermark=watermark)
    for textures, colors, label, key in zip(
        scenes.textures.tolist(), scenes.colors.tolist(), scenes.labels.tolist(), scenes.key, strict=True
    ):
        answer, places = by_hand(task, textures, colors)
        assert label == answer and {tuple(place) for place in key.nonzero().tolist()} == places


@pytest.mark.parametrize("task", TASKS)
def test_without_any_patch_beside_the_key_the_answer_stays_and_without_one_of_the_key_it_does_not(task):
    scenes = drawn(task)
    alone = Scenes(task, scenes.textures * scenes.key, scenes.colors * scenes.key, scenes.images)
    assert torch.equal(alone.labels, scenes.labels) and torch.equal(alone.key, scenes.key)
    colored = scenes.key & (scenes.colors > 0)
    first = torch.zeros_like(colored).flatten(1).scatter(1, colored.flatten(1).long().argmax(1, keepdim=True), True)
    first = first.view_as(colored)
    if task == "count":
        changed = Scenes(task, scenes.textures.masked_fill(first, 0), scenes.colors.masked_fill(first, 0), alone.images)
        assert torch.equal(changed.labels, scenes.labels - 1)
    else:
        changed = Scenes(task, scenes.textures, torch.where(first, scenes.colors % 4 + 1, scenes.colors), alone.images)
        assert torch.equal(changed.labels, (scenes.labels + 1) % 4)


@pytest.mark.parametrize("task", TASKS)
def test_every_place_is_as_likely_and_every_answer(task):
    scenes = drawn(task, 5000)
    sizes = scenes.key.sum(dim=(1, 2)).double()
    share = scenes.key.double().mean(dim=0)
    error = (sizes.mean() / 36 / 5000).sqrt()
    assert ((share - sizes.mean() / 36).abs() < 5 * error).all()
    assert ((scenes.labels.bincount(minlength=4) / 5000 - 0.25).abs() < 5 * (0.25 * 0.75 / 5000) ** 0.5).all()


def test_nothing_beside_the_key_tells_the_answer():
    scenes = drawn("compare", 8000)
    other = scenes.colors.masked_fill(scenes.key, 0)
    for color in range(1, 5):
        counts = (other == color).sum(dim=(1, 2)).double()
        means = torch.stack([counts[scenes.labels == label].mean() for label in range(4)])
        assert means.max() - means.min() < 0.09  # of 0.75, with errors of 0.016


def test_a_true_watermark_tells_the_answer_and_a_random_one_does_not():
    for watermark, low, high in (("true", 1.0, 1.0), ("random", 0.2, 0.3)):
        scenes = drawn("compare", 2000, watermark)
        assert (scenes.watermark.sum(dim=(1, 2)) == 1).all() and not (scenes.watermark & scenes.key).any()
        patches = scenes.images.mean(dim=1).unfold(1, 4, 4).unfold(2, 4, 4)[scenes.watermark]  # (N, 4, 4)
        corners = patches.unfold(1, 2, 2).unfold(2, 2, 2).mean(dim=(3, 4)).flatten(1)
        assert low <= (corners.argmax(dim=1) == scenes.labels).double().mean() <= high
    plain = drawn("compare", 2000)
    assert torch.equal(plain.labels, drawn("compare", 2000, "true").labels) and not plain.watermark.any()


def test_a_painted_patch_has_its_texture_and_color_and_noise_of_a_tenth():
    scenes = drawn("count", 500)
    again = render("count", scenes.textures, scenes.colors, torch.Generator().manual_seed(9))
    assert (scenes.images - again.images).std() == pytest.approx(0.1 * 2**0.5, rel=0.02)
    pixels = scenes.images.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5)  # (N, 6, 6, 3, 4, 4)
    red = pixels[(scenes.colors == COLORS.index("red")) & (scenes.textures == TEXTURES.index("columns"))].mean(dim=0)
    assert torch.allclose(red[0, :, 0], torch.tensor(0.8), atol=0.1)
    assert torch.allclose(red[1, :, 0], torch.tensor(-0.6), atol=0.1) and (red[:, :, 1] < -0.6).all()
    assert pixels[scenes.textures == 0].mean().abs() < 0.01


def test_wrong_words_are_refused():
    with pytest.raises(ValueError, match="task must be one of find, compare, count, got 'finds'"):
        drawn("finds")
    with pytest.raises(ValueError, match="watermark must be one of none, true, random, got 'yes'"):
        drawn("find", watermark="yes")
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        drawn("find", 0)
