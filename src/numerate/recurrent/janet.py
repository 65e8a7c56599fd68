"""JANET, the LSTM with a forget gate alone (van der Westhuizen & Lasenby, 2018)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from numerate.recurrent import init
from numerate.recurrent.cell import ColumnCell, Parts, State
from numerate.recurrent.gates import Timescale, check_start
from numerate.recurrent.layer import CellLayer


def janet(forget: Tensor, candidate: Tensor, h: Tensor, beta: float = 1.0) -> Tensor:
    r"""One step from pre-activations: :math:`h' = \sigma(s) h + (1 - \sigma(s - \beta)) \tanh(u)`; all (..., H)."""
    return forget.sigmoid() * h + (1 - (forget - beta).sigmoid()) * candidate.tanh()


@dataclass(frozen=True, kw_only=True, repr=False)
class JANETCell(ColumnCell):
    r"""JANET; state (h,); columns f, u: :math:`h' = \sigma(s) h + (1 - \sigma(s - \beta)) \tanh(u)`.

    Args:
        input_size, hidden_size: Features of x and of h.
        bias, recurrent_bias: As in every :class:`ColumnCell`.
        weight_init: Scheme of the weights; Glorot-uniform by default.
        beta: β.
        forget_bias: Where the forget bias starts, 1 by default; the other bias starts at 0.
        timescale: In its place, chrono values log U[1, timescale], as in the authors' code.
    """

    weight_init: init.WeightInit = "xavier_uniform"
    beta: float = 1.0
    forget_bias: float | None = None
    timescale: Timescale = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_start(self.bias, self.forget_bias, self.timescale)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),)

    def layout(self) -> dict[str, int]:
        return {"forget": self.hidden_size, "candidate": self.hidden_size}

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        super().reset(p, generator)
        if not self.bias:
            return
        forget = self.named(p["bias_ih"])["forget"]
        if self.timescale is None:
            nn.init.constant_(forget, 1.0 if self.forget_bias is None else self.forget_bias)
        else:
            init.chrono_(forget, self.timescale, offset=0.0, generator=generator)

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        columns = self.named(gx + gh)
        return (janet(columns["forget"], columns["candidate"], state[0], self.beta),)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        forget = self.columns(gx, state, p)["forget"]
        return {"forget": forget.sigmoid(), "input": 1 - (forget - self.beta).sigmoid()}


class JANET(CellLayer):
    """JANET layer; see :class:`JANETCell`."""

    cell_type = JANETCell
