"""Laws that go from one input to another: y = a + (b - a) f(the others), as cooling, infiltration and retention do.

(y - a) / (b - a) then depends on neither a nor b. A free polynomial of the other inputs says whether it does.
"""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.clock import Clock, linear_work
from numerate.discover.merges import coordinates
from numerate.discover.view import View

ROWS, COLUMNS = 400, 60
WELL = 0.05  # of the size of y: what a polynomial of the other inputs may leave
MUCH = 0.5  # of what one of all inputs leaves, or less


def mixed_inputs(view: View, clock: Clock) -> Iterator[View]:
    """The views of f and of 1 - f, for the two inputs that leave a polynomial of the others the least."""
    if view.k < 3:
        return
    clock.spend(view.k**2 / 2 * linear_work(ROWS, COLUMNS))
    most = max(1.5 * view.noise, min(WELL * view.scale, MUCH * unexplained(view)))
    found = []
    for i, j in combinations(range(view.k), 2):
        rest = share(view, i, j)
        if rest.usable and (left := unexplained(rest)) < most:
            found.append((left, i, j))
    for _, i, j in sorted(found)[:1]:
        yield share(view, i, j)
        yield share(view, j, i)


def share(view: View, i: int, j: int) -> View:
    """(t - x_i) / (x_j - x_i) as a function of the other inputs."""
    a, b = ex.var(i), ex.var(j)
    others = [ex.var(q) for q in range(view.k) if q not in (i, j)]
    return view.minus(a).over(ex.add(b, ex.mul(ex.fixed(-1.0), a))).of(others)


def unexplained(view: View) -> float:
    """What a free polynomial leaves of the target as it weighs in y, each row left out in turn."""
    v = view.head(ROWS)
    exps = poly.exponents(v.k, poly.best_degree(v.k, min(len(v.t) // 4, COLUMNS), 6))
    middle, half = (v.P.max(0) + v.P.min(0)) / 2, np.ptp(v.P, axis=0) / 2 + 1e-300
    return min(_left_out(v, U, exps) for U in ((v.P - middle) / half, coordinates(v.P)[0]))


def _left_out(v: View, U: np.ndarray, exps: tuple[tuple[int, ...], ...]) -> float:
    A = np.concatenate([np.ones((len(U), 1)), poly.columns(U, exps)], 1) * v.w[:, None]
    Q = np.linalg.qr(A)[0]
    z = v.t * v.w
    r = (z - Q @ (Q.T @ z)) / np.maximum(1 - np.sum(Q**2, 1), 0.05)
    return float(np.sqrt(np.mean(r**2)))
