"""Initialisers, by the distributions their papers print."""

import math

import pytest
import torch

from numerate.recurrent import CLSTM, GRU, JANET, LSTM, RNN, chrono_, identity_, orthogonal_, uniform_gate_
from numerate.recurrent.init import weight_

many = 200_000
f64 = torch.float64


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_known_timescale_is_uniform():
    """Timescale 1 / (1 - f) = 1 + e^b lies in U[2, T]."""
    d = 1 + chrono_(torch.empty(many, dtype=torch.float64), 50, generator=generator()).exp()
    assert d.min() >= 2
    assert d.max() <= 50
    for q in (0.1, 0.5, 0.9):
        assert abs(d.quantile(q) - (2 + 48 * q)) < 0.3


def test_unknown_timescale_has_the_slow_tail():
    t = chrono_(torch.empty(many, dtype=torch.float64), "unknown", generator=generator()).exp()
    weight = [1 / (k * math.log(k + 1) ** 2) for k in range(1, 200_000)]
    total = sum(weight) + 1 / math.log(200_000)
    for k in (1, 2, 3, 10):
        assert abs((t.round() == k).double().mean() - weight[k - 1] / total) < 0.004
    for x in (100, 50_000):  # exact table and drawn tail
        beyond = 1 - sum(weight[:x]) / total
        assert abs((t > x + 0.5).double().mean() - beyond) < 0.004


def test_uniform_gate_activations_stay_inside_their_range():
    f = uniform_gate_(torch.empty(10, dtype=torch.float64), generator()).sigmoid()
    assert f.min() >= 0.1
    assert f.max() <= 0.9
    torch.testing.assert_close(uniform_gate_(torch.empty(1)), torch.zeros(1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_biases_in_a_short_float_are_those_of_single_precision_rounded(dtype):
    for draw in (uniform_gate_, lambda bias, g: chrono_(bias, 100_000, generator=g)):
        expected = draw(torch.empty(many), generator())
        assert torch.equal(draw(torch.empty(many, dtype=dtype), generator()), expected.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, f64], ids=str)
def test_biases_are_transformed_uniform_numbers_of_their_own_type(dtype):
    u = torch.empty(100, dtype=dtype).uniform_(0.01, 0.99, generator=generator())
    assert torch.equal(uniform_gate_(torch.empty(100, dtype=dtype), generator()), u.logit())
    u = torch.empty(100, dtype=dtype).uniform_(1, 49, generator=generator())
    assert torch.equal(chrono_(torch.empty(100, dtype=dtype), 50, generator=generator()), u.log())


def test_a_long_timescale_in_a_short_float():
    bias = CLSTM(3, 64, timescale=100_000, dtype=torch.float16).parts()["gate_bias"]
    assert 5 < bias.max() <= math.log(100_000) + 0.01


def test_orthogonal_and_identity():
    w = orthogonal_(torch.empty(6, 6, dtype=torch.float64), generator())
    torch.testing.assert_close(w @ w.T, torch.eye(6, dtype=torch.float64))
    assert torch.equal(identity_(torch.empty(4, 4)), torch.eye(4))
    assert torch.equal(RNN(2, 4, recurrent_init="identity").parts()["weight_hh"], torch.eye(4))
    w = RNN(2, 4, recurrent_init="orthogonal").parts()["weight_hh"]
    torch.testing.assert_close(w @ w.T, torch.eye(4))


def test_chrono_lstm_mirrors_the_forget_bias_in_the_input_bias():
    bias = LSTM(2, 50, timescale=100).parts()["bias_ih"]
    i, f, g, o = bias.chunk(4)
    assert torch.equal(i, -f)
    assert f.min() >= 0
    assert f.max() <= math.log(99)
    assert not g.any()
    assert not o.any()
    assert f.unique().numel() > 40


def test_chrono_gru_and_janet():
    assert GRU(2, 50, timescale=100).parts()["bias_ih"].chunk(3)[1].unique().numel() > 40
    f, u = JANET(2, 2000, timescale=3).parts()["bias_ih"].chunk(2)
    assert math.log(2.9) < f.max() <= math.log(3)  # up to T, not T - 1
    assert not u.any()
    assert JANET(2, 3).parts()["bias_ih"].tolist() == [1.0] * 3 + [0.0] * 3


@pytest.mark.parametrize(
    ("scheme", "low", "high", "deviation"),
    [
        ("uniform", -1 / 3, 1 / 3, 1 / 3 / math.sqrt(3)),
        ("truncated_normal", -2 / 20, 2 / 20, 0.88 / 20),
        ("xavier_uniform", -math.sqrt(6 / 1000), math.sqrt(6 / 1000), math.sqrt(2 / 1000)),
        ("xavier_normal", -1, 1, math.sqrt(2 / 1000)),
    ],
)
def test_weight_schemes(scheme, low, high, deviation):
    w = weight_(torch.empty(600, 400), scheme, 9, generator())
    assert low <= w.min()
    assert w.max() <= high
    assert abs(w.std() / deviation - 1) < 0.01


def test_what_cannot_be_gets_one_clear_sentence():
    with pytest.raises(ValueError, match=r"timescale must be a number of at least 2 or 'unknown', got 1\.5"):
        chrono_(torch.empty(3), 1.5)
    with pytest.raises(ValueError, match=r"timescale must be a number of at most 3\.4e\+38 or 'unknown', got inf"):
        CLSTM(2, 3, timescale=math.inf)
    with pytest.raises(ValueError, match="weight_init must be"):
        LSTM(2, 3, weight_init="zeros")


def test_orthogonal_matrices_in_a_short_float():
    weight = orthogonal_(torch.empty(6, 6, dtype=torch.bfloat16)).double()
    torch.testing.assert_close(weight @ weight.T, torch.eye(6, dtype=torch.float64), atol=0.02, rtol=0)
