"""Do two lists of numbers put the same things in the same order? Kendall's τ-b with a permutation test."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
from scipy import stats as distributions

ENUMERATED = 7
"""Up to this many things, every permutation is looked at; beyond, scipy's test (normal where there are ties)."""


@dataclass(frozen=True)
class Agreement:
    """``word``: same order, other order (turned round), no clear order, or too few (no outcome could have told)."""

    word: str
    tau: float | None = None
    p: float | None = None
    n: int = 0


def rank_agreement(ours: Sequence[float], theirs: Sequence[float], level: float = 0.05) -> Agreement:
    """Kendall's τ-b of two lists, larger is larger, ties allowed, and its two-sided p-value.

    The order is the same, or turned round, if τ is positive, or negative, and p ≤ ``level``.
    """
    x, y = np.asarray(ours, float), np.asarray(theirs, float)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"needs two lists of one length, got {x.shape} and {y.shape}")
    if np.isnan(x).any() or np.isnan(y).any():
        raise ValueError("a value that is not a number has no place in an order; leave it out or call it infinite")
    n = len(x)
    first, second = _signs(x), _signs(y)
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    if scale == 0:  # all of one list are tied
        return Agreement("too few", n=n)
    tau = float((first * second).sum() / scale)
    if n > ENUMERATED:
        p = float(distributions.kendalltau(x, y)[1])  # pyright: ignore[reportArgumentType]
    else:
        sums = np.abs(_permuted(second) @ first.ravel())
        p = float((sums >= abs((first * second).sum()) - 1e-9).mean())
        if (sums >= sums.max() - 1e-9).mean() > level:
            return Agreement("too few", tau, p, n)
    word = "no clear order" if p > level else "same order" if tau > 0 else "other order"
    return Agreement(word, tau, p, n)


def _signs(x: np.ndarray) -> np.ndarray:
    """Which of each pair is larger; (n, n)"""
    return (x[:, None] > x).astype(float) - (x[:, None] < x)


def _permuted(signs: np.ndarray) -> np.ndarray:
    """The pairs of every permutation; (n!, n²)"""
    places = _places(len(signs))
    return signs[places[:, :, None], places[:, None, :]].reshape(len(places), -1)


@cache
def _places(n: int) -> np.ndarray:
    return np.array(list(permutations(range(n))))
