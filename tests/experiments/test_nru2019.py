"""The experiments of the NRU paper: what they train, and what their pages say of known runs."""

import subprocess
import sys
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from numerate.experiments import Options, select
from numerate.experiments.nru2019 import beside, figure6, figure7, figures, runs, sanity, table1, table3, verdicts
from numerate.experiments.nru2019 import units as nru_units
from numerate.experiments.running import run
from numerate.recurrent import NRU, SequenceModel
from numerate.results import Row
from numerate.tasks import Copying, Denoising, VariableCopying

PAPER, QUICK = Options("paper"), Options("quick")


def stored(task):
    """A task as runs store it."""
    sizes = {name: getattr(task, name) for name in ("length", "batch_size", "evaluation_batches")}
    return {"call": f"{type(task).__module__}:{type(task).__qualname__}"} | sizes


def known(unit, task, times, *, last=0.02, status: Literal["finished", "diverged"] = "finished", updates=50_000):
    """Runs that are solved at given updates (None: not solved), with the loss falling at them from that of guessing."""
    rows = []
    for seed, at in enumerate(times):
        steps = np.linspace(0, updates, 101)
        train = np.where(steps >= (at or np.inf), 0.02, last if at is None else 1.0) * task.baseline()
        train[0] = np.nan
        if status == "diverged":
            train[50:] = np.nan
        rows.append(
            Row(
                "nru2019/figure1",
                {"unit": unit, "task": stored(task), "steps": updates},
                seed,
                {"unit": unit, "task": runs.title(task)},
                status,
                *((updates // 2, "nan") if status == "diverged" else (None, "")),
                curves={
                    "steps": steps,
                    "train": train,
                    "validation": train,
                    "test": train,
                    "gradient_norm": train,
                    "gradient_peak": train,
                },
                scores={"threshold": task.threshold(), "solved_at": at or np.nan, "best_test": 1.0, "solved": bool(at)},
            )
        )
    return rows


def of_copying(janet=30_000, eurnn=300, rnn=1.0):
    """As the paper tells it."""
    rows = []
    for task in (Copying(100), Copying(200)):
        rows += known("NRU", task, [14_000, 16_000])
        rows += known("JANET", task, [janet, janet + 4_000])
        for unit in ("LSTM-chrono", "GRU", "LSTM"):
            rows += known(unit, task, [None, None], last=0.9)
        rows += known("EURNN", task, [eurnn, eurnn])
        for unit in ("RNN-orth", "RNN-id"):
            rows += known(unit, task, [None, None], last=rnn)
    return rows


def held(claims):
    return [claim.holds for claim in claims]


def test_units_have_the_printed_numbers_of_parameters():
    def count(layers, inputs, outputs):
        made = {name: recipe.model(inputs, outputs) for name, recipe in nru_units.recipes(layers).items()}
        return {name: sum(p.numel() for p in model.parameters()) for name, model in made.items()}

    copying = count(nru_units.copying_layers(120), 10, 9)
    assert all(abs(n / 23_500 - 1) < 0.02 for name, n in copying.items() if name not in nru_units.FREE)
    assert [copying[name] for name in ("NRU", *nru_units.OTHER_NRU)] == [23_569, 23_501, 23_377]
    pixels = count(nru_units.pixel_layers(), 1, 10)
    assert (pixels["NRU"], pixels["EURNN"]) == (165_554, 17_418)
    assert all(abs(n / 165_000 - 1) < 0.01 for name, n in pixels.items() if name not in nru_units.FREE)
    text = count(nru_units.text_layers(), 50, 50)
    assert all(abs(n / 2.15e6 - 1) < 0.01 for name, n in text.items() if name not in nru_units.FREE)


def test_a_larger_memory_joins_by_name_and_is_that_of_the_paper_on_stability():
    figure4, stability = select(["nru2019/figure4"])[0], select(["nru2019/stability"])[0]
    units = ("NRU,NRU, memory 144",)
    assert {t.labels["unit"] for t in figure4.work(Options("paper", units=units)).trainings} == {
        "NRU",
        "NRU, memory 144",
    }
    copying = select(["nru2019/figure1"])[0].work(Options("paper", units=units, tasks=("copying, T = 100",)))
    (large,) = (t for t in stability.work(PAPER).trainings if t.labels["unit"] == sanity.LARGE)
    assert set(large.run_keys()) < set(copying.keys)


def test_gradients_are_clipped_but_for_eurnn_and_goru():
    clips = {name: recipe.optimiser.clip for name, recipe in nru_units.recipes(nru_units.copying_layers(120)).items()}
    assert {name for name, clip in clips.items() if clip is None} == {"EURNN", "GORU"}


def test_the_paper_trains_every_unit_on_every_task():
    by_id = {e.id.split("/")[1]: e.work(PAPER).trainings for e in select(["nru2019"])}
    assert {t.labels["task"] for t in by_id["figure3"]} == {runs.title(task) for task in runs.TASKS}
    assert len(by_id["figure3"]) == 50
    assert len(by_id["table3"]) == 10
    assert by_id["table3"][0].steps == 50_000
    assert by_id["table2"][0].steps == 20 * 261  # 5,017,482 characters in 128 columns and batches of 150
    assert len(by_id["figure8"]) == 11
    assert len({key for t in by_id["figure8"] for key in t.run_keys()}) == 9
    shared = {key for t in by_id["figure1"] for key in t.run_keys()}
    assert {key for t in by_id["figure7"] for key in t.run_keys()} < shared
    assert {key for t in by_id["figure6"] for key in t.run_keys()} < shared


def test_claims_hold_where_runs_are_as_printed():
    assert held(figures.copying_claims(of_copying(), PAPER)) == [True] * 8  # four sentences for each length


@pytest.mark.parametrize(
    ("rows", "which"),
    [
        (of_copying(eurnn=700), 0),
        (of_copying(janet=9_000), 1),
        (of_copying(janet=60_000), 2),
        (of_copying(rnn=0.6), 3),
        (of_copying(rnn=5.0), 3),
    ],
    ids=["EURNN slow", "JANET first", "ratio 4", "RNN learns", "RNN gets worse"],
)
def test_claims_fail_where_runs_are_not(rows, which):
    assert held(figures.copying_claims(rows, PAPER))[2 * which : 2 * which + 2] == [False, False]


def test_a_task_or_a_unit_that_was_not_run_is_not_told():
    short = [row for row in of_copying() if row.labels["task"] == "copying, T = 100"]
    assert held(figures.copying_claims(short, PAPER)) == [True] * 4
    assert all(claim.text.startswith("copying, T = 100: ") for claim in figures.copying_claims(short, PAPER))
    assert held(figures.copying_claims([], PAPER)) == [None] * 4
    few = [row for row in short if row.labels["unit"] in ("NRU", "LSTM")]
    assert set(held(figures.copying_claims(few, PAPER))) == {None}
    alone = known("NRU", Denoising(100), [4_000] * 2)
    assert set(held(figures.denoising_claims(alone, PAPER))) == {None}


def test_runs_that_diverged_are_not_stuck_at_guessing():
    task = Copying(100)
    rows = [r for u in ("RNN-orth", "RNN-id") for r in known(u, task, [None] * 2, status="diverged")]
    (claim,) = verdicts.stays_at_guessing(verdicts.Runs(rows, [runs.title(task)], PAPER), ["RNN-orth", "RNN-id"])
    assert claim.holds is False
    assert "RNN-orth diverged" in claim.ours


def test_quick_runs_give_no_verdict_on_what_they_cannot_show():
    task = Copying(100)
    rows = known("NRU", task, [None, None], last=0.5) + known("JANET", task, [None, None], last=0.8)
    rows += [r for unit in verdicts.GATED for r in known(unit, task, [None, None], last=0.95)]
    rows += known("RNN-orth", task, [None, None], last=1.0)
    rows += known("RNN-id", task, [None, None], last=1.0) + known("EURNN", task, [200, 200])
    assert held(figures.copying_claims(rows, QUICK)) == [
        True,
        True,
        None,
        None,
    ]  # one length; the order of losses tells


def test_overlapping_losses_decide_nothing():
    task = Copying(100)
    mixed = known("NRU", task, [None], last=0.5) + known("NRU", task, [None], last=0.9)
    rows = mixed + known("JANET", task, [None, None], last=0.8) + known("LSTM-chrono", task, [None], last=0.95)
    of_one = verdicts.Runs(rows, [runs.title(task)], PAPER)
    assert held(verdicts.first_then_second(of_one, "NRU", "JANET", ["LSTM-chrono"])) == [None]


def test_a_solved_eurnn_contradicts_the_paper_on_variable_lags():
    task = VariableCopying(100)
    rows = known("NRU", task, [9_000] * 2) + known("JANET", task, [19_000] * 2)
    rows += [r for unit in verdicts.GATED for r in known(unit, task, [None] * 2, last=0.9)]
    stuck, solved = known("EURNN", task, [None] * 2, last=0.8), known("EURNN", task, [None, 900], last=0.8)
    assert held(figures.variable_claims(rows + stuck, PAPER)) == [True, True]
    assert held(figures.variable_claims(rows + solved, PAPER)) == [True, False]
    assert held(figures.variable_claims(rows + stuck, QUICK))[1] is None


def test_denoising_is_solved_by_all_but_eurnn():
    task = Denoising(100)
    others = [unit for unit in nru_units.UNITS if unit not in ("NRU", "EURNN", "GRU", "SRU")]
    rows = known("NRU", task, [4_000] * 2) + known("EURNN", task, [None] * 2, last=0.8)
    rows += [row for unit in others for row in known(unit, task, [20_000] * 2)]
    gru, sru = known("GRU", task, [20_000] * 2), known("SRU", task, [20_000] * 2)
    assert held(figures.denoising_claims(rows + gru + sru, PAPER)) == [True, True, True]
    unsolved, short = known("GRU", task, [None] * 2, last=0.9), known("SRU", task, [None] * 2, updates=25_000)
    assert held(figures.denoising_claims(rows + unsolved + sru, PAPER))[0] is False
    assert held(figures.denoising_claims(rows + gru + short, PAPER))[0] is None  # half of the updates


def test_a_diverged_run_counts_as_worse_than_all_others():
    task = Copying(100)
    rows = known("NRU", task, [None] * 3, last=0.5)[:1] + known("NRU", task, [None] * 3, status="diverged")[1:]
    assert [np.isinf(value) for value in runs.left(rows)] == [False, True, True]
    assert runs.middle([1.0, np.inf]) == np.inf
    assert runs.middle([1.0, 3.0, np.inf]) == 3.0


def test_the_gradient_norms_of_nru_are_higher_and_decline():
    rows = known("NRU", Copying(100), [16_000] * 2)
    low = [known(name, Copying(100), [None] * 2, last=0.1) for name in ("JANET", "LSTM-chrono")]
    assert held(figure7.claims([*rows, *low[0], *low[1]], PAPER))[::2] == [True, True]
    high = [known(name, Copying(100), [None] * 2, last=5.0) for name in ("JANET", "LSTM-chrono")]
    assert held(figure7.claims([*rows, *high[0], *high[1]], PAPER))[::2] == [False, True]
    assert [picture.name for picture in figure7.draw(rows, PAPER).pictures] == ["norms"]


def test_the_other_norms_rise_if_most_runs_of_both_have_more_after_25_000_updates_than_before():
    def runs_of(name, factors):
        rows = known(name, Copying(100), [None] * len(factors), last=0.1)
        for row, factor in zip(rows, factors):
            row.curves["gradient_norm"] = np.where(row.curves["steps"] > 25_000, factor, 1.0)
        return rows

    nru = known("NRU", Copying(100), [16_000] * 2)
    both = [*nru, *runs_of("JANET", [1.5, 2.0, 0.5]), *runs_of("LSTM-chrono", [1.5, 2.0, 3.0])]
    one = [*nru, *runs_of("JANET", [0.9, 0.9, 1.1]), *runs_of("LSTM-chrono", [1.5, 2.0, 3.0])]
    risen, fallen = figure7.claims(both, PAPER)[1], figure7.claims(one, PAPER)[1]
    assert (risen.holds, risen.ours) == (True, "in 2 of 3 runs of JANET, in 3 of 3 runs of LSTM-chrono.")
    assert (fallen.holds, fallen.ours) == (False, "in 1 of 3 runs of JANET, in 3 of 3 runs of LSTM-chrono.")
    assert figure7.claims(both, QUICK)[1].holds is None
    for steps, holds in ((50_000, True), (20_000, None)):  # --steps
        some = [replace(row, curves={k: v[: 1 + steps // 500] for k, v in row.curves.items()}) for row in both]
        assert figure7.claims(some, replace(PAPER, steps=steps))[1].holds is holds


def test_a_run_that_diverges_has_no_norm_that_rises():
    flat, gone = (
        known("JANET", Copying(100), [None] * 2),
        known("JANET", Copying(100), [None] * 2, status="diverged"),
    )
    beside = [*known("NRU", Copying(100), [16_000] * 2), *known("LSTM-chrono", Copying(100), [None] * 3)]
    risen = figure7.claims([*beside, *flat, *gone], PAPER)[1]
    assert (risen.holds, risen.ours) == (
        False, "in 0 of 2 runs of JANET (2 more diverged), in 0 of 3 runs of LSTM-chrono."
    )  # fmt: skip
    assert figure7.claims([*beside, *gone], PAPER)[1].holds is None


def test_the_memory_changes_as_the_layer_says():
    task = Copying(12, 2)
    model = SequenceModel(NRU(10, 8, memory_size=16, heads=1), 9)
    change, size = figure6.memory_changes(model, task)
    x = task.evaluation("test", 0, {}).x
    with torch.no_grad():
        _, (_, whole) = model.layer(x)
    np.testing.assert_allclose(change.sum(1), whole[0, 0].numpy(), rtol=1e-4, atol=1e-6)  # it starts at 0
    assert change.shape == (16, 32)
    assert size.shape == (32,)
    assert [place.start for place in figure6.phases(task).values()] == [0, 10, 21]


def pixel_rows(accuracies):
    return [
        Row("x", {"unit": unit}, 0, {"unit": unit, "task": "psMNIST"}, scores={"best_test_accuracy": value / 100})
        for unit, value in accuracies.items()
    ]


def test_printed_values_and_their_order_are_compared():
    printed = table3.TEST.theirs()
    assert printed["NRU"] == 95.38
    rows = pixel_rows({unit: value + 0.9 for unit, value in printed.items()})
    assert set(held(table3.claims(rows, PAPER))) == {True}
    worse = pixel_rows(printed | {"NRU": 93.0})
    found = {claim.text.partition(" ")[0]: claim.holds for claim in beside.value_claims(table3.TEST, worse, "%")}
    assert found["NRU:"] is False
    assert found["LSTM:"] is True
    assert beside.first_claim(table3.TEST, worse, ["NRU", "EURNN"], "").holds is False
    few = pixel_rows({"NRU": 95.0, "LSTM": 90.0})
    assert beside.first_claim(table3.TEST, few, ["NRU", "EURNN"], "").holds is None
    assert table3.claims(few, QUICK) == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of one results file: some experiments share their runs."""
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("figure3", Options("smoke", units=("NRU",))),
        ("figure6", Options("smoke")),
        ("stability", Options("smoke")),
        ("forgetting", Options("smoke")),
    ],
)
def test_smoke_runs_write_a_page(name, options, folder):
    result = run(f"nru2019/{name}", options, folder)
    assert "<svg" in result.page.read_text(encoding="utf-8")


def test_pixels_and_characters_write_a_page(small_mnist, small_ptb, tmp_path):
    for name, units in (("table1", None), ("table2", ("GRU",)), ("table3", ("LSTM",)), ("figure8", None)):
        result = run(f"nru2019/{name}", Options("smoke", units=units), tmp_path / "out")
        assert "<svg" in result.page.read_text(encoding="utf-8")


def test_units_that_cannot_be_told_apart_share_a_place():
    rows = []
    for task in (Copying(100), Denoising(100)):
        rows += known("NRU", task, [4_000, 5_000]) + known("JANET", task, [8_000, 9_000])
        rows += known("GRU", task, [8_500, 9_500]) + known("LSTM", task, [None, None], last=0.9)
    ranking = table1.Ranking.of(rows, PAPER)
    places = {"NRU": 0, "JANET": 1, "GRU": 1, "LSTM": 3}
    assert ranking.behind == {runs.title(task): places for task in (Copying(100), Denoising(100))}
    assert [ranking.top(unit, 2) for unit in ("NRU", "JANET", "GRU", "LSTM", "EURNN")] == [2, 2, 2, 0, 0]
    assert not ranking.complete
    assert {claim.holds for claim in table1.claims(rows, PAPER)} == {None}
    elsewhere = known("LSTM", VariableCopying(100), [None])
    assert table1.claims([*rows, *elsewhere], PAPER)[0].ours == "on 2 of the 2 that it was run on."


def test_the_ranking_has_the_seven_tasks_of_the_paper():
    assert len({training.labels["task"] for training in table1.trainings(PAPER)}) == 7
    assert sum(table1.printed(1).values()) == 13
    assert table1.printed(2)["NRU"] == 7


def test_training_needs_no_package_of_the_command_line():
    code = """
import sys
sys.modules |= dict.fromkeys(("rich", "typer", "polars", "iminuit", "pydantic", "sklearn"))
from numerate.experiments.catalogue import experiments
print(len(experiments("nru2019")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 12


def test_missing_data_are_told_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_DATA", str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match=r"MNIST is missing.*numerate data get mnist"):
        run("nru2019/table3", Options("smoke"), tmp_path)


def test_runs_that_are_cut_short_do_not_show_that_something_fails_or_gets_stuck():
    short = Options("paper", steps=500)
    stuck = [r for unit in ("RNN-orth", "RNN-id", "EURNN") for r in known(unit, Copying(100), [None] * 3, last=1.0)]
    for options, told in ((PAPER, True), (short, None)):
        of_one = verdicts.Runs(stuck, ["copying, T = 100"], options)
        assert held(verdicts.stays_at_guessing(of_one, ["RNN-orth", "RNN-id"])) == [told]
        assert held(verdicts.fails(of_one, "EURNN", "")) == [told]


def test_a_time_to_solve_is_refuted_only_by_runs_that_are_longer():
    rows = known("EURNN", Copying(100), [None] * 3)
    cut = [replace(row, config={**row.config, "steps": 200}) for row in rows]
    for some, told in ((rows, False), (cut, None)):
        of_one = verdicts.Runs(some, ["copying, T = 100"], PAPER)
        assert held(verdicts.solves_within(of_one, "EURNN", 500)) == [told]


def test_forgetting_and_stability_are_told_of_runs_alone():
    """Runs of Figure 1 are among theirs; they say nothing of a memory that is seldom reset, or of random labels."""
    shared = known("every example", Copying(100), [14_000] * 2)
    assert held(sanity.forgetting_claims(shared, PAPER)) == [None]
    seldom = [r for every in sanity.EVERY for r in known(f"every {every} examples", Copying(100), [16_000] * 2)]
    assert held(sanity.forgetting_claims(shared + seldom[:2], PAPER)) == [None]
    assert held(sanity.forgetting_claims(shared + seldom, PAPER)) == [True]
    stuck = known("every 10 examples", Copying(100), [None] * 2)
    assert held(sanity.forgetting_claims(seldom[:4] + stuck, PAPER)) == [False]
    memory = known(sanity.SMALL, Copying(100), [14_000] * 2)
    memory = [replace(row, labels={**row.labels, "part": "memory"}) for row in memory]
    assert sanity.draw_stability(memory, PAPER).pictures
    assert held(sanity.stability_claims(memory, PAPER)) == [None]
