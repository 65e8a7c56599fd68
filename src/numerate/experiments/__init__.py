"""Tables and figures of the papers, one short file each."""

from numerate.experiments.catalogue import experiments, select
from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.one_unit import behind, natu_recipe
from numerate.experiments.recipe import Recipe
from numerate.experiments.running import complete_size, report, run

__all__ = [
    "Experiment",
    "Options",
    "Recipe",
    "Work",
    "behind",
    "complete_size",
    "experiments",
    "natu_recipe",
    "report",
    "run",
    "select",
]
