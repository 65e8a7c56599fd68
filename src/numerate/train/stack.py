"""Turn configurations of one form into a stack that a loop can train: step, members, penalty weights, restarts."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.parameter import UninitializedParameter
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from numerate.loops.eager import Eager
from numerate.loops.noise import UnsupportedRandomness, functional, noise_per_example
from numerate.loops.step import Loop, Members, State, Step, Tensors, squared_error
from numerate.streams import Domain, uniform
from numerate.tasks.task import TEST_SEED, VALIDATION_SEED, Split
from numerate.train.backends import evaluator, first_sentence
from numerate.train.specification import Restart, Training
from numerate.units import parameter_bounds, snapped_parameters, sparsity_error

BLOCK = 64
"""Members; a multiple of what any processor computes at once."""
MOST_CHECKED = 64
"""Seeds of a user's own model that are tried before training."""


@dataclass(frozen=True)
class Run:
    """One member of a stack: a configuration and a seed."""

    training: Training
    seed: int


class _Apply(nn.Module):
    """A function of a module as a module, so that ``functional_call`` can give it other parameters."""

    def __init__(self, model: nn.Module, function: Callable[[nn.Module], Tensor | Tensors]) -> None:
        super().__init__()
        self.model, self.function = model, function

    def forward(self) -> Tensor | Tensors:
        return self.function(self.model)


T = TypeVar("T", Tensor, Tensors)


def of_parameters(model: nn.Module, function: Callable[[nn.Module], T]) -> Callable[[Tensors], T]:
    """``function(model)`` as a pure function of the model's parameters."""
    wrapped = _Apply(model, function)
    return lambda parameters: functional_call(wrapped, {f"model.{k}": v for k, v in parameters.items()}, ())


def shown_name(training: Training) -> str:
    """What a sentence calls a configuration's model."""
    return training.labels.get("unit") or getattr(training.model, "__name__", str(training.model))


def checked_model(training: Training, seeds: Iterable[int] = ()) -> nn.Module:
    """The model of seed 0 after a trial; one sentence if it, or one of ``seeds``, cannot be trained on the task."""
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
    if others := {str(p.dtype) for p in model.parameters() if p.dtype != torch.float32}:
        raise ValueError(f"{name} has parameters of type {', '.join(others)}, but training is in torch.float32")
    uniforms = torch.linspace(0.1, 0.9, 2 * task.draws).view(2, task.draws)
    x, y = task.examples(uniforms, task.constants(0, "train"))
    before = {buffer: value.clone() for buffer, value in model.named_buffers()}
    try:
        noise = torch.full((len(x), noise_per_example(model, task.inputs)), 0.5)
        foreign = training.computation is None
        with torch.no_grad(), _Draws() if foreign else nullcontext() as draws:
            functional(model, training=True)(dict(model.named_parameters()), x, noise)
            found = model.eval()(x)
    except UnsupportedRandomness as error:
        raise ValueError(f"{name} cannot be trained: {error}") from error
    except Exception as error:
        raise ValueError(f"{name} fails on inputs of shape {tuple(x.shape)}: {first_sentence(error)}") from error
    if draws is not None and draws.found:
        raise ValueError(
            f"{name} draws random numbers as it computes that cannot be keyed by seed and step; draw with torch.rand "
            "or torch.rand_like, one set for each example, and in training mode alone"
        )
    if changed := _differing(before, dict(model.named_buffers())):
        raise ValueError(f"{name} changes its buffer {changed[0]} as it computes, but only parameters can be trained")
    shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
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


