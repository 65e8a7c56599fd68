"""Turn configurations of one form into a stack that a loop can train: step, members, penalty scales, restarts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from numerate.loops.step import Members, ParameterGroup, Step, Tensors, corrections, squared_error
from numerate.loops.tracing.noise import functional, noise_per_example
from numerate.tasks.task import Split, held_out_numbers
from numerate.torch_internals import tree_map
from numerate.train.schedules import rate_factors
from numerate.train.specification import Plateau, Restart, Training
from numerate.units import parameter_bounds, snapped_parameters

BLOCK = 64
"""Members; a multiple of what any processor computes at once."""


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


def shown_name(training: Any) -> str:
    """What a sentence calls a configuration's model."""
    return training.labels.get("unit") or getattr(training.model, "__name__", str(training.model))


def equal(a: Tensor, b: Tensor) -> bool:
    """NaN equals NaN."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def differing(some: Tensors, others: Tensors) -> list[str]:
    return [k for k in some | others if k not in some or k not in others or not equal(some[k], others[k])]


def drawn_buffers(training: Training) -> list[str]:
    """Buffers that differ between seeds; each run keeps its own, as a parameter that is not trained."""
    if training.computation is not None:
        return []
    first, *others = (dict(training.build(seed).named_buffers()) for seed in range(8))
    drawn = {name for other in others for name in differing(first, other)}
    return [name for name, value in first.items() if name in drawn and value.dtype == torch.float32]


def _kept_names(model: nn.Module) -> dict[str, str]:
    """Every name of a parameter -> the one it is trained by; one that several modules share has several."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(p), name) for name, p in model.named_parameters(remove_duplicate=False)}


def _bounds(model: nn.Module) -> dict[str, tuple[float, float]]:
    """The bounds of all parameters; a shared one keeps those of all that share it."""
    names, bounds = _kept_names(model), {}
    for name, (low, high) in parameter_bounds(model).items():
        lowest, highest = bounds.get(names[name], (low, high))
        bounds[names[name]] = max(low, lowest), min(high, highest)
    return bounds


def snapping(model: nn.Module) -> Callable[[Tensors], Tensors]:
    """The parameters of a stack that rounding changes, rounded."""
    names, shapes = _kept_names(model), {name: p.shape for name, p in model.named_parameters(remove_duplicate=False)}

    def snapped(model: nn.Module) -> Tensors:
        rounded = {}
        for name, value in snapped_parameters(model).items():
            if name not in names:
                raise ValueError(f"snapped_parameters() has {name!r}, but the parameters are {', '.join(names)}")
            if value.shape != shapes[name]:
                sizes = f"{tuple(value.shape)} for {name}, which is of shape {tuple(shapes[name])}"
                raise ValueError(f"snapped_parameters() has {sizes}")
            rounded[names[name]] = value.float()
        return rounded

    return over_members(of_parameters(model, snapped))


def make_step(training: Training) -> tuple[Step, nn.Module]:
    """The pure step of a configuration, and the model it was made from (a template; its own weights do not matter)."""
    model, train_model, eval_model = (training.build(seed=0) for _ in range(3))
    constants = _single(training.task.constants(0, "train"))
    apply, predict = functional(train_model, training=True), functional(eval_model, training=False)
    parameters, drawn = dict(model.named_parameters()), drawn_buffers(training)
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
        bounds={name: limits for name, limits in _bounds(model).items() if name not in frozen},
        noise=noise,
        batch=training.batch,
        error=getattr(training.task, "error", squared_error),
        betas=training.optimiser.betas,
        eps=training.optimiser.eps,
        groups=tuple(ParameterGroup(g.names, g.betas) for g in training.optimiser.groups(parameters)),
        clip=training.optimiser.clip,
        scheduled=training.schedule is not None,
        own_clocks=training.own_clocks,
        name=training.computation and f"{__name__}:make_step {training.computation}",
    )
    return step, model


def initial_parameters(runs: Sequence[Run], restarts: Sequence[int] | None = None) -> Tensors:
    """Stacked parameters, each drawn from its own (seed, init, restarts) stream; float32.

    Runs of one model that differ in the task's numbers only start from the same: that is drawn once.
    """
    counts = [0] * len(runs) if restarts is None else restarts
    drawn = drawn_buffers(runs[0].training)
    template = runs[0].training.build(seed=0) if runs[0].training.computation is None else None
    starts: dict[tuple[Any, ...], Tensors] = {}
    members = []
    for run, count in zip(runs, counts):
        training = run.training
        key = id(training.model), training.task.inputs, training.task.outputs, run.seed, count
        if key not in starts:
            model = training.build(run.seed, count)
            if template is not None:
                check_alike(run, model, template, drawn)
            named = dict(model.named_parameters()) | {k: model.get_buffer(k) for k in drawn}
            starts[key] = {k: v.detach().float() for k, v in named.items()}
        members.append(starts[key])
    return {k: torch.stack([m[k] for m in members]) for k in members[0]}


def check_alike(run: Run, model: nn.Module, template: nn.Module, drawn: Sequence[str]) -> None:
    """Raise ValueError if a seed's model differs from that of seed 0 in more than the values of its parameters."""
    facts = [{k: (v.shape, v.requires_grad) for k, v in m.named_parameters()} for m in (model, template)]
    fixed = [{k: v for k, v in m.named_buffers() if k not in drawn} for m in (model, template)]
    if other := [k for k in facts[0] | facts[1] if facts[0].get(k) != facts[1].get(k)]:
        what = f"the parameter {other[0]} of another shape, or frozen otherwise,"
    elif other := differing(*fixed):
        what = f"another buffer {other[0]}"
    else:
        return
    raise ValueError(
        f"{shown_name(run.training)} has {what} for seed {run.seed} than for seed 0; only numbers may differ, those of "
        "parameters and those of buffers of torch.float32 that differ among the seeds 0 to 7 already"
    )


