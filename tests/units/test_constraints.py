"""Bounds: found by name, applied as a function and as an optimiser hook."""

from types import MappingProxyType
from typing import cast

import numpy as np
import pytest
import torch
from torch import nn

from numerate.units import NAU, NMU, apply_bounds_, bound_after_step, parameter_bounds


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), NAU(3, 2), nn.Sequential(nn.Tanh(), NMU(2, 1)))


def test_bounds_are_named_as_the_parameters_are():
    assert parameter_bounds(model()) == {"1.weight": (-1.0, 1.0), "2.1.weight": (0.0, 1.0)}
    assert parameter_bounds(NMU(2, 1)) == {"weight": (0.0, 1.0)}
    assert parameter_bounds(nn.Linear(2, 1)) == {}


def test_apply_bounds_clamps_units_alone():
    net = model()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(5.0)
    apply_bounds_(net)
    assert net.get_parameter("0.weight").unique().tolist() == [5.0]
    assert net.get_parameter("1.weight").unique().tolist() == [1.0]
    with torch.no_grad():
        net.get_parameter("2.1.weight").fill_(-3.0)
    apply_bounds_(net)
    assert net.get_parameter("2.1.weight").unique().tolist() == [0.0]


def test_bounds_may_be_any_mapping():
    unit = NAU(2, 1)
    unit.bounds = MappingProxyType({"weight": (-0.5, 0.5)})
    assert parameter_bounds(nn.Sequential(unit)) == {"0.weight": (-0.5, 0.5)}


class Holder(nn.Module):
    """A plain module around another."""

    def __init__(self, bounds, part=None) -> None:
        super().__init__()
        self.part = nn.Linear(2, 1) if part is None else part
        self.register_buffer("fixed", torch.zeros(1))
        self.register_parameter("absent", None)
        self.bounds = bounds


def test_a_dotted_name_is_the_parameter_of_a_part():
    holder = Holder({"part.weight": (0.0, 1.0)})
    with torch.no_grad():
        holder.part.weight.fill_(9.0)
    apply_bounds_(holder)
    assert holder.part.weight.unique().tolist() == [1.0]
    assert parameter_bounds(nn.Sequential(holder)) == {"0.part.weight": (0.0, 1.0)}
    assert parameter_bounds(Holder({"part.weight": (0.0, 0.5)}, NAU(2, 1))) == {"part.weight": (0.0, 0.5)}


def test_what_is_no_parameter_on_purpose_is_left_alone():
    assert parameter_bounds(Holder({"fixed": (0.0, 1.0), "absent": (0.0, 1.0)})) == {}
    assert parameter_bounds(Holder(None)) == {}


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({"wieght": (0.0, 1.0)}, "the bounds of Holder name 'wieght', but its parameters are part.weight, part.bias"),
        ({"prat.weight": (0.0, 1.0)}, "the bounds of Holder name 'prat.weight'"),
        ({"part.weight": (1.0, 0.0)}, "the bounds of 'part.weight' in Holder must be .low, high., got .1.0, 0.0."),
        ({"part.bias": (0,)}, "the bounds of 'part.bias' in Holder must be .low, high."),
    ],
)
def test_bounds_that_cannot_be_kept_are_one_sentence(bounds, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        apply_bounds_(Holder(bounds))


def test_bounds_that_are_no_mapping_are_an_error_in_a_unit_and_none_of_ours_elsewhere():
    unit = NAU(2, 1)
    unit.bounds = [("weight", 0, 1)]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match=r"^the bounds of NAU must be a mapping of parameter name -> \(low, high\)"):
        apply_bounds_(unit)
    assert parameter_bounds(Holder((0.0, 1.0))) == {}
    with pytest.raises(ValueError, match=r"^the bounds of Holder must be a mapping"):
        parameter_bounds(Holder("nonsense"))


def test_bounds_reach_through_wrappers_and_leave_computed_weights_alone():
    compiled = cast(nn.Module, torch.compile(NAU(2, 1), backend="eager"))
    assert parameter_bounds(compiled) == {"_orig_mod.weight": (-1.0, 1.0)}
    assert parameter_bounds(nn.utils.parametrizations.weight_norm(NAU(2, 1), "weight")) == {}


def test_limits_may_be_numbers_of_numpy_or_none():
    holder = Holder({"part.weight": (np.float32(0.5), None), "part.bias": (np.int64(-1), 1)})
    assert parameter_bounds(holder) == {"part.weight": (0.5, None), "part.bias": (-1.0, 1.0)}
    apply_bounds_(holder)
    assert holder.part.weight.min() >= 0.5


def test_weights_inside_are_left_alone():
    unit = NAU(3, 2)
    before = unit.weight.detach().clone()
    apply_bounds_(unit)
    assert torch.equal(unit.weight, before)


def test_the_hook_works_until_it_is_removed():
    unit = NMU(2, 1)
    optimizer = torch.optim.SGD(unit.parameters(), lr=1.0)
    handle = bound_after_step(optimizer, unit)

    def push() -> None:
        optimizer.zero_grad()
        (-100 * unit.weight).sum().backward()
        optimizer.step()

    push()
    assert unit.weight.max() == 1
    handle.remove()
    push()
    assert unit.weight.max() > 1


def test_optimiser_state_is_untouched():
    plain, bounded = NMU(2, 1), NMU(2, 1)
    bounded.load_state_dict(plain.state_dict())
    moments = []
    for unit, hooked in ((plain, False), (bounded, True)):
        optimizer = torch.optim.Adam(unit.parameters(), lr=1.0)
        if hooked:
            bound_after_step(optimizer, unit)
        (-unit.weight).sum().backward()
        optimizer.step()
        moments.append(optimizer.state[unit.weight]["exp_avg"])
    assert torch.equal(*moments)
