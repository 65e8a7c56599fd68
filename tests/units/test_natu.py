"""NATU: exact operations at discrete weights, targets read off gradients, and fits that know no scale."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.results import Store
from numerate.tasks import AnyRange
from numerate.train import Adam, Training, train
from numerate.units import NATU, bound_after_step, natu
from numerate.units.natu import slopes

FEW = settings(deadline=None, max_examples=50)
DOUBLE = torch.float64
values = st.floats(-1e3, 1e3).filter(lambda value: abs(value) > 1e-2)
OPERATIONS = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}


@given(st.lists(st.tuples(values, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=5))
@FEW
def test_discrete_weights_add_or_multiply(case):
    x, weight = torch.tensor(case, dtype=DOUBLE).unbind(-1)
    total = math.fsum(value * chosen for value, chosen in case)
    power = math.prod(value**chosen for value, chosen in case)
    for gate, expected in ((1.0, total), (0.0, power)):
        found = natu(x, weight[None], weight[None], torch.tensor([gate], dtype=DOUBLE))
        assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_weight_near_a_whole_number_is_that_number():
    x, near = torch.tensor([[3.0, -5.0, 7.0]]), torch.tensor([[0.96, -0.97, 0.04]])
    assert natu(x, near, near, torch.ones(1)).item() == 8.0
    assert natu(x, near, near, torch.zeros(1)).item() == pytest.approx(-0.6)


def test_slopes_are_those_of_a_regression_with_an_offset():
    generator = torch.Generator().manual_seed(0)
    x = 1000 + torch.rand(5000, 1, dtype=DOUBLE, generator=generator)
    error, share = 7 - 3 * x, torch.ones(5000, 1, dtype=DOUBLE)
    assert slopes(error, x, share).item() == pytest.approx(-3, rel=1e-6)
    assert slopes(error, 10 * x, share).item() == pytest.approx(-0.3, rel=1e-6)
    share[:2500] = 0
    error[:2500] = 1e9
    assert slopes(error, x, share).item() == pytest.approx(-3, rel=1e-6)


def fitted(operation, scale=1.0, steps=150, spread=(1.0, 2.0), zeros=0.0, inputs=2):
    """A unit trained by plain torch in double precision on numbers of this scale; and its weights at every step."""
    generator = torch.Generator().manual_seed(0)
    unit = NATU(inputs, 1, dtype=DOUBLE)
    unit.reset_parameters(generator)
    optimiser = torch.optim.Adam(unit.parameters(), 1e-2, eps=0)
    bound_after_step(optimiser, unit)
    path = []
    for _ in range(steps):
        low, high = spread
        x = low + (high - low) * torch.rand(128, inputs, dtype=DOUBLE, generator=generator)
        x = scale * x * (torch.rand(128, inputs, dtype=DOUBLE, generator=generator) >= zeros)
        optimiser.zero_grad()
        y = OPERATIONS[operation](x[:, :1], x[:, 1:2])
        torch.nn.functional.mse_loss(unit(x), y).backward()
        optimiser.step()
        path.append(torch.cat([unit.sum_weight.detach(), unit.power_weight.detach()]))
    return unit.eval(), torch.stack(path)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_scale_of_the_inputs_changes_nothing_in_the_path_that_answers(operation):
    answering = 0 if operation in ("add", "sub") else 1
    _, path = fitted(operation, steps=60)
    for power in (-3, 4):
        _, scaled = fitted(operation, 10.0**power, steps=60)
        torch.testing.assert_close(scaled[:, answering], path[:, answering], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("operation", "formula"), [("add", "a + b"), ("sub", "a - b"), ("mul", "a*b"), ("div", "a/b")])
@pytest.mark.parametrize(("spread", "scale"), [((1.0, 1.01), 1e4), ((-0.3, 0.7), 1e-3)], ids=["narrow", "across 0"])
def test_it_learns_each_operation(operation, formula, spread, scale):
    unit, _ = fitted(operation, scale, 250, spread)
    assert str(unit.formula("ab")) == formula


def test_zeros_among_the_inputs_do_no_harm():
    unit, _ = fitted("mul", 100.0, 250, zeros=0.2, inputs=4)
    assert str(unit.formula("abcd")) == "a*b"
    unit, _ = fitted("add", 100.0, 250, zeros=0.2, inputs=4)
    assert str(unit.formula("abcd")) == "a + b"


def test_the_layer_below_gets_the_ordinary_gradient():
    x = torch.rand(8, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(1)) - 0.5
    unit = NATU(3, 2, dtype=DOUBLE)
    found = []
    for training in (True, False):
        leaf = x.clone().requires_grad_()
        (unit.train(training)(leaf) ** 2).mean().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[0], found[1])


def test_native_and_plain_loops_agree(tmp_path):
    work = [
        Training(NATU, AnyRange(operation), (0,), Adam(1e-2), steps=10, evaluate_every=10, evaluation_size=100)
        for operation in ("sub", "div")
    ]
    errors = {}
    for backend in ("emitted", "eager"):
        with Store(tmp_path / f"{backend}.sqlite") as store:
            train(work, store, backend=backend)
            errors[backend] = {row.key: row.scores["best_test"] for row in store.rows()}
    assert errors["emitted"] == pytest.approx(errors["eager"], rel=1e-3)