class _Draws(TorchDispatchMode):
    """Notes whether torch's generator is used, by this thread."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        seeded = torch.Tag.nondeterministic_seeded in func.tags
        before = torch.get_rng_state() if seeded else None
        result = func(*args, **(kwargs or {}))
        self.found = self.found or (before is not None and not torch.equal(before, torch.get_rng_state()))
        return result


def _check_start(training: Training, seeds: Sequence[int], x: Tensor) -> None:
    """One sentence unless a seed decides its model, and parameters and drawn buffers are all that seeds differ in."""
    name, drawn = shown_name(training), _drawn_buffers(training)
    some, other = (training.build(seed=0).state_dict() for _ in range(2))
    if unkeyed := _differing(some, other):
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
            values = dict(model.named_parameters()) | {buffer: model.get_buffer(buffer) for buffer in drawn}
            expected = results(model, values)
            if not all(map(_equal, results(model, values), expected)):
                raise ValueError(
                    f"{name} gives other numbers when it computes the same again; all that it computes with must be "
                    "parameters, fixed, or drawn with torch.rand or torch.rand_like in training mode"
                )
            if not all(map(_equal, results(template, values), expected)):
                raise ValueError(
                    f"{name} has something else for seed {seed} than for seed 0, but only parameters and buffers of "
                    "torch.float32 may differ"
                )


def _equal(a: Tensor, b: Tensor) -> bool:
    """NaN equals NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _differing(some: Tensors, others: Tensors) -> list[str]:
    return [k for k in some | others if k not in some or k not in others or not _equal(some[k], others[k])]


def _drawn_buffers(training: Training) -> list[str]:
    """Buffers that differ between seeds; each run keeps its own, as a parameter that is not trained."""
    if training.computation is not None:
        return []
    first, *others = (dict(training.build(seed).named_buffers()) for seed in range(8))
    differing = {name for other in others for name in _differing(first, other)}
    return [name for name, value in first.items() if name in differing and value.dtype == torch.float32]


