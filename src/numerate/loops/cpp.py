"""Emit a program of the intermediate form as one C++ training loop, and run it.

One lane of a vector is one member; the loop over the batch takes four examples at a time (a ``Block``); parameters and
moments stay in the nearest cache for all steps of a call. Emitted text uses the names and functions of ``prelude.hpp``:
``V`` is a number of each member, ``B`` one of each member for four examples, ``M`` and ``BM`` are truth values.
"""

import ctypes
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import Tensor

from numerate.loops import native
from numerate.loops.ir import Buffer, Fold, Map, Operand, Program, Scan, Stage, Total, View, operands, sources
from numerate.loops.kept import kept
from numerate.loops.lower import lower
from numerate.loops.nests import UNROLLED, Nest, Placed, arrange_loops, loop_strides
from numerate.loops.step import Members, State, Step, Tensors, corrections
from numerate.loops.trace import NotLowered, evaluation, training_step
from numerate.streams import Domain

EXAMPLES = 4
"""Examples in a block of the prelude."""
NEAR = 24 * 1024
"""Bytes that stay in the nearest cache."""
LARGE = 64
"""Arrays of more vectors than this lie in static memory rather than on the stack of a thread."""

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "logical_and": "&", "logical_or": "|", "logical_xor": "^",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
}  # fmt: skip
_PREFIX = {"copy": "", "neg": "-", "logical_not": "~"}
_NEUTRAL: dict[str, float | bool] = {
    "sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf, "and": True, "or": False
}  # fmt: skip

_JOINED = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "and": "logical_and", "or": "logical_or"}


class Cpp:
    """Emitted native loop; the same two methods as every :class:`~numerate.loops.step.Loop`.

    Raises :class:`~numerate.loops.trace.NotLowered` or :class:`~numerate.loops.native.NoCompiler` where this loop
    cannot be had; another loop then can.
    """

    def __init__(self, step: Step, threads: int | None = None) -> None:
        self.step, self.threads = step, threads
        self.source: str = kept(step.name, "C++", lambda: {"source": source(step)})["source"]
        self.library = native.library(self.source)
        self.lanes: int = self.library.lanes()

    def train(self, state: State, members: Members, weights: Tensor, steps: int) -> None:
        groups = [state.parameters, state.first, state.second]
        packed = self._pack([group[name] for group in groups for name in self.step.parameters])
        fixed = [*(members.constants[name] for name in self.step.constants), members.rate]
        if self.step.clip is not None:
            fixed.append(torch.full_like(members.rate, math.inf) if members.clip is None else members.clip)
        arguments = (
            self._pack([members.seeds.to(torch.int32)]),
            self._pack(fixed),
            self._pack([weights.permute(2, 1, 0)]),
            corrections(self.step, state.step, steps),
            packed,
            diverged := self._pack([state.diverged]),
        )

        def run(first: int, last: int) -> None:
            counts = (ctypes.c_int64(n) for n in (first, last, state.step, steps))
            self.library.train(*counts, *map(native.pointer, arguments))

        native.over_parts(run, len(packed), self.threads)
        targets = [group[name] for group in groups for name in self.step.parameters]
        for target, value in zip(targets, self._unpack(packed, targets)):
            target.copy_(value)
        state.diverged.copy_(next(self._unpack(diverged, [state.diverged])))
        state.step += steps

    def evaluate(self, parameters: Tensors, constants: Tensors, uniforms: Tensor) -> Tensor:
        own = [parameters[name] for name in self.step.parameters]
        given = [constants[name] for name in self.step.constants]
        fixed, count = _flat([*own, *given]).float(), len(uniforms)
        alike = _alike(_flat(given) if given else torch.zeros(len(fixed), 1))
        table = torch.nn.functional.pad(uniforms.float().t(), (0, -count % (EXAMPLES * self.lanes))).contiguous()
        sums = torch.zeros(len(fixed), dtype=torch.float64)

        def run(first: int, last: int) -> None:
            counts = (ctypes.c_int64(n) for n in (first, last, count, table.shape[1]))
            self.library.evaluate(*counts, *map(native.pointer, (table, fixed, alike, sums)))

        native.over_parts(run, len(fixed), self.threads)
        return (sums / count).float()

    def _pack(self, tensors: list[Tensor]) -> Tensor:
        """(S, ...) each -> (groups, numbers, lanes), one vector per number; the last member fills up the last group."""
        flat = _flat(tensors)
        padding = flat[-1:].expand(-len(flat) % self.lanes, -1)
        return torch.cat([flat, padding]).unflatten(0, (-1, self.lanes)).transpose(1, 2).contiguous()

    def _unpack(self, packed: Tensor, like: list[Tensor]) -> Iterator[Tensor]:
        """Undo :meth:`_pack`."""
        members = len(like[0])
        flat = packed.transpose(1, 2).flatten(0, 1)[:members]
        for tensor, piece in zip(like, flat.split([tensor[0].numel() for tensor in like], -1)):
            yield piece.reshape(tensor.shape)


