"""The papers' numbers are all here, can be found, and an unknown name is answered with the known ones."""

import csv
import io
import subprocess
import sys
from importlib import resources

import pytest

from numerate import published


@pytest.mark.parametrize(
    ("file", "lines"),
    {
        "nau2020_results": 344,
        "nau2020_settings": 68,
        "nau2020_figures": 640,
        "nau2020_recomputed": 60,
        "primer2022_results": 621,
        "primer2022_settings": 75,
        "nalu2018_results": 728,
        "thresholds": 59,
        "nru2019_table1_topk": 20,
        "nru2019_table2_ptb_char": 14,
        "nru2019_table3_psmnist": 20,
        "ur2020_table5_gate_ablation": 27,
    }.items(),
)
def test_nothing_is_missing(file, lines):
    assert len(published.raw(file)) == lines


@pytest.mark.parametrize(
    ("paper", "table", "rows", "metrics"),
    [("nau2020", table, rows, 4) for table, rows in (("1", 3), ("2", 11), ("5", 6), ("6", 66))]
    + [("primer2022", table, rows, 3) for table, rows in (("9", 45), ("10", 45), ("11", 63), ("12", 54))],
)
def test_tables_have_as_many_rows_as_in_print(paper, table, rows, metrics):
    found = published.cells(paper=paper, table=table)
    assert len({(cell.op, cell.model, cell.range) for cell in found}) == rows
    assert len(found) == rows * metrics


def test_every_cell_is_unique():
    for paper in ("nau2020", "primer2022"):
        keys = [(c.table, c.task, c.op, c.model, c.range, c.metric, c.x) for c in published.cells(paper=paper)]
        assert len(keys) == len(set(keys))


def test_intervals_enclose_their_values():
    for cell in published.cells(metric="success_rate"):
        assert cell.low is not None
        assert cell.high is not None
        assert cell.value is not None
        assert cell.low - 1e-9 <= cell.value <= cell.high + 1e-9


@pytest.mark.parametrize("spelling", [(-2, -1), [-2.0, -1.0], "U[-2,-1)", "[-2, -1)"])
def test_a_range_may_be_spelt_in_many_ways(spelling):
    cell = published.one(paper="primer2022", model="NMU", range=spelling, metric="success_rate")
    assert (cell.value, cell.low, cell.high, cell.n, cell.table) == (0.8, 0.61, 0.91, 25, "11")


@pytest.mark.parametrize(
    ("ours", "printed"),
    [("RealNPU", "Real NPU"), ("NACMul", "NAC•"), ("INALU", "iNALU"), ("GNALU", "G-NALU"), ("NMU", "NMU")],
)
def test_our_names_find_the_printed_ones(ours, printed):
    by_ours = published.cells(paper="primer2022", table=11, model=ours)
    assert by_ours == published.cells(paper="primer2022", table="11", model=printed)
    assert len(by_ours) == 27
    assert published.printed_name(ours) == printed


def test_a_dash_is_none():
    cell = published.one(paper="primer2022", op="add", model="NAC", range=(-0.2, -0.1), metric="solved_at_mean")
    assert cell.value is None
    assert "no seed solved" in cell.note


def test_figures_and_recurrent_tables_are_found():
    assert len(published.cells(paper="nau2020", table="figure 3a", model="NMU", metric="success_rate")) > 0
    ur = published.one(paper="ur2020", table="5", task="pMNIST", model="UR-LSTM", metric="accuracy")
    assert ur.value == 96.43
    plain = published.one(paper="ur2020", table="5", task="pMNIST", model="LSTM")
    assert (plain.value, plain.note[-16:]) == (94.77, "2 divergent runs")
    assert published.one(paper="nru2019", table="2", model="LSTM", metric="bpc").value == 1.48


