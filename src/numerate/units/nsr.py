"""Neural Status Register (Faber & Wattenhofer, 2020), as the Primer (Mistry et al., 2022) defines it."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import flag, number, one_of, positive
from numerate.units import symbolic
from numerate.units.base import SATURATED, Unit, chosen, snap

COMPARISONS: Mapping[str, tuple[float, float, float]] = {
    "<": (-1.0, -0.5, -0.5),
    ">": (1.0, -0.5, -0.5),
    "=": (0.0, 1.0, 0.0),
    "≠": (0.0, -1.0, 0.0),
    "≤": (-1.0, 0.5, 0.5),
    "≥": (1.0, 0.5, 0.5),
}
"""Comparison -> (w±, w0, b), so that w± s + w0 z + b is 1 where it holds and -1 where it does not."""

DECISIONS = {
    (False, False, False): "never",
    (True, False, False): "<",
    (False, False, True): ">",
    (False, True, False): "=",
    (True, False, True): "≠",
    (True, True, False): "≤",
    (False, True, True): "≥",
    (True, True, True): "always",
}
"""Whether an output is true for (less, equal, greater) -> the comparison it makes."""

ASCII = {"==": "=", "!=": "≠", "<=": "≤", ">=": "≥"}


def comparison(symbol: str, sharpness: float = 20.0) -> tuple[float, float, float]:
    """The weights (w±, w0, b) for one of < > = ≠ ≤ ≥ (or == != <= >=); its logit is ± ``sharpness`` on clear cases."""
    symbol = one_of("comparison", ASCII.get(symbol, symbol), tuple(COMPARISONS))
    sign, zero, bias = COMPARISONS[symbol]
    return sharpness * sign, sharpness * zero, sharpness * bias


def nsr(x: Tensor, first: Tensor, second: Tensor, sign: Tensor, zero: Tensor, bias: Tensor, scale: float) -> Tensor:
    r"""Probability that the chosen comparison of the two chosen inputs holds, its logit summed over the paths p.

    x: (..., I); first, second: (P, O, I), each row a choice that sums to 1; sign, zero, bias: (P, O) -> (..., O).
    Primer, eqs. 30 to 37.
    """
    d = scale * F.linear(x, (first - second).flatten(0, 1)).unflatten(-1, sign.shape)
    s = d.tanh()
    z = 1 - 2 * s**2
    return (s * sign + z * zero + bias).sum(-2).sigmoid()


class NSR(Unit):
    r"""Comparisons <, >, =, ≠, ≤, ≥ of two inputs, from a smooth sign bit s and zero bit z of their difference.

    .. math::
        d_{po} &= \lambda \sum_i (\mathrm{softmax}_i(V^1_{po}) - \mathrm{softmax}_i(V^2_{po}))\, x_i, \quad
        s = \tanh d, \quad z = 1 - 2 \tanh^2 d \\
        y_o &= \sigma\Big(\sum_p s_{po} w^{\pm}_{po} + z_{po} w^0_{po} + b_{po}\Big)

    ``first``, ``second`` (the logits V): (paths, out_features, in_features); ``sign``, ``zero``, ``bias``: (paths,
    out_features). Output: y, (..., out_features).

    Mistry et al. (2022), section 4.6, which gives no initialisation: V, w± and w0 are drawn from N(0, 1), b = 0.
    Discrete values: one input chosen by each V, and w±, w0, b in half steps from -20 to 20, among them the six
    comparisons (:func:`comparison`). There is no penalty.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        paths: the redundancy: comparisons side by side whose logits are added.
        scale: λ. The smaller the differences that matter, the larger it should be.
        pair: True gives y and then 1 - y, (..., 2 out_features).
        device, dtype: as in ``torch.nn.Linear``.
    """

    levels = {
        "first": (0.0, 1.0),
        "second": (0.0, 1.0),
        **{name: tuple(step / 2 for step in range(-40, 41)) for name in ("sign", "zero", "bias")},
    }
    first: nn.Parameter
    second: nn.Parameter
    sign: nn.Parameter
    zero: nn.Parameter
    bias: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        paths: int = 1,
        scale: float = 1.0,
        pair: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.paths = positive("paths", paths)
        self.scale, self.pair = float(number("scale", scale, 0, above=True)), flag("pair", pair)
        for name in ("first", "second"):
            empty = torch.empty(paths, out_features, in_features, device=device, dtype=dtype)
            self.register_parameter(name, nn.Parameter(empty))
        for name in ("sign", "zero", "bias"):
            self.register_parameter(name, nn.Parameter(torch.empty(paths, out_features, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for parameter in (self.first, self.second, self.sign, self.zero):
            nn.init.normal_(parameter, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.first.softmax(-1), self.second.softmax(-1)
        y = nsr(self.check_input(x), first, second, self.sign, self.zero, self.bias, self.scale)
        return torch.cat([y, 1 - y], -1) if self.pair else y

    @torch.no_grad()
    def compare_(self, symbol: str, left: int = 0, right: int = 1, *, output: int = 0, sharpness: float = 20.0) -> Self:
        """Make output number ``output`` the comparison ``x[left] symbol x[right]``; further paths are switched off."""
        for name, place, count in (
            ("left", left, self.in_features),
            ("right", right, self.in_features),
            ("output", output, self.out_features),
        ):
            if not -count <= place < count:
                raise ValueError(f"{name} must be from 0 to {count - 1}, got {place!r}")
        for logits, place in ((self.first, left), (self.second, right)):
            logits[:, output] = 0
            logits[:, output, place] = SATURATED
        for weight, value in zip((self.sign, self.zero, self.bias), comparison(symbol, sharpness)):
            weight[:, output] = 0
            weight[0, output] = value
        return self

    def effective_weights(self) -> dict[str, Tensor]:
        return {"first": self.first.softmax(-1), "second": self.second.softmax(-1)}

    def coefficients(self) -> dict[str, Tensor]:
        return {"sign": self.sign, "zero": self.zero, "bias": self.bias}

    def snapped_parameters(self) -> dict[str, Tensor]:
        choices = {name: SATURATED * chosen(getattr(self, name), -1) for name in ("first", "second")}
        return {**choices, **{name: snap(getattr(self, name), self.levels[name]) for name in ("sign", "zero", "bias")}}

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        import sympy

        scale = sympy.nsimplify(self.scale, rational=True)
        results = []
        for o in range(self.out_features):
            logit = sympy.Integer(0)
            for p in range(self.paths):
                row = p * self.out_features + o
                choice = weights["first"][row, :] - weights["second"][row, :]
                s = sympy.tanh(scale * symbolic.linear(inputs, choice))
                logit += weights["sign"][p, o] * s + weights["zero"][p, o] * (1 - 2 * s**2) + weights["bias"][p, o]
            results.append(symbolic.sigmoid(logit))
        return results + [1 - y for y in results] if self.pair else results

    def comparisons(self, names: Sequence[str] | None = None) -> list[str]:
        """What each output decides on clear cases, in words: ``x1 < x3``, ``always``, ``never``.

        Every path is taken to compare its two most probable inputs; one that chooses the same input twice sees no
        difference, so it adds the same whatever the inputs are. Where the paths compare different pairs there is no
        single comparison, and ``several`` says so. ``names``: one per input, a list, ``"a b c"`` or ``"abc"``.
        """
        names = symbolic.input_names(names, self.in_features)
        left, right = self.first.argmax(-1), self.second.argmax(-1)
        sign, zero, bias = torch.where(left < right, self.sign, -self.sign), self.zero, self.bias
        equal, apart = bias + zero, left != right
        cases = [torch.where(apart, bias - sign - zero, equal), equal, torch.where(apart, bias + sign - zero, equal)]
        holds = torch.stack(cases).sum(1) > 0  # (<, =, >) x outputs
        used = apart & (torch.stack([sign, zero, bias]) != 0).any(0)
        texts = []
        for o in range(self.out_features):
            symbol = DECISIONS[tuple(holds[:, o].tolist())]
            chosen = used[:, o]
            pairs = set(zip(left[chosen, o].tolist(), right[chosen, o].tolist()))
            pairs = {tuple(sorted(pair)) for pair in pairs}
            if symbol in ("never", "always"):
                texts.append(symbol)
            elif len(pairs) > 1:
                texts.append("several")
            else:
                low, high = pairs.pop()
                texts.append(f"{names[low]} {symbol} {names[high]}")
        return texts

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, paths={self.paths}, scale={self.scale!r}, pair={self.pair}"
