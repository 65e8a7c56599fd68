"""Run an experiment from Python: train what is missing, then write the report."""

import gc
import logging
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Thread

from numerate.cluster import How, open_engine, train_on
from numerate.data import files
from numerate.devices import kind_of, listed_devices
from numerate.experiments.catalogue import select
from numerate.experiments.experiment import SIZES, Experiment, Options, ReportResult, Work
from numerate.experiments.pages import command
from numerate.experiments.task_choice import UnknownTask
from numerate.results import Row, Store
from numerate.train import Progress, train
from numerate.train.backends import check
from numerate.train.trainer import lacking

log = logging.getLogger("numerate")
LEAST = 0.01
"""Seconds of training in any case: a call whose time is up before it trains makes one step."""


def run(
    experiment: str | Experiment,
    options: Options | None = None,
    out: str | Path = "results",
    *,
    backend: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    on: str | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    seconds: float | None = None,
) -> ReportResult:
    """Train what ``experiment`` needs and the results file in ``out`` does not hold yet; write its report there.

    A unit of your own is the class itself: ``run("primer2022/table11", Options(units=("NMU", MyUnit)))``. After
    ``seconds`` training stops; the same call goes on from there. ``on`` and ``workers`` are the command's ``--on`` and
    ``--workers``; ``cuda`` is every visible GPU, ``cuda:0,2`` these two.
    """
    how = {"backend": backend, "device": device, "threads": threads, "on": on, "workers": workers}
    return run_work(_work(experiment, options), out, **how, progress=progress, seconds=seconds)


def run_work(
    work: Work,
    out: str | Path,
    *,
    backend: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    on: str | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    seconds: float | None = None,
) -> ReportResult:
    """:func:`run` for a work list that is already made."""
    end = None if seconds is None else time.monotonic() + seconds
    if on is None:
        check(backend, device, threads)
    Thread(target=import_module, args=["scipy.stats"]).start()  # the report's; training need not wait for it
    with _fewer_collections(), Store(Path(out) / "results.sqlite") as store:
        _make_folder(work.experiment, out)  # before anything is trained
        engine = open_engine(on, device, threads, workers, Path(out) / "jobs")
        if engine is None:
            _check_data(work, store)
        left = None if end is None else max(end - time.monotonic(), LEAST)  # large data sets take some to check
        given = {"experiment": work.experiment.id, "progress": progress, "seconds": left}
        if engine is None:
            (place,) = listed_devices(device)
            train(work.trainings, store, **given, backend=backend, device=place, threads=threads)
        else:
            with closing(engine):
                how = How(backend, kind_of(device).name, threads or 1)
                train_on(engine, work.trainings, store, **given, how=how)
        return _write_report(work, store, out)


def _check_data(work: Work, store: Store) -> None:
    """Read the data sets of missing runs, where not all have the same: their own runs may come hours later.

    Raises DataError if a file is missing or damaged.
    """
    missing = {tuple(key) for key in store.missing(work.keys)}
    wanted = [t.task for t, keys in zip(work.trainings, work.run_keys) if any(tuple(key) in missing for key in keys)]
    found = {getattr(task, "data_set", None) for task in wanted}
    if len(found) > 1:
        for dataset in sorted((each for each in found if each), key=lambda each: each.name):
            files.check(dataset)


def report(experiment: str | Experiment, options: Options | None = None, out: str | Path = "results") -> ReportResult:
    """Write the report of an experiment from the runs that are finished, without training."""
    return report_work(_work(experiment, options), out)


def is_unfinished(work: Work, out: str | Path) -> bool:
    """Whether some of its runs are yet to be trained."""
    with Store(Path(out) / "results.sqlite") as store:
        return bool(work.keys) and len(store.missing(work.keys)) > 0


class Unfinished(ValueError):
    """There is nothing to report yet: no run is finished, and none has failed."""


def report_work(work: Work, out: str | Path) -> ReportResult:
    """:func:`report` for a work list that is already made."""
    with _fewer_collections(), Store(Path(out) / "results.sqlite", readonly=True) as store:
        return _write_report(work, store, out)


