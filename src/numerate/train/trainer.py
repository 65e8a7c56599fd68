"""Train many configurations, group by group; nothing finished is lost, and nothing is done twice."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice

import numpy as np
import torch

from numerate.devices import kind_of
from numerate.loops.plain.stacked import one_thread
from numerate.results import Key, Row
from numerate.train import preflight
from numerate.train.allocator import keep_freed_memory
from numerate.train.backends import check
from numerate.train.group import MEASURED_AT_ONCE, Group, cached_loop
from numerate.train.networks.group import NetworkGroup, exact_products
from numerate.train.networks.grouping import groups as network_groups
from numerate.train.networks.side_by_side import train_groups
from numerate.train.networks.specification import NetworkRun, NetworkTraining
from numerate.train.networks.workers import Workers
from numerate.train.progress import Progress, Reporter
from numerate.train.sink import RunSink
from numerate.train.specification import Training
from numerate.train.stack import Run

_MEMORY = 2**30  # bytes of state and penalty scales that one group may take
_MOST_RUNS = 4096  # in one group, so that progress shows and a checkpoint stays small


def train(
    trainings: Sequence[Training | NetworkTraining],
    store: RunSink,
    *,
    experiment: str = "",
    backend: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    checkpoint_seconds: float = 5.0,
    seconds: float | None = None,
) -> bool:
    """Train every run that ``store`` does not hold yet and add it there; returns whether all are there now.

    Configurations of equal form are trained as one stack. A run's result does not depend on the other runs, their order
    or interruptions. If a call is killed, the next one continues at the last checkpoint. After ``seconds`` the call
    saves the state of unfinished runs and returns.
    """
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # streams beyond the usual 8 would wait for each other
    check(backend, device, threads)
    keep_freed_memory()
    threads = threads or torch.get_num_threads()
    if seconds is not None and not seconds > 0:
        raise ValueError(f"seconds must be a number above 0, got {seconds!r}")
    end = None if seconds is None else time.perf_counter() + seconds
    with one_thread():
        return _train(trainings, store, experiment, backend, device, threads, progress, checkpoint_seconds, end)


def _train(
    trainings: Sequence[Training | NetworkTraining],
    store: RunSink,
    experiment: str,
    backend: str,
    device: str,
    threads: int,
    progress: Callable[[Progress], None] | None,
    checkpoint_seconds: float,
    end: float | None,
) -> bool:
    runs, missing = claim(trainings, store, experiment)
    left = {key: run for key, run in runs.items() if key in missing}
    groups = [
        kept
        for group in _groups({key: run for key, run in runs.items() if isinstance(run, Run)})
        if (kept := {key: run for key, run in group.items() if key in missing})
    ]
    of_networks = list(network_groups({key: run for key, run in left.items() if isinstance(run, NetworkRun)}, device))
    for group in groups:
        example = next(iter(group.values())).training
        if example.computation is None:  # untrainable models are rejected before training starts
            cached_loop(example, None, backend, device, threads)
    steps = _work(groups) + _work(of_networks)
    report = Reporter(progress, total=len(runs), missing=len(missing), steps=steps, end=end)
    prepared = (Group(group, store, experiment, backend, device, threads) for group in groups)
    started = (_Queue(group.run(report, checkpoint_seconds), device) for group in prepared)
    _take_turns(started, kind_of(device).concurrent_groups, report.time_is_up)
    with _workers(of_networks, device, threads) as workers, exact_products():
        more = (NetworkGroup(group, store, experiment, device, threads, workers) for group in of_networks)
        train_groups(more, report, checkpoint_seconds, device)
    drop_finished(store)
    return report.finished == report.total


def claim(
    trainings: Sequence[Training | NetworkTraining], store: RunSink, experiment: str
) -> tuple[dict[Key, Run | NetworkRun], set[Key]]:
    """All runs, and which of them are to be trained; those that are stored already are noted as the experiment's."""
    runs: dict[Key, Run | NetworkRun] = {
        key: Run(t, key.seed) if isinstance(t, Training) else NetworkRun(t, key.seed)
        for t in trainings
        for key in t.run_keys()
    }
    store.drop_damaged(runs)
    missing = set(store.missing(runs))
    store.share(experiment, {key: run.training.labels for key, run in runs.items() if key not in missing})
    return runs, missing


