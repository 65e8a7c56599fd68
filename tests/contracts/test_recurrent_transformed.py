"""What torch's transformations make of every recurrent layer: stacks, traces, compiled and exported forms."""

import subprocess
import sys
import warnings
from typing import Any, cast

import pytest
import torch
from default_compiler import needs_default_compiler
from recurrent_cases import LAYERS, B, H, I, cases, equal, make, random_state, sequence
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from numerate.recurrent import ColumnCell

# torch itself scripts a few functions when forward-mode derivatives or its compiler are first used
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


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


@cases()
def test_activate_is_a_pure_function_of_tensors(name, options):
    """A compiled time loop traces this part alone, and may rely on ``form``."""
    layer = make(name, options)
    cell, p = layer.cell, layer.parts()
    if cell.form in ("general", "diagonal"):  # of diagonal cells the coefficients are traced: test_diagonal.py
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


# One of each kind of step, for what is slow: the gates share their code.
KINDS = [name for name in LAYERS if name in ("OMLSTM", "URLSTM", "URGRU") or not LAYERS[name].preset]
FEWER = [name for name in KINDS if name not in ("LSTM", "GRU", "UGRNN", "MinLSTM", "S5")]  # others share their code


compiler_looks_at_gradients = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")


class Every(nn.Module):
    """Every layer on one input."""

    def __init__(self, names: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList([make(name, {}, dtype=torch.float32) for name in names])

    def forward(self, x: Tensor) -> list[Tensor]:
        return [layer(x)[0] for layer in self.layers]


def test_compiles_without_a_graph_break():
    every, x = Every(FEWER).eval(), sequence(2, B, I, dtype=torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(every, fullgraph=True, backend="aot_eager")
    outputs = compiled(x)
    torch.testing.assert_close(outputs, every(x))
    torch.stack([output.sum() for output in outputs]).sum().backward()


@needs_default_compiler
def test_compiles_to_native_code():
    every, x = Every(("URLSTM", "GRU", "JANET")), sequence(2, B, I, dtype=torch.float32)
    torch._dynamo.reset()
    outputs = torch.compile(every, fullgraph=True)(x)
    expected = every(x)
    torch.testing.assert_close(outputs, expected)
    parameters = list(every.parameters())
    found = [torch.autograd.grad(sum(y.square().sum() for y in results), parameters) for results in (outputs, expected)]  # type: ignore[arg-type]
    torch.testing.assert_close(*found)


@compiler_looks_at_gradients
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
    every, x = Every(FEWER).eval(), sequence(2, B, I, dtype=torch.float32)
    program = torch.export.export(every, (x,), dynamic_shapes=({1: torch.export.Dim("batch")},))
    x = sequence(2, 7, I, dtype=torch.float32)
    torch.testing.assert_close(program.module()(x), every(x))


def assert_exports_with_a_free_length(layer, free_batch=True):
    free = {0: torch.export.Dim("time", max=1000)} | ({1: torch.export.Dim("batch")} if free_batch else {})
    x = sequence(4, B, I, dtype=torch.float32)
    program = torch.export.export(layer, (x,), dynamic_shapes=(free,)).module()
    for steps in (1, 3, 40):
        x = sequence(steps, 2 if free_batch else B, I, dtype=torch.float32)
        torch.testing.assert_close(program(x), layer(x), rtol=1e-4, atol=1e-4)


@compiler_looks_at_gradients
def test_exports_with_a_free_length():
    assert_exports_with_a_free_length(make("NRU", {}, dtype=torch.float32))


@pytest.mark.slow
@compiler_looks_at_gradients
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_exports_with_a_free_length(name):
    assert_exports_with_a_free_length(make(name, {}, dtype=torch.float32), free_batch=name != "RMC")


@pytest.mark.slow
@compiler_looks_at_gradients
def test_layers_and_directions_export_with_a_free_length():
    assert_exports_with_a_free_length(make("URLSTM", {}, dtype=torch.float32, layers=2, bidirectional=True))


def test_zoneout_needs_a_known_length_to_be_exported():
    model, x = make("LSTM", {"zoneout": 0.1}, dtype=torch.float32), sequence(4, B, I, dtype=torch.float32)
    with pytest.raises(ValueError, match="export with a fixed time dimension"):
        torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("time", max=1000)},))


def test_a_whole_graph_of_a_long_sequence_is_refused_with_the_reason():
    model, x = make("URLSTM", {}, dtype=torch.float32), sequence(16, B, I, dtype=torch.float32)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"take up to 15 steps into a compiled graph .* compile without fullgraph=True"):
        torch.compile(model, fullgraph=True, backend="eager")(x)
    torch.compile(model, fullgraph=True, backend="eager")(x[:15])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["LSTM", "NRU"])
def test_scripting_is_refused_and_tracing_works(name):
    model = nn.Sequential(nn.Linear(I, I), make(name, {}, dtype=torch.float32))
    with pytest.raises(NotImplementedError, match=f"torch.jit.script cannot compile {name}: use torch.export"):
        torch.jit.script(model)
    x, other = (sequence(20, B, I, dtype=torch.float32, seed=seed) for seed in (1, 2))
    traced = cast(nn.Module, torch.jit.trace(model, (x,), check_trace=False))
    torch.testing.assert_close(traced(other), model(other))


@cases(variants=False)
def test_shapes_without_numbers(name, options):
    layer = make(name, options, device="meta", dtype=torch.float32)
    for steps in (3, 40):
        output, state = layer(torch.empty(steps, B, I, device="meta"))
        assert output.shape == (steps, B, layer.output_size)
        assert output.device.type == "meta"
        assert all(entry.shape[:2] == (1, B) for entry in state)


def test_onnx_runtime_agrees():
    import onnxruntime

    names = [name for name in FEWER if name != "DNC"]  # no ONNX form of a stable sort and a running product
    every, x = Every(names).eval(), sequence(2, B, I, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (DeprecationWarning, FutureWarning))  # raised inside onnxscript and its helpers
        program = torch.onnx.export(every, (x,), dynamo=True, verbose=False)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs: Any = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close([torch.from_numpy(output) for output in outputs], every(x), rtol=1e-4, atol=1e-5)
