"""Cells as the page gets them: plain data, from counts in SQL or from a report's comparison."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from numerate.labels import printable
from numerate.page.index import Group, decoded_labels, value_text
from numerate.report import SOLVED_AT, SUCCESS, Cell, Comparison, Layout, Metric
from numerate.report.comparison import OPERATIONS, series_name, x_name
from numerate.report.figures import looks
from numerate.report.tables import interval
from numerate.report.text import number, p_value
from numerate.stats import Estimate, wilson

Data = dict[str, Any]
Where = list[tuple[str, str]]
"""Labels and their values as an address has them."""

METRICS = (SUCCESS, SOLVED_AT)
"""What counts alone can tell."""
ERROR = "test_error"
"""Name of the measure of runs whose task has no criterion of success."""
ERROR_TITLES = {
    "Characters": "Bits per character",
    "Words": "Nats per word",
    "PermutedPixels": "Share of wrong answers",
}
"""Task -> what its test error is."""
MOST_CELLS = 6000
"""A page of more is slow to lay out: filters then choose."""

ORDER = tuple(OPERATIONS.values())
"""Operations stand in the order of the papers."""

rate = cache(wilson)


@dataclass(frozen=True)
class Placing:
    """Which labels place a run of an experiment that has no layout of its own: panels, series down, x across."""

    panels: tuple[str, ...]
    series: str
    x: str

    @classmethod
    def of(cls, labels: Iterable[Mapping[str, Any]]) -> "Placing":
        """Units down, ranges or operations across; every other label that varies names the panel."""
        values: dict[str, set[str]] = {}
        for each in labels:
            for name, value in each.items():
                values.setdefault(name, set()).add(value_text(value))
        varying = [name for name, found in values.items() if len(found) > 1]
        series = _first(("unit",), values) or _largest(varying, values) or _first(values, values)
        rest = [name for name in varying if name != series]
        x = _first(("range", "operation"), dict.fromkeys(rest)) or _largest(rest, values)
        return cls(tuple(sorted(name for name in rest if name != x)), series, x)

    def place(self, labels: Mapping[str, Any]) -> tuple[str, str, Any]:
        panel = " · ".join(named(labels.get(name, "–"), name) for name in self.panels)
        x = frozen(labels.get(self.x, ""))
        return panel, series_name(shown(labels.get(self.series, "–"))), shown(x, self.x) if isinstance(x, str) else x

    def where(self, labels: Mapping[str, Any]) -> Where:
        names = [*self.panels, self.series, self.x]
        return [(name, value_text(labels[name])) for name in names if name in labels]


def _first(names: Iterable[str], known: Mapping[str, Any]) -> str:
    return next((name for name in names if name in known), "")


def _largest(names: Sequence[str], values: Mapping[str, set[str]]) -> str:
    return max(names, key=lambda name: len(values[name]), default="")


def shown(value: Any, name: str = "") -> str:
    """A label's value for people: a pair of numbers is a range, an operation has a name."""
    value = frozen(value)
    return OPERATIONS.get(value, value) if name == "operation" and isinstance(value, str) else x_name(value)


def named(value: Any, name: str) -> str:
    """As :func:`shown`; a number alone says nothing, so that its label stands before it: rate 0.003."""
    bare = isinstance(value, int | float) or value == "–"
    return f"{name} {shown(value, name)}" if bare else shown(value, name)


def frozen(value: Any) -> Any:
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def error_title(configs: Iterable[Mapping[str, Any]]) -> str:
    """What the test error of runs with these configurations is; a general name where they differ."""
    calls = (config.get("task") for config in configs)
    names = {str(call.get("call")).rpartition(":")[2] if isinstance(call, Mapping) else "" for call in calls}
    return ERROR_TITLES.get(names.pop(), "Test error") if len(names) == 1 else "Test error"


def error_metric(title: str, most: float) -> Metric:
    """The measure of runs without a criterion of success, on an axis from 0 to at least ``most``, in four parts."""
    decade = 10.0 ** math.floor(math.log10(most)) if 0 < most < math.inf else 1.0
    end = next((part * decade for part in (1, 2, 4, 8) if most <= part * decade), 10 * decade)
    return Metric(
        ERROR, title, limits=(0.0, end), tick=number, show=number, brief=number,
        meaning="The mean over runs, each at its best validation point. The task has no criterion of success.",
    )  # fmt: skip


