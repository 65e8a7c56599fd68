"""Check a model before it is trained: that it can be, that its seed determines it, that a loop computes it."""

from collections.abc import Iterable, Sequence, Set
from contextlib import nullcontext
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode

from numerate.loops.plain.eager import Eager
from numerate.loops.step import Loop, State, Tensors
from numerate.loops.tracing.noise import UnsupportedRandomness, functional, noise_per_example
from numerate.train.backends import evaluator, first_sentence
from numerate.train.specification import Training
from numerate.train.stack import (
    Run,
    Table,
    check_alike,
    constants,
    differing,
    drawn_buffers,
    equal,
    evaluation_uniforms,
    initial_parameters,
    make_step,
    members,
    of_parameters,
    over_members,
    shown_name,
    snapping,
)
from numerate.units import sparsity_error

MOST_CHECKED = 64
"""Seeds of a user's own model that are checked before training."""
ERRORS, GRADIENTS = 1e-3, 5e-3
"""Relative tolerances. On tasks that are hard on rounding, our own units are off by up to 2e-6 and 1e-3."""


def check_model(training: Training, seeds: Iterable[int] = ()) -> nn.Module:
    """The model of seed 0. Raises ValueError if it, or that of one of ``seeds``, cannot be trained on the task."""
    task, name = training.task, shown_name(training)
    try:
        model = training.build(seed=0)
    except Exception as error:
        sizes = f"(inputs, outputs) = ({task.inputs}, {task.outputs})"
        raise ValueError(f"{name} cannot make a model of {sizes}: {first_sentence(error)}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name} makes {type(model).__name__} of (inputs, outputs), not a torch.nn.Module")
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        raise ValueError(f"{name} has parameters whose shape is not known before its first use; give their sizes")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"{name} has no parameters to train")
    training.optimiser.groups(k for k, _ in model.named_parameters())  # raises for names that there are not
    if hooked := [k for k, p in model.named_parameters() if p._backward_hooks or p._post_accumulate_grad_hooks]:
        raise ValueError(
            f"{name} has a hook on the gradient of {hooked[0]}, which training would not call; use a mask in forward"
        )
    if isinstance(bounds := getattr(model, "bounds", None), str | Real | Sequence | Set):
        raise ValueError(
            f"the bounds of {name} must be a mapping of parameter name -> (low, high), got {bounds!r}: they would be "
            "ignored"
        )
    if others := {str(p.dtype) for p in model.parameters() if p.dtype != torch.float32}:
        raise ValueError(f"{name} has parameters of type {', '.join(others)}, but training is in torch.float32")
    uniforms = torch.linspace(0.1, 0.9, 2 * task.draws).view(2, task.draws)
    x, y = task.examples(uniforms, task.constants(0, "train"))
    before = {buffer: value.clone() for buffer, value in model.named_buffers()}
    try:
        noise = torch.full((len(x), noise_per_example(model, task.inputs)), 0.5)
        foreign = training.computation is None
        with torch.no_grad(), _DrawDetector() if foreign else nullcontext() as detector:
            functional(model, training=True)(dict(model.named_parameters()), x, noise)
            output = functional(model, training=False)(dict(model.named_parameters()), x)
    except UnsupportedRandomness as error:
        raise ValueError(f"{name} cannot be trained: {error}") from error
    except Exception as error:
        raise ValueError(f"{name} fails on inputs of shape {tuple(x.shape)}: {first_sentence(error)}") from error
    if detector is not None and detector.drew:
        raise ValueError(
            f"{name} draws random numbers as it computes that cannot be keyed by seed and step; draw with torch.rand "
            "or torch.rand_like, one set for each example, and in training mode alone"
        )
    if changed := differing(before, dict(model.named_buffers())):
        raise ValueError(f"{name} changes its buffer {changed[0]} as it computes, but only parameters can be trained")
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    if shape != tuple(y.shape):
        raise ValueError(
            f"{name} makes {shape} of inputs of shape {tuple(x.shape)}, but the targets have {tuple(y.shape)}"
        )
    for penalty in training.penalties:
        if (value := penalty.function(model)).shape != ():
            raise ValueError(f"a penalty of {name} gives numbers of shape {tuple(value.shape)}, not a single one")
    if foreign:
        _check_start(training, list(dict.fromkeys([*training.seeds, *seeds]))[:MOST_CHECKED], x)
    return model


