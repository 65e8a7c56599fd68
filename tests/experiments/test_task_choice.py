"""Which tasks a command names."""

import pytest

from numerate.experiments import Options, experiments, run, select
from numerate.experiments.running import complete_work
from numerate.experiments.task_choice import resolve_tasks

TITLES = ("copying, T = 100", "selective copying, T = 100", "parity", "copying, T = 500")


@pytest.mark.parametrize(
    ("typed", "tasks"),
    [
        (["parity"], ("parity",)),
        (["Parity; copying,T=100"], ("copying, T = 100", "parity")),
        (["copying, T = 500,parity"], ("parity", "copying, T = 500")),
        (["copying"], ("copying, T = 100", "copying, T = 500")),
        (["selective copying", "parity"], ("selective copying, T = 100", "parity")),
        (["copying, T = 100; copying"], ("copying, T = 100", "copying, T = 500")),
    ],
)
def test_a_task_goes_by_its_title_or_by_what_stands_before_its_comma(typed, tasks):
    assert resolve_tasks(typed, TITLES, "memory at size paper") == tasks


def test_other_tasks_are_refused_and_the_known_ones_named():
    with pytest.raises(
        ValueError,
        match=r"task 'adding' is not part of memory at size paper; allowed are copying, T = 100; selective copying",
    ):
        resolve_tasks(["parity, adding"], TITLES, "memory at size paper")
    with pytest.raises(ValueError, match="no tasks are named"):
        Options(tasks=(" ; ",))


def test_only_runs_of_the_tasks_asked_for_are_trained_and_they_are_those_of_the_whole(tmp_path):
    (memory,) = select(["memory"])
    whole, some = memory.work(Options("paper")), memory.work(Options("paper", tasks=("counting mod 5, parity",)))
    assert some.options.tasks == ("parity", "counting mod 5")
    assert {t.labels["task"] for t in some.trainings} == {"parity", "counting mod 5"}
    assert len(some.keys) * 10 == len(whole.keys) * 2  # ten tasks of equally many runs
    assert set(some.keys) < set(whole.keys)


def test_tasks_of_experiments_on_numbers_are_chosen_likewise():
    work = select(["zoo"])[0].work(Options("quick", units=("NMU",), tasks=("single module",)))
    assert {t.labels["task"] for t in work.trainings} == {f"Single module, {n} inputs" for n in (2, 10, 100)}


def test_a_report_of_one_task_has_the_command_that_repeats_it(tmp_path):
    options = Options("smoke", units=("LSTM",), tasks=("parity",))
    text = run("memory", options, tmp_path).page.read_text(encoding="utf-8")
    assert "only LSTM, only parity" in text
    assert "numerate run memory --size smoke --units LSTM --tasks parity" in text


def test_a_report_without_a_size_passes_over_sizes_that_lack_the_task(tmp_path):
    """Counting mod 5 is a task of the paper size alone; copying over 12 steps of smoke alone."""
    (memory,) = select(["memory"])
    run("memory", Options("smoke", units=("LSTM",), tasks=("copying",)), tmp_path)
    size = complete_work(memory, Options(units=("LSTM",), tasks=("copying, T = 12",)), tmp_path).options.size
    assert size == "smoke"
    assert complete_work(memory, Options(tasks=("counting mod 5",)), tmp_path).options.size == "paper"
    with pytest.raises(ValueError, match="task 'nosuch' is not part of memory at size paper"):
        complete_work(memory, Options(tasks=("nosuch",)), tmp_path)


@pytest.mark.parametrize("name", ["primer2022/table9", "ur2020/table4"])
def test_an_experiment_of_one_task_has_no_choice(name):
    with pytest.raises(ValueError, match=f"{name} at size quick has no choice of tasks; leave --tasks out"):
        experiments()[name].work(Options(tasks=("parity",)))


def test_the_only_task_may_be_named():
    (figure1,) = select(["nru2019/figure1"])
    assert figure1.work(Options(tasks=("copying, T = 100",))).keys == figure1.work(Options()).keys


def test_tasks_and_units_are_chosen_together():
    """The units of this table have tasks of their own: those of an LSTM, and of a GRU."""
    (table5,) = select(["ur2020/table5"])
    work = table5.work(Options(units=("UR-GRU",), tasks=("sCIFAR",)))
    assert {t.labels["unit"] for t in work.trainings} == {"UR-GRU"}
    assert all("sCIFAR" in str(t.labels["task"]) for t in work.trainings)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (Options("quick", tasks=("adding",)), "adding"),
        (Options("paper", tasks=("adding",)), "adding"),
        (Options("smoke", tasks=("copying",)), "copying"),
    ],
)
def test_some_tasks_are_compared_with_the_same_of_the_published_size(options, kind):
    published = select(["memory"])[0].work(options).published
    assert {str(t.labels["task"]).partition(",")[0] for t in published} == {kind}
