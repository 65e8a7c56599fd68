"""Any arithmetic unit as a recurrent cell, on [x_t, h_{t-1}] (Trask et al., 2018)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from numerate.recurrent.cell import Cell, Parts, State
from numerate.recurrent.layer import CellLayer


@dataclass(frozen=True, repr=False)
class UnitCell(Cell):
    """h' = unit([x; h]); state (h,). ``unit`` is a class or callable (in_features, out_features, device=, dtype=).

    The unit is a sub-module of its owner (``unit_l0``), so its bounds, penalty and formula are found there.
    """

    unit: Callable[..., nn.Module] = nn.Linear

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size = self.hidden_size
        return {"unit": self.unit(self.input_size + size, size, device=device, dtype=dtype)}

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        p["unit"].reset_parameters(*(() if generator is None else (generator,)))

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        h = p["unit"](torch.cat((gx, state[0]), -1))
        return h, (h,)


class UnitRNN(CellLayer):
    """An arithmetic unit along time, ``UnitRNN(10, 2, unit=NALU)``; see :class:`UnitCell`."""

    cell_type = UnitCell
