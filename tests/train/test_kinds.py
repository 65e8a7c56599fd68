"""What a stored configuration may make: kinds on the list, from data; nothing it names is ever imported or called."""

import builtins
import importlib
import json
import os
import subprocess

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from numerate.experiments import Options, experiments
from numerate.experiments.kinds import shown_kinds
from numerate.tasks import SingleModule
from numerate.train import Training
from numerate.train.kinds import LARGEST, Importing, Maker, NotListed, foreign, kinds, make_model
from numerate.units import NMU

MAKER = Maker(shown_kinds())
TASK = {"call": "numerate.tasks.single_module:SingleModule", "operation": "mul"}
CONFIG = {"model": "numerate.units.nmu:NMU", "task": TASK}
SHAPES = {"weight": (1, 2)}


def stored(training):
    """The configuration as a results file brings it back."""
    return json.loads(json.dumps(training.description()))


def shapes_of(model):
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


NOT_SHOWN = "ur2020/match"
"""An agent is made with its task, and a described model takes no task."""


@pytest.mark.parametrize("id_", [id_ for id_ in experiments() if id_ != NOT_SHOWN])
def test_every_model_of_an_experiment_can_be_made_from_its_configuration(id_):
    """A model function that is missing here belongs into ``numerate.experiments.kinds``."""
    one_of_each = {}
    for training in experiments()[id_].work(Options(size="smoke")).trainings:
        one_of_each.setdefault(training.form, training)
    for training in one_of_each.values():
        model = training.build(seed=0)
        assert repr(make_model(MAKER, stored(training), shapes_of(model))) == repr(model)
        assert MAKER.instance(stored(training)["task"]) == training.task
        assert MAKER.instance(stored(training)["optimiser"]) == training.optimiser


def test_the_list_holds_units_cells_tasks_and_nothing_of_the_machinery():
    for path, kind in kinds().items():
        package = path.split(".")[1].partition(":")[0]
        assert package in ("units", "recurrent", "tasks", "train")
        assert callable(kind)
    assert not any("loops" in path or "results" in path for path in shown_kinds())


HOSTILE = [
    "numerate.loops.native:library",
    "numerate.loops.cpp:Cpp",
    "numerate.results:Store",
    "numerate.cli:main",
    "numerate.experiments.experiment:import_unit",
    "numerate.train.kinds:Importing",
    "numerate.units.nmu:torch",
    "numerate.units.nmu:NMU.__init__",
    "numerate.units:NMU",
    "os:system",
    "posix:system",
    "subprocess:run",
    "builtins:eval",
    "builtins:exec",
    "builtins:__import__",
    "torch:load",
    "torch.hub:load",
    "pickle:loads",
    "ctypes:CDLL",
    "",
    ":",
    "a:",
    ":b",
    "os:system\0",
]


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("place", ["model", "called", "argument", "nested", "task"])
def test_what_is_not_listed_is_never_looked_up(path, place, monkeypatch):
    forms = {
        "model": {"model": path, "task": TASK},
        "called": {"model": {"call": path, "arguments": ["touch /tmp/evil"]}, "task": TASK},
        "argument": {
            "model": {"call": "numerate.experiments.models:two_layers", "first": path, "second": path},
            "task": TASK,
        },
        "nested": {
            "model": {"call": "numerate.experiments.models:two_layers", "first": {"call": path, "source": "x"}},
            "task": TASK,
        },
        "task": {"model": "numerate.units.nmu:NMU", "task": {"call": path, "arguments": ["x"]}},
    }
    forbid(monkeypatch)
    with pytest.raises((ValueError, TypeError)):
        make_model(MAKER, forms[place], SHAPES)


def forbid(monkeypatch):
    """Nothing is imported, no shell is called, nothing is compiled."""

    def refused(*words, **named):
        raise AssertionError(f"called with {words}")

    for module, name in ((importlib, "import_module"), (os, "system"), (subprocess, "Popen"), (builtins, "eval")):
        monkeypatch.setattr(module, name, refused)


