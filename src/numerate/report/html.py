"""One self-contained HTML page: pictures, table with verdicts, settings, environment, known reasons for differences."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from numerate import __version__
from numerate.labels import file_names
from numerate.report import figures, tables, text
from numerate.report.comparison import Cell, Comparison, Order, x_name
from numerate.report.metrics import Metric
from numerate.stats import Estimate

PLURAL = {"agrees": "agree", "differs": "differ"}


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, what our numbers say about it, and whether it holds (None: they cannot tell)."""

    text: str
    ours: str
    holds: bool | None = None

    @property
    def word(self) -> str:
        return {True: "holds", False: "does not hold", None: "cannot be told"}[self.holds]

    @property
    def said(self) -> str:
        """The sentence without our test."""
        return self._parts[0]

    @property
    def test(self) -> str:
        """By what it is decided, where the text says so in brackets at its end."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str]:
        found = re.fullmatch(r"(.*?),? ?([(;]) ?our test: (.*)\)(\.?)", self.text, re.DOTALL)
        if found is None:
            return self.text, ""
        said, opened, test, dot = found.groups()
        return f"{said}{')' if opened == ';' else ''}{dot}", test


@dataclass(frozen=True)
class Picture:
    """A figure, the name of its files, and the sentence below it (also for those who cannot see it)."""

    name: str
    figure: Figure
    caption: str = ""

    @property
    def svg(self) -> str:
        return figures.svg(self.figure, text.attribute(self.caption or self.name))


@dataclass(frozen=True)
class Notes:
    """What a report says beside its numbers.

    Args:
        subtitle: one sentence below the title.
        settings: name -> value, as a list.
        environment: likewise.
        reasons: why our numbers may differ from the published ones.
        command: that makes this report.
        created: a date, printed as given; without it the page has none.
        claims: sentences of the paper.
        size: how the runs are fewer or shorter than the published ones.
        missing: which runs are missing, in full sentences.
        excuse: said of a cell that differs and has no note.
        pictures: to follow those that every comparison has.
    """

    subtitle: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    reasons: Sequence[str] = ()
    command: str = ""
    created: str = ""
    claims: Sequence[Claim] = ()
    size: str = ""
    missing: str = ""
    excuse: str = ""
    pictures: Sequence[Picture] = ()

    @property
    def verdict(self) -> str:
        """How many of the paper's claims hold; nothing if there are none. Those of our own are not counted."""
        theirs = [claim for claim in self.claims if not claim.text.startswith("(Ours)")]
        if len(theirs) < 2:
            return "".join(f"The paper's claim {claim.word}." for claim in theirs)
        words = [claim.word for claim in theirs]
        plural = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told"}
        counts = {word: words.count(word) for word in plural if word in words}
        told = [f"{n} {word if n == 1 else plural[word]}" for word, n in counts.items()]
        return f"Of the paper's {len(theirs)} claims {', '.join(told)}."


@dataclass(frozen=True)
class Figures:
    """The figures that every comparison has: one of each panel, and the map of all where there is one."""

    panels: dict[str, Figure]
    overview: Figure | None

    @classmethod
    def of(cls, comparison: Comparison) -> "Figures":
        panels = {panel: figures.figure(comparison, [panel]) for panel in comparison.panels}
        return cls(panels, figures.overview(comparison) if _has_map(comparison) else None)


def html(comparison: Comparison, notes: Notes | None = None, drawings: Figures | None = None) -> str:
    """The whole page as text; nothing is fetched from anywhere when it is opened."""
    drawings = drawings or Figures.of(comparison)
    return render(
        "report.html",
        comparison=comparison,
        notes=notes or Notes(),
        pictures=[
            (panel, comparison.panel_title(panel), figures.svg(fig, figures.describe(panel, comparison)))
            for panel, fig in drawings.panels.items()
        ],
        overview=_overview(comparison, drawings),
        groups=[(panel, comparison.panel_title(panel), _lines(comparison, panel)) for panel in comparison.panels],
        columns=_columns(comparison),
        orders=_orders(comparison),
        p_value=text.p_value,
        snapped=any(cell.measured.snapped is not None for cell in comparison.cells),
        single=any(cell.measured.starts_solved is not None for cell in comparison.cells),
        differing=[(cell, _line(comparison, cell)) for cell in comparison.cells if cell.verdict.word == "differs"],
        words=[
            (word, PLURAL.get(word, word), comparison.count(word)) for word in tables.STYLES if comparison.count(word)
        ],
    )


def render(template: str, **values: Any) -> str:
    """A template of ours with the style sheet inside."""
    loader = jinja2.PackageLoader("numerate.report")
    around = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = loader.get_source(around, "report.css")[0]
    return around.get_template(template).render(style=style, version=__version__, **values)


