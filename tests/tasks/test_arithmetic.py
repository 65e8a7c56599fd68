"""The arithmetic task: subsets by linear algebra, thresholds by the papers and by closed form."""

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


def test_subsets_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="take 7 inputs; there are 4"):
        Arithmetic("mul", inputs=4, subset_ratio=1.0, overlap_ratio=0.25)


def test_published_ranges_of_figure_3():
    for cell in published.thresholds(task="arithmetic dataset", op="mul"):
        if cell.kind == "script" and "Figure 3b" in cell.used_by:
            assert Arithmetic("mul", test_range=cell.extrapolation).threshold() == pytest.approx(cell.value, rel=1e-8)


def _members(task):
    return {k: v for k, v in task.constants(0, "train").items() if k in ("members", "operation")}


@pytest.mark.parametrize("operation", ["add", "sub", "mul", "div", "sqrt", "square"])
def test_every_operation_is_done_on_the_two_sums(operation):
    task = Arithmetic(operation, inputs=8, fixed=((0, 3), (2, 6)))
    x, y = task.examples(torch.rand(20, 8), task.constants(0, "train"))
    a, b = x[:, 0:3].sum(-1), x[:, 2:6].sum(-1)
    expected = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "sqrt": a**0.5, "square": a**2}[operation]
    torch.testing.assert_close(y[:, 0], expected)
