"""What one printed number is, and how the data files spell it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Range = tuple[float, float] | tuple[tuple[float, float], ...]
"""(low, high), or several of them for a union of intervals."""


@dataclass(frozen=True)
class Published:
    """One number of a paper. ``value`` is None where the paper prints a dash; ``low`` and ``high`` as printed."""

    paper: str
    table: str
    task: str
    op: str
    model: str
    range: Range | None
    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""
    extrapolation: Range | None = None
    split: str = ""
    x: str = ""
    unit: str = ""
    qualifier: str = ""
    estimator: str = ""
    source: str = ""


@dataclass(frozen=True)
class Threshold:
    """The test error below which a run counts as solved, and where that number comes from.

    ``kind``: ``exact`` closed form; ``used`` the Monte Carlo value the authors compared with; ``script`` the closed
    form of what the authors' script simulates; ``correct`` the closed form for the task as it is.
    """

    task: str
    op: str
    range: Range | None
    extrapolation: Range | None
    epsilon: float
    value: float
    kind: str
    description: str
    used_by: str


@dataclass(frozen=True)
class Setting:
    """One setting a paper states; ``value`` as printed."""

    paper: str
    table: str
    model: str
    op: str
    parameter: str
    value: str
    note: str


def parse_range(text: str) -> Range | None:
    """``"U[-6,-2) ∪ U[2,6)"`` -> ``((-6.0, -2.0), (2.0, 6.0))``; None if the text is not a range."""
    number = r"\s*(-?\d+(?:\.\d+)?)\s*"
    pairs = re.findall(rf"U?\[{number},{number}[)\]]", text)
    if not pairs or not text.lstrip().startswith(("U", "[")):
        return None
    spans = tuple((float(low), float(high)) for low, high in pairs)
    return spans[0] if len(spans) == 1 else spans


def show_range(span: Any) -> str:
    """``(1, 2)`` -> ``"[1, 2)"``, with a true minus sign; a union is joined by ∪."""
    span = plain_range(span)
    spans = [span] if isinstance(span[0], float) else span
    return " ∪ ".join("[{}, {})".format(*(f"{end:g}".replace("-", "−") for end in pair)) for pair in spans)


def plain_range(span: Any) -> Any:
    """Any spelling of a range as the tuples of floats used here."""
    if isinstance(span, str):
        if (parsed := parse_range(span)) is None:
            raise ValueError(f"a range is a pair like (1, 2) or a text like 'U[1,2)', got {span!r}")
        return parsed
    if not isinstance(span, Sequence) or not span:
        raise ValueError(f"a range is a pair like (1, 2) or a list of pairs, got {span!r}")
    if isinstance(span[0], Sequence):
        spans = tuple(plain_range(part) for part in span)
        return spans[0] if len(spans) == 1 else spans
    if len(span) != 2:
        raise ValueError(f"a range is a pair like (1, 2) or a list of pairs, got {span!r}")
    return tuple(float(end) for end in span)


def number(text: str | None) -> float | None:
    return float(text) if text else None


def published(record: Mapping[str, str]) -> Published:
    """One line of a results file, whichever of its columns that file has."""
    span = parse_range(record.get("range", ""))
    figure = record.get("figure", "")
    model = record.get("model") or record.get("gate", "").removeprefix("-") + record.get("core", "")
    divergent = record.get("divergent_runs", "0")
    notes = [record.get("note", ""), f"{divergent} divergent runs" if divergent != "0" else ""]
    x = f"{record['x_name']} {record['x_value']}" if figure else ""
    return Published(
        paper=record["paper"],
        table=f"figure {figure}" if figure else record["table"],
        task=record["task"],
        op=record.get("op", ""),
        model=model,
        range=span,
        metric=record["metric"],
        value=number(record["value"]),
        low=number(record.get("ci_low")),
        high=number(record.get("ci_high")),
        n=int(record["n_seeds"]) if record.get("n_seeds") else None,
        note="; ".join(filter(None, notes)),
        extrapolation=parse_range(record.get("extrapolation_range", "")),
        split=record.get("split", "") or ("" if span else record.get("range", "")),
        x=x,
        unit=record.get("unit", ""),
        qualifier=record.get("qualifier", ""),
        estimator=record.get("estimator_guess", ""),
        source=record.get("source", ""),
    )


def threshold(record: Mapping[str, str]) -> Threshold:
    spans = parse_range(record["interpolation_range"]), parse_range(record["extrapolation_range"])
    numbers = float(record["epsilon"]), float(record["threshold"])
    return Threshold(
        record["task"], record["op"], *spans, *numbers, record["kind"], record["description"], record["used_by"]
    )


def setting(record: Mapping[str, str]) -> Setting:
    names = ("paper", "table", "model", "op", "parameter", "value", "note")
    return Setting(*(record.get(name, "") for name in names))
