"""What is trained: every unit on every task, at some rates and seeds each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any

from numerate.experiments.experiment import Options
from numerate.experiments.memory.units import FULL, LINEAR, SLOW, SMALL, UNITS, recipes
from numerate.tasks import (
    Adding,
    BatchTask,
    Characters,
    Copying,
    Counting,
    Denoising,
    PermutedPixels,
    SelectiveCopying,
    VariableCopying,
)
from numerate.train import Adam, NetworkTraining, Stop

RATES = {"smoke": (1e-3, 3e-3), "quick": (3e-3, 1e-2), "paper": (3e-4, 1e-3, 3e-3)}
"""A thousand updates are too few for a small rate."""
CLIP: dict[str, Any] = {"clip": "norm", "limit": 1.0}
BUDGETS = {"smoke": SMALL, "quick": SMALL, "paper": FULL}
SEEDS = {"smoke": 1, "quick": 2, "paper": 5}
"""For each rate."""
DEFAULT = {
    "smoke": ("LSTM", "minGRU"),
    "quick": ("LSTM", "GRU", "NRU", "UR-LSTM", "sLSTM", "RNN", *LINEAR),
    "paper": tuple(unit for unit in UNITS if unit not in SLOW),
}


@dataclass(frozen=True)
class Place:
    """A task of the comparison, a column of its picture.

    Args:
        title: its name.
        task: what is learnt.
        length: steps of a training sequence.
        updates: of every run.
        evaluations: of every run.
        reading: keywords of the model.
    """

    title: str
    task: BatchTask
    length: int
    updates: int
    evaluations: int = 50
    reading: Mapping[str, Any] = field(default_factory=dict)

    @property
    def solvable(self) -> bool:
        """Whether runs are solved or not; else they are compared by their error."""
        return not isnan(self.task.threshold())


LAST = {"read": "last"}
CARRIES = {"carries": True}


def paper() -> tuple[Place, ...]:
    """The most telling tasks first: a run of the whole may come in portions."""
    return (
        Place("copying, T = 100", Copying(100), 120, 30_000),
        Place("selective copying, T = 100", SelectiveCopying(100, 8, 8, batch_size=32), 108, 10_000, 100),
        Place("parity", Counting(2, 50, 200, batch_size=32), 50, 5_000, 100),
        Place("adding, T = 200", Adding(200), 200, 10_000, 100, LAST),
        Place("counting mod 5", Counting(5, 50, 200, batch_size=32), 50, 5_000, 100),
        Place("variable copying, T = 100", VariableCopying(100), 120, 20_000),
        Place("denoising, T = 100", Denoising(100), 111, 20_000),
        Place("PTB characters", Characters(), 150, 2_000, 5, CARRIES),
        Place("psMNIST", PermutedPixels(held_out=2_000), 785, 1_500, 5, LAST),
        Place("copying, T = 500", Copying(500), 520, 8_000),
    )


def quick() -> tuple[Place, ...]:
    """Tasks so short that a thousand updates tell who can do them: two of state tracking, then two of memory.

    Copying is not among them: gated units need ten thousand updates and more (``numerate run nru2019/figure1``).
    """
    few: dict[str, Any] = {"batch_size": 16, "evaluation_batches": 4}
    return (
        Place("parity", Counting(2, 20, 80, **few), 20, 1_000, 10),
        Place("counting mod 3", Counting(3, 20, 80, **few), 20, 1_000, 10),
        Place("selective copying, T = 16", SelectiveCopying(16, 2, 4, **few), 18, 1_000, 10),
        Place("adding, T = 30", Adding(30, **few), 30, 1_000, 10, LAST),
    )


def smoke() -> tuple[Place, ...]:
    few: dict[str, Any] = {"batch_size": 2, "evaluation_batches": 1}
    return (
        Place("copying, T = 12", Copying(12, **few), 32, 4, 2),
        Place("selective copying, T = 16", SelectiveCopying(16, 4, 4, **few), 20, 4, 2),
        Place("parity", Counting(2, 16, 20, **few), 16, 4, 2),
        Place("adding, T = 16", Adding(16, **few), 16, 4, 2, LAST),
    )


PLACES = {"smoke": smoke, "quick": quick, "paper": paper}


def seeds(options: Options) -> list[tuple[int, ...]]:
    """Of each rate its own, so that on a GPU all of them are one stack."""
    count = len(options.seed_range(**SEEDS))
    return [tuple(range(k * count, (k + 1) * count)) for k in range(len(RATES[options.size]))]


def trainings(options: Options) -> list[NetworkTraining]:
    return [
        recipe.network_training(
            task=place.task,
            seeds=some,
            optimiser=Adam(rate, **CLIP),
            steps=place.updates,
            evaluate_every=max(1, place.updates // place.evaluations),
            keeps_weights=False,  # thousands of runs, of which nobody looks at the weights
            stop=Stop(solved=True) if place.solvable else None,
            labels={"task": place.title, "unit": unit, "rate": rate},
        )
        for place in PLACES[options.size]()
        for unit, recipe in recipes(
            options.units,
            DEFAULT[options.size],
            place.task.inputs,
            place.task.outputs,
            place.length,
            BUDGETS[options.size],
            **place.reading,
        ).items()
        for rate, some in zip(RATES[options.size], seeds(options))
    ]
