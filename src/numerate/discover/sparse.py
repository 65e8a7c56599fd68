"""Sums of few columns: a full least-squares fit from which the columns that do nothing are dropped."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.clock import check_time
from numerate.discover.view import View

HALF = Fraction(1, 2)
ZERO = 1e-7  # of the largest term: smaller ones are rounding
MOST_THINNED = 30
MOST_EXACT, MOST_NOISY = 14, 9


def solve(A: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Least squares with the columns scaled to one length."""
    norms = np.linalg.norm(A, axis=0) + 1e-300
    return np.linalg.lstsq(A / norms, z, rcond=1e-13)[0] / norms


def prune(A: np.ndarray, z: np.ndarray, w: np.ndarray | None = None) -> list[int] | None:
    """The columns of A that z needs: zeros dropped if the fit is exact, else backward elimination. None if too many."""
    W = A if w is None else A * w[:, None]
    target = z if w is None else z * w
    c = solve(W, target)
    r = target - W @ c
    spread = np.std(target) + 1e-300
    if np.sqrt(np.mean(r**2)) > 0.5 * spread or not np.isfinite(c).all():
        return None
    if np.sqrt(np.mean(r**2)) < 1e-7 * spread:
        size = np.abs(c) * np.sqrt(np.mean(W**2, 0))
        keep = [j for j in range(A.shape[1]) if size[j] > ZERO * size.max()]
        c = solve(W[:, keep], target)
        if np.sqrt(np.mean((target - W[:, keep] @ c) ** 2)) < 1e-6 * spread:
            keep = settled(W, target, keep) if len(keep) > MOST_THINNED else keep
            keep = thinned(W, target, keep) if len(keep) <= MOST_THINNED else keep
            return keep if len(keep) <= MOST_EXACT else None
    return eliminate(W, target)


def settled(A: np.ndarray, z: np.ndarray, keep: list[int]) -> list[int]:
    """Zeros dropped again and again while the fit stays exact: among fewer columns more are seen to be zeros."""
    while keep:
        c = solve(A[:, keep], z)
        size = np.abs(c) * np.sqrt(np.mean(A[:, keep] ** 2, 0))
        fewer = [j for j, each in zip(keep, size) if each > ZERO * size.max()]
        left = z - A[:, fewer] @ solve(A[:, fewer], z)
        if len(fewer) == len(keep) or np.linalg.norm(left) > 1e-11 * np.linalg.norm(z):
            break
        keep = fewer
    return keep


def thinned(A: np.ndarray, z: np.ndarray, keep: list[int]) -> list[int]:
    """Columns that depend on each other: drop one after another, largest norm first, as long as the fit stays exact."""
    norms = np.linalg.norm(A[:, keep], axis=0)
    s = np.linalg.svd(np.linalg.qr(A[:, keep] / norms, mode="r"), compute_uv=False)
    if s[-1] > 1e-9 * s[0]:
        return keep
    for j in reversed(list(keep)):
        fewer = [i for i in keep if i != j]
        if fewer and np.linalg.norm(z - A[:, fewer] @ solve(A[:, fewer], z)) < 1e-9 * np.linalg.norm(z):
            keep = fewer
    return keep


def eliminate(A: np.ndarray, z: np.ndarray) -> list[int] | None:
    """Backward elimination: drop the column of smallest t-value while it is within the noise."""
    n = len(z)
    Q = A / (np.linalg.norm(A, axis=0) + 1e-300)
    gram, right, total = Q.T @ Q + 1e-12 * np.eye(A.shape[1]), Q.T @ z, z @ z
    keep = list(range(A.shape[1]))
    while len(keep) > 1:
        try:
            G = np.linalg.inv(gram[np.ix_(keep, keep)])
        except np.linalg.LinAlgError:
            return None
        c = G @ right[keep]
        noise = max(total - c @ right[keep], 1e-14 * total) / max(n - len(keep), 1)
        t = c**2 / np.diag(G) / noise
        j = int(np.argmin(t))
        if t[j] > (12 if len(keep) <= 8 else 100):
            break
        keep.pop(j)
    return keep if len(keep) <= MOST_NOISY else None


def even(A: np.ndarray) -> np.ndarray:
    """Weights under which all rows are equally large: a row near a pole would hide what the others tell apart."""
    w = 1 / np.linalg.norm(A / (np.linalg.norm(A, axis=0) + 1e-300), axis=1)
    return w / w.max()


def emit(view: View, A: np.ndarray, trees: Sequence[ex.Tree], rows: int) -> ex.Tree | None:
    """The pruned sum of the columns as a formula for y."""
    v = view.head(rows)
    w = np.minimum(v.w, np.quantile(v.w, 0.98))
    keep = prune(A, v.t, w / w.mean())
    if keep is None and not view.noise:
        w = even(A)
        keep = prune(A, v.t, w)
    if keep is None:
        return None
    W = A[:, keep] * w[:, None]
    return view.lift(ex.linear(solve(W, v.t * w), [trees[j] for j in keep]))


def laurent_exponents(k: int, cost: float, exps: Sequence) -> list[tuple]:
    """Exponent vectors with total cost (a half counts one and a half) up to ``cost``, simplest first."""

    def go(j: int, left: float) -> Iterator[tuple]:
        if j == k:
            check_time()
            yield ()
            return
        for q in (0, *exps):
            cost_q = 1.5 if isinstance(q, Fraction) else abs(q)
            if cost_q <= left:
                for rest in go(j + 1, left - cost_q):
                    yield (q, *rest)

    def price(e: tuple) -> tuple[float, int]:
        check_time()
        return sum(1.5 if isinstance(q, Fraction) else abs(q) for q in e), sum(q < 0 for q in e)

    return sorted((e for e in go(0, cost) if any(e)), key=price)


def polynomial_columns(P: np.ndarray, degree: int) -> tuple[np.ndarray, list[ex.Tree], list[int]]:
    """Ones and all monomials up to the degree, their trees and total degrees."""
    exps = poly.exponents(P.shape[1], degree)
    variables = [ex.var(i) for i in range(P.shape[1])]
    A = np.concatenate([np.ones((len(P), 1)), poly.columns(P, exps)], 1)
    return A, [ex.ONE] + [ex.monomial(variables, e) for e in exps], [0] + [sum(e) for e in exps]
