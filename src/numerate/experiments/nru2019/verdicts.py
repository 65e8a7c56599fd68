"""The paper's sentences on copying and denoising, and the tests that decide whether they hold."""

from collections.abc import Callable, Sequence

import numpy as np

from numerate.experiments.experiment import Options
from numerate.experiments.nru2019.runs import by_task, by_unit, last_update, left, middle, times
from numerate.report import Claim
from numerate.report.text import thousands
from numerate.results import Row

GATED = ("LSTM-chrono", "GRU", "LSTM")
STUCK = 0.95
"""A loss above this share of that of guessing is no better than guessing."""


Test = Callable[[dict[str, list[Row]]], tuple[str, bool | None]]
"""Runs by unit -> what is found, and whether it holds."""


def shown(value: float) -> str:
    return "not solved" if np.isinf(value) else thousands(value)


def on_every_task(sentence: str, rows: Sequence[Row], needed: Sequence[str], test: Test) -> Claim:
    """A sentence that must hold on every task."""
    found: list[str] = []
    holds: list[bool | None] = []
    for task, members in by_task(rows).items():
        groups = by_unit(members)
        if all(unit in groups for unit in needed):
            says, verdict = test(groups)
            found.append(f"{task}: {says}")
            holds.append(verdict)
        else:
            found.append(f"{task}: no runs of {', '.join(unit for unit in needed if unit not in groups)}")
            holds.append(None)
    return Claim(sentence, "; ".join(found) + ".", _all(holds))


def _all(holds: Sequence[bool | None]) -> bool | None:
    return False if False in holds else None if None in holds or not holds else True


def solves_within(rows: Sequence[Row], unit: str, most: int) -> Claim:
    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        at = middle(times(groups[unit]))
        long_enough = at <= last_update(groups[unit]) or last_update(groups[unit]) >= most
        return f"median {shown(at)}", at <= most if long_enough else None

    return on_every_task(
        f"{unit} solves the task in a few hundred updates (our test: median of at most {most}).", rows, [unit], test
    )


def stays_at_guessing(rows: Sequence[Row], units: Sequence[str], options: Options) -> Claim:
    """Short runs cannot tell: they may leave it later."""

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        shares = {unit: middle(left(groups[unit])) for unit in units}
        says = "loss left " + ", ".join(f"{unit} {share:.0%}" for unit, share in shares.items())
        return says, min(shares.values()) > STUCK if options.as_published else None

    sentence = f"{' and '.join(units)} get stuck at the loss of guessing (our test: median above {STUCK:.0%} of it)."
    return on_every_task(sentence, rows, units, test)


def first_then_second(rows: Sequence[Row], first: str, second: str, others: Sequence[str] = GATED) -> Claim:
    """By time to solve; where neither is solved, by the loss that is left, if no run of one overlaps the other's."""

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        ahead = [_ahead(groups[first], groups[second]), *(_ahead(groups[second], groups[unit]) for unit in others)]
        if any(np.isfinite(middle(times(groups[unit]))) for unit in (first, second)):
            says = ", ".join(f"{unit} {shown(middle(times(groups[unit])))}" for unit in (first, second, *others))
        else:
            says = "loss left " + ", ".join(f"{u} {middle(left(groups[u])):.0%}" for u in (first, second, *others))
        return says, _all(ahead)

    sentence = f"{first} converges faster than all other gated models, followed by {second}."
    return on_every_task(sentence, rows, [first, second, *others], test)


def _ahead(a: Sequence[Row], b: Sequence[Row]) -> bool | None:
    """Whether ``a`` is ahead: by median time to solve if either has one, else by loss if no runs overlap."""
    first, second = middle(times(a)), middle(times(b))
    if np.isfinite(first) or np.isfinite(second):
        return first < second
    ours, theirs = left(a), left(b)
    return True if max(ours) < min(theirs) else False if min(ours) > max(theirs) and len(ours) > 2 else None


def ratio(rows: Sequence[Row], slower: str, faster: str, low: float = 1.5, high: float = 3.0) -> Claim:
    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        a, b = middle(times(groups[slower])), middle(times(groups[faster]))
        if np.isinf(a) or np.isinf(b):
            return f"{slower} {shown(a)}, {faster} {shown(b)}", None
        return f"{a / b:.1f}", low <= a / b <= high

    return on_every_task(
        f"{slower} requires two to three times more updates than {faster} (our test: medians, {low:g} to {high:g}).",
        rows, [slower, faster], test,
    )  # fmt: skip


def fails(rows: Sequence[Row], unit: str, options: Options, sentence: str) -> Claim:
    """No run of the unit is solved, though the runs are long enough for it to have settled."""

    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        some = groups[unit]
        solved = sum(np.isfinite(times(some)))
        says = f"{solved} of {len(some)} solved, loss left {middle(left(some)):.0%}"
        return says, not solved if options.as_published or solved else None

    return on_every_task(sentence, rows, [unit], test)


def all_solve_but(rows: Sequence[Row], options: Options, exceptions: Sequence[str]) -> Claim:
    def test(groups: dict[str, list[Row]]) -> tuple[str, bool | None]:
        medians = {unit: middle(times(some)) for unit, some in groups.items() if unit not in exceptions}
        unsolved = [unit for unit, at in medians.items() if np.isinf(at)]
        says = f"solved by {len(medians) - len(unsolved)} of {len(medians)}" + (
            f", not by {', '.join(unsolved)}" if unsolved else ""
        )
        return says, not unsolved if options.size == "paper" else None

    return on_every_task(f"All models converge to the solution except {', '.join(exceptions)}.", rows, [], test)
