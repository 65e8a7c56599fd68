"""Sums and products of handwritten digits: targets, networks, penalties, thresholds; on made-up images."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from numerate import published
from numerate.data import mnist
from numerate.data.images import Images
from numerate.experiments import digit_pictures, running, select
from numerate.experiments.experiment import Options
from numerate.experiments.nau2020 import sequential_mnist
from numerate.experiments.nau2020.digit_claims import claims
from numerate.experiments.nau2020.digit_models import DigitNetwork, r_z_of_product, r_z_of_sum
from numerate.experiments.nau2020.digit_rounding import with_rounded_cells
from numerate.experiments.one_unit import natu_recipe
from numerate.report import Layout, comparison, terminal_table
from numerate.results import Row
from numerate.stats import upper_mean
from numerate.tasks import DigitSequences
from numerate.tasks.batches import Batch
from numerate.train import Plateau
from numerate.units import NATU, NAU, NMU


@pytest.fixture
def digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images whose every pixel is the digit; the labels repeat 0, 1, ..., 9."""

    def made(data: Any = None) -> Images:
        labels = [torch.arange(count) % 10 for count in (60_000, 10_000)]
        pictures = [label.to(torch.uint8).view(-1, 1, 1).expand(-1, 28, 28) for label in labels]
        return Images(pictures[0], labels[0], pictures[1], labels[1])

    monkeypatch.setattr(mnist, "load", made)
    counts = {"train": 49_500, "validation": 4_500, "test": 9_000}
    monkeypatch.setitem(sequential_mnist.DigitSequences._count.__globals__["_COUNTS"], "product", counts)


@pytest.mark.parametrize("operation", ["product", "sum"])
def test_targets_are_those_of_the_digits_in_the_images(digits: None, operation: Any) -> None:
    task = DigitSequences(operation, length=3, test_lengths=(2, 3), batch_size=5, held_out=60)
    data = task.data() | task.order(4, 0)
    batch = task.batch(torch.tensor(4), torch.tensor(1), data)
    shown = ((batch.x[..., 0] * 0.3081 + 0.1307) * 255).round()
    expected = shown.cumprod(0) if operation == "product" else shown.cumsum(0)
    assert torch.equal(batch.y[..., 0], expected)
    assert batch.x.shape == (3, 5, 784)
    assert (shown > 0).all() or operation == "sum"
    held_out = task.evaluation("test", 0, data)
    shown = ((held_out.x[:, 0] * 0.3081 + 0.1307) * 255).round()
    first = shown[:3].cumprod(0) if operation == "product" else shown[:3].cumsum(0)
    assert torch.equal(held_out.y[:60, 0].view(3, 20)[:, 0], first)
    assert held_out.y.shape == (120, 1)


def test_which_images_follow_each_other_is_fixed_for_a_run(digits: None) -> None:
    task = DigitSequences("sum", length=10)
    first, second = (task.order(0, epoch)["order"] for epoch in (0, 1))
    assert not torch.equal(first, second)
    assert set(map(tuple, first.tolist())) == set(map(tuple, second.tolist()))
    assert sorted(first.flatten().tolist()) == list(range(55_000))


def test_an_exact_cell_gathers_what_is_read() -> None:
    x = torch.randn(4, 3, 784)
    network = DigitNetwork("product")
    numbers = network.reader(x.flatten(0, 1)).view(4, 3, 1)
    torch.testing.assert_close(network(x), numbers.cumprod(0))
    unit = DigitNetwork(NMU, initial=1.0)
    torch.nn.init.ones_(unit.cell.weight)
    unit.reader.load_state_dict(network.reader.state_dict())
    torch.testing.assert_close(unit(x), network(x))


