"""The GPU's schedule of statements, for a group of threads that works on one member.

Names: ``t6_1`` is element 1 of buffer t6 in a register; ``t6[1]`` lies in memory, shared by the member's threads or,
for a value of an example, the thread's own; ``t6_e`` is where a loop distributed among the threads is.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

from numerate.loops.cuda.tuning import EXPENSIVE
from numerate.loops.form.ir import (
    BatchSum,
    Buffer,
    Map,
    Operand,
    Program,
    Reduce,
    Scan,
    Statement,
    View,
    contiguous,
    sources,
    statements_of,
)
from numerate.loops.form.operations import REDUCTIONS
from numerate.loops.kernel.builder import LOOPS, NestBuilder, variable
from numerate.loops.kernel.form import (
    Array,
    Assign,
    For,
    If,
    Integer,
    Let,
    Reads,
    SharedMemory,
    ThreadReduce,
    Wrote,
    index_variables,
)
from numerate.loops.kernel.form import Statement as KernelStatement
from numerate.loops.kernel.values import (
    Call,
    Constant,
    Digit,
    Element,
    Index,
    Packed,
    Target,
    Type,
    Value,
    Variable,
    place_of,
    reduced,
)
from numerate.loops.passes.addresses import shared_between
from numerate.loops.passes.cost import instructions
from numerate.loops.passes.distribute import Group, moves, sizes
from numerate.loops.passes.nests import Nest, Placed, loop_strides
from numerate.loops.passes.placement import Placement, views


@dataclass
class GpuSchedule:
    """A program whose statements are distributed among the threads of a member.

    Args:
        program: of one member.
        threads: of one member.
        groups: of each stage, the member's statements.
        nests: of each stage, the statements of an example, without large sums over the batch.
        large_sums: sums over the batch that go through shared memory.
        placement: where values of the member lie.
        exact: values of the data alone, computed operation by operation, so that all loops see the same examples.
    """

    program: Program
    threads: int
    groups: list[list[Group]]
    nests: list[list[Nest]]
    large_sums: list[BatchSum]
    placement: Placement
    exact: set[Buffer]

    def work(self, nests: list[Nest]) -> int:
        """Instructions of one example, roughly."""
        return instructions(nests, EXPENSIVE)


def values_of_data(program: Program, nests: list[list[Nest]]) -> set[Buffer]:
    """Values of an example that depend on random numbers and constants alone."""
    found = {v.buffer for k, v in program.inputs.items() if k in ("uniforms", "noise") or k.startswith("constants.")}
    for statement in (placed.statement for stage in nests for nest in stage for placed in nest.statements):
        if sources(statement) and found.issuperset(sources(statement)):
            found.add(statement.out.buffer)
    return found


class Allocation:
    """Parts of a member's shared memory, each aligned to 16 bytes."""

    def __init__(self) -> None:
        self.arrays: list[tuple[str, int]] = []
        self.floats = 0

    def add(self, name: str, count: int) -> None:
        self.arrays.append((name, self.floats))
        self.floats += -(-count // 4) * 4

    def add_member(self, scheduled: GpuSchedule) -> None:
        """Arrays of the member, and room to put the parts of a reduction together."""
        program, placement = scheduled.program, scheduled.placement
        results = [statement.out.buffer for statement in statements_of(program)]
        for buffer in dict.fromkeys([*(view.buffer for view in program.inputs.values()), *results]):
            if placement.memory.get(buffer) == buffer.name:
                self.add(buffer.name, buffer.size)
        if any(group.kind == "reduced" for stage in scheduled.groups for group in stage):
            self.add("scratch", max(1, scheduled.threads // 32))

    def declared(self) -> list[SharedMemory]:
        return [SharedMemory(self.arrays, self.floats)] if self.floats else []


def over_elements(count: int) -> For:
    """A loop over elements; each thread takes every so many-th."""
    return For("e", count, "thread", "+= THREADS")


class ThreadBuilder(NestBuilder):
    """Builds what the threads of a member do."""

    def __init__(self, scheduled: GpuSchedule) -> None:
        super().__init__()
        self.scheduled, self.program, self.placement = scheduled, scheduled.program, scheduled.placement
        self.exact, self.memory = scheduled.exact, scheduled.placement.memory
        self.rows: dict[Buffer, int] = {}  # values of an example that all threads can see -> distance of two rows
        self.arrays: set[Buffer] = set()  # values of an example with an address
        self.fresh: set[Buffer] = set()  # what the current nest computes
        self.layout: dict[Buffer, Callable[[int, tuple[int, ...]], Value]] = {}  # inputs that lie elsewhere

    # ------------------------------------------------------------ memory

    def load(self, names: Iterable[str], array: str) -> None:
        """Inputs of the member from the row of an array."""
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in names):
            if buffer in self.memory:
                with self.inside(over_elements(buffer.size)):
                    source = Packed(array, "", Index((("e", 1),), start))
                    self.add(Assign(Element(buffer.name, Index((("e", 1),))), source))
            else:
                for k in range(buffer.size):
                    self.assign(variable(buffer, k), Packed(array, "", start + k), Type.of(buffer))
            start += buffer.size

    def count(self, names: Iterable[str]) -> int:
        return sum(self.program.inputs[name].buffer.size for name in names)

    def array(self, buffer: Buffer) -> str:
        return self.memory.get(buffer, buffer.name)

    def publish(self, buffer: Buffer, places: Iterable[int]) -> None:
        """Put what every thread has also where a loop can find it."""
        if buffer in self.memory:
            with self.inside(If("thread == 0")):
                for k in places:
                    self.add(Assign(Element(self.array(buffer), Index(offset=k)), variable(buffer, k)))
            self.add(Wrote(buffer))

    # ------------------------------------------------------------ statements of the member

    def member(self, groups: list[Group]) -> None:
        for group in groups:
            if group.kind == "distributed":
                self.distributed(group)
                continue
            for statement in group.statements:
                if group.kind == "reduced":
                    self.reduced_by_all(statement)
                else:
                    self.replicated(statement)

    def fixed(self, operand: Operand, at: int = 0) -> Value:
        """An element at a place that is known."""
        if not isinstance(operand, View):
            return Constant(operand)
        buffer = operand.buffer
        if buffer.values is not None:
            return Element(buffer.name, Index(offset=at), table=True)
        if buffer in self.memory and buffer not in self.placement.registers:
            return Element(self.array(buffer), Index(offset=at))
        return variable(buffer, at)

    def moving(self, view: View, out: View, inner: tuple[int, ...] = ()) -> Element:
        """The element of ``view`` where a loop over the elements of ``out`` is; ``inner``: strides of loops inside."""
        strides, dense = moves(view, out), contiguous(sizes(out))
        terms = [("e", 1)] if strides == dense else [(f"e{d}", stride) for d, stride in enumerate(strides)]
        terms += [(f"f{d}", stride) for d, stride in enumerate(inner)]
        return Element(self.array(view.buffer), Index.of(terms, view.offset))

    def check(self, buffer: Buffer, name: str) -> None:
        """A chance to look at a result of the member."""

    def replicated(self, statement: Statement) -> None:
        """All elements, by each thread."""
        out, places = statement.out, []
        read = [view for view in views(statement)[1:] if view.buffer not in self.placement.registers]
        self.add(Reads(read, writes=[out.buffer]))
        for index in product(*map(range, out.shape)):
            target = variable(out.buffer, place_of(out, index))
            self.assign(target, self.known_element(statement, index), Type.of(out.buffer))
            places.append(place_of(out, index))
            self.check(out.buffer, target.name)
        self.publish(out.buffer, places)

    def known_element(self, statement: Statement, index: tuple[int, ...]) -> Value:
        """One element of the result of a statement."""
        if isinstance(statement, Map):
            return self.call(statement, tuple(self.fixed(a, place_of(a, index)) for a in statement.args))
        if isinstance(statement, Reduce):
            inner = [(*index, *rest) for rest in product(*map(range, statement.inner))]
            return reduced(statement.function, [[self.fixed(a, place_of(a, i)) for a in statement.args] for i in inner])
        assert isinstance(statement, Scan)
        joins, last = REDUCTIONS[statement.function], (*index[:-1], index[-1] - 1)
        if statement.exclusive and not index[-1]:
            return Constant(joins.neutral)
        value = self.fixed(statement.arg, place_of(statement.arg, last if statement.exclusive else index))
        if not index[-1]:
            return value
        return Call(joins.operation, (self.fixed(statement.out, place_of(statement.out, last)), value))

    def distributed(self, group: Group) -> None:
        """One loop over the elements of all statements; results are stored last, so that old values can be replaced."""
        outs = [statement.out for statement in group.statements]
        inside = {out.buffer: None for out in outs}
        for statement in group.statements:
            read = [v for v in views(statement)[1:] if v.buffer not in inside and v.buffer in self.memory]
            self.add(Reads(read, None if isinstance(statement, Reduce) else statement.out, list(inside)))
        with self.inside(loop := over_elements(math.prod(group.sizes))):
            for statement in group.statements:
                self.distributed_statement(statement, set(inside))
            for out in outs:
                if out.buffer not in self.placement.passing:
                    self.add(Assign(self.moving(out, out), Variable(f"{out.buffer.name}_e")))
                    self.add(Wrote(out.buffer, (group.sizes, moves(out, out), out.offset)))
        used = index_variables(loop.body)
        axes = [
            Integer(f"e{axis}", f"e / {math.prod(group.sizes[axis + 1 :])} % {size}")
            for axis, size in enumerate(group.sizes)
        ]
        loop.body[:0] = reversed([axis for axis in axes if axis.name in used])

    def distributed_statement(self, statement: Statement, inside: set[Buffer]) -> None:
        out, name = statement.out, f"{statement.out.buffer.name}_e"

        def element(operand: Operand, inner: tuple[int, ...] = ()) -> Value:
            if isinstance(operand, View) and operand.buffer in inside:
                return Variable(f"{operand.buffer.name}_e")
            if isinstance(operand, View) and (any(inner) or any(moves(operand, out))):
                return self.moving(operand, out, inner)
            return self.fixed(operand, operand.offset if isinstance(operand, View) else 0)

        if isinstance(statement, Map):
            value = self.call(statement, tuple(element(a) for a in statement.args))
            self.add(Let(name, Type.of(out.buffer), value, constant=True))
        else:
            assert isinstance(statement, Reduce)
            terms = [element(a, a.strides[len(out.shape) :] if isinstance(a, View) else ()) for a in statement.args]
            running = Variable(name)
            self.add(Let(name, Type.of(out.buffer), Constant(REDUCTIONS[statement.function].neutral)))
            body: list[KernelStatement] = [Assign(running, reduced(statement.function, [terms], running))]
            for d, size in reversed(list(enumerate(statement.inner))):
                body = [For(f"f{d}", size, body=body)]
            self.add(*body)
        self.check(out.buffer, name)

    def reduced_by_all(self, statement: Statement) -> None:
        """A reduction to a few elements: every thread takes a part of the terms."""
        assert isinstance(statement, Reduce)
        out, inner, places = statement.out, statement.inner, []
        self.add(Reads(views(statement)[1:], writes=[out.buffer]))
        digits = [Digit("e", math.prod(inner[d + 1 :]), size) for d, size in enumerate(inner)]

        def term(operand: Operand, index: tuple[int, ...]) -> Value:
            strides = operand.strides[len(out.shape) :] if isinstance(operand, View) else ()
            if not isinstance(operand, View) or not any(strides):
                return self.fixed(operand, place_of(operand, index))
            at = Index.of(zip(digits, strides), place_of(operand, index))
            return Element(self.array(operand.buffer), at)

        for index in product(*map(range, out.shape)):
            places.append(place_of(out, index))
            target = variable(out.buffer, places[-1])
            self.assign(target, Constant(REDUCTIONS[statement.function].neutral), Type.of(out.buffer))
            with self.inside(over_elements(math.prod(inner))):
                terms = [term(a, index) for a in statement.args]
                self.add(Assign(target, reduced(statement.function, [terms], target)))
            self.add(ThreadReduce(target.name, statement.function))
            self.check(out.buffer, target.name)
        self.publish(out.buffer, places)

    # ------------------------------------------------------------ statements of an example

    def own_arrays(self, nests: list[Nest]) -> set[Buffer]:
        """Values of an example that need an address: used with the index of a loop, in more than one nest."""
        used, looped = shared_between(nests)
        inputs = {view.buffer for view in self.program.inputs.values()}
        return {b for b in looped if b.batch and (len(used[b]) > 1 or b in inputs)} | set(self.rows)

    def example(self, nests: list[Nest], arrays: set[Buffer]) -> None:
        """All statements of one example; ``arrays`` have an address."""
        self.arrays = arrays
        for buffer in dict.fromkeys(placed.statement.out.buffer for nest in nests for placed in nest.statements):
            if buffer in arrays and buffer not in self.rows:
                self.add(Array(buffer.name, Type.of(buffer), buffer.size))
        for nest in nests:
            self.fresh = {placed.statement.out.buffer for placed in nest.statements}
            self.nest(nest)

    @contextmanager
    def loop(self, nest: Nest, depth: int) -> Iterator[None]:
        innermost = depth == len(nest.loops) - 1
        with self.inside(For(LOOPS[depth], nest.loops[depth], unroll=4 if innermost else 1)):
            yield

    def element(self, operand: Operand, placed: Placed, index: tuple[int, ...]) -> Value:
        if not isinstance(operand, View):
            return Constant(operand)
        buffer, at, strides = operand.buffer, place_of(operand, index), loop_strides(operand, placed)
        register = variable(buffer, at)
        here = buffer in self.fresh and self.known(register.name)
        if buffer.values is None and (here or not self.has_address(buffer, any(strides))):
            return register
        return self.address(buffer, at, strides)

    def has_address(self, buffer: Buffer, looped: bool) -> bool:
        if buffer.batch:
            return buffer in self.arrays
        return buffer in self.memory and (looped or buffer not in self.placement.registers)

    def address(self, buffer: Buffer, at: int, strides: tuple[int, ...] = ()) -> Value:
        if buffer in self.layout:
            return self.layout[buffer](at, strides)
        return Element(self.array(buffer), Index.of(zip(LOOPS, strides), at), table=buffer.values is not None)

    def result(self, placed: Placed, index: tuple[int, ...]) -> Target:
        out = placed.statement.out
        return variable(out.buffer, place_of(out, index))

    def sum_over_batch(self, placed: Placed, index: tuple[int, ...], factors: tuple[Value, ...]) -> None:
        target = self.result(placed, index)
        self.add(Assign(target, reduced("sum", [factors], target)))

    def end_iteration(self, nest: Nest) -> None:
        """Stores come last: nothing is loaded anew because of them."""
        for placed in nest.statements:
            if not placed.accumulates or isinstance(placed.statement, Scan):
                self.store(placed)

    def end_reduction(self, placed: Placed) -> None:
        self.store(placed)

    def store(self, placed: Placed) -> None:
        """Results that are needed with an address."""
        out = placed.statement.out
        if out.buffer.batch and out.buffer in self.arrays:
            for index in placed.unrolled(placed.outer):
                at = place_of(out, index)
                target = self.address(out.buffer, at, loop_strides(out, placed))
                assert isinstance(target, Element)
                self.add(Assign(target, variable(out.buffer, at)))
