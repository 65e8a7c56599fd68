"""Parts that find structure without noise: merges, scans, products, empirical forms, implicit quadratics."""

from fractions import Fraction as Fr

import numpy as np
import pytest
import sympy as sp

from numerate.discover import expressions as ex
from numerate.discover import spans
from numerate.discover.clock import Clock
from numerate.discover.empirical import empirical_fits, in_inputs
from numerate.discover.few import Few
from numerate.discover.groups import Groups
from numerate.discover.implicit import common_factor, implicit_quadratics
from numerate.discover.merges import combined, find_merge, merged, monomial_ratio
from numerate.discover.mixing import mixed_inputs, share
from numerate.discover.pool import Pool, Solved
from numerate.discover.products import product_fits
from numerate.discover.refit import refit
from numerate.discover.scans import scan, scan_fits
from numerate.discover.search import search
from numerate.discover.separate import simplified
from numerate.discover.solver import Solver
from numerate.discover.view import OUTER, root

X0, X1, X2 = ex.var(0), ex.var(1), ex.var(2)


def box(ranges, n=500, seed=0):
    low, high = np.array(ranges, float).T
    return np.random.default_rng(seed).uniform(low, high, (n, len(low)))


def solved(trees, X, y, tolerance=1e-10):
    with np.errstate(all="ignore"):
        return any(refit(tree, X, y).error < tolerance for tree in trees)


# ---- merges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "h"),
    [
        (lambda a, b, c: np.exp(a - b) / (1 + c), lambda a, b, c: a - b),
        (lambda a, b, c: np.sqrt(a**2 + b**2) * c, lambda a, b, c: a**2 + b**2),
        (lambda a, b, c: c / (1 + 1 / (1 / a + 1 / b)), lambda a, b, c: 1 / a + 1 / b),
        (lambda a, b, c: np.log(1 + a * b) + c, lambda a, b, c: a * b),
        (lambda a, b, c: np.tanh(0.3 * (a + c * b)) * c, lambda a, b, c: a + c * b),
    ],
)
def test_a_merge_finds_the_quantity_by_which_two_inputs_enter(f, h):
    X = box([(1, 3), (1, 3), (1, 3)])
    merge = find_merge(root(X, f(*X.T)), Clock(10))
    assert merge is not None
    assert {merge.i, merge.j} == {0, 1}
    steps = np.diff(ex.column(merge.tree, X)[np.argsort(h(*X.T))])  # one is a monotone function of the other
    assert (steps > -1e-9).all() or (steps < 1e-9).all()


def test_no_merge_where_every_pair_enters_apart():
    X = box([(1, 3), (1, 3), (1, 3)])
    a, b, c = X.T
    assert find_merge(root(X, a * np.exp(b) / (a + b) + np.sin(c * b) * (c + a)), Clock(10)) is None


def test_merges_follow_one_another():
    X = box([(110, 150), (60, 80), (70, 90), (20, 50)])
    a, b, c, d = X.T
    view = merged(root(X, (a - b) * np.sqrt(c - d)), Clock(10))
    assert view is not None
    assert view.k == 2


def test_the_ratio_of_derivatives_of_a_sum_of_squares_is_a_quotient():
    X = box([(1, 4), (2, 5)])
    ratio = monomial_ratio(X, 2 * X[:, 0], 6 * X[:, 1])  # d/da and d/db of a^2 + 3 b^2
    assert ratio is not None
    c, e, spread = ratio
    tree = combined(0, 1, c, e, X)
    assert tree is not None
    assert (c, e, spread) == (pytest.approx(3), [-1, 1], pytest.approx(0, abs=1e-12))
    np.testing.assert_allclose(ex.column(tree, X), X[:, 0] ** 2 + 3 * X[:, 1] ** 2)


# ---- one constant inside --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "low", "high"),
    [
        (lambda x: 6.112 * np.exp(17.62 * x / (243.12 + x)), -20, 40),
        (lambda x: -0.75 * np.log(1 - 4 * x / 3), 0.01, 0.6),
        (lambda x: -x * np.log(x) - (1 - x) * np.log(1 - x), 0.02, 0.98),
        (lambda x: 0.01 * (10 - x) / (np.exp((10 - x) / 10) - 1), -40, 9),
        (lambda x: 3 + 0.4 * x**0.37, 1, 50),
        (lambda x: 2 + 0.3 * np.sin(1.7 * x) + x, 0, 9),
        (lambda x: 24 / x + 3.6 * x**-0.313, 0.5, 800),
        (lambda x: 90 * np.arcsin(0.47 * x), 0.2, 1.9),
        (lambda x: 1.5 + 0.8 * np.arctan(0.37 * x), 0.5, 9),
        (lambda x: 4 - 1.3 * np.log(1 + 0.23 * x**2), 0.5, 9),
        (lambda x: 2 + 0.7 * np.sqrt(1 + 0.31 * x**2), 0.5, 9),
    ],
)
def test_scans_find_one_constant_at_any_scale(f, low, high):
    X = box([(low, high)])
    y = f(X[:, 0])
    assert solved(scan_fits(root(X, y), Clock(10), None), X, y)


