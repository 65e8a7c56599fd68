"""Which runs belong to which size of an experiment, one's own units included."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from numerate.experiments import Experiment, Options, Work
from numerate.experiments.experiment import SIZES
from numerate.page.index import Index, Member
from numerate.results import Key, canonical, config_hash

MODEL = ("model", "optimiser", "penalties", "restart")
"""What a unit of the user's own may have otherwise than ours in the same experiment."""


@dataclass
class Sizes:
    """The work of every experiment at every size, made once.

    Args:
        experiments: by id.
    """

    experiments: Mapping[str, Experiment]
    works: dict[tuple[str, str], Work] = field(default_factory=dict)
    _settings: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for id, experiment in self.experiments.items():
            for size in SIZES:
                self.works[id, size] = experiment.work(Options(size=size))

    @cached_property
    def totals(self) -> dict[tuple[str, str], int]:
        """(experiment, size) -> number of its runs."""
        return {place: len(work.keys) for place, work in self.works.items()}

    @cached_property
    def steps(self) -> dict[str, int]:
        """Configuration -> steps of its runs."""
        return {
            keys[0].config: training.steps
            for work in self.works.values()
            for training, keys in zip(work.trainings, work.run_keys)
        }

    def members(self) -> Iterator[Member]:
        for (id, size), work in self.works.items():
            for training, keys in zip(work.trainings, work.run_keys):
                for low, high in spans(keys):
                    yield Member(id, size, keys[0].config, low, high, canonical(training.labels))

    def adopt(self, index: Index) -> None:
        """Give stored runs of units that are not ours to the sizes whose setting they have."""
        found = []
        for experiment, config, labels, low, high in index.strangers():
            setting = _setting(index.config(config))
            sizes = [size for size in SIZES if setting in self._settings_of(experiment, size)]
            found += [Member(experiment, size, config, low, high, labels, True) for size in sizes or ["other"]]
        if found:
            index.add_members(found)

    def _settings_of(self, experiment: str, size: str) -> set[str]:
        place = experiment, size
        if place not in self._settings:
            self._settings[place] = {_setting(training.description()) for training in self.works[place].trainings}
        return self._settings[place]


def best_size(progress: Mapping[str, tuple[int, int]]) -> str | None:
    """The largest size that is complete, else the one with most finished runs; size -> (finished, total)."""
    complete = [size for size in reversed(SIZES) if size in progress and 0 < progress[size][1] <= progress[size][0]]
    if complete:
        return complete[0]
    started = [size for size in reversed(SIZES) if progress.get(size, (0, 0))[0]]
    return max(started, key=lambda size: progress[size][0], default=None)


def spans(keys: Sequence[Key]) -> list[tuple[int, int]]:
    """Seeds as ranges: 0, 1, 2, 5 -> (0, 2), (5, 5)."""
    found: list[tuple[int, int]] = []
    for seed in sorted({key.seed for key in keys}):
        if found and found[-1][1] == seed - 1:
            found[-1] = found[-1][0], seed
        else:
            found.append((seed, seed))
    return found


def _setting(config: Mapping[str, Any]) -> str:
    """What two units of one experiment and size have in common."""
    return config_hash({name: value for name, value in config.items() if name not in MODEL})
