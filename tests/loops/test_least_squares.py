"""Least squares by emitted loops: against certified values, SciPy, and the plain reference."""

import logging
import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import torch

from numerate.loops.least_squares import residual
from numerate.loops.least_squares.index import exponents, fit_index, fit_index_native, fit_index_numpy, gram_places
from numerate.loops.least_squares.marquardt import LevenbergMarquardt, solve_cholesky
from numerate.loops.least_squares.tape import OPERATIONS, Tape, refit, refit_native, refit_numpy
from numerate.loops.toolchain import native
from numerate.train import least_squares

NIST = Path(__file__).parent / "nist"


def read(name: str):
    """Starts (2, P), certified parameters and standard deviations, and the data of a NIST problem."""
    lines = (NIST / f"{name}.dat").read_text().splitlines()
    rows = [re.match(r"\s*b\d+ =" + r"\s+(\S+)" * 4, line) for line in lines]
    table = torch.tensor([[float(v) for v in row.groups()] for row in rows if row], dtype=torch.float64)
    start = max(i for i, line in enumerate(lines) if line.startswith("Data:"))
    data = torch.tensor([[float(v) for v in line.split()] for line in lines[start + 1 :]], dtype=torch.float64)
    return table[:, :2].T, table[:, 2], table[:, 3], (data[:, 1], data[:, 0])


def saturation(b, x, y):
    return b[0] * (1 - torch.exp(-b[1] * x)) - y


def mobility(b, x, y):
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3) - y


@pytest.mark.parametrize("backend", ["emitted", "plain"])
@pytest.mark.parametrize(("name", "function"), [("Misra1a", saturation), ("Thurber", mobility)])
def test_certified_values_to_six_digits_from_both_starts(name, function, backend):
    starts, certified, deviations, data = read(name)
    found = least_squares(function, starts, data, backend=backend)
    assert found.converged.all()
    assert found.backend == backend
    torch.testing.assert_close(found.parameters, certified.expand(2, -1), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.standard_errors, deviations.expand(2, -1), rtol=1e-6, atol=0)


def waves(p, x, y):
    """Two residuals per row, with functions of every kind."""
    power = torch.where(x[:, 0] > 0, x[:, 0].abs().clamp(min=1e-3) ** p[0], p[1] * torch.tanh(x[:, 0]))
    return torch.stack([power - y[:, 0], torch.sin(p[2] * x[:, 1]) + p[3] * math.pi / (1 + x[:, 1] ** 2) - y[:, 1]], 1)


def waves_data():
    generator = torch.Generator().manual_seed(1)
    x = torch.empty(101, 2, dtype=torch.float64).uniform_(-2, 2, generator=generator)
    truth = torch.tensor([1.5, 0.7, 1.2, -0.4], dtype=torch.float64)
    y = waves(truth, x, torch.zeros(101, 2))
    return x, y + 0.01 * torch.randn(101, 2, dtype=torch.float64, generator=generator)


def test_scipy_finds_the_same_minimum_and_errors():
    x, y = waves_data()
    start = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    found = least_squares(waves, start[None], (x, y), backend="emitted")

    def flat(p):
        return waves(torch.from_numpy(p), x, y).flatten().numpy()

    theirs = scipy.optimize.least_squares(flat, start.numpy(), xtol=1e-14, ftol=1e-14, gtol=1e-14)
    np.testing.assert_allclose(found.parameters[0].numpy(), theirs.x, rtol=1e-6)
    np.testing.assert_allclose(found.residual[0].item(), np.sqrt(2 * theirs.cost / 202), rtol=1e-9)
    covariance = np.linalg.inv(theirs.jac.T @ theirs.jac) * 2 * theirs.cost / (202 - 4)
    np.testing.assert_allclose(found.standard_errors[0].numpy(), np.sqrt(np.diag(covariance)), rtol=1e-5)


