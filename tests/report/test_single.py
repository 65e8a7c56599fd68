"""One run in the terminal: odd rows are shown as far as they go, hostile ones do nothing."""

import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from numerate import terminal
from numerate.experiments.kinds import shown_kinds
from numerate.report.single import facts, find_run, label_text, outcome_text, show_run
from numerate.results import Row, Store
from numerate.train.kinds import Maker

MAKER = Maker(shown_kinds())
TASK = {"call": "numerate.tasks.single_module:SingleModule", "operation": "mul"}
ROW = Row(
    "primer2022/table11",
    {"model": "numerate.units.nmu:NMU", "task": TASK, "steps": 1000, "batch": 128},
    0,
    labels={"unit": "NMU", "range": [1, 2]},
    curves={name: np.array([1.0, 0.0]) for name in ("steps", "validation", "test", "sparsity")},
    scores={"threshold": 1e-7, "best_test": 0.0, "solved_at": 1000.0, "best_sparsity": 0.0},
    weights={"best": {"weight": np.ones((1, 2), np.float32)}},
)


def shown(row):
    """As it comes out of a terminal."""
    return dict(facts(row, MAKER)), printed(show_run(row, MAKER))


def printed(renderable):
    with pytest.MonkeyPatch.context() as patch:
        out = io.StringIO()
        patch.setattr("sys.stdout", out)
        patch.setenv("COLUMNS", "200")
        terminal.show(renderable)
    return out.getvalue()


def test_a_run_is_shown_with_its_formula():
    found, text = shown(ROW)
    assert found["formula"] == "x1*x2"
    assert found["solved"] == "yes, first at step 1,000"
    assert found["range"] == "[1, 2)"
    assert "x1*x2" in text


@pytest.mark.parametrize(
    ("change", "fact", "text"),
    [
        ({"scores": {"threshold": 1e-7, "best_test": 0.0}}, "solved", "yes"),
        ({"scores": {}}, "solved", "(cannot be shown: this run of primer2022/table11 has no threshold"),
        ({"scores": {"threshold": 1e-7}, "curves": {}}, "solved", "no"),
        ({"curves": {"validation": np.zeros(0)}}, "validation", "(no points)"),
        ({"curves": {"validation": np.array(3.0)}}, "validation", "▁  from 3 at the start to 3 at the end"),
        ({"curves": {"validation": np.full(3, np.nan)}}, "validation", "···  from NaN"),
        ({"curves": {"validation": np.array([1 + 2j])}}, "validation", "(cannot be shown: its numbers are"),
        ({"weights": {}}, "formula", "(no weights are stored with it)"),
        ({"weights": {"best": {"weight": np.ones((7, 7))}}}, "formula", "(the stored weights are not those"),
        ({"labels": {"unit": ("a", "b")}}, "unit", "(a, b)"),
        ({"labels": {"unit": "[/b]"}}, "unit", "[/b]"),
        ({"labels": {"range": "all"}}, "range", "all"),
        ({"labels": {"range": [1, "x"]}}, "range", "(1, x)"),
        ({"labels": {"range": []}}, "range", "()"),
        ({"config": {**ROW.config, "steps": "many", "batch": None}}, "training", "many steps on None examples each"),
        ({"config": {**ROW.config, "model": "numerate.units.nmu:Gone"}}, "formula", "(numerate.units.nmu:Gone is not"),
        ({"config": {**ROW.config, "task": 3}}, "formula", "(its task has None inputs"),
        ({"config": {}}, "formula", "("),
        ({"status": "diverged", "stopped_at": 0, "reason": "x"}, "status", "diverged at step 0: x"),
    ],
)
def test_an_odd_row_is_shown_as_far_as_it_goes(change, fact, text):
    found, out = shown(replace(ROW, **change))
    assert found[fact].startswith(text)
    assert found["run"]
    assert "trained" in out


def test_text_from_a_file_never_acts_on_the_terminal():
    evil = "\x1b[31mred\x1b]0;title\x07 \u202eback\r\x9b2J"
    row = replace(ROW, experiment=evil, labels={evil: evil}, scores={evil: 1.0})
    _, out = shown(row)
    assert not any(sign in out for sign in "\x1b\x07\u202e\r\x9b")
    assert "�[31mred" in out


def test_a_labels_long_text_is_cut():
    assert len(shown(replace(ROW, labels={"unit": "x" * 100_000}))[1]) < 20_000


def test_a_formula_that_nobody_could_read_is_not_written():
    hidden = [64, 64, 64, 64]
    model = {"call": "numerate.units.mlp:MLP", "hidden": hidden}
    widths = [2, *hidden, 1]
    weights = {f"layers.{i}.weight": np.ones((o, n)) for i, (n, o) in enumerate(pairwise(widths))}
    weights |= {f"layers.{i}.bias": np.ones(o) for i, o in enumerate(widths[1:])}
    found, _ = shown(replace(ROW, config={**ROW.config, "model": model}, weights={"best": weights}))
    assert found["formula"] == "(too long to be written)"


def test_a_run_is_found_by_the_first_digits_of_its_key(tmp_path):
    with Store(tmp_path / "a.sqlite") as store:
        store.add([ROW, replace(ROW, seed=1), replace(ROW, config={"x": 1})])
        assert find_run(store, ROW.key.name) == ROW
        assert find_run(store, f"{ROW.key.config}-1").seed == 1
        with pytest.raises(ValueError, match="there is no run 'ffffff-0'"):
            find_run(store, "ffffff-0")
        for name in ("abc", "-0", "xyz-0", "3f-²", "3f-" + "9" * 40, "3f%-0"):
            with pytest.raises(ValueError, match="a run is named by"):
                find_run(store, name)


def test_words_of_a_list():
    assert outcome_text(ROW) == "solved at step 1,000"
    assert outcome_text(replace(ROW, scores={**ROW.scores, "best_test": 1.0})) == "not solved"
    assert label_text([[1, 2], [3, 4]]) == "[1, 2) ∪ [3, 4)"
