"""Run an experiment from Python: train what is missing, then write the report."""

from collections.abc import Callable
from pathlib import Path

from numerate.experiments.experiment import Experiment, Options, Shown, select
from numerate.results import Store
from numerate.train import Progress, train


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
    with Store(Path(out) / "results.sqlite") as store:
        work = chosen.trainings(options)
        train(
            work,
            store,
            experiment=chosen.id,
            backend=backend,
            device=device,
            threads=threads,
            progress=progress,
        )
        return _shown(chosen, store, options, Path(out))


def report(experiment: str | Experiment, options: Options | None = None, out: str | Path = "results") -> Shown:
    """Write the report of an experiment from the runs that are finished, without training."""
    chosen, options = _chosen(experiment), options or Options()
    with Store(Path(out) / "results.sqlite", readonly=True) as store:
        return _shown(chosen, store, options, Path(out))


def _chosen(experiment: str | Experiment) -> Experiment:
    return select([experiment])[0] if isinstance(experiment, str) else experiment


def _shown(experiment: Experiment, store: Store, options: Options, out: Path) -> Shown:
    keys = [key for training in experiment.trainings(options) for key in training.run_keys()]
    rows = experiment.rows_of(store.rows(keys=keys), options) if keys else []
    if keys and not rows:
        raise ValueError(
            f"no finished run of {experiment.id} at size {options.size}; run: numerate run {experiment.id}"
        )
    return experiment.show(experiment, rows, options, out / experiment.id)
