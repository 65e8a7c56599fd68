"""The single module task against closed forms, simulation and the papers' thresholds."""

import pytest
import torch

from numerate import published
from numerate.streams import Domain, uniform
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.tasks.task import intervals, range_constants, spread


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
def test_thresholds_of_all_ranges_are_the_published_ones(operation):
    for train, test in PRIMER_RANGES.items():
        task = SingleModule(operation, train, test)
        expected = published.threshold(task="single module", op=operation, range=train).value
        assert task.threshold() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("inputs", [2, 10])
def test_threshold_is_the_error_of_weights_off_by_epsilon(operation, inputs):
    task = SingleModule(operation, (1.0, 2.0), (2.0, 6.0), inputs=inputs)
    x = 2 + 4 * torch.rand(400_000, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ε, a, b = 1e-5, x[:, 0], x[:, 1]
    kept = (1 - ε * x[:, 2:]).prod(-1)
    difference = {
        "add": ε * x.sum(-1),
        "sub": ε * x.sum(-1),  # the published bound: every weight off in the harmful direction
        "mul": a * b * (1 - (1 - ε) ** 2 * kept),
        "div": a / b * (1 - (1 - ε) / (1 + ε) * kept),
    }[operation]
    error = (difference**2).mean().item()
    assert task.threshold() == pytest.approx(error, rel=0.01)


@pytest.mark.parametrize("span", [(-2.0, 2.0), (-1.0, 3.0), (0.0, 2.0), ((-3.0, 1.0), (2.0, 6.0))], ids=str)
@pytest.mark.parametrize("operation", ["add", "sub", "mul"])
@pytest.mark.parametrize("inputs", [2, 10])
def test_threshold_is_that_error_also_on_a_range_across_zero(operation, inputs, span):
    task = SingleModule(operation, test_range=span, inputs=inputs)
    constants = {name: value.double() for name, value in range_constants(span).items()}
    uniforms = torch.rand(400_000, inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x, ε = spread(uniforms, constants, union=True), 1e-5
    kept = (1 - ε * x[:, 2:].abs()).prod(-1)
    product = x[:, 0] * x[:, 1] * (1 - (1 - ε) ** 2 * kept)
    error = (product if operation == "mul" else ε * x.abs().sum(-1)).square().mean().item()
    assert task.threshold() == pytest.approx(error, rel=0.01)


@pytest.mark.parametrize("span", [(-2.0, 2.0), (0.0, 1.0), ((-1.0, 1.0), (2.0, 4.0))], ids=str)
def test_a_quotient_is_not_tested_on_a_range_that_holds_zero(span):
    with pytest.raises(ValueError, match="the test_range of div must not hold 0, where quotients are infinite"):
        SingleModule("div", test_range=span)


@pytest.mark.parametrize("train", list(PRIMER_RANGES), ids=str)
@pytest.mark.parametrize("split", ["train", "test"])
def test_inputs_fill_their_range_and_nothing_else(train, split):
    task = SingleModule("add", train, PRIMER_RANGES[train])
    x, _ = task.examples(uniform(torch.tensor(1), Domain.TEST, 0, 4000).view(2000, 2), task.constants(0, split))
    parts = intervals(train if split == "train" else PRIMER_RANGES[train])
    inside = torch.stack([(x >= low - 1e-5) & (x <= high + 1e-5) for low, high in parts]).any(0)
    assert inside.all()
    for low, high in parts:
        here = x[(x >= low - 1e-5) & (x <= high + 1e-5)]
        assert len(here) / x.numel() == pytest.approx(1 / len(parts), abs=0.03)
        assert here.mean().item() == pytest.approx((low + high) / 2, abs=0.03 * (high - low))


def test_redundant_inputs_do_not_change_the_target():
    task = SingleModule("sub", inputs=10)
    first = task.offset(7)
    x, y = task.examples(torch.rand(50, 10), task.constants(7, "train"))
    torch.testing.assert_close(y[:, 0], x[:, first] - x[:, first + 1])
    assert {task.offset(seed) for seed in range(200)} == set(range(9))


@pytest.mark.parametrize("inputs", [2, 10])
def test_operations_share_one_form_and_differ_in_a_constant(inputs):
    expected = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div}
    tasks = [SingleModule(operation, inputs=inputs) for operation in expected]
    assert len({task.form for task in tasks}) == 1
    uniforms = uniform(torch.tensor(3), Domain.TEST, 0, 100 * inputs).view(100, inputs)
    for task in tasks:
        x, y = task.examples(uniforms, task.constants(5, "train"))
        a, b = x[:, task.offset(5)], x[:, task.offset(5) + 1]
        assert torch.equal(y[:, 0], expected[task.operation](a, b))


def test_wrong_settings_are_named():
    with pytest.raises(ValueError, match="operation must be one of add, sub, mul, div, got 'plus'"):
        SingleModule("plus")
    with pytest.raises(ValueError, match="train_range must be"):
        SingleModule("add", (2.0, 1.0))
    with pytest.raises(ValueError, match="epsilon must lie between 0 and 1"):
        SingleModule("add", epsilon=0.0)
    with pytest.raises(ValueError, match="equally wide"):
        SingleModule("add", (1.0, 2.0), ((-2.0, -1.0), (1.0, 3.0)))
