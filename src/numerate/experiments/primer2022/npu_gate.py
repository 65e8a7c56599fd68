"""Heim et al.'s toy for the relevance gate: choose one of two inputs, the other always near zero."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor
from torch.func import grad, vmap

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import style
from numerate.report.surfaces import DEPTHS, colour_bar, heat_map, mark
from numerate.report.text import number, percent
from numerate.results import Row
from numerate.streams import Domain, uniform
from numerate.units import naive_real_npu, real_npu

W1, W2 = (-1.0, 2.5), (-0.2, 1.0)
POINTS = {"smoke": 13, "quick": 71, "paper": 141}
EXAMPLES = 32
AWAY = 0.6
"""From this w₂ on a place counts as away from the solution."""
STEPS, RATE = {"smoke": 50, "quick": 1000, "paper": 10_000}, 1e-2
FOUND = 1e-3
"""Squared error below which a descent has found the solution."""
GATES = {"no gate": None, "g = (½, ½)": (0.5, 0.5), "g = (1, 0)": (1.0, 0.0)}


@cache
def examples() -> tuple[Tensor, Tensor]:
    """x₁ uniform on [0, 2), x₂ on [−0.05, 0.05), y = x₁."""
    u = uniform(0, Domain.TRAIN, 0, 2 * EXAMPLES).double().view(EXAMPLES, 2)
    x = torch.stack([2 * u[:, 0], 0.1 * u[:, 1] - 0.05], -1)
    return x, x[:, :1]


def loss(weight: Tensor, gate: Tensor | None) -> Tensor:
    """Mean squared error; weight: (2,), gate: (2,) or None."""
    x, y = examples()
    found = naive_real_npu(x, weight[None]) if gate is None else real_npu(x, weight[None], gate)
    return ((found - y) ** 2).mean()


def grid(points: int) -> tuple[Tensor, Tensor, Tensor]:
    """Both axes, and all starts (points², 2)."""
    first, second = (torch.linspace(*span, points, dtype=torch.float64) for span in (W1, W2))
    y, x = torch.meshgrid(second, first, indexing="ij")
    return first, second, torch.stack([x, y], -1).flatten(0, 1)


@cache
def slopes(points: int) -> dict[str, np.ndarray]:
    """Size of the gradient over both weights [w₂, w₁], for each gate."""
    _, _, starts = grid(points)
    fixed = {name: None if gate is None else torch.tensor(gate).double() for name, gate in GATES.items()}
    return {
        name: vmap(grad(lambda w, gate=gate: loss(w, gate)))(starts).norm(dim=-1).view(points, points).numpy()
        for name, gate in fixed.items()
    }


def away(points: int) -> dict[str, tuple[float, float]]:
    """Smallest and median size of the gradient away from the solution, for each gate."""
    _, second, _ = grid(points)
    far = {name: slope[second.numpy() > AWAY] for name, slope in slopes(points).items()}
    return {name: (float(slope.min()), float(np.median(slope))) for name, slope in far.items()}


def descents(points: int, steps: int) -> dict[str, np.ndarray]:
    """Final loss of Adam from every start, without a gate and with one that is trained from ½; [w₂, w₁]."""
    _, _, starts = grid(points)
    objectives: dict[str, tuple[Tensor, Callable[[Tensor], Tensor]]] = {
        "no gate": (starts, lambda p: loss(p, None)),
        "gate trained from ½": (
            torch.cat([starts, torch.full_like(starts, 0.5)], -1),
            lambda p: loss(p[:2], p[2:]),
        ),
    }
    ends = {}
    for name, (start, objective) in objectives.items():
        parameters = start.clone().requires_grad_()
        adam = torch.optim.Adam([parameters], RATE)
        gradient = vmap(grad(objective))
        for _ in range(steps):
            parameters.grad = torch.nan_to_num(gradient(parameters.detach()))
            adam.step()
        ends[name] = vmap(objective)(parameters.detach()).view(points, points).numpy()
    return ends


def draw(rows: Sequence[Row], options: Options) -> Page:
    points = POINTS[options.size]
    first, second, _ = grid(points)
    norm = Normalize(0, 2.5)
    shown = slopes(points)
    with style():
        fig = Figure(figsize=(11.4, 3.4), dpi=130)
        for column, (name, slope) in enumerate(shown.items()):
            ax = fig.add_subplot(1, 3, column + 1)
            heat_map(ax, first.numpy(), second.numpy(), np.clip(slope, 0, 2.5), norm)
            ax.set_aspect("auto")
            mark(ax, 1, 0, "solution")
            title = "Naive Real NPU" if name == "no gate" else f"Real NPU, {name}"
            ax.set(title=title, xlabel="w₁", ylabel="w₂" if column == 0 else "")
        fig.subplots_adjust(left=0.05, right=0.91, top=0.9, bottom=0.15, wspace=0.18)
        colour_bar(fig, (0.93, 0.15, 0.012, 0.75), norm, DEPTHS, "size of the gradient", {0.0: "0", 1.0: "1", 2.0: "2"})
    caption = (
        "Size of the gradient of the squared error over both weights, for y = x₁ with x₁ from [0, 2) and x₂ from "
        "[−0.05, 0.05) (Heim et al. 2020, Figure 3). A small x₂ makes the whole product 0, whatever w₁ is."
    )
    ends = descents(min(points, 15), STEPS[options.size])
    gradients = away(points)
    found = [percent(float((end < FOUND).mean())) for end in ends.values()]
    names = ("Naive Real NPU", "Real NPU")
    lines = [[name, *map(number, sizes), share] for name, sizes, share in zip(names, gradients.values(), found)]
    header = ["unit", "smallest gradient away", "median", "starts that reach the solution"]
    smallest = [sizes[0] for sizes in gradients.values()]
    headline = (
        f"Away from the solution the gradient is at least {number(smallest[1])} with a gate of ½, and falls to "
        f"{number(smallest[0])} without. Adam finds the solution from {found[1]} of the starts with the gate, from "
        f"{found[0]} without."
    )
    table = TextTable("With and without the relevance gate", header, lines)
    return Page("Primer 2022: Heim et al.'s relevance gate", headline, [Picture("gradients", fig, caption)], [table])


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    sizes = away(POINTS[options.size])
    listed = ", ".join(f"{name} {number(low)} (median {number(middle)})" for name, (low, middle) in sizes.items())
    return [
        Claim(
            "The relevance gate transforms regions away from the solution which contain no gradient information into "
            "regions with more instructive gradients.",
            f"smallest size of the gradient where w₂ > {AWAY:g}: {listed}.",
            all(sizes["g = (½, ½)"][i] > 2 * sizes["no gate"][i] for i in (0, 1)),
        )
    ]


EXPERIMENTS = [
    Experiment(
        id="primer2022/npu-gate",
        title="Heim et al.: what the relevance gate does to the gradient, one of two inputs",
        trainings=lambda options: [],
        show=picture_page(draw, claims, fewer={"grid points": POINTS}),
        about=about("primer2022", "npu-gate"),
        reasons=reasons("primer2022", "npu-gate"),
    )
]
