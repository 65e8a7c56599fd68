"""Means and rates with 95 % intervals: the true ones, and those the published tables were made with.

The true gamma mean is the sample mean, its interval the profile likelihood over the shape. The published one leaves the
variance at the sample variance and maximises over the mean alone (what the authors' optimiser did in effect), so it is
not the sample mean. The true sparsity mean is the sample mean, its interval the profile likelihood of a Beta on 2x,
since a sparsity error lies in [0, 1/2]. The published one evaluates a Beta with mean 2μ at x itself and reports μ:
about half the mean, unless the values are so small that the authors' fit failed and the plain mean was printed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import special

Method = Literal["true", "published"]

TINY = 1e-16  # the authors' clip of a sparsity error
SMALLEST_FIT = 1.8e-5  # below this fitted μ the authors' numerical Hessian leaves the domain, and they fall back
FURTHEST = 300.0  # on a logarithmic scale: an interval that reaches further has no end
GAMMA_LIMIT = 1e-5  # a Beta on values below this is a gamma to more digits than it can be computed with


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; None where there is none (no data, one value, infinity). ``how``: the method.

    ``bound``: "<" or ">" where it is only known that the value is less or more.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    how: str = ""
    bound: str = ""


def wilson(k: int, n: int) -> Estimate:
    """A rate k/n with its Wilson score interval, no continuity correction."""
    from scipy import stats  # takes a second to import, here as below

    if not 0 <= k <= n:
        raise ValueError(f"a rate needs 0 <= k <= n, got {k} of {n}")
    if n == 0:
        return Estimate(None, how="no runs")
    low, high = stats.binomtest(k, n).proportion_ci(method="wilson")
    return Estimate(k / n, min(low, k / n), max(high, k / n), n, "Wilson")


def clustered_rate(successes: Any, trials: Any) -> Estimate:
    """A rate over trials that come in clusters, such as the starts of each seed: (clusters,) each.

    The Wilson interval of the number of independent trials that would vary as much (Korn and Graubard, 1998). That
    number is at most all trials, and at least what is left if the trials of each cluster all agree. The least is taken
    where the data cannot tell: one cluster, no success, or success throughout.
    """
    from scipy import stats

    k, m = np.asarray(successes, float), np.asarray(trials, float)
    if k.shape != m.shape or k.ndim != 1 or not ((k >= 0) & (k <= m)).all():
        raise ValueError(f"a rate needs 0 <= successes <= trials in each cluster, got {successes} of {trials}")
    n, clusters = float(m.sum()), int((m > 0).sum())
    if n == 0:
        return Estimate(None, how="no runs")
    rate, fewest = float(k.sum()) / n, n**2 / float((m**2).sum())
    variance = clusters / max(1, clusters - 1) * float(((k - rate * m) ** 2).sum()) / n**2
    if clusters == 1 or rate in (0.0, 1.0):
        effective = fewest
    elif variance == 0:
        effective = n
    else:
        narrower = stats.t.ppf(0.975, n - 1) / stats.t.ppf(0.975, clusters - 1)
        effective = float(np.clip(rate * (1 - rate) / variance * narrower**2, fewest, n))
    low, high = _score_interval(rate, effective)
    return Estimate(rate, min(low, rate), max(high, rate), int(n), "Wilson, clustered")


def _score_interval(rate: float, n: float) -> tuple[float, float]:
    """Wilson's, also of a number of trials that is not whole."""
    z = float(special.ndtri(0.975))
    middle, half = rate + z**2 / (2 * n), z * np.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    return max(0.0, float((middle - half) / (1 + z**2 / n))), min(1.0, float((middle + half) / (1 + z**2 / n)))


def normal_mean(x: Any, lowest: float = -np.inf, highest: float = np.inf) -> Estimate:
    """The sample mean ± t·sd/√n; the interval is cut at ``lowest`` and ``highest``. An infinite mean has none."""
    from scipy import stats

    x = _values(x)
    if len(x) < 2:
        return Estimate(float(x[0]) if len(x) else None, n=len(x), how="one value" if len(x) else "no values")
    if np.isinf(x).any():
        return Estimate(sum(x.tolist()), n=len(x), how="infinite values")  # the sum is as infinite as the mean
    mean, sd = float(x.mean()), float(x.std(ddof=1))
    half = float(stats.t.ppf(0.975, len(x) - 1)) * sd / np.sqrt(len(x))
    low, high = np.clip([mean - half, mean + half], lowest, highest)
    return Estimate(mean, float(low), float(high), len(x), "normal")


