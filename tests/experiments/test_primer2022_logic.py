"""The Primer's section 7: logic and comparisons at smoke size, and the models and judgements behind the reports."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.sparse import csgraph
from scipy.stats import binomtest
from torch import Tensor, nn

from numerate.experiments import Options, models, select
from numerate.experiments.experiment import Work
from numerate.experiments.primer2022 import compare, deciding, logic, piecewise, sequences, shortest_path
from numerate.report import Claim
from numerate.results import Row, Store
from numerate.train import Training, train
from numerate.units import After, Growth, Ramp

UNITS = {
    "logic": ("NLRL, AND only, one negation",),
    "compare": ("NSR",),
    "piecewise": ("NSR + NAU",),
    "minimum": ("NSR + NAU",),
    "count": ("NSR + NAU",),
    "shortest-path": ("NSR + NAU",),
    "inalu-function": ("iNALU",),
}


def short_runs(name: str, folder: Path) -> tuple[Work, list[Row]]:
    """A few steps of the first configurations of an experiment."""
    (experiment,) = select([f"primer2022/{name}"])
    work = experiment.work(Options("smoke", seeds=1, units=UNITS[name]))
    few = [replace(training, steps=20, evaluate_every=10, evaluation_size=50) for training in work.trainings[:2]]
    work = replace(work, trainings=tuple(few))
    with Store(folder / "results.sqlite") as store:
        train(work.trainings, store, experiment=experiment.id, backend="stacked", threads=1)
        return work, work.rows_of(store.rows())


@pytest.mark.parametrize(
    "name", ["compare", *(pytest.param(n, marks=pytest.mark.slow) for n in UNITS if n != "compare")]
)
def test_smoke_size_writes_a_page(name: str, tmp_path: Path) -> None:
    work, rows = short_runs(name, tmp_path)
    page = work.experiment.show(work, rows, tmp_path / "page").page.read_text(encoding="utf-8")
    assert "<svg" in page
    assert UNITS[name][0] in page


def test_a_run_is_judged_on_every_length_size_and_graph(tmp_path: Path) -> None:
    work, rows = short_runs("count", tmp_path)
    counted = sequences.compare("count", sequences.judged("count", work, rows))
    assert {(cell.panel, cell.x) for cell in counted.cells} == {
        (f"below {size}", length) for size in ("10", "100", "1,000") for length in (5.0, 20.0)
    }
    assert all(0 <= (cell.measured.ours["accuracy"].value or 0.0) <= 1 for cell in counted.cells)
    work, rows = short_runs("shortest-path", tmp_path)
    paths = shortest_path.compare(shortest_path.judged(work, rows), work.options)
    assert {(cell.panel, cell.x) for cell in paths.cells} == {("to 10", 5.0), ("to 100", 5.0)}


@pytest.mark.parametrize("paths", [1, 3])
def test_models_can_be_the_algorithms(paths: int) -> None:
    """With the weights that solve them, the models give the minimum, the count and the shortest distance."""
    lists = torch.tensor([[5.0, 3.0, 8.0, 3.0], [7.0, 9.0, 6.0, 6.0]])
    kinds: tuple[Any, ...] = (deciding.Fold, deciding.Tally, deciding.Relax)
    fold, tally, relax = (kind(1, 1, paths=paths) for kind in kinds)
    with torch.no_grad():
        for cell in (fold.cell, relax.cell):
            cell.decide.compare_("<")
            cell.yes.weight.copy_(torch.tensor([[1.0, 0.0]]))
            cell.no.weight.copy_(torch.tensor([[0.0, 1.0]]))
        tally.cell.decide.compare_("=")
        tally.cell.add.weight.fill_(1.0)
        relax.message.weight.fill_(1.0)
    assert deciding.rounded(fold)(lists)[:, 0].tolist() == [3, 6]
    assert deciding.rounded(tally)(torch.tensor([[3.0, 5, 3, 3], [1.0, 2, 3, 4]]))[:, 0].tolist() == [2, 0]
    weights = shortest_path.graphs(3, 6, 10)
    found = shortest_path.imitated(deciding.rounded(relax), weights)
    torch.testing.assert_close(found, shortest_path.bellman_ford(weights))


def test_bellman_ford_agrees_with_scipy() -> None:
    weights = shortest_path.graphs(4, 7, 100)
    assert torch.equal(weights, weights.mT)
    for graph, found in zip(weights, shortest_path.bellman_ford(weights)):
        assert found.tolist() == csgraph.bellman_ford(graph.double().numpy(), indices=0).tolist()


def test_rounding_is_kept_only_where_validation_allows() -> None:
    training = next(iter(select(["primer2022/minimum"])[0].work(Options("smoke")).arithmetic.values()))
    model = training.build(0)
    weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    row = Row("", training.description(), 0, weights={"best": weights})
    trained, kept = deciding.kept_rounded(training, row)
    x, y = deciding.drawn(training, training.task, "validation", 0, 1000)
    with torch.no_grad():
        errors = [float(((each(x) - y) ** 2).mean()) for each in (trained, deciding.rounded(trained), kept)]
    assert errors[2] == min(errors[:2])


def solved(rows: int, share: float) -> dict[str, float]:
    return {"threshold": 1.0, "best_test": 0.5 if rows < share * 10 else 2.0, "solved_at": 100.0, "best_sparsity": 0.0}


def test_the_saturation_point_is_where_more_units_make_no_difference() -> None:
    shares = {1: 0.3, 2: 0.5, 4: 0.7, 8: 1.0, 16: 1.0}
    trainings = select(["primer2022/logic"])[0].trainings(Options("quick"))
    rows = [
        Row("", t.description(), seed, t.labels, scores=solved(seed, shares[t.labels["hidden"]]))
        for t in trainings
        for seed in t.seeds
    ]
    first, point, *_ = logic.claims(logic.compare(rows, Options("quick")))
    assert first.holds is True
    assert point.holds is True
    assert "from 8 hidden units on" in point.ours


def test_nothing_is_said_of_redundancy_that_was_not_run() -> None:
    trainings = compare.trainings(Options("smoke"))
    rows = [Row("", t.description(), 0, t.labels, scores=solved(0, 1.0) | {"snapped_test": 0.0}) for t in trainings]
    assert compare.claims(compare.compare(rows, Options("smoke"))) == []


def test_weights_of_another_model_are_refused() -> None:
    training = next(iter(select(["primer2022/minimum"])[0].work(Options("smoke")).arithmetic.values()))
    weights = {"decide.sign": training.build(0).state_dict()["cell.decide.sign"].numpy()}
    with pytest.raises(ValueError, match="are not those of its model"):
        models.trained(training, Row("", training.description(), 0, weights={"best": weights}))


@pytest.mark.parametrize(
    ("four", "eight", "sixteen", "holds"),
    [(50, 75, 74, True), (50, 60, 76, False), (63, 69, 68, None), (790, 792, 792, False)],
)
def test_the_saturation_point_is_told_where_runs_suffice(four: int, eight: int, sixteen: int, holds: Any) -> None:
    runs = 800 if four > 80 else 80
    assert logic._saturates({4.0: (four, runs), 8.0: (eight, runs), 16.0: (sixteen, runs)}) is holds


def quick_runs(name: str, units: tuple[Any, ...] | None = None, seeds: int | None = None) -> list[Row]:
    """A made-up run of every configuration, without scores."""
    work = select([f"primer2022/{name}"])[0].work(Options("quick", seeds, units))
    return [Row("", t.description(), seed, t.labels) for t in work.trainings for seed in t.seeds]


class Least(nn.Module):
    """A user's unit that is exact."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return x.amin(-1, keepdim=True) + 0 * self.idle


