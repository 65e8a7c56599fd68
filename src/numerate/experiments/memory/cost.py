"""What a step costs as sequences grow: measured by ``python -m benchmarks.memory``, kept in ``cost.csv``."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from numerate.experiments.memory.units import INVARIANT, LINEAR, POSITIVE, UNITS
from numerate.report import Picture
from numerate.report.figures import lay_out, short, style

Array = np.ndarray[Any, Any]
OTHERS = "#7a7f87"
FAMILIES = {
    "diagonal, the same at every step": ("#0072b2", INVARIANT),
    "diagonal, by the input": ("#d55e00", POSITIVE),
    "with a recurrent product": (OTHERS, tuple(unit for unit in UNITS if unit not in LINEAR)),
}
"""Kinds of recurrence: colour, units."""


@dataclass(frozen=True)
class Cost:
    """Forward and backward pass of a layer of 24,000 parameters with its readout.

    Args:
        machine: where it was measured.
        unit: whose.
        length: steps of a sequence.
        batch: sequences.
        microseconds: a step of the whole batch, forward and backward.
        kilobytes: that the backward pass needs of a step, for one sequence.
    """

    machine: str
    unit: str
    length: int
    batch: int
    microseconds: float
    kilobytes: float


@cache
def costs() -> tuple[Cost, ...]:
    """What is stored; nothing if nothing is."""
    place = resources.files(__package__ or "") / "cost.csv"
    if not place.is_file():
        return ()
    lines = csv.DictReader(place.read_text(encoding="utf-8").splitlines())
    return tuple(
        Cost(
            line["machine"], line["unit"], int(line["length"]), int(line["batch"]),
            float(line["microseconds"]), float(line["kilobytes"]),
        )
        for line in lines
    )  # fmt: skip


def cost_pictures(measured: Sequence[Cost] | None = None) -> list[Picture]:
    """Time of a step by length, a column for each machine, and memory below; nothing if nothing was measured."""
    from matplotlib.figure import Figure

    measured = costs() if measured is None else measured
    machines = list(dict.fromkeys(cost.machine for cost in measured))
    if not machines:
        return []
    with style():
        fig = Figure(figsize=(4.8 * len(machines), 7.6))
        grid = fig.add_gridspec(2, len(machines), height_ratios=(2, 1))
        for column, machine in enumerate(machines):
            ax = fig.add_subplot(grid[0, column])
            own = [cost for cost in measured if cost.machine == machine]
            _plot(ax, {unit: [(c.length, c.microseconds) for c in own if c.unit == unit] for unit in UNITS})
            ax.set(title=f"{machine}, batch {own[0].batch}", ylabel="µs a step, forward and backward")
        _plot_memory(fig.add_subplot(grid[1, :]), [cost for cost in measured if cost.machine == machines[-1]])
        lay_out(fig, rect=(0, 0.05, 1, 1), w_pad=2.0, h_pad=2.0)
        keys = [Line2D([], [], color=colour, label=name) for name, (colour, _) in FAMILIES.items()]
        fig.legend(handles=keys, loc="lower center", ncols=len(keys))
    caption = (
        "What a step costs as sequences grow, at 24,000 parameters: its time, and what is kept for the backward pass, "
        "which grows in proportion to the length. "
        "A unit whose time a step falls as sequences grow leaves the machine idle on short ones. Measured by "
        "python -m benchmarks.memory."
    )
    return [Picture("cost", fig, caption)]


def _plot(ax: Axes, series: Mapping[str, list[tuple[int, float]]]) -> None:
    """A line for each unit, in the colour of its family, its name at the end."""
    ends: dict[str, float] = {}
    for unit, points in series.items():
        if points:
            lengths, values = zip(*sorted(points))
            ax.plot(lengths, values, color=_colour(unit), marker=".", lw=1.1)
            ends[unit] = values[-1]
    lengths = sorted({length for points in series.values() for length, _ in points})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(lengths, [f"{length:,}" for length in lengths])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.set_xlim(lengths[0] / 1.3, lengths[-1] * 9)
    ax.set_xlabel("steps of a sequence")
    low, high = np.log(ax.get_ylim())
    labels = _labels(ends, (high - low) / 29)
    places = _apart(np.log([value for _, value, _ in labels]), (high - low) / 29)
    ax.set_ylim(*np.exp([min(low, places[0] - 0.02 * (high - low)), max(high, places[-1] + 0.02 * (high - low))]))
    for (name, _, colour), place in zip(labels, np.exp(places)):
        ax.text(lengths[-1] * 1.25, place, name, color=colour, fontsize=7.5, va="center")


def _labels(ends: Mapping[str, float], least: float) -> list[tuple[str, float, str]]:
    """Text, value and colour of the names at the end of lines, from below.

    Grey lines that end nearer to each other than ``least``, in logarithms, share a label: two names, and how many more.
    """
    bundles: list[list[str]] = []
    for unit in sorted((unit for unit in ends if _colour(unit) == OTHERS), key=lambda unit: ends[unit]):
        if bundles and np.log(ends[unit] / ends[bundles[-1][-1]]) < least:
            bundles[-1].append(unit)
        else:
            bundles.append([unit])
    labels = [(short(unit), ends[unit], _colour(unit)) for unit in ends if _colour(unit) != OTHERS]
    for bundle in bundles:
        known = sorted(bundle, key=list(UNITS).index)
        text = ", ".join(map(short, known)) if len(known) <= 3 else f"{known[0]}, {known[1]}, {len(known) - 2} more"
        labels.append((text, float(np.median([ends[unit] for unit in bundle])), OTHERS))
    return sorted(labels, key=lambda label: label[1])


def _plot_memory(ax: Axes, measured: Sequence[Cost]) -> None:
    """What a step of a long sequence keeps, a bar for each unit."""
    longest = max(cost.length for cost in measured)
    own = sorted((cost for cost in measured if cost.length == longest), key=lambda cost: cost.kilobytes)
    ax.bar([short(c.unit) for c in own], [c.kilobytes for c in own], color=[_colour(c.unit) for c in own], width=0.7)
    ax.tick_params("x", labelrotation=60, labelsize=8)
    ax.margins(x=0.01)
    ax.set(title="memory for the backward pass", ylabel="KiB a step and sequence")


def _apart(places: Array, least: float) -> Array:
    """Rising places, moved as little as needed so that each is ``least`` above the one before."""
    moved = places - least * np.arange(len(places))
    blocks: list[list[float]] = []
    for value in moved:  # isotonic regression: neighbours that would overlap share their mean
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            upper = blocks.pop()
            blocks[-1] += upper
    return np.concatenate([np.full(len(b), np.mean(b)) for b in blocks]) + least * np.arange(len(places))


def _colour(unit: str) -> str:
    return next((colour for colour, units in FAMILIES.values() if unit in units), OTHERS)
