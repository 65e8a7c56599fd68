"""Improved NALU (Schlör et al., 2020), as the Primer (Mistry et al., 2022) ran it."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number, one_of
from numerate.units import penalties, symbolic
from numerate.units.base import Unit, snap
from numerate.units.nac import FAR, nac_weight, saturated
from numerate.units.nmu import nmu

INITIALISATIONS = {"benchmark": (0.88, 0.5, 0.0, 0.2), "schloer": (1.0, -1.0, 0.0, 0.1)}
"""Name -> means of Ŵ, M̂ and g, and their common standard deviation."""


def inalu_product(x: Tensor, weight: Tensor, *, eps: float = 1e-7, limit: float = 20.0, clip: str = "sum") -> Tensor:
    r""":math:`\exp(\min(\sum_i W_{oi} \log \max(|x_i|, ε), ω)) \prod_i (\mathrm{sgn}(x_i) |W_{oi}| + 1 - |W_{oi}|)`.

    x: (..., I), weight: (O, I) -> (..., O); ω is ``limit``. ``clip="input"`` takes the minimum of every summand
    instead. Primer, eqs. 8 and 9.
    """
    log_size = torch.log(x.abs().clamp(min=eps))
    if one_of("clip", clip, ("sum", "input")) == "sum":
        exponent = F.linear(log_size, weight).clamp(max=limit)
    else:
        exponent = (log_size.unsqueeze(-2) * weight).clamp(max=limit).sum(-1)
    return torch.exp(exponent) * nmu(x.sign(), weight.abs())


def inalu(
    x: Tensor,
    weight_add: Tensor,
    weight_mul: Tensor,
    gate: Tensor,
    *,
    eps: float = 1e-7,
    limit: float = 20.0,
    clip: str = "sum",
) -> Tensor:
    r""":math:`y = σ(g) \odot W_a x + (1 - σ(g)) \odot m`, m of :func:`inalu_product`.

    x: (..., I); weight_add, weight_mul: (O, I); gate: (O,) or, one per example, (..., O) -> (..., O). Primer, eq. 12.
    """
    g = torch.sigmoid(gate)
    return g * F.linear(x, weight_add) + (1 - g) * inalu_product(x, weight_mul, eps=eps, limit=limit, clip=clip)


def _four_numbers(init: Sequence[float]) -> tuple[float, float, float, float]:
    """Means of Ŵ, M̂ and g, and their standard deviation. Raises ValueError for anything else."""
    if not isinstance(init, Sequence) or len(init) != 4:
        names = ", ".join(map(repr, INITIALISATIONS))
        raise ValueError(f"init must be one of {names}, or the means of Ŵ, M̂ and g and a deviation, got {init!r}")
    w_mean, m_mean, gate_mean = (float(number("a mean of init", mean, -inf)) for mean in init[:3])
    return w_mean, m_mean, gate_mean, float(number("the deviation of init", init[3], 0))


class INALU(Unit):
    r"""Sum or signed product, chosen by a gate of its own: :math:`y = σ(g) \odot a + (1 - σ(g)) \odot m`.

    .. math::
        a &= W^a x, \qquad W = \tanh(\hat W)\,σ(\hat M) \text{ for both, each its own} \\
        m_o &= \exp\Bigl(\min\bigl(\sum_i W^m_{oi} \log \max(|x_i|, ε), ω\bigr)\Bigr)
        \prod_i (\mathrm{sgn}(x_i)\,|W^m_{oi}| + 1 - |W^m_{oi}|)

    ``w_hat_add``, ``m_hat_add``, ``w_hat_mul``, ``m_hat_mul``: (out_features, in_features); ``gate``: (out_features,).

    Penalty: the sum over the five tensors of mean max(min(θ, -θ) + 20, 0); the 1/20 of eq. 10 belongs to its schedule.
    The sparsity error is the mean of the two matrices' errors. The formula leaves ω out, which keeps \|m\| below
    e^20 = 4.9e8. Schlör et al. (2020); Mistry et al. (2022), section 4.1.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        gate: ``"independent"``, one number for each output; ``"input"``, g = G x with ``gate`` G (out_features,
            in_features), drawn as g.
        init: ``"benchmark"``, Ŵ ~ N(0.88, 0.2), M̂ ~ N(0.5, 0.2), g ~ N(0, 0.2) (standard deviations), the source of
            the Primer's numbers; ``"schloer"``, means 1, -1, 0 and standard deviation 0.1; or these four numbers.
        clip: ``"sum"`` applies ω to the sum; ``"input"`` to each summand, the other reading of eq. 8.
        eps: ε, the smallest size of an input.
        limit: ω, the largest logarithm of a product.
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {
        "weight_add": (-1.0, 0.0, 1.0),
        "weight_mul": (-1.0, 0.0, 1.0),
        "chosen": (0.0, 1.0),
        "eps": (0.0,),
    }
    matrices_together = "mean"
    w_hat_add: nn.Parameter
    m_hat_add: nn.Parameter
    w_hat_mul: nn.Parameter
    m_hat_mul: nn.Parameter
    gate: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        gate: Literal["independent", "input"] = "independent",
        init: Literal["benchmark", "schloer"] | tuple[float, float, float, float] = "benchmark",
        clip: Literal["sum", "input"] = "sum",
        eps: float = 1e-7,
        limit: float = 20.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.gate_kind = one_of("gate", gate, ("independent", "input"))
        self.init = one_of("init", init, tuple(INITIALISATIONS)) if isinstance(init, str) else _four_numbers(init)
        self.clip = one_of("clip", clip, ("sum", "input"))
        self.eps, self.limit = number("eps", eps, 0), number("limit", limit, 0, above=True)
        self.w_hat_add = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.m_hat_add = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.w_hat_mul = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.m_hat_mul = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        shape = (out_features,) if gate == "independent" else (out_features, in_features)
        self.gate = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        init = INITIALISATIONS[self.init] if isinstance(self.init, str) else self.init
        w_mean, m_mean, gate_mean, deviation = init
        for parameter in (self.w_hat_add, self.w_hat_mul):
            nn.init.normal_(parameter, w_mean, deviation, generator=generator)
        for parameter in (self.m_hat_add, self.m_hat_mul):
            nn.init.normal_(parameter, m_mean, deviation, generator=generator)
        nn.init.normal_(self.gate, gate_mean, deviation, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        x = self.check_input(x)
        weight = self.effective_weights()
        gate = self.gate if self.gate_kind == "independent" else F.linear(x, self.gate)
        return inalu(
            x, weight["weight_add"], weight["weight_mul"], gate, eps=self.eps, limit=self.limit, clip=self.clip
        )

    def effective_weights(self) -> dict[str, Tensor]:
        return {
            "weight_add": nac_weight(self.w_hat_add, self.m_hat_add),
            "weight_mul": nac_weight(self.w_hat_mul, self.m_hat_mul),
        }

    def coefficients(self) -> dict[str, Tensor]:
        gate = {"chosen": self.gate.sigmoid()} if self.gate_kind == "independent" else {"gate": self.gate}
        return {**gate, "eps": torch.tensor(self.eps)}

    def penalty(self) -> Tensor:
        tensors = (self.w_hat_add, self.m_hat_add, self.w_hat_mul, self.m_hat_mul, self.gate)
        return torch.stack([penalties.saturation(tensor) for tensor in tensors]).sum()

    def snapped_parameters(self) -> dict[str, Tensor]:
        weight = self.effective_weights()
        w_add, m_add = saturated(weight["weight_add"])
        w_mul, m_mul = saturated(weight["weight_mul"])
        snapped = {"w_hat_add": w_add, "m_hat_add": m_add, "w_hat_mul": w_mul, "m_hat_mul": m_mul}
        if self.gate_kind == "independent":
            snapped["gate"] = FAR * (2 * snap(self.gate.sigmoid(), (0.0, 1.0)) - 1)
        return snapped

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        def factor(x: Any, w: Any) -> Any:
            if w.is_integer and eps == 0:
                return x**w
            size = sympy.Max(sympy.Abs(x), eps, evaluate=False) if eps != 0 else sympy.Abs(x)
            return size**w * (sympy.sign(x) * sympy.Abs(w) + 1 - sympy.Abs(w))

        eps, results = weights["eps"][0], []
        for o in range(self.out_features):
            total = symbolic.linear(inputs, weights["weight_add"].row(o))
            product = sympy.prod([factor(x, w) for x, w in zip(inputs, weights["weight_mul"].row(o))])
            if self.gate_kind == "independent":
                g = weights["chosen"][o]
            else:
                g = symbolic.sigmoid(symbolic.linear(inputs, weights["gate"].row(o)))
            results.append(g * total + (1 - g) * product)
        return results

    def extra_repr(self) -> str:
        options = f"gate={self.gate_kind!r}, init={self.init!r}, clip={self.clip!r}"
        return f"{super().extra_repr()}, {options}, eps={self.eps!r}, limit={self.limit!r}"
