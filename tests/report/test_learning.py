"""Learning curves: medians, bands and times that count every run, also those that diverged."""

from typing import Literal

import numpy as np
import pytest
from matplotlib.figure import Figure

from numerate.report.learning import (
    Progress,
    curves,
    final_values,
    grouped,
    headroom,
    legend,
    panels,
    plot_beside,
    plot_curves,
    plot_progress,
    plot_solved,
    progress,
)
from numerate.results import Row


def row(unit, train, seed=0, *, solved_at=np.nan, status: Literal["finished", "diverged"] = "finished"):
    ended = (3, "not finite") if status == "diverged" else (None, "")
    steps = 10 * np.arange(len(train))
    scores = {"threshold": 0.1, "best_test": 0.0, "solved_at": solved_at, "solved": float(np.isfinite(solved_at))}
    return Row(
        "x",
        {"unit": unit},
        seed,
        {"unit": unit},
        status,
        *ended,
        {"steps": steps, "train": train, "validation": train},
        scores,
    )


def test_medians_and_bands_are_over_runs():
    (series,) = curves([row("A", np.array([4.0, k, k])) for k in (1.0, 2.0, 6.0)], "train")
    assert series.median.tolist() == [4.0, 2.0, 2.0]
    assert series.quantile(0.25).tolist() == [4.0, 1.5, 1.5]
    assert series.last == 2.0


def test_a_spike_at_the_end_does_not_count():
    spiking = row("A", np.array([1.0, 0.5, 0.4, 0.4, 0.3, 90.0]))
    assert final_values([spiking, row("A", np.ones(2), status="diverged")], "train", 2.0) == [0.8, np.inf]


def test_a_run_that_diverged_is_worse_than_all_others_from_then_on():
    rows = [row("A", np.array([1.0, 1.0, 1.0])), row("A", np.array([1.0, 0.5]), status="diverged")]
    (series,) = curves(rows, "train")
    assert series.median.tolist() == [1.0, 0.75, np.inf]
    assert series.diverged == 1


def test_a_run_that_stopped_early_keeps_its_last_value():
    (series,) = curves([row("A", np.array([1.0, 0.4])), row("A", np.array([1.0, 0.8, 0.6]))], "train", scale=10)
    assert series.steps.tolist() == [0, 10, 20]
    np.testing.assert_allclose(series.values, [[10, 4, 4], [10, 8, 6]])


def test_points_without_a_value_are_left_out():
    (series,) = curves([row("A", np.array([np.nan, 3.0]))], "train")
    assert np.isnan(series.median[0])
    assert series.median[1] == 3.0


def test_groups_keep_their_order():
    rows = [row("B", np.ones(2)), row("A", np.ones(2)), row("B", np.ones(2), 1)]
    assert {name: len(members) for name, members in grouped(rows, "unit").items()} == {"B": 2, "A": 1}
    assert list(grouped(rows, lambda r: r.seed)) == [0, 1]


@pytest.mark.parametrize(
    ("times", "expected", "words"),
    [
        ((100, 300), 200.0, "200"),
        ((100, np.nan), None, "1 of 2\n50% left"),
        ((np.nan, np.nan), None, "50% left"),
    ],
)
def test_progress_is_solved_when_half_of_the_runs_are(times, expected, words):
    rows = [row("A", np.array([1.0, 1.0]), seed, solved_at=at) for seed, at in enumerate(times)]
    found = progress(rows, baseline=2.0)
    assert found.time == expected
    assert found.left == 0.5
    assert found.text == words


def test_colours_tell_solved_from_stuck():
    solved, later, stuck = Progress(2, 2, 100.0, 0.0), Progress(2, 2, 1e4, 0.0), Progress(0, 2, None, 1.0)
    assert len({solved.colour, later.colour, stuck.colour}) == 3


def test_the_axis_reaches_curves_that_never_come_near_guessing():
    near, far = row("A", np.array([2.0, 0.9])), row("B", np.array([5.0, 3.0, 4.0]))
    assert headroom(curves([near], "train"), 1.0, 1.3) == 1.3
    assert headroom(curves([near, far], "train"), 1.0, 1.3) == pytest.approx(3.3)
    lost = row("C", np.array([60.0, 50.0]))
    assert headroom(curves([near, lost], "train"), 1.0, 1.3) == 1.3
    assert headroom([], 1.0, 1.3) == 1.3


@pytest.mark.parametrize(("theirs", "names"), [({"B": 2.0}, ["ours"]), ({"A": 2.0}, ["ours", "published"])])
def test_a_legend_names_published_marks_only_where_there_are_some(theirs, names):
    ax = Figure().subplots()
    legend = plot_beside(ax, {"A": [1.0]}, theirs, order=["A"]).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == names


def test_pictures_have_lines_marks_and_names():
    rows = [row("A", np.array([1.0, 0.5, 0.2]), 0, solved_at=150), row("A", np.array([1.0, 0.6, 0.3]), 1)]
    rows += [row("B", np.array([1.0, 0.9]), 0, status="diverged")]
    series, order = curves(rows, "train"), ["A", "B"]
    fig, (ax,) = panels(1, 4, 3)
    plot_curves(ax, series, order=order, baseline=1.0, points={"A": (20, 0.1)}, first="A")
    legend(fig, series, order, published="o")
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["B\n1 of 1 diverged", "A", "published"]
    assert len(ax.lines) == 5  # three runs, a published mark, the baseline
    ax = Figure().subplots()
    plot_solved(ax, grouped(rows, "unit"), order=order, last=1000)
    assert [text.get_text() for text in ax.texts] == ["1 of 2", "0 of 1"]
    ax = Figure().subplots()
    plot_beside(ax, {"A": [1.0, 2.0], "C": [3.0]}, {"A": 1.5}, order=["A", "C"])
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["A", "C"]
    ax = Figure().subplots()
    plot_progress(ax, {("A", "copying"): Progress(2, 2, 150.0, 0.1)}, ["A", "B"], ["copying"])
    assert [text.get_text() for text in ax.texts] == ["150", "–"]
