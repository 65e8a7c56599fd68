"""The runs behind a number: their learning curves, which failed, and where they ended."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numerate.page.cells import Data, error_title, rate, shown
from numerate.page.index import FIELDS, Index, decoded_labels
from numerate.page.site import Query, Site
from numerate.report.metrics import SUCCESS
from numerate.report.tables import interval
from numerate.report.text import number, scientific
from numerate.results import Key, Row

PER_PAGE = 100
CURVES = ("test", "validation", "sparsity")


def runs(site: Site, query: Query, wait: bool = False) -> Data:
    """A page of runs that fit the filters, with their curves; failures first."""
    del wait
    source, id = site.source(query), query.get("experiment")
    index = source.index
    size = site.size(index, id, query.get("size"))
    groups = index.groups(id, size, query.filters)
    total = sum(group.runs for group in groups)
    page = min(query.number("page"), max(0, total - 1) // PER_PAGE)
    records = index.runs(id, size, query.filters, PER_PAGE, page * PER_PAGE)
    solved, judged = sum(group.solved for group in groups), sum(group.judged for group in groups)
    known = site.sizes.experiments.get(id)
    return {
        "id": id,
        "title": " · ".join(_named(name, values) for name, values in query.filters) or (known.title if known else id),
        "experiment_title": known.title if known else id,
        "size": size,
        "filters": {name: list(values) for name, values in query.filters},
        "total": total,
        "judged": judged,
        "solved": solved,
        "diverged": sum(group.diverged for group in groups),
        "rate": interval(rate(solved, judged), SUCCESS),
        "test_title": _test_title(index, records, judged),
        "page": page,
        "pages": -(-total // PER_PAGE),
        "runs": [_record(record) for record in records],
        "labels": sorted({name for record in records for name in decoded_labels(record["labels"])}),
        **_curves(index, records),
    }


def _test_title(index: Index, records: Sequence[Mapping[str, Any]], judged: int) -> str:
    """What the test error is: beyond the range of training where the task has a range of each."""
    if records and not judged:
        return error_title(map(index.config, {record["config_hash"] for record in records})).lower()
    task = index.config(records[0]["config_hash"]).get("task") if records else None
    return "test error (extrapolation)" if isinstance(task, dict) and "test_range" in task else "test error"


def _named(name: str, values: tuple[str, ...]) -> str:
    texts = [shown(_decoded(value), name) for value in values]
    bare = name in FIELDS or all(map(_is_number, values))  # a number alone says nothing
    return f"{name} {', '.join(texts)}" if bare else ", ".join(texts)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _decoded(text: str) -> Any:
    """A value of an address: JSON of a list is that list."""
    return decoded_labels(f'{{"value":{text}}}').get("value", text) if text.startswith("[") else text


def _record(record: Mapping[str, Any]) -> Data:
    key = Key(record["config_hash"], record["seed"])
    labels = decoded_labels(record["labels"])
    return {
        "key": f"{key.config}-{key.seed}",
        "name": key.name,
        "seed": key.seed,
        "labels": {name: shown(value, name) for name, value in labels.items()},
        "own": bool(record["own"]),
        "outcome": outcome_word(record),
        "solved_at": record["solved_at"],
        "stopped_at": record["stopped_at"],
        "reason": record["reason"],
        "error": finite(record["error"]),
        "error_text": _error_text(record),
        "sparsity_text": "–" if record["sparsity"] is None else scientific(record["sparsity"]),
        "version": record["version"],
        "backend": record["backend"],
    }


def _error_text(record: Mapping[str, Any]) -> str:
    """Small numbers as powers of ten; three digits of what is no success or failure."""
    if record["error"] is None:
        return "–"
    return number(record["error"]) if record["solved"] is None else scientific(record["error"])


def outcome_word(record: Mapping[str, Any]) -> str:
    if record["solved"]:
        return "solved"
    return "diverged" if record["status"] == "diverged" else "not solved" if record["solved"] == 0 else "not judged"


def _curves(index: Index, records: list[dict[str, Any]]) -> Data:
    rows = {row.key: row for row in index.whole_rows([Key(r["config_hash"], r["seed"]) for r in records])}
    thresholds = {row.scores["threshold"] for row in rows.values() if "threshold" in row.scores}
    found = {f"{key.config}-{key.seed}": curves(row) for key, row in rows.items()}
    return {"curves": found, "threshold": finite(thresholds.pop()) if len(thresholds) == 1 else None}


def curves(row: Row) -> Data:
    """Steps and curves as lists; null where a number is not finite."""
    return {name: _numbers(row.curves[name]) for name in ("steps", *CURVES) if name in row.curves}


def _numbers(values: Any) -> list[float | None]:
    array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind not in "biuf":
        return []
    return [finite(value) for value in array.astype(float).ravel().tolist()]


def finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
