"""Formulas for slopes of known functions."""

import numpy as np
import pytest
import sympy

from numerate.discover.equations import Equations
from numerate.discover.slopes import Slopes
from numerate.discover.trajectories import Trajectory, smoothed

x, y = sympy.symbols("x y")


def known(slope, error=1e-7, rows=200):
    states = np.random.default_rng(0).uniform(0.3, 2.0, (rows, 2))
    return Slopes.of(states, slope(*states.T), np.full(rows, error), ("x", "y"))


@pytest.mark.parametrize("rate", [1.0, 4.0, 8.0])
def test_slopes_are_within_twice_their_stated_error(rate):
    t = np.linspace(0, 6, 120)
    got = smoothed(Trajectory(t, np.sin(rate * t)[:, None]))
    miss, stated = np.abs(got.slopes[:, 0] - rate * np.cos(rate * t)), got.slope_errors[:, 0]
    assert np.mean(miss[6:-6] < 2 * stated[6:-6]) > 0.95


def test_slopes_of_noisy_data_are_within_three_times_their_stated_error():
    t = np.linspace(0, 6, 300)
    noisy = np.sin(t) + 0.01 * np.random.default_rng(0).standard_normal(len(t))
    got = smoothed(Trajectory(t, noisy[:, None]))
    assert np.mean(np.abs(got.slopes[:, 0] - np.cos(t)) < 3 * got.slope_errors[:, 0]) > 0.9


def test_the_polynomial_is_as_sparse_as_the_truth():
    got = known(lambda a, b: 1.5 * a - 0.7 * a * b**2).polynomial()
    assert got is not None
    assert {str(k): float(v) for k, v in got.as_coefficients_dict().items()} == pytest.approx(
        {"x": 1.5, "x*y**2": -0.7}
    )


def test_no_polynomial_explains_an_exponential():
    assert known(lambda a, b: np.exp(-a) / b).polynomial() is None


def test_badly_known_slopes_count_less():
    states = np.linspace(1, 2, 100)[:, None]
    errors = np.where(np.arange(100) < 30, 1.0, 1e-6)
    slopes = 2 * states[:, 0] + np.where(np.arange(100) < 30, 0.5, 0.0)
    got = Slopes.of(states, slopes, errors, ("x",))
    assert got.miss(2 * x) < 1e-5 < 0.1 < got.miss(2.2 * x)


def test_a_quotient_of_polynomials_is_found_and_holds_elsewhere():
    got = known(lambda a, b: (2 * a - a * b) / (a**2 + 0.5), error=1e-9).quotient()
    assert got is not None
    assert float(got.subs({x: 5.0, y: 7.0})) == pytest.approx((10 - 35) / 25.5, rel=1e-6)


def test_idle_terms_are_left_out():
    slopes = known(lambda a, b: 3 * np.sin(a) + b, error=1e-4)
    got = slopes.without_idle_terms(3 * sympy.sin(x) + y + 1e-6 * sympy.exp(x), slopes.error)
    assert got.atoms(sympy.Function) == {sympy.sin(x)}


def test_constants_that_the_slopes_contradict_are_refused():
    slopes = known(lambda a, b: 2 * a, error=1e-3)
    assert slopes.better(2.0001 * x, 2.00005 * x) == 2.00005 * x
    assert slopes.better(2.0001 * x, 2.5 * x) == 2.0001 * x


def test_a_formula_that_is_not_defined_is_infinitely_far():
    assert known(lambda a, b: a).miss(sympy.sqrt(x - 1)) == np.inf


@pytest.mark.parametrize(("wrong", "start"), [(1 / (1 - x), 0.0), (x**2, 2.0)], ids=["pole", "blow up"])
def test_a_simulation_ends_where_its_solution_does(wrong, start):
    """1 - sqrt(1 - 2 t) has no slope at t = 1/2, and 1 / (1/2 - t) is infinite there."""
    got = Equations(("x",), (wrong,), (None,), np.nan).simulate([start], np.linspace(0, 3, 31))
    assert 1 <= len(got) <= 6
    assert np.isfinite(got).all()


def test_noise_below_smoothing_is_part_of_the_stated_error():
    t = np.linspace(0, 6, 200)
    noisy = np.sin(t) + 1e-6 * np.random.default_rng(0).standard_normal(len(t))
    got = smoothed(Trajectory(t, noisy[:, None]))
    miss = np.abs(got.slopes[:, 0] - np.cos(t))[6:-6]
    assert np.sqrt(np.mean(miss**2)) < 1.2 * np.sqrt(np.mean(got.slope_errors[6:-6] ** 2))
