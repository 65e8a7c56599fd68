"""Schedule the statements of :mod:`numerate.loops.timeloops.pointwise` for one row of the batch.

Elementwise statements over the same axes share one loop along the units, in which values stay in registers; values that
another loop reads lie in memory. Reductions and scans are loops of their own.
"""

from dataclasses import dataclass, field

from numerate.loops.form.ir import BatchSum, Buffer, Map, Operand, Reduce, Scan, Statement, View, operands
from numerate.loops.kernel.form import Assign, Let, OverUnits, ReduceUnits, ScanUnits
from numerate.loops.kernel.form import Statement as KernelStatement
from numerate.loops.kernel.values import Call, Constant, RowArray, Type, UnitElement, Value, Variable, product
from numerate.loops.timeloops.pointwise import Pointwise, Storage, domain, strides
from numerate.loops.tracing.trace import NotLowered

Key = tuple[Buffer, int, tuple[int, ...]]
"""What distinguishes views of the same shape: buffer, offset, strides."""


def key(view: View) -> Key:
    return view.buffer, view.offset, strides(view)


@dataclass
class Fused:
    """Elementwise statements over the same axes, or one reduction or scan."""

    axes: tuple[int, ...]
    statements: list[Statement] = field(default_factory=list)

    @property
    def elementwise(self) -> bool:
        return all(isinstance(s, (Map, BatchSum)) for s in self.statements)


@dataclass
class Row:
    """What is done for one row.

    Args:
        body: in the kernel form.
        arrays: those that are read or written.
        scratch: numbers that one loop leaves to another.
    """

    body: list[KernelStatement]
    arrays: set[RowArray]
    scratch: int

    def numbered(self) -> list[RowArray]:
        """The arrays of which there are several of the same role, by name."""
        return sorted((array for array in self.arrays if array.number is not None), key=lambda array: array.name)


def schedule_row(program: Pointwise, statements: list[Statement]) -> Row:
    """The passes of a row: fuse, store what loops leave to each other, and write in the kernel form."""
    loops = fuse(statements)
    storage, scratch = store_between(loops, program.storage)
    body = [row_loop(loop, storage) for loop in loops]
    views = [v for s in statements for v in (s.out, *operands(s)) if isinstance(v, View)]
    return Row(body, {storage[v.buffer].array for v in views if v.buffer in storage}, scratch)


def fuse(statements: list[Statement]) -> list[Fused]:
    """Put every statement into the first loop over its axes that comes after all that it depends on."""
    loops: list[Fused] = []
    writers: dict[Buffer, list[tuple[int, Statement]]] = {}
    for statement in statements:
        axes, fusible, earliest = domain(statement), isinstance(statement, (Map, BatchSum)), 0

        def fits(loop: Fused) -> bool:
            return fusible and loop.elementwise and loop.axes == axes  # noqa: B023  used in this iteration alone

        for view in (a for a in operands(statement) if isinstance(a, View)):
            for place, writer in writers.get(view.buffer, []):
                together = fits(loops[place]) and key(writer.out) == key(view)
                earliest = max(earliest, place if together else place + 1)
        candidates = [n for n in range(earliest, len(loops)) if fits(loops[n])]
        if not candidates:
            candidates = [len(loops)]
            loops.append(Fused(axes))
        loops[candidates[0]].statements.append(statement)
        writers.setdefault(statement.out.buffer, []).append((candidates[0], statement))
    return loops


def store_between(loops: list[Fused], given: dict[Buffer, Storage]) -> tuple[dict[Buffer, Storage], int]:
    """Give buffers that one loop writes and another one reads a place in ``scratch``; how many numbers they take."""
    storage, scratch = dict(given), 0
    writers: dict[Buffer, set[int]] = {}
    for n, loop in enumerate(loops):
        for statement in loop.statements:
            writers.setdefault(statement.out.buffer, set()).add(n)
    for n, loop in enumerate(loops):
        for view in (v for s in loop.statements for v in operands(s) if isinstance(v, View)):
            buffer = view.buffer
            if buffer.values is not None:
                raise NotLowered("a vector of constants")
            if buffer not in storage and (writers[buffer] != {n} or not loop.elementwise):
                storage[buffer] = Storage(RowArray("scratch"), scratch)
                scratch += buffer.size
    return storage, scratch


def row_loop(loop: Fused, storage: dict[Buffer, Storage]) -> KernelStatement:
    """A loop in the kernel form."""
    if loop.elementwise:
        return OverUnits(loop.axes, _at_a_unit(loop, storage))
    (statement,) = loop.statements
    target = _element(statement.out, storage)
    if isinstance(statement, Scan):
        return ScanUnits(loop.axes, statement.function, statement.exclusive, _element(statement.arg, storage), target)
    assert isinstance(statement, Reduce)
    if statement.function in ("and", "or"):
        raise NotLowered(f"{statement.function} along the units")
    inner = tuple(n for n in statement.inner if n != 1)
    factors = tuple(_element(a, storage) if isinstance(a, View) else Constant(a) for a in statement.args)
    return ReduceUnits(loop.axes, inner, statement.function, factors, target)


def _at_a_unit(loop: Fused, storage: dict[Buffer, Storage]) -> list[KernelStatement]:
    """What a fused loop does at a place: every value is loaded or computed once."""
    body: list[KernelStatement] = []
    known: dict[Key, Variable] = {}

    def let(view: View, value: Value) -> Variable:
        known[key(view)] = variable = Variable(f"v{len(known)}")
        body.append(Let(variable.name, Type(view.buffer.kind), value, constant=True))
        return variable

    def read(operand: Operand) -> Value:
        if not isinstance(operand, View):
            return Constant(operand)
        return known[key(operand)] if key(operand) in known else let(operand, _element(operand, storage))

    for statement in loop.statements:
        out = statement.out
        if isinstance(statement, BatchSum):
            value = Call("add", (_element(out, storage), product([read(a) for a in statement.args])))
            body.append(Assign(_element(out, storage, 1), value))
            continue
        assert isinstance(statement, Map)
        variable = let(out, Call(statement.function, tuple(read(a) for a in statement.args)))
        if out.buffer in storage:
            body.append(Assign(_element(out, storage, 1), variable))
    return body


def _element(view: View, storage: dict[Buffer, Storage], otherwise: int = 0) -> UnitElement:
    """A view where the loops are; a single number moves by ``otherwise``."""
    stored, (*outer, stride) = storage[view.buffer], strides(view) or (otherwise,)
    return UnitElement(stored.array, stored.start + view.offset, tuple(outer), stride, view.buffer.kind)
