"""Equation 1 by hand; the four kinds of positions by their closed forms; resizing by scipy."""

import re
from pathlib import Path

import notebooks
import properties as check
import pytest
import torch
from properties import GRID, HEIGHT, WIDTH, B, C, D, N, P, close, differ, images

from vitbook.embedding import POSITIONS, ImageEmbedding, drop_patches, resize_positions, sincos_positions_2d
from vitbook.patches import HybridEmbedding, PatchEmbedding, conv_stem
from vitbook.pretrained import KERNELS
from vitbook.transformer import sincos_positions

both_precisions = pytest.mark.usefixtures("precision")


def embedding(**settings) -> ImageEmbedding:
    return ImageEmbedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D, **settings)


@both_precisions
@pytest.mark.parametrize(
    ("test", "implementation"),
    [
        (check.embedding_equals_equation_1, ImageEmbedding),
        (check.parameters_fit_every_batch, ImageEmbedding),
        (check.resizing_equals_zoom, resize_positions),
    ],
    ids=lambda value: value.__name__,
)
def test_property(test, implementation):
    test(implementation)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("class_token", [True, False])
def test_any_positions_go_with_and_without_a_class_token(positions, class_token):
    module, x = check.shake(embedding(positions=positions, class_token=class_token)), images()
    z = module(x)
    assert z.shape == (B, N + class_token, D)
    assert len(module.prefix_tokens) == class_token
    close((z - module.positions())[:, int(class_token) :], module.patch_embed(x))


def test_a_hybrid_takes_the_place_of_the_patches():
    hybrid = HybridEmbedding(conv_stem(C, (6,)), 6, 2, D, patch_size=2)
    module, x = ImageEmbedding(hybrid, (HEIGHT, WIDTH), D).eval(), images()
    assert module.grid == GRID
    close(module(x)[:, 1:], hybrid(x) + module.positions()[:, 1:])


@both_precisions
def test_learned_tables_of_rows_and_columns_meet_in_each_patch():
    module = check.shake(embedding(positions="learned_2d")).positions
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


def test_positions_start_small_and_the_class_token_at_zero():
    module = ImageEmbedding(PatchEmbedding(1, 1, 64), (30, 20), 64)
    assert not module.cls_token.any()
    assert module.positions.pos_embed.std().item() == pytest.approx(0.02, rel=0.02)


def test_dropout_acts_on_the_whole_sum_and_in_training_alone():
    module, x = embedding(dropout=0.5), images()
    assert differ(module(x), module(x))
    assert not embedding(dropout=1.0)(x).any()
    module.eval()
    assert torch.equal(module(x), module(x))


