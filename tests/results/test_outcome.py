"""The best validation point, success and solved-at, as the published scripts judged them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numerate.results import Row
from numerate.results.outcome import Outcome, best_point, judge, outcome, read_off, solved_at, success

nan = float("nan")
errors = st.lists(st.floats(0, 10) | st.just(nan) | st.just(float("inf")), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("validation", "last", "index"),
    [
        ([3, 1, 2], None, 1),
        ([1, 1, 2], None, 0),
        ([nan, 2, nan, 1, 1], None, 3),
        ([nan, nan], None, 1),
        ([float("inf"), nan], None, 0),
        ([0, 3, 2], 2, 2),
        ([0, nan, nan], 2, 2),
        ([0, 3, 2], 5000, 0),
    ],
)
def test_first_smallest_of_the_last_points_without_nan(validation, last, index):
    assert best_point(validation, last) == index


@settings(deadline=None)
@given(errors, st.none() | st.integers(1, 40))
def test_no_later_point_is_better_and_every_earlier_one_is_worse(validation, last):
    best = best_point(validation, last)
    tail = range(0 if last is None else max(0, len(validation) - last), len(validation))
    assert best in tail
    assert not any(validation[i] < validation[best] for i in tail)
    assert not any(validation[i] <= validation[best] for i in tail if i < best)


def test_the_published_scripts_drop_the_first_of_5001_points():
    validation = np.linspace(1, 2, 5001)
    assert best_point(validation) == 0
    assert best_point(validation, last=5000) == 1


def test_a_curve_without_points_is_refused():
    with pytest.raises(ValueError, match="at least one point"):
        best_point([])
    with pytest.raises(ValueError, match="positive number"):
        best_point([1.0], last=0)


def test_success_is_judged_at_the_best_validation_point_only():
    assert success([9, 0.1, 9], [3, 1, 2], 1.0)
    assert not success([0.1, 9, 0.1], [3, 1, 2], 1.0)
    assert not success([1.0], [1.0], 1.0), "the threshold itself is not below it"
    assert not success([nan], [1.0], 1.0)


def test_solved_at_is_the_first_point_below_even_if_it_does_not_stay():
    steps = [0, 1000, 2000, 3000]
    assert solved_at(steps, [5, 0.5, 5, 0.1], 1.0) == 1000
    assert solved_at(steps, [5, nan, 1.0, 5], 1.0) is None


def test_an_outcome_gathers_all_of_it():
    curves = ([0, 1000, 2000], [3, 1, 2], [5, 0.5, 5], [0.5, 0.25, 0.1])
    assert outcome(*curves, 1.0, snapped_test=0.0) == Outcome(True, 1000, 0.25, True)
    assert outcome(*curves, 1e-9, diverged=True) == Outcome(False, None, 0.25, None, True)


def test_a_run_that_diverged_before_its_first_evaluation_is_a_failure():
    judged = outcome([], [], [], [], 1.0, snapped_test=nan, diverged=True)
    assert (judged.solved, judged.solved_at, judged.snapped, judged.diverged) == (False, None, False, True)


@settings(deadline=None)
@given(st.lists(st.tuples(errors, errors, errors), min_size=1, max_size=5), st.integers(1, 12), st.floats(0, 10))
def test_scores_read_off_a_stack_judge_each_run_as_its_curves_do(runs, last, threshold):
    points = min(len(curve) for run in runs for curve in run)
    curves = np.array([[curve[:points] for curve in run] for run in runs], np.float32)
    steps, limits = 1000 * np.arange(points), np.full(len(runs), threshold)
    names = ("validation", "test", "sparsity")
    scores = read_off(steps, *curves.swapaxes(0, 1), threshold=limits, last=last)
    for i, run in enumerate(curves):
        stored = Row("e", {}, i, curves=dict(zip(names, run)) | {"steps": steps}, scores={"threshold": threshold})
        scored = Row("e", {}, i, scores={"threshold": threshold} | {k: float(v[i]) for k, v in scores.items()})
        by_curves, by_scores = judge(stored, last=last), judge(scored)
        assert (by_curves.solved, by_curves.solved_at) == (by_scores.solved, by_scores.solved_at)
        np.testing.assert_equal(by_curves.sparsity, by_scores.sparsity)


@pytest.mark.parametrize(
    ("curves", "scores"),
    [
        ({}, {}),
        ({"validation": [1.0]}, {}),
        ({"validation": [], "test": [], "steps": [], "sparsity": []}, {}),
        ({}, {"best_test": 0.0}),
        ({}, {"best_test": 0.0, "solved_at": float("inf")}),
        ({}, {"best_test": 2.0, "snapped_test": 0.0, "snapped_validation": 1.0}),
    ],
)
def test_an_odd_row_is_judged_as_far_as_it_goes(curves, scores):
    judged = judge(
        Row("e", {}, 0, curves={k: np.array(v) for k, v in curves.items()}, scores=scores | {"threshold": 1.0})
    )
    assert judged.solved is (scores.get("best_test") == 0.0)
    assert judged.solved_at is None
