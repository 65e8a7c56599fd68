"""Parts of networks on batches: a layer that does not fit is refused, and sparsity is that of the units."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from numerate.data.images import Images
from numerate.experiments import Options, running
from numerate.experiments.nalu2018.digits import series_network
from numerate.experiments.nalu2018.word_models import number_reader
from numerate.experiments.nau2020.digit_models import digit_network
from numerate.experiments.primer2022.digit_compare import pair_network
from numerate.tasks import DigitSequences
from numerate.train import NetworkTraining
from numerate.train.networks.grouping import checked_layer, checked_model
from numerate.train.networks.member import Member
from numerate.train.specification import built
from numerate.units import NAU, NMU, sparsity_error
from numerate.units.penalties import units_sparsity_error

PRODUCT = DigitSequences("product", 2, (1, 4))


class Wide(nn.Linear):
    """One output too many."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs + 1)


class Narrow(nn.Linear):
    """Takes one input less."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs - 1, outputs)


class Pair(nn.Linear):
    def forward(self, input: Tensor) -> Any:
        return super().forward(input), None


class Noisy(nn.Module):
    """Draws as it computes, and counts examples in a buffer."""

    seen: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(outputs, inputs))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        return (x + torch.randn_like(x)) @ self.weight.T


NETWORKS: dict[str, Callable[[Any], nn.Module]] = {
    "the cell of a digit network": lambda unit: digit_network(784, 1, cell=unit),
    "the cell of a series network": lambda unit: series_network(784, 1, unit=unit),
    "the head of a pair network": lambda unit: pair_network(2 * 784, 1, head=unit),
    "the head of a reader of words": lambda unit: number_reader(30, 1, head=unit, size=16),
}
INPUTS = (2, 11, 2, 16)


@pytest.mark.parametrize(("network", "inputs"), list(zip(NETWORKS.values(), INPUTS)), ids=NETWORKS.keys())
def test_a_layer_of_another_shape_is_refused_when_its_network_is_made(network: Any, inputs: int) -> None:
    given = rf"of inputs of shape \(2, {inputs}\), but the network needs \(2, 1\)$"
    with pytest.raises(ValueError, match=rf"^Wide makes \(2, 2\) {given}"):
        network(Wide)
    with pytest.raises(ValueError, match=rf"^Pair makes tuple {given}"):
        network(Pair)
    with pytest.raises(ValueError, match=rf"^Narrow fails on inputs of shape \(2, {inputs}\): mat1 and mat2"):
        network(Narrow)
    assert network(NAU)


def test_a_layer_must_be_a_module() -> None:
    def relu(inputs: int, outputs: int) -> Any:
        return torch.relu

    with pytest.raises(ValueError, match=r"^relu makes builtin_function_or_method of \(inputs, outputs\), not a torch"):
        checked_layer(relu, 2, 1)


def test_a_unit_of_another_shape_ends_an_experiment_before_it_trains(monkeypatch: Any, tmp_path: Any) -> None:
    labels = torch.arange(60_000) % 10
    pictures = labels.to(torch.uint8).view(-1, 1, 1).expand(-1, 28, 28)
    made = Images(pictures, labels, pictures[:10_000], labels[:10_000])
    monkeypatch.setattr("numerate.data.mnist.load", lambda data=None: made)
    for name in ("nau2020/figure4", "nalu2018/table10", "nalu2018/table11", "primer2022/digit-compare"):
        with pytest.raises(ValueError, match=r"Wide makes \(2, \d+\) of inputs of shape"):
            running.run(name, Options("smoke", seeds=1, units=(Wide,)), tmp_path)


def test_a_trial_changes_neither_buffers_nor_what_is_drawn_later() -> None:
    def network(layer: Any) -> Any:
        return lambda inputs, outputs: nn.Sequential(layer(inputs, outputs), nn.Linear(outputs, 3))

    tried, untried = (built(network(layer), 4, 2, seed=3) for layer in (partial(checked_layer, Noisy), Noisy))
    assert all(torch.equal(value, untried.state_dict()[name]) for name, value in tried.state_dict().items())
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    checked_layer(dropping, 4, 4)
    assert torch.equal(torch.rand(3), expected)


def dropping(inputs: int, outputs: int) -> nn.Module:
    return nn.Dropout(0.5)


def test_a_layer_is_tried_where_it_is_made() -> None:
    with torch.device("meta"):
        assert checked_layer(NMU, 3, 2).get_parameter("weight").device.type == "meta"


@torch.no_grad()
def test_the_sparsity_error_of_a_network_is_that_of_its_cell() -> None:
    training = NetworkTraining(partial(digit_network, cell=NMU, initial=1.0), PRODUCT, (0,))
    member, model = Member(training, "cpu"), checked_model(training)
    values = dict(model.named_parameters())
    for weight, expected in (([1.0, 0.0], 0.0), ([0.75, 1.0], 0.25)):
        exact = values | {"cell.weight": torch.tensor([weight])}
        assert member.sparsity(exact) == expected
    lstm = replace(training, model=partial(digit_network, cell=None))
    assert Member(lstm, "cpu").sparsity(dict(checked_model(lstm).named_parameters())).isnan()


@torch.no_grad()
def test_linear_layers_count_where_there_are_no_others() -> None:
    linear = nn.Linear(2, 1)
    linear.weight.copy_(torch.tensor([[1.0, 0.75]]))
    assert sparsity_error(linear) == 0.25
    assert units_sparsity_error(linear).isnan()
