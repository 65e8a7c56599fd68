"""FormulaRegressor as a scikit-learn user meets it."""

import pickle
import subprocess
import sys
from typing import cast

import numpy as np
import polars as pl
import pytest
import sympy
import torch
from scipy.optimize import curve_fit
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from numerate import FormulaRegressor
from numerate.discover.run import distinct


def pendulum(count=120, seed=0):
    rng = np.random.default_rng(seed)
    length, g = rng.uniform(0.1, 3, count), rng.uniform(1, 20, count)
    return pl.DataFrame({"length": length, "g": g}), pl.Series("T", 2 * np.pi * np.sqrt(length / g))


@pytest.fixture(scope="module")
def fitted():
    X, y = pendulum()
    return FormulaRegressor(seconds=3).fit(X, y), X, y


@pytest.mark.filterwarnings("ignore")  # the checks provoke some
def test_passes_every_check_of_scikit_learn():
    found = check_estimator(FormulaRegressor(seconds=0.05), on_fail=None, on_skip=None)
    failed = [(each["check_name"], repr(each["exception"])) for each in found if each["status"] == "failed"]
    assert not failed
    assert not [each for each in found if each["expected_to_fail"]]
    assert len(found) > 50


def test_exact_law_keeps_the_names_of_columns(fitted):
    model, X, y = fitted
    length, g = sympy.symbols("length g")
    assert model.exact_
    assert model.noise_ == 0
    assert sympy.simplify(model.formula_**2 - 4 * sympy.pi**2 * length / g) == 0
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-12)
    assert model.formulas_[-1].size >= model.formulas_[0].size


def test_pandas_frame_gives_the_same_formula(fitted):
    model, X, y = fitted
    frame, series = X.to_pandas(), y.to_pandas()
    assert FormulaRegressor(seconds=3).fit(frame, series).formula_ == model.formula_


def test_importing_the_package_stays_light():
    code = "import numerate, sys; print(sorted({'sklearn', 'sympy', 'torch', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pickle_and_clone_keep_what_was_found(fitted):
    model, X, _ = fitted
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert cast(FormulaRegressor, clone(model)).get_params() == model.get_params()
    assert len(model.get_params()) < 10


def test_each_target_has_its_own_search():
    X, _ = pendulum(80)
    targets = pl.DataFrame({"area": X["length"] * X["g"], "ratio": X["length"] / X["g"]})
    model = FormulaRegressor(seconds=2).fit(X, targets)
    length, g = sympy.symbols("length g")
    assert model.formula_ == [length * g, length / g]
    assert model.exact_ == [True, True]
    np.testing.assert_allclose(model.predict(X), targets.to_numpy(), rtol=1e-12)
    assert "formula_area" in model.code("c")
    assert model.to_module()(torch.tensor(X.to_numpy())).shape == (80, 2)


def test_rows_without_weight_do_not_count():
    rng = np.random.default_rng(1)
    X = rng.uniform(1, 3, (60, 1))
    y = 3 * X[:, 0] ** 2
    y[:10] = 100.0
    weights = np.ones(60)
    weights[:10] = 0
    model = FormulaRegressor(seconds=2).fit(X, y, sample_weight=weights)
    assert model.formula_ == 3 * sympy.Symbol("x0") ** 2


def test_a_weight_of_two_is_a_row_that_is_there_twice():
    rng = np.random.default_rng(2)
    X = rng.uniform(1, 3, (40, 1))
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    weights = rng.integers(1, 4, 40)
    weighted = FormulaRegressor(seconds=2).fit(X, y, sample_weight=weights)
    repeated = FormulaRegressor(seconds=2).fit(X.repeat(weights, axis=0), y.repeat(weights))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X))


def test_constant_columns_are_left_out():
    X, y = pendulum(80)
    model = FormulaRegressor(seconds=2).fit(X.insert_column(0, pl.lit(1.5).alias("mass")), y)
    assert model.exact_
    assert "mass" not in {symbol.name for symbol in model.formula_.free_symbols}
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-12)


