"""A user's file as a table of numbers: CSV, Parquet or Excel, read by polars."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from numerate.discover.checks import check_columns, check_finite, check_names, check_rows, check_target_is_no_input
from numerate.discover.frames import kind

READERS = {
    ".csv": "read_csv", ".tsv": "read_csv", ".txt": "read_csv", ".parquet": "read_parquet", ".xlsx": "read_excel",
    ".xls": "read_excel", ".xlsb": "read_excel", ".ods": "read_excel",
}  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Columns of numbers; X: (n, d), y: (n,)"""

    X: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]
    target: str

    def __len__(self) -> int:
        return len(self.y)


def read_frame(path: str | Path) -> Any:
    """The file as a polars data frame. Raises ValueError if it cannot be read, FileNotFoundError if it is not there."""
    path = Path(path)
    if path.suffix.lower() not in READERS:
        raise ValueError(f"{path} is not read: give a file that ends in {', '.join(READERS)}")
    with path.open("rb"):  # says what the system says where it cannot be read
        pass
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise RuntimeError("reading tables needs extra packages: pip install 'numerate[formula]'") from error
    options: dict[str, Any] = {}
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        options = {
            "infer_schema_length": None,
            "separator": _separator(path),
            "null_values": ["", "NA", "NULL", "null"],
        }
    read = getattr(pl, READERS[path.suffix.lower()])
    try:
        frame = read(path, **options)
        if options.get("separator", ",") != "," and pl.String in frame.dtypes:
            frame = min(frame, read(path, **options, decimal_comma=True), key=lambda each: each.dtypes.count(pl.String))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{path} cannot be read as a table: {reason}") from error
    if not len(frame):
        raise ValueError(f"{path} has column names and no rows")
    names = [name.strip() for name in frame.columns]
    if twice := next((name for k, name in enumerate(names) if name in names[:k]), None):
        raise ValueError(f"{path} has two columns {twice!r}; give each a name of its own")
    return frame.rename(dict(zip(frame.columns, names)))


def _separator(path: Path) -> str:
    """Comma, semicolon or tab: the one the first line has most of."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    return max(",;\t", key=first.count)


def read_table(path: str | Path, target: str, inputs: Sequence[str] | None = None) -> Table:
    """The inputs (all other columns unless named) and the target of a file, checked.

    Raises ValueError, in one sentence, if the file has no such column, or columns that no formula can be found from.
    """
    frame = read_frame(path)
    check_known([target, *(inputs or ())], frame.columns, path)
    names = [name for name in frame.columns if name != target] if inputs is None else list(inputs)
    check_known(names, frame.columns, path)
    if not names:
        raise ValueError(f"{path} has no column beside the target {target!r}; a formula needs inputs")
    if target in names:
        raise ValueError(f"the target {target!r} is one of the inputs; leave it out there")
    check_names(names)
    X = np.column_stack([numbers(frame[name], names) for name in names])
    y = numbers(frame[target], names)
    check_rows(len(y))
    check_columns(X, y, names, target)
    check_target_is_no_input(X, y, names, target)
    return Table(X, y, tuple(names), target)


def check_known(names: Sequence[str], columns: Sequence[str], path: str | Path) -> None:
    """Raises ValueError if a column that was asked for is not there, or there twice."""
    for name in names:
        if name not in columns:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(columns)}")
        if f"{name}_duplicated_0" in columns:  # what polars makes of the second
            raise ValueError(f"{path} has two columns {name!r}; give each a name of its own")


def numbers(column: Any, names: Sequence[str]) -> np.ndarray:
    """A column as numbers. Raises ValueError at text, dates, missing and infinite values."""
    import polars as pl

    if column.dtype != pl.Boolean and not column.dtype.is_numeric():
        found = column.drop_nulls()
        if not len(found):
            raise ValueError(f"column {column.name!r} holds no value; leave it out or fill it first")
        example = f", such as {str(found[0])!r}"
        rest = ",".join(name for name in names if name != column.name)
        advice = f"name the inputs you want: --inputs {rest}" if column.name in names and rest else "it must be numbers"
        raise ValueError(f"column {column.name!r} holds {kind(column.dtype)}{example}; {advice}")
    values = column.cast(pl.Float64).to_numpy().astype(np.float64)
    check_finite(values, column.name)
    return values
