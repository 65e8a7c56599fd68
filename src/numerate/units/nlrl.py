"""Neural Logic Rule Layer (Reimann & Schwung, 2019), as the Primer (Mistry et al., 2022) defines it."""

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from numerate.checks import flag, number, one_of
from numerate.units.base import SATURATED, Unit, snap
from numerate.units.nmu import draw_nmu_

FORMS, GATES = ("full", "and", "or"), ("formula", "words")


def conjunction(literal: Tensor, weight: Tensor, eps: float) -> Tensor:
    r"""AND of the chosen literals: :math:`\exp \sum_i A_{oi} \log(|\hat x_{oi}| + \epsilon)`.

    literal: (..., O, I), weight: (O, I) -> (..., O). Primer, eq. 28.
    """
    return (weight * (literal.abs() + eps).log()).sum(-1).exp()


def disjunction(literal: Tensor, weight: Tensor) -> Tensor:
    r"""OR of the chosen literals: :math:`1 - \prod_i (1 - A_{oi} \hat x_{oi})`.

    literal: (..., O, I), weight: (O, I) -> (..., O). Primer, eq. 27, whose Kronecker product multiplies out to this.
    """
    return 1 - (1 - weight * literal).prod(-1)


def nlrl(
    x: Tensor, weight: Tensor, negation: Tensor | None, output: Tensor, *, form: str, gate: str, eps: float
) -> Tensor:
    r"""Literals, AND or OR of the chosen ones, output gate; ``negation`` and ``output`` are gate values in [0, 1].

    x: (..., I); weight, negation: (O, I); output: (O,) -> (..., O). Without ``negation`` the literals are the inputs.
    Primer, eqs. 26 to 29.
    """
    form, gate = one_of("form", form, FORMS), one_of("gate", gate, GATES)
    x = x.unsqueeze(-2)
    literal = x if negation is None else (1 - negation) * x + negation * (1 - x)
    if form == "full":
        low, high = conjunction(literal, weight, eps), disjunction(literal, weight)
        if gate == "words":
            low, high = high, low
    else:
        low = conjunction(literal, weight, eps) if form == "and" else disjunction(literal, weight)
        high = 1 - low
    return (1 - output) * low + output * high


class NLRL(Unit):
    r"""Boolean rules: each output is the AND or the OR of the inputs it chooses, each of them plain or negated.

    .. math::
        \hat x_{oi} &= (1 - n_{oi})\,x_i + n_{oi}\,(1 - x_i), \quad n = \sigma(G^{NEG}) \\
        z^{AND}_o &= \exp \sum_i A_{oi} \log(|\hat x_{oi}| + \epsilon), \qquad
        z^{OR}_o = 1 - \prod_i (1 - A_{oi} \hat x_{oi}) \\
        y_o &= (1 - g_o)\,z^{AND}_o + g_o\,z^{OR}_o, \quad g = \sigma(G^{OUT})

    ``weight`` A and ``negation`` G^NEG: (out_features, in_features); ``output`` G^OUT: (out_features,). Inputs are
    truth values in [0, 1]; the formula is written for those, where \|x̂\| = x̂. Mistry et al. (2022),
    section 4.5. What it leaves open is chosen thus: A lies in [0, 1] (clamped after each step) and is drawn
    from U(1/4, 3/4), as NMU's; both gates' logits are drawn from U(-r, r), r = sqrt(6 / (I + O)), as NALU's gate; the
    output gate does not depend on the input (figure 8); eps is NAC•'s; there is no penalty.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        form: ``"full"``, as above; ``"and"`` and ``"or"`` keep one of the two and negate it by De Morgan,
            :math:`y_o = (1 - g_o) z_o + g_o (1 - z_o)`.
        gate: ``"formula"`` follows eq. 29 as printed (g = 1 is OR), ``"words"`` the sentence above it (g = 1 is AND).
        negate: False leaves out the negation gate, for a layer behind one that negates its outputs (Primer, 7.1).
        eps: ε, which keeps the logarithm finite at 0.
        device, dtype: as in ``torch.nn.Linear``.
    """

    bounds = {"weight": (0.0, 1.0)}
    levels = {"weight": (0.0, 1.0), "negation": (0.0, 1.0), "output": (0.0, 1.0), "eps": (0.0,)}
    weight: nn.Parameter
    negation: nn.Parameter | None
    output: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        form: Literal["full", "and", "or"] = "full",
        gate: Literal["formula", "words"] = "formula",
        negate: bool = True,
        eps: float = 1e-7,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.form, self.gate = one_of("form", form, FORMS), one_of("gate", gate, GATES)
        if form != "full" and gate != "formula":
            raise ValueError(f"gate={gate!r} chooses between AND and OR and needs form='full', got form={form!r}")
        self.eps = number("eps", eps, 0, above=True)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        gates = torch.empty(out_features, in_features, device=device, dtype=dtype) if flag("negate", negate) else None
        self.register_parameter("negation", None if gates is None else nn.Parameter(gates))
        self.output = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        radius = sqrt(6 / (self.in_features + self.out_features))
        draw_nmu_(self.weight, generator)
        if self.negation is not None:
            nn.init.uniform_(self.negation, -radius, radius, generator=generator)
        nn.init.uniform_(self.output, -radius, radius, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        negation = None if self.negation is None else self.negation.sigmoid()
        output = self.output.sigmoid()
        x = self.check_input(x)
        return nlrl(x, self.weight, negation, output, form=self.form, gate=self.gate, eps=self.eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def coefficients(self) -> dict[str, Tensor]:
        gates = {} if self.negation is None else {"negation": self.negation.sigmoid()}
        return {**gates, "output": self.output.sigmoid(), "eps": torch.tensor(self.eps)}

    def snapped_parameters(self) -> dict[str, Tensor]:
        names = ("output",) if self.negation is None else ("negation", "output")
        gates = {name: SATURATED * snap(getattr(self, name).sigmoid() * 2 - 1, (-1.0, 1.0)) for name in names}
        return {"weight": snap(self.weight, self.levels["weight"]), **gates}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        a, g, eps = weights["weight"], weights["output"], weights["eps"][0]
        n = weights.get("negation", sympy.zeros(self.out_features, self.in_features))
        results = []
        for o in range(self.out_features):
            literals = [(1 - n[o, i]) * x + n[o, i] * (1 - x) for i, x in enumerate(inputs)]
            both = prod((x + eps) ** a[o, i] for i, x in enumerate(literals))
            either = 1 - prod(1 - a[o, i] * x for i, x in enumerate(literals))
            low, high = {
                "full": (both, either) if self.gate == "formula" else (either, both),
                "and": (both, 1 - both),
                "or": (either, 1 - either),
            }[self.form]
            results.append((1 - g[o]) * low + g[o] * high)
        return results

    def extra_repr(self) -> str:
        options = f"form={self.form!r}, gate={self.gate!r}, negate={self.negation is not None!r}, eps={self.eps!r}"
        return f"{super().extra_repr()}, {options}"
