"""From configurations to a stack: streams, penalty weights and the restart rule."""

import importlib
import json
import re
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from numerate.loops.toolchain import native
from numerate.results import Store
from numerate.tasks import SingleModule
from numerate.train import Adam, Penalty, Restart, Training, backends, group, stack, train
from numerate.units import (
    INALU,
    NALU,
    NAU,
    NMU,
    After,
    Growth,
    Ramp,
    RealNPU,
    l1,
    penalty,
    snapped_parameters,
    sparsity_error,
)


def training(model: Any = NMU, **settings: Any) -> Training:
    settings = {"seeds": (0, 1), "steps": 2000} | settings
    return Training(model, SingleModule("mul"), **settings)


def test_initial_weights_belong_to_the_seed_alone():
    runs = [stack.Run(training(), seed) for seed in (5, 3, 9)]
    together = stack.initial_parameters(runs)["weight"]
    alone = stack.initial_parameters([runs[2]])["weight"]
    assert torch.equal(together[2], alone[0])
    assert not torch.equal(together[0], together[1])
    torch.manual_seed(123)
    assert torch.equal(stack.initial_parameters(runs)["weight"], together)


def test_building_a_model_leaves_the_global_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    stack.make_step(training(INALU))
    assert torch.equal(torch.rand(3), expected)


