"""Table 5 and Figure 6: nine gates on images read pixel by pixel. Table 2: the best of them, larger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from torch import nn

from numerate import published
from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import sequence_model
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.experiments.ur2020 import runs
from numerate.experiments.ur2020.units import KINDS, SHORT, Core, layer, recipe, unit_name, unit_names
from numerate.recurrent import Recurrent, SequenceModel
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import lay_out, style
from numerate.report.learning import Curves, curves, legend, panels, plot_beside, plot_curves
from numerate.results import Row
from numerate.stats import rank_agreement
from numerate.tasks import PermutedPixels, SequentialPhotographs
from numerate.train import Adam, NetworkTraining

SMALL: dict[str, Any] = {"batch_size": 4, "held_out": 8}
MIDDLE: dict[str, Any] = {"batch_size": 50, "pool": 2, "held_out": 500}
LARGE: dict[str, Any] = {"batch_size": 50}
SIZES = {"smoke": SMALL, "quick": MIDDLE, "paper": LARGE}
READING: dict[str, Any] = {"read": "last", "hidden": 256}
ONE_RATE = 5e-4
"""Of the rates that were best and stable in the paper, generally 5e-4 or 1e-3, the lower one."""
NEAR = 1.0
"""An accuracy within so many points agrees."""


@dataclass(frozen=True)
class Images:
    """A task of the paper.

    Args:
        name: as printed.
        make: keywords -> task.
        steps: pixels of an image.
        epoch: updates in one pass, in batches of 50.
        epochs: as published.
        held_out: images that the accuracy is taken of.
    """

    name: str
    make: Callable[..., PermutedPixels]
    steps: int
    epoch: int
    epochs: int
    held_out: int

    def task(self, options: Options) -> PermutedPixels:
        return self.make(**SIZES[options.size])

    def updates(self, options: Options) -> int:
        return {"smoke": 2, "quick": 400, "paper": self.epochs * self.epoch}[options.size]

    def longest(self, options: Options) -> int:
        """T_max: steps of a sequence."""
        return self.steps // SIZES[options.size].get("pool", 1) ** 2


PMNIST = Images("pMNIST", partial(PermutedPixels, "bit reversal", last_step=False), 784, 1000, 150, 10_000)
SMNIST = Images("sMNIST", partial(PermutedPixels, "none", last_step=False), 784, 1000, 150, 10_000)
SCIFAR = Images("sCIFAR", SequentialPhotographs, 1024, 900, 100, 5_000)
ROWS: tuple[tuple[Images, Core, tuple[float, ...]], ...] = (
    (PMNIST, "LSTM", (2e-4, 5e-4, 1e-3, 2e-3)),
    (SCIFAR, "LSTM", (2e-4, 5e-4, 1e-3, 2e-3)),
    (SCIFAR, "GRU", (2e-4, 5e-4)),
)
"""The rows of Table 5, and the rates tried."""


def training(
    recipe: Recipe, images: Images, options: Options, labels: Mapping[str, Any], seeds: Mapping[str, int], **more: Any
) -> NetworkTraining:
    steps = images.updates(options)
    return recipe.network_training(
        task=images.task(options),
        seeds=options.seed_range(**seeds),
        steps=steps,
        evaluate_every=images.epoch if options.size == "paper" else max(1, steps // 10),
        labels=labels,
        **more,
    )


def gate_trainings(options: Options, one_rate: bool) -> list[NetworkTraining]:
    hidden = {"smoke": 16, "quick": 64, "paper": 512}[options.size]
    kinds = {"smoke": ("UR",), "quick": SHORT, "paper": KINDS}[options.size]
    found = []
    for images, core, rates in ROWS:
        for rate in (ONE_RATE,) if one_rate or options.size != "paper" else rates:
            known = {
                unit_name(core, kind): recipe(layer(core, kind, hidden, images.longest(options)), rate, **READING)
                for kind in KINDS
            }
            for name, its in choose_recipes(options.units, known, default=unit_names(core, kinds)).items():
                labels = {"unit": name, "task": f"{images.name}, {core}", "rate": f"{rate:g}"}
                found.append(training(its, images, options, labels, {"smoke": 1, "quick": 1, "paper": 3}))
    return found


# ---------------------------------------------------------------- what is read off


def accuracy(row: Row) -> float:
    """The highest validation accuracy of a run in %."""
    return 100 * float(np.nanmax(row.curves["validation_accuracy"], initial=0.0))


def best(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Unit -> accuracies of its runs at its best rate, by the highest one."""
    found = {}
    for unit, members in runs.by_unit(rows).items():
        rates: dict[str, list[float]] = {}
        for row in members:
            rates.setdefault(row.labels.get("rate", ""), []).append(accuracy(row))
        found[unit] = max(rates.values(), key=max)
    return found