def make_step(training: Training) -> tuple[Step, nn.Module]:
    """The pure step of a configuration, and the model it was made from (a template; its own weights do not matter)."""
    model, train_model, eval_model = (training.build(seed=0) for _ in range(3))
    constants = _single(training.task.constants(0, "train"))
    apply, predict = functional(train_model, training=True), functional(eval_model, training=False)
    parameters, drawn = dict(model.named_parameters()), _drawn_buffers(training)
    frozen = {*drawn, *(name for name, parameter in parameters.items() if not parameter.requires_grad)}

    noise = noise_per_example(model, training.task.inputs)
    if training.computation is None:  # what a module keeps from its first use is then made of numbers, not of a trace
        x, _ = training.task.examples(torch.full((2, training.task.draws), 0.5), constants)
        with torch.no_grad():
            apply(parameters, x, torch.full((2, noise), 0.5))
            predict(parameters, x)

    def held(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """``function`` of the parameters without a gradient for the frozen ones, which then stay as they are."""

        def call(parameters: Tensors, *others: Any) -> Tensor:
            return function({k: v.detach() if k in frozen else v for k, v in parameters.items()}, *others)

        return call if frozen else function

    step = Step(
        parameters={k: v.shape for k, v in (parameters | {k: model.get_buffer(k) for k in drawn}).items()},
        constants={k: v.shape for k, v in constants.items()},
        draws=training.task.draws,
        examples=training.task.examples,
        model=held(apply),
        predict=lambda parameters, x: predict(parameters, x),
        penalties=tuple(held(of_parameters(model, penalty.function)) for penalty in training.penalties),
        bounds={name: limits for name, limits in parameter_bounds(model).items() if name not in frozen},
        noise=noise,
        batch=training.batch,
        error=getattr(training.task, "error", squared_error),
        betas=training.optimiser.betas,
        eps=training.optimiser.eps,
        clip=training.optimiser.clip,
        name=training.computation,
    )
    return step, model


def attempt(training: Training, loop: Loop, device: str) -> None:
    """One step and both evaluations of one run; raises if ``loop`` cannot run the model or finds other numbers."""
    runs, (step, _) = [Run(training, training.seeds[0])], make_step(training)
    start, plain = initial_parameters(runs), Eager(step)
    own = {k: v.to(device) for k, v in start.items()}
    model = training.build(seed=0)
    over_members(of_parameters(model, sparsity_error))(own)
    over_members(of_parameters(model, snapped_parameters))(own)
    for split in ("validation", "test"):
        uniforms, fixed = evaluation_uniforms(training, split), constants(runs, split)
        found = evaluator(loop, step, uniforms.shape[-1], device).evaluate(
            own, {k: v.to(device) for k, v in fixed.items()}, uniforms.to(device)
        )
        targets = step.examples(uniforms, {k: v[0] for k, v in fixed.items()})[1]
        _compare("error", found.cpu(), plain.evaluate(start, fixed, uniforms), 1e-5 * targets.square().mean())
    state, expected = State.start(own), State.start(start)
    weights = PenaltyWeights(runs)(0, 1, torch.ones(1))
    loop.train(state, members(runs).to(device), weights.to(device), 1)
    plain.train(expected, members(runs), weights, 1)
    largest = torch.stack([value.abs().amax() for value in expected.first.values()]).amax()
    for name, value in expected.first.items():
        _compare(f"gradient of {name}", state.first[name].cpu(), value, 1e-4 * largest)


def _compare(what: str, found: Tensor, expected: Tensor, unit: Tensor) -> None:
    """Whether two ways to compute agree, as far as rounding allows; a NaN or infinity is one for both."""
    tolerance = 0.01 * expected.abs().amax() + unit
    agree = ((found - expected).abs() <= tolerance) | (~found.isfinite() & ~expected.isfinite())
    if not agree.all():
        raise RuntimeError(f"its {what} differs from that of plain PyTorch")


def initial_parameters(runs: Sequence[Run], restarts: Sequence[int] | None = None) -> Tensors:
    """Stacked parameters, each drawn from its own (seed, init, restarts) stream; float32."""
    counts = [0] * len(runs) if restarts is None else restarts
    drawn = _drawn_buffers(runs[0].training)
    models = [run.training.build(run.seed, count) for run, count in zip(runs, counts)]
    members = [dict(m.named_parameters()) | {k: m.get_buffer(k) for k in drawn} for m in models]
    return {k: torch.stack([m[k].detach().float() for m in members]) for k in members[0]}


def _single(constants: Tensors) -> Tensors:
    """A task's constants in the precision of training."""
    return {k: v.float() if v.dtype == torch.float64 else v for k, v in constants.items()}


def constants(runs: Sequence[Run], split: Split) -> Tensors:
    """Stacked task constants of ``split``."""
    each = [_single(run.training.task.constants(run.seed, split)) for run in runs]
    return {k: torch.stack([c[k] for c in each]) for k in each[0]}


def examples_of(run: Run) -> tuple[list[float], ...]:
    """Equal for runs with the same examples in evaluation; side by side in a stack they share the making of them."""
    return tuple(value.flatten().tolist() for value in run.training.task.constants(run.seed, "validation").values())


def members(runs: Sequence[Run]) -> Members:
    """What differs between the members while they are trained."""
    optimisers = [run.training.optimiser for run in runs]
    clip = torch.tensor([o.limit for o in optimisers]) if optimisers[0].clip else None
    rate = torch.tensor([o.rate for o in optimisers])
    return Members(torch.tensor([run.seed for run in runs]), constants(runs, "train"), rate, clip)


def evaluation_uniforms(training: Training, split: Split) -> Tensor:
    """The fixed numbers behind the validation or test examples, the same in every run; (evaluation_size, draws)."""
    held_out = getattr(training.task, "held_out", None)
    if held_out is not None and (own := held_out(split, training.evaluation_size)) is not None:
        return own.float()
    seed, domain = (TEST_SEED, Domain.TEST) if split == "test" else (VALIDATION_SEED, Domain.VALIDATION)
    size = training.evaluation_size, training.task.draws
    return uniform(torch.tensor(seed), domain, 0, size[0] * size[1]).view(size)


class PenaltyWeights:
    """Weight of each penalty at each step for each member: (K, steps, S), on ``device``."""

    def __init__(self, runs: Sequence[Run], device: str = "cpu") -> None:
        kinds = list(dict.fromkeys(run.training.penalties for run in runs))
        self.kinds, self.device = kinds, device
        self.which = torch.tensor([kinds.index(run.training.penalties) for run in runs], device=device)
        self.limits = [
            torch.tensor([np.inf if p[k].below is None else p[k].below for p in kinds], device=device)[self.which]
            if any(p[k].below is not None for p in kinds)
            else None
            for k in range(len(kinds[0]))
        ]

    def __call__(self, start: int, steps: int, validation: Tensor) -> Tensor:
        """For the steps from ``start`` on; ``validation``: each member's last error, (S,)."""
        t = torch.arange(start, start + steps, dtype=torch.float64, device=self.device)
        tables = []
        for k, limit in enumerate(self.limits):
            found = [torch.as_tensor(penalties[k].schedule(t), device=self.device) for penalties in self.kinds]
            weights = [weight.float().expand(steps) for weight in found]
            if len(weights) == 1:
                table = weights[0].unsqueeze(-1).expand(-1, len(self.which))
            else:
                table = torch.stack(weights, -1)[:, self.which]
            tables.append(table if limit is None else table * ((validation < limit) | limit.isinf()))
        if len(tables) == 1:
            return tables[0].unsqueeze(0)  # without a copy: most often all members have one schedule
        return torch.stack(tables) if tables else torch.zeros(0, steps, len(self.which), device=self.device)


def restart_times(
    rule: Restart, every: int, curves: np.ndarray, since: np.ndarray, start: int, steps: int
) -> np.ndarray:
    """When, in [start, start + steps), each member's parameters are to be drawn anew; (S,), -1 for not at all.

    ``curves``: validation errors at 0, ``every``, ... up to ``start``, (S, points); ``since``: (S,), the step after the
    last restart, where a member's notes begin. Step t notes curves[:, t // every]; see :class:`Restart`.
    """
    times = np.arange(-(-max(start, 1) // rule.every) * rule.every, start + steps, rule.every)[None]  # (1, times)
    begin = since[:, None]
    length = times + 1 - begin
    half = np.maximum(length, 2) // 2
    totals, squares = (np.pad(np.cumsum(c * every, -1), ((0, 0), (1, 0))) for c in (curves, curves * curves))

    def noted(total: np.ndarray, value: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Sum over the steps 0 .. t - 1 of what they noted, from the sums at whole evaluations."""
        place = np.minimum(t // every, curves.shape[1] - 1)
        rest = t - place * every
        return np.take_along_axis(total, place, -1) + np.take_along_axis(value, place, -1) * rest

    with np.errstate(invalid="ignore", over="ignore"):
        middle, end = begin + half, np.broadcast_to(times + 1, length.shape)
        older = (noted(totals, curves, middle) - noted(totals, curves, begin)) / half
        newer_count = np.maximum(length - half, 1)
        newer = (noted(totals, curves, end) - noted(totals, curves, middle)) / newer_count
        square = curves * curves
        spread = (noted(squares, square, end) - noted(squares, square, middle)) / newer_count - newer**2
        due = (length > rule.history) & (older <= newer + np.sqrt(np.maximum(spread, 0))) & (newer > rule.above)
    due &= np.isfinite(curves).all(-1, keepdims=True)
    return np.where(due.any(-1), times[0][due.argmax(-1)] if times.size else -1, -1)


def over_members(function: Callable[[Tensors], T]) -> Callable[[Tensors], T]:
    """``function`` of one member's parameters for a whole stack.

    Torch computes the last few elements of a tensor by other instructions than the rest, which may round otherwise. So
    the stack is filled up to whole blocks: a member's result does not depend on its place or on the others. A function
    that ``vmap`` cannot follow is called for one member after the other.
    """

    def call(parameters: Tensors) -> T:
        count = len(next(iter(parameters.values())))
        whole = {k: torch.cat([v, v[-1:].expand(-count % BLOCK, *v.shape[1:])]) for k, v in parameters.items()}
        try:
            return tree_map(lambda value: value[:count], vmap(function)(whole))
        except RuntimeError:
            each = [function({k: v[s] for k, v in parameters.items()}) for s in range(count)]
            return tree_map(lambda *values: torch.stack(values), *each)

    return call
