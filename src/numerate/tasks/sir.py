"""An epidemic with fractional powers, as pairs of state and slope, for finding its equation (Heim et al. 2020)."""

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from numerate.tasks.task import Split

State = tuple[float, float, float]


@dataclass(frozen=True)
class FractionalSIR:
    """x = (S, I, R) on one day of the epidemic, y = (dS, dI, dR) per day, measured as a central difference.

    dS = −β I^γ S^κ + η R, dI = β I^γ S^κ − α I, dR = α I − η R. The epidemics from ``starts``, seen every ``every``
    days, give training and validation examples, drawn with replacement; those from ``test_starts`` the test. Success:
    a test error below 1e-4 of the mean square of y.
    """

    recovery: float = 0.05
    infection: float = 0.06
    waning: float = 0.01
    powers: tuple[float, float] = (0.5, 0.5)
    """Of I and of S."""
    starts: tuple[State, ...] = ((100.0, 0.01, 0.0), (60.0, 30.0, 10.0), (20.0, 1.0, 80.0), (10.0, 80.0, 10.0))
    test_starts: tuple[State, ...] = ((150.0, 1.0, 20.0), (30.0, 30.0, 120.0))
    days: int = 200
    every: int = 4

    def __post_init__(self) -> None:
        if self.days < 1 or self.every < 1:
            raise ValueError(f"days and every must be at least 1, got {self.days} and {self.every}")
        if self.days % self.every or not self.starts or not self.test_starts:
            raise ValueError(f"days ({self.days}) must be a multiple of every ({self.every}), and starts not empty")

    @property
    def inputs(self) -> int:
        return 3

    @property
    def outputs(self) -> int:
        return 3

    @property
    def draws(self) -> int:
        return 1

    @property
    def form(self) -> Hashable:
        return type(self), len(self.starts), len(self.test_starts), self.days, self.every

    def slope(self, state: np.ndarray) -> np.ndarray:
        """(dS, dI, dR) at states (..., 3)."""
        s, i, r = np.moveaxis(state, -1, 0)
        infected = self.infection * i ** self.powers[0] * s ** self.powers[1]
        lost, recovered = self.waning * r, self.recovery * i
        return np.stack([lost - infected, infected - recovered, recovered - lost], -1)

    def seen(self, split: Split) -> tuple[np.ndarray, np.ndarray]:
        """States (n, 3) and their slopes."""
        epidemics = [trajectory(self, start) for start in (self.test_starts if split == "test" else self.starts)]
        return np.concatenate([states for states, _ in epidemics]), np.concatenate([slopes for _, slopes in epidemics])

    def constants(self, seed: int, split: Split) -> dict[str, Tensor]:
        states, slopes = self.seen(split)
        most = max(len(self.starts), len(self.test_starts)) * self.days // self.every  # all splits have one shape
        padding = ((0, most - len(states)), (0, 0))
        return {
            "count": torch.tensor(float(len(states))),
            "place": torch.arange(most, dtype=torch.float32),
            "states": torch.from_numpy(np.pad(states, padding)).float(),
            "slopes": torch.from_numpy(np.pad(slopes, padding)).float(),
        }

    def examples(self, uniforms: Tensor, constants: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        chosen = (torch.floor(uniforms * constants["count"]) == constants["place"]).to(uniforms.dtype)
        return chosen @ constants["states"], chosen @ constants["slopes"]

    def threshold(self) -> float:
        return 1e-4 * float((self.seen("test")[1] ** 2).mean())


@cache
def trajectory(task: FractionalSIR, start: State, steps: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """States half a day after every ``every``-th day, and central differences; Runge–Kutta, ``steps`` steps a day."""
    h, state = 1 / steps, np.array(start, float)
    path = [state]
    for _ in range(task.days * steps):
        k1 = task.slope(state)
        k2 = task.slope(state + h / 2 * k1)
        k3 = task.slope(state + h / 2 * k2)
        k4 = task.slope(state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(state)
    points = np.array(path)
    middle = np.arange(0, task.days, task.every) * steps + steps // 2
    return points[middle], (points[middle + 1] - points[middle - 1]) / (2 * h)
