"""What happens between the matrix products of a recurrent step: forward and gradient as statements over one row.

``activate(gx, gh, state, extras) -> state`` is traced together with its vector-Jacobian product and lowered to the
intermediate form of :mod:`numerate.loops.form.ir`. The statements are then split: the forward part makes the new state,
the backward part the gradients. Results of the forward part that cost more than a product are saved for the backward
part. Cheap ones are recomputed, and so are functions of the states alone, since memory traffic costs more.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import pairwise
from threading import Thread
from typing import Literal

import torch
from torch import Tensor

from numerate.loops.form.ir import (
    BatchSum,
    Buffer,
    Map,
    Operand,
    Program,
    Statement,
    View,
    needed,
    operands,
    replaced,
    sources,
)
from numerate.loops.form.operations import is_cheap
from numerate.loops.kernel.values import RowArray
from numerate.loops.lowering.lower import lower
from numerate.loops.step import Tensors
from numerate.loops.tracing.trace import TRACING, NotLowered, example, trace

Activate = Callable[[Tensor, Tensor, tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Sizes:
    """Widths that describe a step: every entry of the state and every extra vector has ``hidden`` numbers."""

    hidden: int
    columns: int
    states: int
    extras: int


@dataclass(frozen=True)
class Segment:
    """Columns of the gradient of gh that lie side by side: ``width`` of them from ``start`` on in ``array``."""

    array: Literal["dgx", "dgh"]
    start: int
    width: int


GRADIENTS = ("dgx", "dgh", "dstate", "dextra")
"""Arrays that the backward part makes."""


@dataclass(frozen=True)
class Storage:
    """Where a buffer lies outside of the statements: an array, and a place in it."""

    array: RowArray
    start: int = 0


@dataclass(frozen=True)
class Pointwise:
    """Two lists of statements over one row of the batch.

    Args:
        sizes: widths of the step.
        forward: makes the results ``new`` and what is ``saved``.
        backward: makes the gradients of the inputs from ``saved`` and ``grad``, the gradients of the results.
        storage: where buffers lie outside of the statements. Arrays are the inputs ``gx``, ``gh`` (columns), ``state``
            and ``extra`` (hidden, several of each); ``new``; ``saved``; ``grad``; and the gradients ``dgx``, ``dgh``,
            ``dstate`` and ``dextra``, which are sums over all rows.
        saved: numbers in a row of ``saved``.
        segments: where the blocks of the gradient of gh lie; most equal those of gx and are not written twice.
    """

    sizes: Sizes
    forward: list[Statement]
    backward: list[Statement]
    storage: dict[Buffer, Storage]
    saved: int
    segments: list["Segment"]

    @property
    def own(self) -> int:
        """Numbers in a row of ``dgh``."""
        return sum(segment.width for segment in self.segments if segment.array == "dgh")

    @property
    def elementwise(self) -> bool:
        """Whether each unit is computed by itself, so that the statements hold for any number of units."""
        return all(
            isinstance(s, (Map, BatchSum)) and domain(s) == (self.sizes.hidden,)
            for s in (*self.forward, *self.backward)
        )


def domain(statement: Statement) -> tuple[int, ...]:
    """The axes that a statement runs over, without those of size 1."""
    return tuple(size for size in statement.out.shape if size != 1)


def strides(view: View) -> tuple[int, ...]:
    """The strides of a view along its axes other than those of size 1."""
    return tuple(stride for size, stride in zip(view.shape, view.strides) if size != 1)


def pointwise(activate: Activate, sizes: Sizes) -> Pointwise:
    """Trace ``activate`` and its gradient and split them; raises :class:`NotLowered` if that is not possible."""
    program = _trace_with_gradient(activate, sizes)  # trace and lower, forward and gradient in one program
    statements = [s for stage in program.stages for s in (*stage.member, *stage.batch)]
    if len(program.stages) > 1 and any(stage.member for stage in program.stages[1:]):
        raise NotLowered("something is computed from a sum over the batch")
    outputs = dict(program.outputs)
    columns = [program.inputs[name].buffer for name in ("gx", "gh")]
    statements = _cut_into_blocks(statements, outputs)  # one buffer for each block of columns
    statements = _copy_columns(statements, columns, _dependent(statements, program))
    statements, segments = _deduplicate(statements, outputs)  # write blocks once that dgx and dgh have in common
    storage = {view.buffer: Storage(RowArray.named(name)) for name, view in program.inputs.items()}
    for name, value in outputs.items():
        width = sum(s.width for s in segments if s.array == name) if name == "dgh" else _width(name, sizes)
        statements += _assign_storage(RowArray.named(name), value, width, statements, storage)
    results = [b for b, stored in storage.items() if stored.array.role == "new"]
    backward, saved = _split_forward_backward(statements, columns, storage, _dependent(statements, program))
    forward = needed(statements, {b.name: _whole(b) for b in (*results, *saved)})
    place = 0
    for buffer in saved:
        storage[buffer] = Storage(RowArray("saved"), place)
        place += buffer.size
    return Pointwise(sizes, forward, backward, storage, place, segments)


def _trace_with_gradient(activate: Activate, sizes: Sizes) -> Program:
    """The new state and, from its gradients, those of all inputs, as one program."""

    def group(values: Tensors, name: str) -> tuple[Tensor, ...]:
        return tuple(v for k, v in values.items() if k.startswith(f"{name}."))

    def function(values: Tensors) -> Tensors:
        arguments = (values["gx"], values["gh"], group(values, "state"), group(values, "extra"))
        new, pull, *_ = torch.func.vjp(activate, *arguments)
        dgx, dgh, dstate, dextra = pull(group(values, "grad"))
        groups = {"new": new, "dstate": dstate, "dextra": dextra}
        named = {f"{name}.{k}": v for name, values in groups.items() for k, v in enumerate(values)}
        return named | {"dgx": dgx, "dgh": dgh}

    def inputs(batch: int) -> Tensors:
        values = {name: example((batch, sizes.columns)) for name in ("gx", "gh")}
        for name, count, shape in (
            ("state", sizes.states, (batch, sizes.hidden)),
            ("extra", sizes.extras, (sizes.hidden,)),
            ("grad", sizes.states, (batch, sizes.hidden)),
        ):
            values |= {f"{name}.{k}": example(shape) for k in range(count)}
        return values

    def program() -> Program:
        with TRACING, torch.autograd.set_detect_anomaly(False):  # there are no numbers to look for NaN in
            return lower(trace(function, inputs, 2))

    return _on_own_thread(program)


def _on_own_thread(make: Callable[[], Program]) -> Program:
    """Call ``make`` on a thread of its own, where hooks on saved tensors and other modes have no effect."""
    future: Future[Program] = Future()

    def run() -> None:
        try:
            future.set_result(make())
        except BaseException as error:  # the caller's to handle
            future.set_exception(error)

    thread = Thread(target=run, name="numerate-trace")
    thread.start()
    thread.join()
    return future.result()


# ---------------------------------------------------------------- preparing the statements


def _cut_into_blocks(statements: list[Statement], outputs: dict[str, Operand]) -> list[Statement]:
    """Cut wide elementwise statements, such as gx + gh, into the blocks that others read, each a buffer of its own."""
    result: list[Statement] = []
    moved: dict[Buffer, list[tuple[int, View]]] = {}  # start of each block in the old buffer, and what it became
    read = [a for s in statements for a in operands(s)] + list(outputs.values())
    for statement in statements:
        statement = replaced(statement, lambda view: _moved(view, moved))
        views = [a for a in read if isinstance(a, View) and a.buffer is statement.out.buffer]
        cuts = _cuts(statement, views)
        if cuts is None:
            result.append(statement)
            continue
        assert isinstance(statement, Map)
        for start, end in pairwise(cuts):
            buffer = Buffer(f"{statement.out.buffer.name}_{start}", end - start, statement.out.buffer.kind)
            parts = tuple(_sliced(a, start, end) if isinstance(a, View) else a for a in statement.args)
            result.append(Map(View.whole(buffer, (end - start,)), statement.function, parts))
            moved.setdefault(statement.out.buffer, []).append((start, View.whole(buffer, (end - start,))))
    for name, value in outputs.items():
        if isinstance(value, View):
            outputs[name] = _moved(value, moved)
    return result


def _cuts(statement: Statement, views: list[View]) -> list[int] | None:
    """Where to cut a statement: ends of the parts that are read; None if it stays whole."""
    if not isinstance(statement, Map) or len(domain(statement)) != 1 or strides(statement.out) != (1,):
        return None
    if any(isinstance(a, View) and strides(a) not in ((0,), (1,)) for a in statement.args):
        return None
    (size,) = domain(statement)
    if statement.out.offset or statement.out.buffer.size != size:
        return None  # a part of something put together
    spans = [_span(view) for view in views]
    cuts = sorted({0, size, *(end for span in spans for end in span)})
    inside = all(cuts.index(last) == cuts.index(first) + 1 for first, last in spans)
    return cuts if len(cuts) > 2 and inside else None


def _span(view: View) -> tuple[int, int]:
    """First and last place (exclusive) of the buffer that a view reaches."""
    moves = [(size - 1) * stride for size, stride in zip(view.shape, view.strides)]
    return view.offset + sum(min(move, 0) for move in moves), view.offset + sum(max(move, 0) for move in moves) + 1


def _sliced(view: View, start: int, end: int) -> View:
    (stride,) = strides(view)
    return View(view.buffer, (end - start,), (stride,), view.offset + start * stride)


def _moved(view: View, moved: dict[Buffer, list[tuple[int, View]]]) -> View:
    if view.buffer not in moved:
        return view
    start, block = next((s, b) for s, b in reversed(moved[view.buffer]) if s <= _span(view)[0])
    return View(block.buffer, view.shape, view.strides, view.offset - start)


def _dependent(statements: list[Statement], program: Program) -> set[Buffer]:
    """The buffers whose content depends on the gradients of the results."""
    found = {view.buffer for name, view in program.inputs.items() if name.startswith("grad")}
    for statement in statements:
        if any(buffer in found for buffer in sources(statement)):
            found.add(statement.out.buffer)
    return found


def _copy_columns(statements: list[Statement], columns: list[Buffer], dependent: set[Buffer]) -> list[Statement]:
    """Let gradients that read the columns themselves read a copy, which can be saved."""
    copies: list[Statement] = []

    def copied(view: View) -> View:
        if view.buffer not in columns:
            return view
        first, last = _span(view)
        buffer = Buffer(f"kept{len(copies)}", last - first)
        copies.append(
            Map(View.whole(buffer, (last - first,)), "copy", (View(view.buffer, (last - first,), (1,), first),))
        )
        return View(buffer, view.shape, view.strides, view.offset - first)

    changed = [replaced(s, copied) if s.out.buffer in dependent else s for s in statements]
    return copies + changed


def _assign_storage(
    array: RowArray, value: Operand, width: int, statements: list[Statement], storage: dict[Buffer, Storage]
) -> list[Statement]:
    """Place the buffer of an output in its array; if that is not possible, the statement that copies it there."""
    totals = {s.out.buffer for s in statements if isinstance(s, BatchSum)}
    if array.role == "dextra":
        if not isinstance(value, View) and value == 0:
            return []  # the sums start at 0
        if not isinstance(value, View) or value.buffer not in totals:
            raise NotLowered("the gradient of an extra vector is not a sum over the batch")
    if isinstance(value, View):
        own = value.buffer not in storage and value.buffer.values is None and value.buffer.size == width
        if own and value.offset == 0 and (width == 1 or strides(value) == (1,)):
            storage[value.buffer] = Storage(array)
            return []
        if value.buffer in totals:
            raise NotLowered("a sum over the batch that is used twice")
    buffer = Buffer(array.name, width)
    storage[buffer] = Storage(array)
    operand = View(value.buffer, (width,), strides(value), value.offset) if isinstance(value, View) else value
    return [Map(View.whole(buffer, (width,)), "copy", (operand,))]


def _whole(buffer: Buffer) -> View:
    return View.whole(buffer, (buffer.size,))


def _width(name: str, sizes: Sizes) -> int:
    return sizes.columns if name == "dgx" else sizes.hidden


def _deduplicate(statements: list[Statement], outputs: dict[str, Operand]) -> tuple[list[Statement], list[Segment]]:
    """Drop blocks of ``dgh`` that equal those of ``dgx``; ``dgh`` keeps the blocks that differ, if any."""
    dgx, dgh = outputs["dgx"], outputs["dgh"]
    if not isinstance(dgx, View):
        raise NotLowered("the new state has the same gradient in every column of the input")
    columns = dgx.shape[-1]
    if not isinstance(dgh, View):
        return statements, [Segment("dgh", 0, columns)]
    if _same(dgx, dgh):
        del outputs["dgh"]
        return statements, [Segment("dgx", 0, columns)]
    pieces = {s.out.offset: s.args[0] for s in statements if isinstance(s, Map) and s.out.buffer is dgx.buffer}
    written = sorted((s for s in statements if s.out.buffer is dgh.buffer), key=lambda s: s.out.offset)
    if not all(isinstance(s, Map) and s.function == "copy" for s in written):
        return statements, [Segment("dgh", 0, columns)]
    segments: list[Segment] = []
    own: list[Statement] = []
    end, buffer = 0, Buffer("dgh", dgh.buffer.size)
    for statement in written:
        assert isinstance(statement, Map)
        first, last = _span(statement.out)
        if _same(pieces.get(first, 0.0), statement.args[0]):
            segments.append(Segment("dgx", first, last - first))
            continue
        segments.append(Segment("dgh", end, last - first))
        own.append(Map(View(buffer, (last - first,), (1,), end), "copy", statement.args))
        end += last - first
    buffer.size = end
    outputs["dgh"] = _whole(buffer)
    return [s for s in statements if s not in written] + own, _joined(segments)


def _joined(segments: list[Segment]) -> list[Segment]:
    """Merge neighbouring segments."""
    result: list[Segment] = []
    for segment in segments:
        last = result[-1] if result else None
        if last and last.array == segment.array and last.start + last.width == segment.start:
            result[-1] = Segment(last.array, last.start, last.width + segment.width)
        else:
            result.append(segment)
    return result


def _same(a: Operand, b: Operand) -> bool:
    if not isinstance(a, View) or not isinstance(b, View):
        return False
    return (a.buffer, strides(a), a.offset) == (b.buffer, strides(b), b.offset)


# ---------------------------------------------------------------- forward and backward


def _split_forward_backward(
    statements: list[Statement], columns: list[Buffer], storage: dict[Buffer, Storage], dependent: set[Buffer]
) -> tuple[list[Statement], list[Buffer]]:
    """The statements of the backward part in order, and the buffers to save for it."""
    at_hand = {b for b, stored in storage.items() if stored.array.role in ("new", "state", "extra")}
    costly = {
        s.out.buffer
        for s in statements
        if not isinstance(s, Map)
        or any(b in columns for b in sources(s))
        or (not is_cheap(s.function, moderate=False) and not all(b in at_hand for b in sources(s)))
    }
    wanted = {b for b, stored in storage.items() if stored.array.role in GRADIENTS}
    kept: list[Statement] = []
    saved: dict[Buffer, None] = {}
    for statement in reversed(statements):
        buffer = statement.out.buffer
        if buffer not in wanted or (buffer in storage and storage[buffer].array.role == "new"):
            continue
        if buffer in costly and buffer not in dependent:
            saved[buffer] = None
            continue
        kept.append(statement)
        wanted |= set(sources(statement))
    return kept[::-1], list(saved)[::-1]
