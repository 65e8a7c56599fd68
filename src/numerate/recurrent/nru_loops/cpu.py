"""The NRU's loop over time on a CPU."""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.timeloops.pointwise import Sizes
from numerate.loops.timeloops.timeloop import Frame, Walk, address, addresses, packed, preamble, products, threads
from numerate.loops.toolchain import native


class NRULoop:
    """Loop of the default NRU (factored, one q for all heads, no ReLU heads, no layer norm) for numbers of one type.

    As :class:`numerate.loops.timeloops.timeloop.TimeLoop`, with weight_hh as the weight, and weight_heads and
    bias_heads as the extra tensors. gx has ``columns``: H, or H and one for each of the heads' numbers. The heads'
    sum is multiplied with ``scale``.
    """

    def __init__(self, hidden: int, columns: int, memory: int, heads: int, scale: float, dtype: torch.dtype) -> None:
        self.sizes, self.dtype = Sizes(hidden, columns, 2, 2), dtype
        self.memory, self.heads, self.scale = memory, heads, scale
        source = Path(__file__).with_name("nru_loop.cpp").read_text()
        self.library = native.library("\n".join([preamble(dtype), source]))
        self.multiply = ctypes.cast(products(dtype).multiply, ctypes.c_void_p)

    def accepts(self, walk: Walk) -> bool:
        return True

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor | None], Tensor | None]:
        """Final state, history of h and m, the heads' numbers; all but the history of h only if ``keep``."""
        rows, (head_weight, bias) = sum(walk.batch_sizes), extras
        final = [entry.clone(memory_format=torch.contiguous_format) for entry in state]
        history = [gx.new_empty(rows, self.sizes.hidden), gx.new_empty(rows, self.memory) if keep else None]
        heads = gx.new_empty(rows, len(bias)) if keep else None
        left, right, frame = packed(weight.mT), packed(head_weight.mT), self._frame(walk)
        arrays = [native.pointer(tensor) for tensor in (gx, left, right, bias)]

        def run(first: int, last: int) -> None:
            edges = ctypes.c_int64(first), ctypes.c_int64(last)
            self.library.forward(frame.pointer, *edges, *arrays, addresses(final), addresses(history), address(heads))

        native.over_parts(run, walk.batch, threads(walk))
        return final, history, heads

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of weight_hh, of the initial state, and of weight_heads and bias_heads."""
        hidden, (head_weight, bias) = self.sizes.hidden, extras
        dstate = [entry.clone(memory_format=torch.contiguous_format) for entry in dfinal]
        d = weight.new_empty(len(saved), hidden + len(bias))
        left, right, frame = packed(weight), packed(head_weight), self._frame(walk)

        def run(first: int, last: int) -> None:
            edges = ctypes.c_int64(first), ctypes.c_int64(last)
            weights = native.pointer(left), native.pointer(right)
            inner = addresses(history), native.pointer(saved), address(dout), addresses(dstate)
            self.library.backward(frame.pointer, *edges, *weights, *inner, native.pointer(d))

        native.over_parts(run, walk.batch, threads(walk))
        dh, dheads = d.split((hidden, len(bias)), 1)
        by_memory = walk.weight_gradient(d, state[1], history[1])
        dweight = torch.cat((walk.weight_gradient(dh, state[0], history[0]), by_memory[:hidden]), 1)
        dhead_weight = torch.cat((dheads.mT @ history[0], by_memory[hidden:]), 1)
        return d[:, : self.sizes.columns], dweight, dstate, [dhead_weight, dheads.sum(0)]

    def _frame(self, walk: Walk) -> Frame:
        numbers = (len(walk.batch_sizes), self.sizes.hidden, self.memory, self.heads, self.sizes.columns, walk.reverse)
        return Frame(numbers, (walk.starts, walk.batch_sizes), self.multiply, self.scale)
