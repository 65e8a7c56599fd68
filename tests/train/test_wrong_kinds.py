"""A part of the wrong kind is refused in one sentence; it is never ignored."""

import pytest
from torch import nn

from numerate.experiments import Options, Recipe, experiments, run
from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Adam, Penalty, Training, identity, train
from numerate.train.identity import stored_path
from numerate.units import NMU, Ramp, penalty

TASK = SingleModule("mul")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"optimiser": 5e-2}, "optimiser must be an Adam, got 0.05"),
        ({"optimiser": Adam}, "optimiser must be an Adam"),
        ({"penalties": penalty}, "penalties must be a sequence of Penalty"),
        ({"penalties": (penalty,)}, "penalties must be a sequence of Penalty"),
        ({"penalties": Penalty(penalty, Ramp(1.0, 0, 1))}, "penalties must be a sequence of Penalty"),
        ({"restart": 3}, "restart must be a Restart, a Plateau or None, got 3"),
        ({"model": "NMU"}, "model must be a class or function"),
        ({"task": "mul"}, "task must have inputs, outputs, draws, examples, got 'mul'"),
        ({"labels": ["NMU"]}, "labels must map names to values"),
    ],
)
def test_a_training_has_parts_of_the_right_kind(change, sentence):
    with pytest.raises(TypeError, match=sentence):
        Training(**({"model": NMU, "task": TASK, "seeds": (0,)} | change))


class Hasty(NMU):
    recipe = Adam(5e-2)


class Fitting(NMU):
    recipe = Recipe(NMU, Adam(5e-2))


def test_a_recipe_that_is_none_is_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"the recipe of test_wrong_kinds:Hasty must be a numerate.experiments.Recipe.* got Adam\(rate=0.05",
    ):
        run("primer2022/table11", Options("smoke", units=(Hasty,)), tmp_path)
    work = experiments()["primer2022/table11"].work(Options("smoke", units=(Fitting,)))
    assert work.trainings[0].optimiser.rate == 5e-2


@pytest.mark.parametrize("bounds", ["nonsense", (0.0, 1.0), 3, ["weight"]])
def test_bounds_that_are_none_are_refused(bounds, tmp_path):
    class Bounded(nn.Linear):
        pass

    Bounded.bounds = bounds  # pyright: ignore[reportAttributeAccessIssue]
    work = [Training(Bounded, TASK, (0,), steps=10, evaluate_every=10, labels={"unit": "Bounded"})]
    with (
        Store(tmp_path / "a.sqlite") as store,
        pytest.raises(ValueError, match=r"the bounds of Bounded must be a mapping of parameter name -> \(low, high\)"),
    ):
        train(work, store)


def test_code_may_move_and_keep_its_name_in_configurations(monkeypatch):
    before = Training(NMU, TASK, (0,)).run_keys()
    monkeypatch.setattr(NMU, "__module__", "numerate.units.moved")
    assert Training(NMU, TASK, (0,)).run_keys() != before
    monkeypatch.setitem(identity.FORMER_MODULES, "numerate.units.moved", "numerate.units.nmu")
    assert stored_path(NMU) == "numerate.units.nmu:NMU"
    assert Training(NMU, TASK, (0,)).run_keys() == before
