"""The modern recurrences against independent numbers: closed forms, convolutions, the papers' equations as loops."""

from math import log, pi
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import numerate.recurrent as recurrent
from numerate.loops.timeloops import diagonal
from numerate.loops.toolchain import native
from numerate.recurrent import (
    LMU,
    LRU,
    S4D,
    S5,
    S6,
    SLSTM,
    DiagonalCell,
    MinGRU,
    MinLSTM,
    Recurrent,
    Step,
    use_loop,
)
from numerate.recurrent.dispatch import choose
from numerate.recurrent.dispatch.mode import SHORTEST
from numerate.recurrent.lmu import legendre_memory
from numerate.recurrent.s5 import hippo_normal

needs_compiler = pytest.mark.skipif(not native.available(), reason="needs a C++ compiler")
I, B, T = 3, 2, 12  # noqa: E741  the papers' letters
LONG = 20  # steps that a compiled loop is made for


def inputs(steps: int = T, features: int = I) -> Tensor:
    return torch.randn(steps, B, features, dtype=torch.float64)


def numbers(layer: Recurrent) -> dict[str, Tensor]:
    return {name: part.detach() for name, part in layer.parts().items()}


def close(one: Any, two: Any, exact: float = 1e-10) -> None:
    torch.testing.assert_close(one, two, rtol=exact, atol=exact)


# ---------------------------------------------------------------- each unit against its definition


def test_mingru_is_the_paper_s_parallel_form_with_logcumsumexp() -> None:
    layer, x = MinGRU(I, 5, dtype=torch.float64), inputs()
    p, h0 = numbers(layer), torch.rand(B, 5, dtype=torch.float64) + 0.1
    z, candidate = F.linear(x, p["weight_ih"], p["bias_ih"]).chunk(2, -1)
    log_values = F.logsigmoid(z) + torch.where(candidate >= 0, (candidate.relu() + 0.5).log(), F.logsigmoid(candidate))
    log_values = torch.cat((h0.log()[None], log_values))
    products = F.pad(F.logsigmoid(-z).cumsum(0), (0, 0, 0, 0, 1, 0))
    close(layer(x, (h0[None],))[0], (products + (log_values - products).logcumsumexp(0)).exp()[1:])


def test_minlstm_normalises_its_gates() -> None:
    layer, x, h = MinLSTM(I, 5, dtype=torch.float64, candidate="linear"), inputs(), torch.zeros(B, 5).double()
    p, outputs = numbers(layer), []
    for g in F.linear(x, p["weight_ih"], p["bias_ih"]):
        f, i, candidate = g.chunk(3, -1)
        f, i = f.sigmoid(), i.sigmoid()
        h = f / (f + i) * h + i / (f + i) * candidate
        outputs.append(h)
    close(layer(x)[0], torch.stack(outputs))


def test_gates_of_minlstm_too_small_to_divide_are_still_a_pair() -> None:
    layer = MinLSTM(1, 1)
    with torch.no_grad():
        layer.get_parameter("weight_ih_l0").zero_()
        layer.get_parameter("bias_ih_l0").copy_(torch.tensor([-300.0, -300.0, 0.5]))
    close(layer(torch.ones(1, 1, 1))[0], torch.full((1, 1, 1), 0.5), 1e-6)


def test_lru_is_a_convolution_with_powers_of_lambda() -> None:
    layer, x = LRU(I, 4, state_size=6, r_min=0.4, dtype=torch.float64), inputs()
    p = numbers(layer)
    power = torch.complex(-p["nu_log"].exp(), p["theta_log"].exp())[:, None] * torch.arange(T)
    b, c = torch.complex(*p["weight_ih"].chunk(2)), torch.complex(*p["weight_out"].chunk(2, -1))
    kernel = torch.einsum("on,nt,n,ni->toi", c, power.exp(), p["gamma_log"].exp() + 0j, b).real
    expected = [sum(x[t - k] @ kernel[k].mT for k in range(t + 1)) + x[t] @ p["weight_skip"].mT for t in range(T)]
    close(layer(x)[0], torch.stack(expected))  # type: ignore[arg-type]


