"""Products of small layers: equal to torch's in values and gradients, whatever threads or models there are."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from numerate.loops.timeloops import tuning
from numerate.loops.timeloops.products import NativeProducts, correlated, linear

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def assert_near(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert found.shape == expected.shape
    found, expected = found.detach(), expected.detach()
    assert float((found.double() - expected).norm() / expected.norm().clamp_min(1e-30)) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("lead", [(), (3,)], ids=["one", "models"])
@pytest.mark.parametrize(("rows", "wide", "columns"), [(0, 2, 3), (1, 1, 1), (130, 9, 50), (257, 70, 17)])
def test_a_correlation_is_the_product_of_the_transposed(
    rows: int, wide: int, columns: int, lead: tuple[int, ...], dtype: torch.dtype
) -> None:
    left, right = drawn(*lead, rows, wide + 5).narrow(-1, 3, wide), drawn(*lead, rows, columns)
    assert_near(correlated(left.to(dtype), right.to(dtype)), left.mT @ right, dtype)
    turned = right.mT.contiguous().mT.to(dtype)  # its columns lie side by side
    assert_near(correlated(left.to(dtype), turned), left.mT @ right, dtype)


def test_bits_depend_neither_on_threads_nor_on_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "WORK_EACH", 1)
    left, right = drawn(2, 300, 130, dtype=torch.float32), drawn(2, 300, 33, dtype=torch.float32)
    weight, bias = drawn(2, 40, 130, dtype=torch.float32), drawn(2, 40, dtype=torch.float32)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append((correlated(left, right)[1], vmap(linear)(left, weight, bias)[1]))
        found.append((correlated(left[1], right[1]), linear(left[1], weight[1], bias[1])))
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others))


@pytest.mark.parametrize("biased", [True, False])
def test_a_linear_map_and_its_gradients_are_those_of_torch(biased: bool) -> None:
    arguments = [drawn(2, 2, 3), drawn(9, 3), *([drawn(9)] if biased else [])]
    for value in arguments:
        value.requires_grad_()
    assert_near(linear(*arguments), F.linear(*arguments), torch.float64)
    assert torch.autograd.gradcheck(linear, arguments)
    assert torch.autograd.gradgradcheck(linear, arguments)


def test_under_vmap_every_model_has_its_own_weight() -> None:
    x, weight, bias = drawn(4, 7, 6), drawn(3, 5, 6).requires_grad_(), drawn(3, 5).requires_grad_()
    found = vmap(linear, in_dims=(None, 0, 0))(x, weight, bias)
    expected = torch.stack([F.linear(x, w, b) for w, b in zip(weight, bias)])
    assert_near(found, expected, torch.float64)
    above = drawn(3, 4, 7, 5)
    for own, other in zip(*(torch.autograd.grad(y, (weight, bias), above) for y in (found, expected))):
        assert_near(own, other, torch.float64)


def test_under_a_vmap_over_something_else() -> None:
    """As where a layer is mapped over its initial state alone."""
    x, weight, state = drawn(7, 6), drawn(5, 6).requires_grad_(), drawn(3, 7, 5)
    found = vmap(lambda h: linear(x, weight) + h)(state)
    assert_near(found, F.linear(x, weight) + state, torch.float64)
    assert_near(torch.autograd.grad(found.sum(), weight)[0], 3 * x.sum(0).expand(5, 6), torch.float64)


def test_the_mode_answers_for_its_type_of_number_alone() -> None:
    x, layer = drawn(3, 4), torch.nn.Linear(4, 2, dtype=torch.float64)
    with NativeProducts(torch.float64):
        assert "_Linear" in graph_of(layer(x))
    with NativeProducts(torch.float32):
        assert "_Linear" not in graph_of(layer(x))


def graph_of(value: Tensor) -> str:
    names, todo = [], [value.grad_fn]
    while todo:
        node = todo.pop()
        if node is not None:
            names.append(type(node).__name__)
            todo += [parent for parent, _ in node.next_functions]
    return " ".join(names)
