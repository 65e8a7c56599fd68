"""What an experiment is: which configurations to train at each size, and what to show of the finished runs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from numerate.experiments.task_choice import UnknownTask, counterparts, on_tasks, resolve_tasks, titles
from numerate.experiments.unit_choice import is_own, resolve_units
from numerate.published import show_range
from numerate.results import Key, Row
from numerate.tasks.task import Range
from numerate.train import NetworkTraining, Plateau, Training
from numerate.train.specification import Factory

SIZES = ("smoke", "quick", "paper")
Size = Literal["smoke", "quick", "paper"]
MOST_SEEDS = 100_000


@dataclass(frozen=True)
class Options:
    """What a user may change about an experiment; ``None`` leaves it as the experiment has it.

    Args:
        size: ``smoke``, ``quick`` or ``paper``.
        seeds: number of seeds.
        units: names of units, several separated by commas or semicolons, and units of the user's own.
        ranges: training ranges.
        steps: updates of every run.
        tasks: titles of tasks, or what they begin with.
    """

    size: Size = "quick"
    seeds: int | None = None
    units: tuple[str | Factory, ...] | None = None
    ranges: tuple[Range, ...] | None = None
    steps: int | None = None
    tasks: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {self.size!r}")
        if self.seeds is not None and not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"seeds must be at least 1 and at most {MOST_SEEDS:,}, got {self.seeds}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        for name, values in (("units", self.units), ("ranges", self.ranges), ("tasks", self.tasks)):
            if values is not None and not any(not isinstance(value, str) or value.strip(" ,;") for value in values):
                raise ValueError(f"no {name} are named; leave --{name} out for all")

    def seed_range(self, **counts: int) -> tuple[int, ...]:
        """Seeds 0, 1, ...: as many as the user says, else as this size has (``smoke=2, quick=10, paper=25``)."""
        return tuple(range(self.seeds or counts[self.size]))

    def training_ranges(self, known: Collection[Range], smoke: tuple[Range, ...]) -> tuple[Range, ...]:
        """The user's ranges; else ``smoke`` at that size, all ``known`` ones at others."""
        if self.ranges is None:
            return smoke if self.size == "smoke" else tuple(known)
        return tuple(dict.fromkeys(self.ranges))

    @property
    def as_published(self) -> bool:
        """Whether runs are as long as the published ones."""
        return self.size == "paper" and self.steps is None

    @property
    def has_own_units(self) -> bool:
        """Whether a unit of the user's own takes part."""
        return any(map(is_own, self.units or ()))


