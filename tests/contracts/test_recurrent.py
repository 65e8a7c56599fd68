"""What every recurrent layer promises; a layer added to ``numerate.recurrent`` is checked without a word here.

The layers and their options are in ``recurrent_cases.py``; transformations in ``test_recurrent_transformed.py``.
"""

import copy
import importlib
import inspect
import io
import re

import pytest
import torch
from recurrent_cases import LAYERS, SMALL, B, I, T, cases, equal, make, random_state, sequence
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from numerate.recurrent import Recurrent, Step

# torch itself scripts a few functions when forward-mode derivatives or its compiler are first used
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")

# --- time -------------------------------------------------------------------------------------------------------------


@cases()
def test_split_sequence_with_carried_state_is_the_whole_sequence(name, options):
    layer, x = make(name, options, layers=2), sequence()
    whole, final = layer(x)
    first, state = layer(x[:2])
    second, state = layer(x[2:], state)
    equal(torch.cat((first, second)), whole)
    equal(state, final)


@cases()
def test_steps_of_the_single_step_form_are_the_sequence(name, options):
    layer, x = make(name, options), sequence()
    step = Step(layer.cell, dtype=torch.float64)
    step.load_state_dict({key.replace("_l0", ""): value for key, value in layer.state_dict().items()})
    state, outputs = None, []
    for x_t in x:
        output, state = step(x_t, state)
        outputs.append(output)
    whole, final = layer(x)
    equal(torch.stack(outputs), whole)
    assert state is not None
    equal(tuple(entry.unsqueeze(0) for entry in state), final)
    alone, _ = step(x[0, 1])
    equal(alone, outputs[0][1])


@cases()
def test_two_directions_are_two_runs(name, options):
    both, x = make(name, options, bidirectional=True), sequence()
    one, two = make(name, options), make(name, options)
    values = both.state_dict()
    one.load_state_dict({key: values[key] for key in one.state_dict()})
    two.load_state_dict({key: values[key.replace("_l0", "_l0_reverse")] for key in two.state_dict()})
    start = random_state(both)
    ahead, end = one(x, tuple(entry[:1] for entry in start))
    back, begin = two(x.flip(0), tuple(entry[1:] for entry in start))
    output, final = both(x, start)
    equal(output, torch.cat((ahead, back.flip(0)), -1))
    equal(final, tuple(torch.cat(pair) for pair in zip(end, begin)))


@cases(variants=False)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("lengths", [[5, 3, 1], [2, 5, 2]], ids=str)
def test_packed_sequences_are_separate_sequences(name, options, bidirectional, lengths):
    layer, x = make(name, options, layers=2, bidirectional=bidirectional), sequence()
    start = random_state(layer)
    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    output, final = layer(packed, start)
    assert isinstance(output, PackedSequence)
    padded, got = pad_packed_sequence(output)
    assert got.tolist() == lengths
    for row, length in enumerate(lengths):
        alone, state = layer(x[:length, row : row + 1], tuple(entry[:, row : row + 1] for entry in start))
        equal(padded[:length, row : row + 1], alone)
        equal(tuple(entry[:, row : row + 1] for entry in final), state)


@cases(variants=False)
def test_packed_is_padded_with_masks(name, options):
    layer, x, lengths = make(name, options), sequence(), torch.tensor([5, 3, 1])
    output, final = layer(pack_padded_sequence(x, lengths))
    step = Step(layer.cell, dtype=torch.float64)
    step.load_state_dict({key.replace("_l0", ""): value for key, value in layer.state_dict().items()})
    state, outputs = layer.cell.initial_state(B, x, layer.parts()), []
    for t, x_t in enumerate(x):
        y, new = step(x_t, state)
        alive = t < lengths
        state = tuple(torch.where(alive.view(-1, *[1] * (n.dim() - 1)), n, old) for n, old in zip(new, state))
        outputs.append(torch.where(alive[:, None], y, 0))
    equal(pad_packed_sequence(output)[0], torch.stack(outputs))
    equal(tuple(entry[0] for entry in final), state)


@cases(variants=False)
def test_inspection_changes_nothing(name, options):
    layer, x = make(name, options, layers=2, bidirectional=True), sequence()
    seen = layer.inspect(x)
    equal((seen.output, seen.state), layer(x))
    assert len(seen.activations) == 4
    for activations in seen.activations:
        assert all(value.shape[:2] == (T, B) for value in activations.values())
        for gate in ("forget", "input"):
            if gate in activations:
                assert activations[gate].min() >= -1e-12
                assert activations[gate].max() <= 1 + 1e-12
    if "forget" in seen.activations[0]:
        assert seen.timescales().min() >= 1
    else:
        with pytest.raises(ValueError, match="no forget gate"):
            seen.timescales()


