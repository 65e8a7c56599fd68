"""Constants of an expression by Levenberg–Marquardt, with exact derivatives and standard errors.

Two functions of one signature: :func:`refit_native` uses :mod:`numerate.loops.least_squares.tape`, whose normal
equations lose half the digits, and ends with a few steps of :func:`refit_numpy`, the reference, where digits matter.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.clock import check_time
from numerate.discover.tapes import to_tape
from numerate.loops.least_squares import tape as least_squares
from numerate.loops.toolchain import native

MOST_CONSTANTS = 25
OPTIMISER = least_squares.LevenbergMarquardt(small_gain=1e-13)
NEARLY = 1e-6  # relative error below which a fit may be exact


@dataclass(frozen=True)
class Fit:
    """A refitted tree, its root mean square residual relative to y, and the standard errors of its constants."""

    tree: ex.Tree
    error: float
    standard_errors: np.ndarray


def refit(
    tree: ex.Tree,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None = None,
    steps: int = 60,
    held: dict[int, float] | None = None,
) -> Fit:
    """Minimise sum w (f(X; c) - y)^2 over the constants c of the tree.

    Args:
        tree: the expression; its constants are the start.
        X: (n, d) inputs. y: (n,) targets. weights: (n,) or None for ones.
        steps: at most so many Levenberg–Marquardt steps.
        held: constants (by position) that stay at a given value.
    """
    check_time()
    return (refit_native if compiled() else refit_numpy)(tree, X, y, weights, steps, held)


@cache
def compiled() -> bool:
    """Whether native code can be built and loaded here; tried once."""
    try:
        least_squares.refit_native([to_tape(ex.const(1.0))], np.ones((1, 1)), np.ones(1), threads=1)
    except (native.NoCompiler, native.CompileError):
        return False
    return True


def refit_native(
    tree: ex.Tree,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None = None,
    steps: int = 60,
    held: dict[int, float] | None = None,
) -> Fit:
    """:func:`refit` as native code."""
    c = np.array(ex.constants(tree), float)
    free = [i for i in range(len(c)) if i not in (held or {})]
    if not 0 < len(free) <= MOST_CONSTANTS or len(X) == 0:
        return refit_numpy(tree, X, y, weights, steps, held)
    optimiser = replace(OPTIMISER, evaluations=2 * steps)
    got = least_squares.refit_native([to_tape(tree, held)], X, y, weights, optimiser, threads=1)
    if not np.isfinite(got.error[0]):
        return Fit(tree, np.inf, np.full(len(c), np.nan))
    errors = np.zeros(len(c))
    c[free], errors[free] = got.constants[0], got.standard_errors[0]
    for i, v in (held or {}).items():
        c[i] = v
    fitted = ex.with_constants(tree, c)
    if got.error[0] < NEARLY:
        return refit_numpy(fitted, X, y, weights, min(steps, 10), held)
    return Fit(fitted, float(got.error[0]), errors)


def refit_numpy(
    tree: ex.Tree,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray | None = None,
    steps: int = 60,
    held: dict[int, float] | None = None,
) -> Fit:
    """:func:`refit` in NumPy; steps from a QR factorisation, which keeps the last digits."""
    c = np.array(ex.constants(tree), float)
    for i, v in (held or {}).items():
        c[i] = v
    free = [i for i in range(len(c)) if i not in (held or {})]
    scale = _rms(y, weights)
    root = (np.ones_like(y) if weights is None else np.sqrt(weights / weights.mean())) / scale

    def residual(c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(all="ignore"):
            v, dv = ex.derivatives(tree, X, c)
            J = np.stack([np.broadcast_to(dv[i] * root, y.shape) for i in free], 1) if free else np.zeros((len(y), 0))
            return np.broadcast_to((v - y) * root, y.shape), J

    r, J = residual(c)
    if not np.isfinite(r).all() or not np.isfinite(J).all():
        return Fit(tree, np.inf, np.full(len(c), np.nan))
    if len(free) > MOST_CONSTANTS:
        return Fit(tree, float(np.sqrt(np.mean(r**2))), np.full(len(c), np.nan))
    c, r, J = _levenberg_marquardt(residual, c, free, r, J, steps)
    error = float(np.sqrt(np.mean(r**2)))
    errors = np.zeros(len(c))
    errors[free] = standard_errors(J, r)
    return Fit(ex.with_constants(tree, c), error, errors)


def _levenberg_marquardt(residual, c, free, r, J, steps):
    """Marquardt's damping by the columns' norms; the step from a QR of the stacked system."""
    loss, damping = r @ r, 1e-3
    if not free:
        return c, r, J
    still = 0
    for _ in range(steps):
        norms = np.linalg.norm(J, axis=0) + 1e-300
        A = J / norms
        Q, R = np.linalg.qr(A)
        g = Q.T @ r
        for _ in range(8):
            step = _damped(R, g, damping) / norms
            trial = c.copy()
            trial[free] -= step
            r2, J2 = residual(trial)
            loss2 = r2 @ r2
            if np.isfinite(loss2) and loss2 < loss and np.isfinite(J2).all():
                break
            damping *= 8
        else:
            return c, r, J
        gain = 1 - loss2 / loss
        c, r, J, loss, damping = trial, r2, J2, loss2, max(damping / 10, 1e-15)
        still = still + 1 if gain < 1e-9 else 0
        if loss < 1e-31 * len(r) or still > 1:
            break
    return c, r, J


def _damped(R: np.ndarray, g: np.ndarray, damping: float) -> np.ndarray:
    k = R.shape[1]
    stacked = np.concatenate([R, np.sqrt(damping) * np.eye(k)])
    return np.linalg.lstsq(stacked, np.concatenate([g, np.zeros(k)]), rcond=None)[0]


def standard_errors(J: np.ndarray, r: np.ndarray) -> np.ndarray:
    """sqrt(diag((J^T J)^-1) r^T r / (n - k)); nan where the data do not fix a constant."""
    n, k = J.shape
    if k == 0 or n <= k:
        return np.full(k, np.nan)
    norms = np.linalg.norm(J, axis=0) + 1e-300
    s, V = np.linalg.svd(J / norms, full_matrices=False)[1:]
    if s[-1] < 1e-10 * s[0]:
        return np.full(k, np.nan)
    return np.sqrt(np.sum((V.T / s) ** 2, 1) * (r @ r) / (n - k)) / norms


def _rms(y: np.ndarray, weights: np.ndarray | None) -> float:
    return float(np.sqrt(np.average(y**2, weights=weights))) + 1e-300


def relative_error(tree: ex.Tree, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Root mean square residual over root mean square of y; infinite where the formula is not finite."""
    with np.errstate(all="ignore"):
        r = ex.column(tree, X) - y
    if not np.isfinite(r).all():
        return np.inf
    return _rms(r, weights) / _rms(y, weights)
