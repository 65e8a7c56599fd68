"""Power units with a free link: Buckingham's theorem from data alone.

y = exp(a . z) H(B z),  z = log x,  H a free polynomial of r variables. The coefficients of H are eliminated by variable
projection; a and B are found by Levenberg–Marquardt. The row space of B, in echelon form and rounded to small
fractions, gives the dimensionless groups, and a the monomial in front. Works for targets of both signs.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from numerate.discover import polynomials as poly

Start = tuple[np.ndarray, np.ndarray]  # a: (d,), B: (r, d)


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
        steps: at most so many steps per start.
        good: no further start is tried once one is as good as this.
        stop: asked before each start.
    """
    found = []
    for a, B in starts:
        if stop():
            break
        try:
            found.append(project(Z, y, a, B, degree, steps))
        except (np.linalg.LinAlgError, ValueError):
            continue
        if found[-1][0] < good:
            break
    return sorted(found, key=lambda f: f[0])


def project(
    Z: np.ndarray, y: np.ndarray, a: np.ndarray, B: np.ndarray, degree: int, steps: int = 60
) -> tuple[float, np.ndarray, np.ndarray]:
    """Variable projection from one start: (relative error, a, B)."""
    n, d = Z.shape
    r = len(B)
    exps = poly.exponents(r, degree)
    t = y / (np.sqrt(np.mean(y**2)) + 1e-300)

    def evaluate(a: np.ndarray, B: np.ndarray):
        w = np.exp(np.clip(Z @ a, -30, 30))
        U = Z @ B.T
        span = np.maximum(np.abs(U).max(0), 1e-9)
        H, slopes = poly.columns_and_slopes(U / span, exps)
        Phi = np.concatenate([w[:, None], H * w[:, None]], 1)
        norms = np.linalg.norm(Phi, axis=0) + 1e-300
        Q, R = np.linalg.qr(Phi / norms)
        return t - Q @ (Q.T @ t), (w, span, slopes, norms, Q, R)

    a, B = _normalised(a, B)
    res, kept = evaluate(a, B)
    loss, damping, slow = res @ res, 1e-2, 0
    for _ in range(steps):
        w, span, slopes, norms, Q, R = kept
        c = np.linalg.lstsq(R, Q.T @ t, rcond=1e-12)[0] / norms
        J = [(t - res)[:, None] * Z] + [(w * (slopes[j] @ c[1:]) / span[j])[:, None] * Z for j in range(r)]
        J = np.concatenate(J, 1)
        J -= Q @ (Q.T @ J)
        A, g = J.T @ J, J.T @ res
        for _ in range(6):
            damped = A + damping * (np.diag(np.diag(A)) + 1e-10 * np.trace(A) * np.eye(len(A)))
            step = np.linalg.lstsq(damped, g, rcond=None)[0]
            a2, B2 = _normalised(a + step[:d], B + step[d:].reshape(r, d))
            res2, kept2 = evaluate(a2, B2)
            loss2 = res2 @ res2
            if np.isfinite(loss2) and loss2 < loss:
                break
            damping *= 5
        else:
            break
        gain = 1 - loss2 / loss
        a, B, res, kept, loss, damping = a2, B2, res2, kept2, loss2, max(damping / 5, 1e-9)
        slow = slow + 1 if gain < 1e-3 else 0
        if slow == 3 or loss < 1e-24 * n:
            break
    return float(np.sqrt(loss / n)), a, B


def _normalised(a: np.ndarray, B: np.ndarray) -> Start:
    """Orthonormal rows of B; the part of a inside their span belongs to the link."""
    q = np.linalg.qr(B.T)[0]
    return a - q @ (q.T @ a), q.T


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


def echelon(B: np.ndarray, tolerance: float = 0.03) -> tuple[tuple[int, ...], list[list[Fraction]]] | None:
    """The row space of B with an identity at some pivots, rounded: (pivots, rows) of the simplest choice, or None."""
    r, d = B.shape
    best = None
    for pivots in combinations(range(d), r):
        M = B[:, pivots]
        if abs(np.linalg.det(M)) < 1e-3:
            continue
        E = np.linalg.solve(M, B)
        rows = [[fraction(v, tolerance) for v in row] for row in E]
        if any(v is None for row in rows for v in row):
            continue
        distance = max(abs(float(v) - e) for row, exact in zip(rows, E) for v, e in zip(row, exact))  # type: ignore[arg-type]
        cost = sum(float(abs(v)) * v.denominator for row in rows for v in row) + distance  # type: ignore[union-attr, arg-type]
        if best is None or cost < best[0]:
            best = (cost, pivots, rows)
    return None if best is None else (best[1], best[2])  # type: ignore[return-value]
