"""The smaller cells against their equations, and every option against its effect."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from numerate.recurrent import (
    DNC,
    EURNN,
    GORU,
    GRU,
    JANET,
    LSTM,
    NRU,
    RMA,
    RMC,
    RNN,
    UGRNN,
    Recurrent,
    StatisticalRU,
    Step,
    UnitCell,
    UnitRNN,
)
from numerate.units import NALU, NATU, NAU, NMU, NSR, NACMul, RealNPU, apply_bounds_, parameter_bounds

f64 = torch.float64


def test_janet_is_its_equation():
    layer, x, h = JANET(3, 4, beta=1.5, dtype=f64), torch.randn(2, 3, dtype=f64), torch.randn(2, 4, dtype=f64)
    p = layer.parts()
    s, u = (x @ p["weight_ih"].T + h @ p["weight_hh"].T + p["bias_ih"]).chunk(2, -1)
    expected = s.sigmoid() * h + (1 - (s - 1.5).sigmoid()) * u.tanh()
    torch.testing.assert_close(layer(x[None], h[None])[0][0], expected)


def test_ugrnn_is_a_gru_without_reset():
    """Same blocks as the GRU's forget and candidate, its reset gate held open."""
    layer, gru = UGRNN(3, 4, dtype=f64), GRU(3, 4, recurrent_bias=False, dtype=f64)
    with torch.no_grad():
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0"):
            getattr(gru, name)[4:] = getattr(layer, name)
        gru.parts()["weight_ih"][:4] = 0
        gru.parts()["weight_hh"][:4] = 0
        gru.parts()["bias_ih"][:4] = 100.0
    x = torch.randn(5, 2, 3, dtype=f64)
    torch.testing.assert_close(layer(x), gru(x))
    assert layer.parts()["bias_ih"].tolist() == [1.0] * 4 + [0.0] * 4


def test_statistical_unit_keeps_moving_averages():
    scales = (0.0, 0.5, 0.9)
    layer = StatisticalRU(2, 3, statistics_size=4, summary_size=5, scales=scales, dtype=f64)
    with torch.no_grad():
        for q in layer.parameters():
            q.normal_()
    p, x = layer.parts(), torch.randn(6, 2, 2, dtype=f64)
    means, outputs = [torch.zeros(2, 4, dtype=f64) for _ in scales], []
    for x_t in x:
        r = (torch.cat(means, -1) @ p["weight_r"].T + p["bias_r"]).relu()
        phi = (torch.cat((x_t, r), -1) @ torch.cat((p["weight_ih"], p["weight_rh"]), -1).T + p["bias_ih"]).relu()
        means = [a * m + (1 - a) * phi for a, m in zip(scales, means)]
        outputs.append((torch.cat(means, -1) @ p["weight_o"].T + p["bias_o"]).relu())
    output, (state,) = layer(x)
    torch.testing.assert_close(output, torch.stack(outputs))
    torch.testing.assert_close(state[0], torch.cat(means, -1))


def test_layer_norm_sits_before_the_nonlinearity():
    layer, x, h = (
        RNN(3, 4, layer_norm=True, activation="relu", dtype=f64),
        torch.randn(2, 3, dtype=f64),
        torch.randn(2, 4, dtype=f64),
    )
    p = layer.parts()
    z = x @ p["weight_ih"].T + h @ p["weight_hh"].T + p["bias_ih"]
    torch.testing.assert_close(layer(x[None], h[None])[0][0], F.layer_norm(z, (4,)).relu())


@pytest.mark.parametrize("unit", [NAU, NMU, nn.Linear])
def test_any_unit_is_a_cell_on_input_and_state(unit):
    layer = UnitRNN(3, 2, unit=unit, dtype=f64)
    x, h, outputs = torch.randn(5, 4, 3, dtype=f64), torch.full((4, 2), float(unit is NMU), dtype=f64), []
    for x_t in x:
        h = layer.get_submodule("unit_l0")(torch.cat((x_t, h), -1))
        outputs.append(h)
    torch.testing.assert_close(layer(x)[0], torch.stack(outputs))


def test_an_addition_unit_sums_a_sequence_of_any_length():
    layer = UnitRNN(2, 1, unit=NAU)
    with torch.no_grad():
        layer.get_parameter("unit_l0.weight").copy_(torch.tensor([[1.0, 0.0, 1.0]]))
    x = torch.rand(1000, 3, 2)
    torch.testing.assert_close(layer(x)[0][-1, :, 0], x[..., 0].sum(0))


