"""The loop over time on a GPU: one persistent kernel forwards, one backwards, from the same statements as on the CPU.

How the work is cut is written in ``grid.cuh`` and ``timeloop.cuh``; here a plan is chosen, the kernels are put together
and launched. Steps must be elementwise.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor

from numerate.loops.printers.rows import CudaUnitPrinter
from numerate.loops.timeloops.pointwise import Activate, Pointwise, Sizes, pointwise
from numerate.loops.timeloops.rows import schedule_row
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.timeloops.tuning import STEP, SUMS, THREADS, WARPS, WEIGHTS
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered
from numerate.torch_internals import cudnn_rnn_precision

STORAGE = {torch.float32: "float", torch.bfloat16: "BFloat16", torch.float16: "Half"}


@dataclass(frozen=True)
class Cut:
    """How the work of one model is cut: ``parts`` of ``units``, ``groups`` of ``rows_each`` rows.

    A kernel is made for ``rows`` at a time; ``together`` models are for one launch.
    """

    units: int
    parts: int
    together: int
    groups: int
    rows_each: int
    rows: int

    @property
    def blocks(self) -> int:
        """Of one model."""
        return self.groups * self.parts


@dataclass(frozen=True)
class GridPlan(Cut):
    """A cut, the ``passes`` in which a group takes its rows, and the sizes of the products of a thread."""

    passes: int
    forward_depth: int
    backward_depth: int
    columns_each: int

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


def ways(
    cuts: Iterable[tuple[int, int]], batch: int, processors: int, models: int
) -> list[tuple[int, int, int, int, int]]:
    """Units of a part, parts, models of a launch, groups and rows of a group: how a :class:`Cut` may begin.

    Blocks that wait for each other all run at once; groups of one block may queue for a processor.
    """
    found = []
    for units, parts in cuts:
        for together in {ceil(models / times) for times in range(1, models + 1)}:  # at the same time
            if together * parts <= processors or parts == 1:
                rows_each = ceil(batch / min(batch, max(processors // (together * parts), 1)))
                found.append((units, parts, together if parts > 1 else models, ceil(batch / rows_each), rows_each))
    return sorted(set(found))


def rounds(cut: Cut, models: int, processors: int) -> int:
    """How often the device is filled with blocks before so many models are done."""
    return ceil(models / cut.together) * ceil(cut.together * cut.blocks / processors)


def plans(sizes: Sizes, batch: int, processors: int, memory: int, models: int = 1) -> list[GridPlan]:
    """All plans that fit the device, the best one first."""
    hidden, blocks = sizes.hidden, sizes.columns // sizes.hidden
    found: list[GridPlan] = []
    for units, parts, together, groups, rows_each in ways(cuts(hidden, processors), batch, processors, models):
        columns_each = ceil(blocks * units / 32)
        passes = ceil(rows_each / max(SUMS // columns_each // 4 * 4, 4))
        rows = rows_of_pass(ceil(rows_each / passes), parts)
        depths = ceil(hidden / WARPS), ceil(parts * blocks * units / (WARPS * slices(units)))
        plan = GridPlan(units, parts, together, groups, rows_each, rows, passes, *depths, columns_each)
        fits = plan.weights <= WEIGHTS and passes * ceil(rows / plan.slots) <= 4
        if fits and max(plan.shared(False), plan.shared(True)) <= memory:
            found.append(plan)
    return sorted(found, key=lambda plan: rounds(plan, models, processors) * (plan.cost + STEP))


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
        "MODELS": int(plan.together > 1),
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


PlanType = TypeVar("PlanType", bound=Cut)


class PersistentLoop(ABC, Generic[PlanType]):
    """A loop of persistent kernels; as :class:`numerate.loops.timeloops.timeloop.TimeLoop`.

    gx, weight and outputs are of ``dtype``, float32, bfloat16 or float16; the state and all sums are float32. Of
    float32 numbers products within the loop are exact to single precision; the gradient of the weight follows the
    setting of cuDNN.
    """

    takes_models = True

    def __init__(self, activate: Activate, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        self.memory = nvrtc.shared_memory(device)
        self.program = pointwise(activate, sizes)
        self._plans: dict[tuple[int, int], list[PlanType]] = {}
        self._kernels: dict[tuple[PlanType, str, bool], nvrtc.Kernel] = {}

    @abstractmethod
    def find_plans(self, batch: int, models: int) -> list[PlanType]:
        """All plans that fit, the best one first."""

    @abstractmethod
    def source(self, plan: PlanType, direction: str, packed: bool) -> str:
        """Of the kernel of one direction; ``packed`` if sequences differ in length."""

    @abstractmethod
    def shared(self, plan: PlanType, direction: str) -> int:
        """Bytes of shared memory of a block."""

    @abstractmethod
    def exchanged(self, plan: PlanType, direction: str) -> int:
        """Numbers that the blocks of one group exchange."""

    @abstractmethod
    def summands(self, plan: PlanType) -> int:
        """Of the gradient of an extra vector, of one model."""

    @cached_property
    def processors(self) -> int:
        return torch.cuda.get_device_properties(self.device).multi_processor_count

    def accepts(self, walk: Walk) -> bool:
        """Whether the weight fits into the registers of the device."""
        return bool(self.plans(walk.batch))

    def plans(self, batch: int, models: int = 1) -> list[PlanType]:
        """All plans that fit, the best one first."""
        if (batch, models) not in self._plans:
            self._plans[batch, models] = self.find_plans(batch, models)
        return self._plans[batch, models]

    def kernel(self, plan: PlanType, direction: str, packed: bool) -> nvrtc.Kernel:
        if (plan, direction, packed) not in self._kernels:
            source, shared = self.source(plan, direction, packed), self.shared(plan, direction)
            self._kernels[plan, direction, packed] = nvrtc.kernel(source, direction, self.device, THREADS, shared)
        return self._kernels[plan, direction, packed]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of each entry of the state, what is saved; the last two in full if ``keep``."""
        (*lead, rows, _), hidden, models = gx.shape, self.sizes.hidden, prod(gx.shape[:-2])
        plan = self.plans(walk.batch, models)[0]
        final = torch.stack(tuple(state), -3)
        out = gx.new_empty(*lead, rows, hidden)
        history = final.new_empty(*lead, rows if keep else 0, self.sizes.states - 1, hidden)
        saved = final.new_empty(*lead, rows, max(self.program.saved, 1)) if keep else None
        arrays = gx, weight, stacked(extras, final), final, out, history, saved
        self._launch("forward", walk, plan, models, *arrays)
        return list(final.unbind(-3)), [out, history], saved

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra vectors."""
        out, rest = history
        (*lead, rows, hidden), models = out.shape, prod(out.shape[:-2])
        plan = self.plans(walk.batch, models)[0]
        initial, dstate = torch.stack(tuple(state), -3), torch.stack(tuple(dfinal), -3).float()
        dgx = weight.new_empty(*lead, rows, self.sizes.columns)
        dgh = weight.new_empty(*lead, rows, self.program.own)
        dextra = initial.new_empty(*lead, len(extras), self.summands(plan), hidden)
        inner = weight, stacked(extras, initial), initial, out, rest, saved, dout
        self._launch("backward", walk, plan, models, *inner, dstate, dgx, dgh, dextra)
        columns = [(dgx if s.array == "dgx" else dgh).narrow(-1, s.start, s.width) for s in self.program.segments]
        first = state[0].to(out.dtype)
        with products_as_cudnn():
            found = [walk.weight_gradient(part, first, out) for part in columns]
        dweight = found[0] if len(found) == 1 else torch.cat(found, -2)
        return dgx, dweight, list(dstate.unbind(-3)), list(dextra.sum(-2).unbind(-2)) if extras else []

    def _launch(self, direction: str, walk: Walk, plan: PlanType, models: int, *arrays: Tensor | None) -> None:
        kernel, exchanged = self.kernel(plan, direction, walk.packed), self.exchanged(plan, direction)
        launch_models(kernel, walk, plan, exchanged, models, self.device, *arrays)


class CudaTimeLoop(PersistentLoop[GridPlan]):
    """The loop of an elementwise step function on a GPU."""

    def __init__(self, activate: Activate, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(activate, sizes, dtype, device)
        if not self.program.elementwise:
            raise NotLowered("a step that looks along the units")

    def find_plans(self, batch: int, models: int) -> list[GridPlan]:
        return plans(self.sizes, batch, self.processors, self.memory, models)

    def source(self, plan: GridPlan, direction: str, packed: bool) -> str:
        return emit(self.program, plan, STORAGE[self.dtype], direction, packed)

    def shared(self, plan: GridPlan, direction: str) -> int:
        return plan.shared(direction == "backward")

    def exchanged(self, plan: GridPlan, direction: str) -> int:
        depth = plan.forward_depth if direction == "forward" else slices(plan.units) * plan.backward_depth
        return 2 * plan.passes * WARPS * depth * plan.rows

    def summands(self, plan: GridPlan) -> int:
        return plan.groups * plan.slots


def launch_models(
    kernel: nvrtc.Kernel,
    walk: Walk,
    cut: Cut,
    exchanged: int,
    models: int,
    device: torch.device,
    *arrays: Tensor | None,
) -> None:
    """Launch a persistent kernel for as many models at a time as the plan says.

    Args:
        kernel, walk, cut, models, device: What runs, over which steps, how cut, for how many models, and where.
        exchanged: Numbers that the blocks of one group exchange.
        arrays: The kernel's arguments before the exchange; those of several models have a dimension of models in front.
    """
    tail = steps_and_rows(walk, cut.rows_each, device)
    for start in range(0, models, cut.together):
        count = min(cut.together, models - start)
        given = [0 if a is None else a if count == models else a[start : start + count] for a in arrays]
        exchange = exchange_buffers(cut.parts, exchanged, count * cut.groups, device)
        kernel.launch(count * cut.blocks, *given, *exchange, *tail, cooperative=cut.parts > 1)


def stacked(extras: Sequence[Tensor], state: Tensor) -> Tensor:
    """The extra vectors of each model side by side; ``state`` has the same models."""
    return torch.stack(tuple(extras), -2) if extras else state.new_empty(*state.shape[:-3], 0)


def exchange_buffers(parts: int, numbers: int, groups: int, device: torch.device) -> tuple[Tensor | int, Tensor | int]:
    """Where blocks of each group exchange numbers, and what they count with, all 0; nothing if a group is one block."""
    if parts == 1:
        return 0, 0
    exchange, counters = torch.zeros(groups * (numbers + 1), device=device).split((groups * numbers, groups))
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