class Branching(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y if y.sum() > 0 else 2 * y


class Remembering(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.cell, self.last = nn.LSTM(inputs, 3, batch_first=True), nn.Linear(3, outputs)

    def forward(self, x):
        return self.last(self.cell(x.unsqueeze(-2))[0][..., -1, :])


@pytest.mark.parametrize("model", [Branching, Remembering])
def test_a_model_that_cannot_be_stacked_is_trained_by_the_plain_loop_with_one_notice(model, tmp_path, caplog):
    short = {"steps": 20, "evaluate_every": 20, "evaluation_size": 50}
    with Store(tmp_path / "a.sqlite") as store:
        train([training(model, **short)], store)
        train([training(model, **short, optimiser=Adam(1e-2))], store)
        found = store.rows()
    assert [row.provenance.backend for row in found] == ["eager"] * 4
    assert all(row.curves["validation"][-1] < row.curves["validation"][0] for row in found)
    (notice,) = [record.message for record in caplog.records if record.name == "numerate"]
    assert re.fullmatch(
        rf"no native loop \(.+\) and no stacked loop \(.+\) for {model.__name__}; using the eager one, which is slower",
        notice,
    )


def test_a_library_that_cannot_be_loaded_leaves_the_stacked_loop(tmp_path, monkeypatch, caplog):
    def refuse(source: str) -> None:
        raise native.CompileError("what was compiled cannot be loaded here")

    monkeypatch.setattr(native, "library", refuse)
    for cached in ("_philox", "draws"):
        monkeypatch.setattr(native, cached, getattr(native, cached).__wrapped__)
    with Store(tmp_path / "a.sqlite") as store:
        train([training(steps=20, evaluate_every=20, evaluation_size=50)], store)
        assert {row.provenance.backend for row in store.rows()} == {"stacked-cpu"}
    assert "no native loop (what was compiled cannot be loaded here) for NMU; using the stacked one" in caplog.text


def test_without_a_compiler_all_is_trained_stacked_with_one_notice(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(group, "_loops", {})
    monkeypatch.setattr(backends, "_told", set())
    for cached in ("_philox", "draws"):
        monkeypatch.setattr(native, cached, getattr(native, cached).__wrapped__)
    short = {"steps": 20, "evaluate_every": 20, "evaluation_size": 50}
    with Store(tmp_path / "a.sqlite") as store:
        train([training(**short), training(**short, optimiser=Adam(1e-2))], store)
        assert {row.provenance.backend for row in store.rows()} == {"stacked-cpu"}
    (notice,) = [record.message for record in caplog.records if record.name == "numerate"]
    assert notice.startswith("no native loop (CXX is set to 'no-such-compiler', which is not an executable")


class Half(nn.Module):
    """One of its two factors is not trained."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.fixed = nn.Parameter(torch.rand(outputs, inputs), requires_grad=False)
        self.weight = nn.Parameter(torch.rand(outputs, inputs))
        self.bounds = {"fixed": (10.0, 20.0)}

    def forward(self, x):
        return x @ (self.fixed * self.weight).T


@pytest.mark.parametrize("backend", ["eager", "stacked", "auto"])
def test_a_parameter_without_gradient_stays_as_it_was_drawn(backend, tmp_path):
    shrinking = (Penalty(cast(Any, l1_of_all), Ramp(1.0, 0, 10)),)
    work = training(Half, steps=50, evaluate_every=50, evaluation_size=50, penalties=shrinking)
    with Store(tmp_path / "a.sqlite") as store:
        train([work], store, backend=backend)
        for row in store.rows():
            drawn = work.build(row.seed)
            assert np.array_equal(row.weights["final"]["fixed"], drawn.state_dict()["fixed"])
            assert not np.array_equal(row.weights["final"]["weight"], drawn.state_dict()["weight"])


def l1_of_all(model):
    return sum(value.abs().sum() for value in model.parameters())


class Frozen(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.requires_grad_(False)


class Normed(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs))


class Dropping(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(nn.Linear(inputs, outputs), nn.Dropout())


class Double(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs, dtype=torch.float64)


class Untrainable(nn.Linear):
    def forward(self, x):
        if self.training:
            raise KeyError("speed")
        return super().forward(x)


class Wide(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs + 2)


class Stuck(nn.Linear):
    def forward(self, x):
        raise IndexError("no such column")


class Pair(nn.Linear):
    def forward(self, x):
        return super().forward(x), x


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (Wide, r"^Wide makes \(2, 3\) of inputs of shape \(2, 2\), but the targets have \(2, 1\)$"),
        (Pair, r"^Pair makes tuple of inputs of shape \(2, 2\), but the targets have \(2, 1\)$"),
        (Stuck, r"^Stuck fails on inputs of shape \(2, 2\): no such column$"),
        (nn.Bilinear, r"^Bilinear cannot make a model of \(inputs, outputs\) = \(2, 1\): .*missing 1 required"),
        (json.loads, r"^loads cannot make a model of"),
        (max, r"^max makes int of \(inputs, outputs\), not a torch.nn.Module$"),
        (nn.Identity, r"^Identity has no parameters to train$"),
        (Frozen, r"^Frozen has no parameters to train$"),
        (Normed, r"^Normed changes its buffer 1.running_mean as it computes, but only parameters can be trained$"),
        (Double, r"^Double has parameters of type torch.float64, but training is in torch.float32$"),
        (Untrainable, r"^Untrainable fails on inputs of shape \(2, 2\): 'speed'$"),
        (Branching, r"^Branching cannot be trained with backend stacked: vmap: It looks like"),
    ],
)
def test_a_model_that_cannot_be_trained_on_the_task_is_refused_in_one_sentence(model, sentence, tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        with pytest.raises(ValueError, match=sentence):
            train([training(steps=20, evaluate_every=20), training(model)], store, backend="stacked")
        assert store.rows() == []  # said before others are trained


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"backend": "foo"}, "backend must be one of"),
        ({"device": "tpu"}, "device must be cpu or cuda"),
    ],
)
def test_settings_are_checked_also_where_nothing_is_left_to_train(settings, sentence, tmp_path):
    with Store(tmp_path / "a.sqlite") as store, pytest.raises(ValueError, match=sentence):
        train([], store, **settings)


def test_penalty_weights_follow_each_members_own_schedule():
    a = training(penalties=(Penalty(penalty, Ramp(10.0, 100, 200)),))
    b = training(penalties=(Penalty(penalty, Growth(1e-7, 1e-5, every=50)),))
    weights = stack.PenaltyScales([stack.Run(a, 0), stack.Run(b, 0)])(90, 70, torch.ones(2))
    assert weights.shape == (1, 70, 2)
    np.testing.assert_allclose(weights[0, [0, 10, 11, 60], 0], [0, 0, 0.1, 5.0], rtol=1e-6)
    np.testing.assert_allclose(weights[0, [0, 9, 10, 60], 1], [1e-6, 1e-6, 1e-5, 1e-5], rtol=1e-6)


def test_a_penalty_below_an_error_counts_only_for_members_under_it():
    t = training(penalties=(Penalty(penalty, After(0.05, 10), below=1.0),))
    weights = stack.PenaltyScales([stack.Run(t, 0), stack.Run(t, 1)])(9, 3, torch.tensor([0.5, 2.0]))
    assert weights[0].tolist() == [[0, 0], [0, 0], [pytest.approx(0.05), 0]]


def naive_restarts(curve, rule, every, steps):
    """The rule word by word: a list of notes, checked at every tenth step."""
    notes, found = [], []
    for t in range(steps):
        notes.append(curve[t // every])
        if t > 0 and t % rule.every == 0 and len(notes) > rule.history:
            half = len(notes) // 2
            older, newer = np.array(notes[:half]), np.array(notes[half:])
            if older.mean() <= newer.mean() + newer.std() and newer.mean() > rule.above:
                found.append(t)
                notes = []
    return found


def test_restarts_come_when_the_rule_word_by_word_says():
    rule, every = Restart(history=500, every=10, above=1.0), 100
    generator = np.random.default_rng(0)
    curves = np.exp(generator.normal(0.3, 0.4, (12, 20))) * np.linspace(3, 0.5, 20)
    curves[11, 5] = np.nan
    since, found = np.zeros(12, np.int64), [[] for _ in range(12)]
    for start in range(0, 2000, every):
        times = stack.restart_times(rule, every, curves[:, : start // every + 1], since, start, every)
        for member, at in enumerate(times.tolist()):
            if at >= 0:
                found[member].append(at)
                since[member] = at + 1
    expected = [naive_restarts(curve, rule, every, 2000) for curve in curves[:11]]
    assert found[:11] == expected
    assert len({len(times) for times in expected}) > 1  # the curves differ in how often they restart
    assert found[11] == []


def test_descriptions_name_classes_and_settings():
    t = training(partial(NAU), optimiser=Adam(5e-3), penalties=(Penalty(l1, Growth(1e-9, 1e-7)),))
    text = t.description()
    assert text["model"] == {"call": "numerate.units.nau:NAU"}
    assert text["task"]["operation"] == "mul"
    assert text["penalties"][0]["function"] == "numerate.units.penalties:l1"
    assert text["optimiser"]["rate"] == 5e-3


def test_every_setting_changes_the_identity_of_a_run_and_labels_do_not():
    base = training()
    changed = [
        training(NAU), training(optimiser=Adam(1e-2)), training(penalties=(Penalty(penalty, Ramp(1, 2, 3)),)),
        training(restart=Restart()), training(steps=3000), training(batch=64), training(evaluate_every=500),
        training(evaluation_size=100), Training(NMU, SingleModule("add"), (0, 1), steps=2000),
    ]  # fmt: skip
    keys = {t.run_keys()[0] for t in [base, *changed]}
    assert len(keys) == len(changed) + 1
    assert training(labels={"unit": "other"}).run_keys() == base.run_keys()


class Mine(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.layer(x)


def test_a_users_own_class_carries_a_digest_of_its_source():
    described = training(Mine).description()["model"]
    assert described["path"].endswith("test_stack:Mine")
    assert len(described["source"]) == 12


HELPER = """
def power(x):
    return x
"""
BASE = """
from torch import nn
from helped import power

class Base(nn.Linear):
    def forward(self, x):
        return super().forward(x)
"""
OWN = """
from based import Base

SCALE = 1

class Own(Base):
    def forward(self, x):
        return SCALE * super().forward(x)
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "counts"),
    [
        ("owned", "SCALE = 1", "SCALE = 2", True),  # a helper beside the class
        ("owned", "SCALE *", "2 * SCALE *", True),
        ("based", "super()", "2 * super()", True),
        ("helped", "return x", "return 2 * x", False),
    ],
)
def test_an_edit_in_the_file_of_a_class_or_of_its_base_is_another_configuration(
    file, old, new, counts, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)

    def described():
        for name in ("owned", "based", "helped"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return training(importlib.import_module("owned").Own).description()["model"]

    for name, text in {"owned": OWN, "based": BASE, "helped": HELPER}.items():
        (tmp_path / f"{name}.py").write_text(text)
    before = described()
    assert described() == before
    path = tmp_path / f"{file}.py"
    path.write_text(path.read_text().replace(old, new))
    assert (described() != before) == counts


@dataclass(frozen=True)
class OwnTask(SingleModule):
    pass


def test_a_task_of_ones_own_carries_a_digest_too():
    described = Training(NMU, OwnTask("mul"), (0,)).description()["task"]
    assert described["call"]["path"].endswith("test_stack:OwnTask")
    assert training().description()["task"]["call"] == "numerate.tasks.single_module:SingleModule"


def test_what_cannot_be_named_is_refused():
    with pytest.raises(TypeError, match="cannot be written into a configuration"):
        training(partial(NMU, dtype=object())).description()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": 1500, "evaluate_every": 1000}, "must be a multiple of evaluate_every"),
        ({"seeds": (-1,)}, "seeds must be whole numbers"),
    ],
)
def test_wrong_settings_are_named(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        training(**settings)


@pytest.mark.parametrize("unit", [NALU, INALU, RealNPU])
@pytest.mark.parametrize("function", [sparsity_error, snapped_parameters])
def test_what_is_read_off_a_member_does_not_depend_on_the_others(unit, function):
    """Bit for bit; torch alone rounds the last elements of a tensor otherwise than the rest."""
    training = Training(unit, SingleModule("div"), tuple(range(200)))
    drawn = stack.initial_parameters([stack.Run(training, seed) for seed in training.seeds])
    parameters = {name: 3 * value for name, value in drawn.items()}
    read = stack.over_members(stack.of_parameters(training.build(0), function))

    def flat(values):
        found = read(values)
        return torch.cat([v.flatten(1) for v in found.values()], -1) if isinstance(found, dict) else found

    together = flat(parameters)
    for count in (1, 3, 7, 25, 40):
        for first in range(0, 200 - count, count):
            part = flat({name: value[first : first + count] for name, value in parameters.items()})
            assert torch.equal(part, together[first : first + count])
