"""Data frames of any library: names of targets, and one sentence for a column that holds no numbers."""

from typing import Any


def check_frame(X: Any) -> None:
    """Raises ValueError if a column of a data frame holds text, categories, dates or missing values."""
    frame = _frame(X)
    if frame is None:
        return
    for name, column in zip(frame.columns, frame.iter_columns()):
        if not (column.dtype.is_numeric() or str(column.dtype) == "Boolean"):
            what = f"column {name!r} holds {kind(column.dtype)}"
            raise ValueError(f"{what}, and a formula needs numbers; leave it out or encode it as 0 and 1")
        if column.is_null().any() or (column.dtype.is_float() and column.is_nan().any()):
            raise ValueError(f"column {name!r} has missing values (NaN); leave out those rows or fill them first")


def kind(dtype: Any) -> str:
    """What a column holds, in a word."""
    name = str(dtype)
    if name.startswith(("Categorical", "Enum")):
        return "categories"
    if name.startswith(("Date", "Time", "Duration")):
        return "dates or times"
    if name in ("Null", "Unknown"):
        return "no values"
    return "text" if name.startswith(("String", "Object")) else f"{name} values"


def target_names(y: Any) -> list[str] | None:
    """The names of a series or a frame of targets, None for arrays."""
    import narwhals as nw

    if nw.dependencies.is_into_series(y):
        name = nw.from_native(y, series_only=True).name
        return [name] if isinstance(name, str) and name else None
    frame = _frame(y)
    if frame is None or not all(isinstance(name, str) for name in frame.columns):
        return None
    return list(frame.columns)


def _frame(X: Any) -> Any:
    import narwhals as nw  # scikit-learn's own way to read data frames

    return nw.from_native(X, eager_only=True) if nw.dependencies.is_into_dataframe(X) else None
