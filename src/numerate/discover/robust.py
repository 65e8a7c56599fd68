"""Gross outliers: rows that no formula should explain, found by robust fits and left out of the search."""

from dataclasses import replace
from typing import Any

import numpy as np

from numerate.discover import polynomials as poly
from numerate.discover.formula import Found
from numerate.discover.search import search

MOST = 0.2  # of the rows
ROUNDS = 3
FAR = 6.0  # standard deviations of the other rows


def robust_search(
    X: np.ndarray, y: np.ndarray, *, weights: np.ndarray | None = None, seconds: float = 10.0, **options: Any
) -> Found:
    """As :func:`~numerate.discover.search.search`, without rows far from a smooth function of the others.

    Each round searches on the kept rows and looks again which rows are far, now from the formula, until they stay the
    same. ``Found.outliers`` are the rows left out at the end, by number. All rounds together take ``seconds``.
    """
    root = np.ones(len(y)) if weights is None else np.sqrt(weights / np.mean(weights))
    out, left = far_from_smooth(X, y, root), seconds
    rounds = ROUNDS
    while True:
        rounds -= 1
        kept = ~out
        share = max(0.6 * left, 0.2 * seconds) if rounds else left
        mine = None if weights is None else weights[kept]
        found = search(X[kept], y[kept], weights=mine, seconds=share, **options)
        left -= found.seconds
        again = far((found.best.predict(X) - y) * root, kept)
        if not rounds or np.array_equal(again, out) or left < 0.1 * seconds:
            return replace(found, seconds=seconds - left, outliers=tuple(int(i) for i in np.flatnonzero(out)))
        out = again


def far_from_smooth(X: np.ndarray, y: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Rows far from a free polynomial, fitted with Tukey's bisquare weights from least absolute residuals on.

    X: (n, d), y: (n,), root: (n,) what residuals are multiplied with -> (n,) bool
    """
    V = np.where((X > 0).all(0), np.log(np.abs(X) + 1e-300), X)
    n, best = len(y), (np.inf, np.zeros(len(y)))
    for degree in range(1, poly.best_degree(X.shape[1], max(n // 6, 2), 8) + 1):
        H = np.concatenate([np.ones((n, 1)), poly.columns(poly.standardised(V), poly.exponents(X.shape[1], degree))], 1)
        r = _bisquare(H * root[:, None], y * root)
        scale = spread(r) * n / max(n - H.shape[1], 1)
        best = min(best, (scale, r), key=lambda b: b[0])
    return far(best[1], np.ones(n, bool))


def _bisquare(H: np.ndarray, y: np.ndarray, steps: int = 30) -> np.ndarray:
    """Residuals of a robust linear fit: ten steps for least absolute residuals, then Tukey's weights."""
    r = y - np.median(y)
    for step in range(steps):
        s = spread(r) + 1e-300
        u = np.abs(r) / s
        w = 1 / np.sqrt(np.maximum(u, 1e-3)) if step < 10 else np.maximum(1 - (u / 4.685) ** 2, 0.0)
        c = np.linalg.lstsq(H * w[:, None], y * w, rcond=1e-12)[0]
        r = y - H @ c
    return r


def spread(r: np.ndarray) -> float:
    """Standard deviation by the median, which outliers do not move."""
    return 1.4826 * float(np.median(np.abs(r)))


def far(r: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Rows whose residual is far from those of the kept; at most a fifth of all."""
    r = np.where(np.isfinite(r), np.abs(r), np.inf)
    limit = max(FAR * spread(r[kept]), 1e-9 * float(np.median(r[kept]) + np.max(r[np.isfinite(r)], initial=0.0)))
    out = r > limit
    if out.mean() > MOST:
        out = r > np.quantile(r, 1 - MOST)
    return out
