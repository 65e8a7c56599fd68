"""NATU: exact operations at discrete weights, targets read off gradients, and fits that know no scale."""

import math
from functools import partial
from typing import Any

import pytest
import sympy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call, grad, stack_module_state, vmap

from numerate.experiments.one_unit import behind, natu_recipe
from numerate.recurrent import UnitRNN
from numerate.results import Store
from numerate.tasks import Composed
from numerate.train import train
from numerate.units import NATU, bound_after_step, formula, natu
from numerate.units.natu import caught, changes_below, path_errors, paths, slopes, targets_below

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


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.73])
def test_an_input_that_does_not_vary_has_no_slope(constant):
    varied = torch.rand(127, generator=torch.Generator().manual_seed(0))
    x = torch.stack((varied, torch.full((127,), constant)), -1)
    found = slopes(2 * x[:, :1], x, torch.ones(127, 1))
    torch.testing.assert_close(found, torch.tensor([[2.0, 0.0]]), rtol=1e-4, atol=0)


def test_slopes_that_train_are_no_steeper_than_weights_are_apart():
    unit, x = NATU(2, 1, dtype=DOUBLE), 1 + 1e-4 * torch.rand(64, 2, dtype=DOUBLE)
    torch.nn.functional.mse_loss(unit(x), 100 * x[:, :1] ** 50).backward()
    assert unit.sum_weight.grad is not None
    assert unit.power_weight.grad is not None
    assert unit.sum_weight.grad.abs().max() == unit.power_weight.grad.abs().max() == 2


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


@pytest.mark.parametrize(
    ("operation", "expected"), [("add", "a + b"), ("sub", "a - b"), ("mul", "a*b"), ("div", "a/b")]
)
@pytest.mark.parametrize(("spread", "scale"), [((1.0, 1.01), 1e4), ((-0.3, 0.7), 1e-3)], ids=["narrow", "across 0"])
def test_it_learns_each_operation(operation, expected, spread, scale):
    unit, _ = fitted(operation, scale, 250, spread)
    assert str(unit.formula("ab")) == expected


def test_numbers_from_a_thousandth_to_ten_thousand_are_learnt_alike():
    """8 scales, 4 operations, 3 starts each, in single precision: weights and gates of every run are those sought."""
    cases = [(10.0**k, operation) for k in range(-3, 5) for operation in OPERATIONS for _ in range(3)]
    units = [NATU(2, 1) for _ in cases]
    for seed, unit in enumerate(units):
        unit.reset_parameters(torch.Generator().manual_seed(seed))
    stacked = {k: v.detach().requires_grad_() for k, v in stack_module_state(list(units))[0].items()}
    scales = torch.tensor([scale for scale, _ in cases])[:, None, None]
    optimiser, generator = torch.optim.Adam(stacked.values(), 1e-2), torch.Generator().manual_seed(0)
    gradients = vmap(grad(lambda p, x, y: torch.nn.functional.mse_loss(functional_call(units[0], p, (x,)), y)))
    for _ in range(300):
        x = scales * (2.5 * torch.rand(len(cases), 128, 2, generator=generator) - 1)
        y = torch.stack([OPERATIONS[name](*part.split(1, -1)) for (_, name), part in zip(cases, x)])
        for name, found in gradients(stacked, x, y).items():
            stacked[name].grad = found.detach()
        optimiser.step()
        with torch.no_grad():
            for name, (low, high) in NATU.bounds.items():
                stacked[name].clamp_(low, high)
    for place, (_, operation) in enumerate(cases):
        answering, gate = ("sum_weight", 1.0) if operation in ("add", "sub") else ("power_weight", 0.0)
        second = 1.0 if operation in ("add", "mul") else -1.0
        assert caught(stacked[answering][place]).tolist() == [[1.0, second]]
        assert stacked["gate"][place].item() == gate


@pytest.mark.parametrize(("weight", "expected"), [([0.96, -0.02], [2, 2]), ([0.96, 0.4], [2, 0]), ([0.4, 1.0], [2, 2])])
def test_signs_are_compared_where_negative_inputs_have_whole_powers(weight, expected):
    x, value = torch.tensor([[3.0, 2.0], [3.0, -2.0]]), torch.tensor([[5.0], [-7.0]])
    for found in path_errors(x, torch.tensor([weight]), value, value, -value):
        assert found[:, 0].tolist() == expected


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


def test_guesses_are_two_whole_weights_and_do_not_learn():
    unit = NATU(4, 3, guessed=2, dtype=DOUBLE)
    assert (unit.sum_weight[:2].abs().sort().values == torch.tensor([0.0, 0.0, 1.0, 1.0])).all()
    assert (unit.sum_weight[:2] == unit.power_weight[:2]).all()
    assert set(unit.gate[:2].tolist()) <= {0.0, 1.0}
    assert len({tuple(NATU(4, 1, guessed=1).sum_weight[0].tolist()) for _ in range(400)}) == 24
    (unit(torch.rand(16, 4, dtype=DOUBLE) + 1) ** 2).mean().backward()
    for parameter in unit.parameters():
        assert parameter.grad is not None
        assert (parameter.grad[:2] == 0).all()
        assert (parameter.grad[2] != 0).all()


@pytest.mark.parametrize("guessed", [-1, 3])
def test_there_are_no_more_guesses_than_outputs(guessed):
    with pytest.raises(ValueError, match="guessed must be a whole number from 0 to out_features, 2"):
        NATU(4, 2, guessed=guessed)


