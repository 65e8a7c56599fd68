"""The exact tests of many targets and features at once, and the fits they call."""

from fractions import Fraction as Fr

import numpy as np
import pytest

from numerate.discover import expressions as ex
from numerate.discover import index, inner, large, powers, rational, wide
from numerate.discover.clock import Clock
from numerate.discover.monomial import monomials
from numerate.discover.noise import noise_level
from numerate.discover.refit import compiled, refit, refit_native, refit_numpy
from numerate.discover.search import search
from numerate.discover.tapes import to_tape
from numerate.discover.view import root
from numerate.loops.least_squares import tape as least_squares
from numerate.loops.toolchain import native

A, B, C = ex.var(0), ex.var(1), ex.var(2)
needs_compiler = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")


def box(n=300, d=2, low=-4.0, high=4.0):
    return np.random.default_rng(1).uniform(low, high, (n, d))


def solves(trees, X, y):
    with np.errstate(all="ignore"):
        return any(refit(tree, X, y).error < 1e-10 for tree in trees)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a / b + np.log(np.abs(a)) - 0.5 * np.exp(b),
        lambda a, b: a - a * b + np.log(2 + a**2 + 0.3 * b**2),  # two terms taken off
        lambda a, b: a * (b + np.log(np.abs(a * b))),  # a factor
        lambda a, b: a**2 - b - np.sqrt(1.5 * b**2 + a**2 + 0.4),
        lambda a, b: a**2 + np.sqrt(100 + (a * b + 3) * np.log(np.abs(b))),
    ],
)
def test_terms_factors_and_outer_functions_before_a_span(f):
    X = box()
    y = f(*X.T)
    assert solves(wide.wide_fits(root(X, y), Clock(20), None), X, y)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a * b + 0.3 * b * np.sin(a * b) + np.tanh(b),
        lambda a, b: b + np.sin(a * b - b - a + 2.39),
        lambda a, b: np.exp(1.2 * b - np.cos(a**2)),
    ],
)
def test_two_features_beside_a_polynomial(f):
    X = box()
    y = f(*X.T)
    assert solves(large.large_fits(root(X, y), Clock(20), None), X, y)


def test_all_pairs_agree_with_least_squares_one_by_one():
    rng = np.random.default_rng(0)
    base, F, T = rng.normal(size=(60, 3)), rng.normal(size=(60, 12)), rng.normal(size=(60, 2))
    for t, found in zip(T.T, large.best_pairs(base, F, T, top=12, chunk=5)):
        off = t - base @ np.linalg.lstsq(base, t, rcond=None)[0]

        def rest(i, j, t=t, off=off):
            columns = np.column_stack([base, F[:, [i, j]]])
            return np.sum((t - columns @ np.linalg.lstsq(columns, t, rcond=None)[0]) ** 2) / (off @ off)

        best = min((rest(i, j), (i, j)) for i in range(12) for j in range(i))
        assert found[0][0] == pytest.approx(best[0], rel=1e-9)
        assert set(found[0][1]) == set(best[1])


def test_root_of_a_quadratic_whose_root_has_a_factor_of_both_signs():
    X = box()
    y = -(X[:, 0] ** 2) * X[:, 1] + 1.99 * X[:, 0] * np.sqrt(X[:, 1] ** 2 + 0.7)
    assert solves(rational.roots_of_quadratics(root(X, y), Clock(20), wide=True), X, y)


def test_a_product_of_powers_of_inputs_of_both_signs():
    X = box(d=3)
    X[:, 1] = np.abs(X[:, 1])
    y = -2.5 * X[:, 0] * np.sqrt(X[:, 1]) / X[:, 2] ** 3
    assert solves(monomials(root(X, y)), X, y)


def test_waves_that_look_like_noise_are_found_exactly():
    X = box(120, 2, -10.0, 10.0)
    y = 5 * X[:, 1] + np.sin(X[:, 0] * X[:, 1] - X[:, 1] + 2.39)
    found = search(X, y, names=["a", "b"], seconds=10)
    assert noise_level(root(X, y)) is not None
    assert found.best.relative_error < 1e-10


# ---- the fits --------------------------------------------------------------------------------------------------------

TREES = [
    ex.mul(ex.const(1.2), ("sin", ex.add(ex.mul(ex.const(0.9), A), ex.const(0.1))), ex.power(B, Fr(-3, 2))),
    ex.add(ex.const(0.5), ex.mul(ex.const(2.0), ("power", B, ex.const(0.8))), ex.mul(ex.const(0.1), ex.power(A, 3))),
    ex.add(ex.mul(ex.const(1.0), ex.power(A, Fr(1, 3))), ex.mul(ex.const(1.0), ("exp", ex.mul(ex.const(-0.5), B)))),
    ex.mul(ex.const(2.0), ex.power(ex.add(ex.const(1.0), ex.mul(ex.const(0.3), ex.power(B, 2))), -2), ("abs", A)),
]


