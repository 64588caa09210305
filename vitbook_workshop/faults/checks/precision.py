"""What must hold of anybody's model in other precisions than float32, and where a cast is a right design."""

import contextlib
import textwrap

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from vitbook_workshop.faults.findings import Failed, expect, skip_if
from vitbook_workshop.faults.model_under_test import ModelUnderTest, copy_of, logits_of, unregistered
from vitbook_workshop.faults.model_wrapper import Taken, in_dtype
from vitbook_workshop.faults.recorders.operations import PRODUCTS, OperationWatch, made_of_plain


class _CastsSeen(OperationWatch):
    """What a float64 model calculates in float32. A norm takes its parameters along, as it does not by itself."""

    def __init__(self):
        super().__init__()
        self.casts, self.products_of_casts, self.other_products = 0, 0, 0
        self.any = False  # whether an operation got float32
        self._cast: dict[int, Tensor] = {}  # all that was made of what was cast, in float32

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if made_of_plain(types):
            return NotImplemented
        name = operation.overloadpacket.__name__
        single = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.dtype == torch.float32]
        self.any |= bool(single)
        if "_norm" in name and single:
            args = [x.float() if isinstance(x, Tensor) and x.dtype == torch.float64 else x for x in args]
        if (name in PRODUCTS or name in ("convolution", "_scaled_dot_product_attention_math")) and single:
            of_casts = all(id(x) in self._cast for x in single)
            self.products_of_casts += of_casts
            self.other_products += not of_casts
        result = operation(*args, **(kwargs or {}))
        down = name == "_to_copy" and result.dtype == torch.float32 and args[0].dtype == torch.float64
        self.casts += down
        for x in tree_leaves(result) if down or any(id(x) in self._cast for x in single) else ():
            if isinstance(x, Tensor) and x.dtype == torch.float32:
                self._cast[id(x)] = x
        return result


class _LastFailure(TorchFunctionMode):
    """The function of torch that raises an error, and the tensors that it was given."""

    name, given = "", []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            if not self.name:
                self.name = getattr(func, "__name__", "")
                self.given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            raise


def _in_precision(tested: ModelUnderTest, dtype: torch.dtype) -> nn.Module:
    model = in_dtype(copy_of(tested.model, tested.without), dtype).eval()
    if isinstance(model, Taken) and model.instead:
        model.instead.dtype = model.instead.dtype and dtype
    return model


def _said(error: BaseException) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")


def float64_works(tested: ModelUnderTest) -> str:
    """Returns a remark where a norm, a softmax or the logits are cast to float32, as many are on purpose."""
    skip_if(tested.device.type == "mps", "this device has no float64")
    skip_if(next(unregistered(tested.model), None), "it holds layers that double() does not reach")
    model, images = _in_precision(tested, torch.float64), tested.images().double()
    wrong, seen, logits = "", _CastsSeen(), None
    with contextlib.suppress(Exception), seen:  # not every operation can be watched
        logits = logits_of(model, images)
    ran = logits is not None
    try:
        if logits is None or seen.any:
            logits = logits_of(model, images)
        wrong = "" if logits.dtype == torch.float64 else f"the logits are {logits.dtype}."
    except Exception as error:
        wrong = _said(error)
    if not wrong or (ran and seen.casts and not seen.products_of_casts and not seen.other_products):
        return "a cast to float32, likely meant: a norm, a softmax or the logits are kept in it" if seen.casts else ""
    if seen.casts and not seen.other_products:
        raise Failed(
            wrong,
            "a cast to float32, x.float() or x.to(torch.float32), before linear maps: x.to(weight.dtype) follows the"
            " model.",
            likely="it may be meant to run in float32 alone",
        )
    raise Failed(wrong)


def autocast_works(tested: ModelUnderTest) -> str:
    """Returns a remark where autocast does not know an operation of the model's, which is no mistake."""
    images, model, last = tested.images().float(), _in_precision(tested, torch.float32), _LastFailure()
    try:
        with torch.no_grad(), torch.autocast(tested.device.type, torch.bfloat16), last:
            logits = model(images)
    except Exception as error:
        dtypes, cause = {x.dtype for x in last.given}, ""
        single = [x for x in last.given if x.dtype == torch.float32]
        if torch.float64 in dtypes:
            cause = "a cast to float64 in forward: autocast leaves it as it is."
        elif len(dtypes) > 1 and (last.name == "tensordot" or any(isinstance(x, nn.Parameter) for x in single)):
            return (
                f"not as it is: autocast does not know {last.name}, which gets activations in bfloat16 and others in"
                " float32. F.linear, @ and einsum are known"
            )
        raise Failed(_said(error), cause) from None
    expect(bool(logits.isfinite().all()), "in bfloat16 some logits are infinite or NaN.")
    return ""
