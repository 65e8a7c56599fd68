"""Training steps for tests: a module, two-input operations with their ranges as constants, penalties, bounds."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import numerate.units
from numerate.loops.step import Members, State, Step, Tensors
from numerate.loops.tracing.noise import functional, noise_per_example
from numerate.units import Unit, outer_units, parameter_bounds, penalty

UNITS: dict[str, type[Unit]] = {
    name: unit
    for name in numerate.units.__all__
    if inspect.isclass(unit := getattr(numerate.units, name)) and issubclass(unit, Unit) and unit is not Unit
}
SMALL: dict[str, dict[str, Any]] = {"MLP": {"hidden": (4,)}}
OPERATIONS = ("add", "sub", "mul", "div")


def unit(name: str, inputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return UNITS[name](inputs, 1, **SMALL.get(name, {}))


def make_step(module: nn.Module, inputs: int = 2, **options: Any) -> Step:
    """y = x0 ∘ x1, where the constant ``operation`` (one-hot) says which of +, -, ×, ÷ the member learns."""

    def examples(uniforms: Tensor, constants: Tensors) -> tuple[Tensor, Tensor]:
        x = constants["low"] + constants["width"] * uniforms
        a, b = x[:, :1], x[:, 1:2]
        return x, torch.cat([a + b, a - b, a * b, a / b], -1) @ constants["operation"].unsqueeze(-1)

    constants = {"low": torch.Size(()), "width": torch.Size(()), "operation": torch.Size((4,))}
    return module_step(module, inputs, constants, examples, **options)


class _Penalty(nn.Module):
    """The penalty of a module as the forward pass of another, so that its parameters can be replaced."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self) -> Tensor:
        return penalty(self.module)


def module_step(module: nn.Module, draws: int, constants: Any, examples: Any, **options: Any) -> Step:
    wrapped = _Penalty(module)

    def module_penalty(parameters: Tensors) -> Tensor:
        return functional_call(wrapped, {f"module.{k}": v for k, v in parameters.items()}, ())

    settings: dict[str, Any] = {
        "penalties": (module_penalty,) if list(outer_units(module)) else (),
        "bounds": parameter_bounds(module),
        "noise": noise_per_example(module, draws),
    }
    shapes = {name: value.shape for name, value in module.named_parameters()}
    model, predict = functional(module, training=True), functional(module, training=False)
    return Step(shapes, constants, draws, examples, model, predict, **(settings | options))


def make_members(count: int, constants: Tensors | None = None, *, rate: float = 1e-2) -> Members:
    """Members with different seeds, ranges and operations."""
    if constants is None:
        low = torch.linspace(1.0, 1.5, count)
        constants = {"low": low, "width": low.flip(0) / 2, "operation": torch.eye(4)[torch.arange(count) % 4]}
    return Members(torch.arange(count) * 7 + 2**33, constants, torch.linspace(rate, rate / 2, count))


def make_state(module: nn.Module, count: int) -> State:
    """Members that start near the module's own parameters, each at another place."""
    torch.manual_seed(1)
    drawn = {k: v.detach() + 0.05 * torch.randn(count, *v.shape) for k, v in module.named_parameters()}
    bounds = parameter_bounds(module)
    return State.start({k: v.clamp(*bounds[k]) if k in bounds else v for k, v in drawn.items()})


def make_weights(step: Step, steps: int, count: int) -> Tensor:
    """Penalty weights that grow over time, different for each member."""
    ramp = torch.linspace(0, 0.1, steps).unsqueeze(-1) * torch.linspace(0, 1, count)
    return ramp.expand(len(step.penalties), steps, count).contiguous()


def two_layers(first: nn.Module, second: nn.Module, inputs: int = 100) -> Step:
    """y = (sum over one subset of the inputs) * (sum over another), as in the two-layer arithmetic task."""

    def examples(uniforms: Tensor, constants: Tensors) -> tuple[Tensor, Tensor]:
        x = constants["low"] + constants["width"] * uniforms
        return x, (x @ constants["a"].unsqueeze(-1)) * (x @ constants["b"].unsqueeze(-1))

    sizes = {"low": (), "width": (), "a": (inputs,), "b": (inputs,)}
    constants = {name: torch.Size(size) for name, size in sizes.items()}
    return module_step(nn.Sequential(first, second), inputs, constants, examples)


def subsets(count: int, inputs: int = 100) -> Tensors:
    """A quarter of the inputs each, half of them shared, at another place for each member."""
    quarter = inputs // 4
    place = torch.arange(inputs) - torch.arange(count).unsqueeze(-1)
    a, b = ((place >= start) & (place < start + quarter) for start in (0, quarter // 2))
    low = torch.linspace(1.0, 1.5, count)
    return {"low": low, "width": low.flip(0), "a": a.float(), "b": b.float()}


def largest_difference(a: State, b: State) -> float:
    """Over all parameters of all members."""
    pairs = ((a.parameters[name], b.parameters[name]) for name in a.parameters)
    return max((x - y).abs().max().item() for x, y in pairs)


class Joined(nn.Module):
    """Puts a parameter, or what it gives, beside the inputs."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2, outputs), nn.Linear(3 + outputs, 1)
        self.constant = nn.Parameter(torch.rand(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(torch.cat([x, self.constant.expand(len(x), 1), self.inner(x)], -1))


class Backwards(nn.Module):
    """Products of values that are needed from both ends, and a parameter of which a part is used."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 40, bias=False), nn.Linear(2, 1)
        self.factors, self.sliced = nn.Parameter(torch.rand(40) / 3), nn.Parameter(torch.rand(20))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.factors * self.inner(x)
        products = (hidden * hidden.flip(-1) + 1).prod(-1, keepdim=True)
        return self.outer(torch.cat([products, (x[:, :1] * self.sliced[:6]).sin().sum(-1, keepdim=True)], -1))


class Running(nn.Module):
    """Running sums and products of what ``first`` is put before."""

    def __init__(self, first: float) -> None:
        super().__init__()
        self.first, self.inner, self.outer = first, nn.Linear(2, 20), nn.Linear(20, 1)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.inner(x).tanh()
        padded = nn.functional.pad(x, (1, 17), value=self.first)
        inside = torch.slice_scatter(torch.full_like(hidden, self.first), hidden[:, :4], 1, 1, 5)
        hidden = hidden * padded.cumsum(-1) + inside.cumsum(-1) + torch.cat([hidden, hidden[:, :0]], -1)
        hidden = hidden.tanh() / 2
        shifted = torch.cat([torch.full_like(hidden[:, :1], self.first), hidden[:, :-1]], -1)
        return self.outer(shifted.cumsum(-1) + (shifted.flip(-1) + 1).cumprod(-1))
