"""From a :class:`~numerate.loops.step.Step` to flat graphs of ATen operations, for one member.

The whole step is traced: examples, loss, its gradient, penalties, clipping, Adam and bounds, with the functions that
the plain loop uses. The user's module needs no changes. Each function is traced at two batch sizes; the axis that
differs is the batch. So no size is reserved as a marker, and constants such as 1/n are those of the true batch size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize, grad, vjp
from torch.fx import GraphModule, Node

from numerate.locks import ForkSafeLock
from numerate.loops.step import MOMENTS, Step, Tensors, adam, at_step, clipped
from numerate.loops.tracing.linearity import is_linear
from numerate.torch_internals import decompositions, make_fx, traceable_functions

_aten = torch.ops.aten
_SIMPLER = [  # core operations that torch can write in terms of simpler ones
    _aten.addmm, _aten.elu, _aten.gelu, _aten.hardtanh, _aten.leaky_relu, _aten.native_layer_norm, _aten.relu6,
    _aten._softmax, _aten._log_softmax, _aten._softmax_backward_data, _aten._log_softmax_backward_data,
    _aten._prelu_kernel, _aten._prelu_kernel_backward, _aten.silu, _aten.std,
    _aten.linalg_vector_norm,
]  # fmt: skip


TRACING = ForkSafeLock()
"""``make_fx`` modifies torch while it traces, so only one thread may trace at a time."""


class NotLowered(NotImplementedError):
    """A computation that the emitted loops cannot express; the message names the operation. Other loops can run it."""


@dataclass(frozen=True)
class Traced:
    """A graph of ATen operations with named inputs and outputs; ``batch[node]`` is the axis of the batch, if any."""

    module: GraphModule
    inputs: dict[str, Node]
    outputs: dict[str, Node]
    batch: dict[Node, int | None]


def training_step(step: Step) -> Traced:
    """One step of one member; moments and parameters in, the new ones out.

    The gradient is that of the mean over the batch. Where the backward is linear in the gradient that it starts from,
    that is the gradient of the sum, divided once at its end.

    Inputs: ``parameters.*``, ``exp_avg.*``, ``exp_avg_sq.*``, ``constants.*``, ``uniforms`` (n, draws), ``noise``
    (n, noise), ``table`` (rows,), ``rate``, ``clip`` (), ``correction``. Outputs: the first three groups. Inputs that
    a step does not need are not there.
    """

    def function(values: Tensors) -> Tensors:
        parameters, exp_avg, exp_avg_sq, constants = (
            _group(values, name) for name in ("parameters", *MOMENTS, "constants")
        )
        x, y = step.examples(values["uniforms"], constants)
        backward = vjp(lambda p: step.loss(step.model(p, x, values.get("noise")), y).sum(), parameters)[1]
        gradients = {name: g / values["divisor"] for name, g in backward(values["first_gradient"])[0].items()}
        row = values.get("table", torch.zeros(0))
        scales, rate, correction = at_step(step, row, values["rate"], values.get("correction"))
        if step.penalties:
            pull = grad(lambda p: _weighted(step, p, scales))(parameters)
            gradients = {name: g + pull[name] for name, g in gradients.items()}
        gradients = clipped(step, gradients, values.get("clip"))
        results = adam(step, parameters, exp_avg, exp_avg_sq, gradients, rate, correction)
        return {f"{name}.{k}": v for name, group in zip(("parameters", *MOMENTS), results) for k, v in group.items()}

    def inputs(batch: int) -> Tensors:
        groups = {name: _examples(step.parameters) for name in ("parameters", *MOMENTS)}
        groups["constants"] = _examples(step.constants)
        values = {f"{name}.{k}": v for name, group in groups.items() for k, v in group.items()}
        values["uniforms"] = example(batch, step.draws)
        if step.noise:
            values["noise"] = example(batch, step.noise)
        if step.rows:
            values["table"] = example(step.rows)
        if step.clip is not None:
            values["clip"] = example(())
        values["rate"] = example(1 + len(step.groups)) if step.groups else example(())
        if not step.own_clocks:
            values["correction"] = example(2 + 2 * len(step.groups))
        return values | {"first_gradient": example(()), "divisor": example(())}

    traced = trace(function, inputs, step.batch)
    linear = is_linear(traced.module.graph, traced.inputs["first_gradient"], traced.inputs["divisor"])
    size = float(step.batch)
    _fill(traced, {"first_gradient": 1.0 if linear else 1 / size, "divisor": size if linear else 1.0})
    return traced


def _fill(traced: Traced, numbers: Mapping[str, float]) -> None:
    """Put numbers in the place of inputs."""
    graph = traced.module.graph
    for name, number in numbers.items():
        node = traced.inputs.pop(name)
        with graph.inserting_after(list(traced.inputs.values())[-1]):
            filled = graph.call_function(_aten.full.default, ([], number), {"dtype": torch.float32})
        filled.meta = dict(node.meta)
        traced.batch[filled] = None
        node.replace_all_uses_with(filled)
        graph.erase_node(node)
    traced.module.recompile()


def evaluation(step: Step) -> Traced:
    """The error. Inputs: ``parameters.*``, ``constants.*``, ``uniforms`` (n, draws). Output: ``loss``."""

    def function(values: Tensors) -> Tensors:
        x, y = step.examples(values["uniforms"], _group(values, "constants"))
        return {"loss": step.error(step.predict(_group(values, "parameters"), x), y)}

    def inputs(batch: int) -> Tensors:
        groups = {"parameters": _examples(step.parameters), "constants": _examples(step.constants)}
        values = {f"{name}.{k}": v for name, group in groups.items() for k, v in group.items()}
        return values | {"uniforms": example(batch, step.draws)}

    return trace(function, inputs, 128, any_size=True)


def _weighted(step: Step, parameters: Tensors, scales: Tensor) -> Tensor:
    return torch.stack([scales[k] * penalty(parameters) for k, penalty in enumerate(step.penalties)]).sum()


def example(*shape: Any) -> Tensor:
    """A placeholder for an input; its numbers do not matter."""
    return torch.zeros(*shape, dtype=torch.float32, device="cpu")


def _group(values: Tensors, name: str) -> Tensors:
    return {k.removeprefix(f"{name}."): v for k, v in values.items() if k.startswith(f"{name}.")}


def _examples(shapes: Any) -> Tensors:
    return {name: example(shape) for name, shape in shapes.items()}


def trace(
    function: Callable[[Tensors], Tensors], inputs: Callable[[int], Tensors], batch: int, *, any_size: bool = False
) -> Traced:
    """Trace at two batch sizes and find the batch by comparing them; ``any_size``: no number may depend on it."""
    other = batch + 3
    (graph, names), (twin, _) = (_graph(function, inputs(size)) for size in (batch, other))
    nodes, twins = list(graph.graph.nodes), list(twin.graph.nodes)
    if [n.target for n in nodes] != [n.target for n in twins]:
        raise NotLowered("the operations of the step depend on the batch size")
    if any_size and any(repr(_numbers(a, graph)) != repr(_numbers(b, twin)) for a, b in zip(nodes, twins)):
        raise NotLowered("a number in evaluation depends on how many examples there are")
    axes = {node: _batch_axis(node, twin, batch, other) for node, twin in zip(nodes, twins)}
    placeholders = [node for node in nodes if node.op == "placeholder"]
    results = nodes[-1].args[0]
    assert isinstance(results, (list, tuple))
    return Traced(graph, dict(zip(inputs(batch), placeholders)), dict(zip(names, results)), axes)


def trace_example(function: Callable[[Tensors], Tensors], values: Tensors) -> Traced:
    """Trace for the shapes of ``values``, without a batch."""
    graph, names = _graph(function, values)
    nodes = list(graph.graph.nodes)
    results = nodes[-1].args[0]
    assert isinstance(results, (list, tuple))
    placeholders = [node for node in nodes if node.op == "placeholder"]
    return Traced(graph, dict(zip(values, placeholders)), dict(zip(names, results)), dict.fromkeys(nodes))


@cache
def _decompositions() -> dict[Any, Any]:
    """Operations and their decompositions into simpler ones; collecting them takes a fifth of a second."""
    return decompositions(*_SIMPLER)


def _graph(function: Callable[[Tensors], Tensors], values: Tensors) -> tuple[GraphModule, list[str]]:
    """The flat graph, and the names of its outputs."""
    names: list[str] = []

    def flat(*arguments: Tensor) -> tuple[Tensor, ...]:
        results = function(dict(zip(values, arguments)))
        names[:] = results
        return tuple(results.values())

    pure = functionalize(flat, remove="mutations")
    with TRACING, traceable_functions():
        traced = make_fx(pure, _decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True)
        module = traced(*values.values())
    module.graph.eliminate_dead_code()
    return module, names


def _numbers(node: Node, module: GraphModule) -> list[Any]:
    """The constants that a node computes with, apart from sizes and indices."""
    if node.op == "get_attr":
        return getattr(module, str(node.target)).tolist()
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    given = dict(zip((argument.name for argument in schema.arguments), node.args)) | node.kwargs
    places = {argument.name for argument in schema.arguments if "int" in str(argument.type)}
    return [value for name, value in given.items() if isinstance(value, int | float) and name not in places]


def _batch_axis(node: Node, twin: Node, batch: int, other: int) -> int | None:
    """The one axis of a node's value whose size is the batch."""
    value, twin_value = node.meta.get("val"), twin.meta.get("val")
    if not isinstance(value, Tensor) or not isinstance(twin_value, Tensor):
        return None
    if value.ndim != twin_value.ndim:
        raise NotLowered(f"the shape of {node.target} depends on the batch size")
    axes = [d for d, (a, b) in enumerate(zip(value.shape, twin_value.shape)) if a != b]
    if not axes:
        return None
    if len(axes) > 1 or (value.shape[axes[0]], twin_value.shape[axes[0]]) != (batch, other):
        raise NotLowered(f"{node.target} mixes the batch with another dimension: {tuple(value.shape)}")
    return axes[0]
