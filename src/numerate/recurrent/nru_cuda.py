"""The NRU's loop over time on a GPU, written by hand; as :mod:`numerate.recurrent.nru_loop` on the CPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isqrt
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops import nvrtc
from numerate.loops.cuda_timeloop import STORAGE, THREADS, WARPS, cuda_source, products_as_cudnn
from numerate.loops.pointwise import Sizes
from numerate.loops.timeloop import Walk
from numerate.loops.trace import NotLowered

MOST_ROWS = 64
"""Rows of a group: each is a running sum of every thread."""


@dataclass(frozen=True)
class Plan:
    """How the work is cut; ``z_units`` and ``m_units`` are the columns of z and of the memory in a part."""

    units: int
    z_units: int
    m_units: int
    parts: int
    groups: int
    rows_each: int
    rows: int


class CudaNRULoop:
    """Loop of the default NRU for float32 or bfloat16; arguments as those of ``NRULoop``."""

    def __init__(
        self, hidden: int, columns: int, memory: int, heads: int, scale: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = Sizes(hidden, columns, 2, 2), dtype, device
        self.memory, self.heads, self.scale = memory, heads, scale
        self.rank = isqrt(heads * memory)
        self.width = 2 * heads + 4 * self.rank
        self.room = nvrtc.shared_memory(device)
        self._plans: dict[int, list[Plan]] = {}
        self._kernels: dict[tuple[Plan, str], nvrtc.Kernel] = {}

    @cached_property
    def processors(self) -> int:
        return torch.cuda.get_device_properties(self.device).multi_processor_count

    def accepts(self, walk: Walk) -> bool:
        """Whether sequences are equally long and the weights fit into the registers of the device."""
        return min(walk.sizes) == walk.batch and bool(self.plans(walk.batch))

    def plans(self, batch: int) -> list[Plan]:
        """All plans that fit, the best one first: few rows for each block, then few blocks in a group."""
        if batch not in self._plans:
            self._plans[batch] = self._find_plans(batch)
        return self._plans[batch]

    def _find_plans(self, batch: int) -> list[Plan]:
        found: list[Plan] = []
        for units in (4, 8, 16, 32):
            parts = ceil(self.sizes.hidden / units)
            z_units, m_units = (_least(numbers, parts) for numbers in (self.width, self.memory))
            if parts > self.processors or not z_units or not m_units:
                continue
            groups = min(batch, self.processors // parts)
            rows_each = ceil(batch / groups)
            plan = Plan(units, z_units, m_units, parts, ceil(batch / rows_each), rows_each, 4 * ceil(rows_each / 4))
            fits = max(self.shared(plan, direction) for direction in ("forward", "backward")) <= self.room
            if fits and plan.rows <= MOST_ROWS and self._weights(plan) <= 160:
                found.append(plan)
        return sorted(found, key=lambda plan: (plan.rows * (40 + self._weights(plan)), plan.parts))

    def _weights(self, plan: Plan) -> int:
        """Numbers of the weights that a thread keeps, in the direction that has more."""
        both, (sub, z_sub, m_sub) = self.sizes.hidden + self.memory, self._subs(plan)
        forward = _depth(both, sub) + _depth(both, z_sub)
        inward = _depth(self.width, sub) + _depth(self.sizes.hidden, sub)
        return max(forward, inward + _depth(self.width + self.sizes.hidden, m_sub))

    def _subs(self, plan: Plan) -> tuple[int, int, int]:
        return 32 // plan.units, 32 // plan.z_units, 32 // plan.m_units

    def shared(self, plan: Plan, direction: str) -> int:
        """Bytes of shared memory of a block: see the kernels."""
        hidden, rows, span = self.sizes.hidden, plan.rows, self.rank // self.heads
        padded = rows + 4 * (rows % 8 == 0)
        sub, z_sub, m_sub = self._subs(plan)

        def filled(numbers: int, subs: int) -> int:
            return WARPS * subs * _depth(numbers, subs)

        sums = WARPS * 32 * padded  # of a product: a column for each lane
        if direction == "forward":
            both = hidden + self.memory
            numbers = max(filled(both, sub), filled(both, z_sub)) + self.width + 2 + 2 * self.heads + 2 * span
            return 4 * (numbers * rows + sums)
        needed = max(self.width + filled(hidden, sub), filled(self.width + hidden, m_sub), filled(self.width, sub))
        numbers = self.memory + needed + self.width + 2 + 4 * self.heads + 4 * span
        return 4 * (numbers * rows + 2 * sums)

    def source(self, plan: Plan, direction: str) -> str:
        """The CUDA source of one direction."""
        constants: dict[str, int | float] = {
            "HIDDEN": self.sizes.hidden, "UNITS": plan.units, "PARTS": plan.parts, "ROWS": plan.rows,
            "MEMORY": self.memory, "HEADS": self.heads, "RANK": self.rank, "SPAN": self.rank // self.heads,
            "WIDTH": self.width, "COLUMNS": self.sizes.columns, "Z_UNITS": plan.z_units, "M_UNITS": plan.m_units,
            "SCALE": self.scale,
        }  # fmt: skip
        kernel = Path(__file__).with_name("nru_loop.cuh").read_text()
        return cuda_source(STORAGE[self.dtype], direction, constants, kernel)

    def kernel(self, plan: Plan, direction: str) -> nvrtc.Kernel:
        if (plan, direction) not in self._kernels:
            shared = self.shared(plan, direction)
            source = self.source(plan, direction)
            self._kernels[plan, direction] = nvrtc.kernel(source, direction, self.device, THREADS, shared)
        return self._kernels[plan, direction]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of h and m, the heads' numbers; all but the history of h only if ``keep``."""
        plan, rows, hidden, (head_weight, bias) = self.plans(walk.batch)[0], len(gx), self.sizes.hidden, extras
        final = [entry.clone(memory_format=torch.contiguous_format) for entry in state]
        out = gx.new_empty(rows, hidden)
        memory = bias.new_empty(rows if keep else 0, self.memory)
        heads = bias.new_empty(rows, self.width) if keep else None
        exchange, counters = self._meeting(plan, hidden + self.width)
        self.kernel(plan, "forward").launch(
            plan.groups * plan.parts, gx, weight, head_weight.to(self.dtype), bias, *final, out, memory if keep else 0,
            0 if heads is None else heads, exchange, counters, *self._numbers(walk, plan), together=True,
        )  # fmt: skip
        return final, [out, memory], heads

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of weight_hh, of the initial state, and of weight_heads and bias_heads."""
        plan, hidden, (head_weight, _) = self.plans(walk.batch)[0], self.sizes.hidden, extras
        dstate = [entry.float().clone(memory_format=torch.contiguous_format) for entry in dfinal]
        d = weight.new_empty(len(saved), hidden + self.width)
        exchange, counters = self._meeting(plan, hidden + self.memory)
        self.kernel(plan, "backward").launch(
            plan.groups * plan.parts, weight, head_weight.to(self.dtype), history[0], saved,
            0 if dout is None else dout, *dstate, d, exchange, counters, *self._numbers(walk, plan), together=True,
        )  # fmt: skip
        dh, dheads = d.split((hidden, self.width), 1)
        first, memory, memories = (tensor.to(self.dtype) for tensor in (*state, history[1]))
        with products_as_cudnn():
            by_memory = walk.weight_gradient(d, memory, memories)
            dweight = torch.cat((walk.weight_gradient(dh, first, history[0]), by_memory[:hidden]), 1)
            dhead_weight = torch.cat((dheads.mT @ history[0], by_memory[hidden:]), 1).to(head_weight.dtype)
        return d[:, : self.sizes.columns], dweight, dstate, [dhead_weight, dheads.sum(0, dtype=torch.float32)]

    def _meeting(self, plan: Plan, numbers: int) -> tuple[Tensor, Tensor]:
        """Where blocks exchange numbers, and what they count with."""
        exchange = torch.zeros(plan.groups, numbers, plan.rows, device=self.device)
        return exchange, torch.zeros(plan.groups, dtype=torch.int32, device=self.device)

    def _numbers(self, walk: Walk, plan: Plan) -> tuple[int, int, int, int]:
        return len(walk.sizes), walk.batch, plan.rows_each, int(walk.reverse)


def _least(numbers: int, parts: int) -> int:
    """The smallest width of a part, a power of two up to 32, with which the parts cover all numbers; 0 if none does."""
    return next((units for units in (4, 8, 16, 32) if units * parts >= numbers), 0)


def _depth(numbers: int, subs: int) -> int:
    return ceil(numbers / (WARPS * subs))
