"""Each part of the formula search alone, against closed forms."""

from fractions import Fraction as Fr

import numpy as np
import pytest
import sympy as sp

from numerate.discover import dictionary as dic
from numerate.discover import expressions as ex
from numerate.discover import front, groups, index, rational, separate, spans, sparse
from numerate.discover.clock import Clock, OutOfTime
from numerate.discover.curves import curves
from numerate.discover.differences import apply_differences, find_differences
from numerate.discover.dimensions import groups_from
from numerate.discover.factor import factors
from numerate.discover.few import Few
from numerate.discover.formula import Dimensions
from numerate.discover.monomial import monomials
from numerate.discover.noise import is_noise, noise_level
from numerate.discover.refit import refit, relative_error
from numerate.discover.rounding import drop_idle, exact, round_constants, simplest
from numerate.discover.view import OUTER, root

X0, X1, X2 = ex.var(0), ex.var(1), ex.var(2)


def box(n=600, d=3, low=1.0, high=3.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, (n, d))


def solves(trees, X, y, tolerance=1e-9):
    return any(refit(t, X, y).error < tolerance for t in trees)


# ---- expressions and refit ------------------------------------------------------------------------------------------


def test_value_equals_sympy():
    tree = ex.add(ex.mul(ex.const(2.0), ("sin", X0)), ex.power(("exp", X1), Fr(-1, 2)), ("power", X0, ex.const(0.3)))
    X = box(50, 2)
    f = sp.lambdify(sp.symbols("a b"), ex.to_sympy(tree, sp.symbols("a b")), "numpy")
    np.testing.assert_allclose(ex.column(tree, X), f(*X.T), rtol=1e-13)


@pytest.mark.parametrize("name", [n for n in ex.UNARY if n != "abs"])
def test_derivatives_equal_finite_differences(name):
    tree = ex.mul(ex.const(0.7), (name, ex.mul(ex.const(0.4), X0)), ex.power(ex.add(X0, ex.const(1.5)), Fr(-3, 2)))
    X, c = box(20, 1, 0.5, 2.0), np.array([0.7, 0.4, 1.5])
    _, slopes = ex.derivatives(tree, X, c)
    for i in range(3):
        step = 1e-6 * np.eye(3)[i]
        up, down = (ex.derivatives(tree, X, c + s)[0] for s in (step, -step))
        np.testing.assert_allclose(np.broadcast_to(slopes[i], (20,)), (up - down) / 2e-6, rtol=1e-6, atol=1e-9)


def test_a_pole_or_root_of_a_constant_is_no_number_and_no_exception():
    X = box(20, 1)
    for bad in (ex.power(ex.const(0.0), -1), ("power", ex.const(-2.0), ex.const(0.5)), ex.power(ex.const(1e300), 2)):
        tree = ex.add(X0, bad)
        with np.errstate(all="ignore"):
            assert not np.isfinite(ex.column(tree, X)).any()
        assert refit(tree, X, X[:, 0]).error == np.inf


def test_refit_finds_nonlinear_constants_to_the_last_digit():
    X = box(200, 1)
    y = 3.2 * np.exp(-0.7 * X[:, 0]) + 0.25
    tree = ex.add(ex.mul(ex.const(1.0), ("exp", ex.mul(ex.const(-1.0), X0))), ex.const(0.0))
    fit = refit(tree, X, y)
    assert fit.error < 1e-14
    np.testing.assert_allclose(ex.constants(fit.tree), [3.2, -0.7, 0.25], rtol=1e-10)


def test_standard_errors_are_those_of_linear_regression():
    X = box(400, 1)
    y = 2.0 + 3.0 * X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=400)
    fit = refit(ex.add(ex.const(1.0), ex.mul(ex.const(1.0), X0)), X, y)
    A = np.stack([np.ones(400), X[:, 0]], 1)
    c, rss, *_ = np.linalg.lstsq(A, y, rcond=None)
    scale = np.sqrt(np.mean(y**2))
    errors = np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * rss[0] / 398)
    np.testing.assert_allclose(ex.constants(fit.tree), c, rtol=1e-8)
    np.testing.assert_allclose(fit.standard_errors, errors, rtol=1e-6)
    assert fit.error == pytest.approx(np.sqrt(rss[0] / 400) / scale)


