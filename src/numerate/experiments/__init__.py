"""Tables and figures of the papers, one short file each."""

from numerate.experiments.catalogue import experiments, select
from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.recipe import Recipe
from numerate.experiments.running import complete_size, report, run

__all__ = ["Experiment", "Options", "Recipe", "Work", "complete_size", "experiments", "report", "run", "select"]
