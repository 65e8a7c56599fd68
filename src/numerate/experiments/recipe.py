"""A model and how it is trained."""

from dataclasses import dataclass
from typing import Any

from numerate.train import Adam, Penalty, Restart, Training
from numerate.train.specification import Factory


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    Args:
        model: (inputs, outputs) -> module.
        optimiser: Adam with its settings.
        penalties: added to the loss.
        restart: when to draw the parameters anew.
    """

    model: Factory
    optimiser: Adam = Adam()  # noqa: RUF009 (frozen)
    penalties: tuple[Penalty, ...] = ()
    restart: Restart | None = None

    def training(self, **settings: Any) -> Training:
        return Training(
            self.model, optimiser=self.optimiser, penalties=self.penalties, restart=self.restart, **settings
        )
