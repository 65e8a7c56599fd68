"""Polynomial right-hand sides fitted to trajectories by integration, where slopes are not known well enough."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import process_time

import numpy as np
import sympy

from numerate.discover.trajectories import Trajectory

STEPS = 60
"""Most steps of Levenberg and Marquardt."""
MOST_COEFFICIENTS = 150
SUBSTEPS = (4, 16)
"""Runge-Kutta steps between two points: to find the coefficients, and to finish."""
GOOD = 1e-5
"""A misfit below this part of a state's standard deviation is that of a law."""


@dataclass(frozen=True)
class Pieces:
    """Pieces of trajectories that start at a data point; starts: (s, d), steps: (s, m), goals: (s, m, d)"""

    starts: np.ndarray
    steps: np.ndarray
    goals: np.ndarray

    @property
    def scale(self) -> np.ndarray:
        """Standard deviation of each state, (d,)."""
        return self.goals.reshape(-1, self.goals.shape[-1]).std(0) + 1e-300


def pieces(smooth: Sequence[Trajectory], trajectories: Sequence[Trajectory], length: int, every: int) -> Pieces:
    """Pieces of ``length`` steps, one after each ``every`` points; they start at smooth states and meet the data."""
    starts, steps, goals = [], [], []
    for calm, raw in zip(smooth, trajectories):
        for first in range(0, len(raw.t) - length, every):
            starts.append(calm.x[first])
            steps.append(np.diff(raw.t[first : first + length + 1]))
            goals.append(raw.x[first + 1 : first + length + 1])
    return Pieces(np.array(starts), np.array(steps), np.array(goals))


