"""What a task gives a network: whole minibatches, of sequences or of a data set.

:class:`~numerate.tasks.task.Task` describes single examples, which an arithmetic loop can draw inside a kernel.
A :class:`BatchTask` gives a minibatch as a function of (seed, step): a run does not depend on its neighbours, on
the device or on where it was resumed.
"""

from collections.abc import Hashable
from typing import Literal, NamedTuple, Protocol

from torch import Tensor

HeldOut = Literal["validation", "test"]
Data = dict[str, Tensor]


class Batch(NamedTuple):
    """One minibatch.

    Args:
        x: inputs, (T, B, inputs) for sequences and (B, ...) for data sets.
        y: what the task's ``loss`` and ``measures`` compare a prediction with.
        mask: (T, B), 1 where the loss counts; None: everywhere.
        reset: (B,), true where a row starts from the initial state; None unless the task carries.
    """

    x: Tensor
    y: Tensor
    mask: Tensor | None = None
    reset: Tensor | None = None


class BatchTask(Protocol):
    """Minibatches for training and evaluation, the loss, and the error below which a run is solved.

    A task is a frozen dataclass. ``batch``, ``loss`` and ``measures`` are written for one model and run under
    ``torch.func.vmap`` over seeds and inside a CUDA graph: plain torch of fixed shapes, no branches on values, random
    numbers from :mod:`numerate.streams` alone.
    """

    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def batch_size(self) -> int:
        """Examples, or sequences, in a training batch."""
        ...

    @property
    def form(self) -> Hashable:
        """Tasks of equal form share one ``batch`` function and all shapes, so their models train stacked."""
        ...

    @property
    def carries(self) -> bool:
        """Truncated backpropagation: the state goes from batch to batch, ``model(x, state) -> (prediction, state)``."""
        ...

    @property
    def epoch(self) -> int | None:
        """Updates in one pass over the data set; None where data are drawn online."""
        ...

    @property
    def judged(self) -> Literal["test", "train"]:
        """Solved by the test error at the best validation point, or by the mean training loss of ``window`` updates."""
        ...

    @property
    def window(self) -> int: ...

    def data(self) -> Data:
        """What all seeds share (images as uint8, text as ids), on the CPU; the trainer moves it to the device once."""
        ...

    def order(self, seed: int, epoch: int) -> Data:
        """What changes with the epoch, such as a keyed permutation of the examples; ``{}`` for online tasks."""
        ...

    def batch(self, seed: Tensor, step: Tensor, data: Data) -> Batch:
        """The training batch of (seed, step), int64 scalars on the device; data: ``data() | order(seed, epoch)``."""
        ...

    def evaluations(self, split: HeldOut) -> int:
        """Number of evaluation batches of a split."""
        ...

    def evaluation(self, split: HeldOut, index: int, data: Data) -> Batch:
        """Evaluation batch ``index``, the same for all seeds."""
        ...

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """The scalar that training minimises."""
        ...

    def measures(self, prediction: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Name -> (2,), sum and count over the batch. ``error`` must be there: runs are chosen and judged by it."""
        ...

    def threshold(self) -> float:
        """``error`` (or training loss, see ``judged``) below which a run is solved; nan: nothing to solve."""
        ...
