"""A group of runs from its first update, or its last checkpoint, to rows in the store."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from numerate.devices import kind_of
from numerate.results import Key, Provenance, Row, canonical
from numerate.results.outcome import below_threshold, best_points
from numerate.torch_internals import cudnn_rnn_precision, set_cudnn_rnn_precision
from numerate.train.backends import notice
from numerate.train.networks.grouping import together
from numerate.train.networks.log import Log
from numerate.train.networks.specification import NetworkRun
from numerate.train.networks.stack import CHUNK, Stack
from numerate.train.networks.workers import LARGEST, NoneIdle, Refused, Runs, Workers
from numerate.train.sink import RunSink, fits
from numerate.train.stack import shown_name
from numerate.train.stack import stuck as stuck_runs

MOST_POINTS = 200
"""Longer curves are thinned before they are stored; what is read off them is computed from all points."""
MOST_KEPT = 1_000_000
"""Numbers of a network of which final and best weights are both stored; of larger ones the best alone."""
_CHUNK_SECONDS = 0.5  # a call for an end is answered after about so long
_LATE = 2.0  # seconds by which an update may end after the time is up; a longer one is left for the next call
_SAVING = 0.05  # largest share of the time that writing checkpoints may take


@contextmanager
def exact_products() -> Iterator[None]:
    """Matrix products and convolutions of float32 on a GPU without rounding to TF32, whatever torch is set to."""
    places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before, recurrent = [place.allow_tf32 for place in places], cudnn_rnn_precision()
    try:
        for place in places:
            place.allow_tf32 = False
        set_cudnn_rnn_precision("ieee")
        yield
    finally:
        for place, value in zip(places, before):
            place.allow_tf32 = value
        set_cudnn_rnn_precision(recurrent)


class NetworkGroup:
    """Runs of one form on their way to the store.

    Args:
        runs: by their keys; at most as many as are trained at once.
        store: where rows and checkpoints go.
        experiment: whose rows they are.
        device: where to train.
        threads: on a CPU, how many cores.
        workers: processes that may share the runs, on a CPU.
    """

    def __init__(
        self,
        runs: dict[Key, NetworkRun],
        store: RunSink,
        experiment: str,
        device: str,
        threads: int,
        workers: Workers | None = None,
    ) -> None:
        self.keys, self.runs = tuple(runs), tuple(runs.values())
        self.training = self.runs[0].training
        self.store, self.experiment, self.device, self.threads = store, experiment, device, threads
        self.backend = f"{'graph' if kind_of(device).asynchronous else 'each'}-{kind_of(device).name}"
        self.name = hashlib.sha256(repr((self.keys, self.backend)).encode()).hexdigest()[:24]
        self.size = together(self.training, self.training.build(self.training.seeds[0]), device)
        self.seconds_each = 0.0
        self.longest = 0.0  # seconds of a stack's last chunk
        self.warm = False  # whether this process has trained them for a while
        self.workers = workers

    @property
    def fills_device(self) -> bool:
        """Whether its updates leave a GPU no room for those of another group; on a CPU processes share its runs."""
        return self.size == 1

    def prepare(self) -> None:
        """Make the stacks; compile what they need."""
        self.stacks = self._stacks()
        self.sent = Runs(self.runs, self.stacks[0].data)
        if len(self.stacks) == 1 or self.stacks[0].layout.count > LARGEST:
            self.workers = None

    def _stacks(self) -> list[Stack]:
        size = self.size
        self.places = np.arange(len(self.runs))
        if size > 1:
            places = {run.seed % size: run for run in self.runs}
            stack = Stack([places.get(place, self.runs[0]) for place in range(size)], self.device)
            try:
                stack.try_batch()
                self.places = np.array([run.seed % size for run in self.runs])
                return [stack]
            except (RuntimeError, NotImplementedError) as error:
                reason = str(error).partition("\n")[0]
                notice(f"{shown_name(self.training)} cannot be stacked ({reason}); its runs are trained one by one")
        return [Stack([run], self.device) for run in self.runs]

    @property
    def label(self) -> str:
        return " ".join(str(v) for v in self.training.labels.values())

    # From the first update to the last

    def run(self, report: Any, checkpoint_seconds: float) -> Iterator[Callable[[], None]]:
        """From the first update, or the last checkpoint, to rows in the store.

        Yields what is to be computed, part by part: the caller calls each, in a thread if it likes, before it asks for
        the next. Store and report are used in between, by the caller's own thread. When ``report.time_is_up()``, a part
        ends after the update or evaluation batch it is at, the state is saved and nothing more is done. Every call
        computes an update or a batch, so repeated short calls finish.
        """
        saved, self.end = time.perf_counter(), report.end
        yield self.prepare
        self._restore_or_start()
        self.started = saved - self.seconds_before
        report.resume(self.name, self.done * len(self.runs))
        pause, steps, begun = checkpoint_seconds, self.training.steps, False
        while not self._is_finished():
            now = time.perf_counter()
            evaluating = self.done == self._due()
            if begun and not self._has_time(0.0 if evaluating else self.longest):
                self._save()
                report.end_now()
                return
            if now - saved >= pause:
                self._save()
                saved = time.perf_counter()
                pause = max(checkpoint_seconds, (saved - now) / _SAVING)
            report.under_way[self.name] = self.done * len(self.runs)
            report.show(self.label, self.backend)
            yield self._evaluate if evaluating else self._train
            begun = True
        rows = self._rows(time.perf_counter() - self.started)
        with self.store.transaction():
            self.store.add(rows)
            self.store.drop_checkpoint(self.name)
        report.add_rows(self.name, rows, steps * len(self.runs))
        report.show(self.label, self.backend)

    @property
    def over(self) -> np.ndarray:
        """(S,), whether a run takes no more updates."""
        return np.isfinite(self.until)

    def _due(self) -> int:
        """The update before which the next evaluation takes place."""
        return self._moment(len(self.curves["validation"]))

    def _moment(self, point: int) -> int:
        """The update before which a point of the curves lies."""
        return min(point * self.training.evaluate_every, self.training.steps)

    def _is_finished(self) -> bool:
        """Whether the last evaluation has been done: that after all updates, or the first with no run left."""
        points = len(self.curves["validation"])
        evaluated = points > 0 and self.done == self._moment(points - 1)
        return evaluated and bool(self.done == self.training.steps or self.over.all())

    def _train(self) -> None:
        """A chunk of updates, or as much of it as there is time for."""
        start, count, began, before = self.done, self._count(), time.perf_counter(), len(self.found)
        errors = self._placed(self.curves["validation"][-1]).tolist()
        found = self._all_found("chunk", lambda part: (start, count, errors[part]))
        spent, done = time.perf_counter() - began, len(self.stacks if found else self.found) - before
        self.seconds_each = spent / count * len(self.stacks) / done
        self.longest = spent / -(-done // self.threads)
        if not found:
            return
        losses, norms, ended = (
            np.concatenate([part[name] for part in found], -1)[..., self.places]
            for name in ("losses", "norms", "ended")
        )
        fresh = (ended >= 0) & ~np.isfinite(self.until)
        self.diverged = np.where(fresh, ended, self.diverged)
        self.until = np.where(fresh, ended + 1, self.until)
        self.log.add(start, losses, norms, self.until)
        self.done = start + count
        if self.workers is not None and self.warm:  # the first chunk may have waited for a compiler
            self.workers.expect(self.seconds_each * (self.training.steps - self.done))
        self.warm = True

    def _count(self) -> int:
        """Updates of a chunk: those of the one under way, or as many as take about _CHUNK_SECONDS, at first one."""
        for part in self.found.values():
            return len(part["losses"])
        most = max(1, min(CHUNK, int(_CHUNK_SECONDS / self.seconds_each))) if self.seconds_each else 1
        end = min(self._due(), self.done + most)
        if epoch := self.training.task.epoch:
            end = min(end, (self.done // epoch + 1) * epoch)
        return end - self.done

    def _all_found(self, method: str, arguments: Callable[[slice], Sequence[Any]]) -> list[dict[str, np.ndarray]]:
        """What a method of each stack gives for ``arguments(its members)``; nothing until all are there.

        When the time is up, stacks that have not begun are left for the next call, all but one.
        """
        first = next(k for k in range(len(self.stacks)) if k not in self.found)
        longest = self.longest if method == "chunk" else 0.0  # an evaluation pauses by itself

        def work(k: int, part: slice) -> None:
            if k in self.found or (k != first and not self._has_time(longest)):
                return
            if found := self.computed(self.stacks[k], method, *arguments(part)):
                self.found[k] = dict(found)

        self._over_stacks(work)
        if len(self.found) < len(self.stacks):
            return []
        found, self.found = [self.found[k] for k in range(len(self.stacks))], {}
        return found

    def _left(self) -> float | None:
        """Seconds until the end of the call; None: it has none."""
        return None if self.end is None else max(0.0, self.end - time.perf_counter())

    def _has_time(self, seconds: float) -> bool:
        """Whether a call that has done something begins what takes so many seconds."""
        left = self._left()
        return left is None or (left > 0 and left + _LATE >= seconds)

    def _placed(self, values: np.ndarray) -> np.ndarray:
        """Values of the runs as values of all members of the stacks; those that only fill a stack get the first."""
        members = np.full(sum(map(len, self.stacks)), values[0])
        members[self.places] = values
        return members

    def _on_device(self, values: np.ndarray) -> Tensor:
        """As :meth:`_placed`."""
        return torch.from_numpy(self._placed(values)).to(self.device)

    def _over_stacks(self, work: Callable[[int, slice], Any]) -> list[Any]:
        """``work(which stack, which members it has)`` for each; threads share the stacks on a CPU."""
        threads = 1 if kind_of(self.device).asynchronous else min(self.threads, len(self.stacks))
        if threads == 1:
            return list(map(work, range(len(self.stacks)), self._parts()))
        with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
            return list(pool.map(work, range(len(self.stacks)), self._parts()))

    def computed(self, stack: Stack, method: str, *arguments: Any) -> Mapping[str, np.ndarray]:
        """What a method of a stack gives, by a worker process if one is idle, else by this process."""
        reason = ""
        if self.workers is not None and self.warm:
            try:
                return self.workers.call(self.sent, self.stacks.index(stack), stack, method, *arguments)
            except NoneIdle:
                pass
            except Refused as error:
                self.workers, reason = None, str(error)
        found = getattr(stack, method)(*arguments)  # raises what a process could not compute for a good reason
        if reason:
            notice(f"threads share the runs of {shown_name(self.training)}, not processes: {reason}")
        return found

    def _parts(self) -> list[slice]:
        """Which of all members are those of each stack."""
        ends = list(accumulate(map(len, self.stacks), initial=0))
        return [slice(*edges) for edges in pairwise(ends)]

    # Evaluation

    def _evaluate(self) -> None:
        """A point of the curves, or as much of it as there is time for."""
        found = self._all_found("point", lambda _: (self._left(),))
        if not found:
            return
        point = {name: np.concatenate([part[name] for part in found])[self.places] for name in found[0]}
        point |= self.log.read()
        for name, values in point.items():
            self.curves.setdefault(name, []).append(values)
        better = point["validation"] < self.best_validation
        self.since_best = np.where(better, 0, self.since_best + 1)
        self.best_validation = np.where(better, point["validation"], self.best_validation)
        chosen = self._on_device(better).unsqueeze(-1)
        for stack, best, part in zip(self.stacks, self.best, self._parts()):
            best.copy_(torch.where(chosen[part], stack.state.parameters, best))
        self._stop_early()
        if not self._is_finished():
            self._restart_stuck()

    def _stop_early(self) -> None:
        rule = self.training.stop
        if rule is None:
            return
        due = np.zeros(len(self.runs), bool)
        if rule.solved:
            due |= self._is_solved()
        if rule.patience is not None:
            due |= self.since_best >= rule.patience
        due &= ~self.over
        self.until = np.where(due, self.done, self.until)
        frozen = self._on_device(due)
        for stack, part in zip(self.stacks, self._parts()):
            stack.state.frozen.logical_or_(frozen[part])

    def _restart_stuck(self) -> None:
        """Draw runs anew that get nowhere; each is a stack of its own."""
        if (rule := self.training.restart) is None:
            return
        errors, every = np.stack(self.curves["validation"], -1).astype(float), self.training.evaluate_every
        stuck = ~self.over & stuck_runs(rule, every, errors, self.since, rule.above * self._errors_of_zero)
        for s in map(int, np.flatnonzero(stuck)):
            self.restarts[s] += 1
            self.since[s] = self.done + 1
            self.stacks[s].restart(int(self.restarts[s]), self.done)

    @cached_property
    def _errors_of_zero(self) -> np.ndarray:
        """Those of one stack are those of all: they are evaluated on the same batches."""
        return self.stacks[0].errors_of_zero().double().cpu().numpy().repeat(len(self.stacks))

    def _is_solved(self) -> np.ndarray:
        """Whether each run would be judged solved if it ended here."""
        if self.training.task.judged == "train":
            return np.isfinite(self.log.solved)
        validation, test = (np.stack(self.curves[split], -1) for split in ("validation", "test"))
        best = best_points(validation)[:, None]
        errors = np.maximum(*(np.take_along_axis(curve, best, -1)[:, 0] for curve in (validation, test)))
        return below_threshold(errors, self._thresholds())

    def _thresholds(self) -> np.ndarray:
        return np.array([float(run.training.task.threshold()) for run in self.runs])

    # Checkpoints

    def _restore_or_start(self) -> None:
        count, task = len(self.runs), self.training.task
        by_training_loss = task.judged == "train"
        thresholds = self._thresholds() if by_training_loss else np.full(count, np.nan)
        self.log = Log(count, task.window if by_training_loss else 1, thresholds)
        self.curves: dict[str, list[np.ndarray]] = {"validation": []}
        self.best = [stack.state.parameters.clone() for stack in self.stacks]
        self.best_validation = np.full(count, np.inf)
        self.since_best = np.zeros(count, np.int64)
        self.until, self.diverged = np.full(count, np.inf), np.full(count, -1)
        self.restarts, self.since = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.done, self.seconds_before = 0, 0.0
        self.found: dict[int, dict[str, np.ndarray]] = {}  # of the stacks that have done the part under way
        checkpoint = self.store.load_checkpoint(self.name)
        if checkpoint is None:
            return
        curves = ["curve/validation"] if checkpoint.meta["step"] else []  # the first evaluation may be under way
        if fits(checkpoint.arrays, self._saved() | dict.fromkeys([*self.log.arrays(), *curves])):
            self._restore(checkpoint.arrays, checkpoint.meta)
        else:
            name = self.label or shown_name(self.training)
            notice(f"the saved state of {name} was written by another version of numerate: these runs start over")

    def _restore(self, arrays: Any, meta: Any) -> None:
        for name in self._arrays:
            setattr(self, name, np.array(arrays[name]))
        for k in np.flatnonzero(self.restarts):
            self.stacks[k].restart(int(self.restarts[k]), int(self.since[k]) - 1)
        for k, stack in enumerate(self.stacks):
            own = {name.removeprefix(f"{k}/"): value for name, value in arrays.items() if name.startswith(f"{k}/")}
            stack.restore(own)
            self.best[k].copy_(torch.from_numpy(np.array(own["best"])))
        self.curves |= {name[6:]: list(np.array(v)) for name, v in arrays.items() if name.startswith("curve/")}
        self.log.restore(arrays)
        for name in (name for name in arrays if name.startswith("found/")):
            _, k, what = name.split("/", 2)
            self.found.setdefault(int(k), {})[what] = np.array(arrays[name])
        self.done, self.seconds_before = meta["step"], meta["seconds"]
        self.longest = meta.get("longest", 0.0)

    def _saved(self) -> dict[str, Any]:
        """All that a checkpoint holds but the curves and the log."""
        arrays: dict[str, Any] = {}
        for k, stack in enumerate(self.stacks):
            own = stack.arrays() | {"best": self.best[k].cpu().numpy()}
            arrays |= {f"{k}/{name}": value for name, value in own.items()}
        return arrays | {name: getattr(self, name) for name in self._arrays}

    @property
    def _arrays(self) -> list[str]:
        """Names of what is known of every run."""
        known = ["best_validation", "since_best", "until", "diverged"]
        return known if self.training.restart is None else [*known, "restarts", "since"]

    def _save(self) -> None:
        arrays = self._saved() | {f"curve/{name}": np.stack(values) for name, values in self.curves.items() if values}
        seconds = time.perf_counter() - self.started
        meta = {"step": self.done, "keys": self.keys, "seconds": seconds, "steps": self.training.steps}
        meta["longest"] = self.longest
        meta["experiment"] = self.experiment
        arrays |= {f"found/{k}/{name}": value for k, part in self.found.items() for name, value in part.items()}
        self.store.checkpoint(self.name, arrays | self.log.arrays(), meta)

    # Rows

    def _rows(self, seconds: float) -> list[Row]:
        curves = {name: np.stack(values, -1) for name, values in self.curves.items()}
        points = curves["validation"].shape[1]
        steps = np.minimum(np.arange(points, dtype=np.int64) * self.training.evaluate_every, self.training.steps)
        timing = {"group_seconds": seconds, "group_runs": float(len(self.runs))}
        provenance = Provenance.here(self.backend, timing, self.device)
        weights = self._weights()
        spelled: dict[int, tuple[Any, str]] = {}
        for run in self.runs:
            if id(run.training) not in spelled:
                description = run.training.description()
                spelled[id(run.training)] = description, canonical(description)
        rows = []
        for s, run in enumerate(self.runs):
            own = int(np.searchsorted(steps, self.until[s])) + 1 if self.over[s] else points
            mine = {name: values[s][:own] for name, values in curves.items()}
            description, text = spelled[id(run.training)]
            ended = int(self.diverged[s])
            row = Row(
                self.experiment,
                description,
                run.seed,
                labels=run.training.labels,
                status="finished" if ended < 0 else "diverged",
                stopped_at=None if ended < 0 else ended,
                reason="" if ended < 0 else self._reason(s, mine),
                curves=_thinned({"steps": steps[:own]} | mine),
                scores=self._scores(s, steps[:own], mine),
                weights=weights[s],
                provenance=provenance,
            )
            rows.append(row.spelled(text))
        return rows

    def _reason(self, s: int, curves: dict[str, np.ndarray]) -> str:
        norm, mean = self.log.last_norm[s], curves["gradient_norm"]
        usual = float(np.nanmedian(mean)) if np.isfinite(mean).any() else math.nan
        return f"a parameter is no longer finite: gradient norm {norm:.3g}, usually {usual:.3g}"

    def _scores(self, s: int, steps: np.ndarray, curves: dict[str, np.ndarray]) -> dict[str, float]:
        threshold = float(self.runs[s].training.task.threshold())
        best = int(best_points(curves["validation"]))
        below = np.flatnonzero(below_threshold(curves["test"], threshold))
        first = float(steps[below[0]]) if len(below) else math.nan
        scores = {
            "threshold": threshold,
            "best_step": float(steps[best]),
            "best_validation": float(curves["validation"][best]),
            "best_test": float(curves["test"][best]),
            "best_sparsity": float(curves["sparsity"][best]),
            "solved_at": float(self.log.solved[s]) if self.training.task.judged == "train" else first,
            "parameters": float(self.stacks[0].layout.count),
        }
        more = [name for name in curves if name.startswith(("test_", "validation_"))]
        scores |= {f"best_{name}": float(curves[name][best]) for name in more}
        if self.training.restart is not None:
            scores["restarts"] = float(self.restarts[s])
        if self.over[s] and self.diverged[s] < 0:
            scores["stopped_at"] = float(self.until[s])
        by_test = bool(below_threshold(scores["best_test"], threshold))
        solved = math.isfinite(scores["solved_at"]) if self.training.task.judged == "train" else by_test
        return scores | {"solved": float(solved)}

    def _weights(self) -> list[dict[str, dict[str, np.ndarray]]]:
        """Of every run: moment -> name -> values."""
        if not self.training.keeps_weights:
            return [{} for _ in self.runs]
        found: list[dict[str, dict[str, np.ndarray]]] = []
        for stack, best in zip(self.stacks, self.best):
            moments = {"final": stack.state.parameters, "best": best}
            if stack.layout.count > MOST_KEPT:
                del moments["final"]
            views = {moment: stack.layout.views(rows.cpu()) for moment, rows in moments.items()}
            for s in range(len(stack)):
                found.append(
                    {
                        moment: {name: v[s].cpu().numpy().copy() for name, v in (named | stack.fixed).items()}
                        for moment, named in views.items()
                    }
                )
        return [found[place] for place in self.places]


def _thinned(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """At most about MOST_POINTS points, the first and the last among them."""
    count = len(curves["steps"])
    every = max(1, -(-(count - 1) // MOST_POINTS))
    kept = np.unique([*range(0, count, every), count - 1])
    return {name: values[kept] for name, values in curves.items()}
