"""Weights of torch's recurrent layers load, and give the same outputs and gradients."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from numerate.recurrent import GRU, LSTM, RNN, Step

PAIRS = [(nn.LSTM, LSTM), (nn.GRU, GRU), (nn.RNN, RNN)]


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda kind: kind.__module__.split(".")[0] + kind.__name__)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("layers", "both"), [(1, False), (2, True)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)], ids=str)
def test_loaded_weights_give_the_same_outputs_and_gradients(theirs, ours, bias, layers, both, dtype, tolerance):
    torch.manual_seed(0)
    reference = theirs(3, 5, layers, bias=bias, bidirectional=both, dtype=dtype)
    layer = ours(3, 5, layers, bias=bias, bidirectional=both, dtype=dtype)
    layer.load_state_dict(reference.state_dict())
    reference.load_state_dict(layer.state_dict())  # and back
    x = torch.randn(6, 4, 3, dtype=dtype)
    start = tuple(torch.randn(layers * (1 + both), 4, 5, dtype=dtype) for _ in layer.cell.state_shapes)
    results = []
    for model, hx in ((layer, start), (reference, start[0] if len(start) == 1 else start)):
        inputs = x.clone().requires_grad_()
        output, state = model(inputs, hx)
        state = state if isinstance(state, tuple) else (state,)
        sum((entry.sin().sum() for entry in (output, *state)), torch.zeros(())).backward()
        results.append((output, state, inputs.grad, {name: p.grad for name, p in model.named_parameters()}))
    torch.testing.assert_close(*results, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda kind: kind.__module__.split(".")[0] + kind.__name__)
def test_packed_input_gives_the_same(theirs, ours):
    torch.manual_seed(0)
    reference, layer = theirs(3, 5, bidirectional=True), ours(3, 5, bidirectional=True)
    layer.load_state_dict(reference.state_dict())
    packed = pack_padded_sequence(torch.randn(6, 4, 3), torch.tensor([2, 6, 1, 4]), enforce_sorted=False)
    output, state = layer(packed)
    expected, final = reference(packed)
    torch.testing.assert_close(output.data, expected.data)
    torch.testing.assert_close(state, final if isinstance(final, tuple) else (final,))
    assert torch.equal(output.unsorted_indices, expected.unsorted_indices)


def test_a_bare_tensor_is_a_state_of_one_entry():
    layer, x, h = GRU(3, 5), torch.randn(2, 4, 3), torch.randn(1, 4, 5)
    torch.testing.assert_close(layer(x, h), layer(x, (h,)))
    step = Step(layer.cell)
    torch.testing.assert_close(step(x[0], h[0]), step(x[0], (h[0],)))
    torch.testing.assert_close(step(x[0, 0], h[0, 0]), step(x[0, 0], (h[0, 0],)))