def counted_cells(groups: Sequence[Group], placing: Placing | None = None, error: str = "Test error") -> Data:
    """Rates of success from counts alone; without a ``placing`` it follows from the labels.

    Where a task has no criterion of success, its cells have their mean test error, with the title ``error``.
    """
    labels = [decoded_labels(group.labels) for group in groups]
    placing = placing or Placing.of(labels)
    merged: dict[tuple[str, str, Any], Data] = {}
    for group, each in zip(groups, labels):
        cell = merged.setdefault(placing.place(each), _empty(placing.where(each), group.own))
        cell["runs"] += group.runs
        cell["judged"] += group.judged
        cell["solved"] += group.solved
        cell["diverged"] += group.diverged
        cell["steps"] += (group.solved_at or 0.0) * group.solved
        if group.error is not None:
            cell["errors"].append((group.error, group.runs - group.judged))
    metric = error_metric(error, max((mean for cell in merged.values() for mean, _ in cell["errors"]), default=0.0))
    cells = [_counted(place, cell, metric) for place, cell in merged.items()]
    rated = METRICS if not cells or any(cell["criterion"] for cell in cells) else ()
    metrics = rated if all(cell["criterion"] for cell in cells) else (*rated, metric)
    panels, series, xs = Layout(panels=ORDER, xs=ORDER).sorted(merged, ())
    data = _around(cells, panels, series, xs, metrics)
    data["titles"] = {panel: panel for panel in panels}
    return data | {"x_title": placing.x.capitalize(), "series_title": placing.series.capitalize()}


def _empty(where: Where, own: bool) -> Data:
    return {
        "where": where,
        "own": bool(own),
        "runs": 0,
        "judged": 0,
        "solved": 0,
        "diverged": 0,
        "steps": 0.0,
        "errors": [],
    }


def _counted(place: tuple[str, str, Any], cell: Data, error: Metric) -> Data:
    errors, solved, steps = cell.pop("errors"), cell["solved"], cell.pop("steps")
    if errors and not cell["judged"]:
        total = sum(count for _, count in errors)
        of_all = Estimate(sum(each * count for each, count in errors) / total)
        values = {ERROR: {"ours": estimate(of_all, error)}}
        return _placed(*place) | cell | {"values": values, "verdict": "", "note": "", "criterion": False}
    mean = Estimate(steps / solved) if solved else None
    values = {SUCCESS.name: {"ours": estimate(rate(solved, cell["judged"]), SUCCESS)}}
    values[SOLVED_AT.name] = {"ours": estimate(mean, SOLVED_AT)}
    return _placed(*place) | cell | {"values": values, "verdict": "", "note": "", "criterion": True}


def _placed(panel: str, series: str, x: Any) -> Data:
    return {"panel": panel, "series": series, "x": x_name(x)}


def compared_cells(compared: Comparison, stored: Mapping[str, Collection[str]], own: set[str]) -> Data:
    """The cells of a report, with what was published and the verdicts.

    ``stored``: labels of the stored runs and their values, by which a cell finds its runs; what a comparison adds to
    them, such as an untrained model, has none. ``own``: series of the user's own units.
    """
    places: dict[tuple[str, str, Any], Where] = {}
    layout = compared.layout
    placing = [name for name in (layout.panel, layout.series, layout.x) if name in stored]
    for row in compared.rows:
        where = places.setdefault(layout.place(row), [])
        where += [pair for name in placing if (pair := (name, value_text(row.labels[name]))) not in where]
    cells = [_compared(compared, cell, places[cell.panel, cell.series, cell.x], own) for cell in compared.cells]
    for cell in cells:
        cell["stored"] = all(value in stored[name] for name, value in cell["where"])
    data = _around(cells, compared.panels, compared.series, compared.xs, compared.metrics)
    words = dict.fromkeys(cell.verdict.word for cell in compared.cells)
    orders = [
        {
            "panel": compared.panel_title(order.panel), "at": x_name(order.at), "metric": order.metric.title,
            "tau": order.agreement.tau, "p": p_value(order.agreement.p), "word": order.agreement.word,
        }
        for order in compared.orders
    ]  # fmt: skip
    return data | {
        "titles": {panel: compared.panel_title(panel) for panel in compared.panels},
        "x_title": layout.x_title,
        "x_titles": dict(layout.x_titles),
        "series_title": layout.series.capitalize(),
        "headline": compared.headline(),
        "verdicts": {word: compared.count(word) for word in words},
        "test": compared.test_sentence() if compared.tested or compared.orders else "",
        "orders": orders,
        "joined": layout.joined,
    }


