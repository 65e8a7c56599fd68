"""minGRU and minLSTM: gates that see the input alone (Feng et al., 2024, "Were RNNs all we needed?")."""

from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.recurrent.cell import Parts, State, empty_parameters, linear
from numerate.recurrent.diagonal import DiagonalCell
from numerate.recurrent.layer import CellLayer


def positive_candidate(x: Tensor) -> Tensor:
    """The paper's g, which is positive: x + 1/2 for x ≥ 0, else σ(x); any shape."""
    return torch.where(x >= 0, x + 0.5, x.sigmoid())


def mingru(update: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
    r"""a and b of :math:`h' = (1 - z) h + z \tilde h`, :math:`z = \sigma(u)`; all (..., H)."""
    return (-update).sigmoid(), update.sigmoid() * candidate


def minlstm(forget: Tensor, inlet: Tensor, candidate: Tensor) -> tuple[Tensor, Tensor]:
    r"""a and b of :math:`h' = \frac{f}{f + i} h + \frac{i}{f + i} \tilde h`, f and i the maps' sigmoids; all (..., H).

    The quotients are sigmoids of the difference of log f and log i, so that no gate is too small to divide by.
    """
    difference = F.softplus(-forget) - F.softplus(-inlet)  # log i - log f
    return (-difference).sigmoid(), difference.sigmoid() * candidate


@dataclass(frozen=True, kw_only=True, repr=False)
class MinCell(DiagonalCell):
    """What both share: blocks of H columns, all linear in x, which start as those of ``nn.Linear``; state (h,).

    Args:
        input_size, hidden_size: Features of x and of h.
        bias: Whether there is ``bias_ih``.
        candidate: ``"positive"``: g of the candidate's map, as in the paper's appendix and experiments; ``"linear"``:
            the map itself.
    """

    bias: bool = True
    candidate: Literal["positive", "linear"] = "positive"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("candidate", self.candidate, ("positive", "linear"))

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        rows = self.columns * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, self.input_size)}
        return empty_parameters(shapes | ({"bias_ih": (rows,)} if self.bias else {}), device, dtype)

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        for value in p.values():
            nn.init.uniform_(value, -1 / sqrt(self.input_size), 1 / sqrt(self.input_size), generator=generator)

    def drive(self, x: Tensor, p: Parts) -> Tensor:
        return linear(x, p["weight_ih"], p.get("bias_ih"))

    def squashed(self, candidate: Tensor) -> Tensor:
        return positive_candidate(candidate) if self.candidate == "positive" else candidate

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        seen = super().observe(gx, state, new, p)
        return seen | {"input": 1 - seen["forget"]}


@dataclass(frozen=True, kw_only=True, repr=False)
class MinGRUCell(MinCell):
    r"""minGRU; columns z, h: :math:`h' = (1 - z) h + z g(L_h x)`, :math:`z = \sigma(L_z x)`."""

    @property
    def columns(self) -> int:
        return 2

    def coefficients(self, columns: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        update, candidate = columns
        return mingru(update, self.squashed(candidate))


@dataclass(frozen=True, kw_only=True, repr=False)
class MinLSTMCell(MinCell):
    r"""minLSTM; columns f, i, h: :math:`h' = f' h + i' g(L_h x)`, :math:`f' = f / (f + i)`, :math:`i' = i / (f + i)`.

    f and i are the sigmoids of maps of x.
    """

    @property
    def columns(self) -> int:
        return 3

    def coefficients(self, columns: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        forget, inlet, candidate = columns
        return minlstm(forget, inlet, self.squashed(candidate))


class MinGRU(CellLayer):
    """minGRU layer; see :class:`MinGRUCell`."""

    cell_type = MinGRUCell


class MinLSTM(CellLayer):
    """minLSTM layer; see :class:`MinLSTMCell`."""

    cell_type = MinLSTMCell
