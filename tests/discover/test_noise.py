"""The formula search under noise: its level, what outer functions do with it, groups and products that it blurs."""

from dataclasses import replace
from fractions import Fraction as Fr
from typing import Any

import numpy as np
import pytest
import sympy as sp
from scipy.stats import anderson

from numerate.discover import expressions as ex
from numerate.discover import search
from numerate.discover.clock import Clock
from numerate.discover.few import Few
from numerate.discover.groups import find_groups
from numerate.discover.monomial import monomials
from numerate.discover.noise import anderson_darling, is_gaussian, is_relative, noise_level
from numerate.discover.pool import Pool
from numerate.discover.refit import Fit, refit
from numerate.discover.rounding import before_sums, merged, round_constants
from numerate.discover.view import root

X0, X1, X2 = ex.var(0), ex.var(1), ex.var(2)


def box(n, d, low=1.0, high=3.0):
    return np.random.default_rng(0).uniform(low, high, (n, d))


def normal(n, seed=1):
    return np.random.default_rng(seed).normal(size=n)


def noisy_view(X, y, sigma):
    return replace(root(X, y + sigma * normal(len(y))), noise=sigma)


# ---- relative or not ------------------------------------------------------------------------------------------------

WIDE = {
    "power law": (lambda a, b: a**3 / b, 1.0, 20.0),
    "exponential": (lambda a, b: b * np.exp(2 * a), 0.5, 4.0),
    "quotient": (lambda a, b: a**4 / (1 + b), 1.0, 9.0),
}


@pytest.mark.parametrize("law", WIDE, ids=str)
@pytest.mark.parametrize("n", [30, 600])
def test_errors_in_proportion_to_the_target_are_recognised(law, n):
    f, low, high = WIDE[law]
    X = box(n, 2, low, high)
    assert is_relative(X, f(*X.T) * np.exp(0.05 * normal(n)))


@pytest.mark.parametrize("law", WIDE, ids=str)
def test_errors_of_one_size_and_no_errors_are_not_relative(law):
    f, low, high = WIDE[law]
    X = box(600, 2, low, high)
    y = f(*X.T)
    assert not is_relative(X, y)
    assert not is_relative(X, y + 0.2 * y.min() * normal(600))


def test_a_narrow_target_and_one_of_both_signs_are_not_relative():
    X = box(600, 2)
    y = X[:, 0] * X[:, 1]
    assert not is_relative(X, y * np.exp(0.05 * normal(600)))
    assert not is_relative(X, (y - 4) * np.exp(0.05 * normal(600)))


# ---- the level ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law",
    [
        lambda x: x[0] * x[1] ** 2 * x[2] / (x[3] * x[4] ** 2),  # smooth in the logarithms
        lambda x: 1 / ((x[0] - x[1]) ** 2 + (x[2] - x[3]) ** 2 + x[4] ** 2),  # smooth in 1/y
    ],
)
def test_noise_shows_in_the_chart_where_a_law_of_five_inputs_is_smooth(law):
    X = box(2000, 5)
    y = law(X.T)
    sigma = 0.005 * np.sqrt(np.mean(y**2))
    got = noise_level(root(X, y + sigma * normal(2000)))
    assert got is not None
    assert got.level == pytest.approx(sigma, rel=0.06)


def test_an_input_left_out_is_not_noise():
    X = box(2000, 3)
    y = X[:, 0] * X[:, 1] + 0.02 * X[:, 2]
    fewer = root(X, y).of([X0, X1])
    assert noise_level(fewer) is not None  # as far as two inputs tell
    assert noise_level(fewer, X) is None


def test_normal_residuals_are_told_from_a_wave():
    X = box(1000, 2, 0.0, 9.0)
    assert is_gaussian(normal(1000), X)
    assert not is_gaussian(np.sin(100 * X[:, 0]), X)  # kurtosis 3/2
    assert not is_gaussian(normal(50), X[:50])  # too few to tell


def test_a_wave_with_a_factor_shows_in_its_squares():
    X = np.random.default_rng(0).uniform(0.6, 1.4, (1000, 2))
    wave = X[:, 1] * np.sin(np.outer(X[:, 0], [911, 1217, 1423])).sum(1)  # kurtosis 2.99
    assert not is_gaussian(wave, X)
    assert is_gaussian(np.random.default_rng(0).permutation(wave), X)  # the same values on any rows


def test_the_distance_from_a_normal_distribution_is_that_of_scipy():
    z = np.random.default_rng(0).uniform(size=300)
    z = (z - z.mean()) / z.std(ddof=1)
    known: Any = anderson(z, "norm", method="interpolate")
    assert anderson_darling(z) == pytest.approx(known.statistic)