def test_a_scan_refines_the_constant_to_the_last_digits():
    x = np.linspace(0, 4, 200)
    found = list(
        scan(lambda c: np.exp(c * x)[:, None], np.linspace(-3, -0.2, 9), np.ones((200, 1)), np.exp(-0.777 * x)[:, None])
    )
    assert found[0] == (0, pytest.approx(-0.777, rel=1e-9))


def test_scans_do_not_fit_noise():
    X = box([(1, 3)])
    y = np.exp(X[:, 0]) + 0.01 * np.random.default_rng(1).normal(size=500)
    assert list(scan_fits(root(X, y), Clock(10), None)) == []


# ---- from one input to another --------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_law_between_two_inputs_is_seen_as_the_share_of_the_way(noise):
    X = box([(10, 30), (60, 200), (0.5, 2), (0.1, 1)], 400)
    a, b, k, t = X.T
    y = a + (b - a) * np.exp(-k * t)
    views = list(mixed_inputs(root(X, y + noise * y.std() * np.random.default_rng(1).normal(size=400)), Clock(10)))
    assert len(views) == 2
    for view, f in zip(views, (np.exp(-k * t), 1 - np.exp(-k * t))):
        np.testing.assert_array_equal(view.P, X[:, 2:])
        np.testing.assert_allclose(view.t, f, atol=0.1 * bool(noise))


def test_the_share_of_the_way_leads_back_to_the_law():
    X = box([(10, 30), (60, 200), (0.5, 2), (0.1, 1)], 400)
    a, b, k, t = X.T
    law = share(root(X, a), 0, 1).lift(("exp", ex.mul(ex.fixed(-1.0), X0, X1)))
    np.testing.assert_allclose(ex.column(law, X), a + (b - a) * np.exp(-k * t))


def test_no_share_of_the_way_where_the_ends_enter_otherwise():
    X = box([(1, 3), (4, 9), (0.5, 2)], 400)
    a, b, t = X.T
    assert list(mixed_inputs(root(X, a * b * np.exp(-t) + np.sqrt(a / b)), Clock(10))) == []


def test_infiltration_between_two_rates_is_found_under_noise():
    X = box([(20, 90), (2, 15), (0.5, 4), (0.1, 2)], 400)
    a, b, k, t = X.T
    y = b + (a - b) * np.exp(-k * t)
    noisy = y + 0.01 * np.sqrt(np.mean(y**2)) * np.random.default_rng(1).normal(size=400)
    found = search(X, noisy, names=["x0", "x1", "x2", "x3"], seconds=10, seed=0).best.expression
    f = sp.lambdify(sp.symbols("x0:4"), found, "numpy")
    np.testing.assert_allclose(f(*X.T), y, rtol=1e-9)


def test_the_logarithm_of_the_target_is_a_law_of_its_own():
    X = box([(1, 3), (0.001, 0.1), (0.3, 0.9)], 400)
    z, c, a = X.T
    y = 10 ** (-0.509 * z**2 * np.sqrt(c) / (1 + 3.29 * a * np.sqrt(c)))
    clock = Clock(10)
    pool = Pool(X, y, None, clock)
    with pytest.raises(Solved):
        Solver(pool, clock, seed=0).exponent(root(X, y))
    np.testing.assert_allclose(ex.column(pool.best.tree, X), y, rtol=1e-9)


# ---- products -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "ranges"),
    [
        (lambda a, g, t, w: a * np.exp(-g * t) * np.cos(w * t), [(0.5, 5), (0.05, 0.5), (0.1, 8), (0.5, 2)]),
        (lambda c, r, n: c * ((1 + r) ** n - 1) / r, [(10, 500), (0.01, 0.15), (1, 30)]),
        (lambda v, s, k, n: v * s**n / (k**n + s**n), [(1, 5), (0.2, 5), (0.5, 3), (1, 4)]),
        (lambda d, a, r, s: d * (1 - np.exp(-a * (r - s))) ** 2, [(1, 6), (0.5, 2), (0.5, 4), (1, 2)]),
        (lambda a, b, k, t: a + (b - a) * np.exp(-k * t), [(10, 25), (40, 90), (0.05, 0.5), (0.5, 20)]),
    ],
)
def test_products_of_factors_and_powers_with_inputs_as_exponents(f, ranges):
    X = box(ranges)
    y = f(*X.T)
    assert solved(product_fits(root(X, y), Clock(10), None), X, y)


@pytest.mark.parametrize("seed", range(3))
def test_a_product_of_three_simple_factors_is_found_near_its_poles(seed):
    X = np.random.default_rng(seed).uniform((-1.5, 0.1), (1.5, 3.0), (400, 2))
    y = np.cos(X[:, 0]) / np.tan(X[:, 1])
    assert solved(Few(root(X, y), Clock(10), False, None, 300).triples(), X, y)


def test_products_use_allowed_functions_only():
    X = box([(1, 3), (1, 3)])
    y = X[:, 0] * np.sin(X[:, 1])
    assert solved(product_fits(root(X, y), Clock(10), None), X, y)
    assert not solved(product_fits(root(X, y), Clock(10), frozenset({"exp", "log"})), X, y)


