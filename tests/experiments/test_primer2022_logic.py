"""The Primer's section 7: logic and comparisons at smoke size, and the models and judgements behind the reports."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.sparse import csgraph

from numerate.experiments import Options, models, select
from numerate.experiments.experiment import Work
from numerate.experiments.primer2022 import compare, deciding, logic, sequences, shortest_path
from numerate.results import Row, Store
from numerate.train import train

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
