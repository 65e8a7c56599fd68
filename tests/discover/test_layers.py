"""Formulas under several layers: solved for the target, told by their domain, beside a larger base."""

import numpy as np
import pytest

from numerate.discover import domains, mixed, rational, solved_for
from numerate.discover import expressions as ex
from numerate.discover.clock import Clock
from numerate.discover.products import product_fits
from numerate.discover.refit import refit
from numerate.discover.view import root

A, B, C = ex.var(0), ex.var(1), ex.var(2)


def box(n=400, d=3, low=-4.0, high=4.0):
    return np.random.default_rng(1).uniform(low, high, (n, d))


def real(f, X):
    """The rows on which f is real, as a table that f has made holds them."""
    with np.errstate(invalid="ignore"):
        y = f(*X.T)
    return X[np.isfinite(y)], y[np.isfinite(y)]


def solves(trees, X, y):
    with np.errstate(all="ignore"):
        return any(refit(tree, X, y).error < 1e-10 for tree in trees)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: -2.7 * a**2 * (a**2 * b + a + np.sqrt(a**4 + 0.3)),  # a root with a factor before it
        lambda a, b, c: a + b + np.log(a**2 + a * (1.9 * np.sqrt(0.7 * a + c + 0.3 * b / c + 9) - b)),
        lambda a, b, c: c * (b / (a + (a - b) * np.sqrt(c * b + 20)) - a),  # a root below, of both signs
        lambda a, b, c: c * (a + b + 0.27 / (c**2 + (b + 9) / (a * b + 30 + b))),  # a quotient beside two terms
    ],
)
def test_a_root_or_a_quotient_under_other_layers(f):
    X, y = real(f, box(d=f.__code__.co_argcount))
    assert solves(solved_for.solved_fits(root(X, y), Clock(20), None), X, y)


def test_a_combination_that_holds_on_a_few_large_rows_is_none():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(np.eye(200)[:, :3] + 1e-12 * rng.standard_normal((200, 3)))[0]
    W = 1e-12 * rng.standard_normal((200, 2))
    W[0] = 1.0  # a row on which the span holds everything
    assert not solved_for.in_span(Q, W)
    assert solved_for.in_span(Q, Q @ rng.standard_normal((3, 2)))


def test_rows_tell_of_a_root():
    X, _ = real(lambda a, b, c: np.sqrt(a * b), box())
    assert ex.mul(A, B) in domains.likely_domains(X)
    assert domains.likely_domains(box(low=1.0)) == []  # inputs that are positive tell nothing
    assert domains.likely_domains(box()) == []


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: b * np.sqrt(a * b) * (a * c - c - 2) + c,
        lambda a, b, c: a * b - np.abs(c) / np.sqrt(a * b + a * c) + 1.1 / b,
        lambda a, b, c: (a**2 - 3 * b) * np.log(a - b - c) + b,
    ],
)
def test_a_function_of_a_quantity_that_is_always_positive_times_a_polynomial(f):
    X, y = real(f, box())
    assert solves(domains.domain_fits(root(X, y), Clock(20), None), X, y)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a - b**2 + b * np.cos(a) + b - 2.2 * np.sqrt(-a - 0.44 / c),
        lambda a, b, c: np.sin(c) / a + np.cos(a * b * np.exp(-c)),
        lambda a, b, c: b * np.cos(c) + np.exp(a) / b - 0.3 * c,
    ],
)
def test_functions_beside_functions_times_inputs(f):
    X, y = real(f, box(800))
    assert solves(mixed.mixed_fits(root(X, y), Clock(20), None), X, y)


@pytest.mark.parametrize("seed", [2, 3])
def test_zeros_of_a_base_that_hardly_tells_its_columns_apart_are_dropped(seed):
    X = np.random.default_rng(seed).uniform(-4, 4, (800, 3))
    X, y = real(lambda a, b, c: a - b**2 + b * np.cos(a) + b - 2.2 * np.sqrt(-a - 0.44 / c), X)
    assert solves(mixed.mixed_fits(root(X, y), Clock(20), None), X, y)


def roots(view, clock, allowed):
    return rational.roots_of_quadratics(view, clock)


@pytest.mark.parametrize(
    ("part", "n", "d"),
    [(domains.domain_fits, 300, 20), (mixed.mixed_fits, 120, 8), (product_fits, 300, 20), (roots, 500, 300)],
)
def test_parts_that_have_no_room_for_so_many_inputs_do_no_work(part, n, d):
    X, clock = box(n, d), Clock(20)
    assert not list(part(root(X, X[:, 0] * X[:, 1]), clock, None))
    assert clock.work == 0


def test_the_rows_bound_the_ratio_under_a_root():
    u, v = box(d=2).T
    u, v = u[u + 1.5 * v > 0], v[u + 1.5 * v > 0]
    c = mixed.within(u, v)
    assert len(c) > 2
    assert (u[:, None] + c * v[:, None] > 0).all()
    assert min(c) < 1.5 < max(c)
    assert not len(mixed.within(-np.abs(u) - 1, np.zeros_like(u)))
