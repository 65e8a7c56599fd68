"""The comparison of recurrent units: equal sizes, ranks, what the page says of known runs, and a cell of one's own."""

import csv
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import memory as benchmark
from torch import nn

from numerate.data import DataError
from numerate.experiments import Options, select
from numerate.experiments.memory import claims, cost, deep, overview, runs, scores, table, units
from numerate.experiments.memory.units import FULL, SMALL, UNITS, equal_size, own_layer, size
from numerate.experiments.running import run
from numerate.recurrent import GRU, LSTM, SLSTM, CellLayer
from numerate.recurrent.gru import GRUCell
from numerate.results import Row
from numerate.tasks import Adding, VariableCopying
from numerate.train.identity import describe

PAPER, QUICK = Options("paper"), Options("quick")


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnCell(GRUCell):
    """A user's own."""


OWN: Any = OwnCell  # a cell is no module: the experiment makes a layer of it


class NoLayer(nn.Linear):
    """Not a recurrent layer."""


def test_every_unit_has_the_same_number_of_parameters_on_every_task():
    options = Options("paper", units=UNITS)
    trainings = [t for t in runs.trainings(options) if t.labels["rate"] == runs.RATES["paper"][0]]
    assert len(trainings) == 10 * len(UNITS)
    sizes = {(t.labels["unit"], t.task.inputs, t.task.outputs): t for t in trainings}
    for name, training in sizes.items():
        assert abs(size(training.build(0)) / FULL.parameters - 1) <= FULL.within, name


class Computed(CellLayer):
    """A user's layer that reads its first weights, which are not there while shapes alone are counted."""

    cell_type = GRUCell

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.scale = float(self.parts()["weight_ih"].abs().max())


def test_sizes_are_counted_without_a_draw_and_where_a_layer_needs_its_weights_with_one():
    state = torch.get_rng_state()
    assert equal_size(Computed, 10, 9) == equal_size(GRU, 10, 9)
    assert torch.equal(torch.get_rng_state(), state)


class Unmakeable(GRU):
    """A user's layer that cannot be made."""

    def __init__(self, *sizes, **options):
        raise KeyError("no such table")


def test_a_layer_that_cannot_be_made_is_named():
    with pytest.raises(
        ValueError, match=r"cannot make Unmakeable of \(inputs, hidden size\) = \(10, 8\): 'no such table'"
    ):
        runs.trainings(Options("smoke", units=(Unmakeable,)))


def two_lines(inputs, hidden):
    raise RuntimeError("no such table:\n  see the file")


def test_the_reason_is_one_sentence_even_if_the_error_has_two_lines():
    with pytest.raises(ValueError, match=r"^cannot make two_lines of .* \(10, 8\): no such table: see the file$"):
        equal_size(partial(own_layer, unit=two_lines), 10, 9)


def fixed(inputs, hidden):
    return LSTM(inputs, 8)


def large(inputs, hidden):
    return LSTM(inputs, 1000)


def rounded_up(inputs, hidden):
    return GRU(inputs, 2 ** (hidden - 1).bit_length())


@pytest.mark.parametrize(
    ("unit", "nearest"),
    [
        (fixed, "1,801, at hidden size"),
        (large, "4,112,649, at hidden size 1$"),
        (rounded_up, "19,337, at hidden size 64$"),
    ],
)
def test_a_unit_that_cannot_have_the_size_is_rejected_with_the_nearest_that_it_can_have(unit, nearest):
    with pytest.raises(
        ValueError,
        match=f"^{unit.__name__} cannot have 24,000 parameters within 2 % with 10 inputs and 9 outputs: the nearest is "
        + nearest,
    ):
        equal_size(partial(own_layer, unit=unit), 10, 9)


def in_fives(inputs, hidden):
    if hidden % 5:
        raise ValueError("five at a time")
    return LSTM(inputs, hidden)


@pytest.mark.parametrize(("unit", "hidden"), [(partial(SLSTM, heads=4), 76), (in_fives, 45)])
def test_sizes_that_cannot_be_made_are_passed_over(unit, hidden):
    assert equal_size(partial(own_layer, unit=unit), 10, 9, SMALL) == hidden


@pytest.mark.parametrize("wanted", [5, 500, 24_000, 1_000_000])
def test_the_search_finds_the_nearest_count_of_all(wanted):
    counts = {hidden: hidden**2 + 7 * hidden for hidden in range(1, 2000) if hidden % 3 != 1}

    class Known(units.Counts):
        def has(self, hidden):
            self.known |= {hidden: counts[hidden]} if hidden in counts else {}
            return hidden in counts

    found = units._nearest(Known(lambda hidden: nn.Module()), wanted)
    assert abs(counts[found] - wanted) == min(abs(count - wanted) for count in counts.values())


