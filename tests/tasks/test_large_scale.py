"""The large-scale task where its function is at its limits; its points are tested with the Primer's experiments."""

import math

import pytest
import torch

from numerate.results import Store
from numerate.tasks import LargeScale
from numerate.train import Training, train
from numerate.units import NAU

ALL = (torch.arange(4096).unsqueeze(-1) + 0.5) / 4096
INVERSE = LargeScale("inverse", inputs=16, subset=8, overlap=2)


def points(task, seed):
    """All points of the test, their sums a, and y."""
    x, y = task.examples(ALL, task.constants(seed, "test"))
    return x, x[:, : task.subset].double().sum(-1), y[:, 0]


def test_an_inverse_is_finite_where_the_sum_is_zero():
    """The same points for a sum are not moved: there a is 0 for some."""
    same = LargeScale("add", test_range=(-0.5, 0.5), inputs=16, subset=8, overlap=2)
    x, a, _ = points(same, 0)
    moved_x, moved_a, y = points(INVERSE, 0)
    zero = a == 0
    assert zero.any()
    assert torch.equal(x[~zero], moved_x[~zero])
    torch.testing.assert_close(moved_x[zero], x[zero] + 1 / 8192, rtol=0, atol=0)
    torch.testing.assert_close(y.double(), 1 / moved_a, rtol=1e-6, atol=0)
    assert INVERSE.threshold() == pytest.approx(1e-4 * (1 / moved_a).square().mean().item(), rel=1e-5)


@pytest.mark.parametrize("seed", [18, 31, 47, 49])
def test_default_inverses_are_finite_in_runs_with_a_sum_of_zero(seed):
    assert points(LargeScale("inverse"), seed)[2].isfinite().all()


@pytest.mark.parametrize("backend", ["auto", "eager"])
def test_a_run_with_a_sum_of_zero_has_a_finite_error(tmp_path, backend):
    """20,000 draws from the 4,096 points of seed 0, some of which have one."""
    training = Training(NAU, INVERSE, (0,), steps=20, batch=8, evaluate_every=10, evaluation_size=20_000)
    with Store(tmp_path / "a.sqlite") as store:
        train([training], store, backend=backend)
        (row,) = store.rows()
    assert all(math.isfinite(error) for error in row.curves["test"])


def test_a_threshold_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="the mean square of y, by which a run is judged, is not finite"):
        LargeScale("mul", test_range=(1e30, 2e30)).threshold()


def test_settings_without_a_criterion_are_refused():
    with pytest.raises(ValueError, match="the test_range of sqrt must not go below 0"):
        LargeScale("sqrt", test_range=(-4.0, 4.0))
    with pytest.raises(ValueError, match="do not fit"):
        LargeScale("inverse", subset=0, overlap=0)
