"""Schedules, settings of single parameters and restarts of the optimiser, against torch's own."""

import io
import json
import math
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from numerate.loops.step import batch_uniforms
from numerate.loops.toolchain import native
from numerate.report.comparison import comparison
from numerate.report.html import html
from numerate.report.tables import records, terminal_table
from numerate.results import Row, Store
from numerate.results.outcome import choose_starts
from numerate.tasks import SingleModule
from numerate.train import (
    Adam,
    Cosine,
    Linear,
    Penalty,
    Plateau,
    Settings,
    Steps,
    Training,
    Warmup,
    group,
    stack,
    train,
    trainer,
)
from numerate.train.identity import describe
from numerate.train.kinds import Maker, kinds
from numerate.train.plain import from_text, to_text
from numerate.train.schedules import rate_factors
from numerate.units import MLP, NAU, NMU, Ramp

LOOPS = ["eager", "stacked", pytest.param("emitted", marks=pytest.mark.skipif(not native.available(), reason="no g++"))]
Lr = torch.optim.lr_scheduler
SMALL = partial(MLP, hidden=(3,))
SIZES: dict[str, Any] = {"steps": 60, "evaluate_every": 20, "evaluation_size": 64, "batch": 16}


def training(model: Any = SMALL, seeds=(0, 1), **settings: Any) -> Training:
    return Training(model, SingleModule("mul"), seeds, **(SIZES | settings))


def trained(tmp_path, *trainings, backend="stacked", name="a"):
    with Store(tmp_path / f"{name}.sqlite") as store:
        train(trainings, store, backend=backend)
        return sorted(store.rows(), key=lambda row: (row.key.config, row.seed))


def plain_torch(given: Training, seed: int, scheduler, begun: int) -> nn.Module:
    """The same run by torch's optimiser, groups and schedulers; its parameters are drawn anew at ``begun``."""
    model, (step, _) = given.build(seed, 1), stack.make_step(given)
    optimiser = torch.optim.Adam(own_groups(model), 1e-2)
    schedule, constants = scheduler(optimiser), given.task.constants(seed, "train")
    for t in range(given.steps):
        if t >= begun:
            x, y = given.task.examples(batch_uniforms(step, torch.tensor(seed), t)[0], constants)
            optimiser.zero_grad()
            ((model(x) - y) ** 2).mean().backward()
        optimiser.step()  # without gradients it does nothing
        schedule.step()
    return model


OWN = Adam(1e-2, parameters={"bias": Settings(rate=1e-1, beta2=0.9), "0.weight": Settings(beta1=0.5)})


def own_groups(model):
    biases = [p for name, p in model.named_parameters() if name.endswith("bias")]
    return [
        {"params": [model.layers[1].weight]},
        {"params": biases, "lr": 1e-1, "betas": (0.9, 0.9)},
        {"params": [model.layers[0].weight], "betas": (0.5, 0.999)},
    ]


@pytest.mark.parametrize("backend", LOOPS)
def test_a_run_with_schedule_own_settings_and_a_restart_is_that_of_torch(tmp_path, backend):
    """With an improvement of 90 % asked for, every run begins anew after its second evaluation, at step 20."""
    options = {"optimiser": OWN, "restart": Plateau(window=2, improvement=0.9)}
    works = [training(schedule=schedule, **options) for schedule in (Warmup(20, Cosine(40)), Steps((10, 11, 40)))]
    assert len({work.form for work in works}) == 1
    found = {row.key: row for row in trained(tmp_path, *works, backend=backend)}
    for work in works:
        for key in work.run_keys():
            assert found[key].scores["restarts"] == 1  # the next window ends with the run
            model = plain_torch(work, key.seed, SCHEDULES[work.schedule], begun=20)
            for name, value in model.named_parameters():
                np.testing.assert_allclose(found[key].weights["final"][name], value.detach(), rtol=2e-4, atol=2e-6)


# ---------------------------------------------------------------- schedules

