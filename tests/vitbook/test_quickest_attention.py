"""The quickest form of attention is one of the two, chosen as documented."""

import pytest
import torch

from vitbook.attention import attention, quickest_attention


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("differentiated", [True, False])
@pytest.mark.parametrize(("has", "matrix_unit"), [(True, True), (True, False), (False, False)])
def test_the_quickest_form_is_one_of_the_two(dtype, differentiated, has, matrix_unit, monkeypatch):
    """Explicit for bfloat16 on a CPU that has it, unless with a matrix unit and without gradients; else fused."""
    calls = []

    def explicit(*args, **kwargs):
        calls.append("explicit")
        return attention(*args, **kwargs)

    q, k, v = (torch.randn(2, 3, 5, 4, dtype=dtype, requires_grad=differentiated) for _ in range(3))
    with monkeypatch.context() as patch:
        patch.setattr("vitbook.attention.attention", explicit)
        patch.setattr("vitbook.attention.MATRIX_UNIT", matrix_unit)
        patch.setattr("vitbook.attention.has_bfloat16", lambda device: has)
        output = quickest_attention(q, k, v)
    assert bool(calls) == (dtype == torch.bfloat16 and has and (differentiated or not matrix_unit))
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(output, attention(q, k, v)[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("most", "stored"), [(2 * 3 * 5 * 7, True), (2 * 3 * 5 * 7 - 1, False)])
def test_the_quickest_form_stores_no_more_weights_than_it_may(most, stored, monkeypatch):
    calls = []
    monkeypatch.setattr("vitbook.attention.attention", lambda *args, **kwargs: calls.append(1) or [args[0]])
    monkeypatch.setattr("vitbook.attention.has_bfloat16", lambda device: True)
    monkeypatch.setattr("vitbook.attention.MOST_WEIGHTS", most)
    q, k = (torch.randn(2, 3, T, 4, dtype=torch.bfloat16, requires_grad=True) for T in (5, 7))
    assert quickest_attention(q, k, k).shape == (2, 3, 5, 4)
    assert bool(calls) == stored
