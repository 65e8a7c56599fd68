"""What a run achieved. Success is judged here and nowhere else.

The rules are the arithmetic papers': a run is solved if its test error at the best validation point lies below the
threshold. A run that says itself whether it is ``solved`` is taken at its word: some tasks are judged by the training
loss (:class:`numerate.tasks.batches.BatchTask`). A trainer reads best point, solved-at and sparsity off the whole
curves (:func:`read_off`) and keeps them as scores, as stored curves may be thinned; :func:`judge` reads those scores,
or the curves where there are none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from numerate.results.row import Row

READ_OFF = ("steps", "validation", "test", "sparsity")
"""Curves that a run is judged by."""


@dataclass(frozen=True)
class Outcome:
    """One run, judged.

    Args:
        solved: whether the test error at the best validation point lies below the threshold.
        solved_at: the first evaluated step below the threshold; None if there is none.
        sparsity: sparsity error at the best validation point.
        snapped: success with rounded weights, where the validation error allows them; None if that was not tried.
        diverged: whether a parameter stopped being finite.
        starts: how many starts the run was chosen from.
        starts_solved: how many of them are solved.
    """

    solved: bool
    solved_at: int | None = None
    sparsity: float = float("nan")
    snapped: bool | None = None
    diverged: bool = False
    starts: int = 1
    starts_solved: int | None = None


def below_threshold(error: Any, threshold: Any) -> np.ndarray:
    """Whether each test error counts as a success; NaN never does."""
    return np.asarray(error) < np.asarray(threshold)


def best_points(validation: Any, last: int | None = None) -> np.ndarray:
    """Index of the first smallest error of each curve, (..., points), among its ``last`` points; NaN is passed over.

    If all of them are NaN, the index of the last point.
    """
    errors = np.asarray(validation, float)
    start = 0 if last is None else max(0, errors.shape[-1] - last)
    tail = errors[..., start:]
    best = start + np.where(np.isnan(tail), np.inf, tail).argmin(-1)
    return np.where(np.isnan(tail).all(-1), errors.shape[-1] - 1, best)


def read_off(
    steps: np.ndarray, validation: np.ndarray, test: np.ndarray, sparsity: np.ndarray, threshold: Any, last: int
) -> dict[str, np.ndarray]:
    """The scores of runs with these curves, (runs, points); ``threshold``: (runs,). Solved-at is NaN if never."""
    best = best_points(validation, last)
    below = below_threshold(test, np.asarray(threshold)[:, None])
    return {
        "best_step": steps[best],
        "best_test": np.take_along_axis(test, best[:, None], -1)[:, 0],
        "best_sparsity": np.take_along_axis(sparsity, best[:, None], -1)[:, 0],
        "solved_at": np.where(below.any(-1), steps[below.argmax(-1)], np.nan),
    }


def choose_starts(scores: Mapping[str, np.ndarray], starts: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Of each run the start with the smallest validation error, the first of equals; and scores of all starts.

    Args:
        scores: of all starts of the first run, then those of the next; (runs * starts,) each.
        starts: of each run.
    """
    validation = scores["best_validation"].reshape(-1, starts)
    best = np.where(np.isnan(validation), np.inf, validation).argmin(-1)
    solved = below_threshold(scores["best_test"], scores["threshold"]).reshape(-1, starts).sum(-1)
    every = np.ones(validation.size)
    told = {"start": np.arange(validation.size) % starts, "starts": starts * every}
    return np.arange(len(best)) * starts + best, told | {"starts_solved": solved.repeat(starts)}


def best_point(validation: Any, last: int | None = None) -> int:
    """:func:`best_points` of one curve. Madsen & Johansen's scripts look at the last 5000 points."""
    errors = np.asarray(validation, float)
    if errors.ndim != 1 or not len(errors):
        raise ValueError(f"validation must be a curve with at least one point, got shape {errors.shape}")
    if last is not None and last < 1:
        raise ValueError(f"last must be a positive number of points, got {last}")
    return int(best_points(errors, last))


def success(test: Any, validation: Any, threshold: float, last: int | None = None) -> bool:
    """Whether the test error at the best validation point lies below the threshold."""
    return bool(below_threshold(np.asarray(test, float)[best_point(validation, last)], threshold))


def solved_at(steps: Any, test: Any, threshold: float) -> int | None:
    """The first step whose test error lies below the threshold (it need not stay there); None if there is none."""
    below = np.flatnonzero(below_threshold(np.asarray(test, float), threshold))
    return int(np.asarray(steps)[below[0]]) if len(below) else None


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
    snapped = None if snapped_test is None else bool(below_threshold(snapped_test, threshold))
    if not np.asarray(validation).size or not np.asarray(test).size:  # it diverged before its first evaluation
        return Outcome(False, snapped=None if snapped is None else False, diverged=diverged)
    best = best_point(validation, last)
    return Outcome(
        solved=success(test, validation, threshold, last),
        solved_at=solved_at(steps, test, threshold),
        sparsity=float(np.asarray(sparsity, float)[best]) if np.asarray(sparsity).size else float("nan"),
        snapped=snapped,
        diverged=diverged,
    )


def judge(row: Row, last: int | None = None) -> Outcome:
    """One stored run, judged by its scores; by its curves where there are none, or for another choice of ``last``."""
    if last is None and "best_test" in row.scores:
        return judge_scores(row.scores, row.threshold, row.status == "diverged")
    steps, validation, test, sparsity = (row.curves.get(name, ()) for name in READ_OFF)
    judged = outcome(steps, validation, test, sparsity, row.threshold, last=last)
    snapped = _snapped(row.scores, row.threshold, judged.solved)
    return replace(judged, snapped=snapped, diverged=row.status == "diverged", **_starts(row.scores))


def judge_scores(scores: Mapping[str, float], threshold: float, diverged: bool) -> Outcome:
    """A run judged by its scores alone, ``best_test`` among them."""
    at, sparsity = scores.get("solved_at", math.nan), scores.get("best_sparsity", math.nan)
    below = scores["best_test"] < threshold  # as :func:`below_threshold`, of which numpy makes an array
    solved = bool(scores.get("solved", below))
    solved_at = int(at) if math.isfinite(at) else None
    return Outcome(solved, solved_at, sparsity, _snapped(scores, threshold, solved), diverged, **_starts(scores))


def _starts(scores: Mapping[str, float]) -> dict[str, int]:
    """How many starts there were, and how many of them are solved; nothing of a run with one."""
    return {name: int(scores[name]) for name in ("starts", "starts_solved") if name in scores}


def _snapped(scores: Mapping[str, float], threshold: float, solved: bool) -> bool | None:
    """Success with rounded weights where the validation error allows them, else without; None if never tried."""
    if "snapped_test" not in scores:
        return None
    kept = "snapped_validation" not in scores or scores["snapped_validation"] <= scores.get("best_validation", math.nan)
    return scores["snapped_test"] < threshold if kept else solved
