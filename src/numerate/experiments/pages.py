"""What experiments have in common when they show their runs."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from numerate.experiments.experiment import Options, ReportResult, Work
from numerate.experiments.unit_choice import join_units, listed, short_name
from numerate.labels import printable
from numerate.published import show_range
from numerate.results import Key, Row
from numerate.train import Adam, NetworkTraining, Training

if TYPE_CHECKING:  # a machine that only trains has no jinja2
    from rich.console import Group

    from numerate.report import Claim, Comparison, Notes, Page, Picture

Show = Callable[[Work, list[Row], Path], ReportResult]
Sizes = Mapping[str, Mapping[str, int]]
"""What else a size has less of than the paper's: ``{"samples": {"smoke": 10, "quick": 100, "paper": 1000}}``."""
Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class ComparisonPage:
    """The ``show`` of an experiment that compares runs with published numbers: page, pictures, table, summary.

    Args:
        compare: runs -> the comparison.
        claims: the comparison -> the paper's sentences and whether they hold; not asked at smoke size.
        pictures: to follow those that every comparison has.
        judged: sizes whose runs can tell whether a claim holds; at others the numbers stand without a verdict.
        prepare: runs -> what ``compare`` takes in their place: the same, tested once more with their stored weights.
    """

    compare: "Callable[[Sequence[Row], Options], Comparison]"
    claims: "Callable[[Comparison], Sequence[Claim]] | None" = None
    pictures: "Callable[[Work, Sequence[Row]], Sequence[Picture]] | None" = None
    judged: Collection[str] = ("quick", "paper")
    prepare: Callable[[Work, Sequence[Row]], Sequence[Row]] | None = None

    def __call__(self, work: Work, rows: list[Row], folder: Path) -> ReportResult:
        from numerate.report import terminal_table, write_report

        compared = self.compared(work, rows)
        notes, suffix = _notes(work, rows, self.claims_of(compared, work.options))
        notes = replace(notes, pictures=() if self.pictures is None else self.pictures(work, rows))
        compared = replace(compared, title=compared.title + suffix)
        return ReportResult(
            write_report(compared, folder, notes)["report"], _summary([terminal_table(compared)], notes)
        )

    def compared(self, work: Work, rows: Sequence[Row]) -> "Comparison":
        return self.compare(self.prepare(work, rows) if self.prepare else rows, work.options)

    def claims_of(self, compared: "Comparison", options: Options) -> "Sequence[Claim]":
        """The paper's sentences and whether they hold; none at smoke size, no verdicts at sizes that cannot tell."""
        said = () if self.claims is None or options.size == "smoke" else self.claims(compared)
        if options.size not in self.judged:
            return [replace(claim, holds=None) for claim in said]
        return without_refutations(said, options)


@dataclass(frozen=True)
class PicturePage(Generic[Prepared]):
    """The ``show`` of an experiment that is pictures, text and tables.

    Args:
        draw: runs -> the page.
        claims: runs -> the paper's sentences and whether they hold.
        fewer: see :data:`Sizes`; by the options, where it depends on them.
        prepare: runs -> what ``draw`` and ``claims`` take in their place, where both need what is expensive to compute.
    """

    draw: "Callable[[Prepared, Options], Page]"
    claims: "Callable[[Prepared, Options], Sequence[Claim]] | None" = None
    fewer: Sizes | Callable[[Options], Sizes] | None = None
    prepare: Callable[[Work, Sequence[Row]], Prepared] | None = None

    def __call__(self, work: Work, rows: list[Row], folder: Path) -> ReportResult:
        from numerate.report import write_page

        page, claims = self.drawn(work, rows)
        fewer = self.fewer(work.options) if callable(self.fewer) else self.fewer
        notes, suffix = _notes(work, rows, claims, fewer or {})
        page = replace(page, title=page.title + suffix)
        written = write_page(page, folder, notes)
        return ReportResult(written["report"], _summary([*page.lines, page.headline], notes))

    def drawn(self, work: Work, rows: Sequence[Row]) -> "tuple[Page, Sequence[Claim]]":
        """The page, and the paper's sentences."""
        prepared = self.prepare(work, rows) if self.prepare else cast("Prepared", rows)
        page = self.draw(prepared, work.options)
        return page, () if self.claims is None else without_refutations(
            self.claims(prepared, work.options), work.options
        )


comparison_page, picture_page = ComparisonPage, PicturePage


