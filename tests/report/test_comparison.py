"""Runs are grouped by their labels and stand beside the published numbers of the same labels."""

from dataclasses import replace

import numpy as np
import pytest
from report_samples import RANGES, primer, run

from numerate import published
from numerate.report import Layout, Measured, Metric, PublishedTest, comparison, environment, judge
from numerate.results import Provenance, Row
from numerate.stats import Estimate

THEIRS = published.cells(paper="primer2022")


def small(**layout):
    rows = primer(("mul",), models=("NMU", "Real NPU"), spans=[(1.0, 2.0), (-2.0, -1.0)])
    return comparison(rows, THEIRS, title="small", layout=Layout(**layout))


def test_every_cell_meets_its_published_numbers():
    found = small(xs=RANGES)
    assert [(cell.panel, cell.series, cell.x) for cell in found.cells] == [
        ("mul", "NMU", (-2.0, -1.0)),
        ("mul", "NMU", (1.0, 2.0)),
        ("mul", "Real NPU", (-2.0, -1.0)),
        ("mul", "Real NPU", (1.0, 2.0)),
    ]
    first = found.cells[0]
    assert first.measured.n == 25
    assert first.theirs["success_rate"].value == 0.8
    assert first.published("solved_at_mean") is not None
    assert found.cells[2].published("solved_at_mean") is None, "a dash in the paper"
    assert found.count("agrees") == 4
    assert found.headline() == "4 of 4 cells agree with the published success rate, 0 differ."


def test_the_whole_benchmark_has_207_cells():
    found = comparison(primer(n=2), THEIRS, title="all", layout=Layout(xs=RANGES, panels=["add", "sub", "mul", "div"]))
    assert len(found.cells) == 207
    assert found.panels == ("add", "sub", "mul", "div")
    assert found.xs == tuple(tuple(map(float, span)) for span in RANGES)
    assert all(cell.theirs.keys() == {"success_rate", "solved_at_mean", "sparsity_error_mean"} for cell in found.cells)


def test_a_real_difference_is_found_among_agreeing_cells():
    rows = primer(("mul",), models=("NMU",))
    wrong = [run(i, "NMU", "mul", (1, 2), solved=i < 5) for i in range(25)]
    rows = [row for row in rows if row.labels["range"] != [1.0, 2.0]] + wrong
    note = {("mul", "NMU", (1, 2)): "planted"}
    found = comparison(rows, THEIRS, title="one wrong", notes=note)
    (differing,) = [cell for cell in found.cells if cell.verdict.word == "differs"]
    assert (differing.series, differing.x, differing.note) == ("NMU", (1.0, 2.0), "planted")
    assert "1 differs" in found.headline()


def test_a_unit_of_ones_own_stands_among_the_others():
    mine = [run(i, "NMU", "mul", (1, 2), solved=True) for i in range(3)]
    mine = [replace(row, labels=row.labels | {"unit": name}) for row in mine for name in ("MyUnit", "mymodule:NMU")]
    found = comparison([*primer(("mul",), models=("NMU",), spans=[(1.0, 2.0)]), *mine], THEIRS, title="mine")
    assert found.series == ("NMU", "MyUnit", "mymodule:NMU")
    assert [cell.verdict.word for cell in found.cells[1:]] == ["not published"] * 2
    assert "2 have no published number" in found.headline()


def test_without_published_numbers_nothing_is_tested():
    found = comparison(primer(("mul",), n=2, models=("NMU",)), title="ours alone")
    assert found.headline() == "9 cells; none can be tested against a published number."


def test_runs_of_another_setting_are_not_tested():
    rows = [*primer(("mul",), n=12, models=("NMU",)), run(0, "Mine", "mul", (1, 2), solved=True)]
    found = comparison(rows, THEIRS, title="short", test=PublishedTest(None))
    assert (found.count("other setting"), found.count("not published")) == (9, 1)
    assert found.headline() == "10 cells; none is tested: the setting is not the published one."
    assert all(cell.published("success_rate") for cell in found.cells if cell.series == "NMU")


def test_errors_that_are_published_without_counts_are_not_called_unpublished():
    def measure(rows):
        return Measured(len(rows), {"error_median": Estimate(1.0, n=len(rows))})

    rows = [replace(run(0, "NMU", "mul", (1, 2), solved=True), labels={"unit": "NMU", "operation": "100", "x": "mul"})]
    found = comparison(
        rows, published.cells(paper="npu2020"), title="", measure=measure, metrics=[Metric("error_median", "Error")],
        layout=Layout(x="x", match=lambda cell: ("100", cell.model, cell.op)),
    )  # fmt: skip
    assert [cell.verdict.word for cell in found.cells] == ["not tested"]


