"""CPU time of one search, and its work.

The shares that parts of the search get are counted in work: what each step costs by its sizes, in seconds of one core
when this was written. The same data and seed do the same work on every machine, so that the search takes the same path;
time itself only ends it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class OutOfTime(Exception):
    """The search has used the time it was given."""


class OutOfSlice(Exception):
    """One part of the search has used its share."""


class Clock:
    """Counts CPU seconds of this thread from its making, and work as it is told."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.start, self.work = seconds, time.thread_time(), 0.0
        self.cut = False  # whether time ended the search
        self._until = [float("inf")]

    @property
    def elapsed(self) -> float:
        return time.thread_time() - self.start

    @property
    def left(self) -> float:
        """Work until as much is done as there are seconds."""
        return self.seconds - self.work

    def spend(self, work: float) -> None:
        """Count work, and :meth:`check`."""
        self.work += work
        self.check()

    def check(self) -> None:
        """Raise when the time is used, or when the present share of the work is done."""
        self.check_time()
        if self.work > self._until[-1]:
            raise OutOfSlice

    def check_time(self) -> None:
        """Raise when the time is used."""
        if self.elapsed > self.seconds:
            self.cut = True
            raise OutOfTime

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, :func:`check_time` asks this clock."""
        token = _running.set(self)
        try:
            yield
        finally:
            _running.reset(token)

    @contextmanager
    def share(self, seconds: float) -> Iterator[None]:
        """At most so much work for what is done inside; it ends early without an error."""
        self._until.append(min(self._until[-1], self.work + seconds))
        try:
            yield
        except OutOfSlice:
            pass
        finally:
            self._until.pop()

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is begun inside comes to its end unless time ends the search; the share is looked at afterwards."""
        self._until.append(float("inf"))
        try:
            yield
        finally:
            self._until.pop()
        self.check()


_running: ContextVar[Clock | None] = ContextVar("the clock of the search that is running", default=None)


def check_time() -> None:
    """Raise when the running search has used its time: for loops that are long and know no clock."""
    clock = _running.get()
    if clock is not None:
        clock.check_time()


def linear_work(rows: int, columns: int) -> float:
    """Of one orthogonal factorisation or least-squares fit."""
    return 1e-4 + 5e-10 * rows * columns**2


def refit_work(rows: int, size: int) -> float:
    """Of the constants of one expression."""
    return 5e-4 + 3e-8 * rows * size
