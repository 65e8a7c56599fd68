"""Operations whose gradients torch computes with a look at their values, in a form that a CUDA graph can record.

The gradients of ``prod`` and ``cumprod`` ask the GPU whether there are zeros. Written as multiplications they need not,
and are right where there are.
"""

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """As ``torch.prod``."""
    values = input if dtype is None else input.to(dtype)
    if dim is None:
        values, dim, keepdim = values.flatten(), 0, False
    if values.shape[dim] == 0:
        return torch.prod(values, dim, keepdim)
    while (count := values.shape[dim]) > 1:
        half = count // 2
        pairs = values.narrow(dim, 0, half) * values.narrow(dim, half, half)
        values = torch.cat((pairs, values.narrow(dim, count - 1, 1)), dim) if count % 2 else pairs
    return values if keepdim else values.squeeze(dim)


def cumprod(input: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """As ``torch.cumprod``."""
    parts = list((input if dtype is None else input.to(dtype)).unbind(dim))
    for k in range(1, len(parts)):
        parts[k] = parts[k - 1] * parts[k]
    return torch.stack(parts, dim) if parts else input.clone()


_FORMS = {torch.prod: prod, Tensor.prod: prod, torch.cumprod: cumprod, Tensor.cumprod: cumprod}


class Recordable(TorchFunctionMode):
    """Answers ``prod`` and ``cumprod`` by the functions above where gradients are wanted."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wanted = _FORMS.get(func) if torch.is_grad_enabled() else None
        return (wanted or func)(*args, **(kwargs or {}))