@pytest.mark.parametrize(
    ("unit", "initial", "expected"),
    [
        (NMU, None, [2, 6, 24]),
        (NAU, None, [2, 5, 9]),
        (NMU, "learnt", [2, 6, 24]),
        (NAU, "learnt", [2, 5, 9]),
        (NMU, 0.5, [1, 3, 12]),
        (NAU, 10, [12, 15, 19]),
        (NMU, 0.0, [0, 0, 0]),
        (partial(NACMul, eps=0.0), None, [2, 6, 24]),
        (RealNPU, None, [2, 6, 24]),
        (NALU, None, [2, 5, 9]),
    ],
)
def test_a_unit_accumulates_from_its_neutral_element(unit, initial, expected):
    layer = UnitRNN(1, 1, unit=unit, initial=initial, dtype=f64)
    inner = layer.get_submodule("unit_l0")
    with torch.no_grad():
        for name, value in inner.named_parameters():  # every unit here computes exactly at these
            value.fill_(1.0 if name in ("weight", "weight_real") or (name == "gate" and unit is RealNPU) else 2000.0)
        for value in (p for name, p in inner.named_parameters() if name == "weight_imag"):
            value.zero_()
    x = torch.tensor([2.0, 3.0, 4.0], dtype=f64).view(3, 1, 1)
    torch.testing.assert_close(layer(x)[0].flatten(), torch.tensor(expected, dtype=f64), rtol=1e-5, atol=0)
    output, state = Step(layer.cell, dtype=f64)(x[0])
    assert output.shape == state[0].shape == (1, 1)


@pytest.mark.parametrize(("gate", "expected"), [(1.0, [2, 5, 9]), (0.0, [2, 6, 24])])
def test_a_natu_starts_at_the_neutral_element_that_its_gate_chooses(gate, expected):
    for initial in (None, "learnt"):
        layer = UnitRNN(1, 1, unit=NATU, initial=initial, dtype=f64)
        unit = layer.get_submodule("unit_l0")
        with torch.no_grad():
            for value in unit.parameters():
                value.fill_(1.0)
            unit.get_parameter("gate").fill_(gate)
            if initial:
                layer.get_parameter("initial_l0").copy_(1 - unit.get_parameter("gate"))
        x = torch.tensor([2.0, 3.0, 4.0], dtype=f64).view(3, 1, 1)
        torch.testing.assert_close(layer(x)[0].flatten(), torch.tensor(expected, dtype=f64))
    start = UnitRNN(2, 3, unit=NATU, initial="learnt")
    torch.testing.assert_close(start.get_parameter("initial_l0"), 1 - start.get_parameter("unit_l0.gate"))


@pytest.mark.parametrize(("unit", "reached"), [(NAU, [True, True]), (NATU, [False, True])])
def test_a_stepwise_unit_gets_no_gradient_through_its_state(unit, reached):
    x = torch.rand(2, 5, 1, dtype=f64, requires_grad=True)
    UnitRNN(1, 1, unit=unit, dtype=f64)(x)[0][-1].square().sum().backward()
    assert x.grad is not None
    assert [bool(step.any()) for step in x.grad] == reached


def test_a_learnt_start_has_a_gradient_in_every_layer_and_direction():
    layer = UnitRNN(1, 1, 2, unit=NAU, initial="learnt", bidirectional=True, dtype=f64)
    with torch.no_grad():
        for name, value in layer.named_parameters():
            value.fill_(1.0 if "unit" in name else 0.0)
    layer(torch.ones(3, 1, 1, dtype=f64))[0][-1].sum().backward()
    starts = {name: p.grad.item() for name, p in layer.named_parameters() if p.grad is not None and "initial" in name}
    # the last output ahead sums three pairs, each with both starts below; the last one back is the first it makes
    assert starts == {"initial_l0": 4.0, "initial_l0_reverse": 4.0, "initial_l1": 1.0, "initial_l1_reverse": 1.0}
    assert UnitRNN(2, 3, unit=NMU, initial="learnt").get_parameter("initial_l0").tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="initial must be one of 'learnt', got 'learned'"):
        UnitRNN(2, 3, unit=NMU, initial="learned")