def _single(constants: Tensors) -> Tensors:
    """A task's constants in the precision of training."""
    return {k: v.float() if v.dtype == torch.float64 else v for k, v in constants.items()}


def constants(runs: Sequence[Run], split: Split) -> Tensors:
    """Stacked task constants of ``split``."""
    parts = [_single(run.training.task.constants(run.seed, split)) for run in runs]
    return {k: torch.stack([c[k] for c in parts]) for k in parts[0]}


def examples_of(run: Run) -> tuple[list[float], ...]:
    """Equal for runs with the same examples in evaluation; side by side in a stack they share the making of them."""
    return tuple(value.flatten().tolist() for value in run.training.task.constants(run.seed, "validation").values())


def members(runs: Sequence[Run]) -> Members:
    """What differs between the members while they are trained."""
    optimisers = [run.training.optimiser for run in runs]
    clip = torch.tensor([o.limit for o in optimisers]) if optimisers[0].clip else None
    names = [name for name, _ in runs[0].training.build(seed=0).named_parameters()] if optimisers[0].parameters else []
    rates = {o: [o.rate, *(group.rate for group in o.groups(names))] for o in optimisers}
    rate = torch.tensor([rates[o] for o in optimisers])
    rate = rate if names else rate.squeeze(-1)
    return Members(torch.tensor([run.seed for run in runs]), constants(runs, "train"), rate, clip)


def evaluation_uniforms(training: Training, split: Split) -> Tensor:
    """The fixed numbers behind the validation or test examples, the same in every run; (evaluation_size, draws)."""
    return held_out_numbers(training.task, split, training.evaluation_size)


class PenaltyScales:
    """Scale of each penalty at each step for each member: (K, steps, S), on ``device``."""

    def __init__(self, runs: Sequence[Any], device: str = "cpu") -> None:
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
            values = [torch.as_tensor(penalties[k].schedule(t), device=self.device) for penalties in self.kinds]
            scales = [value.float().expand(steps) for value in values]
            if len(scales) == 1:
                table = scales[0].unsqueeze(-1).expand(-1, len(self.which))
            else:
                table = torch.stack(scales, -1)[:, self.which]
            tables.append(table if limit is None else table * ((validation < limit) | limit.isinf()))
        if len(tables) == 1:
            return tables[0].unsqueeze(0)  # without a copy: most often all members have one schedule
        return torch.stack(tables) if tables else torch.zeros(0, steps, len(self.which), device=self.device)


class Table:
    """What changes from step to step: scales of penalties, factors of rates, corrections; see :class:`Step`."""

    def __init__(self, step: Step, runs: Sequence[Run], device: str = "cpu") -> None:
        self.step, self.device = step, device
        self.schedules = [run.training.schedule for run in runs]
        self.penalty_scales = PenaltyScales(runs, device)

    def __call__(self, start: int, steps: int, validation: Tensor, begun: np.ndarray) -> Tensor:
        """(rows, steps, S) for the steps from ``start`` on.

        Args:
            start: the first step.
            steps: how many.
            validation: each member's last error, (S,).
            begun: the step at which each member's parameters were drawn, (S,).
        """
        parts = [self.penalty_scales(start, steps, validation)]
        if self.step.scheduled:
            parts.append(rate_factors(self.schedules, start, steps).to(self.device).unsqueeze(0))
        if self.step.own_clocks:
            moments, which = np.unique(begun, return_inverse=True)
            clocks = torch.stack([corrections(self.step, start - int(moment), steps) for moment in moments])
            parts.append(clocks[torch.from_numpy(which)].permute(2, 1, 0).to(self.device))
        return torch.cat(parts) if len(parts) > 1 else parts[0]


def restart_times(
    rule: Restart, every: int, curves: np.ndarray, since: np.ndarray, start: int, steps: int
) -> np.ndarray:
    """When, in [start, start + steps), each member's parameters are to be redrawn; (S,), -1 for never.

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


def stuck(rule: Plateau, every: int, curves: np.ndarray, since: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Which members restart after their last evaluation; (S,) bool. See :func:`restart_times`.

    ``good``: (S,), the error that is good enough for each member.
    """
    points, found = curves.shape[1], np.zeros(len(curves), bool)
    first = -(-since // every)  # of the evaluations of the present parameters
    old = np.flatnonzero((points - first >= rule.window) & ~(curves[:, -1] <= good))  # solved ones live longest
    if len(old):
        place = np.arange(int(first[old].min()), points)
        life, middle = curves[old, place[0] :], ((first[old] + points) // 2)[:, None]
        life = np.where(np.isfinite(life), life, np.inf)
        older = np.where((place >= first[old, None]) & (place < middle), life, np.inf).min(-1)
        newer = np.where(place >= middle, life, np.inf).min(-1)
        better = np.isfinite(newer) & (newer <= (1 - rule.improvement) * older)
        found[old] = ~better & ~(newer <= good[old])
    return found


def errors_of_zero(step: Step, members: int, constants: Tensors, uniforms: Tensor) -> np.ndarray:
    """The error of a model that answers 0, for each member; (S,). ``uniforms``: (n, draws)"""
    found = []
    for s in range(members):
        _, y = step.examples(uniforms, {name: value[s] for name, value in constants.items()})
        found.append(step.error(torch.zeros_like(y), y).double().mean().item())
    return np.array(found)


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
            results = [function({k: v[s] for k, v in parameters.items()}) for s in range(count)]
            return tree_map(lambda *values: torch.stack(values), *results)

    return call
