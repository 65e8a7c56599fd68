"""The kernel that evaluates: the mean loss of every member on fixed examples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from numerate.loops.cuda_emitter import LOOPS, Emitter
from numerate.loops.cuda_kernels import HEAVY, LIGHT, Source, source_of, work
from numerate.loops.cuda_text import sum_text
from numerate.loops.homes import views
from numerate.loops.ir import Buffer, Operand, Program, Scan, Stage, Statement, Total, View, depending, sources
from numerate.loops.nests import Nest

PART = 16
"""Losses of a thread added in single precision before the sum goes on in double precision."""
SIDE_BY_SIDE = 5
"""Members of equal constants that are evaluated together; it divides the papers' 25, 50 and 100 seeds."""
AT_ONCE = (4, 2)
"""Examples that a thread takes at once where an example runs through loops: a weight is read once for all of them."""
_EVALUATED = "float *losses, const float *fixed, const float *numbers"


def evaluation_source(program: Program, threads: int) -> Source:
    """The kernel ``evaluate``: the mean loss of every member on the same numbers, one block for one or some of them."""
    single = _Evaluation(program, threads)
    if single.homes.memory or any(single.loops):
        several = (_Evaluation(_several(program, count), threads, count) for count in AT_ONCE)
        chosen = next((e for e in several if e.loops == single.loops and e.has_registers()), single)
        chosen.emit()
        return source_of("evaluate", chosen, chosen.at_once)
    emitter = _SideBySide(program, threads)
    emitter.emit()
    return source_of("evaluate", emitter, side_by_side=SIDE_BY_SIDE)


def _several(program: Program, count: int) -> Program:
    """The same for so many examples at once: every value of an example has a first axis more."""
    buffers: dict[Buffer, Buffer] = {}

    def view(one: View) -> View:
        size = one.buffer.size if one.buffer.batch else 0
        buffer = buffers.setdefault(one.buffer, replace(one.buffer, size=count * size)) if size else one.buffer
        return View(buffer, (count, *one.shape), (size, *one.strides), one.offset)

    def operand(one: Operand) -> Operand:
        return view(one) if isinstance(one, View) else one

    def statement(one: Statement) -> Statement:
        assert not isinstance(one, Total)
        if isinstance(one, Scan):
            return replace(one, out=view(one.out), arg=view(one.arg))
        return replace(one, out=view(one.out), args=tuple(map(operand, one.args)))

    stages = [Stage(stage.member, list(map(statement, stage.batch))) for stage in program.stages]
    inputs = {name: view(one) if one.buffer.batch else one for name, one in program.inputs.items()}
    return Program(inputs, stages, {name: operand(one) for name, one in program.outputs.items()})


