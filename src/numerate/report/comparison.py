"""Ours beside theirs: one cell per group of runs, with the published numbers for the same labels and a verdict."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from numerate.labels import printable
from numerate.published import Published, printed_name, show_range
from numerate.report import text
from numerate.report.metrics import ARITHMETIC, Measured, Metric, arithmetic
from numerate.results import Row, canonical
from numerate.stats import Agreement, Estimate, Verdict, rank_agreement, verdicts

Place = tuple[str, str, Any]
"""(panel, series, x)"""
UNTESTED = Verdict("not published")
TESTED = ("agrees", "differs", "too few runs")
ORDER_WORDS = ("same order", "no clear order", "other order", "too few")
OPERATIONS = {
    "add": "Addition", "sub": "Subtraction", "mul": "Multiplication", "div": "Division", "square": "Square",
    "sqrt": "Square root",
}  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where a run, and a published number, stands in table and picture, and what the parts of these are called.

    Args:
        panel: label of a run that names its panel.
        series: label that names its series.
        x: label that places it along the x axis.
        panels: order of the panels; what it leaves out follows, as in the published table. So for the next two.
        order: order of the series.
        xs: order of the values of x; the others follow by size, a range by its middle.
        match: published number -> the (panel, series, x) it belongs to.
        x_title: title of the x axis.
        x_titles: panel -> title of its x axis, where that is another.
        panel_titles: panel -> its title, where that is not its name.
        joined: whether pictures join the marks of a series: for an x that is a quantity, not a kind.
    """

    panel: str = "operation"
    series: str = "unit"
    x: str = "range"
    panels: Sequence[str] = ()
    order: Sequence[str] = ()
    xs: Sequence[Any] = ()
    match: Callable[[Published], Place] = lambda cell: (cell.op, cell.model, cell.range)
    x_title: str = "Training range"
    x_titles: Mapping[str, str] = field(default_factory=dict)
    panel_titles: Mapping[str, str] = field(default_factory=dict)
    joined: bool = False

    def place(self, row: Row) -> Place:
        """Where a run stands. Raises ValueError if it lacks one of the labels."""
        labels = (self.panel, self.series, self.x)
        if absent := [label for label in labels if label not in row.labels]:
            raise ValueError(
                f"runs are grouped by their labels {self.panel}, {self.series} and {self.x}, and the run "
                f"{row.key.name} has no {absent[0]}; give a Training such labels, name others, or leave the run out"
            )
        return _place(*(row.labels[label] for label in labels))

    def sorted(self, ours: Iterable[Place], theirs: Iterable[Place]) -> tuple[tuple[Any, ...], ...]:
        """The panels, series and xs of our cells, each in its order."""
        panels, series, xs = map(dict.fromkeys, zip(*ours)) if (ours := list(ours)) else ({}, {}, {})
        published_panels, published_series = ([place[i] for place in theirs] for i in (0, 1))
        return (
            _ordered(panels, self.panels, published_panels),
            _ordered(series, map(series_name, self.order), published_series),
            _ordered(xs, map(_frozen, self.xs), sorted(xs, key=_middle)),
        )


@dataclass(frozen=True)
class PublishedTest:
    """How our numbers are tested against the published ones; not at all if the runs are of another setting.

    Args:
        of: success ``rates`` by cell, the order of ``series`` in each column or of ``x`` in each series; None: nothing.
        level: largest p- or q-value that counts as a difference or an order.
        beside: series that are shown and take no part in an order.
    """

    of: Literal["rates", "series", "x"] | None = "rates"
    level: float = 0.05
    beside: Sequence[str] = ()


@dataclass(frozen=True)
class Cell:
    """One place of the table: which panel, series and x; what we measured, what was published, and the verdict."""

    panel: str
    series: str
    x: Any
    measured: Measured
    theirs: Mapping[str, Published]
    verdict: Verdict = UNTESTED
    note: str = ""

    def published(self, metric: str) -> Estimate | None:
        """The printed number as an estimate; None where nothing was printed."""
        cell = self.theirs.get(metric)
        if cell is None or cell.value is None:
            return None
        return Estimate(cell.value, cell.low, cell.high, cell.n or 0, "as printed", cell.qualifier)

    def comparable(self, metric: str) -> Estimate | None:
        """Our estimate by the method of the published number."""
        return self.measured.reproduced.get(metric) or self.measured.ours.get(metric)


