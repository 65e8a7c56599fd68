"""Options that follow a paper or its code to the letter, each against the formula written out."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from numerate.recurrent import (
    EURNN,
    GATES,
    GORU,
    LSTM,
    NRU,
    OMLSTM,
    ONLSTM,
    RMC,
    UMGRU,
    UMLSTM,
    StatisticalRU,
)
from numerate.recurrent.dnc import cosines
from numerate.recurrent.rotation import mod_relu, mod_relu_complex

f64 = torch.float64


# ---------------------------------------------------------------- uniform gates


def test_master_gates_start_with_timescales_up_to_the_hidden_size():
    """U[1/d, 1 - 1/d] with d the hidden size, not the number of master entries: sampled quantiles are those of d."""
    bias = torch.empty(200_000, dtype=f64)
    GATES["UM"].reset_bias_(bias, None, 512, torch.Generator().manual_seed(0))
    timescales = 1 / (1 - bias.sigmoid())
    assert 500 < timescales.max() <= 512 + 1e-6
    assert 1 / 512 - 1e-9 <= bias.sigmoid().min() < 1 / 500
    for q in (0.1, 0.5, 0.9):
        assert abs(bias.sigmoid().quantile(q) - (1 / 512 + q * (1 - 2 / 512))) < 0.005


@pytest.mark.parametrize("layer", [UMLSTM, UMGRU])
def test_layers_with_master_gates_hand_their_hidden_size_on(layer):
    seen = []
    for _ in range(20):
        seen.append(layer(1, 256, downsize=16).parts()["gate_bias"].detach().sigmoid())
    assert seen[0].shape == (16,)
    assert 1 - 1 / 16 < torch.stack(seen).max() <= 1 - 1 / 256  # 320 draws, a sixteenth of them beyond 1 - 1/16


def test_one_gate_for_each_slot_starts_anywhere():
    starts = torch.cat([RMC(3, 64, gate_style="memory", gate="U").parts()["gate_bias"].sigmoid() for _ in range(50)])
    assert starts.shape == (50,)
    assert starts.min() < 0.2
    assert starts.max() > 0.8
    assert starts.min() >= 1 / 64


# ---------------------------------------------------------------- EURNN, GORU


def test_complex_mod_relu_divides_by_the_modulus_it_adds_to():
    v = torch.randn(50, dtype=torch.complex128)
    v[0] = 0
    bias, eps = torch.randn(50, dtype=f64), 0.01
    norm = v.abs() + eps
    expected = v / norm * (norm + bias).relu()
    re, im = mod_relu_complex(v.real, v.imag, bias, eps)
    torch.testing.assert_close(torch.complex(re, im), expected)
    unchanged = mod_relu_complex(v.real, v.imag, torch.zeros(50, dtype=f64), eps)
    torch.testing.assert_close(unchanged, (v.real, v.imag))


@pytest.mark.parametrize("eps", [0.0, 0.01])
def test_complex_mod_relu_has_gradients_at_zero(eps):
    re, im = torch.zeros(2, 3, dtype=f64, requires_grad=True).unbind(0)
    bias = torch.full((3,), 0.5, dtype=f64)
    slope, _ = torch.autograd.grad(mod_relu_complex(re, im, bias, eps)[0].sum(), (re, im))
    assert torch.allclose(slope, torch.full((3,), (eps + 0.5) / eps if eps else 0.0, dtype=f64))


def test_a_complex_eurnn_with_eps_keeps_the_norm_at_the_start():
    layer = EURNN(1, 16, complex=True, eps=0.01, dtype=f64)
    start = tuple(torch.randn(1, 3, 16, dtype=f64) for _ in range(2))
    _, end = layer(torch.zeros(100, 3, 1, dtype=f64), start)
    torch.testing.assert_close(*(sum(entry.square().sum(-1) for entry in state) for state in (start, end)))


@pytest.mark.parametrize(("size", "capacity"), [(6, 4), (7, 3), (8, 8)])
@pytest.mark.parametrize("dense", [True, False])
def test_tunable_goru_is_its_equations(size, capacity, dense):
    layer = GORU(3, size, capacity=capacity, dense=dense, dtype=f64)
    with torch.no_grad():
        layer.parts()["weight_hh"].normal_()
    p = {name: part.detach() for name, part in layer.parts().items()}
    transition = torch.eye(size, dtype=f64)
    for level in range(capacity):
        turn = torch.eye(size, dtype=f64)
        for j, t in enumerate((p["angle_odd"] if level % 2 else p["angle"])[level // 2]):
            a = 2 * j + level % 2
            turn[a : a + 2, a : a + 2] = torch.tensor([[t.cos(), -t.sin()], [t.sin(), t.cos()]], dtype=f64)
        transition = turn @ transition
    x, h = torch.randn(2, 3, dtype=f64), torch.randn(2, size, dtype=f64)
    (ur, ug, uc), (wr, wg), (br, bg) = p["weight_ih"].chunk(3), p["weight_hh"].chunk(2), p["bias_ih"].chunk(2)
    r, g = (x @ ur.T + h @ wr.T + br).sigmoid(), (x @ ug.T + h @ wg.T + bg).sigmoid()
    c = mod_relu(x @ uc.T + r * (h @ transition.T), p["modrelu_bias"])
    torch.testing.assert_close(layer(x[None], h[None])[0][0], g * h + (1 - g) * c)


def test_tunable_goru_takes_any_size_of_two_or_more():
    with pytest.raises(ValueError, match="at least 2, got 1"):
        GORU(3, 1, capacity=2)
    with pytest.raises(ValueError, match="capacity must be a positive whole number"):
        GORU(3, 6, capacity=0)


# ---------------------------------------------------------------- NRU


def nru_memory(layer, x):
    """The memory after all steps with directions from eq. 13-14 (``linear``) or cut out of outer products."""
    cell, p = layer.cell, layer.parts()
    size, (k, l) = cell.memory_size, (cell.heads, cell.erase_heads or cell.heads)  # noqa: E741
    h, m = x.new_zeros(x.shape[1], cell.hidden_size), x.new_zeros(x.shape[1], size)
    for x_t in x:
        h = (x_t @ p["weight_ih"].T + torch.cat((h, m), 1) @ p["weight_hh"].T + p["bias_ih"]).relu()
        heads = torch.cat((h, m), 1) @ p["weight_heads"].T + p["bias_heads"]
        if cell.head_inputs == "xhm":
            heads = heads + x_t @ p["weight_heads_x"].T
        strengths, rest = (heads[:, :k], heads[:, k : k + l]), heads[:, k + l :]
        if cell.directions == "linear":
            directions = rest[:, : k * size], rest[:, k * size :]
        else:
            r, s = math.isqrt(k * size), math.isqrt(l * size)
            pw, pe, qw, qe = rest[:, :r], rest[:, r : r + s], rest[:, r + s : 2 * r + s], rest[:, 2 * r + s :]
            directions = pw.unsqueeze(2) * qw.unsqueeze(1), pe.unsqueeze(2) * qe.unsqueeze(1)
        update = []
        for strength, direction in zip(strengths, directions):
            v = direction.reshape(len(m), strength.shape[1], size)
            if cell.relu_heads:
                strength, v = strength.relu(), v.relu()
            each = strength.unsqueeze(2) * F.normalize(v, p=5.0, dim=2)
            update.append(each.mean(1) if cell.head_reduce == "mean" else each.sum(1))
        m = m + update[0] - update[1]
    return h, m


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"directions": "linear"},
        {"directions": "linear", "erase_heads": 2, "memory_size": 10, "head_reduce": "sum", "head_inputs": "xhm"},
        {"erase_heads": 1},
        {"heads": 1, "erase_heads": 4, "head_reduce": "sum"},
        {"heads": 1, "erase_heads": 9, "memory_size": 36, "factored": False},
    ],
    ids=str,
)
def test_nru_with_other_heads_and_directions_is_its_equations(options, relu):
    layer = NRU(3, 7, **{"memory_size": 16, "heads": 4, "relu_heads": relu, **options}, dtype=f64)
    x = torch.randn(6, 2, 3, dtype=f64)
    output, (_, m) = layer(x)
    h, expected = nru_memory(layer, x)
    torch.testing.assert_close(output[-1], h)
    torch.testing.assert_close(m[0], expected)


def test_nru_options_that_would_do_nothing_are_refused():
    for name, value in (("shared_q", False), ("factored", True)):
        with pytest.raises(ValueError, match=f"directions='linear' are no outer products: leave out {name}={value}"):
            NRU(3, 5, directions="linear", **{name: value})
    with pytest.raises(ValueError, match=r"erase_heads \* memory_size = 3 \* 64 must be a perfect square"):
        NRU(3, 5, erase_heads=3)
    with pytest.raises(ValueError, match="directions must be one of 'outer', 'linear', got 'matrix'"):
        NRU(3, 5, directions="matrix")


# ---------------------------------------------------------------- SRU


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"summary_size": 0},
        {"linear_output": True},
        {"output_sees_input": True, "activation": "tanh"},
        {"append_input": True, "linear_output": True, "output_sees_input": True},
        {"append_input": True, "bias": False},
    ],
    ids=str,
)
def test_statistical_unit_has_the_options_of_its_code(options):
    layer = StatisticalRU(3, 4, statistics_size=5, scales=(0.0, 0.9), dtype=f64, **{"summary_size": 2, **options})
    p = layer.parts()
    f = torch.tanh if options.get("activation") == "tanh" else torch.relu
    with torch.no_grad():
        for part in p.values():
            part.normal_()
    x = torch.randn(6, 2, 3, dtype=f64)
    m, outputs = [torch.zeros(2, 5, dtype=f64)] * 2, []
    for x_t in x:
        phi = x_t @ p["weight_ih"].T + p.get("bias_ih", 0)
        if "weight_r" in p:
            phi = phi + f(torch.cat(m, 1) @ p["weight_r"].T + p.get("bias_r", 0)) @ p["weight_rh"].T
        m = [a * average + (1 - a) * f(phi) for a, average in zip((0.0, 0.9), m)]
        o = torch.cat(m, 1) @ p["weight_o"].T + p.get("bias_o", 0)
        if "weight_ox" in p:
            o = o + x_t @ p["weight_ox"].T
        o = o if options.get("linear_output") else f(o)
        outputs.append(torch.cat((o, x_t), 1) if options.get("append_input") else o)
    output, state = layer(x)
    torch.testing.assert_close(output, torch.stack(outputs))
    torch.testing.assert_close(state[0][0], torch.cat(m, 1))
    assert layer.output_size == output.shape[-1]


def test_layers_on_appended_inputs_grow():
    layer = StatisticalRU(3, 4, 3, statistics_size=5, summary_size=2, append_input=True, bidirectional=True)
    output, _ = layer(torch.randn(2, 5, 3))
    assert [cell.input_size for cell in layer.cells] == [3, 14, 36]
    assert output.shape[-1] == layer.output_size == 80


# ---------------------------------------------------------------- ON-LSTM, DNC


def test_on_lstm_starts_as_linear_maps_do():
    layer = ONLSTM(50, 128)
    p = layer.parts()
    for name, fan_in in (("ih", 50), ("hh", 128)):
        for part in (p[f"weight_{name}"], p[f"bias_{name}"]):
            bound = 1 / math.sqrt(fan_in)
            assert part.abs().max() <= bound
            assert part.abs().max() > 0.98 * bound
            assert abs(part.std() * math.sqrt(3) / bound - 1) < 0.1
    assert p["bias_ih"].shape == p["bias_hh"].shape == (4 * 128 + 2 * 8,)
    assert not OMLSTM(50, 128).parts()["bias_ih"].any()  # the paper on gates starts its biases at 0
    for name, value in (("forget_bias", 1.0), ("timescale", 5), ("weight_init", "xavier_normal")):
        options: dict[str, Any] = {name: value}
        with pytest.raises(ValueError, match=f"draws every map as nn.Linear does: leave out {name}="):
            LSTM(3, 4, start="linear", **options)


def test_on_lstm_drops_weights_in_training_and_shrinks_them_in_evaluation():
    """Its LinearDropConnect: w with some entries 0 in training, w (1 - rate) else."""
    layer = ONLSTM(3, 16, weight_dropout=0.25, dtype=f64)
    weight = layer.parts()["weight_hh"]
    torch.manual_seed(1)
    dropped = layer._dropped(layer.parts())["weight_hh"]
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], weight[kept])
    assert 0.2 < (~kept).double().mean() < 0.3
    layer.eval()
    torch.testing.assert_close(layer._dropped(layer.parts())["weight_hh"], 0.75 * weight)
    same = ONLSTM(3, 16, dtype=f64).eval()
    same.load_state_dict(layer.state_dict())
    with torch.no_grad():
        same.parts()["weight_hh"].mul_(0.75)
    x = torch.randn(5, 2, 3, dtype=f64)
    torch.testing.assert_close(layer(x), same(x))
    with pytest.raises(ValueError, match="weight_dropout_rescales must be one of 'training', 'evaluation'"):
        LSTM(3, 4, weight_dropout_rescales="never")


def test_content_of_the_dnc_has_both_epsilons_of_the_released_code():
    memory, keys = 1e-3 * torch.randn(2, 5, 4, dtype=f64), 1e-3 * torch.randn(2, 3, 4, dtype=f64)
    expected = torch.empty(2, 3, 5, dtype=f64)
    for b in range(2):
        for i in range(3):
            for j in range(5):
                norm_k, norm_m = (math.sqrt(float(v @ v) + 1e-6) for v in (keys[b, i], memory[b, j]))
                expected[b, i, j] = float(keys[b, i] @ memory[b, j]) / (norm_k * norm_m + 1e-6)
    torch.testing.assert_close(cosines(memory, keys), expected)
