"""Print a kernel in a dialect of C. A dialect derives from :class:`Printer` and spells what is different in it.

Nothing is decided here: a node has one spelling in a dialect, wherever it stands.
"""

import math
from collections.abc import Iterable, Sequence

import torch

from numerate.loops.form.operations import OPERATIONS, Number, Operation, spelled
from numerate.loops.kernel.form import (
    Accumulate,
    AddExamples,
    Array,
    Assign,
    Barrier,
    Draw,
    For,
    Function,
    If,
    Integer,
    Kernel,
    Let,
    NoteDivergence,
    Parameter,
    Pointer,
    Reads,
    Scope,
    SetInteger,
    StartStep,
    Statement,
    Stream,
    SumExamples,
    SumLanes,
    Table,
    ThreadReduce,
    WhichBound,
    Whole,
    WillWrite,
    Wrote,
)
from numerate.loops.kernel.values import (
    Broadcast,
    Call,
    Choice,
    Constant,
    Digit,
    Drawn,
    Element,
    Field,
    Given,
    Index,
    MultiplyAdd,
    Packed,
    Type,
    UnitElement,
    Value,
    Variable,
)

_BINDS = {"*": 2, "/": 2, "+": 1, "-": 1}
"""How tightly symbols bind; all others less."""


def float_literal(value: float) -> str:
    """A finite number as C has it in single precision: nine digits give every float32 back."""
    text = f"{torch.tensor(value, dtype=torch.float32).item():.9g}"
    return f"{text}f" if set(text) & set(".e") else f"{text}.0f"


def place(index: Index | int) -> str:
    """A place in an array as text."""
    if isinstance(index, int):
        return str(index)
    texts = []
    for term, stride in index.terms:
        name = f"{term.variable} / {term.step} % {term.size}" if isinstance(term, Digit) else term
        texts.append(name if stride == 1 else f"{name} * {stride}")
    return " + ".join([*texts, str(index.offset)] if index.offset or not texts else texts).replace("+ -", "- ")


