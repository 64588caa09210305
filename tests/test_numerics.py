"""How exact the numbers are: float64 as the reference, gradients by finite differences, and nothing overflows unseen.

Bounds are in roundings of the dtype (`eps`), relative to the largest number of the reference; each was met with a
margin of 3 at least. bfloat16 is that of autocast: weights stay float32.
"""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from properties import HEADS, HEIGHT, HIDDEN, WIDTH, B, C, D, K, P, S, T, images, shake, small_config
from torch import nn
from torch.autograd import gradcheck

from vitbook import attention_maps, augment, distillation, features, heads
from vitbook.attention import (
    attention,
    attention_scores,
    attention_weights,
    fused_attention,
    gaussian_attention,
    quickest_attention,
)
from vitbook.cnn import SmallCNN
from vitbook.distillation import DistilledVisionTransformer
from vitbook.embedding import ImageEmbedding, drop_patches, resize_positions
from vitbook.encoder import MLP, Encoder, EncoderBlock
from vitbook.multihead import HeadShapedAttention, ListOfHeads, MultiHeadSelfAttention, merge_heads, split_heads
from vitbook.patches import HybridEmbedding, PatchEmbedding, conv_stem, patchify, unpatchify
from vitbook.runtime import seed_everything
from vitbook.self_attention import SelfAttention
from vitbook.transformer import DecoderLayer, EncoderLayer, MultiHeadCrossAttention, Transformer, causal_mask
from vitbook.vit import VisionTransformer

DTYPES = {torch.float32: 64, torch.bfloat16: 8}  # roundings allowed


def off_by(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, relative to the largest number of the reference."""
    assert got.isfinite().all()
    return float((got.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-12))


def results(module: nn.Module, x: torch.Tensor, autocast: bool) -> list[torch.Tensor]:
    """Output, and the gradients of the input and of every parameter, pulled in a fixed direction."""
    module.zero_grad()
    leaf = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        output = module(leaf)
    direction = torch.linspace(-1, 2, output.numel(), dtype=torch.float64).view_as(output)
    (output.double() * direction).sum().backward()
    return [output.detach(), leaf.grad, *(p.grad.clone() for p in module.parameters() if p.grad is not None)]


class Scaled(nn.Module):
    """Scaled dot-product attention of x with itself, as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, x.flip(1), x.roll(1, 1))


