"""Which units a command names, and how often a work list is made."""

import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from torch import nn

from numerate import cli
from numerate.experiments import Options, Recipe, experiments, report, run, select
from numerate.experiments.unit_choice import choose_recipes, join_units, resolve_units
from numerate.recurrent import GRU
from numerate.results import Row, Store
from numerate.train import Adam, Cosine, Penalty
from numerate.units import NAU, Ramp, penalty

NAMES = ("NAC•,NMU", "NAC•,σ", "NAC•", "NMU", "Real NPU", "NMU, neither")


@pytest.mark.parametrize(
    ("typed", "units"),
    [
        (["NMU,NAC•"], ("NMU", "NAC•")),
        (["NAC•,NMU"], ("NAC•,NMU",)),
        (["nac*, nmu"], ("NAC•,NMU",)),
        (["NAC•;NMU"], ("NAC•", "NMU")),
        (["NAC•", "NMU"], ("NAC•", "NMU")),
        (["NAC•,NMU,NMU"], ("NAC•,NMU", "NMU")),
        (["NMU,NAC•,σ,pkg.mod:Unit"], ("NMU", "NAC•,σ", "pkg.mod:Unit")),
        (["NMU,pkg.mod:Unit"], ("NMU", "pkg.mod:Unit")),
        (["NMU, neither"], ("NMU, neither",)),
        (["RealNPU,NACMul,NACMulNMU"], ("Real NPU", "NAC•", "NAC•,NMU")),
        ([" NMU , ,NMU;"], ("NMU",)),
    ],
)
def test_commas_separate_units_unless_they_are_part_of_a_name(typed, units):
    assert resolve_units(typed, NAMES) == units
    assert resolve_units([join_units(units, NAMES)], NAMES) == units


def test_a_comma_is_part_of_a_name_only_where_the_experiment_has_that_name():
    assert resolve_units(["NAC•,NMU"], ("NAC•", "NMU")) == ("NAC•", "NMU")


def test_every_name_of_every_experiment_chooses_that_unit_alone():
    for experiment in experiments().values():
        for name in experiment.units:
            assert resolve_units([name], experiment.units) == (name,)
            assert experiment.work(Options("paper", units=(name,))).trainings, (experiment.id, name)


def named_by(monkeypatch, main, words):
    """The units that both entry points hand on, without training."""
    named = []

    def noted(self, options):
        named.append(resolve_units(options.units, self.units))
        raise ValueError("noted")

    monkeypatch.setattr("numerate.experiments.experiment.Experiment.work", noted)
    monkeypatch.setattr(sys, "argv", ["numerate", *words])
    with pytest.raises((SystemExit, ValueError)):
        main()
    return named


@pytest.mark.parametrize(
    "options", [["--units", "NAC•,NMU"], ["--units", "NMU;NAC•"], ["--units", "NMU", "--units", "NAC•"]]
)
def test_both_entry_points_name_the_same_units(options, monkeypatch, tmp_path):
    from numerate.experiments.__main__ import main as train_only

    ours = named_by(monkeypatch, cli.main, ["run", "nau2020/table6", *options])
    theirs = named_by(monkeypatch, train_only, ["nau2020/table6", "--out", str(tmp_path), *options])
    assert ours == theirs == [("NAC•,NMU",) if options == ["--units", "NAC•,NMU"] else ("NMU", "NAC•")]


