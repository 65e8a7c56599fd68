"""The EURNN's loop over time on a CPU."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.timeloops.products import preamble
from numerate.loops.timeloops.timeloop import Frame, Walk, address, each_model, threads, walk_together
from numerate.loops.toolchain import native
from numerate.recurrent.rotation_loops.sizes import RotationSizes, turns


class RotationLoop:
    """Loop of the EURNN for numbers of one type.

    Its weight is modReLU's bias (H,), its extra tensor the angles (log2 H, H / 2).
    """

    takes_models = True

    def __init__(self, sizes: RotationSizes, dtype: torch.dtype) -> None:
        self.sizes, self.dtype = sizes, dtype
        source = Path(__file__).with_name("rotation_loop.cpp").read_text()
        self.library = native.library(f"{preamble(dtype)}\n{source}")
        self.frame = lru_cache(maxsize=8)(self._frame)

    def accepts(self, walk: Walk) -> bool:
        return True

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state and history of h; nothing else is saved."""
        (*lead, _, _), final = gx.shape, state[0].clone(memory_format=torch.contiguous_format)
        out = torch.empty_like(gx)
        self._walk("forward", walk, lead, gx, *turns(self.sizes.hidden, extras[0]), weight, final, out)
        return [final], [out], gx.new_empty(0) if keep else None

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the bias, of the initial state and of the angles."""
        (out,), (*lead, _, hidden), sizes = history, history[0].shape, self.sizes
        dstate, dgx = dfinal[0].clone(memory_format=torch.contiguous_format), torch.empty_like(out)
        parts = self._parts(walk, lead)
        sums, dbias = (out.new_zeros(*lead, parts, *shape) for shape in ((sizes.levels, hidden), (hidden,)))
        arrays = *turns(hidden, extras[0]), state[0], out, dout, dstate, dgx
        self._walk("backward", walk, lead, *arrays, each_part=(sums, dbias))
        return dgx, dbias.sum(-2), [dstate], [sizes.angle_gradient(sums.sum(-3))]

    def _walk(
        self, direction: str, walk: Walk, lead: Sequence[int], *arrays: Tensor | None, each_part: Sequence[Tensor] = ()
    ) -> None:
        """Walk each model's rows. Of arrays in ``each_part``, (..., parts, ...), every part of the rows has its own."""
        call, frame = getattr(self.library, direction), self.frame(walk)
        calls = [(list(map(address, one)), own) for one, own in each_model(lead, arrays, each_part)]

        def run(model: int, part: int, first: int, last: int) -> None:
            given, own = calls[model]
            places = (address(None if array is None else array[part]) for array in own)
            call(frame.pointer, ctypes.c_int64(first), ctypes.c_int64(last), *given, *places)

        walk_together(run, walk, len(calls), self._parts(walk, lead))

    def _parts(self, walk: Walk, lead: Sequence[int]) -> int:
        return threads(walk, prod(lead), self.sizes.levels * self.sizes.hidden)

    def _frame(self, walk: Walk) -> Frame:
        numbers = len(walk.batch_sizes), self.sizes.hidden, walk.reverse
        return Frame(numbers, (walk.starts, walk.batch_sizes), None, self.sizes.eps)
