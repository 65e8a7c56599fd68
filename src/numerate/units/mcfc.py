"""Mass-conserving fully connected layers (Hoedt et al., 2021), as run beside the Primer (Mistry et al., 2022)."""

from collections.abc import Mapping, Sequence
from math import pi
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.units import symbolic
from numerate.units.base import Unit, chosen, snap
from numerate.units.nac import FAR
from numerate.units.nmu import nmu


def mcfc(x: Tensor, junction: Tensor, out_gate: Tensor) -> Tensor:
    r"""Pass every input on to one output, which lets it out or not: :math:`y_o = g_o \sum_i J_{oi} x_i`.

    x: (..., I), junction: (O, I), out_gate: (O,) -> (..., O)
    """
    return out_gate * F.linear(x, junction)


def mul_mcfc(
    x: Tensor,
    junction: Tensor,
    out_gate: Tensor,
    bias: Tensor,
    sign_gate: Tensor | None = None,
    *,
    sign: str | None = None,
) -> Tensor:
    r""":math:`y_o = \exp(g_o \sum_i J_{oi} \log x_i + c_o)`; NaN for negative x unless there is a ``sign``.

    x: (..., I), junction: (O, I); out_gate, bias: (O,) -> (..., O). With ``sign`` the logarithm is of \|x\|, and y is
    multiplied by :math:`\prod_i (\mathrm{sgn}(x_i) J_{oi} + 1 - J_{oi})` (``"product"``) or by
    :math:`\cos(π \sum_i J_{oi} \hat γ_i [x_i < 0])` (``"cosine"``), ``sign_gate`` γ: (I,), clipped to [0, 1] here.
    """
    if sign is None:
        return torch.exp(mcfc(torch.log(x), junction, out_gate) + bias)
    size = torch.exp(mcfc(torch.log(x.abs()), junction, out_gate) + bias)
    if one_of("sign", sign, ("product", "cosine")) == "product":
        return size * nmu(x.sign(), junction)
    if sign_gate is None:
        raise ValueError("sign='cosine' needs a sign_gate, one number per input")
    return size * torch.cos(F.linear(torch.where(x < 0, pi * sign_gate.clamp(0, 1), 0.0), junction))


def orthogonal_(tensor: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """``nn.init.orthogonal_`` for any floating type: drawn in float32 at least."""
    wide = torch.empty_like(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32), requires_grad=False)
    with torch.no_grad():
        return tensor.copy_(nn.init.orthogonal_(wide, generator=generator))


def reset_junction(junction_hat: Tensor, gate_weight: Tensor, gate_bias: Tensor, generator: Any) -> None:
    """The initialisation of :class:`MCFC`."""
    if junction_hat.shape[0] == junction_hat.shape[1]:
        nn.init.eye_(junction_hat)
    else:
        orthogonal_(junction_hat, generator)
    orthogonal_(gate_weight, generator)
    nn.init.zeros_(gate_bias)


def snapped_junction(junction_hat: Tensor, gate_weight: Tensor, gate_bias: Tensor) -> dict[str, Tensor]:
    """Parameters that send every input wholly to its strongest output and open or close every output gate."""
    out_gate = torch.sigmoid(gate_weight.squeeze(-1) + gate_bias)
    return {
        "junction_hat": FAR * chosen(junction_hat, -2),
        "gate_weight": FAR * (2 * snap(out_gate, (0.0, 1.0)) - 1).unsqueeze(-1),
        "gate_bias": torch.zeros_like(gate_bias),
    }


class MCFC(Unit):
    r"""A sum that conserves mass: every input is distributed among the outputs, :math:`y_o = g_o \sum_i J_{oi} x_i`.

    .. math:: J_{oi} = \exp R_{oi} / \sum_{o'} \exp R_{o'i}, \qquad g = σ(w + b)

    ``junction_hat`` R: (out_features, in_features), orthogonal (the identity if square); ``gate_weight`` w:
    (out_features, 1), orthogonal; ``gate_bias`` b: (out_features,), zero. With one output J is constantly 1. Penalty:
    -mean R² - mean w² - mean b², which saturates them. The sparsity error is the mean of J's and g's. Snapped, every
    input goes to the one output that takes most of it. Hoedt et al. (2021), as in the Primer's code.
    """

    levels = {"junction": (0.0, 1.0), "out_gate": (0.0, 1.0)}
    matrices_together = "mean"
    junction_hat: nn.Parameter
    gate_weight: nn.Parameter
    gate_bias: nn.Parameter

    def __init__(self, in_features: int, out_features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__(in_features, out_features)
        self.junction_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.gate_weight = nn.Parameter(torch.empty(out_features, 1, device=device, dtype=dtype))
        self.gate_bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        reset_junction(self.junction_hat, self.gate_weight, self.gate_bias, generator)

    def forward(self, x: Tensor) -> Tensor:
        return mcfc(self.check_input(x), self.junction_hat.softmax(-2), self._out_gate())

    def _out_gate(self) -> Tensor:
        return torch.sigmoid(self.gate_weight.squeeze(-1) + self.gate_bias)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"junction": self.junction_hat.softmax(-2)}

    def coefficients(self) -> dict[str, Tensor]:
        return {"out_gate": self._out_gate()}

    def sparse_parts(self) -> dict[str, Tensor]:
        return self.effective_weights() | self.coefficients()

    def penalty(self) -> Tensor:
        return -((self.junction_hat**2).mean() + (self.gate_weight**2).mean() + (self.gate_bias**2).mean())

    def snapped_parameters(self) -> dict[str, Tensor]:
        return snapped_junction(self.junction_hat, self.gate_weight, self.gate_bias)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        junction, gate = weights["junction"], weights["out_gate"]
        return [gate[o] * symbolic.linear(inputs, junction.row(o)) for o in range(self.out_features)]


