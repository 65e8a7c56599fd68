"""Update-gate recurrent network (Collins et al., 2017)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from numerate.recurrent.cell import ColumnCell, Parts, State
from numerate.recurrent.gates import check_start
from numerate.recurrent.layer import CellLayer


def ugrnn(forget: Tensor, candidate: Tensor, h: Tensor) -> Tensor:
    r"""One step from pre-activations: :math:`h' = \sigma(g) h + (1 - \sigma(g)) \tanh(c)`; all (..., H)."""
    g = forget.sigmoid()
    return g * h + (1 - g) * candidate.tanh()


@dataclass(frozen=True, kw_only=True, repr=False)
class UGRNNCell(ColumnCell):
    r"""UGRNN; state (h,); columns g, c: :math:`h' = \sigma(g) h + (1 - \sigma(g)) \tanh(c)`.

    Args:
        input_size, hidden_size: Features of x and of h.
        bias, recurrent_bias, weight_init: As in every :class:`ColumnCell`.
        forget_bias: Where the gate's bias starts, 1 by default.
    """

    forget_bias: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self.bias, self.forget_bias)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),)

    def layout(self) -> dict[str, int]:
        return {"forget": self.hidden_size, "candidate": self.hidden_size}

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        super().reset(p, generator)
        if self.bias:
            self.named(p["bias_ih"])["forget"].fill_(1.0 if self.forget_bias is None else self.forget_bias)

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        columns = self.named(gx + gh)
        return (ugrnn(columns["forget"], columns["candidate"], state[0]),)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        f = self.columns(gx, state, p)["forget"].sigmoid()
        return {"forget": f, "input": 1 - f}


class UGRNN(CellLayer):
    """UGRNN layer; see :class:`UGRNNCell`."""

    cell_type = UGRNNCell
