"""What one run achieved, from its curves: success at the best validation point, the step at which it was solved."""

from dataclasses import dataclass
from typing import Any

import numpy as np


def best_point(validation: Any, last: int | None = None) -> int:
    """Index of the first smallest validation error among the ``last`` points (None: all); NaN is passed over.

    If every error is NaN, the index of the last point. Madsen & Johansen's scripts look at the last 5000 points.
    """
    errors = np.asarray(validation, float)
    if errors.ndim != 1 or not len(errors):
        raise ValueError(f"validation must be a curve with at least one point, got shape {errors.shape}")
    if last is not None and last < 1:
        raise ValueError(f"last must be a positive number of points, got {last}")
    start = 0 if last is None else max(0, len(errors) - last)
    tail = errors[start:]
    return len(errors) - 1 if np.isnan(tail).all() else start + int(np.nanargmin(tail))


def success(test: Any, validation: Any, threshold: float, last: int | None = None) -> bool:
    """Whether the test error at the best validation point lies below the threshold."""
    return bool(np.asarray(test, float)[best_point(validation, last)] < threshold)


def solved_at(steps: Any, test: Any, threshold: float) -> int | None:
    """The first step whose test error lies below the threshold (it need not stay there); None if there is none."""
    below = np.flatnonzero(np.asarray(test, float) < threshold)
    return int(np.asarray(steps)[below[0]]) if len(below) else None


@dataclass(frozen=True)
class Outcome:
    """One run, judged. ``sparsity`` is that at the best validation point; ``snapped`` is None if it was not tried."""

    solved: bool
    solved_at: int | None = None
    sparsity: float = float("nan")
    snapped: bool | None = None
    diverged: bool = False


def outcome(
    steps: Any,
    validation: Any,
    test: Any,
    sparsity: Any,
    threshold: float,
    *,
    last: int | None = None,
    snapped_test: float | None = None,
    diverged: bool = False,
) -> Outcome:
    """Judge one run by its curves. A run that diverged is judged by what it had logged, as in the published tables."""
    if not np.asarray(validation).size:  # it diverged before its first evaluation
        return Outcome(False, snapped=None if snapped_test is None else False, diverged=diverged)
    best = best_point(validation, last)
    return Outcome(
        solved=success(test, validation, threshold, last),
        solved_at=solved_at(steps, test, threshold),
        sparsity=float(np.asarray(sparsity, float)[best]) if np.asarray(sparsity).size else float("nan"),
        snapped=None if snapped_test is None else bool(snapped_test < threshold),
        diverged=diverged,
    )
