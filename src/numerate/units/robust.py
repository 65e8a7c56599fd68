"""Units for robust products and for division that came after the Primer (Mistry et al., 2022)."""

from collections.abc import Mapping, Sequence
from math import pi
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import flag, number, one_of
from numerate.units import penalties, symbolic
from numerate.units.base import Unit
from numerate.units.nau import draw_nau_
from numerate.units.nmu import draw_nmu_, nmu
from numerate.units.npu import EPS

GATINGS = ("relevance", "scale")


def stochastic_nmu(x: Tensor, weight: Tensor, noise: Tensor) -> Tensor:
    r""":math:`\prod_i (W_{oi} x_i n_i + 1 - W_{oi}) / \prod_i (W_{oi} n_i + 1 - W_{oi})`.

    x, noise n: (..., I), weight: (O, I) -> (..., O). At weights {0, 1} the noise cancels.
    """
    return nmu(x * noise, weight) / nmu(noise, weight)


def noise_scale(x: Tensor) -> Tensor:
    """1 / (standard deviation of all of ``x``), zero where that is not positive; a scalar without gradient."""
    x = x.detach()
    deviation = (((x - x.mean()) ** 2).sum() / (x.numel() - 1)).sqrt()
    return torch.where(deviation > 0, 1 / deviation, 0.0)


def nmru(
    x: Tensor,
    weight: Tensor,
    gate: Tensor | None = None,
    *,
    gating: str = "relevance",
    sign: bool = True,
    eps: float = 0.0,
) -> Tensor:
    r"""Multiply chosen inputs and reciprocals: :math:`y_o = \prod_i (W_{oi} m_i + 1 - W_{oi}) \cos(\sum_i W_{oi} k_i)`.

    :math:`m = |\tilde x|`, :math:`k = π [\tilde x < 0]`, :math:`\tilde x = [x, 1/(x + ε)]`; with ``sign=False`` without
    the cosine. With a gate :math:`m = \hat g |\tilde x| + 1 - \hat g`, :math:`k = \hat g π [\tilde x < 0]`
    (``"relevance"``) or :math:`m = \hat g |\tilde x|`, :math:`k = π [\hat g \tilde x < 0]` (``"scale"``).
    x: (..., I), weight: (O, 2I), gate: (2I,) -> (..., O)
    """
    x = torch.cat((x, 1 / (x + eps)), -1)
    if gate is not None and one_of("gating", gating, GATINGS) == "scale":
        x, gate = x * gate.clamp(0, 1), None
    size, angle = x.abs(), pi * (x < 0).to(x.dtype)
    if gate is not None:
        gate = gate.clamp(0, 1)
        size, angle = gate * size + (1 - gate), gate * angle
    product = nmu(size, weight)
    return product * torch.cos(F.linear(angle, weight)) if sign else product


def reciprocal_unit(x: Tensor, weight: Tensor, *, training: bool = False) -> Tensor:
    r"""Inputs and reciprocals: :math:`y_o = \prod_i (\mathrm{sgn}(x_i) |x_i|^{W_{oi}} t_{oi} + 1 - t_{oi})`.

    :math:`t = \tanh(1000 W)^2` in training, else :math:`|W|`. x: (..., I), weight: (O, I) -> (..., O)
    """
    chosen = torch.tanh(1000 * weight) ** 2 if training else weight.abs()
    x = x.unsqueeze(-2)
    sign = torch.where(x.isnan(), x, x.sign())  # torch's sign of NaN is 0, and its power of 0 is 1
    return (sign * x.abs() ** weight * chosen + (1 - chosen)).prod(-1)


class StochasticNMU(Unit):
    r"""sNMU, NMU with noise: :math:`y_o = \prod_i (W_{oi} x_i n_i + 1 - W_{oi}) / \prod_i (W_{oi} n_i + 1 - W_{oi})`.

    In training :math:`n_i` ~ U(1, c) for every element of x, c = ``noise_range``, or with ``noise_range="batch"``
    1 + 1/std(x) over the whole batch; in evaluation n = 1, plain NMU. ``weight``: (out_features, in_features), drawn
    from U(1/4, 3/4), clamped to [0, 1] after each step. Penalty: mean min(\|W\|, \|1 - W\|). Mistry et al. (2022,
    robust NMU).
    """

    bounds = {"weight": (0.0, 1.0)}
    levels = {"weight": (0.0, 1.0)}
    neutral = 1.0
    weight: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        noise_range: float | Literal["batch"] = 5.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        if isinstance(noise_range, str):
            one_of("noise_range", noise_range, ("batch",))
        else:
            number("noise_range", noise_range, 1, other=" or 'batch'")
        self.noise_range = noise_range
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nmu_(self.weight, generator)

    def forward(self, x: Tensor) -> Tensor:
        x = self.check_input(x)
        if not self.training:
            return nmu(x, self.weight)
        scale = noise_scale(x) if isinstance(self.noise_range, str) else self.noise_range - 1
        return stochastic_nmu(x, self.weight, 1 + scale * torch.rand_like(x))

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def penalty(self) -> Tensor:
        return penalties.sparsity_nmu(self.weight)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        rows = [weights["weight"].row(o) for o in range(self.out_features)]
        return [sympy.prod([w * x + 1 - w for x, w in zip(inputs, row)]) for row in rows]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, noise_range={self.noise_range!r}"


