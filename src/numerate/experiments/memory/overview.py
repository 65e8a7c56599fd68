"""The pictures: which unit can do what, and how time and memory grow with the length of a sequence."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from numerate.experiments.guessing import guessing
from numerate.experiments.memory.scores import Cell, Standing, errors, middle
from numerate.report import Picture
from numerate.report.figures import BAND, FAINT, RATES, frame_cells, lay_out, style
from numerate.report.learning import STUCK
from numerate.report.text import thousands
from numerate.results import Row

BITS = "PTB characters"


def overview_picture(found: Sequence[Cell], standings: Sequence[Standing]) -> Picture:
    """Units down, in the order of their standing; tasks across."""
    tasks = list(dict.fromkeys(cell.task for cell in found))
    units = [standing.unit for standing in standings]
    with style():
        fig = Figure(figsize=(max(7.2, 2.2 + 1.15 * len(tasks)), 1.3 + 0.36 * len(units)))
        ax = fig.subplots()
        for cell in found:
            plot_cell(ax, cell, units.index(cell.unit), tasks.index(cell.task), found)
        present = {(cell.unit, cell.task) for cell in found}
        for line, unit in enumerate(units):
            for column, task in enumerate(tasks):
                if (unit, task) not in present:
                    ax.add_patch(Rectangle((column - 0.47, line - 0.45), 0.94, 0.9, fc=BAND, ec="none"))
                    ax.text(column, line, "–", ha="center", va="center", color=FAINT)
        frame_cells(ax, units, tasks)
        lay_out(fig, rect=(0, 0.32 / fig.get_figheight(), 1, 1))
        keys = [(RATES(shade(1.0)), "all runs solved"), (RATES(shade(0.5)), "half"), (RATES(shade(0.0)), "none")]
        handles = [
            Patch(fc=colour, ec="none", label=label) for colour, label in (*keys, (STUCK, "no better than guessing"))
        ]
        fig.legend(handles=handles, loc="lower center", ncols=4, fontsize=7.5)
    return Picture(
        "overview",
        fig,
        "Which unit can do what: runs solved at the unit's best rate, and the median update over all runs at it; where "
        "half or fewer are solved, the median test error as a share of that of guessing. psMNIST: median accuracy; "
        "PTB: median bits a character; darker is better among the units. Units in the order of their mean place.",
    )


def shade(share: float) -> float:
    """Of a share of solved runs."""
    return 0.12 + 0.85 * share


def plot_cell(ax: Axes, cell: Cell, line: int, column: int, found: Sequence[Cell]) -> None:
    text, value = cell_text(cell), cell_shade(cell, found)
    colour = STUCK if value is None else RATES(value)
    ax.add_patch(Rectangle((column - 0.47, line - 0.45), 0.94, 0.9, fc=colour, ec="none", zorder=2))
    dark = value is not None and value > 0.6
    ax.text(
        column, line, text, ha="center", va="center", fontsize=7.5, zorder=3, color="#fefeff" if dark else "#1b1f25",
        weight="bold" if cell.solvable and cell.solved == len(cell.rows) else "normal", linespacing=0.95,
    )  # fmt: skip


def left(cell: Cell) -> float:
    """The median test error as a share of that of guessing; infinite where most runs have none."""
    return middle(errors(cell.rows)) / guess(cell.rows[0])


def guess(row: Row) -> float:
    """The error of guessing on the test batches of a run, from the task as it is stored."""
    task = row.config["task"]
    answers = task.get("modulus") or task.get("symbols")
    return 1 - 1 / answers if answers else guessing(row, "test")


def cell_text(cell: Cell) -> str:
    if not cell.solvable:
        value = middle(errors(cell.rows))
        if np.isinf(value):
            return "–"
        return f"{value:.2f}" if cell.task == BITS else f"{1 - value:.1%}"
    some, time = f"{cell.solved} of {len(cell.rows)}\n" if cell.solved else "", middle(cell.times)
    return some + (thousands(time) if np.isfinite(time) else f"{min(left(cell), 9.99):.0%} left")


def cell_shade(cell: Cell, found: Sequence[Cell]) -> float | None:
    """0 to 1; None: no better than guessing."""
    if cell.solvable:
        return None if not cell.solved and left(cell) > 0.95 else shade(cell.solved / len(cell.rows))
    value = middle(errors(cell.rows))
    values = [middle(errors(other.rows)) for other in found if other.task == cell.task]
    if np.isinf(value):
        return None
    best, worst = min(values), max(filter(np.isfinite, values))
    return shade((worst - value) / (worst - best) if worst > best else 1.0)
