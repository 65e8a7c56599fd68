"""Pictures as text: what a page shows of them is what was drawn."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from report_samples import run

from numerate.report import SUCCESS, Layout, comparison, figures, tables
from numerate.report.extrapolation import extrapolation_figure
from numerate.stats import Estimate


@pytest.mark.parametrize("label", ["100 inputs: x", "2 things", "x"])
def test_marks_keep_their_references_whatever_a_label_begins_with(label):
    fig = Figure()
    fig.subplots().plot([1, 2], marker="o")
    source = figures.svg(fig, label)
    uses = re.findall(r"<use [^>]*>", source)
    assert uses
    targets = [name for use in uses for name in re.findall(r'xlink:href="#(\w+)"', use)]
    assert len(targets) == len(uses)
    assert set(targets) <= set(re.findall(r'id="(\w+)"', source))


def test_a_bound_is_shown_as_one_and_an_interval_of_nothing_is_not():
    assert tables.interval(Estimate(0.5, bound=">"), SUCCESS) == ">50 %"
    assert tables.interval(Estimate(0.5, 0.0, 0.0), SUCCESS) == "50 %"
    assert tables.interval(Estimate(0.5, 0.4, 0.6), SUCCESS) == "50 % [40, 60]"


def test_marks_of_logarithmic_axes_are_text_not_formulas():
    """The style reads no formulas, so that a label may hold a dollar sign; matplotlib's own marks are formulas."""
    distances = np.array([1.0, 2.0, 4.0])
    picture = extrapolation_figure(distances, {"NAU": np.array([[1e-5, 1e-3, 1e2]])})
    picture.canvas.draw()
    marks = [label.get_text() for label in picture.axes[0].get_yticklabels()]
    assert "10⁻⁵" in marks
    assert not any("$" in mark for mark in marks)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((1.2, 3.5), ["2", "3"]), ((0.3, 8.0), ["0.3", "0.5", "1", "2", "3", "5"]), ((0.5, 80.0), ["1", "10"])],
)
def test_a_logarithmic_axis_has_marks_however_short_it_is(ends, expected):
    ax = Figure().subplots()
    ax.set_yscale("log")
    ax.set_ylim(*ends)
    figures.name_decades(ax.yaxis)
    marks = {
        value: text(value, 0)
        for where, text in (
            (ax.yaxis.get_majorticklocs(), ax.yaxis.get_major_formatter()),
            (ax.yaxis.get_minorticklocs(), ax.yaxis.get_minor_formatter()),
        )
        for value in where
        if ends[0] <= value <= ends[1]
    }
    assert [text for _, text in sorted(marks.items()) if text] == expected


def test_a_measure_without_values_has_no_panel():
    rows = [run(seed, "NMU", "mul", (1, 2), solved=False) for seed in range(3)]
    shown = comparison(rows, title="", layout=Layout(panel="operation", x="range"))
    titles = [ax.get_ylabel() for ax in figures.figure(shown).axes]
    assert titles == ["Success rate"]
    solved = comparison([run(0, "NMU", "mul", (1, 2), solved=True), *rows], title="", layout=shown.layout)
    assert len(figures.figure(solved).axes) == 3


def test_long_titles_of_axes_take_several_lines():
    lines = figures.wrapped("Accuracy at length 1 in %, best runs").split("\n")
    assert lines == ["Accuracy at length 1 in %,", "best runs"]
