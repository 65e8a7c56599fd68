"""A stack of runs of equal form, from the first step or the last checkpoint to rows in the store."""

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from numerate.loops.step import Loop, State, Step, Tensors
from numerate.results import Checkpoint, Key, Provenance, Row, canonical
from numerate.results.outcome import choose_starts, read_off
from numerate.train import preflight, stack
from numerate.train.backends import choose, evaluator, first_sentence, notice
from numerate.train.progress import Reporter
from numerate.train.sink import RunSink, fits
from numerate.train.specification import Plateau, Restart, Training
from numerate.train.stack import Run
from numerate.units import sparsity_error

MEASURED_AT_ONCE = 8
"""Evaluations whose sparsity is computed together: launching the operations takes longer than computing them."""
BEST_OF_LAST = 5000
"""The best validation point is looked for among this many last evaluations, as the papers' scripts do; of a run that
restarts on a plateau among all, as its last start need not be its best."""
MOST_POINTS = 200
"""Longer curves are thinned before they are stored; what is read off them is computed from all points."""


class Group:
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
        self.backend, self.loop = cached_loop(self.training, self.step, backend, device, threads)
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
        self.points = self.training.steps // self.training.evaluate_every + 1
        self.eligible = BEST_OF_LAST
        if isinstance(rule := self.training.restart, Plateau):
            self.eligible = self.points
            self.good = rule.above * stack.errors_of_zero(self.step, len(self.each), *self.splits["validation"])
        self.measure_sparsity = stack.over_members(stack.of_parameters(self.model, sparsity_error))
        self.snap = stack.snapping(self.model)

    @property
    def label(self) -> str:
        return " ".join(str(v) for k, v in self.training.labels.items() if k != "range")

    def run(self, report: Reporter, checkpoint_seconds: float) -> Iterator[None]:
        """From the first step, or the last checkpoint, to rows in the store; pauses after every evaluation.

        When ``report.time_is_up()``, the state is saved and nothing more is done. Every call trains at least up to the
        next evaluation, so repeated short calls finish.
        """
        saved, trained = time.perf_counter(), False
        self._restore_or_start()
        self.started = saved - self.seconds_before
        report.resume(self.name, self.state.step * len(self.each))
        every, steps = self.training.evaluate_every, self.training.steps
        while True:
            if self.state.step // every == len(self.curves["validation"]):
                self._evaluate()
            if self.state.step == steps:
                break
            if trained and report.time_is_up():
                self._save()
                return
            if time.perf_counter() - saved >= checkpoint_seconds:
                self._save()
                saved = time.perf_counter()
                report.under_way[self.name] = self.state.step * len(self.each)
                report.show(self.label, self.backend)
            self._train(every)
            trained = True
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
        """Restart members that their last evaluations show to be stuck; Adam starts over with them."""
        rule = self.training.restart
        if not isinstance(rule, Plateau):
            return
        every = self.training.evaluate_every
        stuck = stack.stuck(rule, every, self._errors(), self.since, self.good)
        due = np.flatnonzero(stuck & (self.state.diverged.cpu().numpy() < 0)).tolist()
        if due:
            self._restart(due, at)
            for moments in (self.state.exp_avg, self.state.exp_avg_sq):
                for value in moments.values():
                    value[due] = 0.0

    def _errors(self) -> np.ndarray:
        """All validation errors, (S, points)."""
        done = self.curves["validation"]
        if self.copied < len(done):
            self.errors[:, self.copied : len(done)] = torch.stack(done[self.copied :], -1).double().cpu().numpy()
            self.copied = len(done)
        return self.errors[:, : len(done)]

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
        if len(self.unmeasured) == MEASURED_AT_ONCE:
            self._measure()
        if len(self.curves["validation"]) <= self.points - self.eligible:
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
        self._start()
        checkpoint = self.store.load_checkpoint(self.name)
        if checkpoint is None:
            return
        if fits(checkpoint.arrays, self._saved() | dict.fromkeys(f"curve/{name}" for name in self.curves)):
            self._restore(checkpoint)
        else:
            name = self.label or stack.shown_name(self.training)
            notice(f"the saved state of {name} was written by another version of numerate: these runs start over")

    def _start(self) -> None:
        count = len(self.each)
        self.unmeasured: list[Tensors] = []
        self.seconds_before = 0.0
        self.restarts, self.since = np.zeros(count, np.int64), np.zeros(count, np.int64)
        drawn = stack.initial_parameters(self.each, self._draws(range(count)))
        self.state = State.start({k: v.to(self.device) for k, v in drawn.items()})
        self.curves: dict[str, list[Tensor]] = {"validation": [], "test": [], "sparsity": []}
        self.best = {k: v.clone() for k, v in self.state.parameters.items()}
        self.best_validation = torch.full((count,), torch.inf, device=self.device)
        self.errors, self.copied = np.empty((count, self.points)), 0

    def _restore(self, checkpoint: Checkpoint) -> None:
        arrays = {name: torch.from_numpy(np.array(value)).to(self.device) for name, value in checkpoint.arrays.items()}

        def part(group: str, names: Iterable[str]) -> Tensors:
            return {name: arrays[f"{group}/{name}"] for name in names}

        names = self.step.parameters
        groups = part("parameters", names), part("first", names), part("second", names)
        self.state = State(*groups, arrays["diverged"], checkpoint.meta["step"])
        self.best, self.best_validation = part("best", names), arrays["best_validation"]
        self.curves = {name: list(values.unbind()) for name, values in part("curve", self.curves).items()}
        self.restarts, self.since = arrays["restarts"].cpu().numpy(), arrays["since"].cpu().numpy()
        self.seconds_before = float(checkpoint.meta.get("seconds", 0.0))

    def _saved(self) -> dict[str, np.ndarray]:
        """All that a checkpoint holds but the curves."""
        groups = {
            "parameters": self.state.parameters,
            "first": self.state.exp_avg,
            "second": self.state.exp_avg_sq,
            "best": self.best,
        }
        arrays = {f"{group}/{k}": v.cpu().numpy() for group, values in groups.items() for k, v in values.items()}
        arrays |= {"best_validation": self.best_validation.cpu().numpy(), "diverged": self.state.diverged.cpu().numpy()}
        return arrays | {"restarts": self.restarts, "since": self.since}

    def _save(self) -> None:
        self._measure()
        arrays = self._saved()
        arrays |= {f"curve/{name}": torch.stack(values).cpu().numpy() for name, values in self.curves.items()}
        seconds = time.perf_counter() - self.started
        meta = {"step": self.state.step, "keys": self.keys, "seconds": seconds, "experiment": self.experiment}
        self.store.checkpoint(self.name, arrays, meta)

    # Rows

    def _rows(self, seconds: float) -> list[Row]:
        self._measure()
        curves = {name: torch.stack(values, -1).float().cpu().numpy() for name, values in self.curves.items()}
        steps = np.arange(curves["validation"].shape[1], dtype=np.int64) * self.training.evaluate_every
        kept = slice(None, None, -(-(len(steps) - 1) // MOST_POINTS) or 1)
        thresholds = np.array([run.training.task.threshold() for run in self.runs]).repeat(self.starts)
        scores = self._snapped_scores() | read_off(steps, **curves, threshold=thresholds, last=self.eligible)
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


def cached_loop(
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
