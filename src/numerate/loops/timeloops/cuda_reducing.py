"""The loop over time on a GPU for steps that look along the units: persistent kernels, as for elementwise steps.

How the work is cut is written in ``grid.cuh`` and ``reducing.cuh``: blocks share the product with the weight, and then
the rows, so that they wait for each other twice a step.
"""

from dataclasses import dataclass
from math import ceil

import torch

from numerate.loops.kernel.values import RowArray
from numerate.loops.printers.rows import CudaRowPrinter
from numerate.loops.timeloops.cuda_rowloop import scheduled
from numerate.loops.timeloops.cuda_timeloop import (
    STORAGE,
    Cut,
    PersistentLoop,
    cuda_source,
    cuts,
    device_file,
    lane_columns,
    padded,
    rounds,
    rows_of_pass,
    slices,
    ways,
)
from numerate.loops.timeloops.pointwise import Activate, Pointwise, Sizes
from numerate.loops.timeloops.tuning import ROW, STEP, SUMS, WARPS, WEIGHTS

PLACES = {
    "state": {"forward": "state", "backward": "old"},
    "new": {"forward": "fresh", "backward": "fresh"},
    "extra": {"forward": "extra", "backward": "extra"},
    "grad": {"backward": "above"},
    "dstate": {"backward": "state"},
    "dextra": {"backward": "dextra"},
}
"""Where the arrays with a number at the end lie, in shared memory."""