def test_substitution_keeps_values():
    X = box(30, 2)
    inner = [ex.mul(X0, X1), ex.add(X0, X1)]
    tree = ex.mul(X0, ("log", X1))
    P = np.stack([ex.column(t, X) for t in inner], 1)
    np.testing.assert_allclose(ex.column(ex.substitute(tree, inner), X), ex.column(tree, P))


# ---- rounding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (0.5, sp.Rational(1, 2)),
        (4 * np.pi / 3, 4 * sp.pi / 3),
        (1 / np.sqrt(2 * np.pi), 1 / sp.sqrt(2 * sp.pi)),
        (9.81, sp.Rational(981, 100)),
        (np.sqrt(2), sp.sqrt(2)),
    ],
)
def test_exact_numbers_are_recognised(value, want):
    assert sp.simplify(exact(value * (1 + 1e-14)) - want) == 0


def test_a_number_without_a_simple_form_stays_a_float():
    assert isinstance(exact(0.7310585786300049), sp.Float)
    assert simplest(0.7310585786300049, 1e-12) is None


def test_rounding_within_the_error_and_not_beyond():
    X = box(1000, 1)
    rng = np.random.default_rng(2)
    tree = ex.mul(ex.const(1.0), X0)
    for slope, rounded in ((2.0, True), (2.0371942, False)):
        y = slope * X[:, 0] + 0.01 * rng.normal(size=1000)
        fit, marks = round_constants(refit(tree, X, y), X, y)
        assert (0 in marks and marks[0] == 2) == rounded
        assert fit.error < 0.01


def test_terms_that_do_nothing_are_dropped():
    X = box(500, 2)
    y = 2 * X[:, 0] + 0.05 * np.random.default_rng(3).normal(size=500)
    tree = ex.linear([0.1, 1.0, 0.1], [ex.ONE, X0, X1])
    assert ex.inputs(drop_idle(refit(tree, X, y), X, y).tree) == {0}


# ---- views ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OUTER))
def test_an_outer_function_is_undone_by_its_lift(name):
    X = box(40, 1, 0.2, 0.8)
    view = root(X, X[:, 0]).outer(name)
    assert view is not None
    tree = view.lift(ex.var(0))
    np.testing.assert_allclose(ex.column(tree, view.t[:, None]), X[:, 0], rtol=1e-12)


def test_views_compose_back_to_the_formula():
    X = box(40, 3)
    y = X[:, 0] * np.sqrt(X[:, 1] / X[:, 2] + 1)
    view = root(X, y).over(X0).of([ex.mul(X1, ex.power(X2, -1))]).outer("sq")
    assert view is not None
    np.testing.assert_allclose(view.t, view.P[:, 0] + 1)
    np.testing.assert_allclose(ex.column(view.lift(ex.add(X0, ex.ONE)), X), y)


# ---- parts ----------------------------------------------------------------------------------------------------------


def test_monomial_with_fractions():
    X = box()
    y = -2.5 * X[:, 0] ** 2 * X[:, 2] ** -1.5
    assert solves(monomials(root(X, y)), X, y)


def test_prune_keeps_the_needed_columns_and_of_dependent_ones_few():
    X = box(200, 3)
    A = np.concatenate([np.ones((200, 1)), X, X**2], 1)
    assert sparse.prune(A, 2 + 3 * X[:, 1] - X[:, 2] ** 2) == [0, 2, 6]
    A = np.concatenate([A, (X[:, 0] + X[:, 1])[:, None]], 1)  # depends on two others
    assert sparse.prune(A, X[:, 0] + X[:, 1] + 0.0) in ([1, 2], [7])


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: np.sqrt(a**2 + b**2 - 2 * a * b * np.cos(c)),
        lambda a, b, c: a * b + c * np.exp(-a),
        lambda a, b, c: np.log(a + b * c),
        lambda a, b, c: 1 / (a + b / c),
    ],
)
def test_spans_hold_the_target_under_an_outer_function(f):
    X = box()
    y = f(*X.T)
    view, clock = root(X, y), Clock(20)
    designs = [*spans.plain_designs(view, 500), *spans.function_designs(view, 500, None)]
    assert solves(spans.span_fits(view, iter(designs), spans.OUTERS, clock, 500), X, y)


