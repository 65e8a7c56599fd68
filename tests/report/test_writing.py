"""Pages, tables and pictures: complete, self-contained, the same bytes every time."""

import csv
import io
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import rich.console
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from report_samples import RANGES, primer, run

from numerate import published, report
from numerate.report import figures, text
from numerate.report.extrapolation import extrapolation_figure


@pytest.fixture(scope="module")
def rows():
    """Two operations, four units, three ranges, one cell that differs."""
    spans = [(1.0, 2.0), (-2.0, 2.0), (-20.0, -10.0)]
    drawn = primer(("mul", "add"), n=12, models=("NMU", "NAU", "Real NPU", "NAC+"), spans=spans)
    wrong = [run(i, "NMU", "mul", (1, 2), solved=i < 1) for i in range(12)]
    return [row for row in drawn if (row.labels["unit"], row.labels["range"]) != ("NMU", [1.0, 2.0])] + wrong


@pytest.fixture(scope="module")
def found(rows):
    notes = {("mul", "NMU", (1, 2)): "planted <here> & now"}
    return report.comparison(
        rows, published.cells(paper="primer2022"), title="Units & <tags>", layout=report.Layout(xs=RANGES), notes=notes
    )


@pytest.fixture(scope="module")
def page(found):
    notes = report.Notes("Tables 9–12", {"seeds": "0–11"}, {"torch": "2.13"}, ["a <reason>"], "numerate run x", "1 May")
    return report.html(found, notes)


