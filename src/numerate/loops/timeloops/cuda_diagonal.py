"""The loop over time of a diagonal recurrence on a GPU; as :mod:`numerate.loops.timeloops.diagonal` on a CPU.

How threads share the work is written in ``diagonal.cuh``. Here the kernels are put together and launched. Where rows
and units alone would leave the device idle, time is cut into segments: a parallel scan over the segments.
"""

from collections.abc import Sequence
from functools import cached_property
from math import ceil
from typing import Any

import torch
from torch import Tensor

from numerate.loops.printers.rows import CudaUnitPrinter
from numerate.loops.timeloops.cuda_timeloop import STORAGE, THREADS, device_file, kernel_source
from numerate.loops.timeloops.diagonal import Coefficients, Lanes, constants, lengths, trace_coefficients
from numerate.loops.timeloops.pointwise import Pointwise
from numerate.loops.timeloops.rows import schedule_row
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered

BUSY = 16
"""Warps that keep a processor busy; with fewer, time is cut."""
SHORTEST_SEGMENT = 4
"""Chunks of a segment, at least."""

_ARGUMENTS = {
    "forward": "const float *gx, const float *extra, float *fresh, float *saved",
    "backward": "const float *saved, const float *fresh, const float *extra, const float *grad, "
    "float *dgx, float *dextra",
}
"""Of the emitted functions of one unit."""


def emit(program: Pointwise, lanes: Lanes, storage: str, direction: str, packed: bool) -> str:
    """The CUDA source of one direction; ``packed`` if sequences differ in length."""
    sizes = {
        "UNITS": lanes.units, "MODES": lanes.modes, "SAVED": program.saved // lanes.units, "PACKED": int(packed),
        **constants(lanes),
    }  # fmt: skip
    units = []
    for name, statements in (("forward", program.forward), ("backward", program.backward)):
        lines = CudaUnitPrinter(lanes.units).indented(schedule_row(program, statements).body)
        units.append("\n".join([f"INLINE void {name}_unit({_ARGUMENTS[name]}) {{", *lines, "}", ""]))
    wanted = units[:1] if direction == "forward" else units
    return kernel_source(storage, direction, sizes, *wanted, device_file("diagonal.cuh"))


