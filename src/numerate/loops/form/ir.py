"""The intermediate form between traced graphs and kernels, shared by all targets.

A :class:`Program` is one step of one member. Its values live in a :class:`Buffer` and are looked at through a strided
:class:`View`, so that reshaping costs nothing. A value either belongs to the member (a parameter, a gradient) or to one
example of the batch; the batch itself is no dimension: wherever torch has it, a shape here has size 1.

Statements are loops over small shapes without side effects on each other:

========= ====================================================================================
Map       out[i] = function(args[i], ...)
Reduce    out[i] = sum, prod, max, min, and, or over j of Π args[i, j]; sums of products are fused
Scan      out[i, j] = running sum or product of arg[i, ...] up to j, or up to before j
BatchSum  out[i] = sum over all examples of the batch of Π args[i]
========= ====================================================================================

They are ordered in stages. Each :class:`Stage` first runs its ``member`` statements once, then its ``batch`` statements
for every example. A total can be used by the next stage's statements; a second pass over the batch (as for a standard
deviation over the batch) recomputes what it needs of the first from the same random numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

from numerate.loops.form.operations import Kind, Number


@dataclass(eq=False)
class Buffer:
    """Storage for ``size`` numbers of one member, or of one example of one member."""

    name: str
    size: int
    kind: Kind = "float"
    level: int = 0
    """2 k: known before stage k's pass over the batch; 2 k + 1: computed in that pass, one per example."""
    values: tuple[Number, ...] | None = None
    """Set if the content is the same number for all members at all times."""

    @property
    def batch(self) -> bool:
        return self.level % 2 == 1


