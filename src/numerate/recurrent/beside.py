"""The loop over time beside a graph of ``torch.compile``; a file of its own, as the decorator imports the compiler."""

from typing import Any

import torch
from torch import Tensor

from numerate.recurrent.cell import State
from numerate.recurrent.fast import SHORTEST
from numerate.recurrent.unroll import unroll


@torch.compiler.disable(reason=f"sequences of {SHORTEST} steps and more have a loop of their own")
def unroll_beside_graph(*arguments: Any, **options: Any) -> tuple[Tensor, State]:
    return unroll(*arguments, **options)
