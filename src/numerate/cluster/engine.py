"""What runs orders somewhere: two methods, and engines that have them.

The driver knows no more of Ray, Slurm or processes than this.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Finished:
    """An order that is over.

    Args:
        number: as it was submitted under.
        data: the worker's reply; None if it never came.
        reason: why it never came, as the end of a sentence.
        blameless: whether what happened says nothing about the order: its machine was switched off, say.
    """

    number: int
    data: bytes | None = None
    reason: str = ""
    blameless: bool = False


class Engine(ABC):
    """Runs orders. An order whose worker dies is reported as lost; the driver decides what to do with it."""

    seconds = 60.0
    """How long a piece of work should take: losing one costs little, and sending it is nothing beside it."""

    @abstractmethod
    def submit(self, number: int, order: bytes) -> None:
        """Have a worker call :func:`numerate.cluster.worker.work`; does not wait."""

    @abstractmethod
    def as_completed(self, seconds: float) -> Iterator[Finished]:
        """What is over by now; if nothing is, what is over next, unless ``seconds`` pass before."""

    @abstractmethod
    def slots(self) -> int:
        """How many orders can be worked on at the same time."""

    def leftovers(self) -> Iterator[bytes]:
        """Replies to a driver that was killed, each once."""
        return iter(())

    def exclude(self, node: str) -> bool:
        """Send no more orders to a machine; False if there is no way to."""
        return False

    @abstractmethod
    def close(self) -> None:
        """End what is under way."""


class NoEngine(ValueError):
    """An engine that is not installed, or cannot be reached."""


def missing_extra(on: str, name: str | None) -> NoEngine:
    """The sentence for a package that is not installed."""
    return NoEngine(f"--on {on} needs the package {name}: pip install 'numerate[cluster]'")
