"""Appendix E's criteria, Heim's relevance gate, Schlör's initialisations: facts behind their reports."""

import numpy as np
import pytest
import torch

from numerate.experiments import Options
from numerate.experiments.primer2022 import appendix_e, inalu_function, npu_gate
from numerate.experiments.primer2022.tables import trainings
from numerate.results import Row
from numerate.tasks import DistributedSums, Distribution, SingleModule
from numerate.units import INALU, NMU
from numerate.units.inalu import inalu_product

GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("operation", appendix_e.OPERATIONS)
def test_the_nearly_perfect_model_has_the_error_of_the_threshold(operation: str) -> None:
    a, b = GENERATOR.uniform(2, 6, (2, 200_000))
    y = appendix_e.OPERATIONS[operation](a, b)
    error = ((appendix_e.nearly(operation, a, b, 1e-3) - y) ** 2).mean()
    assert SingleModule(operation, epsilon=1e-3).threshold() == pytest.approx(error, rel=0.02)


def test_a_correlation_sees_no_scale_and_a_percentage_does() -> None:
    a, b = GENERATOR.uniform(2, 6, (2, 1000))
    y = a * b
    assert appendix_e.decorrelation(2 * y + 1, y) == pytest.approx(0, abs=1e-12)
    assert appendix_e.mape(2 * y, y) == pytest.approx(1)
    assert appendix_e.decorrelation(appendix_e.nearly("mul", a, b, 1e-3), y) == pytest.approx(0, abs=1e-12)
    assert appendix_e.decorrelation(appendix_e.tilted("mul", a, b, 1e-3), y) > 1e-8
    assert appendix_e.decorrelation(np.ones_like(y), y) == 1


def test_exact_weights_pass_every_criterion() -> None:
    training = next(t for t in trainings(["mul"], Options("smoke")) if t.model is NMU)
    curves = {"steps": np.array([0, 1000]), "test": np.array([9.0, 0.0])}
    weights = {"best": {"weight": np.ones((1, 2), np.float32)}}
    row = Row("", training.description(), 0, scores={"best_test": 0.0}, curves=curves, weights=weights)
    found = list(appendix_e.scores(training, row))
    assert [criterion for criterion, _, _ in found] == list(appendix_e.CRITERIA)
    assert all(error < threshold for _, error, threshold in found)


def test_without_a_gate_the_gradient_vanishes_away_from_the_solution() -> None:
    solution = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert npu_gate.loss(solution, None) < 1e-12
    assert npu_gate.loss(solution, torch.tensor([1.0, 0.0]).double()) < 1e-12
    smallest = {name: low for name, (low, _) in npu_gate.away(15).items()}
    assert smallest["no gate"] < 0.05 < 0.5 < smallest["g = (½, ½)"]


def test_means_of_an_initialisation_are_those_of_the_parameters() -> None:
    unit = INALU(50, 40, init=(1.0, -1.0, 0.5, 0.1))
    means = [p.mean().item() for p in (unit.w_hat_add, unit.m_hat_mul, unit.gate)]
    assert means == pytest.approx([1.0, -1.0, 0.5], abs=0.06)
    with pytest.raises(ValueError, match="init must be one of 'benchmark', 'schloer', or the means of Ŵ, M̂ and g"):
        INALU(2, 1, init=(1.0, 2.0))  # type: ignore[arg-type]
    work = inalu_function.initialisations(Options("paper"))
    assert len({t.labels["unit"] for t in work}) == 27
    assert len(work) == 27 * 2 * 4


def test_exp_and_log_of_exact_sums_miss_the_threshold_of_products_in_float32() -> None:
    task = DistributedSums("mul", Distribution("uniform", -3, 3), Distribution("uniform", -5, -3))
    constants = task.constants(0, "test")
    x, y = task.examples(torch.rand(20_000, 100, generator=torch.Generator().manual_seed(0)), constants)
    sums = x.double() @ constants["members"].double()
    found = inalu_product(sums.float(), torch.ones(1, 2))
    error = ((found.double() - sums.prod(-1, keepdim=True)) ** 2).mean().item()
    assert 1e-5 < error < 1e-3
    assert 5_000 < y.mean() < 50_000


def test_sums_share_no_input_and_have_at_least_one() -> None:
    task = DistributedSums("div", Distribution("uniform", -3, 3), Distribution("uniform", -5, -3), inputs=100)
    shares = []
    for seed in range(20):
        members = task.constants(seed, "train")["members"]
        assert members.sum(-1).max() == 1
        assert members.sum(0).min() >= 1
        shares.append(members.mean(0))
    assert torch.stack(shares).mean(0).tolist() == pytest.approx([0.5, 0.25], abs=0.05)
    x, y = task.examples(torch.rand(10, 100), task.constants(3, "test"))
    members = task.constants(3, "test")["members"].bool()
    torch.testing.assert_close(y[:, 0], x[:, members[:, 0]].sum(-1) / x[:, members[:, 1]].sum(-1))