def test_data_that_later_tasks_need_are_asked_for_before_the_first_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMERATE_DATA", str(tmp_path))
    trained = []
    with pytest.raises(DataError, match="MNIST is missing"):
        run("memory", Options("paper", seeds=1, units=("GRU",)), out=tmp_path / "out", progress=trained.append)
    assert not trained


def test_rates_have_seeds_of_their_own_and_all_else_is_equal():
    trainings = runs.trainings(PAPER)
    assert [t.labels["task"] for t in trainings[:: 3 * len(runs.DEFAULT["paper"])]][:4] == [
        "copying, T = 100", "selective copying, T = 100", "parity", "adding, T = 200",
    ]  # fmt: skip
    for three in zip(*(trainings[k::3] for k in range(3))):
        assert len({t.form for t in three}) == 1  # one stack on a GPU
        assert [t.optimiser.rate for t in three] == list(runs.RATES["paper"])
        assert sorted(seed for t in three for seed in t.seeds) == list(range(15))
    assert {t.optimiser.clip for t in trainings} == {"norm"}


def test_a_cell_of_ones_own_joins_with_as_many_parameters():
    options = Options("quick", units=("LSTM", OWN, GRU))
    by_unit: dict[str, Any] = {t.labels["unit"]: t for t in select(["memory"])[0].work(options).trainings}
    assert list(by_unit) == ["LSTM", "OwnCell", "numerate.recurrent.gru:GRU"]  # never under a name of ours
    counts = {unit: size(t.build(0)) for unit, t in by_unit.items()}
    assert all(abs(count / 12_000 - 1) < 0.025 for count in counts.values())
    assert isinstance(by_unit["OwnCell"].build(0).layer.cell, OwnCell)
    assert isinstance(by_unit["numerate.recurrent.gru:GRU"].build(0).layer, CellLayer)
    with pytest.raises(ValueError, match=r"or a layer of numerate.recurrent, of .*, got NoLayer"):
        select(["memory"])[0].work(Options("quick", units=(NoLayer,)))


# ---------------------------------------------------------------- what is read off


def known(unit, task, times, rate=1e-3, error: Any = 0.5, threshold=0.01, solved_error=0.001, stored: Any = None):
    """Runs that are solved at given updates, None: not solved; ``stored``: the task, if its kind matters."""
    rows = []
    for seed, at in enumerate(times):
        missed = error[seed] if isinstance(error, list) else error
        found = solved_error if at else missed
        curve = np.array([missed, found])
        row = Row(
            "memory",
            {"unit": unit, "task": {"symbols": 2, "name": task} if stored is None else describe(stored), "rate": rate},
            seed,
            {"unit": unit, "task": task, "rate": rate},
            curves={"steps": np.array([0, 1000]), "validation": curve, "test": curve, "sparsity": curve * 0},
            scores={
                "threshold": threshold,
                "solved_at": at or np.nan,
                "best_test": found,
                "solved": float(bool(at)),
                "parameters": 24_000.0,
            },
        )
        rows.append(row)
    return rows


def test_the_best_rate_has_most_solved_runs_then_the_least_time():
    rows = known("A", "parity", [100, None, None], 1e-3) + known("A", "parity", [500, 700, None], 3e-3)
    rows += known("B", "parity", [90, 90, 90], 1e-3) + known("B", "parity", [80, 80, 90], 3e-3)
    first, second = scores.cells(rows)
    assert (first.rate, first.solved, first.rates) == (3e-3, 2, {1e-3: (1, 3), 3e-3: (2, 3)})
    assert second.rate == 3e-3
    assert first.time.value == 700  # the median over all runs, of which one is never solved
    assert first.success.low == pytest.approx(0.2077, abs=1e-4)  # Wilson's interval of 2 of 3


def test_equals_share_their_places():
    rows = known("A", "parity", [100] * 3) + known("B", "parity", [100] * 3) + known("C", "parity", [None] * 3)
    rows += known("C", "adding", [10] * 3) + known("A", "adding", [20] * 3) + known("B", "adding", [30] * 3)
    found = scores.cells(rows)
    assert scores.ranks(found) == {"parity": {"A": 1.5, "B": 1.5, "C": 3}, "adding": {"C": 1, "A": 2, "B": 3}}
    standing = scores.standings(found)
    assert [(s.unit, s.rank.value, s.solves) for s in standing] == [("A", 1.75, 2), ("C", 2.0, 1), ("B", 2.25, 2)]
    assert {(s.rank.low, s.rank.high) for s in standing} == {(1, 3)}  # cut, as there are three units