class _DrawDetector(TorchDispatchMode):
    """Notes whether this thread uses torch's generator."""

    drew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seeded = torch.Tag.nondeterministic_seeded in func.tags
        before = torch.get_rng_state() if seeded else None
        result = func(*args, **(kwargs or {}))
        self.drew = self.drew or (before is not None and not torch.equal(before, torch.get_rng_state()))
        return result


def _check_start(training: Training, seeds: Sequence[int], x: Tensor) -> None:
    """Raise ValueError unless a seed determines its model, and seeds differ in parameters and drawn buffers alone."""
    name, drawn = shown_name(training), drawn_buffers(training)
    first, second = (training.build(seed=0) for _ in range(2))
    if unkeyed := differing(*(model.state_dict() | dict(model.named_buffers()) for model in (first, second))):
        raise ValueError(f"{name} makes another {unkeyed[0]} each time for one seed; draw with torch's own generator")
    template, twin = training.build(seed=0), training.build(seed=0)
    noise = torch.full((len(x), noise_per_example(twin, training.task.inputs)), 0.5)

    def results(model: nn.Module, values: Tensors) -> list[Tensor]:
        """What a model computes in both modes, and its penalties."""
        modes = functional(model, training=True)(values, x, noise), functional(model, training=False)(values, x)
        return [*modes, *(of_parameters(model, penalty.function)(values) for penalty in training.penalties)]

    with torch.no_grad():
        for seed in seeds:
            model = training.build(seed)
            check_alike(Run(training, seed), model, template, drawn)
            values = dict(model.named_parameters()) | {buffer: model.get_buffer(buffer) for buffer in drawn}
            expected = results(model, values)
            if not all(map(equal, results(model, values), expected)):
                raise ValueError(
                    f"{name} is not deterministic; all that it computes with must be "
                    "parameters, fixed, or drawn with torch.rand or torch.rand_like in training mode"
                )
            if not all(map(equal, results(template, values), expected)):
                raise ValueError(
                    f"{name} builds a different model for seed {seed} than for seed 0, but only parameters and buffers "
                    "of torch.float32 may differ"
                )


def check_loop(training: Training, loop: Loop, device: str) -> None:
    """Run one step and both evaluations of one run; raises if ``loop`` cannot, or disagrees with plain PyTorch."""
    runs, (step, _) = [Run(training, training.seeds[0])], make_step(training)
    start, plain = initial_parameters(runs), Eager(step)
    moved = {k: v.to(device) for k, v in start.items()}
    model = training.build(seed=0)
    over_members(of_parameters(model, sparsity_error))(moved)
    snapping(model)(moved)
    for split in ("validation", "test"):
        uniforms, fixed = evaluation_uniforms(training, split), constants(runs, split)
        errors = evaluator(loop, step, uniforms.shape[-1], device).evaluate(
            moved, {k: v.to(device) for k, v in fixed.items()}, uniforms.to(device)
        )
        targets = step.examples(uniforms, {k: v[0] for k, v in fixed.items()})[1]
        _compare("error", errors.cpu(), plain.evaluate(start, fixed, uniforms), ERRORS, 1e-5 * targets.square().mean())
    state, expected = State.start(moved), State.start(start)
    table = Table(step, runs)(0, 1, torch.ones(1), np.zeros(1, np.int64))
    loop.train(state, members(runs).to(device), table.to(device), 1)
    plain.train(expected, members(runs), table, 1)
    largest = torch.stack([_largest(value) for value in expected.exp_avg.values()]).amax()
    for name, value in expected.exp_avg.items():
        _compare(f"gradient of {name}", state.exp_avg[name].cpu(), value, GRADIENTS, 1e-4 * largest)


def _compare(what: str, actual: Tensor, expected: Tensor, share: float, unit: Tensor) -> None:
    """Raise RuntimeError unless the two agree as far as rounding allows; NaN and infinities agree with each other."""
    agree = (actual - expected).abs() <= share * _largest(expected) + unit
    if not (agree | (~actual.isfinite() & ~expected.isfinite())).all():
        raise RuntimeError(f"its {what} differs from that of plain PyTorch")


def _largest(values: Tensor) -> Tensor:
    """The largest finite absolute value, at least 0."""
    return torch.cat([values[values.isfinite()].abs(), values.new_zeros(1)]).amax()
