"""The figures of nau2020: every one at smoke size, and the facts behind the pictures."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from numerate.experiments import Options, select
from numerate.experiments.nau2020 import figure2, figure7, figure8, figure10, moments
from numerate.report import Comparison, Layout, Notes, comparison
from numerate.results import Row, Store
from numerate.train import train
from numerate.units import NAU, NMU, parameter_bounds

SMOKE = Options("smoke")
TRAINED = ["nau2020/figure7", "nau2020/figure8", "nau2020/figure10", "nau2020/figure11", "nau2020/figure12"]
DRAWN = ["nau2020/figure2", "nau2020/moments"]


@pytest.mark.parametrize("name", [*DRAWN, *TRAINED])
def test_smoke_size_writes_a_page_and_pictures(name: str, tmp_path: Path) -> None:
    (experiment,) = select([name])
    rows: list[Row] = []
    work = experiment.work(SMOKE)
    if work.trainings:
        with Store(tmp_path / "results.sqlite") as store:
            train(work.trainings, store, experiment=name, threads=1)
            rows = work.rows_of(store.rows())
        assert len(rows) == len(work.keys)
    shown = experiment.show(work, rows, tmp_path / "page")
    page = shown.page.read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert list((tmp_path / "page").glob("*.png"))
    assert re.search(r"<h1>[^<]*\(smoke: ", page)
    assert "<li>Size smoke: " in page


def test_loss_surface_has_its_solution_at_one_and_explodes_for_nac() -> None:
    weights, found = figure2.losses(31)
    one = int(np.argmin(abs(weights - 1)))
    assert weights[one] == pytest.approx(1)
    for name, loss in found.items():
        if name != "NAC•, ε = 1":  # a large ε moves the solution away from one
            assert loss[one, one] < (0.9 if name == "NAC•, ε = 0.1" else 1e-4)
    assert found["NAC•, ε = 10⁻⁷"].max() > 1e15
    inside = found["NMU"][np.ix_((weights >= 0) & (weights <= 1), abs(weights) <= 1)]
    assert inside.max() < 2 * 2.2 * 6  # within its bounds NMU is never off by more than twice the target


@pytest.mark.parametrize("inputs", moments.INPUTS, ids=lambda inputs: inputs.name)
@pytest.mark.parametrize("unit", ["NAC+", "NMU"])
def test_exact_moments_agree_with_monte_carlo(unit: str, inputs: moments.Inputs) -> None:
    closed = moments.exact(unit, 4, inputs)
    assert closed is not None
    for value, (estimate, error) in zip(closed, moments.simulated(unit, 4, inputs, 40_000)):
        assert abs(estimate - value) < 5 * error + 1e-12


def test_prediction_for_nmu_holds_for_centred_inputs_and_fails_for_the_tasks() -> None:
    centred, task = moments.INPUTS
    assert moments.predicted("NMU", 8, centred) == pytest.approx(moments.exact("NMU", 8, centred))
    assert moments.predicted("NMU", 8, centred)[0] == 2.0**-8
    exact = moments.exact("NMU", 8, task)
    assert exact is not None
    assert exact[0] == pytest.approx(1.25**8)
    assert moments.fails(moments.predicted("NMU", 8, task)[0], exact[0], 0.0)


def test_predicted_variance_of_nac_mul_is_negative_for_centred_inputs() -> None:
    assert moments.predicted("NAC•", 4, moments.INPUTS[0])[1] < 0
    assert moments.predicted("NAC•", 4, moments.INPUTS[1])[1] > 0


def test_free_weights_are_clamped_in_the_equation_and_have_no_gradient_outside() -> None:
    x = torch.tensor([[2.0, 3.0]])
    for unit, inside, outside in ((NAU, 1.0, 1.7), (NMU, 1.0, 1.7)):
        free, bound = unit(2, 1, clip="forward"), unit(2, 1)
        assert parameter_bounds(free) == {}
        assert set(parameter_bounds(bound)) == {"weight"}
        for each, value in ((free, outside), (bound, inside)):
            torch.nn.init.constant_(each.weight, value)
        assert free(x).item() == bound(x).item()
        free(x).sum().backward()
        assert free.weight.grad is not None
        assert not free.weight.grad.any()
        assert free.penalty().item() == pytest.approx(0.7)  # the penalty sees the weight as it is


def test_ablation_differs_in_penalty_and_bounds_alone() -> None:
    made = figure7.ablations(1, 3)
    assert [len(recipe.penalties) for recipe in made.values()] == [1, 0, 1, 0]
    assert [len(parameter_bounds(recipe.model(4, 1))) for recipe in made.values()] == [2, 2, 0, 0]


def test_default_values_belong_to_every_panel_of_figure8_and_are_trained_once() -> None:
    work = figure8.trainings(Options("quick"))
    keys = [key for each in work for key in each.run_keys()]
    assert len(set(keys)) == len(keys) - 2 * 4 * 10  # four models at the defaults serve three panels
    assert {each.labels["unit"] for each in figure8.trainings(Options("paper"))} == set(figure8.MODELS)
    assert {each.labels["parameter"] for each in work} == set(figure8.TITLES)
    assert [figure8.millions(n) for n in (100, 125, 200, 300)] == [5, 10, 10, 15]


def test_paper_size_is_the_published_setting() -> None:
    work = figure10.trainings("12", Options("paper"))
    assert [each.penalties[0].schedule.scale for each in work] == [0, 0.01, 0.1, 1, 10, 100]  # type: ignore[attr-defined]
    assert {(e.steps, len(e.seeds), e.task.inputs) for e in work} == {(5_000_000, 50, 100)}
    schedules = [each.penalties[0].schedule for each in figure10.trainings("10", Options("quick"))]
    assert {(s.start, s.end) for s in schedules} == {(5_000, 50_000)}  # type: ignore[attr-defined]


@pytest.mark.parametrize(("size", "holds"), [("quick", None), ("paper", False)])
def test_figure_12_gives_a_verdict_at_paper_size_alone(
    size: str, holds: bool | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The shortened penalty of quick runs sets in too early to tell which strength is best."""
    told: list[Notes] = []

    def write(compared: Comparison, folder: Path, notes: Notes) -> dict[str, Path]:
        told.append(notes)
        return {"report": folder}

    monkeypatch.setattr("numerate.report.write_report", write)
    (experiment,) = select(["nau2020/figure12"])
    work = experiment.work(Options(size, seeds=5))  # type: ignore[arg-type]
    scores = {"threshold": 1.0, "best_validation": 0.5, "solved_at": math.nan, "best_sparsity": 0.0}
    rows = [
        Row(
            "",
            t.description(),
            seed,
            t.labels,
            scores={**scores, "best_test": 0.5 if t.labels["strength"] == 0 else 2.0},
        )
        for t in work.trainings
        for seed in t.seeds
    ]
    experiment.show(work, rows, tmp_path)
    assert [claim.holds for claim in told[0].claims] == [holds]


def test_panels_have_their_own_values() -> None:
    labels = [{"unit": "NMU", "parameter": p, "value": v} for p, v in (("a", 1), ("a", 2), ("b", 0.5))]
    scores = {"threshold": 1.0, "best_test": 0.5, "best_validation": 0.5, "solved_at": math.nan, "best_sparsity": 0.0}
    rows = [Row("", {"n": i}, 0, label, scores=scores) for i, label in enumerate(labels)]
    found = comparison(rows, title="t", layout=Layout(panel="parameter", x="value", joined=True))
    assert found.xs_of("a") == (1.0, 2.0)
    assert found.xs_of("b") == (0.5,)
