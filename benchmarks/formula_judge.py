"""Is a formula the true one? The same rule for every method.

exact: on the data's range stretched by 30 % the formula and the truth agree to 1e-9 of the truth's root mean square, or
       their ratio or difference is constant to that (SRBench's definition, numerically).
structure: the same after the formula's own floating constants are refitted to the noise-free truth.
symbolic: sympy simplifies the difference to a constant, or the ratio to one (within a time limit).
"""

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import sympy as sp
from scipy.optimize import least_squares

from benchmarks.formula_problems import Problem, values

if TYPE_CHECKING:
    from numerate.discover.formula import Formula


@dataclass
class Verdict:
    exact: bool
    structure: bool
    symbolic: bool


def judge(formula: sp.Expr, problem: Problem, tolerance: float = 1e-9) -> Verdict:
    X = np.concatenate([problem.outside, problem.X[:200]])
    t = values(problem.truth, X)
    X, t = X[np.isfinite(t)], t[np.isfinite(t)]
    try:
        exact = _same(values(formula, X), t, tolerance)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError, NameError, KeyError):
        return Verdict(False, False, False)  # a formula that cannot be evaluated
    structure = exact or _same_after_refit(formula, X, t, max(tolerance, 1e-7))
    return Verdict(exact, structure, exact and _symbolic(formula, problem.truth))


def _same(f: np.ndarray, t: np.ndarray, tolerance: float) -> bool:
    ok = np.isfinite(f)
    if ok.mean() < 0.95:
        return False
    f, t = f[ok], t[ok]
    rms = np.sqrt(np.mean(t**2)) + 1e-300
    if np.sqrt(np.mean((f - t) ** 2)) < tolerance * rms:
        return True
    if np.std(t) > 1e-9 * rms and np.std(f - t) < tolerance * np.std(t):
        return True
    ratio = f[t != 0] / t[t != 0]
    m = np.median(ratio) if len(ratio) > 10 else 0.0
    return bool(abs(m) > 1e-6 and np.sqrt(np.mean((f / m - t) ** 2)) < tolerance * rms)


def _same_after_refit(formula: sp.Expr, X: np.ndarray, t: np.ndarray, tolerance: float) -> bool:
    floats = sorted((a for a in formula.atoms(sp.Float, sp.Rational) if not a.is_Integer), key=float)
    floats += [a for a in formula.atoms(sp.Integer) if abs(int(a)) > 2]
    if not floats or len(floats) > 20:
        return False
    names = sp.symbols(f"c0:{len(floats)}")
    numbers = sp.symbols(f"x0:{X.shape[1]}")
    g = sp.lambdify((names, *numbers), formula.xreplace(dict(zip(floats, names))), "numpy")
    scale = np.sqrt(np.mean(t**2)) + 1e-300

    def residual(c: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            v = np.broadcast_to(np.asarray(g(c, *X.T), complex).real, t.shape) - t
        return np.where(np.isfinite(v), v, 1e3) / scale

    c = np.array([float(v) for v in floats])
    try:
        fit = least_squares(residual, c, x_scale=np.abs(c) + 1e-3, max_nfev=60, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        return False
    return bool(np.sqrt(np.mean(fit.fun**2)) < tolerance)


def _symbolic(formula: sp.Expr, truth: sp.Expr, seconds: int = 4) -> bool:
    def late(*_: object) -> None:
        raise TimeoutError

    positive = {s: sp.Symbol(s.name, positive=True) for s in truth.free_symbols | formula.free_symbols}
    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        a, b = (sp.nsimplify(e, rational=True).xreplace(positive) for e in (formula, truth))
        return bool(sp.simplify(a - b).is_number or sp.simplify(a / b).is_number)
    except Exception:  # sympy may fail in many ways; then it has not confirmed the equality
        return False
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def standard_scores(formula: "Formula", problem: Problem) -> list[float]:
    """(constant - true constant) / standard error of each free constant of a formula of the right form.

    The true constants are those that fit the target without noise, from the same start.
    """
    from numerate.discover import expressions as ex
    from numerate.discover.refit import refit

    values = ex.constants(formula.tree)
    free = dict(formula.constants.values())
    held = {i: v for i, v in enumerate(values) if v not in free}
    fit = refit(formula.tree, problem.X, problem.y, held=held)
    if fit.error > 1e-6:  # rounded constants that are not the true ones
        return []
    scores = [(v - c) / free[v] for v, c in zip(values, ex.constants(fit.tree)) if free.get(v, 0.0) > 0]
    return [float(z) for z in scores]
