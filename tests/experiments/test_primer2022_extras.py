"""The Primer's figures and the experiments it tells of: every one at smoke size, and the facts behind them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from numerate import published
from numerate.experiments import Options, select
from numerate.experiments.kinds import shown_kinds
from numerate.experiments.primer2022 import redundancy, shapes, sir
from numerate.loops.cpp.loop import source
from numerate.report.single import learnt_formula
from numerate.results import Row, Store
from numerate.tasks import DistributedArithmetic, Distribution, FractionalSIR, LargeScale
from numerate.tasks.distributions import inverse_erf
from numerate.train import train
from numerate.train.kinds import Maker
from numerate.train.stack import make_step
from numerate.units import formula

SMOKE = Options("smoke")
NAMES = [
    "figure10", "figure11", "figure18", "figure19", "figure20", "inalu-minimal", "inalu-magnitude", "inalu-simple",
    pytest.param("npu-large", marks=pytest.mark.slow),
]  # fmt: skip


def run(name: str, folder: Path) -> tuple[list[Row], str]:
    """Finished runs and the page of an experiment at smoke size."""
    (experiment,) = select([name])
    rows: list[Row] = []
    work = experiment.work(SMOKE)
    if work.trainings:
        with Store(folder / "results.sqlite") as store:
            train(work.trainings, store, experiment=name, threads=1)
            rows = work.rows_of(store.rows())
        assert len(rows) == len(work.keys)
    shown = experiment.show(work, rows, folder / "page")
    assert list((folder / "page").glob("*.png"))
    return rows, shown.page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_smoke_size_writes_a_page_and_pictures(name: str, tmp_path: Path) -> None:
    _, page = run(f"primer2022/{name}", tmp_path)
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")


def test_the_epidemics_equation_is_found(tmp_path: Path) -> None:
    rows, page = run("primer2022/npu-sir", tmp_path)
    task = FractionalSIR()
    best = min(rows, key=lambda row: row.scores["best_validation"])
    powers, factors = sir.polish(best.weights["best"], task)
    assert sir.error(powers, factors, task) < 1e-9
    text = " ".join(sir.equations(powers, factors))
    for term in ("0.06 S^0.50 I^0.50", "0.05 I", "0.01 R"):
        assert term in text
        assert term in page


def test_no_equation_is_made_of_a_unit_of_ones_own() -> None:
    """Its weights may have any names and sizes; they are not powers and factors."""
    weights = {"0.weight": np.ones((4, 3)), "1.weight": np.ones((3, 4))}
    scores = {"best_validation": 2.0, "best_test": 3.0}
    labels = {"unit": "Mine", "operation": "SIR"}
    page = sir.draw([Row("", {}, 0, labels, weights={"best": weights}, scores=scores)], SMOKE)
    assert page.tables[0].lines[0] == ["Mine", "1", "3", "–", "–", "–"]
    assert "finds" not in page.headline


def test_the_formula_of_an_epidemics_run_is_shown() -> None:
    (training,) = select(["primer2022/npu-sir"])[0].trainings(SMOKE)
    model = training.build(0)
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    row = Row("", training.description(), 0, weights={"best": weights})
    assert learnt_formula(row, Maker(shown_kinds())) == str(formula(model))


def test_the_steepest_slope_of_a_weight_is_that_of_its_equation() -> None:
    """At Ŵ = 0 the slope of tanh is 1, and σ is largest at the edge, M̂ = 10; base φ scales both arguments by ln φ."""
    log_phi = math.log((1 + math.sqrt(5)) / 2)
    for weight, scale in zip(shapes.WEIGHTS.values(), (1.0, log_phi)):
        assert shapes.steepest(weight) == pytest.approx(scale / (1 + math.exp(-10 * scale)), rel=1e-6)


def test_regularisers_are_zero_where_weights_are_discrete() -> None:
    found = shapes.shapes(301)
    at = lambda panel, name, x: float(np.interp(x, found[panel][0], found[panel][1][name]))  # noqa: E731
    for x, nau, nmu in ((-1, 0, 1), (-0.5, 0.5, 0.5), (0, 0, 0), (0.5, 0.5, 0.5), (1, 0, 0), (1.25, 0.25, 0.25)):
        assert at("weight", "NAU", x) == pytest.approx(nau, abs=1e-9)
        assert at("weight", "NMU", x) == pytest.approx(nmu, abs=1e-9)
    for t, scale in ((3, 0), (4, 0), (5, 0.5), (6, 1), (9, 1)):
        assert at("step", "λ̂ = 1, from 4 to 6", t) == pytest.approx(scale, abs=1e-9)
    for p, penalty in ((-25, 0), (-20, 0), (0, 20), (5, 15), (20, 0)):
        assert at("parameter", "iNALU, t = 20", p) == pytest.approx(penalty, abs=1e-9)


def test_weight_surfaces_are_tanh_times_sigmoid_in_both_bases() -> None:
    axis, found = shapes.weights(41)
    w, m = axis[30], axis[25]
    phi = (1 + math.sqrt(5)) / 2
    assert found["NALU, base e"][25, 30] == pytest.approx(math.tanh(w) / (1 + math.exp(-m)))
    golden = (phi ** (2 * w) - 1) / (phi ** (2 * w) + 1) / (1 + phi**-m)
    assert found["G-NALU, base φ"][25, 30] == pytest.approx(golden)


def test_redundancy_runs_have_the_scripts_settings() -> None:
    work = redundancy.trainings("20", Options("paper"))
    assert {(e.steps, len(e.seeds), e.task.inputs) for e in work} == {(100_000, 25, 100)}
    assert len(work) == 9
    inalu = redundancy.trainings("18", Options("quick"))
    assert {(e.steps, e.penalties[0].schedule.step) for e in inalu} == {(50_000, 10_000)}  # type: ignore[attr-defined]
    schedule = work[0].penalties[0].schedule
    assert (schedule.scale, schedule.start, schedule.end) == (0.01, 50_000, 75_000)  # type: ignore[attr-defined]


def test_inverse_error_function_is_that_of_torch() -> None:
    x = torch.linspace(-0.9973, 0.9973, 20_000)
    torch.testing.assert_close(inverse_erf(x), torch.erfinv(x.double()).float(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("distribution", "mean", "deviation", "low", "high"),
    [
        (Distribution("uniform", -1, 1), 0, 1 / math.sqrt(3), -1, 1),
        (Distribution("normal", -2, 4), 1, 0.98658, -2, 4),
        (Distribution("exponential", 0, 0.2), 0.2, 0.2, 0, math.inf),
    ],
    ids=lambda value: value.name if isinstance(value, Distribution) else "",
)
def test_distributions_have_their_moments(
    distribution: Distribution, mean: float, deviation: float, low: float, high: float
) -> None:
    uniforms = (torch.arange(200_000) + 0.5) / 200_000
    x = distribution.sample(uniforms, distribution.constants())
    assert x.mean().item() == pytest.approx(mean, abs=1e-3)
    assert x.std().item() == pytest.approx(deviation, rel=2e-3)
    assert low <= x.min().item() <= x.max().item() <= high


def test_two_inputs_matter_wherever_they_are() -> None:
    task = DistributedArithmetic("mul", Distribution("normal", -3, 3), Distribution("normal", 8, 10), inputs=10)
    for seed in range(4):
        constants = task.constants(seed, "test")
        x, y = task.examples(torch.rand(50, 10), constants)
        first, second = constants["members"].argmax(0).tolist()
        assert second == first + 1
        torch.testing.assert_close(y[:, 0], x[:, first] * x[:, second])
        assert 8 <= x.min() <= x.max() <= 10
    assert task.threshold() == 1e-5


@pytest.mark.parametrize("kind", ["gamma", ""])
def test_unknown_distribution_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="kind must be one of"):
        Distribution(kind, 0, 1)


def test_inputs_are_sobols_points_digitally_shifted_for_each_run() -> None:
    task = LargeScale("add")
    uniforms = (torch.arange(4096).unsqueeze(-1) + 0.5) / 4096
    constants = task.constants(3, "train")
    still = constants | {"shift": torch.zeros_like(constants["shift"])}
    x, _ = task.examples(uniforms, still)
    sobol = torch.quasirandom.SobolEngine(100).draw(4096)
    gray = torch.arange(4096) ^ (torch.arange(4096) >> 1)
    torch.testing.assert_close((x[gray] + 1) / 2, torch.floor(sobol * 4096) / 4096, rtol=0, atol=0)

    x, y = task.examples(uniforms, constants)
    counts = torch.stack([torch.histc(column, 64, -1, 1) for column in x.T])
    assert (counts == 64).all()  # every input by itself still fills its range evenly
    torch.testing.assert_close(y[:, 0], x[:, :50].sum(-1) + x[:, 38:88].sum(-1), rtol=1e-4, atol=1e-4)
    assert not torch.equal(constants["shift"], task.constants(4, "train")["shift"])
    assert not torch.equal(constants["shift"], task.constants(3, "test")["shift"])


def test_large_scale_functions_follow_the_table() -> None:
    u = torch.rand(100, 1)
    for operation, function in (("inverse", lambda a: 1 / a), ("sqrt", torch.sqrt)):
        x, y = LargeScale(operation).examples(u, LargeScale(operation).constants(0, "train"))
        torch.testing.assert_close(y[:, 0], function(x[:, :50].sum(-1)))
    assert LargeScale("inverse").span("test") == (-0.5, 0.5)
    with pytest.raises(ValueError, match="do not fit"):
        LargeScale("add", inputs=10)
    assert len(published.cells(paper="npu2020")) == 4 * 5


def test_epidemic_conserves_people_and_slopes_are_its_derivatives() -> None:
    task = FractionalSIR()
    for split in ("train", "test"):
        states, slopes = task.seen(split)
        totals = states.sum(-1).reshape(-1, task.days // task.every)
        np.testing.assert_allclose(totals, totals[:, :1].repeat(totals.shape[1], 1), rtol=1e-9)
        np.testing.assert_allclose(slopes, task.slope(states), atol=2e-5)
    x, y = task.examples(torch.rand(300, 1), task.constants(0, "train"))
    np.testing.assert_allclose(y.numpy(), task.slope(x.double().numpy()), atol=1e-4)


def test_the_large_scale_task_has_a_native_loop() -> None:
    training = next(iter(select(["primer2022/npu-large"])[0].work(Options(size="smoke")).arithmetic.values()))
    assert "evaluate" in source(make_step(training)[0])


@pytest.mark.parametrize("name", ["npu-large", "inalu-magnitude"])
def test_nothing_is_claimed_where_cells_are_missing(name: str, tmp_path: Path) -> None:
    (experiment,) = select([f"primer2022/{name}"])
    work = [t for t in experiment.trainings(Options("quick")) if t.labels["operation"] == "add"]
    scores = {"threshold": 1.0, "best_test": 0.5, "best_validation": 0.5, "solved_at": math.nan, "best_sparsity": 0.0}
    rows = [Row("", t.description(), t.seeds[0], t.labels, scores=scores) for t in work]
    page = experiment.show(experiment.work(Options("quick")), rows, tmp_path).page.read_text(encoding="utf-8")
    assert "What the paper says, and ours" not in page
    assert "; missing: " in page
