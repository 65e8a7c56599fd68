"""The native loop that trains, around the statements of a step."""

from functools import cached_property

from numerate.loops.cpp.emitter import EXAMPLES, Emitter
from numerate.loops.form.ir import Buffer, Map, Program, Stage, Total, View, operands, sources
from numerate.loops.passes.nests import TILE, UNROLLED, Nest, arrange_loops, loop_strides, places
from numerate.loops.step import Step
from numerate.streams import Domain


class Training(Emitter):
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
