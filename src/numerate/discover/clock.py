"""CPU time of one search."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTime(Exception):
    """The search has used the time it was given."""


class OutOfSlice(Exception):
    """One part of the search has used its share."""


class Clock:
    """Counts CPU seconds of this process from its making."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.start = seconds, time.process_time()
        self._until = [seconds]

    @property
    def elapsed(self) -> float:
        return time.process_time() - self.start

    @property
    def left(self) -> float:
        return self.seconds - self.elapsed

    def check(self, need: float = 0.0) -> None:
        """Raise when less than ``need`` seconds are left in all, or when the present share is used."""
        elapsed = self.elapsed
        if elapsed > self.seconds - need:
            raise OutOfTime
        if elapsed > self._until[-1]:
            raise OutOfSlice

    @contextmanager
    def share(self, seconds: float) -> Iterator[None]:
        """At most so many seconds for what is done inside; it ends early without an error."""
        self._until.append(min(self._until[-1], self.elapsed + seconds))
        try:
            yield
        except OutOfSlice:
            pass
        finally:
            self._until.pop()
