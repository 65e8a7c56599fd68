"""``numerate run memory``: every recurrent unit under one protocol, and what that says of two papers."""

from collections.abc import Callable, Sequence
from math import isinf

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.memory import claims
from numerate.experiments.memory.cost import cost_pictures
from numerate.experiments.memory.overview import BITS, left, overview_picture
from numerate.experiments.memory.runs import trainings
from numerate.experiments.memory.scores import Cell, Standing, cells, ranks, standings
from numerate.experiments.memory.units import UNITS
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Page, TextTable
from numerate.report.text import percent_interval, thousands
from numerate.results import Row
from numerate.stats import Estimate

TITLE = "Old and new recurrences under one protocol"


def draw(rows: Sequence[Row], options: Options) -> Page:
    found = cells(rows)
    standing = standings(found)
    return Page(
        TITLE,
        headline(found, standing),
        [overview_picture(found, standing), *cost_pictures()],
        [standings_table(standing), cells_table(found)],
        [f"{s.unit}: mean place {s.rank.value:.1f}, solves {s.solves} of {s.solvable}" for s in standing],
    )


def headline(found: Sequence[Cell], standing: Sequence[Standing]) -> str:
    """Which unit comes first, who tracks a state, how many tasks the best solve, and which tasks few or none solve."""
    solvers = {cell.task: [] for cell in found if cell.solvable}
    for cell in found:
        if cell.solvable and claims.solves(cell):
            solvers[cell.task].append(cell.unit)
    never = [task for task, units in solvers.items() if not units]
    aside = claims.tasks_of_tracking(found)  # have their own sentence
    few = [f"{task} by {', '.join(u)} alone" for task, u in solvers.items() if 0 < len(u) <= 3 and task not in aside]
    few = few if len(solvers) > 1 else []  # the units of one task are named anyway
    tracked = claims.trackers(found)
    sentences = [
        first_place(standing),
        tracked,
        "" if tracked and set(solvers) <= set(aside) else solves_most(standing, list(solvers)),
        f"Solved in most runs by none: {'; '.join(never)}." if never else "",
        f"Solved in most runs by few: {'; '.join(few)}." if few else "",
    ]
    return " ".join(filter(None, sentences))


def first_place(standing: Sequence[Standing]) -> str:
    """A sentence: which unit, or units, have the best mean place."""
    best = standing[0].rank.value
    first = [s.unit for s in standing if s.rank.value == best]
    return f"{', '.join(first)} {'has' if len(first) == 1 else 'share'} the best mean place, {best:.1f}."


def solves_most(standing: Sequence[Standing], tasks: Sequence[str]) -> str:
    """A sentence: which units solve the most of these tasks; nothing if none is solved."""
    most = max(s.solves for s in standing)
    best = [s.unit for s in standing if s.solves == most]
    if not most or not tasks:
        return ""
    if len(tasks) == 1:
        return f"Most runs of {', '.join(best)} solve {tasks[0]}."
    return (
        f"{', '.join(best)} solve{'s' if len(best) == 1 else ''} the most tasks, {most} of {len(tasks)}, in most runs."
    )


def standings_table(standing: Sequence[Standing]) -> TextTable:
    lines = [
        [s.unit, _interval(s.rank, "{:.1f}".format), f"{s.solves} of {s.solvable}", _span(s.parameters)]
        for s in standing
    ]
    return TextTable("Over all tasks", ["unit", "mean place", "tasks that most runs solve", "parameters"], lines)


def cells_table(found: Sequence[Cell]) -> TextTable:
    """A line for each task and unit, the best first."""
    placed, rates = ranks(found), sorted({rate for cell in found for rate in cell.rates})
    header = [
        "task", "unit", "place", "parameters", "best rate", "solved at it", "updates", "test error", "diverged",
        "solved by rate",
    ]  # fmt: skip
    lines = []
    for task, places in placed.items():
        own = {cell.unit: cell for cell in found if cell.task == task}
        for unit in sorted(places, key=lambda name: places[name]):
            lines.append([task, unit, f"{places[unit]:g}", *_numbers(own[unit], rates)])
    title = f"Every task and unit: medians at the best rate, and runs solved at {', '.join(f'{r:g}' for r in rates)}"
    return TextTable(title, header, lines)


def _numbers(cell: Cell, rates: Sequence[float]) -> list[str]:
    """Solved runs of each rate with their number, ``5, 5, 4 of 5``; the number of each where they differ."""
    counts = [cell.rates.get(rate, (0, 0)) for rate in rates]
    if len(runs := {total for _, total in counts}) == 1:
        at_rates = f"{', '.join(str(solved) for solved, _ in counts)} of {min(runs)}"
    else:
        at_rates = ", ".join(f"{solved} of {total}" for solved, total in counts)
    success = cell.success
    solved = percent_interval(success.value or 0.0, success.low or 0.0, success.high or 1.0) if cell.solvable else "–"
    time = _interval(cell.time, thousands) if cell.solvable else "–"
    error = _interval(cell.error, "{:.3f}".format) + (" bits" if cell.task == BITS else "")
    if cell.solvable and not claims.solves(cell):
        error += f", {left(cell):.0%} of guessing"
    return [f"{cell.parameters:,}", f"{cell.rate:g}", solved, time, error, str(cell.diverged), at_rates]


def _interval(value: Estimate, text: Callable[[float], str]) -> str:
    """With a dash in place of what is infinite, the median of runs most of which have none."""
    value_text, *ends = (_finite(number, text) for number in (value.value, value.low, value.high))
    return value_text if value.low is None or value.high is None else f"{value_text} [{', '.join(ends)}]"


def _finite(number: float | None, text: Callable[[float], str]) -> str:
    return "–" if number is None or isinf(number) else text(number)


def _span(counts: tuple[int, int]) -> str:
    low, high = counts
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


EXPERIMENTS = [
    Experiment(
        id="memory",
        title="Every recurrent unit, old and new, with equally many parameters under one protocol",
        trainings=trainings,
        show=picture_page(draw, claims.both),
        about=about("memory", "memory"),
        reasons=reasons("memory", "memory"),
        quick_reasons=reasons("memory", "memory-quick"),
        units=UNITS,
        own="a cell, or a layer of numerate.recurrent, of (inputs, hidden size)",
    )
]
