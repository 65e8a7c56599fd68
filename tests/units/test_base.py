"""Rounding, and what a unit says of itself, by hand."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from numerate.units import NAU, NMU, NSR, Unit, outer_units, snap, snapped_parameters, sparsity_error
from numerate.units.base import weight_sparsity_error

FEW = settings(deadline=None, max_examples=50)


def test_snap_takes_the_nearest_level_and_the_first_of_two():
    weight = torch.tensor([[-2.0, -0.51, -0.5], [0.2, 0.5, 0.9]])
    assert snap(weight, (-1.0, 0.0, 1.0)).tolist() == [[-1, -1, -1], [0, 0, 1]]
    assert snap(weight, (0.0, 1.0)).tolist() == [[0, 0, 0], [0, 0, 1]]


@given(st.lists(st.floats(-3, 3, width=32), min_size=1), st.sampled_from([(-1.0, 0.0, 1.0), (0.0, 1.0), (0.5,)]))
@FEW
def test_snap_moves_no_further_than_any_level(values, levels):
    weight = torch.tensor(values)
    distance = (weight - snap(weight, levels)).abs()
    for level in levels:
        assert (distance <= (weight - level).abs()).all()


def test_snap_keeps_nan_and_takes_the_outermost_level_for_infinity():
    weight = torch.tensor([float("nan"), float("inf"), -float("inf")])
    assert snap(weight, (-1.0, 0.0, 1.0)).nan_to_num(7).tolist() == [7, 1, -1]


def test_sizes_may_be_numpys():
    unit = NAU(np.int64(3), np.int32(2))  # pyright: ignore[reportArgumentType]
    assert (type(unit.in_features), unit.in_features, unit.out_features) == (int, 3, 2)


def test_snap_keeps_type_and_shape():
    weight = torch.rand(2, 3, 4, dtype=torch.bfloat16)
    assert snap(weight, (0.0, 1.0)).dtype == torch.bfloat16
    assert snap(weight, (0.0, 1.0)).shape == (2, 3, 4)


def test_sparsity_error_is_the_worst_weight():
    assert weight_sparsity_error(torch.tensor([[1.0, -0.9], [0.3, 0.0]])).item() == pytest.approx(0.3)
    assert weight_sparsity_error(torch.tensor([[1.0, -1.0], [0.0, 0.0]])).item() == 0
    assert weight_sparsity_error(torch.tensor([[1.25, 0.0]])).item() == pytest.approx(0.25)


def test_snapping_is_pure_until_the_underscore():
    unit = NAU(3, 2)
    before = unit.weight.detach().clone()
    pure = unit.snapped_parameters()
    assert torch.equal(unit.weight, before)
    assert unit.snap_() is unit
    assert torch.equal(unit.weight, pure["weight"])
    assert unit.weight.requires_grad
    assert unit.sparsity_error() == 0


def test_outer_units_are_found_by_their_prefix():
    model = nn.Sequential(nn.Linear(4, 3), NAU(3, 2), nn.ModuleDict({"end": NMU(2, 1)}))
    assert [prefix for prefix, _ in outer_units(model)] == ["1.", "2.end."]
    assert [prefix for prefix, _ in outer_units(NAU(3, 2))] == [""]
    assert set(snapped_parameters(model)) == {"1.weight", "2.end.weight"}


def test_penalty_is_zero_where_the_paper_has_none():
    assert NSR(2, 1).penalty() == 0


def test_a_unit_without_effective_weights_has_no_sparsity_and_one_without_expressions_says_so():
    class Own(Unit):
        levels: ClassVar = {"weight": (0.0, 1.0)}

        def __init__(self):
            super().__init__(2, 1)
            self.weight = nn.Parameter(torch.tensor([[0.2, 0.9]]))

    assert Own().sparsity_error().isnan()
    assert sparsity_error(nn.Sequential(Own(), nau := NAU(1, 1))) == nau.sparsity_error()
    assert snapped_parameters(Own())["weight"].tolist() == [[0.0, 1.0]]
    with pytest.raises(NotImplementedError, match="Own has no expressions"):
        Own().formula()


@given(
    st.lists(st.floats(-100, 100), min_size=3, max_size=3),
    st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3),
)
@FEW
def test_discrete_nau_adds_and_subtracts(values, signs):
    unit = NAU(3, 1, dtype=torch.float64)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([signs]))
    expected = sum(sign * value for sign, value in zip(signs, values))
    torch.testing.assert_close(
        unit(torch.tensor(values, dtype=torch.float64)).item(), float(expected), atol=1e-12, rtol=1e-12
    )


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3))
@FEW
def test_discrete_nmu_multiplies_the_chosen(values, chosen):
    unit = NMU(3, 1, dtype=torch.float64)
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([chosen]))
    expected = 1.0
    for value, used in zip(values, chosen):
        expected *= value if used else 1.0
    assert unit(torch.tensor(values, dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-12)