@pytest.mark.parametrize(
    "f",
    [lambda a, b: (a + 2 * b) / (1 + a * b), lambda a, b: a**2 / (a**3 + 4 * b) - b, lambda a, b: np.sqrt(a / (a + b))],
)
def test_quotients_of_sparse_polynomials(f):
    X = box(400, 2)
    y = f(*X.T)
    assert solves(rational.rationals(root(X, y), Clock(20)), X, y)


def test_root_of_a_quadratic():
    X = box(400, 2)
    y = X[:, 0] - 1.5 * X[:, 1] + np.sqrt(X[:, 0] * X[:, 1] + 2)
    assert solves(rational.roots_of_quadratics(root(X, y), Clock(20)), X, y)


def test_index_model_finds_the_row_space():
    X = box(600, 4)
    y = X[:, 3] * np.tanh(X[:, 0] * X[:, 1] / X[:, 2])
    Z = np.log(X) - np.log(X).mean(0)
    rng = np.random.default_rng(0)
    starts = [(rng.normal(size=4), rng.normal(size=(1, 4))) for _ in range(8)]
    error, _, B = index.fit_index(Z, y, starts, 8)[0]
    assert error < 1e-3
    pivots, rows = index.echelon(B)  # type: ignore[misc]
    assert len(pivots) == 1
    row = np.array(rows[0], float) / float(rows[0][0])
    np.testing.assert_allclose(row, [1, 1, -1, 0])


def test_groups_and_front():
    X = box(1000, 4)
    y = X[:, 3] * np.exp(-X[:, 0] * X[:, 1] / X[:, 2] ** 2)
    plan = groups.find_groups(root(X, y), Clock(20))[0]
    assert len(plan.rows) == 1
    assert plan.error < 1e-3
    inner = plan.apply(root(X, y))
    g = X[:, 0] * X[:, 1] / X[:, 2] ** 2
    ratio = np.log(inner.P[:, 0]) / np.log(g)
    np.testing.assert_allclose(ratio, ratio[0])


def test_front_of_inputs_that_enter_as_powers_only():
    X = box(800, 4)
    y = X[:, 0] ** 2 / X[:, 1] * np.sin(X[:, 2] * X[:, 3])
    plan = front.find_front(root(X, y))
    assert plan is not None
    assert plan.front[:2] == [2, -1]
    assert sorted(r.index(Fr(1)) for r in plan.rows) == [2, 3]


def test_separation_of_a_sum_and_of_a_product():
    X = box(1000, 3)
    total = np.sin(X[:, 0]) + X[:, 1] / (1 + X[:, 2])
    found = {s.name: s for s in separate.separate(root(X, total))}
    assert found["id"].components == [[0], [1, 2]]
    part = found["id"].values[0] - np.sin(X[:, 0])
    assert np.std(part) < 1e-6
    found = {s.name: s for s in separate.separate(root(X, np.exp(X[:, 0]) * (X[:, 1] + X[:, 2] ** 2)))}
    assert found["log"].components == [[0], [1, 2]]


def test_no_separation_where_all_inputs_interact():
    X = box(1000, 3)
    assert separate.separate(root(X, np.sqrt(1 + np.sin(X[:, 0] * X[:, 1] * X[:, 2])))) == []


def test_differences():
    X = box(800, 3)
    y = X[:, 0] * np.exp(-((X[:, 1] - X[:, 2]) ** 2))
    pairs = find_differences(root(X, y))
    assert [(set(p[:2]), p[2]) for p in pairs] == [({1, 2}, -1.0)]
    assert apply_differences(root(X, y), pairs).k == 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x: 1 / (1 + 1.6 * np.exp(-1.04 * x)) - 0.5,
        lambda x: 0.3 + 2.2 * np.exp(-((x - 1.3) ** 2) / 0.5),
        lambda x: 1.5 * np.exp(-0.3 * x) * np.cos(2.1 * x + 0.4),
        lambda x: 3 * x**1.7 - 0.2 * x,
        lambda x: np.log(x + 0.37),
        lambda x: 2 * np.exp(-0.4 * x) + 3 * np.exp(-2.2 * x),
    ],
)
def test_curves_with_constants_inside(f):
    X = box(300, 1, 0.1, 3.0)
    assert solves(curves(root(X, f(X[:, 0]))), X, f(X[:, 0]))


