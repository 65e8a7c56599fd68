"""What was emitted for a step with a name is kept; a step without one is traced anew."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from numerate.loops.cpp import loop as cpp
from numerate.loops.cpp import pipeline
from numerate.loops.toolchain import source_cache
from numerate.tasks import SingleModule
from numerate.train import Training, stack
from numerate.units import MLP, NMU


class Own(NMU):
    """A unit from outside of the package."""


class OwnTask(SingleModule):
    """A task from outside of the package that says nothing of it in its form."""

    @property
    def form(self):
        return "sum", 2


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_CACHE", str(tmp_path))
    return tmp_path


def untraceable(step):
    raise AssertionError("traced")


def test_the_second_loop_of_a_name_is_not_traced_and_gives_the_same_source(monkeypatch):
    step, _ = stack.make_step(Training(NMU, SingleModule("mul"), (0,)))
    first = cpp.Cpp(step)
    monkeypatch.setattr(pipeline, "training_step", untraceable)
    assert cpp.Cpp(step).source == first.source
    for other in (replace(step, name=None), replace(step, name=f"{step.name} other")):
        with pytest.raises(AssertionError, match="traced"):
            cpp.Cpp(other)


def test_a_changed_package_or_torch_is_another_name(monkeypatch):
    assert source_cache.kept("a", "b", lambda: {"value": 1}) == {"value": 1}
    assert source_cache.kept("a", "b", lambda: {"value": 2}) == {"value": 1}
    assert source_cache.kept("a", "c", lambda: {"value": 3}) == {"value": 3}
    monkeypatch.setattr(torch, "__version__", "0.0")
    source_cache._version.cache_clear()
    try:
        assert source_cache.kept("a", "b", lambda: {"value": 4}) == {"value": 4}
    finally:
        source_cache._version.cache_clear()


@pytest.mark.parametrize("content", ["", "{", "[1, 2"])
def test_a_damaged_file_is_made_anew(folder, content):
    source_cache.kept("a", "b", lambda: {"value": 1})
    (path,) = folder.glob("*.json")
    path.write_text(content)
    assert source_cache.kept("a", "b", lambda: {"value": 2}) == {"value": 2}
    assert source_cache.kept("a", "b", lambda: {"value": 3}) == {"value": 2}


def test_only_the_packages_own_code_has_a_name():
    ours = Training(NMU, SingleModule("mul"), (0,))
    assert ours.computation is not None
    assert Training(partial(MLP, hidden=(4,), activation="tanh"), SingleModule("mul"), (0,)).computation is not None
    assert Training(Own, SingleModule("mul"), (0,)).computation is None
    assert Training(NMU, OwnTask("add"), (0,)).computation is None
    assert Training(lambda i, o: NMU(i, o), SingleModule("mul"), (0,)).computation is None


def test_what_changes_the_computation_changes_the_name():
    base = Training(NMU, SingleModule("mul"), (0,))
    others = [
        replace(base, batch=64),
        replace(base, task=SingleModule("mul", inputs=10)),
        replace(base, optimiser=replace(base.optimiser, clip="value", limit=0.1)),
        replace(base, optimiser=replace(base.optimiser, eps=1e-6)),
    ]
    assert len({each.computation for each in (base, *others)}) == 5
    same = replace(base, task=SingleModule("mul", (1.0, 2.0)), seeds=(1, 2), steps=1000)
    assert same.computation == base.computation