class TestResizing:
    @pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
    def test_the_same_grid_gives_the_same_numbers(self, mode):
        table = torch.randn(1, 1 + N, D)
        resized = resize_positions(table, GRID, GRID, mode=mode)
        assert torch.equal(resized, table) and resized is not table

    @both_precisions
    @pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
    @pytest.mark.parametrize("grid", [(4, 7), (1, 2), (5, 3)])
    def test_a_constant_stays_constant_and_the_class_row_untouched(self, mode, grid):
        constant, class_row = torch.randn(1, 1, D), torch.randn(1, 1, D)
        table = torch.cat([class_row, constant.expand(1, N, D)], dim=1)
        resized = resize_positions(table, GRID, grid, mode=mode)
        assert torch.equal(resized[:, :1], class_row)
        close(resized[:, 1:], constant.expand(1, grid[0] * grid[1], D))

    def test_a_slope_down_the_rows_stays_one(self):
        rows = torch.arange(4.0)[:, None].expand(4, 3).reshape(1, 12, 1)
        resized = resize_positions(rows, (4, 3), (7, 5), 0, mode="bilinear", align_corners=True, antialias=False)
        close(resized.view(7, 5), torch.linspace(0, 3, 7)[:, None].expand(7, 5))

    @pytest.mark.parametrize("positions", POSITIONS)
    def test_a_resized_embedding_takes_the_new_pictures_and_refuses_the_old(self, positions):
        module = embedding(positions=positions)
        module.resize((12, 20))
        assert module(torch.randn(B, C, 12, 20)).shape == (B, 16, D)
        with pytest.raises(ValueError, match="must be 12×20.*got 8×12"):
            module(images())
        parameters = {name: p for name, p in module.named_parameters() if "positions" in name}
        assert all(p.requires_grad and p.is_leaf for p in parameters.values())

    @pytest.mark.parametrize("positions", ["learned", "learned_2d"])
    def test_frozen_positions_stay_frozen(self, positions):
        module = embedding(positions=positions).requires_grad_(False)
        module.resize((12, 20))
        assert not any(p.requires_grad for p in module.parameters())

    def test_learned_positions_are_resized_as_the_function_does(self):
        module = embedding()
        before = module.positions.pos_embed.detach().clone()
        module.resize((12, 20))
        close(module.positions.pos_embed.detach(), resize_positions(before, GRID, (3, 5)))

    def test_fixed_positions_are_computed_anew(self):
        module = embedding(positions="sincos_2d")
        module.resize((12, 20))
        close(module.positions()[0, 1:], sincos_positions_2d((3, 5), D))

    def test_each_table_of_two_is_resized_by_itself(self):
        module = embedding(positions="learned_2d")
        rows, columns = module.positions.rows.detach().clone(), module.positions.columns.detach().clone()
        module.resize((HEIGHT, 24))
        assert torch.equal(module.positions.rows, rows)
        left, middle, right = columns[0]  # the centres of 6 columns lie a quarter before and behind those of 3
        between = [left, 0.75 * left + 0.25 * middle, 0.25 * left + 0.75 * middle]
        between += [0.75 * middle + 0.25 * right, 0.25 * middle + 0.75 * right, right]
        close(module.positions.columns[0].detach(), torch.stack(between))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: embedding(positions="lerned"), "learned, learned_2d, sincos_2d, none, got 'lerned'"),
        (lambda: embedding()(torch.randn(B, C, 12, 8)), "must be 8×12, as the positions are, got 12×8"),
        (lambda: embedding()(images()[0]), r"\(B, C, H, W\), got \(3, 8, 12\)"),
        (lambda: embedding().resize((9, 12)), "image 9×12 is not divisible by patch size 4"),
        (lambda: sincos_positions_2d(GRID, 14), "dim must be divisible by 4, got 14"),
        (lambda: POSITIONS["learned_2d"](GRID, 13, 1), "dim must be even, got 13"),
        (
            lambda: resize_positions(torch.randn(1, N, D), GRID, (4, 4)),
            r"pos_embed must have shape \(1, 1 \+ 2·3, D\), got \(1, 6, 12\)",
        ),
        (lambda: resize_positions(torch.randn(1 + N, D), GRID, (4, 4)), r"1 \+ 2·3, D\), got \(7, 12\)"),
        (lambda: resize_positions(torch.randn(B, 1 + N, D), GRID, (4, 4)), r"1 \+ 2·3, D\), got \(2, 7, 12\)"),
        (lambda: resize_positions(torch.randn(1, 1 + N, D), GRID, (0, 4)), r"at least one row.* got \(0, 4\)"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_image_size_may_be_a_list():
    module = ImageEmbedding(PatchEmbedding(P, C, D), [HEIGHT, WIDTH], D)
    assert module(images()).shape == (B, N + 1, D)


def test_patches_of_another_width_are_named():
    with pytest.raises(ValueError, match="12.*got 16"):
        ImageEmbedding(PatchEmbedding(P, C, 16), (HEIGHT, WIDTH), D)(images())


def test_patches_are_left_out_evenly_and_the_class_token_never():
    x = torch.arange(7.0).expand(400, -1).unsqueeze(-1).repeat(1, 1, 2)
    kept = drop_patches(x, 0.5)
    assert kept.shape == (400, 4, 2)  # the class token and 6 − ⌊0.5 · 6⌋ patches
    assert (kept[:, 0] == 0).all()
    numbers = kept[:, 1:, 0].long()
    assert all(row.unique().numel() == 3 and row.min() >= 1 for row in numbers)
    counts = numbers.flatten().bincount(minlength=7)[1:]
    assert (counts - 200).abs().max() < 50  # standard deviation 10
    assert drop_patches(x, 0.5, num_prefix_tokens=0).shape == (400, 4, 2)
    assert torch.equal(drop_patches(x, 0.0).sort(dim=1).values, x)


def test_patches_are_left_out_in_training_alone():
    embed = ImageEmbedding(PatchEmbedding(4, 3, 12), (8, 12), 12)
    pictures = torch.randn(2, 3, 8, 12)
    whole = embed(pictures)
    embed.patch_dropout = 0.5
    assert embed.train()(pictures).shape == (2, 4, 12)
    assert torch.equal(embed.eval()(pictures), whole)
    embed.train()(pictures).sum().backward()
    assert embed.patch_embed.proj.weight.grad.isfinite().all()


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_not_all_patches_are_left_out(share):
    with pytest.raises(ValueError, match="share must be 0 or more and below 1"):
        drop_patches(torch.zeros(1, 3, 2), share)


def test_under_autocast_the_tokens_stay_in_bfloat16():
    embed = ImageEmbedding(PatchEmbedding(4, 3, 12), (8, 12), 12)
    with torch.autocast("cpu", torch.bfloat16):
        assert embed(torch.randn(2, 3, 8, 12)).dtype == torch.bfloat16
    assert embed.double()(torch.randn(2, 3, 8, 12, dtype=torch.float64)).dtype == torch.float64


LISTED = {  # who stands in the table of chapter 7: under which names the package keeps their rule
    "Google's own code": ["google"],
    "timm, reading Google's `.npz`": ["timm_npz"],
    "torchvision": ["torchvision"],
    "DeiT, Hugging Face": ["deit", "hf"],
    "timm otherwise, and `resize` of this package": ["timm"],
}


def test_chapter_7_lists_the_rules_by_which_positions_are_resized():
    chapter = notebooks.read(Path(__file__).parent.parent / "chapters" / "07_embedding.ipynb")
    text = "\n".join(cell.source for cell in chapter.cells)
    rows = re.findall(r"^\| (.+) \| (bilinear|bicubic) \| (yes|no) \| (yes|no) \|$", text, flags=re.M)
    assert KERNELS == {
        name: dict(mode=mode, align_corners=aligned == "yes", antialias=antialias == "yes")
        for who, mode, aligned, antialias in rows
        for name in LISTED[who]
    }
    module = check.shake(embedding())
    old = module.positions().detach()
    module.resize((P, 7 * P))  # antialias counts where the table shrinks
    close(module.positions(), resize_positions(old, GRID, (1, 7), **KERNELS["timm"]))