def scored(rows: Sequence[Row], wrong: float, label: str, places: dict[str, Sequence[Any]]) -> list[Row]:
    """The runs at every place, each with this share of wrong answers."""
    scores = {"threshold": 0.01, "best_test": wrong, "snapped_test": wrong, "best_validation": wrong}
    scores |= {"solved_at": math.nan, "best_sparsity": 0.0}
    return [
        replace(row, labels={**row.labels, label: place, other: at}, scores=scores)
        for row in rows
        for other, ats in list(places.items())[1:]
        for place in places[label]
        for at in ats
    ]


def list_claims(rows: Sequence[Row], wrong: float, name: str = "minimum") -> list[Claim]:
    places = {"numbers": ["below 10", "below 100"], "length": (5, 20, 100, 500)}
    return sequences.claims(name, sequences.compare(name, scored(rows, wrong, "numbers", places)))


def graph_claims(rows: Sequence[Row], wrong: float) -> list[Claim]:
    places = {"weights": ["to 10", "to 100"], "nodes": (5, 10, 20)}
    return shortest_path.claims(shortest_path.compare(scored(rows, wrong, "weights", places), Options("quick")))


def test_claims_about_the_nsr_are_not_judged_by_a_users_unit() -> None:
    for name, claimed in (("minimum", list_claims), ("shortest-path", graph_claims)):
        rows = quick_runs(name, (Least,))
        assert claimed(rows, 0.0) == []
        ours = quick_runs(name)
        assert claimed(ours, 0.0)
        assert [c.holds for c in claimed(ours, 0.0)] != [c.holds for c in claimed(ours, 1.0)]
    rows = quick_runs("minimum", ("NSR + NAU", Least))
    assert {row.labels["unit"] for row in rows} == {"NSR + NAU", "Least"}
    mixed = [replace(row, scores={}) for row in rows]
    places = {"numbers": ["below 10"], "length": (5, 20, 100, 500)}
    mixed = [
        row
        for unit, wrong in (("NSR + NAU", 1.0), ("Least", 0.0))
        for row in scored([r for r in mixed if r.labels["unit"] == unit], wrong, "numbers", places)
    ]
    first, *_ = sequences.claims("minimum", sequences.compare("minimum", mixed))
    assert first.holds is False
    assert "of NSR + NAU" in first.ours


