"""The loop over time on a GPU: one persistent kernel forwards, one backwards, from the same statements as on the CPU.

How the work is cut is written in ``grid.cuh`` and ``timeloop.cuh``; here a plan is chosen, the kernels are put together
and launched. Steps must be elementwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.printers.rows import CudaUnitPrinter
from numerate.loops.timeloops.pointwise import Activate, Pointwise, Sizes, pointwise
from numerate.loops.timeloops.rows import schedule_row
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.timeloops.tuning import SUMS, THREADS, WARPS, WEIGHTS
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered
from numerate.torch_internals import cudnn_rnn_precision

STORAGE = {torch.float32: "float", torch.bfloat16: "BFloat16", torch.float16: "Half"}


@dataclass(frozen=True)
class GridPlan:
    """How the work is cut: ``parts`` of ``units``, ``groups`` of ``rows_each`` rows in ``passes`` of ``rows``."""

    units: int
    parts: int
    groups: int
    rows_each: int
    rows: int
    passes: int
    forward_depth: int
    backward_depth: int
    columns_each: int

    @property
    def blocks(self) -> int:
        return self.groups * self.parts

    @property
    def slots(self) -> int:
        """Rows of a group that its threads take at a time."""
        return THREADS // self.units

    @property
    def weights(self) -> int:
        """Numbers of the weight that a thread keeps, in the direction that has more."""
        return max(self.columns_each * self.forward_depth, lane_columns(self.units) * self.backward_depth)

    @property
    def cost(self) -> float:
        """Rough cycles of one step in both directions: multiplications, copies, waiting."""
        rows, columns = self.rows * self.passes, lane_columns(self.units)
        multiplied = 2 * rows * (self.columns_each * self.forward_depth + columns * self.backward_depth)
        if self.parts == 1:
            return multiplied
        copied = WARPS * (self.forward_depth + slices(self.units) * self.backward_depth) * rows * 4
        return multiplied + copied / 48 + 20 * self.parts + 2000

    def shared(self, backward: bool) -> int:
        """Bytes of shared memory of a block: see ``Product`` in grid.cuh and ``Meeting`` in timeloop.cuh."""
        depth, subs = (self.backward_depth, slices(self.units)) if backward else (self.forward_depth, 1)
        columns = lane_columns(self.units) * 32 // subs if backward else 32 * self.columns_each
        sums = columns * padded(self.rows)
        if self.parts == 1:
            return 4 * WARPS * subs * (self.passes * depth * self.rows + sums)
        stages = min(depth, 32) * (2 if depth > 32 else 1)
        return 4 * WARPS * subs * (stages * self.rows + sums)


def slices(columns: int) -> int:
    """Slices of a warp in a product with so many columns: SUB_OF in grid.cuh."""
    return next((32 // size for size in (4, 8, 16) if columns <= size), 1)


def lane_columns(columns: int) -> int:
    """Columns of a lane in such a product: COLS_OF in grid.cuh."""
    return ceil(columns / 32)


def padded(rows: int) -> int:
    return rows + 4 * (rows % 8 == 0)


def rows_of_pass(rows: int, parts: int) -> int:
    """How many rows a kernel is made for that has so many: several blocks exchange fours of them."""
    return rows if parts == 1 and rows < 3 else 4 * ceil(rows / 4)


def cuts(hidden: int, processors: int) -> list[tuple[int, int]]:
    """Units of a part, and number of parts: one alone has any number of units, others a power of two."""
    one = [(hidden, 1)] if hidden <= THREADS else []
    several = [(units, ceil(hidden / units)) for units in (4, 8, 16, 32)]
    return one + [(units, parts) for units, parts in several if 1 < parts <= processors]


def plans(sizes: Sizes, batch: int, processors: int, memory: int) -> list[GridPlan]:
    """All plans that fit the device, the best one first."""
    hidden, blocks = sizes.hidden, sizes.columns // sizes.hidden
    found: list[GridPlan] = []
    for units, parts in cuts(hidden, processors):
        groups = min(batch, processors // parts)
        rows_each = ceil(batch / groups)
        groups = ceil(batch / rows_each)
        columns_each = ceil(blocks * units / 32)
        passes = ceil(rows_each / max(SUMS // columns_each // 4 * 4, 4))
        rows = rows_of_pass(ceil(rows_each / passes), parts)
        depths = ceil(hidden / WARPS), ceil(parts * blocks * units / (WARPS * slices(units)))
        plan = GridPlan(units, parts, groups, rows_each, rows, passes, *depths, columns_each)
        fits = plan.weights <= WEIGHTS and passes * ceil(rows / plan.slots) <= 4
        if fits and max(plan.shared(False), plan.shared(True)) <= memory:
            found.append(plan)
    return sorted(found, key=lambda plan: plan.cost)


def kernel_source(storage: str, direction: str, constants: Mapping[str, float], *parts: str) -> str:
    """A source for one direction: what all kernels share, sizes, and then the parts."""
    lines = [device_file("scalar.cuh"), f"typedef {storage} S;", f"#define {direction.upper()}"]
    for name, value in constants.items():
        lines.append(f"const {'int' if isinstance(value, int) else 'float'} {name} = {value!r};")
    return "\n".join([*lines, "", *parts])


def cuda_source(storage: str, direction: str, constants: Mapping[str, float], kernel: str, unit: str = "") -> str:
    """A source of a persistent kernel that walks in one direction: with the function of a unit and the kernel."""
    return kernel_source(storage, direction, constants, device_file("grid.cuh"), unit, kernel)


_ARGUMENTS = {
    "forward": "const float *gx, const float *gh, const float *state, const float *extra, float *fresh, float *saved",
    "backward": "const float *saved, const float *state, const float *fresh, const float *extra, const float *grad, "
    "float *dgx, float *dgh, float *dstate, float *dextra",
}
"""Of the emitted function of one unit."""


def emit(program: Pointwise, plan: GridPlan, storage: str, direction: str, packed: bool) -> str:
    """The CUDA source of one direction; ``packed`` if sequences differ in length."""
    if not program.elementwise:
        raise NotLowered("a step that looks along the units")
    sizes = program.sizes
    constants = {
        "HIDDEN": sizes.hidden, "BLOCKS": sizes.columns // sizes.hidden, "UNITS": plan.units, "PARTS": plan.parts,
        "ROWS": plan.rows, "PASSES": plan.passes, "STATES": sizes.states, "EXTRAS": sizes.extras,
        "SAVED": program.saved // sizes.hidden, "OWN": program.own // sizes.hidden, "PACKED": int(packed),
    }  # fmt: skip
    row = schedule_row(program, program.forward if direction == "forward" else program.backward)
    lines = CudaUnitPrinter(sizes.hidden).indented(row.body)
    body = [f"INLINE void {direction}_unit({_ARGUMENTS[direction]}) {{", *lines, "}", ""]
    if direction == "backward":
        body += ["// All columns of the gradient of gh, in order.", *_gather(program), ""]
    unit = "\n".join(body)
    return cuda_source(storage, direction, constants, device_file("timeloop.cuh"), unit)


def _gather(program: Pointwise) -> list[str]:
    hidden, column = program.sizes.hidden, 0
    lines = ["INLINE void gather_columns(const float *dgx, const float *dgh, float *all) {"]
    for segment in program.segments:
        for block in range(segment.width // hidden):
            lines.append(f"  all[{column}] = {segment.array}[{segment.start // hidden + block}];")
            column += 1
    return [*lines, "}"]


def device_file(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


class CudaTimeLoop:
    """The loop of one step function on a GPU; as :class:`numerate.loops.timeloops.timeloop.TimeLoop`.

    gx, weight and outputs are of ``dtype``, float32, bfloat16 or float16; the state and all sums are float32. Of
    float32 numbers products within the loop are exact to single precision; the gradient of the weight follows the
    setting of cuDNN.
    """

    def __init__(self, activate: Activate, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        self.memory = nvrtc.shared_memory(device)
        self.program = pointwise(activate, sizes)
        if not self.program.elementwise:
            raise NotLowered("a step that looks along the units")
        self._plans: dict[int, list[GridPlan]] = {}
        self._kernels: dict[tuple[GridPlan, str, bool], nvrtc.Kernel] = {}

    @cached_property
    def processors(self) -> int:
        return torch.cuda.get_device_properties(self.device).multi_processor_count

    def accepts(self, walk: Walk) -> bool:
        """Whether the weight fits into the registers of the device."""
        return bool(self.plans(walk.batch))

    def plans(self, batch: int) -> list[GridPlan]:
        """All plans that fit, the best one first."""
        if batch not in self._plans:
            self._plans[batch] = plans(self.sizes, batch, self.processors, self.memory)
        return self._plans[batch]

    def kernel(self, plan: GridPlan, direction: str, packed: bool) -> nvrtc.Kernel:
        if (plan, direction, packed) not in self._kernels:
            source = emit(self.program, plan, STORAGE[self.dtype], direction, packed)
            shared = plan.shared(direction == "backward")
            self._kernels[plan, direction, packed] = nvrtc.kernel(source, direction, self.device, THREADS, shared)
        return self._kernels[plan, direction, packed]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of each entry of the state, what is saved; the last two in full if ``keep``."""
        plan, rows, hidden = self.plans(walk.batch)[0], len(gx), self.sizes.hidden
        final = torch.stack(tuple(state))
        out = gx.new_empty(rows, hidden)
        history = [gx.new_empty(0)] if not keep else [final.new_empty(self.sizes.states - 1, rows, hidden)]
        saved = final.new_empty(rows, self.program.saved) if keep else None
        if saved is not None and not saved.numel():
            saved = final.new_empty(1)
        self.kernel(plan, "forward", walk.packed).launch(
            plan.blocks, gx, weight, stacked(extras, final), final, out, history[0],
            0 if saved is None else saved, *self._exchange_buffers(plan, WARPS * plan.forward_depth),
            *steps_and_rows(walk, plan.rows_each, self.device), cooperative=True,
        )  # fmt: skip
        return list(final.unbind(0)), [out, *history], saved

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra vectors."""
        plan, (out, rest), hidden = self.plans(walk.batch)[0], history, self.sizes.hidden
        initial, dstate = torch.stack(tuple(state)), torch.stack(tuple(dfinal)).float()
        dgx = weight.new_empty(len(out), self.sizes.columns)
        dgh = weight.new_empty(len(out), self.program.own)
        dextra = initial.new_zeros(len(extras), plan.groups * plan.slots, hidden)
        self.kernel(plan, "backward", walk.packed).launch(
            plan.blocks, weight, stacked(extras, initial), initial, out, rest, saved, 0 if dout is None else dout,
            dstate, dgx, dgh, dextra, *self._exchange_buffers(plan, WARPS * slices(plan.units) * plan.backward_depth),
            *steps_and_rows(walk, plan.rows_each, self.device), cooperative=True,
        )  # fmt: skip
        columns = [(dgx if s.array == "dgx" else dgh).narrow(1, s.start, s.width) for s in self.program.segments]
        first = state[0].to(out.dtype)
        with products_as_cudnn():
            dweight = torch.cat([walk.weight_gradient(part, first, out) for part in columns])
        return dgx, dweight, list(dstate.unbind(0)), list(dextra.sum(1).unbind(0))

    def _exchange_buffers(self, plan: GridPlan, depth: int) -> tuple[Tensor | int, Tensor | int]:
        return exchange_buffers(plan.parts, 2 * plan.groups * plan.passes * depth * plan.rows, plan.groups, self.device)


def stacked(extras: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.stack(tuple(extras)) if extras else like.new_empty(1)


def exchange_buffers(parts: int, numbers: int, groups: int, device: torch.device) -> tuple[Tensor | int, Tensor | int]:
    """Where blocks of a group exchange numbers, and what they count with, all 0; nothing if each group is one block."""
    if parts == 1:
        return 0, 0
    exchange, counters = torch.zeros(numbers + groups, device=device).split((numbers, groups))
    return exchange, counters


def steps_and_rows(walk: Walk, rows_each: int, device: torch.device) -> tuple[Tensor | int, int, int, int, int]:
    """The last arguments of a kernel."""
    starts = torch.tensor((*walk.starts, sum(walk.batch_sizes)), device=device) if walk.packed else 0
    return starts, len(walk.batch_sizes), walk.batch, rows_each, int(walk.reverse)


@contextmanager
def products_as_cudnn() -> Iterator[None]:
    """Let products of float32 matrices be as exact as cuDNN's recurrent layers are set to be."""
    ours = torch.backends.cuda.matmul
    before = ours.fp32_precision
    theirs = cudnn_rnn_precision()
    ours.fp32_precision = theirs if theirs in ("tf32", "ieee") else before
    try:
        yield
    finally:
        ours.fp32_precision = before
