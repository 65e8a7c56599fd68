"""Runs of one form that are computed together.

A stack of one run is computed as it is written. A larger one is the same function under ``vmap``, with a row of
parameters for each run. On a GPU an update, its data and its log are one CUDA graph.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from numerate.devices import kind_of
from numerate.loops.toolchain import native
from numerate.streams import Uniform, drawn_by, uniform
from numerate.tasks.batches import Batch, BatchTask, HeldOut
from numerate.torch_internals import is_mapped
from numerate.train.networks.adam import State, clipped, update_
from numerate.train.networks.capture import Recordable
from numerate.train.networks.convolution import Products
from numerate.train.networks.flat import Layout
from numerate.train.networks.gpu_streams import recording_stream
from numerate.train.networks.member import Carried, Member, Tensors
from numerate.train.networks.specification import NetworkRun
from numerate.train.networks.sums import Sums
from numerate.train.schedules import rate_factors
from numerate.train.stack import PenaltyScales

CHUNK = 1000
"""Most updates between two looks at the log."""
SPLITS: tuple[HeldOut, ...] = ("validation", "test")
_WARM_UP = 3  # updates before a graph is recorded, as torch asks for
_recording, _reading = Lock(), Lock()


class Stack:
    """The parameters of some runs and all that changes them.

    Args:
        runs: of one form. More than one: ``vmap`` must be able to follow the network.
        device: where they are trained.
        data: the task's, where it has been read already.
    """

    def __init__(self, runs: Sequence[NetworkRun], device: str, data: Tensors | None = None) -> None:
        self.runs, self.device = tuple(runs), device
        self.training = runs[0].training
        self.task: BatchTask = self.training.task
        self.member = Member(self.training, device)
        self.layout = Layout(self.member.model.model)
        self._make_start()
        self.sums: dict[HeldOut, Sums] = {split: Sums() for split in SPLITS}
        settings = [run.training.optimiser for run in runs]
        self.seeds = torch.tensor([run.seed for run in runs], device=device)
        self.rate = torch.tensor([[adam.rate] for adam in settings], device=device)
        self.limit = torch.tensor([[adam.limit] for adam in settings], device=device)
        self.limits = self.layout.limits(device)
        data = data_of(self.task) if data is None else data
        self.data = {name: value.to(device) for name, value in data.items()}
        self.order: Tensors = {}
        self.adam, self.uniform = _faster(device, len(runs))
        self.betas = torch.tensor(self.training.optimiser.betas, dtype=torch.float64)
        self.columns: Tensor | None = None
        if self.training.optimiser.parameters:
            self._give_settings()
        self.evaluations: dict[tuple[HeldOut, int], Batch] = {}
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.carried = self._first_state()
        self.scales = PenaltyScales(self.runs, device)
        self._make_tables()
        self._replay: Callable[[], None] | None = None
        self._evaluators: dict[Any, tuple[Batch, Callable[[], None], Tensors]] = {}
        self.records_evaluations = kind_of(device).asynchronous and not self.task.carries
        self._pool: Any = None
        self._epoch = -1
        self.convolutions: Callable[[], AbstractContextManager[Any]] = Products
        self.recordable = Recordable if kind_of(device).asynchronous else nullcontext

    def _make_start(self) -> None:
        """Parameters as every run draws them, and what is not trained."""
        rows, self.fixed = self._drawn()
        self.state = State.start(rows)
        self.begun = 0

    def restart(self, draw: int, step: int) -> None:
        """Parameters of another draw, and an Adam without a past; what is not trained stays.

        In place: a recorded graph knows the addresses.
        """
        self.state.parameters.copy_(self._drawn(draw)[0])
        self.state.first.zero_()
        self.state.second.zero_()
        self.begun = step

    def _drawn(self, draw: int = 0) -> tuple[Tensor, Tensors]:
        """The parameters of every run, a row each, and what is not trained."""
        rows, fixed = [], []
        for run in self.runs:
            model = run.training.build(run.seed, draw)
            named = dict(model.named_parameters()) | dict(model.named_buffers())
            values = [named[name].detach().float().flatten() for name in self.layout.shapes]
            rows.append(torch.cat([*values, torch.zeros(self.layout.filling)]))
            fixed.append({name: named[name].detach() for name in self.layout.fixed})
        stacked = {name: torch.stack([f[name] for f in fixed]).to(self.device) for name in self.layout.fixed}
        return torch.stack(rows).to(self.device), stacked

    def _give_settings(self) -> None:
        """Rates and betas of the parameters that have their own, number by number."""
        groups = [run.training.optimiser.groups(self.layout.shapes) for run in self.runs]
        rates = [[rate.item(), *(group.rate for group in own)] for rate, own in zip(self.rate, groups)]
        places = {name: place for place, group in enumerate(groups[0], 1) for name in group.names}
        self.columns = self.layout.columns(places).to(self.device)
        self.rate = torch.tensor(rates, device=self.device)[:, self.columns]
        betas = [self.training.optimiser.betas, *(group.betas for group in groups[0])]
        self.betas = torch.tensor(betas, dtype=torch.float64).T
        self.adam = partial(self.adam, betas=self.betas.float().to(self.device)[:, self.columns])

    def _make_tables(self) -> None:
        """What the updates of a chunk look up by their place in it; written by the host, read by the graph."""
        count, penalties = len(self.runs), len(self.training.penalties)
        self.place = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.penalty_table = torch.zeros(CHUNK, count, penalties, device=self.device)
        self.rate_table = torch.ones(CHUNK, count, device=self.device)
        self.correction_table = torch.ones(CHUNK, *self.betas.shape, device=self.device)
        self.losses, self.norms = (torch.zeros(CHUNK, count, device=self.device) for _ in range(2))

    def __len__(self) -> int:
        return len(self.runs)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that updates change, and how far an evaluation is, for :meth:`restore` here or in another process."""
        arrays = {name: value.cpu().numpy() for name, value in self._changing().items()}
        for split, sums in self.sums.items():
            arrays |= {f"sums/{split}/{name}": value for name, value in sums.arrays().items()}
        return arrays

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, into in self._changing().items():
            into.copy_(torch.from_numpy(np.array(arrays[name])))
        for split in SPLITS:
            start = f"sums/{split}/"
            own = {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}
            self.sums[split] = Sums.restored(own, self.device)

    def _changing(self) -> Tensors:
        return vars(self.state) | {f"carried{number}": entry for number, entry in enumerate(self.carried)}

    # Training

    def chunk(self, start: int, count: int, validation: Sequence[float]) -> dict[str, np.ndarray]:
        """As :meth:`train`; and at which update each run stopped being finite, (S,), -1 where none did."""
        losses = norms = np.full((count, len(self)), np.nan, np.float32)
        if not self.state.frozen.all():
            errors = torch.tensor(validation, dtype=torch.float32, device=self.device)
            losses, norms = (found.cpu().numpy() for found in self.train(start, count, errors))
        return {"losses": losses, "norms": norms, "ended": self.state.ended.cpu().numpy()}

    def train(self, start: int, count: int, validation: Tensor) -> tuple[Tensor, Tensor]:
        """Updates ``start`` to ``start + count``, at most CHUNK and within one epoch; losses and norms, (count, S).

        Args:
            start: number of the first update.
            count: how many.
            validation: the last validation errors, (S,), which may switch penalties on.
        """
        self._begin_epoch(start)
        self.step.fill_(start)
        self.place.zero_()
        self._fill_tables(start, count, validation)
        update = self._recorded() if kind_of(self.device).asynchronous else self._update
        for _ in range(count):
            update()
        return self.losses[:count], self.norms[:count]

    def _begin_epoch(self, step: int) -> None:
        epoch = step // self.task.epoch if self.task.epoch else 0
        if epoch == self._epoch:
            return
        orders = [self.task.order(run.seed, epoch) for run in self.runs]
        for name in orders[0]:
            fresh = torch.stack([order[name] for order in orders]).to(self.device)
            if name in self.order:
                self.order[name].copy_(fresh)  # in place: a recorded graph knows the address
            else:
                self.order[name] = fresh
        self._epoch = epoch

    def _fill_tables(self, start: int, count: int, validation: Tensor) -> None:
        t = torch.arange(start, start + count, dtype=torch.float64)
        self.penalty_table[:count] = self.scales(start, count, validation).permute(1, 2, 0)
        self.rate_table[:count] = rate_factors([run.training.schedule for run in self.runs], start, count)
        since = t.view(-1, *[1] * self.betas.dim()) - self.begun
        self.correction_table[:count] = (1 - self.betas ** (since + 1)).float()

    def _update(self) -> None:
        rows = self.state.parameters if len(self) > 1 else self.state.parameters[0]
        leaves = {name: v.detach().requires_grad_() for name, v in self.layout.views(rows).items()}
        scales = self.penalty_table.index_select(0, self.place)[0]
        rate = self.rate * self.rate_table.index_select(0, self.place)[0].unsqueeze(-1)
        with torch.enable_grad(), drawn_by(self.uniform), self.recordable():
            total, (loss, carried) = self._loss(leaves, scales)
            gradients = torch.autograd.grad(total.sum(), list(leaves.values()), allow_unused=True)
        with torch.no_grad():
            adam = self.training.optimiser
            gradient, norm = clipped(self.layout.rows(gradients, self.state.parameters), adam.clip, self.limit)
            corrections = self.correction_table.index_select(0, self.place)[0]
            corrections = corrections if self.columns is None else corrections[:, self.columns]
            self.adam(self.state, gradient, self.step, rate, corrections, adam, self.limits)
            for into, value in zip(self.carried, carried):
                into.copy_(value)
            self.losses.index_copy_(0, self.place, loss.unsqueeze(0).float())
            self.norms.index_copy_(0, self.place, norm.unsqueeze(0))
            self.step.add_(1)
            self.place.add_(1)

    def _loss(self, leaves: Tensors, scales: Tensor) -> tuple[Tensor, tuple[Tensor, Carried]]:
        """What each run minimises, (S,); ``leaves``: trained parameters, of a single run without a dimension for it."""
        if len(self) == 1:
            alone = leaves | _only(self.fixed), _only(self.carried), self.seeds[0], self.step, scales[0]
            total, (loss, carried) = self.member.loss(*alone, self.data | _only(self.order))
            return total.unsqueeze(0), (loss.unsqueeze(0), tuple(entry.unsqueeze(0) for entry in carried))
        shared = dict.fromkeys(self.data) | dict.fromkeys(self.order, 0)
        together = vmap(self.member.loss, in_dims=(0, 0, 0, None, 0, shared))
        with self.convolutions():
            return together(leaves | self.fixed, self.carried, self.seeds, self.step, scales, self.data | self.order)

    def _recorded(self) -> Callable[[], None]:
        """An update as the replay of one CUDA graph."""
        if self._replay is None:
            changed = [*vars(self.state).values(), *self.carried, self.step, self.place, self.losses, self.norms]
            before = [value.clone() for value in changed]
            self._replay, _ = _graph(self._update, self.device)
            for into, value in zip(changed, before):
                into.copy_(value)
        return self._replay

    # Evaluation

    @torch.no_grad()
    def point(self, seconds: float | None = None) -> dict[str, np.ndarray]:
        """A point of the curves of held-out errors and of sparsity; name -> (S,).

        After so many seconds, and one batch at least, the evaluation pauses: nothing is found, and the next call goes
        on. How far it is is among :meth:`arrays`.
        """
        values, began, going = self._values(), time.perf_counter(), False
        for split, sums in self.sums.items():
            while sums.batches < self.task.evaluations(split):
                if going and seconds is not None and time.perf_counter() - began >= seconds:
                    return {}
                self._add(sums, split, values, self.records_evaluations)
                if seconds is not None and kind_of(self.device).asynchronous:
                    torch.cuda.current_stream(self.device).synchronize()
                going = True
        curves = {}
        for split, sums in self.sums.items():
            for name, value in sums.means().items():
                curves[split if name == "error" else f"{split}_{name}"] = value.cpu().numpy()
            self.sums[split] = Sums()
        return curves | {"sparsity": self.sparsity().float().cpu().numpy()}

    @torch.no_grad()
    def try_batch(self) -> None:
        """Evaluate one batch, of which nothing is kept. Raises what ``vmap`` does if it cannot follow the network."""
        self._add(Sums(), "validation", self._values(), self.records_evaluations)

    @torch.no_grad()
    def evaluate(self, split: HeldOut, parameters: Tensor | None = None) -> Tensors:
        """The task's measures on a split, as means; name -> (S,)."""
        sums, values = Sums(), self._values(parameters)
        while sums.batches < self.task.evaluations(split):
            self._add(sums, split, values, parameters is None and self.records_evaluations)
        return sums.means()

    def _values(self, parameters: Tensor | None = None) -> Tensors:
        return self.layout.views(self.state.parameters if parameters is None else parameters) | self.fixed

    def _add(self, sums: Sums, split: HeldOut, values: Tensors, recorded: bool) -> None:
        """The next batch of an evaluation."""
        batch = self._held_out(split, sums.batches)
        carried = self._start(values, batch) if sums.carried is None else sums.carried
        if recorded:
            sums.add(self._replayed(values, batch), carried)
        else:
            sums.add(*self._measures(values, carried, batch))

    def errors_of_zero(self) -> Tensor:
        """The validation error of a network that answers 0; (S,)."""
        self.member.answers_zero = True
        try:
            return self.evaluate("validation", self.state.parameters)["error"]
        finally:
            self.member.answers_zero = False

    def _replayed(self, values: Tensors, batch: Batch) -> Tensors:
        """The measures of a batch by a CUDA graph, one for all batches of its shape."""
        shape = tuple(batch.x.shape), tuple(batch.y.shape), batch.mask is None
        if shape not in self._evaluators:
            mask = None if batch.mask is None else batch.mask.clone()
            place = Batch(batch.x.clone(), batch.y.clone(), mask)
            replay, found = _graph(lambda: self._measures(values, (), place)[0], self.device, self._memory())
            self._evaluators[shape] = place, replay, found
        place, replay, found = self._evaluators[shape]
        for into, value in zip(place, batch):
            if into is not None and value is not None:
                into.copy_(value)
        replay()
        return {name: value.clone() for name, value in found.items()}

    def _memory(self) -> Any:
        """One pool for all evaluations, which follow each other: their intermediate values may lie in one place."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def _held_out(self, split: HeldOut, index: int) -> Batch:
        """An evaluation batch on the device; those of tasks without a data set are made once."""
        if (split, index) in self.evaluations:
            return self.evaluations[split, index]
        made = self.task.evaluation(split, index, self.data)
        mask, reset = (None if part is None else part.to(self.device) for part in (made.mask, made.reset))
        batch = Batch(made.x.to(self.device), made.y.to(self.device), mask, reset)
        if self.task.epoch is None:
            self.evaluations[split, index] = batch
        return batch

    @torch.no_grad()
    def sparsity(self) -> Tensor:
        """The sparsity error of every run, (S,)."""
        values = self._values()
        return torch.stack([self.member.sparsity({k: v[s] for k, v in values.items()}) for s in range(len(self))])

    def _measures(self, values: Tensors, carried: Carried, batch: Batch) -> tuple[Tensors, Carried]:
        if len(self) == 1:
            found, carried = self.member.measures(_only(values), _only(carried), batch)
            return {name: v.unsqueeze(0) for name, v in found.items()}, tuple(entry.unsqueeze(0) for entry in carried)
        with self.convolutions():
            return vmap(lambda values, carried: self.member.measures(values, carried, batch))(values, carried)

    def _start(self, values: Tensors, batch: Batch) -> Carried:
        if not self.task.carries:
            return ()
        states = [self.member.start({k: v[s] for k, v in values.items()}, batch) for s in range(len(self))]
        return tuple(torch.stack(entries) for entries in zip(*states))

    @torch.no_grad()
    def _first_state(self) -> Carried:
        """The state before the first update."""
        if not self.task.carries:
            return ()
        self._epoch = -1
        self._begin_epoch(0)
        batch = self.task.batch(self.seeds[0], self.step, self.data | _only(self.order))
        return self._start(self._values(), batch)


def _graph(work: Callable[[], Any], device: str, pool: Any = None) -> tuple[Callable[[], None], Any]:
    """``work`` as the replay of a CUDA graph, and its result, which each replay writes anew.

    One thread records at a time: nothing may wait for the whole device meanwhile. Others go on with replays.
    """
    side = recording_stream(device)
    with _recording:
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                work()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
            result = work()
    return graph.replay, result


def _faster(device: str, runs: int) -> tuple[Callable[..., None], Uniform | None]:
    """The update of so many runs, and their random numbers, as native code where there is any."""
    if kind_of(device).asynchronous:
        from numerate.loops.cuda.uniform import uniform
        from numerate.train.networks import cuda_adam

        return cuda_adam.update_, uniform
    if native.draws():
        from numerate.train.networks import cpu_adam

        return cpu_adam.update_, _native_uniform if runs == 1 else None
    return update_, None


def _native_uniform(seed: Tensor, domain: int, step: Tensor, count: int, first: int) -> Tensor:
    """Random numbers by one call instead of a hundred operations, for a run that is computed by itself."""
    if is_mapped(seed) or is_mapped(step):  # by a vmap of the task's or network's own
        with drawn_by(None):
            return uniform(seed, domain, step, count, first)
    return native.stream_uniform(seed, domain, step, count, first)


def _only(values: Any) -> Any:
    """Those of the only run of a stack."""
    if isinstance(values, dict):
        return {name: value[0] for name, value in values.items()}
    return tuple(value[0] for value in values)


def data_of(task: BatchTask) -> Tensors:
    """Read once per process: several groups train on one data set, side by side too."""
    with _reading:
        return _data_of(task)


@lru_cache(maxsize=4)
def _data_of(task: BatchTask) -> Tensors:
    return task.data()
