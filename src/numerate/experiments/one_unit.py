"""How NATU is trained: one recipe, wherever it stands."""

from torch import nn

from numerate.experiments.recipe import Recipe
from numerate.train import Adam, Plateau
from numerate.train.specification import Factory
from numerate.units import NATU


def behind(inputs: int, outputs: int, *, first: Factory, hidden: int = 2) -> nn.Sequential:
    """NATU behind ``first``, which makes ``hidden`` values of the inputs.

    NATU is a guess. Behind a NATU all hidden values but one are guesses too, and it sends targets; another layer, such
    as an NAU, learns all of its weights from changes.
    """
    if first is NATU:
        return nn.Sequential(NATU(inputs, hidden, guessed=hidden - 1), _top(hidden, outputs, "targets"))
    return nn.Sequential(first(inputs, hidden), _top(hidden, outputs, "changes"))


def _top(inputs: int, outputs: int, below: str) -> NATU:
    return NATU(inputs, outputs, guessed=outputs, below=below)  # type: ignore[arg-type]


def natu_recipe(model: Factory = NATU) -> Recipe:
    """Adam with a rate of 5e-2; parameters are drawn anew while they get nowhere, looked at every 25 steps.

    Args:
        model: NATU alone; behind another layer, ``partial(behind, first=NAU)``; or as a part of any other model.
    """
    return Recipe(model, Adam(5e-2), restart=Plateau(), evaluate_every=25, evaluation_size=500)