@pytest.mark.parametrize("cell", [NMU, None, "product"], ids=["NMU", "LSTM", "exact"])
@torch.no_grad()
def test_sequences_of_all_lengths_at_once_are_those_of_each_length(cell: Any) -> None:
    images = torch.randn(7, 784)
    network = DigitNetwork(cell, initial=1.0, lengths=(2, 1, 5)).eval()
    each = [images[: n * k].view(n, k, 784).transpose(0, 1) for n, k in ((3, 2), (7, 1), (1, 5))]
    expected = torch.cat([network(x).flatten(0, 1) for x in each])
    torch.testing.assert_close(network(images), expected)
    task = DigitSequences("product", length=2, test_lengths=(1, 5))
    measures = task.measures(expected, Batch(images, torch.zeros_like(expected)))
    sums = [torch.stack(((network(x) ** 2).sum(), torch.tensor(float(x[..., 0].numel())))) for x in each]
    torch.testing.assert_close([measures[name] for name in ("error", "length_1", "length_5")], sums)


@pytest.mark.parametrize("figure", ["figure4", "figure13"])
def test_natu_is_trained_alike_on_sums_and_products_when_it_is_asked_for(digits: None, figure: str) -> None:
    (experiment,) = select([f"nau2020/{figure}"])
    _, training = experiment.work(Options("smoke", units=("NATU",))).trainings
    assert training.penalties == ()
    (cell,) = training.optimiser.groups(name for name, _ in training.model(784, 1).named_parameters())
    assert cell.rate == natu_recipe().optimiser.rate
    assert training.restart == Plateau(above=0.1)
    assert set(cell.names) == {"cell.sum_weight", "cell.power_weight", "cell.gate"}


def test_natu_learns_from_all_steps_as_rows_of_one_batch() -> None:
    x, y = torch.randn(3, 4, 784), torch.rand(3, 4, 1) + 1
    network = DigitNetwork(NATU, initial=None)
    torch.nn.functional.mse_loss(network(x), y).backward()
    found = {name: value.grad for name, value in network.cell.named_parameters()}
    numbers = network.reader(x.flatten(0, 1)).detach().view(3, 4, 1)
    state, rows = (1 - network.cell.gate).expand(4, 1), []
    for number in numbers:
        rows.append(torch.cat((number, state), -1))
        state = network.cell(rows[-1]).detach()
    network.zero_grad()
    torch.nn.functional.mse_loss(network.cell(torch.cat(rows).detach()), y.flatten(0, 1)).backward()
    for name, value in network.cell.named_parameters():
        torch.testing.assert_close(found[name], value.grad)
    torch.testing.assert_close(network.eval()(x), network.train()(x))


def test_r_z_is_that_of_the_means_of_the_cells_inputs() -> None:
    x = torch.randn(2, 3, 784)
    for unit, function, pull in ((NMU, r_z_of_product, 1.0), (NAU, r_z_of_sum, 0.0)):
        network = DigitNetwork(unit, initial=0.5)
        torch.nn.init.constant_(network.cell.weight, 0.25)
        outputs = network(x)
        numbers = network.reader(x.flatten(0, 1)).view(2, 3)
        before = torch.stack((torch.full((3,), 0.5), outputs[0, :, 0]))
        means = torch.stack((numbers.mean(), before.mean()))
        torch.testing.assert_close(function(network), (0.75 * (pull - means) ** 2).mean())


def test_a_bound_of_a_mean_by_hand() -> None:
    values = [1.0, 2.0, 3.0]  # deviation 1; t at 99 % of 2 and of 8 degrees of freedom, from tables
    assert upper_mean(values) == pytest.approx(2 + 6.965 / math.sqrt(3), rel=1e-4)
    assert upper_mean(values, degrees=8) == pytest.approx(2 + 2.896 / math.sqrt(3), rel=1e-3)
    with pytest.raises(ValueError, match="at least 2 values"):
        upper_mean([1.0])


