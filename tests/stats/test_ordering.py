"""Kendall's τ-b against scipy and by hand."""

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
    assert rank_agreement(x, y).tau == pytest.approx(scipy_stats.kendalltau(x, y).statistic)


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_p_without_ties_is_the_exact_one(n):
    draw = np.random.default_rng(n)
    for _ in range(5):
        x, y = draw.random((2, n))
        assert rank_agreement(x, y).p == pytest.approx(scipy_stats.kendalltau(x, y, method="exact").pvalue)


def test_words():
    rising = [1.0, 2.0, 3.0, 5.0, 8.0, 13.0]
    assert rank_agreement(rising, [x**3 for x in rising]).word == "same order"
    assert rank_agreement(rising, [-x for x in rising]).word == "other order"
    assert rank_agreement(rising, [3, 1, 2, 2, 1, 3]).word == "no clear order"
    assert rank_agreement([1, 2, 3], [1, 2, 3]).word == "too few"  # 2 of 6 orders are as clear
    assert rank_agreement(rising, [0.0] * 6).word == "too few"
    assert rank_agreement(rising, [0.0] * 5 + [1.0]).word == "too few"  # one that stands out is 1 of 6


def test_infinite_values_are_tied_last_and_others_are_refused():
    assert rank_agreement([1, 2, 3, 4, np.inf, np.inf], [1, 2, 3, 4, 9, 9]).tau == pytest.approx(1.0)
    with pytest.raises(ValueError, match="not a number"):
        rank_agreement([1, np.nan], [1, 2])
    with pytest.raises(ValueError, match="one length"):
        rank_agreement([1, 2, 3], [1, 2])
