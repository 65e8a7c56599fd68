"""Noise in the targets of training: its distribution, and that nothing else changes."""

import numpy as np
import pytest
import torch
from scipy import stats

from numerate.loops.toolchain import native
from numerate.results import Store
from numerate.streams import Domain, uniform
from numerate.tasks import Identity, LabelNoise, SingleModule
from numerate.tasks.task import held_out_numbers
from numerate.train import Adam, Training, train
from numerate.train.stack import evaluation_uniforms
from numerate.units import NAU

CLEAN = SingleModule("mul", inputs=3)
NOISY = LabelNoise(CLEAN, 0.01)


def test_targets_of_training_are_off_by_a_normal_share():
    numbers = uniform(torch.tensor(3), Domain.TRAIN, 0, 40_000).view(10_000, 4)
    x, y = NOISY.examples(numbers, NOISY.constants(3, "train"))
    expected_x, expected_y = CLEAN.examples(numbers[:, :3], CLEAN.constants(3, "train"))
    assert torch.equal(x, expected_x)
    share = ((y / expected_y - 1) / 0.01).flatten().numpy()
    assert stats.kstest(share, "norm").pvalue > 0.01
    assert abs(np.corrcoef(share, expected_y.flatten())[0, 1]) < 0.03


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-24])
def test_the_rarest_noise_is_finite(number):
    x, y = NOISY.examples(torch.full((1, 4), number), NOISY.constants(0, "train"))
    assert 1.05 < max(y.item() / (x[0, 0] * x[0, 1]).item(), (x[0, 0] * x[0, 1]).item() / y.item()) < 1.06


@pytest.mark.parametrize("task", [CLEAN, Identity()], ids=repr)
@pytest.mark.parametrize("split", ["validation", "test"])
def test_validation_and_test_are_those_without_noise(task, split):
    noisy = LabelNoise(task, 0.5)
    numbers = held_out_numbers(noisy, split, 50)
    found = noisy.examples(numbers, noisy.constants(1, split))
    expected = task.examples(held_out_numbers(task, split, 50), task.constants(1, split))
    assert all(map(torch.equal, found, expected))
    assert noisy.threshold() == task.threshold()
    assert hasattr(noisy, "error") == hasattr(task, "error")


def test_runs_with_noise_are_trained_alike_by_all_loops(tmp_path):
    work = Training(
        NAU, LabelNoise(SingleModule("add"), 0.1), (0, 1), Adam(1e-2), steps=20, evaluate_every=20, evaluation_size=50,
        batch=16,
    )  # fmt: skip
    assert evaluation_uniforms(work, "test").shape == (50, 3)
    found = []
    for backend in ["eager", "emitted"] if native.available() else ["eager", "stacked"]:
        with Store(tmp_path / f"{backend}.sqlite") as store:
            train([work], store, backend=backend)
            found.append([row.weights["final"]["weight"] for row in sorted(store.rows(), key=lambda row: row.seed)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_wrong_noise_is_named():
    with pytest.raises(ValueError, match="noise must be a number of 0 or more, got -1"):
        LabelNoise(CLEAN, -1)
    with pytest.raises(TypeError, match="task must have inputs, outputs, draws, examples, got 'mul'"):
        LabelNoise("mul")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="task has label noise already"):
        LabelNoise(LabelNoise(CLEAN, 0.5), 0.01)  # both would have had the noise of the outer one
