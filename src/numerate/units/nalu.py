"""Neural Arithmetic Logic Unit: a gated choice of sum and product, and its variants."""

from collections.abc import Mapping, Sequence
from math import log, pi, prod, sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number, one_of
from numerate.units import penalties, symbolic
from numerate.units.base import Unit
from numerate.units.nac import draw_nac_, exp_log, nac_weight, saturated
from numerate.units.nau import draw_nau_, nau
from numerate.units.nmu import draw_nmu_, nmu

LOG_PHI = log((1 + sqrt(5)) / 2)  # φ^z = exp(z LOG_PHI), φ the golden ratio


def nalu(x: Tensor, weight_add: Tensor, weight_mul: Tensor, gate: Tensor, *, eps: float = 1e-7) -> Tensor:
    r""":math:`y = g \odot W_a x + (1 - g) \odot \exp(W_m \log(|x| + \epsilon))`, :math:`g = \sigma(G x)`.

    x: (..., I); weight_add, weight_mul, gate: (O, I) -> (..., O). Trask et al. (2018), section 3.2.
    """
    g = torch.sigmoid(F.linear(x, gate))
    return g * F.linear(x, weight_add) + (1 - g) * exp_log(x, weight_mul, eps)


def golden_weight(w_hat: Tensor, m_hat: Tensor) -> Tensor:
    r""":math:`\tanh_φ(\hat W)\,σ_φ(\hat M)`; any one shape.

    :math:`\tanh_φ z = (φ^{2z} - 1)/(φ^{2z} + 1)` and :math:`σ_φ z = 1/(1 + φ^{-z})` are the usual functions of z ln φ,
    and as such they cannot overflow. Mistry et al. (2022), eqs. 22 to 24.
    """
    return nac_weight(LOG_PHI * w_hat, LOG_PHI * m_hat)


def gnalu(
    x: Tensor, w_hat: Tensor, m_hat: Tensor, gate: Tensor, *, gate_base: str = "golden", eps: float = 1e-7
) -> Tensor:
    r""":func:`nalu` with W of :func:`golden_weight` and :math:`g = σ_φ(G x)`; with ``gate_base="e"`` :math:`σ(G x)`.

    x: (..., I); w_hat, m_hat, gate: (O, I) -> (..., O). Mistry et al. (2022), eqs. 22 to 25.
    """
    weight = golden_weight(w_hat, m_hat)
    return nalu(x, weight, weight, golden_gate(gate, gate_base), eps=eps)


def golden_gate(gate: Tensor, base: str) -> Tensor:
    r"""G with which the usual sigmoid is :math:`σ_φ` (``base="golden"``) or stays what it is (``"e"``); any shape."""
    return LOG_PHI * gate if one_of("gate_base", base, ("golden", "e")) == "golden" else gate


def complex_nalu(x: Tensor, weight: Tensor, gate: Tensor, *, eps: float = 1e-7) -> Tensor:
    r"""NALU with :math:`m = \mathrm{Re} \exp(W \log(x + \epsilon)) = \exp(W \log|x + ε|) \cos(π W [x + ε < 0])`.

    x: (..., I); weight, gate: (O, I) -> (..., O). Trask et al. (2018), appendix F.
    """
    g = torch.sigmoid(F.linear(x, gate))
    shifted = x + eps
    angle = pi * (shifted < 0).to(x.dtype)
    m = exp_log(shifted, weight, 0.0) * torch.cos(F.linear(angle, weight))
    return g * F.linear(x, weight) + (1 - g) * m


def gated_nau_nmu(x: Tensor, weight_add: Tensor, weight_mul: Tensor, gate: Tensor) -> Tensor:
    r""":math:`y = g \odot \mathrm{NAU}(x) + (1 - g) \odot \mathrm{NMU}(x)`, :math:`g = \sigma(G x)`.

    x: (..., I); weight_add, weight_mul, gate: (O, I) -> (..., O). Madsen & Johansen (2020), appendix C.5.
    """
    g = torch.sigmoid(F.linear(x, gate))
    return g * nau(x, weight_add) + (1 - g) * nmu(x, weight_mul)


