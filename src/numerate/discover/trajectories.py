"""Trajectories, and their derivatives by smoothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numerate.discover.checks import check_columns, check_finite, check_names

MINIMUM_POINTS = 20
CLEAN = 1e-5
"""Noise below this part of a state's standard deviation needs no smoothing."""
REPEATS = 4
"""Times that made-up noise is smoothed, to see what it does to the slopes."""
SAFETY = 5.0
"""Times the squared difference of two interpolations is taken as the squared error of the better one."""
AROUND = 4
"""Points on both sides over which errors of slopes are averaged."""


@dataclass(frozen=True)
class Trajectory:
    """States at increasing times; t: (n,), x: (n, d)"""

    t: np.ndarray
    x: np.ndarray


def as_trajectories(t: Any, x: Any) -> list[Trajectory]:
    """One trajectory, or a list of several."""
    several = isinstance(t, list | tuple) and len(t) and np.ndim(t[0]) == 1
    pairs = zip(t, x) if several else [(t, x)]
    return [Trajectory(np.asarray(a, float), np.asarray(b, float).reshape(len(a), -1)) for a, b in pairs]


def check_trajectories(trajectories: Sequence[Trajectory], names: Sequence[str]) -> None:
    """Raises ValueError if something is missing, or times do not increase."""
    check_names(names)
    for each in trajectories:
        if len(each.t) < MINIMUM_POINTS:
            raise ValueError(f"a trajectory needs at least {MINIMUM_POINTS} points, got {len(each.t)}")
        if each.x.shape != (len(each.t), len(names)):
            raise ValueError(f"{len(names)} states at {len(each.t)} times are needed, got {each.x.shape}")
        check_finite(each.t, "time")
        if not (np.diff(each.t) > 0).all():
            raise ValueError("times must increase; mark separate trajectories as such (--trajectory COLUMN)")
        for i, name in enumerate(names):
            check_finite(each.x[:, i], name)
    together = np.concatenate([each.x for each in trajectories])
    for i, name in enumerate(names):
        check_columns(together, together[:, i], names, name)


@dataclass(frozen=True)
class Smoothed:
    """A trajectory without its noise, its derivatives (n, d), and how far off these are (n, d)."""

    states: Trajectory
    slopes: np.ndarray
    slope_errors: np.ndarray


def smoothed(trajectory: Trajectory) -> Smoothed:
    """A cubic smoothing spline for each state, its strength chosen by generalised cross-validation.

    Where that has nothing to smooth, a spline of ninth degree through the points, which is far more accurate.
    """
    each = [_smoothed_state(trajectory.t, x) for x in trajectory.x.T]
    states, slopes, errors = zip(*each)
    return Smoothed(Trajectory(trajectory.t, np.stack(states, 1)), np.stack(slopes, 1), np.stack(errors, 1))


def _smoothed_state(t: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Smooth values, slopes and the slopes' errors (n,); the errors by a spline of less degree or by made-up noise."""
    from scipy.interpolate import make_interp_spline, make_smoothing_spline

    scale = x.std() or 1.0
    noise = noise_level(t, x / scale)
    if noise < CLEAN:
        spline, *others = (make_interp_spline(t, x / scale, k=degree) for degree in (9, 7))
    else:
        spline = make_smoothing_spline(t, x / scale)
        made_up = noise * np.random.default_rng(0).standard_normal((REPEATS, len(t)))
        others = [make_smoothing_spline(t, spline(t) + each) for each in made_up]
    slopes = spline.derivative()(t)
    misses = np.mean([(slopes - other.derivative()(t)) ** 2 for other in others], axis=0)
    if noise < CLEAN:  # a band-limited interpolation of white noise has slopes of pi / sqrt(3) noise / step
        misses = SAFETY * misses + (np.pi * noise / np.gradient(t)) ** 2 / 3
    nearby = np.convolve(np.pad(misses, AROUND, mode="edge"), np.full(2 * AROUND + 1, 1 / (2 * AROUND + 1)), "valid")
    return spline(t) * scale, slopes * scale, np.sqrt(nearby) * scale


def noise_level(t: np.ndarray, x: np.ndarray) -> float:
    """Standard deviation of the noise: how far each point is from the polynomial through some on both sides.

    Three, five or seven on each side, whichever says least: what the polynomial cannot follow becomes less with more of
    them, noise does not.
    """
    return min(_miss(t, x, each) for each in (3, 5, 7) if len(t) > 2 * each + 5)


def _miss(t: np.ndarray, x: np.ndarray, sides: int) -> float:
    misses = []
    for i in range(sides, len(t) - sides):
        near = [*range(i - sides, i), *range(i + 1, i + sides + 1)]
        weights = [np.prod([(t[i] - t[k]) / (t[j] - t[k]) for k in near if k != j]) for j in near]
        misses.append((x[i] - np.dot(weights, x[near])) / np.sqrt(1 + np.dot(weights, weights)))
    return float(np.median(np.abs(misses)) / 0.6745)
