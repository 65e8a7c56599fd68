"""Walk a cell along time, by whichever loop :func:`~numerate.recurrent.dispatch.choose.choose` says."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import cast

import torch
from torch import Tensor

from numerate.loops.timeloops.diagonal import DiagonalLoop
from numerate.loops.timeloops.timeloop import SequenceLoop
from numerate.recurrent.cell import Cell, Parts, State, autocast_enabled
from numerate.recurrent.diagonal import DiagonalCell
from numerate.recurrent.dispatch.choose import Choice, choose
from numerate.recurrent.dispatch.diagonal import run_diagonal
from numerate.recurrent.dispatch.fused import run_fused
from numerate.recurrent.dispatch.native import run_native
from numerate.recurrent.dispatch.plain import Observer, plain_steps
from numerate.recurrent.dispatch.scan import scan_steps


def unroll(
    cell: Cell,
    p: Parts,
    x: Tensor,
    state: State,
    *,
    batch_sizes: Sequence[int] | None = None,
    reverse: bool = False,
    zoneout: Sequence[float] = (),
    training: bool = False,
    observer: Observer | None = None,
) -> tuple[Tensor, State]:
    """Walk ``cell`` along time; x: (T, B, I) -> outputs (T, B, O), final state.

    Under autocast too, outputs have the type of x, and the state keeps its types.

    Args:
        cell: What computes one step.
        p: Its parameters by name.
        x: Inputs, (T, B, I), or packed, (sum of batch_sizes, I).
        state: The state before the first step.
        batch_sizes: If x is packed, rows of each step: those of the longest sequences.
        reverse: Walk from the last step to the first; outputs stay in the order of x.
        zoneout: Rate for each entry of the state.
        training: Whether zoneout draws, or takes the expectation.
        observer: Receives what the cell lets one see, in the order of the walk.
    """
    stepwise = observer is not None or any(zoneout)
    choice = choose(cell, p, x, state, batch_sizes, reverse, stepwise)
    if choice.kind == "outside_graph":
        from numerate.recurrent.dispatch.outside_graph import unroll_outside_graph

        return unroll_outside_graph(
            cell, p, x, state,
            batch_sizes=batch_sizes, reverse=reverse, zoneout=zoneout, training=training, observer=observer,
        )  # fmt: skip
    if choice.kind == "plain":
        outputs, final = plain_steps(
            cell, cell.project(x, p), cell.prepare(p), state,
            batch_sizes=batch_sizes, reverse=reverse, zoneout=zoneout, training=training, observer=observer,
        )  # fmt: skip
    elif choice.kind == "scan":
        if stepwise:
            raise ValueError("zoneout and inspection need a known number of steps: export with a fixed time dimension")
        outputs, final = scan_steps(cell, cell.project(x, p), cell.prepare(p), state, reverse)
    else:
        outputs, final = _run(choice, cell, p, x, state, batch_sizes, reverse)
    return outputs.to(x.dtype), tuple(entry.to(given.dtype) for entry, given in zip(final, state))


def _run(
    choice: Choice, cell: Cell, p: Parts, x: Tensor, state: State, batch_sizes: Sequence[int] | None, reverse: bool
) -> tuple[Tensor, State]:
    """A native or fused loop, on tensors of its type of number."""
    if isinstance(cell, DiagonalCell):
        return run_diagonal(cell, p, x, state, batch_sizes, reverse, cast(DiagonalLoop, choice.loop))
    plain = partial(plain_steps, cell.walked, batch_sizes=batch_sizes, reverse=reverse)
    casting = autocast_enabled(x.device)
    with torch.autocast(x.device.type, enabled=False) if casting else nullcontext():
        if casting:
            p, x = {name: value.to(choice.dtype) for name, value in p.items()}, x.to(choice.dtype)
        if choice.loop is None:
            return run_fused(cell, p, x, state, reverse, plain)
        return run_native(cell, p, x, state, batch_sizes, reverse, cast(SequenceLoop, choice.loop), plain)
