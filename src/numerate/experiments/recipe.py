"""A model and how it is trained."""

from dataclasses import dataclass, fields
from typing import Any

from numerate.train import Adam, NetworkTraining, Penalty, Plateau, Restart, Training
from numerate.train.schedules import Schedule
from numerate.train.specification import Factory


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    Args:
        model: (inputs, outputs) -> module.
        optimiser: Adam with its settings.
        penalties: added to the loss.
        restart: when to redraw the parameters.
        schedule: of the learning rate.
        starts: of each run; the best by validation is kept.
        evaluate_every: steps between evaluations, of a small model; a :class:`Plateau` counts in those.
        evaluation_size: examples of an evaluation, of a small model.
    """

    model: Factory
    optimiser: Adam = Adam()  # noqa: RUF009 (frozen)
    penalties: tuple[Penalty, ...] = ()
    restart: Restart | Plateau | None = None
    schedule: Schedule | None = None
    starts: int = 1
    evaluate_every: int = 1000
    evaluation_size: int = 10_000

    def training(self, **settings: Any) -> Training:
        """The configuration of a small model; ``settings``: what else a :class:`Training` takes, or takes instead."""
        how: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        return Training(**(how | settings))

    def network_training(self, **settings: Any) -> NetworkTraining:
        """The same for a network that learns from batches. Raises ValueError for a Restart or several starts."""
        if isinstance(self.restart, Restart) or self.starts != 1:
            raise ValueError("a recipe with a Restart or starts cannot train a network on batches; leave both out")
        names = ("model", "optimiser", "penalties", "schedule", "restart")
        how: dict[str, Any] = {name: getattr(self, name) for name in names}
        return NetworkTraining(**(how | settings))
