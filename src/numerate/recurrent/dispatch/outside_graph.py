"""The loop over time outside a graph of ``torch.compile``; a file of its own, as the decorator imports the compiler."""

from typing import Any

import torch
from torch import Tensor

from numerate.recurrent.cell import State
from numerate.recurrent.dispatch.mode import SHORTEST
from numerate.recurrent.dispatch.unroll import unroll

REASON = (
    f"numerate's recurrent layers take up to {SHORTEST - 1} steps into a compiled graph and run longer sequences "
    "outside it, by a loop of their own: compile without fullgraph=True"
)


@torch.compiler.disable(reason=REASON)
def unroll_outside_graph(*arguments: Any, **options: Any) -> tuple[Tensor, State]:
    return unroll(*arguments, **options)
