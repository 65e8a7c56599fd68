"""Rational functions: null vectors of [A, -tA], sparse; under noise by weighted elimination."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.clock import Clock, linear_work
from numerate.discover.polynomials import count
from numerate.discover.rounding import simplest
from numerate.discover.sparse import emit, laurent_exponents, polynomial_columns, solve
from numerate.discover.view import View

DEGREES = {  # inputs: degrees above and below, smallest first
    1: ((2, 2), (3, 3), (4, 4), (6, 6)),
    2: ((2, 2), (3, 2), (4, 3)),
    3: ((2, 2), (3, 2)),
    4: ((2, 1), (2, 2), (3, 2)),
    5: ((2, 1), (2, 2), (3, 2)),
}
WIDE_DEGREES = {  # the same where nothing smaller has helped
    1: ((9, 9),),
    2: ((6, 5), (8, 8)),
    3: ((4, 4), (6, 4)),
    4: ((4, 3), (5, 3)),
    5: ((4, 2), (4, 3)),
    6: ((3, 2), (4, 1)),
    7: ((3, 2),),
}
ROOT_DEGREES = {  # of p^2 - q and p in t = p + sqrt(q)
    1: ((8, 4), (12, 6)),
    2: ((6, 3), (10, 3), (10, 5)),
    3: ((6, 3), (8, 3)),
    4: ((5, 2), (6, 1)),
    5: ((4, 2), (5, 1)),
    6: ((4, 1),),
    7: ((3, 1),),
}


def rationals(view: View, clock: Clock, rows: int = 500, wide: bool = False) -> Iterator[ex.Tree]:
    """t or t^2 as a quotient of two sparse polynomials, then with the denominator in one input alone."""
    v = view.head(rows)
    designs = [(a, b, None) for a, b in (WIDE_DEGREES if wide else DEGREES).get(v.k, ((2, 1), (2, 2)))]
    designs += [(4 if v.k < 5 else 3, 2, i) for i in range(v.k)] if 2 < v.k < 7 and not wide else []
    for above, below, only in designs:
        A, trees, _ = polynomial_columns(v.P, above)
        B, under, _ = polynomial_columns(v.P if only is None else v.P[:, [only]], below)
        under = under if only is None else [ex.substitute(t, [ex.var(only)]) for t in under]
        yield from _quotients(view, Columns(A, trees), Columns(B, under), clock, rows)


def rationals_with(view: View, functions: Sequence[ex.Tree], clock: Clock, rows: int = 500) -> Iterator[ex.Tree]:
    """Quotients of polynomials in the inputs and a function or two of them."""
    v = view.head(rows)
    with np.errstate(all="ignore"):
        values = [ex.column(f, v.P) for f in functions]
    if not all(np.isfinite(f).all() for f in values):
        return
    P = np.concatenate([v.P, np.stack(values, 1)], 1)
    parts = [*v.variables, *functions]
    A, trees, _ = polynomial_columns(P, 2)
    trees = [ex.substitute(t, parts) for t in trees]
    yield from _quotients(view, Columns(A, trees), Columns(A, trees), clock, rows, ("id", "sq", "cos", "tan", "log"))


@dataclass(frozen=True)
class Columns:
    A: np.ndarray
    trees: Sequence[ex.Tree]


def _quotients(
    view: View, above: Columns, below: Columns, clock: Clock, rows: int, names: Sequence[str] = ("id", "sq")
) -> Iterator[ex.Tree]:
    if above.A.shape[1] + below.A.shape[1] > 0.7 * min(rows, len(view.t)):
        return
    for name in names:
        clock.spend(3 * linear_work(min(rows, len(view.t)), above.A.shape[1] + below.A.shape[1]))
        outer = view.outer(name)
        if outer is None:
            continue
        t = outer.t[:rows]
        tree = noisy_quotient(above, below, t, outer.w[:rows]) if view.noise else quotient(above, below, t)
        if tree is not None:
            yield outer.lift(tree)


def quotient(above: Columns, below: Columns, t: np.ndarray) -> ex.Tree | None:
    """t = (sum a m) / (sum b m) over given columns m, exactly, or None."""
    row = 1 / (np.median(np.abs(t)) + np.abs(t))  # near a pole a few rows must not decide alone
    W = np.concatenate([above.A, -t[:, None] * below.A], 1) * row[:, None]
    norms = np.linalg.norm(W, axis=0) + 1e-300
    if not np.isfinite(norms).all():
        return None
    s, V = np.linalg.svd(np.linalg.qr(W / norms, mode="r"))[1:]
    null = int(np.sum(s < 1e-10 * s[0]))
    p, trees = above.A.shape[1], [*above.trees, *below.trees]
    columns = sparsest(V[-null:], [ex.size(tree) for tree in trees], p) if 0 < null <= 60 else None
    if columns is None or len(columns) > 16:
        return None
    c = np.linalg.svd(W[:, columns] / norms[columns], full_matrices=False)[2][-1] / norms[columns]
    return _fraction(
        [(v, trees[j]) for v, j in zip(c, columns) if j < p], [(v, trees[j]) for v, j in zip(c, columns) if j >= p]
    )


def sparsest(N: np.ndarray, sizes: Sequence[int], p: int) -> list[int] | None:
    """The support of the simplest row among a few echelon forms of the null space."""
    null, width = N.shape
    best: tuple[float, list[int]] | None = None
    first = np.argsort(-np.linalg.norm(N, axis=0))
    for trial in range(1 + min(null, 6)):
        order = first if trial == 0 else np.random.default_rng(trial).permutation(width)
        for row in _echelon(N.copy(), order):
            support = [int(j) for j in np.where(np.abs(row) > 1e-6 * np.abs(row).max())[0]]
            if not any(j >= p for j in support) or not any(j < p for j in support):
                continue
            cost = sum(sizes[j] + 1 for j in support)
            if best is None or cost < best[0]:
                best = (cost, support)
    return None if best is None else best[1]


def _echelon(M: np.ndarray, order: np.ndarray) -> np.ndarray:
    done = 0
    for j in order:
        if done == len(M):
            break
        i = done + int(np.argmax(np.abs(M[done:, j])))
        if abs(M[i, j]) < 1e-6:
            continue
        M[[done, i]] = M[[i, done]]
        M[done] /= M[done, j]
        others = np.arange(len(M)) != done
        M[others] -= np.outer(M[others, j], M[done])
        done += 1
    return M


Terms = list[tuple[float, ex.Tree]]


def _fraction(above: Terms, below: Terms) -> ex.Tree:
    """The quotient, normalised by the term below that leaves the most simple constants."""

    def plain(lead: float) -> int:
        return sum(simplest(v / lead, 1e-9 * abs(v / lead)) is not None for v, _ in [*above, *below])

    i = max(range(len(below)), key=lambda i: plain(below[i][0])) if len(below) <= 6 else 0
    lead, rest = below[i][0], below[:i] + below[i + 1 :]
    num = ex.linear([v / lead for v, _ in above], [t for _, t in above])
    den = ex.add(below[i][1], *[const_times(v / lead, t) for v, t in rest])
    return ex.mul(num, ex.power(den, -1))


def const_times(value: float, tree: ex.Tree) -> ex.Tree:
    return ex.const(value) if ex.is_one(tree) else ex.mul(ex.const(value), tree)


def noisy_quotient(above: Columns, below: Columns, t: np.ndarray, weight: np.ndarray) -> ex.Tree | None:
    """t = sum a m - sum b t m by elimination with Sanathanan–Koerner weights; the first column below is one."""
    p, trees = above.A.shape[1], [*above.trees, *below.trees[1:]]
    B = below.A[:, 1:]
    W = np.concatenate([above.A, -t[:, None] * B], 1)
    w, keep = weight.copy(), list(range(W.shape[1]))
    c = np.zeros(W.shape[1])
    for _ in range(2 * W.shape[1]):
        weighted = W[:, keep] * w[:, None]
        norms = np.linalg.norm(weighted, axis=0) + 1e-300
        Q = weighted / norms
        try:
            G = np.linalg.inv(Q.T @ Q + 1e-11 * np.eye(len(keep)))
        except np.linalg.LinAlgError:
            return None
        b = G @ (Q.T @ (t * w))
        r = t * w - Q @ b
        value = b**2 / np.diag(G) / (r @ r / max(len(t) - len(keep), 1) + 1e-300)
        c[:] = 0.0
        c[keep] = b / norms
        den = 1 + B @ c[p:]
        if (den > 0).all():
            w = weight / den
        j = int(np.argmin(value))
        if value[j] > 14 or len(keep) <= 2:
            break
        keep.pop(j)
    num = [(c[j], trees[j]) for j in keep if j < p]
    den = [(c[j], trees[j]) for j in keep if j >= p]
    if len(keep) > 8 or not num or not den:
        return None
    return _fraction(num, [(1.0, ex.ONE), *den])


def roots_of_quadratics(view: View, clock: Clock, rows: int = 500, wide: bool = False) -> Iterator[ex.Tree]:
    """t = p + s sqrt(q) with sparse polynomials p and q, from t^2 - 2 p t + (p^2 - q) = 0; q may have poles if wide."""
    k = view.k
    for both, alone in ROOT_DEGREES.get(k, ()) if wide else ((2, 1), (4, 2)):
        if count(k, both) + count(k, alone) + 2 > 0.7 * min(rows, len(view.t)):
            continue
        A, trees, _ = polynomial_columns(view.P[:rows], both)
        yield from _roots(view, Columns(A, trees), alone, max(both, {1: 8, 2: 5, 3: 4}.get(k, 3)), clock, rows)
    for both, alone in ((2, 1), (4, 2)) if wide and k > 1 else ():
        rows = min(len(view.t), 900)
        columns = _with_poles(view.P[:rows], both, int(0.65 * rows) - count(k, alone))
        if columns is not None:
            yield from _roots(view, columns, alone, None, clock, rows)


def _with_poles(P: np.ndarray, degree: int, most: int) -> Columns | None:
    """A polynomial and as many monomials with negative powers as there is room for."""
    if count(P.shape[1], degree) + 1 >= most:
        return None
    A, trees, _ = polynomial_columns(P, degree)
    V = [ex.var(i) for i in range(P.shape[1])]
    for cost in (4, 3, 2):
        poles = [e for e in laurent_exponents(P.shape[1], cost, (-2, -1, 1, 2)) if min(e) < 0]
        if len(trees) + len(poles) < most:
            extra = [ex.monomial(V, e) for e in poles]
            A = np.concatenate([A, np.stack([ex.column(t, P) for t in extra], 1)], 1)
            return Columns(A, [*trees, *extra]) if np.isfinite(A).all() else None
    return None


def _roots(view: View, both: Columns, alone: int, degree: int | None, clock: Clock, rows: int) -> Iterator[ex.Tree]:
    """p^2 - q from the columns ``both``, p of degree ``alone``; q of a degree, or from the same columns."""
    v = view.head(rows)
    A = both.A
    B, trees, _ = polynomial_columns(v.P, alone)
    if A.shape[1] + B.shape[1] > 0.7 * len(v.t):
        return
    clock.spend(3 * linear_work(len(v.t), A.shape[1] + B.shape[1]))
    c = solve(np.concatenate([A, v.t[:, None] * B], 1), v.t**2)
    r = v.t**2 - A @ c[: A.shape[1]] - v.t * (B @ c[A.shape[1] :])
    if np.sqrt(np.mean(r**2)) > 1e-9 * np.sqrt(np.mean(v.t**4)):
        return
    b = c[A.shape[1] :] / 2
    keep = [j for j in range(len(b)) if abs(b[j]) * np.abs(B[:, j]).max() > 1e-6 * np.abs(v.t).max()]
    rest = view.minus(ex.linear(b[keep], [trees[j] for j in keep])) if keep else view
    for m in (ex.ONE, *rest.variables):  # sqrt(q) may have a factor that changes sign
        signed = rest.over(m)
        square = signed.outer("sq") if signed.usable and signed.one_sign else None
        if square is not None:
            under = both if degree is None else Columns(*polynomial_columns(square.P[:rows], degree)[:2])
            tree = emit(square, under.A, under.trees, rows) if under.A.shape[1] < 0.7 * len(under.A) else None
            if tree is not None:
                yield tree
