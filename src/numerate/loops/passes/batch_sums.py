"""Sums over the batch: where there may be none, and which of them are too large for registers."""

import math

from numerate.loops.form.ir import BatchSum, Program, statements_of
from numerate.loops.passes.nests import Unrolling, arrange_loops
from numerate.loops.tracing.trace import NotLowered


def reject_batch_sums(program: Program) -> Program:
    """The same program; raises :class:`NotLowered` if it needs statistics of the batch."""
    if any(isinstance(s, BatchSum) for s in statements_of(program)):
        raise NotLowered("evaluation with statistics of the batch")
    return program


def large_batch_sums(program: Program, most: int, unrolling: Unrolling) -> list[BatchSum]:
    """The longest sums over the batch, so that the others have at most ``most`` elements in all."""
    found = [s for s in statements_of(program) if isinstance(s, BatchSum)]
    large = [s for s in found if arrange_loops([s], unrolling)[0].loops]
    small = sorted((s for s in found if s not in large), key=lambda s: math.prod(s.out.shape))
    while sum(math.prod(s.out.shape) for s in small) > most:
        large.append(small.pop())
    return [s for s in found if s in large]
