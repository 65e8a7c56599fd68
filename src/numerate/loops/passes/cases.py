"""Compute by cases: what one of few values of an example, or of a member, decides is computed once for each of them.

In ``cos(W k)`` of a RealNPU, k depends on an example through the signs of its inputs alone. With two inputs a member
has four such cosines, whatever the number of examples; an example only chooses one of them (:func:`by_cases`).

In ``log(g |x| + 1 - g)`` the gate g lies between 0 and 1, and after some training it is one of them for many members:
these share the logarithms of all examples (:func:`at_bounds`).
"""

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import prod

from numerate.loops.form.ir import (
    Buffer,
    Map,
    Operand,
    Program,
    Stage,
    Statement,
    View,
    contiguous,
    needed,
    replaced,
    sources,
)
from numerate.loops.passes.nests import CHEAP

DECISIONS = 2
"""Truth values of an example up to which its cases are told apart."""
MOST = 16
"""Numbers of a member, in all cases, up to which they are computed beforehand."""
ELEMENTS = 8
"""Elements of a value up to which bounds are asked about."""

Case = tuple[bool, ...]


def by_cases(program: Program) -> Program:
    """The same program with what is costly and decided by a few truth values computed by cases, if it is one stage."""
    stage, *more = program.stages
    if more:
        return program
    member, batch = list(stage.member), list(stage.batch)
    decided = _decided(batch)
    for buffer in _results(program, decided):
        decisions = [View(b, (), (), place) for b in decided[buffer] for place in range(b.size)]
        whole = View.whole(buffer, (buffer.size,))
        chain = needed([s for s in stage.batch if s.out.buffer in decided], {"": whole})
        cases = list(product((False, True), repeat=len(decisions)))
        if len(cases) * buffer.size > MOST or not any(map(_costly, chain)):
            continue
        values: dict[Case, Operand] = {}
        for case in cases:
            copies = _copies(chain, decided[buffer], case)
            member += copies
            values[case] = View.whole(copies[-1].out.buffer, (buffer.size,))
        last = max(k for k, s in enumerate(batch) if s.out.buffer is buffer)
        before = [s for s in batch[:last] if s.out.buffer is not buffer]
        batch = [*before, *_chosen(whole, decisions, values), *batch[last + 1 :]]
    return Program(program.inputs, [Stage(member, needed(batch, program.outputs))], program.outputs)


def _decided(statements: list[Statement]) -> dict[Buffer, list[Buffer]]:
    """Values of an example that only its truth values and the member decide, and which truth values: few in all."""
    found: dict[Buffer, list[Buffer]] = {}
    others: set[Buffer] = set()  # a buffer may be put together from decided and other parts
    for statement in statements:
        out = statement.out.buffer
        decisions = dict.fromkeys(found.get(out, []))
        for buffer in (b for b in sources(statement) if b.batch):
            decisions |= dict.fromkeys(found.get(buffer, [buffer]))
        few = sum(b.size for b in decisions) <= DECISIONS and all(b.kind == "bool" for b in decisions)
        if few and out.batch and out not in others:
            found[out] = list(decisions)
        else:
            others.add(out)
            found.pop(out, None)
    return found


def _results(program: Program, decided: dict[Buffer, list[Buffer]]) -> list[Buffer]:
    """Decided values that something undecided needs."""
    read = [b for s in program.stages[0].batch if s.out.buffer not in decided for b in sources(s)]
    read += [value.buffer for value in program.outputs.values() if isinstance(value, View)]
    return [buffer for buffer in dict.fromkeys(read) if buffer in decided]


def _copies(chain: list[Statement], decisions: list[Buffer], case: Case) -> list[Statement]:
    """What a member computes for one case: the statements of an example, with the truth values that make the case."""
    known, truths = {}, iter(case)
    name = f"{_letters(case)}_{chain[-1].out.buffer.name}"
    for buffer in decisions:
        values = tuple(next(truths) for _ in range(buffer.size))
        known[buffer] = Buffer(f"{buffer.name}_{name}", buffer.size, buffer.kind, values=values)
    for buffer in dict.fromkeys(s.out.buffer for s in chain):
        known[buffer] = Buffer(f"{buffer.name}_{name}", buffer.size, buffer.kind)

    def view(one: View) -> View:
        return View(known.get(one.buffer, one.buffer), one.shape, one.strides, one.offset)

    return [replaced(statement, view, view(statement.out)) for statement in chain]


def _chosen(out: View, decisions: list[View], values: dict[Case, Operand]) -> list[Statement]:
    """The choice of an example: the last decision leaves half of the cases, and so on."""
    statements: list[Statement] = []
    for k in reversed(range(len(decisions))):
        left: dict[Case, Operand] = {}
        for case in product((False, True), repeat=k):
            left[case] = target = _part(out, case) if case else out
            both = values[*case, True], values[*case, False]
            statements.append(Map(target, "where", (decisions[k].expand(out.shape), *both)))
        values = left
    return statements or [Map(out, "copy", (values[()],))]


def _part(out: View, case: Case) -> View:
    """Room for a choice among the cases that begin with this one."""
    buffer = out.buffer
    return View.whole(Buffer(f"{buffer.name}_{_letters(case)}", buffer.size, buffer.kind, buffer.level), out.shape)


def _costly(statement: Statement) -> bool:
    return isinstance(statement, Map) and statement.function not in CHEAP


def _letters(case: Case) -> str:
    return "".join("FT"[truth] for truth in case)


@dataclass(frozen=True)
class Bounded:
    """A value of an example whose element i depends on the member by element i of ``number`` alone, within bounds."""

    out: Buffer
    number: Buffer
    bounds: tuple[float, float]
    elements: list[list[Statement]]
    """How each element is computed for an example."""


def at_bounds(stage: Stage, given: set[Buffer]) -> list[Bounded]:
    """Costly values of an example that go back to bounded numbers of the member; ``given`` is what all members share.

    Of values that go back to each other the first; of bounds within bounds the last.
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
        outs = [b for b in dict.fromkeys(read) if b.batch and b in aligned and b.size <= ELEMENTS]
        chains = {out: needed(inside, {"": View.whole(out, (out.size,))}) for out in outs}
        chains = {out: chain for out, chain in chains.items() if any(map(_costly, chain))}
        for out, chain in chains.items():
            if not any(s.out.buffer in chains for s in chain if s.out.buffer is not out):
                elements = [[_element(s, place) for s in chain] for place in range(out.size)]
                found[out] = Bounded(out, number, bounds, elements)
    return list(found.values())


def _bounded(statements: list[Statement]) -> dict[Buffer, tuple[float, float]]:
    """Numbers of a member that were clipped from below and above, and their bounds."""
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
