"""One factor of a target of both signs: t = f(x_i) H(the other inputs)."""

from itertools import combinations

import numpy as np

from numerate.discover import expressions as ex
from numerate.discover import polynomials as poly
from numerate.discover.view import View


def candidates(view: View) -> list[tuple[ex.Tree, list[int]]]:
    """Factors with the inputs they use up."""
    V, pos = view.variables, view.positive
    out: list[tuple[ex.Tree, list[int]]] = [(V[i], [i]) for i in range(view.k) if not pos[i]]
    args = [(x, [i]) for i, x in enumerate(V)]
    minus = ex.fixed(-1.0)
    for i, j in combinations(range(view.k), 2):
        args.append((ex.add(V[i], ex.mul(minus, V[j])), [i, j]))
        args.append((ex.mul(V[i], V[j]), [i, j]))
    out += [(a, used) for a, used in args if a[0] == "add"]
    return out + [((name, a), used) for a, used in args for name in ("sin", "cos")]


def factors(view: View, rows: int = 500) -> list[tuple[ex.Tree, list[int]]]:
    """Factors after whose division the target is a smooth function of the other inputs alone: (factor, others)."""
    v = view.head(rows)
    t = v.t * v.w
    pos = v.positive
    V = np.where(pos, np.log(np.abs(v.P) + 1e-300), v.P)
    whole = poly.smooth_residual(V, t, poly.best_degree(v.k, len(t) // 4, 7))[0]
    found = []
    for tree, used in candidates(v):
        others = [i for i in range(v.k) if i not in used]
        if not others:
            continue
        f = ex.column(tree, v.P)
        level = poly.smooth_residual(V[:, others], v.t / f, poly.best_degree(len(others), len(t) // 5, 8), f * v.w)[0]
        if level < min(0.3 * np.std(t), 0.6 * whole + 1e-12 * v.scale):
            found.append((level, tree, others))
    return [(tree, others) for _, tree, others in sorted(found, key=lambda f: f[0])]
