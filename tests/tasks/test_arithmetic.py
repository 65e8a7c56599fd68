"""The arithmetic task: subsets by linear algebra, thresholds by the papers and by closed form."""

from typing import Any

import pytest
import torch

from numerate import published
from numerate.tasks import Arithmetic, ten_parameter_function


def test_the_target_is_a_product_of_two_subset_sums_that_linear_algebra_recovers():
    task = Arithmetic("add", inputs=40)
    x, y = task.examples(torch.rand(200, 40), task.constants(3, "train"))
    found = torch.linalg.lstsq(x, y).solution[:, 0].round().int().tolist()
    (a, b), (c, d) = task.spans(3)
    expected = [int(a <= i < b) + int(c <= i < d) for i in range(40)]
    assert found == expected
    assert (b - a, d - c, b - c) == (10, 10, 5)


def test_default_subsets_are_25_long_overlap_12_and_lie_anywhere():
    task = Arithmetic("mul")
    assert (task.subset, task.overlap, task.total) == (25, 12, 38)
    assert {task.spans(seed)[0][0] for seed in range(1500)} == set(range(63))


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "square", "div", "sqrt"])
def test_threshold_is_the_one_behind_the_published_tables(operation):
    used = {
        "add": 1.47861742158438e-05,
        "sub": 1.38437045113029e-08,
        "mul": 0.160010658743333,
        "square": 0.159473806098301,
        "div": 4.93805490041429e-12,
        "sqrt": 8.95525993233274e-09,
    }[operation]  # each a million-sample simulation by the authors
    assert Arithmetic(operation).threshold() == pytest.approx(used, rel=2e-3)


@pytest.mark.parametrize(
    ("operation", "meant"), [("mul", 0.16055918), ("add", 1.6039467e-5), ("sub", 1.3866667e-8), ("square", 0.16000586)]
)
def test_threshold_as_meant_counts_25_and_12(operation, meant):
    assert Arithmetic(operation, thresholds="meant").threshold() == pytest.approx(meant, rel=1e-6)


def test_ten_parameter_function():
    task = ten_parameter_function()
    x = torch.rand(5, 4)
    _, y = task.examples(x, {"low": torch.tensor(0.0), "width": torch.tensor(1.0), **_members(task)})
    torch.testing.assert_close(y[:, 0], x.sum(-1) * x[:, :2].sum(-1))
    assert task.threshold() == pytest.approx(2.156795844e-6, rel=1e-8)


def test_more_than_two_subsets_go_on_over_all():
    task = Arithmetic("mul", inputs=12, fixed=((0, 3), (3, 6), (6, 9)))
    x, y = task.examples(torch.rand(5, 12), task.constants(0, "train"))
    torch.testing.assert_close(y[:, 0], x[:, 0:3].sum(-1) * x[:, 3:6].sum(-1) * x[:, 6:9].sum(-1))


@pytest.mark.parametrize("subsets", [1, 2, 3])
@pytest.mark.parametrize("operation", ["square", "sqrt"])
def test_a_function_of_one_number_is_that_of_the_first_subset_however_many_there_are(operation, subsets):
    task = Arithmetic(operation, inputs=12, overlap_ratio=0.0, subsets=subsets)
    x, y = task.examples(torch.rand(20, 12), task.constants(0, "test"))
    first, last = task.spans(0)[0]
    a = x[:, first:last].sum(-1)
    torch.testing.assert_close(y[:, 0], a**2 if operation == "square" else a**0.5)


@pytest.mark.parametrize("operation", ["square", "sqrt"])
def test_threshold_is_the_error_of_weights_off_by_epsilon_for_any_number_of_subsets(operation):
    task = Arithmetic(operation, inputs=4, fixed=((0, 2), (1, 3), (2, 4)), epsilon=1e-3)
    uniforms = torch.rand(200_000, 4, generator=torch.Generator().manual_seed(0))
    x, y = task.examples(uniforms, task.constants(0, "test"))
    a = x.double() @ torch.tensor([0.999, 0.999, 0.001, 0.001]).double()
    error = (a**2 if operation == "square" else a**0.5) - y[:, 0]
    assert task.threshold() == pytest.approx(error.square().mean().item(), rel=0.02)


