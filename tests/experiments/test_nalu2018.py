"""Every table of the NALU paper's appendices at smoke size: runs complete, reports written, published numbers found."""

import csv
from dataclasses import replace

import pytest

from numerate import published
from numerate.experiments import Options, experiments
from numerate.experiments.kinds import shown_kinds
from numerate.experiments.nalu2018 import scores
from numerate.experiments.nalu2018.models import COMPLEX, IDENTITY, RECURRENT, STATIC
from numerate.report.single import learnt_formula
from numerate.results import Row, Store
from numerate.train import train
from numerate.train.kinds import Maker
from numerate.units import formula

UNITS = {"5": ("Tanh", "None"), "6": ("NAC",), "7": ("CReLU",), "12": ("NALU",), "8": ("NALU",), "9": ("RNN-ReLU",)}
CELLS = {"5": 2, "6": 3 * 12, "7": 2 * 12, "12": 3 * 12, "8": 3 * 14 + 2 * 7, "9": 2 * 14}
"""Cells of each table: the linear model or the LSTM is always there; raw tables have Random, Table 8 has training."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nalu2018")


@pytest.mark.parametrize("table", CELLS)
def test_runs_and_report_are_complete(folder, table):
    experiment = experiments()[f"nalu2018/table{table}"]
    options = Options("smoke", seeds=1, units=UNITS[table])
    work = experiment.work(options)
    with Store(folder / "results.sqlite") as store:
        train(work.trainings, store, experiment=experiment.id, backend="stacked")
        rows = work.rows_of(store.rows())
    assert len(rows) == len(work.keys)
    shown = experiment.show(work, rows, folder / table)
    assert shown.page.exists()
    lines = list(csv.DictReader((folder / table / "table.csv").read_text().splitlines()))
    assert len(lines) == CELLS[table]
    metric = "mean_abs_error" if table == "5" else "mse_percent_of_random" if table in ("7", "9") else "mse"
    for line in lines:
        assert float(line[metric]) >= 0, line
        assert float(line[f"published_{metric}"]) >= 0, line
    page = shown.page.read_text()
    assert f"<h1>NALU 2018, Table {table} (smoke: {work.trainings[0].steps} steps, " in page
    assert "none is tested: the setting is not the published one" in page
    page = experiment.show(experiment.work(replace(options, size="quick")), rows, folder / table).page.read_text()
    assert "Order, ours and published" in page
    assert "no clear order" in page or "same order" in page or "too few" in page


@pytest.mark.parametrize("name", ["Tanh", "None"])
def test_the_formula_of_an_identity_run_has_one_input(name):
    (training,) = experiments()["nalu2018/table5"].trainings(Options("smoke", units=(name,)))
    model = training.build(0)
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    row = Row("", training.description(), 0, weights={"best": weights})
    assert learnt_formula(row, Maker(shown_kinds())) == str(formula(model))


@pytest.mark.parametrize(
    ("table", "models"),
    [("5", IDENTITY), ("6", STATIC), ("7", STATIC), ("8", RECURRENT), ("9", RECURRENT), ("12", COMPLEX)],
)
def test_every_published_model_is_ours_under_one_name(table, models):
    printed = {scores.NAMES.get(cell.model, cell.model) for cell in published.cells(paper="nalu2018", table=table)}
    assert printed - {scores.RANDOM} == set(models)


@pytest.mark.parametrize("size", ["smoke", "quick", "paper"])
def test_two_tables_of_one_task_share_their_runs(size):
    def keys(table):
        trainings = experiments()[f"nalu2018/table{table}"].trainings(Options(size))
        return {key for training in trainings for key in training.run_keys()}

    assert keys("6") == keys("7")
    assert keys("8") == keys("9")
    assert len(keys("12") - keys("6")) == len(keys("6")) / len(STATIC)  # the complex NALU alone is new


def sample(unit, seed, validation, test):
    curves = {"steps": [0, 1], "validation": [10.0, validation], "test": [50.0, test]}
    labels = {"unit": unit, "function": "a"}
    return Row("e", {"u": unit}, seed, labels, curves=curves, scores={"best_validation": validation, "best_test": test})


def test_scores_are_relative_to_the_untrained_reference():
    runs = [sample("LSTM", seed, 1.0 + seed, 5.0) for seed in range(3)]
    runs += [sample("NALU", 0, 0.5, 100.0), sample("NALU", 1, float("nan"), 1.0), sample("NALU", 2, 0.1, float("nan"))]
    found = scores.compare(runs, table="9", reference="LSTM", order=[], metrics=scores.RELATIVE, title="t")
    values = {(cell.panel, cell.series): cell.measured.ours for cell in found.cells}
    best, middle = (metric.name for metric in scores.RELATIVE)
    assert values["interpolation", "LSTM"][middle].value == pytest.approx(20.0)
    assert values["interpolation", "LSTM"][best].value == pytest.approx(10.0)
    assert values["extrapolation", "LSTM"][middle].value == pytest.approx(10.0)
    assert values["extrapolation", "NALU"][middle].value == pytest.approx(200.0)  # of 2, 200 and infinite
    assert values["extrapolation", "NALU"][best].value == float("inf")  # its best run on short sequences blows up


def test_functions_without_a_reference_are_left_out():
    runs = [sample("LSTM", 0, 1.0, 5.0), sample("NALU", 0, 0.5, 1.0)]
    runs.append(replace(runs[1], labels={"unit": "NALU", "function": "a²"}))
    found = scores.compare(runs, table="9", reference="LSTM", order=[], metrics=scores.RELATIVE, title="t")
    assert {cell.x for cell in found.cells} == {"a"}


@pytest.mark.parametrize(("tied", "expected"), [(0.05, 200.0), (1e-6, 2.0)])
def test_runs_that_tie_in_interpolation_count_together(tied, expected):
    runs = [sample("LSTM", 0, 1.0, 5.0)]
    runs += [
        sample("NALU", seed, 10.0 * share, test)
        for seed, (share, test) in enumerate([(1e-7, 1), (4e-4, 199), (0.5, 3)])
    ]
    found = scores.compare(runs, table="9", reference="LSTM", order=[], metrics=scores.RELATIVE, title="t", tied=tied)
    (cell,) = [cell for cell in found.cells if (cell.panel, cell.series) == ("extrapolation", "NALU")]
    assert cell.measured.ours[scores.RELATIVE[0].name].value == pytest.approx(expected)


def test_a_score_printed_as_0_is_darkest_and_random_lightest():
    assert (scores.shade(0.01), scores.shade(100), scores.shade(1e9)) == (1, 0, 0)
    assert 0 < scores.shade(10) < scores.shade(1) < 1
