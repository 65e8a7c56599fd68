"""Find expensive values of an example that depend on the member by one bounded number alone.

In ``log(g |x| + 1 - g)`` the gate g lies between 0 and 1, and after some training it is at one of these bounds for many
members: these can share the logarithms of all examples.
"""

from collections import Counter
from dataclasses import dataclass
from math import prod

from numerate.loops.form.ir import Buffer, Map, Stage, Statement, View, contiguous, needed, replaced, sources
from numerate.loops.form.operations import is_cheap

MOST_ELEMENTS = 8
"""Elements of a value up to which it is asked which bound each is at."""


@dataclass(frozen=True)
class Bounded:
    """A value of an example; element i depends on the member only through element i of ``number``, within bounds."""

    out: Buffer
    number: Buffer
    bounds: tuple[float, float]
    elements: list[list[Statement]]
    """How each element is computed for an example."""


def find_bounded(stage: Stage, given: set[Buffer]) -> list[Bounded]:
    """Expensive values of an example that depend on a bounded number of the member.

    Of values that depend on each other the first is taken; of bounds within bounds the last. ``given``: what all
    members share.
    """
    statements = [*stage.member, *stage.batch]
    written = Counter(s.out.buffer for s in statements)
    found: dict[Buffer, Bounded] = {}
    for number, bounds in _bounded(stage.member).items():
        aligned = {number}
        for statement in statements:
            if written[statement.out.buffer] == 1 and _element_by_element(statement, aligned, given):
                aligned.add(statement.out.buffer)
        inside = [s for s in stage.batch if s.out.buffer in aligned]
        read = [b for s in stage.batch if s.out.buffer not in aligned for b in sources(s)]
        outs = [b for b in dict.fromkeys(read) if b.batch and b in aligned and b.size <= MOST_ELEMENTS]
        chains = {out: needed(inside, {"": View.whole(out, (out.size,))}) for out in outs}
        chains = {out: chain for out, chain in chains.items() if any(map(_expensive, chain))}
        for out, chain in chains.items():
            if not any(s.out.buffer in chains for s in chain if s.out.buffer is not out):
                elements = [[_element(s, place) for s in chain] for place in range(out.size)]
                found[out] = Bounded(out, number, bounds, elements)
    return list(found.values())


def _bounded(statements: list[Statement]) -> dict[Buffer, tuple[float, float]]:
    """Numbers of a member that are clamped from below and above, and their bounds."""
    clipped: dict[Buffer, float] = {}
    found: dict[Buffer, tuple[float, float]] = {}
    for s in statements:
        if not isinstance(s, Map) or s.function not in ("maximum", "minimum"):
            continue
        view, limit = s.args
        if not isinstance(view, View) or isinstance(limit, View) or not _dense(s.out):
            continue
        if s.function == "maximum":
            clipped[s.out.buffer] = limit
        elif view.buffer in clipped and _dense(view):
            found[s.out.buffer] = (clipped[view.buffer], limit)
    return found


def _element_by_element(statement: Statement, aligned: set[Buffer], given: set[Buffer]) -> bool:
    """Whether element i of the result depends on the member by element i of ``aligned`` values alone."""
    views = [a for a in statement.args if isinstance(a, View)] if isinstance(statement, Map) else []
    own = [view for view in views if view.buffer in aligned]
    shared = all(view.buffer in given or view.buffer.values is not None for view in views if view not in own)
    return bool(own) and shared and all(map(_dense, (statement.out, *own)))


def _dense(view: View) -> bool:
    """Whether element i of a view is element i of its buffer."""
    steps = [(size, stride) for size, stride in zip(view.shape, contiguous(view.shape)) if size != 1]
    mine = [(size, stride) for size, stride in zip(view.shape, view.strides) if size != 1]
    return steps == mine and view.offset == 0 and prod(view.shape) == view.buffer.size


def _element(statement: Statement, place: int) -> Statement:
    """One element of a statement."""
    shape = statement.out.shape
    index = [place // step % size for size, step in zip(shape, contiguous(shape))]

    def one(view: View) -> View:
        return View(view.buffer, (), (), view.offset + sum(i * stride for i, stride in zip(index, view.strides)))

    return replaced(statement, one, one(statement.out))


def _expensive(statement: Statement) -> bool:
    return isinstance(statement, Map) and not is_cheap(statement.function)