def _notes(work: Work, rows: list[Row], claims: "Sequence[Claim]", fewer: Sizes | None = None) -> "tuple[Notes, str]":
    """What the page says beside its numbers, and what follows its title where the setting is not the published one."""
    from numerate.report import Notes, environment

    experiment, options = work.experiment, work.options
    departures = unlike_paper(work, rows, fewer)
    size = f"Size {options.size}: {', '.join(map(str, departures))}." if departures else ""
    brief = [departure.brief for departure in departures]
    brief += [f"only {listed([short_name(unit) for unit in options.units])}"] if options.units else []
    brief += [f"only {', '.join(map(show_range, options.ranges))}"] if options.ranges else []
    brief += [f"only {'; '.join(options.tasks)}"] if options.tasks else []
    reasons = [*experiment.reasons, *(experiment.quick_reasons if options.size == "quick" else ())]
    notes = Notes(
        subtitle=experiment.about,
        settings=settings(work, rows),
        environment=environment(rows) if rows else {},
        reasons=[size, *reasons] if size else reasons,
        claims=claims,
        size=size,
        missing=" ".join(
            filter(None, (missing(work, {row.key for row in rows}), work.under_way and f"{work.under_way}."))
        ),
        # fewer seeds alone are allowed for by the tests
        excuse=size if any(departure.name != "seeds" for departure in departures) else "",
        command=command(work),
    )
    return notes, f" ({options.size}: {', '.join(brief)})" if brief else ""


def _summary(first: Sequence[Any], notes: "Notes") -> "Group":
    """For the terminal: the result, what it lacks, then the paper's sentences."""
    from rich.console import Group
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(printable(text), style=style)

    styles = {True: "green", False: "bold red", None: "yellow"}
    claims = [
        Text.assemble((f"{claim.word}: ", styles[claim.holds]), printable(f"{claim.text} Ours: {claim.ours}"))
        for claim in notes.claims
    ]
    lacking = [line(text, style) for text, style in ((notes.missing, "yellow"), (notes.size, "dim")) if text]
    return Group(*(line(part) if isinstance(part, str) else part for part in first if part), *lacking, *claims)


def without_refutations(claims: "Sequence[Claim]", options: Options) -> "Sequence[Claim]":
    """Runs that ``--steps`` has cut short may show what a paper says; they cannot show the contrary."""
    return claims if options.steps is None else [replace(claim, holds=claim.holds or None) for claim in claims]


@dataclass(frozen=True)
class Departure:
    """What our runs have in place of what the published ones have: values of ``name``, as text."""

    name: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]

    @property
    def brief(self) -> str:
        """For a title: ``1,000 steps``, or ``fewer steps`` if there are more than two values."""
        return self._values if len(self.ours) <= 2 else f"fewer {self.name}"

    @property
    def _values(self) -> str:
        return f"{_either(self.ours)} {self.name[:-1] if self.ours == ('1',) else self.name}"

    def __str__(self) -> str:
        return f"{self._values} in place of {_either(self.theirs)}"


def _either(values: Sequence[str]) -> str:
    """2, 10 or 100; of more than three numbers the smallest and the largest: 1,500 to 30,000"""
    if len(values) > 3 and all(value.replace(",", "").isdigit() for value in values):
        low, *_, high = sorted(values, key=lambda value: int(value.replace(",", "")))
        return f"{low} to {high}"
    return " or ".join([*filter(None, [", ".join(values[:-1])]), values[-1]])


def unlike_paper(work: Work, rows: Sequence[Row], fewer: Sizes | None = None) -> list[Departure]:
    """How the finished runs differ from those of the published setting, in steps, inputs, seeds and ``fewer``.

    Says nothing of what is the same, nor of configurations without a run, which :func:`missing` names.
    """
    finished, size, fewer = work.finished(rows), work.options.size, fewer or {}
    values: dict[str, tuple[list[Any], list[Any]]] = {name: ([], []) for name in MEASURES}
    if not work.options.as_published:
        values = {name: _unlike(measure, work, [t for t, _ in finished]) for name, measure in MEASURES.items()}
    values["seeds"] = [count for _, count in finished], [len(t.seeds) for t in work.published]
    values |= {name: ([sizes[size]], [sizes["paper"]]) for name, sizes in fewer.items()}
    departures = [Departure(name, _distinct(ours), _distinct(theirs)) for name, (ours, theirs) in values.items()]
    return [departure for departure in departures if departure.ours and departure.ours != departure.theirs]


def _unlike(
    measure: Callable[[Any], int | str], work: Work, finished: Sequence[Training | NetworkTraining]
) -> tuple[list[int | str], list[int | str]]:
    """A measure of our configurations and of the published ones of the same labels, where the two differ.

    Labels may themselves differ (``20 inputs``): what has no partner counts on its side.
    """
    partners, asked = ({repr(t.labels): t for t in some} for some in (work.published, work.trainings))
    pairs = [(measure(t), measure(partners[repr(t.labels)])) for t in finished if repr(t.labels) in partners]
    unlike = [(ours, theirs) for ours, theirs in pairs if ours != theirs]
    ours, theirs = [ours for ours, _ in unlike], [theirs for _, theirs in unlike]
    if single := [measure(t) for t in finished if repr(t.labels) not in partners]:
        ours += single
        theirs += [measure(t) for labels, t in partners.items() if labels not in asked]
    return ours, theirs


