"""Comparisons by order: columns, words, headline, page and table."""

import math

import pytest

from numerate import report
from numerate.published import Published
from numerate.report import Layout, Measured, Metric, PublishedTest, text
from numerate.results import Row
from numerate.stats import Estimate

ERROR = Metric(
    "error", "Error", "log", floor=0.01, ceiling=100.0, target=1.0, shade=lambda e: 1 / (1 + e), meaning="So."
)
NAMES = ("A", "B", "C", "D", "E", "F")
THEIRS = {"x": (0.0, 0.02, 0.5, 3.0, 20.0, 99.0), "y": (99.0, 20.0, 3.0, 0.5, 0.02, 0.0), "z": (0.0,) * 6}
OURS = {"x": (0.005, 0.1, 0.4, 9.0, 30.0, math.nan), "y": (0.005, 0.1, 0.4, 9.0, 30.0, 70.0), "z": (1.0, 2.0) * 3}


def measured(rows):
    return Measured(len(rows), {"error": Estimate(rows[0].scores["error"], n=len(rows))})


@pytest.fixture(scope="module")
def found():
    rows = [
        Row("e", {"unit": name, "x": x}, 0, labels={"unit": name, "operation": "mul", "x": x}, scores={"error": value})
        for x, values in OURS.items()
        for name, value in zip(NAMES, values)
    ]
    theirs = [
        Published("p", "1", "t", "mul", name, None, "error", value, x=x)
        for x, values in THEIRS.items()
        for name, value in zip(NAMES, values)
    ]
    return report.comparison(
        rows, theirs, title="Orders", measure=measured, metrics=[ERROR], test=PublishedTest("series"),
        layout=Layout(x="x", x_title="Function", match=lambda cell: (cell.op, cell.model, cell.x)),
    )  # fmt: skip


def test_each_column_has_its_word(found):
    assert [order.at for order in found.orders] == ["x", "y", "z"]
    assert [order.agreement.word for order in found.orders] == ["same order", "other order", "too few"]


def test_values_beyond_floor_and_ceiling_are_tied_and_no_number_is_the_worst():
    assert ERROR.clipped(math.nan) == 100 == ERROR.clipped(math.inf)
    assert ERROR.clipped(0.0) == 0.01 == ERROR.clipped(-3.0)
    assert ERROR.clipped(5.0) == 5.0


def test_those_that_reach_the_target_are_named(found):
    assert found.orders[0].ours == ("A", "B", "C")
    assert found.orders[1].theirs == ("D", "E", "F")


def test_headline_counts_columns_and_no_cell_is_tested_by_itself(found):
    assert found.headline().startswith(
        "3 columns, order of ours against the published one: 1 same order, 1 other order"
    )
    assert {cell.verdict.word for cell in found.cells} == {"by order"}
    assert "Kendall" in found.test_sentence()


def test_page_pictures_and_table_are_written(found, tmp_path):
    written = report.write_report(found, tmp_path, formats=("png",))
    assert {"report", "table", "mul.png", "overview.png"} <= written.keys()
    page = written["report"].read_text()
    for part in ("Order, ours and published", "same order", "other order", "too few", "<b>Error</b>: So.", "A, B, C"):
        assert part in page
    for absent in ("Solved at", "Sparsity", "Boschloo", "red frame"):
        assert absent not in page
    assert len(written["table"].read_text().splitlines()) == 19


def test_a_series_beside_the_others_is_shown_and_takes_no_part():
    rows = [
        Row("e", {"u": n}, 0, labels={"unit": n, "operation": "mul", "x": "x"}, scores={"error": 1.0}) for n in NAMES
    ]
    theirs = [Published("p", "1", "t", "mul", n, None, "error", 1.0, x="x") for n in NAMES]
    found = report.comparison(
        rows, theirs, title="Beside", measure=measured, metrics=[ERROR], test=PublishedTest("series", beside=["F"]),
        layout=Layout(x="x", match=lambda cell: (cell.op, cell.model, cell.x)),
    )  # fmt: skip
    assert [cell.series for cell in found.cells] == list(NAMES)
    assert [order.agreement.n for order in found.orders] == [5]


def test_order_along_x_is_one_list(capsys):
    rows = [
        Row("e", {"x": n}, 0, labels={"u": "MLP", "p": "p", "x": n}, scores={"error": float(i)})
        for i, n in enumerate("abcdefghij")
    ]
    theirs = [Published("p", "1", "t", "", "MLP", None, "error", 2.0 * i, x=n) for i, n in enumerate("abcdefghij")]
    found = report.comparison(
        rows, theirs, title="One", measure=measured, metrics=[ERROR], test=PublishedTest("x"),
        layout=Layout(panel="p", series="u", x="x", match=lambda cell: ("p", "MLP", cell.x)),
    )  # fmt: skip
    assert found.headline().startswith("Order of 10, ours against the published one: same order (Kendall's τ 1.00")
    import rich

    rich.print(report.terminal_table(found))
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[2:12]] == list("abcdefghij")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.3, "0.3"),
        (4.21, "4.2"),
        (99.7, "100"),
        (870.4, "870"),
        (123456, "1e5"),
        (3e-7, "3e−7"),
        (0.0099, "1e−2"),
        (0.096, "0.096"),
        (330341, "3e5"),
        (287928, "3e5"),
        (-9.6e5, "−1e6"),
        (math.inf, "∞"),
    ],
)
def test_brief_numbers(value, shown):
    assert text.brief(value) == shown
