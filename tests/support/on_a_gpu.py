"""A tensor that refuses what one on a GPU refuses, for tests where there is no GPU."""

from torch import Tensor
from torch.utils._pytree import tree_leaves


class OnAGpu(Tensor):
    """Numpy cannot have it, and it goes with no tensor on the CPU, except as an index; `.cpu()` brings it back."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        mixed = any(type(x) is Tensor and x.ndim for x in tree_leaves((args, kwargs)))
        if function is Tensor.numpy or (mixed and function is not Tensor.__getitem__):
            raise RuntimeError("Expected all tensors to be on the same device")
        result = super().__torch_function__(function, types, args, kwargs or {})
        return result.as_subclass(Tensor) if function is Tensor.cpu else result
