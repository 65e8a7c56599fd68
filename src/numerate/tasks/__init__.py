"""Data distributions with a success criterion: frozen dataclasses whose sampling can be traced."""

from numerate.tasks.adding import Adding
from numerate.tasks.any_range import AnyRange, random_ranges
from numerate.tasks.arithmetic import Arithmetic, ten_parameter_function
from numerate.tasks.batches import Batch, BatchTask
from numerate.tasks.characters import Characters
from numerate.tasks.composed import COMPOSED, Composed
from numerate.tasks.copying import Copying, CopyLast, Denoising, VariableCopying
from numerate.tasks.counting import Counting
from numerate.tasks.decisions import Compare, Count, Minimum, Piecewise, Relaxation
from numerate.tasks.digit_pairs import DigitPairs
from numerate.tasks.digits import DigitSequences
from numerate.tasks.distributions import DistributedArithmetic, DistributedSums, Distribution
from numerate.tasks.identity import Identity
from numerate.tasks.label_noise import LabelNoise
from numerate.tasks.large_scale import LargeScale
from numerate.tasks.logic import Logic
from numerate.tasks.match import Match
from numerate.tasks.number_words import NumberWords
from numerate.tasks.photographs import SequentialPhotographs
from numerate.tasks.pixels import PermutedPixels
from numerate.tasks.program_evaluation import ProgramEvaluation
from numerate.tasks.programs import Programs
from numerate.tasks.sections import RecurrentArithmetic, StaticArithmetic
from numerate.tasks.selective import SelectiveCopying
from numerate.tasks.single_module import PRIMER_RANGES, SingleModule
from numerate.tasks.sir import FractionalSIR
from numerate.tasks.task import OPERATIONS, Interval, Split, Task
from numerate.tasks.words import Words

__all__ = [
    "COMPOSED",
    "OPERATIONS",
    "PRIMER_RANGES",
    "Adding",
    "AnyRange",
    "Arithmetic",
    "Batch",
    "BatchTask",
    "Characters",
    "Compare",
    "Composed",
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
    "LabelNoise",
    "LargeScale",
    "Logic",
    "Match",
    "Minimum",
    "NumberWords",
    "PermutedPixels",
    "Piecewise",
    "ProgramEvaluation",
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
    "random_ranges",
    "ten_parameter_function",
]