def _lengths(training: Training | NetworkTraining) -> str:
    """Lengths of the sequences in training and test, where the task has any."""
    task: Any = training.task
    if isinstance(training, NetworkTraining):
        return f"{task.length:,}" if hasattr(task, "length") else ""
    return f"{task.length:,} and {task.test_length:,}" if hasattr(task, "test_length") else ""


MEASURES: dict[str, Callable[[Any], int | str]] = {
    "steps": lambda training: training.steps,
    "inputs": lambda training: training.task.inputs,
    "time steps": _lengths,
}
"""In what a run may differ from a published one, beside the number of seeds."""


def missing(work: Work, finished: Collection[Key]) -> str:
    """How many of the runs asked for are finished, and which are not; nothing if all are.

    They are named by as few values of a label as cover them, and by seeds, of which no run is finished.
    """
    from numerate.report.text import counted

    asked = {key: training.labels for training, keys in zip(work.trainings, work.run_keys) for key in keys}
    left = {key: labels for key, labels in asked.items() if key not in finished}
    if not left:
        return ""
    count = f"{len(asked) - len(left):,} of {len(asked):,} runs are finished; missing: "
    seeds = {key.seed for key in left} - {key.seed for key in asked if key in finished}
    all_seeds = "seed", _seeds(sorted(seeds))
    present = {(name, str(value)) for key in asked if key in finished for name, value in asked[key].items()}
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
    return (
        count + "; ".join([*words, *([counted(len(left), "single run")] if left else [])]) + "." + _failed(work, asked)
    )


def _failed(work: Work, asked: Mapping[Key, Mapping[str, Any]]) -> str:
    """Which of the missing runs could not be trained, and why; the first few by name."""
    from numerate.report.text import counted

    if not work.failed:
        return ""
    told = [
        f"{' '.join(_label(value) for value in asked[key].values())}, seed {key.seed} ({why})"
        for key, why in list(work.failed.items())[:MOST_TOLD]
    ]
    more = [f"and {len(work.failed) - MOST_TOLD:,} more"] if len(work.failed) > MOST_TOLD else []
    return f" {counted(len(work.failed), 'run')} could not be trained: {'; '.join([*told, *more])}."


MOST_TOLD = 5
"""Failed runs that a report names."""


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


def command(work: Work) -> str:
    """The command that makes this report."""
    options = work.options
    words = ["numerate run", work.experiment.id, f"--size {options.size}"]
    if options.seeds is not None:
        words.append(f"--seeds {options.seeds}")
    if options.steps is not None:
        words.append(f"--steps {options.steps}")
    if options.units is not None:
        words.append(f"--units {shlex.quote(join_units(options.units, work.experiment.units))}")
    if options.ranges is not None:
        words.append("--ranges '" + " ".join(f"[{low:g},{high:g})" for low, high in options.ranges) + "'")  # type: ignore[misc]
    if options.tasks is not None:
        words.append(f"--tasks {shlex.quote('; '.join(options.tasks))}")
    return " ".join(words)


def settings(work: Work, rows: Sequence[Row]) -> dict[str, str]:
    """Size, seeds, steps and the like of the finished runs, as one table."""
    if not rows:
        return {"size": work.options.size, "runs": "none: everything here follows from the definitions"}
    finished = work.finished(rows)
    trainings = [training for training, _ in finished]
    runs = len({row.key for row in rows})
    diverged = len({row.key for row in rows if row.status == "diverged"})
    every = _listed(t.evaluate_every for t in trainings)
    return {
        "size": work.options.size,
        "seeds": _listed(count for _, count in finished),
        "steps": _listed(t.steps for t in trainings),
        **_batches(trainings),
        "evaluated every": f"{every} step{'' if every == '1' else 's'}",
        "optimiser": _listed(_optimiser(t.optimiser) for t in trainings),
        **({"a unit of your own is": work.experiment.own} if work.options.has_own_units else {}),
        "finished runs": f"{runs:,}, of which {diverged:,} diverged",
    }


def _batches(trainings: Sequence[Training | NetworkTraining]) -> dict[str, str]:
    """Where the examples of the arithmetic runs among them come from."""
    arithmetic = [training for training in trainings if isinstance(training, Training)]
    if not arithmetic:
        return {}
    return {
        "batch": _listed(t.batch for t in arithmetic) + ", fresh at every step",
        "validation and test examples": _listed(t.evaluation_size for t in arithmetic) + ", the same in every run",
    }


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(_distinct(values))


def _distinct(values: Iterable[Any]) -> tuple[str, ...]:
    """Each value once as text, numbers by their size."""
    once = [value for value in dict.fromkeys(values) if value != ""]
    if all(isinstance(value, int) for value in once):
        return tuple(f"{value:,}" for value in sorted(once))
    return tuple(map(str, once))


def _optimiser(adam: Adam) -> str:
    clipping = f" with gradients clipped by {adam.clip} at {adam.limit:g}" if adam.clip else ""
    return f"Adam {adam.rate:g}{clipping}"
