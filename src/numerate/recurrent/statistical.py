"""Statistical recurrent unit (Oliva et al., 2017)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import one_of, positive
from numerate.loops.timeloops.timeloop import SequenceLoop
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters, linear
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.statistical_loops.cpu import StatisticalLoop
from numerate.recurrent.statistical_loops.cuda import CudaStatisticalLoop
from numerate.recurrent.statistical_loops.sizes import StatisticalSizes

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


def moving_averages(means: Tensor, value: Tensor, scales: Tensor) -> Tensor:
    """Each average one step on: a m + (1 - a) value; means: (..., A, D), value: (..., D), scales: (A,)."""
    a = scales.unsqueeze(-1)
    return a * means + (1 - a) * value.unsqueeze(-2)


@dataclass(frozen=True, kw_only=True, repr=False)
class StatisticalRUCell(Cell):
    r"""Exponential moving averages of recurrent statistics at several scales; state (m,), the output is o.

    :math:`r = f(W_r m + b_r)`, :math:`\phi = f(W_\phi [x; r] + b_\phi)`, :math:`m'_a = a m_a + (1 - a) \phi` for each
    scale a, :math:`o = f(W_o m' + b_o)`. Weights start at U(-0.1, 0.1), biases at 0.

    Args:
        input_size: Features of x.
        hidden_size: Features of o.
        statistics_size: Features of φ.
        summary_size: Features of r. With 0 there is no r, and φ depends on the input alone.
        scales: The scales a, in [0, 1).
        learn_scales: Train the scales, through their logits.
        activation: f.
        linear_output: No f around o.
        output_sees_input: o has a further map of x.
        append_input: The output is [o; x].
        bias: Whether the maps have biases.
    """

    statistics_size: int = 256
    summary_size: int = 64
    scales: Sequence[float] = (0.0, 0.25, 0.5, 0.9, 0.99)
    learn_scales: bool = False
    activation: Literal["relu", "tanh", "sigmoid"] = "relu"
    linear_output: bool = False
    output_sees_input: bool = False
    append_input: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("statistics_size")
        if self.summary_size != 0:
            object.__setattr__(self, "summary_size", positive("summary_size", self.summary_size))
        one_of("activation", self.activation, tuple(ACTIVATIONS))
        object.__setattr__(self, "scales", tuple(self.scales))  # so that the cell can be hashed
        if not self.scales or not all(0 <= a < 1 for a in self.scales):
            raise ValueError(f"scales must be numbers in [0, 1), got {self.scales!r}")

    @property
    def output_is_state(self) -> bool:
        return False

    @property
    def output_size(self) -> int:
        return self.hidden_size + (self.input_size if self.append_input else 0)

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((len(self.scales) * self.statistics_size,),)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        (means,) = self.state_shapes[0]
        statistics, summary, size = self.statistics_size, self.summary_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (statistics, self.input_size)}
        if summary:
            shapes |= {"weight_rh": (statistics, summary), "weight_r": (summary, means)}
        shapes["weight_o"] = (size, means)
        if self.output_sees_input:
            shapes["weight_ox"] = (size, self.input_size)
        if self.bias:
            biases = {"bias_ih": (statistics,), "bias_r": (summary,), "bias_o": (size,)}
            shapes |= {name: shape for name, shape in biases.items() if shape != (0,)}
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
        fixed = [weight.new_full((1,), scale) for scale in self.scales]  # written on the device: a graph can record it
        scales = p["scale_logit"].sigmoid() if self.learn_scales else torch.cat(fixed)
        return {**p, "scales": scales}

    def project(self, x: Tensor, p: Parts) -> Tensor:
        """The maps of x for φ and for o, where it has one, and x itself, where it is appended."""
        parts = [linear(x, p["weight_ih"], p.get("bias_ih"))]
        if self.output_sees_input:
            parts.append(F.linear(x, p["weight_ox"]))
        if self.append_input:
            parts.append(x)
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        means = self.averages(self.loop_input(gx), state, p)
        return self.loop_output(means, gx, p), (means,)

    def averages(self, statistics: Tensor, state: State, p: Parts) -> Tensor:
        """The new averages, from the map of x for φ."""
        (means,) = state
        activation = ACTIVATIONS[self.activation]
        if self.summary_size:
            summary = activation(F.linear(means, p["weight_r"], p.get("bias_r")))
            statistics = statistics + F.linear(summary, p["weight_rh"])
        by_scale = means.unflatten(-1, (len(self.scales), self.statistics_size))
        return moving_averages(by_scale, activation(statistics), p["scales"]).flatten(-2)

    def loop_input(self, gx: Tensor) -> Tensor:
        return gx[..., : self.statistics_size]

    def loop_output(self, outputs: Tensor, gx: Tensor, p: Parts) -> Tensor:
        """The output from the new averages."""
        widths = self.statistics_size, self.hidden_size * self.output_sees_input, self.input_size * self.append_input
        _, to_output, x = gx.split(widths, -1)
        output = F.linear(outputs, p["weight_o"], p.get("bias_o"))
        if self.output_sees_input:
            output = output + to_output
        if not self.linear_output:
            output = ACTIVATIONS[self.activation](output)
        return torch.cat((output, x), -1) if self.append_input else output

    @property
    def walked(self) -> Cell:
        return cast(Cell, _Averages(self))

    def loop_sizes(self) -> StatisticalSizes:
        """What compiled loops are made for."""
        (means,), activation = self.state_shapes[0], tuple(ACTIVATIONS).index(self.activation)
        return StatisticalSizes(means, self.statistics_size, 1, 3, self.summary_size, len(self.scales), activation)

    def native_loop(self, device: torch.device, dtype: torch.dtype) -> SequenceLoop | None:
        if not self.summary_size:
            return None
        sizes = self.loop_sizes()
        if device.type == "cuda":
            return CudaStatisticalLoop(sizes, dtype, device)
        return StatisticalLoop(sizes, torch.float64 if dtype == torch.float64 else torch.float32)

    def loop_operands(self, p: Parts) -> tuple[Tensor, tuple[Tensor, ...]]:
        weight = p["weight_r"]
        bias = p["bias_r"] if self.bias else weight.new_zeros(self.summary_size)
        return weight, (p["weight_rh"], bias, self.prepare(p)["scales"])

    def prepared_with(self, p: Parts, weight: Tensor, extras: tuple[Tensor, ...]) -> Parts:
        return {**p, "weight_r": weight, **dict(zip(("weight_rh", "bias_r", "scales"), extras))}

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        return {"memory": new[0]}


class _Averages:
    """The steps of the unit without its output, as ``plain_steps`` walks them."""

    def __init__(self, cell: StatisticalRUCell) -> None:
        self.cell, (self.output_size,) = cell, cell.state_shapes[0]

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        means = self.cell.averages(gx, state, p)
        return means, (means,)


class StatisticalRU(CellLayer):
    """Statistical recurrent layer; see :class:`StatisticalRUCell`."""

    cell_type = StatisticalRUCell