@dataclass(frozen=True)
class ReportResult:
    """What an experiment wrote.

    Args:
        page: the page to open.
        summary: what the terminal shows (a rich renderable).
        run: one of the runs shown.
        failed: how many runs could not be trained.
    """

    page: Path
    summary: Any = None
    run: Key | None = None
    failed: int = 0


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a paper: what to run, and what to show of the finished runs.

    Args:
        id: its name on the command line, ``paper/table``.
        title: one line.
        trainings: options -> what to train; nothing, for a figure that follows from the definitions alone.
        show: writes the report into a folder, from finished runs alone.
        about: one sentence under the title: what was asked, and how.
        reasons: known reasons why numbers may differ from the published ones.
        quick_reasons: those that quick runs alone have.
        units: names that ``--units`` chooses from; without any, that option is refused.
        ranges: training ranges that ``--ranges`` chooses from; likewise.
        own: what a unit of the user's own is in this experiment.
    """

    id: str
    title: str
    trainings: Callable[[Options], Sequence[Training | NetworkTraining]]
    show: Callable[["Work", list[Row], Path], ReportResult]
    about: str = ""
    reasons: tuple[str, ...] = ()
    quick_reasons: tuple[str, ...] = ()
    units: Collection[str] = ()
    ranges: Collection[Range] = ()
    own: str = "the whole model"

    def work(self, options: Options) -> "Work":
        """What to run with these options. Raises ValueError if one of them is not for this experiment."""
        for name in ("units", "ranges"):
            if getattr(options, name) is not None and not getattr(self, name):
                raise ValueError(f"{self.id} has no choice of {name}; leave --{name} out")
        for span in options.ranges or ():
            if span not in self.ranges:
                allowed = ", ".join(map(show_range, self.ranges))
                raise ValueError(f"range {show_range(span)} is not part of this experiment; allowed are {allowed}")
        if options.units is not None:
            options = replace(options, units=resolve_units(options.units, self.units))
        trainings = self.trainings(options)
        if options.tasks is not None:
            known = titles([*self.trainings(replace(options, units=None)), *trainings])
            tasks = resolve_tasks(options.tasks, known, f"{self.id} at size {options.size}")
            options, trainings = replace(options, tasks=tasks), on_tasks(trainings, tasks)
            if not trainings:
                raise UnknownTask(f"the units asked for are not trained on {'; '.join(tasks)}")
        for name in ("seeds", "steps"):
            if getattr(options, name) is not None and not trainings:
                raise ValueError(f"{self.id} trains nothing; leave --{name} out")
        if options.steps is not None:
            trainings = [_with_steps(training, options.steps) for training in trainings]
        return Work(self, options, tuple(trainings))


def _with_steps(training: Training | NetworkTraining, steps: int) -> Training | NetworkTraining:
    """Another number of updates; a shorter run is evaluated about as many times, unless it restarts on a plateau."""
    share = 1.0 if isinstance(getattr(training, "restart", None), Plateau) else min(1.0, steps / training.steps)
    every = max(1, round(training.evaluate_every * share))
    if isinstance(training, Training):
        every = _even_part(steps, every)
    return replace(training, steps=steps, evaluate_every=every)


def _even_part(steps: int, wanted: int) -> int:
    """The divisor of ``steps`` nearest to ``wanted``. Raises ValueError if it is not within a factor of two."""
    near = (every for every in range(max(1, wanted // 2), 2 * wanted + 1) if steps % every == 0)
    found = min(near, key=lambda every: abs(every - wanted), default=None)
    if found is None:
        whole = wanted * max(1, round(steps / wanted))
        raise ValueError(f"--steps {steps} has no divisor near {wanted}, the steps between evaluations; try {whole}")
    return found


@dataclass(frozen=True)
class Work:
    """An experiment at given options: its configurations and the keys of their runs, made once per command.

    Args:
        experiment: what it is of.
        options: what the user chose.
        trainings: the configurations.
        under_way: a sentence on runs that are trained in part, for the report.
        failed: runs that could not be trained, and why.
    """

    experiment: Experiment
    options: Options
    trainings: tuple[Training | NetworkTraining, ...]
    under_way: str = ""
    failed: Mapping[Key, str] = field(default_factory=dict)

    @cached_property
    def run_keys(self) -> tuple[tuple[Key, ...], ...]:
        """The keys of the runs of each configuration; a run may belong to several."""
        return tuple(tuple(training.run_keys()) for training in self.trainings)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all runs."""
        return tuple(key for keys in self.run_keys for key in keys)

    @cached_property
    def arithmetic(self) -> dict[Key, Training]:
        """Key -> configuration of every run on numbers that are drawn at every step."""
        pairs = [(key, training) for training, keys in zip(self.trainings, self.run_keys) for key in keys]
        return {key: training for key, training in pairs if isinstance(training, Training)}

    @cached_property
    def published(self) -> tuple[Training | NetworkTraining, ...]:
        """The configurations of the published setting."""
        as_published = replace(self.options, size="paper", seeds=None, steps=None)
        if self.options == as_published:
            return self.trainings
        trainings = self.experiment.trainings(as_published)
        return tuple(trainings if self.options.tasks is None else counterparts(trainings, self.options.tasks))

    def rows_of(self, rows: Sequence[Row]) -> list[Row]:
        """Those of ``rows`` that are runs of this work, with its labels; a run that serves twice is there twice."""
        finished = {row.key: row for row in rows}
        return [
            finished[key].relabelled(self.experiment.id, training.labels)
            for training, keys in zip(self.trainings, self.run_keys)
            for key in keys
            if key in finished
        ]

    def finished(self, rows: Sequence[Row]) -> list[tuple[Training | NetworkTraining, int]]:
        """Configurations that ``rows`` hold runs of, and how many."""
        present = {row.key for row in rows}
        counts = [sum(key in present for key in keys) for keys in self.run_keys]
        return [(training, count) for training, count in zip(self.trainings, counts) if count]