# ---- views and candidates -------------------------------------------------------------------------------------------


def test_rows_that_noise_carries_through_zero_have_no_weight_under_a_square():
    X = box(1000, 1, 0.0, 1.0)
    view = noisy_view(X, X[:, 0], 0.05)
    assert replace(view, noise=0.0).outer("sq") is None
    outer = view.outer("sq")
    assert outer is not None
    np.testing.assert_array_equal(outer.w == 0, view.t < 0.1)
    kept = outer.w > 0
    np.testing.assert_allclose(outer.t[kept], view.t[kept] ** 2)
    np.testing.assert_allclose(outer.w[kept], 0.5 / view.t[kept])


def test_a_monomial_is_found_where_noise_changes_signs():
    X = box(2000, 5, 1.0, 5.0)
    y = X[:, 0] * X[:, 1] ** 4 / (8 * X[:, 2] ** 2 * X[:, 3] ** 2 * X[:, 4] ** 2)
    sigma = 0.1 * np.sqrt(np.mean(y**2))
    found = list(monomials(root(X, y + sigma * normal(2000))))
    assert any(refit(tree, X, y).error < 1e-12 for tree in found)


def test_groups_under_noise_have_the_simplest_exponents_first():
    X = np.stack([box(1600, 3)[:, 0], box(1600, 3)[:, 1] - 0.5, box(1600, 3)[:, 2] + 2], 1)
    y = X[:, 0] / np.sqrt(1 - (X[:, 1] / X[:, 2]) ** 2)
    best = find_groups(noisy_view(X, y, 0.1 * np.sqrt(np.mean(y**2))), Clock(60))[0]
    assert best.front == [1, 0, 0]
    assert best.rows in ([[0, 1, -1]], [[0, -1, 1]])


def test_simple_products_hold_the_root_that_logarithms_miss():
    u = box(600, 1, 0.1, 0.8)
    y = u[:, 0] / np.sqrt(1 - u[:, 0] ** 2)
    few = Few(noisy_view(u, y, 0.1 * np.sqrt(np.mean(y**2))), Clock(60), True, None, 500)
    assert any(refit(tree, u, y).error < 1e-9 for tree in few.simple_products())


def test_whole_numbers_and_common_functions_are_shorter_descriptions():
    X = box(100, 1)
    pool = Pool(X, X[:, 0], None, Clock(60))
    two, odd = (Fit(ex.mul(ex.const(c), X0), 0.1, np.array([0.01])) for c in (2.0, 2.31))
    assert pool.score(two) < pool.score(odd)
    exponential, wave = (Fit((name, X0), 0.1, np.zeros(0)) for name in ("exp", "cos"))
    assert pool.score(exponential) < pool.score(wave)
    root_, odd_power = (Fit(ex.power(X0, q), 0.1, np.zeros(0)) for q in (Fr(1, 2), Fr(7, 2)))
    assert pool.score(root_) < pool.score(odd_power)


# ---- rounding -------------------------------------------------------------------------------------------------------


def test_a_constant_before_a_sum_keeps_its_values():
    tree = ex.mul(ex.const(3.0), ex.add(ex.mul(ex.const(2.0), X0), ex.mul(ex.const(-6.0), X1)))
    before = merged(before_sums(tree))
    assert ex.constants(before) == [6.0, -3.0]
    X = box(20, 2)
    np.testing.assert_allclose(ex.column(before, X), 6 * X[:, 0] - 18 * X[:, 1], rtol=1e-14)


def test_equal_constants_of_a_sum_become_one():
    X = box(2000, 2)
    tree = ex.add(ex.mul(ex.const(1.0), X0), ex.mul(ex.const(1.0), X1))
    y = 0.7713 * (X[:, 0] + X[:, 1])
    fit, names = round_constants(refit(tree, X, y + 0.05 * normal(2000)), X, y + 0.05 * normal(2000))
    assert list(names.values()) == [1]
    free = [c for i, c in enumerate(ex.constants(fit.tree)) if i not in names]
    assert free == pytest.approx([0.7713], abs=0.002)


# ---- the whole search -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.01, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_search_under_noise_ends_by_itself(sigma):
    X = box(1500, 3, 1.0, 4.0)
    y = X[:, 0] * X[:, 1] / (2 * X[:, 2] ** 2)
    noise = sigma * np.sqrt(np.mean(y**2))
    found = search(X, y + noise * normal(1500), names=["a", "b", "c"], seconds=30)
    a, b, c = sp.symbols("a b c")
    assert sp.simplify(found.best.expression - a * b / (2 * c**2)) == 0
    assert found.noise == pytest.approx(noise, rel=0.06)
    assert not found.cut
    assert not found.exact
