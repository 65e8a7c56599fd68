"""Bounds: found by name, applied as a function and as an optimiser hook."""

from types import MappingProxyType

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
