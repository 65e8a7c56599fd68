"""NSR behind a convolutional network: comparing two handwritten digits, beside a perceptron and a network for both."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from numerate.experiments.digit_pictures import read_numbers
from numerate.experiments.digit_reader import SIDE, Reader
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.compare import EQUALITIES, named
from numerate.experiments.primer2022.deciding import ACCURACY, all_hold, at_least
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Layout, Measured, Metric, comparison, text
from numerate.results import Row
from numerate.stats import Estimate, median
from numerate.tasks import DigitPairs
from numerate.tasks.decisions import COMPARISONS
from numerate.train import NetworkTraining
from numerate.train.networks.grouping import checked_layer
from numerate.units import MLP, NSR

SYMBOLS = {"smoke": (">",), "quick": (">", "="), "paper": tuple(COMPARISONS)}
STEPS = {"smoke": 2, "quick": 1000, "paper": 20_000}
CNN, TOLD = "CNN", "NSR, digits told"
NEAR = 0.01
"""Median accuracies whose intervals differ by less throughout are comparable."""
GUESSES = {symbol: 0.4 if symbol in EQUALITIES else 0.3 for symbol in COMPARISONS}
"""Share of pairs that the best constant answer gets wrong."""
NUMBERS = (
    "What is read from an image, the mean over images of each digit: a line for each seed. For < > ≤ ≥ a line that "
    "rises or falls throughout has the digits in their order; = and ≠ only need numbers that are apart."
)


class PairNetwork(nn.Module):
    """Whether a comparison of two digits holds; (B, 2 · 784) -> (B, 1), a probability.

    Args:
        head: a unit of (2, 1) on the numbers read from the two images, by one network; None: a network that sees both
            images at once and gives the answer.
        logit: whether the head gives a logit, not a probability.
        numbers: whether the numbers read follow the answer, (B, 3).
    """

    def __init__(
        self, head: Callable[[int, int], nn.Module] | None = None, logit: bool = True, numbers: bool = False
    ) -> None:
        super().__init__()
        self.reader = Reader(1, (10, 20), 50, 2 if head is None else 1)
        self.head: Any = None if head is None else checked_layer(head, 2, 1)
        self.logit, self.numbers = logit or head is None, numbers

    def forward(self, x: Tensor) -> Tensor:
        if self.head is None:
            return self.reader(x).sigmoid()
        read = self.reader(x.reshape(-1, SIDE * SIDE)).view(-1, 2)
        answer = self.head(read)
        answer = answer.sigmoid() if self.logit else answer
        return torch.cat((answer, read), -1) if self.numbers else answer


def pair_network(inputs: int, outputs: int, **options: Any) -> PairNetwork:
    """A network for two images of 784 pixels; ``options``: those of :class:`PairNetwork`."""
    if (inputs, outputs) != (2 * SIDE * SIDE, 1):
        raise ValueError(
            f"a pair network reads 2 · {SIDE * SIDE} pixels and gives 1 answer, not {inputs} and {outputs}"
        )
    return PairNetwork(**options)


def recipes() -> dict[str, Recipe]:
    def nsr(paths: int, **options: Any) -> Recipe:
        return Recipe(partial(pair_network, head=partial(NSR, paths=paths), logit=False, **options))

    return {
        CNN: Recipe(pair_network),
        "MLP": Recipe(partial(pair_network, head=partial(MLP, hidden=(16,), activation="relu"))),
        named(1): nsr(1),
        named(10): nsr(10),
        TOLD: nsr(10, numbers=True),
    }


def placed(own: Recipe) -> Recipe:
    """A unit of the user's own is the head, and gives a logit."""
    return replace(own, model=partial(pair_network, head=own.model))


def task(symbol: str, told: bool, size: str) -> DigitPairs:
    whole = DigitPairs(symbol, told)
    less = {"smoke": {"batch_size": 2, "held_out": 10}, "quick": {"batch_size": 32, "held_out": 1000}, "paper": {}}
    return replace(whole, **less[size])


def trainings(options: Options) -> list[NetworkTraining]:
    steps = options.steps or STEPS[options.size]
    default = [CNN, named(1)] if options.size == "smoke" else list(recipes())
    return [
        recipe.network_training(
            task=task(symbol, name == TOLD, options.size),
            seeds=options.seed_range(smoke=2, quick=6, paper=10),
            steps=steps,
            evaluate_every=max(1, steps // 5),
            labels={"unit": name, "symbol": symbol, "task": "digits"},
        )
        for symbol in SYMBOLS[options.size]
        for name, recipe in choose_recipes(options.units, recipes(), default=default, placed=placed).items()
    ]


GRADIENT = Metric(
    "gradient", "Gradient norm", scale="log", show=text.number,
    meaning="The median over all runs of the mean norm of the gradient in the first fifth of training.",
)  # fmt: skip


def measure(rows: Sequence[Row]) -> Measured:
    shares = [0.0 if math.isnan(share := row.scores["best_test_accuracy"]) else share for row in rows]
    norms = [float(row.curves["gradient_norm"][1]) for row in rows if len(row.curves["gradient_norm"]) > 1]
    ours = {ACCURACY.name: median(shares), GRADIENT.name: median(norms)}
    return Measured(len(rows), ours, diverged=sum(row.status == "diverged" for row in rows))


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows,
        title="Primer 2022: comparing handwritten digits",
        layout=Layout(
            panel="task",
            x="symbol",
            xs=list(SYMBOLS[options.size]),
            order=list(recipes()),
            panel_titles={"digits": "Is the first digit ∘ the second?"},
            x_title="Comparison",
        ),
        measure=measure,
        metrics=(ACCURACY, GRADIENT),
    )


