"""Emit a program of the intermediate form as one CUDA kernel that runs all steps, and run it.

A group of threads trains one member. The examples of a batch are shared out among the threads, and so are the elements of
large parameters; small values are kept by every thread, in registers. Sums over the batch of a few elements go from
register to register; those of many elements through shared memory: every example leaves the factors there, and each
thread adds up its own columns. Emitted text uses the names and functions of ``prelude.cuh``.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from numerate.loops import nvrtc
from numerate.loops.ir import Buffer, Fold, Map, Operand, Program, Scan, Statement, Total, View, operands, sources
from numerate.loops.lower import lower
from numerate.loops.nests import Nest, Placed, arrange_loops, loop_strides
from numerate.loops.spread import Group, aligned, latest, moves, share_out, sizes
from numerate.loops.step import Members, State, Step, Tensors, corrections
from numerate.loops.trace import NotLowered, evaluation, training_step
from numerate.streams import Domain

SMALL, LARGE = 8, 128
"""Threads of a member, without and with sums in shared memory."""
BLOCK = 64
"""Threads of a block at least; several members share one."""
TOTALS = 64
"""Sums over the batch that a thread keeps in registers."""
DRAWN = 32
"""Random numbers that a thread draws at once into registers."""
SHARED = 232_448
"""Bytes of shared memory that a block can have (compute capability 9.0)."""

_FUNCTIONS = {
    "abs": "fabsf", "sqrt": "sqrtf", "exp": "expf", "expm1": "expm1f", "log": "logf", "log1p": "log1pf", "sin": "sinf",
    "cos": "cosf", "tanh": "tanhf", "atan": "atanf", "erf": "erff", "floor": "floorf", "ceil": "ceilf",
    "round": "rintf", "trunc": "truncf", "pow": "powf", "atan2": "atan2f", "fma": "fmaf", "to_float": "float",
}  # fmt: skip
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "logical_and": "&&", "logical_or": "||", "logical_xor": "!=",
}  # fmt: skip
_PREFIX = {"copy": "", "neg": "-", "logical_not": "!"}
_UNFUSED = {"add": "__fadd_rn", "sub": "__fsub_rn", "mul": "__fmul_rn"}
_FOLDS: dict[str, tuple[str, float | bool]] = {
    "sum": ("add", 0.0), "prod": ("multiply", 1.0), "max": ("maximum", -math.inf), "min": ("minimum", math.inf),
    "and": ("both", True), "or": ("either", False),
}  # fmt: skip
"""Function of the prelude that joins two parts, and where to start."""


class Cuda:
    """Emitted CUDA loop; the same two methods as every :class:`~numerate.loops.step.Loop`.

    Tensors may lie on any device; results are written where the state lies. Raises
    :class:`~numerate.loops.trace.NotLowered` or :class:`~numerate.loops.native.NoCompiler` where this loop cannot be had.
    """

    def __init__(self, step: Step, device: torch.device | str = "cuda", *, threads: int | None = None) -> None:
        self.step, self.device = step, torch.device(device)
        limit = nvrtc.shared_memory(self.device)
        self.training = emit_training(step, lower(training_step(step), step.batch), threads, limit)
        self.evaluation = emit_evaluation(lower(evaluation(step), step.batch), limit)
        self._train, self._evaluate = (_compiled(kernel, self.device) for kernel in (self.training, self.evaluation))

    def train(self, state: State, members: Members, weights: Tensor, steps: int) -> None:
        if steps == 0 or len(members) == 0:
            state.step += steps
            return
        moving = [group[k] for group in (state.parameters, state.first, state.second) for k in self.step.parameters]
        fixed = [members.constants[name] for name in self.step.constants] + [members.rate]
        fixed += [] if self.step.clip is None or members.clip is None else [members.clip]
        packed, diverged = self._pack(moving), state.diverged.to(self.device, copy=True)
        table = _moved(weights, self.device)
        self._train.result().launch(
            -(-len(members) // self.training.members),
            packed,
            self._pack(fixed),
            members.seeds.to(self.device, torch.int32),
            table,
            *table.stride(),
            corrections(self.step, state.step, steps).to(self.device),
            diverged,
            len(members),
            state.step,
            steps,
        )
        for target, piece in zip(moving, packed.split([tensor[0].numel() for tensor in moving], -1)):
            target.copy_(piece.reshape(target.shape))
        state.diverged.copy_(diverged)
        state.step += steps

    def evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        fixed = [parameters[name] for name in self.step.parameters] + [constants[name] for name in self.step.constants]
        losses = torch.empty(len(fixed[0]), device=self.device)
        if len(losses):
            columns = uniforms.to(self.device, torch.float32).t().contiguous()
            self._evaluate.result().launch(
                len(losses), losses, self._pack(fixed), columns, len(losses), columns.shape[1]
            )
        return losses.to(fixed[0].device)

    def _pack(self, tensors: list[Tensor]) -> Tensor:
        """(S, ...) each -> (S, numbers) on the device."""
        flat = torch.cat([tensor.detach().reshape(len(tensor), -1) for tensor in tensors], -1)
        return flat.to(self.device, torch.float32).contiguous()


def _moved(weights: Tensor, device: torch.device) -> Tensor:
    """``weights`` on the device; dimensions that only repeat are not copied."""
    once = weights[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in weights.stride())]
    return once.to(device, torch.float32).expand(weights.shape)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, thread_name_prefix="numerate-nvrtc")


def _compiled(kernel: "Source", device: torch.device) -> Future[nvrtc.Kernel]:
    """Compile in the background; both kernels of a step at the same time."""
    return _pool().submit(nvrtc.kernel, kernel.text, kernel.name, device, kernel.block, kernel.shared)


# ---------------------------------------------------------------- sources


class Source:
    """A kernel before compilation, and how it wants to be launched."""

    def __init__(self, name: str, lines: list[str], threads: int, floats: int) -> None:
        self.name, self.threads = name, threads
        self.block = max(threads, BLOCK) if name == "train" else threads
        self.members = self.block // threads
        self.shared = 4 * floats * self.members
        """Bytes of shared memory of a block."""
        head = [f"#define THREADS {threads}", f"#define BLOCK {self.block}"]
        self.text = "\n".join([*head, prelude(), *lines, ""])


def prelude() -> str:
    """The CUDA C++ that all sources start with."""
    return Path(__file__).with_name("prelude.cuh").read_text()


def emit_training(step: Step, program: Program, threads: int | None = None, limit: int = SHARED) -> Source:
    """The kernel that trains; with as many threads for a member as its size asks for and shared memory allows."""
    if threads is not None:
        found = _Training(step, program, threads).source()
    else:
        found = _Training(step, program, SMALL).source()
        if found.shared:
            rows = _rows_at_once(step)
            wanted = min(LARGE, max(32, 2 ** math.ceil(math.log2(step.batch / rows))))
            while (found := _Training(step, program, wanted).source()).shared > limit and wanted > 32:
                wanted //= 2
    if found.shared > limit:
        raise NotLowered(f"one member needs {found.shared} bytes of shared memory; this device has {limit}")
    return found


def emit_evaluation(program: Program, limit: int = SHARED) -> Source:
    """The kernel that gives the mean loss on fixed examples."""
    if any(isinstance(s, Total) for stage in program.stages for s in stage.batch):
        raise NotLowered("evaluation with statistics of the batch")
    found = _Evaluation(program, LARGE).source()
    if found.shared > limit:
        raise NotLowered(f"one member needs {found.shared} bytes of shared memory; this device has {limit}")
    return found


def _rows_at_once(step: Step) -> int:
    """Examples that a thread draws together, so that no four random numbers are cut apart, where they are few."""
    rows = math.lcm(*(4 // math.gcd(4, width) for width in (step.draws, step.noise) if width))
    return rows if rows * max(step.draws, step.noise) <= DRAWN else 1


# ---------------------------------------------------------------- statements as text


class _Emitter:
    """What both kernels have in common: where values lie, and statements as lines of CUDA C++.

    Names: ``t6_1`` is element 1 of buffer t6 in a register; ``t6[1]`` lies in memory, shared by the member's threads or,
    for a value of an example, the thread's own.
    """

    def __init__(self, program: Program, threads: int) -> None:
        self.program, self.threads = program, threads
        self.lines: list[str] = []
        self.depth = 0
        self.declared: list[set[str]] = [set()]
        self.floats = 0  # of shared memory for one member
        self.groups = [share_out(statements) for statements in latest(program.stages)]
        self.totals = self._totals()  # of many elements, through shared memory
        self.nests = [arrange_loops([s for s in stage.batch if s not in self.totals]) for stage in program.stages]
        self.tiles = {b: _row_stride(b.size) for total in self.totals for b in sources(total) if b.batch}
        self.exact = self._exact()
        self._choose_homes()

    def source(self) -> Source:
        raise NotImplementedError

    # ------------------------------------------------------------ where values lie

    def _totals(self) -> list[Total]:
        """Sums over the batch that do not fit into registers: the longest."""
        found = [s for stage in self.program.stages for s in stage.batch if isinstance(s, Total)]
        large = [s for s in found if arrange_loops([s])[0].loops]
        small = sorted((s for s in found if s not in large), key=lambda s: math.prod(s.out.shape))
        while sum(math.prod(s.out.shape) for s in small) > TOTALS:
            large.append(small.pop())
        return [s for s in found if s in large]

    def _exact(self) -> set[Buffer]:
        """Values of the data alone: computed operation by operation, so that all loops see the same examples."""
        allowed = {v.buffer for k, v in self.program.inputs.items() if k in ("uniforms", "noise") or "constants." in k}
        found = set(allowed)
        for statement in (s for stage in self.program.stages for s in stage.batch):
            if sources(statement) and found.issuperset(sources(statement)):
                found.add(statement.out.buffer)
        return found

    def _choose_homes(self) -> None:
        """Which values of the member need an address that all its threads can see, and which are kept by all threads."""
        self.memory: set[Buffer] = set()  # of the member, in shared memory
        self.written: dict[Buffer, list[tuple[Group | None, Statement]]] = {}
        readers: dict[Buffer, list[tuple[Group, View, Statement]]] = {}
        for group in (group for groups in self.groups for group in groups):
            for statement in group.statements:
                self.written.setdefault(statement.out.buffer, []).append((group, statement))
                for view in _views(statement)[1:]:
                    readers.setdefault(view.buffer, []).append((group, view, statement))
        outside = {v.buffer for v in self.program.outputs.values() if isinstance(v, View)}
        for nest in (nest for nests in self.nests for nest in nests):
            for placed in nest.statements:
                for view in _views(placed.statement):
                    outside.add(view.buffer)
                    if any(loop_strides(view, placed)):
                        self.memory.add(view.buffer)
        for total in self.totals:
            self.memory |= {total.out.buffer, *sources(total)}
            outside |= {total.out.buffer, *sources(total)}
        self.passing: set[Buffer] = set()  # used by nobody but the loop that computes them
        for buffer, places in self.written.items():
            group, statement = places[0]
            if group is None or group.kind != "spread":
                continue
            self.memory.add(buffer)
            if len(places) == 1 and buffer not in outside:
                near = [g is group and aligned(v, s.out, statement.out) for g, v, s in readers.get(buffer, [])]
                if all(near):
                    self.passing.add(buffer)
        for buffer, found in readers.items():
            for group, view, statement in found:
                if group.kind != "every" and any(view.strides[d] for d, n in enumerate(view.shape) if n > 1):
                    self.memory.add(buffer)
        self.memory = {b for b in self.memory if not b.batch and b.values is None} - self.passing
        everywhere = {b for b, places in self.written.items() if all(g and g.kind != "spread" for g, _ in places)}
        totals = {
            s.out.buffer for stage in self.program.stages for s in stage.batch if isinstance(s, Total)
        } - {s.out.buffer for s in self.totals}
        self.registers = everywhere | totals  # kept by every thread, whether they are in memory or not
        self.homes = {buffer: buffer.name for buffer in self.memory}
        self._reuse(readers, outside)

    def _reuse(self, readers: dict[Buffer, list[tuple[Group, View, Statement]]], outside: set[Buffer]) -> None:
        """Let a new parameter or moment take the place of the old one, where nobody asks for the old one afterwards."""
        order = {id(group): number for number, group in enumerate(g for groups in self.groups for g in groups)}
        first_of = [sum(len(groups) for groups in self.groups[: k + 1]) for k in range(len(self.groups))]
        in_batch = {b: k for k, stage in enumerate(self.program.stages) for s in stage.batch for b in sources(s)}
        self.replaced: set[str] = set()
        for name, old in self.program.inputs.items():
            new = self.program.outputs.get(name)
            if not isinstance(new, View) or new.buffer not in self.memory or old.buffer not in self.memory:
                continue
            places = self.written.get(new.buffer, [])
            if len(places) != 1 or (sizes(new), new.offset) != (sizes(old), 0) or new.buffer.size != old.buffer.size:
                continue
            group, statement = places[0]
            if group is None or moves(statement.out, statement.out) != moves(old, old) != moves(new, new):
                continue
            early = in_batch.get(old.buffer, -1) < 0 or first_of[in_batch[old.buffer]] <= order[id(group)]
            calm = all(
                order[id(g)] < order[id(group)] or (g is group and aligned(v, s.out, statement.out))
                for g, v, s in readers.get(old.buffer, [])
            )
            if early and calm:
                self.homes[new.buffer] = old.buffer.name
                self.replaced.add(name)

    # ------------------------------------------------------------ text

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """``opening { ... }``; variables declared inside are forgotten after."""
        self.line(f"{opening} {{" if opening else "{")
        self.depth += 1
        self.declared.append(set())
        yield
        self.declared.pop()
        self.depth -= 1
        self.line("}")

    def assign(self, buffer: Buffer, place: int, value: str) -> str:
        """Assign to a register, declared if not seen before; its name."""
        name = f"{buffer.name}_{place}"
        if any(name in names for names in self.declared):
            self.line(f"{name} = {value};")
        else:
            self.declared[-1].add(name)
            self.line(f"{_type(buffer)} {name} = {value};")
        return name

    def call(self, statement: Map, values: list[str]) -> str:
        function = statement.function
        if function in _UNFUSED and statement.out.buffer in self.exact:
            return f"{_UNFUSED[function]}({', '.join(values)})"
        if function in _INFIX:
            return f"{values[0]} {_INFIX[function]} {values[1]}"
        if function in _PREFIX:
            return _PREFIX[function] + values[0]
        return f"{_FUNCTIONS.get(function, function)}({', '.join(values)})"

    def declare_tables(self) -> None:
        """Numbers that are the same for all members."""
        buffers = dict.fromkeys(b for s in _statements(self.program) for b in sources(s) if b.values is not None)
        for buffer in buffers:
            values = ", ".join(_number(v) for v in buffer.values or ())
            self.line(f"__constant__ {_type(buffer)} {buffer.name}[{buffer.size}] = {{{values}}};")

    def allocate(self, name: str, count: int, offset: str = "") -> None:
        """A part of the member's shared memory; aligned to 16 bytes."""
        self.line(f"float *const {name} = own + {self.floats}{offset};")
        self.floats += -(-count // 4) * 4

    def allocate_all(self) -> None:
        for buffer in dict.fromkeys(b for b in (*self.inputs_and_results(),) if b in self.memory):
            if self.homes[buffer] == buffer.name:
                self.allocate(buffer.name, buffer.size)

    def inputs_and_results(self) -> Iterator[Buffer]:
        for view in self.program.inputs.values():
            yield view.buffer
        for statement in _statements(self.program):
            yield statement.out.buffer

    # ------------------------------------------------------------ statements of the member

    def member(self, groups: list[Group]) -> None:
        for group in groups:
            if group.kind == "spread":
                self.spread(group)
            elif group.kind == "joined":
                self.joined(group.statements[0])
            else:
                self.every(group)

    def wait(self) -> None:
        """Let the threads see what the others have written."""
        self.line("together();")
        self.pending: dict[Buffer, tuple[tuple[int, ...], tuple[int, ...], int] | None] = {}
        self.asked: set[str] = set()

    def before(self, views: Iterable[View], out: View | None = None, writes: Iterable[Buffer] = ()) -> None:
        """Wait, if another thread wrote what is read now, or may still read what is written now.

        ``out``: the reading loop runs over its elements; None: every thread reads anything.
        """
        read: set[str] = set()
        waits = False
        for view in views:
            if view.buffer in self.pending:
                place = None if out is None else (sizes(out), moves(view, out), view.offset)
                waits |= self.pending[view.buffer] is None or place != self.pending[view.buffer]
            if view.buffer in self.memory and (out is None or moves(view, out) != moves(out, out)):
                read.add(self.homes[view.buffer])
        if waits or any(self.homes[buffer] in self.asked for buffer in writes if buffer in self.memory):
            self.wait()
        self.asked |= read

    def fixed(self, operand: Operand, place: int = 0) -> str:
        """An element at a place that is known."""
        if not isinstance(operand, View):
            return _number(operand)
        buffer = operand.buffer
        if buffer.values is not None:
            return f"{buffer.name}[{place}]"
        if buffer in self.memory and buffer not in self.registers:
            return f"{self.homes[buffer]}[{place}]"
        return f"{buffer.name}_{place}"

    def publish(self, buffer: Buffer, places: Iterable[int]) -> None:
        """Put what every thread has also where a loop can find it."""
        if buffer in self.memory:
            with self.block("if (thread == 0)"):
                for place in places:
                    self.line(f"{self.homes[buffer]}[{place}] = {buffer.name}_{place};")
            self.pending[buffer] = None

    def every(self, group: Group) -> None:
        for statement in group.statements:
            out, results = statement.out, []
            self.before([v for v in _views(statement)[1:] if v.buffer not in self.registers], writes=[out.buffer])
            for index in product(*map(range, out.shape)):
                place = _place(out, index)
                if isinstance(statement, Map):
                    value = self.call(statement, [self.fixed(a, _place(a, index)) for a in statement.args])
                elif isinstance(statement, Scan):
                    value = self.fixed(statement.arg, _place(statement.arg, index))
                    if index[-1]:
                        before = self.fixed(out, _place(out, (*index[:-1], index[-1] - 1)))
                        value = f"{before} {'+' if statement.function == 'sum' else '*'} {value}"
                else:
                    assert isinstance(statement, Fold)
                    inner = [(*index, *rest) for rest in product(*map(range, statement.inner))]
                    terms = [[self.fixed(a, _place(a, i)) for a in statement.args] for i in inner]
                    value = _folded(statement.function, terms)
                results.append(place)
                self.check(out.buffer, self.assign(out.buffer, place, value))
            self.publish(out.buffer, results)

    def spread(self, group: Group) -> None:
        """One loop over the elements of all statements; results are stored last, so that old values can be replaced."""
        outs = [statement.out for statement in group.statements]
        inside = {out.buffer for out in outs}
        for statement in group.statements:
            views = [v for v in _views(statement)[1:] if v.buffer not in inside]
            folds = isinstance(statement, Fold)
            self.before([v for v in views if v.buffer in self.memory], None if folds else statement.out, inside)
        with self.block(f"for (int e = thread; e < {math.prod(group.sizes)}; e += THREADS)"):
            where = len(self.lines)
            for statement in group.statements:
                self.spread_statement(statement, group, inside)
            for out in outs:
                if out.buffer not in self.passing:
                    self.line(f"{self.homes[out.buffer]}[{_moving(out, out, group.sizes)}] = {out.buffer.name}_e;")
                    self.pending[out.buffer] = (group.sizes, moves(out, out), out.offset)
            body = "\n".join(self.lines[where:])
            for axis, size in enumerate(group.sizes):
                if f"e{axis}" in body:
                    step = math.prod(group.sizes[axis + 1 :])
                    quotient = "e" if step == 1 else f"e / {step}"
                    text = f"const int e{axis} = {quotient if axis == 0 else f'({quotient}) % {size}'};"
                    self.lines.insert(where, "  " * self.depth + text)

    def spread_statement(self, statement: Statement, group: Group, inside: set[Buffer]) -> None:
        out = statement.out

        def element(operand: Operand, extra: str = "") -> str:
            if not isinstance(operand, View):
                return _number(operand)
            if operand.buffer in inside:
                return f"{operand.buffer.name}_e"
            if not any(moves(operand, out)) and not extra:
                return self.fixed(operand, operand.offset)
            return f"{self.homes.get(operand.buffer, operand.buffer.name)}[{_moving(operand, out, group.sizes)}{extra}]"

        kind, name = _type(out.buffer), f"{out.buffer.name}_e"
        if isinstance(statement, Map):
            self.line(f"const {kind} {name} = {self.call(statement, [element(a) for a in statement.args])};")
        else:
            assert isinstance(statement, Fold)
            first = len(out.shape)
            extras = [
                "".join(f" + f{d} * {stride}" for d, stride in enumerate(a.strides[first:])) if isinstance(a, View) else ""
                for a in statement.args
            ]
            self.line(f"{kind} {name} = {_number(_FOLDS[statement.function][1])};")
            loops = [f"for (int f{d} = 0; f{d} < {size}; f{d}++)" for d, size in enumerate(statement.inner)]
            terms = [element(a, extra) for a, extra in zip(statement.args, extras)]
            self.line(f"{' '.join(loops)} {name} = {_folded(statement.function, [terms], name)};")
        self.check(out.buffer, name)

    def joined(self, statement: Statement) -> None:
        """A fold to a few elements: every thread takes a part of the terms."""
        assert isinstance(statement, Fold)
        out, inner = statement.out, statement.inner
        self.before(_views(statement)[1:], writes=[out.buffer])
        results = []
        for index in product(*map(range, out.shape)):
            place = _place(out, index)
            results.append(place)
            join, neutral = _FOLDS[statement.function]
            name = self.assign(out.buffer, place, _number(neutral))
            with self.block(f"for (int e = thread; e < {math.prod(inner)}; e += THREADS)"):
                terms = []
                for a in statement.args:
                    text = _number(a) if not isinstance(a, View) else ""
                    if isinstance(a, View):
                        place_text = str(_place(a, index))
                        for d, (size, stride) in enumerate(zip(inner, a.strides[len(out.shape) :])):
                            place_text += f" + e / {math.prod(inner[d + 1 :])} % {size} * {stride}"
                        text = f"{self.homes.get(a.buffer, a.buffer.name)}[{place_text}]"
                    terms.append(text)
                self.line(f"{name} = {_folded(statement.function, [terms], name)};")
            self.line(f"{name} = over_threads<{join}>({name}, scratch);")
            self.check(out.buffer, name)
        self.publish(out.buffer, results)

    def check(self, buffer: Buffer, name: str) -> None:
        """A place to look at results of the member."""

    # ------------------------------------------------------------ statements of an example

    def own_arrays(self, nests: list[Nest]) -> set[Buffer]:
        """Values of an example that need an address: used with the index of a loop, in more than one nest."""
        seen: dict[Buffer, set[int]] = {}
        looped: set[Buffer] = set()
        for nest in nests:
            for placed in nest.statements:
                for view in _views(placed.statement):
                    seen.setdefault(view.buffer, set()).add(id(nest))
                    if any(loop_strides(view, placed)):
                        looped.add(view.buffer)
        inputs = {view.buffer for view in self.program.inputs.values()}
        return {b for b in looped if b.batch and (len(seen[b]) > 1 or b in inputs)} | set(self.tiles)

    def example(self, nests: list[Nest], arrays: set[Buffer]) -> None:
        """All statements of one example; ``arrays`` have an address."""
        self.arrays = arrays
        for nest in nests:
            self.fresh = {placed.statement.out.buffer for placed in nest.statements}
            self.nest(nest, 0)

    def nest(self, nest: Nest, depth: int) -> None:
        """Loops from ``depth`` on; running sums start before and end after the loops that they run over."""
        running = [placed for placed in nest.statements if _runs(placed) and _start(placed) == depth]
        for placed in running:
            self.start(placed)
        if depth < len(nest.loops):
            self.line(f"#pragma unroll {_unroll(nest, depth)}")
            with self.block(f"for (int {_LOOPS[depth]} = 0; {_LOOPS[depth]} < {nest.loops[depth]}; {_LOOPS[depth]}++)"):
                self.nest(nest, depth + 1)
        else:
            self.begin_iteration(nest)
            for placed in nest.statements:
                self.statement(placed)
            for placed in nest.statements:
                if not _runs(placed) or isinstance(placed.statement, Scan):
                    self.store(placed)
        for placed in running:
            if isinstance(placed.statement, Fold):
                self.finish(placed)

    def begin_iteration(self, nest: Nest) -> None:
        """A place to make what a loop over an example's random numbers needs."""

    def element(self, operand: Operand, placed: Placed, index: tuple[int, ...]) -> str:
        """An element of an operand; ``index`` has the place on each axis that is written out, and 0 on loops."""
        if not isinstance(operand, View):
            return _number(operand)
        buffer, place = operand.buffer, _place(operand, index)
        strides = loop_strides(operand, placed)
        name = f"{buffer.name}_{place}"
        here = buffer in self.fresh and any(name in names for names in self.declared)
        if buffer.values is None and (here or not self.has_address(buffer, any(strides))):
            return name
        return self.address(buffer, place, strides)

    def has_address(self, buffer: Buffer, looped: bool) -> bool:
        if buffer.batch:
            return buffer in self.arrays
        return buffer in self.memory and (looped or buffer not in self.registers)

    def address(self, buffer: Buffer, place: int, strides: tuple[int, ...]) -> str:
        terms = [f"{_LOOPS[k]} * {stride}" for k, stride in enumerate(strides) if stride]
        return f"{self.homes.get(buffer, buffer.name)}[{' + '.join([*terms, str(place)])}]"

    def statement(self, placed: Placed) -> None:
        statement, out = placed.statement, placed.statement.out
        if isinstance(statement, Map):
            for index in _written_out(placed):
                value = self.call(statement, [self.element(a, placed, index) for a in statement.args])
                self.assign(out.buffer, _place(out, index), value)
        elif isinstance(statement, Total):
            for index in _written_out(placed):
                name = f"{out.buffer.name}_{_place(out, index)}"
                value = _folded("sum", [[self.element(a, placed, index) for a in statement.args]], name)
                self.line(f"{name} = {value};")
        elif isinstance(statement, Fold):
            self.fold(placed, statement)
        else:
            self.scan(placed, statement)

    def fold(self, placed: Placed, statement: Fold) -> None:
        out = statement.out
        for index in _written_out(placed, placed.outer):
            inner = [(*index, *rest) for rest in _written_out(placed, first=placed.outer)]
            terms = [[self.element(a, placed, i) for a in statement.args] for i in inner]
            if placed.late:
                name = _running(placed, index)
                self.line(f"{name} = {_folded(statement.function, terms, name)};")
            else:
                self.assign(out.buffer, _place(out, index), _folded(statement.function, terms))

    def scan(self, placed: Placed, statement: Scan) -> None:
        sign, out = "+" if statement.function == "sum" else "*", statement.out
        for index in _written_out(placed):
            value = self.element(statement.arg, placed, index)
            if _runs(placed):
                name = _running(placed, index)
                self.line(f"{name} = {name} {sign} {value};")
                value = name
            elif index[-1]:
                value = f"{out.buffer.name}_{_place(out, (*index[:-1], index[-1] - 1))} {sign} {value}"
            self.assign(out.buffer, _place(out, index), value)

    def start(self, placed: Placed) -> None:
        statement = placed.statement
        assert isinstance(statement, Fold | Scan)
        for index in _written_out(placed, placed.outer):
            neutral = _number(_FOLDS[statement.function][1])
            self.line(f"{_type(statement.out.buffer)} {_running(placed, index)} = {neutral};")

    def finish(self, placed: Placed) -> None:
        out = placed.statement.out
        for index in _written_out(placed, placed.outer):
            name = self.assign(out.buffer, _place(out, index), _running(placed, index))
            if out.buffer in self.arrays:
                self.line(f"{self.address(out.buffer, _place(out, index), loop_strides(out, placed))} = {name};")

    def store(self, placed: Placed) -> None:
        """Results that are needed with an address."""
        out = placed.statement.out
        if out.buffer.batch and out.buffer in self.arrays:
            for index in _written_out(placed, placed.outer):
                place = _place(out, index)
                self.line(f"{self.address(out.buffer, place, loop_strides(out, placed))} = {out.buffer.name}_{place};")

    def declare_arrays(self, arrays: set[Buffer], nests: list[Nest]) -> None:
        """Memory of one example: rows of a tile that all threads can see, and arrays of the thread's own."""
        for buffer in dict.fromkeys(p.statement.out.buffer for nest in nests for p in nest.statements):
            if buffer in arrays and buffer not in self.tiles:
                self.line(f"{_type(buffer)} {buffer.name}[{buffer.size}];")

    # ------------------------------------------------------------ inputs

    def load(self, names: Iterable[str], source: str) -> None:
        """Inputs of the member from packed memory."""
        start = 0
        for buffer in (self.program.inputs[name].buffer for name in names):
            if buffer in self.memory:
                loop = f"for (int e = thread; e < {buffer.size}; e += THREADS)"
                self.line(f"{loop} {buffer.name}[e] = {source}[{start} + e];")
            else:
                for place in range(buffer.size):
                    self.assign(buffer, place, f"{source}[{start + place}]")
            start += buffer.size

    def count(self, names: Iterable[str]) -> int:
        return sum(self.program.inputs[name].buffer.size for name in names)


class _Training(_Emitter):
    """``train``: all steps of a call for every member."""

    def __init__(self, step: Step, program: Program, threads: int) -> None:
        super().__init__(program, threads)
        self.step = step
        self.rows = _rows_at_once(step)
        self.units = -(-step.batch // self.rows)
        self.moving = [f"{group}.{k}" for group in ("parameters", "first", "second") for k in step.parameters]
        self.checked = {
            v.buffer for k in step.parameters if isinstance(v := program.outputs[f"parameters.{k}"], View)
        }
        self.draws = {"uniforms": step.draws} | ({"noise": step.noise} if step.noise else {})
        self.inline: dict[int, str] = {}  # nest -> input that is drawn where it is used

    def source(self) -> Source:
        fixed = [f"constants.{name}" for name in self.step.constants] + ["rate"] + (["clip"] if self.step.clip else [])
        self.declare_tables()
        signature = (
            "float *state, const float *fixed, const u32 *seeds, const float *table, u64 stride_k, u64 stride_t, "
            "u64 stride_s, const float *corrections, u64 *diverged, int members, u64 start, int steps"
        )
        with self.block(f'extern "C" __global__ void __launch_bounds__(BLOCK) train({signature})'):
            self.line("const int thread = threadIdx.x % THREADS, place = blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;")
            self.line("const int member = place < members ? place : members - 1;  // too many threads repeat the last one")
            at = len(self.lines)
            self.allocate_all()
            self.allocate_tiles()
            self.declare_registers(fixed)
            self.step_loop()
            self.save()
            if self.floats:
                text = [
                    "extern __shared__ __align__(16) float memory[];",
                    f"float *const own = memory + threadIdx.x / THREADS * {self.floats};",
                ]
                self.lines[at:at] = ["  " + line for line in text]
        return Source("train", self.lines, self.threads, self.floats)

    def allocate_tiles(self) -> None:
        rows = self.threads * self.rows
        for buffer, stride in self.tiles.items():
            self.allocate(f"{buffer.name}_rows", rows * stride)
        warps = self.threads // 32
        if self.threads > 32:
            for number in range(len(self.nests)):
                if self.register_totals(number):
                    self.allocate(f"parts_{number}", warps * self.register_totals(number))
        joined = any(group.kind == "joined" for groups in self.groups for group in groups)
        if joined and self.threads > 32:
            self.allocate("scratch", warps)
        elif joined:
            self.line("float *const scratch = nullptr;")

    def register_totals(self, number: int) -> int:
        return sum(s.out.buffer.size for s in self.small_totals(number))

    def small_totals(self, number: int) -> list[Total]:
        return [s for s in self.program.stages[number].batch if isinstance(s, Total) and s not in self.totals]

    def declare_registers(self, fixed: list[str]) -> None:
        self.line(f"Stream data = {{seeds[member], {int(Domain.TRAIN)}}};")
        if self.step.noise:
            self.line(f"Stream noise = {{seeds[member], {int(Domain.NOISE)}}};")
        self.line(f"fixed += u64(member) * {self.count(fixed)}, state += u64(member) * {self.count(self.moving)};")
        self.load(fixed, "fixed")
        self.load(self.moving, "state")
        self.line("u64 diverged_at = ~0ull;")
        for name in self.per_step():
            buffer = self.program.inputs[name].buffer
            for place in range(buffer.size):
                self.line(f"float next_{buffer.name}_{place} = {self.per_step_source(name, place, '0')};")
        if self.memory:
            self.line("together();")

    def per_step(self) -> list[str]:
        return [*(["weights"] if self.step.penalties else []), "correction"]

    def per_step_source(self, name: str, place: int, t: str) -> str:
        if name == "correction":
            return f"corrections[2 * {t} + {place}]"
        return f"table[{place} * stride_k + {t} * stride_t + member * stride_s]"

    def step_loop(self) -> None:
        self.pending, self.asked = {}, set()
        with self.block("for (int t = 0; t < steps; t++)"):
            self.line("data.start(start + t);")
            if self.step.noise:
                self.line("noise.start(start + t);")
            self.line("const int then = t + 1 < steps ? t + 1 : t;  // read ahead: memory is far")
            for name in self.per_step():
                buffer = self.program.inputs[name].buffer
                for place in range(buffer.size):
                    self.assign(buffer, place, f"next_{buffer.name}_{place}")
                    self.line(f"next_{buffer.name}_{place} = {self.per_step_source(name, place, 'then')};")
                self.registers.add(buffer)
                self.publish(buffer, range(buffer.size))
            self.line("bool finite = true;")
            for number, groups in enumerate(self.groups):
                self.member(groups)
                if self.program.stages[number].batch:
                    self.batch(number)
            self.update()
            self.line("if (!finite && diverged_at == ~0ull) diverged_at = start + t;")
            if self.floats:
                self.wait()

    # ------------------------------------------------------------ the batch

    def batch(self, number: int) -> None:
        """One pass over the examples, and the sums over them."""
        nests = self.nests[number]
        views = [v for s in self.program.stages[number].batch for v in _views(s) if not v.buffer.batch]
        totals = self.small_totals(number)
        self.before([v for v in views if v.buffer in self.memory and v.buffer not in {t.out.buffer for t in totals}])
        for total in totals:
            for place in range(total.out.buffer.size):
                self.assign(total.out.buffer, place, "0.0f")
        large = [s for s in self.totals if s in self.program.stages[number].batch]
        if large:
            self.tiled(number, nests, large)
        else:
            if self.units > self.threads:
                self.line(f"#pragma unroll {_unroll_rows(nests, self.units // self.threads)}")
            with self.block(f"for (int unit = thread; unit < {self.units}; unit += THREADS)"):
                self.unit(nests)
            if totals and self.threads > 32:
                self.leave_parts(number)
                self.wait()
        self.join_totals(number)
        for total in totals:
            self.publish(total.out.buffer, range(total.out.buffer.size))

    def tiled(self, number: int, nests: list[Nest], large: list[Total]) -> None:
        """As many examples at a time as there are threads; then every thread adds up its columns."""
        rows = self.threads * self.rows
        slabs = -(-self.step.batch // rows)
        with self.block(f"for (int slab = 0; slab < {slabs}; slab++)" if slabs > 1 else ""):
            self.line(f"const int unit = {'slab * THREADS + ' if slabs > 1 else ''}thread;")
            with self.block("" if self.units % self.threads == 0 else f"if (unit < {self.units})"):
                self.unit(nests)
            if slabs == 1 and self.small_totals(number) and self.threads > 32:
                self.leave_parts(number)
            self.wait()
            last = self.step.batch - (slabs - 1) * rows
            count = str(rows) if last == rows else f"(slab == {slabs - 1} ? {last} : {rows})" if slabs > 1 else str(last)
            for total in large:
                self.columns(total, count, slabs > 1)
            if slabs > 1 or any(self.nests[number + 1 :]):
                self.wait()
        if slabs > 1 and self.small_totals(number) and self.threads > 32:
            self.leave_parts(number)
            self.wait()

    def unit(self, nests: list[Nest]) -> None:
        """The examples whose random numbers are drawn together."""
        used = {b for nest in nests for p in nest.statements for b in sources(p.statement)} | set(self.tiles)
        inputs = {k: self.program.inputs[k].buffer for k in self.draws if self.program.inputs[k].buffer in used}
        arrays = self.own_arrays(nests)
        together = {k for k, buffer in inputs.items() if buffer not in arrays and self.rows * self.draws[k] % 4 == 0}
        for name in together:
            self.draw_together(name)
        several = self.rows > 1
        with self.block(f"UNROLL for (int r = 0; r < {self.rows}; r++)" if several else ""):
            self.line(f"const int row = unit * {self.rows} + r;" if several else "const int row = unit;")
            with self.block(f"if (row < {self.step.batch})" if several and self.step.batch % self.rows else ""):
                for buffer, stride in self.tiles.items():
                    local = f"(thread * {self.rows} + r)" if several else "thread"
                    self.line(f"float *const {buffer.name} = {buffer.name}_rows + {local} * {stride};")
                self.inline = {}
                for name, buffer in inputs.items():
                    if name in together:
                        first = f"r * {buffer.size} + " if several else ""
                        for place in range(buffer.size):
                            self.assign(buffer, place, f"{name}_drawn[{first}{place}]")
                    elif buffer in arrays and buffer not in self.tiles and (nest := self.single_loop(buffer, nests)):
                        self.inline[id(nest)] = name
                        arrays = arrays - {buffer}
                    else:
                        self.draw_row(name)
                        for place in range(buffer.size) if buffer not in arrays else ():
                            self.assign(buffer, place, f"{buffer.name}[{place}]")
                self.declare_arrays(arrays, nests)
                self.example(nests, arrays)

    def draw_together(self, name: str) -> None:
        """Few numbers: those of all examples of the unit, into registers."""
        numbers, stream = self.rows * self.draws[name], "data" if name == "uniforms" else "noise"
        blocks = -(-numbers // 4)
        self.line(f"float {name}_drawn[{4 * blocks}];")
        self.line(f"UNROLL for (int q = 0; q < {blocks}; q++) {stream}.draw(unit * {blocks} + q, {name}_drawn + 4 * q);")

    def draw_row(self, name: str) -> None:
        """Many numbers: those of one example, into an array; a block of four may reach into the neighbours."""
        width, stream = self.draws[name], "data" if name == "uniforms" else "noise"
        buffer = self.program.inputs[name].buffer
        if buffer not in self.tiles:
            self.line(f"float {buffer.name}[{width}];")
        with self.block(f"for (int q = row * {width} / 4; q <= (row * {width} + {width - 1}) / 4; q++)"):
            self.line("float four[4];")
            self.line(f"{stream}.draw(q, four);")
            with self.block("UNROLL for (int k = 0; k < 4; k++)"):
                self.line(f"const int place = 4 * q + k - row * {width};")
                self.line(f"if (place >= 0 && place < {width}) {buffer.name}[place] = four[k];")

    def single_loop(self, buffer: Buffer, nests: list[Nest]) -> Nest | None:
        """The nest that alone uses the random numbers, four after four, if there is one."""
        found = [
            (nest, placed, view)
            for nest in nests
            for placed in nest.statements
            for view in _views(placed.statement)
            if view.buffer is buffer
        ]
        nest = found[0][0]
        good = buffer.size % 4 == 0 and nest.loops == (buffer.size // 4,) and all(n is nest for n, _, _ in found)
        for _, placed, view in found:
            reached = {_place(view, index) for index in _written_out(placed)}
            good = good and loop_strides(view, placed) == (4,) and reached <= {0, 1, 2, 3}
        return nest if good else None

    def begin_iteration(self, nest: Nest) -> None:
        name = self.inline.get(id(nest))
        if name is not None:
            buffer, stream = self.program.inputs[name].buffer, "data" if name == "uniforms" else "noise"
            self.line(f"float {name}_four[4];")
            self.line(f"{stream}.draw(row * {buffer.size // 4} + {_LOOPS[0]}, {name}_four);")
            for place in range(4):
                self.assign(buffer, place, f"{name}_four[{place}]")
            self.fresh = self.fresh | {buffer}

    # ------------------------------------------------------------ sums over the batch

    def leave_parts(self, number: int) -> None:
        """Every warp leaves its part of the sums."""
        count = self.register_totals(number)
        names = [f"{s.out.buffer.name}_{place}" for s in self.small_totals(number) for place in range(s.out.buffer.size)]
        for name in names:
            self.line(f"{name} = over_warp<add>({name});")
        with self.block("if (thread % 32 == 0)"):
            for k, name in enumerate(names):
                self.line(f"parts_{number}[thread / 32 * {count} + {k}] = {name};")

    def join_totals(self, number: int) -> None:
        count = self.register_totals(number)
        names = [f"{s.out.buffer.name}_{place}" for s in self.small_totals(number) for place in range(s.out.buffer.size)]
        for k, name in enumerate(names):
            parts = [f"parts_{number}[{warp * count + k}]" for warp in range(self.threads // 32)]
            self.line(f"{name} = {' + '.join(parts) if self.threads > 32 else f'over_warp<add>({name})'};")

    def columns(self, total: Total, count: str, continues: bool) -> None:
        """A sum of many elements: each thread takes some, over all rows of the tile."""
        out = total.out
        dimensions = sizes(out)
        longest = dimensions.index(max(dimensions))
        others = math.prod(dimensions) // dimensions[longest]
        if others > COLUMNS:
            indices: list[tuple[str | int, ...]] = [
                tuple(f"(e / {math.prod(dimensions[d + 1 :])}) % {size}" for d, size in enumerate(dimensions))
            ]
            length = math.prod(dimensions)
        else:
            spans = [("e",) if d == longest else range(size) for d, size in enumerate(dimensions)]
            indices, length = list(product(*spans)), dimensions[longest]

        def element(operand: Operand, index: Sequence[str | int]) -> str:
            if not isinstance(operand, View):
                return _number(operand)
            place = _sum_text([(at, step) for at, step in zip(index, moves(operand, out))], operand.offset)
            if operand.buffer in self.tiles:
                return f"{operand.buffer.name}_rows[row * {self.tiles[operand.buffer]} + {place}]"
            if place.isdigit():
                return self.fixed(operand, int(place))
            return f"{self.homes.get(operand.buffer, operand.buffer.name)}[{place}]"

        with self.block(f"for (int e = thread; e < {length}; e += THREADS)"):
            for k in range(len(indices)):
                self.line(f"float sum_{k} = 0.0f;")
            self.line("#pragma unroll 8")
            with self.block(f"for (int row = 0; row < {count}; row++)"):
                for k, index in enumerate(indices):
                    term = [element(a, index) for a in total.args]
                    self.line(f"sum_{k} = {_folded('sum', [term], f'sum_{k}')};")
            for k, index in enumerate(indices):
                target = element(out, index)
                self.line(f"{target} = {f'(slab ? {target} : 0.0f) + ' if continues else ''}sum_{k};")
        self.pending[out.buffer] = None

    # ------------------------------------------------------------ the end of a step

    def check(self, buffer: Buffer, name: str) -> None:
        if buffer in self.checked:
            self.line(f"finite = finite && is_finite({name});")

    def update(self) -> None:
        """Outputs become the next step's inputs."""
        late: list[tuple[Buffer, int, str]] = []
        for name in self.moving:
            new, old = self.program.outputs[name], self.program.inputs[name]
            if name in self.replaced or (isinstance(new, View) and new.buffer is old.buffer):
                continue
            if isinstance(new, View) and new.buffer in {view.buffer for view in self.program.inputs.values()}:
                raise NotLowered(f"the new value of {name} is the old one of another")
            if old.buffer in self.memory:
                copy = Map(old, "copy", (new,))
                self.written[old.buffer] = []
                self.asked.add(self.homes[old.buffer])
                self.spread(Group("spread", sizes(old), [copy]))
            else:
                if isinstance(new, View) and new.buffer in self.pending and new.buffer not in self.registers:
                    self.wait()
                for index in product(*map(range, old.shape)):
                    late.append((old.buffer, _place(old, index), self.fixed(new, _place(new, index))))
        for buffer, place, value in late:
            self.assign(buffer, place, value)

    def save(self) -> None:
        with self.block("if (place < members)"):
            start = 0
            for buffer in (self.program.inputs[name].buffer for name in self.moving):
                if buffer in self.memory:
                    loop = f"for (int e = thread; e < {buffer.size}; e += THREADS)"
                    self.line(f"{loop} state[{start} + e] = {buffer.name}[e];")
                else:
                    with self.block("if (thread == 0)"):
                        for place in range(buffer.size):
                            self.line(f"state[{start + place}] = {buffer.name}_{place};")
                start += buffer.size
            self.line("if (diverged_at != ~0ull) atomicMin(diverged + member, diverged_at);  // -1 is the largest")


class _Evaluation(_Emitter):
    """``evaluate``: the mean loss of every member on the same numbers."""

    def source(self) -> Source:
        fixed = [name for name in self.program.inputs if name != "uniforms"]
        loss = self.program.outputs["loss"]
        self.declare_tables()
        signature = "float *losses, const float *fixed, const float *numbers, int members, int count"
        with self.block(f'extern "C" __global__ void __launch_bounds__(BLOCK) evaluate({signature})'):
            self.line("const int thread = threadIdx.x, member = blockIdx.x;")
            self.line("__shared__ double parts[THREADS / 32];")
            at = len(self.lines)
            self.allocate_all()
            if any(group.kind == "joined" for group in self.groups[0]):
                self.allocate("scratch", self.threads // 32)
            self.line(f"fixed += u64(member) * {self.count(fixed)};")
            self.load(fixed, "fixed")
            if self.memory:
                self.line("together();")
            self.pending, self.asked = {}, set()
            self.member(self.groups[0])
            self.before([v for s in self.program.stages[0].batch for v in _views(s) if v.buffer in self.memory])
            self.line("double sum = 0;")
            self.line(f"#pragma unroll {_unroll_rows(self.nests[0], 8)}")
            with self.block("for (int row = thread; row < count; row += THREADS)"):
                buffer = self.program.inputs["uniforms"].buffer
                arrays = self.own_arrays(self.nests[0])
                if buffer not in arrays:
                    for place in range(buffer.size):
                        self.assign(buffer, place, f"numbers[{place} * count + row]")
                self.declare_arrays(arrays, self.nests[0])
                self.example(self.nests[0], arrays)
                self.line(f"sum += double({self.final(loss)});")
            self.line("UNROLL for (int distance = 16; distance > 0; distance /= 2)")
            self.line("  sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);")
            self.line("if (thread % 32 == 0) parts[thread / 32] = sum;")
            self.line("together();")
            with self.block("if (thread == 0)"):
                self.line("UNROLL for (int warp = 1; warp < THREADS / 32; warp++) sum += parts[warp];")
                self.line("losses[member] = float(sum / count);")
            if self.floats:
                text = ["extern __shared__ __align__(16) float memory[];", "float *const own = memory;"]
                self.lines[at:at] = ["  " + line for line in text]
        return Source("evaluate", self.lines, self.threads, self.floats)

    def final(self, loss: Operand) -> str:
        if isinstance(loss, View) and loss.buffer.batch and loss.buffer in self.arrays:
            return f"{loss.buffer.name}[{loss.offset}]"
        return self.fixed(loss, loss.offset if isinstance(loss, View) else 0)

    def address(self, buffer: Buffer, place: int, strides: tuple[int, ...]) -> str:
        if buffer is not self.program.inputs["uniforms"].buffer:
            return super().address(buffer, place, strides)
        terms = [f"{_LOOPS[k]} * {stride}" for k, stride in enumerate(strides) if stride]
        return f"numbers[({' + '.join([*terms, str(place)])}) * count + row]"


# ---------------------------------------------------------------- helpers

_LOOPS = "ijklm"
COLUMNS = 16
"""Elements of a sum over the batch that a thread adds up side by side."""


def _statements(program: Program) -> list[Statement]:
    return [s for stage in program.stages for s in (*stage.member, *stage.batch)]


def _views(statement: Statement) -> list[View]:
    """What a statement writes, then what it reads."""
    return [statement.out, *(a for a in operands(statement) if isinstance(a, View))]


def _place(operand: Operand, index: Sequence[int]) -> int:
    """Where in its buffer an element of a view is; 0 for a number."""
    return operand.offset + sum(i * s for i, s in zip(index, operand.strides)) if isinstance(operand, View) else 0


def _moving(view: View, out: View, dimensions: tuple[int, ...]) -> str:
    """Where an element of ``view`` is in a loop with the index ``e`` over the elements of ``out``."""
    strides = moves(view, out)
    dense = tuple(math.prod(dimensions[d + 1 :]) for d in range(len(dimensions)))
    if strides == dense:
        return _sum_text([("e", 1)], view.offset)
    return _sum_text([(f"e{d}", stride) for d, stride in enumerate(strides)], view.offset)


def _sum_text(terms: Iterable[tuple[str | int, int]], offset: int) -> str:
    """offset + Σ index * stride as text; what is known is added up."""
    texts = []
    for index, stride in terms:
        if isinstance(index, int):
            offset += index * stride
        elif stride:
            texts.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join([*texts, str(offset)] if offset or not texts else texts).replace("+ -", "- ")


def _row_stride(size: int) -> int:
    """Distance of two rows in shared memory: threads that write a row each, or read one row, use different banks."""
    if size % 4 == 0:
        return size if size // 4 % 2 else size + 4
    return size if size == 2 else size | 1


def _runs(placed: Placed) -> bool:
    """Whether a fold or scan goes over loops, so that it needs a variable that lives longer than an iteration."""
    if isinstance(placed.statement, Scan):
        return placed.loops[-1] is not None
    return isinstance(placed.statement, Fold) and placed.late


def _start(placed: Placed) -> int:
    """How many of the nest's loops are outside of what runs."""
    outer = placed.outer - 1 if isinstance(placed.statement, Scan) else placed.outer
    return sum(loop is not None for loop in placed.loops[:outer])


def _running(placed: Placed, index: tuple[int, ...]) -> str:
    """Name of the running sum or product that leads to an element of the output."""
    return f"{placed.statement.out.buffer.name}_run_{_place(placed.statement.out, index)}"


def _written_out(placed: Placed, last: int | None = None, *, first: int = 0) -> Iterator[tuple[int, ...]]:
    """All places on the axes first, ..., last - 1 that are written out; loops count from 0 by themselves."""
    axes = list(zip(placed.sizes, placed.loops))[first:last]
    return product(*(range(size) if loop is None else (0,) for size, loop in axes))


def _unroll(nest: Nest, depth: int) -> int:
    """How many iterations of a loop over an example's elements are written side by side."""
    return 5 if depth == len(nest.loops) - 1 and nest.loops[depth] % 5 == 0 else 4 if depth == len(nest.loops) - 1 else 1


def _unroll_rows(nests: list[Nest], trips: int) -> int:
    """How many examples of a thread are computed side by side: more for less work, to hide latencies."""
    work = sum(len(list(_written_out(p))) for nest in nests for p in nest.statements)
    return min(trips, 1 if any(nest.loops for nest in nests) or work > 120 else 2 if work > 40 else 4)


def _type(buffer: Buffer) -> str:
    return buffer.kind


def _number(value: float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if math.isnan(value):
        return "__int_as_float(0x7fffffff)"
    if math.isinf(value):
        return f"__int_as_float({'0x7f800000' if value > 0 else '0xff800000'})"
    text = f"{torch.tensor(value, dtype=torch.float32).item():.9g}"
    text = f"{text if any(c in text for c in '.e') else text + '.0'}f"
    return f"({text})" if value < 0 else text


def _folded(function: str, terms: list[list[str]], start: str | None = None) -> str:
    """Terms put together from left to right; products are fused with the sum."""
    join, _ = _FOLDS[function]
    result = start
    for term in terms:
        value = " * ".join(term)
        if result is None:
            result = value
        elif function == "sum" and len(term) == 2:
            result = f"fmaf({term[0]}, {term[1]}, {result})"
        elif function in ("sum", "prod"):
            result = f"{result} {'+' if function == 'sum' else '*'} {value}"
        else:
            result = f"{join}({result}, {value})"
    assert result is not None
    return result