def test_units_that_solve_all_runs_in_equal_time_share_a_place_whatever_their_error():
    rows = known("A", "parity", [100] * 3, solved_error=0.001) + known("B", "parity", [100] * 3, solved_error=0.002)
    assert scores.ranks(scores.cells(rows)) == {"parity": {"A": 1.5, "B": 1.5}}


def test_what_is_shown_is_in_the_order_of_the_places():
    rows = known("A", "parity", [100, 200, 900]) + known("B", "parity", [300, 300, 300])  # means: 400 and 300
    rows += known("A", "adding", [None] * 3, error=[0.1, 0.1, 0.5]) + known("B", "adding", [None] * 3, error=0.2)
    found = scores.cells(rows)
    assert scores.ranks(found) == {task: {"A": 1, "B": 2} for task in ("parity", "adding")}
    assert [overview.cell_text(cell) for cell in found] == ["3 of 3\n200", "3 of 3\n300", "20% left", "40% left"]
    whole = table.cells_table(found)
    shown = [dict(zip(whole.header, line)) for line in whole.lines]
    assert [line["updates"] for line in shown] == ["200", "300", "–", "–"]
    assert [line["test error"] for line in shown[2:]] == ["0.100, 20% of guessing", "0.200, 40% of guessing"]


def test_where_half_or_fewer_are_solved_what_is_left_is_shown():
    (cell,) = scores.cells(known("A", "parity", [100, None, None], error=0.3))
    assert overview.cell_text(cell) == "1 of 3\n60% left"
    (half,) = scores.cells(known("A", "parity", [100, None], error=0.299))
    assert overview.cell_text(half) == "1 of 2\n30% left"


@pytest.mark.parametrize("task", [Adding(16, batch_size=2, evaluation_batches=1), VariableCopying(30, 2, 2)])
def test_what_is_left_is_a_share_of_guessing_on_the_test_batches_of_the_run(task):
    assert abs(task.guessing("test") / task.baseline() - 1) > 0.01
    (cell,) = scores.cells(known("A", "of memory", [None] * 3, error=task.guessing("test"), stored=task))
    assert overview.left(cell) == pytest.approx(1)


def test_tasks_without_a_threshold_are_ranked_by_their_error():
    nan = float("nan")
    rows = known("A", "PTB characters", [None] * 2, error=2.2, threshold=nan)
    rows += known("B", "PTB characters", [None] * 2, error=1.9, threshold=nan)
    found = scores.cells(rows)
    assert scores.ranks(found)["PTB characters"] == {"B": 1, "A": 2}
    assert "1.90" in {overview.cell_text(cell) for cell in found}


def of_both(nru: int = 300, ur: Any = 400, linear: Any = None, s6: Any = 500, lru: Any = None):
    """As the papers have it: copying, parity and selective copying."""
    rows = known("NRU", "copying, T = 100", [nru] * 5) + known("JANET", "copying, T = 100", [700] * 5)
    rows += known("LSTM", "copying, T = 100", [None] * 5) + known("GRU", "copying, T = 100", [900] * 5)
    rows += known("UR-LSTM", "copying, T = 100", [ur] * 5) + known("UR-GRU", "copying, T = 100", [800] * 5)
    rows += known("LSTM", "parity", [300] * 5) + known("LRU", "parity", [linear] * 5)
    rows += known("S6", "selective copying, T = 100", [s6] * 5)
    return rows + known("LRU", "selective copying, T = 100", [lru] * 5)


def held(rows, options=PAPER):
    return [claim.holds for claim in claims.both(rows, options)]


@pytest.fixture
def three_tasks(monkeypatch: pytest.MonkeyPatch):
    """The comparison has no more tasks than those of :func:`of_both`."""
    titles = ("copying, T = 100", "parity", "selective copying, T = 100")
    places = [place for place in runs.paper() if place.title in titles]
    monkeypatch.setitem(runs.PLACES, "paper", lambda: places)


def test_runs_of_some_tasks_refute_claims_on_all_and_show_none():
    assert held(of_both()) == [True, True, None, None, None, None]
    assert held(of_both(nru=950))[2] is False


