"""Where a call of :func:`numerate.train.train` stands."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numerate.results import Row
from numerate.results.outcome import judge


@dataclass(frozen=True)
class Progress:
    """Where a call of :func:`train` stands; everything it counts is on disk."""

    finished: int
    """Runs finished, those of earlier calls included."""
    total: int
    solved: int
    """Of the runs finished in this call: best-validation test error below the threshold."""
    trained: int
    """Runs finished in this call."""
    fraction: float
    """Share of all steps of this call's runs that are done."""
    seconds: float
    label: str
    backend: str
    workers: int | None = None
    """How many pieces of work a cluster takes at once; None where this process trains."""
    busy: int = 0
    """How many it has now."""
    resumed: float = 0.0
    """Share of the steps that earlier calls had done."""

    @property
    def rate(self) -> float:
        """Runs per second of this call."""
        return self.trained / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """Estimated seconds to go, at the pace of this call."""
        done = self.fraction - self.resumed
        return self.seconds * (1 - self.fraction) / done if done > 0 else None


class Reporter:
    """Counts what is on disk and tells the caller."""

    def __init__(
        self, tell: Callable[[Progress], None] | None, total: int, missing: int, steps: int, end: float | None
    ) -> None:
        self.tell, self.total, self.steps, self.end = tell, total, max(1, steps), end
        self.finished, self.solved, self.trained, self.done_steps = total - missing, 0, 0, 0
        self.resumed_steps = 0
        self.under_way: dict[str, int] = {}
        self.started = time.perf_counter()

    def resume(self, group: str, steps: int) -> None:
        """A group starts at the checkpoint of an earlier call, with ``steps`` steps of all its runs done."""
        self.under_way[group] = steps
        self.resumed_steps += steps

    def add_rows(self, group: str, rows: Sequence[Row], steps: int) -> None:
        self.under_way.pop(group, None)
        self.finished += len(rows)
        self.trained += len(rows)
        self.done_steps += steps
        self.solved += sum(judge(row).solved for row in rows)

    def time_is_up(self) -> bool:
        return self.end is not None and time.perf_counter() >= self.end

    def end_now(self) -> None:
        """What could be begun next would end too late."""
        self.end = time.perf_counter()

    def show(self, label: str, backend: str) -> None:
        if self.tell:
            fraction = (self.done_steps + sum(self.under_way.values())) / self.steps
            seconds = time.perf_counter() - self.started
            now = self.finished, self.total, self.solved, self.trained, fraction, seconds, label, backend
            self.tell(Progress(*now, resumed=self.resumed_steps / self.steps))
