"""Rows as plain records and as data frames; polars and pandas are imported only when asked for."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from numerate.results.encoding import canonical
from numerate.results.row import Row

if TYPE_CHECKING:
    import pandas
    import polars

FIXED = ("experiment", "seed", "status", "stopped_at", "reason", "config_hash", "config", "backend", "seconds")
"""Columns of every record; labels, scores and curves stand between them."""


def records(rows: Iterable[Row], curves: bool = True) -> list[dict[str, Any]]:
    """One flat record per run, all with the same names: experiment, labels, seed, status, scores, curves, config.

    A name that stands for something else already gets its kind before it: a label ``seed`` is ``label_seed``, a score
    named like a label ``score_...``, a curve named like a score ``curve_...``.
    """
    rows = list(rows)
    taken: set[str] = set(FIXED)
    labels = _columns("label", (row.labels for row in rows), taken)
    scores = _columns("score", (row.scores for row in rows), taken)
    series = _columns("curve", (row.curves for row in rows), taken) if curves else {}
    cells = {name: _cells([row.labels.get(name) for row in rows]) for name in labels}
    return [
        {"experiment": row.experiment}
        | {column: cells[name][place] for name, column in labels.items()}
        | {"seed": row.seed, "status": row.status, "stopped_at": row.stopped_at, "reason": row.reason}
        | {column: row.scores.get(name) for name, column in scores.items()}
        | {column: row.curves[name].tolist() if name in row.curves else None for name, column in series.items()}
        | {"config_hash": row.key.config, "config": row.config_text}
        | {"backend": row.provenance.backend, "seconds": row.provenance.seconds}
        for place, row in enumerate(rows)
    ]


def polars_frame(rows: Iterable[Row], curves: bool = True) -> "polars.DataFrame":
    return _library("polars").DataFrame(records(rows, curves), infer_schema_length=None)


def pandas_frame(rows: Iterable[Row], curves: bool = True) -> "pandas.DataFrame":
    return _library("pandas").DataFrame(records(rows, curves))


def _columns(kind: str, mappings: Iterable[Mapping[str, Any]], taken: set[str]) -> dict[str, str]:
    """Name -> name of its column, which no other column has."""
    columns: dict[str, str] = {}
    for name in dict.fromkeys(name for mapping in mappings for name in mapping):
        column = name
        while column in taken:
            column = f"{kind}_{column}"
        taken.add(column)
        columns[name] = column
    return columns


def _cells(values: list[Any]) -> list[Any]:
    """One label of all runs, of one type: scalars as they are, flat lists of numbers as floats, all else as text."""
    given = [value for value in values if value is not None]
    if not any(isinstance(value, list | tuple | dict) for value in given):
        return values
    if all(isinstance(value, list | tuple) and all(isinstance(x, int | float) for x in value) for value in given):
        return [None if value is None else [float(x) for x in value] for value in values]
    return [None if value is None else canonical(value) for value in values]


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        hint = "pip install 'numerate[bench]'" if name == "polars" else f"pip install {name}"
        raise ModuleNotFoundError(f"this kind of frame needs {name}: {hint}") from None
