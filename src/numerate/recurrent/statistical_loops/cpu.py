"""The statistical recurrent unit's loop over time on a CPU."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.timeloops.products import correlated, packed, preamble, products
from numerate.loops.timeloops.timeloop import Frame, Walk, address, each_model, threads, walk_together
from numerate.loops.toolchain import native
from numerate.recurrent.statistical_loops.sizes import StatisticalSizes


class StatisticalLoop:
    """Loop of the statistical recurrent unit for numbers of one type."""

    takes_models = True

    def __init__(self, sizes: StatisticalSizes, dtype: torch.dtype) -> None:
        self.sizes, self.dtype = sizes, dtype
        source = Path(__file__).with_name("statistical_loop.cpp").read_text()
        activation = f"const int ACTIVATION = {sizes.activation};"
        self.library = native.library("\n".join([preamble(dtype), activation, source]))
        self.multiply = ctypes.cast(products(dtype).multiply, ctypes.c_void_p)
        self.frame = lru_cache(maxsize=8)(self._frame)

    def accepts(self, walk: Walk) -> bool:
        return True

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of the averages, what is saved if ``keep``."""
        (*lead, rows, _), (other, bias, scales) = gx.shape, extras
        final = state[0].clone(memory_format=torch.contiguous_format)
        out = gx.new_empty(*lead, rows, self.sizes.hidden)
        saved = gx.new_empty(*lead, rows, self.sizes.saved) if keep else None
        self._walk("forward", walk, lead, [gx], [weight.mT, other.mT], [bias, scales, final, out, saved])
        return [final], [out], saved

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra tensors."""
        (out,), sizes, (other, _, scales) = history, self.sizes, extras
        *lead, rows, _ = out.shape
        dstate = dfinal[0].clone(memory_format=torch.contiguous_format)
        d, dscale = out.new_empty(*lead, rows, sizes.saved), out.new_zeros(*lead, walk.batch, sizes.scales)
        arrays = [scales, state[0], out, saved, dout, dstate, d, dscale]
        self._walk("backward", walk, lead, [], [weight, other], arrays)
        dgx, da = d.split((sizes.columns, sizes.summary), -1)
        dother = correlated(dgx, saved[..., : sizes.summary])
        return dgx, walk.weight_gradient(da, state[0], out), [dstate], [dother, da.sum(-2), dscale.sum(-2)]

    def _walk(
        self, direction: str, walk: Walk, lead: Sequence[int],
        before: Sequence[Tensor], weights: Sequence[Tensor], after: Sequence[Tensor | None],
    ) -> None:  # fmt: skip
        """Walk each model's rows; the function takes arrays before and after the packed weights."""
        rights = [[packed(w) for w in pair] for pair in zip(*(w if lead else (w,) for w in weights))]
        call, frame = getattr(self.library, direction), self.frame(walk)
        calls = [
            [*map(address, (*one, *right, *other))]
            for right, (one, other) in zip(rights, each_model(lead, before, after))
        ]

        def run(model: int, part: int, first: int, last: int) -> None:
            call(frame.pointer, ctypes.c_int64(first), ctypes.c_int64(last), *calls[model])

        work = sum(w.numel() for w in weights) // len(calls)
        walk_together(run, walk, len(calls), threads(walk, len(calls), work))

    def _frame(self, walk: Walk) -> Frame:
        sizes = self.sizes
        numbers = (len(walk.batch_sizes), sizes.columns, sizes.summary, sizes.scales, walk.reverse)
        return Frame(numbers, (walk.starts, walk.batch_sizes), self.multiply)