def integrate(
    right: Callable[[np.ndarray], np.ndarray], starts: np.ndarray, steps: np.ndarray, substeps: int
) -> np.ndarray:
    """Runge-Kutta of fourth order for many pieces at once; starts: (s, d), steps: (s, m) -> (s, m, d)"""
    x, states = starts, []
    for step in steps.T:
        h = (step / substeps)[:, None]
        for _ in range(substeps):
            a = right(x)
            b = right(x + h / 2 * a)
            c = right(x + h / 2 * b)
            d = right(x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
        states.append(x)
    return np.stack(states, 1)


def exponents(states: int, degree: int) -> np.ndarray:
    """Powers of the monomials up to a degree, lowest degree first: (terms, states)"""
    every = itertools.product(range(degree + 1), repeat=states)
    return np.array(sorted((each for each in every if sum(each) <= degree), key=sum))


@dataclass(frozen=True)
class Polynomials:
    """dx_i/dt as polynomials in states of unit size; coefficients: (terms, d), kept: which may differ from zero."""

    powers: np.ndarray
    scale: np.ndarray
    coefficients: np.ndarray
    kept: np.ndarray

    def right(self, x: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """Slopes (n, d) of states (n, d), both in units of the scale."""
        degree = int(self.powers.max())
        table = np.ones((degree + 1, *x.shape))
        for k in range(1, degree + 1):
            table[k] = table[k - 1] * x
        columns = np.ones((len(x), len(self.powers)))
        for i in range(x.shape[1]):
            columns = columns * table[self.powers[:, i], :, i].T
        return columns @ coefficients

    @property
    def is_sparse(self) -> bool:
        """Whether no equation has more than half of the terms; three are always few."""
        return bool(self.kept.sum(0).max() <= max(3, len(self.powers) / 2))

    def formulas(self, names: Sequence[str]) -> list[sympy.Expr]:
        """In the states' own units."""
        symbols = [sympy.Symbol(name) for name in names]
        sizes = np.prod(self.scale**self.powers, 1)
        result = []
        for i, (column, kept) in enumerate(zip(self.coefficients.T, self.kept.T)):
            values = column * self.scale[i] / sizes
            terms = [sympy.Mul(*(s ** int(k) for s, k in zip(symbols, power))) for power in self.powers]
            result.append(sympy.Add(*(sympy.Float(v, 17) * term for v, term, keep in zip(values, terms, kept) if keep)))
        return result


def polynomial_law(trajectories: Sequence[Trajectory], most: int, seconds: float = np.inf) -> Polynomials | None:
    """The sparse polynomials, of least degree up to ``most``, whose solutions go from each point to the next.

    For data without noise but with so few points that no interpolation follows them. None if there are none within
    ``seconds`` of processor time, or if they need most of their terms: then they approximate something else.
    """
    until = process_time() + seconds
    near = pieces(trajectories, trajectories, 1, 1)
    scale = near.scale
    near = Pieces(near.starts / scale, near.steps, near.goals / scale)
    for degree in range(1, most + 1):
        powers = exponents(len(scale), degree)
        if len(powers) * len(scale) > min(MOST_COEFFICIENTS, near.goals.size // 3):
            return None
        full, misfit = _fit(_trapezoidal(powers, scale, near), near, SUBSTEPS[0], until)
        if misfit < 100 * GOOD:
            full, misfit = _fit(full, near, SUBSTEPS[1], until)
        if misfit < GOOD:
            law = _sparse(full, near, max(10 * misfit, 1e-9), until)
            return law if degree == 1 or law.is_sparse else None
        if process_time() > until:
            return None
    return None


def _trapezoidal(powers: np.ndarray, scale: np.ndarray, near: Pieces) -> Polynomials:
    """Coefficients for which the trapezoidal rule goes from each point to the next."""
    shape = len(powers), len(scale)
    model = Polynomials(powers, scale, np.zeros(shape), np.ones(shape, bool))
    ends, one = near.goals[:, 0], np.eye(len(powers))
    columns = near.steps * (model.right(near.starts, one) + model.right(ends, one)) / 2
    return replace(model, coefficients=np.linalg.lstsq(columns, ends - near.starts, rcond=None)[0])


def _sparse(full: Polynomials, near: Pieces, limit: float, until: float) -> Polynomials:
    """Terms are left out, the least first, as long as the others still meet the data and time is left."""
    best, kept = full, full.kept.copy()
    while kept.sum() > 1 and process_time() < until:
        sizes = np.where(kept, np.abs(best.coefficients), np.inf)
        kept.flat[int(np.argmin(sizes))] = False
        start = replace(full, coefficients=np.where(kept, best.coefficients, 0.0), kept=kept.copy())
        fitted, misfit = _fit(start, near, SUBSTEPS[1], until)
        if misfit > limit:
            break
        best = fitted
    return best


def _fit(model: Polynomials, near: Pieces, substeps: int, until: float) -> tuple[Polynomials, float]:
    """Levenberg and Marquardt on the kept coefficients; with the root mean square misfit."""
    where = np.flatnonzero(model.kept)
    c, damping = model.coefficients.ravel()[where], 1e-3

    def whole(values: np.ndarray) -> np.ndarray:
        result = np.zeros(model.kept.size)
        result[where] = values
        return result.reshape(model.kept.shape)

    def rest(values: np.ndarray) -> np.ndarray:
        coefficients = whole(values)
        with np.errstate(all="ignore"):
            ends = integrate(lambda x: model.right(x, coefficients), near.starts, near.steps, substeps)
        return np.nan_to_num(ends - near.goals, nan=1e3, posinf=1e3, neginf=-1e3).clip(-1e3, 1e3).ravel()

    now = rest(c)
    for _ in range(STEPS):
        J = np.stack([(rest(c + step) - now) / 1e-6 for step in 1e-6 * np.eye(len(c))], 1)
        normal, gradient, before = J.T @ J, J.T @ now, now @ now
        for _ in range(8):
            move = np.linalg.lstsq(normal + damping * np.diag(np.diag(normal) + 1e-12), -gradient, rcond=None)[0]
            after = rest(c + move)
            if after @ after < before:
                c, now, damping = c + move, after, damping / 10
                break
            damping *= 5
        if not now @ now < (1 - 1e-3) * before or process_time() > until:
            break
    return replace(model, coefficients=whole(c)), float(np.sqrt(np.mean(now**2)))
