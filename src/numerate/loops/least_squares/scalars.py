"""A program of the intermediate form as single numbers: every element of every tensor a value of its own.

What is known is computed now, factors 0 and 1 and terms 0 vanish, and nothing is computed twice: of a traced Jacobian
only the entries remain that are not constant. A factor 0 counts as 0 whatever the other factor is, NaN included.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from numerate.loops.form.ir import BatchSum, Map, Number, Operand, Program, Reduce, Scan, Statement, View
from numerate.loops.lowering.lowering import computed
from numerate.loops.tracing.trace import NotLowered

MOST = 6000
"""Values that a compiler still takes in its stride."""
_JOINED = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "and": "logical_and", "or": "logical_or"}


@dataclass(frozen=True)
class Scalar:
    """``function`` of others, or the input ``function`` at a place (no arguments)."""

    index: int
    function: str
    args: "tuple[Scalar | Number, ...]"
    place: int = -1

    def __hash__(self) -> int:
        return self.index

    def __eq__(self, other: object) -> bool:
        return self is other


Value = Scalar | Number


class Scalars:
    """The values of a program in an order of computation, and its outputs by name."""

    def __init__(self, program: Program, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.values: list[Scalar] = []
        self.known: dict[Any, Scalar] = {}
        self.memory: dict[tuple[Any, int], Value] = {}
        for name, view in program.inputs.items():
            for place in range(view.buffer.size):
                self.memory[view.buffer, place] = self.value(name, (), place)
        for stage in program.stages:
            for statement in (*stage.member, *stage.batch):
                self.execute(statement)
        self.outputs = {name: self.elements(operand) for name, operand in program.outputs.items()}

    def elements(self, operand: Operand) -> list[Value]:
        return (
            [self.read(operand, index) for index in _indices(operand.shape)] if isinstance(operand, View) else [operand]
        )

    def needed(self) -> list[Scalar]:
        """The values that the outputs depend on, in order."""
        wanted = {v for values in self.outputs.values() for v in values if isinstance(v, Scalar)}
        for value in reversed(self.values):
            if value in wanted:
                wanted.update(a for a in value.args if isinstance(a, Scalar))
        return [value for value in self.values if value in wanted]

    # ------------------------------------------------------------ statements

    def execute(self, statement: Statement) -> None:
        if isinstance(statement, BatchSum):
            raise NotLowered("a residual that depends on other rows")
        for index in _indices(statement.out.shape):
            self.memory[statement.out.buffer, _place(statement.out, index)] = self.element(statement, index)

    def element(self, statement: Map | Reduce | Scan, index: tuple[int, ...]) -> Value:
        if isinstance(statement, Map):
            return self.call(statement.function, *(self.read(a, index) for a in statement.args))
        if isinstance(statement, Reduce):
            inner = [(*index, *rest) for rest in _indices(statement.inner)]
            return self.joined(statement.function, [self.term(statement.args, i) for i in inner])
        ends = range(index[-1] + (not statement.exclusive))
        if not ends:
            return 0.0 if statement.function == "sum" else 1.0
        return self.joined(statement.function, [self.read(statement.arg, (*index[:-1], j)) for j in ends])

    def term(self, args: tuple[Operand, ...], index: tuple[int, ...]) -> Value:
        return self.joined("prod", [self.read(a, index) for a in args])

    def joined(self, function: str, terms: list[Value]) -> Value:
        result = terms[0]
        for term in terms[1:]:
            result = self.call(_JOINED[function], result, term)
        return result

    def read(self, operand: Operand, index: tuple[int, ...]) -> Value:
        if not isinstance(operand, View):
            return operand
        place = _place(operand, index)
        values = operand.buffer.values
        return self.memory.get((operand.buffer, place), 0.0) if values is None else values[place]

    # ------------------------------------------------------------ values

    def call(self, function: str, *args: Value) -> Value:
        simple = _simplified(function, args)
        if simple is not None:
            return simple
        if not any(isinstance(a, Scalar) for a in args):
            return computed(function, args, self.dtype)
        return self.value(function, args)

    def value(self, function: str, args: tuple[Value, ...], place: int = -1) -> Scalar:
        key = (function, place, *((type(a), a) for a in args))
        if key not in self.known:
            if len(self.values) >= MOST:
                raise NotLowered(f"a residual of more than {MOST} operations")
            self.known[key] = Scalar(len(self.values), function, args, place)
            self.values.append(self.known[key])
        return self.known[key]


def _simplified(function: str, args: tuple[Value, ...]) -> Value | None:
    """The result where an argument that is a number decides it."""
    number = [not isinstance(a, Scalar) for a in args]
    if function == "copy":
        return args[0]
    if function == "where" and number[0]:
        return args[1] if args[0] else args[2]
    if function == "mul":
        for mine, other in (args, args[::-1]):
            if not isinstance(mine, Scalar) and mine in (0, 1):
                return other if mine == 1 else 0.0
    if function == "add":
        for mine, other in (args, args[::-1]):
            if not isinstance(mine, Scalar) and mine == 0:
                return other
    if function == "sub" and number[1] and args[1] == 0:
        return args[0]
    if function == "div" and ((number[0] and args[0] == 0) or (number[1] and args[1] == 1)):
        return args[0]
    return None


def _indices(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, shape))


def _place(view: View, index: tuple[int, ...]) -> int:
    return view.offset + sum(i * stride for i, stride in zip(index, view.strides))
