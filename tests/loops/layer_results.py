"""What a layer computes by one of its loops; shared by the tests of loops."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from numerate.recurrent import CellLayer
from numerate.recurrent.dispatch import use_loop


def results(model: CellLayer, x: Tensor, mode: Any, lengths: Tensor | None = None) -> list[Tensor]:
    """Outputs, final state and gradients of one run."""
    x = x.clone().requires_grad_()
    with use_loop(mode):
        packed = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
        outputs, final = model(packed)
    found = [outputs.data if isinstance(outputs, PackedSequence) else outputs, *final]
    generator = torch.Generator(x.device).manual_seed(1)
    above = [torch.randn(r.shape, device=x.device, generator=generator).to(r.dtype) for r in found]
    return [*found, *torch.autograd.grad(found, [x, *model.parameters()], above)]
