"""Appendix B: predicted mean and variance of outputs and gradients of NAC+, NAC• and NMU against Monte Carlo."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Page, Picture, TextTable
from numerate.report.figures import COLOURS, FAINT, lay_out, name_decades, style
from numerate.report.text import scientific
from numerate.results import Row
from numerate.units.nac import nac_radius, nac_weight, nac_weight_variance

OUTPUTS, EPS = 2, 1e-7
SIZES = {"smoke": (2, 4, 8), "quick": (2, 4, 8, 16, 32), "paper": (2, 3, 4, 6, 8, 12, 16, 24, 32)}
SAMPLES = {"smoke": 4_000, "quick": 80_000, "paper": 1_000_000}
QUANTITIES = ("E[z]", "Var[z]", "Var[∂L/∂x]")
BATCHES = 20
FAILS = {True: "fails", False: ""}


@dataclass(frozen=True)
class Inputs:
    """Independent inputs, uniform with this mean and variance."""

    name: str
    mean: float
    variance: float

    def draw(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        uniform = torch.rand(*shape, generator=generator, dtype=torch.float64) - 0.5
        return self.mean + math.sqrt(12 * self.variance) * uniform


Entry = tuple[str, Inputs, int, list[tuple[float, float]]]
"""Unit, inputs, size, and (estimate, standard error) of each quantity."""
INPUTS = (Inputs("mean 0, variance 1", 0.0, 1.0), Inputs("U[1, 2)", 1.5, 1 / 12))


def predicted(unit: str, size: int, x: Inputs) -> tuple[float, float, float]:
    """Mean and variance of an output, variance of a gradient (for Var[∂L/∂z] = 1), by equations 28 to 31."""
    if unit == "NMU":
        both = 1 / 48 + 1 / 4  # Var[W] + E[W]²
        grown = both**size * (x.variance + 1) ** size
        return 0.5**size, grown - 0.25**size, OUTPUTS * grown / (x.variance + 1)
    spread = nac_weight_variance(nac_radius(size, OUTPUTS))
    if unit == "NAC+":
        return 0.0, size * spread * x.variance, OUTPUTS * spread
    place = abs(x.mean) + EPS
    f = lambda c1, c2: (1 + c1 * spread * math.log(place) ** 2 / 2) ** (c2 * size)  # noqa: E731
    slope = 1 / place**2 + 3 * x.variance / place**4
    return f(1, 1), f(4, 1) - f(1, 2), OUTPUTS * f(4, 1) * spread * slope


def exact(unit: str, size: int, x: Inputs) -> tuple[float, float, float] | None:
    """The same without the assumption of inputs with mean zero; None for NAC•, which has no such form."""
    if unit == "NMU":
        mean, square = (1 + x.mean) / 2, x.mean + (1 / 48 + 1 / 4) * (x.variance + (x.mean - 1) ** 2)
        return mean**size, square**size - mean ** (2 * size), OUTPUTS * (1 / 48 + 1 / 4) * square ** (size - 1)
    if unit == "NAC+":
        spread = nac_weight_variance(nac_radius(size, OUTPUTS))
        return 0.0, size * spread * (x.variance + x.mean**2), OUTPUTS * spread
    return None


def weights(unit: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Initial weights as the unit draws them."""
    draw = lambda low, high: low + (high - low) * torch.rand(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    if unit == "NMU":
        return draw(0.25, 0.75)
    radius = nac_radius(shape[-1], OUTPUTS)
    return nac_weight(draw(-radius, radius), draw(-radius, radius))


FORWARD: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # one weight matrix (O, I) per example (I,)
    "NAC+": lambda x, w: (w * x.unsqueeze(-2)).sum(-1),
    "NAC•": lambda x, w: torch.exp((w * torch.log(x.abs() + EPS).unsqueeze(-2)).sum(-1)),
    "NMU": lambda x, w: (w * x.unsqueeze(-2) + 1 - w).prod(-1),
}