def upper_mean(x: Any, degrees: int | None = None, level: float = 0.99) -> float:
    """A bound that a mean lies below with probability ``level``: mean + t · deviation / √n.

    ``degrees``: of freedom of t; None: n - 1. Madsen & Johansen take thresholds like this with 8, whatever n.
    """
    values = _values(x)
    if len(values) < 2:
        raise ValueError(f"a bound of a mean needs at least 2 values, got {len(values)}")
    t = float(special.stdtrit(len(values) - 1 if degrees is None else degrees, level))
    return float(values.mean() + t * values.std(ddof=1) / np.sqrt(len(values)))


def median(x: Any) -> Estimate:
    """The sample median with the interval between two order statistics, free of any distribution.

    Infinite values are values; five or fewer give no interval, as none of theirs reaches 95 %.
    """
    from scipy import stats

    x = np.sort(_values(x))
    if not len(x):
        return Estimate(None, how="no values")
    outside = int(stats.binom.ppf(0.025, len(x), 0.5))  # the largest k with P(fewer than k below it) ≤ 2.5 %
    middle = float(np.median(x))
    if outside == 0:
        return Estimate(middle, n=len(x), how="median")
    return Estimate(middle, float(x[outside - 1]), float(x[-outside]), len(x), "median, order statistics")


def gamma_mean(x: Any, method: Method = "true") -> Estimate:
    """The mean of positive values such as steps, with the profile-likelihood interval of a gamma distribution.

    ``method="published"``: as printed in the papers (see above). Values that are all equal give an interval of zero
    width; one value gives none, nor do infinite ones; a zero, which no gamma has, gives the normal interval.
    """
    x = _values(x)
    if len(x) < 2 or x.min() <= 0 or np.isinf(x).any():
        return normal_mean(x, lowest=0)
    if method == "published":
        if x.std(ddof=1) <= 1e-5:
            return normal_mean(x)
        return Estimate(*_conditional_gamma(_Gamma.of(x)), len(x), "gamma, variance held")
    if _equal(x):
        return normal_mean(x, lowest=0)
    return Estimate(*_profile_gamma(_Gamma.of(x)), len(x), "gamma profile")


def sparsity_mean(x: Any, method: Method = "true") -> Estimate:
    """The mean of sparsity errors in [0, 1/2], with the profile-likelihood interval of a Beta distribution on 2x.

    ``method="published"``: as printed in the papers (see above), with their fallbacks; values above 1/2 count as 1/2
    there. The true method falls back to the normal interval where no Beta fits: values above 1/2, or a sample mean
    outside the Beta's own interval.
    """
    x = _values(x)
    if method == "published":
        return _published_sparsity(x)
    y = np.clip(2 * x, TINY, 1 - TINY)
    if len(x) < 2 or x.max() > 0.5 or _equal(y):
        return normal_mean(x, 0.0, max(0.5, x.max(initial=0.0)))
    if y.max() < GAMMA_LIMIT:
        fit, how = _profile_gamma(_Gamma.of(y)), "beta profile (its gamma limit)"
    else:
        fit, how = _profile_beta(_Beta.of(y)), "beta profile"
    mean = float(x.mean())
    if not fit.low <= 2 * mean <= fit.high:
        return normal_mean(x, 0.0, 0.5)
    return Estimate(mean, fit.low / 2, min(0.5, fit.high / 2), len(x), how)


def _published_sparsity(x: np.ndarray) -> Estimate:
    x = np.minimum(x, 0.5)
    clipped = np.clip(x, TINY, 0.5 - TINY)
    if len(x) < 2 or clipped.std(ddof=1) <= 1e-10 or clipped.mean() > 0.5 - SMALLEST_FIT:
        return normal_mean(x, 0.0, 0.5)
    if clipped.max() < GAMMA_LIMIT:
        return normal_mean(x, 0.0, 0.5)  # half of it is below the smallest fit by far
    fit = _profile_beta(_Beta.of(clipped))
    if fit.value / 2 < SMALLEST_FIT:
        return normal_mean(x, 0.0, 0.5)
    return Estimate(fit.value / 2, fit.low / 2, fit.high / 2, len(x), "beta on x, halved")


def _values(x: Any) -> np.ndarray:
    x = np.asarray(x, float).reshape(-1)
    return x[~np.isnan(x)]


def _equal(x: np.ndarray) -> bool:
    """Equal for every practical purpose: the likelihoods lose their digits here, and are normal anyway."""
    return bool(x.std(ddof=1) <= 1e-6 * abs(x.mean()))


class _Fit(NamedTuple):
    value: float
    low: float
    high: float


class _Gamma(NamedTuple):
    """What a gamma likelihood needs to know of a sample."""

    n: int
    mean: float
    mean_log: float
    variance: float

    @classmethod
    def of(cls, x: np.ndarray) -> "_Gamma":
        return cls(len(x), float(x.mean()), float(np.log(x).mean()), float(x.var(ddof=1)))


