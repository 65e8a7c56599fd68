"""Models that several papers share, as functions that a stored configuration can name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from numerate.experiments.recipe import Recipe
from numerate.recurrent import Recurrent, SequenceModel
from numerate.units import NAU

Layer = Callable[[int, int], nn.Module]


def two_layers(inputs: int, outputs: int, *, first: Layer, second: Layer, hidden: int = 2) -> nn.Sequential:
    """``first`` from the inputs to ``hidden`` values, ``second`` from those to the outputs."""
    return nn.Sequential(first(inputs, hidden), second(hidden, outputs))


def sequence_model(inputs: int, outputs: int, *, layer: Callable[[int], Recurrent], **reading: Any) -> SequenceModel:
    """A recurrent layer with a readout; ``reading``: keywords of :class:`~numerate.recurrent.SequenceModel`."""
    return SequenceModel(layer(inputs), outputs, **reading)


def after_sums(recipe: Recipe, **hidden: int) -> Recipe:
    """The same unit behind an NAU of two hidden values, or ``hidden=`` of them."""
    return replace(recipe, model=partial(two_layers, first=NAU, second=recipe.model, **hidden))
