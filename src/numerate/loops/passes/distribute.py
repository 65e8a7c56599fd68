"""Distribute a member's statements among the threads that work on it.

Small statements are unrolled and replicated: every thread computes them, so that all have the result. The elements of
large ones are dealt out to the threads in turn. Distributed statements over the same elements share one loop, so that
intermediate values that nothing else needs stay in registers.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Literal

from numerate.loops.form.ir import Buffer, Map, Reduce, Scan, Stage, Statement, View, operands, sources


@dataclass
class Group:
    """Statements that are run together.

    ``replicated``: by each thread; ``distributed``: one loop over the elements, dealt out to the threads; ``reduced``:
    one reduction whose terms are dealt out, and the partial results joined.
    """

    kind: Literal["replicated", "distributed", "reduced"]
    sizes: tuple[int, ...] = ()
    statements: list[Statement] = field(default_factory=list)


def sizes(view: View) -> tuple[int, ...]:
    """The sizes of a view that are not 1."""
    return tuple(size for size in view.shape if size > 1)


def moves(view: View, out: View) -> tuple[int, ...]:
    """How far ``view`` moves along each of the dimensions of ``out`` that are not 1."""
    return tuple(stride for size, stride in zip(out.shape, view.strides) if size > 1)


def aligned(view: View, out: View, written: View) -> bool:
    """Whether each element of a loop over ``out`` reads of ``view`` just what the loop over ``written`` wrote there."""
    return (sizes(out), moves(view, out), view.offset) == (sizes(written), moves(written, written), written.offset)


def latest(stages: list[Stage]) -> list[list[Statement]]:
    """The member statements of each stage, moved to the last stage that is early enough for all who need them."""
    end = len(stages) - 1
    result: list[list[Statement]] = [[] for _ in stages]
    needed: dict[Buffer, int] = {}
    for number in range(end, -1, -1):
        for statement in stages[number].batch:
            needed |= {buffer: min(number, needed.get(buffer, end)) for buffer in sources(statement)}
        for statement in reversed(stages[number].member):
            chosen = needed.get(statement.out.buffer, end)
            result[chosen].insert(0, statement)
            needed |= {buffer: min(chosen, needed.get(buffer, end)) for buffer in sources(statement)}
    return result


def distribute(statements: list[Statement], most_replicated: int) -> list[Group]:
    """Put every statement into the earliest group of its kind that comes after all that it depends on."""
    groups = [Group("replicated")]
    writers: dict[Buffer, list[tuple[int, Statement]]] = {}
    for statement in statements:
        kind, dimensions = _kind(statement, most_replicated), sizes(statement.out)
        earliest = 0
        for buffer in [*sources(statement), statement.out.buffer]:
            for number, writer in writers.get(buffer, []):
                earliest = max(earliest, number if _may_share(groups[number], kind, statement, writer) else number + 1)
        fitting = (n for n in range(earliest, len(groups)) if (groups[n].kind, groups[n].sizes) == (kind, dimensions))
        if kind == "replicated":
            fitting = (n for n in range(earliest, len(groups)) if groups[n].kind == "replicated")
        chosen = None if kind == "reduced" else next(fitting, None)
        if chosen is None:
            chosen = len(groups)
            groups.append(Group(kind, dimensions))
        groups[chosen].statements.append(statement)
        writers.setdefault(statement.out.buffer, []).append((chosen, statement))
    return [group for group in groups if group.statements]


def _kind(statement: Statement, most: int) -> Literal["replicated", "distributed", "reduced"]:
    elements = prod(statement.out.shape)
    if isinstance(statement, Scan) or (isinstance(statement, Map) and elements <= most):
        return "replicated"
    if isinstance(statement, Reduce) and elements <= most:
        return "replicated" if elements * prod(statement.inner) <= 4 * most else "reduced"
    return "distributed"


def _may_share(group: Group, kind: str, reader: Statement, writer: Statement) -> bool:
    """Whether ``reader`` can stand behind ``writer`` in one group."""
    if group.kind != kind or kind == "reduced":
        return False
    if kind == "replicated":
        return True
    views = [a for a in operands(reader) if isinstance(a, View) and a.buffer is writer.out.buffer]
    return (
        isinstance(reader, Map)
        and reader.out.buffer is not writer.out.buffer
        and all(aligned(view, reader.out, writer.out) for view in views)
    )
