"""The experiments that compare tables: they cover every published cell, run at smoke size and show what they ran."""

import io
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import rich.console
import torch
from torch import nn

from numerate import published
from numerate.experiments import Options, experiments, report, select, zoo
from numerate.experiments import run as run_experiment
from numerate.experiments.pages import Departure, missing, unlike_paper, without_refutations
from numerate.recurrent import UGRNN
from numerate.report import Claim
from numerate.results import Row, Store
from numerate.train import Plateau, train
from numerate.units import NAU


def run(id_, folder, **options):
    chosen = Options("smoke", **options)
    (experiment,) = select([id_])
    with Store(folder / "results.sqlite") as store:
        work = experiment.work(chosen)
        train(work.trainings, store, experiment=id_)
        rows = work.rows_of(store.rows(keys=work.keys))
    assert len(rows) == len(work.keys)
    return experiment.show(work, rows, folder / id_), rows


@pytest.mark.parametrize("table", ["9", "10", "11", "12"])
def test_the_primers_tables_run_every_published_cell_as_published(table):
    (experiment,) = select([f"primer2022/table{table}"])
    work = experiment.work(Options("paper")).arithmetic.values()
    ours = {(t.labels["unit"], t.labels["range"]) for t in work}
    assert ours == {(cell.model, cell.range) for cell in published.cells(paper="primer2022", table=table)}
    assert {(len(t.seeds), t.steps, t.batch, t.evaluation_size) for t in work} == {(25, 50_000, 128, 10_000)}


def test_the_whole_benchmark_has_5175_runs_in_207_cells():
    work = select(["primer2022"])[0].trainings(Options("paper"))
    assert len(work) == 207
    assert sum(len(t.seeds) for t in work) == 5175
    assert len({t.form for t in work}) == 9  # so many stacks: one for each unit


@pytest.mark.parametrize(("table", "cells", "steps"), [("1", 3, 200_000), ("2", 11, 5_000_000), ("6", 66, 5_000_000)])
def test_the_arithmetic_tables_run_every_published_cell_as_published(table, cells, steps):
    work = select([f"nau2020/table{table}"])[0].trainings(Options("paper"))
    assert len(work) == cells
    assert {(len(t.seeds), t.steps) for t in work} == {(100, steps)}
    inputs = {t.task.inputs for t in work}
    assert inputs == ({4} if table == "1" else {100})


def test_tables_2_and_6_share_their_runs():
    two, six = (
        {key for t in select([f"nau2020/table{n}"])[0].trainings(Options("paper")) for key in t.run_keys()}
        for n in "26"
    )
    assert two <= six


@pytest.mark.parametrize("size", ["quick", "paper"])
@pytest.mark.parametrize("table", ["2", "6"])
def test_sums_keep_their_inputs_and_nau_its_penalty(table, size):
    work = select([f"nau2020/table{table}"])[0].trainings(Options(size))
    assert {t.task.inputs for t in work if t.labels["operation"] in ("add", "sub")} == {100}
    for t in work:
        if t.labels["unit"] == "NAU":
            schedule: Any = t.penalties[0].schedule
            assert (schedule.start, schedule.end) == (5_000, 50_000)


@pytest.mark.parametrize(("id_", "units"), [("nau2020/table1", None), ("nau2020/table2", ("NMU", "NAU"))])
def test_tables_of_the_arithmetic_task_run_at_smoke_size(tmp_path, id_, units):
    shown, rows = run(id_, tmp_path, units=units)
    page = shown.page.read_text()
    assert re.search(r"<h1>Neural Arithmetic Units, Table . \(smoke: 2,000 steps, ", page)
    assert "Quick + and −" not in page  # that is a reason of quick runs
    assert re.search(r"\d other setting", page)
    assert "not published" not in page
    assert all(row.curves["validation"][-1] < row.curves["validation"][0] for row in rows if row.status == "finished")


class Product(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x):
        return x.prod(-1, keepdim=True) * self.scale


def test_a_users_class_joins_from_python_as_it_is(tmp_path):
    options = Options("smoke", seeds=1, units=("NMU", Product), ranges=((1.0, 2.0),))
    shown = run_experiment("primer2022/table11", options, tmp_path)
    assert "Product" in shown.page.read_text()
    again = report("primer2022/table11", options, tmp_path)
    assert again.page == shown.page


class NMU(Product):
    """A name of ours."""


def outer():
    class Product(nn.Linear):
        """A name of another unit of the user's."""

    return Product