paths = st.sampled_from([*HOSTILE, *list(shown_kinds())[::5], "relu", "forward", "numerate.units.nmu:NMU"])
numbers = st.one_of(st.integers(), st.integers(1, 9), st.floats(), st.booleans(), st.none(), st.just(10**30))
names = st.one_of(
    st.sampled_from(["call", "arguments", "path", "source", "with", "in_features", "hidden", "first", "second"]),
    st.sampled_from(["activation", "device", "dtype", "self", "inputs", "operation", "unit", "cell", "__class__"]),
    st.text(max_size=5),
)
values = st.recursive(
    st.one_of(paths, numbers, st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)),
    max_leaves=12,
)


@given(model=values, task=st.one_of(values, st.just(TASK)))
def test_a_hostile_configuration_makes_nothing_but_our_own_models(model, task):
    try:
        made = make_model(MAKER, {"model": model, "task": task}, SHAPES)
    except (ValueError, TypeError, RuntimeError, LookupError, ArithmeticError, AttributeError):
        return
    assert isinstance(made, nn.Module)
    assert type(made).__module__.startswith(("numerate.units", "numerate.recurrent", "torch.nn"))
    assert sum(parameter.numel() for parameter in made.parameters()) <= 2


def test_a_model_larger_than_the_numbers_of_its_file_is_not_made():
    wide = {"call": "numerate.units.mlp:MLP", "hidden": [LARGEST, LARGEST]}
    with pytest.raises(ValueError, match="the stored weights are not those of its model"):
        make_model(MAKER, CONFIG | {"model": wide}, SHAPES)
    with pytest.raises(ValueError, match="a number as large as"):
        make_model(MAKER, CONFIG | {"task": TASK | {"inputs": 10**9}}, SHAPES)
    with pytest.raises(ValueError, match=r"a list of 1,000 values"):
        make_model(MAKER, CONFIG | {"model": wide | {"hidden": [1] * 1000}}, SHAPES)


# A user's own unit


class Own(NMU):
    """Defined in this file, which counts as the user's."""


OWN = stored(Training(Own, SingleModule("mul"), (0,)))


def test_a_users_unit_is_made_only_by_importing_which_says_what_is_run():
    with pytest.raises(NotListed, match="test_kinds:Own is not a unit, cell or task of numerate's own"):
        make_model(MAKER, OWN, SHAPES)
    assert [*foreign(OWN["model"], MAKER.allowed)] == ["test_kinds:Own"]
    importing = Importing(MAKER.allowed)
    assert importing.says(OWN["model"]) == "import test_kinds and call Own"
    assert isinstance(make_model(importing, OWN, SHAPES), Own)


def test_code_that_has_changed_since_is_not_called():
    edited = OWN | {"model": OWN["model"] | {"source": "0" * 12}}
    with pytest.raises(ValueError, match="is not, or no longer, the code that this run was trained with"):
        make_model(Importing(MAKER.allowed), edited, SHAPES)


@pytest.mark.parametrize("path", ["os:system", "subprocess:run", "builtins:eval", "numerate.loops.native:library"])
def test_importing_is_for_units_alone(path):
    with pytest.raises(ValueError, match=f"{path} is no unit of your own"):
        make_model(Importing(MAKER.allowed), CONFIG | {"model": {"call": path, "arguments": ["true"]}}, SHAPES)


def test_what_was_made_inside_a_function_cannot_be_imported():
    class Inner(nn.Linear):
        pass

    config = stored(Training(Inner, SingleModule("mul"), (0,)))
    with pytest.raises(ValueError, match="was made inside a function or by hand"):
        make_model(Importing(MAKER.allowed), config, shapes_of(nn.Linear(2, 1)))


def test_making_draws_no_numbers_from_the_users_generator():
    before = torch.get_rng_state()
    make_model(MAKER, CONFIG, SHAPES)
    assert np.array_equal(before, torch.get_rng_state())
