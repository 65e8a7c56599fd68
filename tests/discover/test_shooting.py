"""Polynomial right-hand sides by integration: known systems with few points."""

import time

import numpy as np
import pytest
import sympy
from scipy.integrate import solve_ivp

from numerate.discover import equations
from numerate.discover.shooting import exponents, pieces, polynomial_law
from numerate.discover.trajectories import Trajectory


def solved(right, start, end, points) -> Trajectory:
    t = np.linspace(0, end, points)
    return Trajectory(t, solve_ivp(right, (0, end), start, t_eval=t, rtol=1e-11, atol=1e-12).y.T)


def lorenz(_, x):
    return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]


def coefficients(formula):
    return {str(term): float(value) for term, value in formula.as_coefficients_dict().items()}


def test_lorenz_from_points_that_splines_cannot_follow():
    law = polynomial_law([solved(lorenz, (2.3, 8.1, 12.4), 6, 90)], 3)
    assert law is not None
    x, y, z = map(coefficients, law.formulas(["x", "y", "z"]))
    assert x == pytest.approx({"x": -10, "y": 10}, rel=1e-4)
    assert y == pytest.approx({"x": 28, "y": -1, "x*z": -1}, rel=1e-4)
    assert z == pytest.approx({"z": -8 / 3, "x*y": 1}, rel=1e-4)


def test_the_law_has_the_least_degree():
    run = solved(lambda _, x: [x[1], -2 * x[0] - 0.3 * x[1]], (1.0, 0.0), 10, 40)
    law = polynomial_law([run], 3)
    assert law is not None
    assert law.powers.sum(1).max() == 1
    assert law.kept.sum(0).tolist() == [1, 2]


def test_a_decay_keeps_its_only_term():
    law = polynomial_law([solved(lambda _, x: [-0.7 * x[0]], (2.0,), 5, 30)], 3)
    assert law is not None
    assert coefficients(law.formulas(["x"])[0]) == pytest.approx({"x": -0.7}, rel=1e-6)


def test_no_law_is_found_without_time_and_little_time_is_taken():
    before = time.process_time()
    assert polynomial_law([solved(lorenz, (2.3, 8.1, 12.4), 6, 90)], 3, seconds=0.0) is None
    assert time.process_time() - before < 5  # 60 steps of all degrees take longer


def test_what_needs_most_terms_of_a_polynomial_is_no_law():
    def coupled(_, x):
        return [-np.sin(x[0]) + 0.33 * np.sin(x[0] - x[1]), -np.sin(x[1]) - 0.33 * np.sin(x[0] - x[1])]

    assert polynomial_law([solved(coupled, start, 10, 60) for start in ((0.54, -0.1), (0.43, 1.21))], 3) is None


def test_a_fast_start_does_not_move_the_constants():
    def duffing(_, x):
        return [x[1], x[0] - x[0] ** 3 - 0.18 * x[1]]

    runs = [solved(duffing, start, 10, 150) for start in ((-1.8, -1.8), (5.8, 0.0))]
    found = equations([each.t for each in runs], [each.x for each in runs], names=["x", "v"], seconds=2)
    assert found.formulas[0] == sympy.Symbol("v")
    assert coefficients(found.formulas[1]) == pytest.approx({"x": 1, "x**3": -1, "v": -0.18}, rel=1e-6)


def test_pieces_start_at_smooth_states_and_meet_the_data():
    t = np.array([0.0, 1.0, 3.0, 6.0, 10.0])
    raw, smooth = Trajectory(t, np.arange(5.0)[:, None]), Trajectory(t, np.arange(5.0)[:, None] + 0.5)
    got = pieces([smooth], [raw], 2, 2)
    assert got.starts.ravel().tolist() == [0.5, 2.5]
    assert got.steps.tolist() == [[1, 2], [3, 4]]
    assert got.goals[..., 0].tolist() == [[1, 2], [3, 4]]


def test_monomials_are_counted_by_the_binomial_coefficient():
    powers = exponents(3, 4)
    assert len(powers) == len(set(map(tuple, powers))) == 35  # 7 choose 3
    assert (np.diff(powers.sum(1)) >= 0).all()
