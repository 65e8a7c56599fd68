"""Run a cell's compiled loop over time."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from numerate.loops.timeloops import timeloop
from numerate.loops.timeloops.products import NativeProducts
from numerate.loops.timeloops.timeloop import SequenceLoop, Walk
from numerate.recurrent.cell import Cell, Parts, State

PlainSteps = Callable[[Tensor, Parts, State], tuple[Tensor, State]]
"""Plain steps of what the loop walks, for second derivatives and batches of gradients.

From projected inputs, prepared parameters and a state.
"""


def run_native(
    cell: Cell,
    p: Parts,
    x: Tensor,
    state: State,
    batch_sizes: Sequence[int] | None,
    reverse: bool,
    loop: SequenceLoop,
    plain: PlainSteps,
) -> tuple[Tensor, State]:
    """As :func:`numerate.recurrent.dispatch.unroll.unroll`, by ``loop``, whose type of number x and p have."""
    equal, steps = batch_sizes is None, x.shape[0]
    number = torch.promote_types(loop.dtype, torch.float32)
    walk = Walk((x.shape[1],) * steps if batch_sizes is None else tuple(batch_sizes), reverse)

    def again(gx: Tensor, weight: Tensor, state: State, extras: State) -> tuple[Tensor, State]:
        gx = (gx.unflatten(0, (steps, -1)) if equal else gx).to(number)
        outputs, final = plain(gx, cell.prepared_with(p, weight.to(number), extras), state)
        return (outputs.flatten(0, 1) if equal else outputs).to(loop.dtype), final

    weight, extras = cell.loop_operands(p)
    with NativeProducts(loop.dtype) if x.device.type == "cpu" else nullcontext():
        columns = cell.project(x, p)
    gx = cell.loop_input(columns)
    gx = (gx.flatten(0, 1) if equal else gx).to(loop.dtype)
    start, extras = (tuple(tensor.to(number) for tensor in group) for group in (state, extras))
    outputs, final = timeloop.run(loop, walk, gx, weight.to(loop.dtype), start, extras, again)
    outputs = outputs.unflatten(0, (steps, -1)) if equal else outputs
    with NativeProducts(loop.dtype) if x.device.type == "cpu" else nullcontext():
        return cell.loop_output(outputs, columns, p), final
