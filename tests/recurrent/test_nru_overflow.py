"""NRU where fifth powers overflow: every form and loop behaves as the released cell, which is written out here."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numerate.loops.toolchain import native
from numerate.recurrent import NRU, use_loop
from numerate.recurrent.nru import NRUCell, factored_update, head_update

needs_compiler = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
PSMNIST = {"memory_size": 256, "heads": 4}


def released(layer: NRU, x: Tensor) -> tuple[Tensor, Tensor]:
    """Final h and m of the released cell: directions made, then ``F.normalize``, which overflows to 0."""
    cell, p = layer.cell, layer.parts()
    assert isinstance(cell, NRUCell)
    k, r = cell.heads, cell.factor_size
    h, m = x.new_zeros(x.shape[1], cell.hidden_size), x.new_zeros(x.shape[1], cell.memory_size)
    for x_t in x:
        h = (x_t @ p["weight_ih"].T + torch.cat((h, m), 1) @ p["weight_hh"].T + p["bias_ih"]).relu()
        heads = torch.cat((h, m), 1) @ p["weight_heads"].T + p["bias_heads"]
        alpha, beta, pw, pe, qw, qe = heads.split((k, k, r, r, r, r), 1)
        write, erase = (
            strength[..., None] * F.normalize((a[..., None] * b[:, None]).view(-1, k, cell.memory_size), p=5.0, dim=2)
            for strength, a, b in ((alpha, pw, qw), (beta, pe, qe))
        )
        m = m + (write - erase).mean(1)
    return h, m


def psmnist_layer(seed: int, factored: bool | None = None) -> tuple[NRU, Tensor]:
    torch.manual_seed(seed)
    return NRU(1, 212, factored=factored, **PSMNIST), torch.rand(785, 1, 1)


def assert_as_released(seed: int, mode: str, factored: bool | None) -> None:
    layer, x = psmnist_layer(seed, factored)
    with torch.no_grad():
        h, m = released(layer, x)
    with use_loop(mode):  # type: ignore[arg-type]
        output, state = layer(x)
    assert 1e4 < m.norm() < 1e6  # without overflow it passes 1e8
    assert 0.5 < state[1].norm() / m.norm() < 2
    assert 0.5 < output[-1].norm() / h.norm() < 2
    gradients = torch.autograd.grad(output[-1].sum(), list(layer.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


FORMS = [
    pytest.param("plain", False, id="direct"),
    pytest.param("plain", None, id="factored"),
    pytest.param("native", None, id="native", marks=needs_compiler),
]


@pytest.mark.parametrize(("mode", "factored"), FORMS)
def test_an_untrained_unit_stays_as_large_as_the_released_one(mode, factored):
    assert_as_released(0, mode, factored)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("mode", "factored"), FORMS)
def test_an_untrained_unit_stays_as_large_as_the_released_one_for_ten_seeds(mode, factored, seed):
    assert_as_released(seed, mode, factored)


def overflowing(dtype: torch.dtype, largest: bool = False, relu: bool = False) -> NRU:
    """A layer with heads in range, heads beyond it, and one kind of head whose q alone is beyond it."""
    torch.manual_seed(1)
    layer = NRU(3, 7, memory_size=64, heads=4, relu_heads=relu, dtype=dtype)
    limit = torch.finfo(dtype).max ** 0.2
    k, r = 4, 16
    with torch.no_grad():
        bias = layer.parts()["bias_heads"]
        bias[2 * k : 2 * k + r // 2] *= 100 * limit**0.5  # p of the first two writing heads
        bias[2 * k + 2 * r : 2 * k + 3 * r] *= 100 * limit**0.5  # q of all writing heads
        bias[2 * k + 3 * r :] *= torch.inf if largest else 100 * limit  # q of all erasing heads
    return layer


def run(layer: NRU, x: Tensor, mode: str) -> list[Tensor]:
    with use_loop(mode):  # type: ignore[arg-type]
        output, state = layer(x)
    loss = output.sum() + state[1].sin().sum()
    return [output, *state, *torch.autograd.grad(loss, list(layer.parameters()))]


@needs_compiler
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-10), (torch.float32, 2e-5)], ids=str)
@pytest.mark.parametrize("relu", [False, True], ids=["linear", "ReLU"])
def test_native_loop_equals_plain_steps_through_overflow(relu, dtype, bound):
    layer, x = overflowing(dtype, relu=relu), torch.randn(6, 5, 3, dtype=dtype)
    plain, found = (run(layer, x, mode) for mode in ("plain", "native"))
    assert plain[2].abs().max() > 0.01  # the heads in range do write
    for wanted, got in zip(plain, found):
        torch.testing.assert_close(got, wanted, rtol=bound, atol=bound * wanted.detach().abs().max().item())


@pytest.mark.parametrize("mode", ["plain", pytest.param("native", marks=needs_compiler)])
@pytest.mark.parametrize("largest", [False, True], ids=["large", "infinite"])
def test_directions_beyond_the_range_have_no_gradient(mode, largest):
    layer, x = overflowing(torch.float64, largest), torch.randn(6, 5, 3, dtype=torch.float64)
    results = run(layer, x, mode)
    assert all(result.isfinite().all() for result in results)
    bias = results[-1]
    strengths, p, q = bias.split((8, 32, 32))
    for gone in (strengths[:2], strengths[4:], p[:8], p[16:], q[16:]):
        assert not gone.any()
    for there in (strengths[2:4], p[8:16], q[:16]):
        assert there.abs().min() > 0


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e3, 2.4e3, 1e4, 1e12, 1e25], ids=str)
def test_factored_and_direct_updates_overflow_alike(relu, shared, scale):
    torch.manual_seed(0)
    strength = torch.randn(50, 4, requires_grad=True)
    p = (scale * torch.randn(50, 4, 4)).requires_grad_()
    q = (scale * torch.randn(50, 1 if shared else 4, 16)).requires_grad_()
    v = (p.unsqueeze(-1) * q.unsqueeze(-2).expand(50, 4, 1, 16)).flatten(-2)
    a, w = (strength.relu(), v.relu()) if relu else (strength, v)
    expected = (a.unsqueeze(-1) * F.normalize(w, p=5.0, dim=-1).nan_to_num(0)).sum(-2)  # of infinities it makes NaN
    updates = factored_update(strength, p, q, 5.0, relu), head_update(strength, v, 5.0, relu)
    for update in updates:
        torch.testing.assert_close(update, expected, rtol=1e-4, atol=1e-5)
    found = [torch.autograd.grad(u.sin().sum(), (strength, p, q), retain_graph=True) for u in (*updates, expected)]
    factored, direct, released = ([g[0], scale * g[1], scale * g[2]] for g in found)
    torch.testing.assert_close(factored, direct, rtol=1e-3, atol=1e-3)
    if scale <= 1e4:  # beyond, the released cell's gradient is NaN
        torch.testing.assert_close(factored, released, rtol=1e-3, atol=1e-3)


def test_double_precision_has_its_own_limit():
    """The unit is a program in single precision; in double the same weights run on."""
    layer, x = psmnist_layer(0)
    with torch.no_grad(), use_loop("plain"):
        single = layer(x)[1][1].norm()
        double = layer.double()(x.double())[1][1].norm()
    assert double > 1e6 * single
