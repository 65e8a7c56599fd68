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
class LevenbergMarquardt:
    """The optimiser's settings: where it starts, and when it stops.

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


def full_matrices(packed: Array, size: int) -> Array:
    """Symmetric matrices from their lower triangles, row by row: (S, size (size + 1) / 2) -> (S, size, size)"""
    full = np.zeros((len(packed), size, size))
    full[:, *np.tril_indices(size)] = packed
    return full + np.tril(full, -1).swapaxes(1, 2)


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


def levenberg_marquardt(model: Model, starts: Array, optimiser: LevenbergMarquardt) -> Found:
    """Minimise the sum of squares from every start; starts: (S, T)."""
    with np.errstate(all="ignore"):
        lanes = _begin(model, np.asarray(starts, float), optimiser)
        size, (count, numbers) = lanes.slope.shape[1], np.shape(starts)
        found = Found(
            np.empty((count, numbers)),
            np.empty(count),
            np.empty((count, size, size)),
            np.empty(count, int),
            np.empty(count, bool),
        )
        while len(lanes.start):
            step = _step(model, lanes)
            converged, done = _verdicts(model, lanes, step, optimiser)
            _record(found, lanes.take(done), converged[done])
            lanes, step = lanes.take(~done), step[~done]
            _advance(model, lanes, model.move(lanes.point, step, lanes.frame), optimiser)
        return found


@dataclass
class _Lanes:
    """What belongs to each start that is still at work."""

    start: Array
    point: Array
    loss: Array
    normal: Array
    slope: Array
    frame: Array
    scale: Array
    damping: Array
    predicted: Array
    evaluations: Array
    refused: Array
    still: Array

    def take(self, which: Array) -> "_Lanes":
        return _Lanes(*(value[which] for value in vars(self).values()))


def _begin(model: Model, starts: Array, optimiser: LevenbergMarquardt) -> _Lanes:
    count = len(starts)
    point, loss, evaluated = model.evaluate(starts)
    loss = np.where(loss < np.inf, loss, np.nan)
    normal, slope, frame = model.linearise(evaluated, np.ones(count, bool))
    damping, zeros = np.full(count, optimiser.damping), np.zeros(count, int)
    scale = np.zeros_like(slope)
    return _Lanes(
        np.arange(count), point, loss, normal, slope, frame, scale, damping, 0.0 * damping, zeros + 1, zeros, zeros
    )


def _step(model: Model, lanes: _Lanes) -> Array:
    own = np.sqrt(np.einsum("skk->sk", lanes.normal))
    lanes.scale = np.fmax(lanes.scale, own) if model.fixed_frame else own
    step = damped_step(lanes.normal, lanes.slope, lanes.damping, lanes.scale)
    lanes.predicted = np.sum(step * lanes.slope, -1) + lanes.damping * np.sum((lanes.scale * step) ** 2, -1)
    return step


def _verdicts(model: Model, lanes: _Lanes, step: Array, optimiser: LevenbergMarquardt) -> tuple[Array, Array]:
    """Which starts have converged, and which are done, converged or not."""
    good = (lanes.still > 1) | (lanes.loss <= optimiser.enough)
    over = np.isnan(lanes.loss) | (lanes.refused >= optimiser.refusals) | (lanes.evaluations >= optimiser.evaluations)
    moved, length = np.sum((lanes.scale * step) ** 2, -1), model.length(lanes.point, lanes.scale)
    small = moved <= optimiser.small_step**2 * length**2
    small |= (lanes.damping < 1) & (lanes.predicted <= optimiser.small_gain * lanes.loss)
    return good | (small & ~over), good | small | over


def _record(found: Found, lanes: _Lanes, converged: Array) -> None:
    values = (lanes.point, lanes.loss, lanes.normal, lanes.evaluations, converged)
    for whole, part in zip(vars(found).values(), values):
        whole[lanes.start] = part


def _advance(model: Model, lanes: _Lanes, trial: Array, optimiser: LevenbergMarquardt) -> None:
    """Evaluate the trial points and accept or refuse each."""
    if not len(trial):
        return
    reached, losses, evaluated = model.evaluate(trial)
    better, ratio = losses < lanes.loss, (lanes.loss - losses) / lanes.predicted
    slow = 1 - losses / lanes.loss < optimiser.small_gain
    eased = np.maximum(lanes.damping / 4, LEAST_DAMPING)
    accepted = np.where(ratio > 0.75, eased, lanes.damping * np.where(ratio < 0.25, 2.0, 1.0))
    lanes.damping = np.where(better, accepted, lanes.damping * 3.0 * 2.0**lanes.refused)
    lanes.still = np.where(better, (lanes.still + 1) * slow, lanes.still)
    lanes.refused = np.where(better, 0, lanes.refused + 1)
    lanes.evaluations = lanes.evaluations + 1
    lanes.point[better], lanes.loss[better] = reached[better], losses[better]
    parts = model.linearise(evaluated, better)
    lanes.normal[better], lanes.slope[better], lanes.frame[better] = parts


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


def standard_errors(normals: Array, losses: Array, residuals: int) -> Array:
    """sqrt(diag((J^T J)^-1) loss / (residuals - P)); NaN where a parameter is not determined.

    (S, P, P), (S,) -> (S, P)
    """
    size = normals.shape[-1]
    with np.errstate(all="ignore"):
        variances = losses / (residuals - size if residuals > size else np.nan)
        scale = np.sqrt(np.einsum("spp->sp", normals))
        scaled = normals / (scale[:, :, None] * scale[:, None])
        sound = np.isfinite(scaled).all((1, 2)) & np.isfinite(variances)
        values, vectors = np.linalg.eigh(np.where(sound[:, None, None], scaled, np.eye(size)))
        sound &= values[:, :1].min(-1, initial=np.inf) > 1e-14 * size
        inverse = np.einsum("spk,sk->sp", vectors**2, 1 / values)
        return np.where(sound[:, None], np.sqrt(inverse * variances[:, None]) / scale, np.nan)
