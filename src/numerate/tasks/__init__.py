"""Data distributions with a success criterion: frozen dataclasses whose sampling can be traced."""

from numerate.tasks.arithmetic import Arithmetic, ten_parameter_function
from numerate.tasks.single_module import PRIMER_RANGES, SingleModule
from numerate.tasks.task import OPERATIONS, Interval, Split, Task

__all__ = [
    "OPERATIONS",
    "PRIMER_RANGES",
    "Arithmetic",
    "Interval",
    "SingleModule",
    "Split",
    "Task",
    "ten_parameter_function",
]
