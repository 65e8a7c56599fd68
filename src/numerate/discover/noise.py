"""How noisy the target is, before any formula is known."""

import numpy as np

from numerate.discover import polynomials as poly
from numerate.discover.view import View


def noise_level(view: View, most_rows: int = 2000) -> float | None:
    """Standard deviation of the noise of y, if free polynomials of rising degree stop improving; else None.

    An odd function gains nothing from one even degree, so each degree is compared with the one two below.
    """
    v = view.head(most_rows)
    n = len(v.t)
    scale = np.sqrt(np.mean((v.t * v.w) ** 2)) + 1e-300
    V = np.where(v.positive, np.log(np.abs(v.P) + 1e-300), v.P)
    seen: list[float] = []
    for degree in range(2, 11):
        if len(poly.exponents(v.k, degree)) > n // 4:
            break
        seen.append(poly.smooth_residual(V, v.t, degree, v.w)[0] / scale)
        if len(seen) > 2 and 1e-7 < seen[-1] < 0.5 and seen[-1] > 0.985 * seen[-3]:
            return seen[-1] * scale
    return None


def is_noise(X: np.ndarray, residual: np.ndarray, most_rows: int = 2000) -> bool:
    """Whether a free polynomial explains no more of the residuals than chance does (an F test at three sigma)."""
    X, r = X[:most_rows], residual[:most_rows]
    n, k = X.shape
    degree = poly.best_degree(k, n // 8, 5)
    if degree < 2 and n < 40:
        return False
    V = np.where((X > 0).all(0), np.log(np.abs(X) + 1e-300), X)
    p = len(poly.exponents(k, degree)) + 1
    left = poly.smooth_residual(V, r, degree)[0] ** 2 * (n - p)
    explained = (r @ r - left) / p
    return bool(explained < (1 + 3 * np.sqrt(2 / p)) * left / (n - p))
