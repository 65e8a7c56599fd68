"""sLSTM, the LSTM with exponential gates and a normaliser (Beck et al., 2024, "xLSTM")."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.recurrent.cell import ColumnCell, Parts, State
from numerate.recurrent.layer import CellLayer

LARGEST = 10.0
"""Exponent of the largest factor on c and n, which is finite in every type of number; only n = 0 allows one above 0."""


def slstm(
    inlet: Tensor, log_forget: Tensor, candidate: Tensor, outlet: Tensor, c: Tensor, n: Tensor, m: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""One step from log i, log f and the maps of z and o; all (..., H) -> h', c', n', m'.

    :math:`m' = \max(\log f + m, \log i)`, :math:`c' = e^{\log f + m - m'} c + e^{\log i - m'} \tanh z`, n' likewise
    with 1 in place of tanh z, :math:`h' = \sigma(o) c' / n'`. The states c and n are those of the definition times
    :math:`e^{-m}`, so that no exponential overflows. Where n is 0, as before the first step, m' is log i, as in the
    authors' code: the new n is 1 there, however small i is.
    """
    kept = log_forget + m
    new = torch.where(n == 0, inlet, torch.maximum(kept, inlet))
    f, i = (kept - new).clamp(max=LARGEST).exp(), (inlet - new).exp()
    c, n = f * c + i * candidate.tanh(), f * n + i
    return outlet.sigmoid() * c / n, c, n, new


@dataclass(frozen=True, kw_only=True, repr=False)
class SLSTMCell(ColumnCell):
    r"""sLSTM; state (h, c, n, m); columns i, f, z, o.

    :math:`c' = f c + i z`, :math:`n' = f n + i`, :math:`h' = o c' / n'` with :math:`i = e^{\tilde i}`,
    f = σ(f̃) or :math:`e^{\tilde f}`, z = tanh(z̃), o = σ(õ), computed with the stabiliser m (:func:`slstm`).
    As in the authors' code for the first block, the forget bias of unit k of a head of H' starts at
    :math:`5 - 12 (k / (H' - 1))^{0.3}`, the other biases at 0. There recurrent weights start at 0, here all weights by
    ``weight_init``.

    Args:
        input_size, hidden_size: Features of x and of h.
        bias, recurrent_bias, weight_init: As in every :class:`ColumnCell`.
        heads: Recurrent connections join units of the same head only: ``weight_hh`` is (4H, H / heads).
        forget: f is ``"sigmoid"`` or ``"exponential"``; the latter starts at bias 0.
    """

    heads: int = 1
    forget: Literal["sigmoid", "exponential"] = "sigmoid"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("heads")
        if self.hidden_size % self.heads:
            raise ValueError(f"heads={self.heads} must divide the hidden size {self.hidden_size}")
        one_of("forget", self.forget, ("sigmoid", "exponential"))

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden_size,),) * 4

    def layout(self) -> dict[str, int]:
        return dict.fromkeys(("input", "forget", "candidate", "output"), self.hidden_size)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        parts = super().parts(device, dtype)
        shape = (4 * self.hidden_size, self.hidden_size // self.heads)
        return parts | {"weight_hh": nn.Parameter(torch.empty(shape, device=device, dtype=dtype))}

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        super().reset(p, generator)
        if self.bias and self.forget == "sigmoid":
            bias, size = self.named(p["bias_ih"])["forget"], self.hidden_size // self.heads
            place = torch.arange(size, device=bias.device, dtype=torch.float32) / max(size - 1, 1)
            bias.copy_((5 - 12 * place**0.3).repeat(self.heads))

    def recurrent_weight(self, p: Parts) -> Tensor:
        weight, heads = p["weight_hh"], self.heads
        if heads == 1:
            return weight
        blocks = weight.unflatten(0, (4, heads, -1))  # (4, heads, H', H')
        own = torch.eye(heads, dtype=weight.dtype, device=weight.device)
        return (blocks.unsqueeze(-2) * own[:, None, :, None]).flatten(-2).flatten(0, 2)

    def log_forget(self, forget: Tensor) -> Tensor:
        return -F.softplus(-forget) if self.forget == "sigmoid" else forget

    def activate(self, gx: Tensor, gh: Tensor, state: State, extras: tuple[Tensor, ...]) -> State:
        columns = self.named(gx + gh)
        return slstm(
            columns["input"], self.log_forget(columns["forget"]), columns["candidate"], columns["output"], *state[1:]
        )

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        """The gates as they act on the average c / n, whose weights sum to 1."""
        columns = self.columns(gx, state, p)
        inlet = (columns["input"] - new[3]).exp() / new[2]
        return {"forget": (1 - inlet).clamp(0, 1), "input": inlet, "output": columns["output"].sigmoid()}


class SLSTM(CellLayer):
    """sLSTM layer; see :class:`SLSTMCell`."""

    cell_type = SLSTMCell
