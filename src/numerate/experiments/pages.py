"""What experiments have in common when they show their runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numerate.experiments.experiment import Experiment, Options, Shown
from numerate.results import Row


def comparison_page(
    compare: Callable[[Sequence[Row], Options], Any],
) -> Callable[[Experiment, list[Row], Options, Path], Shown]:
    """The ``show`` of an experiment that compares runs with published numbers: page, pictures, table, summary."""

    def show(experiment: Experiment, rows: list[Row], options: Options, folder: Path) -> Shown:
        from numerate.report import Notes, environment, terminal_table, write_report

        compared = compare(rows, options)
        notes = Notes(
            subtitle=experiment.about,
            settings=settings(experiment, options, rows),
            environment=environment(rows),
            reasons=experiment.reasons,
            command=command(experiment, options),
        )
        written = write_report(compared, folder, notes)
        return Shown(written["report"], terminal_table(compared))

    return show


def command(experiment: Experiment, options: Options) -> str:
    """The command that makes this report."""
    words = ["numerate run", experiment.id, f"--size {options.size}"]
    if options.seeds is not None:
        words.append(f"--seeds {options.seeds}")
    if options.units is not None:
        words.append(f"--units {','.join(unit if isinstance(unit, str) else unit.__name__ for unit in options.units)}")
    if options.ranges is not None:
        words.append("--ranges '" + " ".join(f"[{low:g},{high:g})" for low, high in options.ranges) + "'")  # type: ignore[misc]
    return " ".join(words)


def settings(experiment: Experiment, options: Options, rows: Sequence[Row]) -> dict[str, str]:
    """Size, seeds, steps and the like, as one table."""
    trainings = experiment.trainings(options)
    diverged = sum(row.status == "diverged" for row in rows)

    def told(values: Sequence[Any]) -> str:
        return ", ".join(dict.fromkeys(f"{value:,}" if isinstance(value, int) else str(value) for value in values))

    return {
        "size": options.size,
        "seeds": told([len(t.seeds) for t in trainings]),
        "steps": told([t.steps for t in trainings]),
        "batch": told([t.batch for t in trainings]) + ", fresh at every step",
        "evaluated every": told([t.evaluate_every for t in trainings]) + " steps",
        "validation and test examples": told([t.evaluation_size for t in trainings]) + ", the same in every run",
        "optimiser": told([_optimiser(t.optimiser) for t in trainings]),
        "finished runs": f"{len(rows):,}, of which {diverged:,} diverged",
    }


def _optimiser(adam: Any) -> str:
    clipping = f" with gradients clipped by {adam.clip} at {adam.limit:g}" if adam.clip else ""
    return f"Adam {adam.rate:g}{clipping}"
