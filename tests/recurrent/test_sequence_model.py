"""A layer with a readout: what it reads, how its state is carried, and that it learns."""

import pytest
import torch

from numerate.recurrent import GRU, LSTM, NRU, RNN, SequenceModel
from numerate.tasks import Copying


def test_all_steps_or_the_last_one_are_read():
    layer = LSTM(3, 5)
    x = torch.randn(7, 2, 3)
    every = SequenceModel(layer, 4)
    last = SequenceModel(layer, 4, "last")
    last.load_state_dict(every.state_dict())
    assert every(x).shape == (7, 2, 4)
    torch.testing.assert_close(last(x), every(x)[-1])


def test_a_hidden_layer_of_relu_may_stand_between():
    model, x = SequenceModel(GRU(3, 5), 4, hidden=6), torch.randn(7, 2, 3)
    output, _ = model.layer(x)
    assert model.hidden is not None
    torch.testing.assert_close(model(x), model.readout(model.hidden(output).relu()))


def test_readouts_start_as_asked():
    weights = torch.stack([SequenceModel(LSTM(1, 200), 50).readout.weight for _ in range(4)])
    assert weights.std().item() == pytest.approx((2 / 250) ** 0.5, rel=0.02)
    assert not SequenceModel(LSTM(1, 8), 3).readout.bias.any()
    assert SequenceModel(LSTM(1, 8), 3, readout_init="torch").readout.bias.any()


@pytest.mark.parametrize("layer", [LSTM(3, 5, num_layers=2), NRU(3, 5, memory_size=4, heads=1)], ids=["LSTM", "NRU"])
def test_a_split_sequence_gives_what_the_whole_does(layer):
    model, x = SequenceModel(layer, 4, carries=True), torch.randn(8, 2, 3)
    start = model.initial_state(x)
    whole, end = model(x, start)
    first, between = model(x[:5], start)
    second, again = model(x[5:], between)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    torch.testing.assert_close(again, end)
    torch.testing.assert_close(model(x)[0], whole)  # without a state: the initial one


def test_layers_with_the_batch_first_are_refused():
    with pytest.raises(ValueError, match="time first"):
        SequenceModel(LSTM(3, 5, batch_first=True), 4)
    with pytest.raises(ValueError, match="read must be one of 'all', 'last'"):
        SequenceModel(LSTM(3, 5), 4, "first")  # pyright: ignore[reportArgumentType]


def test_it_learns_where_the_blanks_are():
    task = Copying(2, 10)
    model = SequenceModel(LSTM(task.inputs, 20), task.outputs)
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    loss = torch.tensor(torch.nan)
    for step in range(40):
        batch = task.batch(torch.tensor(0), torch.tensor(step), {})
        optimizer.zero_grad()
        loss = task.loss(model(batch.x), batch)
        loss.backward()
        optimizer.step()
    assert loss.item() < 1.1 * task.baseline()


@pytest.mark.parametrize(("bias_init", "finite"), [("zeros", False), ("uniform", True)])
def test_layer_norm_of_zeros_explodes_unless_biases_differ(bias_init, finite):
    layer = RNN(1, 12, recurrent_init="orthogonal", layer_norm=True, bias_init=bias_init)
    x = torch.zeros(60, 2, 1)
    x[-1] = 1.0
    SequenceModel(layer, 3, "last")(x).square().sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) is True for p in layer.parameters()) is finite
