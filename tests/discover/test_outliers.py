"""Gross outliers are found, left out and told."""

import numpy as np
import pytest

from numerate import FormulaRegressor
from numerate.discover.robust import far_from_smooth, robust_search
from numerate.discover.search import search

LAWS = {
    "pendulum": lambda X: 2 * np.pi * np.sqrt(X[:, 0] / X[:, 1]),
    "lens": lambda X: X[:, 0] * X[:, 1] / (X[:, 0] + X[:, 1]),
    "wave": lambda X: X[:, 0] * np.sin(X[:, 1]),
}


def spoilt(law, noise=0.0, n=400, share=0.05):
    """A table of the law, 5 % of its rows off by 2 to 20 times the target's size; and which rows these are."""
    rng = np.random.default_rng(3)
    X = rng.uniform(1, 3, (n, 2))
    y = law(X)
    size = np.sqrt(np.mean(y**2))
    y = y + noise * size * rng.normal(size=n)
    bad = np.sort(rng.choice(n, int(share * n), replace=False))
    y[bad] += size * rng.choice([-1, 1], len(bad)) * rng.uniform(2, 20, len(bad))
    return X, y, bad


@pytest.mark.parametrize("name", LAWS)
def test_the_law_of_the_other_rows_is_found(name):
    X, y, bad = spoilt(LAWS[name])
    found = robust_search(X, y, names=["a", "b"], seconds=5)
    assert found.exact
    assert found.outliers == tuple(bad)
    np.testing.assert_allclose(found.best.predict(X), LAWS[name](X), rtol=1e-9)


def test_outliers_spoil_a_search_that_is_not_robust():
    X, y, _ = spoilt(LAWS["pendulum"])
    assert not search(X, y, names=["a", "b"], seconds=0.5).exact


def test_noise_beside_outliers_is_estimated_from_the_other_rows():
    X, y, bad = spoilt(LAWS["pendulum"], noise=0.01, n=200)
    found = robust_search(X, y, names=["a", "b"], seconds=5)
    assert found.outliers == tuple(bad)
    np.testing.assert_allclose(found.best.predict(X), LAWS["pendulum"](X), rtol=1e-9)
    assert found.noise == pytest.approx(0.01 * np.sqrt(np.mean(LAWS["pendulum"](X) ** 2)), rel=0.1)


def test_normal_noise_has_no_outliers():
    X, y, _ = spoilt(LAWS["lens"], noise=0.05, share=0.0)
    assert not far_from_smooth(X, y, np.ones(len(y))).any()


def test_the_estimator_says_which_rows_it_left_out():
    X, y, bad = spoilt(LAWS["pendulum"], n=200)
    model = FormulaRegressor(seconds=5, robust=True).fit(X, y)
    assert model.exact_
    assert model.outliers_ == bad.tolist()
    assert FormulaRegressor(seconds=5).fit(X, LAWS["pendulum"](X)).outliers_ == []