# ---- empirical forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "ranges"),
    [
        (lambda r, p: 2 + 0.6 * r**0.51 * p**0.34, [(1, 200), (0.6, 10)]),
        (lambda s, n, e, d: s * n**-0.09 / e + d * n**-0.56, [(1, 2), (100, 10000), (5, 9), (0.2, 1)]),
        (lambda e, r: 1 / (1.8 * np.log10((e / 3.7) ** 1.11 + 6.9 / r)) ** 2, [(1e-4, 0.03), (5e3, 1e5)]),
        (lambda a, b: 3.1 * a**0.4 * (1 + 0.2 * b**2) ** -2.6, [(1, 9), (0.3, 4)]),
    ],
)
def test_empirical_forms_have_any_exponents(f, ranges):
    X = box(ranges)
    y = f(*X.T)
    assert solved(empirical_fits(root(X, y), Clock(10), None), X, y)


def test_a_term_in_centred_logarithms_is_written_in_the_inputs():
    X, means = box([(1, 3), (2, 5)]), np.array([0.3, 1.1])
    tree = ex.mul(
        ex.const(2.0), ("exp", ex.add(ex.mul(ex.const(0.425), X0), ex.mul(ex.const(-2.0), X1)))
    )  # of log x - mean
    want = 2 * np.exp(0.425 * (np.log(X[:, 0]) - 0.3) - 2 * (np.log(X[:, 1]) - 1.1))
    np.testing.assert_allclose(ex.column(in_inputs(tree, means), X), want)


# ---- implicit quadratics --------------------------------------------------------------------------------------------


def test_the_coefficient_of_the_square_may_hold_an_input():
    X = box([(5, 60), (10, 40), (0.3, 0.95)])
    u, p, c = X.T
    y = (u + p - np.sqrt((u + p) ** 2 - 4 * c * u * p)) / (2 * c)
    assert solved(implicit_quadratics(root(X, y), Clock(10)), X, y)


def test_a_factor_squared_under_the_root_stands_before_it():
    v, t, h = (X := box([(5, 40), (0.1, 1.4), (0.5, 20)])).T
    range_ = lambda v, t, h: v * np.cos(t) / 9.81 * (v * np.sin(t) + np.sqrt((v * np.sin(t)) ** 2 + 19.62 * h))  # noqa: E731
    trees = list(implicit_quadratics(root(X, range_(v, t, h)), Clock(10)))
    beyond = np.array([[10.0, 2.0, 3.0]])  # where the cosine is negative, sqrt(cos^2) would be of the wrong sign
    assert ex.column(trees[0], beyond)[0] == pytest.approx(range_(10.0, 2.0, 3.0))


def test_the_common_factor_divides_once_and_twice():
    assert common_factor([ex.mul(ex.const(2.0), ex.power(X0, 3), X1)], [ex.mul(X0, X2)]) == {X0: 1}


# ---- smaller parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["more", "bose", "invroot"])
def test_outer_functions_and_their_inverses(name):
    g, slope, inverse = OUTER[name]
    t = np.linspace(0.2, 3, 30)
    np.testing.assert_allclose(ex.column(inverse(X0), g(t)[:, None]), t)
    np.testing.assert_allclose(slope(t), np.abs(g(t + 1e-6) - g(t - 1e-6)) / 2e-6, rtol=1e-6)


def test_waves_of_all_inputs_hold_a_great_circle():
    X = box([(-1, 1), (-1, 1), (0.3, 2.5)])
    a, b, c = X.T
    z = np.sin(a) * np.sin(b) + np.cos(a) * np.cos(b) * np.cos(c)
    design = spans.tensor_waves(X)
    assert design is not None
    assert np.linalg.norm(z - design.A @ np.linalg.lstsq(design.A, z, rcond=None)[0]) < 1e-10


def test_a_simple_component_is_rounded_and_loses_the_shared_constant():
    line = ex.add(ex.const(-999.83), ex.mul(ex.const(100.000005), X0))
    assert simplified(line, "id") == ex.mul(ex.const(100.0), X0)
    assert simplified(ex.mul(ex.const(0.1234567), X0), "id") is None


def test_groups_that_are_the_inputs_are_trivial():
    assert Groups(0.0, [Fr(0), Fr(0)], [[Fr(0), Fr(1)], [Fr(1), Fr(0)]]).trivial
    assert not Groups(0.0, [Fr(1), Fr(0)], [[Fr(1), Fr(0)], [Fr(0), Fr(1)]]).trivial
    assert not Groups(0.0, [Fr(0), Fr(0)], [[Fr(1), Fr(-1)]]).trivial


def test_a_heat_exchanger_from_six_inputs():
    X = box([(1, 5), (1, 10), (110, 150), (60, 80), (70, 90), (20, 50)], n=600)
    u, a, p, q, r, s = X.T
    y = u * a * ((p - q) - (r - s)) / np.log((p - q) / (r - s))
    assert search(X, y, names=list("uapqrs"), seconds=10).exact
