"""S6, the selective state space model of Mamba (Gu & Dao, 2023)."""

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.recurrent.cell import Parts, State, empty_parameters
from numerate.recurrent.diagonal import DiagonalCell, wide
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.s4d import check_steps, log_uniform_


@dataclass(frozen=True, kw_only=True, repr=False)
class S6Cell(DiagonalCell):
    r"""S6; state (s,), (N, H): each feature of u = L x has N states, whose step, input and output depend on u.

    :math:`s'_n = e^{\Delta a_n} s_n + \Delta B_n u`, :math:`y = \sum_n C_n s'_n + d u`, where
    :math:`\Delta = \mathrm{softplus}(W_\Delta R u + b_\Delta)`, one for each feature, and B and C, N numbers each, are
    linear in u (algorithm 2; ΔB in place of the zero-order hold, as in the authors' code).
    :math:`a = -e^{\mathrm{log\_decay}}`.

    As in the authors' ``mamba_simple.py``, a starts at -1, -2, ..., -N (S4D-Real), softplus(b_Δ) log-uniform between
    ``step_min`` and ``step_max``, W_Δ at U(±1/√rank), d at 1, and all other maps as ``nn.Linear`` without a bias. L is
    Mamba's input projection; its convolution and its gate are not part of the recurrence.

    Args:
        input_size, hidden_size: Features of x and of y.
        state_size: N.
        step_rank: Rows of R; by default H / 16, rounded up.
        step_min, step_max: Where Δ starts.
    """

    state_size: int = 16
    step_rank: int | None = None
    step_min: float = 1e-3
    step_max: float = 1e-1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("state_size", *(("step_rank",) if self.step_rank is not None else ()))
        check_steps(self.step_min, self.step_max)

    @property
    def rank(self) -> int:
        """Rows of R."""
        return self.step_rank or ceil(self.hidden_size / 16)

    @property
    def modes(self) -> int:
        return self.state_size

    @property
    def summed(self) -> bool:
        return True

    @property
    def shared(self) -> bool:
        return True

    @property
    def columns(self) -> int:
        return 2

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.modes, self.units),)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (size, self.input_size),
            "weight_select": (self.rank + 2 * self.modes, size),
            "weight_step": (size, self.rank),
            "bias_step": (size,),
            "log_decay": (self.modes, size),
            "skip": (size,),
        }
        return empty_parameters(shapes, device, dtype)

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        fans = {"weight_ih": self.input_size, "weight_select": self.hidden_size, "weight_step": self.rank}
        for name, fan_in in fans.items():
            nn.init.uniform_(p[name], -1 / sqrt(fan_in), 1 / sqrt(fan_in), generator=generator)
        step = log_uniform_(torch.empty_like(wide(p["bias_step"])), self.step_min, self.step_max, generator).exp()
        p["bias_step"].copy_(step + (-(-step).expm1()).log())  # the inverse of softplus
        p["log_decay"].copy_(torch.arange(1, self.modes + 1, dtype=step.dtype, device=step.device).log().unsqueeze(-1))
        nn.init.ones_(p["skip"])

    def drive(self, x: Tensor, p: Parts) -> Tensor:
        u = F.linear(x, p["weight_ih"])
        rank, select = self.rank, p["weight_select"]
        step = F.linear(F.linear(u, select[:rank]), p["weight_step"], p["bias_step"])
        return torch.cat((F.softplus(step).to(u.dtype), u, F.linear(u, select[rank:])), -1)

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        return (-wide(p["log_decay"]).exp(),)

    def coefficients(self, columns: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        step, u = columns
        return (step * extras[0]).exp(), step * u, torch.ones_like(u)

    def skip(self, x: Tensor, gx: Tensor, p: Parts) -> Tensor:
        return gx[..., self.hidden_size : 2 * self.hidden_size] * p["skip"]

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        return {**super().observe(gx, state, new, p), "step": gx[..., : self.hidden_size]}


class S6(CellLayer):
    """S6 layer; see :class:`S6Cell`."""

    cell_type = S6Cell