@dataclass(frozen=True, eq=False)
class View:
    """Element (i, j, ...) is at ``offset + i * strides[0] + j * strides[1] + ...`` of the buffer."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def whole(cls, buffer: Buffer, shape: tuple[int, ...]) -> "View":
        return cls(buffer, shape, contiguous(shape))

    def expand(self, shape: tuple[int, ...]) -> "View":
        """Broadcast to ``shape``, aligned at the last axis."""
        new = len(shape) - len(self.shape)
        kept = (0 if size == 1 else stride for size, stride in zip(self.shape, self.strides))
        return View(self.buffer, shape, (0,) * new + tuple(kept), self.offset)

    def permute(self, axes: tuple[int, ...]) -> "View":
        shape, strides = (tuple(values[axis] for axis in axes) for values in (self.shape, self.strides))
        return View(self.buffer, shape, strides, self.offset)

    def backwards(self, axis: int) -> "View":
        """The same elements with an axis run from its end."""
        strides = tuple(-s if k == axis else s for k, s in enumerate(self.strides))
        return View(self.buffer, self.shape, strides, self.offset + (self.shape[axis] - 1) * self.strides[axis])

    def reshaped(self, shape: tuple[int, ...]) -> "View":
        """The same elements in the same order in another shape, where :meth:`can_reshape`."""
        sized = [(size, stride) for size, stride in zip(self.shape, self.strides) if size != 1]
        if [size for size in shape if size != 1] == [size for size, _ in sized]:
            strides = iter([stride for _, stride in sized])
            return View(self.buffer, shape, tuple(0 if size == 1 else next(strides) for size in shape), self.offset)
        assert self.can_reshape(shape)
        return View(self.buffer, shape, contiguous(shape), self.offset)

    def can_reshape(self, shape: tuple[int, ...]) -> bool:
        """Whether only sizes 1 come and go, or the elements lie densely."""
        sizes = [size for size in self.shape if size != 1]
        strides = [stride for size, stride in zip(self.shape, self.strides) if size != 1]
        return [size for size in shape if size != 1] == sizes or tuple(strides) == contiguous(tuple(sizes))


Operand = View | Number
"""A number stands for a tensor filled with it."""


@dataclass(frozen=True)
class Map:
    out: View
    function: str
    args: tuple[Operand, ...]
    """Each of the shape of ``out``."""


@dataclass(frozen=True)
class Reduce:
    out: View
    function: Literal["sum", "prod", "max", "min", "and", "or"]
    args: tuple[Operand, ...]
    """Each of the shape of ``out`` followed by ``inner``."""
    inner: tuple[int, ...]


@dataclass(frozen=True)
class Scan:
    out: View
    function: Literal["sum", "prod"]
    arg: View
    """Of the shape of ``out``; the last axis is the one that runs."""
    exclusive: bool = False
    """Element j is what the elements before j give; the last of ``arg`` does not matter."""


@dataclass(frozen=True)
class BatchSum:
    out: View
    args: tuple[Operand, ...]
    """Each of the shape of ``out``."""


Statement = Map | Reduce | Scan | BatchSum


def operands(statement: Statement) -> tuple[Operand, ...]:
    """What a statement reads."""
    return (statement.arg,) if isinstance(statement, Scan) else statement.args


def sources(statement: Statement) -> list[Buffer]:
    """The buffers that a statement reads."""
    return [operand.buffer for operand in operands(statement) if isinstance(operand, View)]


def replaced(statement: Statement, change: Callable[[View], View], out: View | None = None) -> Statement:
    """The same statement of other views as operands, and with another result if ``out`` is given."""
    out = out or statement.out
    if isinstance(statement, Scan):
        return replace(statement, out=out, arg=change(statement.arg))
    args = tuple(change(a) if isinstance(a, View) else a for a in statement.args)
    return replace(statement, out=out, args=args)


@dataclass
class Stage:
    """``member`` statements run once, then ``batch`` statements for every example."""

    member: list[Statement] = field(default_factory=list)
    batch: list[Statement] = field(default_factory=list)


@dataclass
class Program:
    """Named inputs -> stages -> named outputs. Inputs at level 1 (``uniforms``, ``noise``) are one per example."""

    inputs: dict[str, View]
    stages: list[Stage]
    outputs: dict[str, Operand]


def statements_of(program: Program) -> list[Statement]:
    """All statements in order."""
    return [s for stage in program.stages for s in (*stage.member, *stage.batch)]


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense row-major layout."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def depending(statements: list[Statement], start: set[Buffer]) -> set[Buffer]:
    """``start`` and all buffers that depend on it, through any statement that writes them."""
    found = set(start)
    while more := {s.out.buffer for s in statements if found.intersection(sources(s))} - found:
        found |= more
    return found


def needed(statements: list[Statement], outputs: dict[str, Operand]) -> list[Statement]:
    """The statements that the outputs depend on, in their order."""
    wanted = {id(value.buffer) for value in outputs.values() if isinstance(value, View)}
    kept: list[Statement] = []
    for statement in reversed(statements):
        if id(statement.out.buffer) in wanted:
            kept.append(statement)
            wanted |= {id(buffer) for buffer in sources(statement)}
    return kept[::-1]


def arrange(statements: list[Statement]) -> list[Stage]:
    """Distribute statements, given in order of computation, over stages by the level of what they write."""
    last = max((_stage_of(s) for s in statements), default=0)
    stages = [Stage() for _ in range(last + 1)]
    for statement in statements:
        stage = stages[_stage_of(statement)]
        (stage.batch if _per_example(statement) else stage.member).append(statement)
    first = [stage.batch for stage in stages]
    for number, stage in enumerate(stages):
        stage.batch = _repeated(stage.batch, [s for earlier in first[:number] for s in earlier]) + stage.batch
    return stages


def _per_example(statement: Statement) -> bool:
    return isinstance(statement, BatchSum) or statement.out.buffer.batch


def _stage_of(statement: Statement) -> int:
    level = statement.out.buffer.level
    return (level - 1 if isinstance(statement, BatchSum) else level) // 2


def _repeated(statements: list[Statement], earlier: list[Statement]) -> list[Statement]:
    """The ``earlier`` per-example statements that a later pass over the batch must repeat, in order."""
    wanted = {id(buffer) for s in statements for buffer in sources(s)}
    repeated: list[Statement] = []
    for statement in reversed(earlier):
        if not isinstance(statement, BatchSum) and id(statement.out.buffer) in wanted and statement not in repeated:
            repeated.append(statement)
            wanted |= {id(buffer) for buffer in sources(statement)}
    return repeated[::-1]
