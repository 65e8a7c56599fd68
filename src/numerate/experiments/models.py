"""Models that several papers share, as functions that a stored configuration can name."""

from collections.abc import Callable

from torch import nn

Layer = Callable[[int, int], nn.Module]


def two_layers(inputs: int, outputs: int, *, first: Layer, second: Layer, hidden: int = 2) -> nn.Sequential:
    """``first`` from the inputs to ``hidden`` values, ``second`` from those to the outputs."""
    return nn.Sequential(first(inputs, hidden), second(hidden, outputs))
