"""Are two success rates different? An exact test per cell, and control of false discoveries over a whole table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

Counts = tuple[int, int]
"""(successes, runs)"""


def fisher(ours: Counts, theirs: Counts) -> float:
    """Two-sided p-value of Fisher's exact test."""
    _check(ours, theirs)
    (k, n), (l, m) = ours, theirs  # noqa: E741
    return float(_fisher_table(n, m)[k, l])


@cache
def boschloo(ours: Counts, theirs: Counts) -> float:
    """Two-sided p-value of Boschloo's exact test: unconditional, with Fisher's p-value as statistic.

    The p-value is the largest probability, over every common success rate, of a table whose Fisher p-value is at most
    the observed one. It keeps its level like Fisher's test and is never less powerful.
    """
    _check(ours, theirs)
    (k, n), (l, m) = ours, theirs  # noqa: E741
    table = _fisher_table(n, m)
    extreme = table <= table[k, l] * (1 + 1e-9)
    first, second = _binomial_table(n), _binomial_table(m)
    return float(min(1.0, np.einsum("rk,kl,rl->r", first, extreme.astype(float), second, optimize=True).max()))


def _check(ours: Counts, theirs: Counts) -> None:
    if not all(0 <= solved <= runs and runs > 0 for solved, runs in (ours, theirs)):
        raise ValueError(f"success counts must lie between 0 and a positive number of runs, got {ours} and {theirs}")


@cache
def _binomial_table(n: int) -> np.ndarray:
    """Probability of every number of successes at success rates from 0 to 1; (rates, n + 1)"""
    from scipy import stats  # takes a second to import, here as below

    rates = np.sin(np.linspace(0, np.pi / 2, 1025)) ** 2  # denser at 0 and 1, where the probability varies fastest
    return stats.binom.pmf(np.arange(n + 1), n, rates[:, None])


@cache
def _fisher_table(n: int, m: int) -> np.ndarray:
    """Fisher's p-value of every outcome (k, l); (n + 1, m + 1)"""
    from scipy import stats

    table = np.empty((n + 1, m + 1))
    for total in range(n + m + 1):
        k = np.arange(max(0, total - m), min(n, total) + 1)
        p = stats.hypergeom.pmf(k, n + m, n, total)
        as_extreme = p[None, :] <= p[:, None] * (1 + 1e-7)
        table[k, total - k] = np.minimum(1.0, (as_extreme * p).sum(1))
    return table


def false_discovery(p_values: Sequence[float]) -> list[float]:
    """Benjamini–Hochberg q-values: calling every q ≤ 5 % different, at most 5 % of the calls are false on average."""
    from scipy import stats

    if not len(p_values):
        return []
    return [float(q) for q in stats.false_discovery_control(p_values, method="bh")]


@dataclass(frozen=True)
class Verdict:
    """``word`` is agrees, differs, too few runs (no outcome could have differed) or not published."""

    word: str
    p: float | None = None
    q: float | None = None


def verdict(ours: Counts, theirs: Counts | None, level: float = 0.05) -> Verdict:
    """One cell by itself, without control over others."""
    return verdicts([(ours, theirs)], level)[0]


def verdicts(pairs: Sequence[tuple[Counts, Counts | None]], level: float = 0.05) -> list[Verdict]:
    """A whole table: Boschloo's exact test per cell, Benjamini–Hochberg over the cells that have a published number."""
    tested = [i for i, (ours, theirs) in enumerate(pairs) if theirs is not None and ours[1] > 0 and theirs[1] > 0]
    p_values = {i: boschloo(*pairs[i]) for i in tested}  # type: ignore[arg-type]
    q_values = dict(zip(tested, false_discovery(list(p_values.values()))))
    words = []
    for i, (ours, theirs) in enumerate(pairs):
        if theirs is None:
            words.append(Verdict("not published"))
        elif i not in p_values:
            words.append(Verdict("too few runs"))
        elif q_values[i] <= level:
            words.append(Verdict("differs", p_values[i], q_values[i]))
        elif _smallest_p(ours[1], theirs) > level:
            words.append(Verdict("too few runs", p_values[i], q_values[i]))
        else:
            words.append(Verdict("agrees", p_values[i], q_values[i]))
    return words


@cache
def _smallest_p(n: int, theirs: Counts) -> float:
    return min(boschloo((k, n), theirs) for k in (0, n))
