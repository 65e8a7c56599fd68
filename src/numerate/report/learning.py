"""Pictures of runs that learn over many updates: curves with bands, time to solve, values beside published ones.

Rows are grouped by a label. A run that diverged counts as worse than every other from then on: medians and bands over
runs say so, and legends count it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from numerate.report import text
from numerate.report.figures import BAND, COLOURS, FAINT, INK, MARKERS, PAPER, RATES, frame_cells, lay_out, short
from numerate.results import Row
from numerate.results.outcome import judge

LEGEND = 1.8
"""Inches at the right of a figure for the names of its curves."""
STUCK = "#f3d9d3"
"""Colour of a task that no run has made headway on; as pale in a dark theme."""


def looks(order: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name -> (colour, marker), by its place."""
    return {name: (COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i, name in enumerate(order)}


@dataclass(frozen=True)
class Curves:
    """One quantity of several runs along training.

    Args:
        name: of the group.
        steps: (points,)
        values: (runs, points); inf once a run has diverged, nan where it has no value.
        diverged: number of runs that did.
    """

    name: str
    steps: np.ndarray
    values: np.ndarray
    diverged: int = 0

    def quantile(self, q: float) -> np.ndarray:
        """Over the runs, at each point; nan at points without a value."""
        with np.errstate(invalid="ignore"):
            here = np.where(np.isnan(self.values), np.nan, self.values)
            return np.array([_quantile(column[~np.isnan(column)], q) for column in here.T])

    @property
    def median(self) -> np.ndarray:
        return self.quantile(0.5)

    @property
    def last(self) -> float:
        """The last median that is a number."""
        known = self.median[~np.isnan(self.median)]
        return float(known[-1]) if len(known) else float("nan")


def _quantile(values: np.ndarray, q: float) -> float:
    """Between two runs, of which one may be infinite."""
    if not len(values):
        return float("nan")
    ordered = np.sort(values)
    place = q * (len(ordered) - 1)
    below, above = ordered[int(place)], ordered[min(int(place) + 1, len(ordered) - 1)]
    share = place - int(place)
    return float(below if share == 0 else above if np.isinf(above) else below + share * (above - below))


def grouped(rows: Sequence[Row], by: str | Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows by a label, or by what a function says, in the order of their first appearance."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.labels[by] if isinstance(by, str) else by(row), []).append(row)
    return groups


def curves(rows: Sequence[Row], quantity: str, by: str = "unit", scale: float = 1.0) -> list[Curves]:
    """A stored curve of each group, on the union of its runs' points."""
    return [_curves(str(name), members, quantity, scale) for name, members in grouped(rows, by).items()]


def _curves(name: str, rows: Sequence[Row], quantity: str, scale: float) -> Curves:
    steps = np.unique(np.concatenate([row.curves["steps"] for row in rows]))
    values = np.stack([_at(row, quantity, steps) * scale for row in rows])
    return Curves(name, steps, values, sum(row.status == "diverged" for row in rows))


def _at(row: Row, quantity: str, steps: np.ndarray) -> np.ndarray:
    """A curve at other steps: straight between its points; after its end the last value, or inf if it diverged."""
    own, values = row.curves["steps"], np.asarray(row.curves[quantity], float)
    known = np.isfinite(values)
    if not known.any():
        return np.full(len(steps), np.inf if row.status == "diverged" else np.nan)
    found = np.interp(steps, own[known], values[known], left=np.nan)
    if row.status == "diverged":
        found[steps > own[known][-1]] = np.inf
    return found


def plot_curves(
    ax: Axes,
    series: Sequence[Curves],
    *,
    order: Sequence[str],
    share: float = 0.5,
    baseline: float | None = None,
    baseline_name: str = "guessing",
    points: Mapping[str, tuple[float, float]] | None = None,
    first: str | None = None,
) -> Axes:
    """Medians as lines, the central ``share`` of the runs as bands; fewer than three runs are a thin line each.

    Args:
        ax: to draw on.
        series: one group each.
        order: names that have a colour each, the same in every picture of a report.
        share: of the runs, in a band.
        baseline: a dashed line.
        baseline_name: what it is.
        points: published values as hollow marks, name -> (step, value).
        first: the name whose line is thicker.
    """
    look = looks(order)
    for group in series:
        colour, marker = look[group.name]
        top = 10 * np.nanmax(np.where(np.isfinite(group.values), group.values, np.nan), initial=0.0) + 1
        width, zorder = (2.2, 4) if group.name == first else (1.3, 3)
        if len(group.values) < 3:
            lines = np.minimum(group.values, top).T
            ax.plot(group.steps, lines, color=colour, lw=0.7 * width, alpha=0.9, zorder=zorder)
        else:
            low, high = (np.minimum(group.quantile((1 + side * share) / 2), top) for side in (-1, 1))
            ax.fill_between(group.steps, low, high, color=colour, alpha=0.16, lw=0, zorder=2)
            ax.plot(group.steps, np.minimum(group.median, top), color=colour, lw=width, zorder=zorder)
        if points and group.name in points:
            ax.plot(*points[group.name], marker, ms=5.5, mfc=PAPER, mec=colour, mew=1.3, zorder=5, clip_on=False)
    if baseline is not None:
        ax.axhline(baseline, color=FAINT, lw=1.0, ls=(0, (5, 3)), zorder=1)
        ax.annotate(
            baseline_name, (1, baseline), (-2, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="right", fontsize=7.5, color=FAINT,
        )  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text.thousands_tick(value) if value >= 0 else ""))
    ax.set_xlim(0, max((group.steps[-1] for group in series), default=1))
    ax.set_xlabel("update")
    return ax


def headroom(series: Sequence[Curves], baseline: float, share: float) -> float:
    """The upper end of a linear axis: ``share`` of the baseline, or higher where a curve would not be seen at all.

    A curve that never comes below ten times the baseline is left out of the picture.
    """
    lowest = [np.min(known) for group in series if len(known := group.median[np.isfinite(group.median)])]
    seen = [value for value in lowest if value <= 10 * baseline]
    return max(share * baseline, 1.1 * max(seen, default=0.0))


def panels(count: int, width: float, height: float, columns: int = 2) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` panels of equal size, at most ``columns`` side by side, with room for a legend."""
    columns = min(count, columns)
    lines = -(-count // columns)
    fig = Figure(figsize=(width * columns + LEGEND, height * lines))
    axes = list(fig.subplots(lines, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.set_visible(False)
    return fig, axes[:count]


def keys(series: Sequence[Curves], order: Sequence[str], first: str | None = None) -> list[Line2D]:
    """The entries of a legend, with the number of runs that diverged."""
    look, found = looks(order), []
    for group in series:
        note = f"\n{group.diverged} of {len(group.values)} diverged" if group.diverged else ""
        width = 2.2 if group.name == first else 1.3
        found.append(Line2D([], [], color=look[group.name][0], lw=width, label=short(group.name) + note))
    return found


def legend(fig: Figure, series: Sequence[Curves], order: Sequence[str], first: str | None = None, **marks: str) -> None:
    """Lay a figure of :func:`panels` out, with names at its right, the lowest curve last; how many runs diverged.

    ``marks``: further entries of hollow marks, such as ``published="o"``.
    """
    handles = keys(sorted(series, key=lambda group: -np.nan_to_num(group.last, nan=np.inf)), order, first)
    for what, mark in marks.items():
        handles.append(Line2D([], [], ls="", marker=mark, mfc=PAPER, mec=FAINT, ms=5.5, label=what))
    width = fig.get_figwidth()
    lay_out(fig, rect=(0, 0, 1 - LEGEND / width, 1), w_pad=2.0, h_pad=1.5)
    place = 1 - (LEGEND - 0.1) / width, 0.5
    fig.legend(handles=handles, loc="center left", bbox_to_anchor=place, handlelength=1.6, labelspacing=0.6)


def plot_solved(ax: Axes, groups: Mapping[str, Sequence[Row]], *, order: Sequence[str], last: int) -> Axes:
    """Time to solve: a dot for each solved run, a bar at the median over all runs, and how many were solved.

    Runs that were not solved within ``last`` updates count as later than that.
    """
    look = looks(order)
    for line, (name, rows) in enumerate(groups.items()):
        colour, marker = look[name]
        times = [time for row in rows if (time := judge(row).solved_at) is not None]
        spread = np.linspace(-0.18, 0.18, len(times)) if len(times) > 1 else np.zeros(len(times))
        ax.plot(times, line + spread, marker, ms=4, mfc=colour, mec="none", alpha=0.75, zorder=3, clip_on=False)
        middle = _quantile(np.array([*times, *[np.inf] * (len(rows) - len(times))], float), 0.5)
        if np.isfinite(middle):
            ax.plot([middle] * 2, [line - 0.32, line + 0.32], color=colour, lw=2.4, zorder=4)
        share = f"{len(times)} of {len(rows)}"
        ax.annotate(share, (1, line), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                    va="center", fontsize=7.5, color=INK if times else FAINT)  # fmt: skip
    every = [time for rows in groups.values() for row in rows if (time := judge(row).solved_at) is not None]
    ax.set_xscale("log")
    ax.set_xlim(10.0 ** np.floor(np.log10(min([*every, last / 10]))), last)
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text.thousands_tick(value)))
    ax.set_yticks(range(len(groups)), [short(name) for name in groups])
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(axis="x")
    ax.grid(False, axis="y")
    ax.set_xlabel("update at which it is solved")
    return ax


def plot_beside(
    ax: Axes, ours: Mapping[str, Sequence[float]], theirs: Mapping[str, float], *, order: Sequence[str]
) -> Axes:
    """A value of each run as a dot, the published one as a hollow mark on the same line."""
    look = looks(order)
    for line, (name, values) in enumerate(ours.items()):
        colour, marker = look[name]
        if name in theirs:
            ax.plot([np.median(values), theirs[name]], [line] * 2, color=colour, lw=1.0, alpha=0.4, zorder=2)
            ax.plot(theirs[name], line, marker, ms=6.5, mfc=PAPER, mec=colour, mew=1.3, zorder=3)
        ax.plot(values, [line] * len(values), marker, ms=5, mfc=colour, mec="none", alpha=0.85, zorder=4)
    ax.set_yticks(range(len(ours)), [short(name) for name in ours])
    ax.set_ylim(len(ours) - 0.5, -0.5)
    ax.grid(axis="x")
    ax.grid(False, axis="y")
    handles = [Line2D([], [], ls="", marker="o", color=FAINT, ms=5, label="ours")]
    if set(ours) & set(theirs):
        handles.append(Line2D([], [], ls="", marker="o", mfc=PAPER, mec=FAINT, ms=6, label="published"))
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax


@dataclass(frozen=True)
class Progress:
    """How far a unit came on a task.

    Args:
        solved: number of solved runs.
        runs: number of runs.
        time: median time to solve over all runs; None if fewer than half were solved.
        left: median of the last error as a share of that of guessing.
    """

    solved: int
    runs: int
    time: float | None
    left: float

    @property
    def text(self) -> str:
        if self.time is not None:
            return text.thousands(self.time)
        some = f"{self.solved} of {self.runs}\n" if self.solved else ""
        return f"{some}{min(self.left, 9.99):.0%} left"

    @property
    def colour(self) -> Any:
        """Darker if solved sooner, on a logarithmic scale; pale if not solved."""
        if self.time is not None:
            return RATES(solved_shade(self.time))
        shade = 0.36 if self.solved else 0.22 if self.left < 0.7 else 0.08
        return STUCK if self.left >= 0.95 and not self.solved else RATES(shade)


def solved_shade(time: float) -> float:
    """From 1 at 100 updates to 0.5 at 100,000."""
    return float(np.clip(1 - np.log10(max(time, 100) / 100) / 6, 0.5, 1.0))


def final_values(rows: Sequence[Row], quantity: str, scale: float = 1.0, points: int = 5) -> list[float]:
    """The median of the last points of each run, so that no single spike counts; inf for a run that diverged."""
    found = []
    for row in rows:
        values = np.asarray(row.curves[quantity], float)
        known = values[np.isfinite(values)][-points:]
        found.append(scale * float(np.median(known)) if len(known) and row.status != "diverged" else float("inf"))
    return found


def progress(rows: Sequence[Row], baseline: float, quantity: str = "validation") -> Progress:
    """Of the runs of one unit on one task."""
    times = [judge(row).solved_at for row in rows]
    middle = _quantile(np.array([np.inf if time is None else time for time in times], float), 0.5)
    left = _quantile(np.array(final_values(rows, quantity, 1 / baseline)), 0.5)
    solved = sum(time is not None for time in times)
    return Progress(solved, len(rows), middle if np.isfinite(middle) else None, left)


def plot_progress(
    ax: Axes, cells: Mapping[tuple[str, str], Progress], units: Sequence[str], tasks: Sequence[str]
) -> Axes:
    """Units × tasks: the median time to solve, darker if faster; what is left of the error where it is not solved."""
    for (unit, task), cell in cells.items():
        line, column = units.index(unit), tasks.index(task)
        ax.add_patch(Rectangle((column - 0.47, line - 0.45), 0.94, 0.9, fc=cell.colour, ec="none", zorder=2))
        dark = cell.time is not None and solved_shade(cell.time) > 0.66
        weight = "bold" if cell.time is not None else "normal"
        ax.text(
            column, line, cell.text, ha="center", va="center", fontsize=8, weight=weight, zorder=3,
            color="#fefeff" if dark else "#1b1f25",
        )  # fmt: skip
    for line, unit in enumerate(units):
        for column, task in enumerate(tasks):
            if (unit, task) not in cells:
                ax.add_patch(Rectangle((column - 0.47, line - 0.45), 0.94, 0.9, fc=BAND, ec="none", zorder=2))
                ax.text(column, line, "–", ha="center", va="center", color=FAINT, zorder=3)
    frame_cells(ax, units, tasks)
    return ax


def progress_legend(fig: Figure) -> None:
    """What the colours of :func:`plot_progress` mean."""
    keys = [
        (RATES(1.0), "solved at update 100"),
        (RATES(0.5), "at 100k"),
        (RATES(0.36), "some runs solved"),
        (RATES(0.22), "learning"),
        (RATES(0.08), "slowly"),
        (STUCK, "no better than guessing"),
    ]
    handles = [Patch(fc=colour, ec="none", label=label) for colour, label in keys]
    fig.legend(handles=handles, loc="lower center", ncols=len(keys), fontsize=7.5, columnspacing=1.2, handlelength=1.2)