def _flat(tensors: list[Tensor]) -> Tensor:
    """(S, ...) each -> (S, numbers)"""
    return torch.cat([tensor.detach().reshape(len(tensor), -1) for tensor in tensors], -1)


def _alike(rows: Tensor) -> Tensor:
    """For each row, where the next different one is."""
    changes = (rows[1:] != rows[:-1]).any(-1).nonzero().flatten() + 1
    edges = torch.cat([changes.new_zeros(1), changes, changes.new_full((1,), len(rows))])
    return edges[1:].repeat_interleave(edges.diff())


def source(step: Step) -> str:
    """The C++ source of both loops of a step."""
    return emit(step, lower(training_step(step)), lower(evaluation(step)))


def emit(step: Step, training: Program, evaluating: Program) -> str:
    """The C++ source of both loops."""
    if any(isinstance(s, Total) for stage in evaluating.stages for s in stage.batch):
        raise NotLowered("evaluation with statistics of the batch")
    loops = _Training(step, training), _Evaluation(step, evaluating)
    return "\n".join(['#include "prelude.hpp"', *(line for loop in loops for line in ("", *loop.lines))])


class _Emitter:
    """Statements of a program as lines of C++."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.depth = 0
        self.declared: list[set[str]] = [set()]
        self.nests = [(arrange_loops(stage.member), arrange_loops(stage.batch)) for stage in program.stages]

    # ------------------------------------------------------------ text

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """``opening { ... }``; variables declared inside are forgotten after."""
        self.line(opening + " {")
        self.depth += 1
        self.declared.append(set())
        yield
        self.declared.pop()
        self.depth -= 1
        self.line("}")

    def assign(self, target: str, buffer: Buffer, value: str) -> None:
        """Assign to an element, and declare it if it is a variable not seen before."""
        known = "[" in target or any(target in names for names in self.declared)
        if not known:
            self.declared[-1].add(target)
        self.line(f"{target} = {value};" if known else f"{_type(buffer)} {target} = {value};")

    # ------------------------------------------------------------ storage

    @cached_property
    def arrays(self) -> set[Buffer]:
        """Buffers that need an address: used with the index of a loop, and in more than one nest."""
        home: dict[Buffer, set[int]] = {}
        looped: set[Buffer] = set()
        for nest in (nest for pair in self.nests for nests in pair for nest in nests):
            for placed in nest.statements:
                for view in _views(placed):
                    home.setdefault(view.buffer, set()).add(id(nest))
                    if any(loop_strides(view, placed)):
                        looped.add(view.buffer)
        named = [*self.program.inputs.values(), *(v for v in self.program.outputs.values() if isinstance(v, View))]
        outside = {view.buffer for view in named}
        totals = {s.out.buffer for stage in self.program.stages for s in stage.batch if isinstance(s, Total)}
        return {b for b in looped if b in outside or b in totals or b.values is not None or len(home[b]) > 1}

    def declare_arrays(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            if buffer in self.arrays and buffer.values is None:
                static = "static thread_local " if buffer.size * (EXAMPLES if buffer.batch else 1) > LARGE else ""
                self.line(f"{static}{_type(buffer)} {buffer.name}[{buffer.size}];")

    def declare_tables(self) -> None:
        """Numbers that are the same for all members."""
        views = [v for s in _statements(self.program) for v in operands(s) if isinstance(v, View)]
        for buffer in dict.fromkeys(view.buffer for view in views if view.buffer.values is not None):
            kind = "bool" if buffer.kind == "bool" else "float"
            values = ", ".join(_number(v) if kind == "float" else str(v).lower() for v in buffer.values or ())
            self.line(f"static const {kind} {buffer.name}[{buffer.size}] = {{{values}}};")

    def element(self, view: View, placed: Placed, index: tuple[int, ...]) -> str:
        """An element of a view; ``index`` has the place on each axis that is written out, and 0 on loops."""
        place = view.offset + sum(i * stride for i, stride in zip(index, view.strides))
        return self.at(view.buffer, place, loop_strides(view, placed))

    def at(self, buffer: Buffer, place: int, moves: tuple[int, ...] = ()) -> str:
        if buffer not in self.arrays and buffer.values is None:
            return f"{buffer.name}_{place}"
        terms = [f"{'ijklm'[k]} * {move}" if move != 1 else "ijklm"[k] for k, move in enumerate(moves) if move]
        where = " + ".join([*terms, str(place)] if place or not terms else terms).replace("+ -", "- ")
        return f"c({buffer.name}[{where}])" if buffer.values is not None else f"{buffer.name}[{where}]"

    def operand(self, operand: Operand, placed: Placed, index: tuple[int, ...]) -> str:
        return self.element(operand, placed, index) if isinstance(operand, View) else _constant(operand)

    # ------------------------------------------------------------ statements

    def region(self, nests: list[Nest]) -> None:
        for nest in nests:
            self.nest(nest, 0)

    def nest(self, nest: Nest, depth: int) -> None:
        """Loops from ``depth`` on; running sums start before and end after the loops that they run over."""
        running = [placed for placed in nest.statements if placed.runs and placed.start == depth]
        for placed in running:
            self.start(placed)
        if depth < len(nest.loops):
            name = "ijklm"[depth]
            with self.block(f"for (int {name} = 0; {name} < {nest.loops[depth]}; {name}++)"):
                self.nest(nest, depth + 1)
        else:
            for placed in nest.statements:
                self.statement(placed)
        for placed in running:
            self.finish(placed)

    def statement(self, placed: Placed) -> None:
        statement = placed.statement
        if isinstance(statement, Map):
            for index in placed.written_out():
                value = _call(statement.function, [self.operand(a, placed, index) for a in statement.args])
                self.assign(self.element(statement.out, placed, index), statement.out.buffer, value)
        elif isinstance(statement, Total):
            for index in placed.written_out():
                value = self.total([self.operand(a, placed, index) for a in statement.args])
                self.line(f"{self.element(statement.out, placed, index)} += {value};")
        elif isinstance(statement, Fold):
            self.fold(placed, statement)
        else:
            self.scan(placed, statement)

    def fold(self, placed: Placed, statement: Fold) -> None:
        for index in placed.written_out(placed.outer):
            inner = [(*index, *rest) for rest in placed.written_out(first=placed.outer)]
            terms = [[self.operand(a, placed, i) for a in statement.args] for i in inner]
            if placed.late:
                name = self.running(placed, index)
                self.line(f"{name} = {_folded(statement.function, terms, name)};")
            else:
                self.assign(
                    self.element(statement.out, placed, index), statement.out.buffer, _folded(statement.function, terms)
                )

    def scan(self, placed: Placed, statement: Scan) -> None:
        sign = _INFIX["add" if statement.function == "sum" else "mul"]
        for index in placed.written_out():
            value = self.operand(statement.arg, placed, index)
            target = self.element(statement.out, placed, index)
            if placed.runs:
                name = self.running(placed, index)
                self.line(f"{name} = {name} {sign} {value};")
                value = name
            elif index[-1]:
                value = f"{self.element(statement.out, placed, (*index[:-1], index[-1] - 1))} {sign} {value}"
            self.assign(target, statement.out.buffer, value)

    def running(self, placed: Placed, index: tuple[int, ...]) -> str:
        """Name of the running sum or product that leads to an element of the output."""
        view = placed.statement.out
        place = view.offset + sum(i * stride for i, stride in zip(index, view.strides))
        return f"{view.buffer.name}_run_{place}"

    def start(self, placed: Placed) -> None:
        statement = placed.statement
        assert isinstance(statement, (Fold, Scan))
        for index in placed.written_out(placed.outer):
            neutral = _constant(_NEUTRAL[statement.function])
            self.line(f"{_type(statement.out.buffer)} {self.running(placed, index)} = {neutral};")

    def finish(self, placed: Placed) -> None:
        if isinstance(placed.statement, Fold):
            for index in placed.written_out(placed.outer):
                out = placed.statement.out
                self.assign(self.element(out, placed, index), out.buffer, self.running(placed, index))

    def total(self, values: list[str]) -> str:
        return f"total({', '.join(f'B({value})' for value in values)})"

    # ------------------------------------------------------------ what both loops need

    def load(self, names: Iterable[str], source: str) -> None:
        """Copy inputs from packed memory, one vector after the other."""
        start = 0
        for view in (self.program.inputs[name] for name in names):
            self.each(view.buffer, f"load({source} + ({{place}}) * LANES)", start)
            start += view.buffer.size

    def each(self, buffer: Buffer, value: str, start: int = 0) -> None:
        """Assign ``value`` to all elements of a buffer."""
        if buffer in self.arrays:
            with self.block(f"for (int i = 0; i < {buffer.size}; i++)"):
                self.line(f"{buffer.name}[i] = {value.format(place=f'{start} + i', index='i')};")
        else:
            for index in range(buffer.size):
                self.assign(f"{buffer.name}_{index}", buffer, value.format(place=start + index, index=index))

    def size(self, names: Iterable[str]) -> int:
        return sum(self.program.inputs[name].buffer.size for name in names)


class _Training(_Emitter):
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
            for name, stream in (("uniforms", "data"), ("noise", "noise")):
                if name in self.program.inputs and self.program.inputs[name].buffer in used:
                    self.draw(self.program.inputs[name].buffer, stream)
            self.declare_arrays(dict.fromkeys(s.out.buffer for s in stage.batch if s.out.buffer.batch))
            self.region(batch)

    def draw(self, buffer: Buffer, stream: str) -> None:
        """The random numbers of a block; those of one example lie together in the stream."""
        count, name = buffer.size, f"{stream}_drawn"
        self.line(f"V {name}[{EXAMPLES * count}];")
        if count <= UNROLLED:
            for i in range(count):
                self.line(f"{stream}.draw(b / 4 * {count} + {i}, {name} + {4 * i});")
        else:
            self.line(f"for (int i = 0; i < {count}; i++) {stream}.draw(b / 4 * {count} + i, {name} + 4 * i);")
        self.declare_arrays([buffer])
        self.each(buffer, f"gather({name} + {{index}}, {count})")

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


class _Evaluation(_Emitter):
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
            "int64_t first, int64_t last, int64_t count, int64_t padded, const float *numbers, const float *fixed, "
            "const int64_t *alike, double *sums"
        )
        self.line("// Sums of the loss on `count` examples made from the table `numbers`, which has `padded` columns.")
        self.line("// Members m, ..., alike[m] - 1 have the same constants.")
        with self.block(f'extern "C" void evaluate({signature})'):
            self.declare_tables()
            for buffer in self.kept:
                self.line(f"static thread_local {_type(buffer)} {buffer.name}_kept[{self.blocks} * {buffer.size}];")
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
                            value = self.at(loss.buffer, loss.offset) if isinstance(loss, View) else _constant(loss)
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
            self.declare_arrays([self.uniforms])
            self.each(self.uniforms, "adjacent(numbers + ({index}) * padded + b)")

    def place(self, buffer: Buffer, index: int = 0) -> str:
        return f"{buffer.name}_kept[(b - chunk) / EXAMPLES * {buffer.size} + {index}]"

    def place_kept(self) -> None:
        """Kept arrays are used where they lie, ..."""
        for buffer in self.kept:
            if buffer in self.arrays:
                self.line(f"{_type(buffer)} *const {buffer.name} = &{self.place(buffer)};")

    def keep(self) -> list[tuple[Buffer, int]]:
        """... kept variables are copied there."""
        known = set().union(*self.declared)
        loose = [(b, i) for b in self.kept if b not in self.arrays for i in range(b.size) if f"{b.name}_{i}" in known]
        for buffer, index in loose:
            self.line(f"{self.place(buffer, index)} = {buffer.name}_{index};")
        return loose


def _apart(program: Program, parameters: set[str]) -> tuple[Stage, Stage]:
    """The statements that no parameter takes part in, and the others."""
    moved = {program.inputs[name].buffer for name in parameters}
    given, own = Stage(), Stage()
    for kind in ("member", "batch"):
        for statement in getattr(program.stages[0], kind):
            depends = statement.out.buffer in moved or bool(moved & set(sources(statement)))
            moved |= {statement.out.buffer} if depends else set()
            getattr(own if depends else given, kind).append(statement)
    return given, own


def _examples_at_once(numbers: int) -> int:
    """How many examples' kept numbers stay in the nearest cache, or at least in the next."""
    fitting = NEAR // (4 * max(1, numbers))
    return max(256, min(2048, 1 << fitting.bit_length() - 1 if fitting else 0))


