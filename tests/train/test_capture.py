"""Products whose gradients need no look at their values: equal to torch's, zeros included."""

from typing import Any

import pytest
import torch
from torch import Tensor

from numerate.train.networks.capture import Recordable
from numerate.units import NMU

CASES: dict[str, Any] = {
    "prod": lambda x: x.prod(),
    "prod of a dimension": lambda x: torch.prod(x, 1),
    "prod that keeps it": lambda x: x.prod(-1, keepdim=True),
    "prod in double": lambda x: x.prod(0, dtype=torch.float64),
    "cumprod": lambda x: x.cumprod(1),
    "cumprod of torch": lambda x: torch.cumprod(x, dim=0),
}


def with_gradient(function: Any, x: Tensor) -> tuple[Tensor, Tensor, set[str]]:
    """Value, gradient, and the names of what the gradient goes through."""
    x = x.clone().requires_grad_()
    value = function(x)
    names, todo = set(), [value.grad_fn]
    while todo:
        node = todo.pop()
        names.add(node.name())
        todo += [parent for parent, _ in node.next_functions if parent is not None]
    return value, torch.autograd.grad(value.square().sum(), x)[0], names


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_torch(name: str, zeros: int) -> None:
    x = torch.rand(3, 7) + 0.5
    x.view(-1)[1 : 1 + zeros] = 0
    expected = with_gradient(CASES[name], x)
    with Recordable():
        found = with_gradient(CASES[name], x)
    torch.testing.assert_close(found[:2], expected[:2])
    assert any("prod" in node.lower() for node in expected[2])
    assert not any("prod" in node.lower() for node in found[2])


def test_a_unit_of_products_is_recordable_under_vmap() -> None:
    unit, x = NMU(4, 2), torch.rand(5, 3, 4)
    expected = torch.func.vmap(unit)(x)
    with Recordable():
        found = torch.func.vmap(unit)(x)
    torch.testing.assert_close(found, expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_recorded_in_a_graph(name: str) -> None:
    x = torch.rand(3, 7, device="cuda").requires_grad_()
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), Recordable():
        torch.autograd.grad(CASES[name](x).sum(), x)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph), Recordable():
        (found,) = torch.autograd.grad(CASES[name](x).sum(), x)
    graph.replay()
    (expected,) = torch.autograd.grad(CASES[name](x).sum(), x)
    torch.testing.assert_close(found, expected)
