"""Plain steps, one after the other: what every other loop is compared with."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from numerate.recurrent.cell import Cell, Parts, State

Observer = Callable[[dict[str, Tensor]], None]
"""Receives what the cell lets one see of each step, in the order of the steps."""


def zone_out(new: State, old: State, rates: Sequence[float], training: bool) -> State:
    """Zoneout (Krueger et al., 2017): values of the state stay with their rate; outside training, the expectation."""
    zoned = []
    for now, before, rate in zip(new, old, rates):
        if rate == 0:
            zoned.append(now)
        elif training:
            zoned.append(torch.where(torch.rand_like(now) < rate, before, now))
        else:
            zoned.append(rate * before + (1 - rate) * now)
    return tuple(zoned)


def plain_steps(
    cell: Cell,
    gx: Tensor,
    prepared: Parts,
    state: State,
    *,
    batch_sizes: Sequence[int] | None = None,
    reverse: bool = False,
    zoneout: Sequence[float] = (),
    training: bool = False,
    observer: Observer | None = None,
) -> tuple[Tensor, State]:
    """Walk from projected inputs; (T, B, columns), or packed (rows, columns) -> outputs, final state.

    Args:
        cell, batch_sizes, reverse, zoneout, training, observer: As in ``unroll``.
        gx: What ``cell.project`` made of the inputs.
        prepared: What ``cell.prepare`` made of the parameters.
        state: The state before the first step.
    """
    steps = gx.unbind(0) if batch_sizes is None else gx.split(list(batch_sizes))
    start, finished, outputs = state, [], []
    if batch_sizes is not None and reverse:
        state = tuple(entry[: batch_sizes[-1]] for entry in start)
    for g in reversed(steps) if reverse else steps:
        if batch_sizes is not None:
            rows, alive = state[0].shape[0], g.shape[0]
            if alive > rows:  # walking backwards, longer sequences come in with their initial state
                state = tuple(torch.cat((entry, first[rows:alive])) for entry, first in zip(state, start))
            elif alive < rows:  # walking forwards, the shortest sequences have ended
                finished.append(tuple(entry[alive:] for entry in state))
                state = tuple(entry[:alive] for entry in state)
        output, new = cell.step(g, state, prepared)
        if any(zoneout):
            new = zone_out(new, state, zoneout, training)
            output = new[0]
        if observer is not None:
            observer(cell.observe(g, state, new, prepared))
        outputs.append(output)
        state = new
    if finished:
        state = tuple(torch.cat(entries) for entries in zip(state, *reversed(finished)))
    if reverse:
        outputs.reverse()
    if not outputs:
        return gx.new_zeros(*gx.shape[:-1], cell.output_size), state
    return (torch.stack(outputs) if batch_sizes is None else torch.cat(outputs)), state