class _Evaluation(Emitter):
    """One member in a block, whose threads take one or several examples ``at_once``."""

    def __init__(self, program: Program, threads: int, at_once: int = 1) -> None:
        super().__init__(program, threads)
        self.at_once = at_once
        self.numbers = program.inputs["uniforms"].buffer
        self.given = [name for name in program.inputs if name != "uniforms"]

    @property
    def loops(self) -> list[tuple[int, ...]]:
        return [nest.loops for nest in self.nests[0]]

    def has_registers(self) -> bool:
        """Whether all but the numbers of the examples can be in registers."""
        return self.own_arrays(self.nests[0]) <= {self.numbers}

    def emit(self) -> None:
        loss, nests = self.program.outputs["loss"], self.nests[0]
        self.declare_tables()
        signature = f"{_EVALUATED}, int members, int count"
        with self.block(f'extern "C" __global__ void __launch_bounds__(BLOCK) evaluate({signature})'):
            self.line("const int thread = threadIdx.x, member = blockIdx.x;")
            self.line("__shared__ double parts[THREADS / 32];")
            at = len(self.lines)
            self.allocate_member()
            self.declare_memory(at)
            self.line(f"fixed += u64(member) * {self.count(self.given)};")
            self.load(self.given, "fixed")
            if self.homes.memory:
                self.wait()
            self.member(self.groups[0])
            self.before([v for s in self.program.stages[0].batch for v in views(s) if v.buffer in self.homes.memory])
            self.line("double sum = 0;")
            with self.parts():
                self.line("float part = 0;")
                with self.rows(4 if work(nests) <= LIGHT else 2 if work(nests) <= HEAVY else 1):
                    for k in range(1, self.at_once):
                        self.line(f"const int row_{k} = row + {k} * THREADS < end ? row + {k} * THREADS : row;")
                    self.draw(nests)
                    self.example(nests, self.own_arrays(nests))
                    self.line(f"part += {self.last(loss)};")
                    for k in range(1, self.at_once):
                        self.line(f"if (row + {k} * THREADS < end) part += {self.last(loss, k)};")
                self.line("sum += double(part);")
            self.line("sum = over_warp(sum);")
            self.line("if (thread % 32 == 0) parts[thread / 32] = sum;")
            self.line("together();")
            with self.block("if (thread == 0)"):
                self.line("UNROLL for (int warp = 1; warp < THREADS / 32; warp++) sum += parts[warp];")
                self.line("losses[member] = float(sum / count);")

    @contextmanager
    def parts(self) -> Iterator[None]:
        """Over parts of a thread's examples, each short enough for single precision."""
        with self.block(f"for (int first = thread; first < count; first += {PART} * THREADS)"):
            self.line(f"const int end = count < first + {PART} * THREADS ? count : first + {PART} * THREADS;")
            yield

    @contextmanager
    def rows(self, unrolled: int) -> Iterator[None]:
        """Over the examples of a part."""
        self.line(f"#pragma unroll {unrolled}")
        step = "THREADS" if self.at_once == 1 else f"{self.at_once} * THREADS"
        with self.block(f"for (int row = first; row < end; row += {step})"):
            yield

    def draw(self, nests: list[Nest]) -> None:
        """The numbers of an example, if they are few."""
        for place in range(self.numbers.size) if self.numbers not in self.own_arrays(nests) else ():
            self.assign(self.numbers, place, self.address(self.numbers, place, ()))

    def last(self, loss: Operand, k: int = 0) -> str:
        """The result of an example, the k-th of those at once."""
        place = loss.offset + (k * loss.strides[0] if k else 0) if isinstance(loss, View) else 0
        if isinstance(loss, View) and loss.buffer in self.arrays:
            return f"{loss.buffer.name}[{place}]"
        return self.fixed(loss, place)

    def address(self, buffer: Buffer, place: int, strides: tuple[int, ...]) -> str:
        if buffer is not self.numbers:
            return super().address(buffer, place, strides)
        k, place = divmod(place, buffer.size // self.at_once)
        return f"numbers[({sum_text(zip(LOOPS, strides), place)}) * count + {f'row_{k}' if k else 'row'}]"


class _SideBySide(_Evaluation):
    """Members of equal constants have the same examples: what no parameter takes part in is computed once for them."""

    def emit(self) -> None:
        self.declare_tables()
        with self.block(f"template <int COUNT> INLINE void some({_EVALUATED}, int member, int count)"):
            self.some()
        names = [name for name in self.given for _ in range(self.program.inputs[name].buffer.size)]
        signature = f"{_EVALUATED}, int members, int count"
        with self.block(f'extern "C" __global__ void __launch_bounds__(BLOCK) evaluate({signature})'):
            self.line(f"const int first = blockIdx.x * {SIDE_BY_SIDE};")
            self.line(f"bool equal = first + {SIDE_BY_SIDE} <= members;")
            with self.block(f"for (int m = 1; m < {SIDE_BY_SIDE} && equal; m++)"):
                self.line(f"const float *const one = fixed + u64(first) * {len(names)};")
                self.line(f"const float *const other = one + m * {len(names)};")
                for place in (k for k, name in enumerate(names) if name.startswith("constants.")):
                    self.line(f"equal = equal && one[{place}] == other[{place}];")
            self.line(f"if (equal) some<{SIDE_BY_SIDE}>(losses, fixed, numbers, first, count);")
            with self.block(f"else for (int m = first; m < members && m < first + {SIDE_BY_SIDE}; m++)"):
                self.line("some<1>(losses, fixed, numbers, m, count);")

    def some(self) -> None:
        """The losses of COUNT members, whose constants are equal."""
        free, own = self.divided()
        kept = self.of_member([*free, *own])
        self.line("const int thread = threadIdx.x;")
        self.line("__shared__ double parts[COUNT][THREADS / 32];")
        self.line(f"struct {{ {' '.join(f'{b.kind} {b.name}_{place};' for b, place in kept)} }} all[COUNT];")
        with self.block("UNROLL for (int m = 0; m < COUNT; m++)"):
            self.line(f"const float *const given = fixed + u64(member + m) * {self.count(self.given)};")
            self.load(self.given, "given")
            self.member(self.groups[0])
            for buffer, place in kept:
                self.line(f"all[m].{buffer.name}_{place} = {buffer.name}_{place};")
        self.line("double sums[COUNT] = {};")
        with self.parts():
            self.line("float losses_here[COUNT] = {};")
            with self.rows(2 if work(free) + SIDE_BY_SIDE * work(own) <= HEAVY else 1):
                self.take(self.of_member(free), "0")
                self.draw(free)
                self.example(free, set())
                with self.block("UNROLL for (int m = 0; m < COUNT; m++)"):
                    self.take(self.of_member(own), "m")
                    self.example(own, set())
                    self.line(f"losses_here[m] += {self.last(self.program.outputs['loss'])};")
            self.line("UNROLL for (int m = 0; m < COUNT; m++) sums[m] += double(losses_here[m]);")
        with self.block("UNROLL for (int m = 0; m < COUNT; m++)"):
            self.line("sums[m] = over_warp(sums[m]);")
            self.line("if (thread % 32 == 0) parts[m][thread / 32] = sums[m];")
        self.line("together();")
        with self.block("if (thread < COUNT)"):
            self.line("double sum = parts[thread][0];")
            self.line("UNROLL for (int warp = 1; warp < THREADS / 32; warp++) sum += parts[thread][warp];")
            self.line("losses[member + thread] = float(sum / count);")
        self.line("together();")

    def of_member(self, nests: list[Nest]) -> list[tuple[Buffer, int]]:
        """Values of a member that its examples need."""
        read = [b for nest in nests for placed in nest.statements for b in sources(placed.statement)]
        chosen = dict.fromkeys(b for b in read if not b.batch and b.values is None)
        return [(buffer, place) for buffer in chosen for place in range(buffer.size)]

    def take(self, kept: Sequence[tuple[Buffer, int]], m: str) -> None:
        """The values of a member by their names."""
        for buffer, place in kept:
            self.line(f"const {buffer.kind} {buffer.name}_{place} = all[{m}].{buffer.name}_{place};")

    def divided(self) -> tuple[list[Nest], list[Nest]]:
        """The statements of an example without and with parameters behind them."""
        (stage,), (nest,) = self.program.stages, self.nests[0]
        parameters = {v.buffer for name, v in self.program.inputs.items() if name.startswith("parameters.")}
        own = depending([*stage.member, *(placed.statement for placed in nest.statements)], parameters)
        halves: tuple[Nest, Nest] = Nest(()), Nest(())
        for placed in nest.statements:
            halves[placed.statement.out.buffer in own].statements.append(placed)
        return [halves[0]], [halves[1]]
