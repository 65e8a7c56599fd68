"""What stands between a unit's start and the solution: ``python -m benchmarks.why_units_fail``; the table is markdown.

Two inputs, random ranges (those of the seed for development), one start for each, 512 examples, float64. Measured of
the loss that the unit is trained with:

- first step: share of the weights that Adam's first step, the sign of the gradient, moves towards the solution;
- barrier: share of the ranges on which the loss rises above that of the start, by 1 % or more, on the straight line to
  the solution;
- condition: median over the ranges of the ratio of the largest to the smallest curvature at the solution
  (Gauss–Newton); ∞ where some weights have no effect there.

NATU's two fits are judged by the slopes that they are trained with. ``--picture FILE`` draws the line to the solution.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, jacrev

from numerate.streams import Domain, uniform
from numerate.tasks import AnyRange, random_ranges
from numerate.tasks.any_range import DEVELOPMENT
from numerate.units import NATU, NAU, NMRU, NMU, NACMul, NACMulNMU, RealNPU, Unit

EXAMPLES, POINTS = 512, 101
LARGE = 5.0
"""A logit at which tanh and the sigmoid are 1 but for 1 %, and still have a gradient."""


@dataclass(frozen=True)
class Case:
    """A unit, an operation, and weights that solve it; those not named stay as they are."""

    unit: Callable[[int, int], Unit]
    operation: str
    solution: Mapping[str, Sequence[float]]


CASES = {
    "NAU, +": Case(NAU, "add", {"weight": (1, 1)}),
    "NAU, −": Case(NAU, "sub", {"weight": (1, -1)}),
    "NAC•, ×": Case(NACMul, "mul", {"w_hat": (LARGE, LARGE), "m_hat": (LARGE, LARGE)}),
    "NAC•,NMU, ×": Case(NACMulNMU, "mul", {"weight": (1, 1)}),
    "NMU, ×": Case(NMU, "mul", {"weight": (1, 1)}),
    "NMRU, ×": Case(NMRU, "mul", {"weight": (1, 1, 0, 0)}),
    "NMRU, ÷": Case(NMRU, "div", {"weight": (1, 0, 0, 1)}),
    "Real NPU, ×": Case(RealNPU, "mul", {"weight": (1, 1), "gate": (1, 1)}),
    "Real NPU, ÷": Case(RealNPU, "div", {"weight": (1, -1), "gate": (1, 1)}),
    "NATU, +": Case(NATU, "add", {"sum_weight": (1, 1)}),
    "NATU, −": Case(NATU, "sub", {"sum_weight": (1, -1)}),
    "NATU, ×": Case(NATU, "mul", {"power_weight": (1, 1)}),
    "NATU, ÷": Case(NATU, "div", {"power_weight": (1, -1)}),
}


@dataclass(frozen=True)
class Way:
    """From a start to the solution on one range."""

    right: list[bool]
    losses: np.ndarray
    condition: float


def walked(case: Case, place: int, spans: tuple) -> Way:
    task = AnyRange(case.operation, *spans)
    numbers = uniform(place, Domain.TRAIN, 0, EXAMPLES * 2).view(EXAMPLES, 2)
    x, y = (value.double() for value in task.examples(numbers, task.constants(0, "train")))
    with torch.random.fork_rng():
        torch.manual_seed(place)
        unit = case.unit(2, 1).double()
    start = {name: value.detach() for name, value in unit.named_parameters()}
    end = start | {
        name: torch.tensor(value, dtype=torch.float64).view_as(start[name]) for name, value in case.solution.items()
    }
    value = natu_loss(case, x, y) if isinstance(unit, NATU) else ordinary_loss(unit, x, y)
    leaves = {name: number.clone().requires_grad_() for name, number in start.items()}
    gradients = dict(
        zip(leaves, torch.autograd.grad(value(leaves).pow(2).mean(), [*leaves.values()], allow_unused=True))
    )
    right = [
        bool(step > 0)
        for name in case.solution
        for step in (-(gradients[name] * (end[name] - start[name])).flatten()).tolist()
    ]
    shares = np.linspace(0, 1, POINTS)
    line = [value({name: start[name] + s * (end[name] - start[name]) for name in start}) for s in shares]
    losses = np.array([float(error.pow(2).mean()) for error in line])
    jacobian = jacrev(lambda chosen: value(end | chosen))({name: end[name] for name in case.solution})
    matrix = torch.cat([part.reshape(EXAMPLES, -1) for part in jacobian.values()], -1)
    singular = torch.linalg.svdvals(matrix / matrix.abs().max())
    return Way(right, losses, float((singular[0] / singular[-1].clamp(min=1e-300)) ** 2))


Residuals = Callable[[Mapping[str, Tensor]], Tensor]


def ordinary_loss(unit: Unit, x: Tensor, y: Tensor) -> Residuals:
    """The unit's errors as a function of its parameters."""
    return lambda chosen: functional_call(unit.eval(), dict(chosen), (x,)) - y


def natu_loss(case: Case, x: Tensor, y: Tensor) -> Residuals:
    """The error of the fit that answers, less its mean: what NATU's slopes are those of."""
    (name,) = case.solution
    inputs, target = (x, y) if name == "sum_weight" else (x.abs().log(), y.abs().log())

    def residuals(chosen: Mapping[str, Tensor]) -> Tensor:
        error = inputs @ chosen[name].transpose(0, 1) - target
        return error - error.mean(0)

    return residuals


def table(count: int) -> dict[str, list[Way]]:
    spans = list(random_ranges(count, DEVELOPMENT))
    return {name: [walked(case, place, span) for place, span in enumerate(spans)] for name, case in CASES.items()}


def draw(found: Mapping[str, Sequence[Way]], file: str) -> None:
    """Loss along the line, relative to that of the start: median and the middle 80 % of ranges."""
    from matplotlib.figure import Figure

    from numerate.report.figures import RATES, style

    with style():
        fig = Figure(figsize=(11.0, 6.4), layout="constrained")
        axes = fig.subplots(3, 5, sharex=True, sharey=True).flatten()
        for ax, (name, ways) in zip(axes, found.items()):
            losses = np.array([way.losses / way.losses[0] for way in ways])
            low, middle, high = np.quantile(np.clip(losses, 1e-4, 1e4), [0.1, 0.5, 0.9], axis=0)
            shares = np.linspace(0, 1, POINTS)
            ax.fill_between(shares, low, high, color=RATES(0.3), lw=0)
            ax.plot(shares, middle, color=RATES(0.85))
            ax.axhline(1, color="0.5", lw=0.7, ls="--")
            ax.set(title=name, yscale="log", ylim=(1e-4, 1e4))
        for ax in axes[len(found) :]:
            ax.set_visible(False)
        fig.supxlabel("Share of the way from start to solution")
        fig.supylabel("Loss, relative to the start")
        fig.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranges", type=int, default=100)
    parser.add_argument("--picture")
    options = parser.parse_args()
    found = table(options.ranges)
    print("| unit, operation | first step right, % | barrier, % | condition |\n|---|---|---|---|")
    for name, ways in found.items():
        right = 100 * np.mean([step for way in ways for step in way.right])
        barrier = 100 * np.mean([bool((way.losses > 1.01 * way.losses[0]).any()) for way in ways])
        condition = np.median([way.condition for way in ways])
        shown = "∞" if condition > 1e15 else f"{condition:.2g}"
        print(f"| {name} | {right:.0f} | {barrier:.0f} | {shown} |")
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
