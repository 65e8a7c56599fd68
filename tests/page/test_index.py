"""What the page counts in SQL is what the judged rows say."""

import sqlite3
from dataclasses import replace

import numpy as np
import page_samples as samples
import pytest

from numerate.experiments import experiments
from numerate.page.cells import Placing, counted_cells, error_metric
from numerate.page.computing import sentence
from numerate.page.index import ALL, SEED, Filter, Index
from numerate.page.site import NotFound, Query, Site
from numerate.page.sizes import Sizes, best_size, spans
from numerate.results import Key, Store
from numerate.results.outcome import judge


@pytest.fixture(scope="module")
def rows():
    return list(samples.table("primer2022/table9", "smoke"))


@pytest.fixture
def index(tmp_path, rows):
    samples.folder(tmp_path, rows)
    index = Index(tmp_path / "results.sqlite")
    index.refresh()
    yield index
    index.close()


def test_counts_are_those_of_the_judged_rows(index, rows):
    for group in index.groups("primer2022/table9", ALL):
        same = [row for row in rows if counted_labels(row) == group.labels]
        assert (group.runs, group.solved) == (len(same), sum(judge(row).solved for row in same))


def counted_labels(row):
    from numerate.results import canonical

    return canonical(row.labels)


def test_filters_take_labels_and_facts_of_runs(index, rows):
    wanted = [row for row in rows if row.labels["unit"] == "NAU" and tuple(row.labels["range"]) == (1.0, 2.0)]
    found = index.groups("primer2022/table9", ALL, [Filter("unit", ("NAU",)), Filter("range", ("[1,2]",))])
    assert sum(group.runs for group in found) == len(wanted) == 2
    assert sum(g.runs for g in index.groups("primer2022/table9", ALL, [Filter(SEED, ("0",))])) == len(rows) / 2
    assert index.groups("primer2022/table9", ALL, [Filter("unit", ("' OR 1=1 --",))]) == []


def test_a_run_without_scores_is_judged_by_its_curves(tmp_path, rows):
    bare = [replace(row, scores={"threshold": row.threshold}) for row in rows]
    samples.folder(tmp_path, bare)
    index = Index(tmp_path / "results.sqlite")
    index.refresh()
    assert sum(g.solved for g in index.groups("primer2022/table9", ALL)) == sum(judge(row).solved for row in bare) > 0
    index.close()


def test_new_runs_are_taken_in_and_removed_ones_left_out(tmp_path, rows):
    path = tmp_path / "results.sqlite"
    index = Index(path)  # before the file is there
    assert not index.refresh()
    assert index.total() == 0
    with Store(path) as store:
        store.add(rows[:5])
        assert index.refresh()
        assert index.total() == 5
        assert not index.refresh()
        store.add(rows[:9])
        assert index.refresh()
        assert index.total() == 9
    db = sqlite3.connect(path)
    db.execute("UPDATE runs SET scores = '{}' WHERE seed = 0")  # no longer as they were written
    db.commit()
    db.close()
    with Store(path) as store:
        dropped = store.drop_damaged(store.keys())
    assert dropped
    index.refresh()
    assert index.total() == 9 - len(dropped)
    index.close()


def test_runs_belong_to_sizes_by_their_keys_whoever_stored_them(tmp_path):
    samples.folder(tmp_path, [*samples.table("primer2022/table9", "smoke"), *samples.own(names=["Mine"])])
    site = Site.of([tmp_path])
    index = site.sources[0].index
    progress = site.progress(index)
    assert progress["primer2022/table9"]["smoke"] == (20, 20)
    assert progress["primer2022"]["smoke"] == (20, 92)  # which holds Table 9
    assert progress["primer2022/table11"] == {"all": (90, 90)}  # one's own are no progress of a size
    assert sum(group.runs for group in index.groups("primer2022/table11", "quick")) == 90
    assert all(group.own for group in index.groups("primer2022/table11", "quick"))
    with pytest.raises(NotFound, match="no size 'large'"):
        site.size(index, "primer2022", "large")
    with pytest.raises(NotFound, match="no runs of 'nothing'"):
        site.size(index, "nothing", "")
    site.close()


def test_labels_place_the_runs_of_an_experiment_of_the_users_own(tmp_path):
    samples.folder(tmp_path, samples.strange())
    index = Index(tmp_path / "results.sqlite")
    index.refresh()
    data = counted_cells(index.groups(samples.HOSTILE, ALL))
    assert sorted(data["series"]) == sorted([samples.HOSTILE, samples.HOSTILE_IMAGE, "=1+1"])
    assert sum(cell["runs"] for cell in data["cells"]) == 9
    index.close()


def test_a_number_alone_has_its_label_before_it():
    placing = Placing.of(
        [{"unit": unit, "task": task, "rate": rate} for unit in "ab" for task in "cde" for rate in (0.003, 0.01)]
    )
    assert placing.place({"unit": "a", "task": "c", "rate": 0.003}) == ("rate 0.003", "a", "c")
    assert placing.place({"unit": "a", "task": "c"}) == ("rate –", "a", "c")


@pytest.mark.parametrize(
    ("most", "end"), [(0.0, 1), (1.71, 2), (0.3, 0.4), (0.5, 0.8), (9.0, 10), (1.0, 1), (47.0, 80)]
)
def test_the_axis_of_an_error_ends_at_a_round_number(most, end):
    assert error_metric("Error", most).limits == pytest.approx((0, end))


def test_an_error_that_is_a_sentence_stands_alone():
    assert sentence(ValueError("the run was stored without its weights")) == "the run was stored without its weights"
    assert sentence(KeyError("unit")) == "KeyError: 'unit'"
    assert sentence(ValueError()) == "ValueError: "


def test_small_parts():
    assert spans([Key("a", seed) for seed in (5, 0, 1, 2)]) == [(0, 2), (5, 5)]
    assert best_size({"smoke": (2, 2), "quick": (10, 10), "paper": (24, 25)}) == "quick"
    assert best_size({"smoke": (1, 2), "paper": (24, 25)}) == "paper"
    assert best_size({}) is None
    query = Query.parse("experiment=zoo&is.unit=NMU&is.unit=NAU&is.range=%5B1%2C2%5D&page=x")
    assert query.filters == (Filter("range", ("[1,2]",)), Filter("unit", ("NMU", "NAU")))
    assert query.number("page") == 0
    assert Query.parse(str(query)) == query


def test_every_experiment_has_its_work_at_every_size():
    sizes = Sizes(experiments("primer2022"))
    assert sizes.totals["primer2022", "paper"] == 5175
    members = [member for member in sizes.members() if member.size == "paper" and member.experiment == "primer2022"]
    assert sum(member.high - member.low + 1 for member in members) == 5175
    assert np.all([member.own is False for member in members])