def test_lru_starts_on_its_ring_and_keeps_the_size_of_white_noise() -> None:
    layer = LRU(16, 2000, r_min=0.9, r_max=0.99, max_phase=pi / 10)
    re, im, _ = (part[0].detach() for part in layer.cell.extras(layer.parts()))  # type: ignore[attr-defined]
    size, phase = torch.hypot(re, im), torch.atan2(im, re)
    assert 0.9 <= size.min() < 0.905
    assert 0.985 < size.max() <= 0.99
    assert abs(float(size.square().mean()) - (0.9**2 + 0.99**2) / 2) < 3e-3  # uniform on the ring: |λ|² is uniform
    assert 0 <= phase.min() < phase.max() <= pi / 10
    close(numbers(layer)["gamma_log"].exp(), (1 - size.square()).sqrt(), 1e-4)


def test_s4d_is_a_convolution_with_its_kernel() -> None:
    layer, x = S4D(I, 4, state_size=6, dtype=torch.float64, step_max=1.0), inputs()
    p = numbers(layer)
    step, poles = p["log_step"].exp(), torch.complex(-p["log_decay"].exp(), p["frequency"])
    close(poles, torch.complex(torch.full((3, 4), -0.5).double(), pi * torch.arange(3).double()[:, None].expand(3, 4)))
    held = torch.complex(p["out_re"], p["out_im"]) * ((poles * step).exp() - 1) / poles
    powers = ((poles * step)[..., None] * torch.arange(T)).exp()
    kernel = 2 * (held[..., None] * powers).sum(0).real  # (H, T)
    u = F.linear(x, p["weight_ih"], p["bias_ih"])
    spectrum = torch.fft.rfft(u, 2 * T, 0) * torch.fft.rfft(kernel.mT, 2 * T, 0)[:, None]
    close(layer(x)[0], torch.fft.irfft(spectrum, 2 * T, 0)[:T] + p["skip"] * u)


def test_s5_is_the_recurrence_of_its_whole_conjugate_state() -> None:
    layer, x = S5(I, 5, state_size=8, blocks=2, dtype=torch.float64), inputs()
    p = numbers(layer)
    half = torch.complex(-p["log_decay"].exp(), p["frequency"])
    poles, step = torch.cat((half, half.conj())), p["log_step"].exp().repeat(2)
    b, c = torch.complex(*p["weight_ih"].chunk(2)), torch.complex(*p["weight_out"].chunk(2, -1))
    b, c = torch.cat((b, b.conj())), torch.cat((c, c.conj()), -1)
    s, outputs = torch.zeros(B, 8, dtype=torch.complex128), []
    for x_t in x:
        s = (poles * step).exp() * s + (((poles * step).exp() - 1) / poles) * (x_t.to(b.dtype) @ b.mT)
        y = s @ c.mT
        assert y.imag.abs().max() < 1e-12
        outputs.append(y.real + x_t @ p["weight_skip"].mT)
    close(layer(x)[0], torch.stack(outputs))


def test_s5_starts_from_the_normal_part_of_hippo() -> None:
    n = np.arange(8)
    legs = -np.where(n[:, None] > n, np.sqrt(np.outer(2 * n + 1, 2 * n + 1)), np.diag(n + 1.0))
    normal = legs + np.outer(np.sqrt(n + 0.5), np.sqrt(n + 0.5))
    eigenvalues, vectors = hippo_normal(8)
    close(torch.tensor(normal + 0j) @ vectors, vectors * eigenvalues)
    expected = np.linalg.eigvals(normal)
    close(eigenvalues.imag, torch.tensor(np.sort(expected.imag)[:4]))
    frequency = numbers(S5(I, 5, state_size=16, blocks=2, dtype=torch.float64))["frequency"]
    close(frequency, torch.tensor(np.sort(expected.imag)[:4]).repeat(2))


