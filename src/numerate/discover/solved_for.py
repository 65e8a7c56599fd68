"""Many targets against one span, once more: z = a + sqrt(b), or z = b / a, for each of thousands of targets z.

z^2 - 2 a z lies in the span of the columns of a^2 and b, and a z in that of the columns of b. That span is factorised
once; each target then needs a fit of as many columns as a has. Targets are what outer functions, factors and up to two
terms taken off make of t, so that a formula is found under two or three layers of others.
"""

from collections.abc import Iterator
from itertools import combinations, permutations

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import rational, sparse, wide
from numerate.discover.clock import Clock, linear_work
from numerate.discover.rational import Columns
from numerate.discover.view import View

DEGREES = {1: (3, 8), 2: (3, 6), 3: (2, 5), 4: (2, 4), 5: (1, 4), 6: (1, 3), 7: (1, 3)}  # inputs: of a, of b
QUOTIENT_DEGREES = {2: (3, 5), 3: (3, 4), 4: (2, 4), 5: (2, 4), 6: (1, 3), 7: (1, 3)}
ROWS, TARGETS = 800, 2500
EXACT = 1e-9  # of the length of z^2 or z
EVENLY = 1e-6  # of the size of the terms, by medians
LIKELY = 1e-11  # its square as far as the normal equations know it
MINUS = ex.fixed(-1.0)