def drop_finished(store: RunSink) -> None:
    """Drop checkpoints of groups that were abandoned when other runs were asked for, and are finished by now."""
    for name in store.checkpoints():
        checkpoint = store.load_checkpoint(name)
        keys = checkpoint.meta.get("keys") if checkpoint else None
        if keys and not store.missing(Key(*key) for key in keys):
            store.drop_checkpoint(name)


@contextmanager
def _workers(groups: Sequence[Mapping[Key, NetworkRun]], device: str, threads: int) -> Iterator[Workers | None]:
    """Processes for groups of several runs on several cores; None for others."""
    count = min(threads, max(map(len, groups), default=0))
    if kind_of(device).asynchronous or count < 2:
        yield None
        return
    with closing(Workers(count)) as workers:
        yield workers


class _Queue:
    """A group that is under way; on a GPU its work is queued on a stream of its own, a little ahead."""

    def __init__(self, parts: Iterator[None], device: str) -> None:
        self.parts = parts
        self.stream = torch.cuda.Stream(device) if kind_of(device).asynchronous else None
        self.pending: deque[torch.Event] = deque()
        if self.stream is not None:
            self.stream.wait_stream(torch.cuda.current_stream(device))  # what the group was prepared with is there

    def ready(self) -> bool:
        """Whether the next part may be queued: all but the last have been done."""
        return len(self.pending) < 2 or self.pending[0].query()

    def proceed(self) -> bool:
        """Queue the next part; False if there is none, and then all is done."""
        if len(self.pending) == 2:
            self.pending.popleft().synchronize()
        with torch.cuda.stream(self.stream):  # None: nothing
            going = next(self.parts, "ended") is None
            if self.stream is not None:
                self.pending.append(self.stream.record_event())
        return going


def _take_turns(queues: Iterator[_Queue], at_once: int, time_is_up: Callable[[], bool]) -> None:
    """Run all, ``at_once`` of them side by side: each queues its next steps while those before are being done.

    When the time is up no more are begun; those that run save their state and end.
    """
    running = deque(islice(queues, at_once))
    while running:
        place = next((i for i, queue in enumerate(running) if queue.ready()), 0)
        queue = running[place]
        del running[place]
        if queue.proceed():
            running.append(queue)
        elif not time_is_up():
            running.extend(islice(queues, 1))


def _groups(runs: dict[Key, Run]) -> Iterator[dict[Key, Run]]:
    """Runs of equal form together, at most as many as memory allows."""
    for group, size in by_form(runs):
        items = list(group.items())
        for i in range(0, len(items), size):
            yield dict(items[i : i + size])


def alike(runs: Mapping[Key, Run | NetworkRun], device: str) -> Iterator[tuple[Mapping[Key, Run | NetworkRun], int]]:
    """Runs that may be trained together, and how many of them at most. Raises ValueError for untrainable ones."""
    yield from by_form({key: run for key, run in runs.items() if isinstance(run, Run)})
    for group in network_groups({key: run for key, run in runs.items() if isinstance(run, NetworkRun)}, device):
        yield group, len(group)


def by_form(runs: dict[Key, Run]) -> Iterator[tuple[dict[Key, Run], int]]:
    """Runs of equal form, and how many of them memory allows in one group. Raises ValueError for untrainable ones."""
    forms: dict[object, dict[Key, Run]] = {}
    known = {
        id(training): training.form for training in {id(run.training): run.training for run in runs.values()}.values()
    }
    for key, run in runs.items():
        forms.setdefault(known[id(run.training)], {})[key] = run
    for group in forms.values():
        example = next(iter(group.values())).training
        model = preflight.check_model(example, {run.seed for run in group.values()})
        count = sum(p.numel() for p in model.parameters())
        per_start = 4 * ((8 + MEASURED_AT_ONCE) * count + len(example.penalties) * example.evaluate_every)
        yield group, max(16, min(_MOST_RUNS, _MEMORY // per_start // 16 * 16)) // example.starts or 1


def _work(groups: Sequence[Mapping[Key, Run | NetworkRun]]) -> int:
    return sum(run.training.steps * getattr(run.training, "starts", 1) for group in groups for run in group.values())


def lacking(row: Row) -> list[str]:
    """Curves and scores that every run trained here has, and this row has not."""
    curves = [name for name in ("steps", "validation", "test", "sparsity") if not np.size(row.curves.get(name, ()))]
    return curves + [name for name in ("threshold", "best_step", "best_test", "solved_at") if name not in row.scores]
