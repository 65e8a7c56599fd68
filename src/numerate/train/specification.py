"""What to train, apart from how: a model, a task, an optimiser, penalties, and which seeds."""

import json
import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from numerate.locks import ForkSafeLock
from numerate.results import Key, config_hash
from numerate.streams import Domain, derived_seed
from numerate.tasks.task import Task
from numerate.train.identity import describe, only_ours

_GLOBAL_GENERATOR = ForkSafeLock()  # modules draw from one generator, whichever thread makes them

Factory = Callable[[int, int], nn.Module]
"""(inputs, outputs) -> model: a class, a ``functools.partial`` of one, or any function that can be imported by name."""


@dataclass(frozen=True)
class Adam:
    """Adam with its settings; ``clip``: None, "value" or "norm", at ``limit``."""

    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    clip: str | None = None
    limit: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate must be a number above 0, got {self.rate!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers from 0 to below 1, got {self.betas!r}")
        if not 0 <= self.eps < math.inf:
            raise ValueError(f"eps must be a number of 0 or more, got {self.eps!r}")
        if self.clip not in (None, "value", "norm"):
            raise ValueError(f"clip must be None, 'value' or 'norm', got {self.clip!r}")
        if self.clip and not self.limit > 0:
            raise ValueError(f"clip={self.clip!r} needs a limit above 0, got {self.limit!r}")


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
    """Draw all parameters anew when the validation error has stopped improving (iNALU, Schlör et al. 2020, as run).

    Every step notes the last validation error. At every ``every``-th step, once more than ``history`` notes are there:
    restart if mean(older half) <= mean(newer half) + std(newer half) and mean(newer half) > ``above``; the notes are
    then thrown away. Adam's moments and the step counter go on.
    """

    history: int = 5000
    every: int = 10
    above: float = 1.0


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
        return {
            f.name: describe(getattr(self, f.name))
            for f in fields(cast(Any, self))
            if f.name not in ("seeds", "labels", "keeps_weights")
        }

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
    restart: Restart | None = None
    steps: int = 50_000
    batch: int = 128
    evaluate_every: int = 1000
    evaluation_size: int = 10_000
    labels: Mapping[str, Any] = field(default_factory=dict)
    """What a table or picture calls this configuration; not part of its identity."""

    def __post_init__(self) -> None:
        self._check_kinds()
        object.__setattr__(self, "penalties", tuple(self.penalties))
        self.check_seeds()
        for name in ("steps", "batch", "evaluate_every", "evaluation_size"):
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
        if not isinstance(self.restart, Restart | None):
            raise TypeError(f"restart must be a Restart or None, got {self.restart!r}")
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
        adam = (self.optimiser.betas, self.optimiser.eps, self.optimiser.clip)
        sizes = (self.steps, self.batch, self.evaluate_every, self.evaluation_size)
        return model, type(self.task), self.task.form, functions, adam, self.restart, sizes

    @property
    def computation(self) -> str | None:
        """All that decides what a step computes, or None if code from outside of this package takes part."""
        parts = self.model, type(self.task), self.task.form, [p.function for p in self.penalties], self.optimiser.clip
        sizes = self.task.inputs, self.task.outputs, self.batch, self.optimiser.betas, self.optimiser.eps
        try:
            described = describe([*parts, *sizes])
        except TypeError:
            return None
        return json.dumps(described) if only_ours(described) else None

    def build(self, seed: int, restarts: int = 0) -> nn.Module:
        """The model of one run, its parameters drawn from the stream (seed, init, restarts)."""
        return built(self.model, self.task.inputs, self.task.outputs, seed, restarts)


def built(model: Factory, inputs: int, outputs: int, seed: int, restarts: int = 0) -> nn.Module:
    """A model whose parameters are drawn from the stream (seed, init, restarts)."""
    with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]), _Drawing(derived_seed(seed, Domain.INIT, restarts)):
        return model(inputs, outputs)


class _Drawing(TorchDispatchMode):
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
