"""The NRU's loop over time on a GPU; as :mod:`numerate.recurrent.nru_loops.cpu` on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops.timeloops.cuda_timeloop import (
    STORAGE,
    SUMS,
    THREADS,
    WARPS,
    Cut,
    cuda_source,
    cuts,
    lane_columns,
    launch_models,
    padded,
    products_as_cudnn,
    rounds,
    rows_of_pass,
    slices,
    ways,
)
from numerate.loops.timeloops.timeloop import Walk
from numerate.loops.timeloops.tuning import STEP
from numerate.loops.toolchain import nvrtc
from numerate.loops.tracing.trace import NotLowered
from numerate.recurrent.nru_loops.sizes import NRUSizes

WEIGHTS = 160
"""Numbers of all weights that a thread can keep in registers."""


@dataclass(frozen=True)
class Plan(Cut):
    """How the work is cut; ``z_units`` and ``m_units`` are the columns of z and of the memory in a part."""

    z_units: int
    m_units: int


class CudaNRULoop:
    """Loop of the NRU for float32, bfloat16 or float16; operands as those of ``NRULoop``."""

    takes_models = True

    def __init__(self, sizes: NRUSizes, dtype: torch.dtype, device: torch.device) -> None:
        if dtype not in STORAGE:
            raise NotLowered(f"{dtype} on a GPU")
        self.sizes, self.dtype, self.device = sizes, dtype, device
        self.room = nvrtc.shared_memory(device)
        self._plans: dict[tuple[int, int], list[Plan]] = {}
        self._kernels: dict[tuple[Plan, str, bool], nvrtc.Kernel] = {}

    @cached_property
    def processors(self) -> int:
        return torch.cuda.get_device_properties(self.device).multi_processor_count

    def accepts(self, walk: Walk) -> bool:
        """Whether the weights fit into the registers of the device."""
        return bool(self.plans(walk.batch))

    def plans(self, batch: int, models: int = 1) -> list[Plan]:
        """All plans that fit, the best one first: blocks that need not wait, then few rows for each block."""
        if (batch, models) not in self._plans:
            self._plans[batch, models] = self._find_plans(batch, models)
        return self._plans[batch, models]

    def _find_plans(self, batch: int, models: int) -> list[Plan]:
        found: list[Plan] = []
        cut = cuts(self.sizes.hidden, self.processors)
        for units, parts, together, groups, rows_each in ways(cut, batch, self.processors, models):
            z_units, m_units = (_least(numbers, parts) for numbers in (self.sizes.width, self.sizes.memory))
            if not z_units or not m_units:
                continue
            rows = rows_of_pass(rows_each, parts)
            plan = Plan(units, parts, together, groups, rows_each, rows, z_units, m_units)
            sums = rows * lane_columns(max(units, z_units, m_units))
            fits = max(self.shared(plan, direction) for direction in ("forward", "backward")) <= self.room
            if fits and sums <= SUMS and self._weights(plan) <= WEIGHTS:
                found.append(plan)

        def cost(plan: Plan) -> tuple[bool, int, int]:
            step = STEP + plan.rows * (40 + self._weights(plan))
            return plan.parts > 1, rounds(plan, models, self.processors) * step, plan.parts

        return sorted(found, key=cost)

    def _weights(self, plan: Plan) -> int:
        """Numbers of the weights that a thread keeps, in the direction that has more."""
        hidden, both = self.sizes.hidden, self.sizes.both
        to_hidden, to_heads, to_memory = plan.units, plan.z_units, plan.m_units
        forward = _lane_weights(both, to_hidden) + _lane_weights(both, to_heads)
        inward = _lane_weights(self.sizes.width, to_hidden) + _lane_weights(hidden, to_hidden)
        return max(forward, inward + _lane_weights(self.sizes.width + hidden, to_memory))

    def shared(self, plan: Plan, direction: str) -> int:
        """Bytes of shared memory of a block: see the kernels."""
        sizes, rows = self.sizes, plan.rows
        forward_room, backward_room = sizes.head_room

        def filled(numbers: int, columns: int) -> int:
            return WARPS * slices(columns) * _depth(numbers, columns)

        def sums(*columns: int) -> int:  # of products of which one is made at a time
            return max(WARPS * 32 * lane_columns(n) * padded(rows) for n in columns)

        if direction == "forward":
            numbers = max(filled(sizes.both, plan.units), filled(sizes.both, plan.z_units)) + sizes.width + forward_room
            return 4 * (numbers * rows + sums(plan.units, plan.z_units))
        needed = sizes.width + filled(sizes.hidden, plan.units), filled(sizes.width + sizes.hidden, plan.m_units)
        numbers = sizes.memory + max(*needed, filled(sizes.width, plan.units)) + sizes.width + backward_room
        return 4 * (numbers * rows + sums(plan.units) + sums(plan.m_units))

    def source(self, plan: Plan, direction: str, packed: bool) -> str:
        """The CUDA source of one direction; ``packed`` if sequences differ in length."""
        constants = self.sizes.constants | {
            "UNITS": plan.units, "PARTS": plan.parts, "ROWS": plan.rows, "Z_UNITS": plan.z_units,
            "M_UNITS": plan.m_units, "STATES": 2, "PACKED": int(packed), "MODELS": int(plan.together > 1),
        }  # fmt: skip
        heads, kernel = (Path(__file__).with_name(f"nru_{name}.cuh").read_text() for name in ("heads", "loop"))
        return cuda_source(STORAGE[self.dtype], direction, constants, kernel, heads)

    def kernel(self, plan: Plan, direction: str, packed: bool) -> nvrtc.Kernel:
        if (plan, direction, packed) not in self._kernels:
            source, shared = self.source(plan, direction, packed), self.shared(plan, direction)
            self._kernels[plan, direction, packed] = nvrtc.kernel(source, direction, self.device, THREADS, shared)
        return self._kernels[plan, direction, packed]

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
        """Final state, history of h and m, the heads' numbers; all but the history of h only if ``keep``."""
        (*lead, rows, _), hidden, (head_weight, bias), models = gx.shape, self.sizes.hidden, extras, prod(gx.shape[:-2])
        plan = self.plans(walk.batch, models)[0]
        final = [entry.clone(memory_format=torch.contiguous_format) for entry in state]
        out = gx.new_empty(*lead, rows, hidden)
        memory = bias.new_empty(*lead, rows if keep else 0, self.sizes.memory)
        heads = bias.new_empty(*lead, rows, self.sizes.width) if keep else None
        kernel, exchanged = self.kernel(plan, "forward", walk.packed), (hidden + self.sizes.width) * plan.rows
        arrays = gx, weight, head_weight.to(self.dtype), bias, *final, out, memory if keep else None, heads
        launch_models(kernel, walk, plan, exchanged, models, self.device, *arrays)
        return final, [out, memory], heads

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of weight_hh, of the initial state, and of weight_heads and bias_heads."""
        (*lead, rows, _), hidden, (head_weight, _) = saved.shape, self.sizes.hidden, extras
        models = prod(lead)
        plan = self.plans(walk.batch, models)[0]
        dstate = [entry.float().clone(memory_format=torch.contiguous_format) for entry in dfinal]
        d = weight.new_empty(*lead, rows, hidden + self.sizes.width)
        kernel, exchanged = self.kernel(plan, "backward", walk.packed), (hidden + self.sizes.memory) * plan.rows
        arrays = weight, head_weight.to(self.dtype), history[0], saved, dout, *dstate, d
        launch_models(kernel, walk, plan, exchanged, models, self.device, *arrays)
        dweight, dextras = weight_gradients(self.sizes, walk, d, state, history)
        return d[..., : self.sizes.columns], dweight, dstate, dextras


def weight_gradients(
    sizes: NRUSizes, walk: Walk, d: Tensor, state: Sequence[Tensor], history: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Gradients of weight_hh, and of weight_heads and bias_heads, from those of the pre-activations of h and z."""
    widths = sizes.hidden, sizes.width
    dh, dheads = d.split(widths, -1)
    first, memory, memories = (tensor.to(d.dtype) for tensor in (*state, history[1]))
    with products_as_cudnn():
        before, after = walk.weight_gradient(d, memory, memories).split(widths, -2)
        dweight = torch.cat((walk.weight_gradient(dh, first, history[0]), before), -1)
        dhead_weight = torch.cat((dheads.mT @ history[0], after), -1).to(state[0].dtype)
    return dweight, [dhead_weight, dheads.sum(-2, dtype=torch.float32)]


def _least(numbers: int, parts: int) -> int:
    """The smallest width of a part with which the parts cover all numbers, as ``cuts`` has them; 0 if there is none."""
    if parts == 1:
        return numbers if numbers <= THREADS else 0
    return next((units for units in (4, 8, 16, 32) if units * parts >= numbers), 0)


def _depth(numbers: int, columns: int) -> int:
    """Of the slices of a product with so many columns."""
    return ceil(numbers / (WARPS * slices(columns)))


def _lane_weights(numbers: int, columns: int) -> int:
    return lane_columns(columns) * _depth(numbers, columns)
