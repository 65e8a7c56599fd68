"""What data must be before a formula is looked for; each fault is one sentence."""

from collections.abc import Sequence

import numpy as np

MINIMUM_ROWS = 3


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError if two columns have one name, or a column has none."""
    for name in names:
        if not name.strip():
            raise ValueError("a column has no name; every input needs one")
        if list(names).count(name) > 1:
            raise ValueError(f"two columns are called {name!r}; names of inputs must differ")


def check_rows(rows: int) -> None:
    """Raises ValueError if there are too few rows to tell one formula from another."""
    if rows < MINIMUM_ROWS:
        raise ValueError(f"a formula needs at least {MINIMUM_ROWS} different rows, got n_samples = {rows}")


def check_finite(values: np.ndarray, name: str) -> None:
    """Raises ValueError if a column has missing or infinite values; says where the first is."""
    if np.isfinite(values).all():
        return
    row = int(np.flatnonzero(~np.isfinite(values))[0])
    what = "is missing (NaN)" if np.isnan(values[row]) else "is infinite (inf)"
    raise ValueError(f"column {name!r}: row {row + 1} {what}; leave out such rows or fill them first")


def check_columns(X: np.ndarray, y: np.ndarray, names: Sequence[str], target: str) -> None:
    """Raises ValueError if the target is huge, it or every input constant, or two inputs equal; X: (n, d), y: (n,)"""
    if np.abs(y).max() > 1e100:
        raise ValueError(f"the target {target!r} reaches {np.abs(y).max():.0e}; rescale it to below 1e100")
    if np.ptp(y) == 0:
        raise ValueError(f"the target {target!r} is {y[0]:g} in every row; there is nothing to explain")
    if not np.ptp(X, axis=0).any():
        raise ValueError("every input is constant; nothing can explain the target")
    alike: dict[bytes, list[int]] = {}  # by their first rows: comparing all with all takes long
    for i, name in enumerate(names):
        others = alike.setdefault((X[:20, i] + 0.0).tobytes(), [])
        for j in others:
            if np.ptp(X[:, i]) and np.array_equal(X[:, i], X[:, j]):
                raise ValueError(f"the inputs {names[j]!r} and {name!r} are equal; leave one of them out")
        others.append(i)


def check_target_is_no_input(X: np.ndarray, y: np.ndarray, names: Sequence[str], target: str) -> None:
    """Raises ValueError if a column repeats the target, so that the formula would be its name; X: (n, d), y: (n,)"""
    for i, name in enumerate(names):
        if np.array_equal(X[:, i], y):
            raise ValueError(f"the target {target!r} equals the input {name!r}; leave that input out")


def varying(X: np.ndarray) -> np.ndarray:
    """Which columns are not constant: only these can matter; X: (n, d) -> (d,), bool"""
    return np.ptp(X, axis=0) > 0