def units_shown(*units, id_="primer2022/table11"):
    work = select([id_])[0].work(Options("smoke", units=units, ranges=((1.0, 2.0),)))
    return {t.labels["unit"]: t.model for t in work.trainings}


def test_a_users_unit_is_never_shown_under_a_name_of_ours(tmp_path):
    shown = units_shown(NMU, "NMU", nn.Linear)
    assert list(shown) == ["test_tables:NMU", "NMU", "torch.nn.modules.linear:Linear"]
    assert list(units_shown("torch.nn:Linear")) == ["torch.nn:Linear"]
    assert shown["test_tables:NMU"] is NMU
    page = run_experiment("primer2022/table11", Options("smoke", 1, (NMU,), ((1.0, 2.0),)), tmp_path).page.read_text()
    assert "test_tables:NMU" in page
    assert "none can be tested against a published number" in page


def test_units_of_one_name_are_shown_apart():
    first, second = (
        lambda i, o: nn.Linear(i, o),
        lambda i, o: nn.Linear(i, o, bias=False),
    )
    assert list(units_shown(Product, outer(), Product)) == ["Product", "test_tables:outer.<locals>.Product"]
    assert list(units_shown(first, second).values()) == [first, second]
    assert len(units_shown(partial(Product), partial(Product, outputs=1))) == 2


def test_units_that_cannot_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="have the same source and cannot be told apart; give each its own name"):
        units_shown(lambda i, o: nn.Linear(i, o), lambda i, o: nn.Linear(i, o, bias=False))


@pytest.mark.parametrize("id_", ["primer2022/figure18", "primer2022/figure20", "nau2020/figure3", "primer2022"])
@pytest.mark.parametrize("size", ["smoke", "quick"])
def test_a_range_that_an_experiment_does_not_have_is_refused(id_, size):
    (experiment,) = select([id_])
    with pytest.raises(ValueError, match=r"range \[5, 6\) is not part of this experiment; allowed are .*\[1, 2\)"):
        experiment.work(Options(size, ranges=((5.0, 6.0),)))
    work = experiment.work(Options(size, ranges=((1.0, 2.0), (1.0, 2.0))))
    keys = [key for training in work.trainings if training.labels.get("range") for key in training.run_keys()]
    assert len(keys) == len(set(keys))


def test_options_are_heeded_or_refused():
    for id_, experiment in experiments().items():
        plain = experiment.work(Options("quick")).trainings
        own = UGRNN if id_.startswith("memory") else Product
        for name, value in (("ranges", ((1.0, 2.0),)), ("units", (own,))):
            options = replace(Options("quick"), **{name: value})
            if not getattr(experiment, name):
                with pytest.raises(ValueError, match=f"^{id_} has no choice of {name}; leave --{name} out"):
                    experiment.work(options)
            else:
                changed = [training.description() for training in experiment.work(options).trainings]
                assert changed != [training.description() for training in plain], id_


def test_a_unit_of_one_table_is_run_where_it_belongs():
    (whole,) = select(["primer2022"])
    work = whole.work(Options("smoke", units=("NMU", "nau", Product)))
    shown = {(t.labels["operation"], t.labels["unit"]) for t in work.trainings}
    own = {(operation, "Product") for operation in ("add", "sub", "mul", "div")}
    assert shown == {("mul", "NMU"), ("add", "NAU"), ("sub", "NAU")} | own
    with pytest.raises(ValueError, match=r"unit 'NRU' is not part of this experiment; allowed are NAC\+, .*NMU"):
        whole.work(Options("smoke", units=("NRU",)))
    with pytest.raises(ValueError, match="unit 'NMU' is not part of this experiment"):
        select(["primer2022/table9"])[0].work(Options("smoke", units=("NMU",)))


def test_a_smaller_size_says_how_it_differs(tmp_path):
    options = Options("smoke", seeds=1, units=("NMU",), ranges=((1.0, 2.0),))
    page = run_experiment("primer2022/table11", options, tmp_path).page.read_text()
    assert "<h1>Primer 2022, Table 11 (smoke: 1,000 steps, 1 seed, only NMU, only [1, 2))</h1>" in page
    assert "<li>Size smoke: 1,000 steps in place of 50,000, 1 seed in place of 25.</li>" in page
    assert "1 other setting" in page
    assert "differs" not in page[page.index("<header>") :]
    assert told("primer2022/table11", Options("paper")) == []
    assert told("primer2022/table11", Options("quick")) == ["10 seeds in place of 25"]
    assert told("primer2022/table11", Options("paper", seeds=3)) == ["3 seeds in place of 25"]
    lengths = "2 and 20 time steps in place of 10 and 1,000"
    assert told("nalu2018/table8", Options("smoke"))[1] == lengths


