"""The one loop over time. It knows cells by their protocol alone (:mod:`numerate.recurrent.cell`)."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from numerate.recurrent.cell import Cell, Parts, State
from numerate.recurrent.fast import SHORTEST, fast_unroll

Observer = Callable[[dict[str, Tensor]], None]


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


def unroll(
    cell: Cell,
    p: Parts,
    x: Tensor,
    state: State,
    *,
    sizes: Sequence[int] | None = None,
    reverse: bool = False,
    zoneout: Sequence[float] = (),
    training: bool = False,
    observer: Observer | None = None,
) -> tuple[Tensor, State]:
    """Walk ``cell`` along time; x: (T, B, I) -> outputs (T, B, O), final state.

    ``sizes`` says that x is packed, (sum of sizes, I): step t has rows for the ``sizes[t]`` longest sequences only.
    ``reverse`` walks from the last step to the first; outputs stay in the order of x. ``observer`` gets what the cell
    lets one see, in the order of the walk. Without such options a native loop does the same where there is one. Under
    autocast too, outputs have the type of x, and the state keeps its types.

    ``torch.compile`` takes short sequences into its graph, step by step, and leaves others to the native loop: a graph
    of hundreds of steps would compile for many minutes.
    """
    steps = x.shape[0] if sizes is None else len(sizes)
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting() and steps >= SHORTEST:
        from numerate.recurrent.beside import unroll_beside_graph

        return unroll_beside_graph(
            cell, p, x, state, sizes=sizes, reverse=reverse, zoneout=zoneout, training=training, observer=observer
        )
    if observer is None and not any(zoneout):
        found = fast_unroll(cell, p, x, state, sizes, reverse, partial(walk, cell, sizes=sizes, reverse=reverse))
        if found is not None:
            return found
    gx, prepared = cell.project(x, p), cell.prepare(p)
    outputs, final = walk(
        cell, gx, prepared, state, sizes=sizes, reverse=reverse, zoneout=zoneout, training=training, observer=observer
    )
    return outputs.to(x.dtype), tuple(entry.to(given.dtype) for entry, given in zip(final, state))


def walk(
    cell: Cell,
    gx: Tensor,
    prepared: Parts,
    state: State,
    *,
    sizes: Sequence[int] | None = None,
    reverse: bool = False,
    zoneout: Sequence[float] = (),
    training: bool = False,
    observer: Observer | None = None,
) -> tuple[Tensor, State]:
    """The plain loop, step by step, from projected inputs: what every other loop is compared with."""
    steps = gx.unbind(0) if sizes is None else gx.split(list(sizes))
    start, finished, outputs = state, [], []
    if sizes is not None and reverse:
        state = tuple(entry[: sizes[-1]] for entry in start)
    for g in reversed(steps) if reverse else steps:
        if sizes is not None:
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
    return (torch.stack(outputs) if sizes is None else torch.cat(outputs)), state
