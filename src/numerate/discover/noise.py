"""How noisy the target is, before any formula is known."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import log_ndtr

from numerate.discover import polynomials as poly
from numerate.discover.view import View

SMOOTH = 1e-6  # of the scale of y: a polynomial that comes so close leaves no noise
ONE_PERCENT = 1.035  # of Anderson and Darling's statistic, mean and variance estimated (Stephens, 1986)
WIDE = 100.0  # largest target over the smallest, from which errors may be relative to it
FEW = 40  # rows that cannot tell noise from structure
SMALL = 0.03  # of the scale of y: noise up to which log t, 1/t and t^2 keep it even and unbiased


@dataclass(frozen=True)
class Noise:
    """Standard deviation of the noise of y, and whether what was taken for it is normally distributed."""

    level: float
    gaussian: bool


def noise_level(view: View, X: np.ndarray | None = None, most_rows: int = 2000) -> Noise | None:
    """The noise of y, if free polynomials of rising degree stop improving; else None.

    Four charts of the target (log t, t, 1/t, t^2), each as a polynomial of the inputs and of their logarithms: what is
    too rugged for one chart is smooth in another. Where one falls to the last digits there is no noise.

    Args:
        view: the target as a function of its inputs.
        X: (n, d) all inputs, where the view has fewer: what it leaves must not depend on them either.
    """
    v = view.head(most_rows)
    inputs = [v.P]
    if v.positive.any():
        inputs.insert(0, np.where(v.positive, np.log(np.abs(v.P) + 1e-300), v.P))
    lowest: tuple[float, np.ndarray | None] = (SMALL * v.scale, None)
    least = np.inf
    for name in ("log", "id", "inv", "sq") if v.t.min() > 0 else ("id", "inv", "sq", "log"):
        outer = replace(v, noise=least if least < SMALL * v.scale else 0.0).outer(name)
        if outer is None or not outer.usable:
            continue
        for U in inputs:
            fits = SmoothFits(U, outer)
            least = min(least, fits.levels.min(initial=np.inf))
            if least < SMOOTH * v.scale:
                return None
            d = plateau(fits.levels)
            if d is None:
                continue
            found = fits.levels[d], fits.residual(d)
            if name == "id" and found[0] < 0.5 * v.scale and _without_structure(X, found[1]):
                return Noise(float(found[0]), is_gaussian(found[1], v.P))
            lowest = min(lowest, found, key=lambda f: f[0])
    level, residual = lowest
    if residual is None or not _without_structure(X, residual):
        return None
    return Noise(float(level), is_gaussian(residual, v.P))


def is_relative(X: np.ndarray, y: np.ndarray, most_rows: int = 2000) -> bool:
    """Whether y has errors in proportion to it rather than errors of one size; X: (n, d), y: (n,)

    Free polynomials for log |y| and for y itself, of the inputs and of their logarithms, are compared by description
    length. The one for log |y| must stop short of its highest degree, and what it leaves must be as large on all rows.
    Only targets of one sign over two orders of magnitude are asked; few rows can show no more than the lengths.
    """
    X, y = X[:most_rows], y[:most_rows]
    size = np.abs(y)
    if abs(np.sign(y).sum()) < len(y) or size.max() < WIDE * size.min():
        return False
    relative, absolute = _shortest(X, np.log(size)), _shortest(X, y)
    if relative.level < SMOOTH or relative.length + np.log(size).sum() > absolute.length:
        return False
    left = np.log(np.abs(relative.residual) + 1e-300)
    return len(y) < FEW or (relative.ended and is_noise(X, left - left.mean()))


def smooth_error(X: np.ndarray, y: np.ndarray, most_rows: int = 2000) -> float:
    """What a free polynomial of the inputs or of their logarithms leaves of y, root mean square; X: (n, d), y: (n,)"""
    return _shortest(X[:most_rows], y[:most_rows]).level


@dataclass(frozen=True)
class _Smooth:
    """A free polynomial: what it leaves, nats of residuals and coefficients, whether higher degrees are no better."""

    level: float
    residual: np.ndarray
    length: float
    ended: bool


def _shortest(X: np.ndarray, t: np.ndarray) -> _Smooth:
    """The free polynomial of X or log X with the shortest description of t."""
    n, k = X.shape
    highest = poly.best_degree(k, n // 3, 8)
    found = []
    for U in (X, np.where((X > 0).all(0), np.log(np.abs(X) + 1e-300), X)):
        for degree in range(1, highest + 1):
            level, residual = poly.smooth_residual(U, t, degree)
            length = n * np.log(level + 1e-300) + 0.5 * (poly.count(k, degree) + 1) * np.log(n)
            found.append(_Smooth(level, residual, float(length), degree < highest))
    return min(found, key=lambda each: each.length)


class SmoothFits:
    """Free polynomials of U: (n, k) of degree 2, 3, ... for the view's target, by one Cholesky factorisation.

    ``levels``: (degrees,) what they leave, per degree of freedom, of y.
    """

    def __init__(self, U: np.ndarray, v: View) -> None:
        n = int(np.sum(v.w > 0))
        degree = poly.best_degree(v.k, n // 4, 10)
        exps = poly.exponents(v.k, degree)
        H = np.concatenate([np.ones((len(U), 1)), poly.columns(poly.standardised(U), exps)], 1) * v.w[:, None]
        self.H = H / (np.linalg.norm(H, axis=0) + 1e-300)
        self.z = (v.t - np.average(v.t, weights=v.w**2)) * v.w
        total = np.array([sum(e) for e in exps])
        self.columns = np.array([1 + np.sum(total <= d) for d in range(2, degree + 1)], int)
        self.L = _cholesky(self.H.T @ self.H)
        self.u = solve_triangular(self.L, self.H.T @ self.z, lower=True, check_finite=False)
        left = self.z @ self.z - np.cumsum(self.u**2)[self.columns - 1]
        self.levels = np.sqrt(np.maximum(left, 0.0) / (n - self.columns))

    def residual(self, d: int) -> np.ndarray:
        """What the fit of ``levels[d]`` leaves: (n,)."""
        p = self.columns[d]
        c = solve_triangular(self.L[:p, :p].T, self.u[:p], check_finite=False)
        return self.z - self.H[:, :p] @ c


def _cholesky(G: np.ndarray) -> np.ndarray:
    """Of a Gram matrix of unit columns, with as small a ridge as it needs."""
    for ridge in (1e-15, 1e-13):
        try:
            return np.linalg.cholesky(G + ridge * np.eye(len(G)))
        except np.linalg.LinAlgError:
            pass
    return np.linalg.cholesky(G + 1e-10 * np.eye(len(G)))


def plateau(levels: np.ndarray) -> int | None:
    """Where the levels stop falling: an odd function gains nothing from one even degree, so two degrees count."""
    return next((d for d in range(2, len(levels)) if levels[d] > 0.985 * levels[d - 2]), None)


def _without_structure(X: np.ndarray | None, residual: np.ndarray) -> bool:
    return X is None or is_noise(X, residual)


def is_gaussian(residual: np.ndarray, X: np.ndarray, fewest: int = 200) -> bool:
    """Whether residuals are normally distributed, equally on all rows of X: (n, k).

    A wave too fine for any polynomial leaves residuals without structure, too, but of another distribution, or as large
    as its factor is. Tests: skewness and kurtosis within three standard errors, Anderson and Darling's statistic below
    its one-percent point, squared residuals without structure. Too few rows cannot tell: False.
    """
    n = len(residual)
    z = (residual - residual.mean()) / (residual.std() + 1e-300)
    skewness, kurtosis = abs(np.mean(z**3)) / np.sqrt(6 / n), abs(np.mean(z**4) - 3) / np.sqrt(24 / n)
    if n < fewest or skewness > 3 or kurtosis > 3 or anderson_darling(z) > ONE_PERCENT:
        return False
    return is_noise(X, z**2 - np.mean(z**2))


def anderson_darling(z: np.ndarray) -> float:
    """Distance of standardised values from the normal distribution; heavy on the tails."""
    z, n = np.sort(z), len(z)
    tails = log_ndtr(z) + log_ndtr(-z[::-1])
    return float(-n - np.sum((2 * np.arange(n) + 1) * tails) / n)


def is_noise(X: np.ndarray, residual: np.ndarray, most_rows: int = 2000) -> bool:
    """Whether a free polynomial explains no more of the residuals than chance does (an F test at three sigma)."""
    X, r = X[:most_rows], residual[:most_rows]
    n, k = X.shape
    degree = poly.best_degree(k, n // 8, 5)
    if degree < 2 and n < FEW:
        return False
    V = np.where((X > 0).all(0), np.log(np.abs(X) + 1e-300), X)
    p = poly.count(k, degree) + 1
    left = poly.smooth_residual(V, r, degree)[0] ** 2 * (n - p)
    explained = (r @ r - left) / p
    return bool(explained < (1 + 3 * np.sqrt(2 / p)) * left / (n - p))
