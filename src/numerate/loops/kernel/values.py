"""Types, places and values of a kernel: what is computed, and where numbers lie."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from numerate.loops.form.ir import Buffer, View
from numerate.loops.form.operations import REDUCTIONS, Kind, Number


@dataclass(frozen=True)
class Type:
    """Of a value: of a member, or of an example (``per_example``), which a dialect may compute several at a time."""

    kind: Kind | Literal["double", "flag"]
    """``flag``: one Boolean for all members or examples that are computed at a time."""
    per_example: bool = False

    @classmethod
    def of(cls, buffer: Buffer) -> "Type":
        return cls(buffer.kind, buffer.batch)


MEMBER, EXAMPLE = Type("float"), Type("float", per_example=True)

# ---------------------------------------------------------------- places


@dataclass(frozen=True)
class Digit:
    """The place on one axis, of ``size``, where a flat loop over several axes is: variable / step % size."""

    variable: str
    step: int
    size: int


@dataclass(frozen=True)
class Index:
    """offset + Σ variable * stride."""

    terms: tuple[tuple[str | Digit, int], ...] = ()
    offset: int = 0

    @classmethod
    def of(cls, terms: Iterable[tuple[str | Digit | int, int]], offset: int = 0) -> "Index":
        """What is known is added up, and what does not move left out."""
        moving: list[tuple[str | Digit, int]] = []
        for variable, stride in terms:
            if isinstance(variable, int):
                offset += variable * stride
            elif stride:
                moving.append((variable, stride))
        return cls(tuple(moving), offset)

    @property
    def known(self) -> bool:
        """Whether it is a number, whatever the loops do."""
        return not self.terms

    def variables(self) -> set[str]:
        """The variables that it depends on."""
        return {term.variable if isinstance(term, Digit) else term for term, _ in self.terms}


def place_of(operand: "View | Number", index: Sequence[int]) -> int:
    """Where in its buffer an element of a view is; 0 for a number."""
    return operand.offset + sum(i * s for i, s in zip(index, operand.strides)) if isinstance(operand, View) else 0


# ---------------------------------------------------------------- values


@dataclass(frozen=True)
class Constant:
    value: Number


@dataclass(frozen=True)
class Variable:
    """A value in a register."""

    name: str


@dataclass(frozen=True)
class Element:
    """A value in an array; of a ``table``, the same for all members, in memory that is never written."""

    array: str
    index: Index
    table: bool = False


@dataclass(frozen=True)
class Packed:
    """A number of the current member in an array that the host has filled: number ``place`` of row ``row``."""

    array: str
    row: str
    place: Index | int


@dataclass(frozen=True)
class Broadcast:
    """A number in an array that the host has filled, the same for all that are computed at a time."""

    array: str
    row: str
    place: Index | int


@dataclass(frozen=True)
class Drawn:
    """Number ``index`` of the current example among the random numbers in ``array``, which has ``width`` for each."""

    array: str
    index: Index
    width: int


@dataclass(frozen=True)
class Given:
    """Number ``index`` of the example ``row`` in the table of examples that the host has filled; of ``width`` each."""

    index: Index
    width: int
    row: str = "row"


@dataclass(frozen=True)
class Call:
    """An operation of the intermediate form; ``exact``: never fused with its neighbours."""

    operation: str
    operands: tuple["Value", ...]
    exact: bool = False


@dataclass(frozen=True)
class MultiplyAdd:
    """a * b + addend, rounded once."""

    a: "Value"
    b: "Value"
    addend: "Value"


@dataclass(frozen=True)
class Choice:
    """One of two values, by a condition on integers."""

    condition: str
    yes: "Value"
    no: "Value"


@dataclass(frozen=True)
class Field:
    """A value of member ``index`` of those that a thread works on."""

    record: str
    index: str
    name: str


Role = Literal["gx", "gh", "state", "extra", "new", "saved", "grad", "dgx", "dgh", "dstate", "dextra", "scratch"]
"""What an array of a recurrent step holds."""


@dataclass(frozen=True)
class RowArray:
    """An array with a row of units for each row of the batch; ``number``: which one, if its role has several."""

    role: Role
    number: int | None = None

    @classmethod
    def named(cls, name: str) -> "RowArray":
        """From the name of an input or output, such as ``gx`` or ``state.1``."""
        role, _, number = name.partition(".")
        return cls(role, int(number) if number else None)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        return f"{self.role}{'' if self.number is None else self.number}"


@dataclass(frozen=True)
class UnitElement:
    """A number of the current unit of a row: ``place`` + Σ i_k * outer[k] + unit * stride of an array."""

    array: RowArray
    place: int
    outer: tuple[int, ...] = ()
    stride: int = 0
    kind: Kind = "float"


Value = (
    Constant | Variable | Element | Packed | Broadcast | Drawn | Given | Call | MultiplyAdd | Choice | Field
    | UnitElement
)  # fmt: skip
Target = Variable | Element | Packed | Field | UnitElement


def reduced(reduction: str, terms: Sequence[Sequence[Value]], start: Value | None = None) -> Value:
    """Terms, each a product of factors, joined from left to right; products are fused with a sum."""
    result = start
    for term in terms:
        if result is not None and reduction == "sum" and len(term) == 2:
            result = MultiplyAdd(term[0], term[1], result)
            continue
        value = product(term)
        result = value if result is None else Call(REDUCTIONS[reduction].operation, (result, value))
    assert result is not None
    return result


def product(factors: Sequence[Value]) -> Value:
    """All factors multiplied, from left to right."""
    result = factors[0]
    for factor in factors[1:]:
        result = Call("mul", (result, factor))
    return result


def inside(value: Value) -> Iterator[Value]:
    """A value and all that it is computed from."""
    yield value
    parts: tuple[Value, ...] = ()
    if isinstance(value, Call):
        parts = value.operands
    elif isinstance(value, MultiplyAdd):
        parts = (value.a, value.b, value.addend)
    elif isinstance(value, Choice):
        parts = (value.yes, value.no)
    for part in parts:
        yield from inside(part)
