"""Neural Multiplication Unit (Madsen & Johansen, 2020)."""

from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from numerate.checks import one_of
from numerate.units import penalties
from numerate.units.base import Unit


def nmu(x: Tensor, weight: Tensor) -> Tensor:
    r"""Multiply the inputs that ``weight`` selects: :math:`z_o = \prod_i (W_{oi} x_i + 1 - W_{oi})`.

    x: (..., I), weight: (O, I) -> (..., O). Paper 2020, section 2.3.
    """
    return (weight * x.unsqueeze(-2) + (1 - weight)).prod(-1)


def draw_nmu_(weight: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """NMU's initialisation, U(1/4, 3/4), in place; any shape."""
    return nn.init.uniform_(weight, 0.25, 0.75, generator=generator)


class NMU(Unit):
    r"""Products with exact weights {0, 1}: :math:`z_o = \prod_i (W_{oi} x_i + 1 - W_{oi})`.

    ``weight``: (out_features, in_features), drawn from U(1/4, 3/4), clamped to [0, 1] after each step.
    Penalty: mean min(\|W\|, \|1 - W\|). Madsen & Johansen (2020), sections 2.3 to 2.6.

    Args:
        in_features: number of inputs I.
        out_features: number of outputs O.
        init: ``"narrow"``, as above; ``"paper"`` draws with the variance 1/4 that section 2.6 names, from
            U(1/2 - r, 1/2 + r), r = sqrt(3)/2. No published number used it.
        clip: ``"step"`` clamps the weights after each step; ``"forward"`` leaves them free and clamps them in the
            equation (the ablation of appendix C.3, as run).
        sparsity: ``"linear"``, the penalty above; ``"squared"``, mean W^2 (1 - W)^2, which the authors' code offers. No
            published number used it.
        device, dtype: as in ``torch.nn.Linear``.

    Example:
        >>> unit = NMU(3, 1)
        >>> _ = unit.weight.data.copy_(torch.tensor([[1.0, 0.0, 1.0]]))
        >>> unit(torch.tensor([2.0, 5.0, 7.0]))
        tensor([14.], grad_fn=<ProdBackward1>)
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
        init: str = "narrow",
        clip: str = "step",
        sparsity: str = "linear",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features)
        self.init = one_of("init", init, ("narrow", "paper"))
        self.clip = one_of("clip", clip, ("step", "forward"))
        self.sparsity = one_of("sparsity", sparsity, ("linear", "squared"))
        self.bounds = {"weight": (0.0, 1.0)} if clip == "step" else {}
        self.weight = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        if self.init == "narrow":
            draw_nmu_(self.weight, generator)
        else:
            radius = sqrt(3) / 2
            nn.init.uniform_(self.weight, 0.5 - radius, 0.5 + radius, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return nmu(self.check_input(x), self.weight if self.clip == "step" else self.weight.clamp(0, 1))

    def effective_weights(self) -> dict[str, Tensor]:
        return {"weight": self.weight if self.clip == "step" else self.weight.clamp(0, 1)}

    def penalty(self) -> Tensor:
        shape = penalties.sparsity_nmu if self.sparsity == "linear" else penalties.sparsity_nmu_squared
        return shape(self.weight)

    def expressions(self, inputs: Sequence[Any], weights: Mapping[str, Any]) -> list[Any]:
        w = weights["weight"]
        return [prod(w[o, i] * x + 1 - w[o, i] for i, x in enumerate(inputs)) for o in range(self.out_features)]

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, init={self.init!r}, clip={self.clip!r}, sparsity={self.sparsity!r}"