PARTS = {
    "attention": (lambda: Scaled(lambda q, k, v: attention(q, k, v)[0]), lambda: torch.randn(B, T, D)),
    "fused": (lambda: Scaled(fused_attention), lambda: torch.randn(B, T, D)),
    "multihead": (lambda: MultiHeadSelfAttention(D, HEADS), lambda: torch.randn(B, T, D)),
    "block": (lambda: EncoderBlock(D, HEADS, HIDDEN), lambda: torch.randn(B, T, D)),
    "model": (lambda: VisionTransformer(small_config()), images),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_outputs_and_gradients_are_those_of_float64(part, dtype):
    make, inputs = PARTS[part]
    module, x = make(), inputs()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    twin = make().double()
    twin.load_state_dict(module.state_dict())
    reference = results(twin, x.double(), False)
    got = results(module, x, autocast=dtype == torch.bfloat16)
    bound = DTYPES[dtype] * torch.finfo(dtype).eps
    largest = max(float(part.abs().max()) for part in reference[1:])
    assert off_by(got[0], reference[0]) < bound
    for ours, exact in zip(got[1:], reference[1:], strict=True):
        assert ours.isfinite().all()
        assert float((ours.double() - exact).abs().max()) < bound * largest


# Gradients: every differentiable public function against finite differences


def double(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def module_of(module: nn.Module):
    return shake(module.double()).eval()


MASK = torch.tensor([[True, False, True], [True, True, True], [False, False, False]])
labels = torch.tensor([0, 2])
teacher = torch.tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]], dtype=torch.float64)
GRADIENTS = {
    "attention_scores": lambda: (attention_scores, double(2, 3, 4), double(2, 5, 4)),
    "attention_weights": lambda: (lambda x: attention_weights(x, MASK), double(2, 3, 3)),
    "attention": lambda: (lambda *x: attention(*x, MASK), double(3, 2), double(3, 2), double(3, 4)),
    "fused_attention": lambda: (
        lambda *x: fused_attention(*x, MASK),
        double(1, 3, 2),
        double(1, 3, 2),
        double(1, 3, 4),
    ),
    "quickest_attention": lambda: (quickest_attention, double(1, 2, 2), double(1, 3, 2), double(1, 3, 4)),
    "gaussian_attention": lambda: (gaussian_attention, double(2, 2), double(3, 2), double(3, 4)),
    "SelfAttention": lambda: (module_of(SelfAttention(3, 2)), double(1, 2, 3)),
    "split_heads": lambda: (lambda x: split_heads(x, 2), double(1, 2, 4)),
    "merge_heads": lambda: (merge_heads, double(1, 2, 2, 2)),
    "MultiHeadSelfAttention": lambda: (module_of(MultiHeadSelfAttention(4, 2)), double(1, 3, 4)),
    "ListOfHeads": lambda: (module_of(ListOfHeads(4, 2)), double(1, 3, 4)),
    "HeadShapedAttention": lambda: (module_of(HeadShapedAttention(4, 2)), double(1, 3, 4)),
    "MultiHeadCrossAttention": lambda: (module_of(MultiHeadCrossAttention(4, 2)), double(1, 2, 4), double(1, 3, 4)),
    "EncoderLayer": lambda: (module_of(EncoderLayer(4, 2, 3)), double(1, 2, 4)),
    "DecoderLayer": lambda: (
        partial(module_of(DecoderLayer(4, 2, 3)), mask=causal_mask(2)),
        *(double(1, 2, 4), double(1, 3, 4)),
    ),
    "Transformer.decode": lambda: (
        partial(module_of(Transformer(5, 4, 1, 2, 3)).decode, torch.tensor([[1, 2]])),
        double(1, 3, 4),
    ),
    "patchify": lambda: (lambda x: patchify(x, 2), double(1, 2, 2, 4)),
    "unpatchify": lambda: (lambda x: unpatchify(x, 2, (2, 4)), double(1, 2, 8)),
    "PatchEmbedding": lambda: (module_of(PatchEmbedding(2, 1, 3)), double(1, 1, 2, 4)),
    "HybridEmbedding": lambda: (module_of(HybridEmbedding(conv_stem(1, (2,)), 2, 2, 3)), double(1, 1, 2, 4)),
    "ImageEmbedding": lambda: (module_of(ImageEmbedding(PatchEmbedding(2, 1, 4), (2, 4), 4)), double(1, 1, 2, 4)),
    "resize_positions": lambda: (lambda x: resize_positions(x, (2, 2), (3, 2)), double(1, 5, 2)),
    "drop_patches": lambda: (seeded(lambda x: drop_patches(x, 0.5)), double(2, 5, 2)),
    "MLP": lambda: (module_of(MLP(3, 4)), double(1, 2, 3)),
    "EncoderBlock": lambda: (module_of(EncoderBlock(4, 2, 3)), double(1, 2, 4)),
    "Encoder": lambda: (module_of(Encoder(4, 2, 2, 3)), double(1, 2, 4)),
    "VisionTransformer": lambda: (module_of(VisionTransformer(tiny())), double(1, 1, 2, 4)),
    "DistilledVisionTransformer": lambda: (module_of(DistilledVisionTransformer(tiny())), double(1, 1, 2, 4)),
    "SmallCNN": lambda: (module_of(SmallCNN(1, 2, 1)), double(1, 1, 4, 4)),
    "HeatmapHead": lambda: (module_of(heads.HeatmapHead(2, 2, 2)), double(1, 2, 2, 1)),
    "SegmentationHead": lambda: (module_of(heads.SegmentationHead(2, 2, 2)), double(1, 2, 2, 1)),
    "HiddenLayerHead": lambda: (module_of(heads.HiddenLayerHead(2, 3, 2)), double(2, 2)),
    "soft_argmax": lambda: (lambda x: heads.soft_argmax(x, 2.0), double(2, 2, 3)),
    "target_heatmaps": lambda: (lambda x: heads.target_heatmaps(x, (2, 3), 1.0, 1.5), double(2, 2)),
    "neighbour_votes": lambda: (
        lambda q, b: features.neighbour_votes(q, b, labels, 3, k=2),
        *(double(2, 3), double(2, 3)),
    ),
    "soft_distillation_loss": lambda: (
        lambda x: distillation.soft_distillation_loss(x, labels, teacher, weight=0.4),
        double(2, 3),
    ),
    "hard_distillation_loss": lambda: (lambda x: distillation.hard_distillation_loss(x, labels, teacher), double(2, 3)),
    "token_distillation_loss": lambda: (
        lambda x, y: distillation.token_distillation_loss(x, y, labels, teacher),
        *(double(2, 3), double(2, 3)),
    ),
    "late_fusion": lambda: (distillation.late_fusion, double(2, 3), double(2, 3)),
    "rollout": lambda: (lambda x: attention_maps.rollout(x.softmax(dim=-1)), double(2, 1, 2, 3, 3)),
    "attention_entropy": lambda: (lambda x: attention_maps.attention_entropy(x.softmax(dim=-1)), double(1, 1, 2, 3, 3)),
    "attention_distance": lambda: (
        lambda x: attention_maps.attention_distance(x.softmax(dim=-1), (1, 2), 2),
        double(1, 1, 2, 3, 3),
    ),
    "position_similarity": lambda: (lambda x: attention_maps.position_similarity(x, (1, 2)), double(1, 3, 4)),
    "random_affine": lambda: (seeded(lambda x: augment.random_affine(x, 20.0)), double(2, 1, 3, 3)),
    "random_crop": lambda: (seeded(lambda x: augment.random_crop(x, 1)), double(2, 1, 3, 3)),
    "random_flip": lambda: (seeded(augment.random_flip), double(2, 1, 2, 3)),
    "random_erasing": lambda: (seeded(lambda x: augment.random_erasing(x, 1.0)), double(2, 1, 3, 3)),
    "mixup": lambda: (seeded(lambda x: augment.mixup(x, torch.eye(2).double(), 1.0)[0]), double(2, 1, 2, 2)),
    "cutmix": lambda: (seeded(lambda x: augment.cutmix(x, torch.eye(2).double(), 1.0)[0]), double(2, 1, 3, 3)),
}


