"""Data distributions with a success criterion: frozen dataclasses whose sampling can be traced."""

from numerate.tasks.adding import Adding
from numerate.tasks.arithmetic import Arithmetic, ten_parameter_function
from numerate.tasks.batches import Batch, BatchTask
from numerate.tasks.characters import Characters
from numerate.tasks.copying import Copying, CopyLast, Denoising, VariableCopying
from numerate.tasks.counting import Counting
from numerate.tasks.decisions import Compare, Count, Minimum, Piecewise, Relaxation
from numerate.tasks.digit_pairs import DigitPairs
from numerate.tasks.digits import DigitSequences
from numerate.tasks.distributions import DistributedArithmetic, DistributedSums, Distribution
from numerate.tasks.identity import Identity
from numerate.tasks.large_scale import LargeScale
from numerate.tasks.logic import Logic
from numerate.tasks.match import Match
from numerate.tasks.photographs import SequentialPhotographs
from numerate.tasks.pixels import PermutedPixels
from numerate.tasks.programs import Programs
from numerate.tasks.sections import RecurrentArithmetic, StaticArithmetic
from numerate.tasks.selective import SelectiveCopying
from numerate.tasks.single_module import PRIMER_RANGES, SingleModule
from numerate.tasks.sir import FractionalSIR
from numerate.tasks.task import OPERATIONS, Interval, Split, Task
from numerate.tasks.words import Words

__all__ = [
    "OPERATIONS",
    "PRIMER_RANGES",
    "Adding",
    "Arithmetic",
    "Batch",
    "BatchTask",
    "Characters",
    "Compare",
    "CopyLast",
    "Copying",
    "Count",
    "Counting",
    "Denoising",
    "DigitPairs",
    "DigitSequences",
    "DistributedArithmetic",
    "DistributedSums",
    "Distribution",
    "FractionalSIR",
    "Identity",
    "Interval",
    "LargeScale",
    "Logic",
    "Match",
    "Minimum",
    "PermutedPixels",
    "Piecewise",
    "Programs",
    "RecurrentArithmetic",
    "Relaxation",
    "SelectiveCopying",
    "SequentialPhotographs",
    "SingleModule",
    "Split",
    "StaticArithmetic",
    "Task",
    "VariableCopying",
    "Words",
    "ten_parameter_function",
]
