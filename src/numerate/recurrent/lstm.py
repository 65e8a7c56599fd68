"""Long short-term memory (Hochreiter & Schmidhuber, 1997) with any of the nine gates."""

from dataclasses import dataclass

from torch import Tensor

from numerate.recurrent.cell import Parts, State
from numerate.recurrent.gated import GatedCell
from numerate.recurrent.layer import CellLayer
from numerate.torch_internals import fused_lstm


def lstm(forget: Tensor, inlet: Tensor, candidate: Tensor, outlet: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    r"""One step from effective gates F, I: :math:`c' = F c + I \tanh(g)`, :math:`h' = \sigma(o) \tanh(c')`.

    All (..., H) -> h', c': (..., H).
    """
    c = forget * c + inlet * candidate.tanh()
    return outlet.sigmoid() * c.tanh(), c


@dataclass(frozen=True, kw_only=True, repr=False)
class LSTMCell(GatedCell):
    """LSTM; state (h, c); columns i, f, g, o as in torch, then the two master gates where the gate has them.

    With a refine gate the block i holds the refinement; with a tied gate it is absent.
    """

    @property
    def order(self) -> tuple[str, ...]:
        return "partner", "forget", "candidate", "output"

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.hidden_size,), (self.hidden_size,)

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        columns = self.named(gx + gh)
        f, i = self.open_gates(columns)
        return lstm(f, i, columns["candidate"], columns["output"], state[1])

    @property
    def has_fused(self) -> bool:
        return self.ordinary_gate and not self.mechanism.tied

    def fused(self, x: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        weights, start = self.fused_weights(p), [entry.unsqueeze(0) for entry in state]
        output, *final = fused_lstm(x, start, weights)
        return output, tuple(entry.squeeze(0) for entry in final)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        columns = self.columns(gx, state, p)
        return {**self.observe_gates(columns), "output": columns["output"].sigmoid()}


class LSTM(CellLayer):
    """LSTM layer with any gate; torch's ``nn.LSTM`` weights load into it. See :class:`LSTMCell` for its keywords."""

    cell_type = LSTMCell
