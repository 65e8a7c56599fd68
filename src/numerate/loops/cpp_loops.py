"""The two native loops of a step around its statements: training, and evaluation on fixed examples."""

from functools import cached_property

from numerate.loops.cpp_emitter import EXAMPLES, Emitter, constant, type_of
from numerate.loops.ir import Buffer, Map, Program, Stage, Total, View, depending, operands, sources
from numerate.loops.nests import TILE, UNROLLED, Nest, arrange_loops, loop_strides, places
from numerate.loops.step import Step
from numerate.loops.trace import NotLowered
from numerate.streams import Domain

NEAR = 24 * 1024
"""Bytes that stay in the nearest cache."""


def emit(step: Step, training: Program, evaluating: Program) -> str:
    """The C++ source of both loops."""
    if any(isinstance(s, Total) for stage in evaluating.stages for s in stage.batch):
        raise NotLowered("evaluation with statistics of the batch")
    loops = _Training(step, training), _Evaluation(step, evaluating)
    return "\n".join(['#include "prelude.hpp"', *(line for loop in loops for line in ("", *loop.lines))])


class _Training(Emitter):
    """``train``: for a range of groups of members, all steps of a call."""

    def __init__(self, step: Step, program: Program) -> None:
        super().__init__(program)
        self.step = step
        moving = [f"{group}.{name}" for group in ("parameters", "first", "second") for name in step.parameters]
        fixed = [f"constants.{name}" for name in step.constants] + ["rate"] + (["clip"] if step.clip else [])
        weights = ["weights"] if step.penalties else []
        self.line('extern "C" int lanes() { return LANES; }')
        self.line("")
        self.line("// Members of the groups first, ..., last - 1; steps start, ..., start + steps - 1.")
        signature = (
            "int64_t first, int64_t last, int64_t start, int64_t steps, const uint32_t *seeds, const float *fixed, "
            "const float *weights, const float *corrections, float *state, int64_t *diverged"
        )
        with self.block(f'extern "C" void train({signature})'):
            self.declare_tables()
            self.declare_arrays(dict.fromkeys(view.buffer for view in program.inputs.values() if not view.buffer.batch))
            with self.block("for (int64_t group = first; group < last; group++)"):
                self.line(f"Stream data(load_words(seeds + group * LANES), {int(Domain.TRAIN)});")
                if step.noise:
                    self.line(f"Stream noise(load_words(seeds + group * LANES), {int(Domain.NOISE)});")
                self.line(f"float *const own = state + group * {self.size(moving)} * LANES;")
                self.load(fixed, f"fixed + group * {self.size(fixed)} * LANES")
                self.load(moving, "own")
                with self.block("for (int64_t t = 0; t < steps; t++)"):
                    self.line("data.start(start + t);")
                    if step.noise:
                        self.line("noise.start(start + t);")
                    self.each(program.inputs["correction"].buffer, "c(corrections[2 * t + {index}])")
                    self.load(weights, f"weights + (group * steps + t) * {self.size(weights)} * LANES")
                    for (member, batch), stage in zip(self.nests, program.stages):
                        self.stage(member, batch, stage)
                    self.update(moving)
                self.save(moving)

    def stage(self, member: list[Nest], batch: list[Nest], stage: Stage) -> None:
        self.declare_arrays(dict.fromkeys(s.out.buffer for s in stage.member))
        self.region(member)
        if not batch:
            return
        totals = dict.fromkeys(s.out.buffer for s in stage.batch if isinstance(s, Total))
        self.declare_arrays(totals)
        for buffer in totals:
            self.each(buffer, "V{{}}")
        with self.block(f"for (int b = 0; b < {self.step.batch}; b += {EXAMPLES})"):
            used = {v.buffer for s in stage.batch for v in operands(s) if isinstance(v, View)}
            for buffer, stream in self.streams.items():
                if buffer in used and buffer not in self.passing:
                    self.draw(buffer, stream)
            self.declare_arrays(dict.fromkeys(s.out.buffer for s in stage.batch if s.out.buffer.batch))
            self.region(batch)

    @cached_property
    def streams(self) -> dict[Buffer, str]:
        """Inputs that are random numbers, and where they come from."""
        names = {"uniforms": "data", "noise": "noise"}
        return {self.program.inputs[name].buffer: s for name, s in names.items() if name in self.program.inputs}

    @cached_property
    def passing(self) -> set[Buffer]:
        """Random numbers that are drawn where they are used, because one loop over tiles uses them all."""
        return {b for b in self.streams if all(_tiles(b, batch) for _, batch in self.nests)}

    @cached_property
    def arrays(self) -> set[Buffer]:
        return super().arrays - self.passing

    def open_iteration(self, nest: Nest) -> None:
        """The tile's random numbers of the four examples."""
        for buffer in self.passing:
            if any(buffer in sources(placed.statement) for placed in nest.statements):
                stream, per_example = self.streams[buffer], buffer.size // TILE
                self.line(f"V {stream}_drawn[{EXAMPLES * TILE}];")
                for example in range(EXAMPLES):
                    block = f"(b + {example}) * {per_example} + i"
                    self.line(f"{stream}.draw({block}, {stream}_drawn + {TILE * example});")
                for place in range(TILE):
                    self.assign(f"{buffer.name}_{place}", buffer, f"gather({stream}_drawn + {place}, {TILE})")

    def draw(self, buffer: Buffer, stream: str) -> None:
        """The random numbers of a block; those of one example lie together in the stream."""
        count, name = buffer.size, f"{stream}_drawn"
        self.line(f"V {name}[{EXAMPLES * count}];")
        if count <= UNROLLED:
            for i in range(count):
                self.line(f"{stream}.draw(b / 4 * {count} + {i}, {name} + {4 * i});")
        else:
            self.line(f"for (int i = 0; i < {count}; i++) {stream}.draw(b / 4 * {count} + i, {name} + 4 * i);")
        self.read(buffer, f"gather({name} + {{index}}, {count})")

    def total(self, values: list[str]) -> str:
        if self.step.batch % EXAMPLES == 0:
            return super().total(values)
        return f"partial_total({' * '.join(f'B({value})' for value in values)}, {self.step.batch} - b)"

    def update(self, moving: list[str]) -> None:
        """Outputs become the next step's inputs; any parameter that is not finite makes the probe NaN."""
        for name in moving:
            source, target = self.program.outputs[name], self.program.inputs[name].buffer
            placed = arrange_loops([Map(View.whole(target, self.program.inputs[name].shape), "copy", (source,))])
            self.region(placed)
        self.line("V probe = {};")
        for name in moving[: len(self.step.parameters)]:
            buffer = self.program.inputs[name].buffer
            if buffer in self.arrays:
                self.line(f"for (int i = 0; i < {buffer.size}; i++) probe += {buffer.name}[i] * 0.0f;")
            else:
                self.line("probe += " + " + ".join(f"{buffer.name}_{i} * 0.0f" for i in range(buffer.size)) + ";")
        self.line("note_divergence(probe, start + t, diverged + group * LANES);")

    def save(self, moving: list[str]) -> None:
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in moving):
            if buffer in self.arrays:
                self.line(
                    f"for (int i = 0; i < {buffer.size}; i++) store(own + ({start} + i) * LANES, {buffer.name}[i]);"
                )
            else:
                for i in range(buffer.size):
                    self.line(f"store(own + {start + i} * LANES, {buffer.name}_{i});")
            start += buffer.size


