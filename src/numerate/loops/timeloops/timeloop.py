"""A recurrent step as a native loop over time: all steps of a sequence in one call, and all steps backwards in another.

A step is one matrix product with the hidden state and the function ``activate`` of its columns (see
:mod:`numerate.loops.timeloops.pointwise`). The forward call saves what the backward call needs; the gradient of the
weight is one large product at the end. Rows of the batch are independent, so threads share the batch and never wait
for each other.

Several models of one step walk together: every tensor then has a dimension of models in front, and each model its own
weight and rows. Under ``torch.func.vmap`` that is the mapped dimension, see :func:`run`.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate
from math import ceil, prod
from typing import Any, Protocol

import torch
from torch import Tensor

from numerate.loops.kernel.values import RowArray
from numerate.loops.printers.rows import CppRowPrinter
from numerate.loops.timeloops import tuning
from numerate.loops.timeloops.pointwise import Activate, Pointwise, Sizes, pointwise
from numerate.loops.timeloops.products import (
    correlated,
    models_in_front,
    multiplies,
    packed,
    preamble,
    products,
    source_file,
)
from numerate.loops.timeloops.rows import schedule_row
from numerate.loops.toolchain import native
from numerate.torch_internals import is_batch_of_gradients, is_mapped

# ---------------------------------------------------------------- the walk


@dataclass(frozen=True)
class Walk:
    """Which rows take part in which step: the first ``batch_sizes[t]``; ``reverse``: the last step comes first."""

    batch_sizes: tuple[int, ...]
    reverse: bool

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Place of each step's first row in the arrays with a row per step."""
        return tuple(accumulate(self.batch_sizes, initial=0))[:-1]

    @cached_property
    def batch(self) -> int:
        return max(self.batch_sizes)

    @cached_property
    def packed(self) -> bool:
        """Whether some step has fewer rows than the batch."""
        return min(self.batch_sizes) < self.batch

    def weight_gradient(self, dgh: Tensor, initial: Tensor, history: Tensor) -> Tensor:
        """Gradients of the columns times the hidden state one step before; (rows, C), (B, H), (rows, H) -> (C, H).

        Of several models: (M, rows, C), (M, B, H), (M, rows, H) -> (M, C, H).
        """
        batch, later = self.batch, history.shape[-2] - self.batch
        if self.packed:
            known = torch.cat((initial, history), -2).index_select(-2, self.previous(history.device))
            return correlated(dgh, known) if multiplies(history) else dgh.mT @ known
        first, rest = (later, 0) if self.reverse else (0, batch)  # where rows with and without a step before them begin
        begin, go_on, before = (
            dgh.narrow(-2, first, batch),
            dgh.narrow(-2, rest, later),
            history.narrow(-2, batch - rest, later),
        )
        if multiplies(history):
            return correlated(begin, initial) + correlated(go_on, before)
        added = torch.baddbmm if dgh.dim() == 3 else torch.addmm
        return added(begin.mT @ initial, go_on.mT, before)

    def previous(self, device: torch.device) -> Tensor:
        """For each row, where the same sequence was one step before in (initial state, history)."""
        sizes, starts = torch.tensor(self.batch_sizes), torch.tensor(self.starts)
        row = torch.arange(int(sizes.sum())) - starts.repeat_interleave(sizes)  # of the batch
        none = torch.zeros(1, dtype=torch.int64)
        before = [torch.cat((part[1:], none) if self.reverse else (none, part[:-1])) for part in (sizes, starts)]
        known, start = (part.repeat_interleave(sizes) for part in before)
        return torch.where(row < known, self.batch + start + row, row).to(device)


class Frame:
    """A ``Walk`` of the C++ sources in memory: integers, arrays of them, the function ``multiply``, a number."""

    def __init__(
        self, numbers: Sequence[int], arrays: Sequence[Sequence[int]], multiply: Any, scale: float = 1.0
    ) -> None:
        self.arrays = [(ctypes.c_int64 * max(len(values), 1))(*values) for values in arrays]  # must live as long
        kind = _frame_type(len(numbers), len(arrays))
        self.frame = kind(*numbers, *map(ctypes.addressof, self.arrays), multiply, scale)

    @property
    def pointer(self) -> Any:
        return ctypes.byref(self.frame)


@cache
def _frame_type(numbers: int, arrays: int) -> Any:
    fields: list[tuple[str, Any]] = [(f"number{k}", ctypes.c_int64) for k in range(numbers)]
    fields += [(f"array{k}", ctypes.c_void_p) for k in range(arrays)]
    fields += [("multiply", ctypes.c_void_p), ("scale", ctypes.c_double)]
    return type("Walk", (ctypes.Structure,), {"_fields_": fields})


