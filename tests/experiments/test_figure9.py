"""The gate of a stored run."""

import math

import numpy as np
import pytest
from torch import nn

from numerate.experiments import Options, select
from numerate.experiments.nau2020.figure9 import gate, pictures
from numerate.results import Row


def stored(training, value):
    """A run of seed 0 whose first layer adds the inputs up to 1 each and whose gate has the logit ``value``."""
    weights = {name: np.zeros(p.shape, np.float32) for name, p in training.build(0).named_parameters()}
    inputs = training.task.inputs
    weights["0.weight"][:] = 1 / inputs
    low, high = training.task.test_range
    weights["1.gate"][:] = value / ((low + high) / 2) / 2
    scores = {"threshold": 1.0, "best_test": 0.5 if value > 0 else 2.0}
    return Row(
        "x", training.description(), 0, labels=training.labels, weights={"best": weights, "final": weights},
        scores=scores,
    )  # fmt: skip


def test_the_gate_is_its_mean_over_the_test_examples():
    """With 100 inputs of weight 1/100 each hidden value is the mean of the range but for a standard error of 1 %."""
    work = select(["nau2020/table5"])[0].work(Options(size="paper", units=("Gated NAU/NMU",)))
    for training in {id(training): training for training in work.arithmetic.values()}.values():
        for value in (-2.0, 0.0, 3.0):
            assert gate(training, stored(training, value)) == pytest.approx(1 / (1 + math.exp(-value)), abs=0.01)


def test_a_unit_without_a_gate_has_no_picture():
    work = select(["nau2020/table5"])[0].work(Options(size="smoke", units=("Gated NAU/NMU", nn.Linear)))
    rows = [stored(t, 4.0) for t in work.trainings if t.labels["unit"] == "Gated NAU/NMU"]
    linear = [t for t in work.trainings if t.labels["unit"] != "Gated NAU/NMU"]
    plain = [Row("x", t.description(), 0, labels=t.labels, scores={"threshold": 1.0, "best_test": 2.0}) for t in linear]
    (picture,) = pictures(work, [*rows, *plain])
    assert [ax.get_title(loc="left") for ax in picture.figure.axes[:1]] == ["Gated NAU/NMU"]
    assert len(picture.figure.axes) == 2
    assert pictures(work, plain) == []


def test_the_caption_counts_the_gates_that_chose_rightly():
    work = select(["nau2020/table5"])[0].work(Options(size="paper", units=("Gated NAU/NMU",)))
    (picture,) = pictures(work, [stored(t, 4.0) for t in work.trainings])
    assert "Gated NAU/NMU on × 0 of 1" in picture.caption
    assert "Gated NAU/NMU on + 1 of 1" in picture.caption