def write_html(
    comparison: Comparison, path: str | Path, notes: Notes | None = None, drawings: Figures | None = None
) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html(comparison, notes, drawings), encoding="utf-8")
    return path


def write_report(
    comparison: Comparison,
    folder: str | Path,
    notes: Notes | None = None,
    formats: Sequence[str] = ("png", "svg", "pdf"),
) -> dict[str, Path]:
    """Everything into one folder: ``report.html``, ``table.csv``, and each picture in each format; name -> path."""
    folder = Path(folder)
    drawings = Figures.of(comparison)
    written = {"report": write_html(comparison, folder / "report.html", notes, drawings)}
    written["table"] = tables.write_csv(comparison, folder / "table.csv")
    pictures = {picture.name: picture.figure for picture in (notes.pictures if notes else ())}
    if drawings.overview:
        pictures["overview"] = drawings.overview
    return (
        written | write_figures(drawings.panels, folder, formats, pictures) | write_figures(pictures, folder, formats)
    )


def write_figures(
    pictures: Mapping[str, Figure], folder: Path, formats: Sequence[str], taken: Iterable[str] = ()
) -> dict[str, Path]:
    """Each picture in each format, in a file of its own in ``folder``, none of them named like ``taken``."""
    return {
        f"{label}.{ending}": figures.save(pictures[label], folder / f"{name}.{ending}")
        for label, name in file_names(pictures, taken).items()
        for ending in formats
    }


def _overview(comparison: Comparison, drawings: Figures) -> str:
    label = f"{comparison.lead.title} of every cell, ours and published"
    return figures.svg(drawings.overview, label) if drawings.overview else ""


def _has_map(comparison: Comparison) -> bool:
    lead = comparison.lead
    return lead.shade is not None and any(lead.name in cell.measured.ours for cell in comparison.cells)


def _orders(comparison: Comparison) -> list[tuple[str, str, list[Order]]]:
    """(panel, column, one order for each metric)"""
    lines: dict[tuple[str, Any], list[Order]] = {}
    for order in comparison.orders:
        lines.setdefault((order.panel, order.at), []).append(order)
    return [(comparison.panel_title(panel), x_name(at), column) for (panel, at), column in lines.items()]


def _columns(comparison: Comparison) -> list[tuple[Metric, list[str]]]:
    """Metric -> titles of its columns: ours (and by the published estimator), published."""
    columns = []
    for metric in comparison.metrics:
        reproduced = any(metric.name in cell.measured.reproduced for cell in comparison.cells)
        published = any(metric.name in cell.theirs for cell in comparison.cells)
        names = [
            metric.true_name,
            *([metric.reproduced_name] if reproduced else []),
            *(["published"] if published else []),
        ]
        columns.append((metric, names))
    return columns


def _lines(comparison: Comparison, panel: str) -> list[dict[str, Any]]:
    return [_line(comparison, cell) for cell in comparison.of(panel)]


def _line(comparison: Comparison, cell: Cell) -> dict[str, Any]:
    """One line of the table, every number as (value, interval, what a pointer shows)."""
    measured = cell.measured
    groups = []
    for metric, names in _columns(comparison):
        shown = [(*_shown(measured.ours.get(metric.name), metric), "")]
        if metric.reproduced_name in names[1:]:
            again = measured.reproduced.get(metric.name)
            value = "–" if again is None or again.value is None else metric.show(again.value)
            shown.append((value, "", tables.interval(again, metric)))
        if "published" in names:
            shown.append((*_shown(cell.published(metric.name), metric), ""))
        groups.append((metric, shown))
    return {
        "series": cell.series,
        "x": x_name(cell.x).replace(" ", "\u00a0"),
        "panel": comparison.panel_title(cell.panel),
        "counts": "–" if measured.solved is None else f"{measured.solved}/{measured.n}",
        "snapped": None if measured.snapped is None else f"{measured.snapped}/{measured.n}",
        "gain": 0 if measured.snapped is None or measured.solved is None else measured.snapped - measured.solved,
        "single": None if measured.starts_solved is None else f"{measured.starts_solved}/{measured.starts}",
        "diverged": measured.diverged,
        "groups": groups,
        "word": cell.verdict.word,
        "kind": cell.verdict.word.replace(" ", "-"),
        "q": text.p_value(cell.verdict.q),
        "p": text.p_value(cell.verdict.p),
        "note": cell.note,
    }


def _shown(estimate: Estimate | None, metric: Metric) -> tuple[str, str]:
    """Value and interval as text."""
    value, bracket, rest = tables.interval(estimate, metric).partition(" [")
    if estimate is not None and estimate.value is not None:
        value = estimate.bound + metric.show(estimate.value)  # whole, also where the interval has the power of ten
    return value, f"[{rest}" if bracket else ""
