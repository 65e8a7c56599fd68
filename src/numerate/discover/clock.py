"""CPU time of one search."""

import time


class OutOfTime(Exception):
    """The search has used the time it was given."""


class Clock:
    """Counts CPU seconds of this process from its making."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.start = seconds, time.process_time()

    @property
    def elapsed(self) -> float:
        return time.process_time() - self.start

    @property
    def left(self) -> float:
        return self.seconds - self.elapsed

    def check(self, need: float = 0.0) -> None:
        """Raise :class:`OutOfTime` when less than ``need`` seconds are left."""
        if self.left < need:
            raise OutOfTime
