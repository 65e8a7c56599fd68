"""An update of Adam on a CPU as one loop: :func:`numerate.train.networks.adam.update_` with the same arguments."""

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.timeloops.products import preamble
from numerate.loops.toolchain import native
from numerate.train.networks.adam import State, keep_finite_
from numerate.train.specification import Adam


class _Setting(ctypes.Structure):
    """A number for all places, or the address of one for each."""

    _fields_ = [("all", ctypes.c_float), ("each", ctypes.c_void_p)]

    @classmethod
    def of(cls, value: float | Tensor) -> "_Setting":
        if isinstance(value, Tensor) and value.numel() > 1:
            return cls(0.0, native.pointer(value))
        return cls(float(value), None)


class _Settings(ctypes.Structure):
    _fields_ = [
        *((name, _Setting) for name in ("rate", "rest1", "beta2", "rest2", "correction1", "correction2")),
        ("eps", ctypes.c_float), ("low", ctypes.c_void_p), ("high", ctypes.c_void_p),
    ]  # fmt: skip


@cache
def _library() -> native.Library:
    return native.library(f"{preamble(torch.float32)}\n{Path(__file__).with_name('adam.cpp').read_text()}")


def update_(
    state: State,
    gradient: Tensor,
    step: Tensor,
    rate: Tensor,
    corrections: Tensor,
    adam: Adam,
    limits: tuple[Tensor, Tensor] | None,
    betas: Tensor | None = None,
) -> None:
    """As :func:`numerate.train.networks.adam.update_`."""
    old = state.parameters, state.first, state.second
    fresh = torch.empty_like(old[0]), torch.empty_like(old[1]), torch.empty_like(old[2])
    gradient, rate, corrections = gradient.contiguous(), rate.contiguous(), corrections.contiguous()
    beta1, beta2 = adam.betas if betas is None else betas.contiguous()
    shared = 1 - beta1, beta2, 1 - beta2, *corrections
    low, high = (None, None) if limits is None else map(native.pointer, limits)
    finite = torch.empty(len(gradient), dtype=torch.bool)

    def work(start: int, end: int) -> None:
        for row in range(start, end):
            settings = _Settings(*map(_Setting.of, (rate[row], *shared)), adam.eps, low, high)
            arrays = [(ctypes.c_void_p * 3)(*(values[row].data_ptr() for values in group)) for group in (old, fresh)]
            count = ctypes.c_int64(gradient.shape[1])
            finite[row] = _library().update(count, ctypes.byref(settings), native.pointer(gradient[row]), *arrays)

    native.over_parts(work, len(gradient))
    keep_finite_(state, fresh, finite, step)
