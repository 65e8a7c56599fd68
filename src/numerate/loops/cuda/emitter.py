"""Statements of the intermediate form as lines of CUDA C++, for a group of threads that works on one member.

Names: ``t6_1`` is element 1 of buffer t6 in a register; ``t6[1]`` lies in memory, shared by the member's threads or,
for a value of an example, the thread's own; ``t6_e`` is where a loop shared out among the threads is.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product

from numerate.loops.cuda.text import FOLDS, folded, literal, place_of, sum_text
from numerate.loops.form.ir import (
    Buffer,
    Fold,
    Map,
    Operand,
    Program,
    Scan,
    Statement,
    Total,
    View,
    contiguous,
    sources,
)
from numerate.loops.passes.distribute import Group, latest, moves, share_out, sizes
from numerate.loops.passes.nests import Nest, Placed, arrange_loops, loop_strides
from numerate.loops.passes.placement import find_homes, views
from numerate.loops.passes.rematerialise import compute_again

TOTALS = 64
"""Sums over the batch that a thread keeps in registers."""
LOOPS = "ijklm"
"""Indices of the loops of a nest."""

_FUNCTIONS = {
    "abs": "fabsf", "sqrt": "sqrtf", "exp": "expf", "expm1": "expm1f", "log": "logf", "log1p": "log1pf", "sin": "sinf",
    "cos": "cosf", "tanh": "tanhf", "atan": "atanf", "erf": "erff", "floor": "floorf", "ceil": "ceilf",
    "round": "rintf", "trunc": "truncf", "pow": "powf", "atan2": "atan2f", "fma": "fmaf", "to_float": "float",
}  # fmt: skip
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "logical_and": "&&", "logical_or": "||", "logical_xor": "!=",
}  # fmt: skip
_PREFIX = {"copy": "", "neg": "-", "logical_not": "!"}
_UNFUSED = {"add": "__fadd_rn", "sub": "__fsub_rn", "mul": "__fmul_rn"}


class Emitter:
    """What all kernels have in common."""

    def __init__(self, program: Program, threads: int) -> None:
        self.program, self.threads = program, threads
        self.lines: list[str] = []
        self.depth = 0
        self.declared: list[set[str]] = [set()]  # names of registers, by block
        self.floats = 0  # of shared memory for one member
        self.groups = [share_out(statements) for statements in latest(program.stages)]
        self.tiled = _large_totals(program)  # sums over the batch that go through shared memory
        kept = {buffer for total in self.tiled for buffer in sources(total)}
        self.nests = [
            arrange_loops(compute_again([s for s in stage.batch if s not in self.tiled], kept))
            for stage in program.stages
        ]
        self.homes = find_homes(program, self.groups, self.nests, self.tiled)
        self.exact = _exact(program, [nest for stage in self.nests for nest in stage])
        self.tiles: dict[Buffer, int] = {}  # values of an example that all threads can see -> distance of two rows
        self.arrays: set[Buffer] = set()  # values of an example with an address
        self.fresh: set[Buffer] = set()  # what the current nest computes
        # Written to shared memory since the last wait, by a loop over (sizes, moves, offset), or by any thread; and
        # arrays read since then by threads that do not own the element.
        self.pending: dict[Buffer, tuple[tuple[int, ...], tuple[int, ...], int] | None] = {}
        self.asked: set[str] = set()

    # ------------------------------------------------------------ text

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, opening: str = "") -> Iterator[None]:
        """``opening { ... }``; variables declared inside are forgotten after."""
        self.line(f"{opening} {{" if opening else "{")
        self.depth += 1
        self.declared.append(set())
        yield
        self.declared.pop()
        self.depth -= 1
        self.line("}")

    def known(self, name: str) -> bool:
        return any(name in names for names in self.declared)

    def assign(self, buffer: Buffer, place: int, value: str) -> str:
        """Assign to a register, declared if not seen before; its name."""
        name = f"{buffer.name}_{place}"
        if self.known(name):
            self.line(f"{name} = {value};")
        else:
            self.declared[-1].add(name)
            self.line(f"{buffer.kind} {name} = {value};")
        return name

    def call(self, statement: Map, values: list[str]) -> str:
        function = statement.function
        if function in _UNFUSED and statement.out.buffer in self.exact:
            return f"{_UNFUSED[function]}({', '.join(values)})"
        if function in _INFIX:
            return f"{values[0]} {_INFIX[function]} {values[1]}"
        if function in _PREFIX:
            return _PREFIX[function] + values[0]
        return f"{_FUNCTIONS.get(function, function)}({', '.join(values)})"

    # ------------------------------------------------------------ memory

    def declare_tables(self) -> None:
        """Numbers that are the same for all members."""
        for buffer in dict.fromkeys(b for s in _statements(self.program) for b in sources(s) if b.values is not None):
            values = ", ".join(literal(value) for value in buffer.values or ())
            self.line(f"__constant__ {buffer.kind} {buffer.name}[{buffer.size}] = {{{values}}};")

    def allocate(self, name: str, count: int) -> None:
        """A part of the member's shared memory; aligned to 16 bytes."""
        self.line(f"float *const {name} = own + {self.floats};")
        self.floats += -(-count // 4) * 4

    def allocate_member(self) -> None:
        """Arrays of the member, and room to put the parts of a fold together."""
        results = [statement.out.buffer for statement in _statements(self.program)]
        for buffer in dict.fromkeys([*(view.buffer for view in self.program.inputs.values()), *results]):
            if self.homes.memory.get(buffer) == buffer.name:
                self.allocate(buffer.name, buffer.size)
        if any(group.kind == "joined" for stage in self.groups for group in stage):
            self.allocate("scratch", max(1, self.threads // 32))

    def declare_memory(self, at: int) -> None:
        """Put the declaration of all that was allocated at line ``at``."""
        if self.floats:
            self.lines.insert(at, "  extern __shared__ __align__(16) float memory[];")
            self.lines.insert(at + 1, f"  float *const own = memory + threadIdx.x / THREADS * {self.floats};")

    def load(self, names: Iterable[str], source: str) -> None:
        """Inputs of the member from packed memory."""
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in names):
            if buffer in self.homes.memory:
                self.line(f"{_shared_out(buffer.size)} {buffer.name}[e] = {source}[{start} + e];")
            else:
                for place in range(buffer.size):
                    self.assign(buffer, place, f"{source}[{start + place}]")
            start += buffer.size

    def count(self, names: Iterable[str]) -> int:
        return sum(self.program.inputs[name].buffer.size for name in names)

    # ------------------------------------------------------------ what threads may see of each other

    def wait(self) -> None:
        """Let the threads see what the others have written."""
        self.line("together();")
        self.pending, self.asked = {}, set()

    def before(self, reads: Iterable[View], out: View | None = None, writes: Iterable[Buffer] = ()) -> None:
        """Wait, if another thread wrote what is read now, or may still read what is written now.

        ``out``: the reading loop runs over its elements; None: every thread reads anything.
        """
        asked: set[str] = set()
        waits = any(self.homes.memory.get(buffer) in self.asked or buffer in self.pending for buffer in writes)
        for view in reads:
            place = None if out is None else (sizes(out), moves(view, out), view.offset)
            if view.buffer in self.pending:
                waits |= place is None or place != self.pending[view.buffer]
            if view.buffer in self.homes.memory and place != (*_dense(out), 0):
                asked.add(self.homes.memory[view.buffer])
        if waits:
            self.wait()
        self.asked |= asked

    def publish(self, buffer: Buffer, places: Iterable[int]) -> None:
        """Put what every thread has also where a loop can find it."""
        if buffer in self.homes.memory:
            with self.block("if (thread == 0)"):
                for place in places:
                    self.line(f"{self.homes.memory[buffer]}[{place}] = {buffer.name}_{place};")
            self.pending[buffer] = None

    # ------------------------------------------------------------ statements of the member

    def member(self, groups: list[Group]) -> None:
        for group in groups:
            if group.kind == "spread":
                self.spread(group)
                continue
            for statement in group.statements:
                self.joined(statement) if group.kind == "joined" else self.every(statement)

    def fixed(self, operand: Operand, place: int = 0) -> str:
        """An element at a place that is known."""
        if not isinstance(operand, View):
            return literal(operand)
        buffer = operand.buffer
        if buffer.values is not None:
            return f"{buffer.name}[{place}]"
        if buffer in self.homes.memory and buffer not in self.homes.registers:
            return f"{self.homes.memory[buffer]}[{place}]"
        return f"{buffer.name}_{place}"

    def moving(self, view: View, out: View, more: str = "") -> str:
        """The element of ``view`` where a loop with the index ``e`` over the elements of ``out`` is."""
        strides = moves(view, out)
        terms = [("e", 1)] if strides == _dense(out)[1] else [(f"e{d}", stride) for d, stride in enumerate(strides)]
        return f"{self.homes.memory.get(view.buffer, view.buffer.name)}[{sum_text(terms, view.offset)}{more}]"

    def every(self, statement: Statement) -> None:
        """All elements, by each thread."""
        out, places = statement.out, []
        read = [view for view in views(statement)[1:] if view.buffer not in self.homes.registers]
        self.before(read, writes=[out.buffer])
        for index in product(*map(range, out.shape)):
            place = place_of(out, index)
            if isinstance(statement, Map):
                value = self.call(statement, [self.fixed(a, place_of(a, index)) for a in statement.args])
            elif isinstance(statement, Scan):
                last = (*index[:-1], index[-1] - 1)
                source = last if statement.exclusive else index
                value = self.fixed(statement.arg, place_of(statement.arg, source))
                if index[-1]:
                    before = self.fixed(out, place_of(out, last))
                    value = f"{before} {'+' if statement.function == 'sum' else '*'} {value}"
                elif statement.exclusive:
                    value = literal(FOLDS[statement.function][1])
            else:
                assert isinstance(statement, Fold)
                inner = [(*index, *rest) for rest in product(*map(range, statement.inner))]
                terms = [[self.fixed(a, place_of(a, i)) for a in statement.args] for i in inner]
                value = folded(statement.function, terms)
            places.append(place)
            self.check(out.buffer, self.assign(out.buffer, place, value))
        self.publish(out.buffer, places)

    def spread(self, group: Group) -> None:
        """One loop over the elements of all statements; results are stored last, so that old values can be replaced."""
        outs = [statement.out for statement in group.statements]
        inside = {out.buffer for out in outs}
        for statement in group.statements:
            read = [v for v in views(statement)[1:] if v.buffer not in inside and v.buffer in self.homes.memory]
            self.before(read, None if isinstance(statement, Fold) else statement.out, inside)
        with self.block(_shared_out(math.prod(group.sizes))):
            first = len(self.lines)
            for statement in group.statements:
                self.spread_statement(statement, inside)
            for out in outs:
                if out.buffer not in self.homes.passing:
                    self.line(f"{self.moving(out, out)} = {out.buffer.name}_e;")
                    twice = out.buffer in self.pending
                    self.pending[out.buffer] = None if twice else (group.sizes, moves(out, out), out.offset)
            body = "\n".join(self.lines[first:])
            for axis, size in enumerate(group.sizes):
                if f"e{axis}" in body:
                    text = f"const int e{axis} = e / {math.prod(group.sizes[axis + 1 :])} % {size};"
                    self.lines.insert(first, "  " * self.depth + text)

    def spread_statement(self, statement: Statement, inside: set[Buffer]) -> None:
        out = statement.out

        def element(operand: Operand, more: str = "") -> str:
            if isinstance(operand, View) and operand.buffer in inside:
                return f"{operand.buffer.name}_e"
            if isinstance(operand, View) and (more or any(moves(operand, out))):
                return self.moving(operand, out, more)
            return self.fixed(operand, operand.offset if isinstance(operand, View) else 0)

        name = f"{out.buffer.name}_e"
        if isinstance(statement, Map):
            value = self.call(statement, [element(a) for a in statement.args])
            self.line(f"const {out.buffer.kind} {name} = {value};")
        else:
            assert isinstance(statement, Fold)
            loops = [f"for (int f{d} = 0; f{d} < {size}; f{d}++)" for d, size in enumerate(statement.inner)]
            terms = []
            for a in statement.args:
                strides = a.strides[len(out.shape) :] if isinstance(a, View) else ()
                terms.append(element(a, "".join(f" + f{d} * {s}" for d, s in enumerate(strides) if s)))
            self.line(f"{out.buffer.kind} {name} = {literal(FOLDS[statement.function][1])};")
            self.line(f"{' '.join(loops)} {name} = {folded(statement.function, [terms], name)};")
        self.check(out.buffer, name)

    def joined(self, statement: Statement) -> None:
        """A fold to a few elements: every thread takes a part of the terms."""
        assert isinstance(statement, Fold)
        out, inner, places = statement.out, statement.inner, []
        join, neutral = FOLDS[statement.function]
        self.before(views(statement)[1:], writes=[out.buffer])
        for index in product(*map(range, out.shape)):
            places.append(place_of(out, index))
            name = self.assign(out.buffer, places[-1], literal(neutral))
            with self.block(_shared_out(math.prod(inner))):
                terms = []
                for a in statement.args:
                    strides = a.strides[len(out.shape) :] if isinstance(a, View) else ()
                    parts = [f"e / {math.prod(inner[d + 1 :])} % {size}" for d, size in enumerate(inner)]
                    place = sum_text(zip(parts, strides), place_of(a, index))
                    array = isinstance(a, View) and any(strides)
                    terms.append(
                        f"{self.homes.memory.get(a.buffer, a.buffer.name)}[{place}]"
                        if isinstance(a, View) and array
                        else self.fixed(a, place_of(a, index))
                    )
                self.line(f"{name} = {folded(statement.function, [terms], name)};")
            self.line(f"{name} = over_threads<{join}>({name}, scratch);")
            self.check(out.buffer, name)
        self.publish(out.buffer, places)

    def check(self, buffer: Buffer, name: str) -> None:
        """A place to look at results of the member."""

    # ------------------------------------------------------------ statements of an example

    def own_arrays(self, nests: list[Nest]) -> set[Buffer]:
        """Values of an example that need an address: used with the index of a loop, in more than one nest."""
        seen: dict[Buffer, set[int]] = {}
        looped: set[Buffer] = set()
        for nest in nests:
            for placed in nest.statements:
                for view in views(placed.statement):
                    seen.setdefault(view.buffer, set()).add(id(nest))
                    if any(loop_strides(view, placed)):
                        looped.add(view.buffer)
        inputs = {view.buffer for view in self.program.inputs.values()}
        return {b for b in looped if b.batch and (len(seen[b]) > 1 or b in inputs)} | set(self.tiles)

    def example(self, nests: list[Nest], arrays: set[Buffer]) -> None:
        """All statements of one example; ``arrays`` have an address."""
        self.arrays = arrays
        for buffer in dict.fromkeys(placed.statement.out.buffer for nest in nests for placed in nest.statements):
            if buffer in arrays and buffer not in self.tiles:
                self.line(f"{buffer.kind} {buffer.name}[{buffer.size}];")
        for nest in nests:
            self.fresh = {placed.statement.out.buffer for placed in nest.statements}
            self.nest(nest, 0)

    def nest(self, nest: Nest, depth: int) -> None:
        """Loops from ``depth`` on; running sums start before and end after the loops that they run over."""
        running = [placed for placed in nest.statements if placed.runs and placed.start == depth]
        for placed in running:
            self.start(placed)
        if depth < len(nest.loops):
            with self.loop(nest, depth):
                self.nest(nest, depth + 1)
        else:
            for placed in nest.statements:
                self.statement(placed)
            for placed in nest.statements:  # stores come last: nothing is loaded anew because of them
                if not placed.runs or isinstance(placed.statement, Scan):
                    self.store(placed)
        for placed in running:
            out = placed.statement.out
            if isinstance(placed.statement, Fold):
                for index in placed.written_out(placed.outer):
                    self.assign(out.buffer, place_of(out, index), _running(placed, index))
                self.store(placed)

    @contextmanager
    def loop(self, nest: Nest, depth: int) -> Iterator[None]:
        index, count = LOOPS[depth], nest.loops[depth]
        self.line(f"#pragma unroll {4 if depth == len(nest.loops) - 1 else 1}")
        with self.block(f"for (int {index} = 0; {index} < {count}; {index}++)"):
            yield

    def element(self, operand: Operand, placed: Placed, index: tuple[int, ...]) -> str:
        """An element of an operand; ``index`` has the place on each axis that is written out, and 0 on loops."""
        if not isinstance(operand, View):
            return literal(operand)
        buffer, place = operand.buffer, place_of(operand, index)
        strides = loop_strides(operand, placed)
        name = f"{buffer.name}_{place}"
        here = buffer in self.fresh and self.known(name)
        if buffer.values is None and (here or not self.has_address(buffer, any(strides))):
            return name
        return self.address(buffer, place, strides)

    def has_address(self, buffer: Buffer, looped: bool) -> bool:
        if buffer.batch:
            return buffer in self.arrays
        return buffer in self.homes.memory and (looped or buffer not in self.homes.registers)

    def address(self, buffer: Buffer, place: int, strides: tuple[int, ...]) -> str:
        return f"{self.homes.memory.get(buffer, buffer.name)}[{sum_text(zip(LOOPS, strides), place)}]"

    def statement(self, placed: Placed) -> None:
        statement, out = placed.statement, placed.statement.out
        if isinstance(statement, Map):
            for index in placed.written_out():
                value = self.call(statement, [self.element(a, placed, index) for a in statement.args])
                self.assign(out.buffer, place_of(out, index), value)
        elif isinstance(statement, Total):
            for index in placed.written_out():
                name = f"{out.buffer.name}_{place_of(out, index)}"
                value = folded("sum", [[self.element(a, placed, index) for a in statement.args]], name)
                self.line(f"{name} = {value};")
        elif isinstance(statement, Fold):
            self.fold(placed, statement)
        else:
            self.scan(placed, statement)

    def fold(self, placed: Placed, statement: Fold) -> None:
        out = statement.out
        for index in placed.written_out(placed.outer):
            inner = [(*index, *rest) for rest in placed.written_out(first=placed.outer)]
            terms = [[self.element(a, placed, i) for a in statement.args] for i in inner]
            if placed.late:
                name = _running(placed, index)
                self.line(f"{name} = {folded(statement.function, terms, name)};")
            else:
                self.assign(out.buffer, place_of(out, index), folded(statement.function, terms))

    def scan(self, placed: Placed, statement: Scan) -> None:
        sign, out = "+" if statement.function == "sum" else "*", statement.out
        for index in placed.written_out():
            value, place = self.element(statement.arg, placed, index), place_of(out, index)
            if placed.runs:
                name = _running(placed, index)
                step = f"{name} = {name} {sign} {value};"
                if not statement.exclusive:
                    self.line(step)
                self.assign(out.buffer, place, name)
                if statement.exclusive:
                    self.line(step)
            elif index[-1] == 0:
                self.assign(out.buffer, place, literal(FOLDS[statement.function][1]) if statement.exclusive else value)
            else:
                last = (*index[:-1], index[-1] - 1)
                other = self.element(statement.arg, placed, last) if statement.exclusive else value
                self.assign(out.buffer, place, f"{out.buffer.name}_{place_of(out, last)} {sign} {other}")

    def start(self, placed: Placed) -> None:
        statement = placed.statement
        assert isinstance(statement, Fold | Scan)
        for index in placed.starts():
            neutral = literal(FOLDS[statement.function][1])
            self.line(f"{statement.out.buffer.kind} {_running(placed, index)} = {neutral};")

    def store(self, placed: Placed) -> None:
        """Results that are needed with an address."""
        out = placed.statement.out
        if out.buffer.batch and out.buffer in self.arrays:
            for index in placed.written_out(placed.outer):
                place = place_of(out, index)
                self.line(f"{self.address(out.buffer, place, loop_strides(out, placed))} = {out.buffer.name}_{place};")


# ---------------------------------------------------------------- properties of a program


def _statements(program: Program) -> list[Statement]:
    return [s for stage in program.stages for s in (*stage.member, *stage.batch)]


def _large_totals(program: Program) -> list[Total]:
    """Sums over the batch that do not fit into registers: the longest."""
    found = [s for stage in program.stages for s in stage.batch if isinstance(s, Total)]
    large = [s for s in found if arrange_loops([s])[0].loops]
    small = sorted((s for s in found if s not in large), key=lambda s: math.prod(s.out.shape))
    while sum(math.prod(s.out.shape) for s in small) > TOTALS:
        large.append(small.pop())
    return [s for s in found if s in large]


def _exact(program: Program, nests: list[Nest]) -> set[Buffer]:
    """Values of the data alone: computed operation by operation, so that all loops see the same examples."""
    found = {v.buffer for k, v in program.inputs.items() if k in ("uniforms", "noise") or k.startswith("constants.")}
    for statement in (placed.statement for nest in nests for placed in nest.statements):
        if sources(statement) and found.issuperset(sources(statement)):
            found.add(statement.out.buffer)
    return found


def _running(placed: Placed, index: tuple[int, ...]) -> str:
    """Name of the running sum or product that leads to an element of the output."""
    return f"{placed.statement.out.buffer.name}_run_{place_of(placed.statement.out, placed.running(index))}"


def _shared_out(count: int) -> str:
    """A loop over elements; each thread takes every so many-th."""
    return f"for (int e = thread; e < {count}; e += THREADS)"


def _dense(out: View | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and moves of a loop over an array as it lies in memory."""
    return ((), ()) if out is None else (sizes(out), contiguous(sizes(out)))
