"""Penalties and their schedules against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn

from numerate.units import (
    NAU,
    NMU,
    After,
    Constant,
    Growth,
    Ramp,
    Saturating,
    l1,
    out_of_bounds,
    penalties,
    penalty,
    r_z_product,
    r_z_sum,
    sparsity,
    sparsity_error,
    sparsity_nmu,
    sparsity_nmu_squared,
    sparsity_squared,
)

WEIGHT = torch.tensor([[1.0, -0.75, 0.5], [0.25, -2.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (sparsity(WEIGHT), (0 + 0.25 + 0.5 + 0.25 + 1 + 0) / 6),
        (sparsity_nmu(WEIGHT), (0 + 0.75 + 0.5 + 0.25 + 2 + 0) / 6),
        (sparsity_squared(WEIGHT), (0.75**2 * 0.25**2 + 0.5**4 + 0.25**2 * 0.75**2 + 4) / 6),
        (sparsity_nmu_squared(WEIGHT), (0.75**2 * 1.75**2 + 0.5**4 + 0.25**2 * 0.75**2 + 4 * 9) / 6),
        (out_of_bounds(WEIGHT, -1, 1), 1 / 6),
        (out_of_bounds(WEIGHT, 0, 1), (0.75 + 2) / 6),
        (penalties.signs(WEIGHT), (0 + 0.25 + 0.5 + 0.75 + 1 + 1) / 6),
        (penalties.saturation(torch.tensor([30.0, -5.0, 0.0, -20.0])), (0 + 15 + 20 + 0) / 4),
    ],
    ids=[
        "sparsity",
        "sparsity_nmu",
        "squared",
        "nmu squared",
        "bounds [-1, 1]",
        "bounds [0, 1]",
        "signs",
        "saturation",
    ],
)
def test_by_hand(value, expected):
    assert value.item() == pytest.approx(expected)


@pytest.mark.parametrize(("unit", "function"), [(NAU, sparsity_squared), (NMU, sparsity_nmu_squared)])
def test_units_offer_the_squared_shape(unit, function):
    unit = unit(3, 2, sparsity="squared")
    with torch.no_grad():
        unit.weight.copy_(WEIGHT)
    assert unit.penalty().item() == pytest.approx(function(WEIGHT).item())


def test_r_z_by_hand():
    weight, mean = torch.tensor([[1.0, 0.0], [0.5, -1.0]]), torch.tensor([3.0, 2.0])
    assert r_z_product(weight, mean).item() == pytest.approx((0 + 1 * 1 + 0.5 * 4 + 2 * 1) / 4)
    assert r_z_sum(weight, mean).item() == pytest.approx((0 + 1 * 4 + 0.5 * 9 + 0) / 4)


def test_r_z_does_not_hold_back_a_chosen_input():
    """The derivative of R_z with respect to a weight is minus how far its input is from neutral."""
    weight, mean = torch.full((1, 2), 0.5, requires_grad=True), torch.tensor([3.0, 1.0])
    r_z_product(weight, mean).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[-2.0, 0.0]]


def test_a_model_sums_its_layers_and_takes_the_worst_weight():
    model = nn.Sequential(NAU(2, 2), NMU(2, 1), nn.Linear(1, 1))
    with torch.no_grad():
        model.get_parameter("0.weight").copy_(torch.tensor([[1.0, 0.5], [0.0, -1.0]]))
        model.get_parameter("1.weight").copy_(torch.tensor([[0.75, 1.0]]))
        model.get_parameter("2.weight").fill_(1.0)
    assert penalty(model).item() == pytest.approx(0.5 / 4 + 0.25 / 2)
    assert sparsity_error(model).item() == pytest.approx(0.5)
    assert penalty(nn.Linear(2, 2)).item() == 0
    assert sparsity_error(nn.PReLU()).isnan()


def test_a_model_without_parameters_has_nothing_to_penalise():
    assert penalty(nn.ReLU()) == l1(nn.ReLU()) == 0
    assert sparsity_error(nn.ReLU()).isnan()


def test_l1_sums_every_parameter():
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[-2.0, 3.0]]))
        layer.bias.fill_(-0.5)
    assert l1(layer).item() == pytest.approx(5.5)


def values(schedule, *steps: float) -> list[float]:
    return schedule(torch.tensor(steps, dtype=torch.float64)).tolist()


def test_ramp():
    assert values(Ramp(10.0, 20, 60), 0, 20, 30, 40, 60, 1000) == [0, 0, 2.5, 5, 10, 10]


def test_a_ramp_without_a_slope_is_a_jump():
    assert values(Ramp(2.0, 5, 5), 0, 4, 5, 6) == [0, 0, 2, 2]


def test_saturating():
    """The rate of the authors' code: after 100 000 steps 1 - 1/e of the scale."""
    expected = [0, 0.1 * (1 - math.exp(-0.01)), 0.1 * (1 - math.exp(-1)), 0.1]
    assert values(Saturating(0.1), 0, 1_000, 100_000, 1e9) == pytest.approx(expected)
    assert values(Saturating(1.0, rate=0.5), 2) == pytest.approx([1 - math.exp(-1)])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Ramp(1.0, 6, 5), "a Ramp must not end before it starts, got start=6, end=5"),
        (lambda: Growth(1.0, 2.0, every=0), "every must be a positive whole number, got 0"),
        (lambda: Saturating(1.0, rate=0.0), "rate must be a number above 0, got 0.0"),
    ],
    ids=["ramp", "growth", "saturating"],
)
def test_a_schedule_that_makes_no_sense_is_refused(make, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        make()


def test_growth_by_powers_of_ten():
    """1e-7 for 10 000 steps, 1e-6 for 10 000, then 1e-5 (NPU, multiplication)."""
    grown = values(Growth(1e-7, 1e-5), 0, 9_999, 10_000, 19_999, 20_000, 50_000)
    assert grown == pytest.approx([1e-7, 1e-7, 1e-6, 1e-6, 1e-5, 1e-5])
    assert values(Growth(1.0, 100.0, every=2, factor=3.0), 0, 1, 2, 4, 6, 8, 10) == [1, 1, 3, 9, 27, 81, 100]


def test_constant_and_after():
    assert values(Constant(0.25), 0, 1e6) == [0.25, 0.25]
    assert values(After(0.05, 10_000), 0, 10_000, 10_001) == [0, 0, 0.05]


@pytest.mark.parametrize(
    "schedule",
    [Ramp(1.0, 0, 10), Ramp(1.0, 2, 2), Growth(1.0, 10.0), Constant(2.0), After(1.0, 3), Saturating(1.0)],
    ids=repr,
)
def test_schedules_are_values(schedule):
    assert schedule == type(schedule)(**vars(schedule))
    assert hash(schedule) == hash(type(schedule)(**vars(schedule)))
    assert schedule(torch.tensor(5.0)).shape == ()
    assert schedule(5) == schedule(torch.tensor(5)) == schedule(torch.tensor(5.0))
    traced = torch.func.vmap(schedule)(torch.arange(4.0))
    assert torch.equal(traced, schedule(torch.arange(4.0)))
