"""Run the compiled loop of a diagonal cell; its products are made for all steps at once."""

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from numerate.loops.timeloops import diagonal
from numerate.loops.timeloops.diagonal import DiagonalLoop
from numerate.loops.timeloops.timeloop import Walk
from numerate.recurrent.cell import Parts, State
from numerate.recurrent.diagonal import DiagonalCell
from numerate.recurrent.dispatch.plain import plain_steps


class _States:
    """The steps of a diagonal cell without its readout, as ``plain_steps`` walks them."""

    def __init__(self, cell: DiagonalCell) -> None:
        self.cell, self.output_size = cell, cell.lanes.out

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        return self.cell.advance(gx, state, p["extras"])


def run_diagonal(
    cell: DiagonalCell,
    p: Parts,
    x: Tensor,
    state: State,
    batch_sizes: Sequence[int] | None,
    reverse: bool,
    loop: DiagonalLoop,
) -> tuple[Tensor, State]:
    """As :func:`numerate.recurrent.dispatch.unroll.unroll`, by ``loop``.

    Under autocast a CPU computes in the loop's type; on a GPU the products are those of autocast.
    """
    equal, steps = batch_sizes is None, x.shape[0]
    number = torch.promote_types(loop.dtype, torch.float32)
    walk = Walk((x.shape[1],) * steps if batch_sizes is None else tuple(batch_sizes), reverse)

    def again(gx: Tensor, state: State, extras: State) -> tuple[Tensor, State]:
        gx = (gx.unflatten(0, (steps, -1)) if equal else gx).to(number)
        states: object = _States(cell)
        out, final = plain_steps(states, gx, {"extras": extras}, state, batch_sizes=batch_sizes, reverse=reverse)  # type: ignore[arg-type]
        return (out.flatten(0, 1) if equal else out).to(loop.dtype), final

    on_cpu = x.device.type == "cpu"
    with torch.autocast("cpu", enabled=False) if on_cpu else nullcontext():
        if on_cpu and len({x.dtype, *(value.dtype for value in p.values())}) > 1:  # autocast
            p, x = {name: value.to(loop.dtype) for name, value in p.items()}, x.to(loop.dtype)
        gx = cell.drive(x, p)
        start, extras = (tuple(tensor.to(number) for tensor in group) for group in (state, cell.extras(p)))
        flat = (gx.flatten(0, 1) if equal else gx).to(loop.dtype)
        out, final = diagonal.run(loop, walk, flat, start, extras, again)
        out = (out.unflatten(0, (steps, -1)) if equal else out).to(gx.dtype)
        return cell.read(out, cell.skip(x, gx, p), cell.readout(p)), final