def test_s6_is_algorithm_2_of_mamba() -> None:
    layer, x = S6(I, 4, state_size=3, step_rank=2, dtype=torch.float64), inputs()
    p, outputs = numbers(layer), []
    a, s = -p["log_decay"].exp(), torch.zeros(B, 4, 3, dtype=torch.float64)
    for x_t in x:
        u = x_t @ p["weight_ih"].mT
        low_rank, into, out_of = (u @ p["weight_select"].mT).split((2, 3, 3), -1)
        step = torch.log(1 + torch.exp(low_rank @ p["weight_step"].mT + p["bias_step"]))
        for row in range(B):
            for h in range(4):
                for n in range(3):
                    change = step[row, h] * into[row, n] * u[row, h]
                    s[row, h, n] = torch.exp(step[row, h] * a[n, h]) * s[row, h, n] + change
        outputs.append(torch.einsum("bhn,bn->bh", s, out_of) + p["skip"] * u)
    close(layer(x)[0], torch.stack(outputs))


def test_s6_starts_with_steps_between_its_bounds_and_real_poles() -> None:
    p = numbers(S6(I, 500, state_size=4, step_min=1e-3, step_max=1e-1))
    step = F.softplus(p["bias_step"])
    assert 1e-3 <= step.min() < 1.1e-3
    assert 9e-2 < step.max() <= 0.1001
    assert abs(float(step.log().mean()) - log(1e-2)) < 0.2
    close(p["log_decay"].exp()[:, 0], torch.arange(1.0, 5.0), 1e-6)


@pytest.mark.parametrize("forget", ["sigmoid", "exponential"])
def test_slstm_is_its_equations_without_a_stabiliser(forget: Any) -> None:
    layer, x = SLSTM(I, 6, heads=2, forget=forget, dtype=torch.float64), inputs()
    p, outputs = numbers(layer), []
    h, c, n = (torch.zeros(B, 6, dtype=torch.float64) for _ in range(3))
    recurrent_weights = p["weight_hh"].view(4, 2, 3, 3)
    for x_t in x:
        from_heads = torch.einsum("ghij,bhj->bghi", recurrent_weights, h.view(B, 2, 3)).reshape(B, 24)
        i, f, z, o = (x_t @ p["weight_ih"].mT + p["bias_ih"] + from_heads).chunk(4, -1)
        f = f.sigmoid() if forget == "sigmoid" else f.exp()
        c, n = f * c + i.exp() * z.tanh(), f * n + i.exp()
        h = o.sigmoid() * c / n
        outputs.append(h)
    output, state = layer(x)
    close(output, torch.stack(outputs))
    close(state[1] * state[3].exp(), c[None])
    seen = layer.inspect(x).activations[0]
    close(seen["forget"] + seen["input"], torch.ones(T, B, 6).double())  # weights of the average c / n


def test_slstm_survives_gates_that_no_exponential_can() -> None:
    layer = SLSTM(1, 1, forget="exponential")
    with torch.no_grad():
        layer.get_parameter("weight_ih_l0").zero_()
        for gates in ([500.0, 0.0, 1.0, 0.0], [-500.0, -500.0, 1.0, 0.0]):
            layer.get_parameter("bias_ih_l0").copy_(torch.tensor(gates))
            layer.get_parameter("weight_hh_l0").zero_()
            close(layer(torch.ones(5, 1, 1))[0], torch.full((5, 1, 1), 0.5 * float(np.tanh(1))), 1e-6)


@pytest.mark.parametrize(("size", "theta"), [(6, 10.0), (1, 3.0), (40, 784.0)])
def test_legendre_matrices_are_scipy_s(size: int, theta: float) -> None:
    signal = pytest.importorskip("scipy.signal")
    a, b = np.zeros((size, size)), np.zeros((size, 1))
    for i in range(size):
        b[i] = (2 * i + 1) / theta * (-1) ** i
        for j in range(size):
            a[i, j] = (2 * i + 1) / theta * (-1 if i < j else (-1) ** (i - j + 1))
    expected = signal.cont2discrete((a, b, np.ones((1, size)), np.zeros((1, 1))), dt=1.0, method="zoh")
    found = legendre_memory(size, theta)
    close(found[0], torch.tensor(expected[0]))
    close(found[1], torch.tensor(expected[1][:, 0]))