def printed(task: str) -> dict[str, float]:
    """Of Table 5: unit -> accuracy, for the label of a row."""
    name, core = task.split(", ")
    cells = published.cells(paper="ur2020", table="5", task=name)
    return {c.model: c.value for c in cells if c.value is not None and c.model.endswith(core)}


def beside_picture(rows: Sequence[Row], theirs: Callable[[str], Mapping[str, float]], comparable: bool) -> Picture:
    tasks = runs.by_task(rows)
    with style():
        most = max(len(runs.by_unit(members)) for members in tasks.values())
        fig, axes = panels(len(tasks), 3.7, 1.3 + 0.28 * most, columns=3)
        for ax, (task, members) in zip(axes, tasks.items()):
            plot_beside(ax, best(members), theirs(task) if comparable else {}, order=runs.order(members))
            ax.set_title(task, pad=26)
            ax.set_xlabel("validation accuracy in %")
        lay_out(fig, w_pad=2.2)
    beside = "a hollow mark is the printed number" if comparable else "the printed numbers are of another size"
    return Picture("beside", fig, f"Highest validation accuracy: a dot for each run at its best rate; {beside}.")


def gate_name(unit: str) -> str:
    """``UR-`` of UR-LSTM and UR-GRU, so that a gate has one colour; other names as they are."""
    kind, _, core = unit.rpartition("-")
    return f"{kind}-" if kind in KINDS and core in ("LSTM", "GRU") else "standard" if unit in ("LSTM", "GRU") else unit


def curve_picture(rows: Sequence[Row], name: Callable[[str], str] = gate_name) -> Picture:
    tasks, colours = runs.by_task(rows), list(dict.fromkeys(map(name, runs.order(rows))))
    with style():
        fig, axes = panels(len(tasks), 3.7, 3.4, columns=3)
        every: dict[str, Curves] = {}
        for ax, (task, members) in zip(axes, tasks.items()):
            series = [replace(c, name=name(c.name)) for c in curves(members, "validation_accuracy", scale=100)]
            every = {c.name: c for c in series} | every
            plot_curves(ax, series, order=colours, first=name("UR-LSTM"))
            ax.set_title(task)
        axes[0].set_ylabel("validation accuracy in %")
        legend(fig, list(every.values()), colours, first=name("UR-LSTM"))
    caption = "Validation accuracy along training: median over seeds, and the middle half of them."
    return Picture("validation", fig, caption)


def accuracy_table(rows: Sequence[Row], theirs: Callable[[str], Mapping[str, float]], comparable: bool) -> TextTable:
    header = ["task", "unit", "parameters", "updates", "runs", "diverged", "best rate", "best validation, %", "test, %"]
    header += ["published", "difference"] if comparable else []
    lines = []
    for task, members in runs.by_task(rows).items():
        for unit, some in runs.by_unit(members).items():
            top = max(some, key=accuracy)
            test = 100 * top.scores.get("best_test_accuracy", float("nan"))
            line = [
                task, unit, f"{top.scores['parameters']:,.0f}", f"{int(top.config['steps']):,}", str(len(some)),
                str(sum(row.status == "diverged" for row in some)), top.labels.get("rate", "–"),
                f"{accuracy(top):.2f}", f"{test:.2f}",
            ]  # fmt: skip
            if comparable:
                number = theirs(task).get(unit)
                line += ["–", "–"] if number is None else [f"{number:.2f}", f"{accuracy(top) - number:+.2f}"]
            lines.append(line)
    return TextTable("Every gate and task", header, lines)


# ---------------------------------------------------------------- Table 5, Figure 6


