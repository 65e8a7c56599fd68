"""The loop over time of a diagonal recurrence: state' = a state + b, where a and b depend on the input alone.

No product couples the units, so each (row, unit, mode) walks by itself. A step is the function ``coefficients``, traced
and lowered together with its gradient like the steps of :mod:`numerate.loops.timeloops.pointwise`; what is known of
all steps (the recurrence, a complex state, the sum over the modes of a unit) is written once, in ``diagonal.hpp`` for
the CPU and in ``diagonal.cuh`` for the GPU. The forward walk keeps the state before every chunk of steps, the backward
walk computes the states inside a chunk again.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from numerate.loops.kernel.values import RowArray
from numerate.loops.printers.rows import CppRowPrinter
from numerate.loops.timeloops.pointwise import Pointwise, Sizes, pointwise
from numerate.loops.timeloops.products import models_in_front, preamble
from numerate.loops.timeloops.rows import schedule_row
from numerate.loops.timeloops.timeloop import (
    Frame,
    Walk,
    address,
    by_plain_steps,
    gradients,
)
from numerate.loops.timeloops.tuning import ROWS_EACH
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import NotLowered
from numerate.torch_internals import is_mapped

Coefficients = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]]
"""(columns, extras) -> a, b and, for a sum over the modes, c; a complex one as two, its real and imaginary part."""


@dataclass(frozen=True)
class Lanes:
    """Sizes of a diagonal step: ``units`` in each row, each with ``modes`` states of ``parts`` numbers.

    Args:
        units: Width of a column.
        modes: States of each unit.
        parts: 2 if the state is complex, else 1.
        columns: Columns of gx; each has a number per unit.
        extras: Arrays (modes, units) that the coefficients read beside the columns.
        summed: Whether the output is the real part of the sum over the modes of c state; else it is the state.
        shared: Whether gx has two more numbers per mode, shared by all units: one that multiplies b, one that
            multiplies c.
    """

    units: int
    modes: int
    parts: int
    columns: int
    extras: int
    summed: bool
    shared: bool

    @property
    def coefficients(self) -> int:
        return self.parts * (3 if self.summed else 2)

    @property
    def chunk(self) -> int:
        """Steps between two states that are kept; as many as a thread of a GPU has registers for."""
        return 8 if self.shared else 16

    @property
    def width(self) -> int:
        """Numbers in a row of gx."""
        return self.columns * self.units + 2 * self.modes * self.shared

    @property
    def out(self) -> int:
        """Numbers in a row of the output."""
        return self.units * (1 if self.summed else self.parts)


def lengths(walk: Walk) -> Tensor:
    """Steps of each row."""
    sizes = torch.tensor(walk.batch_sizes)
    return (sizes[:, None] > torch.arange(walk.batch)).sum(0)


def trace_coefficients(coefficients: Coefficients, lanes: Lanes) -> Pointwise:
    """The statements that make the coefficients (as ``new``) and, from their gradients, those of columns and extras."""

    def activate(gx: Tensor, gh: Tensor, state: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        extras = tuple(extra.expand(len(gx), -1) for extra in extras)  # so that each gradient is one sum over the rows
        return tuple(value.expand(len(gx), -1) for value in coefficients(gx.chunk(lanes.columns, -1), extras))

    sizes = Sizes(lanes.units, lanes.columns * lanes.units, lanes.coefficients, lanes.extras)
    program = pointwise(activate, sizes)
    unused = {buffer for buffer, stored in program.storage.items() if stored.array.role in ("dgh", "dstate")}
    program = replace(program, backward=[s for s in program.backward if s.out.buffer not in unused], segments=[])
    if not program.elementwise:
        raise NotLowered("coefficients that look along the units")
    return program


_ARGUMENTS = {
    "forward": "const R *gx, const R *const *extra, R *const *fresh, R *saved",
    "backward": "const R *saved, R *const *fresh, const R *const *extra, R *const *grad, R *dgx, R *const *dextra",
}
"""Of the emitted functions of one row."""


def constants(lanes: Lanes) -> dict[str, int]:
    """The sizes that the sources know."""
    return {
        "PARTS": lanes.parts, "COLUMNS": lanes.columns, "EXTRAS": lanes.extras, "COEFFICIENTS": lanes.coefficients,
        "SUMMED": int(lanes.summed), "SHARED": int(lanes.shared), "CHUNK": lanes.chunk,
    }  # fmt: skip


def emit(program: Pointwise, lanes: Lanes, dtype: torch.dtype) -> str:
    """The C++ source of the forward and backward walk."""
    lines = [preamble(dtype), "#define INLINED __attribute__((always_inline))"]
    lines += [f"const int {name} = {value};" for name, value in constants(lanes).items()]
    for name, statements in (("forward", program.forward), ("backward", program.backward)):
        row, printer = schedule_row(program, statements), CppRowPrinter(lanes.units)
        lines += ["", f"static INLINE void {name}_row(int64_t H, {_ARGUMENTS[name]}) {{"]
        lines += [f"  {_pointer(array)}" for array in row.numbered()]
        lines += [*printer.indented(row.body), "}"]
    return "\n".join([*lines, "", Path(__file__).with_name("diagonal.hpp").read_text()])


def _pointer(array: RowArray) -> str:
    source = "fresh" if array.role == "new" else array.role
    return f"auto *const {array.name} = {source}[{array.number}];"


class DiagonalLoop(Protocol):
    """A compiled diagonal step with its loop over time, forward and backward."""

    lanes: Lanes
    dtype: torch.dtype
    """Of gx and the outputs; the state and the extra tensors are at least single precision."""

    def accepts(self, walk: Walk) -> bool:
        """Whether the loop can do this walk."""
        ...

    def forward(self, walk: Walk, gx: Tensor, state: Tensor, extra: Tensor, keep: bool) -> tuple[Tensor, Tensor, Any]:
        """Outputs (models * rows, out), final state, and with ``keep`` a tuple of tensors for the backward walk.

        gx: (models * rows, width), one model's after the other's; state: (models * B, parts, modes, units); extra:
        (models, extras, modes, units).
        """
        ...

    def backward(
        self, walk: Walk, gx: Tensor, extra: Tensor, kept: Sequence[Tensor], dout: Tensor | None, dfinal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of gx, of the initial state and of ``extra``."""
        ...


