"""The nodes of a kernel: what a schedule decides, and what a printer spells in its dialect.

Numbers, memory, random numbers and synchronisation are nodes. Integers that control loops and addresses are text in the
syntax of C, which all dialects share; a place in an array is an :class:`Index`, so that passes can tell what it depends
on.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from numerate.loops.form.ir import Buffer, View
from numerate.loops.form.operations import Kind, Number
from numerate.loops.kernel.values import Drawn, Element, Given, Target, Type, UnitElement, Value, inside

Whole = Literal["int", "int64", "uint32", "uint64"]
"""Types of integers."""


# ---------------------------------------------------------------- statements


@dataclass
class Let:
    """Declare a variable; ``constant``: it is never assigned to."""

    name: str
    type: Type
    value: Value
    constant: bool = False


@dataclass
class Assign:
    target: Target
    value: Value


@dataclass
class Accumulate:
    """Add to a variable; ``widened``: in double precision."""

    target: Target
    value: Value
    widened: bool = False


@dataclass
class AddExamples:
    """Add Π factors of all examples that are computed at a time to a sum over the batch.

    ``left``: how many examples are left, where the batch cannot be divided by as many as are computed at a time.
    """

    target: Target
    factors: tuple[Value, ...]
    left: str | None = None


@dataclass
class SumExamples:
    """Add a value of all examples that are computed at a time, of which ``left`` are left, to a variable."""

    name: str
    value: Value
    left: str


@dataclass
class SumLanes:
    """Add a variable of all lanes to a number in double precision."""

    target: str
    name: str


@dataclass
class WhichBound:
    """Declare an integer: ``start``, + 1 or + 2 as a value is the lower bound, the upper one, or neither."""

    name: str
    value: Value
    bounds: tuple[float, float]
    start: int


@dataclass
class SetInteger:
    """Assign an integer or flag, computed by an expression of C."""

    target: str
    value: str


@dataclass
class Array:
    """Declare an array of ``size`` values; several sizes make several axes.

    ``memory``: of the thread's stack, static, or shared by the threads of a block; ``zero``: filled with zeros.
    """

    name: str
    type: Type
    size: int | str | tuple[int | str, ...]
    memory: Literal["stack", "static", "shared"] = "stack"
    zero: bool = False


@dataclass
class Table:
    """Declare numbers that are the same for all members."""

    name: str
    kind: Kind
    values: tuple[Number, ...]


@dataclass
class Integer:
    """Declare an integer, computed by an expression of C."""

    name: str
    value: str
    type: Whole = "int"


@dataclass
class Pointer:
    """Declare an address, by an expression of C; ``reads``: nothing is written there."""

    name: str
    value: str
    type: Type
    reads: bool = False


@dataclass
class For:
    """for (variable = start; variable < stop; variable ``advance``); ``unroll``: so many times, or True: all."""

    variable: str
    stop: str | int
    start: str | int = 0
    advance: str = "++"
    type: Whole = "int"
    unroll: int | bool = 0
    body: list["Statement"] = field(default_factory=list)


@dataclass
class If:
    """By a condition of C on integers."""

    condition: str
    body: list["Statement"] = field(default_factory=list)
    otherwise: list["Statement"] = field(default_factory=list)


@dataclass
class Scope:
    """Variables declared inside are forgotten after."""

    body: list["Statement"] = field(default_factory=list)


@dataclass
class Stream:
    """Open the stream of random numbers of the current member for a purpose."""

    name: str
    domain: int


@dataclass
class StartStep:
    """Turn a stream to the numbers of a training step."""

    stream: str
    step: str


@dataclass
class Draw:
    """Random numbers 4 * block, ..., 4 * (block + blocks) - 1 of the step, into an array from ``offset`` on."""

    stream: str
    block: str
    array: str
    offset: str | int = 0
    blocks: int = 1


@dataclass
class NoteDivergence:
    """Note the step if any parameter of the member is not finite."""

    parameters: list[tuple[str, int, bool]]
    """Name of the variables or of the array, size, and whether it is an array."""


# ---------------------------------------------------------------- threads that work on one member


@dataclass
class Reads:
    """Mark: the threads of a member are about to read ``views`` of shared memory, and to write ``writes`` there.

    ``out``: by a loop over its elements, distributed among the threads; None: every thread reads anything.
    """

    views: list[View]
    out: View | None = None
    writes: list[Buffer] = field(default_factory=list)


@dataclass
class Wrote:
    """Mark: ``buffer`` has been written to shared memory, by a loop over ``pattern``, or by any thread."""

    buffer: Buffer
    pattern: tuple[tuple[int, ...], tuple[int, ...], int] | None = None


@dataclass
class WillWrite:
    """Mark: ``array`` may still be read by others."""

    array: str


@dataclass
class Barrier:
    """Let the threads of a member see what the others have written."""


@dataclass
class ThreadReduce:
    """Join a variable of all threads of a member, or of a warp, by a reduction; all of them get the result."""

    name: str
    reduction: str
    scope: Literal["member", "warp"] = "member"


@dataclass
class Threads:
    """Declare ``thread``, the number of a thread among those of its member or, if it has a block, of its block.

    ``training``: also ``place`` and ``member``, the number of its member; threads too many repeat the last one.
    """

    training: bool = False


@dataclass
class SharedMemory:
    """Declare the arrays of a member in shared memory: name and offset of each, and the floats of all."""

    arrays: list[tuple[str, int]]
    floats: int


@dataclass
class TurnToMember:
    """Let arrays that have a row of so many numbers for each member begin at the row of ``member``."""

    widths: dict[str, int]


@dataclass
class LeaveIfDead:
    """End if all of the member's ``count`` parameters are NaN, and will stay so; it has its block for itself."""

    count: int


