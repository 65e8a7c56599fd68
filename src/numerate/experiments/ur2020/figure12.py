"""Figure 12: can gates that start saturated learn to forget?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from numerate.experiments.experiment import Experiment, Options, Work
from numerate.experiments.models import sequence_model
from numerate.experiments.pages import picture_page
from numerate.experiments.recipe import Recipe
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.experiments.ur2020 import forget, runs
from numerate.experiments.ur2020.synthetic import training
from numerate.experiments.ur2020.units import layer
from numerate.recurrent import SequenceModel
from numerate.report import Claim, Page, TextTable
from numerate.results import Row
from numerate.tasks import Adding
from numerate.train import Adam, NetworkTraining

TASK = {"smoke": Adding(12, 2, 1), "quick": Adding(500), "paper": Adding(500, 256, 2)}
RATE = {"smoke": 1e-4, "quick": 1e-3, "paper": 1e-4}
"""Quick: that of the paper's other synthetic tasks, so that batches of 10 suffice."""
HIGH, BOTH = 6.0, 3.52
"""Where one gate starts alone, and where forget and refine gate start together: g is about σ(6) in both cases."""
STARTED = ("LSTM", "R-LSTM", "UR-LSTM")


def refined_model(inputs: int, outputs: int, *, hidden: int, bias: float) -> SequenceModel:
    """R-LSTM; the biases of forget and refine gate start at one value."""
    model = sequence_model(inputs, outputs, layer=layer("LSTM", "R", hidden, 2, forget_bias=bias), read="last")
    with torch.no_grad():
        model.layer.parts()["bias_ih"][:hidden] = bias  # the first block of columns: the refine gate
    return model


def uniform_model(inputs: int, outputs: int, *, hidden: int, bias: float) -> SequenceModel:
    """UR-LSTM whose own vector starts at one value in place of uniform gates."""
    model = sequence_model(inputs, outputs, layer=layer("LSTM", "UR", hidden, 2), read="last")
    with torch.no_grad():
        model.layer.parts()["gate_bias"].fill_(bias)
    return model


def trainings(options: Options) -> list[NetworkTraining]:
    size, hidden = options.size, {"smoke": 8}.get(options.size, 64)
    models = {
        "LSTM": partial(sequence_model, layer=layer("LSTM", "-", hidden, 2, forget_bias=HIGH), read="last"),
        "R-LSTM": partial(refined_model, hidden=hidden, bias=BOTH),
        "UR-LSTM": partial(uniform_model, hidden=hidden, bias=HIGH),
    }
    known = {name: Recipe(model, Adam(RATE[size], clip="norm", limit=1.0)) for name, model in models.items()}
    steps = {"smoke": 3}.get(size, 10_000)
    return [
        training(recipe, TASK[size], steps, {"unit": name, "task": "adding"}, options, smoke=1, quick=1, paper=3)
        for name, recipe in choose_recipes(options.units, known).items()
    ]


@dataclass(frozen=True)
class Started:
    """The runs, and by unit: its forget gates, its median loss at the end, and whether its median run is solved."""

    rows: Sequence[Row]
    found: dict[str, forget.Forgetting]
    left: dict[str, float]
    solved: dict[str, bool]

    @classmethod
    def of(cls, work: Work, rows: Sequence[Row]) -> "Started":
        groups = runs.by_unit(rows)
        left = {unit: runs.middle(runs.left(members)) for unit, members in groups.items()}
        solved = {unit: bool(np.isfinite(runs.middle(runs.times(members)))) for unit, members in groups.items()}
        return cls(rows, forget.found_in(work, rows), left, solved)

    @property
    def shortest(self) -> dict[str, float]:
        """The shortest timescale after training."""
        return {unit: float(of.timescales[0]) for unit, of in self.found.items()}


def draw(started: Started, options: Options) -> Page:
    rows, found = started.rows, started.found
    low = min(0.9, *(float(min(of.before.min(), of.after.min())) for of in found.values()))
    lines = [
        [unit, f"{(1 / (1 - of.before)).min():,.0f}", f"{started.shortest[unit]:,.1f}", runs.share(started.left[unit])]
        for unit, of in found.items()
    ]
    header = ["gate", "shortest timescale before", "after", "error left"]
    return Page(
        "UR gates, Figure 12: forgetting after an extremal start",
        pictures=[runs.loss_picture(rows), forget.picture(found, rows, np.floor(10 * low) / 10)],
        tables=[TextTable("From mean forget activations", header, lines), runs.table(rows)],
    )


def claims(started: Started, options: Options) -> list[Claim]:
    """A quick run, whose rate is not the printed one, may show what the paper says, and cannot show the contrary."""
    found, left, solved, shortest = started.found, started.left, started.solved, started.shortest
    ran = options.size != "smoke" and options.steps is None
    refined = [unit for unit in ("R-LSTM", "UR-LSTM") if unit in found]
    numbers = ", ".join(f"{unit} {'solved' if solved[unit] else runs.share(left[unit])}" for unit in found)
    pairs = ", ".join(f"{unit} {value:,.1f} steps" for unit, value in shortest.items())
    tested = [
        Claim(
            "R-LSTM is able to solve the task; so is UR-LSTM, by the caption (our test: the median run of one of "
            "them has a test error below 0.01).",
            f"{numbers}.",
            any(solved[unit] for unit in refined) if refined and ran else None,
        ),
        Claim(
            "The LSTM is stuck after 10,000 iterations (our test: its median run is not solved).",
            f"{numbers}.",
            not solved["LSTM"] if "LSTM" in found and ran else None,
        ),
        Claim(
            "The smallest forget unit of UR-LSTM after training has a timescale over an order of magnitude smaller "
            "than that of the LSTM (our test: so has that of R-LSTM, which is the text's name for it, or of UR-LSTM).",
            f"shortest timescales: {pairs}.",
            shortest["LSTM"] > 10 * min(shortest[unit] for unit in refined)
            if refined and "LSTM" in found and ran
            else None,
        ),
    ]
    return [replace(claim, holds=claim.holds or None) for claim in tested] if options.size == "quick" else tested


EXPERIMENTS = [
    Experiment(
        id="ur2020/figure12",
        title="Figure 12: forgetting after an extremal start",
        trainings=trainings,
        show=picture_page(draw, claims, prepare=Started.of),
        about=about("ur2020", "figure12"),
        reasons=reasons("ur2020", "forgetting"),
        quick_reasons=reasons("ur2020", "forgetting-quick"),
        units=STARTED,
    ),
]
