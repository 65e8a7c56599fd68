"""The baselines against torch's own layers and the initialisations as run."""

import math
from functools import partial

import pytest
import sympy
import torch
from torch import nn

from numerate.units import MLP, Dense, dense, sparsity_error
from numerate.units.mlp import NAMES

DOUBLE = torch.float64
MODULES = {
    "none": nn.Identity(),
    "hardtanh": nn.Hardtanh(),
    "sigmoid": nn.Sigmoid(),
    "relu6": nn.ReLU6(),
    "tanh": nn.Tanh(),
    "softsign": nn.Softsign(),
    "threshold": nn.Threshold(1.0, 0.0),
    "selu": nn.SELU(),
    "elu": nn.ELU(),
    "softshrink": nn.Softshrink(),
    "relu": nn.ReLU(),
    "leaky_relu": nn.LeakyReLU(),
    "tanhshrink": nn.Tanhshrink(),
    "softplus": nn.Softplus(),
    "prelu": nn.PReLU(dtype=DOUBLE),
}


def double(*shape, seed=0):
    return torch.randn(*shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))


def test_every_nonlinearity_that_the_papers_compare_is_there():
    assert set(NAMES) == {*MODULES, "crelu"}


@pytest.mark.parametrize("activation", MODULES)
def test_layer_is_linear_then_nonlinear(activation):
    unit = Dense(3, 4, activation=activation, dtype=DOUBLE)
    x = 4 * double(50, 3)
    z = x @ unit.weight.T + unit.bias
    torch.testing.assert_close(unit(x), MODULES[activation](z))


def test_crelu_gives_both_halves():
    unit = Dense(3, 4, activation="crelu", dtype=DOUBLE)
    assert unit.weight.shape == (2, 3)
    x = double(20, 3)
    z = x @ unit.weight.T + unit.bias
    y = unit(x)
    torch.testing.assert_close(y[:, :2] - y[:, 2:], z)
    torch.testing.assert_close(y.sum(-1), z.abs().sum(-1))
    with pytest.raises(ValueError, match=r"^out_features must be even with activation='crelu', got 3$"):
        Dense(3, 3, activation="crelu")


@pytest.mark.parametrize(
    ("activation", "bound"),
    [
        ("none", math.sqrt(6 / 300)),
        ("sigmoid", math.sqrt(6 / 300)),
        ("softsign", math.sqrt(6 / 300)),
        ("tanh", 5 / 3 * math.sqrt(6 / 300)),
        ("relu", math.sqrt(6 / 200)),
        ("relu6", math.sqrt(6 / 200)),
        ("elu", math.sqrt(6 / 200)),
        ("selu", math.sqrt(3 / 200)),
    ],
)
def test_initialisation_as_run(activation, bound):
    unit = Dense(200, 100, activation=activation)
    assert unit.weight.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert unit.weight.var().item() == pytest.approx(bound**2 / 3, rel=0.03)
    assert (unit.bias == 0).all()


@pytest.mark.parametrize("activation", ["hardtanh", "threshold", "softshrink", "leaky_relu", "tanhshrink", "softplus"])
def test_the_others_are_drawn_as_torch_draws(activation):
    unit = Dense(200, 100, activation=activation)
    unit.reset_parameters(torch.Generator().manual_seed(0))
    for parameter in (unit.weight, unit.bias):
        assert 0.95 / math.sqrt(200) < parameter.abs().max() <= 1 / math.sqrt(200)
        assert parameter.abs().min() > 0


def test_slope_of_prelu_is_learnt():
    unit = Dense(2, 2, activation="prelu", dtype=DOUBLE)
    assert unit.slope is not None
    assert unit.slope.tolist() == [0.25]
    x = double(9, 2)
    (gradient,) = torch.autograd.grad(unit(x).sum(), unit.slope)
    z = x @ unit.weight.T + unit.bias
    torch.testing.assert_close(gradient, z.clamp(max=0).sum()[None])
    assert torch.autograd.gradcheck(partial(dense, activation="prelu"), (x, unit.weight, unit.bias, unit.slope))


@pytest.mark.parametrize(
    ("slope", "activation", "sentence"),
    [
        (None, "ReLU", "activation must be one of 'none', .*, got 'ReLU'"),
        (None, "prelu", "activation='prelu' needs a slope and no other takes one, got activation='prelu'"),
        (torch.ones(1), "tanh", "activation='prelu' needs a slope and no other takes one, got activation='tanh'"),
    ],
)
def test_the_function_refuses_what_it_would_ignore(slope, activation, sentence):
    with pytest.raises(ValueError, match=sentence):
        dense(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1), slope, activation=activation)


