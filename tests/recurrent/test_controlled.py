"""A NALU that an LSTM controls."""

import pytest
import torch

from numerate.recurrent import LSTM, ControlledNALU, UnitRNN
from numerate.units import NALU


def test_with_a_silent_controller_it_is_a_nalu_along_time() -> None:
    layer = ControlledNALU(2, 5, numbers=3, arithmetic_inputs=1)
    unit = NALU(4, 3)
    with torch.no_grad():
        layer.weight_nalu_l0.zero_()  # type: ignore[union-attr, operator]
        parameters = torch.stack((unit.w_hat, unit.m_hat, unit.gate))
        layer.bias_nalu_l0.copy_(parameters.flatten())  # type: ignore[union-attr, operator]
    plain = UnitRNN(1, 3, unit=NALU, initial=0.0)
    plain.unit_l0.load_state_dict(unit.state_dict())  # type: ignore[union-attr, operator]
    x = torch.rand(4, 6, 2)
    assert torch.allclose(layer(x)[0], plain(x[..., :1])[0], rtol=1e-5)


def test_its_parameters_are_a_linear_function_of_an_lstm_on_the_inputs() -> None:
    layer, lstm = ControlledNALU(2, 5), LSTM(2, 5, recurrent_bias=False)
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
    lstm.load_state_dict({name: layer.state_dict()[name] for name in names})
    x = torch.randn(3, 4, 2)
    seen = layer.inspect(x).activations[0]
    flat = lstm(x)[0] @ layer.weight_nalu_l0.T + layer.bias_nalu_l0  # type: ignore[union-attr, operator]
    w_hat, m_hat, _ = flat.unflatten(-1, (3, 1, 3)).unbind(-3)
    assert torch.allclose(seen["weight"], w_hat.tanh() * m_hat.sigmoid(), atol=1e-6)


def test_more_arithmetic_inputs_than_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="at most input_size, 2, got 3"):
        ControlledNALU(2, 5, arithmetic_inputs=3)