def test_figure4_runs_and_shows_success_by_length(digits: None, tmp_path: Path) -> None:
    result = running.run("nau2020/figure4", Options("smoke"), tmp_path)
    text = result.page.read_text()
    assert "Sequence length" in text
    assert "number that" in text or "number read" in text
    with running.Store(tmp_path / "results.sqlite", readonly=True) as store:
        rows = list(store.rows())
    limits = sequential_mnist.thresholds([replace(r, labels={**r.labels}) for r in rows])
    exact = [r.scores["best_test_length_4"] for r in rows if r.labels["unit"] == sequential_mnist.EXACT]
    assert set(limits) == {1, 2, 4}
    assert limits[4] == pytest.approx(upper_mean(np.array(exact)))
    (experiment,) = select(["nau2020/figure4"])
    again = with_rounded_cells(experiment.work(Options("smoke")), rows)
    of_cells = [r.scores["best_sparsity"] for r in rows if r.labels["unit"] == "NMU"]
    assert of_cells == [r.scores["best_sparsity"] for r in again if r.labels["unit"] == "NMU"]
    assert len(of_cells) == 2


def test_units_that_came_later_are_trained_when_they_are_asked_for(digits: None) -> None:
    (experiment,) = select(["nau2020/figure4"])
    units = {t.labels["unit"] for t in experiment.work(Options("paper")).trainings}
    assert units == {"exact", "NMU", "NAC•,NMU", "NAC•,σ", "NAC•", "NALU", "LSTM"}
    work = experiment.work(Options("smoke", units=("Stochastic NMU", "NMRU")))
    x = torch.randn(2, 3, 784)
    for training in work.trainings[1:]:
        model = training.model(784, 1)
        penalties = [p.function(model.train()) for p in training.penalties if model(x).shape == (2, 3, 1)]
        assert len(penalties) == (2 if training.labels["unit"] == "Stochastic NMU" else 1)


def test_a_rounded_cell_is_judged_by_the_images_it_was_trained_for(digits: None) -> None:
    (experiment,) = select(["nau2020/figure4"])
    work = experiment.work(Options("smoke", seeds=1, units=("NMU",)))
    rows = []
    for training in work.trainings:
        state = training.build(0).state_dict()
        row = Row(experiment.id, training.description(), 0, labels=training.labels, scores={"best_test": 1.0})
        weights = {name: value.numpy() for name, value in state.items()}
        rows.append(replace(row, weights={"best": weights}))
    nearly = {**rows[1].weights["best"], "cell.weight": np.array([[0.9, 0.8]], dtype=np.float32)}
    exact, nmu = with_rounded_cells(work, [rows[0], replace(rows[1], weights={"best": nearly})])
    assert exact is rows[0]
    model = DigitNetwork("product", lengths=(2, 1, 4))
    model.load_state_dict({name: torch.tensor(v) for name, v in nearly.items() if name != "cell.weight"})
    task: Any = work.trainings[1].task
    batch = task.evaluation("test", 0, task.data())
    with torch.no_grad():
        total, count = task.measures(model(batch.x), batch)["length_4"]
    assert nmu.scores["snapped_length_4"] == pytest.approx(float(total / count), rel=1e-4)
    (judged,) = sequential_mnist.at_each_length([nmu])
    assert judged.scores["snapped_test"] == nmu.scores["snapped_error"]
    assert nmu.scores["best_sparsity"] == pytest.approx(0.2)


def test_without_mnist_runs_are_reported_unrounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMERATE_DATA", str(tmp_path))
    (experiment,) = select(["nau2020/figure4"])
    work = experiment.work(Options("smoke", seeds=1, units=("NMU",)))
    weights = {name: value.numpy() for name, value in work.trainings[1].build(0).state_dict().items()}
    row = Row(experiment.id, work.trainings[1].description(), 0, labels={"unit": "NMU"}, weights={"best": weights})
    (found,) = with_rounded_cells(work, [row])
    assert set(found.scores) == {"best_sparsity"}
    assert digit_pictures.read_numbers(work, [row], "") == []


def test_no_run_succeeds_by_networks_that_have_learnt_nothing() -> None:
    products = torch.cartesian_prod(*[torch.arange(1.0, 10.0)] * 2).cumprod(-1)
    constant = ((products - products.mean(0)) ** 2).mean().item()
    for factor, solved in ((0.9, True), (1.1, False)):
        errors = [("exact", 0, factor * constant), ("exact", 1, factor * constant), ("NMU", 0, 0.1)]
        rows = [
            Row("x", {"task": {"length": 2}}, seed, labels={"unit": unit, "task": "product"}, scores={"best_test": e})
            for unit, seed, e in errors
        ]
        (row,) = sequential_mnist.at_each_length(rows)
        assert (row.scores["best_test"] < row.scores["threshold"]) is solved


