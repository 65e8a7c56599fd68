"""Labels of a results file are data: no label leaves the folder, drives a terminal or breaks a report."""

import io
from dataclasses import replace

import pytest
import rich.console
from matplotlib.figure import Figure
from report_samples import run

from numerate import report
from numerate.report import Page, Picture, TextTable
from numerate.results import Provenance

HOSTILE = [
    "../../../evil",
    "/etc/evil",
    "..",
    "",
    "a/b",
    "a_b",
    "\x1b[31mred\x1b]0;title\x07",
    "[/b] [bold]x",
    "[link=file:///etc]",
    "$\\frac{",
    "_hidden",
    "=1+1",
    "@x",
    "<script>alert(1)</script>",
    "\u202egnp.exe",
    "line\nbreak",
    "x" * 300,
    "overview",
]
ODD = [None, True, ["a", "b"], [1, "b"], [[1, 2], [3]], {"a": [1]}, [], 7, float("inf"), "text"]


def labelled(**labels):
    row = run(0, "NMU", "mul", (1, 2), solved=True)
    return replace(row, labels={"unit": "NMU", "operation": "mul", "range": [1, 2]} | labels)


@pytest.fixture(scope="module")
def hostile():
    return report.comparison(
        [labelled(operation=label, unit=label, range=label) for label in HOSTILE],
        title="hostile",
        metrics=[report.SUCCESS],
    )


def test_no_label_names_a_file_outside_its_folder(hostile, tmp_path):
    folder = tmp_path / "one" / "two" / "three" / "report"
    written = report.write_report(hostile, folder, formats=("svg",))
    assert {path.parent for path in written.values()} == {folder}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.parent for path in files} == {folder}
    assert len(list(folder.glob("*.svg"))) == len(HOSTILE) + 1, "a picture of each panel, and the map"
    page = written["report"].read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_pictures_and_tables_of_a_page_stay_in_its_folder(tmp_path):
    folder = tmp_path / "a" / "b"
    page = Page("t", pictures=[Picture("../../evil", Figure())], tables=[TextTable("t", ["n"], [["=1+1"], ["-x"]])])
    written = report.write_page(page, folder, formats=("svg",))
    assert {path.parent for path in written.values()} == {folder}
    assert (folder / "table.csv").read_text() == "n\n'=1+1\n'-x\n"
    assert not list(tmp_path.glob("*.svg"))


def test_no_label_drives_the_terminal(hostile):
    for terminal in (True, False):
        console = rich.console.Console(
            width=400, file=(written := io.StringIO()), force_terminal=terminal, color_system=None
        )
        console.print(report.terminal_table(hostile))
        shown = written.getvalue()
        assert "\x1b]" not in shown
        assert "\x1b[31mred" not in shown
        assert "\x07" not in shown
        assert "[/b] [bold]x" in shown


def test_a_spreadsheet_runs_no_label(hostile):
    text = report.csv_text(hostile)
    assert "\n=1+1" not in text
    assert "'=1+1,'=1+1,'=1+1," in text
    assert "'@x,'@x,'@x," in text


@pytest.mark.parametrize("label", ["operation", "range"])
def test_odd_labels_are_shown_as_they_are(label, tmp_path):
    rows = [labelled(**{label: odd, "unit": odd}) for odd in ODD]
    compared = report.comparison(rows, title="odd")
    assert len(compared.cells) == len(ODD)
    assert report.write_report(compared, tmp_path, formats=())["report"].is_file()
    rich.console.Console(file=io.StringIO()).print(report.terminal_table(compared))


@pytest.mark.parametrize(
    "around",
    [
        ("x", {"torch": ["2", 1]}, {"device": "cuda", "cores": {"a": 1}}, {"group_seconds": "long"}, "now"),
        ("x", {}, {"device": 7}, {"seconds": "long"}, ""),
        ("x", {}, {"device": "cuda:0"}, {"group_seconds": 1.0}, "yesterday"),
    ],
)
def test_an_odd_environment_is_told_as_far_as_it_goes(around):
    told = report.environment([replace(labelled(), provenance=Provenance(*around)), replace(labelled(), seed=1)])
    assert told["runs"] == "2"


def test_a_hostile_label_is_shown_in_the_bar_as_text():
    from numerate.cli_progress import Bar
    from numerate.train import Progress

    line = Bar("x")
    line.tell(Progress(1, 2, 1, 1, 0.5, 1.0, "\x1b[31m[/b]", "emitted"))
    console = rich.console.Console(width=120, file=(written := io.StringIO()), force_terminal=True, color_system=None)
    console.print(line.bar.get_renderable())
    assert "\x1b[31m" not in written.getvalue()
    assert "[/b]" in written.getvalue()
