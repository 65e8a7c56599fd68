"""What is measured on a group of runs, and how a measure is shown."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from numerate.report import text
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.stats import Estimate, summarise


@dataclass(frozen=True)
class Metric:
    """One measure, and how its axis and its numbers look.

    Args:
        name: as in the published data.
        title: for people.
        scale: of the axis.
        limits: of the axis.
        floor: on a logarithmic axis, values below it are drawn there and labelled 0; an order counts them as equal.
        ceiling: likewise for values above it.
        show: a value as text.
        show_interval: a value and its interval as text.
        tick: a mark on the axis as text.
        true_name: title of the column of the sample mean, where the published estimator is another.
        reproduced_name: title of the column of the published estimator, applied to our runs.
        brief: a value in two or three characters.
        brief_title: what a table of brief values is called.
        shade: value -> colour, from 0 (bad) to 1 (good); with it the first metric is also drawn as a map.
        target: a value below it is as good as right.
        meaning: a sentence for the reader of a report.
    """

    name: str
    title: str
    scale: Literal["linear", "log"] = "linear"
    limits: tuple[float, float] | None = None
    floor: float | None = None
    ceiling: float | None = None
    show: Callable[[float], str] = text.number
    show_interval: Callable[[float, float, float], str] | None = None
    tick: Callable[[float], str] = text.number
    true_name: str = "ours"
    reproduced_name: str = ""
    brief: Callable[[float], str] = text.brief
    brief_title: str = ""
    shade: Callable[[float], float] | None = None
    target: float | None = None
    meaning: str = ""

    def clipped(self, value: float) -> float:
        """``value`` moved to the floor or the ceiling if it lies beyond; not a number counts as infinite."""
        value = math.inf if math.isnan(value) else value
        low = -math.inf if self.floor is None else self.floor
        return min(max(value, low), math.inf if self.ceiling is None else self.ceiling)


SUCCESS = Metric(
    "success_rate", "Success rate", limits=(0.0, 1.0),
    show=text.percent, show_interval=text.percent_interval, tick=text.percent,
    brief=lambda rate: f"{100 * rate:.0f}", brief_title="success rate in %", shade=lambda rate: rate,
)  # fmt: skip
SOLVED_AT = Metric(
    "solved_at_mean", "Solved at step", "log", floor=100.0, show=text.thousands, tick=text.thousands_tick,
    true_name="true mean", reproduced_name="as published",
)  # fmt: skip
SPARSITY = Metric(
    "sparsity_error_mean", "Sparsity error", "log", floor=1e-8, show=text.scientific,
    show_interval=text.scientific_interval, tick=text.power,
    true_name="true mean", reproduced_name="as published",
)  # fmt: skip
ARITHMETIC = (SUCCESS, SOLVED_AT, SPARSITY)
"""The three measures of the arithmetic papers."""


@dataclass(frozen=True)
class Measured:
    """What a group of runs achieved.

    Args:
        n: number of runs.
        ours: name of a metric -> estimate by the true estimator.
        reproduced: the same by the published estimator, where it is another.
        solved: number of solved runs; None where success is not measured.
        snapped: number of runs solved with rounded weights; None unless all runs were rounded.
        diverged: number of runs that diverged.
        starts: number of starts that the runs were chosen from.
        starts_solved: how many of these are solved; None where each run had but one.
    """

    n: int
    ours: Mapping[str, Estimate]
    reproduced: Mapping[str, Estimate] = field(default_factory=dict)
    solved: int | None = None
    snapped: int | None = None
    diverged: int = 0
    starts: int = 0
    starts_solved: int | None = None


def arithmetic(rows: Sequence[Row], last: int | None = None) -> Measured:
    """Success, solved-at and sparsity of a group, by the true and the published estimators."""
    summary = summarise([judge(row, last) for row in rows])
    ours = {
        "success_rate": summary.success,
        "solved_at_mean": summary.solved_at,
        "sparsity_error_mean": summary.sparsity,
    }
    if summary.snapped is not None:
        ours["snapped_rate"] = summary.snapped
    if summary.single is not None:
        ours["single_rate"] = summary.single
    ours["solved_at_median"] = Estimate(summary.solved_at_median, n=summary.solved, how="median")
    reproduced = {"solved_at_mean": summary.solved_at_published, "sparsity_error_mean": summary.sparsity_published}
    counts = summary.solved, summary.snapped_solved, summary.diverged, summary.starts, summary.starts_solved
    return Measured(summary.n, ours, reproduced, *counts)