def stored(id_, options):
    """Rows of every run an experiment asks for, without results."""
    return [
        Row(id_, training.description(), seed, training.labels)
        for training in select([id_])[0].trainings(options)
        for seed in training.seeds
    ]


def told(id_, options):
    return list(map(str, unlike_paper(select([id_])[0].work(options), stored(id_, options))))


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        (lambda row: True, ""),
        (
            lambda row: row.labels["operation"] == "add",
            "20 of 92 runs are finished; missing: operation mul, div, sub.",
        ),
        (lambda row: row.seed == 0, "46 of 92 runs are finished; missing: seed 1."),
        (lambda row: row.labels["unit"] != "iNALU", "76 of 92 runs are finished; missing: unit iNALU."),
        (
            lambda row: row.labels["unit"] != "NMU" or row.seed == row.labels["range"][0] == 1,
            "89 of 92 runs are finished; missing: 3 single runs.",
        ),
    ],
)
def test_missing_runs_are_counted_and_named(kept, sentence):
    rows = stored("primer2022", Options("smoke"))
    work = select(["primer2022"])[0].work(Options("smoke"))
    assert missing(work, {row.key for row in rows if kept(row)}) == sentence


def test_missing_names_with_commas_are_quoted_and_scattered_seeds_counted():
    options = Options("smoke", 9)
    work, rows = select(["nau2020/figure7"])[0].work(options), stored("nau2020/figure7", options)
    kept = [row for row in rows if row.labels["unit"] == "NMU" and row.seed % 2 == 0]
    told = missing(work, {row.key for row in kept})
    assert "“NMU, no R_sparse”" in told
    assert "seed 1 to 7, 4 of them;" in told


def test_a_size_differs_from_the_papers_in_what_is_not_the_same_and_nothing_else():
    assert told("zoo", Options("quick"))[1:] == ["10 inputs in place of 100", "8 seeds in place of 25"]
    few = [row for row in stored("zoo", Options("quick")) if row.labels["task"] == "Single module, 2 inputs"]
    found = list(map(str, unlike_paper(select(["zoo"])[0].work(Options("quick")), few)))
    assert found == ["50,000 steps in place of 200,000", "8 seeds in place of 25"]


def test_a_hundred_thousand_missing_seeds_are_named_at_once():
    work = select(["primer2022/table11"])[0].work(Options("smoke", 100_000, ("NMU",), ((1.0, 2.0),)))
    assert missing(work, work.keys[:1]) == "1 of 100,000 runs are finished; missing: seed 1 to 99999."


def test_an_incomplete_report_says_so(tmp_path):
    ranges = ((1.0, 2.0),)
    run_experiment("primer2022/table11", Options("smoke", 1, ("NMU",), ranges), tmp_path)
    shown = report("primer2022/table11", Options("smoke", 2, ("NMU", "NPU"), ranges), tmp_path)
    page, sentence = shown.page.read_text(), "1 of 4 runs are finished; missing: seed 1; unit NPU."
    assert sentence in page
    assert sentence in printed(shown.summary)
    assert "1 seed in place of 25" in page
    assert "<dt>seeds</dt><dd>1</dd>" in page
    run_experiment("primer2022/table11", Options("smoke", 2, ("NMU", "NPU"), ranges), tmp_path)
    assert "runs are finished" not in shown.page.read_text()


def printed(summary):
    console = rich.console.Console(width=200, record=True, file=io.StringIO())
    console.print(summary)
    return console.export_text()


def test_a_report_without_runs_names_the_whole_command(tmp_path):
    ranges = ((1.0, 2.0),)
    folder = tmp_path / "with spaces"
    run_experiment("primer2022/table11", Options("smoke", 1, ("NMU",), ranges), folder)
    command = f"numerate run primer2022/table12 --size smoke --units 'Real NPU,NPU' --out '{folder}'"
    with pytest.raises(ValueError, match=f"; run: {re.escape(command)}$"):
        report("primer2022/table12", Options("smoke", units=("Real NPU", "NPU")), folder)


def test_figure_3_runs_at_smoke_size(tmp_path):
    shown, rows = run("nau2020/figure3", tmp_path, units=("NMU",))
    assert {row.labels["parameter"] for row in rows} == {"hidden", "range"}
    assert shown.page.is_file()


