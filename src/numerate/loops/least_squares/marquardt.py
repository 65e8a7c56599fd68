"""Levenberg–Marquardt for many starts at once in NumPy: the reference of ``marquardt.hpp``, step for step.

Names: S starts, T numbers of a point, K directions of a step. A start that gives no number stays by itself: its sum of
squares is NaN, and no other start notices.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Array = np.ndarray
LEAST_DAMPING = LEAST_PIVOT = 1e-15


@dataclass(frozen=True)
class Settings:
    """When to stop.

    Args:
        damping: the first one, relative to the diagonal of the normal equations.
        small_gain: converged if the sum of squares falls by less than this part of itself twice in a row, or if no more
            is to be expected.
        small_step: converged if the step is this small, relative to the point.
        enough: converged if the sum of squares is not above this.
        evaluations: at most so many, for each start.
        refusals: given up after so many steps in a row that lead nowhere.
    """

    damping: float = 1e-3
    small_gain: float = 1e-15
    small_step: float = 1e-13
    enough: float = 0.0
    evaluations: int = 1000
    refusals: int = 10

    def packed(self) -> "PackedSettings":
        """As native code reads them."""
        numbers = (self.damping, self.small_gain, self.small_step, self.enough)
        return PackedSettings(*numbers, self.evaluations, self.refusals)


class PackedSettings(ctypes.Structure):
    """``Settings`` of ``marquardt.hpp``."""

    _fields_ = [
        *((name, ctypes.c_double) for name in ("damping", "small_gain", "small_step", "enough")),
        *((name, ctypes.c_int64) for name in ("evaluations", "refusals")),
    ]


class Model(Protocol):
    """What is fitted; all arrays have the starts as first axis.

    ``fixed_frame``: the directions of steps are always the same; they are then scaled by the largest columns so far.
    """

    fixed_frame: bool

    def evaluate(self, trial: Array) -> tuple[Array, Array, Any]:
        """(S, T) -> the points, normalised; their sums of squares (S,); and what :meth:`linearise` needs."""
        ...

    def linearise(self, evaluated: Any, which: Array) -> tuple[Array, Array, Array]:
        """J^T J (S', K, K), -J^T r (S', K), and a frame for steps (S', ...), of the starts in ``which``."""
        ...

    def length(self, points: Array, scale: Array) -> Array:
        """Sizes of the points, measured as steps are: the norm of scale * step. (S, T), (S, K) -> (S,)"""
        ...

    def move(self, points: Array, steps: Array, frames: Array) -> Array:
        """(S, T), (S, K) -> (S, T)"""
        ...


@dataclass(frozen=True)
class Found:
    """Where each start ended; ``losses`` are sums of squares, NaN where a start gives no number."""

    points: Array
    losses: Array
    normals: Array
    evaluations: Array
    converged: Array


def levenberg_marquardt(model: Model, starts: Array, settings: Settings) -> Found:
    """Minimise the sum of squares from every start; starts: (S, T)."""
    with np.errstate(all="ignore"):
        return _minimise(model, starts, settings)


def _minimise(model: Model, starts: Array, settings: Settings) -> Found:
    count = len(starts)
    lanes = np.arange(count)  # the starts that are still at work; the arrays below belong to these
    trial = starts.astype(float)
    loss, damping, predicted = np.full(count, np.inf), np.full(count, settings.damping), np.zeros(count)
    evaluations, refused, still = (np.zeros(count, int) for _ in range(3))
    point, normal, slope, frame, largest = trial.copy(), None, None, None, None
    found: Found | None = None
    while len(lanes):
        reached, losses, evaluated = model.evaluate(trial)
        better, begun = losses < loss, np.isfinite(loss)
        slow = 1 - losses / loss < settings.small_gain
        still = np.where(better, np.where(begun & slow, still + 1, 0), still)
        ratio = (loss - losses) / predicted
        eased = np.where(
            ratio > 0.75, np.maximum(damping / 4, LEAST_DAMPING), damping * np.where(ratio < 0.25, 2.0, 1.0)
        )
        damping = np.where(begun, np.where(better, eased, damping * 3.0 * 2.0**refused), damping)
        refused = np.where(better, 0, refused + begun)
        evaluations = evaluations + 1
        none = ~better & ~begun
        loss = np.where(better, losses, np.where(none, np.nan, loss))
        point = np.where((better | none)[:, None], reached, point)
        parts = model.linearise(evaluated, better)
        if normal is None:
            normal, slope, frame = (np.full((len(lanes), *part.shape[1:]), np.nan) for part in parts)
            largest = np.zeros_like(slope)
            found = Found(
                point.copy(), loss.copy(), np.full((count, *normal.shape[1:]), np.nan), evaluations * 0, begun
            )
        assert slope is not None and frame is not None and largest is not None and found is not None
        for kept, part in zip((normal, slope, frame), parts):
            kept[better] = part
        good = (still > 1) | (loss <= settings.enough)
        done = none | good | (refused >= settings.refusals) | (evaluations >= settings.evaluations)
        own = np.sqrt(np.einsum("skk->sk", normal))
        largest = np.fmax(largest, own) if model.fixed_frame else own
        step = damped_step(normal, slope, damping, largest)
        moved = np.sum((largest * step) ** 2, -1)
        predicted = np.sum(step * slope, -1) + damping * moved
        small = moved <= settings.small_step**2 * model.length(point, largest) ** 2
        small = ~done & (small | ((damping < 1) & (predicted <= settings.small_gain * loss)))
        done = done | small
        ended = lanes[done]
        found.points[ended], found.losses[ended], found.normals[ended] = point[done], loss[done], normal[done]
        found.evaluations[ended], found.converged[ended] = evaluations[done], (good | small)[done]
        rest = ~done
        lanes, point, loss, damping, predicted = lanes[rest], point[rest], loss[rest], damping[rest], predicted[rest]
        evaluations, refused, still, step = evaluations[rest], refused[rest], still[rest], step[rest]
        normal, slope, frame, largest = normal[rest], slope[rest], frame[rest], largest[rest]
        trial = model.move(point, step, frame)
    if found is None:
        raise ValueError("no starts were given; parameters has one row for each start")
    return found


def damped_step(normal: Array, slope: Array, damping: Array, scale: Array) -> Array:
    """Solve (J^T J + damping D^2) step = -J^T r, D the diagonal ``scale``. (S, K, K), (S, K), (S,), (S, K) -> (S, K)"""
    scale = np.where(scale > 0, scale, 1.0)
    system = normal / (scale[:, :, None] * scale[:, None])
    np.einsum("skk->sk", system)[:] += damping[:, None]
    return solve_cholesky(system, slope / scale) / scale


def solve_cholesky(system: Array, right: Array) -> Array:
    """Solve by Cholesky; an unknown whose pivot vanishes becomes 0. system: (S, K, K), right: (S, K)"""
    factor, size = system.copy(), right.shape[-1]
    inverse = np.zeros_like(right)
    for j in range(size):
        pivot = factor[:, j, j] - np.sum(factor[:, j, :j] ** 2, -1)
        sound = pivot > LEAST_PIVOT
        inverse[:, j] = sound / np.sqrt(np.where(sound, pivot, 1.0))
        below = factor[:, j + 1 :, j] - np.einsum("sik,sk->si", factor[:, j + 1 :, :j], factor[:, j, :j])
        factor[:, j + 1 :, j] = below * inverse[:, j, None]
    found = right.copy()
    for j in range(size):
        found[:, j] = (found[:, j] - np.sum(factor[:, j, :j] * found[:, :j], -1)) * inverse[:, j]
    for j in reversed(range(size)):
        found[:, j] = (found[:, j] - np.sum(factor[:, j + 1 :, j] * found[:, j + 1 :], -1)) * inverse[:, j]
    return found