SCHEDULES = {
    Cosine(50): lambda o: Lr.CosineAnnealingLR(o, 50),
    Cosine(50, end=0.1): lambda o: Lr.CosineAnnealingLR(o, 50, eta_min=0.1),
    Linear(30): lambda o: Lr.LinearLR(o, 1.0, 0.0, 30),
    Linear(20, start=0.5, end=2.0): lambda o: Lr.LambdaLR(o, lambda t: 0.5 + 1.5 * min(t / 20, 1)),
    Steps((10, 11, 40)): lambda o: Lr.MultiStepLR(o, [10, 11, 40]),
    Steps((0, 5), factor=0.5): lambda o: Lr.LambdaLR(o, lambda t: 0.25 if t >= 5 else 0.5),
    Warmup(10): lambda o: Lr.LinearLR(o, 0.1, 1.0, 9),
    Warmup(20, Cosine(40)): lambda o: Lr.SequentialLR(
        o, [Lr.LinearLR(o, 0.05, 1.0, 19), Lr.CosineAnnealingLR(o, 40)], milestones=[20]
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
def test_schedules_are_those_of_torch(schedule):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, expected = SCHEDULES[schedule](optimiser), []
    for _ in range(50):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    np.testing.assert_allclose(schedule(torch.arange(50.0, dtype=torch.float64)), expected, rtol=1e-9, atol=1e-12)


def test_after_its_last_step_a_schedule_stays_where_it_is():
    late = torch.tensor([100.0, 1e6], dtype=torch.float64)
    assert Cosine(100, end=0.25)(late).tolist() == Linear(100, end=0.25)(late).tolist() == [0.25, 0.25]


def test_members_without_a_schedule_keep_their_rate():
    factors = rate_factors([None, Linear(10)], 5, 3)
    assert factors.tolist() == [[1.0, 0.5], [1.0, pytest.approx(0.4)], [1.0, pytest.approx(0.3)]]


def test_a_schedule_that_does_not_tell_all_steps_is_refused():
    with pytest.raises(ValueError, match=r"the schedule gives \(2,\) for steps of shape \(3,\)"):
        rate_factors([lambda t: t[:2]], 0, 3)


# ---------------------------------------------------------------- settings of single parameters


def test_configurations_that_differ_in_the_rates_of_parameters_share_a_stack():
    slower = Adam(1e-3, parameters={"bias": Settings(rate=1e-2, beta2=0.9), "0.weight": Settings(beta1=0.5)})
    other = Adam(1e-2, parameters={"bias": Settings(rate=1e-1, beta2=0.8), "0.weight": Settings(beta1=0.5)})
    assert training(optimiser=slower).form == training(optimiser=OWN).form != training(optimiser=other).form
    members = stack.members([stack.Run(training(optimiser=adam), 0) for adam in (OWN, slower)])
    torch.testing.assert_close(members.rate, torch.tensor([[1e-2, 1e-2, 1e-1], [1e-3, 1e-3, 1e-2]]))


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"gate": Settings(rate=1.0)}, "no parameter is called 'gate'; there are .*weight"),
        ({"bias": Settings(rate=1.0), "*bias": Settings()}, "matches both '\\*bias' and 'bias'"),
    ],
)
def test_names_that_fit_no_parameter_or_one_twice_are_refused(tmp_path, parameters, sentence):
    with pytest.raises(ValueError, match=sentence):
        trained(tmp_path, training(optimiser=Adam(parameters=parameters)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Settings(rate=0.0), "rate must be a number above 0"),
        (lambda: Settings(beta2=1.0), "beta2 must be a number from 0 to below 1"),
        (lambda: Adam(parameters=cast(Any, {"gate": 1e-2})), "parameters must map names of parameters to Settings"),
        (lambda: Adam(parameters=cast(Any, 3)), "parameters must map names of parameters to Settings"),
        (lambda: Cosine(0), "steps must be a whole number above 0, got 0"),
        (lambda: Linear(10, end=-1.0), "end must be a number of 0 or more"),
        (lambda: Steps((-1,)), "at must be whole numbers of 0 or more"),
        (lambda: Warmup(10, cast(Any, 3)), "then must be a schedule or None"),
        (lambda: training(schedule=0.1), "schedule must be a function of the steps' numbers or None, got 0.1"),
        (lambda: Plateau(window=1), "window must be a whole number of 2 or more"),
        (lambda: Plateau(improvement=1.0), "improvement must be a number from 0 to below 1"),
        (lambda: Plateau(above=-1.0), "above must be a number of 0 or more"),
    ],
)
def test_wrong_settings_are_named(make, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        make()


# ---------------------------------------------------------------- identity


def test_new_options_at_their_defaults_leave_keys_as_they_were():
    description = training().description()
    assert not {"schedule", "starts"} & set(description)
    assert "parameters" not in description["optimiser"]


def test_options_are_part_of_the_identity_whatever_their_order():
    turned = Adam(1e-2, parameters=dict(reversed(dict(OWN.parameters).items())))
    assert turned == OWN
    assert training(optimiser=turned).run_keys() == training(optimiser=OWN).run_keys()
    variants = [
        training(), training(optimiser=Adam(1e-2)), training(optimiser=OWN), training(schedule=Cosine(60)),
        training(schedule=Cosine(60, end=0.1)), training(schedule=Warmup(6, Cosine(54))), training(restart=Plateau()),
        training(restart=Plateau(window=5)),
    ]  # fmt: skip
    assert len({work.run_keys()[0] for work in variants}) == len(variants)


@pytest.mark.parametrize("value", [OWN, Warmup(10, Cosine(40)), Linear(9), Steps((3, 4)), Plateau(5)], ids=repr)
def test_options_can_be_made_from_their_description(value):
    assert Maker(kinds()).instance(json.loads(json.dumps(describe(value)))) == value


# ---------------------------------------------------------------- restarts


def is_stuck(rule, curve, since, every, good):
    """The rule, word by word, for one run."""
    own = [error for k, error in enumerate(curve) if k * every >= since]
    if len(own) < rule.window:
        return False
    halves = own[: len(own) // 2], own[len(own) // 2 :]
    older, newer = (min((error for error in half if error < math.inf), default=math.inf) for half in halves)
    return newer == math.inf or (newer > (1 - rule.improvement) * older and newer > good)


@pytest.mark.parametrize("window", [2, 5])
def test_runs_are_stuck_when_the_rule_word_by_word_says(window):
    rule, every, generator = Plateau(window, improvement=0.3), 10, np.random.default_rng(0)
    curves = generator.uniform(0.1, 1.0, (300, 7)) * np.linspace(1, 0.6, 7)
    curves[::17, 3:] = np.nan
    curves[::7, 5] = np.inf
    since, good = generator.choice([0, 1, 21, 41], 300), generator.choice([0.0, 0.2], 300)
    found = stack.stuck(rule, every, curves, since, good)
    expected = [is_stuck(rule, curve, start, every, level) for curve, start, level in zip(curves, since, good)]
    assert found.tolist() == expected
    assert 20 < found.sum() < 250


def test_a_start_that_improved_for_long_has_as_long_again():
    """Errors 1, 1/2, 1/3, ... to 1/21, and then no better."""
    curve = 1 / np.minimum(np.arange(1, 61), 21)
    given_up = [stack.stuck(Plateau(), 1, curve[None, :n], np.zeros(1, int), np.zeros(1))[0] for n in range(1, 61)]
    assert given_up.index(True) + 1 == 30  # 1/21 > 0.7 / 15, the older half


def test_what_is_good_enough_is_a_share_of_the_error_of_answering_0(tmp_path):
    """On numbers a thousand times larger the same starts are given up."""
    how: dict[str, Any] = {
        "restart": Plateau(improvement=0.5, above=0.05),
        "evaluate_every": 10,
        "steps": 60,
        "evaluation_size": 100,
    }
    spans = [((1.0, 2.0), (2.0, 6.0)), ((1024.0, 2048.0), (2048.0, 6144.0))]
    work = [Training(NAU, SingleModule("add", *span), tuple(range(6)), Adam(3e-2), **how) for span in spans]
    restarts = [[row.scores["restarts"] for row in trained(tmp_path, one, name=str(k))] for k, one in enumerate(work)]
    assert restarts[0] == restarts[1]
    assert 0 < sum(restarts[0]) < 18


class SumOfTwo:
    """A task without constants."""

    inputs, outputs, draws, form = 2, 1, 2, ()

    def constants(self, seed, split):
        return {}

    def examples(self, uniforms, constants):
        return uniforms, uniforms.sum(-1, keepdim=True)

    def threshold(self):
        return 1e-5


def test_a_task_without_constants_can_restart():
    step, _ = stack.make_step(Training(NAU, cast(Any, SumOfTwo()), (0, 1)))
    uniforms = torch.tensor([[0.5, 0.5], [1.0, 2.0]])
    assert stack.errors_of_zero(step, 2, {}, uniforms).tolist() == [5.0, 5.0]  # the mean of 1 and 9


def test_restarts_on_a_window_do_not_depend_on_neighbours_or_interruptions(tmp_path, monkeypatch):
    rule = {"restart": Plateau(window=2, improvement=0.5), "penalties": (Penalty(l2, Ramp(0.1, 0, 60)),)}
    whole = trained(tmp_path, training(seeds=(0, 1, 2), **rule), name="whole")
    alone = trained(tmp_path, training(seeds=(2,), **rule), name="alone")
    np.testing.assert_equal(whole[2].scores, alone[0].scores)
    with Store(tmp_path / "cut.sqlite") as store:
        with monkeypatch.context() as patch:
            patch.setattr(trainer.Group, "_train", cut_before(50, trainer.Group._train))
            with pytest.raises(KeyboardInterrupt):
                train([training(seeds=(0, 1, 2), **rule)], store, backend="stacked", checkpoint_seconds=0)
        train([training(seeds=(0, 1, 2), **rule)], store, backend="stacked")
        cut = sorted(store.rows(), key=lambda row: row.seed)
    np.testing.assert_equal([row.scores for row in cut], [row.scores for row in whole])
    assert any(row.scores["restarts"] for row in whole)


def test_the_best_point_of_a_run_that_restarts_is_that_of_all_its_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(group, "BEST_OF_LAST", 1)
    rule = Plateau(improvement=0.9, above=0.0)
    restarted = trained(tmp_path, training(seeds=tuple(range(6)), restart=rule), name="restarted")
    best = [row.curves["validation"].argmin() for row in restarted]
    assert [row.scores["best_step"] for row in restarted] == [20 * point for point in best]
    assert min(best) < 3
    plain = trained(tmp_path, training(), name="plain")
    assert {row.scores["best_step"] for row in plain} == {60}


def cut_before(step, proceed):
    def call(group, steps):
        if group.state.step + steps > step:
            raise KeyboardInterrupt
        proceed(group, steps)

    return call


def l2(model):
    return torch.stack([p.square().sum() for p in model.parameters()]).sum()


# ---------------------------------------------------------------- several starts


def loses_its_way(inputs, outputs):
    """A model that about every second draw starts outside of its bounds, where no gradient brings it back."""
    model = MLP(inputs, outputs, hidden=(3,))
    if torch.rand(()) < 0.5:
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(torch.nan)
    return model


def test_the_start_with_the_smallest_validation_error_is_the_run(tmp_path):
    """Start 0 is the run with a single start, bit for bit; the others are those of the next draws."""
    single, several = training(seeds=(0, 1, 2)), training(seeds=(0, 1, 2), starts=3)
    alone = {row.seed: row for row in trained(tmp_path, single, name="alone")}
    rows = trained(tmp_path, several, name="several")
    first = [row for row in rows if row.scores["start"] == 0]
    for row in first:
        np.testing.assert_equal(row.weights["final"], alone[row.seed].weights["final"])
    assert all(row.scores["best_validation"] <= alone[row.seed].scores["best_validation"] for row in rows)
    assert any(row.scores["start"] > 0 for row in rows)
    for row in rows:
        model = several.build(row.seed, int(row.scores["start"]))
        start = several.task.examples(
            stack.evaluation_uniforms(several, "validation"), several.task.constants(0, "train")
        )
        error = ((model(start[0]) - start[1]) ** 2).mean().item()
        assert row.curves["validation"][0] == pytest.approx(error, rel=1e-5)


def test_several_starts_do_not_depend_on_neighbours_interruptions_or_restarts(tmp_path, monkeypatch):
    work = training(seeds=(0, 1, 2), starts=3, restart=Plateau(window=2, improvement=0.5))
    whole = trained(tmp_path, work, name="whole")
    alone = trained(tmp_path, replace(work, seeds=(1,)), name="alone")
    np.testing.assert_equal(whole[1].scores, alone[0].scores)
    np.testing.assert_equal(whole[1].weights, alone[0].weights)
    with Store(tmp_path / "cut.sqlite") as store:
        with monkeypatch.context() as patch:
            patch.setattr(trainer.Group, "_train", cut_before(50, trainer.Group._train))
            with pytest.raises(KeyboardInterrupt):
                train([work], store, backend="stacked", checkpoint_seconds=0)
        train([work], store, backend="stacked")
        cut = sorted(store.rows(), key=lambda row: row.seed)
    np.testing.assert_equal([row.scores for row in cut], [row.scores for row in whole])


def test_a_start_that_diverged_is_not_chosen_and_single_starts_are_counted(tmp_path):
    model = training(loses_its_way, seeds=tuple(range(6)), starts=4, steps=20)
    rows = trained(tmp_path, model, backend="eager")
    lost = [[bool(torch.isnan(next(model.build(seed, j).parameters())).any()) for j in range(4)] for seed in range(6)]
    assert any(map(any, lost))
    for row, gone in zip(rows, lost):
        assert not gone[int(row.scores["start"])]
        assert row.status == "finished"


def test_reports_show_single_starts_beside_the_chosen_one():
    def row(seed, error, **scores):
        labels = {"operation": "mul", "unit": "NMU", "range": (1.0, 2.0)}
        told = {"threshold": 1.0, "best_test": error, "best_step": 0.0, "solved_at": np.nan, "best_sparsity": 0.0}
        return Row("", {}, seed, labels=labels, scores=told | scores)

    several = [row(0, 0.5, starts=4.0, starts_solved=1.0), row(1, 2.0, starts=4.0, starts_solved=0.0)]
    compared = comparison(several, title="Starts")
    (record,) = records(compared)
    assert (record["solved"], record["runs"], record["starts_solved"], record["starts"]) == (1, 2, 1, 8)
    assert record["success_rate"] == 0.5
    assert record["single_rate"] == 0.125
    page = html(compared)
    assert "<th>single starts</th>" in page
    assert "<td>1/8</td>" in page
    console = Console(width=100, file=io.StringIO())
    console.print(terminal_table(compared))
    assert "50 (12)" in console.file.getvalue()  # type: ignore[attr-defined]
    (plain,) = records(comparison([row(0, 0.5)], title="One"))
    assert not {"starts", "single_rate"} & set(plain)


def test_of_equal_starts_the_first_is_taken():
    scores = {"best_validation": np.array([np.nan, 2.0, 1.0, 1.0, np.nan, np.nan]), "best_test": np.arange(6.0)}
    chosen, told = choose_starts(scores | {"threshold": np.full(6, 3.5)}, 3)
    assert chosen.tolist() == [2, 3]
    assert told["starts_solved"][chosen].tolist() == [3, 1]
    assert told["start"][chosen].tolist() == [2, 0]


@pytest.mark.parametrize(
    "options", [{"optimiser": OWN}, {"schedule": Warmup(9, Cosine(9))}, {"starts": 3}, {}], ids=str
)
def test_options_reach_the_workers_of_a_cluster(options):
    work = Training(NMU, SingleModule("mul"), (0,), **options)
    assert replace(from_text(to_text(work)), seeds=(0,)) == work