class NMRU(Unit):
    r"""Neural Multiplicative Reciprocal Unit: :math:`y_o = \prod_i (W_{oi} m_i + 1 - W_{oi}) \cos(\sum_i W_{oi} k_i)`.

    .. math:: \tilde x = [x, 1/(x + ε)], \quad m = |\tilde x|, \quad k = π [\tilde x < 0]

    ``weight``: (out_features, 2 in_features), the second half for the reciprocals, drawn from U(1/4, 3/4), clamped to
    [0, 1] after each step. Penalty: mean min(\|W\|, \|1 - W\|). Mistry et al. (2022, division).

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        sign: False leaves out the cosine.
        gate: True adds ``gate`` g: (2 in_features,), 1/2, clamped to [0, 1].
        gating: what the gate does. ``"relevance"``: as RealNPU's, :math:`m = g |\tilde x| + 1 - g`,
            :math:`k = g π [\tilde x < 0]`. ``"scale"``: as in the layer that the authors released,
            :math:`m = g |\tilde x|`, :math:`k = π [g \tilde x < 0]`.
        eps: ε in training, 2^-23.
        eval_eps: ε in evaluation, 0: a zero input gives NaN unless its reciprocal is chosen.
        device, dtype: as in ``torch.nn.Linear``.
    """

    bounds = {"weight": (0.0, 1.0), "gate": (0.0, 1.0)}
    levels = {"weight": (0.0, 1.0), "gate": (0.0, 1.0), "eps": (0.0,)}
    neutral = 1.0
    weight: nn.Parameter
    gate: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        sign: bool = True,
        gate: bool = False,
        gating: Literal["relevance", "scale"] = "relevance",
        eps: float = EPS,
        eval_eps: float = 0.0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.sign, self.eps, self.eval_eps = flag("sign", sign), number("eps", eps, 0), number("eval_eps", eval_eps, 0)
        self.weight = nn.Parameter(torch.empty(out_features, 2 * in_features, device=device, dtype=dtype))
        self.gating = one_of("gating", gating, GATINGS)
        gates = nn.Parameter(torch.empty(2 * in_features, device=device, dtype=dtype)) if flag("gate", gate) else None
        self.register_parameter("gate", gates)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nmu_(self.weight, generator)
        if self.gate is not None:
            nn.init.constant_(self.gate, 0.5)

    def forward(self, x: Tensor) -> Tensor:
        eps = self.eps if self.training else self.eval_eps
        return nmru(self.check_input(x), self.weight, self.gate, gating=self.gating, sign=self.sign, eps=eps)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def coefficients(self) -> dict[str, Tensor]:
        eps = {"eps": torch.tensor(self.eval_eps)}
        return eps if self.gate is None else {"gate": self.gate.clamp(0, 1), **eps}

    def penalty(self) -> Tensor:
        return penalties.sparsity_nmu(self.weight)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        inputs = [*inputs, *(1 / (x + weights["eps"][0]) for x in inputs)]
        gate = weights.get("gate", sympy.ones(1, len(inputs)))
        if self.gating == "scale" and self.gate is not None:
            inputs, gate = [g * x for g, x in zip(gate, inputs)], sympy.ones(1, len(inputs))
        results = []
        for o in range(self.out_features):
            factors, angle = [], sympy.Integer(0)
            for x, w, g in zip(inputs, weights["weight"].row(o), gate):
                if self.sign and w == g == 1:
                    factors.append(x)
                else:
                    factors.append(w * (g * sympy.Abs(x) + 1 - g) + 1 - w)
                    angle += sympy.pi * w * g * symbolic.is_negative(x)
            results.append(sympy.prod(factors) * (sympy.cos(angle) if self.sign else 1))
        return results

    def extra_repr(self) -> str:
        gates = f"sign={self.sign!r}, gate={self.gate is not None!r}, gating={self.gating!r}"
        return f"{super().extra_repr()}, {gates}, eps={self.eps!r}, eval_eps={self.eval_eps!r}"


class ReciprocalUnit(Unit):
    r"""Products and quotients: :math:`y_o = \prod_i (\mathrm{sgn}(x_i) |x_i|^{W_{oi}} t_{oi} + 1 - t_{oi})`.

    :math:`t = \tanh(1000 W)^2` in training and :math:`|W|` in evaluation. ``weight``: (out_features, in_features),
    drawn, clamped to [-1, 1] and penalised as :class:`NAU`'s. The authors call it Neural Reciprocal Unit (NRU), here
    the name of a recurrent cell. Mistry et al. (2022, division).
    """

    bounds = {"weight": (-1.0, 1.0)}
    levels = {"weight": (-1.0, 0.0, 1.0)}
    neutral = 1.0
    weight: nn.Parameter

    def __init__(self, in_features: int, out_features: int, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__(in_features, out_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        draw_nau_(self.weight, generator)

    def forward(self, x: Tensor) -> Tensor:
        return reciprocal_unit(self.check_input(x), self.weight, training=self.training)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight}

    def penalty(self) -> Tensor:
        return penalties.sparsity(self.weight)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        def factor(x: Any, w: Any) -> Any:
            return x**w if w.is_integer else sympy.sign(x) * sympy.Abs(x) ** w * sympy.Abs(w) + 1 - sympy.Abs(w)

        rows = [weights["weight"].row(o) for o in range(self.out_features)]
        return [sympy.prod([factor(x, w) for x, w in zip(inputs, row)]) for row in rows]
