"""Data distributions with a success criterion: frozen dataclasses whose sampling can be traced."""

from numerate.tasks.single_module import PRIMER_RANGES, SingleModule
from numerate.tasks.task import OPERATIONS, Interval, Split, Task

__all__ = ["OPERATIONS", "PRIMER_RANGES", "Interval", "SingleModule", "Split", "Task"]
