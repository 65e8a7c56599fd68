"""The CUDA kernel that trains: all steps of a call for every member."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product

from numerate.loops.cuda.statements import Allocation, GpuSchedule, ThreadBuilder, over_elements
from numerate.loops.cuda.tuning import BLOCKS_AT_ONCE, COLUMNS_AT_ONCE, DRAWN_AT_ONCE, HEAVY, LIGHT, MEDIUM
from numerate.loops.form.ir import BatchSum, Buffer, Map, Operand, View, sources
from numerate.loops.kernel.builder import LOOPS, variable
from numerate.loops.kernel.form import (
    Array,
    Assign,
    Barrier,
    Divergence,
    Draw,
    For,
    Function,
    If,
    Integer,
    LeaveIfDead,
    Let,
    Parameter,
    Pointer,
    Reads,
    Scope,
    StartStep,
    Stream,
    ThreadReduce,
    Threads,
    TurnToMember,
    WillWrite,
    Wrote,
)
from numerate.loops.kernel.values import (
    EXAMPLE,
    MEMBER,
    Broadcast,
    Call,
    Choice,
    Constant,
    Digit,
    Element,
    Index,
    Packed,
    Value,
    Variable,
    place_of,
    reduced,
)
from numerate.loops.passes.distribute import Group, moves, sizes
from numerate.loops.passes.nests import Nest, loop_strides
from numerate.loops.passes.placement import views
from numerate.loops.step import MOMENTS, Step
from numerate.loops.tracing.trace import NotLowered
from numerate.streams import Domain

DOMAINS = {"uniforms": Domain.TRAIN, "noise": Domain.NOISE}
READ_EACH_STEP = ("table", "correction")
"""Inputs that are different in each step."""
PARAMETERS = [
    Parameter("state", "float", "writes"),
    Parameter("fixed", "float", "reads"),
    Parameter("seeds", "uint32", "reads"),
    Parameter("table", "float", "reads"),
    *(Parameter(f"stride_{axis}", "uint64") for axis in "kts"),
    Parameter("corrections", "float", "reads"),
    Parameter("diverged", "uint64", "writes"),
    Parameter("members", "int"),
    Parameter("start", "uint64"),
    Parameter("steps", "int"),
]


def rows_at_once(step: Step, threads: int, work: int) -> int:
    """Examples that a thread draws together: no four numbers are cut apart, and several fours are on their way."""
    widths = [width for width in (step.draws, step.noise) if width]
    rows = math.lcm(*(4 // math.gcd(4, width) for width in widths))
    if rows * max(widths) > DRAWN_AT_ONCE:
        return 1
    most = DRAWN_AT_ONCE // 2 if work <= MEDIUM else DRAWN_AT_ONCE // 4 if work <= HEAVY else 0
    while 2 * rows * sum(widths) <= most and step.batch % (2 * rows * threads) == 0:
        rows *= 2
    return rows


def training_function(step: Step, scheduled: GpuSchedule, rows: int) -> tuple[Function, int]:
    """The function ``train``, and the floats of shared memory that a member needs; ``rows``: examples drawn at once."""
    builder = _Training(step, scheduled, rows)
    builder.build()
    return Function("train", PARAMETERS, builder.body), builder.allocation.floats


class _Training(ThreadBuilder):
    def __init__(self, step: Step, scheduled: GpuSchedule, rows: int) -> None:
        super().__init__(scheduled)
        self.step, self.threads, self.rows_at_once = step, scheduled.threads, rows
        self.draws = {"uniforms": step.draws} | ({"noise": step.noise} if step.noise else {})
        self.units = -(-step.batch // rows)
        self.moving_names = [f"{group}.{k}" for group in ("parameters", *MOMENTS) for k in step.parameters]
        outputs = [self.program.outputs[f"parameters.{name}"] for name in step.parameters]
        self.checked = {view.buffer for view in outputs if isinstance(view, View)}
        self.inline: dict[int, list[str]] = {}  # nest -> random numbers that are drawn where they are used
        self.allocation = self.allocated()

    def allocated(self) -> Allocation:
        """Arrays of the member, the factors of large sums, and the warps' parts of small ones."""
        allocation = Allocation()
        allocation.add_member(self.scheduled)
        for buffer in dict.fromkeys(b for total in self.scheduled.large_sums for b in sources(total) if b.batch):
            allocation.add(f"{buffer.name}_rows", self.threads * self.rows_at_once * _row_stride(buffer.size))
        for number in range(len(self.scheduled.nests)):
            if self.threads > 32 and (names := self.sums(number)):
                allocation.add(f"parts_{number}", self.threads // 32 * len(names))
        return allocation

    def build(self) -> None:
        step = self.step
        fixed = [f"constants.{name}" for name in step.constants] + ["rate"] + (["clip"] if step.clip else [])
        self.add(Threads(training=True), *self.allocation.declared())
        self.add(*(Stream(f"{name}_stream", int(DOMAINS[name])) for name in self.draws))
        self.add(TurnToMember({"fixed": self.count(fixed), "state": self.count(self.moving_names)}))
        if self.allocation.floats:
            self.add(LeaveIfDead(self.count(f"parameters.{name}" for name in step.parameters)))
        self.load(fixed, "fixed")
        self.load(self.moving_names, "state")
        self.add(Divergence("declare"))
        for name, at in self.each_step():
            self.add(Let(f"next_{name}_{at}", MEMBER, self.from_table(name, at, "0")))
        if self.memory:
            self.add(Barrier())
        with self.inside(For("t", "steps")):
            self.one_step()
        self.save()

    def each_step(self) -> list[tuple[str, int]]:
        """What is different in each step, and read one step ahead."""
        inputs = self.program.inputs
        return [(name, at) for name in READ_EACH_STEP if name in inputs for at in range(inputs[name].buffer.size)]

    def from_table(self, name: str, at: int, t: str) -> Value:
        if name == "correction":
            return Broadcast("corrections", f"{self.program.inputs[name].buffer.size} * {t}", at)
        return Broadcast("table", f"{at} * stride_k + {t} * stride_t", Index((("member * stride_s", 1),)))

    def one_step(self) -> None:
        self.add(*(StartStep(f"{name}_stream", "start + t") for name in self.draws))
        self.add(Integer("then", "t + 1 < steps ? t + 1 : t"))
        for name, at in self.each_step():
            buffer, ahead = self.program.inputs[name].buffer, Variable(f"next_{name}_{at}")
            self.assign(variable(buffer, at), ahead, MEMBER)
            self.add(Assign(ahead, self.from_table(name, at, "then")))
            self.publish(buffer, [at])
        self.add(Divergence("begin"))
        for number, groups in enumerate(self.scheduled.groups):
            self.member(groups)
            if self.program.stages[number].batch:
                self.batch(number)
        self.update()
        self.add(Divergence("end"))
        if self.allocation.floats:
            self.add(Barrier())

    def check(self, buffer: Buffer, name: str) -> None:
        if buffer in self.checked:
            self.add(Divergence("check", name))

    def update(self) -> None:
        """Outputs become the next step's inputs."""
        inputs = {view.buffer for view in self.program.inputs.values()}
        values: list[tuple[Variable, Value]] = []
        for name in self.moving_names:
            new, old = self.program.outputs[name], self.program.inputs[name]
            if name in self.placement.replaced or (isinstance(new, View) and new.buffer is old.buffer):
                continue
            if isinstance(new, View) and new.buffer in inputs:
                raise NotLowered(f"the new value of {name} is the old one of another")
            pairs = [(place_of(old, i), self.fixed(new, place_of(new, i))) for i in product(*map(range, old.shape))]
            if old.buffer in self.memory:
                self.add(WillWrite(old.buffer.name))  # others may still read it
                if isinstance(new, View) and new.buffer not in self.memory:
                    self.add(Reads([], writes=[old.buffer]))
                    with self.inside(If("thread == 0")):
                        self.add(*(Assign(Element(self.array(old.buffer), Index(offset=at)), v) for at, v in pairs))
                    self.add(Wrote(old.buffer))
                else:
                    self.distributed(Group("distributed", sizes(old), [Map(old, "copy", (new,))]))
                continue
            self.add(Reads([new] if isinstance(new, View) and new.buffer not in self.placement.registers else []))
            values += [(variable(old.buffer, at), value) for at, value in pairs]
        for target, value in values:
            self.assign(target, value, MEMBER)

    def save(self) -> None:
        with self.inside(If("place < members")):
            start = 0
            for buffer in (self.program.inputs[name].buffer for name in self.moving_names):
                if buffer in self.memory:
                    with self.inside(over_elements(buffer.size)):
                        at = Index((("e", 1),), start)
                        self.add(Assign(Packed("state", "", at), Element(buffer.name, Index((("e", 1),)))))
                else:
                    for k in range(buffer.size):
                        store = Assign(Packed("state", "", start + k), variable(buffer, k))
                        self.add(If("thread == 0", [store]))
                start += buffer.size
            self.add(Divergence("tell"))

    # ------------------------------------------------------------ the batch

    def batch(self, number: int) -> None:
        """One pass over the examples, and the sums over them."""
        statements, nests = self.program.stages[number].batch, self.scheduled.nests[number]
        large = [total for total in self.scheduled.large_sums if total in statements]
        self.rows = {b: _row_stride(b.size) for total in large for b in sources(total) if b.batch}
        self.add(Reads([v for s in statements for v in views(s)[1:] if v.buffer in self.memory]))
        for buffer in self.totals(number):
            for k in range(buffer.size):
                self.assign(variable(buffer, k), Constant(0.0), MEMBER)
        if large:
            self.slabs(number, large)
        else:
            unroll = 2 if self.scheduled.work(nests) <= LIGHT else 1
            with self.inside(For("unit", self.units, "thread", "+= THREADS", unroll=unroll)):
                self.unit(nests)
            if self.threads > 32 and self.leave_parts(number):
                self.add(Barrier())
        self.join_parts(number)
        for buffer in self.totals(number):
            self.publish(buffer, range(buffer.size))

    def slabs(self, number: int, large: list[BatchSum]) -> None:
        """As many examples at a time as there are threads; then every thread adds up its columns."""
        rows = self.threads * self.rows_at_once
        count = -(-self.step.batch // rows)
        last = self.step.batch - (count - 1) * rows
        with self.inside(For("slab", count) if count > 1 else Scope()):
            self.add(Integer("unit", "slab * THREADS + thread" if count > 1 else "thread"))
            with self.inside(Scope() if self.units % self.threads == 0 else If(f"unit < {self.units}")):
                self.unit(self.scheduled.nests[number])
            if count == 1 and self.threads > 32:
                self.leave_parts(number)
            self.add(Barrier())
            filled = last if count == 1 or last == rows else f"(slab == {count - 1} ? {last} : {rows})"
            for total in large:
                self.columns(total, filled, count > 1)
            if count > 1 or number + 1 < len(self.scheduled.nests):
                self.add(Barrier())
        if count > 1 and self.threads > 32 and self.leave_parts(number):
            self.add(Barrier())

    def unit(self, nests: list[Nest]) -> None:
        """The examples whose random numbers are drawn together."""
        used = {b for nest in nests for placed in nest.statements for b in sources(placed.statement)} | set(self.rows)
        inputs = {k: self.program.inputs[k].buffer for k in self.draws if self.program.inputs[k].buffer in used}
        arrays, rows = self.own_arrays(nests), self.rows_at_once
        few = [k for k, buffer in inputs.items() if buffer not in arrays and rows * self.draws[k] % 4 == 0]
        for name in few:
            blocks = rows * self.draws[name] // 4
            self.add(Array(f"{name}_drawn", MEMBER, 4 * blocks))
            self.add(Draw(f"{name}_stream", f"unit * {blocks}", f"{name}_drawn", blocks=blocks))
        with self.inside(For("r", rows, unroll=True)):
            self.add(Integer("row", f"unit * {rows} + r"))
            with self.inside(If(f"row < {self.step.batch}") if self.step.batch % rows else Scope()):
                for buffer, stride in self.rows.items():
                    at = f"{buffer.name}_rows + (thread * {rows} + r) * {stride}"
                    self.add(Pointer(buffer.name, at, EXAMPLE))
                self.inline = {}
                for name, buffer in inputs.items():
                    if name in few:
                        for k in range(buffer.size):
                            drawn = Element(f"{name}_drawn", Index((("r", buffer.size),), k))
                            self.assign(variable(buffer, k), drawn, EXAMPLE)
                    elif buffer in arrays and buffer not in self.rows and (nest := _only_loop(buffer, nests)):
                        self.inline.setdefault(id(nest), []).append(name)
                        arrays = arrays - {buffer}
                    else:
                        self.draw_row(name, arrays)
                self.example(nests, arrays)

    def draw_row(self, name: str, arrays: set[Buffer]) -> None:
        """Many numbers: those of one example, into an array; a block of four may reach into the neighbours."""
        width, buffer = self.draws[name], self.program.inputs[name].buffer
        if buffer not in self.rows:
            self.add(Array(buffer.name, EXAMPLE, width))
        end = f"(row * {width} + {width - 1}) / 4 + 1"
        with self.inside(For("q", end, f"row * {width} / 4")):
            self.add(Array("four", EXAMPLE, 4), Draw(f"{name}_stream", "q", "four"))
            with self.inside(For("k", 4, unroll=True)):
                self.add(Integer("at", f"4 * q + k - row * {width}"))
                with self.inside(If(f"at >= 0 && at < {width}")):
                    self.add(Assign(Element(buffer.name, Index((("at", 1),))), Element("four", Index((("k", 1),)))))
        if buffer not in arrays:
            for k in range(buffer.size):
                self.assign(variable(buffer, k), Element(buffer.name, Index(offset=k)), EXAMPLE)

    @contextmanager
    def loop(self, nest: Nest, depth: int) -> Iterator[None]:
        """A loop that alone uses an example's random numbers draws them itself, several fours at once."""
        names = self.inline.get(id(nest), [])
        if not names:
            with super().loop(nest, depth):
                yield
            return
        (count,) = nest.loops
        several = max(divisor for divisor in range(1, BLOCKS_AT_ONCE + 1) if count % divisor == 0)
        with self.inside(For("q", count, advance=f"+= {several}")):
            for name in names:
                self.add(Array(f"{name}_drawn", EXAMPLE, 4 * several))
                self.add(Draw(f"{name}_stream", f"row * {count} + q", f"{name}_drawn", blocks=several))
            with self.inside(For("k", several, unroll=True)):
                self.add(Integer(LOOPS[0], "q + k"))
                for name in names:
                    buffer = self.program.inputs[name].buffer
                    for at in range(4):
                        self.assign(variable(buffer, at), Element(f"{name}_drawn", Index((("k", 4),), at)), EXAMPLE)
                    self.fresh = self.fresh | {buffer}
                yield

    # ------------------------------------------------------------ sums over the batch

    def totals(self, number: int) -> list[Buffer]:
        """Sums of a stage that every thread keeps in registers."""
        found = [s for s in self.program.stages[number].batch if isinstance(s, BatchSum)]
        return [total.out.buffer for total in found if total not in self.scheduled.large_sums]

    def sums(self, number: int) -> list[Variable]:
        return [variable(buffer, k) for buffer in self.totals(number) for k in range(buffer.size)]

    def leave_parts(self, number: int) -> bool:
        """Every warp leaves its part of the sums, if there are any."""
        sums = self.sums(number)
        self.add(*(ThreadReduce(total.name, "sum", "warp") for total in sums))
        for k, total in enumerate(sums):
            part = Element(f"parts_{number}", Index((("thread / 32", len(sums)),), k))
            self.add(If("thread % 32 == 0", [Assign(part, total)]))
        return bool(sums)

    def join_parts(self, number: int) -> None:
        sums = self.sums(number)
        if self.threads <= 32:
            self.add(*(ThreadReduce(total.name, "sum", "warp") for total in sums))
            return
        for k, total in enumerate(sums):
            places = (Index(offset=warp * len(sums) + k) for warp in range(self.threads // 32))
            parts = [[Element(f"parts_{number}", at)] for at in places]
            self.add(Assign(total, reduced("sum", parts)))

    def columns(self, total: BatchSum, rows: int | str, continues: bool) -> None:
        """A sum of many elements: each thread takes some, over all rows; ``continues`` what other rows have left."""
        out, dimensions = total.out, sizes(total.out)
        longest = dimensions.index(max(dimensions))
        indices: Sequence[tuple[str | Digit | int, ...]]
        if math.prod(dimensions) // dimensions[longest] <= COLUMNS_AT_ONCE:  # one thread per column, all that is in it
            spans = [("e",) if d == longest else range(size) for d, size in enumerate(dimensions)]
            indices, count = list(product(*spans)), dimensions[longest]
        else:
            indices = [tuple(Digit("e", math.prod(dimensions[d + 1 :]), n) for d, n in enumerate(dimensions))]
            count = math.prod(dimensions)

        def element(operand: Operand, index: Sequence[str | Digit | int], row: str = "row") -> Value:
            if not isinstance(operand, View):
                return Constant(operand)
            at = Index.of(zip(index, moves(operand, out)), operand.offset)
            if operand.buffer in self.rows:
                terms = ((row, self.rows[operand.buffer]), *at.terms)
                return Element(f"{operand.buffer.name}_rows", Index(terms, at.offset))
            return self.fixed(operand, at.offset) if at.known else Element(self.array(operand.buffer), at)

        paired = isinstance(rows, int) and rows % 2 == 0  # two sums side by side, so that none waits for the last
        names = (("sum", "row"), ("odd", "(row + 1)"))[: 2 if paired else 1]
        with self.inside(over_elements(count)):
            for k in range(len(indices)):
                self.add(*(Let(f"{name}_{k}", MEMBER, Constant(0.0)) for name, _ in names))
            advance, unroll = ("+= 2", 4) if paired else ("++", 8)
            with self.inside(For("row", rows, advance=advance, unroll=unroll)):
                for name, row in names:
                    for k, index in enumerate(indices):
                        running = Variable(f"{name}_{k}")
                        term = [element(a, index, row) for a in total.args]
                        self.add(Assign(running, reduced("sum", [term], running)))
            for k, index in enumerate(indices):
                target, value = element(out, index), reduced("sum", [[Variable(f"{name}_{k}")] for name, _ in names])
                assert isinstance(target, Variable | Element)
                if continues:
                    value = Call("add", (Choice("slab", target, Constant(0.0)), value))
                self.add(Assign(target, value))
        self.add(Wrote(out.buffer))


def _only_loop(buffer: Buffer, nests: list[Nest]) -> Nest | None:
    """The nest that alone uses the random numbers, four after four, if there is one."""
    uses = [(n, p, v) for n in nests for p in n.statements for v in views(p.statement) if v.buffer is buffer]
    nest = uses[0][0]
    good = buffer.size % 4 == 0 and nest.loops == (buffer.size // 4,) and all(other is nest for other, _, _ in uses)
    for _, placed, view in uses:
        reached = {place_of(view, index) for index in placed.unrolled()}
        good = good and loop_strides(view, placed) == (4,) and reached <= {0, 1, 2, 3}
    return nest if good else None


def _row_stride(size: int) -> int:
    """Distance of two rows in shared memory: threads that write a row each, or read one row, use different banks."""
    if size % 4 == 0:
        return size if size // 4 % 2 else size + 4
    return size if size == 2 else size | 1
