"""One run: what was asked, how it went, its weights, its formula, and the command that repeats it."""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import sympy

from numerate.discover import export
from numerate.experiments import Options, Work
from numerate.experiments.experiment import SIZES
from numerate.experiments.kinds import shown_kinds
from numerate.experiments.pages import command
from numerate.page.cells import Data, shown
from numerate.page.runs import curves, finite
from numerate.page.site import NotFound, Query, Site, Source
from numerate.report.single import WithoutFormula, brief, learnt_expression, outcome_text
from numerate.report.text import scientific
from numerate.results import Row
from numerate.train.identity import only_ours
from numerate.train.kinds import Maker, path_of

MOST_NUMBERS = 10_000
"""A larger weight is shown by its corner."""
MOST_OUTPUTS = 12
LONGEST_FORMULA = 3000
"""Characters; a longer formula is not typeset."""
MATHML = {
    "math",
    "mrow",
    "mi",
    "mn",
    "mo",
    "msub",
    "msup",
    "mfrac",
    "msqrt",
    "mroot",
    "mspace",
    "mfenced",
    "mtext",
    "msubsup",
}


def run(site: Site, query: Query, wait: bool = False) -> Data:
    """Everything that is stored of a run."""
    source = site.source(query)
    row = _find(site, query)
    formula = site.computing.get(("formula", row.digest), 0, lambda: typeset(row), wait=wait)
    key = f"{row.key.config}-{row.seed}"
    return {
        "title": f"Run {row.key.name}",
        "id": row.experiment,
        "key": key,
        "seed": row.seed,
        "labels": {name: shown(value, name) for name, value in row.labels.items()},
        "facts": list(_facts(row)),
        "config": row.config,
        "curves": curves(row),
        "threshold": finite(row.scores.get("threshold")),
        "weights": [
            weight
            for moment in ("best", "final")
            for name, values in row.weights.get(moment, {}).items()
            if (weight := _weight(f"{name}, {moment}", values))
        ],
        "formula": None if formula is None else formula.value or {"text": f"({formula.error})", "math": []},
        "pending": formula is None,
        "commands": list(_commands(site, row, source)),
    }


def _find(site: Site, query: Query) -> Row:
    named = re.fullmatch(r"([0-9a-f]{4,32})-([0-9]{1,18})", query.get("key"))
    if named is None:
        raise NotFound("a run is named by digits of its key, '-' and its seed, such as 3f2a5b-0")
    index = site.source(query).index
    found = index.find(named[1], int(named[2]))
    if len(found) != 1:
        raise NotFound(f"{len(found) or 'no'} runs are named {query.get('key')} in {index.path}")
    rows = index.whole_rows(found)
    if not rows:
        raise NotFound(f"the run {query.get('key')} in {index.path} is not as it was written")
    return rows[0]


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    around = row.provenance
    threshold = row.scores.get("threshold")
    judged = threshold is None or not np.isnan(threshold)
    yield "outcome", outcome_text(row) if judged else "not judged: the task has no criterion of success"
    yield "status", row.status + (f" at step {row.stopped_at}: {row.reason}" if row.reason else "")
    for score in sorted(name for name, value in row.scores.items() if name != "solved" and not np.isnan(value)):
        yield score.replace("_", " "), _number(row.scores[score])
    for setting in ("model", "task", "optimiser", "schedule", "penalties", "restart"):
        if row.config.get(setting):
            yield setting, brief(row.config[setting])
    for setting in ("steps", "batch"):
        if isinstance(row.config.get(setting), int):
            yield setting, f"{row.config[setting]:,}"
    yield "backend", around.backend
    yield "trained", around.created
    for name, value in {**around.versions, **around.hardware}.items():
        yield name, str(value)


def _number(value: float) -> str:
    """Steps and counts in full, errors as powers of ten."""
    return f"{value:,.0f}" if value >= 1 and value.is_integer() and value < 1e9 else scientific(value)


