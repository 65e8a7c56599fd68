"""What few values decide is computed once for each of them, and nothing else is different."""

import pytest
import torch
from small_steps import UNITS, make_members, make_step, unit
from torch import Tensor, nn

from numerate.loops.cpp.loop import Cpp
from numerate.loops.form.interpreter import interpret
from numerate.loops.form.ir import Map, Program
from numerate.loops.lowering.lower import lower
from numerate.loops.passes.bounded_values import find_bounded
from numerate.loops.passes.enumerate_booleans import enumerate_booleans
from numerate.loops.plain.eager import Eager
from numerate.loops.toolchain import native
from numerate.loops.tracing.trace import evaluation

needs_compiler = pytest.mark.skipif(not native.available(), reason="no C++ compiler")


class Signs(nn.Module):
    """Two functions of the signs of the inputs, one of them of the other, and a third of their size."""

    def __init__(self, inputs: int = 2) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1.5, 1.0, inputs))

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.where(x < 0, self.weight, 0.0).sum(-1, keepdim=True)
        turned = torch.cos(angle)
        return turned * x.abs().sum(-1, keepdim=True) + torch.exp(turned) * torch.sin(self.weight * x)[:, :1]


class Gates(nn.Module):
    """Six bounded gates of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.tensor([[-0.5, 0.0, 0.3], [0.7, 1.0, 4.0]]))
        self.weight = nn.Parameter(torch.linspace(-1.0, 1.0, 6).reshape(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate.clamp(0, 1)
        sizes = torch.log1p(gate * x.abs().unsqueeze(-1) + (1 - gate))  # (batch, 2, 3)
        return (sizes * self.weight).sum((-2, -1)).unsqueeze(-1)


def functions(program: Program, part: str) -> list[str]:
    return [s.function for stage in program.stages for s in getattr(stage, part) if isinstance(s, Map)]


def program(module: nn.Module, inputs: int = 2) -> Program:
    return lower(evaluation(make_step(module, inputs)))


def losses(one: Program) -> Tensor:
    torch.manual_seed(1)
    values = {name: torch.randn(view.shape) for name, view in one.inputs.items() if name != "uniforms"}
    values["uniforms"] = torch.rand(64, *one.inputs["uniforms"].shape[1:])
    return interpret(one, values)["loss"]


@pytest.mark.parametrize("module", [*UNITS, Signs()], ids=lambda m: m if isinstance(m, str) else type(m).__name__)
def test_enumerated_booleans_give_the_same_losses(module):
    one = program(unit(module) if isinstance(module, str) else module)
    torch.testing.assert_close(losses(enumerate_booleans(one)), losses(one), rtol=1e-6, atol=0, equal_nan=True)


def test_a_real_npu_of_two_inputs_has_four_cosines():
    one = program(unit("RealNPU"))
    assert functions(one, "batch").count("cos") == 1
    assert functions(enumerate_booleans(one), "batch").count("cos") == 0
    assert functions(enumerate_booleans(one), "member").count("cos") == 4
    assert functions(enumerate_booleans(one), "batch").count("where") == functions(one, "batch").count("where") - 1 + 3


def test_three_signs_are_too_many_cases():
    one = program(unit("RealNPU", 3), 3)
    assert functions(enumerate_booleans(one), "batch") == functions(one, "batch")


def test_functions_of_signs_leave_and_functions_of_sizes_stay():
    one = enumerate_booleans(program(Signs()))
    assert {"cos", "exp"}.isdisjoint(functions(one, "batch"))
    assert "sin" in functions(one, "batch")


def test_bounded_gates_are_found_with_their_bounds():
    one = enumerate_booleans(program(unit("RealNPU")))
    (stage,) = one.stages
    made = {s.out.buffer for s in stage.batch if s.out.buffer.batch}
    (found,) = find_bounded(stage, made)
    assert found.bounds == (0.0, 1.0)
    assert [[s.function for s in chain if isinstance(s, Map)][-1] for chain in found.elements] == ["log", "log"]


@pytest.mark.parametrize("name", sorted(UNITS.keys() - {"RealNPU", "NPU", "ModifiedRealNPU"}))
def test_other_units_have_no_bounded_gates(name):
    (stage,) = enumerate_booleans(program(unit(name))).stages
    assert not find_bounded(stage, {s.out.buffer for s in stage.batch if s.out.buffer.batch})


def of_gates(gates: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Members that are alike but for their gates; inputs from -2 to 2, products to be learnt."""
    count = len(gates)
    parameters = {"weight": torch.tensor([[[0.9, -0.8]]]).repeat(count, 1, 1), "gate": gates}
    shared = {"low": torch.full((count,), -2.0), "width": torch.full((count,), 4.0)}
    return parameters, shared | {"operation": torch.eye(4)[[2] * count]}


@needs_compiler
def test_gates_at_their_bounds_beyond_and_between_are_evaluated_alike():
    edges = torch.tensor([0.3, 1.0, 0.0, -0.0, 1.0, 0.0, 7.0, -7.0, 0.9999999, 1e-40, torch.nan, 0.3])
    parameters, constants = of_gates(torch.cartesian_prod(edges, edges))
    uniforms = torch.rand(2500, 2, generator=torch.Generator().manual_seed(0))
    step = make_step(unit("RealNPU"))
    loop, plain = Cpp(step, threads=2), Eager(step)
    together = loop.evaluate(parameters, constants, uniforms)
    torch.testing.assert_close(
        together, plain.evaluate(parameters, constants, uniforms), rtol=1e-5, atol=1e-7, equal_nan=True
    )
    assert together.isnan().sum() == 2 * len(edges) - 1
    for member in range(0, len(together), 7):
        weights, fixed = ({k: v[[member]] for k, v in values.items()} for values in (parameters, constants))
        alone = loop.evaluate(weights, fixed, uniforms)
        torch.testing.assert_close(alone, together[[member]], rtol=0, atol=0, equal_nan=True)


class PartlyBounded(Gates):
    """A gate of which one element is replaced, and a value of an example of which a part is."""

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.slice_scatter(self.gate.clamp(0, 1), self.weight[:, :1], 1, 0, 1)
        sizes = torch.log1p(gate * x.abs().unsqueeze(-1) + 2.0)
        sizes = torch.slice_scatter(sizes, self.weight[:, 2:] * x.unsqueeze(-1), 2, 1, 2)
        return (sizes * self.weight).sum((-2, -1)).unsqueeze(-1)


class BoundsWithinBounds(Gates):
    """Two clips of one gate, and values that go back to each other."""

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate.clamp(0, 1).clamp(0.2, 0.8)
        sizes = torch.log(gate * x.abs().unsqueeze(-1) + 0.5)
        return (sizes * self.weight + torch.tanh(sizes) * self.weight.sin()).sum((-2, -1)).unsqueeze(-1)


@needs_compiler
@pytest.mark.parametrize(
    "module", [Signs(), Gates(), PartlyBounded(), BoundsWithinBounds()], ids=lambda m: type(m).__name__
)
def test_own_modules_with_cases_are_evaluated_as_by_plain_pytorch(module):
    step, members = make_step(module), make_members(6).take(torch.tensor([0, 0, 0, 1, 1, 1]))
    members.constants["low"] -= 1.6
    torch.manual_seed(0)
    parameters = {k: v.detach() + 0.5 * torch.randn(6, *v.shape).round() for k, v in module.named_parameters()}
    uniforms = torch.rand(1500, 2, generator=torch.Generator().manual_seed(0))
    found, expected = (loop.evaluate(parameters, members.constants, uniforms) for loop in (Cpp(step), Eager(step)))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)
