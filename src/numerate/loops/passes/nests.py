"""Group the statements of a region into loop nests.

Small axes are unrolled, large ones become loops. Statements over the same loops share one nest, so that intermediate
values that nothing else needs stay in registers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from numerate.loops.form.ir import BatchSum, Buffer, Map, Operand, Reduce, Scan, Statement, View, operands, sources
from numerate.loops.form.operations import is_cheap

TILE = 4
"""Random numbers come in fours: a looped axis is cut into tiles of this size, which are unrolled, where it divides."""


@dataclass(frozen=True)
class Unrolling:
    """How much is unrolled rather than looped over.

    Args:
        axis: axes up to this size are unrolled, ...
        statement: ... as long as a statement is not written more often than this, ...
        expensive: ... or one with an expensive operation more often than this.
    """

    axis: int
    statement: int
    expensive: int


@dataclass(frozen=True)
class Placed:
    """A statement each of whose axes (of the output, then of the reduction) is a loop of its nest or unrolled."""

    statement: Statement
    sizes: tuple[int, ...]
    loops: tuple[int | None, ...]
    """For each axis the number of the nest's loop that runs over it, or None."""
    outer: int
    """The first so many axes belong to the output; the others are reduced."""
    scanned: int = 0
    """Of a scan, the last so many axes are the one that runs."""

    @property
    def looped(self) -> tuple[int, ...]:
        """Sizes of the loops."""
        return tuple(size for size, loop in zip(self.sizes, self.loops) if loop is not None)

    @property
    def completes_after_loops(self) -> bool:
        """Whether the result is complete only after the nest's loops."""
        return isinstance(self.statement, BatchSum) or any(loop is not None for loop in self.loops[self.outer :])

    @property
    def accumulates(self) -> bool:
        """Whether a reduction or scan runs over loops, so that its variable outlives an iteration."""
        if isinstance(self.statement, Scan):
            return any(loop is not None for loop in self.loops[self.outer - self.scanned :])
        return isinstance(self.statement, Reduce) and self.completes_after_loops

    @property
    def start(self) -> int:
        """How many of the nest's loops are outside of the running sum or product."""
        return sum(loop is not None for loop in self.loops[: self.outer - self.scanned])

    def running(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Where the running sum or product begins that leads to the element at ``index``."""
        return (*index[: self.outer - self.scanned], *[0] * self.scanned)

    def starts(self) -> Iterator[tuple[int, ...]]:
        """Where running sums and products begin."""
        return (self.running(index) for index in self.unrolled(self.outer - self.scanned))

    def unrolled(self, last: int | None = None, *, first: int = 0) -> Iterator[tuple[int, ...]]:
        """All places on the unrolled axes among first, ..., last - 1; on loops the place is 0."""
        axes = list(zip(self.sizes, self.loops))[first:last]
        return product(*(range(size) if loop is None else (0,) for size, loop in axes))


@dataclass
class Nest:
    """Statements inside common loops, outermost first."""

    loops: tuple[int, ...]
    statements: list[Placed] = field(default_factory=list)


def loop_strides(view: View, placed: Placed) -> tuple[int, ...]:
    """How far a view moves with each loop of the nest."""
    by_loop = {loop: stride for loop, stride in zip(placed.loops, view.strides) if loop is not None}
    return tuple(
        by_loop.get(loop, 0) for loop in range(1 + max((k for k in placed.loops if k is not None), default=-1))
    )


def places(view: View, placed: Placed) -> set[int]:
    """Where in the buffer a view reaches in the first iteration of all loops."""
    spans = [range(s) if loop is None else (0,) for s, loop in zip(view.shape, placed.loops)]
    return {view.offset + sum(i * stride for i, stride in zip(index, view.strides)) for index in product(*spans)}


def arrange_loops(statements: list[Statement], unrolling: Unrolling) -> list[Nest]:
    """Put every statement into the earliest nest with its loops that comes after all that it depends on.

    What a scan leads to may run backwards, if so it can stand in the scan's nest.
    """
    nests: list[Nest] = []
    writers: dict[Buffer, list[tuple[int, Placed]]] = {}
    scanned: set[Buffer] = set()  # results of scans, and what runs backwards because of them

    def before(statement: Statement) -> list[tuple[int, Placed]]:
        buffers = {a.buffer for a in operands(statement) if isinstance(a, View)} | {statement.out.buffer}
        return [found for buffer in buffers for found in writers.get(buffer, [])]

    def earliest(placed: Placed) -> int:
        return max(
            (
                number if nests[number].loops == placed.looped and _follows(placed, writer) else number + 1
                for number, writer in before(placed.statement)
            ),
            default=0,
        )

    for statement in statements:
        latest = max((number for number, _ in before(statement)), default=0)
        placed = _place(statement, unrolling)
        if isinstance(statement, Scan):
            scanned.add(statement.out.buffer)
        elif scanned.intersection(sources(statement)) and earliest(placed) > latest:
            ways = (_place(way, unrolling) for way in _backwards(statement, unrolling.axis))
            turned = next((way for way in ways if earliest(way) <= latest), None)
            if turned:
                placed = turned
                scanned.add(statement.out.buffer)
        candidates = (number for number in range(earliest(placed), len(nests)) if nests[number].loops == placed.looped)
        chosen = next(candidates, None)
        if chosen is None:
            chosen = len(nests)
            nests.append(Nest(placed.looped))
        nests[chosen].statements.append(placed)
        writers.setdefault(statement.out.buffer, []).append((chosen, placed))
    return nests


def _backwards(statement: Statement, longest: int) -> Iterator[Statement]:
    """The same map with one axis that is longer than ``longest`` run from its end."""
    if isinstance(statement, Map):
        for axis, size in enumerate(statement.out.shape):
            if size > longest:
                args = (a.backwards(axis) if isinstance(a, View) else a for a in statement.args)
                yield Map(statement.out.backwards(axis), statement.function, tuple(args))


def _follows(reader: Placed, writer: Placed) -> bool:
    """Whether ``reader`` may stand behind ``writer`` in one nest: it needs what the same iteration has written."""
    out = writer.statement.out
    if not any(loop is not None for loop in writer.loops):
        return True
    if writer.completes_after_loops or reader.statement.out.buffer is out.buffer:
        return False
    written, moves = places(out, writer), loop_strides(out, writer)
    views = [a for a in operands(reader.statement) if isinstance(a, View) and a.buffer is out.buffer]
    return all(loop_strides(view, reader) == moves and places(view, reader) <= written for view in views)


def _place(statement: Statement, unrolling: Unrolling) -> Placed:
    """Decide which axes are loops; axes of size 1 vanish, and large ones are cut into tiles."""
    inner = statement.inner if isinstance(statement, Reduce) else ()
    domain = (*statement.out.shape, *inner)
    pieces: list[list[tuple[int, bool]]] = []  # for each axis its parts from outside: (size, looped)
    expensive = isinstance(statement, Map) and not is_cheap(statement.function)
    copies, limit = 1, unrolling.expensive if expensive else unrolling.statement
    for size in reversed(domain):
        if size <= unrolling.axis and copies * size <= limit:
            parts = [(size, False)] if size > 1 else []
            copies *= size
        elif size % TILE == 0 and copies * TILE <= limit:
            parts = [(size // TILE, True), (TILE, False)]
            copies *= TILE
        else:
            parts = [(size, True)]
        pieces.insert(0, parts)
    outer = sum(len(parts) for parts in pieces[: len(statement.out.shape)])
    scanned = len(pieces[-1]) if isinstance(statement, Scan) else 0
    flat = [part for parts in pieces for part in parts]
    loops: list[int | None] = []
    for _, looped in flat:
        loops.append(sum(loop is not None for loop in loops) if looped else None)
    return Placed(_cut(statement, pieces), tuple(size for size, _ in flat), tuple(loops), outer, scanned)


def _cut(statement: Statement, pieces: list[list[tuple[int, bool]]]) -> Statement:
    """The same statement with its axes cut into parts."""
    outer = pieces[: len(statement.out.shape)]

    def cut(operand: Operand, axes: list[list[tuple[int, bool]]]) -> Operand:
        if not isinstance(operand, View):
            return operand
        shape: list[int] = []
        strides: list[int] = []
        for parts, stride in zip(axes, operand.strides):
            sizes = [size for size, _ in parts]
            shape += sizes
            strides += [stride * TILE, stride] if len(sizes) == 2 else [stride] * len(sizes)
        return View(operand.buffer, tuple(shape), tuple(strides), operand.offset)

    out = cut(statement.out, outer)
    assert isinstance(out, View)
    if isinstance(statement, Map):
        return Map(out, statement.function, tuple(cut(a, outer) for a in statement.args))
    if isinstance(statement, BatchSum):
        return BatchSum(out, tuple(cut(a, outer) for a in statement.args))
    if isinstance(statement, Scan):
        arg = cut(statement.arg, outer)
        assert isinstance(arg, View)
        return Scan(out, statement.function, arg, statement.exclusive)
    inner = tuple(size for parts in pieces[len(statement.out.shape) :] for size, _ in parts)
    return Reduce(out, statement.function, tuple(cut(a, pieces) for a in statement.args), inner)
