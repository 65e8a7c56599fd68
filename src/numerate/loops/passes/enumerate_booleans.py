"""Compute values that depend on an example only through a few Booleans once per combination of these.

In ``cos(W k)`` of a RealNPU, k depends on an example through the signs of its inputs alone. With two inputs a member
has four such cosines, whatever the number of examples; an example only selects one of them.
"""

from itertools import product

from numerate.loops.form.ir import (
    Buffer,
    Map,
    Operand,
    Program,
    Stage,
    Statement,
    View,
    needed,
    replaced,
    sources,
)
from numerate.loops.form.operations import is_cheap

MOST_BOOLEANS = 2
"""Booleans of an example up to which their combinations are enumerated."""
MOST_NUMBERS = 16
"""Numbers of a member, over all combinations, up to which they are computed beforehand."""

Case = tuple[bool, ...]


def enumerate_booleans(program: Program) -> Program:
    """The same program with expensive values that a few Booleans decide computed once per combination.

    A program of several stages stays as it is.
    """
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
        if len(cases) * buffer.size > MOST_NUMBERS or not any(map(_expensive, chain)):
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
    """Values of an example that depend on it only through a few Booleans, and which Booleans these are."""
    found: dict[Buffer, list[Buffer]] = {}
    others: set[Buffer] = set()  # a buffer may be put together from decided and other parts
    for statement in statements:
        out = statement.out.buffer
        decisions = dict.fromkeys(found.get(out, []))
        for buffer in (b for b in sources(statement) if b.batch):
            decisions |= dict.fromkeys(found.get(buffer, [buffer]))
        few = sum(b.size for b in decisions) <= MOST_BOOLEANS and all(b.kind == "bool" for b in decisions)
        if few and out.batch and out not in others:
            found[out] = list(decisions)
        else:
            others.add(out)
            found.pop(out, None)
    return found


def _results(program: Program, decided: dict[Buffer, list[Buffer]]) -> list[Buffer]:
    """Such values that other statements need."""
    read = [b for s in program.stages[0].batch if s.out.buffer not in decided for b in sources(s)]
    read += [value.buffer for value in program.outputs.values() if isinstance(value, View)]
    return [buffer for buffer in dict.fromkeys(read) if buffer in decided]


def _copies(chain: list[Statement], decisions: list[Buffer], case: Case) -> list[Statement]:
    """What a member computes for one combination: the statements of an example with these Booleans."""
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
    """The selection by an example: its last Boolean leaves half of the combinations, and so on."""
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
    """A buffer for a selection among the combinations that begin with this one."""
    buffer = out.buffer
    return View.whole(Buffer(f"{buffer.name}_{_letters(case)}", buffer.size, buffer.kind, buffer.level), out.shape)


def _expensive(statement: Statement) -> bool:
    return isinstance(statement, Map) and not is_cheap(statement.function)


def _letters(case: Case) -> str:
    return "".join("FT"[truth] for truth in case)