FIGURE4 = sequential_mnist.FIGURES[0]
LEFT_OPEN = {
    "one exact network": (1, 1.0, "it takes two finished networks with an exact cell, and there is 1"),
    "a constant is better": (10, 500.0, "the networks with an exact cell err more than a constant"),
}


@pytest.mark.parametrize("figure", sequential_mnist.FIGURES, ids=lambda figure: figure.id)
@pytest.mark.parametrize(("seeds", "error", "why"), LEFT_OPEN.values(), ids=LEFT_OPEN.keys())
def test_without_a_bound_success_and_verdicts_are_left_open(
    figure: sequential_mnist.Figure, seeds: int, error: float, why: str
) -> None:
    units = [sequential_mnist.EXACT, *sequential_mnist.recipes(figure), *sequential_mnist.with_r_z(figure)]
    trained, other = (2, 1) if figure.operation == "product" else (10, 1000)
    rows = [
        Row(
            "x", {"task": {"length": trained}, "unit": unit}, seed, labels={"unit": unit, "task": figure.operation},
            scores={"best_test": error, f"best_test_length_{other}": error, "best_sparsity": 0.1},
        )
        for unit in units for seed in range(seeds)
    ]  # fmt: skip
    compared = sequential_mnist.compare(figure, rows, Options("paper"))
    found = claims(figure.operation, figure.regularised, compared)
    assert found
    assert all(claim.holds is None and why in claim.ours for claim in found)
    assert all(cell.measured.solved is None and not cell.measured.ours for cell in compared.cells)
    assert why in compared.lead.meaning
    table = Console(width=300)
    with table.capture() as shown:
        table.print(terminal_table(compared))
    assert why in shown.get()


def test_runs_are_solved_at_the_first_point_of_a_length_below_its_bound() -> None:
    steps, curve = np.array([0, 10, 20, 30]), np.array([9.0, 3.0, 0.5, 4.0])
    exact = [
        Row("x", {"task": {"length": 2}}, seed, labels={"unit": "exact", "task": "product"},
            scores={"best_test": 1.0, "best_test_length_3": 5.0})
        for seed in range(2)
    ]  # fmt: skip
    run = Row(
        "x", {"task": {"length": 2}}, 0, labels={"unit": "NMU", "task": "product"},
        scores={"best_test": 0.5, "best_test_length_3": 1.5, "best_sparsity": 0.25},
        curves={"steps": steps, "test": curve, "test_length_3": 3 * curve},
    )  # fmt: skip
    near, far = sequential_mnist.at_each_length([*exact, run])
    assert (near.scores["threshold"], near.scores["solved_at"]) == (1.0, 20.0)  # both exact networks err alike
    assert (far.scores["threshold"], far.scores["solved_at"]) == (5.0, 20.0)
    compared = sequential_mnist.compare(FIGURE4, [*exact, run], Options("paper"))
    cell = next(cell for cell in compared.cells if cell.x == 3.0)
    assert cell.measured.ours["solved_at_mean"].value == 20.0
    assert cell.measured.ours["sparsity_error_mean"].value == 0.25
    (theirs,) = published.cells(
        paper="nau2020", table="figure 4", model="NMU", metric="solved_at_mean", x="sequence_length 3"
    )
    assert cell.theirs["solved_at_mean"] == theirs
    printed = [cell.published("sparsity_error_mean") for cell in compared.cells]
    assert all(estimate is not None and (estimate.value or 0.0) >= 0 for estimate in printed)


