"""Neural Power Units (Heim et al., 2020), as the Primer (Mistry et al., 2022) ran them, and their successor."""

from collections.abc import Mapping, Sequence
from math import pi
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number, one_of
from numerate.units import penalties, symbolic
from numerate.units.base import Unit
from numerate.units.nau import draw_nau_

EPS = 2.0**-23
"""The ε of these units, float32's machine epsilon, as run."""


def relevance(x: Tensor, gate: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r"""Log size and angle of the gated inputs: :math:`\log(\hat g(|x| + ε) + 1 - \hat g)` and :math:`\hat g π [x < 0]`.

    x: (..., I), gate: (I,), clipped to [0, 1] here -> two of (..., I). Primer, eqs. 18 to 20.
    """
    gate = gate.clamp(0, 1)
    return torch.log(gate * (x.abs() + eps) + (1 - gate)), torch.where(x < 0, pi * gate, 0.0)


def npu(x: Tensor, weight_real: Tensor, weight_imag: Tensor, gate: Tensor, *, eps: float = EPS) -> Tensor:
    r""":math:`y = \exp(W_r \log r - W_i k) \cos(W_i \log r + W_r k)`, log r and k of :func:`relevance`.

    x: (..., I); weight_real, weight_imag: (O, I); gate: (I,) -> (..., O). Primer, eq. 17.
    """
    log_r, k = relevance(x, gate, eps)
    exponent = F.linear(log_r, weight_real) - F.linear(k, weight_imag)
    return torch.exp(exponent) * torch.cos(F.linear(log_r, weight_imag) + F.linear(k, weight_real))


def real_npu(x: Tensor, weight: Tensor, gate: Tensor, *, eps: float = EPS) -> Tensor:
    r""":math:`y = \exp(W \log r) \cos(W k)`, log r and k of :func:`relevance`.

    x: (..., I), weight: (O, I), gate: (I,) -> (..., O). Primer, eq. 21.
    """
    log_r, k = relevance(x, gate, eps)
    return torch.exp(F.linear(log_r, weight)) * torch.cos(F.linear(k, weight))


def naive_npu(x: Tensor, weight_real: Tensor, weight_imag: Tensor, *, eps: float = EPS) -> Tensor:
    r""":func:`npu` with :math:`r = |x| + ε`, :math:`k = π [x < 0]`: no gate.

    x: (..., I); weight_real, weight_imag: (O, I) -> (..., O)
    """
    log_r, k = torch.log(x.abs() + eps), pi * (x < 0).to(x.dtype)
    exponent = F.linear(log_r, weight_real) - F.linear(k, weight_imag)
    return torch.exp(exponent) * torch.cos(F.linear(log_r, weight_imag) + F.linear(k, weight_real))


def naive_real_npu(x: Tensor, weight: Tensor, *, eps: float = EPS) -> Tensor:
    r""":func:`real_npu` with :math:`r = |x| + ε`, :math:`k = π [x < 0]`: no gate.

    x: (..., I), weight: (O, I) -> (..., O)
    """
    log_r, k = torch.log(x.abs() + eps), pi * (x < 0).to(x.dtype)
    return torch.exp(F.linear(log_r, weight)) * torch.cos(F.linear(k, weight))


class NPU(Unit):
    r"""Products of any powers, in the complex plane: :math:`y = \exp(W_r \log r - W_i k) \cos(W_i \log r + W_r k)`.

    .. math::
        r_i = \hat g_i (|x_i| + ε) + 1 - \hat g_i, \quad k_i = \hat g_i π [x_i < 0], \quad \hat g = \min(\max(g, 0), 1)

    ``weight_real``: (out_features, in_features), Xavier uniform; ``weight_imag``: alike, zero; ``gate`` g:
    (in_features,), 1/2. Penalty: the sum of absolute values of all three. The sparsity error is the mean of the two
    matrices' errors. Mistry et al. (2022), section 4.3, eqs. 17 to 20.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        eps: ε, 2^-23.
        clip_gate: ``"forward"`` clips the gate in the equation alone (it may leave [0, 1]); ``"step"`` clamps it after
            each step too.
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {"weight_real": (-1.0, 0.0, 1.0), "weight_imag": (0.0,), "gate": (0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    matrices_together = "mean"
    weight_real: nn.Parameter
    weight_imag: nn.Parameter
    gate: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        eps: float = EPS,
        clip_gate: str = "forward",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps, self.clip_gate = number("eps", eps, 0), one_of("clip_gate", clip_gate, ("forward", "step"))
        self.bounds = {"gate": (0.0, 1.0)} if clip_gate == "step" else {}
        self.weight_real = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.weight_imag = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.gate = nn.Parameter(torch.empty(in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.xavier_uniform_(self.weight_real, generator=generator)
        nn.init.zeros_(self.weight_imag)
        nn.init.constant_(self.gate, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return npu(self.check_input(x), self.weight_real, self.weight_imag, self.gate, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight_real": self.weight_real, "weight_imag": self.weight_imag}

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": self.gate.clamp(0, 1), "eps": torch.tensor(self.eps)}

    def penalty(self) -> Tensor:
        return self.weight_real.abs().sum() + self.weight_imag.abs().sum() + self.gate.abs().sum()

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return _npu_expressions(inputs, weights, "weight_real")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}, clip_gate={self.clip_gate!r}"


class RealNPU(Unit):
    r"""Products of any powers: :math:`y = \exp(W \log r) \cos(W k)`, r and k of :class:`NPU`.

    ``weight``: (out_features, in_features), Xavier uniform; ``gate`` g: (in_features,), 1/2. Penalty: the sum of
    absolute values of both. Mistry et al. (2022), section 4.3, eq. 21.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        eps: ε, 2^-23.
        clip_gate: ``"forward"`` clips the gate in the equation alone; ``"step"`` clamps it after each step too.
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {"weight": (-1.0, 0.0, 1.0), "gate": (0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    weight: nn.Parameter
    gate: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        eps: float = EPS,
        clip_gate: str = "forward",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps, self.clip_gate = number("eps", eps, 0), one_of("clip_gate", clip_gate, ("forward", "step"))
        self.bounds = {"gate": (0.0, 1.0)} if clip_gate == "step" else {}
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.gate = nn.Parameter(torch.empty(in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.xavier_uniform_(self.weight, generator=generator)
        nn.init.constant_(self.gate, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return real_npu(self.check_input(x), self.weight, self.gate, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": self.gate.clamp(0, 1), "eps": torch.tensor(self.eps)}

    def penalty(self) -> Tensor:
        return self.weight.abs().sum() + self.gate.abs().sum()

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return _npu_expressions(inputs, weights, "weight")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}, clip_gate={self.clip_gate!r}"


class NaiveNPU(Unit):
    r""":class:`NPU` without its gate: :math:`r = |x| + ε`, :math:`k = π [x < 0]`.

    ``weight_real``: (out_features, in_features), Xavier uniform; ``weight_imag``: alike, zero. ε = 2^-23.
    Penalty and sparsity error as :class:`NPU`'s. Heim et al. (2020).
    """

    levels = {"weight_real": (-1.0, 0.0, 1.0), "weight_imag": (0.0,), "eps": (0.0,)}
    neutral = 1.0
    matrices_together = "mean"
    weight_real: nn.Parameter
    weight_imag: nn.Parameter

    def __init__(
        self, in_features: int, out_features: int, *, eps: float = EPS, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps = number("eps", eps, 0)
        self.weight_real = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.weight_imag = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.xavier_uniform_(self.weight_real, generator=generator)
        nn.init.zeros_(self.weight_imag)

    def forward(self, x: Tensor) -> Tensor:
        return naive_npu(self.check_input(x), self.weight_real, self.weight_imag, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight_real": self.weight_real, "weight_imag": self.weight_imag}

    def coefficients(self) -> dict[str, Tensor]:
        return {"eps": torch.tensor(self.eps)}

    def penalty(self) -> Tensor:
        return self.weight_real.abs().sum() + self.weight_imag.abs().sum()

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return _npu_expressions(inputs, weights, "weight_real")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}"


class NaiveRealNPU(Unit):
    r""":class:`RealNPU` without its gate: :math:`y = \exp(W \log(|x| + ε)) \cos(π W [x < 0])`.

    ``weight``: (out_features, in_features), Xavier uniform. ε = 2^-23. Penalty: its sum of absolute values.
    Heim et al. (2020).
    """

    levels = {"weight": (-1.0, 0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    weight: nn.Parameter

    def __init__(
        self, in_features: int, out_features: int, *, eps: float = EPS, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps = number("eps", eps, 0)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return naive_real_npu(self.check_input(x), self.weight, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def coefficients(self) -> dict[str, Tensor]:
        return {"eps": torch.tensor(self.eps)}

    def penalty(self) -> Tensor:
        return self.weight.abs().sum()

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return _npu_expressions(inputs, weights, "weight")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}"


class ModifiedRealNPU(Unit):
    r""":class:`RealNPU` with discrete parameters: W clamped to [-1, 1] and g to [0, 1] after each step.

    ``weight``: (out_features, in_features), drawn as :class:`NAU`'s; ``gate``: (in_features,), 1/2. ε = 2^-23.
    Penalty: mean \|1 - \|W\|\| + mean min(\|g\|, \|1 - g\|), which pulls W to {-1, 1} and g, which alone deselects, to
    {0, 1}; the L1 penalty used beside it, on its own schedule, is :func:`numerate.units.l1`. Mistry et al. (2022, the
    later work on division).
    """

    bounds = {"weight": (-1.0, 1.0), "gate": (0.0, 1.0)}
    levels = {"weight": (-1.0, 0.0, 1.0), "gate": (0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    weight: nn.Parameter
    gate: nn.Parameter

    def __init__(
        self, in_features: int, out_features: int, *, eps: float = EPS, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(in_features, out_features)
        self.eps = number("eps", eps, 0)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.gate = nn.Parameter(torch.empty(in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nau_(self.weight, generator)
        nn.init.constant_(self.gate, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return real_npu(self.check_input(x), self.weight, self.gate, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def coefficients(self) -> dict[str, Tensor]:
        return {"gate": self.gate.clamp(0, 1), "eps": torch.tensor(self.eps)}

    def penalty(self) -> Tensor:
        return penalties.signs(self.weight) + penalties.sparsity_nmu(self.gate)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        return _npu_expressions(inputs, weights, "weight")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, eps={self.eps!r}"


def _npu_expressions(inputs: Sequence[Any], weights: Mapping[str, Any], real: str) -> list[Any]:
    """An input whose gate is open and whose power is whole reads x**w; the others keep their size and angle."""
    import sympy

    matrix, eps = weights[real], weights["eps"][0]
    imag = weights.get("weight_imag", sympy.zeros(*matrix.shape))
    gate = weights.get("gate", sympy.ones(1, len(inputs)))
    results = []
    for o in range(matrix.rows):
        factors, exponent, angle = [], sympy.Integer(0), sympy.Integer(0)
        for i, x in enumerate(inputs):
            w, v, g = matrix[o, i], imag[o, i], gate[i]
            if g == 1 and v == 0 and w.is_integer and eps == 0:
                factors.append(x**w)
                continue
            r, k = g * (sympy.Abs(x) + eps) + 1 - g, sympy.pi * g * symbolic.is_negative(x)
            factors.append(r**w)
            exponent -= v * k
            angle += v * sympy.log(r) + w * k
        results.append(sympy.prod(factors) * sympy.exp(exponent) * sympy.cos(angle))
    return results
