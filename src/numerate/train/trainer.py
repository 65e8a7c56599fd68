"""Train many configurations, group by group, so that nothing finished is ever lost and nothing is done twice."""

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from numerate.devices import kind_of
from numerate.loops.plain.stacked import one_thread
from numerate.loops.step import Loop, State, Step, Tensors
from numerate.results import Key, Provenance, Row, canonical
from numerate.results.outcome import choose_starts, judge, read_off
from numerate.train import preflight, stack
from numerate.train.backends import check, choose, evaluator, first_sentence
from numerate.train.networks.group import NetworkGroup
from numerate.train.networks.group import groups as network_groups
from numerate.train.networks.specification import NetworkRun, NetworkTraining
from numerate.train.sink import RunSink
from numerate.train.specification import Plateau, Restart, Training
from numerate.train.stack import Run
from numerate.units import sparsity_error

_MEMORY = 2**30  # bytes of state and penalty scales that one group may take
_MOST_RUNS = 4096  # in one group, so that progress shows and a checkpoint stays small
_MEASURED_AT_ONCE = 8  # evaluations: to tell torch what to do takes longer than to do it
BEST_OF_LAST = 5000
"""The best validation point is looked for among this many last evaluations, as the papers' scripts do."""
MOST_POINTS = 200
"""Longer curves are thinned before they are stored; what is read off them is computed from all points."""