def addresses(tensors: Sequence[Tensor | None]) -> Any:
    """An array of pointers, null for None."""
    values = [None if tensor is None else native.pointer(tensor).value for tensor in tensors]
    return (ctypes.c_void_p * max(len(values), 1))(*values)


def address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None) if tensor is None else native.pointer(tensor)


def threads(walk: Walk, models: int, weights: int) -> int:
    """How many calls may share the rows of the batch of each of so many models: threads share models, then rows.

    ``weights``: numbers that each row is multiplied with at every step.
    """
    useful = models * sum(walk.batch_sizes) * weights // tuning.WORK_EACH
    return max(1, min(ceil(min(torch.get_num_threads(), useful) / models), walk.batch // tuning.ROWS_EACH))


Group = Sequence[Tensor | None]


def each_model(lead: Sequence[int], *groups: Group) -> list[tuple[Group, ...]]:
    """The same groups of tensors for each model; ``lead``: what shapes begin with, (models,) or nothing for one."""
    if not lead:
        return [groups]
    return [tuple([None if t is None else t[k] for t in group] for group in groups) for k in range(lead[0])]


def walk_together(work: Callable[[int, int, int, int], object], walk: Walk, models: int, parts: int) -> None:
    """Call ``work(model, part, first, last)`` for the parts of each model's rows, in parallel."""

    def run(start: int, end: int) -> None:
        for k in range(start, end):
            model, part = divmod(k, parts)
            work(model, part, walk.batch * part // parts, walk.batch * (part + 1) // parts)

    native.over_parts(run, models * parts, min(torch.get_num_threads(), models * parts))


# ---------------------------------------------------------------- the emitted loop


_ARGUMENTS = {
    "forward": "const R *gx, const R *gh, const R *const *state, const R *const *extra, R *const *fresh, R *saved",
    "backward": "const R *saved, const R *const *state, const R *const *fresh, const R *const *extra, "
    "const R *const *grad, R *dgx, R *dgh, R *const *dstate, R *const *dextra",
}
"""Of the emitted functions of one row."""


def emit(program: Pointwise, dtype: torch.dtype) -> str:
    """The C++ source of the forward and backward walk."""
    hidden = program.sizes.hidden
    lines = [preamble(dtype), f"const int STATES = {program.sizes.states};"]
    lines.append("#define INLINED __attribute__((always_inline))")
    for name, statements in (("forward", program.forward), ("backward", program.backward)):
        row, printer = schedule_row(program, statements), CppRowPrinter(hidden if program.elementwise else None)
        lines += ["", f"static INLINE void {name}_row(int64_t H, {_ARGUMENTS[name]}) {{"]
        lines += [f"  {_pointer(array, name)}" for array in row.numbered()]
        lines += [f"  R scratch[{row.scratch}];"] if row.scratch else []
        lines += [*printer.indented(row.body), "}"]
    return "\n".join([*lines, "", source_file("timeloop.hpp")])


def _pointer(array: RowArray, direction: str) -> str:
    """Declare ``state1`` and its like, given as an array of pointers; new states are ``fresh`` to C++."""
    read = array.role in ("state", "extra", "grad") or (array.role == "new" and direction == "backward")
    source = "fresh" if array.role == "new" else array.role
    return f"{'const ' if read else ''}R *const {array.name} = {source}[{array.number}];"


class SequenceLoop(Protocol):
    """A compiled step with its loop over time, forward and backward.

    A loop with a true attribute ``takes_models`` also takes tensors with a dimension of models in front, all of them
    or none, and gives such results.
    """

    @property
    def sizes(self) -> Sizes: ...

    dtype: torch.dtype
    """Of gx, the weight and the outputs; the state and the extra tensors are at least single precision."""

    def accepts(self, walk: Walk) -> bool:
        """Whether the loop can do this walk."""
        ...

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Any], Tensor | None]:
        """Final state, history of each entry of the state, what is saved; with ``keep`` all that backward needs."""
        ...

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra tensors."""
        ...


class TimeLoop:
    """The loop of one step function on the CPU, for numbers of one type; raises ``NotLowered`` or ``NoCompiler``."""

    takes_models = True

    def __init__(self, activate: Activate, sizes: Sizes, dtype: torch.dtype) -> None:
        self.sizes, self.dtype, self.program = sizes, dtype, pointwise(activate, sizes)
        self.source = emit(self.program, dtype)
        self.library = native.library(self.source)
        self.multiply = ctypes.cast(products(dtype).multiply, ctypes.c_void_p)
        self.frame = lru_cache(maxsize=8)(self._frame)

    def accepts(self, walk: Walk) -> bool:
        return True

    def forward(
        self, walk: Walk, gx: Tensor, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], keep: bool
    ) -> tuple[list[Tensor], list[Tensor | None], Tensor | None]:
        """Final state, history of each entry of the state, what is saved; the last two in full if ``keep``."""
        (*lead, rows, _), states = gx.shape, len(state)
        final = [entry.clone(memory_format=torch.contiguous_format) for entry in state]
        history = [gx.new_empty(*lead, rows, self.sizes.hidden) if keep or k == 0 else None for k in range(states)]
        saved = gx.new_empty(*lead, rows, self.program.saved) if keep else None
        rights = [packed(w.mT) for w in (weight if lead else (weight,))]
        frame, calls = self.frame(walk), []
        for right, (one, *arrays) in zip(rights, each_model(lead, (gx, saved), final, extras, history)):
            calls.append((address(one[0]), native.pointer(right), *map(addresses, arrays), address(one[1])))

        def run(model: int, part: int, first: int, last: int) -> None:
            self.library.forward(frame.pointer, ctypes.c_int64(first), ctypes.c_int64(last), *calls[model])

        walk_together(run, walk, len(calls), threads(walk, len(calls), weight.numel() // len(calls)))
        return final, history, saved

    def backward(
        self, walk: Walk, weight: Tensor, state: Sequence[Tensor], extras: Sequence[Tensor], history: Sequence[Tensor],
        saved: Tensor, dout: Tensor | None, dfinal: Sequence[Tensor],
    ) -> tuple[Tensor, Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
        """Gradients of gx, of the weight, of the initial state and of the extra vectors."""
        *lead, rows, hidden = history[0].shape
        dstate = [entry.clone(memory_format=torch.contiguous_format) for entry in dfinal]
        dgx = weight.new_empty(*lead, rows, self.sizes.columns)
        dgh = weight.new_empty(*lead, rows, self.program.own)
        parts = threads(walk, prod(lead), weight.numel() // prod(lead))
        dextra = weight.new_zeros(*lead, parts, len(extras), hidden)
        rights = [torch.cat([packed(p) for p in w.split(self.widths)]) for w in (weight if lead else (weight,))]
        sums = [[addresses(part.unbind(0)) for part in own] for own in (dextra if lead else (dextra,))]
        groups, frame, calls = (state, extras, history, (saved, dout), dstate, (dgx, dgh)), self.frame(walk), []
        for right, (*before, inner, above, outer) in zip(rights, each_model(lead, *groups)):
            arrays = *map(addresses, before), *map(address, inner), addresses(above), *map(address, outer)
            calls.append((native.pointer(right), *arrays))

        def run(model: int, part: int, first: int, last: int) -> None:
            edges = ctypes.c_int64(first), ctypes.c_int64(last)
            self.library.backward(frame.pointer, *edges, *calls[model], sums[model][part])

        walk_together(run, walk, len(calls), parts)
        columns = [(dgx if s.array == "dgx" else dgh).narrow(-1, s.start, s.width) for s in self.program.segments]
        dweight = torch.cat([walk.weight_gradient(part, state[0], history[0]) for part in columns], -2)
        return dgx, dweight, dstate, list(dextra.sum(-3).unbind(-2))

    @cached_property
    def widths(self) -> list[int]:
        """Widths of the segments of the gradient of gh."""
        return [segment.width for segment in self.program.segments]

    def _frame(self, walk: Walk) -> Frame:
        program, sizes = self.program, self.sizes
        padded = products(self.dtype).packed_size(ctypes.c_int64(1), ctypes.c_int64(sizes.hidden))
        widths = (sizes.hidden, sizes.columns, program.saved, program.own, padded)
        segments = [number for s in program.segments for number in (s.array == "dgh", s.start, s.width)]
        numbers = (len(walk.batch_sizes), *widths, walk.reverse, len(program.segments))
        return Frame(numbers, (walk.starts, walk.batch_sizes, segments), self.multiply)


# ---------------------------------------------------------------- as a differentiable function

Plain = Callable[..., tuple[Tensor, tuple[Tensor, ...]]]
"""The same loop step by step: (gx, weight, state, extras) -> outputs (rows, H), final state."""


def run(
    loop: SequenceLoop,
    walk: Walk,
    gx: Tensor,
    weight: Tensor,
    state: tuple[Tensor, ...],
    extras: tuple[Tensor, ...],
    plain: Plain,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Walk along time; gx: (rows, columns) -> outputs (rows, H), final state.

    ``plain`` serves second derivatives and batches of gradients. What one level of ``vmap`` maps over is a dimension of
    models, for a loop that takes one; ordinary autograd, outside of ``vmap``, then differentiates the loop.
    """
    tensors = (gx, weight, *state, *extras)
    if any(map(is_mapped, tensors)):
        outputs, *final = _OverModels.apply(loop, walk, plain, *tensors)
        return outputs, tuple(final)
    tensors = tuple(tensor.contiguous() for tensor in tensors)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        outputs, *final = _Differentiable.apply(loop, walk, plain, *tensors)
        return outputs, tuple(final)
    gx, weight, state, extras = _apart(loop, tensors)
    final, history, _ = loop.forward(walk, gx.detach(), weight, state, extras, keep=False)
    return history[0], tuple(final)


def _apart(
    loop: SequenceLoop, tensors: Sequence[Tensor]
) -> tuple[Tensor, Tensor, tuple[Tensor, ...], tuple[Tensor, ...]]:
    states = loop.sizes.states
    return tensors[0], tensors[1], tuple(tensors[2 : 2 + states]), tuple(tensors[2 + states :])


class _Differentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loop: SequenceLoop, walk: Walk, plain: Plain, *tensors: Tensor) -> tuple[Tensor, ...]:
        final, history, saved = loop.forward(walk, *_apart(loop, tensors), keep=True)
        ctx.loop, ctx.walk, ctx.plain, ctx.inputs = loop, walk, plain, len(tensors)
        ctx.save_for_backward(*tensors, *history, saved)
        ctx.set_materialize_grads(False)
        return history[0], *final

    @staticmethod
    def backward(ctx: Any, *above: Tensor | None) -> Any:
        loop, walk = ctx.loop, ctx.walk
        *tensors, saved = ctx.saved_tensors
        history = tensors[ctx.inputs :]
        gx, weight, state, extras = _apart(loop, tensors[: ctx.inputs])
        with torch.autocast(gx.device.type, enabled=False):
            if by_plain_steps(above):
                with torch.enable_grad():
                    outputs, final = ctx.plain(gx, weight, state, extras)
                found = gradients((outputs, *final), above, tensors[: ctx.inputs], ctx.needs_input_grad[3:])
                return None, None, None, *found
            dout = None if above[0] is None else above[0].contiguous()
            dfinal = [torch.zeros_like(s) if g is None else g for s, g in zip(state, above[1:])]
            dgx, dweight, dstate, dextra = loop.backward(walk, weight, state, extras, history, saved, dout, dfinal)
        return None, None, None, dgx, dweight, *dstate, *dextra


