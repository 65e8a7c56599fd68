"""Place the values of a member in registers or in memory that its threads share."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from numerate.loops.form.ir import BatchSum, Buffer, Program, Statement, View, operands, sources
from numerate.loops.passes.distribute import Group, aligned, moves, sizes
from numerate.loops.passes.nests import Nest, loop_strides


@dataclass
class Placement:
    """Where the buffers of a member lie; one may be in ``registers`` and in ``memory``."""

    registers: set[Buffer] = field(default_factory=set)
    """In registers of every thread."""
    memory: dict[Buffer, str] = field(default_factory=dict)
    """In shared memory -> name of the array; a new parameter or moment can take the array of the old one."""
    passing: set[Buffer] = field(default_factory=set)
    """Used only by the loop that computes them."""
    replaced: set[str] = field(default_factory=set)
    """Parameters and moments whose new values overwrite the old ones."""


@dataclass(frozen=True)
class _Use:
    """A statement of the member that reads ``view`` or writes it."""

    group: Group
    statement: Statement
    view: View


def views(statement: Statement) -> list[View]:
    """What a statement writes, then what it reads."""
    return [statement.out, *(a for a in operands(statement) if isinstance(a, View))]


def place(program: Program, groups: list[list[Group]], nests: list[list[Nest]], tiled: list[BatchSum]) -> Placement:
    """Place all buffers.

    Args:
        program: of one member.
        groups: of each stage, the member's statements.
        nests: of each stage, the statements of an example.
        tiled: sums over the batch that go through shared memory.
    """
    uses = [_Use(g, s, v) for stage in groups for g in stage for s in g.statements for v in views(s)]
    written = _by_buffer(use for use in uses if use.view is use.statement.out)
    read = _by_buffer(use for use in uses if use.view is not use.statement.out)
    elsewhere = {v.buffer for v in program.outputs.values() if isinstance(v, View)}
    elsewhere |= {v.buffer for stage in program.stages for s in stage.batch for v in views(s)}
    indexed = {b for total in tiled for b in (total.out.buffer, *sources(total))}
    in_nests = [placed for stage in nests for nest in stage for placed in nest.statements]
    indexed |= {v.buffer for placed in in_nests for v in views(placed.statement) if any(loop_strides(v, placed))}
    indexed |= {b for b, found in written.items() if any(use.group.kind == "distributed" for use in found)}
    indexed |= {b for b, found in read.items() if any(map(_moves, found))}
    placement = Placement()
    placement.passing = {b for b, found in written.items() if b not in elsewhere and _passes(found, read.get(b, []))}
    own = {b for b in indexed if not b.batch and b.values is None} - placement.passing
    placement.memory = {buffer: buffer.name for buffer in own}
    placement.registers = {b for b, found in written.items() if all(use.group.kind != "distributed" for use in found)}
    totals = [s for stage in program.stages for s in stage.batch if isinstance(s, BatchSum) and s not in tiled]
    placement.registers |= {total.out.buffer for total in totals}
    _replace(program, groups, placement, written, read)
    return placement


def _by_buffer(uses: Iterator[_Use]) -> dict[Buffer, list[_Use]]:
    found: dict[Buffer, list[_Use]] = {}
    for use in uses:
        found.setdefault(use.view.buffer, []).append(use)
    return found


def _moves(use: _Use) -> bool:
    """Whether a distributed loop reads at a place that it has to compute."""
    view = use.view
    return use.group.kind != "replicated" and any(stride for size, stride in zip(view.shape, view.strides) if size > 1)


def _passes(written: list[_Use], read: list[_Use]) -> bool:
    writer = written[0]
    out = writer.statement.out
    return (
        len(written) == 1
        and writer.group.kind == "distributed"
        and all(use.group is writer.group and aligned(use.view, use.statement.out, out) for use in read)
    )


def _replace(
    program: Program,
    groups: list[list[Group]],
    placement: Placement,
    written: dict[Buffer, list[_Use]],
    read: dict[Buffer, list[_Use]],
) -> None:
    """Find new values that can overwrite the old ones, because nothing reads these afterwards."""
    order = {id(group): place for place, group in enumerate(group for stage in groups for group in stage)}
    begins = [sum(len(stage) for stage in groups[:number]) for number in range(len(groups) + 1)]
    last_pass = {b: number for number, stage in enumerate(program.stages) for s in stage.batch for b in sources(s)}
    for name, old in program.inputs.items():
        new = program.outputs.get(name)
        if not isinstance(new, View) or not {new.buffer, old.buffer} <= set(placement.memory):
            continue
        if len(written.get(new.buffer, [])) != 1:
            continue
        writer = written[new.buffer][0]
        out = writer.statement.out
        if len({(sizes(v), moves(v, v), v.offset, v.buffer.size) for v in (old, new, out)}) != 1:
            continue
        place = order[id(writer.group)]
        passed = old.buffer not in last_pass or begins[last_pass[old.buffer] + 1] <= place
        if passed and all(
            order[id(use.group)] < place or (use.group is writer.group and aligned(use.view, use.statement.out, out))
            for use in read.get(old.buffer, [])
        ):
            placement.memory[new.buffer] = old.buffer.name
            placement.replaced.add(name)
