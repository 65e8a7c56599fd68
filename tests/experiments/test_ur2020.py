"""The experiments on gates: pages at smoke size, closed forms, and verdicts on runs whose outcome is known."""

import re
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch

from numerate.data import cifar10
from numerate.data.images import Images
from numerate.experiments import Options, select
from numerate.experiments.running import run
from numerate.experiments.ur2020 import figure3, figure12, figure14, images, runs, synthetic, table4, units
from numerate.experiments.ur2020.forget import Forgetting
from numerate.recurrent import GATES
from numerate.results import Row
from numerate.tasks import Adding, CopyLast, SequentialPhotographs

PAPER = Options("paper")


@pytest.mark.parametrize(
    "name",
    [
        "figure3",
        "table4",
        "figure5",
        "figure12",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("figure4", "figure14", "figure14-short")),
    ],
)
def test_smoke_size_writes_a_page(name, tmp_path):
    page = run(f"ur2020/{name}", Options("smoke"), tmp_path).page.read_text(encoding="utf-8")
    assert "<svg" in page
    assert re.search(r"<h1>UR gates[^<]*\(smoke: ", page)


@pytest.fixture
def small_cifar(monkeypatch):
    pictures, labels = torch.randint(256, (40, 3, 32, 32), dtype=torch.uint8), torch.arange(40) % 10
    monkeypatch.setattr(cifar10, "load", lambda: Images(pictures, labels, pictures, labels))
    monkeypatch.setattr(SequentialPhotographs, "_sizes", lambda self: (30, 8, 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table5", "table2"])
def test_images_write_a_page(name, tmp_path, small_mnist, small_cifar):
    page = run(f"ur2020/{name}", Options("smoke"), tmp_path / "out").page.read_text(encoding="utf-8")
    assert "sCIFAR" in page


@pytest.mark.slow
def test_language_writes_a_page(tmp_path, small_ptb):
    page = run("ur2020/language", Options("smoke"), tmp_path / "out").page.read_text(encoding="utf-8")
    assert "test perplexity" in page


def test_bounds_of_the_gradient_are_those_of_a_fine_search():
    """Numbers of an independent search over f at fixed g."""
    low, high = figure3.bounds(np.array([0.5, 0.9, 0.99, 0.999]), 2_001)
    np.testing.assert_allclose(low, [0.278, 0.0922, 0.00992, 0.00100], rtol=0.01)
    np.testing.assert_allclose(high, [0.293, 0.1367, 0.01800, 0.00194], rtol=0.01)
    assert all(claim.holds for claim in figure3.claims([], Options("smoke")))


def test_timescales_follow_the_printed_laws_and_not_each_others():
    assert all(claim.holds for claim in table4.claims([], Options("quick")))
    chrono, uniform = table4.STARTS[1], table4.STARTS[3]
    wrong = replace(uniform, beyond=chrono.beyond)
    assert table4.distance(wrong, table4.timescales(wrong, 1000)) > 0.5


def test_master_gates_average_as_the_proof_says():
    assert table4.master_gates().sum() == pytest.approx(5 / 6, abs=0.01)
    assert table4.master_gates()[0] == pytest.approx(5 / 12, abs=0.02)


def test_the_paper_trains_every_gate_at_the_printed_sizes():
    trained = select(["ur2020/figure4"])[0].work(PAPER).trainings
    assert {training.labels["unit"] for training in trained} == {"LSTM", *(f"{k}-LSTM" for k in units.KINDS[1:])}
    assert {training.steps for training in trained} == {10_000, 100_000}
    assert {training.optimiser.rate for training in trained} == {1e-3}
    model = trained[0].build(0)
    assert sum(p.numel() for p in model.layer.parameters()) == 4 * 256 * (256 + 10 + 1)  # type: ignore[union-attr]
    assert len(select(["ur2020/table5"])[0].work(PAPER).keys) == 270
    assert len(select(["ur2020/figure6"])[0].work(PAPER).keys) == 81
    sweep = select(["ur2020/table5"])[0].work(PAPER).keys
    assert set(select(["ur2020/figure6"])[0].work(PAPER).keys) <= set(sweep)


def test_fewer_steps_are_told_and_run_as_many_evaluations():
    work = select(["ur2020/figure5"])[0].work(replace(PAPER, steps=500))
    assert {(t.steps, t.evaluate_every) for t in work.trainings} == {(500, 5)}
    assert {t.steps for t in work.published} == {10_000}
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        Options(steps=0)
    with pytest.raises(ValueError, match="ur2020/table4 trains nothing; leave --steps out"):
        select(["ur2020/table4"])[0].work(Options(steps=5))


def test_gates_start_saturated_in_figure_12():
    for training in select(["ur2020/figure12"])[0].work(PAPER).trainings:
        seen = training.build(0).layer.inspect(torch.zeros(1, 1, 2)).activations[-1]["forget"]  # type: ignore[union-attr]
        high = torch.tensor(6.0).sigmoid()
        wanted = high if training.labels["unit"] != "UR-LSTM" else high * (high + 2 * (1 - high) ** 2)
        torch.testing.assert_close(seen, wanted.expand_as(seen), rtol=1e-4, atol=0)
        assert training.optimiser.rate == 1e-4
        assert (training.steps, training.task.length) == (10_000, 500)  # type: ignore[attr-defined]


def test_verdicts_on_forgetting_say_what_the_runs_say():
    def verdicts(solved, shortest, options=PAPER):
        after = {unit: Forgetting(np.array([0.9975]), np.array([1 - 1 / steps])) for unit, steps in shortest.items()}
        started = figure12.Started([], after, dict.fromkeys(solved, 1.0), solved)
        return [claim.holds for claim in figure12.claims(started, options)]

    printed = {"LSTM": False, "R-LSTM": True, "UR-LSTM": False}
    assert verdicts(printed, {"LSTM": 200.0, "R-LSTM": 15.0, "UR-LSTM": 90.0}) == [True, True, True]
    contrary, close = dict.fromkeys(printed, True) | {"R-LSTM": False, "UR-LSTM": False}, dict.fromkeys(printed, 200.0)
    assert verdicts(contrary, close) == [False, False, False]
    assert verdicts(contrary, close, Options("quick")) == [None, None, None]
    assert verdicts(printed, close, Options("quick")) == [True, True, None]
    assert verdicts({"LSTM": False}, {"LSTM": 200.0}) == [None, True, None]


def stored(task):
    """A task as runs store it."""
    sizes = {name: getattr(task, name) for name in ("length", "batch_size", "evaluation_batches")}
    return {"call": f"{type(task).__module__}:{type(task).__qualname__}"} | sizes


def known(unit, task, times, last=0.02):
    """Runs of one gate that are solved at given updates (None: not)."""
    steps = np.linspace(0, 10_000, 11)
    name = synthetic.NAMES[type(task)]
    rows = []
    for seed, at in enumerate(times):
        train = np.where(steps >= (at or np.inf), 0.02, last if at is None else 1.0) * runs.GUESSING[name]
        train[0] = np.nan
        rows.append(
            Row(
                "ur2020/figure4",
                {"unit": unit, "task": stored(task), "steps": 10_000},
                seed,
                {"unit": unit, "task": name},
                "finished",
                curves={"steps": steps, "train": train, "validation": train, "test": train},
                scores={"threshold": task.threshold(), "solved_at": at or np.nan, "best_test": 1.0, "solved": bool(at)},
            )
        )
    return rows


def told(u, r, ur, chrono):
    """As runs on both tasks would have it; standard gates stay near guessing."""
    rows = []
    for task in (CopyLast(500), Adding(2000)):
        rows += known("LSTM", task, [None] * 3, last=0.99)
        for unit, times in {"U-LSTM": u, "R-LSTM": r, "UR-LSTM": ur, "C-LSTM": chrono}.items():
            rows += known(unit, task, times, last=0.5)
    return rows


def test_verdicts_on_gates_say_what_the_runs_say():
    def verdicts(rows, options=PAPER):
        return [claim.holds for claim in synthetic.figure4_claims(rows, options)]

    as_printed = told([8_000] * 3, [7_000] * 3, [3_000] * 3, [5_000] * 3)
    assert verdicts(as_printed) == [True] * 6
    worse = told([1_000] * 3, [7_000] * 3, [3_000] * 3, [None] * 3)
    assert verdicts(worse) == [True, True, False, True, True, True]
    unclear = told([None] * 3, [None] * 3, [None] * 3, [None] * 3)
    assert verdicts(unclear) == [True, True, None, None, None, True]
    assert verdicts(worse, Options("quick")) == [True, True, None, True, True, None]
    assert set(verdicts(as_printed, Options("smoke"))) == {None}
    one_evaluation = told([4_000] * 3, [7_000] * 3, [3_000] * 3, [5_000] * 3)
    assert verdicts(one_evaluation)[2] is None
    mixed = told([8_000] * 3, [7_000, 9_000, None], [3_000] * 3, [2_000, 5_000, 5_000])
    assert verdicts(mixed) == [True, None, True, True, None, True]
    single = [row for row in as_printed if row.seed == 0]
    assert verdicts(single) == [None] * 5 + [True]


def test_a_run_that_diverged_is_behind_all_others():
    rows = told([None] * 3, [None] * 3, [None] * 3, [None] * 3)
    lost = [replace(row, status="diverged", stopped_at=9, reason="nan") if "U" in row.labels["unit"] else row
            for row in rows]  # fmt: skip
    claims = synthetic.figure4_claims(lost, PAPER)
    assert [claim.holds for claim in claims[:5]] == [False, True, None, False, False]
    assert "UR-LSTM diverged" in claims[3].ours


def test_accuracies_are_compared_by_their_standard_errors():
    ours = {"UR-LSTM": 96.4, "LSTM": 94.8, "U-LSTM": 96.3}
    assert images._ahead("", ["UR-LSTM", "LSTM"], ours, 10_000).holds is True
    assert images._ahead("", ["LSTM", "UR-LSTM"], ours, 10_000).holds is False
    assert images._ahead("", ["UR-LSTM", "U-LSTM"], ours, 10_000).holds is None
    assert images.printed("sCIFAR, GRU")["C-GRU"] == 64.61
    assert len(images.printed("pMNIST, LSTM")) == 9


def test_the_sweep_on_programs_is_that_of_the_paper():
    work = select(["ur2020/figure14"])[0].work(PAPER)
    assert len(work.trainings) == 3 * 5 * 8
    assert {t.steps for t in work.trainings} == {200_000, 500_000}
    assert {t.task.length for t in work.trainings} == {9}  # type: ignore[attr-defined]
    assert all(GATES[kind] for kind in figure14.KINDS)
    assert runs.GUESSING["copying"] == log(8)
