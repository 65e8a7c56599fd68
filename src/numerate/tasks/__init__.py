"""Data distributions with a success criterion: frozen dataclasses whose sampling can be traced."""

from numerate.tasks.arithmetic import Arithmetic, ten_parameter_function
from numerate.tasks.distributions import DistributedArithmetic, DistributedSums, Distribution
from numerate.tasks.identity import Identity
from numerate.tasks.large_scale import LargeScale
from numerate.tasks.sections import RecurrentArithmetic, StaticArithmetic
from numerate.tasks.single_module import PRIMER_RANGES, SingleModule
from numerate.tasks.sir import FractionalSIR
from numerate.tasks.task import OPERATIONS, Interval, Split, Task

__all__ = [
    "OPERATIONS",
    "PRIMER_RANGES",
    "Arithmetic",
    "DistributedArithmetic",
    "DistributedSums",
    "Distribution",
    "FractionalSIR",
    "Identity",
    "Interval",
    "LargeScale",
    "RecurrentArithmetic",
    "SingleModule",
    "Split",
    "StaticArithmetic",
    "Task",
    "ten_parameter_function",
]