def draw_gates(title: str) -> Callable[[Sequence[Row], Options], Page]:
    def draw(rows: Sequence[Row], options: Options) -> Page:
        comparable = options.size == "paper"
        one = [row for row in rows if row.labels["rate"] == f"{ONE_RATE:g}"] or list(rows)
        pictures = [beside_picture(rows, printed, comparable), curve_picture(one)]
        return Page(title, pictures=pictures, tables=[accuracy_table(rows, printed, comparable)])

    return draw


def gate_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    """No verdicts below the published size, and on values none for shorter runs."""
    if options.size != "paper":
        return []
    held_out = {f"{images.name}, {core}": images.held_out for images, core, _ in ROWS}
    found: list[Claim] = []
    for task, members in runs.by_task(rows).items():
        ours = {unit: max(values) for unit, values in best(members).items()}
        core = task.split(", ")[1]
        for better, worse, sentence in runs.CLAIMED:
            names = [core if kind == "-" else f"{kind}-{core}" for kind in (better, worse)]
            found.append(_ahead(f"{task}: {sentence.lstrip('… ')}", names, ours, held_out[task]))
        found += [_in_order(task, ours), *_values(task, ours, options)]
    return found


def _ahead(sentence: str, names: Sequence[str], ours: Mapping[str, float], images: int) -> Claim:
    text = f"{sentence} (our test: a higher accuracy, by more than two standard errors of {images:,} images)."
    if not all(name in ours for name in names):
        return Claim(text, "not run.")
    a, b = (ours[name] / 100 for name in names)
    error = sqrt((a * (1 - a) + b * (1 - b)) / images)
    holds = True if a - b > 2 * error else False if b - a > 2 * error else None
    return Claim(text, ", ".join(f"{name} {ours[name]:.2f}" for name in names) + " %.", holds)


def _in_order(task: str, ours: Mapping[str, float]) -> Claim:
    theirs = printed(task)
    names = [name for name in theirs if name in ours]
    sentence = f"{task}: the gates are in the printed order (our test: Kendall's τ, a permutation test at 5 %)."
    if len(names) < 4:
        return Claim(sentence, "fewer than four gates were run.")
    agreement = rank_agreement([ours[name] for name in names], [theirs[name] for name in names])
    tau = "" if agreement.tau is None else f", τ = {agreement.tau:.2f}"
    holds = {"same order": True, "other order": False}.get(agreement.word)
    return Claim(sentence, f"{agreement.word}{tau}, {len(names)} gates.", holds)


def _values(task: str, ours: Mapping[str, float], options: Options) -> list[Claim]:
    if not options.as_published:
        return []
    return [
        Claim(
            f"{task}: {unit} {number:.2f} % (our test: within {NEAR:g}).",
            f"{ours[unit]:.2f} %.",
            abs(ours[unit] - number) <= NEAR,
        )
        for unit, number in printed(task).items()
        if unit in ours
    ]


# ---------------------------------------------------------------- Table 2


def regularised_model(
    inputs: int, outputs: int, *, layer: Callable[[int], Recurrent], dropout: float, **reading: Any
) -> SequenceModel:
    """A layer with a hidden layer before the readout, whose outputs are dropped in training."""
    model = sequence_model(inputs, outputs, layer=layer, **reading)
    model.readout = nn.Sequential(nn.Dropout(dropout), model.readout)  # type: ignore[assignment]
    return model


ZONEOUT: dict[Core, Any] = {"LSTM": (0.05, 0.5), "GRU": 0.1}
"""(z_h, z_c) of the LSTM, z of the GRU."""
LARGER: tuple[tuple[Core, str], ...] = (("LSTM", "-"), ("LSTM", "UR"), ("GRU", "UR"))
TABLE2 = tuple(f"{unit_name(core, kind)}{more}" for core, kind in LARGER for more in ("", " zoneout"))


def large_recipes(images: Images, options: Options) -> dict[str, Recipe]:
    """Twice as many units for UR-, which were unstable for the plain LSTM."""
    base = {"smoke": 8, "quick": 32, "paper": 1024 if images is SCIFAR else 512}[options.size]
    found = {}
    for core, kind in LARGER:
        hidden = base if kind == "-" else 2 * base
        plain = layer(core, kind, hidden, images.longest(options))
        zoned = layer(core, kind, hidden, images.longest(options), zoneout=ZONEOUT[core])
        found[unit_name(core, kind)] = recipe(plain, ONE_RATE, **READING)
        model = partial(regularised_model, layer=zoned, dropout=0.5, **READING)
        found[f"{unit_name(core, kind)} zoneout"] = Recipe(model, Adam(ONE_RATE, clip="norm", limit=1.0))
    return found


