"""Formulas as code and as modules: all of them compute the same."""

import copy
import ctypes
import pickle
import shutil
import subprocess

import numpy as np
import pytest
import sympy
import torch

from numerate.discover import FormulaModule
from numerate.discover.export import code, identifiers, latex, mathml, rounded, text
from numerate.discover.parse import parse_formula

NAMES = ["a", "half axis (AU)", "sin"]
A, B, C = map(sympy.Symbol, NAMES)
FORMULA = (
    sympy.Float("2.000123456789") * sympy.sqrt(A / B) * (A - C) ** 2 / (1 + sympy.exp(-B / sympy.Rational(3, 2)))
    + sympy.pi**2 * sympy.sin(A) ** 2
    - sympy.sqrt(2) * sympy.Abs(C) ** sympy.Float(0.3)
    + sympy.tanh(A * B)
)


def points(count=50):
    return np.random.default_rng(0).uniform(0.5, 3, (count, 3))


def expected(X):
    a, b, c = X.T
    first = 2.000123456789 * np.sqrt(a / b) * (a - c) ** 2 / (1 + np.exp(-2 * b / 3))
    return first + np.pi**2 * np.sin(a) ** 2 - np.sqrt(2) * np.abs(c) ** 0.3 + np.tanh(a * b)


@pytest.mark.parametrize("language", ["python", "torch"])
def test_python_and_torch_code_compute_the_formula(language):
    X = points()
    space = {}
    exec(code(FORMULA, NAMES, language), space)
    columns = X.T if language == "python" else torch.tensor(X).T
    np.testing.assert_allclose(np.asarray(space["formula"](*columns)), expected(X), rtol=1e-13)


def test_c_code_computes_the_formula(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (tmp_path / "f.c").write_text(code(FORMULA, NAMES, "c"))
    command = [compiler, "-shared", "-fPIC", "-o", str(tmp_path / "f.so"), str(tmp_path / "f.c"), "-lm"]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(tmp_path / "f.so")).formula
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    X = points()
    np.testing.assert_allclose([function(*row) for row in X], expected(X), rtol=1e-13)


def test_a_column_cannot_smuggle_code_into_the_comment():
    name = '"""\nimport os\n*/ system("x"); /*'
    for language in ("python", "c", "torch"):
        source = code(sympy.Symbol(name) * 2, [name], language)
        assert "import os\n" not in source
        assert "*/ system" not in source
    space = {}
    exec(code(sympy.Symbol(name) * 2, [name], "python"), space)
    assert space["formula"](3) == 6


def test_identifiers_are_different_and_valid():
    words = identifiers(["a b", "a_b", "2x", "class", "exp", "ß"])
    assert len(set(words.values())) == len(words)
    assert all(word.isidentifier() for word in words.values())
    assert words["class"] != "class"
    assert words["exp"] != "exp"


def test_module_computes_trains_and_says_its_formula():
    X = torch.tensor(points())
    module = FormulaModule([FORMULA, A * B / 2], NAMES)
    np.testing.assert_allclose(module(X)[:, 0].detach(), expected(X.numpy()), rtol=1e-12)
    goal = 0.7 * X[:, 0] * X[:, 1]
    optimizer = torch.optim.LBFGS(module.parameters(), max_iter=50)

    def closure():
        optimizer.zero_grad()
        loss = (module(X)[:, 1] - goal).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = module.formulas()[1]
    assert abs(float(found.as_coeff_Mul()[0]) - 0.7) < 1e-6
    assert "0.7" in repr(module)


def test_module_takes_any_leading_shape_and_survives_copies():
    module = FormulaModule([FORMULA], NAMES)
    X = torch.tensor(points(6)).reshape(2, 3, 3)
    assert module(X).shape == (2, 3, 1)
    for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        torch.testing.assert_close(again(X), module(X))
    other = FormulaModule([FORMULA], NAMES)
    other.load_state_dict(module.state_dict())
    with pytest.raises(ValueError, match="3 inputs"):
        module(X[..., :2])


def test_exponents_that_are_exact_do_not_train():
    assert len(FormulaModule([A**3 + 1], NAMES).constants) == 0
    assert len(FormulaModule([sympy.Float(2.5) * A ** sympy.Float(0.4)], NAMES).constants) == 2


def test_free_constants_are_shown_to_six_digits_and_exact_ones_in_full():
    shown = sympy.Float("2.000123456789") * A + sympy.Rational(1, 3)
    assert text(shown) == "2.00012*a + 1/3"
    assert rounded(shown).subs(A, 0) == sympy.Rational(1, 3)
    assert r"\mathrm{period\_days}" in latex(sympy.Symbol("period_days") ** 2)
    assert "<msqrt>" in mathml("y", sympy.sqrt(A))
    assert "&lt;b&gt;" in mathml("<b>", A)


def test_unknown_language_is_one_sentence():
    with pytest.raises(ValueError, match="python, c, torch, not in 'rust'"):
        code(A, NAMES, "rust")


def test_formulas_are_read_without_executing_anything():
    x, b = sympy.symbols("x b")
    assert parse_formula("b*(1 - exp(-x))^2 / 2") == b * (1 - sympy.exp(-x)) ** 2 / 2
    for wrong in ("__import__('os').system('x')", "x.real", "lambda: 1", "x if x else 1", "f(x)", "x +"):
        with pytest.raises(ValueError, match=r"formula|function"):
            parse_formula(wrong)