def _weight(name: str, values: Any) -> Data | None:
    """A weight as a matrix; what has more axes is laid out by its last."""
    array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    matrix = array.astype(float).reshape(-1, array.shape[-1])
    side = 100
    corner = matrix if matrix.size <= MOST_NUMBERS else matrix[:side, :side]
    lines = [[finite(value) for value in line] for line in corner.tolist()]
    return {"name": name, "shape": list(array.shape), "values": lines, "cut": corner.size < matrix.size}


def typeset(row: Row) -> Data:
    """The formula of the best weights as text and as MathML, in plain data; no code that the file names is run."""
    found = learnt_expression(row, Maker(shown_kinds()))
    if isinstance(found, WithoutFormula):  # of ours, a network; of somebody else's, the reason is of use
        return {"text": "" if only_ours(row.config.get("model")) else f"({found})", "math": []}
    lines: list[Any] = found.flat() if isinstance(found, sympy.MatrixBase) else [found]
    text = str(found)
    if len(text) > LONGEST_FORMULA or len(lines) > MOST_OUTPUTS:
        return {"text": text[: 10 * LONGEST_FORMULA], "math": []}
    names = ["y"] if len(lines) == 1 else [f"y{i + 1}" for i in range(len(lines))]
    return {"text": text, "math": [_tree(export.mathml(name, line)) for name, line in zip(names, lines)]}


def _tree(source: str) -> Any:
    """MathML as [name, text or children]: an element that is not of :data:`MATHML` becomes a plain row."""

    def plain(element: ElementTree.Element) -> list[Any]:
        name = element.tag if element.tag in MATHML else "mrow"
        return [name, [plain(part) for part in element] if len(element) else (element.text or "")]

    return plain(ElementTree.fromstring(source))


def _commands(site: Site, row: Row, source: Source) -> Iterator[Data]:
    """Commands that repeat a run, each tried against the keys it would train, and the one that shows it."""
    folder = source.folder.parent / f"{source.folder.name or 'results'}-again"  # where it is, it is found finished
    how = (" --device cuda" if _device(row).startswith("cuda") else "") + f" --out {shlex.quote(str(folder))}"
    if work := _repeats(site, row):
        yield {"text": f"Train it again, in another folder ({_trains(work)})", "command": command(work) + how}
    elif not only_ours(row.config.get("model")) and row.experiment in site.sizes.experiments:
        yield {
            "text": "Train the unit again, with its code at hand",
            "command": f"numerate run {row.experiment} --units {shlex.quote(path_of(row.config['model']))}{how}",
        }
    yield {"text": "Show it in the terminal", "command": f"numerate show {row.key.name}{source.out}"}


def _device(row: Row) -> str:
    return str(row.provenance.hardware.get("device", ""))


def _trains(work: Work) -> str:
    """What a command trains: it takes a number of seeds, and not one of them."""
    seeds, count = sorted({key.seed for key in work.keys}), len(work.keys)
    if len(seeds) == 1:
        return f"this trains seed {seeds[0]}" if count == 1 else f"this trains {count} runs of seed {seeds[0]}"
    runs = "" if count == len(seeds) else f", {count} runs"
    return f"this trains seeds {seeds[0]} to {seeds[-1]}{runs}"


def _repeats(site: Site, row: Row) -> Work | None:
    """The smallest work that has this run; None if there is none."""
    for id in dict.fromkeys([row.experiment, *site.sizes.experiments]):
        for size in SIZES:
            work = site.sizes.works.get((id, size))
            if work and any(row.key in keys for keys in work.run_keys):
                labels = next(t.labels for t, keys in zip(work.trainings, work.run_keys) if row.key in keys)
                return _narrowed(work.experiment, work.options, row, labels)
    return None


def _narrowed(experiment: Any, options: Options, row: Row, labels: Mapping[str, Any]) -> Work:
    """The work with as few seeds, units, ranges and tasks as still train this run."""
    work = experiment.work(options)
    wishes: list[dict[str, Any]] = [
        {"seeds": row.seed + 1},
        {"units": (labels.get("unit"),)},
        {"ranges": (labels.get("range"),)},
        {"tasks": (labels.get("task"),)},
    ]
    for wish in wishes:
        try:
            smaller = experiment.work(replace(work.options, **wish))
        except (ValueError, TypeError, AttributeError):
            continue
        if row.key in smaller.keys:
            work = smaller
    return work
