"""Linear recurrent unit (Orvieto et al., 2023, "Resurrecting recurrent neural networks for long sequences")."""

from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import positive
from numerate.recurrent.cell import Parts, empty_parameters
from numerate.recurrent.diagonal import DiagonalCell, wide
from numerate.recurrent.layer import CellLayer


@dataclass(frozen=True, kw_only=True, repr=False)
class LRUCell(DiagonalCell):
    r"""LRU; state (re, im), N numbers each: :math:`h' = \lambda h + \gamma B x`, :math:`y = \mathrm{Re}(C h') + D x`.

    :math:`\lambda = \exp(-e^\nu + i e^\theta)`, so \|λ\| < 1; it starts uniformly on the ring between ``r_min`` and
    ``r_max``, with phases in [0, ``max_phase``]. γ = exp(``gamma_log``) starts at :math:`\sqrt{1 - |\lambda|^2}`. The
    parts of B start at N(0, 1/(2I)), those of C at N(0, 1/N), as in the paper's appendix A. D starts at N(0, 1/I); in
    the paper I = H, and D is a vector, here it is a matrix. ``weight_ih`` is (Re B; Im B), ``weight_out`` (Re C, Im C),
    ``weight_skip`` D.

    Args:
        input_size, hidden_size: Features of x and of y.
        state_size: N; the hidden size by default.
        r_min, r_max: Where \|λ\| starts.
        max_phase: Where its phase starts.
    """

    state_size: int | None = None
    r_min: float = 0.0
    r_max: float = 1.0
    max_phase: float = 2 * pi

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.state_size is not None:
            object.__setattr__(self, "state_size", positive("state_size", self.state_size))
        if not 0 <= self.r_min < self.r_max <= 1:
            raise ValueError(f"r_min < r_max must lie in [0, 1], got {self.r_min!r} and {self.r_max!r}")
        if not 0 < self.max_phase <= 2 * pi:
            raise ValueError(f"max_phase must lie in (0, 2π], got {self.max_phase!r}")

    @property
    def units(self) -> int:
        return self.state_size or self.hidden_size

    @property
    def complex(self) -> bool:
        return True

    @property
    def columns(self) -> int:
        return 2

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size, units = self.hidden_size, self.units
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (2 * units, self.input_size),
            "nu_log": (units,),
            "theta_log": (units,),
            "gamma_log": (units,),
            "weight_out": (size, 2 * units),
            "weight_skip": (size, self.input_size),
        }
        return empty_parameters(shapes, device, dtype)

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        nn.init.normal_(p["weight_ih"], 0.0, 1 / sqrt(2 * self.input_size), generator=generator)
        nn.init.normal_(p["weight_out"], 0.0, 1 / sqrt(self.units), generator=generator)
        nn.init.normal_(p["weight_skip"], 0.0, 1 / sqrt(self.input_size), generator=generator)
        u, phase = (torch.empty_like(wide(p["nu_log"])).uniform_(generator=generator) for _ in range(2))
        tiny = torch.finfo(u.dtype).eps  # keeps λ away from 0 and from the circle, where a logarithm ends
        square = (u * (self.r_max**2 - self.r_min**2) + self.r_min**2).clamp(tiny, 1 - tiny)
        p["nu_log"].copy_((-0.5 * square.log()).log())
        p["theta_log"].copy_((self.max_phase * phase.clamp_min(tiny)).log())
        p["gamma_log"].copy_(0.5 * (1 - square).log())

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        nu, theta = wide(p["nu_log"]).exp(), wide(p["theta_log"]).exp()
        size, gamma = (-nu).exp(), wide(p["gamma_log"]).exp()
        return tuple(part.unsqueeze(0) for part in (size * theta.cos(), size * theta.sin(), gamma))

    def drive(self, x: Tensor, p: Parts) -> Tensor:
        return F.linear(x, p["weight_ih"])

    def coefficients(self, columns: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        re, im, gamma = extras
        return re, im, gamma * columns[0], gamma * columns[1]

    def skip(self, x: Tensor, gx: Tensor, p: Parts) -> Tensor:
        return F.linear(x, p["weight_skip"])

    def readout(self, p: Parts) -> Tensor:
        re, im = p["weight_out"].chunk(2, -1)
        return torch.cat((re, -im), -1)


class LRU(CellLayer):
    """LRU layer; see :class:`LRUCell`."""

    cell_type = LRUCell