def seeded(function):
    """The same random numbers in every call."""

    def call(*arguments):
        torch.manual_seed(3)
        return function(*arguments)

    return call


def tiny():
    return small_config(
        image_size=(2, 4), patch_size=2, channels=1, num_classes=2, dim=4, depth=1, num_heads=2, mlp_dim=3
    )


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_equal_finite_differences(name):
    function, *inputs = GRADIENTS[name]()
    assert gradcheck(function, inputs, eps=1e-6, atol=1e-5, rtol=1e-4)


# Long sequences, large numbers


def test_long_sequences_stay_exact():
    """4,096 tokens: the weights are about 1/4096, and bfloat16's sums of them must not drift."""
    q, k, v = (torch.randn(1, 4096, 4, dtype=torch.float64) for _ in range(3))
    expected, weights = attention(q[:, :8], k, v)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 8, dtype=torch.float64))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        parts = q[:, :8].to(dtype), k.to(dtype), v.to(dtype)
        bound = 16 * torch.finfo(dtype).eps
        for output in (attention(*parts)[0], fused_attention(*parts)):
            assert output.isfinite().all()
            assert float((output.double() - expected).abs().max()) < bound


@pytest.mark.parametrize(
    ("dtype", "logit"), [(torch.float32, 1e4), (torch.float16, 3e4), (torch.bfloat16, 1e4)], ids=str
)
def test_large_logits_neither_overflow_nor_give_nan(dtype, logit):
    scores = torch.tensor([[logit, -logit, 0.0], [-logit, -logit, -logit]], dtype=dtype, requires_grad=True)
    weights = attention_weights(scores)
    close = dict(rtol=0, atol=torch.finfo(dtype).eps)
    torch.testing.assert_close(weights, torch.tensor([[1, 0, 0], [1 / 3] * 3], dtype=dtype), **close)
    weights[:, 0].sum().backward()
    assert scores.grad.isfinite().all()
    side = math.sqrt(logit)  # d = 1: the logit is q·k
    q, k = torch.tensor([[side], [-side]], dtype=dtype), torch.tensor([[side], [-side], [0.0]], dtype=dtype)
    v = torch.tensor([[1.0], [2.0], [3.0]], dtype=dtype)
    for output in (attention(q, k, v)[0], fused_attention(q, k, v), quickest_attention(q, k, v)):
        torch.testing.assert_close(output, torch.tensor([[1.0], [2.0]], dtype=dtype), **close)


