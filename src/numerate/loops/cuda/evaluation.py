"""The CUDA kernel that evaluates: the mean loss of every member on fixed examples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from numerate.loops.cuda.statements import Allocation, GpuSchedule, ThreadBuilder, over_elements
from numerate.loops.cuda.tuning import HEAVY, LIGHT, MEMBERS_SIDE_BY_SIDE, SINGLE_PRECISION_LOSSES
from numerate.loops.form.ir import (
    Buffer,
    Operand,
    Program,
    Stage,
    Statement,
    View,
    depending,
    replaced,
    sources,
    statements_of,
)
from numerate.loops.kernel.builder import LOOPS, variable
from numerate.loops.kernel.form import (
    Accumulate,
    Array,
    Assign,
    Barrier,
    EvaluateTogether,
    For,
    Function,
    If,
    Integer,
    Let,
    MeanLosses,
    Parameter,
    Pointer,
    Reads,
    Records,
    Scope,
    Threads,
    TurnToMember,
)
from numerate.loops.kernel.values import MEMBER, Element, Field, Given, Index, Packed, Type, Value
from numerate.loops.passes.nests import Nest
from numerate.loops.passes.placement import views

DOUBLE = Type("double")
_ARRAYS = [Parameter("losses", "float", "writes"), *(Parameter(n, "float", "reads") for n in ("fixed", "numbers"))]
KERNEL = [*_ARRAYS, Parameter("members", "int"), Parameter("count", "int")]
FUNCTION = [*_ARRAYS, Parameter("member", "int"), Parameter("count", "int")]


# ---------------------------------------------------------------- passes


@dataclass
class Widened:
    """A program in which members and examples of each are first axes: a thread computes all of them side by side.

    Members share what depends only on the examples' numbers and on equal constants that are single numbers, such as a
    range (``shared``).
    """

    plain: Program
    program: Program
    members: int
    examples: int
    shared: set[str]


def widen(program: Program, members: int, examples: int) -> Widened:
    """Add an axis for members to all that depends on them, then one for examples to all that depends on these."""
    shared = {name for name, v in program.inputs.items() if name.startswith("constants.") and v.buffer.size == 1}
    start = {v.buffer for name, v in program.inputs.items() if name not in {"uniforms", *shared}}
    wide = _with_axis(program, members, depending(statements_of(program), start))
    batch = {b for s in wide.stages[0].batch for b in (s.out.buffer, *sources(s)) if b.batch}
    wide = _with_axis(wide, examples, batch | {wide.inputs["uniforms"].buffer})
    return Widened(program, wide, members, examples, shared)


def _with_axis(program: Program, count: int, chosen: set[Buffer]) -> Program:
    """The same program with a first axis more, of ``count``, for all ``chosen`` values and for the outputs."""
    buffers = {buffer: replace(buffer, size=count * buffer.size) for buffer in chosen}

    def view(one: View) -> View:
        stride = one.buffer.size if one.buffer in chosen else 0
        return View(buffers.get(one.buffer, one.buffer), (count, *one.shape), (stride, *one.strides), one.offset)

    def operand(one: Operand) -> Operand:
        return view(one) if isinstance(one, View) else one

    def statement(one: Statement) -> Statement:
        return replaced(one, view, view(one.out)) if one.out.buffer in chosen else one

    stages = [Stage(*(list(map(statement, part)) for part in (stage.member, stage.batch))) for stage in program.stages]
    inputs = {name: view(one) if one.buffer in chosen else one for name, one in program.inputs.items()}
    return Program(inputs, stages, {name: operand(one) for name, one in program.outputs.items()})


def fits(scheduled: GpuSchedule, plain: GpuSchedule) -> bool:
    """Whether the loops stay those of the ``plain`` program, and all but the examples' numbers can be in registers."""
    same = [nest.loops for nest in scheduled.nests[0]] == [nest.loops for nest in plain.nests[0]]
    numbers = scheduled.program.inputs["uniforms"].buffer
    return same and ThreadBuilder(scheduled).own_arrays(scheduled.nests[0]) <= {numbers}


