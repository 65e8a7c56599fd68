"""Neural Accumulator and its exp-log forms (Trask et al., 2018; Madsen & Johansen, 2020)."""

from collections.abc import Mapping, Sequence
from math import tanh
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number, positive
from numerate.units import penalties, symbolic
from numerate.units.base import SATURATED, Unit, snap
from numerate.units.nmu import draw_nmu_

FAR = 2 * SATURATED  # tanh is exactly ±1 and the sigmoid exactly 0 or 1 here even in base φ, which halves a logit


def nac_weight(w_hat: Tensor, m_hat: Tensor) -> Tensor:
    r""":math:`W = \tanh(\hat W)\,\sigma(\hat M)`, drawn towards {-1, 0, 1}; any one shape."""
    return torch.tanh(w_hat) * torch.sigmoid(m_hat)


def exp_log(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    r"""Products of powers of sizes: :math:`z_o = \exp \sum_i W_{oi} \log(|x_i| + \epsilon)`.

    x: (..., I), weight: (O, I) -> (..., O)
    """
    return torch.exp(F.linear(torch.log(x.abs() + eps), weight))


def nac(x: Tensor, w_hat: Tensor, m_hat: Tensor) -> Tensor:
    r"""NAC+: :math:`z_o = \sum_i W_{oi} x_i`, :math:`W = \tanh(\hat W)\,\sigma(\hat M)`.

    x: (..., I); w_hat, m_hat: (O, I) -> (..., O). Trask et al. (2018), section 3.1.
    """
    return F.linear(x, nac_weight(w_hat, m_hat))


def nac_mul(x: Tensor, w_hat: Tensor, m_hat: Tensor, *, eps: float = 1e-7) -> Tensor:
    r"""NAC•: :math:`z_o = \exp \sum_i W_{oi} \log(|x_i| + \epsilon)`, :math:`W = \tanh(\hat W)\,\sigma(\hat M)`.

    x: (..., I); w_hat, m_hat: (O, I) -> (..., O). Madsen & Johansen (2020), section 2.
    """
    return exp_log(x, nac_weight(w_hat, m_hat), eps)


def nac_mul_sigmoid(x: Tensor, w_hat: Tensor, *, eps: float = 1e-7) -> Tensor:
    r"""NAC•,σ: :math:`z_o = \exp \sum_i \sigma(\hat W_{oi}) \log(|x_i| + \epsilon)`.

    x: (..., I), w_hat: (O, I) -> (..., O). Madsen & Johansen (2020), section 4.1.
    """
    return exp_log(x, torch.sigmoid(w_hat), eps)


def nac_mul_nmu(x: Tensor, weight: Tensor, *, eps: float = 1e-7) -> Tensor:
    r"""NAC•,NMU: :math:`z_o = \exp \sum_i W_{oi} \log(|x_i| + \epsilon)`, W free.

    x: (..., I), weight: (O, I) -> (..., O). Madsen & Johansen (2020), section 4.1.
    """
    return exp_log(x, weight, eps)


def nac_weight_variance(r: float) -> float:
    r"""Variance of :math:`\tanh(\hat W)\,\sigma(\hat M)` for both drawn from U(-r, r); 2020, appendix B.2, eq. 38."""
    return (1 - tanh(r) / r) * (r - tanh(r / 2)) / (2 * r)


def nac_radius(in_features: int, out_features: int, *, fan_floor: int = 5) -> float:
    """The r at which :func:`nac_weight_variance` is 2 / max(I + O, fan_floor), sought on (0, 10].

    Below a fan of 5 the equation of the paper (2020, appendix B.1.2) has no solution, as the variance stays under 1/2:
    the published numbers come from the floor of 5, r = 9.4714; ``fan_floor=1`` takes the nearest r there is, 10.
    """
    target = 2 / max(in_features + out_features, positive("fan_floor", fan_floor))
    low, high = 1e-3, 10.0
    if nac_weight_variance(high) <= target:
        return high
    while high - low > 1e-12:
        middle = (low + high) / 2
        if nac_weight_variance(middle) < target:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def draw_nac_(*weights: Tensor, fan_floor: int, generator: torch.Generator | None = None) -> None:
    """NAC's initialisation of Ŵ and M̂, U(-r, r), r of :func:`nac_radius`, in place and in this order; each (O, I)."""
    out_features, in_features = weights[0].shape
    radius = nac_radius(in_features, out_features, fan_floor=fan_floor)
    for weight in weights:
        nn.init.uniform_(weight, -radius, radius, generator=generator)


def saturated(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(w_hat, m_hat) at which :func:`nac_weight` is exactly the nearest of -1, 0, 1 to ``weight``."""
    level = snap(weight, (-1.0, 0.0, 1.0))
    size = torch.where(level.isnan(), level, FAR)
    return torch.where(level < 0, -size, size), torch.where(level == 0, -size, size)


class NAC(Unit):
    r"""NAC+, sums and differences: :math:`z = W x`, :math:`W = \tanh(\hat W)\,\sigma(\hat M)`, drawn to {-1, 0, 1}.

    ``w_hat``, ``m_hat``: (out_features, in_features), both drawn from U(-r, r), r of :func:`nac_radius`. No constraint,
    no penalty. Trask et al. (2018), section 3.1; initialisation: Madsen & Johansen (2020), appendix B.1.2.
    """

    levels = {"weight": (-1.0, 0.0, 1.0)}
    w_hat: nn.Parameter
    m_hat: nn.Parameter

    def __init__(
        self, in_features: int, out_features: int, *, fan_floor: int = 5, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.fan_floor = fan_floor
        self.w_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.m_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nac_(self.w_hat, self.m_hat, fan_floor=self.fan_floor, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return nac(self.check_input(x), self.w_hat, self.m_hat)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": nac_weight(self.w_hat, self.m_hat)}

    def snapped_parameters(self) -> dict[str, Tensor]:
        w_hat, m_hat = saturated(nac_weight(self.w_hat, self.m_hat))
        return {"w_hat": w_hat, "m_hat": m_hat}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return [symbolic.linear(inputs, weights["weight"].row(o)) for o in range(self.out_features)]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, fan_floor={self.fan_floor}"


class NACMul(Unit):
    r"""NAC•, products and quotients of sizes: :math:`z_o = \exp \sum_i W_{oi} \log(|x_i| + ε)`, W of :class:`NAC`.

    ``w_hat``, ``m_hat``: (out_features, in_features), drawn as :class:`NAC`'s. Signs are lost. No constraint, no
    penalty. Trask et al. (2018), section 3.2; Madsen & Johansen (2020), section 2.2.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        eps: ε, which keeps the logarithm finite at 0.
        fan_floor: the start is drawn as for a layer with at least so many inputs and outputs together.
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {"weight": (-1.0, 0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    w_hat: nn.Parameter
    m_hat: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        eps: float = 1e-7,
        fan_floor: int = 5,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps, self.fan_floor = number("eps", eps, 0), fan_floor
        self.w_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.m_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nac_(self.w_hat, self.m_hat, fan_floor=self.fan_floor, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return nac_mul(self.check_input(x), self.w_hat, self.m_hat, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": nac_weight(self.w_hat, self.m_hat)}

    def coefficients(self) -> dict[str, Tensor]:
        return {"eps": torch.tensor(self.eps)}

    def snapped_parameters(self) -> dict[str, Tensor]:
        w_hat, m_hat = saturated(nac_weight(self.w_hat, self.m_hat))
        return {"w_hat": w_hat, "m_hat": m_hat}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        w, eps = weights["weight"], weights["eps"][0]
        return [symbolic.size_powers(inputs, w.row(o), eps) for o in range(self.out_features)]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}, fan_floor={self.fan_floor}"


class NACMulSigmoid(Unit):
    r"""NAC•,σ, products of sizes: :math:`z_o = \exp \sum_i \sigma(\hat W_{oi}) \log(|x_i| + \epsilon)`.

    ``w_hat``: (out_features, in_features), Xavier normal, standard deviation sqrt(2 / (I + O)). No constraint, no
    penalty. Madsen & Johansen (2020), section 4.1.
    """

    levels = {"weight": (0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    w_hat: nn.Parameter

    def __init__(
        self, in_features: int, out_features: int, *, eps: float = 1e-7, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps = number("eps", eps, 0)
        self.w_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.xavier_normal_(self.w_hat, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return nac_mul_sigmoid(self.check_input(x), self.w_hat, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": torch.sigmoid(self.w_hat)}

    def coefficients(self) -> dict[str, Tensor]:
        return {"eps": torch.tensor(self.eps)}

    def snapped_parameters(self) -> dict[str, Tensor]:
        return {"w_hat": FAR * (2 * snap(torch.sigmoid(self.w_hat), (0.0, 1.0)) - 1)}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        w, eps = weights["weight"], weights["eps"][0]
        return [symbolic.size_powers(inputs, w.row(o), eps) for o in range(self.out_features)]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}"


class NACMulNMU(Unit):
    r"""NAC•,NMU, products of sizes with NMU's weights: :math:`z_o = \exp \sum_i W_{oi} \log(|x_i| + \epsilon)`.

    ``weight``: (out_features, in_features), drawn from U(1/4, 3/4), clamped to [0, 1] after each step.
    Penalty: mean min(\|W\|, \|1 - W\|). Madsen & Johansen (2020), section 4.1.
    """

    bounds = {"weight": (0.0, 1.0)}
    levels = {"weight": (0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    weight: nn.Parameter

    def __init__(
        self, in_features: int, out_features: int, *, eps: float = 1e-7, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps = number("eps", eps, 0)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nmu_(self.weight, generator)

    def forward(self, x: Tensor) -> Tensor:
        return nac_mul_nmu(self.check_input(x), self.weight, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def coefficients(self) -> dict[str, Tensor]:
        return {"eps": torch.tensor(self.eps)}

    def penalty(self) -> Tensor:
        return penalties.sparsity_nmu(self.weight)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        w, eps = weights["weight"], weights["eps"][0]
        return [symbolic.size_powers(inputs, w.row(o), eps) for o in range(self.out_features)]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}"