def test_the_fused_kernel_survives_products_beyond_float16():
    """QKᵀ = 80,000 is no float16, QKᵀ/√d = 10,000 is. The explicit form has a limit there, as its docstring says."""
    q = torch.full((1, 2, 64), math.sqrt(1250.0), dtype=torch.float16)
    k, v = torch.cat([q, -q], dim=1), torch.arange(4, dtype=torch.float16).view(1, 4, 1).expand(1, 4, 64)
    output = fused_attention(q, k, v)
    assert torch.equal(output, torch.full_like(output, 0.5))


def test_rows_that_look_nowhere_are_zero_and_have_no_gradient():
    q, k, v = (torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    for function in (lambda *x: attention(*x, MASK)[0], lambda *x: fused_attention(*x, MASK)):
        output = function(q, k, v)
        assert (output[0, 2] == 0).all() and (output[0, :2] != 0).all()
        gradient = torch.autograd.grad(output.sum(), (q, k, v))
        assert all(part.isfinite().all() for part in gradient)
        assert (gradient[0][0, 2] == 0).all()


def test_a_mask_may_have_fewer_axes_than_the_scores():
    """The fused kernel wants two at least, which `attention` does not."""
    q, k, v = torch.randn(B, T, D), torch.randn(B, S, D), torch.randn(B, S, D)
    for mask in (torch.tensor(True), torch.arange(S) < 4):
        torch.testing.assert_close(fused_attention(q, k, v, mask), attention(q, k, v, mask)[0])


# The same numbers again


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_picture_does_not_depend_on_its_batch(dtype):
    model, x = shake(VisionTransformer(small_config())).to(dtype).eval(), images(5).to(dtype)
    together = model(x).detach()
    alone = torch.cat([model(x[i : i + 1]) for i in range(len(x))]).detach()
    eps = torch.finfo(dtype).eps
    assert float((together - alone).abs().max()) <= 64 * eps * float(together.abs().max())


@pytest.mark.parametrize("part", PARTS)
def test_strides_do_not_matter(part):
    make, inputs = PARTS[part]
    module, x = make(), inputs()
    shake(module)
    expected = module(x)
    wide = torch.zeros([2 * size for size in x.shape])
    stepped = wide[(slice(None, None, 2),) * x.ndim].copy_(x)
    transposed = x.transpose(0, -1).contiguous().transpose(0, -1)
    channels_last = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
    for other in (stepped, transposed, channels_last):
        torch.testing.assert_close(module(other), expected, rtol=1e-5, atol=1e-6)
    repeated = x[:1].expand_as(x)
    torch.testing.assert_close(module(repeated), module(repeated.contiguous()), rtol=1e-5, atol=1e-6)


def test_a_seed_gives_the_same_model_and_the_same_step():
    def step():
        seed_everything(7)
        model = VisionTransformer(small_config(dropout=0.2, attention_dropout=0.1, drop_path=0.2))
        model.head.weight.data.normal_()
        loss = F.cross_entropy(model(images()), torch.arange(B) % K)
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    first, again = step(), step()
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert first[0] != 0 and any(gradient.abs().max() > 0 for gradient in first[1:])


def test_half_precision_positions_can_be_resized():
    """torch interpolates neither float16 nor bfloat16 with antialiasing on a CPU."""
    for dtype in (torch.float16, torch.bfloat16):
        model = VisionTransformer(small_config()).to(dtype)
        model.resize((HEIGHT + P, WIDTH))
        assert model.embedding.positions.pos_embed.dtype == dtype
        assert model(torch.zeros(1, C, HEIGHT + P, WIDTH, dtype=dtype)).isfinite().all()