def segments(chunks: int, warps: int, processors: int) -> int:
    """How many segments time is cut into, if ``warps`` walk side by side without it."""
    wanted = min(BUSY * processors // warps, chunks // SHORTEST_SEGMENT)
    return wanted if wanted >= 3 else 1  # the states between segments cost a walk of their own


class CudaDiagonalLoop:
    """The loop of one diagonal step on a GPU; as :class:`numerate.loops.timeloops.diagonal.CppDiagonalLoop`.

    gx and outputs are of ``dtype``, float32, bfloat16 or float16; the state and all sums are float32.
    """

    takes_models = True

    def __init__(self, coefficients: Coefficients, lanes: Lanes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        nvrtc.shared_memory(device)  # raises NoCompiler
        self.lanes, self.dtype, self.device = lanes, dtype, device
        self.program = trace_coefficients(coefficients, lanes)
        self._kernels: dict[tuple[str, str, bool], Any] = {}

    @cached_property
    def processors(self) -> int:
        return torch.cuda.get_device_properties(self.device).multi_processor_count

    def accepts(self, walk: Walk) -> bool:
        return True

    def kernel(self, direction: str, name: str, packed: bool) -> Any:
        """``survey``, ``join`` or the walk itself, of one direction."""
        if (direction, name, packed) not in self._kernels:
            source = emit(self.program, self.lanes, STORAGE[self.dtype], direction, packed)
            self._kernels[direction, name, packed] = nvrtc.kernel(source, name, self.device, THREADS)
        return self._kernels[direction, name, packed]

    def warps(self, batch: int) -> int:
        """Warps of one segment of so many rows."""
        return batch * ceil(self.lanes.units / 32)

    def forward(self, walk: Walk, gx: Tensor, state: Tensor, extra: Tensor, keep: bool) -> tuple[Tensor, Tensor, Any]:
        """Outputs, final state, and with ``keep`` the state before each chunk and the decay of each segment."""
        plan = _Plan(self, walk, len(extra))
        out, final = gx.new_empty(len(gx), self.lanes.out), torch.empty_like(state)
        kept = state.new_empty(plan.chunks if keep else plan.segments, *state.shape)
        decay, reached = plan.between(state), plan.between(state)
        if plan.segments > 1:
            survey = self.kernel("forward", "survey", walk.packed)
            survey.launch(plan.blocks, gx, extra, decay, reached, *plan.arguments)
            arguments = (*plan.sizes, int(keep))
            self.kernel("forward", "join", walk.packed).launch(
                plan.joining, decay, reached, state, kept, plan.lengths, *arguments
            )
        else:
            kept[0] = state
        walking = self.kernel("forward", "forward", walk.packed)
        walking.launch(plan.blocks, gx, extra, kept, final, out, *plan.arguments, int(keep))
        return out, final, (kept, decay) if keep else ()

    def backward(
        self, walk: Walk, gx: Tensor, extra: Tensor, kept: Sequence[Tensor], dout: Tensor | None, dfinal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of gx, of the initial state and of the extra arrays."""
        plan, lanes, (states, decay) = _Plan(self, walk, len(extra)), self.lanes, kept
        above = 0 if dout is None else dout
        grad = dfinal.new_empty(plan.segments, *dfinal.shape)
        dgx = gx.new_empty(len(gx), lanes.columns * lanes.units)
        tiles = ceil(lanes.units / 32)
        dshared = dfinal.new_empty(len(gx) if lanes.shared else 0, tiles, 2 * lanes.modes)
        dextra = dfinal.new_zeros(plan.segments, plan.batch, *extra.shape[1:])
        if plan.segments > 1:
            reached = plan.between(dfinal)
            survey = self.kernel("backward", "survey_gradients", walk.packed)
            survey.launch(plan.blocks, gx, extra, above, reached, *plan.arguments)
            self.kernel("backward", "join_gradients", walk.packed).launch(
                plan.joining, decay, reached, dfinal, grad, plan.lengths, *plan.sizes
            )
        else:
            grad[0] = dfinal
        walking = self.kernel("backward", "backward", walk.packed)
        walking.launch(
            plan.blocks, gx, extra, states, above, grad, dgx, dshared, dextra, *plan.arguments
        )  # fmt: skip
        if lanes.shared:
            dgx = torch.cat((dgx, dshared.sum(1).to(dgx.dtype)), -1)
        summed = dextra.sum(0).unflatten(0, (len(extra), walk.batch)).sum(1)
        return dgx, grad[0], summed


class _Plan:
    """How one walk is cut, and the last arguments of its kernels."""

    def __init__(self, loop: CudaDiagonalLoop, walk: Walk, models: int = 1) -> None:
        self.steps, self.batch, self.device = len(walk.batch_sizes), models * walk.batch, loop.device
        self.chunks, warps = ceil(self.steps / loop.lanes.chunk), loop.warps(self.batch)
        self.segments = segments(self.chunks, warps, loop.processors)
        self.each = ceil(self.chunks / self.segments)
        self.segments = ceil(self.chunks / self.each)
        self.blocks = ceil(warps * self.segments * 32 / THREADS)
        self.joining = ceil(self.batch * loop.lanes.modes * loop.lanes.units / THREADS)
        self.starts: Tensor | int = 0
        self.lengths: Tensor | int = 0
        if walk.packed:
            self.starts = torch.tensor(walk.starts, device=self.device)
            self.lengths = lengths(walk).to(self.device)
        self.sizes = (self.steps, self.batch, walk.batch, self.segments, self.each)
        self.arguments = (self.starts, self.lengths, *self.sizes, int(walk.reverse), sum(walk.batch_sizes))

    def between(self, like: Tensor) -> Tensor:
        """A number for each segment and each number of the state; nothing if there is one segment."""
        return like.new_empty(self.segments if self.segments > 1 else 0, *like.shape)
