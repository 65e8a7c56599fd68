"""What to train: a model, a task, an optimiser, penalties and seeds."""

import json
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from numerate.locks import ForkSafeLock
from numerate.results import Key, config_hash
from numerate.streams import Domain, derived_seed
from numerate.tasks.task import Task
from numerate.train.identity import ADDED, describe, described_fields, only_ours
from numerate.train.schedules import Schedule, check_schedule

_GLOBAL_GENERATOR = ForkSafeLock()  # modules draw from one generator, whichever thread makes them

Factory = Callable[[int, int], nn.Module]
"""(inputs, outputs) -> model: a class, a ``functools.partial`` of one, or any function that can be imported by name."""


@dataclass(frozen=True)
class Settings:
    """Settings of some parameters, instead of Adam's own; None: as Adam.

    Args:
        rate: learning rate.
        beta1: decay of the first moment, the mean of gradients.
        beta2: decay of the second moment, the mean of their squares.
    """

    rate: float | None = None
    beta1: float | None = None
    beta2: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None:
            _check_rate(self.rate)
        for name in ("beta1", "beta2"):
            if (beta := getattr(self, name)) is not None and not 0 <= beta < 1:
                raise ValueError(f"{name} must be a number from 0 to below 1, got {beta!r}")


@dataclass(frozen=True)
class Group:
    """Parameters of a model that have settings of their own."""

    names: tuple[str, ...]
    rate: float
    betas: tuple[float, float]


