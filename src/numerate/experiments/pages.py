"""What experiments have in common when they show their runs."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numerate.experiments.experiment import Experiment, Options, Shown, unit_path
from numerate.published import show_range
from numerate.results import Key, Row
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
        notes, short = _notes(experiment, rows, options, told)
        compared, notes = replace(compared, title=compared.title + short), replace(notes, pictures=drawn)
        written = write_report(compared, folder, notes)
        return Shown(written["report"], _summary([terminal_table(compared)], notes))

    return show


def picture_page(
    draw: Callable[[Sequence[Row], Options], Any],
    claims: Callable[[Sequence[Row], Options], Sequence[Any]] | None = None,
    fewer: Mapping[str, Mapping[str, int]] | None = None,
) -> Show:
    """The ``show`` of an experiment that is pictures, text and tables (:class:`numerate.report.Page`).

    ``fewer``: what else a size has less of than the paper's, such as ``{"samples": {"smoke": 10, "paper": 1000}}``.
    """

    def show(experiment: Experiment, rows: list[Row], options: Options, folder: Path) -> Shown:
        from numerate.report import write_page

        page = draw(rows, options)
        told = () if claims is None else claims(rows, options)
        notes, short = _notes(experiment, rows, options, told, fewer or {})
        page = replace(page, title=page.title + short)
        written = write_page(page, folder, notes)
        return Shown(written["report"], _summary([*page.lines, page.headline], notes))

    return show


def _notes(
    experiment: Experiment,
    rows: list[Row],
    options: Options,
    claims: Sequence[Any],
    fewer: Mapping[str, Mapping[str, int]] | None = None,
) -> tuple[Any, str]:
    """What the page says beside its numbers, and what follows its title where the setting is not the published one."""
    from numerate.report import Notes, environment

    departures = unlike_paper(experiment, options, rows, fewer)
    size = f"Size {options.size}: {', '.join(map(str, departures))}." if departures else ""
    short = [each.short if len(each.ours) <= 2 else f"fewer {each.name}" for each in departures]
    short += (
        [f"only {', '.join(re.split(r'[:.]', unit_path(unit))[-1] for unit in options.units)}"] if options.units else []
    )
    short += [f"only {', '.join(map(show_range, options.ranges))}"] if options.ranges else []
    reasons = [*experiment.reasons, *(experiment.quick_reasons if options.size == "quick" else ())]
    notes = Notes(
        subtitle=experiment.about,
        settings=settings(experiment, options, rows),
        environment=environment(rows) if rows else {},
        reasons=[size, *reasons] if size else reasons,
        claims=claims,
        size=size,
        missing=missing(experiment.trainings(options), {row.key for row in rows}),
        # fewer seeds alone are allowed for by the tests
        excuse=size if any(each.name != "seeds" for each in departures) else "",
        command=command(experiment, options),
    )
    return notes, f" ({options.size}: {', '.join(short)})" if short else ""


def _summary(first: Sequence[Any], notes: Any) -> Any:
    """For the terminal: the result, what it lacks, then the paper's sentences."""
    from rich.console import Group
    from rich.text import Text

    styles = {True: "green", False: "bold red", None: "yellow"}
    lines = [Text.assemble((f"{c.word}: ", styles[c.holds]), f"{c.text} Ours: {c.ours}") for c in notes.claims]
    shown = [Text(part) if isinstance(part, str) else part for part in first if part]
    told = [Text(line, style=style) for line, style in ((notes.missing, "yellow"), (notes.size, "dim")) if line]
    return Group(*shown, *told, *lines)


@dataclass(frozen=True)
class Departure:
    """What runs have in place of what the published ones have."""

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]

    @property
    def short(self) -> str:
        """``1,000 steps``"""
        return f"{_either(self.ours)} {self.name[:-1] if self.ours == ('1',) else self.name}"

    def __str__(self) -> str:
        return f"{self.short} in place of {_either(self.theirs)}"


def _either(values: Sequence[str]) -> str:
    """2, 10 or 100"""
    return " or ".join([*filter(None, [", ".join(values[:-1])]), values[-1]])


def unlike_paper(
    experiment: Experiment,
    options: Options,
    rows: Sequence[Row],
    fewer: Mapping[str, Mapping[str, int]] | None = None,
) -> list[Departure]:
    """How the runs that are there differ from those of the published setting, in steps, inputs, seeds and ``fewer``.

    Nothing of what is the same, and nothing of configurations without a run, which :func:`missing` names.
    """
    found = _found(experiment.trainings(options), rows)
    published = experiment.trainings(replace(options, size="paper", seeds=None))
    named, ours = ({repr(t.labels): t for t in some} for some in (published, experiment.trainings(options)))
    pairs = [(t, named[repr(t.labels)]) for t, _ in found if repr(t.labels) in named]
    others = [t for t, _ in found if repr(t.labels) not in named], [t for name, t in named.items() if name not in ours]
    measures: dict[str, Callable[[Training], int | str]] = {
        "steps": lambda t: t.steps, "inputs": lambda t: t.task.inputs, "time steps": _lengths
    }  # fmt: skip
    told: dict[str, tuple[list[Any], list[Any]]] = {
        "seeds": ([count for _, count in found], [len(t.seeds) for t in published])
    }
    told |= {name: ([sizes[options.size]], [sizes["paper"]]) for name, sizes in (fewer or {}).items()}
    for name, of in measures.items() if options.size != "paper" else ():
        unlike = [(of(t), of(partner)) for t, partner in pairs if of(t) != of(partner)]
        single = [[of(t) for t in some] for some in others] if others[0] else [[], []]
        told[name] = [a for a, _ in unlike] + single[0], [b for _, b in unlike] + single[1]
    order = [*measures, "seeds", *(fewer or {})]
    departures = [Departure(name, *map(_each, told[name])) for name in order if name in told]
    return [each for each in departures if each.ours and each.ours != each.theirs]


