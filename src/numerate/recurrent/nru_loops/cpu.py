"""The NRU's loop over time on a CPU."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.timeloops.products import correlated, packed, preamble, products
from numerate.loops.timeloops.timeloop import (
    Frame,
    Walk,
    address,
    addresses,
    each_model,
    threads,
    walk_together,
)
from numerate.loops.toolchain import native
from numerate.recurrent.nru_loops.sizes import NRUSizes


class NRULoop:
    """Loop of the NRU for numbers of one type.

    As :class:`numerate.loops.timeloops.timeloop.TimeLoop`, with weight_hh as the weight, and weight_heads and
    bias_heads as the extra tensors.
    """

    takes_models = True

    def __init__(self, sizes: NRUSizes, dtype: torch.dtype) -> None:
        self.sizes, self.dtype = sizes, dtype
        source = Path(__file__).with_name("nru_loop.cpp").read_text()
        self.library = native.library("\n".join([preamble(dtype), f"const int SIGNS = {sizes.signs};", source]))
        self.multiply = ctypes.cast(products(dtype).multiply, ctypes.c_void_p)
        self.frame = lru_cache(maxsize=8)(self._frame)

    def accepts(self, walk: Walk) -> bool:
        return True

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor | None], Tensor | None]:
        """Final state, history of h and m, the heads' numbers; all but the history of h only if ``keep``."""
        (*lead, rows, _), (head_weight, bias) = gx.shape, extras
        final = [entry.clone(memory_format=torch.contiguous_format) for entry in state]
        history = [
            gx.new_empty(*lead, rows, self.sizes.hidden), gx.new_empty(*lead, rows, self.sizes.memory) if keep else None
        ]  # fmt: skip
        heads = gx.new_empty(*lead, rows, bias.shape[-1]) if keep else None
        rights = [[packed(w.mT) for w in pair] for pair in zip(*(w if lead else (w,) for w in (weight, head_weight)))]
        frame, calls = self.frame(walk), []
        groups = each_model(lead, (gx,), (bias,), final, history, (heads,))
        for right, (one, other, *arrays, last) in zip(rights, groups):
            calls.append([*map(address, (*one, *right, *other)), *map(addresses, arrays), address(*last)])

        def run(model: int, part: int, first: int, last: int) -> None:
            self.library.forward(frame.pointer, ctypes.c_int64(first), ctypes.c_int64(last), *calls[model])

        walk_together(
            run, walk, len(calls), threads(walk, len(calls), (weight.numel() + head_weight.numel()) // len(calls))
        )
        return final, history, heads

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of weight_hh, of the initial state, and of weight_heads and bias_heads."""
        (*lead, rows, width), hidden, (head_weight, _) = saved.shape, self.sizes.hidden, extras
        dstate = [entry.clone(memory_format=torch.contiguous_format) for entry in dfinal]
        d = weight.new_empty(*lead, rows, hidden + width)
        rights = [[packed(w) for w in pair] for pair in zip(*(w if lead else (w,) for w in (weight, head_weight)))]
        frame, calls = self.frame(walk), []
        groups = each_model(lead, history, (saved, dout), dstate, (d,))
        for right, (past, inner, above, last) in zip(rights, groups):
            arrays = addresses(past), *map(address, inner), addresses(above), address(*last)
            calls.append([*map(address, right), *arrays])

        def run(model: int, part: int, first: int, last: int) -> None:
            self.library.backward(frame.pointer, ctypes.c_int64(first), ctypes.c_int64(last), *calls[model])

        walk_together(
            run, walk, len(calls), threads(walk, len(calls), (weight.numel() + head_weight.numel()) // len(calls))
        )
        dh, dheads = d.split((hidden, width), -1)
        by_memory = walk.weight_gradient(d, state[1], history[1])
        before, after = by_memory.split((hidden, width), -2)
        dweight = torch.cat((walk.weight_gradient(dh, state[0], history[0]), before), -1)
        dhead_weight = torch.cat((correlated(dheads, history[0]), after), -1)
        return d[..., : self.sizes.columns], dweight, dstate, [dhead_weight, dheads.sum(-2)]

    def _frame(self, walk: Walk) -> Frame:
        sizes = self.sizes
        numbers = (len(walk.batch_sizes), sizes.hidden, sizes.memory, sizes.heads, sizes.columns, walk.reverse)
        return Frame(numbers, (walk.starts, walk.batch_sizes), self.multiply, sizes.scale)