class Outline(HTMLParser):
    """Open and closed tags balance; remembers every address and identifier."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.addresses = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag, attrs):
        self._note(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def _note(self, attrs):
        self.ids += [value for name, value in attrs if name == "id"]
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "data")]


def test_the_page_is_whole_and_fetches_nothing(page):
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids)), "two pictures share an identifier"
    assert all(address.startswith("#") for address in outline.addresses)
    assert {address[1:] for address in outline.addresses} <= set(outline.ids)
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {f"#{name}" for name in outline.ids}
    for word in ("<script", "@import", "<link", "<img", "https:"):
        assert word not in page
    assert set(re.findall(r"http:[^\"' ]*", page)) <= {"http://www.w3.org/1999/xlink", "http://www.w3.org/2000/svg"}


def test_the_page_says_what_it_must(page, found):
    for part in (
        "Units &amp; &lt;tags&gt;",
        "planted &lt;here&gt; &amp; now",
        "a &lt;reason&gt;",
        "1 May",
        "numerate run x",
    ):
        assert part in page
    assert page.index("<svg") < page.index("<table"), "first the picture"
    assert found.headline() in page
    assert "Boschloo" in page
    assert page.count("<svg") == 3


def test_the_page_has_no_date_of_its_own(found):
    assert not re.search(r"20[2-9]\d-\d\d", report.html(found))


def test_colours_follow_the_theme(page):
    for colour in figures.PAGE:
        in_pictures = page[page.index("<svg") :]
        assert colour not in in_pictures


def test_csv_has_every_cell_with_full_digits(found):
    lines = list(csv.DictReader(io.StringIO(report.csv_text(found))))
    assert len(lines) == len(found.cells)
    line = lines[0]
    cell = found.cells[0]
    assert float(line["success_rate_low"]) == cell.measured.ours["success_rate"].low
    assert float(line["published_success_rate"]) == cell.theirs["success_rate"].value
    assert line["published_runs"] == "25", "the Primer's, as it says"
    for name in (
        "solved_at_mean",
        "solved_at_mean_as_published",
        "published_solved_at_mean",
        "snapped_rate",
        "q",
        "verdict",
    ):
        assert name in line


def test_csv_of_nothing_is_a_header():
    assert report.csv_text(report.comparison([], title="nothing")) == "panel,series,x\n"


def test_the_terminal_shows_every_rate_in_eighty_columns(found):
    console = rich.console.Console(width=80, record=True, file=io.StringIO())
    console.print(report.terminal_table(found))
    shown = console.export_text()
    for cell in found.cells:
        rate, theirs = cell.measured.ours["success_rate"].value, cell.theirs["success_rate"].value
        assert rate is not None
        assert theirs is not None
        assert f"{100 * rate:.0f}/{100 * theirs:.0f}" in shown
    assert "Real NPU" in shown
    assert "…" not in shown
    assert "differs: NMU mul [1, 2): 1/12, published 25/25, q < 0.001" in shown


def test_nine_ranges_of_full_rates_fit_a_terminal_of_eighty():
    found = report.comparison(
        primer(("mul",), n=1), published.cells(paper="primer2022"), title="", layout=report.Layout(xs=RANGES)
    )
    console = rich.console.Console(width=80, record=True, file=io.StringIO())
    console.print(report.terminal_table(found))
    shown = console.export_text()
    assert "…" not in shown
    assert all(name in shown for name in found.series)


def test_titles_in_the_terminal_are_not_broken_by_a_narrow_table():
    rows = [run(0, "NMU", "mul", (1, 2), solved=True)]
    found = report.comparison(
        rows, title="", layout=report.Layout(panel_titles={"mul": "The identity function from −1000 to 1000"})
    )
    console = rich.console.Console(width=80, record=True, file=io.StringIO())
    console.print(report.terminal_table(found))
    assert console.export_text().splitlines()[0] == "The identity function from −1000 to 1000"


def test_a_page_says_which_runs_are_missing(found):
    told = report.html(found, report.Notes(missing="3 of 9 runs are there; missing: unit NPU."))
    assert told.index("3 of 9 runs are there; missing: unit NPU.") < told.index("<svg")


def test_the_label_of_the_training_range_lies_on_no_line():
    distances = np.array([1.0, 2.0, 4.0, 8.0])
    curves = {"good": np.full((2, 4), 1e-7), "bad": np.array([[3e-4, 0.5, 0.9, 1.0]] * 2)}
    fig = extrapolation_figure(distances, curves)
    fig.draw_without_rendering()
    (ax,) = fig.axes
    (label,) = ax.texts
    box = label.get_window_extent()
    for line in ax.lines:
        assert not line.get_transform().transform_path(line.get_path()).intersects_bbox(box, filled=False)


def test_a_report_is_one_folder_with_the_same_bytes_every_time(found, tmp_path):
    panel = replace(found, panels=("mul",), cells=tuple(cell for cell in found.cells if cell.panel == "mul"))
    first = report.write_report(panel, tmp_path / "a")
    second = report.write_report(panel, tmp_path / "b")
    expected = {"report", "table"} | {f"{n}.{e}" for n in ("mul", "overview") for e in ("png", "svg", "pdf")}
    assert first.keys() == expected
    for name, path in first.items():
        assert path.read_bytes() == second[name].read_bytes(), name


def test_a_picture_is_drawn_once_for_each_file_and_once_for_the_page(found, tmp_path, monkeypatch):
    draw, drawn = Figure.draw, []
    monkeypatch.setattr(Figure, "draw", lambda fig, renderer: (drawn.append(fig), draw(fig, renderer)))
    report.write_report(found, tmp_path)
    assert list(Counter(drawn).values()) == [4] * 3  # two panels and the map


def test_a_figure_has_a_column_per_operation_and_a_row_per_measure(found):
    fig = report.figure(found)
    assert len(fig.axes) == 2 * 3
    assert [ax.get_title(loc="left") for ax in fig.axes[:2]] == ["Addition", "Multiplication"]
    assert {handle.get_text() for handle in fig.legends[0].get_texts()} >= {"NMU", "Real NPU", "ours", "published"}


def test_the_map_says_by_colour_what_colour_means(found):
    (legend,) = report.overview(found).legends
    assert [label.get_text() for label in legend.get_texts()] == ["left ours, right published", "0 to 100 %", "differs"]
    assert to_hex(legend.get_patches()[0].get_facecolor()) == figures.GRID  # a place, not a value


@pytest.mark.parametrize(("count", "broken"), [(2, False), (9, True)])
def test_ranges_along_a_map_are_broken_where_there_is_no_room(count, broken):
    found = report.comparison(primer(ops=["mul"], n=1, spans=RANGES[:count]), title="few")
    labels = [label.get_text() for label in report.overview(found).axes[0].get_xticklabels()]
    assert len(labels) == count
    assert all(("\n" in label) is broken for label in labels)


def test_a_cell_that_differs_at_a_smaller_size_has_a_reason():
    rows = [run(seed, "NMU", "mul", (1, 2), solved=False) for seed in range(2)]
    found = report.comparison(rows, published.cells(paper="primer2022", op="mul"), title="short")
    assert found.count("differs") == 1
    assert "No explanation has been recorded." in report.html(found)
    told = report.html(found, report.Notes(excuse="Size smoke: 1,000 steps in place of 50,000."))
    assert "Size smoke: 1,000 steps in place of 50,000." in told
    assert "No explanation" not in told


def test_the_same_unit_looks_the_same_everywhere():
    one, two = figures.looks(["NMU", "MyUnit"]), figures.looks(["NAU", "Other", "NMU", "Third"])
    assert one["NMU"] == two["NMU"]
    many = figures.looks([*figures.KNOWN, "A", "B", "C"])
    assert len(set(many.values())) == 12
    assert len(figures.looks([f"unit {i}" for i in range(30)])) == 30


def test_an_unknown_ending_is_named(found, tmp_path):
    with pytest.raises(ValueError, match=r"not as \.bmp"):
        report.save(report.figure(found, ["mul"]), tmp_path / "x.bmp")


def test_runs_that_never_solve_can_be_drawn_and_written(tmp_path):
    rows = [run(i, "NMU", "mul", (1, 2), solved=False) for i in range(3)]
    rows[1] = replace(rows[1], status="diverged", stopped_at=1, reason="NaN", curves={})
    page = report.html(report.comparison(rows, published.cells(paper="primer2022"), title="failures"))
    assert "1 diverged" in page
    assert "0/3" in page


def test_nothing_at_all_can_be_written():
    assert "none can be tested" in report.html(report.comparison([], title="empty"))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (text.percent(0.8), "80 %"),
        (text.percent_interval(0.8, 0.609, 0.911), "80 % [61, 91]"),
        (text.thousands(950), "950"),
        (text.thousands(12_400), "12.4k"),
        (text.thousands(999_999), "1.00M"),
        (text.thousands(62_090), "62.1k"),
        (text.scientific(5.66e-8), "5.7·10⁻⁸"),
        (text.scientific(0.0), "0"),
        (text.scientific(0.25), "0.25"),
        (text.scientific_interval(5.3e-6, 4.2e-6, 1.1e-5), "5.3 [4.2, 11]·10⁻⁶"),
        (text.scientific_interval(0.25, 0.2, 0.3), "0.25 [0.2, 0.3]"),
        (text.scientific_interval(5e-6, 0.0, float("inf")), "5.0·10⁻⁶ [0, ∞]"),
        (text.power(1e-5), "10⁻⁵"),
        (text.power(100.0), "100"),
        (text.power(1e4), "10⁴"),
        (text.number(12345), "12 345"),
        (text.number(float("nan")), "NaN"),
        (text.thousands_tick(2000), "2k"),
        (text.duration(5400), "90 min"),
        (text.p_value(0.0004), "< 0.001"),
        (text.p_value(None), ""),
    ],
)
def test_numbers_as_people_read_them(shown, expected):
    assert shown == expected
