"""What torch's transformations make of every unit: derivatives, stacks, traces, compiled and exported forms."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from default_compiler import needs_default_compiler
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from unit_cases import SMALL, UNITS, I, O, cases, make, parameters, safe

from numerate.units import Unit

# torch itself scripts a few functions when forward-mode derivatives or its compiler are first used
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def applied(unit: Unit, x: Tensor) -> Callable[..., Tensor]:
    names = [key for key, _ in unit.named_parameters()]
    return lambda x, *values: functional_call(unit, dict(zip(names, values)), (x,))


def leaves(unit: Unit, x: Tensor) -> tuple[Tensor, ...]:
    return tuple(value.detach().clone().requires_grad_() for value in (x, *unit.parameters()))


@cases()
def test_gradcheck(name, options):
    unit, x = make(name, options), safe(3, I)
    assert torch.autograd.gradcheck(applied(unit, x), leaves(unit, x))


@cases()
def test_gradgradcheck(name, options):
    unit, x = make(name, options), safe(2, I)
    assert torch.autograd.gradgradcheck(applied(unit, x), leaves(unit, x))


@cases()
def test_functional_call_uses_the_given_parameters(name, options):
    unit, other, x = make(name, options), make(name, options, seed=1), safe(5, I)
    assert torch.equal(functional_call(unit, parameters(other), (x,)), other(x))


@cases()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("sizes", [(4, 32, 8), (I, O, 7)], ids=["whole registers", "odd"])
def test_stacked_equals_looped(name, options, dtype, sizes):
    """Bit for bit where tensors fill whole vector registers.

    At other sizes torch's own sigmoid and matrix product take other paths for some numbers, which round differently.
    """
    *size, rows = sizes
    units = [make(name, options, seed=seed, dtype=dtype, sizes=size) for seed in range(4)]
    base = make(name, options, dtype=dtype, sizes=size)
    params, buffers = stack_module_state(units)
    x = safe(4, rows, size[0], dtype=dtype)

    def loss(params: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        y = functional_call(base, (params, buffers), (x,))
        return (y**2).mean(), y

    grads, ys = vmap(torch.func.grad(loss, has_aux=True))(params, buffers, x)
    for k, unit in enumerate(units):
        y = unit(x[k])
        if rows == 8:
            assert torch.equal(ys[k], y)
        torch.testing.assert_close(ys[k], y, rtol=64 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)
        (y**2).mean().backward()
        for key, parameter in unit.named_parameters():
            torch.testing.assert_close(grads[key][k], parameter.grad)


@cases()
def test_make_fx_traces(name, options):
    unit, x = make(name, options), safe(5, I)
    traced = make_fx(lambda params, x: functional_call(unit, params, (x,)))(parameters(unit), x)
    other = make(name, options, seed=1)
    torch.testing.assert_close(traced(parameters(other), x), other(x))


@cases()
def test_compiles_without_a_graph_break(name, options):
    unit, x = make(name, options), safe(5, I)
    torch._dynamo.reset()
    compiled = torch.compile(unit, fullgraph=True, backend="aot_eager")
    y = compiled(x)
    torch.testing.assert_close(y, unit(x))
    y.sum().backward()


@cases()
def test_exports_with_a_free_batch(name, options):
    unit, x = make(name, options), safe(5, I)
    program = torch.export.export(unit, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for rows in (2, 9):
        torch.testing.assert_close(program.module()(safe(rows, I)), unit(safe(rows, I)))


# --- export to other runtimes: slow, so all units at once, default options ----------------------------------------


class Several(nn.Module):
    """Some units on one input."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.units = nn.ModuleList([make(name, SMALL.get(name, {}), dtype=torch.float32) for name in names])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(unit(x) for unit in self.units)


@pytest.fixture(scope="module")
def onnx_outputs() -> tuple[Tensor, dict[str, Tensor]]:
    import onnxruntime

    x = safe(5, I, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (DeprecationWarning, FutureWarning))  # raised inside onnxscript and its helpers
        program = torch.onnx.export(
            Several(*UNITS).eval(), (x,), dynamo=True, dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False
        )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = safe(9, I, dtype=torch.float32)  # another batch size than the one traced
    outputs: Any = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return x, dict(zip(UNITS, map(torch.from_numpy, outputs)))


@pytest.mark.parametrize("name", UNITS)
def test_onnx_runtime_agrees(name, onnx_outputs):
    x, outputs = onnx_outputs
    torch.testing.assert_close(
        outputs[name], make(name, SMALL.get(name, {}), dtype=torch.float32)(x), rtol=1e-4, atol=1e-5
    )


@needs_default_compiler
def test_inductor_agrees():
    """The default compiler, which is slow, on two units."""
    x, units = safe(5, I, dtype=torch.float32), Several("NMU", "NALU").eval()
    torch._dynamo.reset()
    for one, two in zip(torch.compile(units, fullgraph=True)(x), units(x)):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
