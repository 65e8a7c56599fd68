"""What is read off the runs of gates, and how their pages look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from numerate.experiments.guessing import guessing
from numerate.experiments.ur2020.units import KINDS, unit_names
from numerate.report import Claim, Picture, TextTable
from numerate.report.figures import lay_out, name_decades, style
from numerate.report.learning import (
    Progress,
    curves,
    final_values,
    grouped,
    headroom,
    legend,
    panels,
    plot_curves,
    plot_progress,
    plot_solved,
    progress,
    progress_legend,
)
from numerate.report.text import thousands
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.stats import lower

GUESSING = {"copying": log(8), "adding": 1 / 6}
"""Task -> the loss of the best answer that remembers nothing, on fresh sequences."""
BAND = 0.6
"""Share of runs in a band, as in the paper."""
CLEAR = 0.005
"""A gap of this share of guessing tells two losses apart; times to solve lie more than an evaluation apart."""
CLAIMED = (
    ("U", "-", "Uniform gate initialisation helps"),
    ("R", "-", "The refine gate helps"),
    ("UR", "U", "Both together are better than uniform gates alone"),
    ("UR", "R", "… and than refine gates alone"),
    ("UR", "C", "UR- is not outperformed by chrono gates"),
)
"""Better gate, worse gate, and what that says."""


def by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return grouped(rows, "task")


def order(rows: Sequence[Row]) -> list[str]:
    """Names that have a colour each: UR- first."""
    ours = [name for core in ("LSTM", "GRU", "RMC") for name in unit_names(core, ("UR", *KINDS[:-1]))]
    present = {row.labels["unit"] for row in rows}
    kinds = list(dict.fromkeys([*(name for name in ours if name in present), *(row.labels["unit"] for row in rows)]))
    return kinds


def by_unit(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups = grouped(rows, "unit")
    return {name: groups[name] for name in order(rows)}


def baseline(rows: Sequence[Row]) -> float:
    """Of training."""
    return GUESSING[rows[0].labels["task"]]


def title(rows: Sequence[Row]) -> str:
    """``copying, 500 steps``, of rows of one task"""
    return f"{rows[0].labels['task']}, {int(rows[0].config['task']['length']):,} steps"


def times(rows: Sequence[Row]) -> np.ndarray:
    """The update at which each run is solved; infinite if it is not."""
    return np.array([np.inf if (at := judge(row).solved_at) is None else float(at) for row in rows])


def left(rows: Sequence[Row]) -> np.ndarray:
    """The last validation loss of each run as a share of that of guessing; infinite if it diverged."""
    return np.array(final_values(rows, "validation", 1 / guessing(rows[0], "validation")))


def share(value: float) -> str:
    """Of the loss of guessing."""
    return "diverged" if np.isinf(value) else f"{value:.1%} of guessing"


def middle(values: np.ndarray) -> float:
    """The median; infinite if it lies between a number and an infinite one."""
    ordered = np.sort(values)
    upper = float(ordered[len(ordered) // 2])
    return upper if np.isinf(upper) else (float(ordered[(len(ordered) - 1) // 2]) + upper) / 2


@dataclass(frozen=True)
class Finding:
    """What a comparison of two groups says, and whether the first is ahead (None: that cannot be told)."""

    text: str
    ahead: bool | None


def compare(names: tuple[str, str], groups: Mapping[str, Sequence[Row]]) -> Finding:
    """By time to solve if the median run of either is solved; else by the last loss."""
    first, second = (groups[name] for name in names)
    solved = middle(times(first)), middle(times(second))
    if np.isfinite(solved).any():
        shown = ["not solved" if np.isinf(at) else f"solved at {thousands(at)}" for at in solved]
        text = ", ".join(f"{name} {found}" for name, found in zip(names, shown))
        pause = max(float(np.diff(row.curves["steps"]).max()) for row in (*first, *second))
        return Finding(text, lower(list(times(first)), list(times(second)), pause))
    ours, theirs = left(first), left(second)
    text = ", ".join(f"{name} {share(middle(values))}" for name, values in zip(names, (ours, theirs)))
    return Finding(text, lower(list(ours), list(theirs), CLEAR))


def gate_claims(rows: Sequence[Row], core: str = "LSTM", settled: bool = True) -> list[Claim]:
    """U and R each help, UR is best, on every task; ``settled``: whether the runs are long enough for a verdict."""
    found = []
    for better, worse, sentence in CLAIMED:
        names = tuple(core if kind == "-" else f"{kind}-{core}" for kind in (better, worse))
        tested, holds = [], []
        for members in by_task(rows).values():
            groups = by_unit(members)
            if all(name in groups for name in names):
                finding = compare((names[0], names[1]), groups)
                tested.append(f"{title(members)}: {finding.text}")
                holds.append(finding.ahead)
        test = (
            "our test: earlier solved, else a lower loss; no overlap of two runs or more of each, or rank sums at 5 %"
        )
        verdict = False if False in holds else None if None in holds or not holds else True
        ours = "; ".join(tested) + "." if tested else "not run."
        found.append(Claim(f"{sentence} ({test}).", ours, verdict if settled else None))
    return found


def stays_at_guessing(rows: Sequence[Row], unit: str, settled: bool) -> list[Claim]:
    """Of copying, where the paper says so of the standard gate."""
    some = [row for row in rows if (row.labels["task"], row.labels["unit"]) == ("copying", unit)]
    sentence = f"Standard gates ({unit}) stay at the loss of guessing on copying (our test: all runs within 5 % of it)."
    if not some:
        return [Claim(sentence, "not run.", None)]
    shares = left(some)
    holds = bool((abs(shares - 1) < 0.05).all()) if settled else None
    return [Claim(sentence, f"{title(some)}: {', '.join(share(value) for value in shares)}.", holds)]


# ---------------------------------------------------------------- pictures and tables


def first_name(rows: Sequence[Row]) -> str:
    """The name whose line is thicker: of UR-."""
    return next((name for name in order(rows) if name.startswith("UR-")), "")


def loss_picture(rows: Sequence[Row]) -> Picture:
    """The training loss along the updates on a logarithmic axis, a panel for each task."""
    tasks, colours = by_task(rows), order(rows)
    with style():
        fig, axes = panels(len(tasks), 4.4, 3.7)
        for ax, members in zip(axes, tasks.values()):
            guess = baseline(members)
            series = curves(members, "train")
            plot_curves(
                ax, series, order=colours, share=BAND, baseline=guess, first=first_name(rows),
                baseline_name=f"guessing: {guess:.3f}",
            )  # fmt: skip
            lowest = min(float(np.nanmin(row.curves["train"], initial=guess)) for row in members)
            _scale(ax, lowest, guess, headroom(series, guess, 1.1))
            ax.set_title(title(members))
        axes[0].set_ylabel("training loss")
        legend(fig, curves(rows, "train"), colours, first=first_name(rows))
    return Picture(
        "curves",
        fig,
        "Training loss, the mean between two points: median over seeds and, as a band, the middle 60 % of them. The "
        "dashed line is the best loss without memory. A run that diverged counts as worse than all others.",
    )


def _scale(ax: Axes, lowest: float, guess: float, top: float) -> None:
    """Logarithmic where a loss falls below a fifth of guessing."""
    if lowest > guess / 5:
        ax.set_ylim(max(0.0, lowest - 0.15 * guess), top)
        return
    ax.set_yscale("log")
    ax.set_ylim(max(0.6 * lowest, 1e-7), 2.5 * guess)
    name_decades(ax.yaxis)


def solved_picture(rows: Sequence[Row]) -> Picture:
    tasks, colours = by_task(rows), order(rows)
    lines = max(len(by_unit(members)) for members in tasks.values())
    with style():
        fig, axes = panels(len(tasks), 4.6, 1.1 + 0.27 * lines)
        for ax, members in zip(axes, tasks.values()):
            last = max(int(row.config["steps"]) for row in members)
            plot_solved(ax, by_unit(members), order=colours, last=last)
            ax.set_title(title(members))
        lay_out(fig, rect=(0, 0, 1 - 0.5 / fig.get_figwidth(), 1), w_pad=3.0)
    return Picture(
        "solved",
        fig,
        "Updates until the test error falls below a tenth of guessing (copying) or below 0.01 (adding): a dot for each "
        "run, a bar at the median of all, at the right how many runs are solved.",
    )


def cells(rows: Sequence[Row]) -> dict[tuple[str, str], Progress]:
    return {
        (unit, task): progress(some, guessing(members[0], "validation"))
        for task, members in by_task(rows).items()
        for unit, some in by_unit(members).items()
    }


def overview_picture(rows: Sequence[Row]) -> Picture:
    """Gates × tasks, solved or not, and how fast."""
    titles = {task: title(members) for task, members in by_task(rows).items()}
    found = {(unit, titles[task]): cell for (unit, task), cell in cells(rows).items()}
    units = order(rows)
    with style():
        fig = Figure(figsize=(2.4 + 1.5 * len(titles), 1.4 + 0.36 * len(units)))
        fig.set_figwidth(max(7.6, fig.get_figwidth()))
        plot_progress(fig.subplots(), found, units, list(titles.values()))
        lay_out(fig, rect=(0, 0.32 / fig.get_figheight(), 1, 1))
        progress_legend(fig)
    return Picture(
        "overview",
        fig,
        "Bold: the update at which the median run is solved, darker if sooner. Otherwise the share of the loss of "
        "guessing that is left at the end of training.",
    )


def table(rows: Sequence[Row]) -> TextTable:
    """A line for each unit and task."""
    header = ["task", "unit", "updates", "runs", "diverged", "solved", "solved at, median", "loss left, median"]
    lines = []
    for (unit, task), cell in cells(rows).items():
        some = by_unit(by_task(rows)[task])[unit]
        diverged = sum(row.status == "diverged" for row in some)
        at = "–" if cell.time is None else thousands(cell.time)
        left = "–" if np.isinf(cell.left) else f"{cell.left:.2%}"
        updates = max(int(row.config["steps"]) for row in some)
        lines.append([task, unit, f"{updates:,}", str(len(some)), str(diverged), str(cell.solved), at, left])
    return TextTable("Every gate and task", header, lines)
