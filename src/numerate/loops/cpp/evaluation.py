"""The C++ kernel that evaluates: the mean loss of every member on the same numbers. A lane is an example here.

What the examples are, and all else that no parameter takes part in, is computed once for the members that have the same
constants, and so are values that depend on a number of theirs that lies at its bound. The rest each does by itself.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from numerate.loops.cpp.statements import CpuBuilder, CpuSchedule
from numerate.loops.cpp.tuning import CHUNK, L1_BYTES
from numerate.loops.form.ir import Buffer, Program, Stage, Statement, View, depending, needed, sources
from numerate.loops.kernel.builder import tables, variable
from numerate.loops.kernel.form import (
    Array,
    Assign,
    For,
    Function,
    If,
    Integer,
    Let,
    Parameter,
    Pointer,
    SetInteger,
    SumExamples,
    SumLanes,
    WhichBound,
)
from numerate.loops.kernel.values import MEMBER, Broadcast, Constant, Element, Given, Index, Type, Value, Variable
from numerate.loops.passes.bounded_values import Bounded, find_bounded
from numerate.loops.passes.nests import Nest
from numerate.loops.step import Step

BLOCK = "(b - chunk) / EXAMPLES"
"""Which block of the chunk it is, in C."""
BETWEEN = 2
"""A number that decides a bounded value lies at its lower bound (0), at its upper one (1), or between them, ..."""
PLACES = 3
"""... which is therefore kept so many times."""
PARAMETERS = [
    *(Parameter(name, "int64") for name in ("first", "last", "count")),
    *(Parameter(name, "float", "reads") for name in ("numbers", "fixed")),
    Parameter("alike", "int64", "reads"),
    Parameter("sums", "double", "writes"),
]


@dataclass
class Divided:
    """An evaluation cut into what members share and what each does by itself.

    Args:
        program: its stages are what all members share, one for each element of a bounded value, and the member's own.
        bounded: values that depend on the member by one bounded number.
        kept: shared values of an example that members read.
    """

    program: Program
    bounded: list[Bounded]
    kept: list[Buffer]

    @property
    def chunk(self) -> int:
        """How many examples' kept numbers stay in the nearest cache, or at least in the next."""
        fitting = L1_BYTES // (4 * max(1, sum(buffer.size for buffer in self.kept)))
        fewest, most = CHUNK
        return max(fewest, min(most, 1 << fitting.bit_length() - 1 if fitting else 0))


def divide(step: Step, program: Program) -> Divided:
    """Separate statements without parameters behind them from the others, and find bounded values among these."""
    given, own = _apart(program, {f"parameters.{name}" for name in step.parameters})
    shared = {program.inputs["uniforms"].buffer, *(s.out.buffer for s in given.batch)}
    bounded = find_bounded(own, shared)
    alone = {value.out for value in bounded}
    own.batch = needed([s for s in own.batch if s.out.buffer not in alone], program.outputs)
    elements = [Stage(batch=chain) for value in bounded for chain in value.elements]
    read = {b for stage in (*elements, own) for s in (*stage.member, *stage.batch) for b in sources(s)}
    read |= {value.buffer for value in program.outputs.values() if isinstance(value, View)}
    kept = list(dict.fromkeys(s.out.buffer for s in given.batch if s.out.buffer in read))
    return Divided(Program(program.inputs, [given, *elements, own], program.outputs), bounded, kept)


def evaluation_function(step: Step, divided: Divided, scheduled: CpuSchedule) -> Function:
    """The function ``evaluate``."""
    builder = _Evaluation(step, divided, scheduled)
    builder.build()
    comment = (
        "Sums of the loss on `count` examples made from `numbers`: [block][number][example of the block].\n"
        "Members m, ..., alike[m] - 1 have the same constants."
    )
    return Function("evaluate", PARAMETERS, builder.body, comment=comment)


