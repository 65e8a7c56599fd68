"""Pairs of inputs that enter by their sum or difference only."""

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.view import View


def find_differences(view: View, rows: int = 1000) -> list[tuple[int, int, float]]:
    """(j, i, s): x_i enters only in x_j + s x_i. A free polynomial that knows only the combination must be as good."""
    v = view.head(rows)
    if v.k < 2:
        return []
    t = v.t * v.w
    degree = poly.best_degree(v.k, len(t) // 3, 7)
    full = poly.smooth_residual(v.P, t, degree)[0]
    if not 1e-9 * np.std(t) < full < 0.3 * np.std(t):
        return []
    out, used = [], set()
    for sign in (-1.0, 1.0):
        for i in range(v.k):
            for j in range(i):
                if {i, j} & used:
                    continue
                V = np.delete(v.P, i, 1)
                V[:, j] = v.P[:, j] + sign * v.P[:, i]
                if poly.smooth_residual(V, t, degree)[0] < 1.03 * full:
                    out.append((j, i, sign))
                    used |= {i, j}
    return out


def apply_differences(view: View, pairs: list[tuple[int, int, float]]) -> View:
    """The view whose inputs are the untouched ones, then the combinations."""
    used = {i for pair in pairs for i in pair[:2]}
    rest = [x for i, x in enumerate(view.variables) if i not in used]
    return view.of(rest + [ex.add(ex.var(j), ex.mul(ex.fixed(s), ex.var(i))) for j, i, s in pairs])
