"""Which values need an address: those that several loop nests share and that one of them indexes by a loop."""

from collections.abc import Sequence

from numerate.loops.form.ir import BatchSum, Buffer, Program, View, operands
from numerate.loops.passes.nests import Nest, Placed, loop_strides


def views_of(placed: Placed) -> list[View]:
    """What a statement writes, then what it reads."""
    return [placed.statement.out, *(a for a in operands(placed.statement) if isinstance(a, View))]


def shared_between(nests: Sequence[Nest]) -> tuple[dict[Buffer, set[int]], set[Buffer]]:
    """The nests in which each buffer is used, and the buffers that are indexed by a loop."""
    used: dict[Buffer, set[int]] = {}
    looped: set[Buffer] = set()
    for nest in nests:
        for placed in nest.statements:
            for view in views_of(placed):
                used.setdefault(view.buffer, set()).add(id(nest))
                if any(loop_strides(view, placed)):
                    looped.add(view.buffer)
    return used, looped


def addressed(program: Program, nests: Sequence[Nest]) -> set[Buffer]:
    """Buffers that lie in memory: indexed by a loop, and used in more than one nest or from outside."""
    used, looped = shared_between(nests)
    named = [*program.inputs.values(), *(v for v in program.outputs.values() if isinstance(v, View))]
    outside = {view.buffer for view in named}
    outside |= {s.out.buffer for stage in program.stages for s in stage.batch if isinstance(s, BatchSum)}
    return {b for b in looped if b in outside or b.values is not None or len(used[b]) > 1}
