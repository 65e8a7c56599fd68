"""Tables 8 and 9: the same sums along time, sequences of 10 steps in training and of 1000 in extrapolation."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.models import trained
from numerate.experiments.nalu2018.models import RECURRENT, OwnCell, repeated
from numerate.experiments.nalu2018.scores import FUNCTIONS, RATES, RAW, RELATIVE, best_scores, claim, compare
from numerate.experiments.pages import comparison_page
from numerate.experiments.remarks import about, reasons
from numerate.experiments.unit_choice import choose_recipes
from numerate.report import Claim, Comparison, Metric
from numerate.results import Row
from numerate.streams import Domain, uniform
from numerate.tasks import RecurrentArithmetic
from numerate.train import Adam, Training

REFERENCE = "LSTM"  # its untrained runs are the Random of the tables
UNITS = ("NAC", "NALU")
BASELINES = ("LSTM", "GRU", "RNN-tanh", "RNN-ReLU")
STEPS = {"smoke": 20, "quick": 30_000, "paper": 100_000}
CLIP = 1.0  # norm to which gradients are clipped
TIED = 100 * 1e-6 / 30  # Table 8 prints errors below 1e-6 alike; those of random models are about 30


def trainings(options: Options) -> list[Training]:
    chosen = choose_recipes(
        options.units, RECURRENT, placed=lambda own: replace(own, model=repeated(own.model, OwnCell))
    )
    steps, smoke = STEPS[options.size], options.size == "smoke"
    lengths = (2, 20) if smoke else (10, 1000)
    return [
        replace(recipe, optimiser=Adam(rate, clip="norm", limit=CLIP)).training(
            task=RecurrentArithmetic(operation, length=lengths[0], test_length=lengths[1]),
            seeds=options.seed_range(smoke=2, quick=10, paper=50),
            steps=steps,
            evaluate_every=steps // 5,
            evaluation_size=50 if smoke else 100,
            labels={"unit": name, "function": FUNCTIONS[operation], "rate": rate},
        )
        for name, recipe in ({REFERENCE: RECURRENT[REFERENCE]} | chosen).items()
        for operation in FUNCTIONS
        for rate in RATES
    ]


def training_loss(training: Training, row: Row) -> float:
    """Squared error of a run's best weights on the batch of the step at which they were reached."""
    model = trained(training, row)
    step, draws = int(row.scores["best_step"]), training.task.draws
    numbers = uniform(row.seed, Domain.TRAIN, step, training.batch * draws).view(training.batch, draws)
    x, y = training.task.examples(numbers, training.task.constants(row.seed, "train"))
    with torch.no_grad():
        return float(((model(x) - y) ** 2).mean())


def with_training_loss(rows: Sequence[Row], options: Options) -> list[Row]:
    """The same runs, those of this size with the score ``train``."""
    known = {key: training for training in trainings(options) for key in training.run_keys()}
    return [
        replace(row, scores={**row.scores, "train": training_loss(known[row.key], row)}) if row.key in known else row
        for row in rows
    ]


def claims(compared: Comparison) -> list[Claim]:
    interpolated = best_scores(compared, "interpolation", RECURRENT)
    division = best_scores(compared, "extrapolation", RECURRENT, ["div"])
    ours, others = (best_scores(compared, "extrapolation", names) for names in (UNITS, BASELINES))
    least = {f: min(score for (_, at), score in others.items() if at == f) for _, f in others}
    ratio = {(unit, f): score / least[f] for (unit, f), score in ours.items() if f in least}
    return [
        claim(
            "All models successfully learn to interpolate over learned functions of the input",
            interpolated, lambda score: score < 1, 42, "best runs are below 1 % of random at length 10",
        ),
        claim(
            "The NAC and NALU significantly outperform the baselines",
            ratio, lambda times: times < 1, 14, "best runs of NAC and NALU beat the best baseline at length 1000",
        ),
        claim(
            "Division was quite challenging to extrapolate and no models were able to solve the task in a way that "
            "extrapolates",
            division, lambda score: score > 1, 6, "models stay above 1 % of random on a / b at length 1000",
        ),
    ]  # fmt: skip


def experiment(table: str, title: str, metrics: Sequence[Metric]) -> Experiment:
    training = table == "8"  # which prints the loss in training, too
    return Experiment(
        id=f"nalu2018/table{table}",
        title=f"Table {table}: {title}",
        trainings=trainings,
        show=comparison_page(
            lambda rows, options: compare(
                with_training_loss(rows, options) if training else rows,
                table=table,
                reference=REFERENCE,
                order=list(RECURRENT),
                metrics=metrics,
                title=f"NALU 2018, Table {table}",
                other_setting=options.size == "smoke",
                tied=TIED,
                training=training,
            ),
            claims,
        ),
        about=about("nalu2018", "recurrent"),
        reasons=reasons("nalu2018", "recurrent"),
        units=RECURRENT,
        own="the recurrent cell, on a step's inputs and the hidden values before it, and the layer on top, as NAC is",
    )


EXPERIMENTS = [
    experiment("8", "recurrent arithmetic, length 10 to 1000, squared errors", RAW),
    experiment("9", "recurrent arithmetic, length 10 to 1000, errors relative to an untrained LSTM", RELATIVE),
]
