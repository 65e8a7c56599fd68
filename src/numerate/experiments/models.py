"""Models that several papers share, as functions that a stored configuration can name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from numerate.experiments.one_unit import behind
from numerate.experiments.recipe import Recipe
from numerate.recurrent import Recurrent, SequenceModel
from numerate.results import Row
from numerate.train import NetworkTraining, Training
from numerate.units import NATU, NAU

Layer = Callable[[int, int], nn.Module]


def two_layers(inputs: int, outputs: int, *, first: Layer, second: Layer, hidden: int = 2) -> nn.Sequential:
    """``first`` from the inputs to ``hidden`` values, ``second`` from those to the outputs."""
    return nn.Sequential(first(inputs, hidden), second(hidden, outputs))


def sequence_model(inputs: int, outputs: int, *, layer: Callable[[int], Recurrent], **reading: Any) -> SequenceModel:
    """A recurrent layer with a readout; ``reading``: keywords of :class:`~numerate.recurrent.SequenceModel`."""
    return SequenceModel(layer(inputs), outputs, **reading)


def after_sums(recipe: Recipe, **hidden: int) -> Recipe:
    """The same unit behind an NAU of two hidden values, or ``hidden=`` of them; NATU as :func:`behind` has it."""
    if recipe.model is NATU:
        return replace(recipe, model=partial(behind, first=NAU, **hidden))
    return replace(recipe, model=partial(two_layers, first=NAU, second=recipe.model, **hidden))


def trained(training: Training | NetworkTraining, row: Row) -> nn.Module:
    """The model of a run with its best weights; buffers, which are not stored, as they were made.

    Raises ValueError if the stored weights are not those of the model.
    """
    model = training.build(row.seed).eval()
    weights = {name: torch.from_numpy(value) for name, value in row.stored_weights("best").items()}
    found = model.load_state_dict(weights, strict=False)
    if found.unexpected_keys or {name for name, _ in model.named_parameters()} & set(found.missing_keys):
        raise ValueError(f"the stored weights of the run {row.key.name} are not those of its model")
    return model
