"""What was emitted for a step with a name is kept; a step without one is traced anew."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch

from numerate.experiments.models import two_layers
from numerate.loops.cpp import loop as cpp
from numerate.loops.cpp import pipeline
from numerate.loops.toolchain import cache_folder, source_cache
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


def test_another_name_purpose_or_torch_is_made_anew(monkeypatch):
    assert source_cache.kept("a", "b", lambda: {"value": 1}) == {"value": 1}
    assert source_cache.kept("a", "b", lambda: {"value": 2}) == {"value": 1}
    assert source_cache.kept("a", "c", lambda: {"value": 3}) == {"value": 3}
    monkeypatch.setattr(torch, "__version__", "0.0")
    assert source_cache.kept("a", "b", lambda: {"value": 4}) == {"value": 4}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package's files that a test may change."""
    copy = tmp_path / "numerate"
    shutil.copytree(source_cache.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(source_cache, "PACKAGE", copy)
    yield copy
    source_cache._version.cache_clear()
    source_cache._imports.cache_clear()


def version(training):
    source_cache._version.cache_clear()
    source_cache._imports.cache_clear()
    name = stack.make_step(training)[0].name
    assert name is not None
    return source_cache._version(tuple(sorted(source_cache._MODULE.findall(name))))


RELATED = [
    *("units/nmu.py", "units/base.py", "tasks/single_module.py", "tasks/task.py", "streams.py", "train/stack.py"),
    *("train/specification.py", "loops/step.py", "units/__init__.py"),
    *("loops/cpp/pipeline.py", "loops/cuda/pipeline.py"),
    *("loops/toolchain/prelude.hpp", "loops/cuda/prelude.cuh", "loops/passes/enumerate_booleans.py"),
]
UNRELATED = [
    *("report/html.py", "report/__init__.py", "results/store.py", "stats/intervals.py", "cli.py", "train/trainer.py"),
    "train/group.py",
    *("experiments/zoo.py", "experiments/nalu2018/recurrent.py", "published/lookup.py", "tasks/sir.py"),
]


def test_code_that_makes_the_step_changes_the_version_and_no_other_does(package):
    training = Training(NMU, SingleModule("mul"), (0,))
    seen = {version(training)}
    for file in RELATED:
        (package / file).write_text((package / file).read_text() + "\n# changed\n")
        assert version(training) not in seen, file
        seen.add(version(training))
    last = version(training)
    for file in UNRELATED:
        (package / file).write_text((package / file).read_text() + "\n# changed\n")
        assert version(training) == last, file


def test_a_model_of_an_experiment_depends_on_that_experiments_file(package):
    training = Training(partial(two_layers, first=NMU, second=NMU), SingleModule("mul"), (0,))
    before = version(training)
    file = package.joinpath(*two_layers.__module__.split(".")[1:]).with_suffix(".py")
    file.write_text(file.read_text() + "\n# changed\n")
    assert version(training) != before


def test_every_module_that_is_loaded_to_make_a_step_is_a_dependency_or_unrelated():
    """Static imports are all imports: nothing that takes part is loaded by another way."""
    code = """
import sys
from numerate.loops.toolchain import source_cache
from numerate.tasks.single_module import SingleModule
from numerate.train import stack, specification
from numerate.units.nmu import NMU
loaded = {name for name in sys.modules if name.startswith("numerate.")}
training = specification.Training(NMU, SingleModule("mul"), (0,))
named = source_cache._MODULE.findall(stack.make_step(training)[0].name)
entry = {"numerate.train", "numerate.tasks", *source_cache.dependencies(["numerate.train", "numerate.tasks"])}
known = entry | source_cache.dependencies(named)
on_the_way = {name.rpartition(".")[0] for name in known}  # packages, loaded for a module of theirs
print(*sorted(loaded - known - on_the_way))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if not name.startswith(source_cache.UNRELATED)] == []


def test_nothing_that_makes_a_step_imports_what_is_left_out():
    """But for the key of a run, which no step is made of."""
    grimp = pytest.importorskip("grimp")
    graph = grimp.build_graph("numerate", cache_dir=None)
    makes = source_cache.dependencies(["numerate.train.stack"])
    for module in makes:
        for imported in graph.find_modules_directly_imported_by(module):
            assert not imported.startswith(source_cache.UNRELATED) or module == "numerate.train.specification"


@pytest.mark.parametrize("content", ["", "{", "[1, 2"])
def test_a_damaged_file_is_made_anew(folder, content):
    source_cache.kept("a", "b", lambda: {"value": 1})
    (path,) = folder.glob("*/emitted.json")
    path.write_text(content)
    assert source_cache.kept("a", "b", lambda: {"value": 2}) == {"value": 2}
    assert source_cache.kept("a", "b", lambda: {"value": 3}) == {"value": 2}


def test_a_cache_that_cannot_be_written_costs_a_notice_and_no_more(monkeypatch, caplog):
    def full(*_):
        raise OSError(28, os.strerror(28))

    cache_folder.notice.cache_clear()
    monkeypatch.setattr(cache_folder.Cache, "add", full)
    for value in (1, 2):
        assert source_cache.kept("a", "b", lambda value=value: {"value": value}) == {"value": value}
    (notice,) = caplog.messages
    assert "No space left on device" in notice


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
