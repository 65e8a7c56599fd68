"""From runs to what the table says: of each unit and task the best rate, success, time to solve, and ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from numerate.report.learning import grouped
from numerate.results import Row
from numerate.results.outcome import judge
from numerate.stats import Estimate, median, normal_mean, wilson


@dataclass(frozen=True)
class Cell:
    """The runs of a unit on a task, at its best rate.

    Args:
        unit, task: whose they are.
        rows: those of the best rate.
        rates: rate -> solved runs and runs.
        every: runs at all rates.
    """

    unit: str
    task: str
    rows: tuple[Row, ...]
    rates: Mapping[float, tuple[int, int]]
    every: tuple[Row, ...] = ()

    @property
    def rate(self) -> float:
        return float(self.rows[0].labels["rate"])

    @property
    def solvable(self) -> bool:
        return bool(np.isfinite(self.rows[0].threshold))

    @cached_property
    def times(self) -> list[float]:
        """Updates until each run is solved; infinite if it is not."""
        found = [judge(row) for row in self.rows]
        return [float(o.solved_at) if o.solved and o.solved_at is not None else float("inf") for o in found]

    @property
    def solved(self) -> int:
        return int(np.isfinite(self.times).sum())

    @property
    def success(self) -> Estimate:
        return wilson(self.solved, len(self.rows))

    @property
    def time(self) -> Estimate:
        """The median over all runs; infinite if half of them or fewer are solved."""
        return median(self.times)

    @property
    def error(self) -> Estimate:
        """Test error at the best validation point, the median over runs; infinite if most have none."""
        return median(errors(self.rows))

    @property
    def parameters(self) -> int:
        return int(self.rows[0].scores["parameters"])

    @property
    def diverged(self) -> int:
        return sum(row.status == "diverged" for row in self.rows)

    @property
    def order(self) -> tuple[float, float, float]:
        """Units are ranked by this, least first: unsolved share, median time to solve, median error.

        Where all runs are solved their error does not count: it is small, and training has stopped there.
        """
        error = middle(errors(self.rows))
        if not self.solvable:
            return 0.0, 0.0, error
        unsolved = len(self.rows) - self.solved
        return unsolved / len(self.rows), middle(self.times), error if unsolved else 0.0


def errors(rows: Sequence[Row]) -> list[float]:
    """Test error of each run at its best validation point; infinite if it has none."""
    return [value if np.isfinite(value := float(row.scores["best_test"])) else float("inf") for row in rows]


def middle(values: Sequence[float]) -> float:
    """The median; infinite if it lies between a number and an infinite one."""
    ordered = sorted(values)
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return upper if np.isinf(upper) else (lower + upper) / 2


def cells(rows: Sequence[Row]) -> list[Cell]:
    """One for each task and unit; its rate is that of the least ``order``, of equals that of the least error."""
    found = []
    for task, of_task in grouped(rows, "task").items():
        for unit, of_unit in grouped(of_task, "unit").items():
            by_rate = grouped(of_unit, "rate")
            tried = {rate: Cell(unit, task, tuple(some), {}) for rate, some in by_rate.items()}
            best = min(tried.values(), key=lambda cell: (cell.order, middle(errors(cell.rows))))
            counts = {float(rate): (cell.solved, len(cell.rows)) for rate, cell in tried.items()}
            found.append(Cell(unit, task, best.rows, counts, tuple(of_unit)))
    return found


def ranks(found: Sequence[Cell]) -> dict[str, dict[str, float]]:
    """Task -> unit -> place among the units, 1 for the best; equals share the mean of their places."""
    placed: dict[str, dict[str, float]] = {}
    for task in dict.fromkeys(cell.task for cell in found):
        some = [cell for cell in found if cell.task == task]
        orders = {cell.unit: cell.order for cell in some}
        placed[task] = {
            unit: 1 + sum(other < own for other in orders.values()) + 0.5 * (list(orders.values()).count(own) - 1)
            for unit, own in orders.items()
        }
    return placed


@dataclass(frozen=True)
class Standing:
    """A unit over all tasks: mean of its places, tasks that most of its runs solve, and those it has been run on."""

    unit: str
    rank: Estimate
    solves: int
    solvable: int
    parameters: tuple[int, int]


def standings(found: Sequence[Cell]) -> list[Standing]:
    """Units, the least mean of places first; with fewer tasks than others a unit comes after those that have all."""
    placed, result = ranks(found), []
    units = dict.fromkeys(cell.unit for cell in found)
    for unit in units:
        own = [cell for cell in found if cell.unit == unit]
        solvable = [cell for cell in own if cell.solvable]
        counts = [cell.parameters for cell in own]
        mean = normal_mean([placed[cell.task][unit] for cell in own], 1.0, float(len(units)))
        most = sum(2 * cell.solved > len(cell.rows) for cell in solvable)
        result.append((len(own), Standing(unit, mean, most, len(solvable), (min(counts), max(counts)))))
    return [standing for _, standing in sorted(result, key=lambda item: (-item[0], item[1].rank.value or 0.0))]
