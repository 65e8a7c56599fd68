"""Do two lists of numbers put the same things in the same order? Kendall's τ-b with a permutation test."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import factorial, prod

import numpy as np
from numpy.typing import ArrayLike

ARRANGEMENTS = 20_000
"""If one of the lists has no more distinct orders than this, all are looked at, else so many drawn ones."""


@dataclass(frozen=True)
class Agreement:
    """``word``: same order, other order (turned round), no clear order, or too few (no outcome could have told)."""

    word: str
    tau: float | None = None
    p: float | None = None
    n: int = 0


def rank_agreement(ours: ArrayLike, theirs: ArrayLike, level: float = 0.05) -> Agreement:
    """Kendall's τ-b of two lists, larger is larger, ties allowed, and its two-sided permutation p-value.

    The order is the same, or turned round, if τ is positive, or negative, and p ≤ ``level``. p is exact without ties,
    and with ties where one of the lists has at most 20,000 distinct orders; beyond, it is that of 20,000 permutations,
    the same in every call.
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
    p, smallest = _p_values(x, y)
    if smallest > level:
        return Agreement("too few", tau, p, n)
    word = "no clear order" if p > level else "same order" if tau > 0 else "other order"
    return Agreement(word, tau, p, n)


def _signs(x: np.ndarray) -> np.ndarray:
    """Which of each pair is larger; (n, n)"""
    return (x[:, None] > x).astype(float) - (x[:, None] < x)


def _p_values(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Of these two lists, and the smallest that two lists with such ties can have."""
    from scipy import stats

    x, y = sorted((x, y), key=_orders, reverse=True)
    _, ranks, counts = np.unique(y, return_inverse=True, return_counts=True)
    if _orders(y) <= ARRANGEMENTS:
        looked_at = _arrangements(tuple(counts.tolist()))
    elif len(counts) == len(y):  # x has at least as many orders, so no ties either
        return float(stats.kendalltau(x, y, method="exact")[1]), 2 / factorial(len(y))  # pyright: ignore[reportArgumentType]
    else:
        looked_at = np.vstack([ranks, ranks[_permutations(len(y))]])  # the order that was found is one of them
    sums = np.abs(_sums(x, looked_at))
    observed, rising = abs(_sums(x, ranks[None])[0]), np.sort(ranks)
    most = np.abs(_sums(np.sort(x), np.stack([rising, rising[::-1]]))).max()
    return float((sums >= observed).mean()), float((sums >= most).mean())


def _orders(x: np.ndarray) -> int:
    """How many distinct orders of these values there are."""
    return factorial(len(x)) // prod(factorial(count) for count in np.unique(x, return_counts=True)[1].tolist())


def _sums(x: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Pairs in the order of ``x`` less those turned round, for each of ``orders``, (m, n) -> (m,); exact in float32."""
    signs, columns = _signs(x).astype(np.float32), np.ascontiguousarray(orders.T, np.float32)
    sums = np.zeros(len(orders), np.float32)
    for i in range(len(x) - 1):
        sums += signs[i + 1 :, i] @ np.sign(columns[i + 1 :] - columns[i])
    return sums


@lru_cache(16)
def _arrangements(counts: tuple[int, ...]) -> np.ndarray:
    """Every distinct order of ranks of which there are so many each; (orders, n)"""
    made, left = np.empty((1, 0), int), np.array([counts])
    for _ in range(sum(counts)):
        row, rank = np.nonzero(left)
        made, left = np.column_stack([made[row], rank]), left[row]
        left[np.arange(len(row)), rank] -= 1
    return made


@lru_cache(16)
def _permutations(n: int) -> np.ndarray:
    return np.random.default_rng(0).random((ARRANGEMENTS, n)).argsort(-1)


def lower(first: Sequence[float], second: Sequence[float], gap: float = 0.0, level: float = 0.05) -> bool | None:
    """Whether the numbers of one group are lower than those of another; None: that cannot be told.

    They are if at least two of each do not overlap, by more than ``gap``, or if their rank sums differ beyond chance.
    Infinite numbers are larger than all others.
    """
    if min(len(first), len(second)) < 2:
        return None
    if max(first) + gap < min(second):
        return True
    if max(second) + gap < min(first):
        return False
    word = rank_agreement([0] * len(first) + [1] * len(second), [*first, *second], level).word
    return {"same order": True, "other order": False}.get(word)