def without_and_with_parameters(scheduled: GpuSchedule) -> tuple[list[Nest], list[Nest]]:
    """The statements of an example without and with parameters behind them."""
    (stage,), (nest,) = scheduled.program.stages, scheduled.nests[0]
    parameters = {v.buffer for name, v in scheduled.program.inputs.items() if name.startswith("parameters.")}
    own = depending([*stage.member, *(placed.statement for placed in nest.statements)], parameters)
    halves: tuple[Nest, Nest] = Nest(()), Nest(())
    for placed in nest.statements:
        halves[placed.statement.out.buffer in own].statements.append(placed)
    return [halves[0]], [halves[1]]


# ---------------------------------------------------------------- kernels


def entry(together: str, alone: str, count: int, program: Program, shared: set[str]) -> Function:
    """The kernel ``evaluate``: calls ``together`` for members whose ``shared`` inputs are equal, else ``alone``."""
    sizes = [(name, view.buffer.size) for name, view in program.inputs.items() if name != "uniforms"]
    names = [name for name, size in sizes for _ in range(size)]
    places = [k for k, name in enumerate(names) if name in shared]
    return Function("evaluate", KERNEL, [EvaluateTogether(together, alone, count, len(names), places)])


def wide_function(name: str, widened: Widened, scheduled: GpuSchedule) -> tuple[Function, int]:
    """The losses of all members of a widened program at once, and the floats of shared memory that they need."""
    builder = _Wide(widened, scheduled)
    builder.build()
    return Function(name, FUNCTION, builder.body, exported=False), builder.allocation.floats


def side_by_side_function(scheduled: GpuSchedule) -> Function:
    """The losses of COUNT members of equal constants: what no parameter takes part in is computed once for them."""
    builder = _SideBySide(scheduled)
    builder.build()
    return Function("some", FUNCTION, builder.body, exported=False, template="COUNT")


class _Evaluation(ThreadBuilder):
    """Some members in a block."""

    def __init__(self, scheduled: GpuSchedule) -> None:
        super().__init__(scheduled)
        self.numbers = self.program.inputs["uniforms"].buffer
        self.given = [name for name in self.program.inputs if name != "uniforms"]
        self.layout[self.numbers] = self.number

    def number(self, at: int, strides: tuple[int, ...]) -> Value:
        """A number of an example."""
        return Given(Index.of(zip(LOOPS, strides), at), self.numbers.size)

    @contextmanager
    def parts(self) -> Iterator[None]:
        """Over parts of a thread's examples, each short enough for single precision."""
        part = f"{SINGLE_PRECISION_LOSSES} * THREADS"
        with self.inside(For("first", "count", "thread", f"+= {part}")):
            self.add(Integer("end", f"count < first + {part} ? count : first + {part}"))
            yield

    @contextmanager
    def examples(self, unroll: int, at_once: int = 1) -> Iterator[None]:
        """Over the examples of a part, ``at_once`` of them together: row, row_1, ..."""
        step = "THREADS" if at_once == 1 else f"{at_once} * THREADS"
        with self.inside(For("row", "end", "first", f"+= {step}", unroll=unroll)):
            for k in range(1, at_once):
                self.add(Integer(f"row_{k}", f"row + {k} * THREADS < end ? row + {k} * THREADS : row"))
            yield

    def draw(self, nests: list[Nest]) -> None:
        """The numbers of an example, if they are few."""
        for k in range(self.numbers.size) if self.numbers not in self.own_arrays(nests) else ():
            self.assign(variable(self.numbers, k), self.address(self.numbers, k), MEMBER)