@pytest.mark.parametrize(
    ("criteria", "sentence"),
    [
        ({"paper": "nobody1999"}, "no numbers of a paper 'nobody1999'; there are nalu2018, nau2020"),
        ({"paper": "primer2022", "table": "13"}, "primer2022: no table 13 here; there are 9, 10, 11, 12"),
        ({"paper": "primer2022", "model": "XYZ"}, "no model XYZ here; there are NAC"),
        ({"paper": "primer2022", "range": (5, 6)}, r"no range \[5, 6\) here; there are \[−0\.2, −0\.1\)"),
        ({"paper": "primer2022", "colour": "red"}, "has no colour; choose by paper, table"),
        ({"paper": "primer2022", "range": "wide"}, "a range is a pair"),
        ({"paper": "primer2022", "range": 3}, "a range is a pair"),
        ({"paper": "primer2022", "range": (1, 2, 3)}, "a range is a pair"),
    ],
    ids=lambda value: next(iter(reversed(value))) if isinstance(value, dict) else "",
)
def test_unknown_names_are_answered_in_one_sentence(criteria, sentence):
    with pytest.raises(ValueError, match=sentence):
        published.cells(**criteria)


def test_one_means_one():
    with pytest.raises(ValueError, match="3 published numbers fit"):
        published.one(paper="primer2022", model="NMU", range=(1, 2))


def test_a_unit_of_ones_own_has_no_published_number():
    assert published.get(paper="primer2022", model="mypkg.mymodule:MyUnit", op="mul") is None
    assert published.get(paper="primer2022", model="NMU", range=(1, 2), metric="success_rate") is not None
    with pytest.raises(ValueError, match="no numbers of a paper"):
        published.get(paper="typo2022", model="NMU")
    with pytest.raises(ValueError, match="a range is a pair"):
        published.get(paper="primer2022", model="NMU", range="abc")
    with pytest.raises(ValueError, match="Published has no colour"):
        published.get(paper="primer2022", colour="red")


@pytest.mark.parametrize(("op", "value"), [("add", 6.666667e-9), ("mul", 1.2017658e-7), ("div", 5.777662e-10)])
def test_single_module_thresholds_follow_their_closed_form(op, value):
    """U[2,6): E x = 4, E x² = 52/3, Var x = 4/3, E x⁻² = 1/12; ε = 1e-5."""
    e, second, inverse = 1e-5, 52 / 3, 1 / 12
    expected = {
        "add": e**2 * (8**2 + 2 * 4 / 3),
        "mul": (2 * e - e**2) ** 2 * second**2,
        "div": (2 * e / (1 + e)) ** 2 * second * inverse,
    }
    found = published.threshold(op, (1, 2))
    assert found.value == pytest.approx(expected[op], rel=1e-6)
    assert found.value == pytest.approx(value, rel=1e-6)


def test_the_threshold_behind_the_table_comes_first():
    assert published.threshold("mul", (1, 2), task="arithmetic dataset").value == 0.160010658743333
    assert published.threshold("mul", (1, 2), task="arithmetic dataset", kind="correct").value == 0.1605591839
    assert len(published.thresholds(task="single module")) == 36


def test_settings_are_found():
    (found,) = published.settings("primer2022", model="NMU", parameter="lambda_hat")
    assert found.value == "10"
    with pytest.raises(ValueError, match="settings are here for"):
        published.settings("nru2019")


def test_unions_are_read_and_shown():
    span = published.parse_range("U[-6,-2) ∪ U[2,6)")
    assert span == ((-6, -2), (2, 6))
    assert published.show_range(span) == "[−6, −2) ∪ [2, 6)"
    assert published.parse_range("train [-5,5]; test integers") is None


def test_every_data_file_is_described():
    folder = resources.files("numerate.published") / "data"
    described = (folder / "README.md").read_text(encoding="utf-8")
    for entry in folder.iterdir():
        if entry.name.endswith(".csv"):
            family = entry.name.split("_")[0] + "_*.csv"
            assert entry.name in described or family in described, entry.name
            text = entry.read_text(encoding="utf-8")
            widths = {len(line) for line in csv.reader(io.StringIO(text, newline=""))}
            assert len(widths) == 1, f"{entry.name} has lines of unequal width"


def test_the_standard_library_is_enough():
    code = "import sys, numerate.published; print([m for m in ('numpy', 'torch', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