class CppDiagonalLoop:
    """The loop of one diagonal step on the CPU, for numbers of one type; raises ``NotLowered`` or ``NoCompiler``."""

    takes_models = True

    def __init__(self, coefficients: Coefficients, lanes: Lanes, dtype: torch.dtype) -> None:
        self.lanes, self.dtype, self.program = lanes, dtype, trace_coefficients(coefficients, lanes)
        self.library = native.library(emit(self.program, lanes, dtype))

    def accepts(self, walk: Walk) -> bool:
        return True

    def forward(self, walk: Walk, gx: Tensor, state: Tensor, extra: Tensor, keep: bool) -> tuple[Tensor, Tensor, Any]:
        final, out = state.clone(), gx.new_empty(len(gx), self.lanes.out)
        chunks = -(-len(walk.batch_sizes) // self.lanes.chunk)
        kept = gx.new_empty(chunks, *state.shape) if keep else None
        frame = self._frame(walk, extra)

        def run(first: int, last: int) -> None:
            edges = ctypes.c_int64(first), ctypes.c_int64(last)
            pointers = [native.pointer(tensor) for tensor in (gx, extra, final)]
            self.library.forward(frame.pointer, *edges, *pointers, address(kept), native.pointer(out))

        native.over_parts(run, len(state), self._threads(walk, extra))
        return out, final, (kept,) if keep else ()

    def backward(
        self, walk: Walk, gx: Tensor, extra: Tensor, kept: Sequence[Tensor], dout: Tensor | None, dfinal: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        grad, dgx, parts = dfinal.clone(), torch.empty_like(gx), self._threads(walk, extra)
        dextra, frame = extra.new_zeros(parts, *extra.shape), self._frame(walk, extra)

        def run(first: int, last: int) -> None:
            for part in range(first, last):
                edges = (ctypes.c_int64(len(dfinal) * edge // parts) for edge in (part, part + 1))
                pointers = [native.pointer(tensor) for tensor in (gx, extra, kept[0])]
                results = [native.pointer(tensor) for tensor in (grad, dgx, dextra[part])]
                self.library.backward(frame.pointer, *edges, *pointers, address(dout), *results)

        native.over_parts(run, parts, parts)
        return dgx, grad, dextra.sum(0)

    @staticmethod
    def _threads(walk: Walk, extra: Tensor) -> int:
        """How many calls share the rows of all models."""
        return max(1, min(torch.get_num_threads(), len(extra) * walk.batch // ROWS_EACH))

    def _frame(self, walk: Walk, extra: Tensor) -> Frame:
        lanes, batch = self.lanes, len(extra) * walk.batch
        rows = (walk.batch, sum(walk.batch_sizes))
        numbers = (batch, walk.reverse, lanes.units, lanes.modes, self.program.saved, *rows)
        return Frame(numbers, (walk.starts, lengths(walk).tolist()), None)


# ---------------------------------------------------------------- as a differentiable function

Group = tuple[Tensor, ...]
Plain = Callable[..., tuple[Tensor, Group]]
"""The same loop step by step: (gx, state, extras) -> outputs (rows, out), final state."""


def run(
    loop: DiagonalLoop, walk: Walk, gx: Tensor, state: tuple[Tensor, ...], extras: tuple[Tensor, ...], plain: Plain
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Walk along time; gx: (rows, width) -> outputs (rows, out), final state.

    state: a tensor of B x modes x units numbers for each part; extras: (modes, units) each. Of several models every
    tensor has a dimension of models in front; what one level of ``vmap`` maps over is that dimension. ``plain`` serves
    second derivatives and batches of gradients.
    """
    tensors = gx, *state, *extras
    if any(map(is_mapped, tensors)):
        out, *final = _OverModels.apply(loop, walk, plain, *tensors)
        return out, tuple(final)
    tensors = gx.contiguous(), *state, *extras
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        out, *final = _Differentiable.apply(loop, walk, plain, *tensors)
        return out, tuple(final)
    out, final, _ = _forward(loop, walk, tensors, keep=False)
    return out, final


def _forward(loop: DiagonalLoop, walk: Walk, tensors: Sequence[Tensor], keep: bool) -> tuple[Tensor, Group, Group]:
    """Outputs and final state, shaped as gx and state are; what backward needs, the extras as one tensor first."""
    gx, state, extras = _apart(loop, tensors)
    *lead, rows, width = gx.shape
    extra = _stacked_extras(loop, extras, state[0], prod(lead))
    out, final, kept = loop.forward(walk, gx.detach().view(-1, width), _stacked(loop, state), extra, keep=keep)
    return out.view(*lead, rows, loop.lanes.out), _entries(final, state), (extra, *kept)


def _apart(loop: DiagonalLoop, tensors: Sequence[Tensor]) -> tuple[Tensor, Group, Group]:
    parts = loop.lanes.parts
    return tensors[0], tuple(tensors[1 : 1 + parts]), tuple(tensors[1 + parts :])


def _stacked(loop: DiagonalLoop, state: Sequence[Tensor]) -> Tensor:
    """-> (models * B, parts, modes, units)"""
    shape = (-1, loop.lanes.modes, loop.lanes.units)
    return torch.stack([entry.reshape(shape) for entry in state], 1).contiguous()


def _stacked_extras(loop: DiagonalLoop, extras: Sequence[Tensor], like: Tensor, models: int) -> Tensor:
    """-> (models, extras, modes, units)"""
    shape = (models, loop.lanes.modes, loop.lanes.units)
    if not extras:
        return like.new_zeros(models, 0, *shape[1:])
    return torch.stack([value.reshape(shape) for value in extras], 1).contiguous()


def _entries(stacked: Tensor, like: Sequence[Tensor]) -> Group:
    return tuple(part.reshape(entry.shape) for part, entry in zip(stacked.unbind(1), like))


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loop: DiagonalLoop, walk: Walk, plain: Plain, *tensors: Tensor) -> Group:
        out, final, kept = _forward(loop, walk, tensors, keep=True)
        ctx.loop, ctx.walk, ctx.plain, ctx.inputs = loop, walk, plain, len(tensors)
        ctx.save_for_backward(*tensors, *kept)
        ctx.set_materialize_grads(False)
        return out, *final

    @staticmethod
    def backward(ctx: Any, *above: Tensor | None) -> Any:
        loop, walk = ctx.loop, ctx.walk
        tensors, (extra, *kept) = ctx.saved_tensors[: ctx.inputs], ctx.saved_tensors[ctx.inputs :]
        gx, state, extras = _apart(loop, tensors)
        with torch.autocast(gx.device.type, enabled=False):
            if by_plain_steps(above):
                with torch.enable_grad():  # new names, as one extra may be computed from another
                    apart = [tensor.view_as(tensor) for tensor in tensors]
                    out, final = ctx.plain(*_apart(loop, apart))
                return None, None, None, *gradients((out, *final), above, apart, ctx.needs_input_grad[3:])
            dout = None if above[0] is None else above[0].contiguous().view(-1, loop.lanes.out)
            dfinal = _stacked(loop, [torch.zeros_like(s) if g is None else g for s, g in zip(state, above[1:])])
            dgx, dstate, dextra = loop.backward(walk, gx.view(-1, gx.shape[-1]), extra, kept, dout, dfinal)
        dextras = [part.reshape(value.shape) for part, value in zip(dextra.unbind(1), extras)]
        return None, None, None, dgx.view(gx.shape), *_entries(dstate, state), *dextras


class _OverModels(torch.autograd.Function):
    """The loop under ``vmap``: hands what it maps over to :func:`run` as a dimension of models."""

    @staticmethod
    def forward(loop: DiagonalLoop, walk: Walk, plain: Plain, *tensors: Tensor) -> Group:
        raise NotImplementedError("only called with tensors that vmap maps over")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only called with tensors that vmap maps over")

    @staticmethod
    def vmap(  # type: ignore[override]
        info: Any, in_dims: Sequence[int | None], loop: DiagonalLoop, walk: Walk, plain: Plain, *tensors: Tensor
    ) -> tuple[Group, tuple[int, ...]]:
        stacked = models_in_front(info.batch_size, in_dims[3:], tensors)
        out, final = run(loop, walk, *_apart(loop, stacked), torch.func.vmap(plain))
        return (out, *final), (0,) * (1 + len(final))