@pytest.mark.usefixtures("three_tasks")
def test_claims_hold_where_runs_say_so_and_fail_where_they_do_not():
    assert held(of_both()) == [True, True, True, True, True, None]
    assert held(of_both(linear=900))[0] is False
    assert held(of_both(lru=900))[1] is False
    assert held(of_both(s6=None))[1] is False
    assert held(of_both(nru=950))[2] is False
    assert held(of_both(ur=None))[3] is None  # neither it nor LSTM solves a run
    assert claims.both(of_both(), Options("smoke")) == []


def test_short_runs_tell_who_tracks_a_state_and_nothing_of_long_memory():
    assert held(of_both(), QUICK) == [True, None, None, None, None, None]
    assert held(of_both(linear=900), QUICK)[0] is False
    (claim, *_) = claims.both(of_both(), QUICK)
    assert claim.ours == (
        "runs solved at the best rate: LSTM 5 of 5, the first at update 300; of 5 linear runs at all rates none in "
        "1,000 updates, with 100% to 100% of the error of guessing left."
    )


def test_what_linear_units_have_left_is_told_of_all_their_runs():
    rows = [*known("LSTM", "parity", [300] * 3), *known("LRU", "parity", [None] * 3, error=[0.3, 0.4, 0.45])]
    rows += known("LRU", "parity", [None] * 3, 3e-3, error=[0.35, 0.46, 0.49])
    assert claims.tracking(scores.cells(rows), "parity").ours.endswith(
        "of 6 linear runs at all rates none in 1,000 updates, with 60% to 98% of the error of guessing left."
    )


def test_the_headline_says_who_tracks_a_state():
    rows = [*of_both(), *known("RNN", "parity", [900, None]), *known("S6", "parity", [None] * 2)]
    assert claims.trackers(scores.cells(rows)) == (  # RNN solves one run of two
        "State tracking is solved in most runs on parity: LSTM; in no run of the linear recurrences LRU, S6."
    )
    rows += [*known("LSTM", "counting mod 3", [300] * 2), *known("RNN", "counting mod 3", [None] * 2)]
    rows += known("GRU", "parity", [900, 800, None])
    assert claims.trackers(scores.cells(rows)) == (
        "State tracking is solved in most runs on parity and counting mod 3: LSTM; on parity: GRU; in no run of the "
        "linear recurrences LRU, S6."
    )
    solved = known("LSTM", "parity", [300] * 3) + known("LRU", "parity", [900, None, None])
    assert claims.trackers(scores.cells(solved)).endswith("; in some run of the linear recurrences LRU.")


def headline(rows):
    found = scores.cells(rows)
    return table.headline(found, scores.standings(found))


def test_the_headline_of_one_task_names_it_once():
    rows = known("LSTM", "parity", [300] * 3) + known("LRU", "parity", [None] * 3)
    assert headline(rows) == (
        "LSTM has the best mean place, 1.0. State tracking is solved in most runs on parity: LSTM; in no run of the "
        "linear recurrences LRU."
    )
    rows = known("NRU", "adding", [300] * 3) + known("GRU", "adding", [400, None, None])
    assert headline(rows) == "NRU has the best mean place, 1.0. Most runs of NRU solve adding."


def test_the_headline_of_some_tasks_counts_those_that_the_best_units_solve():
    rows = known("NRU", "adding", [300] * 3) + known("GRU", "adding", [400] * 3)
    rows += known("NRU", "copying", [300] * 3) + known("GRU", "copying", [None] * 3)
    assert "NRU solves the most tasks, 2 of 2, in most runs." in headline(rows)
    assert "NRU, GRU solve the most tasks, 1 of 1" not in headline(rows)


def test_a_linear_run_at_another_rate_refutes_the_claim_too():
    rows = [*known("LSTM", "parity", [300] * 3), *known("LRU", "parity", [900, None, None], 3e-4)]
    assert claims.tracking(scores.cells(rows), "parity").holds is False
    slow = [*known("LSTM", "parity", [600] * 3), *known("LRU", "parity", [None] * 3)]
    assert claims.tracking(scores.cells(slow), "parity").holds is None  # 1,000 updates are not twice 600
    none = [*known("LSTM", "parity", [None] * 3), *known("LRU", "parity", [None] * 3)]
    assert claims.tracking(scores.cells(none), "parity").holds is None


