"""Which inputs the target depends on: a table often has columns that have nothing to do with the law."""

import numpy as np
from scipy.stats import f as f_distribution

from numerate.discover import expressions as ex
from numerate.discover.stepwise import leftover
from numerate.discover.view import View

CHANCE = 1e-4  # of an idle input being taken for a relevant one, in each chart
ROUNDS = 4
FEWEST = 1.5  # rows for each column of the surface


def relevant_inputs(view: View, most_rows: int = 2000) -> list[int]:
    """The inputs whose columns a free surface needs, by an F test for each; all of them where that cannot be told.

    The surface has powers of every input and products of every two. It is fitted to t and, for a target of one sign, to
    log |t|; an input counts if either needs it. Then to what a sum of features of these inputs leaves of t, where weaker
    inputs show, until there are no more.
    """
    v = view.head(most_rows)
    A, owners = surface(v.P)
    if A.shape[1] * FEWEST > len(A):
        return list(range(v.k))
    targets = [v.t] + ([np.log(np.abs(v.t))] if v.one_sign else [])
    found = set().union(*[_needed(A, owners, t) for t in targets])
    for _ in range(ROUNDS if found else 0):
        rest = leftover(v.of([ex.var(i) for i in sorted(found)]))
        more = _needed(A, owners, rest) - found
        if not more:
            break
        found |= more
    return sorted(found) if found else list(range(v.k))


def surface(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the surface and the inputs in each; P: (n, k) -> (n, p), (p, k) of truth values.

    Inputs are taken by their ranks, so that no distribution is too skewed. The fourth power stays out where there are
    few rows.
    """
    n, k = P.shape
    U = 2 * (np.argsort(np.argsort(P, axis=0), axis=0) + 0.5) / n - 1
    degree = next((d for d in (4, 3, 2) if FEWEST * (1 + d * k + k * (k - 1) // 2) <= n), 1)
    exponents = [np.zeros(k, int)] + [d * np.eye(k, dtype=int)[i] for d in range(1, degree + 1) for i in range(k)]
    exponents += [np.eye(k, dtype=int)[i] + np.eye(k, dtype=int)[j] for i in range(k) for j in range(i)]
    columns = [np.prod(U[:, e > 0] ** e[e > 0], axis=1) for e in exponents]
    return np.stack(columns, 1), np.stack(exponents) > 0


def _needed(A: np.ndarray, owners: np.ndarray, t: np.ndarray) -> set[int]:
    """The inputs whose columns, taken out together, leave significantly more of t."""
    n, p = A.shape
    inverse = np.linalg.pinv(A.T @ A, hermitian=True)
    c = inverse @ (A.T @ t)
    r = t - A @ c
    noise = max(r @ r, 1e-24 * (t @ t)) / (n - p)
    needed = set()
    for i in range(owners.shape[1]):
        mine = np.where(owners[:, i])[0]
        gain = c[mine] @ np.linalg.solve(inverse[np.ix_(mine, mine)], c[mine])
        if f_distribution.sf(gain / len(mine) / noise, len(mine), n - p) < CHANCE:
            needed.add(i)
    return needed