@dataclass(frozen=True)
class Progress:
    """Where a call of :func:`train` stands; everything it counts is on disk."""

    finished: int
    """Runs finished, those of earlier calls included."""
    total: int
    solved: int
    """Of the runs finished in this call: best-validation test error below the threshold."""
    trained: int
    """Runs finished in this call."""
    fraction: float
    """Share of all steps of this call's runs that are done."""
    seconds: float
    label: str
    backend: str
    workers: int | None = None
    """How many pieces of work a cluster takes at once; None where this process trains."""
    busy: int = 0
    """How many it has now."""

    @property
    def rate(self) -> float:
        """Runs per second of this call."""
        return self.trained / self.seconds if self.seconds > 0 else 0.0

    @property
    def remaining(self) -> float | None:
        """Estimated seconds to go."""
        return self.seconds * (1 / self.fraction - 1) if self.fraction > 0 else None


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
    """Train every run that ``store`` does not hold yet and add it there; whether all are there now.

    Runs of configurations of equal form are one stack. A run's result does not depend on the others, on the order or on
    interruptions. Killed at any moment, a second call continues at the last checkpoint. After ``seconds`` the state of
    what is under way is saved, and the call ends.
    """
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")  # streams beyond the usual 8 would wait for each other
    check(backend, device, threads)
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
            _cached_loop(example, None, backend, device, threads)
    steps = _work(groups) + _work(of_networks)
    report = _Reporter(progress, total=len(runs), missing=len(missing), steps=steps, end=end)
    prepared = (_Group(group, store, experiment, backend, device, threads) for group in groups)
    started = (_Queue(group.run(report, checkpoint_seconds), device) for group in prepared)
    _take_turns(started, kind_of(device).concurrent_groups, report.time_is_up)
    more = (NetworkGroup(group, store, experiment, device, threads) for group in of_networks)
    _take_turns((_Queue(group.run(report, checkpoint_seconds), device) for group in more), 1, report.time_is_up)
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
        per_start = 4 * ((8 + _MEASURED_AT_ONCE) * count + len(example.penalties) * example.evaluate_every)
        yield group, max(16, min(_MOST_RUNS, _MEMORY // per_start // 16 * 16)) // example.starts or 1


def _work(groups: Sequence[Mapping[Key, Run | NetworkRun]]) -> int:
    return sum(run.training.steps * getattr(run.training, "starts", 1) for group in groups for run in group.values())


class _Reporter:
    """Counts what is on disk and tells the caller."""

    def __init__(
        self, tell: Callable[[Progress], None] | None, total: int, missing: int, steps: int, end: float | None
    ) -> None:
        self.tell, self.total, self.steps, self.end = tell, total, max(1, steps), end
        self.finished, self.solved, self.trained, self.done_steps = total - missing, 0, 0, 0
        self.under_way: dict[str, int] = {}
        self.started = time.perf_counter()

    def add_rows(self, group: str, rows: Sequence[Row], steps: int) -> None:
        self.under_way.pop(group, None)
        self.finished += len(rows)
        self.trained += len(rows)
        self.done_steps += steps
        self.solved += sum(judge(row).solved for row in rows)

    def time_is_up(self) -> bool:
        return self.end is not None and time.perf_counter() >= self.end

    def show(self, label: str, backend: str) -> None:
        if self.tell:
            fraction = (self.done_steps + sum(self.under_way.values())) / self.steps
            seconds = time.perf_counter() - self.started
            self.tell(Progress(self.finished, self.total, self.solved, self.trained, fraction, seconds, label, backend))


class _Group:
    """One stack on its way from the first step to the last."""

    def __init__(
        self, runs: dict[Key, Run], store: RunSink, experiment: str, backend: str, device: str, threads: int | None
    ) -> None:
        self.keys, self.runs = zip(*sorted(runs.items(), key=lambda item: stack.examples_of(item[1])))
        self.training = self.runs[0].training
        self.starts = self.training.starts
        self.each = [run for run in self.runs for _ in range(self.starts)]
        """The members of the stack: all starts of the first run, then those of the next."""
        self.store, self.experiment, self.device = store, experiment, device
        self.name = hashlib.sha256(repr(self.keys).encode()).hexdigest()[:24]
        self.step, self.model = stack.make_step(self.training)
        self.backend, self.loop = _cached_loop(self.training, self.step, backend, device, threads)
        self.members = stack.members(self.each).to(device)
        self.splits = {
            split: (
                {k: v.to(device) for k, v in stack.constants(self.each, split).items()},
                _by_columns(stack.evaluation_uniforms(self.training, split).to(device)),
            )
            for split in ("validation", "test")
        }
        self.evaluators = {
            split: evaluator(self.loop, self.step, uniforms.shape[-1], device)
            for split, (_, uniforms) in self.splits.items()
        }
        self.table = stack.Table(self.step, self.each, device)
        points = self.training.steps // self.training.evaluate_every + 1
        self.first_choice = max(0, points - BEST_OF_LAST)
        self.measure_sparsity = stack.over_members(stack.of_parameters(self.model, sparsity_error))
        self.snap = stack.snapping(self.model)

    @property
    def label(self) -> str:
        return " ".join(str(v) for k, v in self.training.labels.items() if k != "range")

    def run(self, report: _Reporter, checkpoint_seconds: float) -> Iterator[None]:
        """From the first step, or the last checkpoint, to rows in the store; pauses after every evaluation."""
        saved = time.perf_counter()
        self._restore_or_start()
        self.started = saved - self.seconds_before
        every, steps = self.training.evaluate_every, self.training.steps
        while True:
            if self.state.step // every == len(self.curves["validation"]):
                self._evaluate()
            if self.state.step == steps:
                break
            if report.time_is_up():
                self._save()
                return
            if time.perf_counter() - saved >= checkpoint_seconds:
                self._save()
                saved = time.perf_counter()
                report.under_way[self.name] = self.state.step * len(self.each)
                report.show(self.label, self.backend)
            self._train(every)
            yield
        rows = self._rows(time.perf_counter() - self.started)
        with self.store.transaction():
            self.store.add(rows)
            self.store.drop_checkpoint(self.name)
        report.add_rows(self.name, rows, steps * len(self.each))
        report.show(self.label, self.backend)

    # Training and evaluation

    def _train(self, steps: int) -> None:
        """To the next evaluation, stopping where members restart."""
        start, end = self.state.step, self.state.step + steps
        self._restart_stuck(start)
        table = self.table(start, steps, self.curves["validation"][-1], np.maximum(self.since - 1, 0))
        for stop, due in [*self._restarts(start, steps), (end, [])]:
            if stop > self.state.step:
                at = self.state.step - start
                count = stop - self.state.step
                self.loop.train(self.state, self.members, table[:, at : at + count], count)
            if due:
                self._restart(due, stop)

    def _restarts(self, start: int, steps: int) -> list[tuple[int, list[int]]]:
        """(step, members that restart there), in order."""
        rule = self.training.restart
        if not isinstance(rule, Restart) or start + steps <= rule.history:
            return []
        times = stack.restart_times(rule, self.training.evaluate_every, self._errors(), self.since, start, steps)
        return [(int(t), np.flatnonzero(times == t).tolist()) for t in np.unique(times[times >= 0])]

    def _restart_stuck(self, at: int) -> None:
        """Members that the window of their last evaluations calls stuck; Adam begins anew with them."""
        rule = self.training.restart
        if not isinstance(rule, Plateau):
            return
        due = np.flatnonzero(stack.stuck(rule, self.training.evaluate_every, self._errors(), self.since)).tolist()
        if due:
            self._restart(due, at)
            for moments in (self.state.exp_avg, self.state.exp_avg_sq):
                for value in moments.values():
                    value[due] = 0.0

    def _errors(self) -> np.ndarray:
        """All validation errors, (S, points)."""
        return torch.stack(self.curves["validation"], -1).double().cpu().numpy()

    def _restart(self, due: list[int], at: int) -> None:
        self.restarts[due] += 1
        self.since[due] = at + 1
        fresh = stack.initial_parameters([self.each[s] for s in due], self._draws(due))
        for name, value in fresh.items():
            self.state.parameters[name][due] = value.to(self.device)

    def _draws(self, members: Sequence[int]) -> list[int]:
        """Which draw of its seed's parameters each member has: the number of its start; after a restart a later one."""
        return [s % self.starts + self.starts * int(self.restarts[s]) for s in members]

    @torch.no_grad()
    def _evaluate(self) -> None:
        parameters = self.state.parameters
        validation, test = (self._loss(parameters, split) for split in ("validation", "test"))
        self.curves["validation"].append(validation)
        self.curves["test"].append(test)
        self.unmeasured.append({k: v.clone() for k, v in parameters.items()})
        if len(self.unmeasured) == _MEASURED_AT_ONCE:
            self._measure()
        if len(self.curves["validation"]) <= self.first_choice:
            return
        better = validation < self.best_validation  # false for NaN
        self.best_validation = torch.where(better, validation, self.best_validation)
        for name, value in parameters.items():
            keep = better.view(-1, *[1] * (value.dim() - 1))
            self.best[name] = torch.where(keep, value, self.best[name])

    @torch.no_grad()
    def _measure(self) -> None:
        """The sparsity of the last evaluations, of all at once."""
        if self.unmeasured:
            together = {k: torch.cat([values[k] for values in self.unmeasured]) for k in self.unmeasured[0]}
            self.curves["sparsity"] += self.measure_sparsity(together).split(len(self.each))
            self.unmeasured = []

    def _loss(self, parameters: Tensors, split: str) -> Tensor:
        constants, uniforms = self.splits[split]
        return self.evaluators[split].evaluate(parameters, constants, uniforms)

    # Checkpoints

    def _restore_or_start(self) -> None:
        count = len(self.each)
        self.unmeasured: list[Tensors] = []
        checkpoint = self.store.load_checkpoint(self.name)
        self.seconds_before = float(checkpoint.meta.get("seconds", 0.0)) if checkpoint else 0.0
        if checkpoint is None:
            self.restarts, self.since = np.zeros(count, np.int64), np.zeros(count, np.int64)
            drawn = stack.initial_parameters(self.each, self._draws(range(count)))
            self.state = State.start({k: v.to(self.device) for k, v in drawn.items()})
            self.curves: dict[str, list[Tensor]] = {"validation": [], "test": [], "sparsity": []}
            self.best = {k: v.clone() for k, v in self.state.parameters.items()}
            self.best_validation = torch.full((count,), torch.inf, device=self.device)
            return
        arrays = {name: torch.from_numpy(np.array(value)).to(self.device) for name, value in checkpoint.arrays.items()}

        def part(group: str, names: Iterable[str]) -> Tensors:
            return {name: arrays[f"{group}/{name}"] for name in names}

        names = self.step.parameters
        groups = part("parameters", names), part("first", names), part("second", names)
        self.state = State(*groups, arrays["diverged"], checkpoint.meta["step"])
        self.best, self.best_validation = part("best", names), arrays["best_validation"]
        curves = part("curve", ("validation", "test", "sparsity"))
        self.curves = {name: list(values.unbind()) for name, values in curves.items()}
        self.restarts, self.since = arrays["restarts"].cpu().numpy(), arrays["since"].cpu().numpy()

    def _save(self) -> None:
        self._measure()
        groups = {
            "parameters": self.state.parameters,
            "first": self.state.exp_avg,
            "second": self.state.exp_avg_sq,
            "best": self.best,
        }
        arrays = {f"{group}/{k}": v.cpu().numpy() for group, values in groups.items() for k, v in values.items()}
        arrays |= {f"curve/{name}": torch.stack(values).cpu().numpy() for name, values in self.curves.items()}
        arrays |= {name: getattr(self, name).cpu().numpy() for name in ("best_validation",)}
        arrays |= {"diverged": self.state.diverged.cpu().numpy()}
        arrays |= {"restarts": self.restarts, "since": self.since}
        seconds = time.perf_counter() - self.started
        self.store.checkpoint(self.name, arrays, {"step": self.state.step, "keys": self.keys, "seconds": seconds})

    # Rows

    def _rows(self, seconds: float) -> list[Row]:
        self._measure()
        curves = {name: torch.stack(values, -1).float().cpu().numpy() for name, values in self.curves.items()}
        steps = np.arange(curves["validation"].shape[1], dtype=np.int64) * self.training.evaluate_every
        kept = slice(None, None, -(-(len(steps) - 1) // MOST_POINTS) or 1)
        thresholds = np.array([run.training.task.threshold() for run in self.runs]).repeat(self.starts)
        scores = self._snapped_scores() | read_off(steps, **curves, threshold=thresholds, last=BEST_OF_LAST)
        scores |= {"threshold": thresholds, "restarts": self.restarts}
        chosen = np.arange(len(self.each))
        if self.starts > 1:
            chosen, found = choose_starts(scores, self.starts)
            scores |= found
        timing = {"group_seconds": seconds, "group_runs": float(len(self.runs))}
        provenance = Provenance.here(self.backend, timing, self.device)
        weights = {
            moment: {k: v.cpu().numpy() for k, v in values.items()}
            for moment, values in (("final", self.state.parameters), ("best", self.best))
        }
        diverged = self.state.diverged.tolist()
        trainings = {id(run.training): run.training for run in self.runs}
        descriptions = {key: training.description() for key, training in trainings.items()}
        spelled = {key: canonical(description) for key, description in descriptions.items()}
        return [
            Row(
                self.experiment,
                descriptions[id(run.training)],
                run.seed,
                labels=run.training.labels,
                status="finished" if diverged[s] < 0 else "diverged",
                stopped_at=None if diverged[s] < 0 else diverged[s],
                reason="" if diverged[s] < 0 else "a parameter is no longer finite",
                curves={"steps": steps[kept]} | {name: values[s][kept] for name, values in curves.items()},
                scores={name: float(values[s]) for name, values in scores.items()},
                weights={moment: {k: v[s] for k, v in values.items()} for moment, values in weights.items()},
                provenance=provenance,
            ).spelled(spelled[id(run.training)])
            for s, run in zip(chosen, self.runs)
        ]

    def _snapped_scores(self) -> dict[str, np.ndarray]:
        """Errors of the best weights, and of these rounded to the units' discrete values, if there are any."""
        rounded = self.snap(self.best)
        scores = {"best_validation": self._loss(self.best, "validation")}
        if rounded or self.training.computation is not None:  # rows of our own models keep the scores they always had
            scores |= {f"snapped_{split}": self._loss(self.best | rounded, split) for split in ("validation", "test")}
        return {name: values.cpu().numpy() for name, values in scores.items()}


def lacking(row: Row) -> list[str]:
    """Curves and scores that every run trained here has, and this row has not."""
    curves = [name for name in ("steps", "validation", "test", "sparsity") if not np.size(row.curves.get(name, ()))]
    return curves + [name for name in ("threshold", "best_step", "best_test", "solved_at") if name not in row.scores]


def _by_columns(uniforms: Tensor) -> Tensor:
    """As kernels read the numbers, so that they need not be copied at every evaluation."""
    return uniforms.t().contiguous().t() if uniforms.is_cuda else uniforms


_loops: dict[object, tuple[str, Loop]] = {}


def _hashable(value: object) -> object:
    """A dataclass that is not frozen, say, cannot be hashed: the object itself stands for it."""
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value


@dataclass(frozen=True, eq=False)
class _Same:
    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _cached_loop(
    training: Training, step: Step | None, backend: str, device: str, threads: int | None
) -> tuple[str, Loop]:
    """Trace and compile once per form and process; code from outside this package goes through a preflight check.

    ``step``: that of the training, if it is made already.
    """
    foreign = training.computation is None
    code = tuple(map(_hashable, (training.model, *(p.function for p in training.penalties)))) if foreign else ()
    key = (training.form, code, backend, device, threads)
    if key not in _loops:
        name = stack.shown_name(training)
        try:
            check_loop = partial(preflight.check_loop, training, device=device) if foreign else None
            fresh = (lambda: stack.make_step(training)[0]) if foreign or step is None else (lambda: step)
            _loops[key] = choose(fresh, backend, device, threads, check_loop, name)
        except Exception as error:
            if not foreign:
                raise
            raise ValueError(f"{name} cannot be trained with backend {backend}: {first_sentence(error)}") from error
    return _loops[key]
