"""The native loop that evaluates: the mean loss of every member on fixed examples."""

from collections.abc import Iterator
from contextlib import contextmanager

from numerate.loops.cpp.emitter import Emitter, constant, type_of
from numerate.loops.form.ir import Buffer, Program, Stage, View, depending, needed, sources
from numerate.loops.passes.cases import Bounded, at_bounds
from numerate.loops.passes.nests import Nest
from numerate.loops.step import Step

NEAR = 24 * 1024
"""Bytes that stay in the nearest cache."""
BLOCK = "(b - chunk) / EXAMPLES"
"""Which block of the chunk it is, in C++."""
LOW, HIGH, BETWEEN = range(3)
"""Where the number lies that decides a bounded value, ..."""
PLACES = 3
"""... which is therefore kept so many times."""


class Evaluation(Emitter):
    """``evaluate``: the mean loss of every member on the same numbers; here one lane of a vector is one example.

    What the examples are, and all else that no parameter takes part in, is computed once for the members that have the
    same constants, and so is what depends on a number of theirs that lies at its bound. The rest each does by itself.
    """

    def __init__(self, step: Step, program: Program) -> None:
        self.parameters = [f"parameters.{name}" for name in step.parameters]
        self.constants = [f"constants.{name}" for name in step.constants]
        self.uniforms, self.loss = program.inputs["uniforms"].buffer, program.outputs["loss"]
        given, own = _apart(program, set(self.parameters))
        self.bounded = at_bounds(own, {self.uniforms, *(s.out.buffer for s in given.batch)})
        alone = {bounded.out for bounded in self.bounded}
        own.batch = needed([s for s in own.batch if s.out.buffer not in alone], program.outputs)
        elements = [Stage(batch=chain) for bounded in self.bounded for chain in bounded.elements]
        super().__init__(Program(program.inputs, [given, *elements, own], program.outputs))
        read = {b for stage in (*elements, own) for s in (*stage.member, *stage.batch) for b in sources(s)}
        read |= {self.loss.buffer} if isinstance(self.loss, View) else set()
        self.kept = list(dict.fromkeys(s.out.buffer for s in given.batch if s.out.buffer in read))
        self.chunk = _examples_at_once(sum(buffer.size for buffer in self.kept))
        self.emit(given, own)

    def emit(self, given: Stage, own: Stage) -> None:
        signature = (
            "int64_t first, int64_t last, int64_t count, const float *numbers, const float *fixed, "
            "const int64_t *alike, double *sums"
        )
        self.line("// Sums of the loss on `count` examples made from `numbers`: [block][number][example of the block].")
        self.line("// Members m, ..., alike[m] - 1 have the same constants.")
        with self.block(f'extern "C" void evaluate({signature})'):
            self.declare_tables()
            for buffer, copies in [(b, 1) for b in self.kept] + [(bounded.out, PLACES) for bounded in self.bounded]:
                self.declare_static(buffer, f"{buffer.name}_kept", f"{copies * buffer.size} * {self.blocks}")
            self.declare_arrays(self.program.inputs[name].buffer for name in (*self.constants, *self.parameters))
            size, start = self.size([*self.parameters, *self.constants]), self.size(self.parameters)
            with self.block("for (int64_t from = first; from < last; from = alike[from])"):
                self.line("const int64_t to = alike[from] < last ? alike[from] : last;")
                self.broadcast(self.constants, f"fixed + from * {size} + {start}")
                self.declare_arrays(dict.fromkeys(s.out.buffer for s in given.member))
                self.region(self.nests[0][0])
                with self.block(f"for (int64_t chunk = 0; chunk < count; chunk += {self.chunk})"):
                    self.line(f"const int64_t end = chunk + {self.chunk} < count ? chunk + {self.chunk} : count;")
                    with self.examples(given):
                        self.given(given)
                    self.elsewhere |= {buffer: self.place(buffer, "{index}") for buffer in self.kept}
                    for bounded in self.bounded:
                        self.line(f"bool {bounded.out.name}_known[{PLACES * bounded.out.size}] = {{}};")
                    with self.block("for (int64_t m = from; m < to; m++)"):
                        self.broadcast(self.parameters, f"fixed + m * {size}")
                        self.member(own)

    def given(self, stage: Stage) -> None:
        """What all members share, kept for them: arrays are written where they lie, variables copied there."""
        for buffer in (b for b in self.kept if b in self.arrays):
            self.line(f"{type_of(buffer)} *const {buffer.name} = &{self.place(buffer, 0)};")
        self.declare_arrays(dict.fromkeys(b for s in stage.batch if (b := s.out.buffer) not in self.kept))
        self.region(self.nests[0][1])
        known = set().union(*self.declared)
        for buffer in (b for b in self.kept if b not in self.arrays):
            for index in (i for i in range(buffer.size) if f"{buffer.name}_{i}" in known):
                self.line(f"{self.place(buffer, index)} = {buffer.name}_{index};")

    def member(self, own: Stage) -> None:
        """The loss of one member on the examples of a chunk."""
        self.declare_arrays(dict.fromkeys(s.out.buffer for s in own.member))
        self.region(self.nests[-1][0])
        elements = [(bounded, place) for bounded in self.bounded for place in range(bounded.out.size)]
        for (bounded, place), (_, nests) in zip(elements, self.nests[1:-1], strict=True):
            self.at_bound(bounded, place, nests)
        self.line("V sum = {};")
        with self.examples(own):
            self.declare_arrays(dict.fromkeys([*(b.out for b in self.bounded), *(s.out.buffer for s in own.batch)]))
            for out, place in ((bounded.out, place) for bounded, place in elements):
                self.assign(self.at(out, place), out, f"{out.name}_here_{place}[{BLOCK}]")
            self.region(self.nests[-1][1])
            loss = self.loss
            value = self.at(loss.buffer, loss.offset) if isinstance(loss, View) else constant(loss)
            self.line(f"sum += total_of_first(B({value}), end - b);")
        self.line("sums[m] += sum_of_lanes(sum);")

    def at_bound(self, bounded: Bounded, place: int, nests: list[Nest]) -> None:
        """Where the element lies for all examples: computed once for each bound, and anew for what lies between."""
        name, number, chain = bounded.out.name, self.at(bounded.number, place), bounded.elements[place]
        low, high = (f"same({number}, {constant(bound)})" for bound in bounded.bounds)
        at, here, known = f"{name}_at_{place}", f"{name}_here_{place}", f"{name}_known[{name}_at_{place}]"
        self.line(f"const int {at} = {PLACES * place} + ({low} ? {LOW} : {high} ? {HIGH} : {BETWEEN});")
        self.line(f"{type_of(bounded.out)} *const {here} = {name}_kept + {at} * {self.blocks};")
        with self.block(f"if (!{known})"):
            with self.examples(Stage(batch=chain)):
                self.declare_arrays(dict.fromkeys(s.out.buffer for s in chain))
                self.region(nests)
                self.line(f"{here}[{BLOCK}] = {self.at(bounded.out, place)};")
            self.line(f"{known} = {at} != {PLACES * place + BETWEEN};")

    @contextmanager
    def examples(self, stage: Stage) -> Iterator[None]:
        """Over the examples of a chunk, a block of them at a time, with what the statements of ``stage`` need."""
        with self.block("for (int64_t b = chunk; b < end; b += EXAMPLES)"):
            if self.uniforms in {buffer for s in stage.batch for buffer in sources(s)}:
                self.read(self.uniforms, f"adjacent(numbers + b * {self.uniforms.size} + ({{index}}) * EXAMPLES)")
            yield

    @property
    def blocks(self) -> str:
        return f"({self.chunk} / EXAMPLES)"

    def broadcast(self, names: list[str], source: str) -> None:
        """A member's numbers, each in all lanes."""
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in names):
            self.each(buffer, f"c(({source})[{{place}}])", start)
            start += buffer.size

    def place(self, buffer: Buffer, index: int | str) -> str:
        """Where the elements of the block are kept."""
        return f"{buffer.name}_kept[{BLOCK} * {buffer.size} + {index}]"


def _apart(program: Program, parameters: set[str]) -> tuple[Stage, Stage]:
    """The statements that no parameter takes part in, and the others."""
    stage = program.stages[0]
    moved = depending([*stage.member, *stage.batch], {program.inputs[name].buffer for name in parameters})
    given, own = Stage(), Stage()
    for kind in ("member", "batch"):
        for statement in getattr(stage, kind):
            getattr(own if statement.out.buffer in moved else given, kind).append(statement)
    return given, own


def _examples_at_once(numbers: int) -> int:
    """How many examples' kept numbers stay in the nearest cache, or at least in the next."""
    fitting = NEAR // (4 * max(1, numbers))
    return max(256, min(2048, 1 << fitting.bit_length() - 1 if fitting else 0))