def test_a_module_without_a_generator_draws_from_the_one_given():
    layer, before = UnitRNN(3, 4, 2), torch.get_rng_state()
    drawn = []
    for seed in (1, 1, 2):
        layer.reset_parameters(torch.Generator().manual_seed(seed))
        drawn.append([p.detach().clone() for p in layer.parameters()])
    assert torch.equal(torch.get_rng_state(), before)
    one, same, other = drawn
    assert all(torch.equal(a, b) for a, b in zip(one, same))
    assert not any(torch.equal(a, b) for a, b in zip(one, other))
    assert not torch.equal(one[1], one[3])  # the biases of two layers


def test_a_unit_of_another_width_gets_one_clear_sentence():
    layer = UnitRNN(3, 4, unit=partial(NSR, pair=True))
    for x in (torch.randn(1, 2, 3), torch.randn(5, 2, 3)):
        with pytest.raises(ValueError, match="it must have 4 features, NSR gives 8"):
            layer(x)


def test_bounds_of_a_unit_are_found_in_every_layer():
    layer = UnitRNN(3, 2, 2, unit=NMU, bidirectional=True)
    assert set(parameter_bounds(layer)) == {f"unit_l{k}{way}.weight" for k in (0, 1) for way in ("", "_reverse")}
    with torch.no_grad():
        layer.get_parameter("unit_l1.weight").fill_(3.0)
    apply_bounds_(layer)
    assert layer.get_parameter("unit_l1.weight").max() == 1


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (RNN, {"activation": "relu"}),
        (RNN, {"layer_norm": True}),
        (RNN, {"recurrent_init": "identity"}),
        (RNN, {"layer_norm": True, "eps": 1.0}),
        (LSTM, {"weight_init": "xavier_normal"}),
        (LSTM, {"forget_bias": 0.0}),
        (LSTM, {"tied": True}),
        (LSTM, {"timescale": 30}),
        (GRU, {"reset_after": False}),
        (GRU, {"tied": False}),
        (JANET, {"beta": 0.5}),
        (JANET, {"forget_bias": 3.0}),
        (UGRNN, {"forget_bias": 3.0}),
        (StatisticalRU, {"scales": (0.1, 0.9)}),
        (StatisticalRU, {"learn_scales": True}),
        (EURNN, {"eps": 0.01}),
        (EURNN, {"complex": True}),
        (GORU, {"eps": 0.01}),
        (NRU, {"head_reduce": "sum"}),
        (NRU, {"head_inputs": "xhm"}),
        (NRU, {"shared_q": False}),
        (NRU, {"relu_heads": True}),
        (NRU, {"layer_norm": True}),
        (NRU, {"norm_order": 2.0}),
        (DNC, {"strength": "oneplus"}),
        (DNC, {"clip": 0.1}),
        (DNC, {"write_heads": 2}),
        (DNC, {"gate": "UR"}),
        (RMA, {"activation": "relu"}),
        (RMA, {"encoder": (100, 200)}),
        (RMA, {"top_k": 1}),
        (RMA, {"gate": "UR"}),
        (RMA, {"weight_init": "uniform"}),
        (RMC, {"gate_style": "memory"}),
        (RMC, {"blocks": 2}),
        (RMC, {"mlp_layers": 1}),
        (RMC, {"input_bias": 1.0}),
        (LSTM, {"zoneout": 0.1}),
        (GRU, {"num_layers": 2}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else str(value),
)
def test_every_option_changes_the_result(layer, options):
    x = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0))
    results = []
    for keywords in ({k: v for k, v in options.items() if k == "layer_norm" and len(options) > 1}, options):
        model = layer(3, 8, **keywords).eval()
        model.reset_parameters(torch.Generator().manual_seed(0))
        results.append(model(x)[0])
    assert not torch.allclose(*results)


