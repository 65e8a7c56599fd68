"""NLRL: truth tables, the Kronecker form of OR, De Morgan, and what its options change."""

import itertools
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.units import NLRL, apply_bounds_, nlrl
from numerate.units.nlrl import conjunction, disjunction

BOOLEANS = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)))
CHOICES = list(itertools.product([0, 1], repeat=3))


def rule(chosen: tuple[int, ...], negated: tuple[int, ...], high: bool, **options: Any) -> NLRL:
    """A unit whose every gate is shut or open; ``high`` opens the output gate."""
    unit: Any = NLRL(3, 1, **options)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([chosen]))
        unit.negation.copy_(torch.tensor([negated]) - 0.5)
        unit.output.fill_(1.0 if high else -1.0)
    return unit.snap_()


@pytest.mark.parametrize("chosen", CHOICES[1:], ids=str)
@pytest.mark.parametrize("negated", [(0, 0, 0), (0, 1, 0), (1, 1, 1)], ids=str)
def test_truth_tables(chosen, negated):
    def table(fold, after=lambda value: value) -> list[list[float]]:
        rows = [[x ^ n for x, c, n in zip(map(int, row), chosen, negated) if c] for row in BOOLEANS.tolist()]
        return [[float(after(fold(row)))] for row in rows]

    cases = {
        ("full", "formula"): (table(all), table(any)),
        ("full", "words"): (table(any), table(all)),
        ("and", "formula"): (table(all), table(all, lambda value: not value)),
        ("or", "formula"): (table(any), table(any, lambda value: not value)),
    }
    for (form, gate), (low, high) in cases.items():
        for output, expected in ((False, low), (True, high)):
            y = rule(chosen, negated, output, form=form, gate=gate)(BOOLEANS)
            torch.testing.assert_close(y, torch.tensor(expected), rtol=0, atol=1e-6)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=5))
@settings(deadline=None)
def test_or_is_the_kronecker_form_of_the_paper(case):
    literal, weight = torch.tensor(case, dtype=torch.float64).unbind(-1)
    first, *rest = (weight * literal).tolist()
    vectors = [np.array([1.0, -value]) for value in rest] + [np.array([-1.0, first])]
    expected = reduce(np.kron, vectors).sum() + 1
    torch.testing.assert_close(disjunction(literal[None], weight[None]).item(), expected, rtol=0, atol=1e-12)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=5))
@settings(deadline=None)
def test_and_of_whole_weights_is_the_product(values):
    literal = torch.tensor([values], dtype=torch.float64)
    torch.testing.assert_close(conjunction(literal, torch.ones_like(literal), 1e-12), literal.prod(-1))


def test_de_morgan_forms_agree():
    """not (not a and not b) is a or b."""
    one = rule((1, 1, 0), (1, 1, 0), True, form="and")
    two = rule((1, 1, 0), (0, 0, 0), False, form="or")
    torch.testing.assert_close(one(BOOLEANS), two(BOOLEANS), rtol=0, atol=1e-6)


def test_a_learnt_rule_prints():
    assert str(rule((1, 1, 0), (0, 1, 0), False).formula()) == "x1*(1 - x2)"
    assert str(rule((1, 1, 0), (0, 0, 0), True).formula("a b c")) == "-(1 - a)*(1 - b) + 1"
    assert str(rule((0, 0, 1), (0, 0, 1), True, form="or").formula("a b c")) == "c"


def test_gate_matters_only_where_there_is_a_choice():
    with pytest.raises(
        ValueError, match="gate='words' chooses between AND and OR and needs form='full', got form='or'"
    ):
        NLRL(2, 1, form="or", gate="words")


def test_eps_is_what_false_is_worth():
    unit = rule((1, 0, 0), (0, 0, 0), False)
    unit.eps = 1e-3
    assert unit(torch.zeros(3)).item() == pytest.approx(1e-3)
    with pytest.raises(ValueError, match="eps must be a number above 0, got 0"):
        NLRL(2, 1, eps=0)


@pytest.mark.parametrize("form", ["full", "and", "or"])
def test_some_seed_learns_a_and_not_b(form):
    x = BOOLEANS[::2, :2]  # the four rows of two inputs
    y = x[:, :1] * (1 - x[:, 1:])
    found = []
    for seed in range(4):
        unit = NLRL(2, 1, form=form)
        unit.reset_parameters(torch.Generator().manual_seed(seed))
        optimizer = torch.optim.Adam(unit.parameters(), lr=0.1)
        for _ in range(200):
            optimizer.zero_grad()
            (unit(x) - y).square().mean().backward()
            optimizer.step()
            apply_bounds_(unit)
        found.append(torch.allclose(unit.snap_()(x), y, atol=1e-6))
    assert any(found)


@pytest.mark.parametrize(("option", "value"), [("form", "AND"), ("gate", "sentence")])
def test_the_function_refuses_an_unknown_reading(option, value):
    one = torch.ones(1, 2)
    with pytest.raises(ValueError, match=f"{option} must be one of '.*', got '{value}'"):
        nlrl(one, one, one, torch.ones(1), **({"form": "and", "gate": "formula", "eps": 1e-7} | {option: value}))