class _Evaluation(Emitter):
    """``evaluate``: the mean loss of every member on the same numbers; here one lane of a vector is one example.

    What the examples are, and all else that no parameter takes part in, is computed once for the members that have the
    same constants: the first stage. The second is what each member then does with it.
    """

    def __init__(self, step: Step, program: Program) -> None:
        given, own = _apart(program, {f"parameters.{name}" for name in step.parameters})
        super().__init__(Program(program.inputs, [given, own], program.outputs))
        parameters = [f"parameters.{name}" for name in step.parameters]
        constants = [f"constants.{name}" for name in step.constants]
        (given_member, given_batch), (own_member, own_batch) = self.nests
        read = {view.buffer for s in (*own.member, *own.batch) for view in operands(s) if isinstance(view, View)}
        loss = program.outputs["loss"]
        read |= {loss.buffer} if isinstance(loss, View) else set()
        made = dict.fromkeys(s.out.buffer for s in given.batch if s.out.buffer in read)
        self.uniforms, self.kept = program.inputs["uniforms"].buffer, list(made)
        self.chunk = _examples_at_once(sum(buffer.size for buffer in made))
        signature = (
            "int64_t first, int64_t last, int64_t count, const float *numbers, const float *fixed, "
            "const int64_t *alike, double *sums"
        )
        self.line("// Sums of the loss on `count` examples made from `numbers`: [block][number][example of the block].")
        self.line("// Members m, ..., alike[m] - 1 have the same constants.")
        with self.block(f'extern "C" void evaluate({signature})'):
            self.declare_tables()
            for buffer in self.kept:
                self.line(f"static thread_local {type_of(buffer)} {buffer.name}_kept[{self.blocks} * {buffer.size}];")
            self.declare_arrays(dict.fromkeys(program.inputs[name].buffer for name in (*constants, *parameters)))
            size, start = self.size([*parameters, *constants]), self.size(parameters)
            with self.block("for (int64_t from = first; from < last; from = alike[from])"):
                self.line("const int64_t to = alike[from] < last ? alike[from] : last;")
                self.broadcast(constants, f"fixed + from * {size} + {start}")
                self.declare_arrays(dict.fromkeys(s.out.buffer for s in given.member))
                self.region(given_member)
                with self.block(f"for (int64_t chunk = 0; chunk < count; chunk += {self.chunk})"):
                    self.line(f"const int64_t end = chunk + {self.chunk} < count ? chunk + {self.chunk} : count;")
                    with self.block("for (int64_t b = chunk; b < end; b += EXAMPLES)"):
                        self.examples(given)
                        self.place_kept()
                        self.declare_arrays(dict.fromkeys(b for s in given.batch if (b := s.out.buffer) not in made))
                        self.region(given_batch)
                        stored = self.keep()
                    with self.block("for (int64_t m = from; m < to; m++)"):
                        self.broadcast(parameters, f"fixed + m * {size}")
                        self.declare_arrays(dict.fromkeys(s.out.buffer for s in own.member))
                        self.region(own_member)
                        self.line("V sum = {};")
                        with self.block("for (int64_t b = chunk; b < end; b += EXAMPLES)"):
                            self.examples(own)
                            self.place_kept()
                            for buffer, index in stored:
                                self.assign(f"{buffer.name}_{index}", buffer, self.place(buffer, index))
                            self.declare_arrays(dict.fromkeys(s.out.buffer for s in own.batch))
                            self.region(own_batch)
                            value = self.at(loss.buffer, loss.offset) if isinstance(loss, View) else constant(loss)
                            self.line(f"sum += total_of_first(B({value}), end - b);")
                        self.line("sums[m] += sum_of_lanes(sum);")

    @property
    def blocks(self) -> str:
        return f"({self.chunk} / EXAMPLES)"

    def broadcast(self, names: list[str], source: str) -> None:
        """A member's numbers, each in all lanes."""
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in names):
            self.each(buffer, f"c(({source})[{{place}}])", start)
            start += buffer.size

    def examples(self, stage: Stage) -> None:
        """The random numbers behind a block of examples, if they are needed."""
        if self.uniforms in {view.buffer for s in stage.batch for view in operands(s) if isinstance(view, View)}:
            self.read(self.uniforms, f"adjacent(numbers + b * {self.uniforms.size} + ({{index}}) * EXAMPLES)")

    def place(self, buffer: Buffer, index: int = 0) -> str:
        return f"{buffer.name}_kept[(b - chunk) / EXAMPLES * {buffer.size} + {index}]"

    def place_kept(self) -> None:
        """Kept arrays are used where they lie, ..."""
        for buffer in self.kept:
            if buffer in self.arrays:
                self.line(f"{type_of(buffer)} *const {buffer.name} = &{self.place(buffer)};")

    def keep(self) -> list[tuple[Buffer, int]]:
        """... kept variables are copied there."""
        known = set().union(*self.declared)
        loose = [(b, i) for b in self.kept if b not in self.arrays for i in range(b.size) if f"{b.name}_{i}" in known]
        for buffer, index in loose:
            self.line(f"{self.place(buffer, index)} = {buffer.name}_{index};")
        return loose


def _tiles(buffer: Buffer, nests: list[Nest]) -> bool:
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
