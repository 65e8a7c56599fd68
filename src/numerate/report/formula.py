"""The page of formulas found from a user's data: typeset, checked against the data, and shown outside of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from numerate.report import figures, text
from numerate.report.html import Picture, render

OURS, DATA = figures.COLOURS[0], figures.FAINT
OTHERS = (figures.COLOURS[1], figures.COLOURS[2], figures.COLOURS[3])
LOG_FROM = 30.0
"""Axes are logarithmic where positive values span more than this."""


@dataclass(frozen=True)
class Candidate:
    """A formula of the front, ready to be shown."""

    text: str
    mathml: str
    size: int
    error: float
    relative_error: float
    chosen: bool


@dataclass(frozen=True)
class Slice:
    """The formula along one input, the others held at the median; ``low`` to ``high`` is where data are.

    ``curves``: formula -> values on ``grid``, the chosen one first. ``points``: (x, y) of the data, the effect of the
    other inputs taken off.
    """

    name: str
    grid: np.ndarray
    curves: Mapping[str, np.ndarray]
    points: tuple[np.ndarray, np.ndarray]
    low: float
    high: float


@dataclass(frozen=True)
class Law:
    """One formula found: what it is, how good it is, and how to use it."""

    target: str
    mathml: str
    verdict: str
    exact: bool
    facts: Sequence[tuple[str, str]]
    front: Sequence[Candidate]
    constants: Sequence[str] = ()
    groups: Sequence[str] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True)
class FormulaPage:
    """Laws from one file, pictures of all of them, and the settings they were found with."""

    title: str
    subtitle: str
    laws: Sequence[Law]
    pictures: Sequence[Picture] = ()
    usage: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    command: str = ""


def write_formula_page(page: FormulaPage, folder: str | Path) -> Path:
    """``report.html`` and each picture as PNG and SVG; nothing is fetched when the page is opened."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for picture in [*page.pictures, *(each for law in page.laws for each in law.pictures)]:
        for ending in ("png", "svg"):
            figures.save(picture.figure, folder / f"{picture.name}.{ending}")
    path = folder / "report.html"
    path.write_text(render("formula.html", page=page, number=text.number, percent=text.percent), encoding="utf-8")
    return path


def is_wide(values: np.ndarray) -> bool:
    """Positive over orders of magnitude, and the median nearer the geometric than the arithmetic middle."""
    if not (values > 0).all() or values.max() <= LOG_FROM * values.min():
        return False
    middle = np.median(values)
    return bool(middle**2 < (values.max() + values.min()) / 2 * np.sqrt(values.max() * values.min()))


def plot_predicted(ax: Axes, measured: np.ndarray, predicted: np.ndarray) -> Axes:
    """Predicted against measured, with the line on which they are equal."""
    ends = np.array([min(measured.min(), np.nanmin(predicted)), max(measured.max(), np.nanmax(predicted))])
    ax.plot(ends, ends, color=figures.GRID, lw=1.2, zorder=1)
    ax.plot(measured, predicted, "o", ms=_dot(len(measured)), color=OURS, alpha=0.7, mec="none", zorder=2)
    if is_wide(np.concatenate([measured, predicted[np.isfinite(predicted)]])):
        ax.set_xscale("log")
        figures.name_decades(ax.xaxis)
        ax.set_yscale("log")
        figures.name_decades(ax.yaxis)
    ax.set(xlabel="Measured", ylabel="Predicted", title="Predicted against measured")
    return ax


def plot_residuals(ax: Axes, measured: np.ndarray, predicted: np.ndarray, noise: float, relative: bool = False) -> Axes:
    """What the formula leaves, against its value or relative to it; the band is twice the noise."""
    rest = measured / predicted - 1 if relative else measured - predicted
    if noise > 0:
        ax.axhspan(-2 * noise, 2 * noise, color=figures.BAND, lw=0, zorder=0)
    ax.axhline(0, color=figures.GRID, lw=1.2, zorder=1)
    ax.plot(predicted, rest, "o", ms=_dot(len(measured)), color=OURS, alpha=0.7, mec="none", zorder=2)
    if is_wide(predicted[np.isfinite(predicted)]):
        ax.set_xscale("log")
        figures.name_decades(ax.xaxis)
    shown = "Measured / predicted − 1" if relative else "Measured − predicted"
    ax.set(xlabel="Predicted", ylabel=shown, title="Residuals")
    return ax


def plot_front(ax: Axes, front: Sequence[Candidate], floor: float = 1e-16) -> Axes:
    """Error against size; the chosen formula is filled."""
    sizes = [each.size for each in front]
    errors = [max(each.relative_error, floor) for each in front]
    ax.step(sizes, errors, where="post", color=figures.GRID, lw=1.2, zorder=1)
    for each, error in zip(front, errors):
        face = OURS if each.chosen else figures.PAPER
        ax.plot(each.size, error, "o", ms=7 if each.chosen else 5, mfc=face, mec=OURS, zorder=2, clip_on=False)
    if max(errors) > 30 * min(errors):
        ax.set_yscale("log")
        figures.name_decades(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="Size of the formula", ylabel="Relative error", title="Error against size")
    return ax


