"""Figures 4, 13, 14 and 15: the product and the sum of a sequence of handwritten digits, with and without R_z."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from numerate import published
from numerate.experiments import digit_pictures
from numerate.experiments.digit_reader import with_lengths
from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.nau2020.digit_claims import FIRST, claims
from numerate.experiments.nau2020.digit_models import digit_network, r_z_of_product, r_z_of_sum
from numerate.experiments.nau2020.digit_rounding import with_rounded_cells
from numerate.experiments.one_unit import natu_recipe
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.published import Published
from numerate.report import SUCCESS, Comparison, Layout, Measured, Metric, Picture, PublishedTest, comparison
from numerate.report.metrics import SOLVED_AT, SPARSITY, arithmetic
from numerate.results import Row
from numerate.results.outcome import below_threshold, solved_at
from numerate.stats import upper_mean, wilson
from numerate.tasks import DigitSequences
from numerate.train import Adam, NetworkTraining, Penalty, Plateau, Settings
from numerate.units import (
    NAC,
    NALU,
    NATU,
    NAU,
    NMRU,
    NMU,
    Constant,
    NACMul,
    NACMulNMU,
    NACMulSigmoid,
    Ramp,
    StochasticNMU,
    penalty,
)  # fmt: skip

EXACT = "exact"
"""The network whose cell adds or multiplies exactly: its errors are what the thresholds are made of."""
STEPS = {"smoke": 4, "quick": 500}
QUICK_BATCH = {"product": 16, "sum": 4}
"""Sequences of a batch at quick size: many updates of few images teach more in a given time than few of many."""
EPOCHS = 1001
EVERY = 5
"""Epochs between two evaluations of runs of the published size, however many epochs they have."""
LENGTHS = {"product": tuple(range(1, 21)), "sum": (1, 10, *range(100, 1001, 100))}
FAILED = 10.0
"""Exact networks with so many times the median error count as failed. The authors left theirs out by hand: seeds 1, 3
and 8 of the product, 0 of the sum; our seeds are not theirs."""
DEGREES = 8
"""Of freedom, as in the published bounds, though they are over 7 and 9 seeds."""

CONSTANT = {
    "product": statistics.mean((285 / 9) ** k - 5.0 ** (2 * k) for k in (1, 2)),
    "sum": statistics.mean(8.25 * k for k in range(1, 11)),
}
"""Squared error of telling the mean of uniform digits at every step of a sequence of the training length."""

SPARSE = Penalty(penalty, Ramp(10.0, 10_000, 100_000))
ABLATED = ("NAU", "NMU", "NAC•,NMU")
"""Cells that Figures 14 and 15 show without R_z."""
R_Z = {"product": Penalty(r_z_of_product, Constant(1.0)), "sum": Penalty(r_z_of_sum, Constant(1.0))}


NUMBERS = (
    "What the cell is given for an image, the mean over images of each digit: a line for each seed. On the dotted line "
    "the convolutional network has learnt what a digit is worth, and the cell gathers digits; elsewhere the two share "
    "the work in a way that no other cell could use."
)


@dataclass(frozen=True)
class Figure:
    """One figure of the paper.

    Args:
        id: its name.
        operation: ``product`` or ``sum``.
        regularised: whether R_z is part of the loss, of those that have it in the paper.
        title: what it shows.
    """

    id: str
    operation: str
    regularised: bool
    title: str


FIGURES = (
    Figure("figure4", "product", True, "product of a sequence of digits"),
    Figure("figure13", "sum", True, "sum of a sequence of digits"),
    Figure("figure14", "sum", False, "sum of a sequence of digits, NAU without R_z"),
    Figure("figure15", "product", False, "product of a sequence of digits without R_z"),
)


def recipes(figure: Figure) -> dict[str, Recipe]:
    """Printed name -> the cell, where its state starts, and what is added to the loss.

    The state starts at 0 for NALU and LSTM on the product, too, as in the published code.
    """
    r_z = (R_Z[figure.operation],) if figure.regularised else ()

    def network(cell: object, start: float, *penalties: Penalty, logarithms: bool = False) -> Recipe:
        return Recipe(partial(digit_network, cell=cell, initial=start, logarithms=logarithms), penalties=penalties)

    others = {"NALU": network(NALU, 0.0), "LSTM": network(None, 0.0)}
    if figure.operation == "sum":
        return {
            "NAU": network(NAU, 0.0, SPARSE, *r_z),
            "NAC+,Rz": network(NAC, 0.0, R_Z["sum"]),
            "NAC+": network(NAC, 0.0),
            **others,
        }
    return {
        "NMU": network(NMU, 1.0, SPARSE, *r_z),
        "NAC•,NMU": network(NACMulNMU, 1.0, SPARSE, *r_z, logarithms=True),
        "NAC•,σ": network(NACMulSigmoid, 1.0),
        "NAC•": network(NACMul, 1.0),
        **others,
    }


def with_r_z(figure: Figure) -> dict[str, Recipe]:
    """In a figure without R_z: those that have it in the other one, whose runs these are."""
    if figure.regularised:
        return {}
    return {f"{name},Rz": recipe for name, recipe in recipes(other(figure)).items() if name in ABLATED}


def other(figure: Figure) -> Figure:
    """The same with R_z, or without."""
    return next(f for f in FIGURES if f.operation == figure.operation and f.regularised != figure.regularised)


def later(figure: Figure) -> dict[str, Recipe]:
    """Units that came after the paper, trained if they are asked for; NMRU without R_z, which knows no reciprocals.

    NATU is the same for sum and product: its own recipe, no penalty, and a state that starts where its gate says. No
    network reads digits without an error, so that a tenth of the error of answering 0 is good enough.
    """
    own = natu_recipe().optimiser.rate
    quickly = Adam(parameters={"cell.*": Settings(own)})
    natu = {"NATU": Recipe(partial(digit_network, cell=NATU, initial=None), quickly, restart=Plateau(above=0.1))}
    if figure.operation == "sum":
        return natu
    r_z = (R_Z["product"],) if figure.regularised else ()
    return natu | {
        "Stochastic NMU": Recipe(partial(digit_network, cell=StochasticNMU, initial=1.0), penalties=(SPARSE, *r_z)),
        "NMRU": Recipe(partial(digit_network, cell=NMRU, initial=1.0), penalties=(SPARSE,)),
    }


def placed(figure: Figure) -> Callable[[Recipe], Recipe]:
    """A unit of the user's own takes the place of the cell."""
    start = 1.0 if figure.operation == "product" else 0.0
    return lambda own: replace(own, model=partial(digit_network, cell=own.model, initial=start))