class Printer:
    """Plain C; what a dialect spells otherwise it overrides."""

    whole: dict[Whole, str] = {"int": "int", "int64": "int64_t", "uint32": "uint32_t", "uint64": "uint64_t"}
    infinity, not_a_number = "INF", "NOT_A_NUMBER"
    multiply_add = "fma"

    def kernel(self, kernel: Kernel) -> list[str]:
        lines = [self.table(table) for table in kernel.tables]
        for function in kernel.functions:
            lines += self.function(function)
        return lines

    def function(self, function: Function) -> list[str]:
        comment = [f"// {line}" for line in function.comment.splitlines()]
        return [*comment, f"{self.signature(function)} {{", *self.indented(function.body), "}"]

    def signature(self, function: Function) -> str:
        return f"void {function.name}({self.parameters(function)})"

    def parameters(self, function: Function) -> str:
        return ", ".join(map(self.parameter, function.parameters))

    def parameter(self, parameter: Parameter) -> str:
        kind = self.whole.get(parameter.type, parameter.type)  # type: ignore[call-overload]
        constant = "const " if parameter.array == "reads" else ""
        return f"{constant}{kind} {'*' if parameter.array else ''}{parameter.name}"

    def indented(self, body: Iterable[Statement]) -> list[str]:
        return [f"  {line}" for statement in body for line in self.statement(statement)]

    # ------------------------------------------------------------ statements

    def statement(self, node: Statement) -> list[str]:
        match node:
            case Let(name, type, value, constant):
                return [f"{'const ' if constant else ''}{self.type(type)} {name} = {self.value(value)};"]
            case Assign(Packed() as target, value):
                return [self.store(target, self.value(value))]
            case Assign(UnitElement() as target, value):
                return [self.store_unit(target, self.value(value))]
            case Assign(target, value):
                return [f"{self.value(target)} = {self.value(value)};"]
            case Accumulate(target, value, widened):
                added = f"double({self.value(value)})" if widened else self.value(value)
                return [f"{self.value(target)} += {added};"]
            case AddExamples():
                return [self.add_examples(node)]
            case SumExamples() | SumLanes() | WhichBound():
                return [self.over_lanes(node)]
            case SetInteger(target, value):
                return [f"{target} = {value};"]
            case Array():
                return self.array(node)
            case Table():
                return [self.table(node)]
            case Integer(name, value, type):
                return [f"const {self.whole[type]} {name} = {value};"]
            case Pointer(name, value, type, reads):
                return [f"{'const ' if reads else ''}{self.type(type)} *const {name} = {value};"]
            case For():
                return self.loop(node)
            case If(condition, body, otherwise):
                rest = ["} else {", *self.indented(otherwise)] if otherwise else []
                return [f"if ({condition}) {{", *self.indented(body), *rest, "}"]
            case Scope(body):
                return ["{", *self.indented(body), "}"]
            case Stream():
                return [self.stream(node)]
            case StartStep():
                return [self.start_step(node)]
            case Draw():
                return [self.draw(node)]
            case NoteDivergence():
                return self.note_divergence(node)
            case Barrier():
                return [self.barrier()]
            case ThreadReduce():
                return [self.thread_reduce(node)]
            case Reads() | Wrote() | WillWrite():
                return []
            case _:
                return self.of_threads(node)

    def of_threads(self, node: Statement) -> list[str]:
        """What only dialects with several threads per member have, or those for rows of units."""
        raise TypeError(f"{self.__class__.__name__} cannot print {node.__class__.__name__}")

    def loop(self, loop: For) -> list[str]:
        name, advance = loop.variable, loop.advance if loop.advance == "++" else f" {loop.advance}"
        head = f"for ({self.whole[loop.type]} {name} = {loop.start}; {name} < {loop.stop}; {name}{advance}) {{"
        return [*self.pragma(loop), *self.indented_after(head, loop.body)]

    def indented_after(self, head: str, body: Sequence[Statement]) -> list[str]:
        return [head, *self.indented(body), "}"]

    def pragma(self, loop: For) -> list[str]:
        """What tells the compiler to unroll a loop."""
        return []

    def array(self, array: Array) -> list[str]:
        sizes = array.size if isinstance(array.size, tuple) else (array.size,)
        axes = "".join(f"[{size}]" for size in sizes)
        return [f"{self.type(array.type)} {array.name}{axes}{' = {}' if array.zero else ''};"]

    def table(self, table: Table) -> str:
        values = ", ".join(self.number(value) for value in table.values)
        return f"{self.table_qualifier} {self.scalar(table.kind)} {table.name}[{len(table.values)}] = {{{values}}};"

    table_qualifier = "static const"

    def store(self, target: Packed, value: str) -> str:
        return f"{self.value(target)} = {value};"

    def store_unit(self, target: UnitElement, value: str) -> str:
        raise NotImplementedError

    def add_examples(self, node: AddExamples) -> str:
        raise NotImplementedError

    def over_lanes(self, node: SumExamples | SumLanes | WhichBound) -> str:
        raise NotImplementedError

    def stream(self, node: Stream) -> str:
        raise NotImplementedError

    def start_step(self, node: StartStep) -> str:
        return f"{node.stream}.start({node.step});"

    def draw(self, node: Draw) -> str:
        raise NotImplementedError

    def note_divergence(self, node: NoteDivergence) -> list[str]:
        raise NotImplementedError

    def barrier(self) -> str:
        raise NotImplementedError

    def thread_reduce(self, node: ThreadReduce) -> str:
        raise NotImplementedError

    # ------------------------------------------------------------ values

    def type(self, type: Type) -> str:
        return self.scalar(type.kind)

    def scalar(self, kind: str) -> str:
        return "bool" if kind == "flag" else kind

    def value(self, value: Value) -> str:
        match value:
            case Constant(number):
                return self.constant(number)
            case Variable(name):
                return name
            case Element():
                return self.element(value)
            case Packed() | Broadcast() | Drawn() | Given():
                return self.loaded(value)
            case Call(_, operands, exact):
                return self.call(OPERATIONS[value.operation], operands, exact)
            case MultiplyAdd(a, b, addend):
                return f"{self.multiply_add}({', '.join(map(self.value, (a, b, addend)))})"
            case Field(record, index, name):
                return f"{record}[{index}].{name}"
            case UnitElement():
                return self.load_unit(value)
            case Choice(condition, yes, no):
                return f"({condition} ? {self.value(yes)} : {self.value(no)})"

    def loaded(self, value: Packed | Broadcast | Drawn | Given) -> str:
        """A number that the host or a stream has put into memory."""
        raise NotImplementedError

    def load_unit(self, element: UnitElement) -> str:
        raise NotImplementedError

    def element(self, element: Element) -> str:
        return f"{element.array}[{place(element.index)}]"

    def constant(self, number: Number) -> str:
        return self.number(number)

    def number(self, value: Number) -> str:
        """A number, or a Boolean, of one member or example."""
        if isinstance(value, bool):
            return str(value).lower()
        if math.isnan(value):
            return self.not_a_number
        if math.isinf(value):
            return self.infinity if value > 0 else f"-{self.infinity}"
        return float_literal(value)

    def spelling(self, operation: Operation, exact: bool) -> str:
        return operation.cuda

    def call(self, operation: Operation, operands: tuple[Value, ...], exact: bool) -> str:
        symbol = self.spelling(operation, exact)
        if symbol.isidentifier():
            return spelled(symbol, [self.value(operand) for operand in operands])
        return spelled(
            symbol, [self.within(operand, symbol, len(operands), k > 0) for k, operand in enumerate(operands)]
        )

    def within(self, operand: Value, symbol: str, arity: int, right: bool) -> str:
        """An operand of a symbol, in brackets where the symbol would otherwise bind more tightly."""
        text = self.value(operand)
        if not isinstance(operand, Call):
            return text
        inner = self.spelling(OPERATIONS[operand.operation], operand.exact)
        if inner.isidentifier() or len(operand.operands) == 1 or (inner == symbol and arity == 2 and not right):
            return text
        binds = 3 if arity == 1 else _BINDS.get(symbol, 0)
        own = _BINDS.get(inner, 0)
        return f"({text})" if own < binds or (own == binds and (right or not binds)) else text
