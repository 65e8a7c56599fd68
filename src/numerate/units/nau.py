"""Neural Addition Unit (Madsen & Johansen, 2020)."""

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.units import penalties
from numerate.units.base import Unit


def nau(x: Tensor, weight: Tensor) -> Tensor:
    r"""Add and subtract the inputs that ``weight`` selects: :math:`z_o = \sum_i \mathrm{clamp}(W_{oi}, -1, 1)\, x_i`.

    x: (..., I), weight: (O, I) -> (..., O). Paper 2020, section 2.1.
    """
    return F.linear(x, weight.clamp(-1, 1))


def draw_nau_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """NAU's initialisation, U(-r, r), r = min(1/2, sqrt(6 / (I + O))), in place; (O, I)."""
    radius = min(0.5, sqrt(6 / sum(weight.shape)))
    return nn.init.uniform_(weight, -radius, radius, generator=generator)


class NAU(Unit):
    r"""Sums and differences with exact weights {-1, 0, 1}: :math:`z_o = \sum_i \mathrm{clamp}(W_{oi}, -1, 1)\, x_i`.

    ``weight``: (out_features, in_features), drawn from U(-r, r), r = min(1/2, sqrt(6 / (I + O))), clamped to [-1, 1]
    after each step. Penalty: mean min(\|W\|, \|1 - \|W\|\|). Madsen & Johansen (2020), sections 2.1 and 2.6.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        init: ``"truncated"``, as above; ``"glorot"`` leaves out the 1/2, as section 2.6 is printed. No published
            number used it.
        clip: ``"step"`` clamps the weights after each step; ``"forward"`` leaves them free and clamps them in the
            equation alone (the ablation of appendix C.3, as run).
        sparsity: ``"linear"``, the penalty above; ``"squared"``, mean W^2 (1 - \|W\|)^2, which the authors' code
            offers. No published number used it.
        device, dtype: as in ``torch.nn.Linear``.

    Example:
        >>> unit = NAU(3, 1)
        >>> _ = unit.weight.data.copy_(torch.tensor([[0.98, -1.0, 0.01]]))
        >>> unit.snap_().formula("a b c")
        a - b
    """

    bounds = {"weight": (-1.0, 1.0)}
    levels = {"weight": (-1.0, 0.0, 1.0)}
    weight: nn.Parameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        init: str = "truncated",
        clip: str = "step",
        sparsity: str = "linear",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.init = one_of("init", init, ("truncated", "glorot"))
        self.clip = one_of("clip", clip, ("step", "forward"))
        self.sparsity = one_of("sparsity", sparsity, ("linear", "squared"))
        self.bounds = {"weight": (-1.0, 1.0)} if clip == "step" else {}
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        if self.init == "truncated":
            draw_nau_(self.weight, generator)
        else:
            radius = sqrt(6 / (self.in_features + self.out_features))
            nn.init.uniform_(self.weight, -radius, radius, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return nau(self.check_input(x), self.weight)

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight.clamp(-1, 1)}

    def penalty(self) -> Tensor:
        shape = penalties.sparsity if self.sparsity == "linear" else penalties.sparsity_squared
        return shape(self.weight)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        w = weights["weight"]
        return [sum(w[o, i] * x for i, x in enumerate(inputs)) for o in range(self.out_features)]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, init={self.init!r}, clip={self.clip!r}, sparsity={self.sparsity!r}"