def test_the_zoo_ranks_units(tmp_path):
    shown, rows = run("zoo", tmp_path, units=("NAU", "NMU"))
    assert {row.labels["unit"] for row in rows} == {"NAU", "NMU"}
    page = shown.page.read_text()
    assert "The zoo" in page
    assert "Share of solved runs" in page
    assert "Size smoke: 1,000 steps in place of 200,000 or 5,000,000" in printed(shown.summary)
    assert (shown.page.parent / "overview.png").is_file()


def test_natu_has_one_recipe_in_the_zoo_and_is_a_guess_behind_sums():
    work: Any = select(["zoo"])[0].work(Options("quick", units=("NATU", "iNALU"))).trainings
    found = [training for training in work if isinstance(training.restart, Plateau)]
    assert {t.labels["unit"] for t in found} == {"NATU"}
    assert len({(t.optimiser, t.restart, t.evaluate_every) for t in found}) == 1
    assert {t.build(0)[1].guessed for t in found if t.labels["task"] == "Two layers, 10 inputs"} == {1}
    assert {t.evaluate_every for t in work if t not in found} == {1000}


def test_the_zoo_leaves_rounding_empty_for_a_plain_module(tmp_path):
    shown, rows = run("zoo", tmp_path, units=("NMU", Product), seeds=1)
    assert {unit for unit, share in zoo.ranking(rows).items() if share.rounded is None} == {"Product"}
    assert shown.page.is_file()


def unsolved_as_trained(options):
    scores = {"threshold": 1.0, "best_test": 1e9, "snapped_test": 0.0, "solved_at": math.nan, "best_sparsity": 0.0}
    return [replace(row, scores=scores) for row in stored("zoo", options)]


def test_the_zoo_says_what_rounding_solves_where_nothing_is_solved_as_trained():
    told = zoo.headline(zoo.compare(unsolved_as_trained(Options("smoke", units=("NMU",)))))
    assert "8 by none in any run as trained: add (single module, 2 inputs; rounded, NMU in 1 of 1), " in told


def test_smoke_size_of_the_zoo_has_few_units_and_says_so(tmp_path):
    (experiment,) = select(["zoo"])
    work = experiment.work(Options("smoke"))
    assert {t.labels["unit"] for t in work.trainings} == set(zoo.SMOKE_UNITS)
    page = experiment.show(work, unsolved_as_trained(Options("smoke")), tmp_path).page.read_text()
    assert "4 units in place of 24" in page


def test_the_zoos_operations_share_their_loops():
    work = select(["zoo"])[0].trainings(Options("quick"))
    assert len({t.form for t in work}) == len(work) / 4


def test_a_users_unit_stands_behind_sums_in_the_zoos_two_layers():
    work = select(["zoo"])[0].trainings(Options("smoke", units=(Product,)))
    models: dict[str, Any] = {t.labels["task"]: t.build(0) for t in work}
    assert isinstance(models["Single module, 2 inputs"], Product)
    assert isinstance(models["Two layers, 10 inputs"][1], Product)


@pytest.mark.parametrize(
    ("id_", "layers", "where"),
    [
        ("nau2020/table1", (NAU, Product), "the second of two layers, behind an NAU"),
        ("nau2020/table5", (NAU, Product), "the second of two layers, behind an NAU"),
        ("nau2020/figure7", (NAU, Product), "the second of two layers, behind an NAU"),
        ("nau2020/figure8", (NAU, Product), "the second of two layers, behind an NAU"),
        ("primer2022/npu-large", (NAU, Product), "the second of two layers, behind an NAU"),
        ("primer2022/npu-sir", (Product, NAU), "the first of two layers"),
        ("nalu2018/table6", (Product, Product), "each of two layers"),
        ("nalu2018/table12", (Product, Product), "each of two layers"),
    ],
)
def test_a_users_unit_stands_where_ours_stand(id_, layers, where):
    (experiment,) = select([id_])
    *_, training = experiment.trainings(Options("smoke", units=(Product,)))
    assert training.labels["unit"] == "Product"
    model: Any = training.build(0)
    assert tuple(map(type, model)) == layers
    assert experiment.own.startswith(where)


def test_a_users_unit_stands_behind_as_many_values_as_ours():
    work = select(["nau2020/figure3"])[0].trainings(Options("smoke", units=(Product,)))
    hidden = [t.build(0).get_submodule("0").out_features for t in work if t.labels["parameter"] == "hidden"]
    assert hidden == [t.labels["value"] for t in work if t.labels["parameter"] == "hidden"]


