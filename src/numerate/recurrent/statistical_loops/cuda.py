"""The statistical recurrent unit's loop over time on a GPU: a block walks along a row and waits for nobody."""

from collections.abc import Sequence
from math import ceil, prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from numerate.loops.timeloops.cuda_timeloop import (
    STORAGE,
    device_file,
    kernel_source,
    products_as_cudnn,
    steps_and_rows,
)
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.timeloops.tuning import THREADS, WARPS
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered
from numerate.recurrent.statistical_loops.sizes import StatisticalSizes

WEIGHTS = 184
"""Numbers of all weights that a thread can keep in registers."""


class CudaStatisticalLoop:
    """Loop of the statistical recurrent unit for float32, bfloat16 or float16.

    gx, the weight and the outputs are of ``dtype``; the state, the extra tensors and all sums are float32.
    """

    takes_models = True

    def __init__(self, sizes: StatisticalSizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        most = nvrtc.shared_memory(device)
        if sizes.summary > THREADS or max(map(self.shared, ("forward", "backward"))) > most:
            raise NotLowered("weights that are too large for a block")
        self._kernels: dict[tuple[str, bool], nvrtc.Kernel] = {}

    def accepts(self, walk: Walk) -> bool:
        return True

    def cut(self, direction: str) -> tuple[int, int, int, int]:
        """Depth of a thread in the product to the summary and from it, and how much of either is in registers."""
        sizes = self.sizes
        numbers, out = (sizes.hidden, 1) if direction == "forward" else (sizes.columns, sizes.scales)
        to, back = _quads(ceil(numbers / WARPS)), _quads(sizes.summary)
        wide, each = ceil(sizes.summary / 32), ceil(sizes.columns / THREADS) * out
        if direction == "forward":  # the smaller product first
            kept_back = min(back, WEIGHTS // each // 4 * 4)
            return to, back, min(to, (WEIGHTS - kept_back * each) // wide // 4 * 4), kept_back
        kept_to = min(to, WEIGHTS // wide // 4 * 4)
        return to, back, kept_to, min(back, (WEIGHTS - kept_to * wide) // each // 4 * 4)

    def shared(self, direction: str) -> int:
        """Bytes of shared memory of a block: see the kernels."""
        sizes, (to, back, kept_to, kept_back) = self.sizes, self.cut(direction)
        wide, out = 32 * ceil(sizes.summary / 32), 1 if direction == "forward" else sizes.scales
        rest = WARPS * (to - kept_to) * wide + (back - kept_back) * out * sizes.columns
        return 4 * (WARPS * to + WARPS * wide + back + rest)

    def source(self, direction: str, packed: bool) -> str:
        """The CUDA source of one direction; ``packed`` if sequences differ in length."""
        sizes, (_, _, kept_to, kept_back) = self.sizes, self.cut(direction)
        constants = {
            "THREADS": THREADS, "STATISTICS": sizes.columns, "SUMMARY": sizes.summary, "SCALES": sizes.scales,
            "KEPT_TO": kept_to, "KEPT_FROM": kept_back, "ACTIVATION": sizes.activation,
            "PACKED": int(packed),
        }  # fmt: skip
        kernel = Path(__file__).with_name("statistical_loop.cuh").read_text()
        return kernel_source(STORAGE[self.dtype], direction, constants, device_file("own_row.cuh"), kernel)

    def kernel(self, direction: str, packed: bool) -> Any:
        if (direction, packed) not in self._kernels:
            source, shared = self.source(direction, packed), self.shared(direction)
            self._kernels[direction, packed] = nvrtc.kernel(source, direction, self.device, THREADS, shared)
        return self._kernels[direction, packed]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of the averages, what is saved if ``keep``."""
        (*lead, rows, _), sizes = gx.shape, self.sizes
        final = state[0].clone(memory_format=torch.contiguous_format)
        out, saved = gx.new_empty(*lead, rows, sizes.hidden), None
        if keep:
            saved = final.new_empty(*lead, rows, sizes.saved)
        arrays = gx, weight, *extras, final, out, 0 if saved is None else saved
        self._launch("forward", walk, prod(lead), *arrays)
        return [final], [out], saved

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra tensors."""
        (out,), sizes, (other, _, scales) = history, self.sizes, extras
        *lead, rows, _ = out.shape
        dstate = dfinal[0].float().clone(memory_format=torch.contiguous_format)
        dgx, da = (out.new_empty(*lead, rows, width) for width in (sizes.columns, sizes.summary))
        dscale = dstate.new_empty(*lead, walk.batch, sizes.scales, THREADS)
        above = 0 if dout is None else dout
        arrays = weight, other, scales, state[0], out, saved, above, dstate, dgx, da, dscale
        self._launch("backward", walk, prod(lead), *arrays)
        with products_as_cudnn():
            dweight = walk.weight_gradient(da, state[0].to(out.dtype), out)
            dother = (dgx.mT @ saved[..., : sizes.summary].to(out.dtype)).to(other.dtype)
        dbias = da.sum(-2, dtype=torch.float32)
        return dgx, dweight, [dstate], [dother, dbias, dscale.sum((-3, -1))]

    def _launch(self, direction: str, walk: Walk, models: int, *arrays: Tensor | int) -> None:
        starts, steps, batch, _, reverse = steps_and_rows(walk, 1, self.device)
        self.kernel(direction, walk.packed).launch(models * batch, *arrays, starts, steps, batch, reverse)


def _quads(count: int) -> int:
    return ceil(count / 4) * 4