@cases(variants=False)
def test_inspection_is_laid_out_as_the_output(name, options):
    x, options = sequence(), {**options, "bidirectional": True}
    layer, first = make(name, options, layers=2), make(name, options, layers=2, batch_first=True)
    for k, seen in enumerate(layer.inspect(x).activations):
        equal(first.inspect(x.transpose(0, 1)).activations[k], {key: v.transpose(0, 1) for key, v in seen.items()})
        alone = {key: value[:, 1] for key, value in seen.items()}
        for model in (layer, first):
            equal(model.inspect(x[:, 1]).activations[k], alone)
            nothing = model.inspect(x[:0, 1]).activations[k]
            equal(nothing, {key: value[:0] for key, value in alone.items()})


# --- batch and shapes -------------------------------------------------------------------------------------------------


@cases()
def test_batch_order_is_irrelevant(name, options):
    layer, x, order = make(name, options), sequence(), torch.tensor([2, 0, 1])
    output, state = layer(x)
    shuffled, other = layer(x[:, order])
    equal(shuffled, output[:, order])
    equal(other, tuple(entry[:, order] for entry in state))


@cases(variants=False)
def test_batch_first_and_unbatched_are_the_same_run(name, options):
    layer, x = make(name, options, layers=2), sequence()
    first = make(name, options, layers=2, batch_first=True)
    start = random_state(layer)
    output, state = layer(x, start)
    equal(first(x.transpose(0, 1), start), (output.transpose(0, 1), state))
    alone, end = layer(x[:, 1], tuple(entry[:, 1] for entry in start))
    equal(alone, output[:, 1])
    equal(end, tuple(entry[:, 1] for entry in state))


@cases()
@pytest.mark.parametrize("shape", [(1, B), (T, 0), (1, 0), (0, B)], ids=["one step", "no row", "neither", "no step"])
def test_short_and_empty_inputs(name, options, shape):
    layer = make(name, options, layers=2, bidirectional=True)
    output, state = layer(sequence(*shape, I))
    assert output.shape == (*shape, layer.output_size)
    assert all(entry.shape == (4, shape[1], *s) for entry, s in zip(state, layer.cell.state_shapes))


@cases(variants=False)
def test_wrong_shapes_get_one_clear_sentence(name, options):
    layer = make(name, options)
    for x in (sequence(T, B, I + 1), sequence(I), sequence(T, B, 1, I)):
        with pytest.raises(ValueError, match=f"^{name} expects .*got .*{re.escape(str(tuple(x.shape)))}"):
            layer(x)
    start = random_state(layer)
    with pytest.raises(ValueError, match=f"{name} expects a state of {len(start)} tensors, got {len(start) + 1}"):
        layer(sequence(), (*start, start[0]))
    with pytest.raises(ValueError, match=f"{name} expects entry 0 of the state in shape"):
        layer(sequence(), tuple(entry[:, :1] for entry in start))
    with pytest.raises(
        ValueError, match=f"{name} has parameters of torch.float64, got an input of torch.int64: convert"
    ):
        layer(torch.ones(T, B, I, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"got entry 0 of the state of torch\.float32"):
        layer(sequence(), tuple(entry.float() for entry in start))
    with pytest.raises(TypeError, match=f"^{name} has no keyword 'batchfirst'; did you mean 'batch_first'"):
        make(name, options, batchfirst=True)
    with pytest.raises(ValueError, match="hidden_size must be a positive whole number"):
        LAYERS[name](I, 0, **SMALL.get(name, {}))


@cases(variants=False)
def test_wrong_states_of_a_single_step_get_one_clear_sentence(name, options):
    cell, x = make(name, options).cell, sequence(B, I)
    step, cell_name = Step(cell, dtype=torch.float64), type(cell).__name__
    _, state = step(x)
    with pytest.raises(ValueError, match=f"{cell_name} expects a state of {len(state)} tensors, got {len(state) + 1}"):
        step(x, (*state, state[0]))
    for wrong, start in ((x, tuple(entry[:1] for entry in state)), (x[0], state)):
        with pytest.raises(ValueError, match=f"{cell_name} expects entry 0 of the state in shape"):
            step(wrong, start)
    with pytest.raises(ValueError, match=f"{cell_name} expects a tensor as entry 0 of the state, got None"):
        step(x, (None, *state[1:]))
    with pytest.raises(ValueError, match=r"got entry 0 of the state of torch\.float32"):
        step(x, tuple(entry.float() for entry in state))
    with pytest.raises(ValueError, match=r"has parameters of torch\.float64, got an input of torch\.float32: convert"):
        step(x.float())


# --- parameters -------------------------------------------------------------------------------------------------------


def test_what_nn_lstm_users_meet():
    layer = make("URLSTM", {}, layers=2)
    layer.flatten_parameters()
    assert "num_layers=2" in repr(layer)
    whole = io.BytesIO()
    torch.save(layer, whole)
    whole.seek(0)
    equal(torch.load(whole, weights_only=False)(sequence()), layer(sequence()))
    with pytest.warns(UserWarning, match="dropout acts between layers"):
        make("URLSTM", {}, dropout=0.5)
    norm = nn.utils.parametrizations.weight_norm(make("URLSTM", {}), "weight_hh_l0")
    norm(sequence())[0].sum().backward()
    assert all(p.grad is not None for p in norm.parameters())


@cases()
def test_state_dict_round_trip(name, options):
    one, two = make(name, options, layers=2, seed=0), make(name, options, layers=2, seed=5)
    buffer = io.BytesIO()
    torch.save(one.state_dict(), buffer)
    buffer.seek(0)
    two.load_state_dict(torch.load(buffer, weights_only=True))
    equal(two(sequence()), one(sequence()))
    assert list(one.state_dict()) == [key for key, _ in one.named_parameters()]
    equal(copy.deepcopy(one)(sequence()), one(sequence()))


@cases()
def test_every_parameter_has_a_gradient_and_a_seed(name, options):
    one, same, other = (make(name, options, seed=seed) for seed in (0, 0, 1))
    equal(dict(same.named_parameters()), dict(one.named_parameters()))
    assert any(not torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters()))
    output, state = one(sequence())
    sum((entry.square().sum() for entry in (*state, output)), torch.zeros(())).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in one.parameters())
    assert hash(one.cell) == hash(same.cell)
    assert one.cell == same.cell