def test_factor_of_a_signed_target():
    X = np.random.default_rng(0).uniform([0, 1, 1], [6, 3, 3], (600, 3))
    y = np.cos(X[:, 0]) * (X[:, 1] - X[:, 2] ** 2)
    tree, others = factors(root(X, y))[0]
    assert tree == ("cos", X0)
    assert others == [1, 2]


def test_an_input_as_exponent_is_a_simple_factor_under_noise():
    X = box(300, 2, 0.2, 2.5)
    y = X[:, 1] ** 2 * X[:, 0] ** -X[:, 1]
    noisy = root(X, y + 0.01 * y.std() * np.random.default_rng(1).normal(size=300))
    assert solves(Few(noisy, Clock(10), True, None, 300).simple_products(), X, y)


def test_all_pairs_find_the_two_right_columns():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(200, 300))
    y = 2 * F[:, 17] - 3 * F[:, 231] + 1
    pairs = dic.best_pairs(y, np.ones((200, 1)), F)
    assert min(pairs)[1] == (17, 231)
    chosen = dic.extend(y + F[:, 5], np.ones((200, 1)), F, (17,), 3)[-1]
    assert set(chosen[1]) == {17, 231, 5}
    assert chosen[0] < 1e-11


# ---- noise, units, time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.01, 0.1])
def test_noise_is_estimated_before_a_formula_is_known(sigma):
    X = box(2000, 2)
    y = np.exp(-X[:, 0]) * X[:, 1]
    noise = sigma * np.std(y)
    got = noise_level(root(X, y + noise * np.random.default_rng(5).normal(size=2000)))
    assert got is not None
    assert got.gaussian
    assert got.level == pytest.approx(noise, rel=0.06)


def test_no_noise_is_seen_in_a_smooth_function():
    X = box(2000, 2)
    assert noise_level(root(X, np.exp(-X[:, 0]) * np.sin(X[:, 1]))) is None


def test_residuals_with_structure_are_not_noise():
    X = box(1000, 2)
    r = np.random.default_rng(0).normal(size=1000)
    assert is_noise(X, r)
    assert not is_noise(X, r + 0.5 * X[:, 0])


def test_groups_from_units_are_those_of_the_pendulum():
    # length (m), mass (kg), gravity (m s^-2) -> period (s)
    plan = groups_from(Dimensions([[1, 0, 0], [0, 1, 0], [1, 0, -2]], [0, 0, 1], ["m", "kg", "s"]))  # type: ignore[list-item]
    assert plan.front == [Fr(1, 2), 0, Fr(-1, 2)]
    assert plan.rows == []


def test_units_that_cannot_give_the_target_are_refused():
    with pytest.raises(ValueError, match="dimension of the target"):
        groups_from(Dimensions([[1, 0]], [0, 1], ["m", "s"]))  # type: ignore[list-item]


def test_the_clock_ends_a_share_quietly_and_the_whole_by_an_exception():
    clock = Clock(1e-9)
    with pytest.raises(OutOfTime):
        clock.check()
    clock = Clock(100)
    with clock.share(-1.0):
        clock.check()
        pytest.fail("the share was used up")


def test_relative_error_is_infinite_outside_the_domain():
    assert relative_error(("log", X0), np.array([[-1.0], [1.0]]), np.ones(2)) == np.inf


def test_constants_under_a_root_stand_before_it():
    x, c = ex.var(0), ex.const(4.0)
    assert ex.factors_outside(("sqrt", ex.mul(c, x))) == ex.mul(ex.const(2.0), ("sqrt", x))
    assert ex.factors_outside(("pow", ex.mul(x, c), Fr(-2))) == ex.mul(ex.const(1 / 16), ("pow", x, Fr(-2)))
    for kept in (("sqrt", ex.mul(ex.const(-4.0), x)), ("sqrt", ex.add(c, x)), ("exp", ex.mul(c, x))):
        assert ex.factors_outside(kept) == kept
