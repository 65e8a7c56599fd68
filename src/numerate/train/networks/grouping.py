"""Which runs are trained together, and what is trained at all."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call

from numerate.devices import kind_of
from numerate.recurrent import Recurrent
from numerate.results import Key
from numerate.train.backends import first_sentence
from numerate.train.networks.specification import NetworkRun, NetworkTraining
from numerate.train.specification import Drawing, Factory
from numerate.train.stack import shown_name

AT_ONCE = 8
"""Runs of a group on a CPU, each computed by itself; threads share them."""


def together(training: NetworkTraining, model: nn.Module, device: str) -> int:
    """How many runs a GPU computes at once: 1, 4, 10 or 16, by the work of an update alone.

    A stack is of one form, so that configurations which differ in rates and limits share it if their seeds do not meet.
    It is always filled up to that number, and a seed has its place in it. So the bits of a run do not depend on which
    others there are.
    """
    if not kind_of(device).asynchronous or training.restart is not None:
        return 1
    count = sum(p.numel() for p in model.parameters())
    work = count * training.task.batch_size
    if _recurrent_parameters(model) < 0.05 * count:
        return (16 if work <= 1e7 else 10) if work <= 1e8 else 1
    return 16 if work <= 1e6 else 4 if work <= 4e6 else 1


def _recurrent_parameters(model: nn.Module) -> int:
    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    return sum(p.numel() for p in {p for layer in layers for p in layer.parameters()})


def groups(runs: dict[Key, NetworkRun], device: str) -> Iterator[dict[Key, NetworkRun]]:
    """Runs of equal form together, as many as are trained at once."""
    forms = {id(training): training.form for training in {id(r.training): r.training for r in runs.values()}.values()}
    alike: dict[object, dict[Key, NetworkRun]] = {}
    for key, run in runs.items():
        alike.setdefault(forms[id(run.training)], {})[key] = run
    for group in alike.values():
        example = next(iter(group.values())).training
        size = together(example, checked_model(example), device)
        if kind_of(device).asynchronous:
            yield from stacks(group, size)
        else:
            keys = list(group)
            yield from ({key: group[key] for key in keys[i : i + AT_ONCE]} for i in range(0, len(keys), AT_ONCE))


def stacks(group: dict[Key, NetworkRun], size: int) -> list[dict[Key, NetworkRun]]:
    """Runs of one form in stacks of ``size`` places; a run goes to the first one in which its seed's place is free."""
    found: dict[int, list[dict[int, Key]]] = {}
    for key in group:
        block, place = divmod(key.seed, size)
        of_block = found.setdefault(block, [])
        free = next((stack for stack in of_block if place not in stack), None)
        if free is None:
            free = {}
            of_block.append(free)
        free[place] = key
    return [{key: group[key] for key in stack.values()} for of_block in found.values() for stack in of_block]


def checked_model(training: NetworkTraining) -> nn.Module:
    """The network of the first seed. Raises ValueError if it cannot be trained on the task."""
    name, task = shown_name(training), training.task
    try:
        model = training.build(training.seeds[0])
    except Exception as error:
        sizes = f"(inputs, outputs) = ({task.inputs}, {task.outputs})"
        raise ValueError(f"{name} cannot make a network of {sizes}: {error}") from error
    _require_module(model, name)
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(f"{name} has no parameters to train")
    if others := {str(p.dtype) for p in model.parameters() if p.dtype != torch.float32}:
        raise ValueError(f"{name} has parameters of type {', '.join(others)}, but training is in torch.float32")
    training.optimiser.groups(k for k, p in model.named_parameters() if p.requires_grad)  # raises for unknown names
    if task.carries and not hasattr(model, "initial_state"):
        raise ValueError(f"{name} has no initial_state(x), which {type(task).__name__} needs: it carries the state")
    return model


def checked_layer(make: Factory, inputs: int, outputs: int) -> nn.Module:
    """The layer that ``make`` gives for a part of a network. Raises ValueError unless it maps (2, I) to (2, O).

    It is tried on zeros; its buffers, and the numbers that are drawn later, are those of a layer not tried.
    """
    layer, x = make(inputs, outputs), torch.zeros(2, inputs)
    _require_module(layer, getattr(make, "__name__", str(make)))
    name, given = type(layer).__name__, tuple(x.shape)
    buffers = {key: value.clone() for key, value in layer.named_buffers()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), Drawing(0):
            found = functional_call(layer, buffers, (x,))
    except Exception as error:
        raise ValueError(f"{name} fails on inputs of shape {given}: {first_sentence(error)}") from error
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    if shape != (2, outputs):
        raise ValueError(f"{name} makes {shape} of inputs of shape {given}, but the network needs {(2, outputs)}")
    return layer


def _require_module(made: object, name: str) -> None:
    if not isinstance(made, nn.Module):
        raise ValueError(f"{name} makes {type(made).__name__} of (inputs, outputs), not a torch.nn.Module")
