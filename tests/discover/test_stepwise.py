"""Sums of few features, inputs that do not matter, approximations, and how a formula is shown."""

import numpy as np
import pytest
import sympy as sp

from numerate.discover import expressions as ex
from numerate.discover import search
from numerate.discover.choose import readable
from numerate.discover.clock import Clock
from numerate.discover.pool import Pool
from numerate.discover.relevant import relevant_inputs
from numerate.discover.solver import Solver
from numerate.discover.stepwise import MOST, approximations, exact_sums, features, select
from numerate.discover.view import root


def box(n, d, low, high, seed=0):
    return np.random.default_rng(seed).uniform(low, high, (n, d))


def test_exchanges_find_two_columns_that_single_steps_miss():
    """t = u + v; the column u + v + noise is nearer to t than either, and greedy selection starts with it."""
    rng = np.random.default_rng(0)
    u, v, noise, idle = rng.standard_normal((4, 200))
    F = np.stack([u, v, u + v + 0.3 * noise, idle], 1)
    F, t = F - F.mean(0), (u + v) - (u + v).mean()
    assert np.argmax(np.abs(F.T @ t) / np.linalg.norm(F, axis=0)) == 2
    left, chosen = list(select(t, F, 2))[-1]
    assert sorted(chosen) == [0, 1]
    assert left < 1e-20


def test_a_price_prefers_the_simpler_of_two_nearly_equal_columns():
    x = box(100, 1, 1.0, 1.05)[:, 0]
    F = np.stack([x - x.mean(), np.exp(x) - np.exp(x).mean()], 1)
    t = F[:, 1]
    assert next(select(t, F))[1] == [1]
    assert next(select(t, F, price=np.array([0.0, 3000.0])))[1] == [0]


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a * np.tanh(b) - c**2,
        lambda a, b, c: 1 / (3 + np.sin(a) * np.cos(b) + np.abs(c)),
        lambda a, b, c: np.exp(0.5 * np.arctan(a) * b - c),
    ],
)
def test_sums_of_features_are_found_exactly(f):
    X = box(300, 3, -4, 4)
    y = f(*X.T)
    trees = list(exact_sums(root(X, y), Clock(10), None))
    assert trees
    assert np.abs(ex.column(trees[-1], X) - y).max() < 1e-9 * np.abs(y).max()


def test_few_rows_are_not_fitted_exactly_by_chance():
    X = box(12, 3, -1, 1)
    assert not list(exact_sums(root(X, np.random.default_rng(5).standard_normal(12)), Clock(10), None))


def test_a_hundred_inputs_have_no_room_for_products():
    assert 100 < len(features(box(20, 100, 1, 5), None)) <= MOST


def test_idle_inputs_are_recognised_and_weak_ones_kept():
    """x11 makes 0.2 % of the target's variance."""
    X = box(500, 20, 1, 5)
    y = 3 * np.sin(X[:, 2]) * X[:, 7] ** 2 + X[:, 11]
    assert relevant_inputs(root(X, y)) == [2, 7, 11]


def test_all_inputs_count_where_rows_are_too_few_to_tell():
    X = box(30, 20, 1, 5)
    assert relevant_inputs(root(X, X[:, 0])) == list(range(20))


def test_the_law_is_found_among_twenty_idle_inputs():
    X = box(500, 23, 1, 5)
    y = X[:, 3] * X[:, 9] ** 2 / (X[:, 3] + X[:, 20])
    found = search(X, y, names=[f"x{i}" for i in range(23)])
    assert found.exact
    assert sp.simplify(found.best.expression - sp.sympify("x3*x9**2/(x3 + x20)")) == 0
    assert all(set(group) <= {"x3", "x9", "x20"} for group in found.groups)


def test_a_table_without_a_law_gets_approximations_of_several_sizes():
    """A constant leaves the whole standard deviation."""
    X = box(200, 3, 0, 1)
    y = np.abs(np.sin(7 * X[:, 0] * X[:, 1]) - X[:, 2] ** 1.37 * np.floor(3 * X[:, 0]))
    found = search(X, y, names=["a", "b", "c"], seconds=1)
    assert not found.exact
    assert found.best.error < 0.8 * y.std()
    assert len(found.front) >= 4


def test_approximations_use_weak_inputs_that_pass_for_idle_ones():
    """Three of ten inputs of equal weight leave 0.84 of the target, eight of them 0.45."""
    X = np.random.default_rng(0).standard_normal((240, 10))
    view = root(X, X.sum(1))
    solver = Solver(Pool(X, X.sum(1), None, Clock(10.0)), Clock(10.0), 0)
    for some, expected in ((view.of([ex.var(i) for i in range(3)]), 0.84), (view, 0.45)):
        solver.approximate(some)
        assert min(candidate.error for candidate in solver.pool.found) == pytest.approx(expected, abs=0.08)


def test_approximations_do_not_lean_on_single_rows():
    """One input has a value near 0: its inverse would fit that row alone."""
    X = box(200, 1, 1, 2)
    X[0] = 1e-4
    y = np.cos(X[:, 0]) + 0.1
    y[0] = 50.0
    trees = list(approximations(root(X, y), Clock(10), None))
    assert not any("pow" in str(tree) and "Fraction(-" in str(tree) for tree in trees)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a**2*d/(b*(1 + c/b))", "a**2*d/(b + c)"),
        ("1/(1/a + 1/b)", "a*b/(a + b)"),
        ("b/(1 + c**2/a)", "a*b/(a + c**2)"),
        ("a/sqrt(1 - b**2/c**2)", "a/sqrt(1 - b**2/c**2)"),
        ("2*a*(b - c/(2*a))", "2*a*b - c"),
        ("4*a - 1/2", "4*a - 1/2"),
        ("a*(b - c)/(b**2 - c**2)", "a/(b + c)"),
        ("exp(b*(log(a) + log(c)/b))", "c*a**b"),
        ("exp(-a*(b + c))", "exp(-a*(b + c))"),
        ("1/(0.5 + 0.25/a)", "1/(0.5 + 0.25/a)"),  # free constants stay as they were fitted
    ],
)
def test_a_formula_is_shown_over_one_denominator_where_that_is_shorter(text, shown):
    assert readable(sp.sympify(text)) == sp.sympify(shown)


def test_roots_of_squares_are_resolved_for_positive_inputs():
    a, b, c = sp.symbols("a b c")
    assert readable(1 / sp.sqrt(1 / (a * b) ** 2 - 1 / (a * c) ** 2), positive=True) == a * b * c / sp.sqrt(c**2 - b**2)
    assert readable(sp.sqrt(a**2 * b), positive=True) == a * sp.sqrt(b)
    assert readable(sp.sqrt(a * b), positive=True) == sp.sqrt(a * b)  # which is shorter than two roots
    assert readable(sp.sqrt(a**2) / b) == sp.sqrt(a**2) / b
