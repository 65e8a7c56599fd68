"""Counting and adding handwritten digits (NALU 2018, Table 10), on made-up images."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from numerate.data import mnist
from numerate.data.images import Images
from numerate.experiments import running, select
from numerate.experiments.digit_reader import Reader
from numerate.experiments.experiment import Options
from numerate.experiments.nalu2018 import digits
from numerate.experiments.nalu2018.digits import SeriesNetwork
from numerate.recurrent import GRU
from numerate.tasks import DigitSequences
from numerate.tasks.batches import Batch
from numerate.units import NAC


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images whose every pixel is the digit; the labels repeat 0, 1, ..., 9."""
    labels = [torch.arange(count) % 10 for count in (60_000, 10_000)]
    pictures = [label.to(torch.uint8).view(-1, 1, 1).expand(-1, 28, 28) for label in labels]
    monkeypatch.setattr(mnist, "load", lambda data=None: Images(pictures[0], labels[0], pictures[1], labels[1]))


def test_targets_are_counts_and_sums_at_the_end(images: None) -> None:
    for operation in ("count", "sum"):
        task = DigitSequences(operation, 3, (1, 4), batch_size=5, held_out=40, read="last", fixed=False)  # type: ignore[arg-type]
        data = task.data() | task.order(4, 0)
        batch = task.batch(torch.tensor(4), torch.tensor(1), data)
        shown = ((batch.x[..., 0] * 0.3081 + 0.1307) * 255).round().long()  # (3, 5)
        counts = torch.stack([torch.bincount(series, minlength=10) for series in shown.T]).float()
        expected = counts if operation == "count" else shown.sum(0, keepdim=True).T.float()
        assert torch.equal(batch.y, expected)
        assert len(task.evaluation("test", 0, data).y) == 13 + 40 + 10
    first, second = ({*map(tuple, task.order(0, epoch)["order"].tolist())} for epoch in (0, 1))
    assert first != second


@pytest.mark.parametrize("model", [{"unit": NAC}, {"layer": GRU}], ids=["NAC", "GRU"])
@torch.no_grad()
def test_series_of_all_lengths_at_once_are_those_of_each_length(model: Any) -> None:
    pictures = torch.randn(7, 784)
    network = SeriesNetwork(10, lengths=(2, 1, 5), **model).eval()
    each = [pictures[: n * k].view(n, k, 784).transpose(0, 1) for n, k in ((3, 2), (7, 1), (1, 5))]
    expected = torch.cat([network(x) for x in each])
    assert expected.shape == (11, 10)
    torch.testing.assert_close(network(pictures), expected)


def test_a_digit_is_told_by_the_largest_count_or_the_nearest_number() -> None:
    x = torch.zeros(2, 784)
    count = DigitSequences("count", 2, (1,), read="last")
    y = torch.eye(10)[[3, 4]]
    told = torch.cat((torch.zeros(1, 10), torch.eye(10)[[3, 5]] * 0.2))  # one series of two, then two of one
    assert count.measures(told, Batch(x, torch.cat((torch.zeros(1, 10), y))))["accuracy"].tolist() == [1, 2]
    total = DigitSequences("sum", 2, (1,), read="last")
    found = total.measures(torch.tensor([[7.0], [3.4], [4.6]]), Batch(x, torch.tensor([[7.0], [3.0], [4.0]])))
    assert found["accuracy"].tolist() == [1, 2]
    assert found["error"].tolist() == [0, 1]


@pytest.mark.parametrize("images", [1, 2])
def test_a_reader_is_lenet_with_its_channels_last_in_memory(images: int) -> None:
    reader, x, seen = Reader(3, (4, 5), 6, images), torch.randn(2, images * 784), []
    for layer in (reader.first, reader.second):
        layer.register_forward_hook(lambda module, given, found: seen.append(found.stride()))
    found = reader(x)
    assert [strides[1] for strides in seen] == [1, 1]
    h = F.max_pool2d(reader.first(x.view(2, images, 28, 28)).relu(), 2)
    h = F.max_pool2d(reader.second(h).relu(), 2)
    torch.testing.assert_close(found, reader.output(reader.hidden(h.flatten(1)).relu()))


def test_an_exact_nac_counts() -> None:
    network = SeriesNetwork(1, unit=NAC)
    for parameter in network.cell.parameters():
        torch.nn.init.constant_(parameter, 20.0)
    features = torch.randn(4, 3, 10)
    torch.testing.assert_close(network.gather(features)[-1, :, 0], features.sum((0, 2)), atol=1e-4, rtol=1e-4)


def test_table10_runs_beside_the_printed_numbers(images: None, tmp_path: Path) -> None:
    result = running.run("nalu2018/table10", Options("smoke", seeds=1), tmp_path)
    words = result.page.read_text()
    assert "Length of the series" in words
    assert "Counting" in words
    (experiment,) = select(["nalu2018/table10"])
    assert list(experiment.units) == ["LSTM", "GRU", "RNN-tanh", "RNN-ReLU", "NAC", "NALU", "NAU"]


def test_best_is_the_run_of_the_smallest_validation_error() -> None:
    from numerate.results import Row

    row = partial(Row, "x", {"task": {"length": 10}})
    rows = [
        row(seed, labels={"unit": "NAC", "task": "sum"}, scores={
            "best_validation": near, "best_test": error, "best_test_length_1": 0.0, "best_test_accuracy": share,
        })
        for seed, (near, error, share) in enumerate([(2.0, 5.0, 0.5), (1.0, 7.0, 0.25), (3.0, 6.0, 1.0)])
    ]  # fmt: skip
    placed = {length: [r for r in digits.at_each_length(rows) if r.labels["length"] == length] for length in (1, 10)}
    ten, one = digits.measure(placed[10]).ours, digits.measure(placed[1]).ours
    assert (ten["mse_best"].value, ten["mse"].value) == (7.0, 6.0)
    assert (one["accuracy_percent_best"].value, one["accuracy_percent"].value) == (25.0, 50.0)
