"""What every recurrent layer promises; a layer added to ``numerate.recurrent`` is checked without a word here."""

import copy
import inspect
import io
import re
import shutil
import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import numerate.recurrent
from numerate.recurrent import CellLayer, ColumnCell, Recurrent, Step
from numerate.units import NAU, NMU

# torch itself scripts a few functions when forward-mode derivatives or its compiler are first used
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")

I, H, T, B = 3, 4, 5, 3  # noqa: E741  the papers' letters

LAYERS: dict[str, type[CellLayer]] = {
    name: layer
    for name in numerate.recurrent.__all__
    if inspect.isclass(layer := getattr(numerate.recurrent, name))
    and issubclass(layer, CellLayer)
    and layer is not CellLayer
    and name == layer.__name__  # ONLSTM is OMLSTM
}

# What a layer needs at the small size of these tests.
SMALL: dict[str, dict[str, Any]] = {
    "StatisticalRU": {"statistics_size": 3, "summary_size": 2},
    "NRU": {"memory_size": 4, "heads": 1},
    "DNC": {"slots": 3, "width": 2, "read_heads": 2},
    "RMA": {"encoder": (4, 2), "heads": 2, "rows": 3, "top_k": 2},
    "RMC": {"slots": 2, "heads": 2},
    "UnitRNN": {"unit": NAU},
} | {gate + base: {"downsize": 2} for gate in ("OM", "UM") for base in ("LSTM", "GRU")}
SMALL |= {name: {"timescale": 20} for name in ("CLSTM", "CGRU")}

# Further options to be held to the same contract; {} is always among them.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "RNN": [{"layer_norm": True, "recurrent_init": "orthogonal"}, {"activation": "relu", "bias": False}],
    "LSTM": [{"bias": False}, {"tied": True}],
    "GRU": [{"reset_after": False}, {"tied": False}],
    "URGRU": [{"reset_after": False, "recurrent_bias": True}],
    "StatisticalRU": [{"learn_scales": True}],
    "EURNN": [
        {"dense": False},
        {"complex": True},
        {"complex": True, "dense": False},
        {"capacity": 3},
        {"capacity": 3, "dense": False, "complex": True},
    ],
    "GORU": [{"dense": False}],
    "NRU": [
        {"memory_size": 16, "heads": 4},
        {"memory_size": 4, "heads": 4, "relu_heads": True},
        {"memory_size": 9, "heads": 4},
        {"head_inputs": "xhm", "head_reduce": "sum", "shared_q": False, "heads": 2},
        {"layer_norm": True, "factored": False},
    ],
    "DNC": [{"write_heads": 2, "clip": 2.0, "strength": "oneplus", "outputs": 3, "gate": "UR"}],
    "RMA": [
        {"top_k": None, "depth": 1, "gate": "UR"},
        {"encoder": (3,), "depth": 3, "heads": 1, "rows": 2, "gate": "OM", "downsize": 2},
    ],
    "RMC": [
        {"gate_style": "memory", "blocks": 2},
        *({"gate": gate} for gate in ("O", "U", "R", "OR", "UR")),
        *({"gate": gate, "downsize": 2} for gate in ("OM", "UM")),
        {"gate": "C", "timescale": 20},
        {"gate": numerate.recurrent.Gate("tied", tied=True)},
    ],
    "UnitRNN": [{"unit": NMU}, {"unit": NMU, "initial": "learnt"}, {"initial": 0.5}],
}


def cases(*, variants: bool = True) -> Any:
    found = []
    for name in LAYERS:
        for options in [{}, *(VARIANTS.get(name, []) if variants else [])]:
            text = ",".join(f"{key}={getattr(value, '__name__', value)}" for key, value in options.items())
            found.append(pytest.param(name, options, id=f"{name}({text})"))
    return pytest.mark.parametrize(("name", "options"), found)


def make(name: str, options: dict[str, Any], *, layers: int = 1, seed: int = 0, **more: Any) -> Recurrent:
    settings: dict[str, Any] = {"dtype": torch.float64} | SMALL.get(name, {}) | options | more
    layer = LAYERS[name](I, H, layers, **settings)
    layer.reset_parameters(torch.Generator().manual_seed(seed))
    return layer.eval()


