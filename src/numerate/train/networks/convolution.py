"""Convolutions of stacked networks as matrix products.

Under ``vmap`` a convolution with weights of its own in every run becomes one with groups, which GPUs compute slowly.
Windows laid out as rows make it a batch of matrix products.
"""

from math import gcd
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

ROWS = 1024
"""About so many windows go into one product; the gradient of the weights is a sum over products."""


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
) -> Tensor:
    """As ``torch.nn.functional.conv2d`` without dilation or groups.

    input: (N, C, H, W), weight: (O, C, k, l) -> (N, O, H', W').

    The result lies in memory with its channels last.
    """
    (height, width), (down, right) = weight.shape[2:], _pair(padding)
    x = F.pad(input, (right, right, down, down)) if down or right else input
    steps = _pair(stride)
    windows = x.unfold(2, height, steps[0]).unfold(3, width, steps[1])  # (N, C, H', W', k, l)
    count, _, rows, columns = windows.shape[:4]
    together = gcd(count, max(1, ROWS // (rows * columns)))
    products = count // together
    windows = windows.permute(0, 2, 3, 4, 5, 1).reshape(products, together * rows * columns, -1)
    weights = weight.permute(2, 3, 1, 0).reshape(-1, weight.shape[0])
    found = torch.bmm(windows, weights.expand(products, -1, -1)).view(count, rows, columns, -1)
    return (found if bias is None else found + bias).permute(0, 3, 1, 2)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


class Products(TorchFunctionMode):
    """Answers ``conv2d`` by :func:`conv2d` where it can."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.conv2d and _is_plain(*args, **kwargs):
            return conv2d(*args[:5], **{name: v for name, v in kwargs.items() if name not in ("dilation", "groups")})
        return func(*args, **kwargs)


def _is_plain(
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> bool:
    """Whether a call has neither groups nor dilation, nor words for padding, and a batch."""
    return groups == 1 and _pair(dilation) == (1, 1) and not isinstance(padding, str) and input.dim() == 4
