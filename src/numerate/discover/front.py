"""The monomial in front: inputs that enter as a power and in no other way, found by choosing the few that do not."""

from fractions import Fraction

import numpy as np

from numerate.discover import polynomials as poly
from numerate.discover.clock import check_time
from numerate.discover.groups import Groups
from numerate.discover.index import fraction
from numerate.discover.view import View

DEGREE = {1: 9, 2: 8, 3: 6}


def find_front(view: View, rows: int = 500) -> Groups | None:
    """t = x^a H(x_R) with R of at most three inputs, grown one by one; None if no such R does."""
    v = view.head(rows)
    pos = v.positive
    if v.k < 3 or pos.sum() < 1:
        return None
    y = v.t
    Z = np.where(pos, np.log(np.abs(v.P) + 1e-300), 0.0)
    Z = Z - Z.mean(0)
    chosen: list[int] = []
    a, error = _exponents(Z, y, [j for j in range(v.k) if pos[j]], np.ones((len(y), 1)))
    errors = [error]
    best: Groups | None = None
    for r in range(1, min(3, v.k - 1) + 1):
        trials = [_with(v, Z, y, pos, [*chosen, i], DEGREE[r]) for i in range(v.k) if i not in chosen]
        error, i, a = min(trials, key=lambda t: t[0])
        chosen.append(i)
        errors.append(error)
        others = [j for j in range(v.k) if j not in chosen]
        front = [fraction(q, 0.15, (1, 2, 3)) if j in others else Fraction(0) for j, q in enumerate(a)]
        usable = all(pos[others]) and None not in front and all(front[j] for j in others)
        if usable and error < 0.25 and (best is None or error < 0.5 * best.error):
            rows_ = [[Fraction(int(j == i)) for j in range(v.k)] for i in chosen]
            best = Groups(error, front, rows_)  # type: ignore[arg-type]
        if error < 1e-6:
            break
    return best


def _with(v: View, Z: np.ndarray, y: np.ndarray, pos: np.ndarray, chosen: list[int], degree: int):
    """(error, the input added last, exponents) when the chosen inputs enter freely."""
    degree = min(degree, poly.best_degree(len(chosen), len(y) // 4, degree))
    H = poly.columns(poly.standardised(v.P[:, chosen]), poly.exponents(len(chosen), degree))
    free = [j for j in range(v.k) if j not in chosen and pos[j]]
    a, error = _exponents(Z, y, free, np.concatenate([np.ones((len(y), 1)), H], 1))
    return error, chosen[-1], a


def _exponents(Z: np.ndarray, y: np.ndarray, free: list[int], H: np.ndarray) -> tuple[np.ndarray, float]:
    """Exponents a of exp(a . Z) H by variable projection, from zero or from the logarithms of y."""
    t = y / (np.sqrt(np.mean(y**2)) + 1e-300)
    a = np.zeros(Z.shape[1])

    def residual(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        check_time()
        Hw = H * np.exp(np.clip(Z @ a, -30, 30))[:, None]
        Q = np.linalg.qr(Hw / (np.linalg.norm(Hw, axis=0) + 1e-300))[0]
        return t - Q @ (Q.T @ t), Q

    if free and ((y > 0).all() or (y < 0).all()):
        A = np.concatenate([H, Z[:, free]], 1)
        a[free] = np.linalg.lstsq(A, np.log(np.abs(y)), rcond=None)[0][H.shape[1] :]
    r, Q = residual(a)
    damping = 1e-2
    for _ in range(15 if free else 0):
        J = (t - r)[:, None] * Z[:, free]
        J = J - Q @ (Q.T @ J)
        S = J.T @ J
        step = np.linalg.lstsq(S + damping * np.diag(np.diag(S)) + 1e-14 * np.eye(len(free)), J.T @ r, rcond=None)[0]
        a2 = a.copy()
        a2[free] += step
        r2, Q2 = residual(a2)
        if r2 @ r2 < r @ r:
            small = 1 - (r2 @ r2) / (r @ r) < 1e-5
            a, r, Q, damping = a2, r2, Q2, damping / 10
            if small:
                break
        else:
            damping *= 10
            if damping > 1e4:
                break
    return a, float(np.sqrt(r @ r / len(t)))