class MulMCFC(Unit):
    r"""A product by :class:`MCFC` of logarithms: :math:`y_o = \exp(g_o \sum_i J_{oi} \log x_i + c_o)`.

    J and g as :class:`MCFC`'s; ``bias`` c: (out_features,), zero. ``sign``: what to do with negative inputs:

    - None: nothing, they give NaN (and zeros 0 or NaN);
    - ``"product"``: log \|x\|, and y times :math:`\prod_i (\mathrm{sgn}(x_i) J_{oi} + 1 - J_{oi})`, as iNALU;
    - ``"cosine"``: log \|x\|, and y times :math:`\cos(π \sum_i J_{oi} \hat γ_i [x_i < 0])`, as RealNPU, with
      ``sign_gate`` γ: (in_features,), 1/2, clipped to [0, 1] in the equation.

    Penalty as :class:`MCFC`'s. The sparsity error is the mean of J's, g's, c's and, where it exists, γ's.
    Hoedt et al. (2021), as in the Primer's code.
    """

    levels = {"junction": (0.0, 1.0), "out_gate": (0.0, 1.0), "bias": (0.0,), "sign_gate": (0.0, 1.0)}
    matrices_together = "mean"
    neutral = 1.0
    junction_hat: nn.Parameter
    gate_weight: nn.Parameter
    gate_bias: nn.Parameter
    bias: nn.Parameter
    sign_gate: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        sign: Literal["product", "cosine"] | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.sign = None if sign is None else one_of("sign", sign, ("product", "cosine"))
        self.junction_hat = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.gate_weight = nn.Parameter(torch.empty(out_features, 1, device=device, dtype=dtype))
        self.gate_bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        sign_gate = nn.Parameter(torch.empty(in_features, device=device, dtype=dtype)) if sign == "cosine" else None
        self.register_parameter("sign_gate", sign_gate)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        reset_junction(self.junction_hat, self.gate_weight, self.gate_bias, generator)
        nn.init.zeros_(self.bias)
        if self.sign_gate is not None:
            nn.init.constant_(self.sign_gate, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        x, junction = self.check_input(x), self.junction_hat.softmax(-2)
        return mul_mcfc(x, junction, self._out_gate(), self.bias, self.sign_gate, sign=self.sign)

    def _out_gate(self) -> Tensor:
        return torch.sigmoid(self.gate_weight.squeeze(-1) + self.gate_bias)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"junction": self.junction_hat.softmax(-2)}

    def coefficients(self) -> dict[str, Tensor]:
        found = {"out_gate": self._out_gate(), "bias": self.bias}
        return found if self.sign_gate is None else {**found, "sign_gate": self.sign_gate.clamp(0, 1)}

    def sparse_parts(self) -> dict[str, Tensor]:
        return self.effective_weights() | self.coefficients()

    def penalty(self) -> Tensor:
        return -((self.junction_hat**2).mean() + (self.gate_weight**2).mean() + (self.gate_bias**2).mean())

    def snapped_parameters(self) -> dict[str, Tensor]:
        snapped = snapped_junction(self.junction_hat, self.gate_weight, self.gate_bias)
        snapped["bias"] = torch.zeros_like(self.bias)
        return snapped if self.sign_gate is None else {**snapped, "sign_gate": snap(self.sign_gate, (0.0, 1.0))}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        results = []
        for o in range(self.out_features):
            row, gate = weights["junction"].row(o), weights["out_gate"][o]
            factors, angle = [sympy.exp(weights["bias"][o])], sympy.Integer(0)
            for i, (x, j) in enumerate(zip(inputs, row)):
                opened = weights["sign_gate"][i] if self.sign == "cosine" else 1
                if self.sign is None or j == 0:
                    factors.append(x ** (gate * j))
                elif j == gate == opened == 1:
                    factors.append(x)
                else:
                    factors.append(sympy.Abs(x) ** (gate * j))
                    if self.sign == "product":
                        factors.append(sympy.sign(x) * j + 1 - j)
                    else:
                        angle += sympy.pi * j * opened * symbolic.is_negative(x)
            results.append(sympy.prod(factors) * sympy.cos(angle))
        return results

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, sign={self.sign!r}"
