"""NSR along a list: its minimum, and how often a number comes up; longer lists and larger numbers than in training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.deciding import (
    ACCURACY,
    PATHS,
    RIGHT,
    ROUNDED,
    Fold,
    Tally,
    accuracies,
    all_hold,
    at_least,
    named,
    retested,
    sparsity,
)
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import SUCCESS, Claim, Comparison, Layout, comparison
from numerate.report.text import percent
from numerate.results import Row
from numerate.stats import Estimate
from numerate.tasks import Count, Minimum
from numerate.train import Adam, Training

STEPS = {"smoke": 500, "quick": 20_000, "paper": 100_000}
LENGTHS = {"smoke": (5, 20), "quick": (5, 20, 100, 500), "paper": (5, 20, 100, 500, 1000)}
SIZES = (10, 100, 1000)
"""Numbers in the test are below these."""
FALL = 0.01
"""An accuracy that is lower by more than this has fallen."""
Accuracies = Mapping[tuple[str, float], Estimate]
"""Panel and length -> the median with its interval."""


@dataclass(frozen=True)
class Kind:
    """What the two experiments differ in: the model, the task and their titles."""

    model: Callable[..., Any]
    task: type[Minimum] | type[Count]
    title: str
    own: str


KINDS = {
    "minimum": Kind(Fold, Minimum, "the minimum of a list", "the cell, on a number and what it gave before"),
    "count": Kind(
        Tally,
        Count,
        "how often a number comes up in a list",
        "the cell, on a number, the one that is counted and what it gave before",
    ),
}


def recipes(name: str, steps: int) -> dict[str, Recipe]:
    return {named(p): Recipe(partial(KINDS[name].model, paths=p), Adam(1e-2), sparsity(steps)) for p in PATHS}


def trainings(name: str, options: Options) -> list[Training]:
    steps = STEPS[options.size]

    def place(own: Recipe) -> Recipe:
        return replace(own, model=partial(KINDS[name].model, unit=own.model))

    return [
        recipe.training(
            task=KINDS[name].task(test_length=5),  # longer lists are tested afterwards
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=steps,
            evaluate_every=steps // 20,
            evaluation_size=500,
            labels={"unit": unit, "task": name},
        )
        for unit, recipe in choose_recipes(options.units, recipes(name, options.steps or steps), placed=place).items()
    ]


def judged(name: str, work: Work, rows: Sequence[Row]) -> list[Row]:
    """The runs on every length and size of numbers."""
    found: list[Row] = []
    for size in SIZES:
        tasks = {n: KINDS[name].task(test_length=n, test_size=size) for n in LENGTHS[work.options.size]}
        labelled = [row.relabelled(row.experiment, {**row.labels, "numbers": f"below {size:,}"}) for row in rows]
        found += retested(work, labelled, "length", tasks)
    return found


def compare(name: str, rows: Sequence[Row]) -> Comparison:
    return comparison(
        rows,
        title=f"Primer 2022: {KINDS[name].title}",
        layout=Layout(
            panel="numbers",
            x="length",
            panels=[f"below {size:,}" for size in SIZES],
            panel_titles={f"below {size:,}": f"Numbers below {size:,}" for size in SIZES},
            order=list(map(named, PATHS)),
            x_title="Length of the list (training: 5)",
            joined=True,
        ),
        measure=accuracies,
        metrics=(SUCCESS, ACCURACY, ROUNDED),
    )


def claims(name: str, compared: Comparison) -> list[Claim]:
    """Sentences of 7.2, and ours on rounding."""
    ours = [unit for unit in map(named, PATHS) if unit in compared.series]
    if not ours or len(compared.xs) < 4:
        return []
    best = max(ours, key=lambda s: sum(c.measured.solved or 0 for c in compared.cells if c.series == s))
    cells = [cell for cell in compared.cells if cell.series == best]
    accuracy, rounded = ({(c.panel, c.x): c.measured.ours[m.name] for c in cells} for m in (ACCURACY, ROUNDED))
    first, last = compared.xs[0], compared.xs[-1]
    return [
        (_minimum if name == "minimum" else _count)(best, accuracy, first, last),
        Claim(
            "(Ours) Rounded decisions and weights are right at every length.",
            f"median accuracy of {best}, rounded, at length {last:g}: {_listed(rounded, last)}; as trained: "
            f"{_listed(accuracy, last)}.",
            _right(rounded),
        ),
    ]


def _minimum(best: str, accuracy: Accuracies, first: float, last: float) -> Claim:
    return Claim(
        "The minimum task performs perfectly on all extrapolation settings.",
        f"median accuracy of {best} at length {first:g}: {_listed(accuracy, first)}; at length {last:g}: "
        f"{_listed(accuracy, last)}.",
        _right(accuracy),
    )


def _count(best: str, accuracy: Accuracies, first: float, last: float) -> Claim:
    falls = all_hold(_falls(accuracy[panel, first], accuracy[panel, last]) for panel, x in accuracy if x == last)
    learnt = any((found.value or 0.0) >= 0.5 for found in accuracy.values())
    return Claim(
        "The counting task's performance reduces as sequence length increases.",
        f"median accuracy of {best} at length {first:g}: {_listed(accuracy, first)}; at length {last:g}: "
        f"{_listed(accuracy, last)}.",
        falls if learnt else None,
    )


def _right(accuracy: Accuracies) -> bool | None:
    """Whether the median run is right at every length and size; None where an interval leaves that open."""
    return all_hold(at_least(found, RIGHT) for found in accuracy.values())


def _falls(before: Estimate, after: Estimate) -> bool | None:
    """Whether a median is lower by more than ``FALL``; None where the intervals leave that open."""
    if before.low is None or before.high is None or after.low is None or after.high is None:
        return None
    if before.low - after.high > FALL:
        return True
    return False if before.high - after.low <= FALL else None


def _listed(values: Accuracies, at: float) -> str:
    return ", ".join(f"{percent(found.value or 0.0)} ({panel})" for (panel, x), found in values.items() if x == at)


def experiment(name: str) -> Experiment:
    return Experiment(
        id=f"primer2022/{name}",
        title=f"NSR and NAU along a list: {KINDS[name].title}",
        trainings=lambda options: trainings(name, options),
        show=comparison_page(
            lambda rows, options: compare(name, rows),
            lambda compared: claims(name, compared),
            prepare=lambda work, rows: judged(name, work, rows),
        ),
        about=about("primer2022", name),
        reasons=reasons("primer2022", "nsr", "sequences"),
        units=list(map(named, PATHS)),
        own=KINDS[name].own,
    )


EXPERIMENTS = [experiment(name) for name in KINDS]
