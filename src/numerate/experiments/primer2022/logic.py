"""NLRL: truth functions and arithmetic on [0, 1] by two layers, over hidden units, forms and negation gates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import comb, hypot

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import two_layers
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Layout, comparison
from numerate.report.metrics import SOLVED_AT, SUCCESS
from numerate.report.text import counted, percent
from numerate.results import Row
from numerate.stats import boschloo, wilson
from numerate.tasks import Logic
from numerate.tasks.logic import RULES
from numerate.train import Adam, Training
from numerate.units import NLRL

MODELS = FULL, AND, SINGLE = "NLRL", "NLRL, AND only", "NLRL, AND only, one negation"
HIDDEN = {"smoke": (2,), "quick": (1, 2, 4, 8, 16), "paper": (1, 2, 4, 6, 8, 10, 12, 14, 16)}
STEPS = {"smoke": 500, "quick": 5_000, "paper": 20_000}
SATURATED = 8.0
"""Hidden units from which on more are said not to help."""
GAIN = 0.1
"""Success gained by the last step to them, if they are the saturation point."""
TITLES = {
    "and": "x₁ and x₂", "or": "x₁ or x₂", "not": "not x₁", "xor": "x₁ xor x₂",
    "mul": "x₁ · x₂", "mean": "(x₁ + x₂) / 2", "identity": "x₁", "constant": "1",
}  # fmt: skip


def recipes(hidden: int) -> dict[str, Recipe]:
    """AND alone negates its outputs; then the layer behind needs no negation gate of its own."""
    forms = {
        FULL: (NLRL, NLRL),
        AND: (partial(NLRL, form="and"), partial(NLRL, form="and")),
        SINGLE: (partial(NLRL, form="and"), partial(NLRL, form="and", negate=False)),
    }
    return {
        name: Recipe(partial(two_layers, first=first, second=second, hidden=hidden), Adam(1e-2))
        for name, (first, second) in forms.items()
    }


def placed(recipe: Recipe, hidden: int) -> Recipe:
    """A unit of the user's own in both layers, as ours are."""
    return replace(recipe, model=partial(two_layers, first=recipe.model, second=recipe.model, hidden=hidden))


def trainings(options: Options) -> list[Training]:
    steps = STEPS[options.size]
    return [
        recipe.training(
            task=Logic(rule),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=steps,
            evaluate_every=steps // 50,
            evaluation_size=500,
            labels={"unit": name, "rule": rule, "hidden": hidden},
        )
        for hidden in HIDDEN[options.size]
        for name, recipe in choose_recipes(
            options.units, recipes(hidden), placed=partial(placed, hidden=hidden)
        ).items()
        for rule in RULES
    ]


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    layout = Layout(
        panel="rule",
        x="hidden",
        panels=list(RULES),
        panel_titles=TITLES,
        order=MODELS,
        x_title="Hidden units",
        joined=True,
    )
    return comparison(rows, title="Primer 2022: logic with the NLRL", layout=layout, metrics=(SUCCESS, SOLVED_AT))


