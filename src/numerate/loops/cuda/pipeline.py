"""From a program to CUDA: the passes, in order."""

from collections.abc import Iterable, Iterator

from numerate.loops.cuda.barriers import insert_barriers
from numerate.loops.cuda.evaluation import entry, fits, side_by_side_function, wide_function, widen
from numerate.loops.cuda.source import Source, source_of
from numerate.loops.cuda.statements import GpuSchedule, values_of_data
from numerate.loops.cuda.training import READ_EACH_STEP, rows_at_once, training_function
from numerate.loops.cuda.tuning import (
    LARGE_EVALUATION,
    LARGE_MEMBER,
    MEDIUM_MEMBER,
    MEMBERS_AND_EXAMPLES,
    MEMBERS_SIDE_BY_SIDE,
    REMATERIALISED_OPERATIONS,
    REPLICATED_ELEMENTS,
    SHARED_BYTES,
    SMALL_EVALUATION,
    SMALL_MEMBER,
    SUMS_IN_REGISTERS,
    UNROLLING,
)
from numerate.loops.form.ir import Buffer, Program, sources
from numerate.loops.kernel.builder import tables
from numerate.loops.kernel.form import Function, Kernel
from numerate.loops.passes.batch_sums import large_batch_sums, reject_batch_sums
from numerate.loops.passes.distribute import distribute, latest
from numerate.loops.passes.enumerate_booleans import enumerate_booleans
from numerate.loops.passes.nests import arrange_loops
from numerate.loops.passes.placement import place
from numerate.loops.passes.rematerialise import rematerialise
from numerate.loops.step import Step
from numerate.loops.tracing.trace import NotLowered

# ---------------------------------------------------------------- what training and evaluation share


def schedule(program: Program, threads: int) -> GpuSchedule:
    """Decide which thread computes what, in which loops, and where values lie."""
    stages = latest(program.stages)  # compute the member's values as late as they are needed
    groups = [distribute(statements, REPLICATED_ELEMENTS) for statements in stages]  # replicate, or share among threads
    large = large_batch_sums(program, SUMS_IN_REGISTERS, UNROLLING)  # find sums that must go through shared memory
    in_memory = {buffer for total in large for buffer in sources(total)}
    small = ([s for s in stage.batch if s not in large] for stage in program.stages)
    examples = (rematerialise(s, in_memory, REMATERIALISED_OPERATIONS) for s in small)  # recompute cheap values
    nests = [arrange_loops(statements, UNROLLING) for statements in examples]  # unroll small axes, fuse loops of others
    placement = place(program, groups, nests, large)  # place the member's values in registers or shared memory
    exact = values_of_data(program, nests)  # keep the examples' numbers from being fused, equal in all loops
    return GpuSchedule(program, threads, groups, nests, large, placement, exact)


# ---------------------------------------------------------------- training


def training_source(step: Step, program: Program, threads: int) -> Source:
    """The kernel ``train``, with ``threads`` for each member."""
    scheduled = schedule(program, threads)  # the passes above
    scheduled.placement.registers |= _read_each_step(program)  # keep what changes every step in registers
    rows = rows_at_once(step, threads, max(map(scheduled.work, scheduled.nests)))  # how many examples to draw together
    function, floats = training_function(step, scheduled, rows)  # write the kernel: members, steps, batch
    _with_barriers(function, scheduled)  # insert barriers
    kernel = Kernel([function], tables(program))
    return source_of("train", kernel, threads, floats, rows=rows, tiled=bool(scheduled.large_sums))  # print


def emit_training(step: Step, program: Program, threads: int | None = None, limit: int = SHARED_BYTES) -> Source:
    """The kernel that trains; with as many threads for a member as its size asks for and shared memory allows."""
    if threads is not None:
        return _fitting([training_source(step, program, threads)], limit)
    small = training_source(step, program, SMALL_MEMBER)
    if not small.shared:
        return small
    if not small.tiled:
        return _fitting([training_source(step, program, MEDIUM_MEMBER)], limit)
    choices = (training_source(step, program, LARGE_MEMBER >> halvings) for halvings in range(5))
    return _fitting((source for source in choices if not _idle(source, step)), limit)


def _read_each_step(program: Program) -> set[Buffer]:
    return {program.inputs[name].buffer for name in READ_EACH_STEP if name in program.inputs}


def _idle(source: Source, step: Step) -> bool:
    """Whether half of the threads would have no examples; a warp works at any size."""
    return source.threads > MEDIUM_MEMBER and source.threads * source.rows >= 2 * step.batch


# ---------------------------------------------------------------- evaluation


def evaluation_sources(program: Program) -> Iterator[Source]:
    """The kernel ``evaluate``: the mean loss of every member on the same numbers, one block for one or some of them.

    The best first; those after it need less shared memory.
    """
    small = schedule(program, SMALL_EVALUATION)
    if not small.placement.memory and not any(nest.loops for nest in small.nests[0]):
        yield _side_by_side(program, small)
        return
    plain = schedule(widen(program, 1, 1).program, LARGE_EVALUATION)
    for members, examples in MEMBERS_AND_EXAMPLES:
        if source := _wide(program, members, examples, plain):
            yield source


def emit_evaluation(program: Program, limit: int = SHARED_BYTES) -> Source:
    """The kernel that gives the mean loss on fixed examples."""
    program = enumerate_booleans(reject_batch_sums(program))  # compute once per combination of an example's Booleans
    return _fitting(evaluation_sources(program), limit)


def _side_by_side(program: Program, scheduled: GpuSchedule) -> Source:
    """Several members of equal constants, all in registers."""
    some = side_by_side_function(scheduled)
    _with_barriers(some, scheduled)
    constants = {name for name in program.inputs if name.startswith("constants.")}
    kernel = entry(f"some<{MEMBERS_SIDE_BY_SIDE}>", "some<1>", MEMBERS_SIDE_BY_SIDE, program, constants)
    whole = Kernel([some, kernel], tables(program))
    return source_of("evaluate", whole, scheduled.threads, 0, side_by_side=MEMBERS_SIDE_BY_SIDE)


def _wide(program: Program, members: int, examples: int, plain: GpuSchedule) -> Source | None:
    """Members and examples as axes, if these fit: one function for all members, and one for a member alone."""
    functions: list[Function] = []
    floats = 0
    names = {1: "alone", members: "some" if members > 1 else "alone"}
    for count, name in names.items():
        widened = widen(program, count, examples)
        scheduled = schedule(widened.program, LARGE_EVALUATION)
        if count == members and (members, examples) != (1, 1) and not fits(scheduled, plain):
            return None
        function, floats = wide_function(name, widened, scheduled)
        _with_barriers(function, scheduled)
        functions.append(function)
    functions.append(entry("some", "alone", members, program, widen(program, 1, 1).shared))
    kernel = Kernel(functions, tables(program))
    return source_of("evaluate", kernel, LARGE_EVALUATION, floats, rows=examples, side_by_side=members)


# ---------------------------------------------------------------- helpers


def _with_barriers(function: Function, scheduled: GpuSchedule) -> None:
    function.body = insert_barriers(function.body, scheduled.placement.memory)


def _fitting(sources: Iterable[Source], limit: int) -> Source:
    """The first that a block's shared memory can hold."""
    needed = 0
    for source in sources:
        if (needed := source.shared) <= limit:
            return source
    raise NotLowered(f"one member needs {needed} bytes of shared memory; a block on this device has {limit}")
