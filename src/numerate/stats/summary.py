"""A group of runs in a few numbers: success, solved-at and sparsity, each with its interval, by both estimators."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from numerate.results.outcome import Outcome
from numerate.stats.intervals import Estimate, clustered_rate, gamma_mean, sparsity_mean, wilson


@dataclass(frozen=True)
class Summary:
    """What a group of runs achieved. Solved-at and sparsity are over the solved runs only, as in the papers.

    ``single`` is the success of single starts, of which a run is the best, with its interval clustered by run;
    ``starts`` is how many there were in all.
    """

    n: int
    solved: int
    diverged: int
    success: Estimate
    snapped: Estimate | None
    snapped_solved: int | None
    single: Estimate | None
    starts: int
    starts_solved: int | None
    solved_at_median: float | None
    solved_at: Estimate
    solved_at_published: Estimate
    sparsity: Estimate
    sparsity_published: Estimate


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """The summary of a group; ``snapped`` is None unless every run of the group has been rounded and judged again."""
    solved = [run for run in outcomes if run.solved]
    steps = [float(run.solved_at) for run in solved if run.solved_at is not None]
    sparsity = [run.sparsity for run in solved]
    snapped = [run.snapped for run in outcomes]
    tried = bool(snapped) and all(success is not None for success in snapped)
    rounded = sum(map(bool, snapped)) if tried else None
    starts, several = sum(run.starts for run in outcomes), any(run.starts > 1 for run in outcomes)
    single = [int(run.solved) if run.starts_solved is None else run.starts_solved for run in outcomes]
    return Summary(
        n=len(outcomes),
        solved=len(solved),
        diverged=sum(run.diverged for run in outcomes),
        success=wilson(len(solved), len(outcomes)),
        snapped=None if rounded is None else wilson(rounded, len(outcomes)),
        snapped_solved=rounded,
        single=clustered_rate(single, [run.starts for run in outcomes]) if several else None,
        starts=starts,
        starts_solved=sum(single) if several else None,
        solved_at_median=float(np.median(steps)) if steps else None,
        solved_at=gamma_mean(steps),
        solved_at_published=gamma_mean(steps, "published"),
        sparsity=sparsity_mean(sparsity),
        sparsity_published=sparsity_mean(sparsity, "published"),
    )