def test_runs_of_a_machine_without_reports_are_taken_along(monkeypatch, tmp_path, capsys):
    from numerate.experiments.__main__ import main as train_only

    file = tmp_path / "runs.sqlite.gz"
    words = ["nru2019/figure2", "--size", "smoke", "--units", "LSTM", "--no-weights", "--export", str(file)]
    monkeypatch.setattr(sys, "argv", ["train", *words, "--out", str(tmp_path / "there")])
    train_only()
    monkeypatch.setattr(sys, "argv", ["numerate", "rows", "import", str(file), "--out", str(tmp_path / "here")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    with Store(tmp_path / "there/results.sqlite") as there, Store(tmp_path / "here/results.sqlite") as here:
        assert [row.key for row in here.rows()] == [row.key for row in there.rows()]
        assert all(not row.weights for row in here.rows())
    monkeypatch.setattr(sys, "argv", ["train", *words, "--out", str(tmp_path / "again")])
    with pytest.raises(SystemExit, match="2"):
        train_only()
    assert "runs.sqlite.gz exists; shards and compressed files are made from a new file" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()  # nothing has been trained for an export that cannot be


class Linear2(nn.Linear):
    recipe = Adam(5e-2)


def test_a_recipe_of_another_kind_is_refused():
    with pytest.raises(ValueError, match=r"^the recipe of \w+:Linear2 must be a numerate.experiments.Recipe, .*Adam\("):
        select(["primer2022/table9"])[0].work(Options("smoke", units=(Linear2,)))
    assert choose_recipes((nn.Linear,), {})["torch.nn.modules.linear:Linear"] == Recipe(nn.Linear)


class Scheduled(NAU):
    recipe: Recipe


class ScheduledCell(GRU):
    recipe: Recipe


def recipe_of_own(**settings):
    Scheduled.recipe = Recipe(Scheduled, Adam(5e-3), **settings)
    return Options("smoke", units=(Scheduled,))


@pytest.mark.parametrize("id", ["nau2020/figure13", "nalu2018/table10", "primer2022/digit-compare"])
def test_networks_with_a_unit_of_the_users_own_follow_its_recipe(id):
    work = select([id])[0].work(recipe_of_own(schedule=Cosine(100)))
    own = [training for training in work.trainings if training.labels["unit"] == "Scheduled"]
    assert own
    assert {(training.optimiser, training.schedule) for training in own} == {(Adam(5e-3), Cosine(100))}
    with pytest.raises(ValueError, match="a recipe with a Restart or starts cannot train a network"):
        select([id])[0].work(recipe_of_own(starts=8))


@pytest.mark.parametrize("id", ["memory", "memory/deep", "nalu2018/table11", "nalu2018/figure6"])
def test_a_recipe_keeps_its_penalties_where_the_experiment_sets_the_rate(id):
    unit: Any = ScheduledCell if id.startswith("memory") else Scheduled
    sparse = Penalty(penalty, Ramp(1.0, 1, 2))
    unit.recipe = Recipe(unit, Adam(5e-3), (sparse,))
    experiment, options = select([id])[0], Options("smoke", units=(unit,))
    trainings = experiment.work(options).trainings
    assert {(training.penalties, training.optimiser.rate == 5e-3) for training in trainings} == {((sparse,), False)}
    unit.recipe = Recipe(unit, starts=8)
    with pytest.raises(ValueError, match="a recipe with a Restart or starts cannot train a network"):
        experiment.work(options)


@pytest.mark.parametrize("id", ["primer2022/logic", "primer2022/inalu-function"])
def test_two_layers_of_a_unit_of_the_users_own_follow_its_recipe(id):
    work = select([id])[0].work(recipe_of_own(schedule=Cosine(100), starts=8))
    assert {(training.schedule, training.starts) for training in work.arithmetic.values()} == {(Cosine(100), 8)}


@pytest.mark.parametrize(("steps", "every"), [(500, 500), (1000, 1000), (1234, 1234), (2000, 1000), (999, 999)])
def test_runs_of_any_usual_number_of_steps_are_evaluated_at_their_end(steps, every):
    (training,) = select(["primer2022/table11"])[0].work(Options("smoke", units=("NALU",), steps=steps)).trainings[:1]
    assert (training.steps, training.evaluate_every) == (steps, every)


def test_a_number_of_steps_that_cannot_be_divided_is_refused_with_one_that_can():
    experiment = select(["primer2022/table11"])[0]
    with pytest.raises(ValueError, match=r"^--steps 49999 has no divisor near 1000, .*; try 50000$"):
        experiment.work(Options("paper", units=("NMU",), steps=49_999))


def counting(experiment):
    """The experiment, and how often its configurations are made, by size."""
    made = Counter()

    def trainings(options):
        made[options.size] += 1
        return experiment.trainings(options)

    return replace(experiment, trainings=trainings), made


def test_a_work_list_is_made_once_per_command(tmp_path, monkeypatch, capfd):
    """It was made nine times; the published setting is a list of its own."""
    experiment, made = counting(select(["nau2020/table5"])[0])
    monkeypatch.setattr("numerate.experiments.select", lambda ids: [experiment])
    monkeypatch.setattr(sys, "argv", ["numerate", "run", experiment.id, "--size", "smoke", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code, capfd.readouterr().err
    assert made == {"smoke": 1, "paper": 1}
    made.clear()
    report(experiment, Options("smoke"), tmp_path)
    assert made == {"smoke": 1, "paper": 1}
    made.clear()
    monkeypatch.setattr(sys, "argv", ["numerate", "report", experiment.id, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code, capfd.readouterr().err
    assert made == {"smoke": 1, "quick": 1, "paper": 2}  # which size is complete, and the published setting


def test_a_report_of_odd_rows_shows_the_others(tmp_path, caplog):
    options = Options("smoke", seeds=2, units=("NMU",), ranges=((1.0, 2.0),))
    run("primer2022/table11", options, tmp_path)
    (training,) = select(["primer2022/table11"])[0].work(options).trainings
    odd = Row("primer2022/table11", training.description(), 2, labels={"unit": ["[/b]", {"a": 1}]}, scores={})
    with Store(tmp_path / "results.sqlite") as store:
        store.add([odd])
    page = report("primer2022/table11", replace(options, seeds=3), tmp_path).page.read_text()
    assert "2 of 3 runs are finished" in page
    assert "the report leaves it out" in caplog.text