@pytest.mark.parametrize("gate", [0.0, 1.0])
@pytest.mark.parametrize("weight", [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0)])
def test_an_input_at_its_target_brings_the_answer_to_its_target(gate, weight):
    generator = torch.Generator().manual_seed(2)
    x, target = (torch.randn(20, size, dtype=DOUBLE, generator=generator) for size in (2, 1))
    matrix, gates = torch.tensor([weight], dtype=DOUBLE), torch.tensor([gate], dtype=DOUBLE)
    asked = targets_below(x, matrix, matrix, gates, target)
    for i in range(2):
        moved = x.clone()
        moved[:, i] = asked[:, i]
        torch.testing.assert_close(natu(moved, matrix, matrix, gates), target)


@pytest.mark.parametrize("weight", [(1.0, 1.0), (1.0, -1.0)])
def test_a_change_is_asked_of_the_smaller_factor_alone(weight):
    x = 2 + torch.rand(50, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(3))
    matrix, gate = torch.tensor([weight], dtype=DOUBLE), torch.zeros(1, dtype=DOUBLE)
    power = paths(x, matrix, matrix)[1]
    error = 1e-4 * torch.where(torch.arange(50)[:, None] % 2 == 0, 1.0, -1.0).double()
    change = changes_below(x, matrix, matrix, gate, power, error)
    assert change.mean(0).abs().max() < 1e-12
    smaller = x.argmin(-1, keepdim=True)
    offset = change.gather(-1, 1 - smaller)  # of an input that is asked for nothing: less its mean alone
    for i in range(2):
        assert offset[(1 - smaller) == i].std() < 1e-12
    mean = -torch.stack([offset[(1 - smaller) == i].mean() for i in range(2)])
    moved = natu(x - change - mean, matrix, matrix, gate)
    torch.testing.assert_close(moved, power - error, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "gates", "expected"),
    [
        (([1.0, 1, 0, 0], [1.0, -1]), (1.0, 0.0), "(a + b)/(c + d)"),
        (([0.0, 0, 1, 1], [-1.0, 1]), (0.0, 1.0), "a*b - c*d"),
    ],
)
def test_a_hidden_value_is_learnt_beside_a_right_guess(rows, gates, expected):
    generator = torch.Generator().manual_seed(0)
    units = NATU(4, 2, guessed=1, dtype=DOUBLE), NATU(2, 1, guessed=1, below="targets", dtype=DOUBLE)
    model = torch.nn.Sequential(*units)
    for unit, row, gate in zip(units, rows, gates):
        unit.reset_parameters(generator)
        with torch.no_grad():
            unit.sum_weight[0] = unit.power_weight[0] = torch.tensor(row, dtype=DOUBLE)
            unit.gate[0] = gate
    optimiser = torch.optim.Adam(model.parameters(), 5e-2)
    bound_after_step(optimiser, model)
    for _ in range(100):
        x = 1 + torch.rand(128, 4, dtype=DOUBLE, generator=generator)
        a, b, c, d = x.split(1, -1)
        y = (a + b) / (c + d) if gates[0] else a * b - c * d
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimiser.step()
    assert sympy.simplify(sympy.sympify(f"{formula(model, 'abcd')} - ({expected})")) == 0


def test_the_formula_of_ten_inputs_names_those_that_count():
    unit, _ = fitted("div", 30.0, 300, (-0.4, 1.0), inputs=10)
    assert str(unit.formula("abcdefghij")) == "a/b"


@pytest.mark.parametrize(
    ("operation", "expected"), [("add", "h + x"), ("sub", "h - x"), ("mul", "h*x"), ("div", "h/x")]
)
def test_a_recurrent_cell_learns_from_three_steps_what_holds_for_sixty(operation, expected):
    generator = torch.Generator().manual_seed(1)
    layer = UnitRNN(1, 1, unit=NATU, dtype=DOUBLE)
    unit = layer.get_submodule("unit_l0")
    assert isinstance(unit, NATU)
    unit.reset_parameters(generator)
    optimiser = torch.optim.Adam(layer.parameters(), 2e-2)
    bound_after_step(optimiser, layer)

    def running(x):
        found, y = [], torch.full_like(x[0], float(operation in ("mul", "div")))
        for value in x:
            y = OPERATIONS[operation](y, value)
            found.append(y)
        return torch.stack(found)

    for _ in range(200):
        x = 0.6 + torch.rand(3, 64, 1, dtype=DOUBLE, generator=generator)
        optimiser.zero_grad()
        (3 * torch.nn.functional.mse_loss(layer(x)[0], running(x))).backward()
        optimiser.step()
    assert str(unit.formula("xh")) == expected
    longer = 0.6 + torch.rand(60, 8, 1, dtype=DOUBLE, generator=generator)
    torch.testing.assert_close(layer.eval()(longer)[0], running(longer))


def test_native_and_plain_loops_agree(tmp_path):
    recipe = natu_recipe(partial(behind, first=NATU))
    settings: dict[str, Any] = {"seeds": (0, 1), "steps": 10, "evaluate_every": 10, "evaluation_size": 100}
    work = [recipe.training(task=Composed(formula), **settings) for formula in ("(a+b)/(c+d)", "a*b-c*d")]
    errors = {}
    for backend in ("emitted", "eager"):
        with Store(tmp_path / f"{backend}.sqlite") as store:
            train(work, store, backend=backend)
            errors[backend] = {row.key: row.scores["best_test"] for row in store.rows()}
    assert errors["emitted"] == pytest.approx(errors["eager"], rel=1e-3)
