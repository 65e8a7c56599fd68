"""S5, one diagonal state space model with many inputs and outputs (Smith et al., 2023)."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import positive
from numerate.recurrent.cell import Parts, empty_parameters
from numerate.recurrent.diagonal import DiagonalCell, wide
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.s4d import check_even, check_steps, log_uniform_, zero_order_hold


def hippo_normal(size: int) -> tuple[Tensor, Tensor]:
    r"""Eigenvalues and eigenvectors of HiPPO-N, the normal part of HiPPO-LegS, in double precision.

    HiPPO-LegS is :math:`A_{nk} = -\sqrt{(2n + 1)(2k + 1)}` below its diagonal and :math:`-(n + 1)` on it;
    :math:`A + p p^\top` with :math:`p_n = \sqrt{n + 1/2}` is normal: -1/2 plus a skew-symmetric matrix. -> the N/2
    eigenvalues with negative imaginary part, (N/2,) complex, and their eigenvectors as columns, (N, N/2).
    """
    n = torch.arange(size, dtype=torch.float64)
    root = (2 * n + 1).sqrt()
    skew = -0.5 * (root[:, None] * root).tril(-1)
    imaginary, vectors = torch.linalg.eigh(-1j * (skew - skew.mT))
    half = size // 2
    return torch.complex(torch.full((half,), -0.5, dtype=torch.float64), imaginary[:half]), vectors[:, :half]


@dataclass(frozen=True, kw_only=True, repr=False)
class S5Cell(DiagonalCell):
    r"""S5; state (re, im), N/2 numbers each.

    :math:`s' = \bar\Lambda s + \bar B x`, :math:`y = 2 \mathrm{Re}(C s') + D x`, with
    :math:`\bar\Lambda = e^{\Lambda \Delta}`, :math:`\bar B = \Lambda^{-1} (\bar\Lambda - 1) B` (zero-order hold), one Δ
    for each state. Of each pair of conjugate states one is kept. Λ starts at the eigenvalues of ``blocks`` HiPPO-N
    matrices of N / blocks states each; with V their eigenvectors, B at V⁻¹ N(0, 1/I), C at (N(0, 1/N) +
    i N(0, 1/N)) V and Δ log-uniform between ``step_min`` and ``step_max``. ``weight_ih`` is (Re B; Im B),
    ``weight_out`` (Re C, Im C), ``weight_skip`` D.

    The authors' code starts Λ and Δ in the same way, and C with the same variance if
    ``C_init="trunc_standard_normal"``. What it draws for B has variance 1/N, ours 1/I; its normal distributions for B
    and C are cut at two deviations. There I = H, D is a vector that starts at N(0, 1), and the real part of Λ is free;
    here D is a matrix that starts at N(0, 1/I), and the real part is -exp(``log_decay``).

    Args:
        input_size, hidden_size: Features of x and of y.
        state_size: N, even; by default the hidden size, or one more.
        blocks: How many HiPPO-N matrices Λ starts from.
        step_min, step_max: Where Δ starts.
    """

    state_size: int | None = None
    blocks: int = 1
    step_min: float = 1e-3
    step_max: float = 1e-1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("blocks")
        if self.state_size is not None:
            object.__setattr__(self, "state_size", positive("state_size", self.state_size))
            check_even(self.state_size)
        if self.states % (2 * self.blocks):
            raise ValueError(f"each of the {self.blocks} blocks needs an even share of state_size, got {self.states}")
        check_steps(self.step_min, self.step_max)

    @property
    def states(self) -> int:
        """N."""
        return self.state_size or self.hidden_size + self.hidden_size % 2

    @property
    def units(self) -> int:
        return self.states // 2

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
            "log_step": (units,),
            "log_decay": (units,),
            "frequency": (units,),
            "weight_out": (size, 2 * units),
            "weight_skip": (size, self.input_size),
        }
        return empty_parameters(shapes, device, dtype)

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        weight, device = p["weight_ih"], p["weight_ih"].device
        eigenvalues, vectors = (part.to(device) for part in hippo_normal(self.states // self.blocks))
        every = torch.block_diag(*[vectors] * self.blocks)
        real = torch.empty(self.states, self.input_size, dtype=torch.float64, device=device)
        drawn = nn.init.normal_(real, 0.0, 1 / sqrt(self.input_size), generator=generator)
        into = every.mH @ drawn.to(every.dtype)
        weight.copy_(torch.cat((into.real, into.imag)))
        drawn = torch.empty(2, self.hidden_size, self.states, dtype=torch.float64, device=device)
        nn.init.normal_(drawn, 0.0, 1 / sqrt(self.states), generator=generator)
        out_of = torch.complex(*drawn.unbind(0)) @ every
        p["weight_out"].copy_(torch.cat((out_of.real, out_of.imag), -1))
        nn.init.normal_(p["weight_skip"], 0.0, 1 / sqrt(self.input_size), generator=generator)
        p["log_decay"].copy_((-eigenvalues.real).log().repeat(self.blocks))
        p["frequency"].copy_(eigenvalues.imag.repeat(self.blocks))
        log_uniform_(p["log_step"], self.step_min, self.step_max, generator)

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        """Λ̄ and (Λ̄ - 1) / Λ, each as its parts."""
        held = zero_order_hold(wide(p["log_decay"]).exp(), wide(p["frequency"]), wide(p["log_step"]).exp())
        return tuple(part.unsqueeze(0) for part in held)

    def drive(self, x: Tensor, p: Parts) -> Tensor:
        return F.linear(x, p["weight_ih"])

    def coefficients(self, columns: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (re, im), (a_re, a_im, b_re, b_im) = columns, extras
        return a_re, a_im, b_re * re - b_im * im, b_re * im + b_im * re

    def skip(self, x: Tensor, gx: Tensor, p: Parts) -> Tensor:
        return F.linear(x, p["weight_skip"])

    def readout(self, p: Parts) -> Tensor:
        re, im = p["weight_out"].chunk(2, -1)
        return torch.cat((2 * re, -2 * im), -1)


class S5(CellLayer):
    """S5 layer; see :class:`S5Cell`."""

    cell_type = S5Cell