def recipes(view: View) -> list[wide.Recipe]:
    """Outer functions of t less up to two inputs, or one product of two, with a factor before or after."""
    V = view.variables
    lines = [t for x in V for t in (x, ex.mul(MINUS, x))]
    pairs = [t for m in combinations(V, 2) for t in (ex.mul(*m), ex.mul(MINUS, *m))]
    two = [ex.add(a, b) for (i, a), (j, b) in combinations(enumerate(lines), 2) if i // 2 != j // 2]
    factors = V + [ex.power(x, -1) for x in V]
    squares = [ex.power(x, q) for x in V for q in (2, -2)]
    out = [wide.Recipe(None, None, name) for name in ("id", "exp", "log", "sq", "inv")]
    out += [wide.Recipe(None, m, name) for m in factors + squares for name in ("id", "exp", "log", "sq", "inv")]
    out += [wide.Recipe(s, None, name) for s in lines + two + pairs for name in ("exp", "inv")]
    out += [wide.Recipe(s, None, "exp", m) for s in lines + two for m in factors]
    out += [wide.Recipe(s, None, "inv", m) for s in lines + two + pairs for m in V]
    out += [wide.Recipe(ex.mul(x, s), x, "inv") for x in V for s in two]
    out += [wide.Recipe(ex.mul(x, s), x, "inv", m) for x in V for s in lines for m in factors]
    return out[:TARGETS]


def below(P: np.ndarray, degree: int, most: int) -> Columns:
    """A polynomial, and quotients of two inputs if there is room."""
    A, trees, _ = sparse.polynomial_columns(P, degree)
    V = [ex.var(i) for i in range(P.shape[1])]
    extra = [ex.power(x, -1) for x in V] + [ex.mul(a, ex.power(b, -1)) for a, b in permutations(V, 2)]
    if len(trees) + len(extra) > most:
        return Columns(A, trees)
    with np.errstate(all="ignore"):
        B = np.stack([ex.column(t, P) for t in extra], 1)
    return Columns(np.concatenate([A, B], 1), [*trees, *extra]) if np.isfinite(B).all() else Columns(A, trees)


def solved_fits(view: View, clock: Clock, allowed: frozenset[str] | None, rows: int = ROWS) -> Iterator[ex.Tree]:
    """Formulas of both kinds that are exact."""
    n = min(rows, len(view.t))
    if n < 60 or view.k not in DEGREES:
        return
    made = recipes(view)
    targets = wide.Targets.of(view, made, rows)
    clock.spend(5e-5 * len(made))
    kinds = [(QUOTIENT_DEGREES, _quotients)]
    if allowed is None or "sqrt" in allowed:
        kinds.insert(0, (DEGREES, _roots))
    for degrees, kind in kinds:
        if view.k in degrees:
            above, under = degrees[view.k]
            A, B = Columns(*sparse.polynomial_columns(view.P[:rows], above)[:2]), below(view.P[:rows], under, n // 2)
            if len(A.trees) + len(B.trees) < 0.6 * n:
                yield from kind(targets, A, B, clock)


def _basis(B: Columns) -> np.ndarray:
    return np.linalg.qr(B.A / (np.linalg.norm(B.A, axis=0) + 1e-300))[0]


def _columns(z: np.ndarray, A: Columns, *extra: np.ndarray) -> np.ndarray:
    """The columns of A times z, and extra ones, all of unit length."""
    W = np.concatenate([z[:, None] * A.A, *[column[:, None] for column in extra]], 1)
    return W / (np.linalg.norm(W, axis=0) + 1e-300)


def in_span(Q: np.ndarray, W: np.ndarray, last: bool = False) -> bool:
    """Whether some combination of the columns W lies in the span Q; the last column is part of it if ``last``.

    It must hold on rows of every size, not only on a few large ones.
    """
    F = W - Q @ (Q.T @ W)
    G = F.T @ F
    if not np.isfinite(G).all():
        return False
    values, vectors = np.linalg.eigh(G)
    if values[0] > LIKELY:
        return False
    c = np.append(np.linalg.lstsq(F[:, :-1], -F[:, -1], rcond=1e-11)[0], 1.0) if last else vectors[:, 0]
    left, size = np.abs(F @ c), np.sqrt((W * c) ** 2 @ np.ones(len(c)))
    return bool(
        np.sqrt(np.mean(left**2)) < EXACT * np.sqrt(np.mean(size**2)) and np.median(left) < EVENLY * np.median(size)
    )


def _spend(clock: Clock, Q: np.ndarray, A: Columns) -> None:
    clock.spend(1.2e-10 * Q.size * (len(A.trees) + 1) + linear_work(len(Q), len(A.trees)))


def _roots(targets: wide.Targets, A: Columns, B: Columns, clock: Clock) -> Iterator[ex.Tree]:
    """z = a + sqrt(b) with a from the columns A, a^2 and b from B."""
    Q = _basis(B)
    for i, recipe in enumerate(targets.recipes):
        _spend(clock, Q, A)
        z = targets.T[:, i]
        if not in_span(Q, _columns(z, A, z * z), last=True):
            continue
        outer = wide.made_by(targets.view, recipe)
        if outer is not None:
            yield from _root(outer, A, B)


def _root(view: View, A: Columns, B: Columns) -> Iterator[ex.Tree]:
    n = len(A.A)
    z = view.t[:n]
    c = sparse.solve(np.concatenate([B.A, z[:, None] * A.A], 1), z * z)[B.A.shape[1] :] / 2
    keep = [j for j in range(len(c)) if abs(c[j]) * np.abs(A.A[:, j]).max() > 1e-6 * np.abs(z).max()]
    rest = view.minus(ex.linear(c[keep], [A.trees[j] for j in keep])) if keep else view
    V = view.variables
    signs = [ex.ONE, *V, *[ex.add(a, ex.mul(s, b)) for a, b in combinations(V, 2) for s in (MINUS, ex.ONE)]]
    for m in signs:  # sqrt(b) may have a factor that changes sign
        square = rest.over(m).outer("sq")
        tree = sparse.emit(square, B.A, B.trees, n) if square is not None and square.usable else None
        if tree is not None:
            yield tree


def _quotients(targets: wide.Targets, A: Columns, B: Columns, clock: Clock) -> Iterator[ex.Tree]:
    """z = b / a with a from the columns A and b from B."""
    Q = _basis(B)
    for i, recipe in enumerate(targets.recipes):
        _spend(clock, Q, A)
        if not in_span(Q, _columns(targets.T[:, i], A)):
            continue
        outer = wide.made_by(targets.view, recipe)
        tree = None if outer is None else rational.quotient(B, A, outer.t[: len(Q)])
        if outer is not None and tree is not None:
            yield outer.lift(tree)
