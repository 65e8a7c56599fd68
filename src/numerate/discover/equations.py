"""Differential equations from trajectories: derivatives by smoothing, a formula for each state, a simulation."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np
import sympy

from numerate.discover.export import compiled, replaced, with_parameters
from numerate.discover.formula import Formula, Found
from numerate.discover.search import search
from numerate.discover.shooting import integrate, pieces, polynomial_law
from numerate.discover.slopes import DEGREE, MOST_TERMS, Slopes
from numerate.discover.trajectories import (
    CLEAN,
    Smoothed,
    Trajectory,
    as_trajectories,
    check_trajectories,
    smoothed,
)

EDGE = 6
"""Points at both ends whose derivatives are not trusted."""
SEGMENT, MOST_SUBSTEPS = 10, 64
"""Points of a piece of trajectory that is integrated on its own when constants are refined, and most steps between."""
MOST_WORK = 300
"""Constants times steps between two points, up to which constants are refined."""
MOST_EVALUATIONS = 50_000
"""Of the right-hand side in a simulation. A wrong equation may have a pole, near which steps become ever smaller."""


@dataclass(frozen=True)
class Equations:
    """One equation dx_i/dt = f_i(x) for each state.

    ``formulas``: sympy, in the states' names, the constants refined by integration. ``found``: what the search gave for
    each derivative, None where a sparse polynomial was enough. ``error``: root mean square of the simulation's distance
    from the data, each state in units of its standard deviation; not finite if the simulation leaves the data for good.
    """

    names: tuple[str, ...]
    formulas: tuple[sympy.Expr, ...]
    found: tuple[Found | None, ...]
    error: float

    def derivative(self) -> Callable[[float, np.ndarray], np.ndarray]:
        """The right-hand side f(t, x), as :func:`scipy.integrate.solve_ivp` takes it."""
        functions = [compiled(each, [sympy.Symbol(name) for name in self.names]) for each in self.formulas]

        def right(_: float, x: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                return np.array([float(function(*x)) for function in functions])

        return right

    def simulate(self, start: Sequence[float], t: np.ndarray) -> np.ndarray:
        """States at the times ``t`` from ``start`` at the first: (n, d); shorter if the solution ends before."""
        from scipy.integrate import solve_ivp

        right, limit = self.derivative(), 1e6 * (1 + np.abs(np.asarray(start, float)).max())
        count = itertools.count()

        def counted(time: float, x: np.ndarray) -> np.ndarray:
            if next(count) > MOST_EVALUATIONS:
                raise ValueError("the solution cannot be followed")
            return right(time, x)

        def escapes(_: float, x: np.ndarray) -> float:
            return float(limit - np.abs(x).max())

        escapes.terminal = True  # type: ignore[attr-defined]
        options = {"method": "LSODA", "rtol": 1e-8, "atol": 1e-10, "events": escapes}
        try:
            with np.errstate(all="ignore"):
                done = solve_ivp(counted, (t[0], t[-1]), np.asarray(start, float), t_eval=t, **options)
        except ValueError:  # not a number on the way, or no end
            return np.asarray(start, float)[None]
        return done.y.T[np.isfinite(done.y.T).all(1)]


def equations(
    t: Any,
    x: Any,
    *,
    names: Sequence[str] | None = None,
    seconds: float = 10.0,
    functions: Sequence[str] | None = None,
    seed: int = 0,
    progress: Callable[[str, Formula, float], None] | None = None,
) -> Equations:
    """Find dx/dt = f(x) from one trajectory or several.

    Slopes by smoothing are known only so well. Noise of that size is added before the search, which then does not
    explain the errors of the smoothing; the constants are fitted to the trajectories themselves afterwards.

    Args:
        t: (n,) increasing times, or a list of such.
        x: (n, d) states, or a list of such.
        names: Of the states; x0, x1, ... without it.
        seconds: Processor time for each state.
        functions: Functions a formula may contain; None for the default set.
        seed: Of the search.
        progress: Called with the state's name, the best formula so far and the seconds gone by.

    Raises:
        ValueError: If times do not increase, a trajectory has fewer than 20 points, or a state is constant.
    """
    trajectories = as_trajectories(t, x)
    names = tuple(names or (f"x{i}" for i in range(trajectories[0].x.shape[1])))
    check_trajectories(trajectories, names)
    smooth = [smoothed(each) for each in trajectories]
    known = _known_slopes(smooth, names)
    law, began = None, process_time()
    if any(each.error > CLEAN * each.size for each in known):
        law = polynomial_law(trajectories, DEGREE, seconds * len(names) / 2)
    if law is not None:
        found: list[Found | None] = [None] * len(names)
        fitted = refined(law.formulas(names), names, trajectories, trajectories)
    else:
        left = seconds - (process_time() - began) / len(names)
        options = {"names": names, "seconds": left, "functions": functions}
        told = [None if progress is None else partial(progress, name) for name in names]
        got = [_from_slopes(known[i], told[i], {**options, "seed": (seed, i)}) for i in range(len(names))]
        start, found = [formula for formula, _ in got], [each for _, each in got]
        fitted = refined(start, names, [each.states for each in smooth], trajectories)
        fitted = [each.better(before, after) for each, before, after in zip(known, start, fitted)]
    result = Equations(names, tuple(map(_whole, fitted)), tuple(found), np.nan)
    return replace(result, error=simulation_error(result, trajectories))


def _known_slopes(smooth: Sequence[Smoothed], names: Sequence[str]) -> list[Slopes]:
    """The slopes of each state at the inner points of all trajectories."""
    inner = slice(EDGE, -EDGE)
    states = np.concatenate([each.states.x[inner] for each in smooth])
    slopes = np.concatenate([each.slopes[inner] for each in smooth])
    errors = np.concatenate([each.slope_errors[inner] for each in smooth])
    return [Slopes.of(states, slopes[:, i], errors[:, i], names) for i in range(len(names))]


def _from_slopes(
    known: Slopes, progress: Callable[[Formula, float], None] | None, options: dict[str, Any]
) -> tuple[sympy.Expr, Found | None]:
    """A sparse polynomial, or else what the search finds, or else a quotient of polynomials."""
    formula = known.polynomial()
    if formula is not None:
        return formula, None
    seed = options.pop("seed")
    random = np.random.default_rng(seed)
    made_up = 0.75 * known.error / np.sqrt(known.weights) * random.standard_normal(len(known.slopes))
    tell = _stop_at(known.error, progress)
    got = search(known.states, known.slopes + made_up, weights=known.weights, progress=tell, seed=seed[0], **options)
    got = simplest_within(got, known.error)
    if got.best.error > known.error:
        formula = known.quotient() or known.polynomial(most_terms=10 * MOST_TERMS)
    return formula or known.without_idle_terms(got.best.expression, known.error), got


def _stop_at(error: float, progress: Callable[[Formula, float], None] | None) -> Callable[[Formula, float], None]:
    """A search that explains slopes as well as they are known has found enough."""

    def tell(best: Formula, elapsed: float) -> None:
        if progress is not None:
            progress(best, elapsed)
        if best.error < error:
            raise KeyboardInterrupt  # the search gives back the best so far

    return tell


def simplest_within(found: Found, error: float) -> Found:
    """The smallest formula whose error is that of the slopes themselves; the best one if there is none."""
    enough = [each for each in found.front if each.error < 1.1 * error]
    best = min(enough, key=lambda each: each.size) if enough else found.best
    return replace(found, best=best, exact=False, noise=error)


def refined(
    formulas: Sequence[sympy.Expr],
    names: Sequence[str],
    smooth: Sequence[Trajectory],
    trajectories: Sequence[Trajectory],
) -> list[sympy.Expr]:
    """The formulas with constants that make the integrated pieces of trajectory agree best with the data.

    Derivatives by smoothing are biased; integrating is not. Kept only if the pieces agree better for it.
    """
    from scipy.optimize import least_squares

    parts = [with_parameters(each) for each in formulas]
    values = np.array([value for _, constants in parts for value in constants.values()])
    part = pieces(smooth, trajectories, SEGMENT, SEGMENT)
    starts, steps, goals = part.starts, part.steps, part.goals
    if not len(values) or len(values) > 30 or not len(starts):
        return list(formulas)
    symbols = [sympy.Symbol(name) for name in names]
    functions = [compiled(structure, [*symbols, *constants]) for structure, constants in parts]
    counts = np.cumsum([0, *(len(constants) for _, constants in parts)])
    scale = part.scale

    def right(x: np.ndarray, c: np.ndarray) -> np.ndarray:
        each = [f(*x.T, *c[counts[i] : counts[i + 1]]) for i, f in enumerate(functions)]
        return np.stack([np.broadcast_to(np.asarray(value, float), len(x)) for value in each], 1)

    def residual(relative: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            rest = (integrate(lambda x: right(x, relative * values), starts, steps, substeps) - goals) / scale
        return np.clip(np.nan_to_num(rest, nan=1e3, posinf=1e3, neginf=-1e3), -1e3, 1e3).ravel()

    substeps = _substeps(lambda x: right(x, values), starts, steps, scale)
    if len(values) * substeps > MOST_WORK:
        return list(formulas)
    first = residual(np.ones(len(values)))
    done = least_squares(residual, np.ones(len(values)), method="trf", max_nfev=40)
    if not np.sum(done.fun**2) < np.sum(first**2):
        return list(formulas)
    errors = _relative_errors(done)
    constants = [_simple(value, error) for value, error in zip(done.x * values, errors * np.abs(done.x * values))]
    exactly = residual(np.array([float(each) for each in constants]) / values)
    if np.sum(exactly**2) > np.sum(done.fun**2) * (1 + 4 * len(values) / len(first)) + 1e-12 * len(first):
        constants = [sympy.Float(value, 17) for value in done.x * values]
    numbers = iter(constants)
    return [replaced(structure, {symbol: next(numbers) for symbol in part}) for structure, part in parts]


def _whole(formula: sympy.Expr) -> sympy.Expr:
    """Constants that are whole numbers to six digits, written as such."""
    near = {each: sympy.Integer(round(float(each))) for each in formula.atoms(sympy.Float) if abs(each) > 0.5}
    return replaced(formula, {each: to for each, to in near.items() if abs(each - to) < 1e-6 * abs(each)})


def _relative_errors(done: Any) -> np.ndarray:
    spare = max(len(done.fun) - len(done.x), 1)
    covariance = np.linalg.pinv(done.jac.T @ done.jac) * np.sum(done.fun**2) / spare
    return np.sqrt(np.maximum(np.diag(covariance), 0))


def _simple(value: float, error: float) -> sympy.Expr:
    """The decimal or fraction of fewest digits within two standard errors, if it is short; else the number itself."""
    for digits in range(1, 4):
        short = float(f"{value:.{digits}g}")
        if abs(short - value) <= max(2 * error, 1e-9 * abs(value)):
            return sympy.Rational(repr(short)) if short == int(short) else sympy.Float(repr(short), digits + 1)
    for below in range(2, 10):
        above = round(value * below)
        if above and abs(above / below - value) <= max(2 * error, 1e-9 * abs(value)) and 2 * error < abs(value) / 100:
            return sympy.Rational(above, below)
    return sympy.Float(value, 17)


def _substeps(right: Callable[[np.ndarray], np.ndarray], starts: np.ndarray, steps: np.ndarray, scale: Any) -> int:
    """As many steps between two points as it takes for twice as many to change nothing."""
    count, coarse = 2, None
    while count <= MOST_SUBSTEPS:
        with np.errstate(all="ignore"):
            fine = integrate(right, starts, steps, count)
        if coarse is not None and np.nanmax(np.abs(fine - coarse) / scale) < 1e-8:
            return count
        count, coarse = 2 * count, fine
    return MOST_SUBSTEPS


def simulation_error(found: Equations, trajectories: Sequence[Trajectory]) -> float:
    """Root mean square distance of simulations from the data, in standard deviations of each state."""
    scale = np.concatenate([each.x for each in trajectories]).std(0) + 1e-300
    squares = []
    for each in trajectories:
        simulated = found.simulate(each.x[0], each.t)
        if len(simulated) < len(each.t):
            return np.inf
        squares.append(np.mean(((simulated - each.x) / scale) ** 2))
    return float(np.sqrt(np.mean(squares)))