class NALU(Unit):
    r"""Sum or product, chosen by a gate: :math:`y = g \odot a + (1 - g) \odot m`.

    .. math::
        a = W x, \quad m = \exp(W \log(|x| + \epsilon)), \quad g = \sigma(G x), \quad W = \tanh(\hat W)\,\sigma(\hat M)

    ``w_hat``, ``m_hat`` (and ``w_hat_mul``, ``m_hat_mul``): (out_features, in_features), drawn as :class:`NAC`'s;
    ``gate`` G: (out_features, in_features), Xavier uniform, no bias. No constraint, no penalty. Trask et al. (2018),
    section 3.2; Madsen & Johansen (2020), appendix C.5.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        weights: ``"shared"``, one W for a and m; ``"separate"``, ``w_hat``, ``m_hat`` for a and ``w_hat_mul``,
            ``m_hat_mul`` for m.
        eps: ε, which keeps the logarithm finite at 0.
        fan_floor: the start is drawn as for a layer with at least so many inputs and outputs together.
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {"weight": (-1.0, 0.0, 1.0), "weight_mul": (-1.0, 0.0, 1.0), "eps": (0.0,)}
    w_hat: nn.Parameter
    m_hat: nn.Parameter
    w_hat_mul: nn.Parameter | None
    m_hat_mul: nn.Parameter | None
    gate: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        weights: Literal["shared", "separate"] = "shared",
        eps: float = 1e-7,
        fan_floor: int = 5,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.weights = one_of("weights", weights, ("shared", "separate"))
        self.eps, self.fan_floor = number("eps", eps, 0), fan_floor
        for name in ("w_hat", "m_hat", "w_hat_mul", "m_hat_mul", "gate"):
            absent = weights == "shared" and name.endswith("_mul")
            matrix = torch.empty(out_features, in_features, device=device, dtype=dtype)
            self.register_parameter(name, None if absent else nn.Parameter(matrix))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        weights = (self.w_hat, self.m_hat, self.w_hat_mul, self.m_hat_mul)
        draw_nac_(*(w for w in weights if w is not None), fan_floor=self.fan_floor, generator=generator)
        nn.init.xavier_uniform_(self.gate, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        w = self.effective_weights()
        return nalu(self.check_input(x), w["weight"], w.get("weight_mul", w["weight"]), self.gate, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        weights = {"weight": nac_weight(self.w_hat, self.m_hat)}
        if self.w_hat_mul is not None and self.m_hat_mul is not None:
            weights["weight_mul"] = nac_weight(self.w_hat_mul, self.m_hat_mul)
        return weights

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": self.gate, "eps": torch.tensor(self.eps)}

    def snapped_parameters(self) -> dict[str, Tensor]:
        pairs = {name.removeprefix("weight"): saturated(w) for name, w in self.effective_weights().items()}
        return {f"{kind}_hat{end}": p[i] for end, p in pairs.items() for i, kind in enumerate("wm")}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return _nalu_expressions(inputs, weights)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weights={self.weights!r}, eps={self.eps!r}, fan_floor={self.fan_floor}"


class GNALU(Unit):
    r"""G-NALU, NALU with the golden ratio φ as its base: :math:`y = g \odot a + (1 - g) \odot m`.

    .. math::
        W = \tanh_φ(\hat W)\,σ_φ(\hat M), \quad a = W x, \quad m = φ^{W \log(|x| + ε) / \ln φ}, \quad g = σ_φ(G x)

    with :math:`\tanh_φ z = \tanh(z \ln φ)`, :math:`σ_φ z = σ(z \ln φ)`; m is exp(W log(\|x\| + ε)) whatever the base.
    ``w_hat``, ``m_hat``, ``gate``: (out_features, in_features), drawn as :class:`NALU`'s (r too, from the variance of
    base e). No constraint, no penalty. Mistry et al. (2022), section 4.4, eqs. 22 to 25; φ in the gate as run.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        gate_base: ``"golden"``, φ in the gate too; ``"e"`` keeps the gate's base, which the text does not change.
        eps: ε, which keeps the logarithm finite at 0.
        fan_floor: the start is drawn as for a layer with at least so many inputs and outputs together.
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {"weight": (-1.0, 0.0, 1.0), "eps": (0.0,)}
    w_hat: nn.Parameter
    m_hat: nn.Parameter
    gate: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        gate_base: Literal["golden", "e"] = "golden",
        eps: float = 1e-7,
        fan_floor: int = 5,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.gate_base = one_of("gate_base", gate_base, ("golden", "e"))
        self.eps, self.fan_floor = number("eps", eps, 0), fan_floor
        self.w_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.m_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.gate = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nac_(self.w_hat, self.m_hat, fan_floor=self.fan_floor, generator=generator)
        nn.init.xavier_uniform_(self.gate, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        x = self.check_input(x)
        return gnalu(x, self.w_hat, self.m_hat, self.gate, gate_base=self.gate_base, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": golden_weight(self.w_hat, self.m_hat)}

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": golden_gate(self.gate, self.gate_base), "eps": torch.tensor(self.eps)}

    def snapped_parameters(self) -> dict[str, Tensor]:
        w_hat, m_hat = saturated(golden_weight(self.w_hat, self.m_hat))
        return {"w_hat": w_hat, "m_hat": m_hat}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return _nalu_expressions(inputs, weights)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gate_base={self.gate_base!r}, eps={self.eps!r}, fan_floor={self.fan_floor}"


class ComplexNALU(Unit):
    r"""NALU whose product keeps signs, by the complex logarithm: :math:`y = g \odot a + (1 - g) \odot m`.

    .. math::
        a = W x, \quad g = σ(G x), \quad
        m = \mathrm{Re} \exp(W \log(x + ε)) = \exp(W \log|x + ε|) \cos(π W [x + ε < 0])

    The paper does not say how a real output is taken from the complex m; here it is the real part, so that the layer
    maps reals to reals and W and G stay real. ``w_hat``, ``m_hat``, ``gate``: (out_features, in_features), drawn as
    :class:`NALU`'s. No constraint, no penalty. Trask et al. (2018), appendix F.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        eps: ε, which keeps the logarithm finite at 0.
        fan_floor: the start is drawn as for a layer with at least so many inputs and outputs together.
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {"weight": (-1.0, 0.0, 1.0), "eps": (0.0,)}
    w_hat: nn.Parameter
    m_hat: nn.Parameter
    gate: nn.Parameter

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
        self.gate = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nac_(self.w_hat, self.m_hat, fan_floor=self.fan_floor, generator=generator)
        nn.init.xavier_uniform_(self.gate, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return complex_nalu(self.check_input(x), nac_weight(self.w_hat, self.m_hat), self.gate, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": nac_weight(self.w_hat, self.m_hat)}

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": self.gate, "eps": torch.tensor(self.eps)}

    def snapped_parameters(self) -> dict[str, Tensor]:
        w_hat, m_hat = saturated(nac_weight(self.w_hat, self.m_hat))
        return {"w_hat": w_hat, "m_hat": m_hat}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        results = []
        shifted = [x + weights["eps"][0] for x in inputs]
        for o in range(self.out_features):
            w = weights["weight"].row(o)
            g = symbolic.sigmoid(symbolic.linear(inputs, weights["gate"].row(o)))
            results.append(g * symbolic.linear(inputs, w) + (1 - g) * symbolic.signed_powers(shifted, w, 0))
        return results

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}, fan_floor={self.fan_floor}"


class GatedNAUNMU(Unit):
    r"""NAU or NMU, chosen by a gate: :math:`y = g \odot NAU(x) + (1 - g) \odot NMU(x)`, :math:`g = σ(G x)`.

    ``weight_add``, ``weight_mul``, ``gate`` G: (out_features, in_features); the weights are drawn, clamped and
    penalised as :class:`NAU`'s and :class:`NMU`'s (the penalty is their sum), G is Xavier uniform. Madsen & Johansen
    (2020), appendices C.5 and C.7.
    """

    bounds = {"weight_add": (-1.0, 1.0), "weight_mul": (0.0, 1.0)}
    levels = {"weight_add": (-1.0, 0.0, 1.0), "weight_mul": (0.0, 1.0)}
    weight_add: nn.Parameter
    weight_mul: nn.Parameter
    gate: nn.Parameter

    def __init__(self, in_features: int, out_features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__(in_features, out_features)
        self.weight_add = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.weight_mul = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.gate = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nau_(self.weight_add, generator)
        draw_nmu_(self.weight_mul, generator)
        nn.init.xavier_uniform_(self.gate, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return gated_nau_nmu(self.check_input(x), self.weight_add, self.weight_mul, self.gate)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight_add": self.weight_add.clamp(-1, 1), "weight_mul": self.weight_mul}

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": self.gate}

    def penalty(self) -> Tensor:
        return penalties.sparsity(self.weight_add) + penalties.sparsity_nmu(self.weight_mul)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        results = []
        for o in range(self.out_features):
            g = symbolic.sigmoid(symbolic.linear(inputs, weights["gate"].row(o)))
            product = prod(w * x + 1 - w for x, w in zip(inputs, weights["weight_mul"].row(o)))
            results.append(g * symbolic.linear(inputs, weights["weight_add"].row(o)) + (1 - g) * product)
        return results


def _nalu_expressions(inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
    add, gate, eps = weights["weight"], weights["gate"], weights["eps"][0]
    mul = weights.get("weight_mul", add)
    results = []
    for o in range(add.rows):
        g = symbolic.sigmoid(symbolic.linear(inputs, gate.row(o)))
        total, product = symbolic.linear(inputs, add.row(o)), symbolic.size_powers(inputs, mul.row(o), eps)
        results.append(g * total + (1 - g) * product)
    return results