@dataclass
class Divergence:
    """Watch for parameters that are not finite: declare, begin a step, check a variable, end a step, tell the host."""

    moment: Literal["declare", "begin", "check", "end", "tell"]
    name: str = ""


@dataclass
class Records:
    """Declare values (kind and name of each) of ``count`` members."""

    name: str
    fields: list[tuple[Kind, str]]
    count: str


@dataclass
class MeanLosses:
    """The mean losses of ``count`` members from ``sums`` of all threads; what lies in shared memory is free after."""

    count: int | str


@dataclass
class EvaluateTogether:
    """Evaluate ``count`` members by the function ``together`` if some numbers of theirs are equal, else each ``alone``.

    ``width``: numbers of a member; ``places``: those that must be equal.
    """

    together: str
    alone: str
    count: int
    width: int
    places: list[int]


# ---------------------------------------------------------------- rows of a recurrent step


@dataclass
class OverUnits:
    """For all places on ``axes``, of which the last runs along the units: what a vector or a thread does at a time."""

    axes: tuple[int, ...]
    body: list["Statement"] = field(default_factory=list)


@dataclass
class ReduceUnits:
    """For all places on ``axes``: join Π factors over ``inner``, of which the last axis runs along the units."""

    axes: tuple[int, ...]
    inner: tuple[int, ...]
    reduction: str
    factors: tuple[Value, ...]
    target: UnitElement


@dataclass
class ScanUnits:
    """Running sums or products along the last of ``axes``; ``exclusive``: of what comes before each place."""

    axes: tuple[int, ...]
    reduction: str
    exclusive: bool
    source: UnitElement
    target: UnitElement


Statement = (
    Let | Assign | Accumulate | AddExamples | SumExamples | SumLanes | WhichBound | SetInteger | Array | Table | Integer
    | Pointer | For | If | Scope | Stream | StartStep | Draw | NoteDivergence | Reads | Wrote | WillWrite | Barrier
    | ThreadReduce | Threads | SharedMemory | TurnToMember | LeaveIfDead | Divergence | Records | MeanLosses
    | EvaluateTogether | OverUnits | ReduceUnits | ScanUnits
)  # fmt: skip


@dataclass
class Parameter:
    """Of a function; ``writes``: an array that is written to; ``reads``: one that is only read."""

    name: str
    type: Whole | Literal["float", "double"]
    array: Literal["reads", "writes"] | None = None


@dataclass
class Function:
    """A function of a kernel source; ``exported``: the host calls it."""

    name: str
    parameters: list[Parameter]
    body: list[Statement]
    exported: bool = True
    template: str = ""
    """Name of an integer that is known when it is compiled."""
    comment: str = ""


@dataclass
class Kernel:
    """A whole source: tables, then functions."""

    functions: list[Function]
    tables: list[Table] = field(default_factory=list)


# ---------------------------------------------------------------- walking through them


def values_of(statement: Statement) -> list[Value]:
    """The values that a statement computes with, outermost first; not those of statements inside of it."""
    if isinstance(statement, Let):
        return [statement.value]
    if isinstance(statement, Assign | Accumulate):
        return [statement.target, statement.value]
    return [statement.target, *statement.factors] if isinstance(statement, AddExamples) else []


def index_variables(body: Iterable[Statement]) -> set[str]:
    """The variables that places in arrays depend on, in ``body`` and in all that is inside of it."""
    found: set[str] = set()
    for statement in body:
        for value in (part for whole in values_of(statement) for part in inside(whole)):
            if isinstance(value, Element | Drawn | Given):
                found |= value.index.variables()
        if isinstance(statement, For | If | Scope):
            found |= index_variables(statement.body)
    return found
