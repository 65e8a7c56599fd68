"""Ours beside theirs: one cell per group of runs, with the published numbers for the same labels and a verdict."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from numerate.published import Published, printed_name, show_range
from numerate.report import text
from numerate.results import Provenance, Row
from numerate.stats import Agreement, Estimate, Outcome, Verdict, outcome, rank_agreement, summarise, verdicts


@dataclass(frozen=True)
class Metric:
    """One measure: its name in the published data, its title, how its axis and its numbers look.

    ``show`` writes a value, ``show_interval`` one with its interval in short, ``tick`` a mark on the axis.
    ``floor``: on a logarithmic axis everything below is drawn there and labelled 0; ``ceiling`` likewise above. Values
    beyond them count as equal when an order is compared. ``true_name`` and ``reproduced_name`` name the two estimators
    where the published one is not what it seems. ``brief`` writes a value in two or three signs, ``shade`` gives it a
    colour from 0 (bad) to 1 (good): with it the first metric is drawn as a map too. ``target``: below it a value is as
    good as right. ``meaning``: a sentence for the reader.
    """

    name: str
    title: str
    scale: Literal["linear", "log"] = "linear"
    limits: tuple[float, float] | None = None
    floor: float | None = None
    ceiling: float | None = None
    show: Callable[[float], str] = text.number
    show_interval: Callable[[float, float, float], str] | None = None
    tick: Callable[[float], str] = text.number
    true_name: str = "ours"
    reproduced_name: str = ""
    brief: Callable[[float], str] = text.brief
    brief_title: str = ""
    shade: Callable[[float], float] | None = None
    target: float | None = None
    meaning: str = ""

    def clipped(self, value: float) -> float:
        """``value`` moved to the floor or the ceiling if it lies beyond; not a number counts as infinite."""
        value = math.inf if math.isnan(value) else value
        low = -math.inf if self.floor is None else self.floor
        return min(max(value, low), math.inf if self.ceiling is None else self.ceiling)


SUCCESS = Metric(
    "success_rate", "Success rate", limits=(0.0, 1.0),
    show=text.percent, show_interval=text.percent_interval, tick=text.percent,
    brief=lambda rate: f"{100 * rate:.0f}", brief_title="success rate in %", shade=lambda rate: rate,
)  # fmt: skip
SOLVED_AT = Metric(
    "solved_at_mean", "Solved at step", "log", floor=100.0, show=text.thousands, tick=text.thousands_tick,
    true_name="true mean", reproduced_name="as published",
)  # fmt: skip
SPARSITY = Metric(
    "sparsity_error_mean", "Sparsity error", "log", floor=1e-8, show=text.scientific,
    show_interval=text.scientific_interval, tick=text.power,
    true_name="true mean", reproduced_name="as published",
)  # fmt: skip
ARITHMETIC = (SUCCESS, SOLVED_AT, SPARSITY)
"""The three measures of the arithmetic papers."""


@dataclass(frozen=True)
class Measured:
    """What a group of runs achieved: ``ours`` by true estimators, ``reproduced`` by the published ones; by metric."""

    n: int
    ours: Mapping[str, Estimate]
    reproduced: Mapping[str, Estimate] = field(default_factory=dict)
    solved: int | None = None
    snapped: int | None = None
    diverged: int = 0


UNTESTED = Verdict("not published")
TESTED = ("agrees", "differs", "too few runs")
ORDER_WORDS = ("same order", "no clear order", "other order", "too few")


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
    """All cells of an experiment, in the order in which tables and pictures show them."""

    title: str
    cells: tuple[Cell, ...]
    panels: tuple[str, ...]
    series: tuple[str, ...]
    xs: tuple[Any, ...]
    metrics: tuple[Metric, ...] = ARITHMETIC
    level: float = 0.05
    x_title: str = "Training range"
    panel_titles: Mapping[str, str] = field(default_factory=dict)
    x_titles: Mapping[str, str] = field(default_factory=dict)
    """Panel -> title of its x axis, where it is not ``x_title``."""
    joined: bool = False
    """Whether pictures join the marks of a series: for an x that is a quantity, not a kind."""
    orders: tuple[Order, ...] = ()
    """Where not success rates are tested but orders: one for each column and metric."""

    def of(self, panel: str, series: str | None = None) -> list[Cell]:
        """The cells of one panel (and series)."""
        return [cell for cell in self.cells if cell.panel == panel and series in (None, cell.series)]

    def xs_of(self, panel: str) -> tuple[Any, ...]:
        """The values of x that one panel has."""
        there = {cell.x for cell in self.of(panel)}
        return tuple(x for x in self.xs if x in there)

    def panel_title(self, panel: str) -> str:
        return self.panel_titles.get(panel, OPERATIONS.get(panel, panel))

    @property
    def published(self) -> bool:
        """Whether any cell has a published number of the first measure."""
        return any(cell.published(self.lead.name) for cell in self.cells)

    @property
    def has_intervals(self) -> bool:
        return any(found.low is not None for cell in self.cells for found in cell.measured.ours.values())

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
        if self.orders:
            return (
                "Orders are compared, not decimals: Kendall's τ-b of ours and the published numbers, values beyond the "
                "printed precision being tied. The order is the same if τ is positive and the two-sided permutation "
                f"test has p ≤ {text.percent(self.level)}; there are too few if no outcome could have reached that."
            )
        return (
            "A cell differs if Boschloo's exact two-sided test of the two success counts, after Benjamini–Hochberg "
            f"control over all tested cells, has q ≤ {text.percent(self.level)}; it has too few runs if no outcome "
            "of that many runs could have differed."
        )


MEASURED = ("steps", "validation", "test", "sparsity")
OPERATIONS = {
    "add": "Addition", "sub": "Subtraction", "mul": "Multiplication", "div": "Division", "square": "Square",
    "sqrt": "Square root",
}  # fmt: skip


def judge(row: Row, last: int | None = None) -> Outcome:
    """One stored run by the rules of the arithmetic papers, and once more with its weights rounded.

    The trainer reads success, solved-at and sparsity off the whole curves and keeps them as scores; a row without them,
    or another choice of ``last``, is judged by its stored curves.
    """
    scores, diverged = row.scores, row.status == "diverged"
    if last is None and "best_test" in scores:
        at, sparsity = scores.get("solved_at", math.nan), scores.get("best_sparsity", math.nan)
        found = Outcome(scores["best_test"] < row.threshold, None if math.isnan(at) else int(at), sparsity)
    else:
        steps, validation, test, sparsity = (row.curves.get(name, ()) for name in MEASURED)
        found = outcome(steps, validation, test, sparsity, row.threshold, last=last)
    return replace(found, snapped=_snapped(row, found.solved), diverged=diverged)


def _snapped(row: Row, solved: bool) -> bool | None:
    """Success with rounded weights where the validation error allows them, else without; None if never tried."""
    scores = row.scores
    if "snapped_test" not in scores:
        return None
    kept = "snapped_validation" not in scores or scores["snapped_validation"] <= scores["best_validation"]
    return scores["snapped_test"] < row.threshold if kept else solved


def arithmetic(rows: Sequence[Row], last: int | None = None) -> Measured:
    """Success, solved-at and sparsity of a group, by the true and the published estimators."""
    found = summarise([judge(row, last) for row in rows])
    ours = {"success_rate": found.success, "solved_at_mean": found.solved_at, "sparsity_error_mean": found.sparsity}
    if found.snapped is not None:
        ours["snapped_rate"] = found.snapped
    ours["solved_at_median"] = Estimate(found.solved_at_median, n=found.solved, how="median")
    reproduced = {"solved_at_mean": found.solved_at_published, "sparsity_error_mean": found.sparsity_published}
    return Measured(found.n, ours, reproduced, found.solved, found.snapped_solved, found.diverged)


def comparison(
    rows: Iterable[Row],
    theirs: Iterable[Published] = (),
    *,
    title: str,
    panel: str = "operation",
    series: str = "unit",
    x: str = "range",
    panels: Sequence[str] | None = None,
    order: Sequence[str] | None = None,
    xs: Sequence[Any] | None = None,
    measure: Callable[[Sequence[Row]], Measured] = arithmetic,
    metrics: Sequence[Metric] = ARITHMETIC,
    match: Callable[[Published], tuple[str, str, Any]] = lambda cell: (cell.op, cell.model, cell.range),
    notes: Mapping[tuple[str, str, Any], str] | None = None,
    level: float = 0.05,
    x_title: str = "Training range",
    panel_titles: Mapping[str, str] | None = None,
    x_titles: Mapping[str, str] | None = None,
    joined: bool = False,
    along: Literal["series", "x"] | None = None,
    beside: Sequence[str] = (),
    other_setting: bool = False,
) -> Comparison:
    """Group runs by three of their labels, find the published numbers of each group, and test the success rates.

    ``panels``, ``order`` and ``xs`` fix the order of panels, series and x; what they leave out follows (by default the
    order of the published table, ranges by their middle). ``match`` says to which (panel, series, x) a published number
    belongs. ``notes``: (panel, series, x) -> what is known about that cell. With ``along`` it is not success rates
    that are tested but, by each metric, the order of the series in each column, or of the xs in each series; series
    named in ``beside`` are shown and take no part. With ``other_setting`` nothing is tested: the runs are not of the
    published setting.
    """
    groups: dict[tuple[str, str, Any], list[Row]] = {}
    for row in rows:
        if absent := [label for label in (panel, series, x) if label not in row.labels]:
            raise ValueError(
                f"runs are grouped by their labels {panel}, {series} and {x}, and the run {row.key.name} has no "
                f"{absent[0]}; give a Training such labels, name others, or leave the run out"
            )
        where = (str(row.labels[panel]), series_name(row.labels[series]), _frozen(row.labels[x]))
        groups.setdefault(where, []).append(row)
    printed: dict[tuple[str, str, Any], dict[str, Published]] = {}
    for cell in theirs:
        place = match(cell)
        printed.setdefault((place[0], series_name(place[1]), _frozen(place[2])), {})[cell.metric] = cell
    known = {(p, series_name(s), _frozen(at)): note for (p, s, at), note in (notes or {}).items()}
    panel_order = _ordered((g[0] for g in groups), panels, (p[0] for p in printed))
    series_order = _ordered((g[1] for g in groups), map(series_name, order or ()), (p[1] for p in printed))
    x_order = _ordered((g[2] for g in groups), map(_frozen, xs or ()), sorted({g[2] for g in groups}, key=_middle))
    places = [(p, s, at) for p in panel_order for s in series_order for at in x_order if (p, s, at) in groups]
    cells = [
        Cell(*place, measure(groups[place]), printed.get(place, {}), note=known.get(place, "")) for place in places
    ]
    if along is None and not other_setting:
        decided = verdicts([(_our_counts(cell), _their_counts(cell)) for cell in cells], level)
        other = "not tested"  # errors, not counts, are published
    else:
        decided = [UNTESTED for _ in cells]
        other = "other setting" if other_setting else "by order"
    decided = [Verdict(other) if v == UNTESTED and cell.theirs else v for v, cell in zip(decided, cells)]
    return Comparison(
        title=title,
        cells=tuple(replace(cell, verdict=word) for cell, word in zip(cells, decided)),
        panels=panel_order,
        series=series_order,
        xs=x_order,
        metrics=tuple(metrics),
        level=level,
        x_title=x_title,
        panel_titles=dict(panel_titles or {}),
        x_titles=dict(x_titles or {}),
        joined=joined,
        orders=()
        if along is None or other_setting
        else tuple(_orders([c for c in cells if c.series not in beside], metrics, along, level)),
    )


def _orders(
    cells: Sequence[Cell], metrics: Sequence[Metric], along: Literal["series", "x"], level: float
) -> Iterator[Order]:
    columns: dict[tuple[str, Any], list[Cell]] = {}
    for cell in cells:
        columns.setdefault((cell.panel, cell.x if along == "series" else cell.series), []).append(cell)
    for (panel, at), column in columns.items():
        for metric in metrics:
            names, ours, theirs = [], [], []
            for cell in column:
                mine, printed = cell.comparable(metric.name), cell.published(metric.name)
                if mine and printed and mine.value is not None and printed.value is not None:
                    names.append(cell.series if along == "series" else x_name(cell.x))
                    ours.append(metric.clipped(mine.value))
                    theirs.append(metric.clipped(printed.value))
            target = -math.inf if metric.target is None else metric.target
            right = [tuple(n for n, v in zip(names, values) if v < target) for values in (ours, theirs)]
            if names:
                yield Order(panel, at, metric, rank_agreement(ours, theirs, level), *right)


def _order_headline(orders: Sequence[Order]) -> str:
    if not orders:
        return "No order can be compared with a published one."
    found = [order.agreement for order in orders]
    if len(found) == 1:
        (one,) = found
        tau = "" if one.tau is None else f" (Kendall's τ {one.tau:.2f}, p {text.p_value(one.p)})"
        return f"Order of {one.n}, ours against the published one: {one.word}{tau}."
    counts = [
        f"{sum(f.word == word for f in found)} {word}" for word in ORDER_WORDS if any(f.word == word for f in found)
    ]
    taus = [f.tau for f in found if f.tau is not None and f.word != "too few"]
    middle = f"; Kendall's τ {statistics.median(taus):.2f} in the middle" if taus else ""
    return f"{len(found)} columns, order of ours against the published one: {', '.join(counts)}{middle}."


def series_name(name: Any) -> str:
    """A unit as tables show it: the papers' name for ours, anybody else's as it is."""
    return printed_name(str(name))


def x_name(x: Any) -> str:
    """A value of the x axis as text; a pair is a range."""
    return show_range(x) if isinstance(x, tuple) else f"{x:g}" if isinstance(x, float) else str(x)


def environment(rows: Iterable[Row]) -> dict[str, str]:
    """Versions, machines, backends and time behind the rows, each told once; a run may stand in several cells."""
    told: dict[str, dict[str, None]] = {}
    found = list({row.key: row.provenance for row in rows}.values())
    for around in found:
        facts = {"backend": around.backend, **around.versions, **{k: str(v) for k, v in around.hardware.items()}}
        for name, value in facts.items():
            if value:
                told.setdefault(name, {})[value] = None
    facts = {"runs": str(len(found)), **{name: ", ".join(sorted(values)) for name, values in told.items()}}
    seconds = _elapsed(found)
    return facts | ({"training time, all runs": text.duration(seconds)} if seconds else {})


def _elapsed(found: Iterable[Provenance]) -> float:
    """Seconds of training; groups that were on a GPU at the same time took turns there, and that time counts once."""
    seconds, spans = 0.0, set()
    for around in found:
        whole = around.timing.get("group_seconds", 0.0)
        if whole and around.created and str(around.hardware.get("device")).startswith("cuda"):
            end = datetime.fromisoformat(around.created).timestamp()
            spans.add((end - whole, end))
        else:
            seconds += around.seconds
    reached = -math.inf
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds


def _our_counts(cell: Cell) -> tuple[int, int]:
    return cell.measured.solved or 0, cell.measured.n


def _their_counts(cell: Cell) -> tuple[int, int] | None:
    rate = cell.theirs.get("success_rate")
    if cell.measured.solved is None or rate is None or rate.value is None or not rate.n:
        return None
    return round(rate.value * rate.n), rate.n


def _frozen(value: Any) -> Any:
    """Labels come back from JSON as lists of numbers; the published data has tuples of floats."""
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _middle(x: Any) -> tuple[float, str]:
    numbers = [float(n) for n in _flat(x)]
    return (sum(numbers) / len(numbers) if numbers else math.inf, str(x))


def _flat(x: Any) -> list[float]:
    if isinstance(x, tuple):
        return [n for part in x for n in _flat(part)]
    return [x] if isinstance(x, int | float) else []


def _ordered(present: Iterable[Any], first: Iterable[Any] | None, then: Iterable[Any]) -> tuple[Any, ...]:
    """What is present, in the wanted order, then in the second one, then as it comes."""
    there = list(dict.fromkeys(present))
    return tuple(value for value in dict.fromkeys([*(first or ()), *then, *there]) if value in there)
