"""The benchmark's judge accepts the truth in another form and refuses everything else."""

import numpy as np
import pytest
import sympy as sp
from benchmarks.formula_judge import judge
from benchmarks.formula_problems import bonus, drawn, feynman, livermore2
from benchmarks.formula_unseen import LAWS, random_formulas

PROBLEM = drawn("gravity", "test", "G*a*b/r**2", {"G": (1, 2), "a": (1, 2), "b": (1, 2), "r": (1, 3)}, 0, 200)
X0, X1, X2, X3 = sp.symbols("x0:4")


@pytest.mark.parametrize(
    ("formula", "exact", "structure"),
    [
        (X0 * X1 * X2 / X3**2, True, True),
        (3 * X0 * X2 / (X3 / X1) / X3, True, True),  # up to a constant factor
        (X0 * X1 * X2 / X3**2 + 7, True, True),  # up to a constant term
        (X0 * X1 * X2 / X3 ** sp.Float(2.001), False, True),
        (X0 * X1 / X3**2, False, False),
    ],
)
def test_judge(formula, exact, structure):
    verdict = judge(formula, PROBLEM)
    assert (verdict.exact, verdict.structure) == (exact, structure)
    assert verdict.symbolic == exact


def test_problems_are_finite_and_as_many_as_published():
    assert len(list(feynman(0, 20))) == 100
    assert len(list(bonus(0, 20))) == 20
    for problem in livermore2(0, 60):
        assert np.isfinite(problem.y).all()


def test_the_unseen_set_is_fixed():
    assert len(LAWS) == 68
    assert len(random_formulas()) == 40
    assert random_formulas() == random_formulas()
