"""Appendix E: the runs of Tables 9 to 12 judged by other metrics and thresholds than the published ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.models import trained
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.deciding import drawn
from numerate.experiments.primer2022.recipes import RECIPES
from numerate.experiments.primer2022.tables import NAMES, TABLES, trainings
from numerate.experiments.remarks import about, reasons
from numerate.report import SUCCESS, Claim, Comparison, Layout, comparison
from numerate.report.text import counted
from numerate.results import Row
from numerate.tasks import PRIMER_RANGES, SingleModule
from numerate.train import Training
from numerate.units import Ramp

EXAMPLES = 2000
MSE, LOOSE, STRICT, MAPE, PCC, EARLY = CRITERIA = (
    "MSE", "MSE, ε = 10⁻⁴", "MSE, ε = 10⁻⁶", "MAPE", "PCC", "before the penalty",
)  # fmt: skip
EARLY_EPSILON = 0.49
"""Below ½: weights nearer to the right discrete value than to another."""

Numbers = np.ndarray
OPERATIONS: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}


def nearly(operation: str, a: Numbers, b: Numbers, ε: float) -> Numbers:
    """The ε-perfect model of 6.5 for two inputs."""
    y = OPERATIONS[operation](a, b)
    if operation in ("add", "sub"):
        return y - ε * (abs(a) + abs(b))
    return y * (1 - ε) ** 2 if operation == "mul" else y * (1 - ε) / (1 + ε)


def tilted(operation: str, a: Numbers, b: Numbers, ε: float) -> Numbers:
    """Weights off by ε in opposite directions, in log space for × and ÷: what a correlation can see.

    The ε-perfect model scales a sum of positive numbers, a product and a quotient, which leaves their correlation 1.
    """
    if operation in ("add", "sub"):
        return OPERATIONS[operation](a * (1 - ε), b * (1 + ε))
    return OPERATIONS[operation](a, b) * abs(a) ** -ε * abs(b) ** ε


def mape(found: Numbers, y: Numbers) -> float:
    """Mean absolute error relative to y."""
    return float((abs(found - y) / abs(y)).mean())


def decorrelation(found: Numbers, y: Numbers) -> float:
    """1 − Pearson's correlation; 1 where the model is constant."""
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation = np.corrcoef(found, y)[0, 1]
    return float(1 - correlation) if np.isfinite(correlation) else 1.0


def judged(work: Work, rows: Sequence[Row]) -> list[Row]:
    """Every run once for each criterion, with the error and the threshold of that criterion."""
    known, found = work.arithmetic, []
    for row in rows:
        if row.key in known:
            for criterion, error, threshold in scores(known[row.key], row):
                scored = {"best_test": error, "threshold": threshold}
                kept = {name: value for name, value in row.scores.items() if name != "snapped_test"}
                found.append(replace(row, labels={**row.labels, "criterion": criterion}, scores={**kept, **scored}))
    return found


def scores(training: Training, row: Row) -> Iterator[tuple[str, float, float]]:
    """(criterion, error, threshold) of one run."""
    task = training.task
    assert isinstance(task, SingleModule)
    error = row.scores["best_test"]
    for criterion, epsilon in ((MSE, task.epsilon), (LOOSE, 1e-4), (STRICT, 1e-6)):
        yield criterion, error, replace(task, epsilon=epsilon).threshold()
    x, _ = drawn(training, task, "test", row.seed, EXAMPLES)
    with torch.no_grad():
        found = trained(training, row)(x)[:, 0].double().numpy()
    a, b = x.double().numpy().T
    y = OPERATIONS[task.operation](a, b)
    found = np.where(np.isfinite(found), found, 1e30)
    yield MAPE, mape(found, y), mape(nearly(task.operation, a, b, task.epsilon), y)
    yield PCC, decorrelation(found, y), decorrelation(tilted(task.operation, a, b, task.epsilon), y)
    starts = [p.schedule.start for p in training.penalties if isinstance(p.schedule, Ramp)]
    if starts and "test" in row.curves:
        before = int(np.searchsorted(np.asarray(row.curves["steps"]), starts[0], side="right")) - 1
        early = replace(task, epsilon=EARLY_EPSILON).threshold()
        yield EARLY, float(row.curves["test"][before]), early


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows,
        title="Primer 2022, Appendix E: other criteria of success",
        layout=Layout(x="criterion", panels=list(NAMES), xs=CRITERIA, x_title="Criterion"),
        metrics=(SUCCESS,),
    )


def claims(compared: Comparison) -> list[Claim]:
    solved = {(c.panel, c.series, c.x): (c.measured.solved or 0) / c.measured.n for c in compared.cells}
    places = list(dict.fromkeys((panel, series) for panel, series, _ in solved))
    apart = {
        x: [f"{s} on {p}" for p, s in places if abs(solved[p, s, x] - solved[p, s, MSE]) > 0.1] for x in (MAPE, PCC)
    }
    monotone = all(solved[*place, STRICT] <= solved[*place, MSE] <= solved[*place, LOOSE] for place in places)
    told = "; ".join(
        f"{x} differs by more than ten points from MSE in {counted(len(some), 'place')} of {len(places)}"
        + (f" ({', '.join(some[:4])}{', …' if len(some) > 4 else ''})" if some else "")
        for x, some in apart.items()
    )
    return [
        Claim("Other metrics such as PCC or MAPE are also valid, with each metric having its own biases.",
              f"{told}.", any(apart.values())),
        Claim("Larger values of ε would be more tolerant while smaller values are harsher.",
              "so it is in every place." if monotone else "not in every place.", monotone),
    ]  # fmt: skip


def work_list(options: Options) -> list[Training]:
    return trainings(list(TABLES.values()), options)


EXPERIMENTS = [
    Experiment(
        id="primer2022/appendix-e",
        title="Appendix E: the runs of Tables 9 to 12 judged by MAPE, by correlation and by other thresholds",
        trainings=work_list,
        show=comparison_page(compare, claims, prepare=judged),
        about=about("primer2022", "appendix-e"),
        reasons=reasons("primer2022", "appendix-e"),
        units=tuple(dict.fromkeys(name for recipes in RECIPES.values() for name in recipes)),
        ranges=tuple(PRIMER_RANGES),
    )
]
