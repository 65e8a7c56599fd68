"""Models around the NSR for the Primer's section 7.2, and their accuracy on other data than they were trained with."""

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from numerate.experiments.experiment import Work
from numerate.experiments.models import trained
from numerate.report import Metric, text
from numerate.report.metrics import Measured, arithmetic
from numerate.results import Row
from numerate.stats import Estimate, median
from numerate.tasks.task import Split, Task
from numerate.train import Penalty, Training, stack
from numerate.train.specification import Factory
from numerate.units import NAU, NSR, Ramp, penalty

EXAMPLES = 500
"""On which a stored run is judged once more."""
RIGHT = 0.99
"""Share of examples that must be right for a run to count as solved."""
ACCURACY = Metric(
    "accuracy", "Accuracy", limits=(0.0, 1.0), show=text.percent, show_interval=text.percent_interval,
    tick=text.percent, brief=lambda share: f"{100 * share:.0f}", brief_title="median accuracy in %",
    shade=lambda share: share,
    meaning="The median over all runs of the share of right answers, with the interval between two order statistics.",
)  # fmt: skip
ROUNDED = replace(
    ACCURACY, name="rounded_accuracy", title="Accuracy, rounded (ours)",
    meaning="The same with decisions of the NSR rounded to 0 or 1 and weights of the NAUs to −1, 0 or 1, wherever the "
    "validation error is not worse.",
)  # fmt: skip


PATHS = (1, 10)
"""Redundancy of the NSR in the experiments that have it beside NAUs."""


def named(paths: int) -> str:
    return "NSR + NAU" if paths == 1 else f"NSR + NAU, {paths} paths"


