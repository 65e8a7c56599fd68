"""Tables and figures of the papers, one short file each."""

from numerate.experiments.experiment import Experiment, Options, Recipe, experiments, select
from numerate.experiments.running import complete_size, report, run

__all__ = ["Experiment", "Options", "Recipe", "complete_size", "experiments", "report", "run", "select"]
