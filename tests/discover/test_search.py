"""The whole search on small problems."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from math import comb
from threading import Event

import numpy as np
import pytest
import sympy as sp
from threadpoolctl import threadpool_info, threadpool_limits

from numerate.discover import Dimensions, polynomials, search
from numerate.discover.clock import Clock, OutOfTime, check_time
from numerate.discover.pool import Pool
from numerate.discover.solver import Solver
from numerate.discover.view import root

LAWS = {  # formula, inputs, range
    "product": ("a*b/c**2", 3, (1, 3)),
    "saturation": ("a*b/(1 + b*c)", 3, (1, 3)),
    "decay": ("a*exp(-b/c)", 3, (1, 3)),
    "distance": ("sqrt((a - b)**2 + (c - d)**2)", 4, (1, 5)),
    "gaussian": ("exp(-a**2/2)/sqrt(2*pi)", 1, (1, 3)),
    "lorentz": ("a/sqrt(1 - b**2/c**2)", 3, ((1, 2), (1, 2), (3, 5))),
    "interference": ("a + b + 2*sqrt(a*b)*cos(c)", 3, (1, 5)),
    "planck": ("a/(exp(a*b/c) - 1)", 3, (1, 3)),
    "signed": ("3*a - 2*a*b - a**2", 2, (-2, 2)),
    "many": ("a*b/((c - d)**2 + (e - f)**2)", 6, ((1, 2), (1, 2), (1, 2), (3, 4), (1, 2), (3, 4))),
}


def data(text, d, span, n=800, seed=0):
    names = "abcdef"[:d]
    low, high = np.array([span] * d if np.ndim(span) == 1 else span, float).T
    X = np.random.default_rng(seed).uniform(low, high, (n, d))
    f = sp.lambdify(sp.symbols(list(names)), sp.sympify(text), "numpy")
    return X, f(*X.T), list(names)


@pytest.mark.parametrize("law", LAWS)
def test_known_laws_are_found_exactly(law):
    text = LAWS[law][0]
    X, y, names = data(*LAWS[law])
    found = search(X, y, names=names, seconds=10)
    assert found.exact
    assert found.noise == 0.0
    assert found.best.relative_error < 1e-12
    outside = X * 1.2
    truth = sp.lambdify(sp.symbols(names), sp.sympify(text), "numpy")(*outside.T)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found.best.predict(outside), truth, rtol=1e-9)
        got = sp.lambdify(sp.symbols(names), found.best.expression, "numpy")(*outside.T)
    np.testing.assert_allclose(got, truth, rtol=1e-9)


def test_the_front_trades_size_for_error():
    X, y, names = data(*LAWS["planck"])
    front = search(X, y, names=names).front
    sizes, errors = [f.size for f in front], [f.error for f in front]
    assert sizes == sorted(sizes)
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize(("law", "noise"), [("planck", 0.0), pytest.param("product", 0.05, marks=pytest.mark.slow)])
def test_the_same_seed_gives_the_same_formula(law, noise):
    X, y, names = data(*LAWS[law])
    y = y + noise * np.random.default_rng(1).normal(size=len(y))
    first, second = (search(X, y, names=names, seconds=30, seed=3).best for _ in range(2))
    assert first.expression == second.expression
    assert first.error == second.error


def test_noise_and_standard_errors_are_right():
    rng = np.random.default_rng(0)
    misses = []
    for seed in range(3):
        X = np.random.default_rng(seed).uniform(1, 3, (500, 1))
        y = 1.2345678 * np.sqrt(X[:, 0]) + 0.02 * rng.normal(size=500)
        found = search(X, y, names=["a"], seconds=3, seed=seed)
        assert not found.exact
        assert found.noise == pytest.approx(0.02, rel=0.15)
        for value, error in found.best.constants.values():
            misses.append((value - 1.2345678) / error)
    assert misses
    assert np.sqrt(np.mean(np.square(misses))) < 3


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.interp(x, np.linspace(0, 3, 9), [0, 1, 0.5, 2, 1.3, 0.2, 0.7, 1.9, 1.0]),  # a polygon
        lambda x: _bessel(x),
        lambda x: _bessel(0.3 * x),  # smooth enough for short series
    ],
)
def test_what_is_no_law_is_not_called_exact(f):
    x = np.random.default_rng(0).uniform(0.01, 3, 400)
    found = search(x[:, None], f(x), names=["x"], seconds=3)
    assert not found.exact
    assert not any(g.exact for g in found.front)


def _bessel(x):
    """J0 by its integral: no formula of elementary functions."""
    t = (np.arange(2000) + 0.5) * np.pi / 2000
    return np.mean(np.cos(x[:, None] * np.sin(t)), 1)


def test_the_time_is_kept():
    X = np.random.default_rng(0).uniform(-1, 1, (1000, 4))
    y = np.sin(7 * X[:, 0] * X[:, 1] + np.exp(np.cos(5 * X[:, 2] * X[:, 3])))
    start = time.process_time()
    found = search(X, y, names=list("abcd"), seconds=4)
    assert time.process_time() - start < 4.4
    assert not found.exact


def test_interruption_gives_the_best_so_far(monkeypatch):
    X, y, names = data(*LAWS["distance"])
    offer, count = Pool.offer, [0]

    def interrupted(self, *arguments):
        count[0] += 1
        if count[0] > 2:
            raise KeyboardInterrupt
        offer(self, *arguments)

    monkeypatch.setattr(Pool, "offer", interrupted)
    found = search(X, y, names=names)
    assert found.best.relative_error < 1.1
    assert not found.exact


def test_too_little_time_for_any_formula_is_said():
    X, y, names = data(*LAWS["distance"])
    with pytest.raises(ValueError, match="too few for a first formula"):
        search(X, y, names=names, seconds=1e-9)


def test_a_search_that_time_ends_goes_back_to_looking_for_noise():
    X, y, _ = data(*LAWS["distance"])
    solver = Solver(Pool(X, y, None, Clock(0.0)), Clock(0.0), 0)
    for part in (solver.exactly, solver.rest):
        with pytest.raises(OutOfTime):
            part(root(X, y))
        assert not solver.pool.exact_only


def test_a_part_that_a_share_around_it_has_cut_off_is_run_again():
    clock, runs = Clock(10.0), []
    solver = Solver(Pool(np.ones((3, 1)), np.ones(3), None, clock), clock, 0)

    def part():
        runs.append(clock.work)
        with clock.share(2.0):
            clock.spend(1.0)

    with clock.share(0.5):
        solver.once("part", part)
    for _ in range(2):
        solver.once("part", part)
    assert runs == [0.0, 1.0]


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def test_the_search_works_on_one_thread_and_leaves_the_threads_of_others_alone():
    """Threads that wait for each other would use up the CPU time."""
    X, y, names = data(*LAWS["decay"])
    inside = []
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        search(X, y, names=names, progress=lambda *_: inside.append(max(blas_threads())))
        assert blas_threads() == before
    assert set(inside) == {1}


def test_searches_that_overlap_leave_the_threads_of_others_alone():
    """The first to begin is the first to end: what the second found when it began is not what it has to restore."""
    X, y, names = data(*LAWS["decay"])
    first_runs, second_runs, first_ended = Event(), Event(), Event()

    def run(mine: Event, other: Event) -> None:
        def tell(*_: object) -> None:
            mine.set()
            assert other.wait(60)

        search(X, y, names=names, progress=tell)

    def first():
        run(first_runs, second_runs)
        first_ended.set()

    def second():
        assert first_runs.wait(60)
        run(second_runs, first_ended)

    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(2) as executor:
        before = blas_threads()
        for each in [executor.submit(first), executor.submit(second)]:
            each.result()
        assert blas_threads() == before


def test_a_loop_without_a_clock_ends_with_the_time_of_the_running_search():
    used = Clock(-1.0)
    check_time()
    with used.running(), pytest.raises(OutOfTime):
        check_time()
    assert used.cut
    check_time()


def test_a_table_that_time_has_cut_is_made_in_full_the_next_time():
    polynomials.exponents.cache_clear()
    with Clock(-1.0).running(), pytest.raises(OutOfTime):
        polynomials.exponents(7, 3)
    assert len(polynomials.exponents(7, 3)) == comb(7 + 3, 3) - 1


def test_progress_reports_improvement():
    X, y, names = data(*LAWS["decay"])
    errors = []
    search(X, y, names=names, progress=lambda formula, seconds: errors.append((formula.relative_error, seconds)))
    assert errors[-1][0] < 1e-10
    assert all(a[1] <= b[1] for a, b in pairwise(errors))


def test_only_allowed_functions_are_used():
    X, y, names = data(*LAWS["decay"])
    found = search(X, y, names=names, seconds=2, functions=["sqrt"])
    assert not found.best.expression.atoms(sp.exp, sp.sin, sp.cos, sp.log)


def test_units_lead_to_the_groups():
    X, y, names = data("sqrt(a/b)*cos(c)", 3, (1, 2))
    # a: m, b: m s^-2, c: none -> s
    units = Dimensions([[1, 0], [1, -2], [0, 0]], [0, 1], ["m", "s"])  # type: ignore[list-item]
    found = search(X, y, names=names, dimensions=units)
    assert found.exact
    assert found.groups == [{"c": 1}]


def test_what_a_formula_leaves_is_noise_up_to_the_noise_only(monkeypatch):
    """A formula that misses a term does not make the noise larger."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 3, (1000, 1))
    y = X[:, 0] + 0.1 * X[:, 0] ** 3 + 0.05 * rng.standard_normal(1000)
    monkeypatch.setattr(Solver, "solve", lambda *_: None)  # only a straight line is tried
    monkeypatch.setattr(Solver, "rest", lambda *_: None)
    monkeypatch.setattr(Solver, "exactly", lambda *_: None)
    monkeypatch.setattr(Solver, "approximate", lambda *_: None)
    found = search(X, y, names=["x"], seconds=2)
    assert found.best.error > 0.1
    assert 0.045 < found.noise < 0.055


def test_weights_decide_between_two_laws():
    X = np.random.default_rng(0).uniform(1, 3, (400, 1))
    y = np.where(np.arange(400) % 2, 2 * X[:, 0], 5 * X[:, 0] ** 2)
    weights = np.where(np.arange(400) % 2, 1.0, 1e-12)
    found = search(X, y, names=["a"], weights=weights, seconds=3)
    np.testing.assert_allclose(found.best.predict(X)[1::2], y[1::2], rtol=1e-3)


def test_redundant_inputs_are_left_out():
    rng = np.random.default_rng(0)
    X = rng.uniform(1, 3, (1000, 8))
    y = X[:, 0] * np.exp(-X[:, 1])
    found = search(X, y, names=[f"x{i}" for i in range(8)])
    assert found.exact
    assert {str(s) for s in found.best.expression.free_symbols} == {"x0", "x1"}


def test_fifty_points_suffice_for_a_simple_law():
    X, y, names = data(*LAWS["saturation"], n=50)
    assert search(X, y, names=names).exact