def test_lmu_is_its_equations_and_its_memory_remembers_a_window() -> None:
    layer, x = LMU(I, 5, memory_size=8, theta=10, dtype=torch.float64), inputs()
    p = numbers(layer)
    torch.nn.init.normal_(p["weight_em"], std=0.1)  # the parameter itself
    a, b = legendre_memory(8, 10.0)
    h, m, outputs = torch.zeros(B, 5).double(), torch.zeros(B, 8).double(), []
    for x_t in x:
        u = x_t @ p["weight_ex"].mT + h @ p["weight_eh"].mT + m @ p["weight_em"].mT
        m = m @ a.mT + u * b
        h = (x_t @ p["weight_ih"].mT + h @ p["weight_hh"].mT + m @ p["weight_mh"].mT).tanh()
        outputs.append(h)
    output, state = layer(x)
    close(output, torch.stack(outputs))
    close(state[1][0], m)
    t, m = torch.arange(200.0).double(), torch.zeros(8).double()
    signal = (t / 7).sin()  # what went in 5 steps ago: the shifted Legendre polynomials at 1/2
    for value in signal:
        m = a @ m + b * value
    middle = np.polynomial.legendre.legval(0.0, np.eye(8))
    assert abs(float(torch.tensor(middle) @ m) - float(torch.sin((t[-1] + 0.5 - 5) / 7))) < 0.02


# ---------------------------------------------------------------- compiled loops

SMALL: dict[str, dict[str, Any]] = {
    "MinGRU": {},
    "MinLSTM": {"bias": False},
    "LRU": {"state_size": 7},
    "S4D": {"state_size": 6},
    "S5": {"state_size": 6},
    "S6": {"state_size": 3},
    "SLSTM": {"heads": 2},
    "LMU": {"memory_size": 5, "theta": 9},
}
DIAGONAL = [name for name in SMALL if name not in ("SLSTM", "LMU")]


def make(name: str, dtype: torch.dtype = torch.float64, **options: Any) -> Recurrent:
    torch.manual_seed(5)
    return getattr(recurrent, name)(I, 6, **{"dtype": dtype, **SMALL[name], **options})


def results(layer: Recurrent, x: Tensor, mode: Any, lengths: Tensor | None = None) -> list[Tensor]:
    """Outputs, final state and all gradients of one run."""
    x = x.detach().clone().requires_grad_()
    generator = torch.Generator().manual_seed(2)
    shapes = [(len(layer.part_names), B, *shape) for shape in layer.cell.state_shapes]
    hx = tuple(torch.rand(s, generator=generator, dtype=torch.float64).to(x.dtype).requires_grad_() for s in shapes)
    given = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
    with use_loop(mode):
        outputs, final = layer(given, hx)
    found = [outputs.data if isinstance(outputs, PackedSequence) else outputs, *final]
    above = [torch.randn(r.shape, generator=generator).to(r.dtype) for r in found]
    return [*found, *torch.autograd.grad(found, [x, *hx, *layer.parameters()], above)]


@needs_compiler
@pytest.mark.parametrize("name", SMALL)
def test_native_loop_equals_plain_steps(name: str) -> None:
    layer, x = make(name, bidirectional=True), inputs(LONG)
    for lengths in (None, torch.tensor([7, LONG])):
        for wanted, got in zip(results(layer, x, "plain", lengths), results(layer, x, "native", lengths)):
            close(got, wanted)
    state = tuple(torch.zeros(B, *shape).double() for shape in layer.cell.state_shapes)
    assert choose.choose(layer.cell, layer.parts(), x, state, None, False, False).kind == "native"


@needs_compiler
@pytest.mark.parametrize("name", DIAGONAL)
def test_second_derivatives_and_batches_of_gradients(name: str) -> None:
    layer, x, found = make(name), inputs(3), []
    parameters = list(layer.parameters())
    for mode in ("plain", "native"):
        with use_loop(mode):
            outputs = layer(x)[0]
        gradient = torch.autograd.grad(outputs.square().sum(), parameters, create_graph=True)
        twice = torch.autograd.grad(sum(g.square().sum() for g in gradient), parameters)  # type: ignore[arg-type]
        with use_loop(mode):
            outputs = layer(x)[0]
        above = torch.stack((torch.ones_like(outputs), outputs.detach()))
        batch = torch.autograd.grad(outputs, parameters, above, is_grads_batched=True)
        found.append([*gradient, *twice, *batch])
    for wanted, got in zip(*found):
        close(got, wanted, 1e-9)


