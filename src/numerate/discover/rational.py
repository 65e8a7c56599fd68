"""Rational functions: null vectors of [A, -tA], sparse; under noise by weighted elimination."""

from collections.abc import Iterator, Sequence

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover.clock import Clock
from numerate.discover.sparse import polynomial_columns
from numerate.discover.view import View


def rationals(view: View, clock: Clock, noisy: bool, rows: int = 500) -> Iterator[ex.Tree]:
    """t or t^2 as a quotient of two sparse polynomials."""
    v = view.head(rows)
    A, trees, _ = polynomial_columns(v.P, 3 if v.k <= 2 else 2)
    if 2 * A.shape[1] > 0.7 * len(v.t):
        return
    for name in ("id", "sq"):
        clock.check()
        outer = view.outer(name)
        if outer is None:
            continue
        tree = quotient(A, outer.t[:rows], trees, noisy)
        if tree is not None:
            yield outer.lift(tree)


def quotient(A: np.ndarray, t: np.ndarray, trees: Sequence[ex.Tree], noisy: bool) -> ex.Tree | None:
    """t = (sum a m) / (sum b m) over the columns m of A, or None."""
    W = np.concatenate([A, -t[:, None] * A], 1)
    if not np.isfinite(W).all():
        return None
    norms = np.linalg.norm(W, axis=0) + 1e-300
    s, V = np.linalg.svd(W / norms, full_matrices=False)[1:]
    null = int(np.sum(s < 1e-10 * s[0]))
    if null == 0:
        return noisy_quotient(A, t, trees) if noisy else None
    columns = _sparsest(V[-null:], [ex.size(tree) for tree in trees]) if null <= 40 else None
    if columns is None or len(columns) > 14:
        return None
    c = np.linalg.svd(W[:, columns] / norms[columns], full_matrices=False)[2][-1] / norms[columns]
    p = A.shape[1]
    above = [(v, trees[j]) for v, j in zip(c, columns) if j < p]
    below = [(v, trees[j - p]) for v, j in zip(c, columns) if j >= p]
    return _fraction(above, below)


def _sparsest(N: np.ndarray, sizes: Sequence[int]) -> list[int] | None:
    """The support of the simplest row among a few echelon forms of the null space."""
    null, width = N.shape
    p = width // 2
    best: tuple[float, list[int]] | None = None
    first = np.argsort(-np.linalg.norm(N, axis=0))
    for trial in range(1 + min(null, 6)):
        order = first if trial == 0 else np.random.default_rng(trial).permutation(width)
        for row in _echelon(N.copy(), order):
            support = [int(j) for j in np.where(np.abs(row) > 1e-6 * np.abs(row).max())[0]]
            if not any(j >= p for j in support) or not any(j < p for j in support):
                continue
            cost = sum(sizes[j % p] + 1 for j in support)
            if best is None or cost < best[0]:
                best = (cost, support)
    return None if best is None else best[1]


def _echelon(M: np.ndarray, order: Sequence[int]) -> np.ndarray:
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


def _fraction(above: list[tuple[float, ex.Tree]], below: list[tuple[float, ex.Tree]]) -> ex.Tree:
    """The quotient, normalised so that the first term below has no constant."""
    lead = below[0][0]
    num = ex.linear([v / lead for v, _ in above], [t for _, t in above])
    den = ex.add(below[0][1], *[ex.mul(ex.const(v / lead), t) for v, t in below[1:]])
    return ex.mul(num, ex.power(den, -1))


def noisy_quotient(A: np.ndarray, t: np.ndarray, trees: Sequence[ex.Tree]) -> ex.Tree | None:
    """t = sum a m - sum b t m by backward elimination with Sanathanan–Koerner weights; the first column is one."""
    p = A.shape[1]
    W = np.concatenate([A, -t[:, None] * A[:, 1:]], 1)
    w, keep = np.ones(len(t)), list(range(2 * p - 1))
    c = np.zeros(2 * p - 1)
    for _ in range(60):
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
        den = 1 + A[:, 1:] @ c[p:]
        if (den > 0).all():
            w = 1 / den
        j = int(np.argmin(value))
        if value[j] > 14 or len(keep) <= 2:
            break
        keep.pop(j)
    above = [(c[j], trees[j]) for j in keep if j < p]
    below = [(c[j], trees[j - p + 1]) for j in keep if j >= p]
    if len(keep) > 8 or not above or not below:
        return None
    return _fraction(above, [(1.0, ex.ONE), *below])
