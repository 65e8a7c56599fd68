"""The page shows every experiment there is, from the first run on."""

from urllib.parse import urlencode

import page_samples as samples
import pytest

from numerate.experiments import Experiment, Options, experiments, select
from numerate.experiments.pages import ComparisonPage, PicturePage
from numerate.page import start as start_page
from numerate.page.experiment import experiment
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
