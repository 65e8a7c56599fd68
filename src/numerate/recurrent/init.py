"""Initialisers: each fills a tensor in place and returns it."""

from math import log1p, sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from numerate.checks import number
from numerate.units.mcfc import orthogonal_ as any_orthogonal_

WeightInit = Literal["uniform", "truncated_normal", "xavier_uniform", "xavier_normal"]


def weight_(
    weight: Tensor, scheme: WeightInit, width: int | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Fill a matrix (..., O, I) by a named scheme.

    ``uniform``: U(±1/√width), as torch's recurrent layers with width = hidden_size; ``truncated_normal``: deviation
    1/√I cut at two deviations (Sonnet's default); ``xavier_uniform`` and ``xavier_normal`` (Glorot & Bengio, 2010).
    """
    fan_out, fan_in = weight.shape[-2:]
    if scheme == "uniform":
        bound = 1 / sqrt(width or fan_in)
        return nn.init.uniform_(weight, -bound, bound, generator=generator)
    if scheme == "truncated_normal":
        std = 1 / sqrt(fan_in)
        return nn.init.trunc_normal_(weight, 0.0, std, -2 * std, 2 * std, generator=generator)
    std = sqrt(2 / (fan_in + fan_out))
    if scheme == "xavier_uniform":
        return nn.init.uniform_(weight, -sqrt(3) * std, sqrt(3) * std, generator=generator)
    if scheme == "xavier_normal":
        return nn.init.normal_(weight, 0.0, std, generator=generator)
    allowed = "'uniform', 'truncated_normal', 'xavier_uniform' or 'xavier_normal'"
    raise ValueError(f"weight_init must be {allowed}, got {scheme!r}")


def orthogonal_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """An orthogonal matrix, uniformly drawn: QR of a Gaussian with the signs of R's diagonal; (H, H)."""
    return any_orthogonal_(weight, generator)


@torch.no_grad()
def identity_(weight: Tensor) -> Tensor:
    """The identity matrix; (H, H)."""
    return nn.init.eye_(weight)


def _wide(bias: Tensor) -> Tensor:
    """``bias`` itself, or if its type is short a tensor like it in single precision, to draw in and copy from."""
    return bias.to(torch.promote_types(bias.dtype, torch.float32))


@torch.no_grad()
def uniform_gate_(bias: Tensor, generator: torch.Generator | None = None, units: int | None = None) -> Tensor:
    r"""Uniform gate initialisation (Gu et al., 2020): :math:`b = \sigma^{-1}(u)`, u ~ U[1/d, 1 - 1/d].

    d is ``units``, the hidden size, however many entries ``bias`` has; by default their number.
    """
    edge = 1 / max(bias.numel() if units is None else units, 2)
    return bias.copy_(_wide(bias).uniform_(edge, 1 - edge, generator=generator).logit_())


@torch.no_grad()
def chrono_(
    bias: Tensor,
    timescale: float | Literal["unknown"],
    *,
    offset: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Chrono initialisation of a forget bias (Tallec & Ollivier, 2018).

    Known longest timescale: :math:`b = \log u`, u ~ U[1, timescale - offset] (the JANET authors take offset 0).
    ``"unknown"``: :math:`b = \log T` with P(T = k) proportional to :math:`1 / (k \log^2(k + 1))`, k = 1, 2, ...
    The input gate's bias is the negative of the result.
    """
    if timescale != "unknown":
        longest, values = number("timescale", timescale, 1 + offset, other=" or 'unknown'"), _wide(bias)
        if longest > (most := torch.finfo(values.dtype).max):
            raise ValueError(f"timescale must be a number of at most {most:.2g} or 'unknown', got {timescale!r}")
        return bias.copy_(values.uniform_(1.0, longest - offset, generator=generator).log_())
    count = 10_000  # exact up to here; beyond, P(T > x) = 1 / log(x) up to the same constant, drawn by inversion
    k = torch.arange(1, count + 1, dtype=torch.float64, device=bias.device)
    mass = 1 / (k * torch.log1p(k) ** 2)
    total = mass.sum() + 1 / log1p(count)
    u = torch.empty(bias.shape, dtype=torch.float64, device=bias.device).uniform_(generator=generator)
    u = (1 - u) * total  # mass that lies beyond the drawn T
    below = torch.searchsorted(mass.cumsum(0), total - u)
    return bias.copy_(torch.where(below < count, k[below.clamp(max=count - 1)].log(), 1 / u))