class _Beta(NamedTuple):
    """What a Beta likelihood needs to know of a sample."""

    n: int
    mean: float
    mean_log: float
    mean_log_rest: float

    @classmethod
    def of(cls, y: np.ndarray) -> "_Beta":
        return cls(len(y), float(y.mean()), float(np.log(y).mean()), float(np.log1p(-y).mean()))


def _profile_gamma(data: _Gamma) -> _Fit:
    """ML mean (the sample mean) and profile interval. At mean m the best shape k solves log k - ψ(k) = c(m)."""

    def loglik(log_ratio: float) -> float:
        c = log_ratio + np.log(data.mean) - data.mean_log + np.exp(-log_ratio) - 1
        k = np.exp(_root(lambda log_k: log_k - special.digamma(np.exp(log_k)) - c, 0.0))
        scale = log_ratio + np.log(data.mean)
        return data.n * (
            k * (np.log(k) - scale) - special.gammaln(k) + (k - 1) * data.mean_log - k * np.exp(-log_ratio)
        )

    low, high = _drop(loglik, 0.0)
    return _Fit(data.mean, data.mean * float(np.exp(low)), data.mean * float(np.exp(high)))


def _conditional_gamma(data: _Gamma) -> _Fit:
    """Mean and interval with the variance held at the sample variance; work in units of the sample mean."""
    s, mean_log = data.variance / data.mean**2, data.mean_log - np.log(data.mean)

    def loglik(log_mu: float) -> float:
        mu = np.exp(log_mu)
        shape, rate = mu**2 / s, mu / s
        return data.n * (shape * np.log(rate) - special.gammaln(shape) + (shape - 1) * mean_log - rate)

    def slope(log_mu: float) -> float:
        mu = np.exp(log_mu)
        return 2 * mu * (np.log(mu / s) - special.digamma(mu**2 / s) + mean_log) + mu - 1

    best = _root(slope, 0.0)
    low, high = _drop(loglik, best)
    return _Fit(*(data.mean * float(np.exp(end)) for end in (best, low, high)))


def _profile_beta(data: _Beta) -> _Fit:
    """ML mean of a Beta(m v, (1 - m) v) and its profile interval over the precision v; m on the logit scale."""

    from scipy import optimize

    def best_precision(m: float) -> float:
        def slope(log_v: float) -> float:
            a, b = m * np.exp(log_v), (1 - m) * np.exp(log_v)
            whole = special.digamma(a + b)
            odds = (1 - m) / m
            return whole - special.digamma(a) + data.mean_log + odds * (whole - special.digamma(b) + data.mean_log_rest)

        return float(np.exp(_root(slope, -float(np.log(m)))))

    def loglik(logit: float) -> float:
        m = float(special.expit(logit))
        v = best_precision(m)
        a, b = m * v, (1 - m) * v
        return data.n * ((a - 1) * data.mean_log + (b - 1) * data.mean_log_rest - float(special.betaln(a, b)))

    start = float(special.logit(data.mean))
    bracket = (start - 0.5, start + 0.5)
    minimum: Any = optimize.minimize_scalar(lambda t: -loglik(t), bracket, method="brent", options={"xtol": 1e-10})
    best = float(minimum.x)
    low, high = _drop(loglik, best)
    return _Fit(*(float(special.expit(end)) for end in (best, low, high)))


def _root(f: Callable[[float], float], start: float) -> float:
    """The zero of a function that goes from + to - as its argument grows; the bracket widens from ``start``."""
    low = high = start
    step = 1.0
    while f(low) < 0:
        low, step = low - step, step * 2
    step = 1.0
    while f(high) > 0:
        high, step = high + step, step * 2
    return start if low == high else _zero(f, low, high)


def _drop(loglik: Callable[[float], float], best: float) -> tuple[float, float]:
    """Where the log-likelihood has fallen by half the 95 % quantile of χ²(1), on both sides of its maximum."""
    from scipy import stats

    level = loglik(best) - float(stats.chi2.ppf(0.95, 1)) / 2
    ends = []
    for side in (-1, 1):
        near, step = best, 1e-3
        far = best + side * step
        while abs(far - best) < FURTHEST and loglik(far) > level:
            step *= 2
            near, far = far, far + side * step
        if abs(far - best) < FURTHEST:
            ends.append(_zero(lambda t: loglik(t) - level, near, far))
        else:
            ends.append(side * np.inf)
    return ends[0], ends[1]


def _zero(f: Callable[[float], float], low: float, high: float) -> float:
    from scipy import optimize

    return float(optimize.brentq(f, low, high, xtol=1e-13, rtol=1e-13))  # type: ignore[arg-type]
