"""Ranges drawn by a fixed rule, and formulas of two operations."""

import pytest
import torch

from numerate.experiments import Options, select
from numerate.streams import Domain, uniform
from numerate.tasks import COMPOSED, AnyRange, Composed, random_ranges
from numerate.tasks.any_range import DEVELOPMENT
from numerate.tasks.task import intervals


def drawn(task, split, count=50_000):
    uniforms = uniform(7, Domain.TASK, 0, count * task.draws).view(count, task.draws)
    return task.examples(uniforms, task.constants(0, split))


def test_more_ranges_begin_with_the_same_and_other_seeds_have_others():
    assert list(random_ranges(5)) == list(random_ranges(50))[:5]
    assert not {*random_ranges(50)} & {*random_ranges(50, DEVELOPMENT)}


def test_ranges_follow_the_rule():
    kinds = []
    for train, test in random_ranges(300):
        low, high = intervals(train)[0]
        far, width = max(abs(low), abs(high)), high - low
        assert {round(abs(end) / far, 9) for part in intervals(test) for end in part} == {1, 3}
        kinds.append("across" if low < 0 < high else "positive" if low > 0 else "negative")
        if kinds[-1] != "across":
            near = min(abs(low), abs(high))
            assert 1e-3 <= near <= 1e4
            assert 0.01 <= width / near <= 1
    assert all(70 < kinds.count(kind) < 130 for kind in ("across", "positive", "negative"))


@pytest.mark.parametrize(("operation", "degree"), [("add", 1), ("sub", 1), ("mul", 2), ("div", 0)])
@pytest.mark.parametrize("inputs", [2, 10])
def test_success_knows_no_scale(operation, degree, inputs):
    one, large = (AnyRange(operation, (s, 2 * s), (2 * s, 6 * s), inputs).threshold() for s in (1.0, 1e4))
    assert large == pytest.approx(one * 1e4 ** (2 * degree), rel=1e-9)


@pytest.mark.parametrize("formula", COMPOSED)
def test_composed_targets_are_the_formulas(formula):
    x, y = drawn(Composed(formula), "test", 100)
    a, b, c, d = x.unbind(-1)
    torch.testing.assert_close(y[:, 0], eval(formula, {"a": a, "b": b, "c": c, "d": d}))


def test_a_composed_product_is_solved_below_the_error_of_hidden_values_off_by_epsilon():
    task = Composed("(a+b)*(c+d)")
    _, y = drawn(task, "test")
    assert task.threshold() == pytest.approx(float((2e-5 * y.double()).pow(2).mean()), rel=0.02)
    with pytest.raises(ValueError, match="formula must be one of"):
        Composed("a+b+c")


def test_the_experiment_has_every_range_once_for_each_unit_operation_and_number_of_inputs():
    work = select(["anyrange"])[0].work(Options("quick", units=("NATU", "NAU")))
    assert len(work.trainings) == 2 * 4 * 2 * 20
    assert len({*work.keys}) == len(work.keys)