class FromOne(Product):
    """Says where a product along time begins."""

    neutral = 1.0


def test_a_users_unit_is_the_cell_and_the_head_of_a_recurrent_task():
    *_, training = select(["nalu2018/table8"])[0].trainings(Options("smoke", units=(FromOne,)))
    model: Any = training.build(0)
    x = torch.rand(3, 20) + 0.5
    assert [type(part) for part in (model.cell.unit, model.head)] == [FromOne, FromOne]
    h = torch.ones(3, 2)
    for step in x.split(10, -1):
        h = torch.cat((step, h), -1).prod(-1, keepdim=True).expand(-1, 2)
    torch.testing.assert_close(model(x), h.prod(-1, keepdim=True))


@pytest.mark.parametrize("id_", ["nau2020/table5", "nalu2018/table8"])
def test_a_users_unit_runs_in_layers_and_along_time_and_the_page_says_where(id_, tmp_path):
    page = run_experiment(id_, Options("smoke", 1, (Product,)), tmp_path).page.read_text()
    assert "Product" in page
    assert f"<dt>a unit of your own is</dt><dd>{select([id_])[0].own.replace(chr(39), '&#39;')}</dd>" in page


def test_the_zoo_orders_units_by_their_share_of_solved_runs(tmp_path):
    _, rows = run("zoo", tmp_path, units=("NAU", "NMU"))
    better = [
        replace(row, scores={**row.scores, "best_test": 0.0}) if row.labels["unit"] == "NMU" else row for row in rows
    ]
    ranked = zoo.ranking(better)
    assert next(iter(ranked)) == "NMU"
    assert ranked["NMU"].solved.value == 1.0
    assert (ranked["NMU"].solved.low or 0) < 1.0


def test_the_zoo_has_every_arithmetic_unit():
    import numerate.units as units

    work = select(["zoo"])[0].trainings(Options("quick"))
    text = " ".join(repr(t.description()["model"]) for t in work)
    logic_and_baselines = {"NLRL", "NSR", "CalcNet", "MLP", "Unit"}
    classes = {n for n in units.__all__ if isinstance(c := getattr(units, n), type) and issubclass(c, units.Unit)}
    assert {name for name in classes - logic_and_baselines if f":{name}'" not in text} == set()


def test_discover_finds_the_formula(tmp_path):
    shown = run_experiment("discover", Options("quick", seeds=1), tmp_path)
    assert "(a + b)*(a + b + c + d)" in shown.page.read_text()
    assert "seed 0: (a + b)*(a + b + c + d)" in printed(shown.summary)
    page = shown.page.read_text()
    assert "(quick: 1 seed)" in page
    assert "<dt>steps</dt><dd>20,000</dd>" in page
    assert '<h2 id="environment">' in page


def test_every_experiment_has_a_title_and_an_id_of_its_paper():
    for id_, experiment in experiments().items():
        assert re.fullmatch(
            r"(primer2022|nau2020|nalu2018|nru2019|ur2020|memory)(/[a-z0-9-]+)?|zoo|discover|anyrange", id_
        )
        assert experiment.title
        assert experiments(id_.split("/")[0])[id_] is experiment


def test_choosing_an_experiment_imports_those_of_its_paper_alone():
    code = """
import sys
from numerate.experiments import select
select(["primer2022/table9"])
for name in ("primer2022.tables", "nau2020.tables", "nalu2018.models"):
    print(f"numerate.experiments.{name}" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "False"]


def test_a_paper_stands_for_all_of_its_experiments():
    assert len(select(["nau2020"])) > 5
    with pytest.raises(ValueError, match="there is no experiment 'nau2021'"):
        select(["nau2021"])


def test_many_values_are_told_by_the_smallest_and_the_largest():
    assert (
        str(Departure("steps", ("4",), ("1,500", "30,000", "2,000", "5,000"))) == "4 steps in place of 1,500 to 30,000"
    )
    assert str(Departure("steps", ("4",), ("1", "20", "3"))) == "4 steps in place of 1, 20 or 3"


def test_runs_cut_short_may_show_what_is_said_and_not_the_contrary():
    said = [Claim("", "", holds) for holds in (True, False, None)]
    assert [claim.holds for claim in without_refutations(said, Options("paper"))] == [True, False, None]
    assert [claim.holds for claim in without_refutations(said, Options("paper", steps=10))] == [True, None, None]
