"""Statements of the intermediate form as lines of C++.

Emitted text uses the names and functions of ``prelude.hpp``: ``V`` is a number of each member, ``B`` one of each member
for four examples, ``M`` and ``BM`` are truth values. In evaluation a lane is an example, ``B`` four vectors of them.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property

import torch

from numerate.loops.form.ir import Buffer, Fold, Map, Operand, Program, Scan, Total, View, operands
from numerate.loops.passes.nests import Nest, Placed, arrange_loops, loop_strides

EXAMPLES = 4
"""Examples in a block of the prelude."""
COPIES = 20
"""How often a statement is written out: each time it is four vectors, and compilers take long over long functions."""
LARGE = 64
"""Arrays of more vectors than this lie in static memory rather than on the stack of a thread."""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "logical_and": "&", "logical_or": "|", "logical_xor": "^",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_PREFIX = {"copy": "", "neg": "-", "logical_not": "~"}
_NEUTRAL: dict[str, float | bool] = {
    "sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "and": True, "or": False
}  # fmt: skip

_JOINED = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "and": "logical_and", "or": "logical_or"}


class Emitter:
    """Statements of a program as lines of C++."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.depth = 0
        self.declared: list[set[str]] = [set()]
        self.elsewhere: dict[Buffer, str] = {}
        """Buffers that lie in memory of another layout, and how an element (``{index}``) is read there."""
        parts = ((stage.member, stage.batch) for stage in program.stages)
        self.nests = [(arrange_loops(member, COPIES), arrange_loops(batch, COPIES)) for member, batch in parts]

    # ------------------------------------------------------------ text

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """``opening { ... }``; variables declared inside are forgotten after."""
        self.line(opening + " {")
        self.depth += 1
        self.declared.append(set())
        yield
        self.declared.pop()
        self.depth -= 1
        self.line("}")

    def assign(self, target: str, buffer: Buffer, value: str) -> None:
        """Assign to an element, and declare it if it is a variable not seen before."""
        known = "[" in target or any(target in names for names in self.declared)
        if not known:
            self.declared[-1].add(target)
        self.line(f"{target} = {value};" if known else f"{type_of(buffer)} {target} = {value};")

    # ------------------------------------------------------------ storage

    @cached_property
    def arrays(self) -> set[Buffer]:
        """Buffers that need an address: used with the index of a loop, and in more than one nest."""
        home: dict[Buffer, set[int]] = {}
        looped: set[Buffer] = set()
        for nest in (nest for pair in self.nests for nests in pair for nest in nests):
            for placed in nest.statements:
                for view in _views(placed):
                    home.setdefault(view.buffer, set()).add(id(nest))
                    if any(loop_strides(view, placed)):
                        looped.add(view.buffer)
        named = [*self.program.inputs.values(), *(v for v in self.program.outputs.values() if isinstance(v, View))]
        outside = {view.buffer for view in named}
        totals = {s.out.buffer for stage in self.program.stages for s in stage.batch if isinstance(s, Total)}
        return {b for b in looped if b in outside or b in totals or b.values is not None or len(home[b]) > 1}

    def declare_arrays(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            if buffer in self.arrays and buffer.values is None:
                if buffer.size * (EXAMPLES if buffer.batch else 1) > LARGE:
                    self.declare_static(buffer, buffer.name, str(buffer.size))
                else:
                    self.line(f"{type_of(buffer)} {buffer.name}[{buffer.size}];")

    def declare_static(self, buffer: Buffer, name: str, size: str) -> None:
        """An array in a thread's static memory; its address is asked for once, as the question costs a call."""
        self.line(f"static thread_local {type_of(buffer)} {name}_memory[{size}];")
        self.line(f"{type_of(buffer)} *const {name} = settled({name}_memory);")

    def declare_tables(self) -> None:
        """Numbers that are the same for all members."""
        views = [v for s in _statements(self.program) for v in operands(s) if isinstance(v, View)]
        for buffer in dict.fromkeys(view.buffer for view in views if view.buffer.values is not None):
            kind = "bool" if buffer.kind == "bool" else "float"
            values = ", ".join(_number(v) if kind == "float" else str(v).lower() for v in buffer.values or ())
            self.line(f"static const {kind} {buffer.name}[{buffer.size}] = {{{values}}};")

    def element(self, view: View, placed: Placed, index: tuple[int, ...]) -> str:
        """An element of a view; ``index`` has the place on each axis that is written out, and 0 on loops."""
        place = view.offset + sum(i * stride for i, stride in zip(index, view.strides))
        return self.at(view.buffer, place, loop_strides(view, placed))

    def at(self, buffer: Buffer, place: int, moves: tuple[int, ...] = ()) -> str:
        if buffer not in self.arrays and buffer.values is None:
            return self.elsewhere[buffer].format(index=place) if buffer in self.elsewhere else f"{buffer.name}_{place}"
        terms = [f"{'ijklm'[k]} * {move}" if move != 1 else "ijklm"[k] for k, move in enumerate(moves) if move]
        where = " + ".join([*terms, str(place)] if place or not terms else terms).replace("+ -", "- ")
        if buffer in self.elsewhere:
            return self.elsewhere[buffer].format(index=where)
        return f"c({buffer.name}[{where}])" if buffer.values is not None else f"{buffer.name}[{where}]"

    def operand(self, operand: Operand, placed: Placed, index: tuple[int, ...]) -> str:
        return self.element(operand, placed, index) if isinstance(operand, View) else constant(operand)

    # ------------------------------------------------------------ statements

    def region(self, nests: list[Nest]) -> None:
        for nest in nests:
            self.nest(nest, 0)

    def nest(self, nest: Nest, depth: int) -> None:
        """Loops from ``depth`` on; running sums start before and end after the loops that they run over."""
        running = [placed for placed in nest.statements if placed.runs and placed.start == depth]
        for placed in running:
            self.start(placed)
        if depth < len(nest.loops):
            name = "ijklm"[depth]
            with self.block(f"for (int {name} = 0; {name} < {nest.loops[depth]}; {name}++)"):
                self.nest(nest, depth + 1)
        else:
            self.open_iteration(nest)
            for placed in nest.statements:
                self.statement(placed)
        for placed in running:
            self.finish(placed)

    def open_iteration(self, nest: Nest) -> None:
        """What an iteration of the innermost loop begins with."""

    def statement(self, placed: Placed) -> None:
        statement = placed.statement
        if isinstance(statement, Map):
            for index in placed.written_out():
                value = _call(statement.function, [self.operand(a, placed, index) for a in statement.args])
                self.assign(self.element(statement.out, placed, index), statement.out.buffer, value)
        elif isinstance(statement, Total):
            for index in placed.written_out():
                value = self.total([self.operand(a, placed, index) for a in statement.args])
                self.line(f"{self.element(statement.out, placed, index)} += {value};")
        elif isinstance(statement, Fold):
            self.fold(placed, statement)
        else:
            self.scan(placed, statement)

    def fold(self, placed: Placed, statement: Fold) -> None:
        for index in placed.written_out(placed.outer):
            inner = [(*index, *rest) for rest in placed.written_out(first=placed.outer)]
            terms = [[self.operand(a, placed, i) for a in statement.args] for i in inner]
            if placed.late:
                name = self.running(placed, index)
                self.line(f"{name} = {_folded(statement.function, terms, name)};")
            else:
                self.assign(
                    self.element(statement.out, placed, index), statement.out.buffer, _folded(statement.function, terms)
                )

    def scan(self, placed: Placed, statement: Scan) -> None:
        sign = _INFIX["add" if statement.function == "sum" else "mul"]
        for index in placed.written_out():
            value = self.operand(statement.arg, placed, index)
            target = self.element(statement.out, placed, index)
            if placed.runs:
                name = self.running(placed, index)
                step = f"{name} = {name} {sign} {value};"
                if not statement.exclusive:
                    self.line(step)
                self.assign(target, statement.out.buffer, name)
                if statement.exclusive:
                    self.line(step)
            elif index[-1] == 0:
                start = constant(_NEUTRAL[statement.function])
                self.assign(target, statement.out.buffer, start if statement.exclusive else value)
            else:
                last = (*index[:-1], index[-1] - 1)
                other = self.operand(statement.arg, placed, last) if statement.exclusive else value
                text = f"{self.element(statement.out, placed, last)} {sign} {other}"
                self.assign(target, statement.out.buffer, text)

    def running(self, placed: Placed, index: tuple[int, ...]) -> str:
        """Name of the running sum or product that leads to an element of the output."""
        view = placed.statement.out
        place = view.offset + sum(i * stride for i, stride in zip(placed.running(index), view.strides))
        return f"{view.buffer.name}_run_{place}"

    def start(self, placed: Placed) -> None:
        statement = placed.statement
        assert isinstance(statement, (Fold, Scan))
        for index in placed.starts():
            neutral = constant(_NEUTRAL[statement.function])
            self.line(f"{type_of(statement.out.buffer)} {self.running(placed, index)} = {neutral};")

    def finish(self, placed: Placed) -> None:
        if isinstance(placed.statement, Fold):
            for index in placed.written_out(placed.outer):
                out = placed.statement.out
                self.assign(self.element(out, placed, index), out.buffer, self.running(placed, index))

    def total(self, values: list[str]) -> str:
        return f"total({', '.join(f'B({value})' for value in values)})"

    # ------------------------------------------------------------ what both loops need

    def load(self, names: Iterable[str], source: str) -> None:
        """Copy inputs from packed memory, one vector after the other."""
        start = 0
        for view in (self.program.inputs[name] for name in names):
            self.each(view.buffer, f"load({source} + ({{place}}) * LANES)", start)
            start += view.buffer.size

    def each(self, buffer: Buffer, value: str, start: int = 0) -> None:
        """Assign ``value`` to all elements of a buffer."""
        if buffer in self.arrays:
            with self.block(f"for (int i = 0; i < {buffer.size}; i++)"):
                self.line(f"{buffer.name}[i] = {value.format(place=f'{start} + i', index='i')};")
        else:
            for index in range(buffer.size):
                self.assign(f"{buffer.name}_{index}", buffer, value.format(place=start + index, index=index))

    def read(self, buffer: Buffer, value: str) -> None:
        """Have ``value`` for the elements of an input: small ones become variables, large ones are read in place."""
        if buffer in self.arrays:
            self.elsewhere[buffer] = value
        else:
            self.each(buffer, value)

    def size(self, names: Iterable[str]) -> int:
        return sum(self.program.inputs[name].buffer.size for name in names)


def _statements(program: Program) -> list[Map | Fold | Scan | Total]:
    return [s for stage in program.stages for s in (*stage.member, *stage.batch)]


def _views(placed: Placed) -> list[View]:
    return [placed.statement.out, *(a for a in operands(placed.statement) if isinstance(a, View))]


def type_of(buffer: Buffer) -> str:
    return ("B" if buffer.batch else "V") if buffer.kind == "float" else ("BM" if buffer.batch else "M")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NOT_A_NUMBER"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    text = f"{torch.tensor(value, dtype=torch.float32).item():.9g}"  # nine digits give every float32 back
    return f"{text}f" if set(text) & set(".e") else f"{text}.0f"


def constant(value: float | bool) -> str:
    return f"c({str(value).lower() if isinstance(value, bool) else _number(value)})"


def _call(function: str, values: list[str]) -> str:
    if function in _INFIX:
        return f"{values[0]} {_INFIX[function]} {values[1]}"
    if function in _PREFIX:
        return _PREFIX[function] + values[0]
    return f"{function}({', '.join(values)})"


def _folded(function: str, terms: list[list[str]], start: str | None = None) -> str:
    """Terms put together from left to right; products are fused with the sum."""
    result = start
    for term in terms:
        value = " * ".join(term)
        if result is None:
            result = value
        elif function == "sum" and len(term) == 2:
            result = f"fma({term[0]}, {term[1]}, {result})"
        else:
            result = _call(_JOINED[function], [result, value])
    assert result is not None
    return result
