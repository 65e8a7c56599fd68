"""``numerate run memory``: every recurrent unit under one protocol, and what that says of two papers."""

from collections.abc import Callable, Sequence

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
    most = max(s.solves for s in standing)
    solvers = {cell.task: [] for cell in found if cell.solvable}
    for cell in found:
        if cell.solvable and claims.solves(cell):
            solvers[cell.task].append(cell.unit)
    never = [task for task, units in solvers.items() if not units]
    aside = claims.tasks_of_tracking(found)  # have their own sentence
    few = [f"{task} by {', '.join(u)} alone" for task, u in solvers.items() if 0 < len(u) <= 3 and task not in aside]
    best = ", ".join(s.unit for s in standing if s.solves == most)
    sentences = [
        f"{standing[0].unit} has the best mean place, {standing[0].rank.value:.1f}.",
        claims.trackers(found),
        f"Most tasks, {most} of {len(solvers)}, are solved in most runs by {best}." if most else "",
        f"Solved by none: {'; '.join(never)}." if never else "",
        f"Solved by few: {'; '.join(few)}." if few else "",
    ]
    return " ".join(filter(None, sentences))


def standings_table(standing: Sequence[Standing]) -> TextTable:
    lines = [
        [s.unit, _interval(s.rank, "{:.1f}".format), f"{s.solves} of {s.solvable}", _span(s.parameters)]
        for s in standing
    ]
    return TextTable("Over all tasks", ["unit", "mean place", "tasks that most runs solve", "parameters"], lines)


def cells_table(found: Sequence[Cell]) -> TextTable:
    """A line for each task and unit, the best first."""
    placed = ranks(found)
    header = [
        "task", "unit", "place", "parameters", "best rate", "solved at it", "updates to solve", "test error",
        "diverged", "solved at each rate",
    ]  # fmt: skip
    lines = []
    for task, places in placed.items():
        own = {cell.unit: cell for cell in found if cell.task == task}
        for unit in sorted(places, key=lambda name: places[name]):
            lines.append([task, unit, f"{places[unit]:g}", *_numbers(own[unit])])
    return TextTable("Every task and unit", header, lines)


def _numbers(cell: Cell) -> list[str]:
    rates = ", ".join(f"{rate:g}: {solved} of {runs}" for rate, (solved, runs) in sorted(cell.rates.items()))
    success = cell.success
    solved = percent_interval(success.value or 0.0, success.low or 0.0, success.high or 1.0) if cell.solvable else "–"
    time = _interval(cell.time, thousands) if cell.solved else "–"
    error = _interval(cell.error, "{:.3f}".format) + (" bits" if cell.task == BITS else "")
    if cell.solvable and not cell.solved:
        error += f", {left(cell):.0%} of guessing"
    return [f"{cell.parameters:,}", f"{cell.rate:g}", solved, time, error, str(cell.diverged), rates]


def _interval(value: Estimate, text: Callable[[float], str]) -> str:
    if value.value is None:
        return "–"
    if value.low is None or value.high is None:
        return text(value.value)
    return f"{text(value.value)} [{text(value.low)}, {text(value.high)}]"


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