@dataclass(frozen=True)
class Medians:
    """Of one measure: model and comparison -> the median with its interval."""

    of: Mapping[tuple[str, str], Estimate]
    symbols: Sequence[str]

    def above(self, name: str, other: str) -> list[str]:
        """Comparisons in which the whole interval of one model is above that of another."""
        pairs = {symbol: (self.of[name, symbol].low, self.of[other, symbol].high) for symbol in self.symbols}
        return [symbol for symbol, (low, high) in pairs.items() if low is not None and high is not None and low > high]

    def reaches(self, name: str, least: Mapping[str, float]) -> bool | None:
        """Whether a model has at least this much in every comparison; None where an interval leaves that open."""
        return all_hold(at_least(self.of[name, symbol], least[symbol]) for symbol in self.symbols)

    def near(self, name: str, other: str, least: float) -> bool | None:
        """Whether two models differ by less in every comparison; None where the intervals leave that open."""
        return all_hold(
            _differ_by_less(self.of[name, symbol], self.of[other, symbol], least) for symbol in self.symbols
        )

    def away(self, name: str, other: str) -> float:
        """The largest distance of two medians."""
        return max(abs((self.of[name, s].value or 0.0) - (self.of[other, s].value or 0.0)) for s in self.symbols)

    def listed(self, names: Sequence[str], show: Callable[[float], str]) -> str:
        parts = [
            f"{name} {', '.join(f'{symbol} {show(self.of[name, symbol].value or 0.0)}' for symbol in self.symbols)}"
            for name in names
        ]
        return "; ".join(parts)


def _differ_by_less(one: Estimate, other: Estimate, least: float) -> bool | None:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    if max(one.high - other.low, other.high - one.low) < least:
        return True
    return False if max(one.low - other.high, other.low - one.high) >= least else None


def claims(compared: Comparison) -> list[Claim]:
    """Sentences of 7.2 on digits, the last one tested by a network that is told the digits, too."""
    if not set(recipes()) <= set(compared.series):
        return []
    symbols = [str(x) for x in compared.xs]
    accuracy, gradient = (
        Medians({(c.series, str(c.x)): c.measured.ours[metric.name] for c in compared.cells}, symbols)
        for metric in (ACCURACY, GRADIENT)
    )
    nsr = max((named(1), named(10)), key=lambda name: sum(accuracy.of[name, s].value or 0.0 for s in symbols))
    better, worse = accuracy.above(nsr, CNN), accuracy.above(CNN, nsr)
    told = accuracy.above(TOLD, nsr)
    percent = partial(_percent, digits=1)
    return [
        Claim(
            "The NSR can be used as a downstream module for a CNN in an end-to-end manner.",
            f"median accuracy: {accuracy.listed((named(1), named(10)), percent)}; a constant answer has 60 % on = ≠, "
            "70 % on the others.",
            accuracy.reaches(nsr, {symbol: 1 - GUESSES[symbol] / 2 for symbol in symbols}),
        ),
        Claim(
            "The NSR based network cannot outperform a vanilla CNN.",
            f"{accuracy.listed((nsr, CNN), percent)}; the NSR is ahead on {' '.join(better) or 'none'}, the CNN on "
            f"{' '.join(worse) or 'none'} (intervals apart).",
            not better if better or worse else None,
        ),
        Claim(
            "It is comparable to a MLP based network.",
            f"{accuracy.listed((nsr, 'MLP'), percent)}; medians differ by {100 * accuracy.away(nsr, 'MLP'):.1f} "
            "points at most.",
            accuracy.near(nsr, "MLP", NEAR),
        ),
        Claim(
            "The underperformance was suggested to be a result of a weak learning signal.",
            f"told the digits as well, the NSR has {accuracy.listed((TOLD,), percent)}, and is ahead of itself on "
            f"{' '.join(told) or 'none'}; norms of gradients in the first fifth: "
            f"{gradient.listed((nsr, 'MLP', CNN), text.number)}.",
            None if not worse else set(worse) <= set(told),
        ),
    ]


def _percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f} %"


EXPERIMENTS = [
    Experiment(
        id="primer2022/digit-compare",
        title="NSR behind a convolutional network: comparing two handwritten digits",
        trainings=trainings,
        show=comparison_page(
            compare,
            claims,
            judged=("paper",),
            pictures=lambda work, rows: read_numbers(
                work,
                [row for row in rows if row.labels["unit"] != CNN],
                NUMBERS,
                panel=lambda row: f"{row.labels['unit']}: {row.labels['symbol']}",
            ),
        ),
        about=about("primer2022", "digit-compare"),
        reasons=reasons("primer2022", "digit-compare"),
        quick_reasons=reasons("primer2022", "digit-compare-quick"),
        units=tuple(recipes()),
        own="the last layer, on the numbers read from two images; it gives a logit",
    )
]
