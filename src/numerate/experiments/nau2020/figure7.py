"""Figure 7: NMU without its sparsity penalty, without clamping, and without both, over the hidden size."""

from collections.abc import Sequence
from functools import partial

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import after_sums
from numerate.experiments.nau2020.recipes import INPUTS, OWN, SHORTER, late, layers
from numerate.experiments.pages import comparison_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Layout, comparison
from numerate.results import Row
from numerate.stats import boschloo
from numerate.tasks import Arithmetic
from numerate.train import Training
from numerate.units import NAU, NMU

HIDDEN = {"smoke": (2,), "quick": (2, 4, 8), "paper": (2, 3, 4, 5, 6, 7, 8, 9, 10)}
MODELS = FULL, NO_PENALTY, NO_CLAMP, NEITHER = "NMU", "NMU, no R_sparse", "NMU, no W-clamp", "NMU, neither"


def ablations(shorter: int, hidden: int) -> dict[str, Recipe]:
    """Without clamping the weights are free, and the equation alone clamps them; the penalty sees them as they are."""
    free = {"first": partial(NAU, clip="forward"), "second": partial(NMU, clip="forward")}
    return {
        FULL: layers(NAU, NMU, penalties=late(shorter), hidden=hidden),
        NO_PENALTY: layers(NAU, NMU, hidden=hidden),
        NO_CLAMP: layers(**free, penalties=late(shorter), hidden=hidden),
        NEITHER: layers(**free, hidden=hidden),
    }


def trainings(options: Options) -> list[Training]:
    shorter = SHORTER[options.size]
    return [
        recipe.training(
            task=Arithmetic("mul", inputs=INPUTS[options.size]),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=5_000_000 // shorter,
            labels={"unit": name, "operation": "mul", "hidden": hidden},
        )
        for hidden in HIDDEN[options.size]
        for name, recipe in choose_recipes(
            options.units, ablations(shorter, hidden), placed=partial(after_sums, hidden=hidden)
        ).items()
    ]


def compare(rows: Sequence[Row], options: Options) -> Comparison:
    layout = Layout(x="hidden", order=MODELS, x_title="Hidden size", joined=True)
    return comparison(rows, title="Neural Arithmetic Units, Figure 7", layout=layout)


def claims(compared: Comparison) -> list[Claim]:
    def counts(name: str, large: bool) -> tuple[int, int]:
        cells = [c.measured for c in compared.cells if c.series == name and (c.x > 2) == large]
        return sum(m.solved or 0 for m in cells), sum(m.n for m in cells)

    def listed(large: bool) -> str:
        solved = {name: counts(name, large) for name in MODELS}
        return ", ".join(f"{name} {k} of {n}" for name, (k, n) in solved.items())

    def fewer(name: str) -> bool | None:
        """Fewer successes than the full NMU at hidden sizes above 2; None if chance explains the difference."""
        (a, n), (b, m) = counts(name, True), counts(FULL, True)
        return None if not n or not m or boschloo((a, n), (b, m)) >= 0.05 else a / n < b / m

    small = [solved / n for solved, n in (counts(name, False) for name in MODELS) if n]
    large = f"solved at hidden sizes above 2: {listed(True)}."
    less = fewer(NO_CLAMP)
    return [
        Claim(
            "None of the W constraints are necessary when the hidden size is just 2.",
            f"solved at hidden size 2: {listed(False)}.",
            min(small, default=0.0) >= 0.8,
        ),
        Claim(
            "Removing the R_sparse causes the NMU to immediately fail for larger hidden sizes.",
            large,
            fewer(NO_PENALTY),
        ),
        Claim("Removing the clamping of W does not cause much difference.", large, None if less is None else not less),
        Claim(
            "Removing both constraints gives a somewhat satisfying solution, but with a lower success-rate.",
            large,
            fewer(NEITHER) and counts(NEITHER, True)[0] > 0,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="nau2020/figure7",
        title="Figure 7: ablation of the NMU's clamping and sparsity penalty over the hidden size",
        trainings=trainings,
        show=comparison_page(compare, claims),
        about=about("nau2020", "figure7"),
        reasons=reasons("nau2020", "figure7", "arithmetic"),
        units=MODELS,
        own=OWN,
    )
]