def test_ranges_stand_by_their_middle_unless_told_otherwise():
    rows = primer(("mul",), n=1, models=("NMU",))
    assert comparison(rows, title="").xs[:2] == ((-20, -10), (-2, -1))
    assert comparison(rows, title="", layout=Layout(xs=[(10, 20)])).xs[0] == (10, 20)


def test_snapping_counts_only_where_validation_allows_it():
    failed = run(0, "NMU", "mul", (1, 2), solved=False)
    assert judge(failed).snapped is False
    assert judge(run(0, "NMU", "mul", (1, 2), solved=False, rescued=True)).snapped is True
    worse = replace(failed, scores={**failed.scores, "snapped_test": 0.0})
    assert judge(worse).snapped is False, "its validation error got worse, so the rounding was not kept"
    solved = run(0, "NMU", "mul", (1, 2), solved=True)
    kept = replace(solved, scores={**solved.scores, "snapped_test": 9.0, "snapped_validation": 1.0})
    assert judge(kept).snapped is True, "not kept, and solved without it"
    untried = replace(failed, scores={"threshold": failed.threshold})
    assert judge(untried).snapped is None


def test_what_the_trainer_read_off_the_whole_curves_counts():
    """Long curves are thinned before they are stored."""
    row = run(0, "NMU", "mul", (1, 2), solved=False)
    judged = {"best_test": 0.0, "solved_at": 1234.0, "best_sparsity": 0.125, "best_step": 2000.0}
    told = judge(replace(row, scores={**row.scores, **judged}))
    assert (told.solved, told.solved_at, told.sparsity) == (True, 1234, 0.125)
    assert not judge(replace(row, scores={**row.scores, **judged}), last=10).solved
    lost = judge(replace(row, scores={**row.scores, "best_test": float("nan"), "solved_at": float("nan")}))
    assert (lost.solved, lost.solved_at) == (False, None)


def test_a_diverged_run_is_counted():
    rows = [run(i, "NMU", "mul", (1, 2), solved=True) for i in range(3)]
    rows[0] = replace(rows[0], status="diverged", stopped_at=7, reason="NaN", curves={})
    (cell,) = comparison(rows, title="").cells
    assert (cell.measured.n, cell.measured.solved, cell.measured.diverged) == (3, 2, 1)


def test_other_measures_use_the_same_comparison():
    """Accuracy over hidden sizes: no thresholds, no success."""

    def accuracy(rows):
        values = [row.scores["accuracy"] for row in rows]
        return Measured(len(rows), {"accuracy": Estimate(float(np.mean(values)), n=len(rows))})

    rows = [
        replace(
            run(i, "NMU", "mul", (1, 2), solved=True), scores={"accuracy": 0.9}, labels={"t": "A", "m": "NRU", "h": h}
        )
        for i in range(2)
        for h in (32, 8)
    ]
    found = comparison(
        rows,
        title="",
        layout=Layout(panel="t", series="m", x="h"),
        measure=accuracy,
        metrics=[Metric("accuracy", "Accuracy")],
    )
    assert found.xs == (8.0, 32.0)
    assert [cell.verdict.word for cell in found.cells] == ["not published"] * 2


def test_the_environment_is_told_once():
    told = environment(primer(("mul",), n=1, models=("NMU",)))
    assert told["torch"] == "2.13.0"
    assert told["runs"] == "9"
    assert told["training time, all runs"].endswith(" s")


def test_groups_that_took_turns_on_a_gpu_are_counted_once():
    row = run(0, "NMU", "mul", (1, 2), solved=True)

    def told(device):
        """A group from 0 to 100 s, one from 60 to 160 s and, after a pause, one of 10 s; of each both runs."""
        groups = {"00:01:40": 100.0, "00:02:40": 100.0, "00:10:00": 10.0}
        arounds = [
            Provenance("emitted", {}, {"device": device}, {"group_seconds": s, "group_runs": 2.0}, f"2026-01-01T{end}")
            for end, s in groups.items()
        ]
        return environment([replace(row, seed=i, provenance=a) for i, a in enumerate(arounds * 2)])[
            "training time, all runs"
        ]

    assert told("cuda:0") == "2.83 min"
    assert told("cpu") == "3.5 min"


def test_runs_without_a_label_are_refused_in_one_sentence():
    row = Row("mine", {"a": 1}, 0, {"unit": "NMU", "operation": "mul"})
    with pytest.raises(ValueError, match=r"labels operation, unit and range, and the run \w+-0 has no range; give"):
        comparison([row], title="Mine")
