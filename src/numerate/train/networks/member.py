"""One run as pure functions of its parameters: the loss of an update, and measures of an evaluation."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_map

from numerate.tasks.batches import Batch
from numerate.train.networks.randomness import Keyed
from numerate.train.networks.specification import NetworkTraining
from numerate.units.penalties import units_sparsity_error

Tensors = dict[str, Tensor]
Carried = tuple[Tensor, ...]


class Member:
    """The computation of one configuration, for the parameters of any of its runs.

    Args:
        training: the configuration.
        device: where it is computed.
    """

    def __init__(self, training: NetworkTraining, device: str) -> None:
        self.training, self.task, self.device = training, training.task, device
        self.model = _WithPenalties(training).to(device)
        self.draws = True
        """Whether the network draws random numbers; known after its first training pass."""
        self.answers_zero = False
        """Whether zeros take the place of predictions in measures."""

    def loss(
        self, values: Tensors, carried: Carried, seed: Tensor, step: Tensor, scales: Tensor, data: Tensors
    ) -> tuple[Tensor, tuple[Tensor, Carried]]:
        """What is minimised in update ``step``; and the loss without penalties, with the state to carry on.

        Args:
            values: parameters and buffers.
            carried: state after the last batch; empty for a task that carries none.
            seed: of the run.
            step: number of the update.
            scales: (penalties,), what each penalty is multiplied by.
            data: the task's data, with the order of this epoch.
        """
        batch = self.task.batch(seed, step, data)
        self.model.train()
        with self._precision(), self._randomness(seed, step) as keyed:
            prediction, carried, penalties = self._call(values, batch, carried)
        self.draws = keyed is not None and keyed.used > 0
        loss = self.task.loss(prediction, batch)
        total = loss + sum(scales[k] * penalty for k, penalty in enumerate(penalties)) if penalties else loss
        return total, (loss.detach(), tuple(entry.detach() for entry in carried))

    def measures(self, values: Tensors, carried: Carried, batch: Batch) -> tuple[Tensors, Carried]:
        """The task's measures of one evaluation batch, [sum, count] each; and the state to carry on."""
        self.model.eval()
        with self._precision():
            prediction, carried, _ = self._call(values, batch, carried)
        if self.answers_zero:
            prediction = tree_map(torch.zeros_like, prediction)
        return self.task.measures(prediction, batch), carried

    def start(self, values: Tensors, batch: Batch) -> Carried:
        """The state before the first batch; empty for a task that carries none."""
        if not self.task.carries:
            return ()
        return functional_call(self.model, _inside(values), (batch.x, None, True))

    def sparsity(self, values: Tensors) -> Tensor:
        """The sparsity error of the network's arithmetic units alone, as in print; NaN without such units."""
        return functional_call(_Sparsity(self.model.model), _inside(values), ())

    def _call(self, values: Tensors, batch: Batch, carried: Carried) -> tuple[Any, Carried, tuple[Tensor, ...]]:
        if carried and batch.reset is not None:
            start = self.start(values, batch)
            carried = tuple(torch.where(_like(batch.reset, now), s, now) for s, now in zip(start, carried))
        return functional_call(self.model, _inside(values), (batch.x, carried))

    def _randomness(self, seed: Tensor, step: Tensor) -> "AbstractContextManager[Keyed | None]":
        return Keyed(seed, step) if self.draws else nullcontext()

    def _precision(self) -> AbstractContextManager[Any]:
        if self.training.precision == "float32" or self.device == "cpu":
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, torch.bfloat16)


def _like(reset: Tensor, entry: Tensor) -> Tensor:
    """(B,) as (1, B, 1, ...): the batch is the second dimension of a state's tensors."""
    return reset.view(1, -1, *[1] * (entry.dim() - 2))


def _inside(values: Tensors) -> Tensors:
    return {f"model.{name}": value for name, value in values.items()}


class _WithPenalties(nn.Module):
    """A network whose call gives prediction, state and penalties, all of the same parameters."""

    def __init__(self, training: NetworkTraining) -> None:
        super().__init__()
        self.model: Any = training.build(seed=training.seeds[0])
        self.penalties = tuple(penalty.function for penalty in training.penalties)
        self.carries = training.task.carries

    def forward(self, x: Tensor, carried: Carried | None, only_start: bool = False) -> Any:
        if only_start:
            return tuple(self.model.initial_state(x))
        if self.carries:
            prediction, state = self.model(x, carried)
        else:
            prediction, state = self.model(x), ()
        penalties = tuple(function(self.model) for function in self.penalties) if self.training else ()
        return prediction, tuple(state), penalties


class _Sparsity(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        return units_sparsity_error(self.model)
