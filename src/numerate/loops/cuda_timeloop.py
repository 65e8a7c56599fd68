"""The loop over time on a GPU: one persistent kernel forwards, one backwards, from the same statements as on the CPU.

How the work is cut is written in ``grid.cuh`` and ``timeloop.cuh``; here a plan is chosen, the kernels are put together
and launched. Steps must be elementwise, and all sequences of a batch equally long.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.loops import nvrtc
from numerate.loops.pointwise import Activate, Pointwise, Sizes, pointwise
from numerate.loops.rowcode import UnitCode
from numerate.loops.timeloop import Walk
from numerate.loops.trace import NotLowered

THREADS, WARPS = 256, 8
WEIGHTS = 144
"""Numbers of the weight that a thread can keep in registers."""
SUMS = 64
"""Running sums that it can keep beside them."""
STORAGE = {torch.float32: "float", torch.bfloat16: "Brief"}


@dataclass(frozen=True)
class Plan:
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
    def subs(self) -> int:
        """Slices of a warp in the backward product."""
        return 32 // self.units

    @property
    def cost(self) -> float:
        """Rough cycles of one step in both directions: multiplications, copies, waiting."""
        rows = self.rows * self.passes
        copied = WARPS * (self.forward_depth + self.subs * self.backward_depth) * rows * 4
        return 2 * rows * (self.columns_each * self.forward_depth + self.backward_depth) + copied / 48 + 20 * self.parts

    def shared(self, backward: bool) -> int:
        """Bytes of shared memory of a block: see ``Product`` in grid.cuh."""
        depth, subs = (self.backward_depth, self.subs) if backward else (self.forward_depth, 1)
        columns = self.units if backward else 32 * self.columns_each
        padded = self.rows + 4 * (self.rows % 8 == 0)
        stages = min(depth, 32) * (2 if depth > 32 else 1)
        return 4 * WARPS * subs * (stages * self.rows + columns * padded)


def plans(sizes: Sizes, batch: int, processors: int, memory: int) -> list[Plan]:
    """All plans that fit the device, the best one first."""
    hidden, blocks = sizes.hidden, sizes.columns // sizes.hidden
    found: list[Plan] = []
    for units in (4, 8, 16, 32):
        parts = ceil(hidden / units)
        if parts > processors:
            continue
        groups = min(batch, processors // parts)
        rows_each = ceil(batch / groups)
        groups = ceil(batch / rows_each)
        columns_each = ceil(blocks * units / 32)
        passes = ceil(rows_each / max(SUMS // columns_each // 4 * 4, 4))
        rows = 4 * ceil(rows_each / passes / 4)
        depths = ceil(hidden / WARPS), ceil(parts * blocks * units / (WARPS * 32 // units))
        plan = Plan(units, parts, groups, rows_each, rows, passes, *depths, columns_each)
        pairs = passes * ceil(rows * units / THREADS)
        fits = max(columns_each * depths[0], depths[1]) <= WEIGHTS and pairs <= 4
        if fits and max(plan.shared(False), plan.shared(True)) <= memory:
            found.append(plan)
    return sorted(found, key=lambda plan: plan.cost)


def cuda_source(storage: str, direction: str, constants: Mapping[str, float], kernel: str, unit: str = "") -> str:
    """A source that walks in one direction: what all kernels share, sizes, the function of a unit, and the kernel."""
    lines = [_file("scalar.cuh"), f"typedef {storage} S;", f"#define {direction.upper()}"]
    for name, value in constants.items():
        lines.append(f"const {'int' if isinstance(value, int) else 'float'} {name} = {value!r};")
    return "\n".join([*lines, "", _file("grid.cuh"), unit, kernel])


def emit(program: Pointwise, plan: Plan, storage: str, direction: str) -> str:
    """The CUDA source of one direction."""
    sizes = program.sizes
    constants = {
        "HIDDEN": sizes.hidden, "BLOCKS": sizes.columns // sizes.hidden, "UNITS": plan.units, "PARTS": plan.parts,
        "ROWS": plan.rows, "PASSES": plan.passes, "STATES": sizes.states, "EXTRAS": sizes.extras,
        "SAVED": program.saved // sizes.hidden, "OWN": program.own // sizes.hidden,
    }  # fmt: skip
    if direction == "forward":
        arguments = (
            "const float *gx, const float *gh, const float *state, const float *extra, float *fresh, float *saved"
        )
        code = UnitCode(program, program.forward)
    else:
        arguments = (
            "const float *saved, const float *state, const float *fresh, const float *extra, const float *grad, "
            "float *dgx, float *dgh, float *dstate, float *dextra"
        )
        code = UnitCode(program, program.backward)
    body = [f"INLINE void {direction}_unit({arguments}) {{", *(f"  {line}" for line in code.lines), "}", ""]
    if direction == "backward":
        body += ["// All columns of the gradient of gh, in order.", *_gather(program), ""]
    unit = "\n".join(body).replace("new[", "fresh[")
    return cuda_source(storage, direction, constants, _file("timeloop.cuh"), unit)


def _gather(program: Pointwise) -> list[str]:
    hidden, column = program.sizes.hidden, 0
    lines = ["INLINE void gather_columns(const float *dgx, const float *dgh, float *all) {"]
    for segment in program.segments:
        for block in range(segment.width // hidden):
            lines.append(f"  all[{column}] = {segment.array}[{segment.start // hidden + block}];")
            column += 1
    return [*lines, "}"]


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


class CudaTimeLoop:
    """The loop of one step function on a GPU; as :class:`numerate.loops.timeloop.TimeLoop`.

    gx, weight and outputs are of ``dtype``, float32 or bfloat16; the state and all sums are float32. Of float32 numbers
    products within the loop are exact to single precision; the gradient of the weight follows the setting of cuDNN.
    """

    def __init__(self, activate: Activate, sizes: Sizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        self.memory = nvrtc.shared_memory(device)
        self.program = pointwise(activate, sizes)
        if not self.program.elementwise:
            raise NotLowered("a step that looks along the units")
        self._plans: dict[int, list[Plan]] = {}
        self._kernels: dict[tuple[Plan, str], nvrtc.Kernel] = {}

    @cached_property
    def processors(self) -> int:
        return torch.cuda.get_device_properties(self.device).multi_processor_count

    def accepts(self, walk: Walk) -> bool:
        """Whether sequences are equally long and the weight fits into the registers of the device."""
        return min(walk.sizes) == walk.batch and bool(self.plans(walk.batch))

    def plans(self, batch: int) -> list[Plan]:
        """All plans that fit, the best one first."""
        if batch not in self._plans:
            self._plans[batch] = plans(self.sizes, batch, self.processors, self.memory)
        return self._plans[batch]

    def kernel(self, plan: Plan, direction: str) -> nvrtc.Kernel:
        if (plan, direction) not in self._kernels:
            source = emit(self.program, plan, STORAGE[self.dtype], direction)
            shared = plan.shared(direction == "backward")
            self._kernels[plan, direction] = nvrtc.kernel(source, direction, self.device, THREADS, shared)
        return self._kernels[plan, direction]

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
        exchange = self._exchange(plan, WARPS * plan.forward_depth)
        padded = F.pad(state[0], (0, 0, 0, plan.groups * plan.rows_each - walk.batch)).unflatten(0, (plan.groups, -1))
        padded = F.pad(padded, (0, 0, 0, plan.passes * plan.rows - plan.rows_each)).unflatten(1, (plan.passes, -1))
        exchange[0, :, :, :hidden].copy_(padded.mT)
        self.kernel(plan, "forward").launch(
            plan.blocks, gx, weight, self._stacked(extras, final), final, out, history[0],
            0 if saved is None else saved, exchange, self._counters(plan), *self._numbers(walk, plan), together=True,
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
        dextra = initial.new_zeros(len(extras), plan.groups * THREADS // plan.units, hidden)
        exchange = self._exchange(plan, WARPS * plan.subs * plan.backward_depth)
        self.kernel(plan, "backward").launch(
            plan.blocks, weight, self._stacked(extras, initial), initial, out, rest, saved, 0 if dout is None else dout,
            dstate, dgx, dgh, dextra, exchange, self._counters(plan), *self._numbers(walk, plan), together=True,
        )  # fmt: skip
        columns = [(dgx if s.array == "dgx" else dgh).narrow(1, s.start, s.width) for s in self.program.segments]
        first = state[0].to(out.dtype)
        with products_as_cudnn():
            dweight = torch.cat([walk.weight_gradient(part, first, out) for part in columns])
        return dgx, dweight, list(dstate.unbind(0)), list(dextra.sum(1).unbind(0))

    def _exchange(self, plan: Plan, depth: int) -> Tensor:
        return torch.zeros(2, plan.groups, plan.passes, depth, plan.rows, device=self.device)

    def _counters(self, plan: Plan) -> Tensor:
        return torch.zeros(plan.groups, dtype=torch.int32, device=self.device)

    def _stacked(self, extras: Sequence[Tensor], like: Tensor) -> Tensor:
        return torch.stack(tuple(extras)) if extras else like.new_empty(1)

    def _numbers(self, walk: Walk, plan: Plan) -> tuple[int, int, int, int]:
        return len(walk.sizes), walk.batch, plan.rows_each, int(walk.reverse)


@contextmanager
def products_as_cudnn() -> Iterator[None]:
    """Let products of float32 matrices be as exact as cuDNN's recurrent layers are set to be."""
    ours = torch.backends.cuda.matmul
    before = ours.fp32_precision
    theirs = torch._C._get_fp32_precision_getter(
        "cuda", "rnn"
    )  # torch.backends.cudnn.rnn is not the same in all versions
    ours.fp32_precision = theirs if theirs in ("tf32", "ieee") else before
    try:
        yield
    finally:
        ours.fp32_precision = before
