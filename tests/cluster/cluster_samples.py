"""An engine without a cluster: the same methods, in this process, and anything may happen to an order."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numerate.cluster import Engine, Finished
from numerate.cluster.messages import Order
from numerate.cluster.worker import work
from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import NetworkTraining, Training, train
from numerate.units import NAU, NMU

SHORT: dict[str, Any] = {"steps": 20, "evaluate_every": 10, "evaluation_size": 10, "batch": 4}
"""Runs of a moment; ``backend="stacked"`` compiles nothing."""

Fate = Callable[[int, Order], Finished | None]
"""What happens to an order instead of its being done; None: nothing."""


def trainings(seeds: int = 40, **settings: Any) -> list[Training]:
    """Two forms, three configurations."""
    settings = SHORT | settings
    some = tuple(range(seeds))
    return [
        Training(NMU, SingleModule("mul"), some, labels={"unit": "NMU", "range": "a"}, **settings),
        Training(NMU, SingleModule("mul", (2.0, 3.0)), some, labels={"unit": "NMU", "range": "b"}, **settings),
        Training(NAU, SingleModule("add"), some, labels={"unit": "NAU", "range": "a"}, **settings),
    ]


def reference(folder, work: Sequence[Training | NetworkTraining]) -> str:
    """The digest of a store whose runs one process trained."""
    with Store(folder / "reference.sqlite") as store:
        train(work, store, experiment="x", backend="stacked")
        return store.digest()


class FakeEngine(Engine):
    """Does orders in this process, in any order; ``fate`` decides what is lost.

    Args:
        workers: how many there are.
        fate: (number, order) -> what happens instead.
        seed: of the order in which replies come.
    """

    def __init__(self, workers: int = 3, fate: Fate | None = None, seed: int = 0) -> None:
        self.workers, self.fate, self.draw = workers, fate, random.Random(seed)
        self.waiting: dict[int, bytes] = {}
        self.orders: list[Order] = []
        self.excluded: list[str] = []
        self.closed = False

    def slots(self) -> int:
        return self.workers - len(self.excluded)

    def submit(self, number: int, order: bytes) -> None:
        assert len(self.waiting) < self.workers
        self.waiting[number] = order

    def as_completed(self, seconds: float) -> Iterator[Finished]:
        if self.waiting:
            number = self.draw.choice(list(self.waiting))
            data = self.waiting.pop(number)
            order = Order.from_bytes(data)
            self.orders.append(order)
            yield (self.fate and self.fate(number, order)) or Finished(number, work(data, "here"))

    def exclude(self, node: str) -> bool:
        self.excluded.append(node)
        return bool(node)

    def close(self) -> None:
        self.closed = True


def names(order: Order) -> list[tuple[str, str, int]]:
    """(unit, range, seed) of the runs of an order."""
    labels = [json.loads(text)["labels"] for text in order.trainings]
    return [(labels[place]["unit"], labels[place]["range"], seed) for place, seed in order.runs]