@dataclass(frozen=True)
class Order:
    """Cells that share a panel and an x (or a series): is their order by one metric the published one?

    ``ours`` and ``theirs`` name those that reach the metric's target.
    """

    panel: str
    at: Any
    metric: Metric
    agreement: Agreement
    ours: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """All cells of an experiment, in the order in which tables and pictures show them.

    Args:
        title: of the report.
        cells: with their verdicts.
        panels: in order; likewise ``series`` and ``xs``.
        metrics: the first one leads: it is tested, and the terminal shows it.
        layout: titles and axes.
        test: by which the verdicts were found.
        orders: one for each column and metric, where the test is of orders.
        rows: the runs.
    """

    title: str
    cells: tuple[Cell, ...]
    panels: tuple[str, ...]
    series: tuple[str, ...]
    xs: tuple[Any, ...]
    metrics: tuple[Metric, ...] = ARITHMETIC
    layout: Layout = Layout()
    test: PublishedTest = PublishedTest()
    orders: tuple[Order, ...] = ()
    rows: tuple[Row, ...] = field(default=(), repr=False, compare=False)

    def of(self, panel: str, series: str | None = None) -> list[Cell]:
        """The cells of one panel (and series)."""
        return [cell for cell in self.cells if cell.panel == panel and series in (None, cell.series)]

    def xs_of(self, panel: str) -> tuple[Any, ...]:
        """The values of x that one panel has."""
        present = {cell.x for cell in self.of(panel)}
        return tuple(x for x in self.xs if x in present)

    def panel_title(self, panel: str) -> str:
        return self.layout.panel_titles.get(panel, OPERATIONS.get(panel, panel))

    def x_title(self, panel: str) -> str:
        return self.layout.x_titles.get(panel, self.layout.x_title)

    @property
    def published(self) -> bool:
        """Whether any cell has a published number of the first measure."""
        return any(cell.published(self.lead.name) for cell in self.cells)

    @property
    def has_intervals(self) -> bool:
        return any(estimate.low is not None for cell in self.cells for estimate in cell.measured.ours.values())

    @property
    def has_reproduced(self) -> bool:
        """Whether a published estimator stands beside the true one."""
        return any(cell.measured.reproduced for cell in self.cells)

    def count(self, word: str) -> int:
        """How many cells have this verdict."""
        return sum(cell.verdict.word == word for cell in self.cells)

    @property
    def lead(self) -> Metric:
        """The measure that comes first."""
        return self.metrics[0]

    @property
    def tested(self) -> bool:
        """Whether success rates were tested against published ones."""
        return any(cell.verdict.word in TESTED for cell in self.cells)

    def headline(self) -> str:
        """The result in one sentence."""
        if self.orders:
            return _order_headline([order for order in self.orders if order.metric is self.lead])
        tested = [cell for cell in self.cells if cell.verdict.word in ("agrees", "differs")]
        if not tested and self.count("other setting"):
            return f"{text.counted(len(self.cells), 'cell')}; none is tested: the setting is not the published one."
        if not tested:
            return f"{text.counted(len(self.cells), 'cell')}; none can be tested against a published number."
        agree, differ = self.count("agrees"), self.count("differs")
        sentence = (
            f"{agree} of {text.counted(len(tested), 'cell')} agree with the published success rate, {differ} differ"
        )
        sentence += "s" if differ == 1 else ""
        rest = [
            f"{count} {'has' if count == 1 else 'have'} {what}"
            for word, what in (("too few runs", "too few runs to tell"), ("not published", "no published number"))
            if (count := self.count(word))
        ]
        return "; ".join([sentence, *rest]) + "."

    def test_sentence(self) -> str:
        """The test behind the verdicts."""
        level = text.percent(self.test.level)
        if self.orders:
            return (
                "Orders are compared, not decimals: Kendall's τ-b of ours and the published numbers, values beyond the "
                "printed precision being tied. The order is the same if τ is positive and the two-sided permutation "
                f"test has p ≤ {level}; there are too few if no outcome could have reached that."
            )
        return (
            "A cell differs if Boschloo's exact two-sided test of the two success counts, after Benjamini–Hochberg "
            f"control over all tested cells, has q ≤ {level}; it has too few runs if no outcome "
            "of that many runs could have differed."
        )


def comparison(
    rows: Iterable[Row],
    theirs: Iterable[Published] = (),
    *,
    title: str,
    layout: Layout = Layout(),  # noqa: B008 (frozen)
    test: PublishedTest = PublishedTest(),  # noqa: B008 (frozen)
    measure: Callable[[Sequence[Row]], Measured] = arithmetic,
    metrics: Sequence[Metric] = ARITHMETIC,
    notes: Mapping[Place, str] | None = None,
) -> Comparison:
    """Group runs by three of their labels, find the published numbers of each group, and test ours against them.

    Args:
        rows: finished runs.
        theirs: published numbers.
        title: of the report.
        layout: which labels place a run, in which order, and what they are called.
        test: what is tested.
        measure: runs of one cell -> what they achieved.
        metrics: those of ``measure`` to show; the first one leads.
        notes: (panel, series, x) -> what is known about that cell.
    """
    rows = tuple(rows)
    ours = _grouped(rows, layout)
    printed = _published(theirs, layout)
    panels, series, xs = layout.sorted(ours, printed)
    known = {_place(*place): note for place, note in (notes or {}).items()}
    places = [place for panel in panels for name in series for x in xs if (place := (panel, name, x)) in ours]
    cells = [Cell(*place, measure(ours[place]), printed.get(place, {}), note=known.get(place, "")) for place in places]
    orders = _orders([cell for cell in cells if cell.series not in test.beside], metrics, test)
    judged = _judged(cells, test)
    return Comparison(title, judged, panels, series, xs, tuple(metrics), layout, test, tuple(orders), rows)