def claims(compared: Comparison) -> list[Claim]:
    """Sentences of 7.1; the last also looks at how long runs took."""

    def counts(name: str, hidden: Sequence[float] | None = None) -> tuple[int, int]:
        cells = [c.measured for c in compared.cells if c.series == name and (hidden is None or c.x in hidden)]
        return sum(m.solved or 0 for m in cells), sum(m.n for m in cells)

    sizes = [float(x) for x in compared.xs]
    if not {1.0, SATURATED, 16.0} <= set(sizes) or not set(MODELS) <= set(compared.series):
        return []
    by_size = {x: counts(FULL, [x]) for x in sizes}
    rates = ", ".join(f"{x:g}: {k} of {n}" for x, (k, n) in by_size.items())
    enough = next(x for x in sizes if x == 16 or boschloo(by_size[x], by_size[16.0]) >= 0.05)
    full, only, single = counts(FULL), counts(AND), counts(SINGLE)
    gates = f"solved: {AND} {only[0]} of {only[1]}, {SINGLE} {single[0]} of {single[1]}"
    differ = boschloo(only, single) < 0.05
    places = _both_solved(compared, FULL, AND)
    apart = [(a, b) for a, b in places if a != b]
    faster, ties = sum(a < b for a, b in apart), len(places) - len(apart)
    seconds = {name: _seconds(compared.rows, name) for name in (FULL, AND)}
    return [
        Claim(
            "Increasing the units improves performance until a saturation point is reached.",
            f"solved runs of the full NLRL by hidden units: {rates}.",
            None if enough == 1 else enough < 16,
        ),
        Claim(
            "The saturation point is found to be 8 (our test: 8 units solve more than the next smaller number and no "
            f"larger number solves more, Boschloo, 5 %; refuted where 8 gain less than {percent(GAIN)} of the runs).",
            f"{_gain(by_size)}; from {enough:g} hidden units on there is no significant difference to 16.",
            _saturates(by_size),
        ),
        Claim(
            "If stacking is required, it is suggested to remove cases with consecutive negation gating layers.",
            f"{gates}; {'a' if differ else 'no'} difference (Boschloo, 5 %).",
            None if not differ else single[0] / single[1] > only[0] / only[1],
        ),
        Claim(
            "Using a module with both AND and OR results in faster convergence (less iterations), compared to using a "
            "module only using AND operations.",
            f"of {counted(len(places), 'place')} that both solve, the full form is solved earlier in {faster}"
            f"{f', at the same step in {ties}' if ties else ''}; it solves {percent(full[0] / full[1])} of its runs, "
            f"AND alone {percent(only[0] / only[1])}.",
            _majority(faster, len(apart)),
        ),
        Claim(
            "It has a longer computation time to train each iteration.",
            f"seconds for a run: {seconds[FULL]:.3g} with both, {seconds[AND]:.3g} with AND alone, in our loops, where "
            "OR is a product and not a Kronecker product. Other work on the machine changes such short times by more "
            "than that, so there is no verdict.",
        ),
    ]  # fmt: skip


def _saturates(by_size: Mapping[float, tuple[int, int]]) -> bool | None:
    """Whether success grows up to ``SATURATED`` units and no further; None if the runs are too few to tell."""
    here, before = by_size[SATURATED], by_size[_before(by_size)]
    if any(_more(by_size[x], here) for x in by_size if x > SATURATED):
        return False
    if _more(here, before):
        return True
    (a, b), gain = (wilson(*counts) for counts in (before, here)), here[0] / here[1] - before[0] / before[1]
    if a.value is None or a.low is None or b.value is None or b.high is None:
        return None
    return False if gain + hypot(a.value - a.low, b.high - b.value) < GAIN else None  # Newcombe's interval


def _more(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] / one[1] > other[0] / other[1] and boschloo(one, other) < 0.05


def _gain(by_size: Mapping[float, tuple[int, int]]) -> str:
    sizes = _before(by_size), SATURATED
    solved = ", ".join(f"{size:g} units {by_size[size][0]}" for size in sizes)
    return f"{solved} of {by_size[SATURATED][1]} runs"


def _before(by_size: Mapping[float, tuple[int, int]]) -> float:
    """The largest number of units below ``SATURATED``."""
    return max(size for size in by_size if size < SATURATED)


def _both_solved(compared: Comparison, first: str, second: str) -> list[tuple[float, float]]:
    """Mean solved-at of both series, wherever both have solved runs."""
    at = {(c.series, c.panel, c.x): c.measured.ours[SOLVED_AT.name].value for c in compared.cells}
    pairs = [(value, at.get((second, panel, x))) for (series, panel, x), value in at.items() if series == first]
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _majority(count: int, of: int) -> bool | None:
    """True or False where a sign test at 5 % says so."""
    tail = sum(comb(of, i) for i in range(min(count, of - count) + 1)) / 2**of
    return 2 * count > of if 2 * tail < 0.05 else None


def _seconds(rows: Sequence[Row], name: str) -> float:
    seconds = [row.provenance.seconds for row in rows if row.labels["unit"] == name]
    return sum(seconds) / len(seconds) if seconds else 0.0


EXPERIMENTS = [
    Experiment(
        id="primer2022/logic",
        title="NLRL: AND, OR, NOT, XOR, ×, a mean, identity and a constant, 1 to 16 hidden units, three forms",
        trainings=trainings,
        show=comparison_page(compare, claims),
        about=about("primer2022", "logic"),
        reasons=reasons("primer2022", "logic"),
        units=MODELS,
        own="each of two layers, as NLRL is",
    )
]