@cases()
def test_gradients_are_those_of_finite_differences(name, options):
    layer, x = make(name, options), sequence(2, 2, I).requires_grad_()
    start = tuple(entry.requires_grad_() for entry in random_state(layer, batch=2))
    names = [key for key, _ in layer.named_parameters()]
    held = {"usage": 4, "write": 8} if name == "DNC" else {}  # no gradient goes through past write weights
    free = [entry for index, entry in enumerate(start) if index not in held.values()]

    def run(x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        entries = iter(values)
        state = tuple(entry.detach() if i in held.values() else next(entries) for i, entry in enumerate(start))
        output, final = functional_call(layer, dict(zip(names, entries)), (x, state))
        return output, *(final[:3] if name == "RMA" else final)  # what it writes has no gradient

    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    if name in ("DNC", "RMA"):
        x = x.detach()[:1].requires_grad_()
    assert torch.autograd.gradcheck(run, (x, *free, *values), fast_mode=True)


# --- other ways to run ------------------------------------------------------------------------------------------------


@cases(variants=False)
def test_mixed_precision(name, options):
    layer, x = make(name, options, dtype=torch.float32), sequence(dtype=torch.float32)
    exact, _ = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = layer(x)
    torch.testing.assert_close(output.float(), exact, rtol=0.1, atol=0.05)
    output.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    step, given = Step(layer.cell), {"output": x.dtype, "state": {torch.float32}}
    with torch.autocast("cpu", torch.bfloat16):
        for inputs in (x[0], x[0, 0]):
            output, state = step(inputs)
            assert {"output": output.dtype, "state": {entry.dtype for entry in state}} == given
    half = copy.deepcopy(layer).bfloat16()
    output, state = half(x.bfloat16())
    assert {entry.dtype for entry in (output, *state)} == {torch.bfloat16}
    torch.testing.assert_close(output.float(), exact, rtol=0.1, atol=0.1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@cases()
def test_gpu_agrees(name, options):
    layer, x = make(name, options, layers=2, bidirectional=True), sequence()
    there = copy.deepcopy(layer).cuda()
    results = []
    for model, inputs in ((layer, x), (there, x.cuda())):
        output, state = model(inputs)
        output.square().sum().backward()
        results.append([output, *state, *(p.grad for p in model.parameters() if p.grad is not None)])
    equal([value.cpu() for value in results[1]], results[0])


@pytest.mark.parametrize("name", LAYERS)
def test_arguments_are_listed_one_by_one(name):
    cell = LAYERS[name].cell_type
    lists = [(owner.__doc__ or "").partition("Args:")[2] for owner in (*cell.__mro__, Recurrent)]
    listed = re.findall(r"^ {8}([\w, ]+):", "\n".join(lists), re.MULTILINE)
    names = {argument.strip() for line in listed for argument in line.split(",")}
    assert set(inspect.signature(cell).parameters) <= names


HOMES = {  # where stored results look for a class; a new one need not be here
    **dict.fromkeys((name for name, layer in LAYERS.items() if layer.preset), "ready"),
    **{
        name: name.lower()
        for name in ("LSTM", "GRU", "RNN", "JANET", "NRU", "EURNN", "GORU", "UGRNN", "RMC", "DNC", "RMA")
    },
    "StatisticalRU": "statistical",
    "UnitRNN": "unit",
}


@pytest.mark.parametrize("name", HOMES)
def test_stored_results_find_the_class_where_it_always_was(name):
    layer = LAYERS[name]
    assert layer.__module__ == f"numerate.recurrent.{HOMES[name]}"
    assert getattr(importlib.import_module(layer.__module__), name) is layer
    cell = layer.cell_type
    assert getattr(importlib.import_module(cell.__module__), cell.__name__) is cell
    assert layer.preset or cell.__module__ == layer.__module__
