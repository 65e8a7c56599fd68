"""Figures 10 and 11: shapes of the regularisers, and the weight of NALU and G-NALU over its two parameters."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, vmap

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about
from numerate.report import Claim, Page, Picture
from numerate.report.figures import COLOURS, FAINT, style
from numerate.report.surfaces import BALANCE, colour_bar, heat_map, landscape
from numerate.results import Row
from numerate.units import Ramp
from numerate.units.nac import nac_weight
from numerate.units.nalu import golden_weight
from numerate.units.penalties import saturation, sparsity, sparsity_nmu

POINTS = {"smoke": 41, "quick": 201, "paper": 401}
WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"NALU, base e": nac_weight, "G-NALU, base φ": golden_weight}


def shapes(points: int) -> dict[str, tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Panel -> (x, curve by name): R_sparse over a weight, its scale over time, iNALU's penalty over a parameter."""
    w, t, p = (torch.linspace(*span, points, dtype=torch.float64) for span in ((-1.5, 1.5), (0, 10), (-30, 30)))
    return {
        "weight": (w.numpy(), {"NAU": vmap(sparsity)(w).numpy(), "NMU": vmap(sparsity_nmu)(w).numpy()}),
        "step": (t.numpy(), {"λ̂ = 1, from 4 to 6": Ramp(1.0, 4, 6)(t).numpy()}),
        "parameter": (p.numpy(), {"iNALU, t = 20": vmap(saturation)(p).numpy()}),
    }


def draw_shapes(rows: Sequence[Row], options: Options) -> Page:
    titles = {"weight": "Sparsity of a weight", "step": "Its scale over time", "parameter": "Sparsity of iNALU"}
    axes_titles = {"weight": ("W", "R(W)"), "step": ("Iteration", "λ"), "parameter": ("θ", "R(θ)")}
    with style():
        fig = Figure(figsize=(11.4, 3.3), layout="constrained")
        for ax, (panel, (x, curves)) in zip(fig.subplots(1, 3), shapes(POINTS[options.size]).items()):
            for (name, y), colour, dashes in zip(curves.items(), COLOURS, ("-", "--")):
                ax.plot(x, y, dashes, color=colour, lw=1.8, label=name)
            zeros = {"weight": (-1, 0, 1), "step": (4, 6), "parameter": (-20, 20)}[panel]
            ax.plot(zeros, [np.interp(z, x, next(iter(curves.values()))) for z in zeros], "o", color=FAINT, ms=4)
            ax.set(title=titles[panel], xlabel=axes_titles[panel][0], ylabel=axes_titles[panel][1])
            ax.legend(loc="upper center" if panel == "weight" else "best")
    caption = (
        "Left: min(|W|, |1 − |W||) of NAU and min(|W|, |1 − W|) of NMU, zero at the discrete weights. Middle: the "
        "scale of that penalty while it warms up. Right: iNALU's penalty of one parameter, zero beyond ±20."
    )
    headline = "Zero at −1, 0 and 1 (NAU), at 0 and 1 (NMU), beyond ±20 (iNALU); half-way between: ½ and 20."
    return Page("Primer 2022, Figure 10", headline, [Picture("shapes", fig, caption)])


def weights(points: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Ŵ or M̂, and W[M̂, Ŵ] with base e (NALU) and base φ (G-NALU)."""
    axis = torch.linspace(-10, 10, points, dtype=torch.float64)
    m_hat, w_hat = torch.meshgrid(axis, axis, indexing="ij")
    return axis.numpy(), {name: weight(w_hat, m_hat).numpy() for name, weight in WEIGHTS.items()}


def steepest(weight: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Largest slope of a weight in any direction, over the same square."""
    axis = torch.linspace(-10, 10, 401, dtype=torch.float64)
    m_hat, w_hat = (grid.clone().requires_grad_() for grid in torch.meshgrid(axis, axis, indexing="ij"))
    slopes = torch.autograd.grad(weight(w_hat, m_hat).sum(), (w_hat, m_hat))
    return torch.hypot(*slopes).max().item()


def draw_weights(rows: Sequence[Row], options: Options) -> Page:
    axis, surfaces = weights(POINTS[options.size])
    norm = Normalize(-1, 1)
    with style():
        fig = Figure(figsize=(8.6, 7.0), dpi=130)
        for column, (name, w) in enumerate(surfaces.items()):
            space = fig.add_subplot(2, 2, column + 1, projection="3d")
            landscape(space, axis, axis, w, norm, BALANCE)
            space.set(title=name, xlabel="Ŵ", ylabel="M̂", zticks=[-1, 0, 1])
            ax = fig.add_subplot(2, 2, column + 3)
            heat_map(ax, axis, axis, w, norm, BALANCE)
            ax.set(xlabel="Ŵ", ylabel="M̂" if column == 0 else "")
        fig.subplots_adjust(left=0.07, right=0.88, top=0.95, bottom=0.07, wspace=0.12, hspace=0.12)
        colour_bar(fig, (0.91, 0.1, 0.018, 0.34), norm, BALANCE, "W", {-1.0: "−1", 0.0: "0", 1.0: "1"})
    slopes = [steepest(weight) for weight in WEIGHTS.values()]
    headline = f"Base φ changes more slowly: the steepest slope is {slopes[1]:.2f} against {slopes[0]:.2f} with base e."
    caption = "W = tanh(Ŵ) σ(M̂) over both parameters, with base e (left) and with the golden ratio as base (right)."
    return Page("Primer 2022, Figure 11", headline, [Picture("weights", fig, caption)])


def smoother(rows: Sequence[Row], options: Options) -> list[Claim]:
    natural, golden = map(steepest, WEIGHTS.values())
    ratio = golden / natural
    ours = f"the steepest slope shrinks by the factor {ratio:.3f}; ln φ = 0.481, as tanh_φ(z) = tanh(z ln φ)."
    return [Claim("A golden ratio base results in smoother value transition.", ours, ratio < 1)]


EXPERIMENTS = [
    Experiment(
        "primer2022/figure10",
        "Figure 10: shapes of the regularisers of NAU, NMU and iNALU",
        lambda options: [],
        picture_page(draw_shapes, fewer={"points": POINTS}),
        about("primer2022", "figure10"),
    ),
    Experiment(
        "primer2022/figure11",
        "Figure 11: the weight of NALU and G-NALU, base e and base φ",
        lambda options: [],
        picture_page(draw_weights, smoother, {"points": POINTS}),
        about("primer2022", "figure11"),
    ),
]