@pytest.mark.parametrize("tree", TREES)
def test_a_tape_has_the_values_of_its_tree(tree):
    X = np.column_stack([box(50, 1), box(50, 1, 0.5, 2.0)])
    y = ex.column(tree, X)
    assert least_squares.refit_numpy([to_tape(tree)], X, y).error[0] < 1e-14
    held = to_tape(tree, {0: ex.constants(tree)[0]})
    assert held.starts == ex.constants(tree)[1:]


@needs_compiler
@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("held", [None, {1: 0.7}])
def test_native_refit_equals_the_reference(tree, held):
    X = np.column_stack([box(200, 1), box(200, 1, 0.5, 2.0)])
    y = 1.1 * ex.column(tree, X) + 0.05 * np.random.default_rng(2).normal(size=200)
    weights = np.random.default_rng(3).uniform(0.5, 2, 200)
    mine, reference = (f(tree, X, y, weights, 60, held) for f in (refit_native, refit_numpy))
    np.testing.assert_allclose(mine.error, reference.error, rtol=1e-9)
    np.testing.assert_allclose(ex.constants(mine.tree), ex.constants(reference.tree), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mine.standard_errors, reference.standard_errors, rtol=1e-3, atol=1e-12)


@needs_compiler
def test_index_models_are_the_same_without_a_compiler(monkeypatch):
    X = box(300, 3, 1.0, 3.0)
    y, Z = X[:, 2] * np.tanh(X[:, 0] / X[:, 1]), np.log(X) - np.log(X).mean(0)
    rng = np.random.default_rng(0)
    starts = [(rng.normal(size=3), rng.normal(size=(1, 3))) for _ in range(3)]
    mine = index.fit_index(Z, y, starts, 6, good=0.0)
    monkeypatch.setattr(index, "compiled", lambda: False)
    reference = index.fit_index(Z, y, starts, 6, good=0.0)
    assert len(mine) == len(reference) == 3
    np.testing.assert_allclose(mine[0][0], reference[0][0], rtol=1e-3)
    np.testing.assert_allclose(np.abs(mine[0][2]), np.abs(reference[0][2]), atol=1e-4)


def test_shares_are_counted_in_work_so_that_a_slower_machine_takes_the_same_path(monkeypatch):
    X = box(40, 1, 1.0, 3.0)
    y = X[:, 0] * np.exp(-X[:, 0]) + 0.02 * np.random.default_rng(0).normal(size=40)
    first = search(X, y, names=["a"], seconds=20)
    elapsed = Clock.elapsed.fget
    monkeypatch.setattr(Clock, "elapsed", property(lambda self: 3 * elapsed(self)))  # type: ignore[misc]
    second = search(X, y, names=["a"], seconds=20)
    assert not first.cut
    assert not second.cut
    assert [f.expression for f in first.front] == [f.expression for f in second.front]


def test_a_compiler_that_fails_is_done_without(monkeypatch):
    def fails(*_, **__):
        raise native.CompileError("no space")

    monkeypatch.setattr(least_squares, "refit_native", fails)
    compiled.cache_clear()
    try:
        X = box(50, 1, 1.0, 3.0)
        assert (
            refit(ex.mul(ex.const(1.0), ("exp", ex.mul(ex.const(0.1), A))), X, 2 * np.exp(0.5 * X[:, 0])).error < 1e-12
        )
    finally:
        compiled.cache_clear()


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a * b + 0.7 * b * np.sin(a**2 - b + c),  # a sum of terms inside, an input in front
        lambda a, b, c: a + np.sqrt(9 + c) - b * c,  # a constant beside an input
    ],
)
def test_one_function_of_a_sum_beside_a_rich_base(f):
    X = box(d=3)
    y = f(*X.T)
    assert solves(inner.inner_fits(root(X, y), Clock(20), None), X, y)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a + (a - b + 3 * c) * np.cos(a * b - c),
        lambda a, b, c: a * c + b * np.cos(0.83 * c + 1.37 * a),  # constants inside a wave
    ],
)
def test_functions_times_lines_and_waves_with_constants(f):
    X = box(d=3)
    y = f(*X.T)
    assert solves(inner.dearer_fits(root(X, y), Clock(20), None), X, y)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a**2 * b / np.abs(a + c) ** 2,
        lambda a, b, c: a - c**2 + 0.56 * np.sqrt(b**2 + c**2) / a,
    ],
)
def test_a_product_of_powers_beside_terms(f):
    X = box(d=3)
    y = f(*X.T)
    assert solves(powers.power_fits(root(X, y), Clock(20)), X, y)


def test_a_root_with_a_pole_inside():
    X = box(n=400, d=3, low=0.5)
    y = X[:, 0] + X[:, 1] * X[:, 2] + np.sqrt(X[:, 0] + 0.3 * X[:, 1] / X[:, 2])
    assert solves(rational.roots_of_quadratics(root(X, y), Clock(20), wide=True), X, y)


def test_values_near_overflow_do_not_end_the_search():
    X = box(d=3, low=0.5, high=10.0)
    y = np.exp(20 * X[:, 0] * np.cos(X[:, 1])) + X[:, 2]
    assert np.isfinite(search(X, y, names=["a", "b", "c"], seconds=1).best.error)