def sequence(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    return torch.randn(*(shape or (T, B, I)), generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_state(layer: Recurrent, batch: int = B, seed: int = 2) -> tuple[Tensor, ...]:
    """A state the layer could be in: the one after a few steps on other inputs."""
    return tuple(entry.detach() for entry in layer(sequence(2, batch, I, seed=seed).to(next(layer.parameters())))[1])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """Tensors of a dozen numbers gain nothing from threads and lose much where cores are shared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def equal(one: Any, two: Any) -> None:
    torch.testing.assert_close(one, two, rtol=1e-10, atol=1e-10)


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


@cases()
def test_stacked_seeds_are_separate_seeds(name, options):
    models: list[nn.Module] = [make(name, options, seed=seed) for seed in range(3)]
    parameters, buffers = stack_module_state(models)
    x = torch.stack([sequence(seed=seed) for seed in range(3)])

    def run(p: dict[str, Tensor], b: dict[str, Tensor], x: Tensor) -> Any:
        return functional_call(models[0], (p, b), (x,))

    def loss(p: dict[str, Tensor], b: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Any]:
        output, state = run(p, b, x)
        return output.square().sum(), (output, state)

    gradients, (outputs, states) = vmap(grad(loss, has_aux=True))(parameters, buffers, x)
    for index, model in enumerate(models):
        output, state = model(x[index])
        equal(outputs[index], output)
        equal(tuple(entry[index] for entry in states), state)
        output.square().sum().backward()
        equal({key: value[index] for key, value in gradients.items()}, {k: p.grad for k, p in model.named_parameters()})


# --- other ways to run ------------------------------------------------------------------------------------------------


@cases()
def test_activate_is_a_pure_function_of_tensors(name, options):
    """A compiled time loop traces this part alone, and may rely on ``form``."""
    layer = make(name, options)
    cell, p = layer.cell, layer.parts()
    if cell.form == "general":
        return
    assert isinstance(cell, ColumnCell)
    state = tuple(entry[0] for entry in random_state(layer))
    gx, weight, extras = cell.project(sequence(B, I), p), cell.recurrent_weight(p), cell.extras(p)
    gh = state[0] @ weight.mT
    assert gx.shape == gh.shape == (B, sum(cell.blocks.values()))
    assert all(extra.shape == (H,) for extra in extras)
    traced = make_fx(lambda *tensors: cell.activate(*tensors))(gx, gh, state, extras)
    new = cell.activate(gx, gh, state, extras)
    equal(traced(gx, gh, state, extras), new)
    output, stepped = cell.step(gx, state, cell.prepare(p))
    equal(stepped, new)
    equal(output, new[0])
    if cell.form == "elementwise":
        assert set(cell.blocks.values()) == {H}
        changed = gx.detach().unflatten(-1, (-1, H)).clone()
        changed[..., 0] += 1.0  # all maps of unit 0: no other unit may notice
        other = cell.activate(changed.flatten(-2), gh, state, extras)
        equal([entry[:, 1:] for entry in other], [entry[:, 1:] for entry in new])


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


# One of each kind of step, for what is slow: the gates share their code.
KINDS = [name for name in LAYERS if name in ("OMLSTM", "URLSTM", "URGRU") or not LAYERS[name].preset]


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


class Every(nn.Module):
    """Every layer on one input."""

    def __init__(self, names: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([make(name, {}, dtype=torch.float32) for name in names])

    def forward(self, x: Tensor) -> list[Tensor]:
        return [layer(x)[0] for layer in self.layers]


def test_compiles_without_a_graph_break():
    every, x = Every(KINDS).eval(), sequence(2, B, I, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(every, fullgraph=True, backend="aot_eager")
    outputs = compiled(x)
    torch.testing.assert_close(outputs, every(x))
    sum(output.sum() for output in outputs).backward()


@pytest.mark.skipif(not shutil.which("g++"), reason="torch's own compiler needs one for C++")
def test_compiles_to_native_code():
    every, x = Every(("URLSTM", "GRU", "JANET")), sequence(2, B, I, dtype=torch.float32)
    torch._dynamo.reset()
    outputs = torch.compile(every, fullgraph=True)(x)
    expected = every(x)
    torch.testing.assert_close(outputs, expected)
    parameters = list(every.parameters())
    found = [torch.autograd.grad(sum(y.square().sum() for y in results), parameters) for results in (outputs, expected)]  # type: ignore[arg-type]
    torch.testing.assert_close(*found)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's compiler itself looks there
@pytest.mark.parametrize("name", ["URLSTM", "NRU", "DNC"])
def test_a_compiled_model_leaves_long_sequences_to_the_loop(name):
    layer, x = make(name, {}, dtype=torch.float32), sequence(40, B, I, dtype=torch.float32)
    model = nn.Sequential(nn.Linear(I, I), layer)
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    output, state = torch.compile(model, backend=backend)(x)
    torch.testing.assert_close((output, state), model(x))
    assert sum(graphs) < 20
    output.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_importing_does_not_load_the_compiler():
    code = "import sys, numerate.recurrent; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_exports_with_a_free_batch():
    every, x = Every(KINDS).eval(), sequence(2, B, I, dtype=torch.float32)
    program = torch.export.export(every, (x,), dynamic_shapes=({1: torch.export.Dim("batch")},))
    x = sequence(2, 7, I, dtype=torch.float32)
    torch.testing.assert_close(program.module()(x), every(x))


def test_onnx_runtime_agrees():
    import onnxruntime

    names = [name for name in KINDS if name != "DNC"]  # no ONNX form of a stable sort and a running product
    every, x = Every(names).eval(), sequence(2, B, I, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (DeprecationWarning, FutureWarning))  # raised inside onnxscript and its helpers
        program = torch.onnx.export(every, (x,), dynamo=True, verbose=False)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: Any = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close([torch.from_numpy(output) for output in outputs], every(x), rtol=1e-4, atol=1e-5)
