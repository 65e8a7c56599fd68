"""Sums of few columns: a full least-squares fit from which the columns that do nothing are dropped."""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.clock import Clock
from numerate.discover.view import View

HALF = Fraction(1, 2)
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
        keep = [j for j in range(A.shape[1]) if size[j] > 1e-7 * size.max()]
        c = solve(W[:, keep], target)
        if np.sqrt(np.mean((target - W[:, keep] @ c) ** 2)) < 1e-6 * spread:
            return keep if len(keep) <= MOST_EXACT else None
    return eliminate(W, target)


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


def emit(view: View, A: np.ndarray, trees: Sequence[ex.Tree], rows: int) -> ex.Tree | None:
    """The pruned sum of the columns as a formula for y."""
    v = view.head(rows)
    w = np.minimum(v.w, np.quantile(v.w, 0.98))
    keep = prune(A, v.t, w / w.mean())
    if keep is None:
        return None
    W = A[:, keep] * w[:, None]
    return view.lift(ex.linear(solve(W, v.t * w), [trees[j] for j in keep]))


def laurent_exponents(k: int, cost: float, exps: Sequence) -> list[tuple]:
    """Exponent vectors with total cost (a half counts one and a half) up to ``cost``, simplest first."""

    def go(j: int, left: float) -> Iterator[tuple]:
        if j == k:
            yield ()
            return
        for q in (0, *exps):
            price = 1.5 if isinstance(q, Fraction) else abs(q)
            if price <= left:
                for rest in go(j + 1, left - price):
                    yield (q, *rest)

    return sorted((e for e in go(0, cost) if any(e)), key=lambda e: sum(abs(float(v)) for v in e))


def polynomial_columns(P: np.ndarray, degree: int) -> tuple[np.ndarray, list[ex.Tree], list[int]]:
    """Ones and all monomials up to the degree, their trees and total degrees."""
    exps = poly.exponents(P.shape[1], degree)
    variables = [ex.var(i) for i in range(P.shape[1])]
    A = np.concatenate([np.ones((len(P), 1)), poly.columns(P, exps)], 1)
    return A, [ex.ONE] + [ex.monomial(variables, e) for e in exps], [0] + [sum(e) for e in exps]


def laurent_sums(view: View, clock: Clock, rows: int = 500) -> Iterator[ex.Tree]:
    """g(t) = sum of monomials with negative powers, and logarithms; positive inputs."""
    v = view.head(rows)
    k, n = v.k, len(v.t)
    if not v.positive.all() or k > 8:
        return
    cost = {1: 5, 2: 4, 3: 4, 4: 3, 5: 3}.get(k, 2)
    exps = laurent_exponents(k, cost, (-2, -1, 1, 2) if k > 2 else (-3, -2, -1, 1, 2, 3))
    if len(exps) >= 0.6 * n:
        return
    logs = np.log(v.P)
    A = np.concatenate([np.ones((n, 1)), np.exp(logs @ np.array(exps, float).T), logs], 1)
    trees = [ex.ONE] + [ex.monomial(v.variables, e) for e in exps] + [("log", x) for x in v.variables]
    for name in ("id", "log", "inv", "sq"):
        clock.check()
        outer = view.outer(name)
        tree = None if outer is None else emit(outer, A, trees, rows)
        if tree is not None:
            yield tree


def polynomial_sums(view: View, clock: Clock, outers: Sequence[str], rows: int = 500) -> Iterator[ex.Tree]:
    """g(t) = a sparse polynomial."""
    v = view.head(rows)
    degree = min({1: 9, 2: 5, 3: 3, 4: 3}.get(v.k, 2), poly.best_degree(v.k, max(len(v.t) // 2, 2), 9))
    A, trees, _ = polynomial_columns(v.P, degree)
    for name in outers:
        clock.check()
        outer = view.outer(name)
        tree = None if outer is None else emit(outer, A, trees, rows)
        if tree is not None:
            yield tree


def extra_functions(k: int) -> Iterator[ex.Tree]:
    """Functions that may multiply or join a polynomial."""
    V = [ex.var(i) for i in range(k)]
    for i in range(k):
        for name in ("cos", "sin", "exp", "log", "tanh", "sqrt"):
            yield (name, V[i])
        for j in range(i + 1, k):
            for name in ("cos", "sin", "exp"):
                yield (name, ex.add(V[i], ex.mul(ex.const(-1.0), V[j])))
                yield (name, ex.mul(V[i], V[j]))
            yield ("sqrt", ex.mul(V[i], V[j]))


def sums_with_function(view: View, clock: Clock, extra: ex.Tree, outers: Sequence[str], rows: int = 500):
    """g(t) = p(x) + q(x) f(x) with one function f; yields formulas, then ends with the columns for a rational."""
    v = view.head(rows)
    with np.errstate(all="ignore"):
        f = ex.column(extra, v.P)
    if not np.isfinite(f).all():
        return
    A, trees, _ = polynomial_columns(v.P, 2 if v.k > 2 else 3)
    A = np.concatenate([A, A * f[:, None]], 1)
    trees = trees + [extra if ex.is_one(t) else ex.mul(t, extra) for t in trees]
    if A.shape[1] > 0.6 * len(f):
        return
    for name in outers:
        clock.check()
        outer = view.outer(name)
        tree = None if outer is None else emit(outer, A, trees, rows)
        if tree is not None:
            yield tree
