"""Which inputs the target depends on: a table often has columns that have nothing to do with the law."""

from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.stats import f as f_distribution

from numerate.discover import expressions as ex
from numerate.discover.clock import check_time
from numerate.discover.stepwise import leftover
from numerate.discover.view import View

CHANCE = 1e-3  # of an idle input being taken for a relevant one, in each test: one too many does little harm
ROUNDS = 4
FEWEST = 2.0  # rows for each column of the surface


def relevant_inputs(view: View, most_rows: int = 2000) -> list[int]:
    """The inputs whose columns a free surface of t needs, or of log |t|; all of them where that cannot be told."""
    v = view.head(most_rows)
    found = _relevant(v)
    if v.one_sign:
        found |= _relevant(replace(v, t=np.log(np.abs(v.t))))
    return sorted(found) if found else list(range(v.k))


def _relevant(v: View) -> set[int]:
    """Weaker inputs show in what a sum of features of the first ones leaves, and factors of a signed sum in their
    products with that sum: these are tested in turn, until there are no more.
    """
    U = ranks(v.P)
    surfaces = [powers(U), powers_and_products(U)]
    found = _needed(v.t, surfaces)
    for _ in range(ROUNDS if found else 0):
        rest = leftover(v.of([ex.var(i) for i in sorted(found)]))
        more = _needed(rest, [*surfaces, scaled_powers(U, v.t - rest)]) - found
        if not more:
            break
        found |= more
    return found


def ranks(P: np.ndarray) -> np.ndarray:
    """Each column by the ranks of its values, from -1 to 1: no distribution is too skewed."""
    return 2 * (np.argsort(np.argsort(P, axis=0), axis=0) + 0.5) / len(P) - 1


Surface = tuple[np.ndarray, np.ndarray]  # (n, p) columns; (p,) the inputs in each, as bits


def powers(U: np.ndarray) -> Surface:
    """One, and the first three powers of every input."""
    n, k = U.shape
    owners = [0, *[1 << i for i in range(k)] * 3]
    return np.concatenate([np.ones((n, 1)), U, U**2, U**3], 1), np.array(owners, object)


def powers_and_products(U: np.ndarray) -> Surface:
    """These, and the products of every two inputs."""
    A, owners = powers(U)
    pairs = list(combinations(range(U.shape[1]), 2))
    products = [U[:, i] * U[:, j] for i, j in pairs]
    return np.column_stack([A, *products]), np.append(owners, [1 << i | 1 << j for i, j in pairs])


def scaled_powers(U: np.ndarray, g: np.ndarray) -> Surface:
    """The powers, and the first two of every input times g."""
    A, owners = powers(U)
    k = U.shape[1]
    more = np.column_stack([g, U * g[:, None], U**2 * g[:, None]])
    return np.concatenate([A, more], 1), np.append(owners, [0, *[1 << i for i in range(k)] * 2])


def _needed(t: np.ndarray, surfaces: list[Surface]) -> set[int]:
    """The inputs that one of the surfaces needs, of those surfaces that have rows enough."""
    return set().union(*[_significant(A, owners, t) for A, owners in surfaces if FEWEST * A.shape[1] <= len(A)])


def _significant(A: np.ndarray, owners: np.ndarray, t: np.ndarray) -> set[int]:
    """The inputs whose columns have coefficients that chance does not explain.

    A Wald test with White's standard errors (HC3): what the surface leaves may be larger in some rows than in others.
    """
    check_time()
    n, p = A.shape
    A = A / (np.linalg.norm(A, axis=0) + 1e-300)
    solve = np.linalg.pinv(A.T @ A, rcond=1e-13, hermitian=True) @ A.T  # (p, n): a tenth of the time of pinv(A)
    c = solve @ t
    leverage = np.minimum(np.einsum("ij,ji->i", A, solve), 0.99)
    r = (t - A @ c) / (1 - leverage)
    covariance = (solve * r**2) @ solve.T
    needed = set()
    for i in range(max(owners).bit_length()):
        mine = np.array([j for j in range(p) if owners[j] >> i & 1])
        gain = c[mine] @ np.linalg.pinv(covariance[np.ix_(mine, mine)], hermitian=True) @ c[mine]
        if f_distribution.sf(gain / len(mine), len(mine), n - p) < CHANCE:
            needed.add(i)
    return needed