class _Wide(_Evaluation):
    def __init__(self, widened: Widened, scheduled: GpuSchedule) -> None:
        super().__init__(scheduled)
        self.plain, self.members, self.at_once = widened.plain, widened.members, widened.examples
        self.allocation = Allocation()
        self.allocation.add_member(scheduled)

    def build(self) -> None:
        nests, loss, members = self.scheduled.nests[0], self.program.outputs["loss"], self.members
        self.add(Threads(), Array("parts", DOUBLE, (members, "THREADS / 32"), "shared"))
        self.add(*self.allocation.declared())
        self.take()
        if self.memory:
            self.add(Barrier())
        self.member(self.scheduled.groups[0])
        self.add(Reads([v for s in self.program.stages[0].batch for v in views(s) if v.buffer in self.memory]))
        self.add(Array("sums", DOUBLE, members, zero=True))
        with self.parts():
            self.add(Array("losses_here", MEMBER, members, zero=True))
            work = self.scheduled.work(nests)
            with self.examples(4 if work <= LIGHT else 2 if work <= HEAVY else 1, self.at_once):
                self.draw(nests)
                self.example(nests, self.own_arrays(nests))
                for k in range(self.at_once):
                    with self.inside(If(f"row + {k} * THREADS < end") if k else Scope()):
                        for m in range(members):
                            total = Element("losses_here", Index(offset=m))
                            self.add(Accumulate(total, self.last(loss, k, m)))
            for m in range(members):
                at = Index(offset=m)
                self.add(Accumulate(Element("sums", at), Element("losses_here", at), widened=True))
        self.add(MeanLosses(members))

    def take(self) -> None:
        """The inputs of all members from packed memory."""
        stride, start = sum(self.plain.inputs[name].buffer.size for name in self.given), 0
        self.add(TurnToMember({"fixed": stride}))
        for name in self.given:
            buffer, size = self.program.inputs[name].buffer, self.plain.inputs[name].buffer.size
            for m in range(buffer.size // size if size else 0):
                source = m * stride + start
                if buffer in self.memory:
                    with self.inside(over_elements(size)):
                        target = Element(buffer.name, Index((("e", 1),), m * size))
                        self.add(Assign(target, Packed("fixed", "", Index((("e", 1),), source))))
                else:
                    for k in range(size):
                        self.assign(variable(buffer, m * size + k), Packed("fixed", "", source + k), MEMBER)
            start += size

    def last(self, loss: Operand, k: int, m: int) -> Value:
        """The result of example k of member m."""
        at = loss.offset + k * loss.strides[0] + m * loss.strides[1] if isinstance(loss, View) else 0
        if isinstance(loss, View) and loss.buffer in self.arrays:
            return Element(loss.buffer.name, Index(offset=at))
        return self.fixed(loss, at)

    def number(self, at: int, strides: tuple[int, ...]) -> Value:
        width = self.numbers.size // self.at_once
        k, at = divmod(at, width)
        return Given(Index.of(zip(LOOPS, strides), at), width, f"row_{k}" if k else "row")


class _SideBySide(_Evaluation):
    def build(self) -> None:
        free, own = without_and_with_parameters(self.scheduled)
        kept = _of_member([*free, *own])
        self.add(Threads(), Array("parts", DOUBLE, ("COUNT", "THREADS / 32"), "shared"))
        self.add(Records("all", [(b.kind, variable(b, k).name) for b, k in kept], "COUNT"))
        with self.inside(For("m", "COUNT", unroll=True)):
            self.add(Pointer("given", f"fixed + u64(member + m) * {self.count(self.given)}", MEMBER, reads=True))
            self.load(self.given, "given")
            self.member(self.scheduled.groups[0])
            for buffer, k in kept:
                self.add(Assign(Field("all", "m", variable(buffer, k).name), variable(buffer, k)))
        self.add(Array("sums", DOUBLE, "COUNT", zero=True))
        with self.parts():
            self.add(Array("losses_here", MEMBER, "COUNT", zero=True))
            work = self.scheduled.work(free) + MEMBERS_SIDE_BY_SIDE * self.scheduled.work(own)
            with self.examples(2 if work <= HEAVY else 1):
                self.take(_of_member(free), "0")
                self.draw(free)
                self.example(free, set())
                with self.inside(For("m", "COUNT", unroll=True)):
                    self.take(_of_member(own), "m")
                    self.example(own, set())
                    loss = self.program.outputs["loss"]
                    value = self.fixed(loss, loss.offset if isinstance(loss, View) else 0)
                    self.add(Accumulate(Element("losses_here", Index((("m", 1),))), value))
            at = Index((("m", 1),))
            with self.inside(For("m", "COUNT", unroll=True)):
                self.add(Accumulate(Element("sums", at), Element("losses_here", at), widened=True))
        self.add(MeanLosses("COUNT"))

    def take(self, kept: Sequence[tuple[Buffer, int]], m: str) -> None:
        """The values of a member by their names."""
        for buffer, k in kept:
            name = variable(buffer, k).name
            self.add(Let(name, Type.of(buffer), Field("all", m, name), constant=True))


def _of_member(nests: list[Nest]) -> list[tuple[Buffer, int]]:
    """Values of a member that its examples need."""
    read = [b for nest in nests for placed in nest.statements for b in sources(placed.statement)]
    chosen = dict.fromkeys(b for b in read if not b.batch and b.values is None)
    return [(buffer, k) for buffer in chosen for k in range(buffer.size)]