class _OverModels(torch.autograd.Function):
    """The loop under ``vmap``: hands what it maps over to :func:`run` as a dimension of models."""

    @staticmethod
    def forward(loop: SequenceLoop, walk: Walk, plain: Plain, *tensors: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError("only called with tensors that vmap maps over")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise NotImplementedError("only called with tensors that vmap maps over")

    @staticmethod
    def vmap(  # type: ignore[override]
        info: Any, in_dims: Sequence[int | None], loop: SequenceLoop, walk: Walk, plain: Plain, *tensors: Tensor
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        stacked = models_in_front(info.batch_size, in_dims[3:], tensors)
        outputs, final = run(loop, walk, *_apart(loop, stacked), torch.func.vmap(plain))
        return (outputs, *final), (0,) * (1 + len(final))


def by_plain_steps(above: Sequence[Tensor | None]) -> bool:
    """Whether gradients are to be differentiated in their turn, or come as a batch, whose numbers have no address."""
    return torch.is_grad_enabled() or any(is_batch_of_gradients(g) for g in above if g is not None)


def gradients(
    results: Sequence[Tensor], above: Sequence[Tensor | None], inputs: Sequence[Tensor], needed: Sequence[bool]
) -> list[Tensor | None]:
    """Gradients of the needed inputs by autograd, which can be differentiated in their turn if that is enabled."""
    pairs = [(value, g) for value, g in zip(results, above) if g is not None and value.requires_grad]
    wanted = [tensor for tensor, need in zip(inputs, needed) if need]
    found = torch.autograd.grad(
        [value for value, _ in pairs],
        wanted,
        [g for _, g in pairs],
        create_graph=torch.is_grad_enabled(),
        retain_graph=True,
        allow_unused=True,
    )
    rest = iter(found)
    return [next(rest) if need else None for need in needed]
