"""Run torch's fused operation for a whole sequence (cuDNN's on a GPU)."""

from typing import Any

import torch
from torch import Tensor

from numerate.loops.timeloops import timeloop
from numerate.recurrent.cell import Cell, Parts, State
from numerate.recurrent.dispatch.native import PlainSteps


def run_fused(cell: Cell, p: Parts, x: Tensor, state: State, reverse: bool, plain: PlainSteps) -> tuple[Tensor, State]:
    """The whole sequence by ``cell.fused``; second derivatives and batches of gradients by plain steps."""
    names, count = list(p), len(state)
    state = tuple(entry.to(x.dtype) for entry in state)

    def operation(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        outputs, final = cell.fused(x.flip(0) if reverse else x, rest[:count], dict(zip(names, rest[count:])))
        return outputs.flip(0) if reverse else outputs, *final

    def again(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        q = dict(zip(names, rest[count:]))
        outputs, final = plain(cell.project(x, q), cell.prepare(q), rest[:count])
        return outputs, *final

    outputs, *final = _Fused.apply(operation, again, x, *state, *p.values())
    return outputs, tuple(final)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operation: Any, again: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        copies = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
        with torch.set_grad_enabled(any(ctx.needs_input_grad)):
            results = operation(*copies)
        ctx.again, ctx.copies, ctx.results = again, copies, results
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(result.detach() for result in results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        plain = timeloop.by_plain_steps(gradients)
        inputs = ctx.saved_tensors if plain else ctx.copies
        with torch.autocast(inputs[0].device.type, enabled=False):
            with torch.enable_grad():
                results = ctx.again(*inputs) if plain else ctx.results
            found = timeloop.gradients(results, gradients, inputs, ctx.needs_input_grad[2:])
        return None, None, *found