def test_the_papers_order_of_models_is_judged_by_all_lengths() -> None:
    def verdicts(**solved: int) -> list[bool | None]:
        names = {"nmu": "NMU", "nac_nmu": "NAC•,NMU", "sigma": "NAC•,σ", "nac": "NAC•", "nalu": "NALU", "lstm": "LSTM"}
        rows = [
            Row("x", {}, seed, labels={"unit": names[name], "task": "product", "length": length}, scores={
                "best_test": 0.0 if seed < count - (length > 2 and name != "nmu") else 2.0, "threshold": 1.0,
            })
            for name, count in solved.items() for seed in range(10) for length in (1, 2, 20)
        ]  # fmt: skip
        layout = Layout(panel="task", x="length")
        return [c.holds for c in claims("product", True, comparison(rows, title="", layout=layout))]

    assert verdicts(nmu=10, nac_nmu=9, sigma=6, nac=5, nalu=0, lstm=0) == [True, True, True]
    assert verdicts(nmu=10, nac_nmu=5, sigma=6, nac=5, nalu=0, lstm=0) == [True, True, False]
    assert verdicts(nmu=10, nac_nmu=9, sigma=0, nac=0, nalu=0, lstm=0) == [True, True, None]
    assert verdicts(nmu=1, nac_nmu=0, sigma=0, nac=0, nalu=0, lstm=0) == [False, None, False]


def test_all_four_figures_have_the_units_of_the_paper() -> None:
    units = {e.id: set(e.units) for e in select(["nau2020"]) if e.id.rpartition("/")[2] in ("figure4", "figure13")}
    assert units["nau2020/figure4"] == {
        "NMU", "NAC•,NMU", "NAC•,σ", "NAC•", "NALU", "LSTM", "NATU", "Stochastic NMU", "NMRU",
    }  # fmt: skip
    assert units["nau2020/figure13"] == {"NAU", "NAC+,Rz", "NAC+", "NALU", "LSTM", "NATU"}


@pytest.mark.parametrize(("figure", "twin", "names"), [
    ("figure14", "figure13", {"NAU,Rz": "NAU"}),
    ("figure15", "figure4", {"NMU,Rz": "NMU", "NAC•,NMU,Rz": "NAC•,NMU"}),
])  # fmt: skip
def test_figures_without_r_z_show_the_runs_with_it_beside_theirs(figure: str, twin: str, names: dict[str, str]) -> None:
    without, regularised = (
        {t.labels["unit"]: t.run_keys() for t in select([f"nau2020/{name}"])[0].work(Options("paper")).trainings}
        for name in (figure, twin)
    )
    assert {name: without[name] for name in names} == {name: regularised[twin] for name, twin in names.items()}
    assert all(without[name] != regularised[name] for name in names.values())


def test_what_r_z_changes_is_told_by_the_runs_that_have_it() -> None:
    def verdicts(operation: str, near: dict[str, int], far: dict[str, int], sparsity: dict[str, float]) -> list[Any]:
        rows = [
            Row(
                name, {}, seed, labels={"unit": name, "task": operation, "length": length},
                scores={
                    "best_test": float(seed >= count[name]), "threshold": 0.5,
                    "best_sparsity": sparsity.get(name, math.nan) * (1 + seed / 100),
                },
            )
            for count, length in ((near, 10), (far, 1000)) for name in near for seed in range(10)
        ]  # fmt: skip
        layout = Layout(panel="task", x="length")
        return [c.holds for c in claims(operation, False, comparison(rows, title="", layout=layout))]

    assert verdicts("sum", {"NAU": 1, "NAU,Rz": 9}, {"NAU": 9, "NAU,Rz": 9}, {}) == [True, True]
    assert verdicts("sum", {"NAU": 9, "NAU,Rz": 1}, {"NAU": 2, "NAU,Rz": 1}, {}) == [False, False]
    assert verdicts("sum", {"NAU": 5, "NAU,Rz": 6}, {"NAU": 5, "NAU,Rz": 5}, {}) == [None, None]
    assert verdicts("sum", {"NAU": 5}, {"NAU": 5}, {}) == []
    four: dict[str, int] = dict.fromkeys(("NMU", "NMU,Rz", "NAC•,NMU", "NAC•,NMU,Rz"), 8)
    assert verdicts("product", four, four, {"NMU": 0.2, "NMU,Rz": 1e-4}) == [True, True]
    assert verdicts("product", {**four, "NMU": 1}, {**four, "NMU": 0}, {}) == [False, None]
