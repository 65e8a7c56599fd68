"""Rows as plain records and as data frames; polars and pandas are imported only when asked for."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from numerate.results.row import Row, canonical


def records(rows: Iterable[Row], curves: bool = True) -> list[dict[str, Any]]:
    """One flat record per run, all with the same names: experiment, labels, seed, status, scores, curves, config."""
    rows = list(rows)
    labels = _names(row.labels for row in rows)
    scores = _names(row.scores for row in rows)
    series = _names(row.curves for row in rows) if curves else []
    return [
        {"experiment": row.experiment}
        | {name: _cell(row.labels.get(name)) for name in labels}
        | {"seed": row.seed, "status": row.status, "stopped_at": row.stopped_at, "reason": row.reason}
        | {name: row.scores.get(name) for name in scores}
        | {name: row.curves[name].tolist() if name in row.curves else None for name in series}
        | {"config_hash": row.key.config, "config": canonical(row.config)}
        | {"backend": row.circumstances.backend, "seconds": row.circumstances.seconds}
        for row in rows
    ]


def polars_frame(rows: Iterable[Row], curves: bool = True) -> Any:
    return _library("polars").DataFrame(records(rows, curves), infer_schema_length=None)


def pandas_frame(rows: Iterable[Row], curves: bool = True) -> Any:
    return _library("pandas").DataFrame(records(rows, curves))


def _names(mappings: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _cell(value: Any) -> Any:
    """A label as one cell: a list of numbers becomes one of floats (a column has one type), other nesting text."""
    if isinstance(value, list | tuple) and all(isinstance(part, int | float) for part in value):
        return [float(part) for part in value]
    return canonical(value) if isinstance(value, list | tuple | dict) else value


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        hint = "pip install 'numerate[bench]'" if name == "polars" else f"pip install {name}"
        raise ModuleNotFoundError(f"this kind of frame needs {name}: {hint}") from None
