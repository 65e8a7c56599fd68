"""Build the body of a kernel: scopes and variables, and the statements of loop nests."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from numerate.loops.form.ir import BatchSum, Buffer, Map, Operand, Program, Reduce, Scan, sources, statements_of
from numerate.loops.form.operations import REDUCTIONS
from numerate.loops.kernel.form import Assign, For, If, Let, Scope, Statement, Table
from numerate.loops.kernel.values import (
    Call,
    Constant,
    Element,
    Index,
    Target,
    Type,
    Value,
    Variable,
    place_of,
    reduced,
)
from numerate.loops.passes.nests import Nest, Placed

LOOPS = "ijklm"
"""Indices of the loops of a nest, outermost first."""


class Builder:
    """Collects statements, and knows which variables are declared in the scopes that are open."""

    def __init__(self) -> None:
        self.body: list[Statement] = []
        self._declared: list[set[str]] = [set()]

    def add(self, *statements: Statement) -> None:
        self.body += statements

    @contextmanager
    def inside(self, node: For | If | Scope) -> Iterator[None]:
        """Add ``node`` and what is built meanwhile to its body; variables declared there are forgotten after."""
        self.add(node)
        outer, self.body = self.body, node.body
        self._declared.append(set())
        yield
        self._declared.pop()
        self.body = outer

    def known(self, name: str) -> bool:
        """Whether a variable is declared."""
        return any(name in names for names in self._declared)

    def assign(self, target: Target, value: Value, type: Type) -> None:
        """Assign to an element, or to a variable, which is declared if it is not yet."""
        if not isinstance(target, Variable) or self.known(target.name):
            self.add(Assign(target, value))
            return
        self._declared[-1].add(target.name)
        self.add(Let(target.name, type, value))


def variable(buffer: Buffer, place: int) -> Variable:
    """An element of a buffer in a register."""
    return Variable(f"{buffer.name}_{place}")


def partial_result(placed: Placed, index: Sequence[int]) -> Variable:
    """The running sum or product that leads to an element of the output."""
    out = placed.statement.out
    return Variable(f"{out.buffer.name}_run_{place_of(out, placed.running(tuple(index)))}")


def tables(program: Program) -> list[Table]:
    """Numbers that are the same for all members."""
    buffers = dict.fromkeys(b for s in statements_of(program) for b in sources(s) if b.values is not None)
    return [Table(b.name, b.kind, b.values or ()) for b in buffers]


class NestBuilder(Builder, ABC):
    """Statements of the intermediate form inside their loops; where values lie is up to the target."""

    exact: frozenset[Buffer] | set[Buffer] = frozenset()
    """Values that are computed operation by operation, never fused."""

    @abstractmethod
    def element(self, operand: Operand, placed: Placed, index: tuple[int, ...]) -> Value:
        """An operand's element; ``index`` has the place on each unrolled axis, and 0 on loops."""

    @abstractmethod
    def result(self, placed: Placed, index: tuple[int, ...]) -> Target:
        """Where an element of the result goes."""

    @abstractmethod
    def sum_over_batch(self, placed: Placed, index: tuple[int, ...], factors: tuple[Value, ...]) -> None:
        """Add an example's product of factors to an element of a sum over the batch."""

    @contextmanager
    def loop(self, nest: Nest, depth: int) -> Iterator[None]:
        with self.inside(For(LOOPS[depth], nest.loops[depth])):
            yield

    def begin_iteration(self, nest: Nest) -> None:
        """What an iteration of the innermost loop begins with."""

    def end_iteration(self, nest: Nest) -> None:
        """What it ends with."""

    def end_reduction(self, placed: Placed) -> None:
        """What follows a reduction over loops."""

    def nests(self, nests: Sequence[Nest]) -> None:
        for nest in nests:
            self.nest(nest)

    def nest(self, nest: Nest, depth: int = 0) -> None:
        """Loops from ``depth`` on; running sums start before and end after the loops that they run over."""
        running = [placed for placed in nest.statements if placed.accumulates and placed.start == depth]
        for placed in running:
            self.start(placed)
        if depth < len(nest.loops):
            with self.loop(nest, depth):
                self.nest(nest, depth + 1)
        else:
            self.begin_iteration(nest)
            for placed in nest.statements:
                self.statement(placed)
            self.end_iteration(nest)
        for placed in running:
            if isinstance(placed.statement, Reduce):
                for index in placed.unrolled(placed.outer):
                    self.write(placed, index, partial_result(placed, index))
                self.end_reduction(placed)

    def write(self, placed: Placed, index: tuple[int, ...], value: Value) -> None:
        self.assign(self.result(placed, index), value, Type.of(placed.statement.out.buffer))

    def start(self, placed: Placed) -> None:
        """Declare running sums and products."""
        statement = placed.statement
        assert isinstance(statement, Reduce | Scan)
        neutral = Constant(REDUCTIONS[statement.function].neutral)
        for index in placed.starts():
            self.add(Let(partial_result(placed, index).name, Type.of(statement.out.buffer), neutral))

    def statement(self, placed: Placed) -> None:
        statement = placed.statement
        if isinstance(statement, Reduce):
            self.reduce(placed, statement)
        elif isinstance(statement, Scan):
            self.scan(placed, statement)
        else:
            for index in placed.unrolled():
                operands = tuple(self.element(a, placed, index) for a in statement.args)
                if isinstance(statement, BatchSum):
                    self.sum_over_batch(placed, index, operands)
                else:
                    self.write(placed, index, self.call(statement, operands))

    def call(self, statement: Map, operands: tuple[Value, ...]) -> Value:
        return Call(statement.function, operands, statement.out.buffer in self.exact)

    def reduce(self, placed: Placed, statement: Reduce) -> None:
        for index in placed.unrolled(placed.outer):
            inner = [(*index, *rest) for rest in placed.unrolled(first=placed.outer)]
            terms = [[self.element(a, placed, i) for a in statement.args] for i in inner]
            if placed.completes_after_loops:
                running = partial_result(placed, index)
                self.add(Assign(running, reduced(statement.function, terms, running)))
            else:
                self.write(placed, index, reduced(statement.function, terms))

    def scan(self, placed: Placed, statement: Scan) -> None:
        operation, neutral = REDUCTIONS[statement.function].operation, REDUCTIONS[statement.function].neutral
        for index in placed.unrolled():
            value = self.element(statement.arg, placed, index)
            if placed.accumulates:
                running = partial_result(placed, index)
                step = Assign(running, Call(operation, (running, value)))
                if not statement.exclusive:
                    self.add(step)
                self.write(placed, index, running)
                if statement.exclusive:
                    self.add(step)
            elif index[-1] == 0:
                self.write(placed, index, Constant(neutral) if statement.exclusive else value)
            else:
                last = (*index[:-1], index[-1] - 1)
                other = self.element(statement.arg, placed, last) if statement.exclusive else value
                self.write(placed, index, Call(operation, (self.result(placed, last), other)))


def indexed(buffer: Buffer, place: int, strides: Sequence[int]) -> Element:
    """An element of an array where the loops of a nest are."""
    return Element(buffer.name, Index.of(zip(LOOPS, strides), place), table=buffer.values is not None)
