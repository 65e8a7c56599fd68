"""What to train, apart from how: a model, a task, an optimiser, penalties, and which seeds."""

import functools
import hashlib
import inspect
import json
import math
import operator
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn

from numerate.results import Key, config_hash
from numerate.streams import Domain, derived_seed
from numerate.tasks.task import Task

_GLOBAL_GENERATOR = RLock()  # modules draw from one generator, whichever thread makes them

_LIBRARIES = ("numerate.", "torch.")
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


@dataclass(frozen=True)
class Training:
    """One configuration and the seeds to run it with."""

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
        object.__setattr__(self, "penalties", tuple(self.penalties))
        try:
            object.__setattr__(self, "seeds", tuple(map(operator.index, self.seeds)))
        except TypeError:
            raise ValueError(f"seeds must be whole numbers, got {self.seeds!r}") from None
        for name in ("steps", "batch", "evaluate_every", "evaluation_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.steps % self.evaluate_every:
            raise ValueError(f"steps ({self.steps}) must be a multiple of evaluate_every ({self.evaluate_every})")
        if any(not 0 <= seed < 2**32 for seed in self.seeds):
            raise ValueError("seeds must be whole numbers from 0 to 4294967295")

    def description(self) -> dict[str, Any]:
        """The configuration as plain data, without seeds and labels; what its hash is taken of."""
        return {f.name: describe(getattr(self, f.name)) for f in fields(self) if f.name not in ("seeds", "labels")}

    def run_keys(self) -> list[Key]:
        """One key per run: hash of the configuration, and seed."""
        config = config_hash(self.description())
        return [Key(config, seed) for seed in self.seeds]

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
        return json.dumps(described) if _only_ours(described) else None

    def build(self, seed: int, restarts: int = 0) -> nn.Module:
        """The model of one run, its parameters drawn from the stream (seed, init, restarts)."""
        with _GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derived_seed(seed, Domain.INIT, restarts))
            return self.model(self.task.inputs, self.task.outputs)


def describe(value: Any) -> Any:
    """``value`` as JSON data that names classes and functions by import path."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype | torch.device):
        return str(value)
    if isinstance(value, functools.partial):
        arguments = {"arguments": [describe(a) for a in value.args]} if value.args else {}
        return {
            "call": describe(value.func),
            **arguments,
            **{k: describe(v) for k, v in sorted(value.keywords.items())},
        }
    if is_dataclass(value) and not isinstance(value, type):
        return {"call": _named(type(value)), **{f.name: describe(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, tuple | list | range):
        return [describe(v) for v in value]
    if callable(value):
        return _named(value)
    raise TypeError(
        f"{value!r} cannot be written into a configuration; use numbers, text, classes, functions and dataclasses"
    )


def _only_ours(described: Any) -> bool:
    """Whether a description names nothing but this package's and torch's own classes and functions."""
    if isinstance(described, dict):
        return "source" not in described and all(map(_only_ours, described.values()))
    if isinstance(described, list):
        return all(map(_only_ours, described))
    if not isinstance(described, str) or ":" not in described:
        return True
    return described.startswith(_LIBRARIES) and "<" not in described


def _path(value: Any) -> str:
    return f"{value.__module__}:{value.__qualname__}"


def _named(value: Any) -> Any:
    if not hasattr(value, "__qualname__"):
        raise TypeError(f"{value!r} has no name to store; hand in a class, a function or a functools.partial")
    path = _path(value)
    ours = path.startswith(_LIBRARIES) and "<" not in path
    source = {} if ours else {"source": _source(getattr(value, "__func__", value))}
    kept = {name: part for name, part in _kept(value).items() if part is not value}
    return {"path": path, **source, **({"with": describe(kept)} if kept else {})} if source or kept else path


def _kept(value: Any) -> dict[str, Any]:
    """What a method is bound to and what a function made inside another has taken from there: no source tells these."""
    if inspect.ismethod(value):
        owner = value.__self__
        named_so = inspect.isclass(owner) and value.__qualname__ == f"{owner.__qualname__}.{value.__name__}"
        return _kept(value.__func__) | ({} if named_so else {"self": owner})
    if inspect.isclass(value):
        parts = {k: v for base in reversed(_own_bases(value)) for k, v in vars(base).items() if inspect.isfunction(v)}
        return {f"{name}.{k}": v for name, part in parts.items() for k, v in _kept(part).items()}
    if not inspect.isfunction(value) or "<" not in value.__qualname__:
        return {}
    defaults = {p.name: p.default for p in inspect.signature(value).parameters.values() if p.default is not p.empty}
    return {k: v for k, v in inspect.getclosurevars(value).nonlocals.items() if k != "__class__"} | defaults


def _own_bases(value: type) -> list[type]:
    return [base for base in inspect.getmro(value) if base is value or not _is_library(base)]


@functools.cache
def _source(value: Any) -> str:
    """Digest of a user's own class or function, of its whole file and of those of its base classes, as first seen.

    What was typed in by hand has no file; its compiled code then stands for it.
    """
    bases = _own_bases(value) if inspect.isclass(value) else [inspect.unwrap(value)]
    try:
        files = {"".join(inspect.findsource(base)[0]): None for base in bases}
        text = "".join([inspect.getsource(value), *files])
    except (OSError, TypeError):
        text = repr([_compiled(base) for base in bases])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _compiled(value: Any) -> Any:
    """The instructions of a function, or of all functions of a class, and the numbers and names they use."""
    if inspect.isclass(value):
        return [(name, _compiled(part)) for name, part in sorted(vars(value).items())]
    if isinstance(value, property):
        return [_compiled(part) for part in (value.fget, value.fset)]
    code = getattr(getattr(value, "__func__", value), "__code__", value)
    if inspect.iscode(code):
        constants = [_compiled(part) if inspect.iscode(part) else repr(part) for part in code.co_consts]
        return code.co_code.hex(), constants, code.co_names
    return value if isinstance(value, bool | int | float | str) else type(value).__qualname__


def _is_library(base: type) -> bool:
    return base.__module__.startswith(_LIBRARIES) or base.__module__.partition(".")[0] in sys.stdlib_module_names