def _statements(program: Program) -> list[Map | Fold | Scan | Total]:
    return [s for stage in program.stages for s in (*stage.member, *stage.batch)]


def _views(placed: Placed) -> list[View]:
    return [placed.statement.out, *(a for a in operands(placed.statement) if isinstance(a, View))]


def _type(buffer: Buffer) -> str:
    return ("B" if buffer.batch else "V") if buffer.kind == "float" else ("BM" if buffer.batch else "M")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NOT_A_NUMBER"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    text = f"{torch.tensor(value, dtype=torch.float32).item():.9g}"  # nine digits give every float32 back
    return f"{text}f" if set(text) & set(".e") else f"{text}.0f"


def _constant(value: float | bool) -> str:
    return f"c({str(value).lower() if isinstance(value, bool) else _number(value)})"


def _call(function: str, values: list[str]) -> str:
    if function in _INFIX:
        return f"{values[0]} {_INFIX[function]} {values[1]}"
    if function in _PREFIX:
        return _PREFIX[function] + values[0]
    return f"{function}({', '.join(values)})"


def _folded(function: str, terms: list[list[str]], start: str | None = None) -> str:
    """Terms put together from left to right; products are fused with the sum."""
    result = start
    for term in terms:
        value = " * ".join(term)
        if result is None:
            result = value
        elif function == "sum" and len(term) == 2:
            result = f"fma({term[0]}, {term[1]}, {result})"
        else:
            result = _call(_JOINED[function], [result, value])
    assert result is not None
    return result