def large_trainings(options: Options) -> list[NetworkTraining]:
    found = []
    for images in (SMNIST, PMNIST, SCIFAR):
        default = {"smoke": TABLE2[2:4], "quick": TABLE2[::2], "paper": TABLE2}[options.size]
        for name, its in choose_recipes(options.units, large_recipes(images, options), default=default).items():
            precision = "bfloat16" if options.size == "paper" and name.startswith("UR-") else "float32"
            labels = {"unit": name, "task": images.name}
            seeds = {"smoke": 1, "quick": 1, "paper": 1}
            found.append(training(its, images, options, labels, seeds, precision=precision))
    return found


def second_hand(task: str) -> dict[str, float]:
    """Numbers of the paper's body, from a page that lists them and does not name the model."""
    try:
        cells = published.cells(paper="ur2020", table="main body (seen second-hand)", task=task, metric="accuracy")
    except ValueError:
        return {}
    return {f"printed ({i + 1})": c.value for i, c in enumerate(cells) if c.value is not None}


def draw_large(rows: Sequence[Row], options: Options) -> Page:
    known = [[task, f"{value:.2f}"] for task in runs.by_task(rows) for value in second_hand(task).values()]
    nothing: Callable[[str], Mapping[str, float]] = lambda task: {}  # noqa: E731
    tables = [accuracy_table(rows, nothing, False)]
    if options.size == "paper":
        tables.append(TextTable("Printed, the model not named by our source", ["task", "test accuracy, %"], known))
    return Page(
        "UR gates, Table 2: larger layers",
        pictures=[beside_picture(rows, nothing, False), curve_picture(rows, str)],
        tables=tables,
    )


def large_claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    if options.size != "paper":
        return []
    found = []
    for images in (SMNIST, PMNIST, SCIFAR):
        members = runs.by_task(rows).get(images.name, [])
        ours = {unit: max(values) for unit, values in best(members).items()} if members else {}
        sentence = f"{images.name}: UR-LSTM is better than the LSTM"
        found.append(_ahead(sentence, ["UR-LSTM", "LSTM"], ours, images.held_out))
        tests = [100 * row.scores.get("best_test_accuracy", float("nan")) for row in members]
        for number in second_hand(images.name).values() if options.as_published and tests else ():
            top = float(np.nanmax(tests))
            text = f"{images.name}: {number:.2f} % on test (our test: our best within {NEAR:g})."
            found.append(Claim(text, f"{top:.2f} %.", abs(top - number) <= NEAR))
    return found


EXPERIMENTS = [
    Experiment(
        id="ur2020/table5",
        title="Table 5: nine gates on images read pixel by pixel, four learning rates",
        trainings=lambda options: gate_trainings(options, one_rate=False),
        show=picture_page(draw_gates("UR gates, Table 5: images read pixel by pixel"), gate_claims),
        about=about("ur2020", "table5"),
        reasons=reasons("ur2020", "images", "table5"),
        quick_reasons=reasons("ur2020", "images-quick"),
        units=(*unit_names("LSTM"), *unit_names("GRU")),
    ),
    Experiment(
        id="ur2020/figure6",
        title="Figure 6: nine gates on images read pixel by pixel, one learning rate",
        trainings=lambda options: gate_trainings(options, one_rate=True),
        show=picture_page(draw_gates("UR gates, Figure 6: images read pixel by pixel"), gate_claims),
        about=about("ur2020", "figure6"),
        reasons=reasons("ur2020", "images", "figure6"),
        quick_reasons=reasons("ur2020", "images-quick"),
        units=(*unit_names("LSTM"), *unit_names("GRU")),
    ),
    Experiment(
        id="ur2020/table2",
        title="Table 2: larger layers on images read pixel by pixel, with and without zoneout",
        trainings=large_trainings,
        show=picture_page(draw_large, large_claims),
        about=about("ur2020", "table2"),
        reasons=reasons("ur2020", "images", "table2"),
        quick_reasons=reasons("ur2020", "images-quick"),
        units=TABLE2,
    ),
]
