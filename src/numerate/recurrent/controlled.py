"""A NALU that an LSTM controls: its parameters are predicted at every step (Trask et al., 2018, section 4.4)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numerate.checks import number
from numerate.recurrent import init
from numerate.recurrent.cell import Cell, Parts, State, empty_parameters
from numerate.recurrent.layer import CellLayer
from numerate.recurrent.lstm import LSTMCell
from numerate.units.nac import nac_weight


def controlled_nalu(x: Tensor, w_hat: Tensor, m_hat: Tensor, gate: Tensor, *, eps: float = 1e-7) -> Tensor:
    r"""NALU with parameters of its own for each example: :math:`y = g \odot W x + (1 - g) \odot \exp(W \log(|x| + ε))`.

    :math:`W = \tanh(\hat W)\,σ(\hat M)`, :math:`g = σ(G x)`. x: (..., I); w_hat, m_hat, gate: (..., O, I) -> (..., O).
    """
    weight, column = nac_weight(w_hat, m_hat), x.unsqueeze(-1)
    g = torch.sigmoid((gate @ column).squeeze(-1))
    product = (weight @ (column.abs() + eps).log()).squeeze(-1).exp()
    return g * (weight @ column).squeeze(-1) + (1 - g) * product


@dataclass(frozen=True, kw_only=True, repr=False)
class ControlledNALUCell(Cell):
    r"""y' = NALU([x; y]) with Ŵ, M̂ and G = Linear(h) of an LSTM on x; state (y, h, c), output y.

    The weights on h are drawn as the LSTM's; biases start at 0.

    Args:
        input_size: Features of x.
        hidden_size: Features of the LSTM's h.
        numbers: Features of y.
        arithmetic_inputs: How many of the features of x, the first ones, NALU is given; all by default.
        eps: ε of NALU, which keeps the logarithm finite at 0.
        weight_init: Scheme of the weights, see :func:`numerate.recurrent.init.weight_`.
    """

    numbers: int = 1
    arithmetic_inputs: int | None = None
    eps: float = 1e-7
    weight_init: init.WeightInit = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_sizes("numbers", *(["arithmetic_inputs"] if self.arithmetic_inputs is not None else []))
        number("eps", self.eps, 0)
        if self.read > self.input_size:
            raise ValueError(f"arithmetic_inputs must be at most input_size, {self.input_size}, got {self.read}")
        _ = self.controller  # computed now: a compiler cannot look into an empty cached property

    @cached_property
    def controller(self) -> LSTMCell:
        """The LSTM on x."""
        return LSTMCell(self.input_size, self.hidden_size, recurrent_bias=False, weight_init=self.weight_init)

    @property
    def read(self) -> int:
        """Features of x that NALU is given."""
        return self.input_size if self.arithmetic_inputs is None else self.arithmetic_inputs

    @property
    def output_size(self) -> int:
        return self.numbers

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.numbers,), (self.hidden_size,), (self.hidden_size,)

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        rows = 3 * self.numbers * (self.read + self.numbers)
        shapes: dict[str, tuple[int, ...]] = {"weight_nalu": (rows, self.hidden_size), "bias_nalu": (rows,)}
        return self.controller.parts(device, dtype) | empty_parameters(shapes, device, dtype)

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        self.controller.reset(p, generator)
        init.weight_(p["weight_nalu"], self.weight_init, self.hidden_size, generator)
        nn.init.zeros_(p["bias_nalu"])

    def matrices(self, flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ŵ, M̂, G as views; (..., 3 O I) -> three of (..., O, I)"""
        w_hat, m_hat, gate = flat.unflatten(-1, (3, self.numbers, self.read + self.numbers)).unbind(-3)
        return w_hat, m_hat, gate

    def prepare(self, p: Parts) -> Parts:
        return {**p, **self.controller.prepare(p)}

    def project(self, x: Tensor, p: Parts) -> Tensor:
        return torch.cat((x[..., : self.read], self.controller.project(x, p)), -1)

    def predicted(self, gx: Tensor, state: State, p: Parts) -> tuple[tuple[Tensor, Tensor, Tensor], State]:
        """Ŵ, M̂, G of a step, and the controller's new state."""
        _, new = self.controller.step(gx[..., self.read :], state[1:], p)
        return self.matrices(F.linear(new[0], p["weight_nalu"], p["bias_nalu"])), new

    def step(self, gx: Tensor, state: State, p: Parts) -> tuple[Tensor, State]:
        matrices, new = self.predicted(gx, state, p)
        y = controlled_nalu(torch.cat((gx[..., : self.read], state[0]), -1), *matrices, eps=self.eps)
        return y, (y, *new)

    def observe(self, gx: Tensor, state: State, new: State, p: Parts) -> dict[str, Tensor]:
        w_hat, m_hat, gate = self.predicted(gx, state, p)[0]
        x = torch.cat((gx[..., : self.read], state[0]), -1)
        return {"weight": nac_weight(w_hat, m_hat), "gate": torch.sigmoid((gate @ x.unsqueeze(-1)).squeeze(-1))}


class ControlledNALU(CellLayer):
    """A NALU controlled by an LSTM, along time; see :class:`ControlledNALUCell`."""

    cell_type = ControlledNALUCell