def test_zoneout_keeps_values_in_training_and_averages_outside():
    layer = LSTM(2, 2000, zoneout=(0.05, 0.5))
    x, start = torch.randn(1, 1, 2), tuple(torch.randn(1, 1, 2000) for _ in range(2))
    plain = LSTM(2, 2000)
    plain.load_state_dict(layer.state_dict())
    _, new = plain(x, start)
    layer.train()
    output, zoned = layer(x, start)
    assert torch.equal(output[0], zoned[0][0])
    for entry, fresh, old, rate in zip(zoned, new, start, (0.05, 0.5)):
        kept = entry == old
        assert abs(kept.float().mean() - rate) < 0.05
        assert torch.equal(entry[~kept], fresh[~kept])
    layer.eval()
    _, mixed = layer(x, start)
    for entry, fresh, old, rate in zip(mixed, new, start, (0.05, 0.5)):
        torch.testing.assert_close(entry, rate * old + (1 - rate) * fresh)


def test_rates_may_be_numbers_of_numpy():
    for rate in (np.float32(0.25), np.float64(0.25), np.array([0.25, 0.25])):
        assert LSTM(2, 3, zoneout=rate).zoneout == (0.25, 0.25)


def test_dropout_acts_between_layers_and_in_training_only():
    torch.manual_seed(0)
    x = torch.randn(3, 2, 4)
    with pytest.warns(UserWarning, match="num_layers=1"):
        one = LSTM(4, 50, 1, dropout=0.5)
    two = LSTM(4, 50, 2, dropout=0.5)
    assert torch.equal(one(x)[0], one(x)[0])
    assert not torch.equal(two(x)[0], two(x)[0])
    two.eval()
    assert torch.equal(two(x)[0], two(x)[0])


def test_weight_dropout_draws_one_mask_per_call():
    layer = LSTM(4, 50, weight_dropout=0.5)
    x = torch.randn(3, 2, 4)
    torch.testing.assert_close(layer(x)[0][0], layer(x)[0][0])  # the first step sees no recurrent weight
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


def test_a_cell_of_ones_own_needs_a_handful_of_lines():
    layer = Recurrent(UnitCell(3, 2, unit=nn.Linear), 2, bidirectional=True, batch_first=True)
    assert layer(torch.randn(5, 7, 3))[0].shape == (5, 7, 4)
    output, state = Step(UnitCell(3, 2, unit=nn.Linear))(torch.randn(5, 3))
    assert torch.equal(output, state[0])


def test_options_that_cannot_be_get_one_clear_sentence():
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        LSTM(2, 3, dropout=1.5)
    for name in ("dropout", "zoneout", "weight_dropout"):
        for wrong in ("a", ".1", None):
            with pytest.raises(ValueError, match=f"{name} must be at least 0 and below 1, got {wrong!r}"):
                LSTM(2, 3, 2, **{name: wrong})
    with pytest.raises(ValueError, match="zoneout must be one rate or 2"):
        LSTM(2, 3, zoneout=(0.1,))
    with pytest.raises(ValueError, match="zoneout is not defined for RMCCell"):
        RMC(2, 4, zoneout=0.1)
    with pytest.raises(ValueError, match="weight_dropout is not defined for EURNNCell"):
        EURNN(2, 4, weight_dropout=0.1)
    with pytest.raises(ValueError, match="recurrent_init must be one of"):
        RNN(2, 3, recurrent_init="zero")
    with pytest.raises(ValueError, match=r"scales must be numbers in \[0, 1\)"):
        StatisticalRU(2, 3, scales=(1.0,))
    with pytest.raises(ValueError, match=r"LSTMCell expects an input of shape \(B, 2\) or \(2,\), got \(3, 4, 2\)"):
        Step(LSTM(2, 3).cell)(torch.zeros(3, 4, 2))
    with pytest.raises(ValueError, match="inspect takes a tensor"):
        LSTM(2, 3).inspect(nn.utils.rnn.pack_sequence([torch.zeros(3, 2)]))
    with pytest.raises(ValueError, match="LSTM expects a tensor as entry 0 of the state, got None"):
        LSTM(2, 3)(torch.zeros(3, 4, 2), (None, None))
    with pytest.raises(TypeError, match="LSTM has no keyword 'proj_size': there is no projection of the hidden state"):
        LSTM(2, 3, proj_size=1)


def test_layers_say_what_they_are():
    assert repr(LSTM(2, 3)) == "LSTM(LSTMCell(2, 3))"
    text = repr(GRU(2, 3, 2, gate="UR", zoneout=0.1, batch_first=True))
    assert text == "GRU(GRUCell(2, 3, gate='UR'), num_layers=2, batch_first=True, zoneout=(0.1,))"
