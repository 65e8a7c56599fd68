"""The page shows every experiment there is, from the first run on."""

from urllib.parse import urlencode

import page_samples as samples
import pytest

from numerate.experiments import Experiment, Options, experiments, select
from numerate.experiments.nru2019 import units as nru2019
from numerate.experiments.pages import ComparisonPage, PicturePage
from numerate.page import start as start_page
from numerate.page.experiment import as_drawn, experiment
from numerate.page.leaderboard import leaderboard
from numerate.page.run import run
from numerate.page.runs import runs
from numerate.page.site import Query, Site, Source
from numerate.page.sizes import Sizes
from numerate.report import figures

TRAINED = [id for id, each in experiments().items() if each.work(Options(size="smoke")).keys]


def some_rows(id, most):
    """A few runs of an experiment at smoke size, spread over its configurations."""
    work = experiments()[id].work(Options(size="smoke"))
    runs = [(training, key.seed) for training, keys in zip(work.trainings, work.run_keys) for key in keys]
    return [samples.untrained(training, seed, id) for training, seed in runs[:: max(1, len(runs) // most)]]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """One run of every experiment, and of some a few; all from the start of training."""
    rows = [row for id in TRAINED for row in some_rows(id, 3 if id in ("zoo", "primer2022/appendix-e") else 1)]
    site = Site.of([samples.folder(tmp_path_factory.mktemp("all"), list({row.key: row for row in rows}.values()))])
    yield site
    site.close()


def view(site, id, size="smoke"):
    return experiment(site, Query.parse(urlencode({"experiment": id, "size": size})), True)


def test_every_experiment_is_of_a_kind_that_the_page_can_show():
    kinds = {id: type(each.show) for id, each in experiments().items()}
    assert set(kinds.values()) == {ComparisonPage, PicturePage}, kinds


@pytest.mark.parametrize("id", TRAINED)
def test_one_run_is_enough_to_show_an_experiment(site, id, monkeypatch):
    monkeypatch.setattr(figures, "svg", lambda figure, label: "<svg >")  # figures are laid out, not written
    shown = view(site, id)
    assert (shown["error"], shown["pending"]) == ("", "")
    assert shown["cells"]
    if isinstance(experiments()[id].show, PicturePage):
        assert shown["pictures"]


def test_every_card_has_a_picture(site):
    cards = start_page.start(site, Query())["cards"]
    assert {card["id"] for card in cards} == set(experiments())
    assert [card["id"] for card in cards if not card["maps"] and not card["picture"]] == []


def test_without_a_finished_run_there_is_nothing_to_draw_and_nothing_pending(site):
    for id in ("ur2020/table2", "primer2022/table11"):
        shown = view(site, id, "paper")
        assert (shown["error"], shown["pending"], shown["cells"]) == ("", "", [])


def first_run(site, id):
    (key,) = [run["key"] for run in runs(site, Query.parse(urlencode({"experiment": id, "size": "smoke"})))["runs"][:1]]
    return run(site, Query.parse(f"key={key}"), True)


def test_without_a_criterion_of_success_there_is_an_error_and_no_rate(site):
    shown = view(site, "nru2019/table2")
    assert [(metric["title"], metric["map"]) for metric in shown["metrics"]] == [("Bits per character", False)]
    (cell,) = shown["cells"]
    assert (cell["criterion"], cell["values"]["test_error"]["ours"]["text"]) == (False, "0.5")
    query = Query.parse(urlencode({"experiment": "nru2019/table2", "size": "smoke"}))
    found = runs(site, query)
    assert (found["judged"], found["total"], found["test_title"]) == (0, 1, "bits per character")
    assert leaderboard(site, query)["units"] == []
    assert dict(first_run(site, "nru2019/table2")["facts"])["outcome"].startswith("not judged")


def test_tasks_with_and_without_a_criterion_stand_apart(site):
    shown = view(site, "nru2019/table1")
    assert [metric["name"] for metric in shown["metrics"]] == ["success_rate", "solved_at_mean", "test_error"]
    with_rate = {cell["x"] for cell in shown["cells"] if cell["values"].get("success_rate", {}).get("ours")}
    with_error = {cell["x"] for cell in shown["cells"] if cell["values"].get("test_error")}
    assert with_rate
    assert with_error
    assert not with_rate & with_error


def test_a_run_shows_no_number_that_is_none_and_no_formula_that_is_none(site):
    shown = first_run(site, "nru2019/figure1")
    names = [name for name, _ in shown["facts"]]
    assert "solved at" not in names
    assert "solved" not in names
    assert "best test" in names
    assert shown["formula"] == {"text": "", "math": []}


def test_marks_have_the_colours_of_the_pictures_above_them(site):
    shown = view(site, "nru2019/figure1")
    places = dict(zip(nru2019.UNITS, figures.COLOURS))
    assert {name: look["colour"] for name, look in shown["looks"].items()} == {n: places[n] for n in shown["series"]}


def test_a_series_that_no_picture_has_gets_a_colour_that_is_left():
    looks = {"a": {"colour": "red"}, "b": {"colour": "red"}}
    blue, orange = figures.COLOURS[:2]
    assert as_drawn(looks, {"a": blue, "guessing": orange}) == {"a": {"colour": blue}, "b": {"colour": orange}}
    assert as_drawn(looks, {"guessing": blue}) == looks


def test_a_report_that_only_the_experiment_can_write_leaves_the_page_its_counts(tmp_path):
    """Of an experiment whose ``show`` is a function of its own, the page shows how often runs were solved."""
    (known,) = select(["primer2022/table11"])
    own = Experiment("mine", "Mine", known.trainings, lambda work, rows, folder: pytest.fail("the page writes nothing"))
    training = known.work(Options(size="smoke")).trainings[0]
    samples.folder(tmp_path, [samples.finished(training, 0, "mine", solved=True)])
    site = Site([Source(tmp_path)], Sizes({"mine": own}))
    try:
        site.sources[0].index.add_members(site.sizes.members())
        site.refresh()
        shown = view(site, "mine")
        assert (shown["error"], shown["pending"], len(shown["cells"])) == ("", "", 1)
        (card,) = start_page.start(site, Query())["cards"]
        assert (card["picture"], len(card["maps"])) == ("", 1)
    finally:
        site.close()
