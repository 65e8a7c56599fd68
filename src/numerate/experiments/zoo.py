"""A comparison that no paper has: every unit, one protocol, on the single module task and on the two-layer task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import after_sums
from numerate.experiments.one_unit import natu_recipe
from numerate.experiments.pages import picture_page
from numerate.experiments.primer2022.recipes import INALU_RECIPE
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import SUCCESS, Comparison, Layout, Page, Picture, TextTable, arithmetic, comparison
from numerate.report.figures import PAPER, RATES, lay_out, plot_map, style
from numerate.report.text import percent_interval
from numerate.results import Row
from numerate.stats import Estimate, wilson
from numerate.tasks import Arithmetic, SingleModule
from numerate.tasks.task import Task
from numerate.train import Adam, Penalty, Training
from numerate.units import (
    GNALU,
    MCFC,
    NAC,
    NALU,
    NAU,
    NMRU,
    NMU,
    NPU,
    ComplexNALU,
    Dense,
    GatedNAUNMU,
    Growth,
    ModifiedRealNPU,
    MulMCFC,
    NACMul,
    NACMulNMU,
    NACMulSigmoid,
    NaiveNPU,
    NaiveRealNPU,
    Ramp,
    RealNPU,
    ReciprocalUnit,
    StochasticNMU,
    l1,
    penalty,
)

OPERATIONS = ("add", "sub", "mul", "div")


@dataclass(frozen=True)
class Place:
    """A task of the zoo; a panel of its picture."""

    inputs: int
    steps: int
    layered: bool = False

    @property
    def title(self) -> str:
        return f"{'Two layers' if self.layered else 'Single module'}, {self.inputs} inputs"

    def task(self, operation: str) -> Task:
        return (Arithmetic if self.layered else SingleModule)(operation, inputs=self.inputs)

    def recipes(self, options: Options) -> dict[str, Recipe]:
        default = SMOKE_UNITS if options.size == "smoke" else None
        chosen = choose_recipes(options.units, recipes(self.steps), default=default)
        if not self.layered:
            return chosen
        return {name: after_sums(recipe) for name, recipe in chosen.items()}


PLACES = {
    "smoke": (Place(2, 1000), Place(10, 1000, layered=True)),
    "quick": (Place(2, 50_000), Place(10, 50_000), Place(100, 20_000), Place(10, 200_000, layered=True)),
    "paper": (Place(2, 200_000), Place(10, 200_000), Place(100, 200_000), Place(100, 5_000_000, layered=True)),
}
SMOKE_UNITS = ("NALU (shared)", "NAU", "NMU", "Real NPU")
"""Those of smoke size: every unit and place has a loop of its own to compile."""


def recipes(steps: int) -> dict[str, Recipe]:
    """Each unit with its authors' optimiser and penalty, the schedules in proportion to the length of the run."""

    def sparse(scale: float) -> tuple[Penalty, ...]:
        return (Penalty(penalty, Ramp(scale, 2 * steps // 5, 7 * steps // 10)),)

    shrink = (Penalty(l1, Growth(1e-9, 1e-7, every=steps // 5)),)
    fast, clipped = Adam(5e-3), Adam(1e-2, clip="norm", limit=1.0)
    return {
        "Linear": Recipe(partial(Dense, activation="none")),
        "NAC+": Recipe(NAC),
        "NAC•": Recipe(NACMul),
        "NAC•,σ": Recipe(NACMulSigmoid),
        "NAC•,NMU": Recipe(NACMulNMU, penalties=sparse(10.0)),
        "NALU (shared)": Recipe(NALU),
        "NALU (separate)": Recipe(partial(NALU, weights="separate")),
        "Complex NALU": Recipe(ComplexNALU),
        "G-NALU": Recipe(GNALU),
        "iNALU": INALU_RECIPE,
        "NAU": Recipe(NAU, penalties=sparse(0.01)),
        "NMU": Recipe(NMU, penalties=sparse(10.0)),
        "Stochastic NMU": Recipe(StochasticNMU, penalties=sparse(10.0)),
        "Gated NAU/NMU": Recipe(GatedNAUNMU, penalties=sparse(10.0)),
        "NPU": Recipe(NPU, fast, shrink),
        "Real NPU": Recipe(RealNPU, fast, shrink),
        "Naive NPU": Recipe(NaiveNPU, fast, shrink),
        "Naive Real NPU": Recipe(NaiveRealNPU, fast, shrink),
        "Modified Real NPU": Recipe(ModifiedRealNPU, fast, sparse(1.0)),
        "NMRU": Recipe(NMRU, clipped, sparse(10.0)),
        "Reciprocal Unit": Recipe(ReciprocalUnit, penalties=sparse(10.0)),
        "NATU": natu_recipe(),
        "MCFC": Recipe(MCFC, penalties=sparse(10.0)),
        "MulMCFC": Recipe(MulMCFC, penalties=sparse(10.0)),
    }


def trainings(options: Options) -> list[Training]:
    seeds = options.seed_range(smoke=1, quick=8, paper=25)
    return [
        recipe.training(
            task=place.task(operation),
            seeds=seeds,
            steps=place.steps,
            labels={"unit": name, "operation": operation, "task": place.title},
        )
        for place in PLACES[options.size]
        for name, recipe in place.recipes(options).items()
        for operation in OPERATIONS
    ]


def compare(rows: Sequence[Row]) -> Comparison:
    return comparison(
        rows,
        title="The zoo: every unit under one protocol",
        layout=Layout(panel="task", x="operation", xs=OPERATIONS, order=list(ranking(rows)), x_title="Operation"),
        metrics=(SUCCESS,),
    )


@dataclass(frozen=True)
class Share:
    """A unit's share of solved runs over everything: as trained, and with its best weights rounded if it can."""

    solved: Estimate
    rounded: Estimate | None


def ranking(rows: Sequence[Row]) -> dict[str, Share]:
    """Unit -> its share of solved runs, best first."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        runs.setdefault(str(row.labels["unit"]), []).append(row)

    measured = {unit: arithmetic(group) for unit, group in runs.items()}
    shares = {unit: Share(wilson(m.solved or 0, m.n), m.ours.get("snapped_rate")) for unit, m in measured.items()}
    return dict(sorted(shares.items(), key=lambda item: (-(item[1].solved.value or 0.0), item[0])))


def draw(rows: Sequence[Row], options: Options) -> Page:
    compared, ranked = compare(rows), ranking(rows)
    caption = (
        "Success rates in percent, units down, operations across, one block per task. Right, over all of them: the "
        "share of solved runs, by which the units are ordered, with its Wilson interval; hollow: with the best weights "
        "rounded to the unit's discrete values wherever the validation error is not worse."
    )
    tables = [share_table(ranked), *rate_tables(compared)]
    return Page(compared.title, headline(compared), [Picture("overview", picture(compared, ranked), caption)], tables)


def share_table(ranked: Mapping[str, Share]) -> TextTable:
    """Each unit's share of solved runs, as trained and rounded."""
    shares = [
        [unit, _interval(share.solved), _interval(share.rounded) if share.rounded else "–"]
        for unit, share in ranked.items()
    ]
    return TextTable("Share of solved runs", ["unit", "over all tasks", "rounded"], shares)


def rate_tables(compared: Comparison) -> list[TextTable]:
    """One table per panel: units down, operations across."""
    tables = []
    for panel in compared.panels:
        rates = {(cell.series, cell.x): _interval(cell.measured.ours[SUCCESS.name]) for cell in compared.of(panel)}
        lines = [[unit, *(rates.get((unit, x), "–") for x in OPERATIONS)] for unit in compared.series]
        tables.append(TextTable(panel, ["unit", *OPERATIONS], lines))
    return tables


def picture(compared: Comparison, ranked: Mapping[str, Share]) -> Figure:
    count, lines = len(compared.panels), len(compared.series)
    colour = RATES(0.85)
    with style():
        fig = Figure(figsize=(2.1 + 2.3 * (count + 1), 1.2 + 0.27 * max(lines, 4)))
        *maps, shares = fig.subplots(1, count + 1, sharey=True)
        for ax, panel in zip(maps, compared.panels):
            plot_map(ax, compared, panel, compared.series)
            ax.set_title(panel.replace(", ", ",\n"))
        for line, share in enumerate(ranked.values()):
            if share.rounded:
                shares.plot(share.rounded.value, line, "o", mfc=PAPER, mec=colour, ms=5)
            shares.hlines(line, share.solved.low, share.solved.high, color=colour, lw=1.4)
            shares.plot(share.solved.value, line, "o", color=colour, ms=5)
        shares.set(title="Share of solved runs\n(hollow: rounded)", xlim=(-0.02, 1.02))
        shares.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"])
        shares.grid(axis="x")
        shares.grid(visible=False, axis="y")
        shares.spines[:].set_visible(False)
        lay_out(fig, w_pad=1.2)
    return fig


def headline(compared: Comparison) -> str:
    """How many tasks some unit always solves, which no unit ever does, and which units always solve most."""
    best: dict[tuple[str, str], float] = {}
    rounded: dict[tuple[str, str], tuple[int, str]] = {}
    sure = dict.fromkeys(compared.series, 0)
    for cell in compared.cells:
        place, rate = (cell.panel, cell.x), cell.measured.ours[SUCCESS.name].value or 0.0
        best[place] = max(rate, best.get(place, 0.0))
        if (snapped := cell.measured.snapped or 0) > rounded.setdefault(place, (0, ""))[0]:
            rounded[place] = snapped, f"; rounded, {cell.series} in {snapped} of {cell.measured.n}"
        sure[cell.series] += rate == 1.0
    never = [f"{x} ({panel.lower()}{rounded[panel, x][1]})" for (panel, x), rate in best.items() if not rate]
    unsolved = f": {', '.join(never)}" if never else ""
    most = max(sure.values())
    return (
        f"{sum(rate == 1.0 for rate in best.values())} of {len(best)} tasks are solved in every run by some unit, "
        f"{len(never)} by none in any run as trained{unsolved}. "
        f"No unit solves more than {most} in every run ({', '.join(u for u in sure if sure[u] == most)})."
    )


def _interval(rate: Estimate) -> str:
    if rate.value is None or rate.low is None or rate.high is None:
        return "–"
    return percent_interval(rate.value, rate.low, rate.high)


def fewer(options: Options) -> dict[str, dict[str, int]]:
    """Smoke has fewer units, unless the user has chosen them."""
    counts = {"smoke": len(SMOKE_UNITS), "quick": len(recipes(1000)), "paper": len(recipes(1000))}
    return {} if options.units else {"units": counts}


EXPERIMENTS = [
    Experiment(
        id="zoo",
        title="Every unit under one protocol: which solves what",
        trainings=trainings,
        show=picture_page(draw, fewer=fewer),
        about=about("zoo", "zoo"),
        reasons=reasons("zoo", "zoo"),
        units=tuple(recipes(1000)),
        own="the single module, and the second of two layers, behind an NAU",
    )
]