def test_formula_of_a_deep_network_of_thresholds():
    net = MLP(2, 1, activation="threshold", dtype=DOUBLE)
    for layer in net.modules():
        if isinstance(layer, Dense):
            nn.init.constant_(layer.weight, 0.5)
    a, b = sympy.symbols("a b", real=True)
    computed = sympy.lambdify((a, b), net.formula("ab").doit(), "math")
    for x in ([2.0, 3.0], [0.1, 0.2]):
        assert computed(*x) == pytest.approx(net(torch.tensor(x, dtype=DOUBLE)).item())


def test_network_is_its_layers():
    net = MLP(3, 2, hidden=(5, 4), activation="tanh", dtype=DOUBLE)
    assert [tuple(p.shape) for p in net.parameters()] == [(5, 3), (5,), (4, 5), (4,), (2, 4), (2,)]
    x = double(6, 3)
    (w1, b1, w2, b2, w3, b3) = net.parameters()
    hidden = torch.tanh(torch.tanh(x @ w1.T + b1) @ w2.T + b2)
    torch.testing.assert_close(net(x), hidden @ w3.T + b3)


def test_three_layers_of_eight_by_default():
    net = MLP(2, 1)
    assert [tuple(w.shape) for w in net.effective_weights().values()] == [(8, 2), (8, 8), (8, 8), (1, 8)]
    crelu = MLP(2, 1, activation="crelu")
    assert [tuple(w.shape) for w in crelu.effective_weights().values()] == [(8, 2), (8, 16), (8, 16), (1, 16)]
    linear = MLP(2, 1, hidden=())
    assert [tuple(w.shape) for w in linear.effective_weights().values()] == [(1, 2)]


def test_one_generator_gives_one_network():
    first, second = MLP(3, 2, activation="prelu"), MLP(3, 2, activation="prelu")
    for net in (first, second):
        net.reset_parameters(torch.Generator().manual_seed(3))
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), second.parameters()))


def test_sparsity_error_counts_weights_and_no_bias():
    net = MLP(2, 1, hidden=(2,))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.fill_(0.4 if name.endswith("bias") else 1.0)
        net.get_parameter("layers.0.weight")[0, 1] = -0.7
    assert net.sparsity_error().item() == pytest.approx(0.3)
    assert sparsity_error(nn.Sequential(net, Dense(1, 1))).item() >= 0.3 - 1e-6
    assert net.penalty() == 0


@pytest.mark.parametrize("activation", NAMES)
def test_formula_computes_what_the_network_computes(activation):
    net = MLP(2, 1, hidden=(2,), activation=activation, dtype=DOUBLE)
    expression = net.formula("a b").doit()
    names = sympy.symbols("a b", real=True)
    for row in (3 * double(4, 2)).tolist():
        value = expression.subs(dict(zip(names, row))).evalf(17)
        assert float(value) == pytest.approx(net(torch.tensor(row, dtype=DOUBLE)).item(), rel=1e-9, abs=1e-12)


def test_formula_marks_every_learnt_number():
    unit = Dense(2, 1, activation="relu")
    with torch.no_grad():
        unit.weight.copy_(torch.tensor([[1.0, 0.5]]))
    assert str(unit.formula("a b")) == "Max(0, a*≈1 + b*≈0.5)"


@pytest.mark.parametrize("unit_class", [Dense, MLP])
def test_unknown_activation_names_the_known_ones(unit_class):
    with pytest.raises(ValueError, match=r"^activation must be one of 'none', 'hardtanh', .*'prelu', got 'swish'$"):
        unit_class(2, 1, activation="swish")


def test_widths_must_be_positive():
    with pytest.raises(ValueError, match=r"^hidden must be a positive whole number, got 0$"):
        MLP(2, 1, hidden=(4, 0))


@pytest.mark.parametrize("hidden", [3, None], ids=str)
def test_hidden_that_is_no_sequence_is_named(hidden):
    with pytest.raises(ValueError, match=r"^hidden must be a sequence of widths, such as \(8, 8\), got"):
        MLP(2, 1, hidden=hidden)
