"""The models of the appendices: one hidden layer of two for vectors, two hidden units for sequences."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from numerate.experiments.models import Layer, two_layers
from numerate.experiments.recipe import Recipe
from numerate.recurrent import Cell, GRUCell, LSTMCell, RNNCell, Step, UnitCell
from numerate.recurrent.cell import Parts
from numerate.units import MLP, NAC, NALU, ComplexNALU, Dense

HIDDEN = 2
NONLINEARITIES = {
    "Hardtanh": "hardtanh", "ReLU6": "relu6", "Softsign": "softsign", "Tanh": "tanh", "Sigmoid": "sigmoid",
    "Threshold": "threshold", "SELU": "selu", "ELU": "elu", "Softshrink": "softshrink", "ReLU": "relu",
    "LeakyReLU": "leaky_relu", "Tanhshrink": "tanhshrink", "Softplus": "softplus", "PReLU": "prelu", "None": "none",
}  # fmt: skip
"""Printed name -> ours, in the order of Table 5."""


def perceptron(activation: str, hidden: tuple[int, ...]) -> Recipe:
    return Recipe(partial(MLP, hidden=hidden, activation=activation))


def stacked(unit: Layer) -> partial[nn.Sequential]:
    """Two units end to end."""
    return partial(two_layers, first=unit, second=unit, hidden=HIDDEN)


IDENTITY = {name: perceptron(activation, (8, 8, 8)) for name, activation in NONLINEARITIES.items()}
PERCEPTRONS = {
    name: perceptron(activation, (HIDDEN,))
    for name, activation in (
        ("Tanh", "tanh"), ("Sigmoid", "sigmoid"), ("ReLU6", "relu6"), ("Softsign", "softsign"), ("SELU", "selu"),
        ("ELU", "elu"), ("ReLU", "relu"), ("CReLU", "crelu"), ("None", "none"),
    )
}  # fmt: skip
STATIC = {**PERCEPTRONS, "NAC": Recipe(stacked(NAC)), "NALU": Recipe(stacked(NALU))}
COMPLEX = {**STATIC, "NALU": Recipe(stacked(ComplexNALU))}


@dataclass(frozen=True, repr=False)
class OwnCell(UnitCell):
    """A user's unit as a cell: made of (inputs, outputs) alone, and left as it was drawn."""

    def parts(self, device: Any = None, dtype: Any = None) -> dict[str, nn.Parameter | nn.Module]:
        return {"unit": self.unit(self.input_size + self.hidden_size, self.hidden_size)}

    def reset(self, p: Parts, generator: torch.Generator | None = None) -> None:
        """Its parameters were drawn when it was made."""


class LastStep(nn.Module):
    """A cell along a sequence, then a layer on its last output; x: (B, T·I), one step after the other -> (B, O)."""

    def __init__(self, cell: Cell, head: nn.Module) -> None:
        super().__init__()
        self.cell, self.head = Step(cell), head

    def forward(self, x: Tensor) -> Tensor:
        output, state = x, None
        for step in x.split(self.cell.cell.input_size, -1):
            output, state = self.cell(step, state)
        return self.head(output)


def recurrent(inputs: int, outputs: int, *, cell: Callable[..., Cell], head: Layer, hidden: int = HIDDEN) -> LastStep:
    return LastStep(cell(inputs, hidden), head(hidden, outputs))


def reading(cell: Callable[..., Cell]) -> Recipe:
    """A cell with a linear layer on top."""
    return Recipe(partial(recurrent, cell=cell, head=Dense))


def repeated(unit: Layer, cell: type[UnitCell] = UnitCell) -> partial[LastStep]:
    """A unit as the cell, and once more on top."""
    return partial(recurrent, cell=partial(cell, unit=unit), head=unit)


RECURRENT = {
    "LSTM": reading(LSTMCell),
    "GRU": reading(GRUCell),
    "RNN-tanh": reading(partial(RNNCell, activation="tanh")),
    "RNN-ReLU": reading(partial(RNNCell, activation="relu")),
    "NAC": Recipe(repeated(NAC)),
    "NALU": Recipe(repeated(NALU)),
}
