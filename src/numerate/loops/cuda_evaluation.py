"""The kernel that evaluates: the mean loss of every member on fixed examples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from numerate.loops.cuda_emitter import LOOPS, Emitter
from numerate.loops.cuda_kernels import HEAVY, LIGHT, Source, source_of, work
from numerate.loops.cuda_text import sum_text
from numerate.loops.homes import views
from numerate.loops.ir import Buffer, Operand, Program, View, depending, sources
from numerate.loops.nests import Nest

PART = 16
"""Losses of a thread added in single precision before the sum goes on in double precision."""
SIDE_BY_SIDE = 5
"""Members of equal constants that are evaluated together; it divides the papers' 25, 50 and 100 seeds."""
TOGETHER = 2
"""Members of a block where the numbers of an example are many: what one has read the other finds in the cache."""
_EVALUATED = "float *losses, const float *fixed, const float *numbers"


def evaluation_sources(program: Program, threads: int) -> list[Source]:
    """The kernel ``evaluate``: the mean loss of every member on the same numbers, a block for some of them.

    If there are two, the second needs less shared memory.
    """
    emitter = _Evaluation(program, threads)
    if emitter.homes.memory or any(nest.loops for nest in emitter.nests[0]):
        emitter.emit()
        return [source_of("evaluate", emitter, members=members) for members in (TOGETHER, 1)]
    several = _SideBySide(program, threads)
    several.emit()
    return [source_of("evaluate", several, side_by_side=SIDE_BY_SIDE)]


class _Evaluation(Emitter):
    """As many threads for each member."""

    def __init__(self, program: Program, threads: int) -> None:
        super().__init__(program, threads)
        self.numbers = program.inputs["uniforms"].buffer
        self.given = [name for name in program.inputs if name != "uniforms"]

    def emit(self) -> None:
        loss, nests = self.program.outputs["loss"], self.nests[0]
        self.declare_tables()
        signature = f"{_EVALUATED}, int members, int count"
        with self.block(f'extern "C" __global__ void __launch_bounds__(BLOCK) evaluate({signature})'):
            self.line("const int thread = threadIdx.x % THREADS;")
            self.line("const int place = blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;")
            self.line("const int member = place < members ? place : members - 1;  // if there are too many threads")
            self.line("__shared__ double parts[BLOCK / 32];")
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
                    self.draw(nests)
                    self.example(nests, self.own_arrays(nests))
                    self.line(f"part += {self.last(loss)};")
                self.line("sum += double(part);")
            self.line("sum = over_warp(sum);")
            self.line("const int warp = threadIdx.x / 32;")
            self.line("if (thread % 32 == 0) parts[warp] = sum;")
            self.line("together();")
            with self.block("if (thread == 0 && place < members)"):
                self.line("UNROLL for (int other = 1; other < THREADS / 32; other++) sum += parts[warp + other];")
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
        with self.block("for (int row = first; row < end; row += THREADS)"):
            yield

    def draw(self, nests: list[Nest]) -> None:
        """The numbers of an example, if they are few."""
        for place in range(self.numbers.size) if self.numbers not in self.own_arrays(nests) else ():
            self.assign(self.numbers, place, f"numbers[{place} * count + row]")

    def last(self, loss: Operand) -> str:
        """The result of an example."""
        if isinstance(loss, View) and loss.buffer in self.arrays:
            return f"{loss.buffer.name}[{loss.offset}]"
        return self.fixed(loss, loss.offset if isinstance(loss, View) else 0)

    def address(self, buffer: Buffer, place: int, strides: tuple[int, ...]) -> str:
        if buffer is not self.numbers:
            return super().address(buffer, place, strides)
        return f"numbers[({sum_text(zip(LOOPS, strides), place)}) * count + row]"


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
