"""Arrays in, numbers and intervals out: success, solved-at, sparsity, and tests between ours and theirs."""

from numerate.results.outcome import Outcome, best_point, outcome, solved_at, success
from numerate.stats.comparing import Verdict, boschloo, false_discovery, fisher, verdict, verdicts
from numerate.stats.intervals import (
    Estimate,
    clustered_rate,
    gamma_mean,
    median,
    normal_mean,
    sparsity_mean,
    upper_mean,
    wilson,
)
from numerate.stats.ordering import Agreement, lower, rank_agreement
from numerate.stats.summary import Summary, summarise

__all__ = [
    "Agreement",
    "Estimate",
    "Outcome",
    "Summary",
    "Verdict",
    "best_point",
    "boschloo",
    "clustered_rate",
    "false_discovery",
    "fisher",
    "gamma_mean",
    "lower",
    "median",
    "normal_mean",
    "outcome",
    "rank_agreement",
    "solved_at",
    "sparsity_mean",
    "success",
    "summarise",
    "upper_mean",
    "verdict",
    "verdicts",
    "wilson",
]
