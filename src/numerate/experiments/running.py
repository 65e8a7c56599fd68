"""Run an experiment from Python: train what is missing, then write the report."""

import gc
import logging
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from threading import Thread

from numerate.experiments.experiment import Experiment, Options, Shown, select
from numerate.experiments.pages import command
from numerate.results import Row, Store
from numerate.train import Progress, train
from numerate.train.backends import check
from numerate.train.trainer import lacking

log = logging.getLogger("numerate")


def run(
    experiment: str | Experiment,
    options: Options | None = None,
    out: str | Path = "results",
    *,
    backend: str = "auto",
    device: str = "cpu",
    threads: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Shown:
    """Train what ``experiment`` needs and the results file in ``out`` does not hold yet; write its report there.

    A unit of your own is the class itself: ``run("primer2022/table11", Options(units=("NMU", MyUnit)))``.
    """
    chosen, options = _chosen(experiment), options or Options()
    work = chosen.work(options)
    check(backend, device, threads)
    Thread(target=import_module, args=["scipy.stats"]).start()  # the report's; training need not wait for it
    with _fewer_collections(), Store(Path(out) / "results.sqlite") as store:
        folder = _folder(chosen, out)
        train(
            work,
            store,
            experiment=chosen.id,
            backend=backend,
            device=device,
            threads=threads,
            progress=progress,
        )
        return _shown(chosen, store, options, folder, out)


def report(experiment: str | Experiment, options: Options | None = None, out: str | Path = "results") -> Shown:
    """Write the report of an experiment from the runs that are finished, without training."""
    chosen, options = _chosen(experiment), options or Options()
    with _fewer_collections(), Store(Path(out) / "results.sqlite", readonly=True) as store:
        return _shown(chosen, store, options, _folder(chosen, out), out)


def complete_size(experiment: Experiment, options: Options, out: str | Path = "results") -> str:
    """The largest size of which every run is there; ``quick`` if there is none."""
    with Store(Path(out) / "results.sqlite", readonly=True) as store:
        for size in ("paper", "quick", "smoke"):
            work = experiment.work(replace(options, size=size))
            keys = [key for training in work for key in training.run_keys()]
            if keys and not store.missing(keys):
                return size
    return "quick"


@contextmanager
def _fewer_collections() -> Iterator[None]:
    """Python looks for garbage whenever there are 700 more objects, through all of a report's million in the end."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 50_000) if before[0] else 0, *before[1:])  # 0: the user wants none
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _chosen(experiment: str | Experiment) -> Experiment:
    return select([experiment])[0] if isinstance(experiment, str) else experiment


def _folder(experiment: Experiment, out: str | Path) -> Path:
    """The folder of the report, made before anything is trained."""
    folder = Path(out) / experiment.id
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot make the folder {folder} for the report: {error.strerror}") from None
    return folder


def _shown(experiment: Experiment, store: Store, options: Options, folder: Path, out: str | Path) -> Shown:
    keys = [key for training in experiment.work(options) for key in training.run_keys()]
    rows = experiment.rows_of(store.rows(keys=keys, lenient=True), options) if keys else []
    if keys and not rows:
        needed = f"{command(experiment, options)} --out {shlex.quote(str(out))}"
        raise ValueError(f"no finished run of {experiment.id} at size {options.size}; run: {needed}")
    shown = _show_whole(experiment, rows, options, folder)
    return replace(shown, run=rows[0].key if rows else None)


def _show_whole(experiment: Experiment, rows: list[Row], options: Options, folder: Path) -> Shown:
    """The report of all rows; where that fails, of those that have all that a trained run has, with a notice."""
    try:
        return experiment.show(experiment, rows, options, folder)
    except (ValueError, TypeError, LookupError, ArithmeticError):
        whole = [row for row in rows if not lacking(row)]
        if not 0 < len(whole) < len(rows):
            raise
        for row in rows:
            if missing := lacking(row):
                log.warning("the run %s has no %s: the report leaves it out", row.key.name, ", ".join(missing))
        return experiment.show(experiment, whole, options, folder)
