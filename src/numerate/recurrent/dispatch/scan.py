"""A loop over an unknown number of steps, for programs exported with a dynamic time dimension.

``torch.export`` unrolls a Python loop, so it needs its length. Torch's scan, one operation of the exported program,
does not.
"""

from torch import Tensor

from numerate.recurrent.cell import Cell, Parts, State
from numerate.torch_internals import scan


def scan_steps(cell: Cell, gx: Tensor, prepared: Parts, state: State, reverse: bool) -> tuple[Tensor, State]:
    """As :func:`numerate.recurrent.dispatch.plain.plain_steps` without its options; gx: (T, B, columns)."""
    def step(state: State, g: Tensor) -> tuple[State, Tensor]:
        output, new = cell.step(g, state, prepared)
        return tuple(entry.clone() for entry in new), output.clone()  # scan allows no result to share memory

    final, outputs = scan()(step, tuple(entry.clone() for entry in state), gx, dim=0, reverse=reverse)
    return outputs, tuple(final)
