"""Schedules of the learning rate: pure functions of the step, by which the rate is multiplied.

Any function of the steps' numbers, (n,) float64 -> (n,), can stand in their place; t counts from 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Schedule = Callable[[Tensor], Tensor]
"""Numbers of steps, (n,) float64 -> factors of the learning rate, (n,)."""


@dataclass(frozen=True)
class Cosine:
    """From 1 to ``end`` along half a wave: end + (1 - end) (1 + cos(π t / steps)) / 2; ``end`` from ``steps`` on."""

    steps: int
    end: float = 0.0

    def __post_init__(self) -> None:
        _check(self.steps, end=self.end)

    def __call__(self, t: Tensor) -> Tensor:
        return self.end + (1 - self.end) * (1 + torch.cos(math.pi * (t / self.steps).clamp(max=1))) / 2


@dataclass(frozen=True)
class Linear:
    """From ``start`` to ``end`` in a straight line over ``steps`` steps; ``end`` from then on."""

    steps: int
    start: float = 1.0
    end: float = 0.0

    def __post_init__(self) -> None:
        _check(self.steps, start=self.start, end=self.end)

    def __call__(self, t: Tensor) -> Tensor:
        return self.start + (self.end - self.start) * (t / self.steps).clamp(max=1)


@dataclass(frozen=True)
class Steps:
    """1 at first, multiplied by ``factor`` at each of the steps ``at``."""

    at: tuple[int, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", tuple(self.at))
        _check(1, factor=self.factor)
        if any(isinstance(step, bool) or not isinstance(step, int) or step < 0 for step in self.at):
            raise ValueError(f"at must be whole numbers of 0 or more, got {self.at!r}")

    def __call__(self, t: Tensor) -> Tensor:
        passed = (t.unsqueeze(-1) >= torch.tensor(self.at, dtype=t.dtype, device=t.device)).sum(-1)
        return self.factor ** passed.to(t.dtype)


@dataclass(frozen=True)
class Warmup:
    """(t + 1) / steps for the first ``steps`` steps; then ``then(t - steps)``, or 1 if there is none."""

    steps: int
    then: Schedule | None = None

    def __post_init__(self) -> None:
        _check(self.steps)
        if self.then is not None and not callable(self.then):
            raise TypeError(f"then must be a schedule or None, got {self.then!r}")

    def __call__(self, t: Tensor) -> Tensor:
        later = torch.ones_like(t) if self.then is None else self.then((t - self.steps).clamp(min=0))
        return torch.where(t < self.steps, (t + 1) / self.steps, later)


def _check(steps: int, **factors: float) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number above 0, got {steps!r}")
    for name, value in factors.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of 0 or more, got {value!r}")


def check_schedule(schedule: Schedule | None) -> None:
    """Raise TypeError for what is no schedule."""
    if schedule is not None and not callable(schedule):
        raise TypeError(f"schedule must be a function of the steps' numbers or None, got {schedule!r}")


def rate_factors(schedules: Sequence[Schedule | None], start: int, steps: int) -> Tensor:
    """What the rate of each member is multiplied by at each step from ``start`` on; (steps, members) float32.

    Raises ValueError for a schedule that does not give a number for each step.
    """
    t = torch.arange(start, start + steps, dtype=torch.float64)
    columns = {id(None): torch.ones(steps)}
    for schedule in schedules:
        if id(schedule) not in columns and schedule is not None:
            columns[id(schedule)] = _column(schedule, t)
    return torch.stack([columns[id(schedule)] for schedule in schedules], -1)


def _column(schedule: Schedule, t: Tensor) -> Tensor:
    factors = torch.as_tensor(schedule(t)).float()
    if factors.shape not in ((), t.shape):
        raise ValueError(f"the schedule gives {tuple(factors.shape)} for steps of shape {tuple(t.shape)}")
    return factors.expand(t.shape)