def fit_figure(
    measured: np.ndarray, predicted: np.ndarray, noise: float, front: Sequence[Candidate], relative: bool = False
) -> Figure:
    """Predicted against measured, residuals, error against size."""
    with figures.style():
        fig = Figure(figsize=(11.0, 3.5))
        axes = fig.subplots(1, 3)
        plot_predicted(axes[0], measured, predicted)
        plot_residuals(axes[1], measured, predicted, noise, relative)
        plot_front(axes[2], front)
        figures.lay_out(fig, w_pad=2.0)
    return fig


def plot_slice(ax: Axes, cut: Slice, target: str) -> Axes:
    """The formulas along one input; shaded where there are no data."""
    ax.axvspan(cut.grid[0], cut.low, color=figures.BAND, lw=0, zorder=0)
    ax.axvspan(cut.high, cut.grid[-1], color=figures.BAND, lw=0, zorder=0)
    ax.plot(*cut.points, "o", ms=_dot(len(cut.points[0])), color=DATA, alpha=0.45, mec="none", zorder=1)
    for rank, (label, values) in reversed(list(enumerate(cut.curves.items()))):
        look = {"color": OURS, "lw": 2.0} if rank == 0 else {"color": OTHERS[rank - 1], "lw": 1.0, "ls": "--"}
        ax.plot(cut.grid, values, zorder=4 - rank, label=label, **look)  # type: ignore[arg-type]
    shown = np.concatenate([cut.points[1], next(iter(cut.curves.values()))])
    shown = shown[np.isfinite(shown)]
    if is_wide(cut.points[0]):
        ax.set_xscale("log")
        figures.name_decades(ax.xaxis)
    if is_wide(shown):
        ax.set_yscale("log")
        figures.name_decades(ax.yaxis)
        ax.set_ylim(shown.min() / 1.5, shown.max() * 1.5)
    else:
        margin = 0.06 * (np.ptp(shown) or 1.0)
        ax.set_ylim(shown.min() - margin, shown.max() + margin)
    ax.set_xlim(cut.grid[0], cut.grid[-1])
    ax.set(xlabel=cut.name, ylabel=target)
    return ax


def slices_figure(cuts: Sequence[Slice], target: str) -> Figure:
    """One panel for each input, with the runners-up, which part from the formula where data no longer decide."""
    columns = min(3, len(cuts))
    rows = -(-len(cuts) // columns)
    with figures.style():
        fig = Figure(figsize=(11.0 if columns > 1 else 7.0, 3.3 * rows + 0.5))
        axes = fig.subplots(rows, columns, squeeze=False)
        for ax, cut in zip(axes.flat, cuts):
            plot_slice(ax, cut, target)
        for ax in list(axes.flat)[len(cuts) :]:
            ax.set_visible(False)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        fig.legend(handles[::-1], labels[::-1], loc="upper left", ncols=1 if columns == 1 else 2, fontsize=8)
        lines = -(-len(handles) // (1 if columns == 1 else 2))
        figures.lay_out(fig, rect=(0, 0, 1, 1 - (0.1 + 0.19 * lines) / fig.get_figheight()), w_pad=2.0)
    return fig


def trajectories_figure(
    times: Sequence[np.ndarray], states: Sequence[np.ndarray], simulated: Sequence[np.ndarray], names: Sequence[str]
) -> Figure:
    """Every state against time: dots are data, lines the equations integrated from the first point on.

    times: (n,), states: (n, d), simulated: (n, d), one of each for every trajectory.
    """
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    with figures.style():
        fig = Figure(figsize=(11.0 if columns > 1 else 7.0, 3.1 * rows))
        axes = fig.subplots(rows, columns, squeeze=False)
        for ax, (i, name) in zip(axes.flat, enumerate(names)):
            for rank, (t, x, s) in enumerate(zip(times, states, simulated)):
                colour = figures.COLOURS[rank % len(figures.COLOURS)]
                ax.plot(t, x[:, i], "o", ms=_dot(len(t)), color=colour, alpha=0.4, mec="none")
                ax.plot(t[: len(s)], s[:, i], color=colour, lw=1.8)
            ax.set(xlabel="Time", ylabel=name)
        for ax in list(axes.flat)[len(names) :]:
            ax.set_visible(False)
        figures.lay_out(fig, w_pad=2.0)
    return fig


def _dot(count: int) -> float:
    """Marks get smaller as there are more of them."""
    return float(np.clip(9 - 1.6 * np.log10(max(count, 1)) * 1.2, 2.0, 6.5))
