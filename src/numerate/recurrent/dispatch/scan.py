"""A loop over an unknown number of steps, for programs exported with a dynamic time dimension.

``torch.export`` unrolls a Python loop, so it needs its length. Torch's scan, one operation of the exported program,
does not.
"""

from typing import Any

from torch import Tensor

from numerate.recurrent.cell import Cell, Parts, State
from numerate.torch_internals import scan


def scan_steps(cell: Cell, gx: Tensor, prepared: Parts, state: State, reverse: bool) -> tuple[Tensor, State]:
    """As :func:`numerate.recurrent.dispatch.plain.plain_steps` without its options; gx: (T, B, columns)."""
    parts = {name: _apart(value) for name, value in prepared.items()}

    def step(state: State, g: Tensor) -> tuple[State, Tensor]:
        output, new = cell.step(g, state, parts)
        return _apart(new), output.clone()

    final, outputs = scan()(step, _apart(state), gx, dim=0, reverse=reverse)
    return outputs, tuple(final)


def _apart(value: Any) -> Any:
    """Copies of tensors, alone or in a tuple, as scan allows none to share memory; other values as they are."""
    if isinstance(value, tuple):
        return tuple(map(_apart, value))
    return value.clone() if isinstance(value, Tensor) else value
