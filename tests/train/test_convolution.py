"""Convolutions of stacked networks: as matrix products they are what torch computes."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from numerate.data import mnist
from numerate.data.images import Images
from numerate.experiments.nau2020.digit_models import digit_network
from numerate.tasks import DigitSequences
from numerate.train import Adam, NetworkTraining
from numerate.train.networks.convolution import Products, conv2d
from numerate.train.networks.specification import NetworkRun
from numerate.train.networks.stack import Stack
from numerate.units import NMU


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 1), ((1, 2), (0, 2))], ids=str)
def test_products_are_torchs_convolution_with_its_gradients(stride: Any, padding: Any) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = (6, 3, 12, 11), (7, 3, 5, 4), (7,)
    inputs: Any = [torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True) for shape in shapes]
    plain: Any = F.conv2d
    expected, found = plain(*inputs, stride, padding), conv2d(*inputs, stride=stride, padding=padding)
    torch.testing.assert_close(found, expected)
    pull = torch.randn(expected.shape, generator=draw, dtype=torch.float64)
    both = [torch.autograd.grad(result, inputs, pull) for result in (found, expected)]
    torch.testing.assert_close(*both)


def test_other_convolutions_are_left_to_torch() -> None:
    x, weight = torch.randn(2, 4, 9, 9), torch.randn(6, 2, 3, 3)
    with Products():
        torch.testing.assert_close(F.conv2d(x, weight, groups=2), F.conv2d(x, weight, None, 1, 0, 1, 2))
        assert F.conv2d(x, torch.randn(6, 4, 3, 3), padding="same").shape == (2, 6, 9, 9)
        assert F.conv2d(x, torch.randn(6, 4, 3, 3), dilation=2).shape == (2, 6, 5, 5)


def test_stacked_networks_learn_the_same_with_products(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(1)
    images = torch.randint(256, (60, 28, 28), generator=draw, dtype=torch.uint8).repeat(1000, 1, 1)
    labels = torch.arange(60_000) % 9 + 1
    monkeypatch.setattr(mnist, "load", lambda data=None: Images(images, labels, images[:10_000], labels[:10_000]))
    task = DigitSequences("product", batch_size=2, held_out=20, test_lengths=(1, 4))
    model = partial(digit_network, cell=NMU, initial=1.0, lengths=task.lengths)
    adam = Adam(rate=0.01, eps=1.0)  # a gradient that is zero but for rounding then moves nothing
    training = NetworkTraining(model, task, (0, 1), adam)
    stacks = [Stack([NetworkRun(training, seed) for seed in seeds], "cpu") for seeds in ((0, 1), (0, 1), (1,))]
    stacks[1].convolutions = nullcontext
    for stack in stacks:
        stack.train(0, 3, torch.zeros(len(stack)))
    found = [stack.state.parameters for stack in stacks]
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[0][1:], found[2], atol=1e-5, rtol=1e-4)
    errors = [stack.evaluate("test") for stack in stacks]
    assert set(errors[0]) == {"error", "length_1", "length_4"}
    for name in errors[0]:
        torch.testing.assert_close(errors[0][name], errors[1][name], rtol=1e-3, atol=0)
