"""NRU: the released code, the printed equations, and the exact factored update."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.recurrent import NRU
from numerate.recurrent.nru import NRUCell

f64 = torch.float64


def plain(layer: NRU, x: Tensor) -> tuple[Tensor, Tensor]:
    """The unit written out from the text: every direction made, normalised and added."""
    cell, p = layer.cell, layer.parts()
    assert isinstance(cell, NRUCell)
    k, size, h, m = cell.heads, cell.memory_size, x.new_zeros(x.shape[1], cell.hidden_size), None
    m = x.new_zeros(x.shape[1], size)
    r = cell.factor_size
    outputs = []
    for x_t in x:
        z = x_t @ p["weight_ih"].T + torch.cat((h, m), -1) @ p["weight_hh"].T + p["bias_ih"]
        if cell.layer_norm:
            z = F.layer_norm(z, (cell.hidden_size,), p["norm_weight"], p["norm_bias"])
        h = z.relu()
        heads = torch.cat((h, m), -1) @ p["weight_heads"].T + p["bias_heads"]
        if cell.head_inputs == "xhm":
            heads = heads + x_t @ p["weight_heads_x"].T
        alpha, beta, pw, pe, qw, qe = heads.split((k, k, r, r, r, r), -1)
        change = torch.zeros_like(m)
        for sign, strength, left, right in ((1, alpha, pw, qw), (-1, beta, pe, qe)):
            if cell.shared_q:
                v = torch.einsum("bi,bj->bij", left, right).reshape(-1, k, size)
            else:
                side = r // k
                pairs = left.reshape(-1, k, side), right.reshape(-1, k, side)
                v = torch.einsum("bki,bkj->bkij", *pairs).reshape(-1, k, size)
            if cell.relu_heads:
                strength, v = strength.relu(), v.relu()
            v = F.normalize(v, p=cell.norm_order, dim=-1)
            change = change + sign * (strength.unsqueeze(-1) * v).sum(1)
        m = m + (change / k if cell.head_reduce == "mean" else change)
        outputs.append(h)
    return torch.stack(outputs), m


@pytest.mark.parametrize(("memory", "heads"), [(16, 4), (16, 1), (36, 4), (9, 4), (16, 16)])
@pytest.mark.parametrize("factored", [None, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"relu_heads": True},
        {"head_reduce": "sum", "head_inputs": "xhm"},
        {"shared_q": False},
        {"shared_q": False, "relu_heads": True, "norm_order": 3.0},
        {"layer_norm": True},
    ],
    ids=str,
)
def test_every_reading_is_the_equations(memory, heads, factored, options):
    torch.manual_seed(0)
    layer = NRU(3, 7, memory_size=memory, heads=heads, factored=factored, dtype=f64, **options)
    x = torch.randn(6, 2, 3, dtype=f64)
    output, (_, m) = layer(x)
    expected, memory_end = plain(layer, x)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(m[0], memory_end)


@pytest.mark.parametrize("relu", [False, True])
def test_factored_update_has_the_same_gradients(relu):
    one, two = (
        NRU(3, 7, memory_size=36, heads=4, relu_heads=relu, factored=factored, dtype=f64) for factored in (True, False)
    )
    two.load_state_dict(one.state_dict())
    x = torch.randn(6, 2, 3, dtype=f64)
    gradients = []
    for layer in (one, two):
        output, state = layer(x)
        (output.sum() + state[1].sin().sum()).backward()
        gradients.append([p.grad for p in layer.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("memory", "heads", "yes"),
    [
        *((memory, 4, True) for memory in (64, 100, 144, 256, 400)),
        *((256, heads, True) for heads in (1, 16)),
        *((576, 9, True), (81, 4, False), (256, 9, False)),
    ],
)
def test_where_the_factored_form_applies(memory, heads, yes):
    assert NRUCell(3, 5, memory_size=memory, heads=heads).can_factor == yes


def test_with_one_q_more_heads_do_not_raise_the_rank_of_the_update():
    layer = NRU(3, 7, memory_size=64, heads=4, dtype=f64)
    change = layer.inspect(torch.randn(1, 5, 3, dtype=f64)).activations[0]["change"][0]
    rank = torch.linalg.matrix_rank(change.unflatten(-1, (4, 16)), atol=1e-10)
    assert rank.tolist() == [2] * 5  # one for writing, one for erasing


def test_memory_without_writing_is_kept_for_ever():
    layer = NRU(2, 5)
    with torch.no_grad():
        layer.parts()["weight_heads"].zero_()
        layer.parts()["bias_heads"].zero_()
    m = torch.randn(1, 3, 64)
    _, (_, end) = layer(torch.randn(100, 3, 2), (torch.zeros(1, 3, 5), m))
    assert torch.equal(end, m)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("factored", [True, False])
def test_heads_of_zero_have_finite_gradients(relu, factored):
    layer = NRU(2, 5, relu_heads=relu, factored=factored)
    with torch.no_grad():
        layer.parts()["weight_heads"].zero_()
        layer.parts()["bias_heads"].zero_()
    _, (_, m) = layer(torch.randn(3, 3, 2))
    m.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("factored", [True, False])
@pytest.mark.parametrize("relu", [False, True])
def test_half_precision_stays_close_to_double(relu, factored, autocast):
    torch.manual_seed(0)
    half = NRU(3, 16, relu_heads=relu, factored=factored, dtype=torch.float32 if autocast else torch.float16)
    exact = NRU(3, 16, relu_heads=relu, factored=factored, dtype=f64)
    exact.load_state_dict(half.state_dict())
    x = torch.randn(15, 2, 3).to(half.get_parameter("weight_ih_l0").dtype)
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        output, state = half(x)
    results = [[output, *state], [(expected := exact(x.double()))[0], *expected[1]]]
    for model, found in zip((half, exact), results):
        total = sum((entry.sum() for entry in found), torch.zeros(()))
        found += torch.autograd.grad(total, list(model.parameters()))
    for got, wanted in zip(*results):
        assert (got.double() - wanted).norm() <= 0.01 * wanted.norm()


@pytest.mark.parametrize("order", [1, 1.5, 8])
@pytest.mark.parametrize("relu", [False, True])
def test_single_precision_suffices_for_every_order(relu, order):
    torch.manual_seed(0)
    one, exact = (NRU(3, 16, relu_heads=relu, norm_order=order, dtype=dtype) for dtype in (torch.float32, f64))
    with torch.no_grad():
        one.parts()["weight_heads"].mul_(0.1)
        one.parts()["bias_heads"].mul_(0.1)
    exact.load_state_dict(one.state_dict())
    x = torch.randn(6, 2, 3)
    torch.testing.assert_close(one(x)[1][1][0].double(), plain(exact, x.double())[1], rtol=1e-4, atol=1e-6)


def test_memory_is_shown():
    layer, x = NRU(3, 7), torch.randn(4, 2, 3)
    seen = layer.inspect(x)
    memory, change = seen.activations[0]["memory"], seen.activations[0]["change"]
    torch.testing.assert_close(memory[-1], seen.state[1][0])
    torch.testing.assert_close(memory[1:] - memory[:-1], change[1:])


def test_sizes_that_cannot_be_get_one_clear_sentence():
    with pytest.raises(ValueError, match=r"heads \* memory_size = 4 \* 10 must be a perfect square"):
        NRU(3, 5, memory_size=10)
    with pytest.raises(ValueError, match="memory_size = 8 must be a perfect square"):
        NRU(3, 5, memory_size=8, heads=2, shared_q=False)
    with pytest.raises(ValueError, match="the factored form needs heads=4 to divide"):
        NRU(3, 5, memory_size=81, factored=True)
    for order in (0, -1, 0.5, math.nan, "5"):
        with pytest.raises(ValueError, match=f"norm_order must be a number of at least 1, got {order!r}"):
            NRU(3, 5, norm_order=order)
    for order in (40, math.inf):
        with pytest.raises(ValueError, match=f"norm_order must be at most 8, got {order!r}"):
            NRU(3, 5, norm_order=order)
