"""Versions, machines, backends and time behind a report."""

import math
from collections.abc import Iterable
from datetime import datetime

from numerate.devices import find_kind
from numerate.report import text
from numerate.results import Row


def environment(rows: Iterable[Row]) -> dict[str, str]:
    """Versions, machines, backends and time behind the rows, each listed once; a run may belong to several cells."""
    values: dict[str, dict[str, None]] = {}
    runs = list({row.key: row for row in rows}.values())
    for row in runs:
        around = row.provenance
        for name, value in {"backend": around.backend, **around.versions, **around.hardware}.items():
            if value:
                values.setdefault(name, {})[str(value)] = None
    facts = {"runs": str(len(runs)), **{name: ", ".join(sorted(told)) for name, told in values.items()}}
    seconds = elapsed_seconds(runs)
    return facts | ({"training time, all runs": text.duration(seconds)} if seconds else {})


def elapsed_seconds(runs: Iterable[Row]) -> float:
    """Time of training. Groups that shared a GPU took turns there: the time that they overlap counts once."""
    seconds, spans = 0.0, set()
    for row in runs:
        if (span := _shared_span(row)) is not None:
            spans.add(span)
        else:
            seconds += _own_seconds(row)
    reached = -math.inf
    for start, end in sorted(spans):
        seconds += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return seconds


def _shared_span(row: Row) -> tuple[float, float] | None:
    """When the group of a run began and ended on a device that several groups share; None if that is not known."""
    around = row.provenance
    kind = find_kind(around.hardware.get("device"))
    if kind is None or not kind.asynchronous:
        return None
    try:
        end, length = datetime.fromisoformat(around.created).timestamp(), float(around.timing.get("group_seconds", 0.0))
    except (TypeError, ValueError, OverflowError, OSError):  # not as we write it
        return None
    return (end - length, end) if length else None


def _own_seconds(row: Row) -> float:
    try:
        seconds = float(row.provenance.seconds)
    except (TypeError, ValueError):  # not as we write it
        return 0.0
    return seconds if math.isfinite(seconds) else 0.0
