"""The kinds of positions by their closed forms, and resized."""

import pytest
import small_models
import torch
from scipy.ndimage import zoom
from small_models import GRID, HEIGHT, WIDTH, C, D, N, P, close

from vitbook.embedding import ImageEmbedding
from vitbook.patches import PatchEmbedding
from vitbook.positions import resize_positions, sincos_positions, sincos_positions_2d

both_precisions = pytest.mark.usefixtures("precision")


def embedding(**settings) -> ImageEmbedding:
    return ImageEmbedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D, **settings)


@both_precisions
def test_learned_tables_of_rows_and_columns_meet_in_each_patch():
    module = small_models.shake(embedding(positions="learned_2d")).positions
    table = module()[0]
    assert not table[0].any()
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            expected = torch.cat([module.rows[0, row], module.columns[0, column]])
            close(table[1 + row * GRID[1] + column], expected)


@both_precisions
def test_sincos_in_two_dimensions_is_the_row_beside_the_column():
    table, module = sincos_positions_2d(GRID, D), embedding(positions="sincos_2d").positions
    rows, columns = sincos_positions(GRID[0], D // 2), sincos_positions(GRID[1], D // 2)
    for n in range(N):
        close(table[n], torch.cat([rows[n // GRID[1]], columns[n % GRID[1]]]))
    close(module(), torch.cat([torch.zeros(1, D), table]).unsqueeze(0))
    assert not list(module.parameters())
    module.resize((3, 5))
    close(module()[0, 1:], sincos_positions_2d((3, 5), D))


@pytest.mark.parametrize("positions", ["learned", "learned_2d"])
def test_frozen_positions_stay_frozen(positions):
    module = embedding(positions=positions).requires_grad_(False)
    module.resize((12, 20))
    assert not any(p.requires_grad for p in module.parameters())


def test_each_table_of_two_is_resized_by_itself():
    module = embedding(positions="learned_2d")
    rows, columns = module.positions.rows.detach().clone(), module.positions.columns.detach().clone()
    module.resize((HEIGHT, 24))
    assert torch.equal(module.positions.rows, rows)
    left, middle, right = columns[0]  # the centres of 6 columns lie a quarter before and behind those of 3
    between = [left, 0.75 * left + 0.25 * middle, 0.25 * left + 0.75 * middle]
    between += [0.75 * middle + 0.25 * right, 0.25 * middle + 0.75 * right, right]
    close(module.positions.columns[0].detach(), torch.stack(between))


def resizing_equals_zoom(resize):
    """Google's own resizing, scipy's zoom of order 1, on grids that are not square; the class row stays."""
    for prefix, new in ((1, (4, 7)), (0, (3, 3)), (2, (5, 2))):
        table = torch.randn(1, prefix + N, D)
        got = resize(table, GRID, new, prefix, mode="bilinear", align_corners=True, antialias=False)
        factors = (new[0] / GRID[0], new[1] / GRID[1], 1)
        expected = torch.from_numpy(zoom(table[0, prefix:].view(*GRID, D).numpy(), factors, order=1))
        assert torch.equal(got[:, :prefix], table[:, :prefix])
        close(got[0, prefix:], expected.flatten(0, 1))


@both_precisions
def test_a_table_is_resized_as_google_does_it_and_not_with_rows_for_columns():
    def rows_for_columns(pos_embed, old_grid, new_grid, prefix=1, **how):
        return resize_positions(pos_embed, old_grid[::-1], new_grid, prefix, **how)

    resizing_equals_zoom(resize_positions)
    with pytest.raises(AssertionError):
        resizing_equals_zoom(rows_for_columns)