class _Evaluation(CpuBuilder):
    def __init__(self, step: Step, divided: Divided, scheduled: CpuSchedule) -> None:
        super().__init__(scheduled)
        self.parameters = [f"parameters.{name}" for name in step.parameters]
        self.constants = [f"constants.{name}" for name in step.constants]
        self.uniforms, self.loss = self.program.inputs["uniforms"].buffer, self.program.outputs["loss"]
        self.kept, self.bounded, self.chunk = divided.kept, divided.bounded, divided.chunk
        self.given, *_, self.own = self.program.stages
        self.blocks = f"({self.chunk} / EXAMPLES)"

    def build(self) -> None:
        self.add(*tables(self.program))
        for buffer, copies in [(b, 1) for b in self.kept] + [(bounded.out, PLACES) for bounded in self.bounded]:
            size = f"{copies * buffer.size} * {self.blocks}"
            self.add(Array(f"{buffer.name}_kept", Type.of(buffer), size, "static"))
        self.declare(self.program.inputs[name].buffer for name in (*self.constants, *self.parameters))
        size, start = self.size([*self.parameters, *self.constants]), self.size(self.parameters)
        with self.inside(For("from", "last", "first", "= alike[from]", type="int64")):
            self.add(Integer("to", "alike[from] < last ? alike[from] : last", "int64"))
            self.load(self.constants, lambda at: Broadcast("fixed", f"from * {size} + {start}", at))
            self.declare(s.out.buffer for s in self.given.member)
            self.nests(self.scheduled.nests[0][0])
            with self.inside(For("chunk", "count", advance=f"+= {self.chunk}", type="int64")):
                end = f"chunk + {self.chunk} < count ? chunk + {self.chunk} : count"
                self.add(Integer("end", end, "int64"))
                with self.examples(self.given.batch):
                    self.shared_values()
                self.layout |= {buffer: self.kept_at(buffer) for buffer in self.kept}
                for bounded in self.bounded:
                    self.add(Array(f"{bounded.out.name}_known", Type("flag"), PLACES * bounded.out.size, zero=True))
                with self.inside(For("m", "to", "from", type="int64")):
                    self.load(self.parameters, lambda at: Broadcast("fixed", f"m * {size}", at))
                    self.member()

    def kept_at(self, buffer: Buffer) -> Callable[[Index], Value]:
        """Where the elements of the block are kept."""

        def element(index: Index) -> Value:
            return Element(f"{buffer.name}_kept", Index(((BLOCK, buffer.size), *index.terms), index.offset))

        return element

    def shared_values(self) -> None:
        """What all members share, kept for them: arrays are written where they lie, variables copied there."""
        for buffer in (b for b in self.kept if b in self.arrays):
            self.add(Pointer(buffer.name, f"&{buffer.name}_kept[{BLOCK} * {buffer.size}]", Type.of(buffer)))
        self.declare(b for s in self.given.batch if (b := s.out.buffer) not in self.kept)
        self.nests(self.scheduled.nests[0][1])
        for buffer in (b for b in self.kept if b not in self.arrays):
            for k in (k for k in range(buffer.size) if self.known(variable(buffer, k).name)):
                target = self.kept_at(buffer)(Index(offset=k))
                assert isinstance(target, Element)
                self.add(Assign(target, variable(buffer, k)))

    def member(self) -> None:
        """The loss of one member on the examples of a chunk."""
        self.declare(s.out.buffer for s in self.own.member)
        self.nests(self.scheduled.nests[-1][0])
        elements = [(bounded, place) for bounded in self.bounded for place in range(bounded.out.size)]
        for (bounded, place), (_, nests) in zip(elements, self.scheduled.nests[1:-1], strict=True):
            self.at_bound(bounded, place, nests)
        self.add(Let("sum", MEMBER, Constant(0.0)))
        with self.examples(self.own.batch):
            self.declare([*(b.out for b in self.bounded), *(s.out.buffer for s in self.own.batch)])
            for out, place in ((bounded.out, place) for bounded, place in elements):
                target = self.at(out, place)
                assert isinstance(target, Variable | Element)
                self.assign(target, Element(f"{out.name}_here_{place}", Index(((BLOCK, 1),))), Type.of(out))
            self.nests(self.scheduled.nests[-1][1])
            loss = self.loss
            value = self.at(loss.buffer, loss.offset) if isinstance(loss, View) else Constant(loss)
            self.add(SumExamples("sum", value, "end - b"))
        self.add(SumLanes("sums[m]", "sum"))

    def at_bound(self, bounded: Bounded, place: int, nests: list[Nest]) -> None:
        """Where the element lies for all examples: computed once for each bound, and anew for what lies between."""
        name, number = bounded.out.name, self.at(bounded.number, place)
        at, here = f"{name}_at_{place}", f"{name}_here_{place}"
        self.add(WhichBound(at, number, bounded.bounds, PLACES * place))
        self.add(Pointer(here, f"{name}_kept + {at} * {self.blocks}", Type.of(bounded.out)))
        with self.inside(If(f"!{name}_known[{at}]")):
            with self.examples(bounded.elements[place]):
                self.declare(s.out.buffer for s in bounded.elements[place])
                self.nests(nests)
                self.add(Assign(Element(here, Index(((BLOCK, 1),))), self.at(bounded.out, place)))
            self.add(SetInteger(f"{name}_known[{at}]", f"{at} != {PLACES * place + BETWEEN}"))

    @contextmanager
    def examples(self, statements: list[Statement]) -> Iterator[None]:
        """Over the examples of a chunk, a block of them at a time, with what ``statements`` need."""
        with self.inside(For("b", "end", "chunk", "+= EXAMPLES", type="int64")):
            if self.uniforms in {buffer for s in statements for buffer in sources(s)}:
                self.read(self.uniforms, lambda index: Given(index, self.uniforms.size))
            yield


def _apart(program: Program, parameters: set[str]) -> tuple[Stage, Stage]:
    """The statements that no parameter takes part in, and the others."""
    (stage,) = program.stages
    moved = depending([*stage.member, *stage.batch], {program.inputs[name].buffer for name in parameters})
    given, own = Stage(), Stage()
    for statements, parts in ((stage.member, (given.member, own.member)), (stage.batch, (given.batch, own.batch))):
        for statement in statements:
            parts[statement.out.buffer in moved].append(statement)
    return given, own
