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
    columns = len(t) // 4
    full = poly.smooth_residual(v.P, v.t, poly.best_degree(v.k, columns, 9), v.w)[0]
    if full < 1e-9 * np.std(t):
        return []
    same, more = poly.best_degree(v.k, columns, 9), poly.best_degree(v.k - 1, columns, 16)
    out: list[tuple[int, int, float]] = []
    levels = []
    for sign in (-1.0, 1.0):
        for i in range(v.k):
            for j in range(i):
                V = np.delete(v.P, i, 1)
                V[:, j] = v.P[:, j] + sign * v.P[:, i]
                level = poly.smooth_residual(V, v.t, same, v.w)[0]
                if level > 1.03 * full and more > same:
                    level = poly.smooth_residual(V, v.t, more, v.w)[0] if level < 2 * full else level
                    level = level if level < 0.8 * full else np.inf
                if level < min(1.03 * full, 0.3 * np.std(t)):
                    levels.append((level, j, i, sign))
    for _, j, i, sign in sorted(levels):
        if not any({i, j} & {a, b} for a, b, _ in out):
            out.append((j, i, sign))
    return out


def apply_differences(view: View, pairs: list[tuple[int, int, float]]) -> View:
    """The view whose inputs are the untouched ones, then the combinations."""
    used = {i for pair in pairs for i in pair[:2]}
    rest = [x for i, x in enumerate(view.variables) if i not in used]
    return view.of(rest + [ex.add(ex.var(j), ex.mul(ex.fixed(s), ex.var(i))) for j, i, s in pairs])
