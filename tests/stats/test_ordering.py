"""Kendall's τ-b against scipy and by hand."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from numerate.stats import rank_agreement


@pytest.mark.parametrize("n", [4, 6, 7, 11, 15])
@pytest.mark.parametrize("ties", [False, True])
def test_tau_is_scipys(n, ties):
    draw = np.random.default_rng(n)
    x, y = draw.random((2, n))
    if ties:
        x, y = (4 * x).round(), (3 * y).round()
    expected: Any = scipy_stats.kendalltau(x, y)
    assert rank_agreement(x, y).tau == pytest.approx(expected.statistic)


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_p_without_ties_is_the_exact_one(n):
    draw = np.random.default_rng(n)
    for _ in range(5):
        x, y = draw.random((2, n))
        expected: Any = scipy_stats.kendalltau(x, y, method="exact")
        assert rank_agreement(x, y).p == pytest.approx(expected.pvalue)


def test_words():
    rising = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0]
    assert rank_agreement(rising, [x**3 for x in rising]).word == "same order"
    assert rank_agreement(rising, [-x for x in rising]).word == "other order"
    assert rank_agreement(rising, [3, 1, 2, 2, 1, 3]).word == "no clear order"
    assert rank_agreement([1, 2, 3], [1, 2, 3]).word == "too few"  # 2 of 6 orders are as clear
    assert rank_agreement(rising, [0.0] * 6).word == "too few"
    assert rank_agreement(rising, [0.0] * 5 + [1.0]).word == "too few"  # one that stands out is 1 of 6


def pairs_in_order(x, orders):
    """|Pairs in the order of x less those turned round| for every row of ``orders``."""
    i, j = np.triu_indices(len(x), 1)
    return abs(np.sign(orders[:, i] - orders[:, j]) @ np.sign(x[i] - x[j]))


@pytest.mark.parametrize("levels", [(1, 1), (2, 1), (3, 2), (7, 3), (8, 5)], ids=str)
@pytest.mark.parametrize("n", [5, 8])
def test_p_with_ties_is_the_share_of_all_permutations(n, levels):
    draw = np.random.default_rng(n)
    for _ in range(3):
        x, y = (draw.integers(0, level, n, endpoint=True) for level in levels)
        if len(set(x)) == 1 or len(set(y)) == 1:
            continue
        found, sums = rank_agreement(x, y), pairs_in_order(x, np.array(list(permutations(y))))
        assert found.p == pytest.approx((sums >= pairs_in_order(x, y[None])).mean())
        assert (found.word == "too few") == ((sums == sums.max()).mean() > 0.05)


def test_few_that_stand_out_of_many_ties_prove_nothing():
    """Where one of n stands out, it is the same one in one of n permutations."""
    found = rank_agreement([0, 0, 0.1] + [0] * 8, [0.03, 0, 0.07, 0, 0, 0, 0.02, 0, 0, 0, 0])
    assert (found.word, found.p) == ("too few", pytest.approx(1 / 11))
    found = rank_agreement([0] * 8 + [1], [0] * 8 + [1])
    assert (found.word, found.p) == ("too few", pytest.approx(1 / 9))
    assert rank_agreement([0] * 20 + [1], [0] * 20 + [1]).word == "same order"
    assert rank_agreement([0] * 20 + [1], [0] * 20 + [1], level=0.01).word == "too few"
    assert rank_agreement(range(8), range(8), level=1e-5).word == "too few"  # 2 of 40,320 orders are as clear


def test_many_orders_with_too_little_in_them_are_too_few():
    """3 of 100 are all among the upper or all among the lower half in 24 % of 161,700 orders."""
    found = rank_agreement([0] * 97 + [1] * 3, [0] * 50 + [1] * 50)
    assert found.word == "too few"
    assert found.p == pytest.approx(2 * 50 * 49 * 48 / (100 * 99 * 98), abs=0.01)


@pytest.mark.parametrize("n", [9, 12])
def test_drawn_permutations_come_near_to_all(n):
    """Ties in pairs, too many orders to look at all: against five times as many, drawn otherwise."""
    draw = np.random.default_rng(n)
    x, y = (draw.permutation(np.arange(n) // 2) for _ in range(2))
    sums = pairs_in_order(x, draw.permuted(np.tile(y, (100_000, 1)), axis=1))
    found = rank_agreement(x, y)
    assert found.p == pytest.approx((sums >= pairs_in_order(x, y[None])).mean(), abs=0.015)
    assert found == rank_agreement(x, y)


@pytest.mark.parametrize("y", [[1] + [0] * 10, [3, 2, 1] + [0] * 8, [5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0]], ids=str)
@pytest.mark.parametrize("x", [[1] + [0] * 10, [3, 2, 2, 1, 1, 1] + [0] * 5], ids=str)
def test_independent_orders_are_called_the_same_or_turned_round_in_at_most_5_percent(x, y):
    draw = np.random.default_rng(0)
    called = [rank_agreement(x, draw.permutation(y)).word in ("same order", "other order") for _ in range(600)]
    assert sum(called) <= scipy_stats.binom.ppf(0.999, 600, 0.05)


def test_infinite_values_are_tied_last_and_others_are_refused():
    assert rank_agreement([1, 2, 3, 4, np.inf, np.inf], [1, 2, 3, 4, 9, 9]).tau == pytest.approx(1.0)
    with pytest.raises(ValueError, match="not a number"):
        rank_agreement([1, np.nan], [1, 2])
    with pytest.raises(ValueError, match="one length"):
        rank_agreement([1, 2, 3], [1, 2])