def test_a_difference_is_one_only_beyond_chance():
    tell = known("UR-LSTM", "adding", [400, 410, 420, 430, 440]) + known("LSTM", "adding", [450, 460, 470, 480, 490])
    assert claims.ahead(scores.cells(tell), "UR-LSTM", "LSTM", True).holds is True
    mixed = known("UR-LSTM", "adding", [400, 410, 420, 430, 490]) + known("LSTM", "adding", [425, 460, 470, 480, 485])
    assert claims.ahead(scores.cells(mixed), "UR-LSTM", "LSTM", True).holds is None
    turned = known("LSTM", "adding", [400, 410, 420, 430, 440]) + known("UR-LSTM", "adding", [None] * 5)
    assert claims.ahead(scores.cells(turned), "UR-LSTM", "LSTM", True).holds is False


@pytest.mark.parametrize(("newer", "holds"), [(100, True), (900, False), (None, None)], ids=str)
def test_newer_units_overtake_by_their_places(newer, holds):
    rows = []
    for k, task in enumerate(("adding", "copying", "denoising", "variable copying")):
        own = newer or (100, 900, 900, 100)[k]
        rows += known("NRU", task, [300] * 3) + known("UR-LSTM", task, [400] * 3) + known("S6", task, [own] * 3)
        rows += known("GRU", task, [(200, 350, 200, 350)[k]] * 3)
    assert claims.overtaken(scores.cells(rows), True).holds is holds


def test_costs_are_drawn_for_every_machine():
    found = [
        cost.Cost(machine, unit, length, 8, 10.0 * k, 2.0)
        for machine in ("one core", "a GPU")
        for k, unit in enumerate(("LSTM", "S6"), 1)
        for length in (64, 256)
    ]
    (picture,) = cost.cost_pictures(found)
    titles = [ax.get_title(loc="left") for ax in picture.figure.axes]
    assert titles == ["one core, batch 8", "a GPU, batch 8", "memory for the backward pass"]
    assert cost.cost_pictures([]) == []
    for stored in cost.costs():  # what the package brings
        assert stored.unit in UNITS
        assert min(stored.microseconds, stored.kilobytes) > 0


def test_lines_that_end_together_share_a_label_and_diagonal_ones_never_do():
    ends = {"LSTM": 2.0, "GRU": 2.02, "NRU": 2.04, "UR-LSTM": 2.03, "S5": 2.01, "EURNN": 9.0, "RNN": 1.0, "IRNN": 1.01}
    found = [cost.Cost("a GPU", unit, length, 8, end, 2.0) for unit, end in ends.items() for length in (64, 256)]
    (picture,) = cost.cost_pictures(found)
    labels = {text.get_text() for text in picture.figure.axes[0].texts}
    assert labels == {"S5", "EURNN", "RNN, IRNN", "LSTM, GRU, 2 more"}


def test_the_benchmark_of_a_unit_that_there_is_not_is_rejected(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["memory", "--only", "FOO"])
    with pytest.raises(SystemExit) as stopped:
        benchmark.main()
    assert stopped.value.code == 2
    assert "argument --only: invalid choice: 'FOO'" in capsys.readouterr().err


def test_a_smoke_run_writes_the_page(tmp_path):
    shown = run("memory", Options("smoke", units=("LSTM",)), tmp_path)
    page = shown.page.read_text()
    assert "<h1>Old and new recurrences under one protocol (smoke:" in page
    assert (tmp_path / "memory" / "overview.svg").exists()
    with (tmp_path / "memory" / "table2.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["task"] for line in lines] == [place.title for place in runs.smoke()]
    assert all(abs(int(line["parameters"].replace(",", "")) / 12_000 - 1) < 0.025 for line in lines)


def test_the_rate_of_deep_stacks_rises_and_falls():
    schedule = deep.WarmCosine(10, 110)
    factors = schedule(torch.tensor([0.0, 9.0, 60.0, 110.0]))
    torch.testing.assert_close(factors, torch.tensor([0.1, 1.0, 0.5, 0.0]))


def test_deep_stacks_take_other_layers():
    options = Options("quick", units=("S5", OWN))
    built: dict[str, Any] = {t.labels["unit"]: t.build(0) for t in select(["memory/deep"])[0].work(options).trainings}
    assert [len(model.blocks) for model in built.values()] == [4, 4]
    assert isinstance(built["OwnCell"].blocks[0].layer.cell, OwnCell)


def test_deep_stacks_are_held_against_published_accuracies():
    rows = [
        Row(unit, {}, 0, labels={"unit": unit}, scores={"best_test": error})
        for unit, error in (("S5", 0.02), ("S4D", 0.04))
    ]
    assert [claim.holds for claim in deep.claims(rows, PAPER)] == [True, False]
    assert [claim.holds for claim in deep.claims(rows[1:], PAPER)] == [None, False]
    assert deep.claims(rows, QUICK) == []
