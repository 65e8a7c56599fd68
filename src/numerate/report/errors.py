"""Test errors as medians, for experiments that report errors rather than success alone."""

from collections.abc import Sequence
from dataclasses import replace

from numerate.report import text
from numerate.report.metrics import SUCCESS, Measured, Metric, arithmetic
from numerate.results import Row
from numerate.stats import median

ERROR = Metric(
    "error_median", "Median test error", "log", floor=1e-16, ceiling=1e16,
    show=text.scientific, show_interval=text.scientific_interval, tick=text.power, brief=text.brief,
    meaning="The median over all runs of the mean squared error on the test set at the best validation point, with the "
    "interval between two order statistics.",
)  # fmt: skip
ERRORS = (ERROR, SUCCESS)


def errors(rows: Sequence[Row]) -> Measured:
    """The median test error beside the usual measures."""
    measured = arithmetic(rows)
    values = [row.scores["best_test"] for row in rows]
    finite = [min(value, 1e30) if value == value else 1e30 for value in values]  # a run that broke is the worst
    return replace(measured, ours={ERROR.name: median(finite), **measured.ours})