def test_subsets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="take 7 inputs; there are 4"):
        Arithmetic("mul", inputs=4, subset_ratio=1.0, overlap_ratio=0.25)


def test_published_ranges_of_figure_3():
    for cell in published.thresholds(task="arithmetic dataset", op="mul"):
        if cell.kind == "script" and "Figure 3b" in cell.used_by:
            assert cell.extrapolation is not None
            span: Any = cell.extrapolation
            assert Arithmetic("mul", test_range=span).threshold() == pytest.approx(cell.value, rel=1e-8)


def _members(task):
    return {k: v for k, v in task.constants(0, "train").items() if k in ("members", "operation")}


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "sqrt", "square"])
def test_every_operation_is_done_on_the_two_sums(operation):
    task = Arithmetic(operation, inputs=8, fixed=((0, 3), (2, 6)))
    x, y = task.examples(torch.rand(20, 8), task.constants(0, "train"))
    a, b = x[:, 0:3].sum(-1), x[:, 2:6].sum(-1)
    expected = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "sqrt": a**0.5, "square": a**2}[operation]
    torch.testing.assert_close(y[:, 0], expected)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"fixed": ((0, 300), (0, 2))}, "fixed subsets must be .first, one past the last. of 100 inputs"),
        ({"fixed": ((5, 2), (0, 2))}, "fixed subsets must be"),
        ({"fixed": ((-3, 2), (0, 2))}, "fixed subsets must be"),
        ({"fixed": ()}, "there must be at least one subset"),
        ({"subsets": 0}, "there must be at least one subset"),
        ({"overlap_ratio": 1.5}, "overlap_ratio must be at least 0 and at most 1"),
        ({"overlap_ratio": -1.0}, "overlap_ratio must be at least 0 and at most 1"),
        ({"epsilon": -1.0}, "epsilon must lie between 0 and 1"),
        ({"epsilon": 0.0}, "epsilon must lie between 0 and 1"),
    ],
    ids=str,
)
def test_settings_without_a_criterion_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        Arithmetic("mul", **settings)


@pytest.mark.parametrize("span", [(-6.0, -2.0), (-1.0, 9.0), ((-3.0, -2.0), (2.0, 3.0))], ids=str)
def test_a_root_is_not_asked_of_negative_numbers(span):
    with pytest.raises(ValueError, match="the test_range of sqrt must not go below 0"):
        Arithmetic("sqrt", test_range=span)
    with pytest.raises(ValueError, match="the train_range of sqrt must not go below 0"):
        Arithmetic("sqrt", train_range=span)


@pytest.mark.parametrize(
    ("span", "size", "fits"),
    [
        ((-2.0, 2.0), 3, False),
        ((0.0, 2.0), 1, False),
        ((0.0, 2.0), 2, False),  # the mean of 1 / (u + v)² is infinite, that of 1 / (u + v + w)² is not
        ((0.0, 2.0), 3, True),
        ((-4.0, -1.0), 3, True),
        (((-6.0, -2.0), (2.0, 6.0)), 1, True),
        (((-6.0, -2.0), (2.0, 6.0)), 2, False),
        (((-6.0, -5.0), (2.0, 3.0)), 2, True),  # in [-12, -10), [-4, -2) or [4, 6)
        (((-6.0, -5.0), (2.0, 3.0)), 3, False),
    ],
    ids=str,
)
def test_a_quotient_is_tested_where_its_mean_square_is_finite(span, size, fits):
    settings = {"test_range": span, "inputs": 6, "fixed": ((0, 3), (3, 3 + size))}
    if fits:
        assert 0 < Arithmetic("div", **settings).threshold() < 1e-6
    else:
        with pytest.raises(ValueError, match="no sum of a subset of the test_range of div may be 0"):
            Arithmetic("div", **settings)
