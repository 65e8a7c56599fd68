"""The C++ kernel that trains: for a range of groups of members, all steps of a call."""

from numerate.loops.cpp.statements import CpuBuilder, CpuSchedule
from numerate.loops.cpp.tuning import EXAMPLES_AT_ONCE, UNROLLING, UNROLLING_OF_COPIES
from numerate.loops.form.ir import BatchSum, Buffer, Map, Program, Stage, View, operands, sources
from numerate.loops.kernel.builder import tables, variable
from numerate.loops.kernel.form import Array, Draw, For, Function, NoteDivergence, Parameter, StartStep, Stream
from numerate.loops.kernel.values import MEMBER, Broadcast, Constant, Drawn, Index, Packed, Type
from numerate.loops.passes.nests import TILE, Nest, arrange_loops, loop_strides, places
from numerate.loops.step import MOMENTS, Step
from numerate.streams import Domain

STREAMS = {"uniforms": ("data", Domain.TRAIN), "noise": ("noise", Domain.NOISE)}
"""Random inputs: the name of their stream in the kernel, and its purpose."""
PARAMETERS = [
    *(Parameter(name, "int64") for name in ("first", "last", "start", "steps")),
    Parameter("seeds", "uint32", "reads"),
    *(Parameter(name, "float", "reads") for name in ("fixed", "table", "corrections")),
    Parameter("state", "float", "writes"),
    Parameter("diverged", "int64", "writes"),
]


def streams(program: Program) -> dict[Buffer, str]:
    """Inputs that are random numbers, and the stream that they come from."""
    return {program.inputs[name].buffer: stream for name, (stream, _) in STREAMS.items() if name in program.inputs}


def draws_in_loops(program: Program, nests: list[tuple[list[Nest], list[Nest]]]) -> list[Buffer]:
    """Random inputs that are drawn where they are used, because one loop over tiles uses them all."""
    return [buffer for buffer in streams(program) if all(_in_tiles(buffer, batch) for _, batch in nests)]


def training_function(step: Step, scheduled: CpuSchedule) -> Function:
    """The function ``train``: groups of members first, ..., last - 1; steps start, ..., start + steps - 1."""
    builder = _Training(step, scheduled)
    builder.build()
    comment = "Members of the groups first, ..., last - 1; steps start, ..., start + steps - 1."
    return Function("train", PARAMETERS, builder.body, comment=comment)


class _Training(CpuBuilder):
    def __init__(self, step: Step, scheduled: CpuSchedule) -> None:
        super().__init__(scheduled)
        self.step, self.streams = step, streams(scheduled.program)
        self.moving = [f"{group}.{name}" for group in ("parameters", *MOMENTS) for name in step.parameters]
        self.fixed = [f"constants.{name}" for name in step.constants] + ["rate"] + (["clip"] if step.clip else [])

    def build(self) -> None:
        program, step = self.program, self.step
        self.add(*tables(program))
        self.declare(view.buffer for view in program.inputs.values() if not view.buffer.batch)
        with self.inside(For("group", "last", "first", type="int64")):
            for name in self.streams.values():
                domain = next(domain for stream, domain in STREAMS.values() if stream == name)
                self.add(Stream(name, int(domain)))
            row = f"group * {self.size(self.moving)}"
            self.load(self.fixed, lambda at: Packed("fixed", f"group * {self.size(self.fixed)}", at))
            self.load(self.moving, lambda at: Packed("state", row, at))
            with self.inside(For("t", "steps", type="int64")):
                self.add(*(StartStep(name, "start + t") for name in self.streams.values()))
                if "correction" in program.inputs:
                    correction = program.inputs["correction"].buffer
                    self.fill(correction, lambda at: Broadcast("corrections", f"{correction.size} * t", at))
                if step.rows:
                    row_of_step = f"(group * steps + t) * {step.rows}"
                    self.load(["table"], lambda at: Packed("table", row_of_step, at))
                for (member, batch), stage in zip(self.scheduled.nests, program.stages):
                    self.stage(member, batch, stage)
                self.update()
            self.save(self.moving, "state", row)

    def stage(self, member: list[Nest], batch: list[Nest], stage: Stage) -> None:
        self.declare(s.out.buffer for s in stage.member)
        self.nests(member)
        if not batch:
            return
        sums = dict.fromkeys(s.out.buffer for s in stage.batch if isinstance(s, BatchSum))
        self.declare(sums)
        for buffer in sums:
            self.fill(buffer, lambda _: Constant(0.0))
        with self.inside(For("b", self.step.batch, advance=f"+= {EXAMPLES_AT_ONCE}")):
            used = {v.buffer for s in stage.batch for v in operands(s) if isinstance(v, View)}
            for buffer, stream in self.streams.items():
                if buffer in used and buffer not in self.scheduled.inline_draws:
                    self.draw(buffer, stream)
            self.declare(s.out.buffer for s in stage.batch if s.out.buffer.batch)
            self.nests(batch)

    def begin_iteration(self, nest: Nest) -> None:
        """The tile's random numbers of the examples."""
        for buffer in self.scheduled.inline_draws:
            if any(buffer in sources(placed.statement) for placed in nest.statements):
                stream, blocks = self.streams[buffer], buffer.size // TILE
                drawn = f"{stream}_drawn"
                self.add(Array(drawn, MEMBER, EXAMPLES_AT_ONCE * TILE))
                for example in range(EXAMPLES_AT_ONCE):
                    self.add(Draw(stream, f"(b + {example}) * {blocks} + i", drawn, TILE * example))
                for k in range(TILE):
                    self.assign(variable(buffer, k), Drawn(drawn, Index(offset=k), TILE), Type.of(buffer))

    def draw(self, buffer: Buffer, stream: str) -> None:
        """The random numbers of a block; those of one example lie together in the stream."""
        count, drawn = buffer.size, f"{stream}_drawn"
        self.add(Array(drawn, MEMBER, EXAMPLES_AT_ONCE * count))
        if count <= UNROLLING.axis:
            self.add(*(Draw(stream, f"b / 4 * {count} + {i}", drawn, 4 * i) for i in range(count)))
        else:
            self.add(For("i", count, body=[Draw(stream, f"b / 4 * {count} + i", drawn, "4 * i")]))
        self.read(buffer, lambda index: Drawn(drawn, index, count))

    def left(self) -> str | None:
        return None if self.step.batch % EXAMPLES_AT_ONCE == 0 else f"{self.step.batch} - b"

    def update(self) -> None:
        """Outputs become the next step's inputs."""
        for name in self.moving:
            new, old = self.program.outputs[name], self.program.inputs[name]
            copy = Map(View.whole(old.buffer, old.shape), "copy", (new,))
            self.nests(arrange_loops([copy], UNROLLING_OF_COPIES))
        buffers = [self.program.inputs[name].buffer for name in self.moving[: len(self.step.parameters)]]
        self.add(NoteDivergence([(buffer.name, buffer.size, buffer in self.arrays) for buffer in buffers]))


def _in_tiles(buffer: Buffer, nests: list[Nest]) -> bool:
    """Whether these nests use a buffer in one loop alone, tile by tile, or not at all."""
    uses = [
        (nest, view, placed)
        for nest in nests
        for placed in nest.statements
        for view in operands(placed.statement)
        if isinstance(view, View) and view.buffer is buffer
    ]
    return all(
        nest is uses[0][0]
        and nest.loops == (buffer.size // TILE,)
        and buffer.size % TILE == 0
        and loop_strides(view, placed) == (TILE,)
        and max(places(view, placed)) < TILE
        for nest, view, placed in uses
    )
