"""The kernel that evaluates: the mean loss of every member on fixed examples."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from numerate.loops.cuda.emitter import LOOPS, Emitter
from numerate.loops.cuda.kernels import HEAVY, LIGHT, Source, source_of, work
from numerate.loops.cuda.text import sum_text
from numerate.loops.form.ir import Buffer, Operand, Program, Stage, Statement, View, depending, replaced, sources
from numerate.loops.passes.nests import Nest
from numerate.loops.passes.placement import views

FEW, MANY = 128, 512
"""Threads of a block: where an example is a few lines, and where it runs through loops."""
PART = 16
"""Losses of a thread added in single precision before the sum goes on in double precision."""
SIDE_BY_SIDE = 5
"""Members of equal constants that are evaluated together; it divides the papers' 25, 50 and 100 seeds."""
AT_ONCE = ((2, 4), (2, 2), (1, 4), (1, 2), (1, 1))
"""Members and examples of each that a thread takes at once where an example runs through loops: what members have in
common is read and computed once for them, and a weight is read once for the examples."""
_EVALUATED = "float *losses, const float *fixed, const float *numbers"


def evaluation_sources(program: Program) -> Iterator[Source]:
    """The kernel ``evaluate``: the mean loss of every member on the same numbers, one block for one or some of them.

    The best first; those after it need less shared memory.
    """
    small = _SideBySide(program, FEW)
    if not small.homes.memory and not any(nest.loops for nest in small.nests[0]):
        small.emit()
        yield source_of("evaluate", small, side_by_side=SIDE_BY_SIDE)
        return
    for count in AT_ONCE:
        wide = _Wide(program, MANY, *count)
        if wide.fits():
            wide.emit()
            yield source_of("evaluate", wide, wide.examples, wide.side_by_side)


def widened(program: Program, count: int, chosen: set[Buffer]) -> Program:
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


class _Evaluation(Emitter):
    """Some members in a block."""

    def __init__(self, program: Program, threads: int, side_by_side: int) -> None:
        super().__init__(program, threads)
        self.side_by_side = side_by_side
        self.numbers = program.inputs["uniforms"].buffer
        self.given = [name for name in program.inputs if name != "uniforms"]

    def kernel(self, some: str, alone: str, sizes: Sequence[tuple[str, int]], shared: set[str]) -> None:
        """Call ``some`` for the members of a block if what is ``shared`` is equal for them, or ``alone`` for each.

        ``sizes``: how the inputs of a member lie in memory.
        """
        names = [name for name, size in sizes for _ in range(size)]
        signature = f"{_EVALUATED}, int members, int count"
        with self.block(f'extern "C" __global__ void __launch_bounds__(BLOCK) evaluate({signature})'):
            if self.side_by_side == 1:
                self.line(f"{alone}(losses, fixed, numbers, blockIdx.x, count);")
                return
            self.line(f"const int first = blockIdx.x * {self.side_by_side};")
            self.line(f"bool equal = first + {self.side_by_side} <= members;")
            with self.block(f"for (int m = 1; m < {self.side_by_side} && equal; m++)"):
                self.line(f"const float *const one = fixed + u64(first) * {len(names)};")
                self.line(f"const float *const other = one + m * {len(names)};")
                for place in (k for k, name in enumerate(names) if name in shared):
                    self.line(f"equal = equal && one[{place}] == other[{place}];")
            self.line(f"if (equal) {some}(losses, fixed, numbers, first, count);")
            with self.block(f"else for (int m = first; m < members && m < first + {self.side_by_side}; m++)"):
                self.line(f"{alone}(losses, fixed, numbers, m, count);")

    def join(self, count: int | str) -> None:
        """The losses of members from the sums of all threads; what lies in shared memory is free after."""
        with self.block(f"UNROLL for (int m = 0; m < {count}; m++)"):
            self.line("sums[m] = over_warp(sums[m]);")
            self.line("if (thread % 32 == 0) parts[m][thread / 32] = sums[m];")
        self.line("together();")
        with self.block(f"if (thread < {count})"):
            self.line("double sum = parts[thread][0];")
            self.line("UNROLL for (int warp = 1; warp < THREADS / 32; warp++) sum += parts[thread][warp];")
            self.line("losses[member + thread] = float(sum / count);")
        self.line("together();")

    @contextmanager
    def parts(self) -> Iterator[None]:
        """Over parts of a thread's examples, each short enough for single precision."""
        with self.block(f"for (int first = thread; first < count; first += {PART} * THREADS)"):
            self.line(f"const int end = count < first + {PART} * THREADS ? count : first + {PART} * THREADS;")
            yield

    @contextmanager
    def rows(self, unrolled: int, at_once: int = 1) -> Iterator[None]:
        """Over the examples of a part, ``at_once`` of them together: row, row_1, ..."""
        self.line(f"#pragma unroll {unrolled}")
        step = "THREADS" if at_once == 1 else f"{at_once} * THREADS"
        with self.block(f"for (int row = first; row < end; row += {step})"):
            for k in range(1, at_once):
                self.line(f"const int row_{k} = row + {k} * THREADS < end ? row + {k} * THREADS : row;")
            yield

    def draw(self, nests: list[Nest]) -> None:
        """The numbers of an example, if they are few."""
        for place in range(self.numbers.size) if self.numbers not in self.own_arrays(nests) else ():
            self.assign(self.numbers, place, self.address(self.numbers, place, ()))


