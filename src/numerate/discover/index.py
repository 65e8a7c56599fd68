"""Power units with a free link: Buckingham's theorem from data alone.

y = exp(a . z) H(B z),  z = log x,  H a free polynomial of r variables. The coefficients of H are eliminated by variable
projection; a and B are found by Levenberg–Marquardt (:mod:`numerate.loops.least_squares.index`: native code where there
is a compiler, else NumPy). The row space of B, in echelon form and rounded to small fractions, gives the dimensionless
groups, and a the monomial in front. Works for targets of both signs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np

from numerate.discover import polynomials as poly
from numerate.discover.refit import compiled
from numerate.loops.least_squares import index as least_squares

Start = tuple[np.ndarray, np.ndarray]  # a: (d,), B: (r, d)
TOGETHER = 8  # starts in one call: the lanes of a vector


def fit_index(
    Z: np.ndarray,
    y: np.ndarray,
    starts: Sequence[Start],
    degree: int,
    steps: int = 60,
    good: float = 1e-4,
    stop: Callable[[], bool] = lambda: False,
) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """The index model from each start: (relative error, a, B), best first.

    Args:
        Z: (n, d) logarithms of the inputs. y: (n,) targets of any sign.
        starts: pairs of a: (d,) and B: (r, d), all of the same r.
        degree: of the polynomial link.
        steps: at most so many evaluations per start.
        good: no further start is tried once one is as good as this.
        stop: asked before each handful of starts, before each one where there is no compiler.
    """
    optimiser = replace(least_squares.OPTIMISER, evaluations=steps)
    found: list[tuple[float, np.ndarray, np.ndarray]] = []
    fit_starts, together = (
        (least_squares.fit_index_native, TOGETHER) if compiled() else (least_squares.fit_index_numpy, 1)
    )
    for first in range(0, len(starts), together):
        if stop():
            break
        a, B = (np.stack(part) for part in zip(*starts[first : first + together]))
        fit = fit_starts(Z, y, a, B, degree, None, optimiser, threads=1)
        found += [(float(e), a, B) for e, a, B in zip(fit.error, fit.a, fit.B) if np.isfinite(e)]
        if any(f[0] < good for f in found):
            break
    return sorted(found, key=lambda f: f[0])


def gradients(Z: np.ndarray, t: np.ndarray, degree: int) -> np.ndarray:
    """Gradient of a polynomial surrogate at the data: (n, d)."""
    mean, sd = Z.mean(0), Z.std(0) + 1e-12
    U = (Z - mean) / sd
    degree = min(degree, poly.best_degree(Z.shape[1], len(Z) // 2, degree))
    H, slopes = poly.columns_and_slopes(U, poly.exponents(Z.shape[1], degree))
    c = np.linalg.lstsq(np.concatenate([np.ones((len(U), 1)), H], 1), t, rcond=1e-10)[0]
    return np.stack([S @ c[1:] for S in slopes], 1) / sd


def fraction(value: float, tolerance: float, denominators: Sequence[int] = (1, 2, 3)) -> Fraction | None:
    """The fraction of smallest denominator within the tolerance, at most 6 in size; None if there is none."""
    for q in denominators:
        near = round(value * q) / q
        if abs(near - value) < tolerance and abs(near) <= 6:
            return Fraction(near).limit_denominator(q)
    return None


def echelon(
    B: np.ndarray, tolerance: float = 0.03, denominators: Sequence[int] = (1, 2, 3)
) -> tuple[tuple[int, ...], list[list[Fraction]]] | None:
    """The row space of B with an identity at some pivots, rounded: (pivots, rows) of the simplest choice, or None."""
    r, d = B.shape
    best = None
    for pivots in combinations(range(d), r):
        M = B[:, pivots]
        if abs(np.linalg.det(M)) < 1e-3:
            continue
        E = np.linalg.solve(M, B)
        rows = [[fraction(v, tolerance, denominators) for v in row] for row in E]
        if any(v is None for row in rows for v in row):
            continue
        distance = max(abs(float(v) - e) for row, exact in zip(rows, E) for v, e in zip(row, exact))  # type: ignore[arg-type]
        cost = sum(float(abs(v)) * v.denominator for row in rows for v in row) + distance  # type: ignore[union-attr, arg-type]
        if best is None or cost < best[0]:
            best = (cost, pivots, rows)
    return None if best is None else (best[1], best[2])  # type: ignore[return-value]
