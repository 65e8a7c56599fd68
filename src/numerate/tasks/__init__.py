"""Data distributions with a success criterion: frozen dataclasses whose sampling can be traced."""

from numerate.tasks.arithmetic import Arithmetic, ten_parameter_function
from numerate.tasks.decisions import Compare, Count, Minimum, Piecewise, Relaxation
from numerate.tasks.distributions import DistributedArithmetic, DistributedSums, Distribution
from numerate.tasks.identity import Identity
from numerate.tasks.large_scale import LargeScale
from numerate.tasks.logic import Logic
from numerate.tasks.sections import RecurrentArithmetic, StaticArithmetic
from numerate.tasks.single_module import PRIMER_RANGES, SingleModule
from numerate.tasks.sir import FractionalSIR
from numerate.tasks.task import OPERATIONS, Interval, Split, Task

__all__ = [
    "OPERATIONS",
    "PRIMER_RANGES",
    "Arithmetic",
    "Compare",
    "Count",
    "DistributedArithmetic",
    "DistributedSums",
    "Distribution",
    "FractionalSIR",
    "Identity",
    "Interval",
    "LargeScale",
    "Logic",
    "Minimum",
    "Piecewise",
    "RecurrentArithmetic",
    "Relaxation",
    "SingleModule",
    "Split",
    "StaticArithmetic",
    "Task",
    "ten_parameter_function",
]
