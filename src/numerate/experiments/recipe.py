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

    def __post_init__(self) -> None:
        if not isinstance(self.optimiser, Adam):
            raise ValueError(f"the optimiser of a Recipe must be an Adam, got {self.optimiser!r}")
        if not isinstance(self.penalties, tuple | list) or not all(isinstance(p, Penalty) for p in self.penalties):
            raise ValueError(f"the penalties of a Recipe must be a tuple of Penalty, got {self.penalties!r}")
        if self.restart is not None and not isinstance(self.restart, Restart):
            raise ValueError(f"the restart of a Recipe must be a Restart or None, got {self.restart!r}")

    def training(self, **settings: Any) -> Training:
        return Training(
            self.model, optimiser=self.optimiser, penalties=self.penalties, restart=self.restart, **settings
        )