@needs_compiler
@pytest.mark.parametrize("name", ["MinGRU", *(pytest.param(name, marks=pytest.mark.slow) for name in DIAGONAL[1:])])
def test_autocast_on_a_cpu_keeps_single_precision(name: str) -> None:
    layer, x = make(name, torch.float32), inputs().float()
    with use_loop("native"):
        expected, _ = layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(layer(x)[0], expected)
            narrow, final = layer(x.bfloat16())
    assert narrow.dtype == torch.bfloat16
    assert final[0].dtype == torch.bfloat16
    close(narrow.float(), expected, 0.05)
    half = make(name, torch.float32).bfloat16()
    with use_loop("native"):
        close(half(x.bfloat16())[0].float(), expected, 0.1)


@pytest.mark.parametrize("name", DIAGONAL)
def test_coefficients_are_a_pure_function_of_each_unit(name: str) -> None:
    """A compiled loop traces this part alone."""
    layer = make(name)
    cell, p = layer.cell, layer.parts()
    assert isinstance(cell, DiagonalCell)
    gx, extras = cell.drive(inputs()[0], p), cell.extras(p)
    assert gx.shape == (B, cell.lanes.width)
    assert all(extra.shape == (cell.modes, cell.units) for extra in extras)
    columns = tuple(torch.randn(B, 1, cell.units).double() for _ in range(cell.columns))
    found = cell.coefficients(columns, extras)
    assert len(found) == cell.lanes.coefficients
    close(make_fx(lambda *tensors: cell.coefficients(*tensors))(columns, extras)(columns, extras), found)
    moved = tuple(torch.cat((column[..., :1] + 1, column[..., 1:]), -1) for column in columns)
    close([c[..., 1:] for c in cell.coefficients(moved, extras)], [c[..., 1:] for c in found])


@needs_compiler
def test_long_sequences_keep_one_state_in_every_chunk_alone() -> None:
    layer, x = make("S4D", torch.float32), torch.randn(1000, B, I)
    kept: list[int] = []

    def packed(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
        layer(x)
    assert max(kept) < 1000 * B * 6 * 6  # the states of all steps would be that many


def test_timescales_are_those_of_the_poles() -> None:
    layer = LRU(I, 5)
    seen = layer.inspect(torch.randn(4, B, I))
    re, im, _ = layer.cell.extras(layer.parts())  # type: ignore[attr-defined]
    close(seen.timescales(), (1 / (1 - torch.hypot(re, im))).expand(4, B, 5).detach(), 1e-4)
    step = S6(I, 5, state_size=3).inspect(torch.randn(4, B, I)).activations[0]
    assert step["step"].shape == (4, B, 5)
    assert step["forget"].shape == (4, B, 3, 5)


def test_the_compiled_loop_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, original = [], diagonal.run
    monkeypatch.setattr(diagonal, "run", lambda *arguments: calls.append(1) or original(*arguments))
    layer = make("MinGRU", torch.float32)
    layer(torch.randn(SHORTEST - 1, B, I))
    Step(layer.cell)(torch.randn(B, I))
    assert not calls
    if native.available():
        layer(torch.randn(SHORTEST, B, I))
        assert calls


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LRU(I, 4, r_min=1.0), "r_min < r_max"),
        (lambda: LRU(I, 4, max_phase=7), "max_phase"),
        (lambda: S4D(I, 4, state_size=5), "must be even"),
        (lambda: S5(I, 4, state_size=6, blocks=2), "each of the 2 blocks"),
        (lambda: S6(I, 4, step_min=0.0), "step_min and step_max"),
        (lambda: SLSTM(I, 4, heads=3), "heads=3 must divide"),
        (lambda: SLSTM(I, 4, forget="tanh"), "forget must be"),
        (lambda: MinGRU(I, 4, candidate="g"), "candidate must be"),
        (lambda: LMU(I, 4, theta=0), "theta must be"),
        (lambda: S4D(I, 4, zoneout=0.1), "zoneout is not defined"),
    ],
)
def test_wrong_options_get_one_clear_sentence(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