def test_scores_across_folds():
    X, y = pendulum(60)
    assert cross_val_score(FormulaRegressor(seconds=1), X.to_numpy(), y.to_numpy(), cv=3).min() > 0.999999


@pytest.mark.parametrize(
    ("X", "sentence"),
    [
        (pl.DataFrame({"a": ["red", "blue", "red", "blue"]}), "column 'a' holds text"),
        (pl.DataFrame({"a": pl.Series(["r", "b", "r", "b"], dtype=pl.Categorical)}), "column 'a' holds categories"),
        (pl.DataFrame({"a": [1.0, None, 2.0, 3.0]}), "column 'a' has missing values"),
        (pl.DataFrame({"a": [1.0, 2, 3, 4], "b": [1.0, 2, 3, 4]}), "'a' and 'b' are equal"),
        (pl.DataFrame({"a": [1.0, 1, 1, 1]}), "every input is constant"),
    ],
    ids=["text", "categories", "missing", "duplicates", "constant"],
)
def test_bad_columns_are_one_sentence(X, sentence):
    with pytest.raises(ValueError, match=sentence):
        FormulaRegressor(seconds=1).fit(X, [1.0, 2.0, 4.0, 8.0])


def test_settings_are_checked_in_fit():
    X, y = pendulum(10)
    with pytest.raises(ValueError, match="nothing to explain"):
        FormulaRegressor().fit(X, np.ones(10))
    with pytest.raises(ValueError, match="seconds must be positive"):
        FormulaRegressor(seconds=0).fit(X, y)
    with pytest.raises(ValueError, match="'sine' is not known"):
        FormulaRegressor(functions=["sine"]).fit(X, y)
    with pytest.raises(ValueError, match="3 units are needed"):
        FormulaRegressor(units="m, s").fit(X, y)


def test_units_name_the_constant():
    X, y = pendulum(60)
    y = 2 * np.pi * np.sqrt(X["length"].to_numpy() / 9.80665)
    model = FormulaRegressor(seconds=2, units="m, s").fit(X[["length"]], pl.Series("T", y))
    (constant,) = model.constants()
    assert constant.unit == "s m^-1/2"
    assert constant.name.startswith("2*pi/sqrt(g_n)")


def test_standard_errors_are_those_of_the_numbers_shown():
    """sympy shows exp(a - b x) as exp(a) exp(-b x)."""
    rng = np.random.default_rng(0)
    m, v = rng.uniform(1, 5, (2, 300))
    y = 3.217 * m * np.exp(-v / 2.3) + 0.02 * rng.standard_normal(300)
    model = FormulaRegressor(seconds=5).fit(np.stack([m, v], 1), y)
    best, covariance = curve_fit(lambda _, a, b: a * m * np.exp(-b * v), m, y, p0=(3, 0.4))
    front, rate = sorted(model.constants(), key=lambda each: -each.value)
    np.testing.assert_allclose([front.value, -rate.value], best, rtol=1e-5)
    np.testing.assert_allclose([front.standard_error, rate.standard_error], np.sqrt(np.diag(covariance)), rtol=1e-3)


@pytest.mark.parametrize("values", [1000, 3], ids=["different", "often equal"])
def test_rows_come_in_the_order_of_their_values_whatever_the_order_of_the_table(values):
    rng = np.random.default_rng(0)
    table = rng.integers(-values, values, (40, 3)) * 0.5
    table[:, 0] = rng.permutation(table[:, 0] if values == 3 else np.arange(40.0))
    weights = rng.uniform(1, 2, 40)
    expected: dict[tuple[float, ...], float] = {}
    for row, weight in zip(table.tolist(), weights):
        expected[tuple(row)] = expected.get(tuple(row), 0.0) + weight
    for order in (np.arange(40), rng.permutation(40)):
        rows, joined = distinct(table[order], weights[order])
        assert [tuple(row) for row in rows.tolist()] == sorted(expected)
        np.testing.assert_allclose(joined, [expected[row] for row in sorted(expected)])
