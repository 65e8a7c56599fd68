"""The best validation point, success and solved-at, as the published scripts judged them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numerate.stats import Outcome, best_point, outcome, solved_at, success

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
