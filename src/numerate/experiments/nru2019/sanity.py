"""The two checks of the paper's analysis: random labels and a larger memory; a memory that is seldom reset."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.nru2019.runs import (
    curve_picture,
    length,
    middle,
    solved_pictures,
    table,
    times,
    title,
    training,
)
from numerate.experiments.nru2019.units import copying_layers, recipes
from numerate.experiments.nru2019.verdicts import shown
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import style
from numerate.report.learning import curves, grouped, headroom, legend, panels, plot_curves
from numerate.results import Row
from numerate.tasks import Copying
from numerate.train import NetworkTraining

LENGTHS = {"smoke": (12,), "quick": (100,), "paper": (100, 200, 500)}
UPDATES = {"smoke": 4, "quick": 2_000, "paper": 10_000}
LONG = {"smoke": 4, "quick": 5_000, "paper": 50_000}
EVERY = (2, 5, 10)
SMALL, LARGE = "memory of 64", "memory of 144"


def short(task: Copying, options: Options) -> Copying:
    return replace(task, length=12, batch_size=2, evaluation_batches=1) if options.size == "smoke" else task


# ---------------------------------------------------------------- stability


def stability_trainings(options: Options) -> list[NetworkTraining]:
    nru = recipes({"NRU": copying_layers(120)["NRU"]})["NRU"]
    found = []
    for steps in LENGTHS[options.size]:
        task = short(Copying(steps, random_labels=True), options)
        labels = {"unit": f"T = {steps}", "part": "random labels", "task": f"random labels, T = {steps}"}
        found.append(training(nru, task, options, labels, UPDATES[options.size]))
    if options.size == "paper":  # as long as it takes to be solved
        large = recipes({LARGE: copying_layers(120)["NRU, memory 144"]})[LARGE]
        for name, recipe in {SMALL: nru, LARGE: large}.items():
            labels = {"unit": name, "part": "memory", "task": title(Copying(100))}
            found.append(training(recipe, Copying(100), options, labels, LONG[options.size]))
    return found


def draw_stability(rows: Sequence[Row], options: Options) -> Page:
    parts = grouped(rows, "part")
    pictures = [labels_picture(parts["random labels"])] if "random labels" in parts else []
    if "memory" in parts:
        pictures += [curve_picture(parts["memory"], "memory"), *solved_pictures(parts["memory"], "memory-solved")]
    lines = [
        [
            name, f"{int(members[0].config['steps']):,}", str(len(members)),
            str(sum(row.status == "diverged" for row in members)),
            f"{max(float(np.nanmax(row.curves['gradient_peak'])) for row in members):.3g}",
        ]
        for name, members in grouped(rows, "unit").items()
    ]  # fmt: skip
    header = ["runs", "updates", "seeds", "diverged", "largest gradient norm"]
    return Page("NRU: stability", pictures=pictures, tables=[TextTable("Runs", header, lines)])


def labels_picture(rows: Sequence[Row]) -> Picture:
    names = list(grouped(rows, "unit"))
    with style():
        fig, (ax,) = panels(1, 6.4, 3.5)
        series = [
            replace(curves(members, "validation", scale=1 / guessing(members))[0], name=name)
            for name, members in grouped(rows, "unit").items()
        ]
        plot_curves(ax, series, order=names, baseline=1.0)
        ax.set_ylim(0.9, headroom(series, 1.0, 1.3))
        ax.set_ylabel("loss, as a share of guessing")
        legend(fig, series, names)
    caption = "Copying with labels that have nothing to do with the input: the best loss is that of guessing."
    return Picture("labels", fig, caption)


def guessing(rows: Sequence[Row]) -> float:
    return Copying(length(rows)).baseline()


def stability_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    parts = grouped(rows, "part")
    random = parts.get("random labels", [])
    diverged = sum(row.status == "diverged" for row in random)
    enough = options.as_published or bool(diverged)
    updates = max((int(row.config["steps"]) for row in random), default=0)
    ours = f"{diverged} of {len(random)} runs diverged in {updates:,} updates." if random else "not run."
    lengths = {length([row]) for row in random}
    enough &= bool(diverged) or lengths >= set(LENGTHS[options.size])
    claims = [Claim("With random labels training did not diverge.", ours, not diverged if enough else None)]
    groups = grouped(parts.get("memory", []), "unit")
    if SMALL not in groups or LARGE not in groups:
        return claims
    small, large = (middle(times(groups[name])) for name in (SMALL, LARGE))
    known = np.isfinite([small, large]).all()
    says = f"{shown(small)} and {shown(large)}" + (f", ratio {small / large:.1f}." if known else ".")
    sentence = "The model converged almost twice as early with a memory of 144 than with 64 (our test: ratio 1.3 to 3)."
    return [*claims, Claim(sentence, says, bool(1.3 <= small / large <= 3) if known else None)]


# ---------------------------------------------------------------- forgetting


def forgetting_trainings(options: Options) -> list[NetworkTraining]:
    reading = recipes({"NRU": copying_layers(120)["NRU"]}, carries=True)["NRU"]
    always = recipes({"NRU": copying_layers(120)["NRU"]})["NRU"]
    found = [] if options.size == "smoke" else [(always, Copying(100), "every example")]
    found += [(reading, Copying(100, reset_every=every), f"every {every} examples") for every in EVERY]
    return [
        training(recipe, task, options, {"unit": name, "task": title(task)}, LONG[options.size])
        for recipe, task, name in ((recipe, short(task, options), name) for recipe, task, name in found)
    ]


def draw_forgetting(rows: Sequence[Row], options: Options) -> Page:
    return Page(
        "NRU: forgetting",
        pictures=[curve_picture(rows), *solved_pictures(rows)],
        tables=[table(rows)],
    )


def forgetting_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    groups = {name: middle(times(members)) for name, members in grouped(rows, "unit").items()}
    carried = {every: groups.get(f"every {every} examples") for every in EVERY}
    unsolved = any(at is not None and np.isinf(at) for at in carried.values())
    missing = [f"every {every} examples" for every, at in carried.items() if at is None]
    ours = "median time to solve, reset at " + ", ".join(f"{name} {shown(at)}" for name, at in groups.items())
    ours += f"; no runs of {', '.join(missing)}." if missing else "."
    sentence = (
        "Reset only once every 2, 5 and 10 examples, NRU learned to reset the memory in the beginning of every example "
        "(our test: the median run is solved)."
    )
    told = False if unsolved and options.size == "paper" else None if unsolved or missing else True
    return [Claim(sentence, ours, told)]


EXPERIMENTS = [
    Experiment(
        id="nru2019/stability",
        title="Stability: random labels, and a larger memory",
        trainings=stability_trainings,
        show=picture_page(draw_stability, stability_claims),
        about=about("nru2019", "stability"),
        reasons=reasons("nru2019", "sanity"),
    ),
    Experiment(
        id="nru2019/forgetting",
        title="Forgetting: the memory is reset at every k-th example only",
        trainings=forgetting_trainings,
        show=picture_page(draw_forgetting, forgetting_claims),
        about=about("nru2019", "forgetting"),
        reasons=reasons("nru2019", "sanity"),
    ),
]