def test_the_emitted_loop_takes_the_steps_of_the_reference():
    data = waves_data()
    starts = torch.rand(11, 4, dtype=torch.float64) + 0.5
    for evaluations in (1, 2, 5):
        optimiser = LevenbergMarquardt(evaluations=evaluations)
        ours, plain = (least_squares(waves, starts, data, optimiser=optimiser, backend=b) for b in ("emitted", "plain"))
        torch.testing.assert_close(ours.parameters, plain.parameters, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(ours.residual, plain.residual, rtol=1e-8, atol=0)
        assert ours.iterations.tolist() == plain.iterations.tolist()


@pytest.mark.parametrize("backend", ["emitted", "plain"])
def test_a_start_without_a_number_stays_by_itself(backend):
    starts, *_, data = read("Misra1a")
    alone = least_squares(saturation, starts, data, backend=backend)
    bad = torch.tensor([[math.nan, 1.0], [1e300, -1e300], [math.inf, 0.0]], dtype=torch.float64)
    mixed = least_squares(saturation, torch.cat([bad[:2], starts[:1], bad[2:], starts[1:]]), data, backend=backend)
    assert torch.equal(mixed.parameters[[2, 4]], alone.parameters)
    assert mixed.residual[[0, 1, 3]].isnan().all()
    assert mixed.standard_errors[[0, 1, 3]].isnan().all()
    assert not mixed.converged[[0, 1, 3]].any()
    assert mixed.best in (2, 4)


def test_results_depend_neither_on_the_lane_nor_on_what_runs_beside_nor_on_threads():
    data = waves_data()
    starts = torch.randn(37, 4, dtype=torch.float64)
    order = torch.randperm(37)
    fit = partial(least_squares, waves, data=data, backend="emitted")
    whole, permuted, parts = fit(starts), fit(starts[order]), fit(starts, threads=3)
    for name in ("parameters", "residual", "standard_errors", "iterations", "converged"):
        expected = getattr(whole, name)
        assert torch.equal(getattr(permuted, name).nan_to_num(), expected[order].nan_to_num())
        assert torch.equal(getattr(parts, name).nan_to_num(), expected.nan_to_num())
    assert torch.equal(fit(starts[20:21]).parameters, whole.parameters[20:21])


def test_a_parameter_without_influence_stays_and_has_no_error():
    x = torch.arange(5, dtype=torch.float64)
    found = least_squares(lambda p, x: p[0] * x - x + 0 * p[1], torch.tensor([[3.0, 7.0]]), x)
    torch.testing.assert_close(found.parameters, torch.tensor([[1.0, 7.0]], dtype=torch.float64))
    assert found.standard_errors.isnan().all()


def test_a_residual_that_mixes_rows_is_left_to_the_reference(caplog):
    x = torch.linspace(1, 2, 20, dtype=torch.float64)

    def centred(p, x):
        values = p[0] * x**2
        return values - values.mean() - (x**2 - (x**2).mean())

    with caplog.at_level(logging.INFO, "numerate"):
        found = least_squares(centred, torch.tensor([[3.0]]), x)
    assert found.backend == "plain"
    assert "depends on other rows" in caplog.text
    torch.testing.assert_close(found.parameters, torch.ones(1, 1, dtype=torch.float64))


def test_without_a_compiler_the_reference_is_used(monkeypatch):
    def missing(source):
        raise native.NoCompiler("no C++ compiler found")

    monkeypatch.setattr(residual, "_library", missing)
    starts, certified, _, data = read("Misra1a")
    found = least_squares(saturation, starts[1:], data)
    assert found.backend == "plain"
    torch.testing.assert_close(found.parameters[0], certified, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("parameters", "data", "message"),
    [
        (torch.ones(2), torch.ones(3), r"parameters must be \(starts, P\)"),
        (torch.ones(1, 2), [torch.ones(3), torch.ones(4)], "same rows"),
        (torch.ones(1, 2), [], "at least one, got none"),
        (torch.ones(1, 2), torch.ones(3, 2, 2), r"residuals \(n,\) or \(n, O\) for 3 rows"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(parameters, data, message):
    with pytest.raises(ValueError, match=message):
        least_squares(lambda p, *columns: columns[0] * p[0], parameters, data)


def test_evaluations_and_refusals_are_limits():
    starts, *_, data = read("Misra1a")
    for backend in ("emitted", "plain"):
        found = least_squares(saturation, starts, data, optimiser=LevenbergMarquardt(evaluations=3), backend=backend)
        assert found.iterations.tolist() == [3, 3]
        assert not found.converged.any()


# ---------------------------------------------------------------- index models


def groups_and_starts(rows=202, inputs=5, groups=2, count=11, noise=0.0):
    """y = (x0 x3)^0.5 x2 H(x0 / x3, x1 x4^2), H quadratic in their logarithms; random starts."""
    generator = np.random.default_rng(3)
    X = generator.uniform(1, 3, (rows, inputs))
    u, v = X[:, 0] / X[:, 3], X[:, 1] * X[:, 4] ** 2
    y = (X[:, 0] * X[:, 3]) ** 0.5 * X[:, 2] * (
        1 - 0.5 * np.log(u) * np.log(v) + np.log(v) ** 2
    ) + noise * generator.normal(size=rows)
    Z = np.log(X)
    return Z - Z.mean(0), y, generator.normal(size=(count, inputs)), generator.normal(size=(count, groups, inputs))


def test_the_gram_matrix_from_moments_is_that_of_the_columns():
    x = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    T = np.polynomial.chebyshev.chebvander(x, 6)
    columns, moments = ([np.prod([T[:, j, k] for j, k in enumerate(e)], 0) for e in exponents(2, d)] for d in (3, 6))
    sums = np.sum(moments, 1)[gram_places(2, 3)].mean(-1)
    np.testing.assert_allclose(sums, (np.array(columns) @ np.array(columns).T)[np.tril_indices(10)], atol=1e-12)


@pytest.mark.parametrize("fit", [fit_index_native, fit_index_numpy])
def test_the_groups_of_a_law_are_found_to_the_last_digit(fit):
    Z, y, a, B = groups_and_starts()
    found = fit(Z, y, a, B, degree=2)
    best = np.nanargmin(found.error)
    assert found.error[best] < 1e-10
    truth = np.array([[1, 0, 0, -1, 0], [0, 1, 0, 0, 2]], float)
    inside = truth @ found.B[best].T @ found.B[best]  # the true groups lie in the row space
    np.testing.assert_allclose(inside, truth, atol=1e-8)
    np.testing.assert_allclose(found.a[best], [0.5, 0, 1, 0.5, 0], atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_native_index_fit_takes_the_steps_of_the_reference(weighted):
    Z, y, a, B = groups_and_starts(noise=0.1)
    weights = np.linspace(0.5, 2, len(y)) if weighted else None
    for evaluations in (1, 3, 40):
        optimiser = LevenbergMarquardt(damping=1e-2, small_gain=1e-4, evaluations=evaluations, refusals=6)
        ours, plain = (fit(Z, y, a, B, 3, weights, optimiser) for fit in (fit_index_native, fit_index_numpy))
        np.testing.assert_allclose(ours.error, plain.error, rtol=1e-6)
        assert ours.evaluations.tolist() == plain.evaluations.tolist()
    assert ours.converged.any()


def test_an_index_fit_knows_nothing_of_its_neighbours():
    Z, y, a, B = groups_and_starts(noise=0.1)
    whole = fit_index(Z, y, a, B, 3)
    order = np.random.default_rng(0).permutation(len(a))
    a[4], B[7] = np.nan, 0.0
    mixed = fit_index(Z, y, a[order], B[order], 3, threads=2)
    assert np.isnan(mixed.error[list(order).index(4)])
    others = [place for place, start in enumerate(order) if start not in (4, 7)]
    for name in ("a", "B", "error", "evaluations"):
        assert np.array_equal(getattr(mixed, name)[others], getattr(whole, name)[order[others]])


def test_inputs_of_few_values_leave_columns_that_depend_on_others():
    generator = np.random.default_rng(0)
    Z = generator.integers(0, 3, (90, 3)).astype(float)
    y = 1 + Z[:, 0] - Z[:, 1] * Z[:, 2]
    a, B = np.zeros((8, 3)), generator.normal(size=(8, 2, 3))
    for fit in (fit_index_native, fit_index_numpy):
        assert np.isfinite(fit(Z, y, a, B, 5).error).all()


def test_bad_index_input_is_refused():
    Z, y, a, B = groups_and_starts()
    with pytest.raises(ValueError, match="fewer groups than inputs"):
        fit_index(Z[:, :2], y, a[:, :2], B[:, :, :2], 3)
    with pytest.raises(ValueError, match=r"needs Z \(n, d\)"):
        fit_index(Z, y, a[:, :4], B, 3)
    with pytest.raises(ValueError, match="must be finite"):
        fit_index(Z, y * np.inf, a, B, 3)


# ---------------------------------------------------------------- many expressions


def expression(tape: Tape, operation: str) -> Tape:
    """c0 f(c1 x0 [, c2]) + c3 x1"""
    inner = tape.call("mul", tape.constant(0.6), tape.input(0))
    both = len(OPERATIONS[operation]) == 3
    value = tape.call(operation, inner, *([tape.constant(0.7)] if both else []))
    tape.call("add", tape.call("mul", tape.constant(1.1), value), tape.call("mul", tape.constant(0.9), tape.input(1)))
    return tape


def expressions_and_data(rows=75):
    generator = np.random.default_rng(2)
    X = generator.uniform(0.2, 1.4, (rows, 2))
    tapes = [expression(Tape(), operation) for operation in OPERATIONS]
    y = 1.3 * np.sin(0.8 * X[:, 0]) + 0.4 * X[:, 1] + 0.01 * generator.normal(size=rows)
    return tapes, X, y


def test_every_operation_takes_the_steps_of_the_reference():
    tapes, X, y = expressions_and_data()
    weights = np.linspace(0, 2, len(y))  # the first row does not count
    for optimiser in (LevenbergMarquardt(evaluations=1), LevenbergMarquardt(evaluations=3)):
        ours, plain = (run(tapes, X, y, weights, optimiser) for run in (refit_native, refit_numpy))
        np.testing.assert_allclose(ours.error, plain.error, rtol=1e-9)
        for mine, other in zip(ours.constants, plain.constants):
            np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_refitted_constants_and_their_errors_are_scipys():
    tapes, X, y = expressions_and_data()
    sine = list(OPERATIONS).index("sin")
    found = refit(tapes, X, y)

    def model(X, factor, inner, other):
        return factor * np.sin(inner * X[:, 0]) + other * X[:, 1]

    theirs, covariance = scipy.optimize.curve_fit(model, X, y, [1.1, 0.6, 0.9])
    inner, factor, other = found.constants[sine]
    np.testing.assert_allclose([factor, inner, other], theirs, rtol=1e-5)
    errors = found.standard_errors[sine][[1, 0, 2]]
    np.testing.assert_allclose(errors, np.sqrt(np.diag(covariance)), rtol=1e-4)
    rms = np.sqrt(np.mean((model(X, *theirs) - y) ** 2) / np.mean(y**2))
    np.testing.assert_allclose(found.error[sine], rms, rtol=1e-6)


def test_an_expression_knows_nothing_of_its_neighbours():
    tapes, X, y = expressions_and_data()
    order = np.random.default_rng(0).permutation(len(tapes))
    bad = Tape()
    bad.call("log", bad.call("neg", bad.input(0)))
    whole, mixed = refit(tapes, X, y), refit([bad, *(tapes[i] for i in order)], X, y, threads=2)
    assert np.isnan(mixed.error[0])
    assert mixed.constants[0].shape == (0,)
    assert np.array_equal(mixed.error[1:], whole.error[order])
    assert all(np.array_equal(mixed.constants[1 + k], whole.constants[i]) for k, i in enumerate(order))


def test_bad_expressions_are_refused():
    tape = Tape()
    tape.input(2)
    with pytest.raises(ValueError, match="expressions of the 2 inputs"):
        refit([tape], np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match=r"no operation sin of 2; known: add"):
        tape.call("sin", 0, 0)


# ---------------------------------------------------------------- parts


def test_cholesky_solves_and_drops_what_is_not_determined():
    matrix = np.random.default_rng(0).normal(size=(4, 5, 6))
    system = matrix @ matrix.swapaxes(1, 2)
    right = np.ones((4, 5))
    np.testing.assert_allclose(solve_cholesky(system, right), np.linalg.solve(system, right[..., None])[..., 0])
    singular = np.diag([1.0, 0.0, 4.0])[None]
    np.testing.assert_allclose(solve_cholesky(singular, np.ones((1, 3))), [[1.0, 0.0, 0.25]])


@pytest.mark.parametrize("function", [torch.exp, torch.log, torch.sqrt, torch.abs], ids=lambda f: f.__name__)
def test_elementary_functions_are_the_librarys(function):
    """One evaluation of the residual f(p) from many starts p."""
    p = torch.cat(
        [torch.linspace(-30, 30, 61), torch.logspace(-37, 2, 61), torch.tensor([-745.2, 709.7, 0.0])]
    ).double()
    expected = function(p).abs()
    found = least_squares(
        lambda p, x: function(p[0] * x),
        p[:, None],
        torch.ones(1),
        optimiser=LevenbergMarquardt(evaluations=1),
        backend="emitted",
    )
    usual = (expected > 1e-150) & (expected < 1e150)  # whose squares are numbers, too
    torch.testing.assert_close(found.residual[usual], expected[usual], rtol=5e-16, atol=0)
    assert found.residual[expected.isnan()].isnan().all()
    assert (found.residual[expected < 1e-150] == 0).all()