@dataclass(frozen=True)
class Adam:
    """Adam with its settings.

    Args:
        rate: learning rate.
        betas: decay of both moments.
        eps: added to the root of the second moment.
        clip: None, "value" (each entry of the gradient) or "norm" (over all parameters together), at ``limit``.
        limit: of the clipping.
        parameters: name of a parameter -> :class:`Settings` of its own. ``"gate"`` is every parameter of that name,
            in whichever module; ``"0.gate"`` that of one module; ``*`` and ``?`` stand for other letters.
    """

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip: str | None = None
    limit: float = 0.0
    parameters: Mapping[str, Settings] | tuple[tuple[str, Settings], ...] = field(default=(), metadata=ADDED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        object.__setattr__(self, "parameters", tuple(sorted(_pairs(self.parameters), key=operator.itemgetter(0))))
        _check_rate(self.rate)
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers from 0 to below 1, got {self.betas!r}")
        if not 0 <= self.eps < math.inf:
            raise ValueError(f"eps must be a number of 0 or more, got {self.eps!r}")
        if self.clip not in (None, "value", "norm"):
            raise ValueError(f"clip must be None, 'value' or 'norm', got {self.clip!r}")
        if self.clip and not self.limit > 0:
            raise ValueError(f"clip={self.clip!r} needs a limit above 0, got {self.limit!r}")

    @property
    def form(self) -> Hashable:
        """Equal for settings that differ in rates and limits alone."""
        groups = tuple((pattern, self.betas_of(settings)) for pattern, settings in _pairs(self.parameters))
        return self.betas, self.eps, self.clip, *groups

    def betas_of(self, settings: Settings) -> tuple[float, float]:
        """Both decays of parameters with these settings."""
        beta1, beta2 = self.betas
        own1, own2 = settings.beta1, settings.beta2
        return beta1 if own1 is None else own1, beta2 if own2 is None else own2

    def groups(self, names: Iterable[str]) -> tuple[Group, ...]:
        """The parameters among ``names`` with settings of their own.

        Raises ValueError for a pattern that none matches, and for a parameter that two match.
        """
        known, taken, groups = tuple(names), dict[str, str](), []
        for pattern, settings in _pairs(self.parameters):
            found = tuple(name for name in known if fnmatchcase(f".{name}", f"*.{pattern}"))
            if not found:
                raise ValueError(f"no parameter is called {pattern!r}; there are {', '.join(known)}")
            if twice := [name for name in found if name in taken]:
                raise ValueError(f"{twice[0]} matches both {taken[twice[0]]!r} and {pattern!r}; give it settings once")
            taken |= dict.fromkeys(found, pattern)
            groups.append(Group(found, self.rate if settings.rate is None else settings.rate, self.betas_of(settings)))
        return tuple(groups)


def _check_rate(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise ValueError(f"rate must be a number above 0, got {rate!r}")


def _pairs(parameters: Mapping[str, Settings] | Iterable[tuple[str, Settings]]) -> list[tuple[str, Settings]]:
    """Names and settings. Raises TypeError for anything else."""
    try:
        pairs = dict(parameters)
    except (TypeError, ValueError):
        pairs = None
    if pairs is None or not all(isinstance(k, str) and isinstance(v, Settings) for k, v in pairs.items()):
        raise TypeError(f"parameters must map names of parameters to Settings, got {parameters!r}")
    return list(pairs.items())


@dataclass(frozen=True)
class Penalty:
    """``schedule(t)`` times ``function(model)`` is added to the loss; t: (steps,), the numbers of the steps.

    With ``below`` it counts only while the last validation error is below that number (iNALU).
    """

    function: Callable[[nn.Module], Tensor]
    schedule: Callable[[Tensor], Tensor]
    below: float | None = None


@dataclass(frozen=True)
class Restart:
    """Redraw all parameters when the validation error has stopped improving (iNALU, Schlör et al. 2020, as run).

    Every step records the last validation error. At every ``every``-th step, once there are more than ``history``
    records: restart if mean(older half) <= mean(newer half) + std(newer half) and mean(newer half) > ``above``. The
    records are then discarded. Adam's moments and the step counter continue.
    """

    history: int = 5000
    every: int = 10
    above: float = 1.0


@dataclass(frozen=True)
class Plateau:
    """Redraw all parameters if they did not improve in the second half of their life.

    Checked after every evaluation, once the present parameters have ``window`` of them. A run starts over if
    min(newer half) > (1 - improvement) min(older half) of all their validation errors, unless min(newer half) is good
    enough. So a start that gets nowhere is given up soon, and one that improves slowly has as long again as it took so
    far. Adam starts over too: its moments are zero, and it counts its steps from there. Schedules and examples
    continue. An error that is not finite is no improvement; a run whose parameters are not finite never restarts.

    Args:
        window: evaluations of a start before it can be given up, at least 2.
        improvement: share by which the smallest error must fall from one half to the next.
        above: errors up to this share of the error of answering 0 are good enough.
    """

    window: int = 2
    improvement: float = 0.3
    above: float = 1e-6

    def __post_init__(self) -> None:
        if isinstance(self.window, bool) or not isinstance(self.window, int) or self.window < 2:
            raise ValueError(f"window must be a whole number of 2 or more, got {self.window!r}")
        if not 0 <= self.improvement < 1:
            raise ValueError(f"improvement must be a number from 0 to below 1, got {self.improvement!r}")
        if not 0 <= self.above < math.inf:
            raise ValueError(f"above must be a number of 0 or more, got {self.above!r}")


class Configured:
    """What every kind of training has: seeds, a description, and keys of its runs."""

    seeds: tuple[int, ...]

    def check_seeds(self) -> None:
        """Seeds as plain integers. Raises ValueError for what is no seed."""
        try:
            object.__setattr__(self, "seeds", tuple(map(operator.index, self.seeds)))
        except TypeError:
            raise ValueError(f"seeds must be whole numbers, got {self.seeds!r}") from None
        if any(not 0 <= seed < 2**32 for seed in self.seeds):
            raise ValueError("seeds must be whole numbers from 0 to 4294967295")

    def description(self) -> dict[str, Any]:
        """The configuration as plain data, without seeds, labels and what is stored; what its hash is taken of."""
        return described_fields(self, without=("seeds", "labels", "keeps_weights"))

    def run_keys(self) -> list[Key]:
        """One key per run: hash of the configuration, and seed."""
        config = config_hash(self.description())
        return [Key(config, seed) for seed in self.seeds]


@dataclass(frozen=True)
class Training(Configured):
    """One configuration and the seeds to run it with.

    What identifies its runs is :meth:`description`. :meth:`run_keys` is that description hashed, one key per seed;
    :attr:`form` and :attr:`computation` are what of it decides the shape of a stack, and the code of a step.
    """

    model: Factory
    task: Task
    seeds: tuple[int, ...]
    optimiser: Adam = Adam()
    penalties: tuple[Penalty, ...] = ()
    restart: Restart | Plateau | None = None
    steps: int = 50_000
    batch: int = 128
    evaluate_every: int = 1000
    evaluation_size: int = 10_000
    labels: Mapping[str, Any] = field(default_factory=dict)
    """What a table or picture calls this configuration; not part of its identity."""
    schedule: Schedule | None = field(default=None, metadata=ADDED)
    """Numbers of steps, (n,) float64 -> factors of the learning rate, such as :class:`Cosine`; None: 1."""
    starts: int = field(default=1, metadata=ADDED)
    """Draws of the parameters that are trained on the same examples; the one with the smallest validation error is the
    run. Reports show the success of single starts beside that of the runs."""

    def __post_init__(self) -> None:
        self._check_kinds()
        object.__setattr__(self, "penalties", tuple(self.penalties))
        self.check_seeds()
        for name in ("steps", "batch", "evaluate_every", "evaluation_size", "starts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.steps % self.evaluate_every:
            raise ValueError(f"steps ({self.steps}) must be a multiple of evaluate_every ({self.evaluate_every})")

    def _check_kinds(self) -> None:
        """Raise TypeError for a part of the wrong kind, which training would ignore or trip over later."""
        if not callable(self.model):
            raise TypeError(f"model must be a class or function of (inputs, outputs), got {self.model!r}")
        if not isinstance(self.optimiser, Adam):
            raise TypeError(f"optimiser must be an Adam, got {self.optimiser!r}")
        check_schedule(self.schedule)
        if not isinstance(self.restart, Restart | Plateau | None):
            raise TypeError(f"restart must be a Restart, a Plateau or None, got {self.restart!r}")
        if not isinstance(self.penalties, Iterable) or not all(isinstance(p, Penalty) for p in self.penalties):
            raise TypeError(f"penalties must be a sequence of Penalty, got {self.penalties!r}")
        if not isinstance(self.labels, Mapping):
            raise TypeError(f"labels must map names to values, got {self.labels!r}")
        if lacking := [name for name in ("inputs", "outputs", "draws", "examples") if not hasattr(self.task, name)]:
            raise TypeError(f"task must have {', '.join(lacking)}, got {self.task!r}")

    @property
    def form(self) -> Hashable:
        """Configurations of equal form are trained in one stack; they may differ in ranges, rates and schedules."""
        model = json.dumps(describe(self.model), sort_keys=True)
        functions = tuple(json.dumps(describe(p.function), sort_keys=True) for p in self.penalties)
        sizes = (self.steps, self.batch, self.evaluate_every, self.evaluation_size)
        changing = self.schedule is not None, self.restart
        return model, type(self.task), self.task.form, functions, self.optimiser.form, changing, sizes, self.starts

    @property
    def own_clocks(self) -> bool:
        """Whether Adam counts the steps of each run from its last restart."""
        return isinstance(self.restart, Plateau)

    @property
    def computation(self) -> str | None:
        """All that decides what a step computes, or None if code from outside of this package takes part."""
        parts = self.model, type(self.task), self.task.form, [p.function for p in self.penalties]
        sizes = self.task.inputs, self.task.outputs, self.batch
        try:
            described = describe([*parts, *sizes, self.optimiser.form, self.schedule is not None, self.own_clocks])
        except TypeError:
            return None
        return json.dumps(described) if only_ours(described) else None

    def build(self, seed: int, restarts: int = 0) -> nn.Module:
        """The model of one run, its parameters drawn from the stream (seed, init, restarts)."""
        return built(self.model, self.task.inputs, self.task.outputs, seed, restarts)


def built(model: Factory, inputs: int, outputs: int, seed: int, restarts: int = 0) -> nn.Module:
    """A model whose parameters are drawn from the stream (seed, init, restarts)."""
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]), Drawing(derived_seed(seed, Domain.INIT, restarts)):
        return model(inputs, outputs)


class Drawing(TorchDispatchMode):
    """What this thread draws comes from a generator of its own, which no other thread can move.

    The global one is seeded alike: a module that seeds it itself is found by that and gets the numbers it asks for.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip it, torch would import its compiler, which takes longer than many a training."""
        return False

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.default_generator.manual_seed(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        tensors = (value for value in args if isinstance(value, Tensor))
        device = next((value.device for value in tensors), kwargs.get("device")) or torch.device("cpu")
        if device.type != "cpu" or not _takes_generator(func.overloadpacket):
            return func(*args, **kwargs)
        if (seed := torch.default_generator.initial_seed()) != self.generator.initial_seed():
            self.generator.manual_seed(seed)
        return func.overloadpacket(*args, **{**kwargs, "generator": self.generator})


def _takes_generator(packet: Any) -> bool:
    overloads = (getattr(packet, name) for name in packet.overloads())
    return any(argument.name == "generator" for overload in overloads for argument in overload._schema.arguments)
