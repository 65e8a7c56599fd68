"""The CPU's schedule: a lane is a member, four examples are computed at a time, small values lie in registers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from numerate.loops.cpp.tuning import EXAMPLES_AT_ONCE, STACK_VECTORS, UNROLLING
from numerate.loops.form.ir import Buffer, Operand, Program, View
from numerate.loops.kernel.builder import LOOPS, NestBuilder, variable
from numerate.loops.kernel.form import AddExamples, Array, Assign, For
from numerate.loops.kernel.values import Constant, Element, Index, Packed, Target, Type, Value, place_of
from numerate.loops.passes.addresses import addressed
from numerate.loops.passes.nests import Nest, Placed, arrange_loops, loop_strides


@dataclass
class CpuSchedule:
    """A program with its loops.

    Args:
        program: of one member.
        nests: of each stage, those of the member and those of an example.
        arrays: buffers that lie in memory; all others are variables.
        inline_draws: random inputs that are drawn tile by tile in the only loop that uses them.
    """

    program: Program
    nests: list[tuple[list[Nest], list[Nest]]]
    arrays: set[Buffer]
    inline_draws: list[Buffer]


def nests_of_stages(program: Program) -> list[tuple[list[Nest], list[Nest]]]:
    """Group the statements of every stage into loop nests: small axes are unrolled, large ones become loops."""
    return [(arrange_loops(s.member, UNROLLING), arrange_loops(s.batch, UNROLLING)) for s in program.stages]


def in_memory(program: Program, nests: list[tuple[list[Nest], list[Nest]]]) -> set[Buffer]:
    """Values that lie in memory rather than in registers."""
    return addressed(program, [nest for both in nests for part in both for nest in part])


class CpuBuilder(NestBuilder):
    """Builds the body of a C++ kernel."""

    def __init__(self, scheduled: CpuSchedule) -> None:
        super().__init__()
        self.scheduled, self.program, self.arrays = scheduled, scheduled.program, scheduled.arrays
        self.layout: dict[Buffer, Callable[[Index], Value]] = {}
        """Buffers that lie in memory of another layout, and how an element is read there."""

    # ------------------------------------------------------------ where values lie

    def at(self, buffer: Buffer, place: int, strides: tuple[int, ...] = ()) -> Value:
        index = Index.of(zip(LOOPS, strides), place)
        if buffer in self.layout:
            return self.layout[buffer](index)
        if buffer in self.arrays or buffer.values is not None:
            return Element(buffer.name, index, table=buffer.values is not None)
        return variable(buffer, place)

    def element(self, operand: Operand, placed: Placed, index: tuple[int, ...]) -> Value:
        if not isinstance(operand, View):
            return Constant(operand)
        return self.at(operand.buffer, place_of(operand, index), loop_strides(operand, placed))

    def result(self, placed: Placed, index: tuple[int, ...]) -> Target:
        target = self.element(placed.statement.out, placed, index)
        assert isinstance(target, Target)
        return target

    def left(self) -> str | None:
        """How many examples are left, if the last block is not full."""
        return None

    def sum_over_batch(self, placed: Placed, index: tuple[int, ...], factors: tuple[Value, ...]) -> None:
        self.add(AddExamples(self.result(placed, index), factors, self.left()))

    # ------------------------------------------------------------ declarations, loads and stores

    def declare(self, buffers: Iterable[Buffer]) -> None:
        """Declare the arrays among these."""
        for buffer in dict.fromkeys(buffers):
            if buffer in self.arrays and buffer.values is None:
                large = buffer.size * (EXAMPLES_AT_ONCE if buffer.batch else 1) > STACK_VECTORS
                self.add(Array(buffer.name, Type.of(buffer), buffer.size, "static" if large else "stack"))

    def fill(self, buffer: Buffer, value: Callable[[Index], Value]) -> None:
        """Assign to all elements of a buffer."""
        if buffer in self.arrays:
            with self.inside(For("i", buffer.size)):
                i = Index((("i", 1),))
                self.add(Assign(Element(buffer.name, i), value(i)))
        else:
            for k in range(buffer.size):
                self.assign(variable(buffer, k), value(Index(offset=k)), Type.of(buffer))

    def read(self, buffer: Buffer, value: Callable[[Index], Value]) -> None:
        """Have ``value`` for the elements of an input: small ones become variables, large ones are read in place."""
        if buffer in self.arrays:
            self.layout[buffer] = value
        else:
            self.fill(buffer, value)

    def load(self, names: Iterable[str], source: Callable[[Index], Value]) -> None:
        """Inputs that lie one after the other in memory."""
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in names):
            self.fill(buffer, lambda index, start=start: source(Index(index.terms, index.offset + start)))
            start += buffer.size

    def save(self, names: Iterable[str], array: str, row: str) -> None:
        """Inputs, which the step has renewed, back to memory."""
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in names):
            if buffer in self.arrays:
                with self.inside(For("i", buffer.size)):
                    at = Element(buffer.name, Index((("i", 1),)))
                    self.add(Assign(Packed(array, row, Index((("i", 1),), start)), at))
            else:
                for k in range(buffer.size):
                    self.add(Assign(Packed(array, row, start + k), variable(buffer, k)))
            start += buffer.size

    def size(self, names: Iterable[str]) -> int:
        return sum(self.program.inputs[name].buffer.size for name in names)
