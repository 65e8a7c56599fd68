"""A model and how it is trained."""

from dataclasses import dataclass, fields
from typing import Any

from numerate.train import Adam, Penalty, Plateau, Restart, Training
from numerate.train.schedules import Schedule
from numerate.train.specification import Factory


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    Args:
        model: (inputs, outputs) -> module.
        optimiser: Adam with its settings.
        penalties: added to the loss.
        restart: when to draw the parameters anew.
        schedule: of the learning rate.
        starts: of each run, of which the best by validation is taken.
    """

    model: Factory
    optimiser: Adam = Adam()  # noqa: RUF009 (frozen)
    penalties: tuple[Penalty, ...] = ()
    restart: Restart | Plateau | None = None
    schedule: Schedule | None = None
    starts: int = 1

    def training(self, **settings: Any) -> Training:
        how: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        return Training(**(how | settings))
