"""Figure 14: learning to execute programs, five gates of the LSTM and of the relational memory core."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.experiments.ur2020 import runs
from numerate.experiments.ur2020.units import Core, layer, recipe, unit_name, unit_names
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import lay_out, style
from numerate.report.learning import curves, legend, panels, plot_beside, plot_curves
from numerate.results import Row
from numerate.tasks import Programs
from numerate.train import NetworkTraining

KINDS = ("-", "C", "OM", "U", "UR")
TASKS = ("addition", "control", "program")
SMOKE = Programs("addition", 2, 1, 4, 1, 2)
QUICK = Programs("addition", 2, 2, 32, 10)
APART = 0.5
"""Points of accuracy that tell two units apart."""


@dataclass(frozen=True)
class Setting:
    """One point of the sweep.

    Args:
        core: LSTM or RMC.
        hidden: units, or the width of a slot.
        rate: of Adam.
        steps: updates.
        slots, heads: of RMC.
    """

    core: Core
    hidden: int
    rate: float
    steps: int
    slots: int = 0
    heads: int = 0

    @property
    def title(self) -> str:
        memory = f", {self.slots} slots, {self.heads} heads" if self.core == "RMC" else ""
        return f"{self.hidden} units{memory}, rate {self.rate:g}"

    def options(self) -> dict[str, int]:
        return {"slots": self.slots, "heads": self.heads} if self.core == "RMC" else {}


PUBLISHED = (
    *(Setting("LSTM", hidden, rate, 500_000) for hidden in (1024, 2048) for rate in (5e-4, 1e-3)),
    *(Setting("RMC", 512, 5e-4, 200_000, slots, heads) for slots in (2, 4) for heads in (2, 4)),
)
SHORT = (Setting("LSTM", 256, 1e-3, 20_000), Setting("RMC", 128, 1e-3, 20_000, 2, 2))
SMALL = {"smoke": (Setting("LSTM", 16, 1e-3, 2),), "quick": (Setting("LSTM", 64, 1e-3, 1_000),)}


def trainings(task: Programs, sweep: Sequence[Setting]) -> Callable[[Options], list[NetworkTraining]]:
    """Options -> one configuration for each setting, task and gate, the smallest settings first."""

    def make(options: Options) -> list[NetworkTraining]:
        base = {"smoke": SMOKE, "quick": QUICK}.get(options.size, task)
        kinds = ("-", "UR") if options.size == "smoke" else KINDS
        found = []
        for setting in SMALL.get(options.size, sweep):
            for name in TASKS[: 1 if options.size == "smoke" else None]:
                its = replace(base, kind=name)
                longest = its.read_steps + its.answer_steps
                downsize = 4 if options.size == "smoke" else 32
                known = {
                    unit_name(setting.core, kind): recipe(
                        layer(setting.core, kind, setting.hidden, longest, downsize, **setting.options()), setting.rate
                    )
                    for kind in KINDS
                }
                default = unit_names(setting.core, kinds)
                for unit, its_recipe in choose_recipes(options.units, known, default=default).items():
                    found.append(
                        its_recipe.network_training(
                            task=its,
                            seeds=options.seed_range(smoke=1, quick=1, paper=1),
                            steps=setting.steps,
                            evaluate_every=max(1, setting.steps // (100 if options.size == "paper" else 10)),
                            labels={"unit": unit, "task": name, "setting": setting.title},
                        )
                    )
        return found

    return make


def accuracy(row: Row) -> float:
    """Of the digits of test answers in %, at the best validation point."""
    return 100 * float(row.scores.get("best_test_accuracy", np.nan))


def best(rows: Sequence[Row]) -> list[Row]:
    """The runs of each unit and task at the setting whose median accuracy is highest."""
    found = []
    for members in runs.by_task(rows).values():
        for some in runs.by_unit(members).values():
            settings: dict[str, list[Row]] = {}
            for row in some:
                settings.setdefault(row.labels["setting"], []).append(row)
            found += max(settings.values(), key=lambda group: float(np.nanmedian([accuracy(row) for row in group])))
    return found


def beside_picture(rows: Sequence[Row]) -> Picture:
    tasks = runs.by_task(rows)
    with style():
        most = max(len(runs.by_unit(members)) for members in tasks.values())
        fig, axes = panels(len(tasks), 3.4, 1.1 + 0.28 * most, columns=3)
        for ax, (task, members) in zip(axes, tasks.items()):
            values = {unit: [accuracy(row) for row in some] for unit, some in runs.by_unit(members).items()}
            plot_beside(ax, values, {}, order=runs.order(rows))
            ax.get_legend().remove()  # type: ignore[union-attr]
            ax.set_title(task)
            ax.set_xlabel("right digits of test answers, %")
        lay_out(fig, w_pad=2.2)
    return Picture("accuracy", fig, "Share of right digits at the best validation point and the best setting.")


def curve_picture(rows: Sequence[Row]) -> Picture:
    tasks, colours = runs.by_task(rows), runs.order(rows)
    with style():
        fig, axes = panels(len(tasks), 3.6, 3.4, columns=3)
        for ax, (task, members) in zip(axes, tasks.items()):
            plot_curves(ax, curves(members, "test_accuracy", scale=100), order=colours, first="UR-LSTM")
            ax.set_title(task)
        axes[0].set_ylabel("right digits of test answers, %")
        legend(fig, curves(rows, "test_accuracy"), colours, first="UR-LSTM")
    return Picture(
        "curves", fig, "Share of right digits along training: median over seeds, and the middle half of them."
    )


def page(title: str) -> Callable[[Sequence[Row], Options], Page]:
    def draw(rows: Sequence[Row], options: Options) -> Page:
        chosen = best(rows)
        lines = [
            [
                row.labels["task"], row.labels["unit"], row.labels["setting"], str(row.seed),
                f"{int(row.config['steps']):,}", row.status, f"{accuracy(row):.1f}",
                f"{100 * row.scores.get('best_test_answers', np.nan):.1f}",
            ]
            for row in rows
        ]  # fmt: skip
        header = ["task", "unit", "setting", "seed", "updates", "status", "right digits, %", "right answers, %"]
        tables = [TextTable("Every run, test at the best validation point", header, lines)]
        return Page(title, pictures=[beside_picture(chosen), curve_picture(chosen)], tables=tables)

    return draw


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    """No verdicts below the size of the experiment."""
    if options.size != "paper":
        return []
    groups = {task: runs.by_unit(members) for task, members in runs.by_task(best(rows)).items()}
    found = {
        task: {unit: float(np.nanmedian([accuracy(row) for row in some])) for unit, some in units.items()}
        for task, units in groups.items()
    }
    lstms, rmcs = unit_names("LSTM", KINDS), unit_names("RMC", KINDS)
    most = {"addition": "U-LSTM", "control": "UR-LSTM", "program": "UR-LSTM"}
    pairs = [(task, lstm, rmc) for task in TASKS for lstm, rmc in zip(lstms, rmcs)]
    known = [pair for pair in pairs if {pair[1], pair[2]} <= set(found.get(pair[0], {}))]
    ahead = sum(found[task][lstm] > found[task][rmc] for task, lstm, rmc in known)
    return [
        _extreme(
            "The C-gated LSTM has very poor performance across the board (our test: the worst)", found,
            dict.fromkeys(TASKS, "C-LSTM"), lstms, min,
        ),
        _extreme("U-LSTM on addition, UR-LSTM else outperforms all other LSTM cores", found, most, lstms, max),
        _extreme(
            "UR-RMC is the best RMC core on control and program", found,
            dict.fromkeys(TASKS[1:], "UR-RMC"), rmcs, max,
        ),
        Claim(
            "The LSTM cores are consistently better than the RMC versions (our test: for every gate and task).",
            f"{ahead} of {len(known)}.",
            ahead == len(known) if known and len(known) == len(pairs) else None,
        ),
    ]  # fmt: skip


def _extreme(
    sentence: str,
    found: dict[str, dict[str, float]],
    wanted: dict[str, str],
    units: Sequence[str],
    which: Callable[..., str],
) -> Claim:
    """Whether the units that are best, or worst, are those wanted, by more than half a point."""
    says, holds = [], []
    for task, unit in wanted.items():
        values = {name: found.get(task, {}).get(name, np.nan) for name in units}
        if np.isnan(list(values.values())).any():
            says.append(f"{task}: not all run")
            holds.append(None)
            continue
        first = which(values, key=lambda name: values[name])
        gap = min(abs(values[first] - value) for name, value in values.items() if name != first)
        says.append(f"{task}: {first} {values[first]:.1f} %, by {gap:.1f}")
        holds.append(None if gap < APART else first == unit)
    verdict = False if False in holds else None if None in holds else True
    return Claim(f"{sentence} (by more than {APART:g} points).", "; ".join(says) + ".", verdict)


def experiment(name: str, title: str, task: Programs, sweep: Sequence[Setting]) -> Experiment:
    return Experiment(
        id=f"ur2020/{name}",
        title=title,
        trainings=trainings(task, sweep),
        show=picture_page(page(f"UR gates, {title}"), claims),
        about=about("ur2020", "figure14"),
        reasons=reasons("ur2020", "programs", name),
        quick_reasons=reasons("ur2020", "programs-quick"),
        units=(*unit_names("LSTM", KINDS), *unit_names("RMC", KINDS)),
    )


EXPERIMENTS = [
    experiment("figure14", "Figure 14: learning to execute", Programs(), PUBLISHED),
    experiment(
        "figure14-short", "Figure 14, shorter programs: length 4, nesting 2",
        Programs(length=4, nesting=2), SHORT,
    ),
]  # fmt: skip
