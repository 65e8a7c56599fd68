"""What experiments have in common when they show their runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numerate.experiments.experiment import Experiment, Options, Shown, unit_path
from numerate.results import Row
from numerate.train import Training

Show = Callable[[Experiment, list[Row], Options, Path], Shown]


def comparison_page(
    compare: Callable[[Sequence[Row], Options], Any],
    claims: Callable[[Any], Sequence[Any]] | None = None,
    pictures: Callable[[Sequence[Row], Options], Sequence[Any]] | None = None,
) -> Show:
    """The ``show`` of an experiment that compares runs with published numbers: page, pictures, table, summary.

    ``claims``: from the comparison to the paper's sentences and whether they hold (:class:`numerate.report.Claim`).
    ``pictures``: beside those that every comparison has (:class:`numerate.report.Picture`).
    """

    def show(experiment: Experiment, rows: list[Row], options: Options, folder: Path) -> Shown:
        from numerate.report import terminal_table, write_report

        compared = compare(rows, options)
        told = () if claims is None or options.size == "smoke" else claims(compared)  # too short to tell
        drawn = () if pictures is None else pictures(rows, options)
        notes = replace(_notes(experiment, rows, options, told), pictures=drawn)
        written = write_report(compared, folder, notes)
        return Shown(written["report"], _summary(terminal_table(compared), told, notes.size))

    return show


def picture_page(
    draw: Callable[[Sequence[Row], Options], Any],
    claims: Callable[[Sequence[Row], Options], Sequence[Any]] | None = None,
) -> Show:
    """The ``show`` of an experiment that is pictures, text and tables (:class:`numerate.report.Page`)."""

    def show(experiment: Experiment, rows: list[Row], options: Options, folder: Path) -> Shown:
        from numerate.report import write_page

        page = draw(rows, options)
        told = () if claims is None else claims(rows, options)
        written = write_page(page, folder, _notes(experiment, rows, options, told))
        return Shown(written["report"], _summary(page.headline, told))

    return show


def _notes(experiment: Experiment, rows: list[Row], options: Options, claims: Sequence[Any]) -> Any:
    from numerate.report import Notes, environment

    departures = unlike_paper(experiment, options)
    size = f"Size {options.size}: {', '.join(departures.values())}." if departures else ""
    return Notes(
        subtitle=experiment.about,
        settings=settings(experiment, options, rows),
        environment=environment(rows) if rows else {},
        reasons=[size, *experiment.reasons] if size else experiment.reasons,
        claims=claims,
        size=size,
        excuse=size if set(departures) - {"seeds"} else "",  # fewer seeds alone are allowed for by the tests
        command=command(experiment, options),
    )


def _summary(first: Any, claims: Sequence[Any], size: str = "") -> Any:
    """For the terminal: the result, then the paper's sentences."""
    from rich.console import Group
    from rich.text import Text

    styles = {True: "green", False: "bold red", None: "yellow"}
    lines = [Text.assemble((f"{c.word}: ", styles[c.holds]), f"{c.text} Ours: {c.ours}") for c in claims]
    shown = Text(first) if isinstance(first, str) else first
    return Group(*([shown] if first else []), *([Text(size, style="dim")] if size else []), *lines)


def unlike_paper(experiment: Experiment, options: Options) -> dict[str, str]:
    """How runs of this size differ from those at the published setting: ``steps`` -> '1,000 steps in place of 50,000'.

    Nothing at paper size, and nothing of what is the same.
    """
    if options.size == "paper":
        return {}
    sizes = options, replace(options, size="paper", seeds=None)
    ours, theirs = (experiment.trainings(each) for each in sizes)
    measures: dict[str, Callable[[Training], int]] = {
        "steps": lambda t: t.steps,
        "inputs": lambda t: t.task.inputs,
        "seeds": lambda t: len(t.seeds),
    }
    pairs = {name: (_told(map(of, ours)), _told(map(of, theirs))) for name, of in measures.items()}
    return {
        name: f"{one} {name[:-1] if one == '1' else name} in place of {other}"
        for name, (one, other) in pairs.items()
        if one != other
    }


def command(experiment: Experiment, options: Options) -> str:
    """The command that makes this report."""
    words = ["numerate run", experiment.id, f"--size {options.size}"]
    if options.seeds is not None:
        words.append(f"--seeds {options.seeds}")
    if options.units is not None:
        words.append(f"--units {','.join(map(unit_path, options.units))}")
    if options.ranges is not None:
        words.append("--ranges '" + " ".join(f"[{low:g},{high:g})" for low, high in options.ranges) + "'")  # type: ignore[misc]
    return " ".join(words)


def settings(experiment: Experiment, options: Options, rows: Sequence[Row]) -> dict[str, str]:
    """Size, seeds, steps and the like, as one table."""
    trainings = experiment.trainings(options)
    if not trainings:
        return {"size": options.size, "runs": "none: everything here follows from the definitions"}
    diverged = sum(row.status == "diverged" for row in rows)

    return {
        "size": options.size,
        "seeds": _told([len(t.seeds) for t in trainings]),
        "steps": _told([t.steps for t in trainings]),
        "batch": _told([t.batch for t in trainings]) + ", fresh at every step",
        "evaluated every": _told([t.evaluate_every for t in trainings]) + " steps",
        "validation and test examples": _told([t.evaluation_size for t in trainings]) + ", the same in every run",
        "optimiser": _told([_optimiser(t.optimiser) for t in trainings]),
        "finished runs": f"{len(rows):,}, of which {diverged:,} diverged",
    }


def _told(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(f"{value:,}" if isinstance(value, int) else str(value) for value in values))


def _optimiser(adam: Any) -> str:
    clipping = f" with gradients clipped by {adam.clip} at {adam.limit:g}" if adam.clip else ""
    return f"Adam {adam.rate:g}{clipping}"
