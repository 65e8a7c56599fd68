"""The paper's sentences on copying and denoising, and the tests that decide whether they hold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from numerate.experiments.experiment import Options
from numerate.experiments.nru2019.runs import by_task, by_unit, last_update, left, middle, times
from numerate.report import Claim
from numerate.report.text import thousands
from numerate.results import Row
from numerate.stats import lower

GATED = ("LSTM-chrono", "GRU", "LSTM")
STUCK = 0.95
"""A loss above this share of that of guessing is no better than guessing."""


Test = Callable[[dict[str, list[Row]]], tuple[str, bool | None]]
"""Runs by unit -> what is found, and whether it holds."""


def shown(value: float) -> str:
    return "not solved" if np.isinf(value) else thousands(value)


def share(value: float) -> str:
    """Of the loss of guessing; the median run may have diverged."""
    return "diverged" if np.isinf(value) else f"{value:.0%}"


@dataclass(frozen=True)
class Runs:
    """The runs there are, and the tasks that the experiment has.

    Args:
        rows: of any units and tasks.
        tasks: titles of all tasks, run or not.
        options: of the experiment.
    """

    rows: Sequence[Row]
    tasks: Sequence[str]
    options: Options

    def on_each_task(self, sentence: str, needed: Sequence[str], test: Test) -> list[Claim]:
        """A sentence for each task that was run; it cannot be told of a task without runs of every needed unit."""
        found, several = by_task(self.rows), len(self.tasks) > 1
        claims = []
        for task in [task for task in self.tasks if task in found] or self.tasks[:1]:
            groups = by_unit(found.get(task, []))
            missing = [unit for unit in needed if unit not in groups]
            says, verdict = (f"no runs of {', '.join(missing)}", None) if missing else test(groups)
            claims.append(Claim(f"{task}: {sentence}" if several else sentence, f"{says}.", verdict))
        return claims


def _all(holds: Sequence[bool | None]) -> bool | None:
    return False if False in holds else None if None in holds or not holds else True


def solves_within(runs: Runs, unit: str, most: int) -> list[Claim]:
    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        at = middle(times(groups[unit]))
        long_enough = at <= last_update(groups[unit]) or last_update(groups[unit]) >= most
        return f"median {shown(at)}", at <= most if long_enough else None

    sentence = f"{unit} solves the task in a few hundred updates (our test: median of at most {most})."
    return runs.on_each_task(sentence, [unit], test)


def stays_at_guessing(runs: Runs, units: Sequence[str]) -> list[Claim]:
    """Short runs cannot tell: they may leave it later. A run that diverged or got worse is not stuck there."""

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        losses = {unit: left(groups[unit]) for unit in units}
        better = {unit: sum(loss <= STUCK for loss in some) for unit, some in losses.items()}
        says = "loss left " + ", ".join(
            f"{unit} {share(middle(some))} (below {STUCK:.0%} in {better[unit]} of {len(some)} runs)"
            for unit, some in losses.items()
        )
        stuck = all(STUCK < middle(some) < 2 - STUCK for some in losses.values())
        return says, stuck if runs.options.as_published else None

    sentence = (
        f"{' and '.join(units)} get stuck at the loss of guessing (our test: median within {1 - STUCK:.0%} of it)."
    )
    return runs.on_each_task(sentence, units, test)


def first_then_second(runs: Runs, first: str, second: str, others: Sequence[str] = GATED) -> list[Claim]:
    """By time to solve; where neither is solved, by the loss that is left."""

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        told = [ahead(groups[first], groups[second]), *(ahead(groups[second], groups[unit]) for unit in others)]
        if any(np.isfinite(middle(times(groups[unit]))) for unit in (first, second)):
            says = ", ".join(f"{unit} {shown(middle(times(groups[unit])))}" for unit in (first, second, *others))
        else:
            says = "loss left " + ", ".join(f"{u} {share(middle(left(groups[u])))}" for u in (first, second, *others))
        return says, _all(told)

    sentence = (
        f"{first} converges faster than all other gated models, followed by {second} (our test: runs of one do not "
        "overlap those of the other, or rank sums at 5 %)."
    )
    return runs.on_each_task(sentence, [first, second, *others], test)


def ahead(a: Sequence[Row], b: Sequence[Row]) -> bool | None:
    """Whether ``a`` is ahead: by time to solve if the median run of either is solved, else by the loss left."""
    solved = np.isfinite([middle(times(a)), middle(times(b))]).any()
    return lower(times(a), times(b)) if solved else lower(left(a), left(b))


def ratio(runs: Runs, slower: str, faster: str, low: float = 1.5, high: float = 3.0) -> list[Claim]:
    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        a, b = middle(times(groups[slower])), middle(times(groups[faster]))
        if np.isinf(a) or np.isinf(b):
            return f"{slower} {shown(a)}, {faster} {shown(b)}", None
        return f"{a / b:.1f}", low <= a / b <= high

    sentence = (
        f"{slower} requires two to three times more updates than {faster} (our test: medians, {low:g} to {high:g})."
    )
    return runs.on_each_task(sentence, [slower, faster], test)


def fails(runs: Runs, unit: str, sentence: str) -> list[Claim]:
    """No run of the unit is solved, though the runs are long enough for it to have settled."""

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        some = groups[unit]
        solved = sum(np.isfinite(times(some)))
        says = f"{solved} of {len(some)} solved, loss left {share(middle(left(some)))}"
        return says, not solved if runs.options.as_published or solved else None

    return runs.on_each_task(sentence, [unit], test)


def all_solve_but(runs: Runs, units: Sequence[str], exceptions: Sequence[str], updates: int) -> list[Claim]:
    """Of all ``units``; one that is not solved in fewer than ``updates`` may still be."""
    wanted = [unit for unit in units if unit not in exceptions]

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        some = {unit: groups[unit] for unit in wanted if unit in groups}
        unsolved = {unit: members for unit, members in some.items() if np.isinf(middle(times(members)))}
        says = f"solved by {len(some) - len(unsolved)} of {len(wanted)}"
        if unsolved:
            says += ", not by " + ", ".join(
                f"{u} in {last_update(members):,} updates" for u, members in unsolved.items()
            )
        if missing := [unit for unit in wanted if unit not in some]:
            says += f"; no runs of {', '.join(missing)}"
        if runs.options.size != "paper":
            return says, None
        refuted = any(last_update(members) >= updates for members in unsolved.values())
        return says, False if refuted else None if unsolved or missing else True

    return runs.on_each_task(f"All models converge to the solution except {', '.join(exceptions)}.", [], test)
