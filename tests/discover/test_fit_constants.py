"""Constants of a given form, against NIST's certified values."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from numerate.discover import fit_constants

HERE = Path(__file__).parent / "nist"
FOLDER = Path(os.environ.get("NUMERATE_DATA", "")) / "nist_strd"


def search(pattern: str, text: str, flags: int = 0) -> re.Match[str]:
    found = re.search(pattern, text, flags)
    assert found, pattern
    return found


def read(path):
    """Left side, formula, parameter -> (start 1, start 2, certified, its standard deviation), data with y first."""
    text = path.read_text()
    lines = text.splitlines()

    def block(name):
        first, last = search(rf"{name}\s+\(lines\s+(\d+) to\s+(\d+)\)", text).groups()
        return lines[int(first) - 1 : int(last)]

    parameters = {
        match[1]: tuple(map(float, match[2].split()))
        for match in (re.match(r"\s*(b\d+)\s*=\s*(.*)", line) for line in block("Certified Values"))
        if match
    }
    begin = text.index("Model:")
    model = text[begin : begin + search(r"Starting [vV]alues", text[begin:]).start()]
    left, right = search(r"(log\[y\]|\by)\s*=(.*?)\+\s*e\b", model, re.DOTALL).groups()
    formula = " ".join(right.split()).replace("[", "(").replace("]", ")")
    return left, formula, parameters, np.array([list(map(float, line.split())) for line in block("Data")])


def check(path, start):
    left, formula, parameters, data = read(path)
    y = data[:, 0] if left == "y" else np.log(data[:, 0])
    names = ["x"] if data.shape[1] == 2 else [f"x{i}" for i in range(1, data.shape[1])]
    guess = None if start is None else {name: values[start] for name, values in parameters.items()}
    fit = fit_constants(formula, data[:, 1:], y, names=names, start=guess)
    for name, (*_, certified, deviation) in parameters.items():
        assert fit.constants[name] == pytest.approx(certified, rel=1e-6)
        if path.stem != "Lanczos1":  # its residuals are the rounding of the data
            assert fit.standard_errors[name] == pytest.approx(deviation, rel=1e-5)


@pytest.mark.parametrize("start", [0, 1, None], ids=["far start", "near start", "no start"])
@pytest.mark.parametrize("name", ["Misra1a", "MGH10"])
def test_certified_values_to_six_digits(name, start):
    check(HERE / f"{name}.dat", start)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="NUMERATE_DATA has no folder nist_strd")
@pytest.mark.parametrize("start", [0, 1], ids=["far start", "near start"])
def test_all_certified_values_to_six_digits(start):
    files = sorted(FOLDER.glob("*.dat"))
    assert len(files) == 27
    for path in files:
        check(path, start)


def test_a_linear_form_is_solved_at_once():
    x = np.linspace(0, 1, 30)
    fit = fit_constants("a + b*x + c*x^2", {"x": x}, 1 + 2 * x - 3 * x**2)
    assert fit.constants == pytest.approx({"a": 1, "b": 2, "c": -3})
    assert fit.error < 1e-14


def test_rows_of_no_weight_do_not_count():
    x = np.linspace(0, 1, 30)
    y = 2 * np.exp(-3 * x)
    y[0] = 50
    weights = np.ones(30)
    weights[0] = 0
    fit = fit_constants("a*exp(-k*x)", {"x": x}, y, weights=weights, start={"a": 1, "k": 1})
    assert fit.constants == pytest.approx({"a": 2, "k": 3})


@pytest.mark.parametrize(
    ("formula", "options", "sentence"),
    [
        ("x^2", {}, "no constants to fit"),
        ("a*x + b*x^2 + c*x^3", {}, "more than 3 rows"),
        ("a*x", {"start": {}}, "start has no value for a"),
        ("a*f(x)", {}, "function 'f' is not known"),
        ("a*", {}, "is no formula"),
    ],
)
def test_what_cannot_be_fitted_is_one_sentence(formula, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        fit_constants(formula, {"x": np.arange(3.0)}, np.arange(3.0), **options)
