"""How exact the numbers are: float64 as the reference, and nothing overflows unseen.

Bounds are in roundings of the dtype (`eps`), relative to the largest number of the reference; each was met with a
margin of 3 at least. bfloat16 is that of autocast: weights stay float32.
"""

import math

import pytest
import torch
from small_models import HEADS, HEIGHT, WIDTH, B, C, D, P, T, images, shake, small_config

from vitbook.attention import attention, attention_weights, fused_attention, quickest_attention
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.vit import VisionTransformer

DTYPES = {torch.float32: 64, torch.bfloat16: 8}  # roundings allowed
PARTS = {
    "multihead": (lambda: MultiHeadSelfAttention(D, HEADS), lambda: torch.randn(B, T, D)),
    "model": (lambda: VisionTransformer(small_config()), images),
}


def results(module: torch.nn.Module, x: torch.Tensor, autocast: bool) -> list[torch.Tensor]:
    """Output, and the gradients of the input and of every parameter, pulled in a fixed direction."""
    leaf = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        output = module(leaf)
    direction = torch.linspace(-1, 2, output.numel(), dtype=torch.float64).view_as(output)
    return [output.detach(), *torch.autograd.grad((output.double() * direction).sum(), [leaf, *module.parameters()])]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_outputs_and_gradients_are_those_of_float64(part, dtype):
    make, inputs = PARTS[part]
    module, twin, x = make(), make().double(), inputs()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    twin.load_state_dict(module.state_dict())
    exact, got = results(twin, x.double(), False), results(module, x, autocast=dtype == torch.bfloat16)
    bound = DTYPES[dtype] * torch.finfo(dtype).eps
    largest = [exact[0].abs().max()] + [max(part.abs().max() for part in exact[1:])] * (len(exact) - 1)
    for ours, expected, most in zip(got, exact, largest, strict=True):
        assert (ours.double() - expected).abs().max() < bound * most


def test_long_sequences_stay_exact():
    """4,096 tokens: the weights are about 1/4096, and bfloat16's sums of them must not drift."""
    q, k, v = (torch.randn(1, 4096, 4, dtype=torch.float64) for _ in range(3))
    expected = attention(q[:, :8], k, v)[0]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        parts = q[:, :8].to(dtype), k.to(dtype), v.to(dtype)
        for output in (attention(*parts)[0], fused_attention(*parts)):
            assert (output.double() - expected).abs().max() < 16 * torch.finfo(dtype).eps


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


@pytest.mark.parametrize("part", PARTS)
def test_strides_do_not_matter(part):
    make, inputs = PARTS[part]
    module, x = shake(make()), inputs()
    stepped = torch.zeros([2 * size for size in x.shape])[(slice(None, None, 2),) * x.ndim].copy_(x)
    channels_last = x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x
    for other in (stepped, x.transpose(0, -1).contiguous().transpose(0, -1), channels_last):
        torch.testing.assert_close(module(other), module(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_positions_can_be_resized(dtype):
    """torch interpolates neither of the two with antialiasing on a CPU."""
    model = VisionTransformer(small_config()).to(dtype)
    model.resize((HEIGHT + P, WIDTH))
    assert model.embedding.positions.pos_embed.dtype == dtype
    assert model(torch.zeros(1, C, HEIGHT + P, WIDTH, dtype=dtype)).isfinite().all()
