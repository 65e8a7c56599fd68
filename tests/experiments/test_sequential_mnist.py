"""Sums and products of handwritten digits: targets, networks, penalties, thresholds; on made-up images."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from numerate.data import mnist
from numerate.data.images import Images
from numerate.experiments import running, select
from numerate.experiments.experiment import Options
from numerate.experiments.nau2020 import sequential_mnist
from numerate.experiments.nau2020.digit_models import DigitNetwork, r_z_of_product, r_z_of_sum
from numerate.stats import upper_mean
from numerate.tasks import DigitSequences
from numerate.tasks.batches import Batch
from numerate.units import NAU, NMU


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


def test_all_four_figures_have_the_units_of_the_paper() -> None:
    units = {e.id: set(e.units) for e in select(["nau2020"]) if e.id.rpartition("/")[2] in ("figure4", "figure13")}
    assert units["nau2020/figure4"] == {"NMU", "NAC•,NMU", "NAC•,σ", "NAC•", "NALU", "LSTM"}
    assert units["nau2020/figure13"] == {"NAU", "NAC+,Rz", "NAC+", "NALU", "LSTM"}