def task(figure: Figure, size: str) -> DigitSequences:
    length = 2 if figure.operation == "product" else 10
    whole = DigitSequences(figure.operation, length, LENGTHS[figure.operation])  # type: ignore[arg-type]
    if size == "paper":
        return whole
    if size == "quick":
        shorter = tuple(n for n in whole.test_lengths if n <= 100)
        return replace(whole, batch_size=QUICK_BATCH[figure.operation], held_out=2000, test_lengths=shorter)
    return replace(whole, batch_size=4, held_out=40, test_lengths=(1, 4))


def duration(given: DigitSequences, options: Options) -> tuple[int, int]:
    """Updates of a run, and those between two evaluations."""
    if options.size == "paper":
        return options.steps or EPOCHS * given.epoch, EVERY * given.epoch
    steps = options.steps or STEPS[options.size]
    return steps, max(1, steps // 4)


def trainings(figure: Figure) -> Callable[[Options], list[NetworkTraining]]:
    def make(options: Options) -> list[NetworkTraining]:
        given = task(figure, options.size)
        steps, every = duration(given, options)
        exact = Recipe(partial(digit_network, cell=figure.operation))
        known = recipes(figure) | with_r_z(figure)
        unit = FIRST[figure.operation]
        default = [name for name in (unit, f"{unit},Rz") if name in known] if options.size == "smoke" else list(known)
        chosen = choose_recipes(options.units, known | later(figure), default=default, placed=placed(figure))
        return [
            recipe.network_training(
                model=with_lengths(recipe.model, given),
                task=given,
                seeds=options.seed_range(smoke=2, quick=10, paper=10),
                steps=steps,
                evaluate_every=every,
                labels={"unit": name, "task": figure.operation},
            )
            for name, recipe in ({EXACT: exact} | chosen).items()
        ]

    return make


# ---------------------------------------------------------------- success at each length


def error(row: Row, length: int) -> float:
    """Test error at the best validation point, of sequences of ``length``."""
    return row.scores[f"best_{_curve(row, length)}"]


def _curve(row: Row, length: int) -> str:
    """Name of the curve of test errors at a length."""
    return "test" if length == int(row.config["task"]["length"]) else f"test_length_{length}"


def lengths(row: Row) -> list[int]:
    """Those that were tested."""
    trained = int(row.config["task"]["length"])
    others = [
        int(name.removeprefix("best_test_length_")) for name in row.scores if name.startswith("best_test_length_")
    ]
    return sorted({trained, *others})


def exact_networks(rows: Sequence[Row]) -> list[Row]:
    """The finished ones."""
    return [row for row in rows if row.labels["unit"] == EXACT and row.status == "finished"]


def thresholds(rows: Sequence[Row], as_published: bool = False) -> dict[int, float]:
    """Length -> error below which a run counts as a success: an upper bound of the exact network's mean error.

    Mean + t(0.99) · deviation / √n over its seeds. ``as_published``: without the seeds that failed, and with the
    authors' eight degrees of freedom.
    """
    exact = exact_networks(rows)
    if as_published and exact:
        usual = statistics.median(row.scores["best_test"] for row in exact)
        exact = [row for row in exact if row.scores["best_test"] <= FAILED * usual]
    if len(exact) < 2:
        return {}
    degrees = DEGREES if as_published else len(exact) - 1
    return {length: upper_mean([error(row, length) for row in exact], degrees) for length in lengths(exact[0])}


def have_learnt(rows: Sequence[Row]) -> bool:
    """Whether the exact networks' median error is below that of telling the mean; else any network would pass."""
    errors = [row.scores["best_test"] for row in exact_networks(rows)]
    return bool(errors) and statistics.median(errors) < CONSTANT[str(rows[0].labels["task"])]


def unbounded(rows: Sequence[Row]) -> str:
    """Why the exact networks give no bound on success, in one sentence; empty if they do."""
    count = len(exact_networks(rows))
    if count < 2:
        return f"There is no bound on success: it takes two finished networks with an exact cell, and there is {count}."
    if not have_learnt(rows):
        return (
            "There is no bound on success: the networks with an exact cell err more than a constant at the length of "
            "training."
        )
    return ""


def at_each_length(rows: Sequence[Row]) -> list[Row]:
    """One row for each run and length, judged by that length's threshold; ``threshold_all``: that of all seeds."""
    limits, of_all = (thresholds(rows, way) if not unbounded(rows) else {} for way in (True, False))
    return [
        replace(
            row,
            labels={**row.labels, "length": length},
            scores={
                **_without_solved(row),
                **_rounded(row, length),
                "best_test": error(row, length),
                "solved_at": _solved_at(row, length, limits.get(length, math.nan)),
                "threshold": limits.get(length, math.nan),
                "threshold_all": of_all.get(length, math.nan),
            },
        )
        for row in rows
        if row.labels["unit"] != EXACT
        for length in lengths(row)
    ]


def _rounded(row: Row, length: int) -> dict[str, float]:
    """The test error at a length with rounded weights, where that was tried."""
    trained = int(row.config["task"]["length"])
    name = "snapped_error" if length == trained else f"snapped_length_{length}"
    return {"snapped_test": row.scores[name]} if name in row.scores else {}


def _solved_at(row: Row, length: int, limit: float) -> float:
    """The first step of the stored curve with a test error below the limit; NaN if there is none."""
    name = _curve(row, length)
    step = solved_at(row.curves["steps"], row.curves[name], limit) if name in row.curves else None
    return math.nan if step is None else float(step)


def _without_solved(row: Row) -> dict[str, float]:
    return {name: value for name, value in row.scores.items() if name != "solved"}


SUCCESS_OF_ALL = replace(
    SUCCESS,
    name="success_rate_all_seeds",
    title="Success rate, bound of all seeds",
    meaning="By a bound from all seeds of the exact network, failed ones too, with the right degrees of freedom.",
)
BY_LENGTH = replace(
    SOLVED_AT,
    meaning="By the test errors at that length. Stored curves have about 200 points at most: of a run of 1,001 epochs "
    "every tenth epoch is looked at. The authors looked at every fifth.",
)


def measure(rows: Sequence[Row]) -> Measured:
    """Success by the bound of the paper and by that of all seeds; solved-at and sparsity. Nothing without a bound."""
    measured = arithmetic(rows)
    if math.isnan(rows[0].threshold):
        return Measured(measured.n, {}, diverged=measured.diverged)
    solved = sum(below_threshold(row.scores["best_test"], row.scores["threshold_all"]) for row in rows)
    return replace(measured, ours={**measured.ours, SUCCESS_OF_ALL.name: wilson(int(solved), len(rows))})


def compare(figure: Figure, rows: Sequence[Row], options: Options) -> Comparison:
    number = figure.id.removeprefix("figure")
    return comparison(
        at_each_length(rows),
        _published(figure),
        title=f"Neural Arithmetic Units, Figure {number}",
        layout=Layout(
            panel="task",
            x="length",
            panel_titles={"product": "Product", "sum": "Sum"},
            x_title="Sequence length",
            order=(*recipes(figure), *with_r_z(figure), *later(figure)),
            match=partial(_place, figure),
            joined=True,
        ),
        test=PublishedTest("rates" if options.as_published else "series" if options.size == "paper" else None),
        measure=measure,
        metrics=(_success(unbounded(rows)), SUCCESS_OF_ALL, BY_LENGTH, SPARSITY),
    )


def _success(unbounded: str) -> Metric:
    """The success rate; where there is no bound, report and terminal say why."""
    if not unbounded:
        return SUCCESS
    return replace(SUCCESS, meaning=unbounded, brief_title=f"{SUCCESS.brief_title}. {unbounded}")


def _published(figure: Figure) -> list[Published]:
    """What is in print; of models with R_z from the figure that has it."""
    found: list[Published] = []
    for shown in (figure, *([] if figure.regularised else [other(figure)])):
        if shown.id == "figure15":  # is drawn without numbers that could be read off
            continue
        cells = published.cells(paper="nau2020", table=[f"figure {shown.id.removeprefix('figure')}"])
        if shown is not figure:
            cells = [replace(cell, model=f"{cell.model},Rz") for cell in cells if cell.model in ABLATED]
        found += cells
    return [_without_negatives(cell) for cell in found]


def _without_negatives(cell: Published) -> Published:
    """Values read off the figure a little below zero are zero."""
    values = {name: getattr(cell, name) for name in ("value", "low", "high")}
    return replace(cell, **{name: max(0.0, value) for name, value in values.items() if value is not None})


def _place(figure: Figure, cell: Published) -> tuple[str, str, object]:
    return figure.operation, cell.model, int(float(cell.x.rpartition(" ")[2]))


def pictures(figure: Figure, work: Work, rows: Sequence[Row]) -> list[Picture]:
    """What each network reads from a digit; products have no zeros."""
    shown = range(1 if figure.operation == "product" else 0, 10)
    models = [row for row in rows if row.labels["unit"] != EXACT]
    return digit_pictures.read_numbers(work, models, NUMBERS, shown=shown, exact=True)


def experiment(figure: Figure) -> Experiment:
    return Experiment(
        id=f"nau2020/{figure.id}",
        title=f"Figure {figure.id.removeprefix('figure')}: {figure.title}",
        trainings=trainings(figure),
        show=comparison_page(
            partial(compare, figure),
            partial(claims, figure.operation, figure.regularised),
            prepare=with_rounded_cells,
            judged=("paper",),
            pictures=partial(pictures, figure),
        ),
        about=about("nau2020", f"digits-{figure.operation}"),
        reasons=reasons("nau2020", "digits", *([] if figure.regularised else ["digits-without"])),
        quick_reasons=reasons("nau2020", "digits-quick"),
        units=(*recipes(figure), *with_r_z(figure), *later(figure)),
        own="the cell, on a number read from an image and its own last output",
    )


EXPERIMENTS = [experiment(figure) for figure in FIGURES]