class _Wide(_Evaluation):
    """Members and examples as first axes of one program: a thread computes all of them side by side.

    Members share what comes of the numbers and of equal constants that are single numbers, such as a range.
    """

    def __init__(self, program: Program, threads: int, members: int, examples: int) -> None:
        self.plain, self.examples = program, examples
        self.shared = {
            name for name, v in program.inputs.items() if name.startswith("constants.") and v.buffer.size == 1
        }
        statements = [s for stage in program.stages for s in (*stage.member, *stage.batch)]
        start = {v.buffer for name, v in program.inputs.items() if name not in {"uniforms", *self.shared}}
        wide = widened(program, members, depending(statements, start))
        batch = {b for s in wide.stages[0].batch for b in (s.out.buffer, *sources(s)) if b.batch}
        super().__init__(widened(wide, examples, batch | {wide.inputs["uniforms"].buffer}), threads, members)

    def fits(self) -> bool:
        """Whether the loops stay what they are, and all but the examples' numbers can be in registers."""
        if self.side_by_side == self.examples == 1:
            return True
        plain = _Wide(self.plain, self.threads, 1, 1)
        same = [nest.loops for nest in self.nests[0]] == [nest.loops for nest in plain.nests[0]]
        return same and self.own_arrays(self.nests[0]) <= {self.numbers}

    def emit(self) -> None:
        self.declare_tables()
        if self.side_by_side > 1:
            single = _Wide(self.plain, self.threads, 1, self.examples)
            single.function("alone")
            self.lines += single.lines
        self.function("some" if self.side_by_side > 1 else "alone")
        sizes = [(name, self.plain.inputs[name].buffer.size) for name in self.given]
        self.kernel("some", "alone", sizes, self.shared)

    def function(self, name: str) -> None:
        """The losses of all members at once."""
        nests, loss = self.nests[0], self.program.outputs["loss"]
        with self.block(f"INLINE void {name}({_EVALUATED}, int member, int count)"):
            self.line("const int thread = threadIdx.x;")
            self.line(f"__shared__ double parts[{self.side_by_side}][THREADS / 32];")
            at = len(self.lines)
            self.allocate_member()
            self.declare_memory(at)
            self.take()
            if self.homes.memory:
                self.wait()
            self.member(self.groups[0])
            self.before([v for s in self.program.stages[0].batch for v in views(s) if v.buffer in self.homes.memory])
            self.line(f"double sums[{self.side_by_side}] = {{}};")
            with self.parts():
                self.line(f"float losses_here[{self.side_by_side}] = {{}};")
                cost = work(nests)
                with self.rows(4 if cost <= LIGHT else 2 if cost <= HEAVY else 1, self.examples):
                    self.draw(nests)
                    self.example(nests, self.own_arrays(nests))
                    for k in range(self.examples):
                        with self.block(f"if (row + {k} * THREADS < end)" if k else ""):
                            for m in range(self.side_by_side):
                                self.line(f"losses_here[{m}] += {self.last(loss, k, m)};")
                for m in range(self.side_by_side):
                    self.line(f"sums[{m}] += double(losses_here[{m}]);")
            self.join(self.side_by_side)

    def take(self) -> None:
        """The inputs of all members from packed memory."""
        stride, start = sum(self.plain.inputs[name].buffer.size for name in self.given), 0
        self.line(f"fixed += u64(member) * {stride};")
        for name in self.given:
            buffer, size = self.program.inputs[name].buffer, self.plain.inputs[name].buffer.size
            for m in range(buffer.size // size if size else 0):
                source = m * stride + start
                if buffer in self.homes.memory:
                    loop = f"for (int e = thread; e < {size}; e += THREADS)"
                    self.line(f"{loop} {buffer.name}[{m * size} + e] = fixed[{source} + e];")
                else:
                    for place in range(size):
                        self.assign(buffer, m * size + place, f"fixed[{source + place}]")
            start += size

    def last(self, loss: Operand, k: int, m: int) -> str:
        """The result of example k of member m."""
        place = loss.offset + k * loss.strides[0] + m * loss.strides[1] if isinstance(loss, View) else 0
        if isinstance(loss, View) and loss.buffer in self.arrays:
            return f"{loss.buffer.name}[{place}]"
        return self.fixed(loss, place)

    def address(self, buffer: Buffer, place: int, strides: tuple[int, ...]) -> str:
        if buffer is not self.numbers:
            return super().address(buffer, place, strides)
        k, place = divmod(place, buffer.size // self.examples)
        return f"numbers[({sum_text(zip(LOOPS, strides), place)}) * count + {f'row_{k}' if k else 'row'}]"


class _SideBySide(_Evaluation):
    """Members of equal constants have the same examples: what no parameter takes part in is computed once for them."""

    def __init__(self, program: Program, threads: int) -> None:
        super().__init__(program, threads, SIDE_BY_SIDE)

    def emit(self) -> None:
        self.declare_tables()
        with self.block(f"template <int COUNT> INLINE void some({_EVALUATED}, int member, int count)"):
            self.some()
        sizes = [(name, self.program.inputs[name].buffer.size) for name in self.given]
        constants = {name for name in self.given if name.startswith("constants.")}
        self.kernel(f"some<{SIDE_BY_SIDE}>", "some<1>", sizes, constants)

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
                    loss = self.program.outputs["loss"]
                    self.line(f"losses_here[m] += {self.fixed(loss, loss.offset if isinstance(loss, View) else 0)};")
            self.line("UNROLL for (int m = 0; m < COUNT; m++) sums[m] += double(losses_here[m]);")
        self.join("COUNT")

    def address(self, buffer: Buffer, place: int, strides: tuple[int, ...]) -> str:
        return f"numbers[{place} * count + row]" if buffer is self.numbers else super().address(buffer, place, strides)

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
