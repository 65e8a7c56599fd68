"""The models of the appendices: one hidden layer of two for vectors, two hidden units for sequences."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from numerate.experiments.experiment import Recipe
from numerate.experiments.models import Layer, two_layers
from numerate.recurrent import Cell, GRUCell, LSTMCell, RNNCell, Step, UnitCell
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


def stacked(unit: Layer) -> Recipe:
    """Two units end to end."""
    return Recipe(partial(two_layers, first=unit, second=unit, hidden=HIDDEN))


IDENTITY = {name: perceptron(activation, (8, 8, 8)) for name, activation in NONLINEARITIES.items()}
PERCEPTRONS = {
    name: perceptron(activation, (HIDDEN,))
    for name, activation in (
        ("Tanh", "tanh"), ("Sigmoid", "sigmoid"), ("ReLU6", "relu6"), ("Softsign", "softsign"), ("SELU", "selu"),
        ("ELU", "elu"), ("ReLU", "relu"), ("CReLU", "crelu"), ("None", "none"),
    )
}  # fmt: skip
STATIC = {**PERCEPTRONS, "NAC": stacked(NAC), "NALU": stacked(NALU)}
COMPLEX = {**STATIC, "NALU": stacked(ComplexNALU)}


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


def repeated(unit: Layer) -> Recipe:
    """A unit as the cell, and once more on top."""
    return Recipe(partial(recurrent, cell=partial(UnitCell, unit=unit), head=unit))


RECURRENT = {
    "LSTM": reading(LSTMCell),
    "GRU": reading(GRUCell),
    "RNN-tanh": reading(partial(RNNCell, activation="tanh")),
    "RNN-ReLU": reading(partial(RNNCell, activation="relu")),
    "NAC": repeated(NAC),
    "NALU": repeated(NALU),
}