def _compared(compared: Comparison, cell: Cell, where: Where, own: set[str]) -> Data:
    measured, verdict = cell.measured, cell.verdict
    values = {}
    for metric in compared.metrics:
        values[metric.name] = {"ours": estimate(measured.ours.get(metric.name), metric)}
        if again := measured.reproduced.get(metric.name):
            values[metric.name]["again"] = estimate(again, metric)
        if theirs := cell.published(metric.name):
            values[metric.name]["published"] = estimate(theirs, metric)
    return _placed(cell.panel, cell.series, cell.x) | {
        "where": where,
        "own": cell.series in own,
        "runs": measured.n,
        "solved": measured.solved,
        "snapped": measured.snapped,
        "diverged": measured.diverged,
        "values": values,
        "verdict": verdict.word,
        "q": p_value(verdict.q),
        "note": printable(cell.note),
    }


def estimate(value: Estimate | None, metric: Metric) -> Data | None:
    """An estimate as numbers and as text; a bound of what is clipped is the number drawn."""
    if value is None or value.value is None or math.isnan(value.value):
        return None
    drawn = [
        None if end is None or math.isnan(end) else metric.clipped(end) for end in (value.value, value.low, value.high)
    ]
    drawn = [end if end is None or math.isfinite(end) else None for end in drawn]
    shade = None if metric.shade is None else min(1.0, max(0.0, metric.shade(value.value)))
    brief = value.bound + metric.brief(value.value)
    return {
        "value": drawn[0],
        "low": drawn[1],
        "high": drawn[2],
        "text": interval(value, metric),
        "brief": brief,
        "shade": shade,
    }


def _around(
    cells: list[Data], panels: Iterable[str], series: Iterable[str], xs: Iterable[Any], metrics: Iterable[Metric]
) -> Data:
    series = list(series)
    return {
        "cells": cells[:MOST_CELLS],
        "omitted": max(0, len(cells) - MOST_CELLS),
        "panels": list(panels),
        "series": series,
        "xs": [x_name(x) for x in xs],
        "looks": {name: {"colour": colour, "marker": marker} for name, (colour, marker) in looks(series).items()},
        "metrics": [metric_data(metric) for metric in metrics],
        "verdicts": {},
        "headline": "",
    }


def metric_data(metric: Metric) -> Data:
    return {
        "name": metric.name, "title": metric.title, "brief_title": metric.brief_title, "scale": metric.scale,
        "limits": metric.limits, "floor": metric.floor, "ceiling": metric.ceiling, "meaning": metric.meaning,
        "map": metric.shade is not None,
        "ticks": [(tick, metric.tick(tick)) for tick in _ticks(metric)],
    }  # fmt: skip


def _ticks(metric: Metric) -> list[float]:
    """Where an axis may have a mark, with its text, so that the browser need not know how to write numbers."""
    if metric.scale == "log":
        return [10.0**power for power in range(-16, 17)]
    low, high = metric.limits or (0.0, 1.0)
    return [low + (high - low) * i / 4 for i in range(5)] if metric.limits else []


def thumbnail(data: Data, most: int = 24) -> list[Data]:
    """A metric of every cell as shades, small enough for a start page: a map for each panel."""
    shades_of = _shades(data)
    maps = []
    for panel in data["panels"][:6]:
        cells = [cell for cell in data["cells"] if cell["panel"] == panel]
        rows = [name for name in data["series"] if any(cell["series"] == name for cell in cells)][:most]
        xs = [x for x in data["xs"] if any(cell["x"] == x for cell in cells)][:most]
        shades: list[list[float | None]] = [[None] * len(xs) for _ in rows]
        for cell in cells:
            if cell["series"] in rows and cell["x"] in xs:
                shades[rows.index(cell["series"])][xs.index(cell["x"])] = shades_of(cell)
        maps.append({"title": data["titles"].get(panel, panel), "shades": shades})
    return maps if any(shade is not None for each in maps for line in each["shades"] for shade in line) else []


def _shades(data: Data) -> Callable[[Data], float | None]:
    """Cell -> shade of the first metric that has any; else its place between the largest value and the smallest."""

    def ours(cell: Data, metric: Data) -> Data:
        return cell["values"].get(metric["name"], {}).get("ours") or {"shade": None, "value": None}

    for metric in data["metrics"]:
        if any(ours(cell, metric)["shade"] is not None for cell in data["cells"]):
            return lambda cell: ours(cell, metric)["shade"]
    lead = data["metrics"][0]
    logarithmic = lead["scale"] == "log"

    def placed(cell: Data) -> float | None:
        value = ours(cell, lead)["value"]
        return value if value is None or not logarithmic else math.log(value) if value > 0 else None

    values = [value for cell in data["cells"] if (value := placed(cell)) is not None]
    low, high = min(values, default=0.0), max(values, default=0.0)

    def shade(cell: Data) -> float | None:
        value = placed(cell)
        return None if value is None else (high - value) / (high - low) if high > low else 0.5

    return shade
