"""S4D, a bank of diagonal state space models (Gu et al., 2022), and what discretises it."""

from dataclasses import dataclass
from math import log, pi, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from numerate.recurrent.cell import Parts, empty_parameters, linear
from numerate.recurrent.diagonal import DiagonalCell, wide
from numerate.recurrent.layer import CellLayer


def zero_order_hold(decay: Tensor, frequency: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Steps of :math:`\dot s = \lambda s + u`, λ = -``decay`` + i ``frequency``, with a constant u over ``step``.

    :math:`\bar\lambda = e^{\lambda \Delta}` and :math:`\bar b = (\bar\lambda - 1) / \lambda`, each as its real and
    imaginary part; any shapes that can be broadcast.
    """
    size, angle = -decay * step, frequency * step
    modulus, cosine = size.exp(), angle.cos()
    re, im = modulus * cosine, modulus * angle.sin()
    change = size.expm1() * cosine - 2 * (angle / 2).sin().square()  # Re λ̄ - 1 without cancellation
    square = decay.square() + frequency.square()
    return re, im, (im * frequency - change * decay) / square, -(im * decay + change * frequency) / square


def log_uniform_(value: Tensor, low: float, high: float, generator: torch.Generator | None = None) -> Tensor:
    """log of numbers drawn log-uniformly between ``low`` and ``high``, in place."""
    return nn.init.uniform_(value, log(low), log(high), generator=generator)


def check_steps(low: float, high: float) -> None:
    """Raise ValueError unless these are bounds of a step."""
    if not 0 < low < high:
        raise ValueError(f"step_min and step_max must be positive and in order, got {low!r} and {high!r}")


def check_even(state_size: int) -> None:
    """Raise ValueError unless a state can be pairs of conjugate numbers."""
    if state_size % 2:
        raise ValueError(f"state_size counts pairs of conjugate states: it must be even, got {state_size}")


@dataclass(frozen=True, kw_only=True, repr=False)
class S4DCell(DiagonalCell):
    r"""S4D; state (re, im), each (N/2, H): each feature of u = L x has N/2 conjugate pairs of states of its own.

    :math:`s' = \bar\lambda s + \bar b u`, :math:`y = 2 \mathrm{Re} \sum_n c_n s'_n + d u`, with
    :math:`\bar\lambda = e^{\lambda \Delta}`, :math:`\bar b = (\bar\lambda - 1) / \lambda` (zero-order hold, B = 1) and
    :math:`\lambda = -e^{\mathrm{log\_decay}} + i\, \mathrm{frequency}`. S4D-Lin: λ starts at -1/2 + iπn, n = 0, 1, ...;
    c at complex N(0, 1), d at N(0, 1), Δ log-uniform between ``step_min`` and ``step_max``, one for each feature, as in
    the authors' ``s4d.py``. L, which the paper leaves to the layer below, starts as ``nn.Linear``.

    Args:
        input_size, hidden_size: Features of x and of y.
        state_size: N, even.
        step_min, step_max: Where Δ starts.
        bias: Whether L has a bias.
    """

    state_size: int = 64
    step_min: float = 1e-3
    step_max: float = 1e-1
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("state_size")
        check_even(self.state_size)
        check_steps(self.step_min, self.step_max)

    @property
    def modes(self) -> int:
        return self.state_size // 2

    @property
    def complex(self) -> bool:
        return True

    @property
    def summed(self) -> bool:
        return True

    @property
    def columns(self) -> int:
        return 1

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        size, bank = self.hidden_size, (self.modes, self.hidden_size)
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (size, self.input_size)}
        shapes |= {"bias_ih": (size,)} if self.bias else {}
        shapes |= {"log_step": (size,), "log_decay": bank, "frequency": bank, "out_re": bank, "out_im": bank}
        return empty_parameters(shapes | {"skip": (size,)}, device, dtype)

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        for name in ("weight_ih", "bias_ih"):
            if name in p:
                nn.init.uniform_(p[name], -1 / sqrt(self.input_size), 1 / sqrt(self.input_size), generator=generator)
        log_uniform_(p["log_step"], self.step_min, self.step_max, generator)
        nn.init.constant_(p["log_decay"], log(0.5))
        order = torch.arange(self.modes, dtype=torch.float64, device=p["frequency"].device)
        p["frequency"].copy_(pi * order.unsqueeze(-1))
        for name in ("out_re", "out_im"):
            nn.init.normal_(p[name], 0.0, sqrt(0.5), generator=generator)
        nn.init.normal_(p["skip"], generator=generator)

    def drive(self, x: Tensor, p: Parts) -> Tensor:
        return linear(x, p["weight_ih"], p.get("bias_ih"))

    def extras(self, p: Parts) -> tuple[Tensor, ...]:
        held = zero_order_hold(wide(p["log_decay"]).exp(), wide(p["frequency"]), wide(p["log_step"]).exp())
        return *held, 2 * wide(p["out_re"]), 2 * wide(p["out_im"])

    def coefficients(self, columns: tuple[Tensor, ...], extras: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        re, im, b_re, b_im, *c = extras
        return re, im, b_re * columns[0], b_im * columns[0], *c

    def skip(self, x: Tensor, gx: Tensor, p: Parts) -> Tensor:
        return gx * p["skip"]


class S4D(CellLayer):
    """S4D layer; see :class:`S4DCell`."""

    cell_type = S4DCell