def test_one_run_refutes_nothing() -> None:
    assert [c.holds for c in list_claims(quick_runs("minimum", seeds=1), 1.0)] == [None, None]
    assert [c.holds for c in list_claims(quick_runs("minimum"), 1.0)] == [False, False]
    assert [c.holds for c in graph_claims(quick_runs("shortest-path", seeds=1), 1.0)] == [None, None, None]


@pytest.mark.parametrize(
    ("seeds", "distance", "jump", "verdicts"),
    [
        (1, 1.0, 1.0, [None, None]),
        (1, 0.0, 0.0, [None, None]),
        (10, 1.0, 1.0, [True, False]),
        (10, 0.0, 0.0, [None, None]),  # none of ten: up to 28 % in truth
        (50, 0.0, 0.0, [False, True]),
        (50, 0.3, 0.3, [None, None]),
    ],
)
def test_a_piecewise_function_is_learnt_where_an_interval_says_so(
    seeds: int, distance: float, jump: float, verdicts: list[Any]
) -> None:
    shares = {"distance": distance, "jump": jump}
    rows = [
        replace(row, scores=solved(10 * row.seed // seeds, shares[str(row.labels["function"])]))
        for row in quick_runs("piecewise", seeds=seeds)
    ]
    assert [c.holds for c in piecewise.claims(piecewise.compare(rows, Options("quick")))] == verdicts


@pytest.mark.parametrize(
    ("seeds", "right", "holds"), [(10, 1.0, True), (1, 1.0, None), (10, 0.9, None), (10, 0.5, False)]
)
def test_comparisons_are_learnt_where_the_interval_of_ten_paths_is_above_nine_in_ten(
    seeds: int, right: float, holds: Any
) -> None:
    rows = [
        replace(row, scores=solved(row.seed, right) | {"snapped_test": 0.0})
        for row in quick_runs("compare", seeds=seeds)
    ]
    first, *_ = compare.claims(compare.compare(rows, Options("quick")))
    assert first.holds is holds


def test_a_network_that_gives_no_number_finds_no_shortest_path() -> None:
    right = shortest_path.bellman_ford(shortest_path.graphs(3, 5, 10))
    assert shortest_path.wrong_share(right, right) == 0
    assert shortest_path.wrong_share(torch.full_like(right, torch.nan), right) == 1
    assert shortest_path.wrong_share(right + torch.tensor([9.0, 0, 1, 0, 0]), right) == 0.25  # the source is given


def test_the_best_run_has_a_validation_error_that_is_a_number() -> None:
    rows = [Row("", {}, seed, scores={"best_validation": error}) for seed, error in enumerate((math.nan, 2.0, 1.0))]
    for order in (rows, rows[::-1]):
        assert min(order, key=deciding.validation_error).seed == 2


@pytest.mark.parametrize("count", [0, 3, 9, 15, 20])
@pytest.mark.parametrize("of", [0, 5, 6, 20])
def test_a_majority_is_told_by_a_sign_test(count: int, of: int) -> None:
    count = min(count, of)
    told = of > 0 and binomtest(count, of).pvalue < 0.05
    assert logic._majority(count, of) is (2 * count > of if told else None)


def test_forms_solved_at_the_same_step_are_no_majority_and_times_give_no_verdict() -> None:
    rows = [replace(row, scores=solved(row.seed, 1.0)) for row in quick_runs("logic")]
    *_, faster, longer = logic.claims(logic.compare(rows, Options("quick")))
    assert faster.holds is None
    assert "solved earlier in 0, at the same step in 40" in faster.ours
    assert longer.holds is None
    assert "no verdict" in longer.ours


def penalty_starts(training: Training) -> list[float]:
    schedules = [penalty.schedule for penalty in training.penalties]
    starts = {Ramp: "start", After: "step", Growth: "every"}
    return [getattr(s, starts[type(s)]) / training.steps for s in schedules if type(s) in starts]


@pytest.mark.parametrize(
    "name",
    [
        "minimum",
        "count",
        "piecewise",
        "shortest-path",
        "inalu-minimal",
        "inalu-function",
        "inalu-initialisation",
        "npu-large",
    ],
)
def test_a_penalty_starts_at_the_same_share_of_a_run_of_any_length(name: str) -> None:
    (experiment,) = select([f"primer2022/{name}"])
    usual, short = (
        [penalty_starts(training) for training in experiment.work(Options("quick", steps=steps)).arithmetic.values()]
        for steps in (None, 10_000)
    )
    assert any(usual)
    assert short == usual


def test_the_redundancy_penalty_starts_at_its_published_step() -> None:
    (experiment,) = select(["primer2022/figure19"])
    (schedule,) = {t.penalties[0].schedule for t in experiment.work(Options("quick", steps=50_000)).arithmetic.values()}
    assert schedule == Ramp(0.01, 50_000, 75_000)
    assert any("whatever --steps is" in reason for reason in experiment.reasons)
