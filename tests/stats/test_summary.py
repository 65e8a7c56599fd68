"""A group of runs in a few numbers."""

import subprocess
import sys

import numpy as np
import pytest

from numerate.stats import Outcome, summarise

RUNS = [Outcome(True, 1000 * (i + 1), 0.001 * (i + 1), True) for i in range(4)] + [
    Outcome(False, None, 0.4, True),
    Outcome(False, 9000, 0.45, False, diverged=True),
]


def test_means_are_over_solved_runs_and_rates_over_all():
    found = summarise(RUNS)
    assert (found.n, found.solved, found.diverged, found.snapped_solved) == (6, 4, 1, 5)
    assert found.success.value == pytest.approx(4 / 6)
    assert found.snapped is not None
    assert found.snapped.value == pytest.approx(5 / 6)
    assert found.solved_at_median == 2500
    assert found.solved_at.value == pytest.approx(2500)
    assert found.solved_at_published.value != pytest.approx(2500)
    assert found.sparsity.value == pytest.approx(0.0025)
    assert found.sparsity_published.value == pytest.approx(0.00125, rel=0.05)


def test_a_run_solved_at_its_first_step_counts_with_0():
    found = summarise([Outcome(True, 0, 0.1), Outcome(True, 1000, 0.1)])
    assert (found.solved_at.value, found.solved_at_published.value) == (500, 500)


def test_nothing_solved_has_no_means():
    found = summarise(RUNS[4:])
    assert found.success.value == 0
    assert found.solved_at_median is None
    assert found.solved_at.value is None
    assert found.sparsity_published.value is None


def test_snapped_is_told_only_if_every_run_was_tried():
    assert summarise([*RUNS, Outcome(True, 10, 0.1)]).snapped is None
    assert summarise([]).snapped is None


def test_starts_of_one_run_are_not_taken_as_independent():
    found = summarise([Outcome(seed < 3, starts=8, starts_solved=8 * (seed < 3)) for seed in range(6)])
    assert found.single is not None
    assert (found.starts_solved, found.starts, found.single.n) == (24, 48, 48)
    assert (found.single.low, found.single.high) == pytest.approx((found.success.low, found.success.high))


def test_order_of_runs_does_not_matter():
    shuffled = [RUNS[i] for i in np.random.default_rng(0).permutation(len(RUNS))]
    assert summarise(shuffled).solved_at.value == pytest.approx(summarise(RUNS).solved_at.value)


def test_statistics_never_import_torch():
    code = "import sys, numerate.stats; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
