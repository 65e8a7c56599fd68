"""NSR: six comparisons of whole and of real numbers, tested on far larger ones; redundancy."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.pages import comparison_page
from numerate.experiments.primer2022.deciding import ACCURACY, accuracies, at_least, retested
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import SUCCESS, Claim, Comparison, Layout, comparison
from numerate.report.text import percent
from numerate.results import Row
from numerate.stats import boschloo, wilson
from numerate.tasks import Compare
from numerate.tasks.decisions import COMPARISONS
from numerate.train import Adam, Training
from numerate.units import MLP, NSR

PATHS = {"smoke": (1,), "quick": (1, 3, 10), "paper": tuple(range(1, 11))}
STEPS = {"smoke": 500, "quick": 5_000, "paper": 50_000}
SCALES = {"integers": 1.0, "reals": 10.0}
"""λ: the smaller the differences that matter, the larger."""
KINDS = {"integers": "Whole numbers", "reals": "Real numbers"}
FAR = {"integers": 1e6, "reals": 1e3}
"""Size of the numbers in the test, in place of 9; beyond, λ times a rounding error of float32 is a difference."""
EQUALITIES = ("=", "≠")
LEARNT = 0.9
"""Share of runs that must be solved for comparisons to count as learnt."""


def named(paths: int) -> str:
    return "NSR" if paths == 1 else f"NSR, {paths} paths"


def recipes(scale: float) -> dict[str, Recipe]:
    nsr = {named(p): Recipe(partial(NSR, paths=p, scale=scale), Adam(1e-2)) for p in PATHS["paper"]}
    return {**nsr, "MLP": Recipe(partial(MLP, hidden=(16,), activation="relu"), Adam(1e-2))}


def trainings(options: Options) -> list[Training]:
    steps, default = STEPS[options.size], [*map(named, PATHS[options.size]), "MLP"]
    return [
        recipe.training(
            task=Compare(symbol, integers=kind == "integers"),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=steps,
            evaluate_every=steps // 10,
            evaluation_size=1000,
            labels={"unit": name, "numbers": kind, "symbol": symbol},
        )
        for kind, scale in SCALES.items()
        for name, recipe in choose_recipes(options.units, recipes(scale), default=default).items()
        for symbol in COMPARISONS
    ]


def judged(work: Work, rows: Sequence[Row]) -> list[Row]:
    """The runs, each by its share of right decisions on numbers of the size ``FAR``."""
    kinds = {kind: [row for row in rows if row.labels["numbers"] == kind] for kind in SCALES}
    found: list[Row] = []
    for kind, runs in kinds.items():
        for symbol in COMPARISONS:
            task = Compare(symbol, integers=kind == "integers", test_size=FAR[kind])
            found += retested(work, [row for row in runs if row.labels["symbol"] == symbol], "test", {"far": task})
    return found


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    return comparison(
        rows,
        title="Primer 2022: comparisons with the NSR",
        layout=Layout(
            panel="numbers",
            x="symbol",
            xs=list(COMPARISONS),
            order=[*map(named, PATHS["paper"]), "MLP"],
            panel_titles=KINDS,
            x_title="Comparison",
        ),
        measure=accuracies,
        metrics=(replace(SUCCESS, meaning="All but 1 % of 500 test examples decided right."), ACCURACY),
    )


def claims(compared: Comparison) -> list[Claim]:
    """Sentences of 7.2."""
    if not {named(1), named(10), "MLP"} <= set(compared.series):
        return []

    def counts(name: str, symbols: Sequence[str]) -> tuple[int, int]:
        cells = [c.measured for c in compared.cells if c.series == name and c.x in symbols]
        return sum(m.solved or 0 for m in cells), sum(m.n for m in cells)

    def listed(name: str) -> str:
        parts = []
        for kind, title in KINDS.items():
            cells = [c for c in compared.of(kind, name) if c.measured.n]
            shares = {c.x: (c.measured.solved or 0) / c.measured.n for c in cells}
            if not shares:
                continue
            each = ", ".join(f"{x} {percent(share)}" for x, share in shares.items())
            parts.append(f"{title.lower()}: {'all' if min(shares.values()) == 1 else each}")
        return "; ".join(parts)

    orders = tuple(symbol for symbol in COMPARISONS if symbol not in EQUALITIES)
    one, other = counts(named(1), EQUALITIES), counts(named(1), orders)
    ten = counts(named(10), EQUALITIES)
    mlp, best = counts("MLP", orders), counts(named(10), orders)
    solved, runs = counts(named(10), tuple(COMPARISONS))
    return [
        Claim(
            "The NSR can learn the comparison functions with both input types and can extrapolate well.",
            f"runs solved with ten paths: {solved} of {runs} ({listed(named(10))}).",
            at_least(wilson(solved, runs), LEARNT),
        ),
        Claim(
            "Modules struggle with learning the = and ≠ operations.",
            f"with one path {one[0]} of {one[1]} runs on = and ≠, {other[0]} of {other[1]} on the others.",
            None if boschloo(one, other) >= 0.05 else one[0] / one[1] < other[0] / other[1],
        ),
        Claim(
            "Performance can be improved by introducing redundancy through additional sets of weights.",
            f"on = and ≠ {one[0]} of {one[1]} runs with one path, {ten[0]} of {ten[1]} with ten.",
            None if boschloo(one, ten) >= 0.05 else ten[0] / ten[1] > one[0] / one[1],
        ),
        Claim(
            "(Ours) A perceptron does not extrapolate comparisons.",
            f"on < > ≤ ≥ {mlp[0]} of {mlp[1]} runs, the NSR with ten paths {best[0]} of {best[1]}.",
            None if boschloo(mlp, best) >= 0.05 else mlp[0] / mlp[1] < best[0] / best[1],
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="primer2022/compare",
        title="NSR: < > = ≠ ≤ ≥ of whole and real numbers, extrapolation, redundancy 1 to 10",
        trainings=trainings,
        show=comparison_page(compare, claims, prepare=judged),
        about=about("primer2022", "compare"),
        reasons=reasons("primer2022", "nsr", "compare"),
        units=[*map(named, PATHS["paper"]), "MLP"],
    )
]