def simulated(unit: str, size: int, x: Inputs, samples: int) -> list[tuple[float, float]]:
    """(estimate, standard error) of each quantity, every example with its own weights and its own ∂L/∂z ~ N(0, 1)."""
    generator = torch.Generator().manual_seed(size)
    batches = []
    for _ in range(BATCHES):
        shape = (samples // BATCHES, OUTPUTS, size)
        inputs = x.draw((shape[0], size), generator).requires_grad_()
        z = FORWARD[unit](inputs, weights(unit, shape, generator))
        delta = torch.randn(z.shape, generator=generator, dtype=torch.float64)
        (gradient,) = torch.autograd.grad((z * delta).sum(), inputs)
        batches.append([z.mean().item(), z.var().item(), gradient.var().item()])
    moments = np.array(batches)
    return list(zip(moments.mean(0).tolist(), (moments.std(0, ddof=1) / math.sqrt(BATCHES)).tolist()))


def measure(options: Options) -> list[Entry]:
    samples = SAMPLES[options.size]
    return [(u, x, n, simulated(u, n, x, samples)) for u in FORWARD for x in INPUTS for n in SIZES[options.size]]


def fails(prediction: float, value: float, error: float) -> bool:
    """Off by more than a factor of two, beyond four standard errors."""
    if abs(value - prediction) <= 4 * error:
        return False
    return prediction <= 0 or value <= 0 or not 0.5 <= value / prediction <= 2


def draw(rows: Sequence[Row], options: Options) -> Page:
    entries = measure(options)
    with style():
        fig = Figure(figsize=(11.6, 8.4))
        axes = fig.subplots(3, 3, sharex=True)
        for column, unit in enumerate(FORWARD):
            for line, quantity in enumerate(QUANTITIES):
                _panel(axes[line, column], unit, line, [entry for entry in entries if entry[0] == unit])
                axes[line, column].set(ylabel=quantity if column == 0 else "", title=unit if line == 0 else "")
            axes[-1, column].set_xlabel("Inputs of the layer")
        kinds = [Line2D([], [], color=colour, lw=2, label=f"inputs: {x.name}") for x, colour in zip(INPUTS, COLOURS)]
        kinds += [
            Line2D([], [], color=FAINT, lw=1.6, label="the paper's prediction"),
            Line2D([], [], color=FAINT, lw=1, ls=":", label="exact for any mean"),
            Line2D([], [], color=FAINT, ls="", marker="o", ms=4.5, label="Monte Carlo ± standard error"),
        ]
        fig.legend(handles=kinds, loc="upper center", ncols=5, columnspacing=1.4)
        lay_out(fig, rect=(0, 0, 1, 0.955))
    caption = (
        f"Mean and variance of an output, and variance of a gradient, of a layer with {OUTPUTS} outputs at its start, "
        "over the number of inputs. Lines: equations 28 to 31 of the appendix; dots: Monte Carlo."
    )
    title = "Neural Arithmetic Units, appendix B: moments at the start"
    return Page(title, where(entries), [Picture("moments", fig, caption)], [table(entries)])


def _panel(ax: Axes, unit: str, quantity: int, entries: Sequence[Entry]) -> None:
    for x, colour, marker in zip(INPUTS, COLOURS, "os"):
        drawn = [entry for entry in entries if entry[1] == x]
        sizes = [size for _, _, size, _ in drawn]
        ax.plot(sizes, [predicted(unit, n, x)[quantity] for n in sizes], color=colour, lw=1.6)
        if (closed := [exact(unit, n, x) for n in sizes])[0] is not None:
            ax.plot(sizes, [e[quantity] for e in closed if e is not None], color=colour, lw=1, ls=":")
        values, errors = zip(*(entry[3][quantity] for entry in drawn))
        low = [min(e, 0.9 * abs(v)) if quantity or unit != "NAC+" else e for v, e in zip(values, errors)]
        ax.errorbar(sizes, values, yerr=[low, errors], fmt=marker, color=colour, ms=4.5, lw=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks([2, 4, 8, 16, 32], ["2", "4", "8", "16", "32"])
    ax.minorticks_off()
    if quantity or unit != "NAC+":
        ax.set_yscale("log")
        name_decades(ax.yaxis)


def where(entries: Sequence[Entry]) -> str:
    """Which predictions fail, in one sentence."""
    failing: dict[str, list[int]] = {}
    for unit, x, size, values in entries:
        for name, prediction, (value, error) in zip(QUANTITIES, predicted(unit, size, x), values):
            if fails(prediction, value, error):
                failing.setdefault(f"{name} of {unit} with inputs of {x.name}", []).append(size)
    if not failing:
        return "No prediction is off by more than a factor of two."
    all_sizes = len({size for _, _, size, _ in entries})
    parts = [
        f"{what} ({'at all sizes' if len(sizes) == all_sizes else f'from {min(sizes)} inputs on'})"
        for what, sizes in failing.items()
    ]
    return "Off by more than a factor of two, beyond four standard errors: " + "; ".join(parts) + "."


def table(entries: Sequence[Entry]) -> TextTable:
    lines = [
        [f"{u}, {x.name}", f"{size}", name, scientific(p), f"{scientific(v)} ± {scientific(e)}", FAILS[fails(p, v, e)]]
        for u, x, size, values in entries
        for name, p, (v, e) in zip(QUANTITIES, predicted(u, size, x), values)
    ]  # fmt: skip
    return TextTable(
        "Predicted and simulated", ["layer, inputs", "size", "quantity", "predicted", "simulated", ""], lines
    )


EXPERIMENTS = [
    Experiment(
        id="nau2020/moments",
        title="Appendix B: mean and variance of outputs and gradients of NAC+, NAC• and NMU, predicted and simulated",
        trainings=lambda options: [],
        show=picture_page(draw, fewer={"samples": SAMPLES}),
        about=about("nau2020", "moments"),
        reasons=reasons("nau2020", "moments"),
    )
]