def complete_size(experiment: Experiment, options: Options, out: str | Path = "results") -> str:
    """The size of :func:`complete_work`."""
    return complete_work(experiment, options, out).options.size


def complete_work(experiment: Experiment, options: Options, out: str | Path = "results") -> Work:
    """The work of the largest size of which every run is finished.

    If there is none: of the first of quick, paper and smoke with a finished run; of quick if nothing is finished. Sizes
    without the tasks asked for do not count.
    """
    works: dict[str, Work] = {}
    begun: set[str] = set()
    unknown: list[UnknownTask] = []  # that of the paper's size first
    with Store(Path(out) / "results.sqlite", readonly=True) as store:
        for size in reversed(SIZES):
            try:
                works[size] = work = experiment.work(replace(options, size=size))
            except UnknownTask as error:
                unknown.append(error)
                continue
            missing = len(store.missing(work.keys))
            if work.keys and not missing:
                return work
            if missing < len(work.keys):
                begun.add(size)
    if not works:
        raise unknown[0]
    sizes = [size for size in ("quick", "paper", "smoke") if size in works]
    return works[next((size for size in sizes if size in begun), sizes[0])]


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """Python looks for garbage whenever there are 700 more objects, through all of a report's million in the end."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 50_000) if before[0] else 0, *before[1:])  # 0: the user wants none
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _work(experiment: str | Experiment, options: Options | None) -> Work:
    selected = select([experiment])[0] if isinstance(experiment, str) else experiment
    return selected.work(options or Options())


def _make_folder(experiment: Experiment, out: str | Path) -> Path:
    """The folder of the report."""
    folder = Path(out) / experiment.id
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {folder} for the report: {error.strerror}") from None
    return folder


def _write_report(work: Work, store: Store, out: str | Path) -> ReportResult:
    folder = _make_folder(work.experiment, out)
    work = replace(work, failed=store.failures(work.keys))
    rows = work.rows_of(store.rows(keys=work.keys, lenient=True)) if work.keys else []
    if work.keys and not rows:
        needed = f"{command(work)} --out {shlex.quote(str(out))}"
        under_way = _under_way(work, store)
        why = f" ({next(iter(work.failed.values()))})" if work.failed else ""
        place = f"{work.experiment.id} at size {work.options.size}{why}"
        kind = ValueError if work.failed else Unfinished
        raise kind(f"no finished run of {place}; {f'{under_way}; to go on' if under_way else 'run'}: {needed}")
    result = _show_complete(replace(work, under_way=_under_way(work, store)), rows, folder)
    return replace(result, run=rows[0].key if rows else None, failed=len(work.failed))


def _under_way(work: Work, store: Store) -> str:
    """How many unfinished runs have a saved state, and how far they are; nothing if there are none."""
    wanted = {tuple(key) for key in store.missing(work.keys)} if work.keys else set()
    done, steps = 0, 0
    runs = 0
    for name in store.checkpoints() if wanted else ():
        checkpoint = store.load_checkpoint(name)
        keys = [key for key in checkpoint.meta.get("keys", ()) if tuple(key) in wanted] if checkpoint else []
        if checkpoint and keys and "steps" in checkpoint.meta:
            runs += len(keys)
            done += checkpoint.meta["step"] * len(keys)
            steps += checkpoint.meta["steps"] * len(keys)
    if not runs:
        return ""
    are, their = ("is", "its") if runs == 1 else ("are", "their")
    return f"{runs:,} of the missing runs {are} under way, {done / steps:.0%} of {their} updates done"


def _show_complete(work: Work, rows: list[Row], folder: Path) -> ReportResult:
    """The report of all rows; where that fails, of those that have all that a trained run has, with a notice."""
    try:
        return work.experiment.show(work, rows, folder)
    except (ValueError, TypeError, LookupError, ArithmeticError):
        complete = [row for row in rows if not lacking(row)]
        if not 0 < len(complete) < len(rows):
            raise
        for row in rows:
            if absent := lacking(row):
                log.warning("the run %s has no %s: the report leaves it out", row.key.name, ", ".join(absent))
        return work.experiment.show(work, complete, folder)