def _grouped(rows: Iterable[Row], layout: Layout) -> dict[Place, list[Row]]:
    groups: dict[Place, list[Row]] = {}
    for row in rows:
        groups.setdefault(layout.place(row), []).append(row)
    return groups


def _published(theirs: Iterable[Published], layout: Layout) -> dict[Place, dict[str, Published]]:
    """Place -> metric -> published number."""
    places: dict[Place, dict[str, Published]] = {}
    for cell in theirs:
        places.setdefault(_place(*layout.match(cell)), {})[cell.metric] = cell
    return places


def _judged(cells: Sequence[Cell], test: PublishedTest) -> tuple[Cell, ...]:
    """The cells with their verdicts; one whose published numbers are not tested says why."""
    decided = [UNTESTED for _ in cells]
    if test.of == "rates":
        decided = verdicts([(_our_counts(cell), _their_counts(cell)) for cell in cells], test.level)
    # of rates that are published, "not tested" are those without counts
    untested = Verdict({None: "other setting", "rates": "not tested"}.get(test.of, "by order"))
    return tuple(
        replace(cell, verdict=untested if verdict == UNTESTED and cell.theirs else verdict)
        for cell, verdict in zip(cells, decided)
    )


def _orders(cells: Sequence[Cell], metrics: Sequence[Metric], test: PublishedTest) -> Iterator[Order]:
    if test.of not in ("series", "x"):
        return
    columns: dict[tuple[str, Any], list[Cell]] = {}
    for cell in cells:
        columns.setdefault((cell.panel, cell.x if test.of == "series" else cell.series), []).append(cell)
    for (panel, at), column in columns.items():
        for metric in metrics:
            names, ours, theirs = [], [], []
            for cell in column:
                mine, printed = cell.comparable(metric.name), cell.published(metric.name)
                if mine and printed and mine.value is not None and printed.value is not None:
                    names.append(cell.series if test.of == "series" else x_name(cell.x))
                    ours.append(metric.clipped(mine.value))
                    theirs.append(metric.clipped(printed.value))
            target = -math.inf if metric.target is None else metric.target
            right = [tuple(n for n, v in zip(names, values) if v < target) for values in (ours, theirs)]
            if names:
                yield Order(panel, at, metric, rank_agreement(ours, theirs, test.level), *right)


def _order_headline(orders: Sequence[Order]) -> str:
    if not orders:
        return "No order can be compared with a published one."
    agreements = [order.agreement for order in orders]
    if len(agreements) == 1:
        (one,) = agreements
        tau = "" if one.tau is None else f" (Kendall's τ {one.tau:.2f}, p {text.p_value(one.p)})"
        return f"Order of {one.n}, ours against the published one: {one.word}{tau}."
    words = [agreement.word for agreement in agreements]
    counts = [f"{words.count(word)} {word}" for word in ORDER_WORDS if word in words]
    taus = [agreement.tau for agreement in agreements if agreement.tau is not None and agreement.word != "too few"]
    middle = f"; Kendall's τ {statistics.median(taus):.2f} in the middle" if taus else ""
    return f"{len(agreements)} columns, order of ours against the published one: {', '.join(counts)}{middle}."


def series_name(name: Any) -> str:
    """A unit as tables show it: the papers' name for ours, anybody else's as it is."""
    return printable(printed_name(str(name)))


def x_name(x: Any) -> str:
    """A value of the x axis as text; a pair of numbers is a range."""
    if isinstance(x, tuple):
        try:
            return show_range(x)
        except (TypeError, ValueError, IndexError):  # a label of another kind
            return f"({', '.join(map(x_name, x))})"
    return f"{x:g}" if isinstance(x, float) else printable(x)


def _place(panel: Any, series: Any, x: Any) -> Place:
    return printable(panel), series_name(series), _frozen(x)


def _our_counts(cell: Cell) -> tuple[int, int]:
    return cell.measured.solved or 0, cell.measured.n


def _their_counts(cell: Cell) -> tuple[int, int] | None:
    rate = cell.theirs.get("success_rate")
    if cell.measured.solved is None or rate is None or rate.value is None or not rate.n:
        return None
    return round(rate.value * rate.n), rate.n


def _frozen(value: Any) -> Any:
    """A label as a key: from JSON it may come as a list of numbers; the published data has tuples of floats."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, Mapping):
        return canonical(value)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _middle(x: Any) -> tuple[float, str]:
    numbers = _flat(x)
    return (sum(numbers) / len(numbers) if numbers else math.inf, str(x))


def _flat(x: Any) -> list[float]:
    if isinstance(x, tuple):
        return [n for part in x for n in _flat(part)]
    return [float(x)] if isinstance(x, int | float) else []


def _ordered(present: Iterable[Any], first: Iterable[Any], then: Iterable[Any]) -> tuple[Any, ...]:
    """What is present, in the wanted order, then in the second one, then as it comes."""
    present = dict.fromkeys(present)
    return tuple(value for value in dict.fromkeys([*first, *then, *present]) if value in present)