def _lengths(training: Training) -> str:
    """Lengths of the sequences in training and test, where the task has any."""
    task: Any = training.task
    return f"{task.length:,} and {task.test_length:,}" if hasattr(task, "test_length") else ""


def _found(trainings: Sequence[Training], rows: Sequence[Row]) -> list[tuple[Training, int]]:
    """Configurations of which runs are there, and how many."""
    there = {row.key for row in rows}
    counted = [(training, sum(key in there for key in training.run_keys())) for training in trainings]
    return [(training, count) for training, count in counted if count]


def missing(trainings: Sequence[Training], there: Collection[Key]) -> str:
    """How many of the runs asked for are there, and which are not; nothing if all are.

    They are named by as few values of a label as cover them, and by seeds, of which no run is there.
    """
    from numerate.report.text import counted

    asked = {key: training.labels for training in trainings for key in training.run_keys()}
    left = {key: labels for key, labels in asked.items() if key not in there}
    if not left:
        return ""
    told = f"{len(asked) - len(left):,} of {len(asked):,} runs are there; missing: "
    seeds = {key.seed for key in left} - {key.seed for key in asked if key in there}
    all_seeds = "seed", _seeds(sorted(seeds))
    present = {(name, str(value)) for key in asked if key in there for name, value in asked[key].items()}
    parts: dict[str, list[str]] = {}
    while left:
        absent: dict[tuple[str, str], list[Key]] = {}
        for key, labels in left.items():
            facts = [(name, _label(value)) for name, value in labels.items() if (name, str(value)) not in present]
            for fact in [*facts, all_seeds] if key.seed in seeds else facts:
                absent.setdefault(fact, []).append(key)
        if not absent:
            break
        name, value = max(absent, key=lambda fact: len(absent[fact]))
        parts.setdefault(name, []).append(value)
        named = set(absent[name, value])
        left = {key: labels for key, labels in left.items() if key not in named}
    words = [f"{name} {', '.join(values)}" for name, values in parts.items()]
    return told + "; ".join([*words, *([counted(len(left), "single run")] if left else [])]) + "."


def _label(value: Any) -> str:
    if isinstance(value, tuple):
        return show_range(value)
    return f"“{value}”" if "," in str(value) else str(value)


def _seeds(seeds: Sequence[int]) -> str:
    """1, 3 or 1 to 24 or 1 to 49, 25 of them"""
    if len(seeds) < 3:
        return ", ".join(map(str, seeds))
    some = "" if seeds[-1] - seeds[0] == len(seeds) - 1 else f", {len(seeds)} of them"
    return f"{seeds[0]} to {seeds[-1]}{some}"


def command(experiment: Experiment, options: Options) -> str:
    """The command that makes this report."""
    words = ["numerate run", experiment.id, f"--size {options.size}"]
    if options.seeds is not None:
        words.append(f"--seeds {options.seeds}")
    if options.units is not None:
        words.append(f"--units {shlex.quote(','.join(map(unit_path, options.units)))}")
    if options.ranges is not None:
        words.append("--ranges '" + " ".join(f"[{low:g},{high:g})" for low, high in options.ranges) + "'")  # type: ignore[misc]
    return " ".join(words)


def settings(experiment: Experiment, options: Options, rows: Sequence[Row]) -> dict[str, str]:
    """Size, seeds, steps and the like of the runs that are there, as one table."""
    if not rows:
        return {"size": options.size, "runs": "none: everything here follows from the definitions"}
    found = _found(experiment.trainings(options), rows)
    trainings = [training for training, _ in found]
    finished = len({row.key for row in rows})
    diverged = len({row.key for row in rows if row.status == "diverged"})
    return {
        "size": options.size,
        "seeds": _told([count for _, count in found]),
        "steps": _told([t.steps for t in trainings]),
        "batch": _told([t.batch for t in trainings]) + ", fresh at every step",
        "evaluated every": _told([t.evaluate_every for t in trainings]) + " steps",
        "validation and test examples": _told([t.evaluation_size for t in trainings]) + ", the same in every run",
        "optimiser": _told([_optimiser(t.optimiser) for t in trainings]),
        **({"a unit of your own is": experiment.own} if options.own_units else {}),
        "finished runs": f"{finished:,}, of which {diverged:,} diverged",
    }


def _told(values: Iterable[Any]) -> str:
    return ", ".join(_each(values))


def _each(values: Iterable[Any]) -> tuple[str, ...]:
    """Each value once as text, numbers by their size."""
    each = list(dict.fromkeys(values))
    if all(isinstance(value, int) for value in each):
        return tuple(f"{value:,}" for value in sorted(each))
    return tuple(map(str, each))


def _optimiser(adam: Any) -> str:
    clipping = f" with gradients clipped by {adam.clip} at {adam.limit:g}" if adam.clip else ""
    return f"Adam {adam.rate:g}{clipping}"
