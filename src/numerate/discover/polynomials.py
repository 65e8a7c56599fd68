"""Polynomials of several variables: exponents, columns, and what a free polynomial explains."""

from functools import lru_cache
from math import comb

import numpy as np

from numerate.discover.clock import check_time


@lru_cache(maxsize=256)
def exponents(k: int, degree: int) -> tuple[tuple[int, ...], ...]:
    """All exponent vectors of k variables with total degree 1 to ``degree``, lowest degree first."""

    def go(j: int, left: int) -> list[tuple[int, ...]]:
        check_time()
        return [()] if j == k else [(q, *rest) for q in range(left + 1) for rest in go(j + 1, left - q)]

    return tuple(sorted((e for e in go(0, degree) if any(e)), key=lambda e: (sum(e), e)))


def count(k: int, degree: int) -> int:
    """How many they are: of many variables, too many to make."""
    return comb(k + degree, degree) - 1


def columns(U: np.ndarray, exps: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Monomials of the columns of U; U: (n, k) -> (n, len(exps))."""
    table = _powers(U, exps)
    return np.stack([_product(table, e, len(U)) for e in exps], 1)


def columns_and_slopes(U: np.ndarray, exps: tuple[tuple[int, ...], ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Monomials, and their derivative by each variable."""
    n, k = U.shape
    table = _powers(U, exps)
    slopes = []
    for j in range(k):
        S = np.zeros((n, len(exps)))
        for i, e in enumerate(exps):
            if e[j]:
                S[:, i] = e[j] * _product(table, (*e[:j], e[j] - 1, *e[j + 1 :]), n)
        slopes.append(S)
    return np.stack([_product(table, e, n) for e in exps], 1), slopes


def _powers(U: np.ndarray, exps: tuple[tuple[int, ...], ...]) -> list[list[np.ndarray]]:
    top = max(max(e) for e in exps)
    table = []
    for j in range(U.shape[1]):
        row = [np.ones(len(U))]
        for _ in range(top):
            row.append(row[-1] * U[:, j])
        table.append(row)
    return table


def _product(table: list[list[np.ndarray]], e: tuple[int, ...], n: int) -> np.ndarray:
    check_time()
    v = None
    for j, q in enumerate(e):
        if q:
            v = table[j][q] if v is None else v * table[j][q]
    return np.ones(n) if v is None else v


def standardised(V: np.ndarray) -> np.ndarray:
    """Columns scaled to [-1, 1]."""
    low, high = V.min(0), V.max(0)
    return (V - (low + high) / 2) / np.maximum((high - low) / 2, 1e-300)


@lru_cache(maxsize=64)
def best_degree(k: int, rows: int, most: int) -> int:
    """The highest degree with at most ``rows`` columns."""
    degree = 1
    while degree < most and count(k, degree + 1) < rows:
        degree += 1
    return degree


def smooth_residual(V: np.ndarray, t: np.ndarray, degree: int, w: np.ndarray | None = None) -> tuple[float, np.ndarray]:
    """Root mean square residual (per degree of freedom) of a free polynomial in V, and the residuals."""
    n = len(t)
    H = np.concatenate([np.ones((n, 1)), columns(standardised(V), exponents(V.shape[1], degree))], 1)
    if w is not None:
        H, t = H * w[:, None], t * w
    Q = np.linalg.qr(H / (np.linalg.norm(H, axis=0) + 1e-300))[0]
    r = t - Q @ (Q.T @ t)
    return float(np.sqrt(r @ r / max(n - H.shape[1], 1))), r
