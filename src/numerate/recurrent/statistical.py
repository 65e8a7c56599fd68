"""Statistical recurrent unit (Oliva et al., 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.recurrent.cell import Cell, Parts, State, empty_parameters, linear
from numerate.recurrent.layer import CellLayer


def moving_averages(means: Tensor, value: Tensor, scales: Tensor) -> Tensor:
    """Each average one step on: a m + (1 - a) value; means: (..., A, D), value: (..., D), scales: (A,)."""
    a = scales.unsqueeze(-1)
    return a * means + (1 - a) * value.unsqueeze(-2)


@dataclass(frozen=True, kw_only=True, repr=False)
class StatisticalRUCell(Cell):
    r"""Exponential moving averages of recurrent statistics at several scales; state (m,), the output is o.

    :math:`r = f(W_r m + b_r)`, :math:`\phi = f(W_\phi [x; r] + b_\phi)`, :math:`m'_a = a m_a + (1 - a) \phi` for each
    scale a, :math:`o = f(W_o m' + b_o)`, f = ReLU. Sizes: o hidden_size, φ ``statistics_size``, r ``summary_size``.
    Weights U(-0.1, 0.1), biases 0; with ``learn_scales`` the scales are trained through their logits.
    """

    statistics_size: int = 256
    summary_size: int = 64
    scales: Sequence[float] = (0.0, 0.25, 0.5, 0.9, 0.99)
    learn_scales: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("statistics_size", "summary_size")
        object.__setattr__(self, "scales", tuple(self.scales))  # so that the cell can be hashed
        if not self.scales or not all(0 <= a < 1 for a in self.scales):
            raise ValueError(f"scales must be numbers in [0, 1), got {self.scales!r}")

    @property
    def output_is_state(self) -> bool:
        return False

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((len(self.scales) * self.statistics_size,),)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        (means,) = self.state_shapes[0]
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (self.statistics_size, self.input_size),
            "weight_rh": (self.statistics_size, self.summary_size),
            "weight_r": (self.summary_size, means),
            "weight_o": (self.hidden_size, means),
        }
        if self.bias:
            shapes |= {
                "bias_ih": (self.statistics_size,),
                "bias_r": (self.summary_size,),
                "bias_o": (self.hidden_size,),
            }
        if self.learn_scales:
            shapes["scale_logit"] = (len(self.scales),)
        return empty_parameters(shapes, device, dtype)

    @torch.no_grad()
    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        for name, value in p.items():
            if name.startswith("weight"):
                nn.init.uniform_(value, -0.1, 0.1, generator=generator)
            elif name.startswith("bias"):
                nn.init.zeros_(value)
        if self.learn_scales:
            p["scale_logit"].copy_(torch.tensor(self.scales, dtype=torch.float64).clamp(min=0.001).logit())

    def prepare(self, p: Parts) -> Parts:
        weight = p["weight_ih"]
        scales = p["scale_logit"].sigmoid() if self.learn_scales else weight.new_tensor(self.scales)
        return {**p, "scales": scales}

    def project(self, x: Tensor, p: Parts) -> Tensor:
        return linear(x, p["weight_ih"], p.get("bias_ih"))

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        (means,) = state
        summary = F.linear(means, p["weight_r"], p.get("bias_r")).relu()
        statistics = (gx + F.linear(summary, p["weight_rh"])).relu()
        by_scale = means.unflatten(-1, (len(self.scales), self.statistics_size))
        means = moving_averages(by_scale, statistics, p["scales"]).flatten(-2)
        return F.linear(means, p["weight_o"], p.get("bias_o")).relu(), (means,)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        return {"memory": new[0]}


class StatisticalRU(CellLayer):
    """Statistical recurrent layer; see :class:`StatisticalRUCell`."""

    cell_type = StatisticalRUCell
