"""What to train of networks that learn from batches: sequences, text, images."""

import json
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch import nn

from numerate.tasks.batches import BatchTask
from numerate.train.identity import ADDED, describe
from numerate.train.schedules import Schedule, check_schedule
from numerate.train.specification import Adam, Configured, Factory, Penalty, Plateau, built

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Stop:
    """When a run ends before its last update; it is looked at after every evaluation.

    Args:
        solved: end once the run is solved.
        patience: end after so many evaluations without a better validation error; None: never.
    """

    solved: bool = False
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be at least 1, got {self.patience}")


@dataclass(frozen=True)
class NetworkTraining(Configured):
    """One configuration of a network that learns from batches, and the seeds to run it with.

    :class:`~numerate.train.Training` is for thousands of small models on numbers drawn at every step; this is for
    sequences and data sets. Both go through :func:`numerate.train.train`.

    Args:
        model: (inputs, outputs) -> network: a class, a ``functools.partial`` of one, or a function that can be
            imported by name. ``network(x)`` is the prediction; for a task that carries its state,
            ``network(x, state)`` is (prediction, state), and ``network.initial_state(x)`` the first state, whose
            tensors have the batch as their second dimension.
        task: gives batches, loss and measures.
        seeds: one run each.
        optimiser: Adam; with ``clip="norm"`` the gradient of each run is clipped by itself.
        schedule: numbers of updates, (n,) float64 -> factors of the rate, such as :class:`~numerate.train.Cosine`;
            None: 1.
        penalties: added to the loss. A penalty's function sees the network right after the forward pass.
        steps: updates.
        evaluate_every: updates between two evaluations.
        stop: when to end before the last update.
        precision: ``bfloat16`` rounds matrix products on a GPU; ``float32`` is exact there too (TF32 is off).
        keeps_weights: Whether final and best weights are stored with each run; not part of its identity.
        labels: What a table or picture calls this configuration; not part of its identity.
        restart: when to draw all parameters anew; None: never. Runs that may restart are not stacked on a GPU.
    """

    model: Factory
    task: BatchTask
    seeds: tuple[int, ...]
    optimiser: Adam = Adam()  # noqa: RUF009 (frozen)
    schedule: Schedule | None = None
    penalties: tuple[Penalty, ...] = ()
    steps: int = 10_000
    evaluate_every: int = 100
    stop: Stop | None = None
    precision: Precision = "float32"
    keeps_weights: bool = True
    labels: Mapping[str, Any] = field(default_factory=dict)
    restart: Plateau | None = field(default=None, metadata=ADDED)

    def __post_init__(self) -> None:
        self._check_kinds()
        object.__setattr__(self, "penalties", tuple(self.penalties))
        self.check_seeds()
        for name in ("steps", "evaluate_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {self.precision!r}")

    def _check_kinds(self) -> None:
        """Raise TypeError for a part of the wrong kind, which training would trip over later."""
        if not callable(self.model):
            raise TypeError(f"model must be a class or function of (inputs, outputs), got {self.model!r}")
        if not isinstance(self.optimiser, Adam):
            raise TypeError(f"optimiser must be an Adam, got {self.optimiser!r}")
        if not isinstance(self.stop, Stop | None):
            raise TypeError(f"stop must be a Stop or None, got {self.stop!r}")
        if not isinstance(self.restart, Plateau | None):
            raise TypeError(f"restart must be a Plateau or None, got {self.restart!r}")
        check_schedule(self.schedule)
        if not isinstance(self.penalties, Iterable) or not all(isinstance(p, Penalty) for p in self.penalties):
            raise TypeError(f"penalties must be a sequence of Penalty, got {self.penalties!r}")
        if not isinstance(self.labels, Mapping):
            raise TypeError(f"labels must map names to values, got {self.labels!r}")
        needed = ("inputs", "outputs", "batch", "evaluation", "loss", "measures")
        if lacking := [name for name in needed if not hasattr(self.task, name)]:
            raise TypeError(f"task must have {', '.join(lacking)}, got {self.task!r}")

    @property
    def form(self) -> Hashable:
        """Configurations of equal form are trained together; they may differ in rates, limits and schedules."""
        model = json.dumps(describe(self.model), sort_keys=True)
        functions = tuple(json.dumps(describe(p.function), sort_keys=True) for p in self.penalties)
        task = json.dumps(describe(self.task), sort_keys=True)
        moments = self.steps, self.evaluate_every, self.stop, self.restart
        return model, task, functions, self.optimiser.form, moments, self.precision

    def build(self, seed: int, restarts: int = 0) -> nn.Module:
        """The network of one run, its parameters drawn from the stream (seed, init, restarts)."""
        return built(self.model, self.task.inputs, self.task.outputs, seed, restarts)


@dataclass(frozen=True)
class NetworkRun:
    """A configuration and a seed."""

    training: NetworkTraining
    seed: int