@dataclass(frozen=True)
class ReducingPlan(Cut):
    """A cut in which a part makes ``columns`` of the product and a block computes at most ``each`` rows of a group."""

    columns: int
    each: int
    forward_depth: int
    backward_depth: int

    @property
    def weights(self) -> int:
        """Numbers of the weight that a thread keeps, in the direction that has more."""
        return max(lane_columns(self.columns) * self.forward_depth, lane_columns(self.units) * self.backward_depth)

    @property
    def cost(self) -> float:
        """Rough cycles of one step in both directions: multiplications, rows, copies, waiting."""
        products = lane_columns(self.columns) * self.forward_depth + lane_columns(self.units) * self.backward_depth
        computed = 2 * self.rows * products + self.each * ROW
        if self.parts == 1:
            return computed
        copied = WARPS * (self.forward_depth + slices(self.units) * self.backward_depth) * self.rows * 4
        return computed + copied / 48 + 40 * self.parts + 4000

    def exchanged(self, sizes: Sizes, direction: str) -> int:
        """Numbers that the blocks of a group exchange: ``Exchange`` in reducing.cuh."""
        if direction == "forward":
            return self.rows * (WARPS * self.forward_depth + quads(sizes.columns))
        return self.rows * (WARPS * slices(self.units) * self.backward_depth + quads(sizes.hidden))

    def shared(self, program: Pointwise, direction: str) -> int:
        """Bytes of shared memory of a block: see the kernels."""
        sizes, forward = program.sizes, direction == "forward"
        depth, subs, columns = (
            (self.forward_depth, 1, self.columns) if forward else (self.backward_depth, slices(self.units), self.units)
        )
        sums = WARPS * subs * lane_columns(columns) * (32 // subs) * padded(self.rows)
        if self.parts == 1:
            product = self.exchanged(sizes, direction) + sums
        else:
            stages = min(depth, 32) * (2 if depth > 32 else 1)
            product = WARPS * subs * stages * self.rows + sums + quads(sizes.columns if forward else sizes.hidden)
        entry, scratch = sizes.states * sizes.hidden, scheduled(program, direction).scratch
        own = sizes.columns + program.saved + (self.each + 1) * entry + sizes.extras * sizes.hidden
        if not forward:
            own += program.own + 2 * entry + sizes.extras * sizes.hidden
        return 4 * (product + own + scratch + WARPS)


def quads(count: int) -> int:
    return ceil(count / 4) * 4


def row_cuts(sizes: Sizes, processors: int) -> set[tuple[int, int]]:
    """Units of a part and number of parts, more of them where a lane then has one column less."""
    found = set(cuts(sizes.hidden, processors))
    for units, parts in list(found):
        fewer = lane_columns(ceil(sizes.columns / parts)) - 1
        if parts > 1 and fewer and parts < (more := ceil(sizes.columns / (32 * fewer))) <= processors:
            found.add((units, more))
    return found


def reducing_plans(program: Pointwise, batch: int, processors: int, memory: int, models: int = 1) -> list[ReducingPlan]:
    """All plans that fit the device, the best one first."""
    sizes = program.sizes
    found: list[ReducingPlan] = []
    for units, parts, together, groups, rows_each in ways(row_cuts(sizes, processors), batch, processors, models):
        columns, each = ceil(sizes.columns / parts), ceil(rows_each / parts)
        rows = rows_of_pass(rows_each, parts)
        depths = ceil(sizes.hidden / WARPS), ceil(sizes.columns / (WARPS * slices(units)))
        plan = ReducingPlan(units, parts, together, groups, rows_each, rows, columns, each, *depths)
        fits = plan.weights <= WEIGHTS and rows * lane_columns(max(columns, units)) <= SUMS
        if fits and max(plan.shared(program, direction) for direction in ("forward", "backward")) <= memory:
            found.append(plan)
    return sorted(found, key=lambda plan: rounds(plan, models, processors) * (plan.cost + STEP))


def emit(program: Pointwise, plan: ReducingPlan, storage: str, direction: str, packed: bool) -> str:
    """The CUDA source of one direction; ``packed`` if sequences differ in length."""
    sizes, row = program.sizes, scheduled(program, direction)
    constants = {
        "HIDDEN": sizes.hidden, "COLUMNS": sizes.columns, "UNITS": plan.units, "PARTS": plan.parts, "ROWS": plan.rows,
        "CUT": plan.columns, "EACH": plan.each, "STATES": sizes.states, "EXTRAS": sizes.extras, "SAVED": program.saved,
        "OWN": program.own, "SCRATCH": row.scratch, "PACKED": int(packed), "MODELS": int(plan.together > 1),
    }  # fmt: skip
    lines = [_pointer(array, direction) for array in row.numbered()]
    lines += [line for statement in row.body for line in CudaRowPrinter(sizes.hidden).statement(statement)]
    kernel = device_file("reducing.cuh").replace("      BODY\n", "".join(f"      {line}\n" for line in lines))
    gathered = _column_gradient(program) if direction == "backward" else ""
    return cuda_source(storage, direction, constants, kernel, f"{device_file('rowunits.cuh')}\n{gathered}")


def _pointer(array: RowArray, direction: str) -> str:
    """Declare ``state1`` and its like."""
    kind = "const float" if array.role in ("state", "extra", "grad") else "float"
    return f"{kind} *const {array.name} = {PLACES[array.role][direction]} + {array.number} * HIDDEN;"


def _column_gradient(program: Pointwise) -> str:
    """A column of the gradient of gh, by its number."""
    lines, column = ["INLINE float column_gradient(const float *dgx, const float *dgh, int i) {"], 0
    for segment in program.segments:
        lines.append(f"  if (i < {column + segment.width}) return {segment.array}[i + {segment.start - column}];")
        column += segment.width
    return "\n".join([*lines, "  return 0.0f;", "}"])


class CudaReducingLoop(PersistentLoop[ReducingPlan]):
    """The loop of a step function that looks along the units; numbers as those of ``CudaTimeLoop``."""

    def __init__(self, activate: Activate, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(activate, sizes, dtype, device)
        for direction in ("forward", "backward"):
            scheduled(self.program, direction)

    def find_plans(self, batch: int, models: int) -> list[ReducingPlan]:
        return reducing_plans(self.program, batch, self.processors, self.memory, models)

    def source(self, plan: ReducingPlan, direction: str, packed: bool) -> str:
        return emit(self.program, plan, STORAGE[self.dtype], direction, packed)

    def shared(self, plan: ReducingPlan, direction: str) -> int:
        return plan.shared(self.program, direction)

    def exchanged(self, plan: ReducingPlan, direction: str) -> int:
        return plan.exchanged(self.sizes, direction)

    def summands(self, plan: ReducingPlan) -> int:
        return plan.blocks