def sparsity(steps: int) -> tuple[Penalty, ...]:
    """The NAUs' penalty, in the second half of training."""
    return (Penalty(penalty, Ramp(0.01, steps // 2, 3 * steps // 4)),)


class Branch(nn.Module):
    """One of two sums, by a comparison: y = c·a + (1 − c)·b, c = NSR(x), a and b of two NAUs; x: (..., I) -> (..., O).

    ``decided`` rounds c to 0 or 1; only for evaluation, as it has no gradient.
    """

    def __init__(self, in_features: int, out_features: int, *, paths: int = 1, scale: float = 1.0) -> None:
        super().__init__()
        self.decide = NSR(in_features, out_features, paths=paths, scale=scale)
        self.yes, self.no = NAU(in_features, out_features), NAU(in_features, out_features)
        self.decided = False

    def forward(self, x: Tensor) -> Tensor:
        c = self.decide(x)
        c = c.round() if self.decided else c
        return c * self.yes(x) + (1 - c) * self.no(x)


class Fold(nn.Module):
    """A cell over a list, begun with its first number: h₁ = x₁, h_t = cell([x_t, h_{t−1}]); x: (..., T) -> (..., 1).

    The cell is a :class:`Branch`, or ``unit`` of (inputs, outputs). So it is in the next two.
    """

    def __init__(
        self, inputs: int, outputs: int, *, paths: int = 1, scale: float = 1.0, unit: Factory | None = None
    ) -> None:
        super().__init__()
        self.cell = Branch(2, outputs, paths=paths, scale=scale) if unit is None else unit(2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = x[..., :1]
        for t in range(1, x.shape[-1]):
            h = self.cell(torch.cat((x[..., t : t + 1], h), -1))
        return h


class Step(nn.Module):
    """A sum of decisions, one step: h' = NAU([c, h]), c = NSR([x, wanted]); [x, wanted, h]: (..., 3) -> (..., 1)."""

    def __init__(self, outputs: int, *, paths: int = 1, scale: float = 1.0) -> None:
        super().__init__()
        self.decide, self.add = NSR(2, outputs, paths=paths, scale=scale), NAU(2, outputs)
        self.decided = False

    def forward(self, x: Tensor) -> Tensor:
        c = self.decide(x[..., :2])
        return self.add(torch.cat((c.round() if self.decided else c, x[..., 2:]), -1))


class Tally(nn.Module):
    """Steps along a list, h_t = cell([x_t, x_0, h_{t−1}]), h_0 = 0; x: (..., 1 + T) -> (..., 1)."""

    def __init__(
        self, inputs: int, outputs: int, *, paths: int = 1, scale: float = 1.0, unit: Factory | None = None
    ) -> None:
        super().__init__()
        self.cell = Step(outputs, paths=paths, scale=scale) if unit is None else unit(3, outputs)

    def forward(self, x: Tensor) -> Tensor:
        wanted = x[..., :1]
        h = torch.zeros_like(wanted)
        for t in range(1, x.shape[-1]):
            h = self.cell(torch.cat((x[..., t : t + 1], wanted, h), -1))
        return h


class Relax(nn.Module):
    """A node of a message-passing network: messages NAU([dᵢ, wᵢ]), folded into d by a :class:`Branch`.

    x: (..., 1 + 2·neighbours), d and then pairs (dᵢ, wᵢ) -> (..., 1).
    """

    def __init__(
        self, inputs: int, outputs: int, *, paths: int = 1, scale: float = 1.0, unit: Factory | None = None
    ) -> None:
        super().__init__()
        self.message = NAU(2, 1)
        self.cell = Branch(2, outputs, paths=paths, scale=scale) if unit is None else unit(2, outputs)

    def forward(self, x: Tensor) -> Tensor:
        d = x[..., :1]
        for i in range(1, x.shape[-1], 2):
            d = self.cell(torch.cat((self.message(x[..., i : i + 2]), d), -1))
        return d


# ------------------------------------------------------------ stored runs, judged once more


def rounded(model: nn.Module) -> nn.Module:
    """A copy whose NAUs have weights −1, 0 or 1 and whose decisions are 0 or 1."""
    model = copy.deepcopy(model)
    for part in model.modules():
        if isinstance(part, NAU):
            part.snap_()
        elif hasattr(part, "decided"):
            part.decided = True  # type: ignore[assignment]
    return model


def drawn(training: Training, task: Task, split: Split, seed: int, size: int = EXAMPLES) -> tuple[Tensor, Tensor]:
    """Examples of a task, the same in every run."""
    changed = replace(training, task=task, evaluation_size=size)
    return task.examples(stack.evaluation_uniforms(changed, split), task.constants(seed, split))


@torch.no_grad()
def kept_rounded(training: Training, row: Row) -> tuple[nn.Module, nn.Module]:
    """The trained model, and the rounded one where its validation error is not worse, else the trained one again."""
    model = trained(training, row)
    other = rounded(model)
    x, y = drawn(training, training.task, "validation", row.seed, 1000)
    errors = [float(((each(x) - y) ** 2).mean()) for each in (model, other)]
    return model, other if errors[1] <= errors[0] else model


def retested(work: Work, rows: Sequence[Row], label: str, tasks: Mapping[object, Task]) -> Iterator[Row]:
    """Every run once for each of ``tasks``, whose name becomes its label ``label``; judged by its share of errors.

    An answer is right if it is off by less than ½.
    """
    trainings = work.arithmetic
    for row in rows:
        if row.key not in trainings:
            continue
        training = trainings[row.key]
        models = kept_rounded(training, row)
        for name, task in tasks.items():
            x, y = drawn(training, task, "test", row.seed)
            with torch.no_grad():
                errors = [float(1 - ((model(x) - y).abs() < 0.5).float().mean()) for model in models]
            scores = {**row.scores, "best_test": errors[0], "snapped_test": errors[1], "threshold": 1 - RIGHT + 1e-9}
            yield replace(row, labels={**row.labels, label: name}, scores=scores)


def validation_error(row: Row) -> float:
    """Of a run; infinite where it is not a number."""
    error = row.scores["best_validation"]
    return math.inf if math.isnan(error) else error


def accuracies(rows: Sequence[Row]) -> Measured:
    """Success as the papers count it, beside the accuracy as trained and rounded."""
    measured = arithmetic(rows)
    shares = {ACCURACY.name: "best_test", ROUNDED.name: "snapped_test"}
    ours = {name: median([1 - row.scores[score] for row in rows]) for name, score in shares.items()}
    return replace(measured, ours={**ours, **measured.ours})


# ------------------------------------------------------------ verdicts by intervals


def at_least(found: Estimate, least: float) -> bool | None:
    """Whether a number is at least this much; None where its interval leaves that open."""
    if found.low is None or found.high is None or found.low < least <= found.high:
        return None
    return bool(found.low >= least)


def all_hold(verdicts: Iterable[bool | None]) -> bool | None:
    """Whether every one of these holds; None where that is open."""
    known = set(verdicts)
    return False if False in known else None if None in known else True
