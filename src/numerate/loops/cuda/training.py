"""The kernel that trains: all steps of a call for every member."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

from numerate.loops.cuda.emitter import LOOPS, Emitter
from numerate.loops.cuda.kernels import HEAVY, LIGHT, MIDDLING, Source, source_of, work
from numerate.loops.cuda.text import folded, literal, place_of, sum_text
from numerate.loops.form.ir import Buffer, Map, Operand, Program, Total, View, sources
from numerate.loops.passes.distribute import Group, moves, sizes
from numerate.loops.passes.nests import Nest, loop_strides
from numerate.loops.passes.placement import views
from numerate.loops.step import Step
from numerate.loops.tracing.trace import NotLowered
from numerate.streams import Domain

DRAWN = 32
"""Random numbers that a thread draws at once into registers, at most."""
COLUMNS = 16
"""Elements of a sum over the batch that a thread adds up side by side."""


def training_source(step: Step, program: Program, threads: int) -> Source:
    """The kernel ``train``: all steps of a call for every member, ``threads`` of them for each."""
    emitter = _Training(step, program, threads)
    return source_of("train", emitter, emitter.rows)


def rows_at_once(step: Step, threads: int, work: int) -> int:
    """Examples that a thread draws together: no four numbers are cut apart, and several fours are on their way."""
    widths = [width for width in (step.draws, step.noise) if width]
    rows = math.lcm(*(4 // math.gcd(4, width) for width in widths))
    if rows * max(widths) > DRAWN:
        return 1
    most = DRAWN // 2 if work <= MIDDLING else DRAWN // 4 if work <= HEAVY else 0
    while 2 * rows * sum(widths) <= most and step.batch % (2 * rows * threads) == 0:
        rows *= 2
    return rows


class _Training(Emitter):
    def __init__(self, step: Step, program: Program, threads: int) -> None:
        super().__init__(program, threads)
        self.step = step
        self.draws = {"uniforms": step.draws} | ({"noise": step.noise} if step.noise else {})
        self.rows = rows_at_once(step, threads, max(map(work, self.nests)))
        self.units = -(-step.batch // self.rows)
        self.moving_names = [f"{group}.{k}" for group in ("parameters", "first", "second") for k in step.parameters]
        outputs = [program.outputs[f"parameters.{name}"] for name in step.parameters]
        self.checked = {view.buffer for view in outputs if isinstance(view, View)}
        self.inline: dict[int, list[str]] = {}  # nest -> random numbers that are drawn where they are used
        self.emit()

    def emit(self) -> None:
        fixed = [f"constants.{name}" for name in self.step.constants] + ["rate"] + (["clip"] if self.step.clip else [])
        self.declare_tables()
        signature = (
            "float *state, const float *fixed, const u32 *seeds, const float *table, u64 stride_k, u64 stride_t, "
            "u64 stride_s, const float *corrections, u64 *diverged, int members, u64 start, int steps"
        )
        with self.block(f'extern "C" __global__ void __launch_bounds__(BLOCK) train({signature})'):
            self.line("const int thread = threadIdx.x % THREADS;")
            self.line("const int place = blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;")
            self.line("const int member = place < members ? place : members - 1;  // if there are too many threads")
            at = len(self.lines)
            self.allocate_member()
            self.allocate_batch()
            self.declare_memory(at)
            for name in self.draws:
                self.line(f"Stream {name}_stream = {{seeds[member], {int(_DOMAINS[name])}}};")
            counts = self.count(fixed), self.count(self.moving_names)
            self.line(f"fixed += u64(member) * {counts[0]}, state += u64(member) * {counts[1]};")
            if self.floats:
                self.leave_if_dead()
            self.load(fixed, "fixed")
            self.load(self.moving_names, "state")
            self.line("u64 diverged_at = ~0ull;")
            for name, place in self.each_step():
                self.line(f"float next_{name}_{place} = {self.from_table(name, place, '0')};")
            if self.homes.memory:
                self.wait()
            with self.block("for (int t = 0; t < steps; t++)"):
                self.one_step()
            self.save()

    def leave_if_dead(self) -> None:
        """A member of which every parameter is NaN stays so. It has its block for itself."""
        count = self.count(f"parameters.{name}" for name in self.step.parameters)
        self.line("bool alive = false;")
        self.line(f"for (int e = thread; e < {count}; e += THREADS) alive = alive || state[e] == state[e];")
        with self.block("if (!__syncthreads_or(alive))"):
            self.line("if (thread == 0) atomicMin(diverged + member, start);")
            self.line("return;")

    def allocate_batch(self) -> None:
        """Room for the factors of large sums, and for the warps' parts of small ones."""
        for buffer in dict.fromkeys(b for total in self.tiled for b in sources(total) if b.batch):
            self.allocate(f"{buffer.name}_rows", self.threads * self.rows * _row_stride(buffer.size))
        for number in range(len(self.nests)):
            if self.threads > 32 and (names := self.sums(number)):
                self.allocate(f"parts_{number}", self.threads // 32 * len(names))

    def each_step(self) -> list[tuple[str, int]]:
        """What is different in each step, and read one step ahead."""
        names = [*(["weights"] if self.step.penalties else []), "correction"]
        return [(name, place) for name in names for place in range(self.program.inputs[name].buffer.size)]

    def from_table(self, name: str, place: int, t: str) -> str:
        if name == "correction":
            return f"corrections[2 * {t} + {place}]"
        return f"table[{place} * stride_k + {t} * stride_t + member * stride_s]"

    def one_step(self) -> None:
        for name in self.draws:
            self.line(f"{name}_stream.start(start + t);")
        self.line("const int then = t + 1 < steps ? t + 1 : t;")
        for name, place in self.each_step():
            buffer = self.program.inputs[name].buffer
            self.assign(buffer, place, f"next_{name}_{place}")
            self.line(f"next_{name}_{place} = {self.from_table(name, place, 'then')};")
            self.homes.registers.add(buffer)
            self.publish(buffer, [place])
        self.line("bool finite = true;")
        for number, groups in enumerate(self.groups):
            self.member(groups)
            if self.program.stages[number].batch:
                self.batch(number)
        self.update()
        self.line("if (!finite && diverged_at == ~0ull) diverged_at = start + t;")
        if self.floats:
            self.wait()

    def check(self, buffer: Buffer, name: str) -> None:
        if buffer in self.checked:
            self.line(f"finite = finite && is_finite({name});")

    def update(self) -> None:
        """Outputs become the next step's inputs."""
        inputs = {view.buffer for view in self.program.inputs.values()}
        values: list[tuple[Buffer, int, str]] = []
        for name in self.moving_names:
            new, old = self.program.outputs[name], self.program.inputs[name]
            if name in self.homes.replaced or (isinstance(new, View) and new.buffer is old.buffer):
                continue
            if isinstance(new, View) and new.buffer in inputs:
                raise NotLowered(f"the new value of {name} is the old one of another")
            if old.buffer in self.homes.memory:
                self.asked.add(old.buffer.name)  # others may still read it
                if isinstance(new, View) and new.buffer not in self.homes.memory:
                    self.before([], writes=[old.buffer])
                    with self.block("if (thread == 0)"):
                        for index in product(*map(range, old.shape)):
                            value = self.fixed(new, place_of(new, index))
                            self.line(f"{self.homes.memory[old.buffer]}[{place_of(old, index)}] = {value};")
                    self.pending[old.buffer] = None
                else:
                    self.spread(Group("spread", sizes(old), [Map(old, "copy", (new,))]))
                continue
            self.before([new] if isinstance(new, View) and new.buffer not in self.homes.registers else [])
            for index in product(*map(range, old.shape)):
                values.append((old.buffer, place_of(old, index), self.fixed(new, place_of(new, index))))
        for value in values:
            self.assign(*value)

    def save(self) -> None:
        with self.block("if (place < members)"):
            start = 0
            for buffer in (self.program.inputs[name].buffer for name in self.moving_names):
                if buffer in self.homes.memory:
                    loop = f"for (int e = thread; e < {buffer.size}; e += THREADS)"
                    self.line(f"{loop} state[{start} + e] = {buffer.name}[e];")
                else:
                    for place in range(buffer.size):
                        self.line(f"if (thread == 0) state[{start + place}] = {buffer.name}_{place};")
                start += buffer.size
            self.line("if (diverged_at != ~0ull) atomicMin(diverged + member, diverged_at);  // -1 is the largest")

    # ------------------------------------------------------------ the batch

    def batch(self, number: int) -> None:
        """One pass over the examples, and the sums over them."""
        statements, nests = self.program.stages[number].batch, self.nests[number]
        large = [total for total in self.tiled if total in statements]
        self.tiles = {b: _row_stride(b.size) for total in large for b in sources(total) if b.batch}
        self.before([v for s in statements for v in views(s)[1:] if v.buffer in self.homes.memory])
        for buffer in self.totals(number):
            for place in range(buffer.size):
                self.assign(buffer, place, "0.0f")
        if large:
            self.slabs(number, large)
        else:
            self.line(f"#pragma unroll {2 if work(nests) <= LIGHT else 1}")
            with self.block(f"for (int unit = thread; unit < {self.units}; unit += THREADS)"):
                self.unit(nests)
            if self.threads > 32 and self.leave_parts(number):
                self.wait()
        self.join_parts(number)
        for buffer in self.totals(number):
            self.publish(buffer, range(buffer.size))

    def slabs(self, number: int, large: list[Total]) -> None:
        """As many examples at a time as there are threads; then every thread adds up its columns."""
        rows = self.threads * self.rows
        count = -(-self.step.batch // rows)
        last = self.step.batch - (count - 1) * rows
        with self.block(f"for (int slab = 0; slab < {count}; slab++)" if count > 1 else ""):
            self.line(f"const int unit = {'slab * THREADS + thread' if count > 1 else 'thread'};")
            with self.block("" if self.units % self.threads == 0 else f"if (unit < {self.units})"):
                self.unit(self.nests[number])
            if count == 1 and self.threads > 32:
                self.leave_parts(number)
            self.wait()
            filled = str(last) if count == 1 or last == rows else f"(slab == {count - 1} ? {last} : {rows})"
            for total in large:
                self.columns(total, filled, count > 1)
            if count > 1 or number + 1 < len(self.nests):
                self.wait()
        if count > 1 and self.threads > 32 and self.leave_parts(number):
            self.wait()

    def unit(self, nests: list[Nest]) -> None:
        """The examples whose random numbers are drawn together."""
        used = {b for nest in nests for placed in nest.statements for b in sources(placed.statement)} | set(self.tiles)
        inputs = {k: self.program.inputs[k].buffer for k in self.draws if self.program.inputs[k].buffer in used}
        arrays = self.own_arrays(nests)
        few = [k for k, buffer in inputs.items() if buffer not in arrays and self.rows * self.draws[k] % 4 == 0]
        for name in few:
            blocks = self.rows * self.draws[name] // 4
            self.line(f"float {name}_drawn[{4 * blocks}];")
            self.line(f"{name}_stream.draw<{blocks}>(unit * {blocks}, {name}_drawn);")
        with self.block(f"UNROLL for (int r = 0; r < {self.rows}; r++)"):
            self.line(f"const int row = unit * {self.rows} + r;")
            with self.block(f"if (row < {self.step.batch})" if self.step.batch % self.rows else ""):
                for buffer, stride in self.tiles.items():
                    self.line(
                        f"float *const {buffer.name} = {buffer.name}_rows + (thread * {self.rows} + r) * {stride};"
                    )
                self.inline = {}
                for name, buffer in inputs.items():
                    if name in few:
                        for place in range(buffer.size):
                            self.assign(buffer, place, f"{name}_drawn[r * {buffer.size} + {place}]")
                    elif buffer in arrays and buffer not in self.tiles and (nest := _only_loop(buffer, nests)):
                        self.inline.setdefault(id(nest), []).append(name)
                        arrays = arrays - {buffer}
                    else:
                        self.draw_row(name, arrays)
                self.example(nests, arrays)

    def draw_row(self, name: str, arrays: set[Buffer]) -> None:
        """Many numbers: those of one example, into an array; a block of four may reach into the neighbours."""
        width, buffer = self.draws[name], self.program.inputs[name].buffer
        if buffer not in self.tiles:
            self.line(f"float {buffer.name}[{width}];")
        with self.block(f"for (int q = row * {width} / 4; q <= (row * {width} + {width - 1}) / 4; q++)"):
            self.line("float four[4];")
            self.line(f"{name}_stream.draw<1>(q, four);")
            with self.block("UNROLL for (int k = 0; k < 4; k++)"):
                self.line(f"const int at = 4 * q + k - row * {width};")
                self.line(f"if (at >= 0 && at < {width}) {buffer.name}[at] = four[k];")
        if buffer not in arrays:
            for place in range(buffer.size):
                self.assign(buffer, place, f"{buffer.name}[{place}]")

    @contextmanager
    def loop(self, nest: Nest, depth: int) -> Iterator[None]:
        """A loop that alone uses an example's random numbers draws them itself, several fours at once."""
        names = self.inline.get(id(nest), [])
        if not names:
            with super().loop(nest, depth):
                yield
            return
        (count,) = nest.loops
        several = max(divisor for divisor in range(1, 6) if count % divisor == 0)
        with self.block(f"for (int q = 0; q < {count}; q += {several})"):
            for name in names:
                self.line(f"float {name}_drawn[{4 * several}];")
                self.line(f"{name}_stream.draw<{several}>(row * {count} + q, {name}_drawn);")
            with self.block(f"UNROLL for (int k = 0; k < {several}; k++)"):
                self.line(f"const int {LOOPS[0]} = q + k;")
                for name in names:
                    buffer = self.program.inputs[name].buffer
                    for place in range(4):
                        self.assign(buffer, place, f"{name}_drawn[4 * k + {place}]")
                    self.fresh = self.fresh | {buffer}
                yield

    # ------------------------------------------------------------ sums over the batch

    def totals(self, number: int) -> list[Buffer]:
        """Sums of a stage that every thread keeps in registers."""
        found = [s for s in self.program.stages[number].batch if isinstance(s, Total) and s not in self.tiled]
        return [total.out.buffer for total in found]

    def sums(self, number: int) -> list[str]:
        return [f"{buffer.name}_{place}" for buffer in self.totals(number) for place in range(buffer.size)]

    def leave_parts(self, number: int) -> bool:
        """Every warp leaves its part of the sums, if there are any."""
        names = self.sums(number)
        for name in names:
            self.line(f"{name} = over_warp<add>({name});")
        for k, name in enumerate(names):
            self.line(f"if (thread % 32 == 0) parts_{number}[thread / 32 * {len(names)} + {k}] = {name};")
        return bool(names)

    def join_parts(self, number: int) -> None:
        names = self.sums(number)
        for k, name in enumerate(names):
            parts = [f"parts_{number}[{warp * len(names) + k}]" for warp in range(self.threads // 32)]
            self.line(f"{name} = {' + '.join(parts) if self.threads > 32 else f'over_warp<add>({name})'};")

    def columns(self, total: Total, rows: str, continues: bool) -> None:
        """A sum of many elements: each thread takes some, over all rows; ``continues`` what other rows have left."""
        out, dimensions = total.out, sizes(total.out)
        longest = dimensions.index(max(dimensions))
        if math.prod(dimensions) // dimensions[longest] <= COLUMNS:  # one thread per column, all that is in it
            spans = [("e",) if d == longest else range(size) for d, size in enumerate(dimensions)]
            indices: list[tuple[str | int, ...]] = list(product(*spans))
            count = dimensions[longest]
        else:
            indices = [tuple(f"e / {math.prod(dimensions[d + 1 :])} % {n}" for d, n in enumerate(dimensions))]
            count = math.prod(dimensions)

        def element(operand: Operand, index: Sequence[str | int], row: str = "row") -> str:
            if not isinstance(operand, View):
                return literal(operand)
            place = sum_text(zip(index, moves(operand, out)), operand.offset)
            if operand.buffer in self.tiles:
                return f"{operand.buffer.name}_rows[({row}) * {self.tiles[operand.buffer]} + {place}]"
            if place.isdigit():
                return self.fixed(operand, int(place))
            return f"{self.homes.memory.get(operand.buffer, operand.buffer.name)}[{place}]"

        paired = rows.isdigit() and int(rows) % 2 == 0  # two sums side by side, so that none waits for the last
        with self.block(f"for (int e = thread; e < {count}; e += THREADS)"):
            for k in range(len(indices)):
                self.line(f"float sum_{k} = 0.0f, odd_{k} = 0.0f;" if paired else f"float sum_{k} = 0.0f;")
            self.line(f"#pragma unroll {4 if paired else 8}")
            with self.block(f"for (int row = 0; row < {rows}; row += {2 if paired else 1})"):
                for name, row in (("sum", "row"), ("odd", "row + 1"))[: 2 if paired else 1]:
                    for k, index in enumerate(indices):
                        term = [element(a, index, row) for a in total.args]
                        self.line(f"{name}_{k} = {folded('sum', [term], f'{name}_{k}')};")
            for k, index in enumerate(indices):
                target, value = element(out, index), f"sum_{k} + odd_{k}" if paired else f"sum_{k}"
                self.line(f"{target} = {f'(slab ? {target} : 0.0f) + ({value})' if continues else value};")
        self.pending[out.buffer] = None


_DOMAINS = {"uniforms": Domain.TRAIN, "noise": Domain.NOISE}


def _only_loop(buffer: Buffer, nests: list[Nest]) -> Nest | None:
    """The nest that alone uses the random numbers, four after four, if there is one."""
    uses = [(n, p, v) for n in nests for p in n.statements for v in views(p.statement) if v.buffer is buffer]
    nest = uses[0][0]
    good = buffer.size % 4 == 0 and nest.loops == (buffer.size // 4,) and all(other is nest for other, _, _ in uses)
    for _, placed, view in uses:
        reached = {place_of(view, index) for index in placed.written_out()}
        good = good and loop_strides(view, placed) == (4,) and reached <= {0, 1, 2, 3}
    return nest if good else None


def _row_stride(size: int) -> int:
    """Distance of two rows in shared memory: threads that write a row each, or read one row, use different banks."""
    if size % 4 == 0:
        return size if size // 4 % 2 else size + 4
    return size if size == 2 else size | 1
