"""Table 4: how timescales are distributed at the start."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy import stats
from torch import Tensor

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.recurrent import GATES, chrono_, cumax, uniform_gate_
from numerate.recurrent.gates import Gate
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import COLOURS, MARKERS, PAPER, lay_out, name_decades, style
from numerate.report.text import number
from numerate.results import Row

UNITS = {"smoke": 200, "quick": 10_000, "paper": 100_000}
LONGEST = 500
FAR = 1e5
Law = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Start:
    """An initialisation.

    Args:
        name: as printed.
        printed: the law of D, as printed.
        sample: number of units, generator -> log(D − 1) of each, which the bias is for a sigmoid.
        beyond: x -> P(D > x) by that law.
    """

    name: str
    printed: str
    sample: Callable[[int, torch.Generator], Tensor]
    beyond: Law


def constant(count: int, generator: torch.Generator) -> Tensor:
    return torch.full((count,), GATES["-"].forget_bias, dtype=torch.float64)


def ordered(count: int, generator: torch.Generator) -> Tensor:
    """Of cumax at zero maps, f_j = j / d; the last unit never forgets and is left out."""
    return cumax(torch.zeros(count + 1, dtype=torch.float64))[:-1].logit()


def _empty(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.float64)


def unknown_beyond(x: np.ndarray) -> np.ndarray:
    """P(1 + T > x) for P(T = k) ∝ 1 / (k log²(k + 1)); the tail beyond 10⁶ by its integral."""
    count = 10**6
    k = np.arange(1, count + 1)
    mass = 1 / (k * np.log1p(k) ** 2)
    below = np.concatenate(([0.0], np.cumsum(mass)))
    total = below[-1] + 1 / np.log1p(count)
    whole = np.clip(np.floor(x - 1), 0, count).astype(int)
    return np.where(x - 1 > count, 1 / np.log(np.maximum(x, count)), total - below[whole]) / total


STARTS = (
    Start("constant bias 1", "point mass at 1 + e", constant, lambda x: (x < 1 + np.e).astype(float)),
    Start(
        f"chrono, T_max = {LONGEST}", f"uniform on [2, {LONGEST}]",
        lambda count, generator: chrono_(_empty(count), LONGEST, generator=generator),
        lambda x: np.clip((LONGEST - x) / (LONGEST - 2), 0, 1),
    ),
    Start(
        "chrono, T_max unknown", "density ∝ 1 / (x log² x)",
        lambda count, generator: chrono_(_empty(count), "unknown", generator=generator),
        unknown_beyond,
    ),
    Start(
        "uniform gates (U-)", "density ∝ 1 / x²",
        lambda count, generator: uniform_gate_(_empty(count), generator),
        lambda x: 1 / np.maximum(x, 1),
    ),
    Start("cumax (O-)", "density ∝ 1 / x²", ordered, lambda x: 1 / np.maximum(x, 1)),
)  # fmt: skip


def timescales(start: Start, count: int) -> np.ndarray:
    """D = 1 / (1 − f) = 1 + e^b, sorted; what exceeds single numbers is infinite."""
    with np.errstate(over="ignore"):
        found = np.sort(1 + np.exp(start.sample(count, torch.Generator().manual_seed(0)).numpy()))
    whole = np.isclose(found, np.round(found), rtol=1e-12, atol=0)  # the logarithm of a whole number, and back
    return np.where(whole, np.round(found), found)


def distance(start: Start, found: np.ndarray) -> float:
    """The largest gap between the share of units beyond x and the law, at the units' own timescales."""
    count, law = len(found), start.beyond(found)
    just_before = start.beyond(np.nextafter(found, 0))
    above = np.searchsorted(-found[::-1], -found, "left") / count  # strictly beyond
    at_least = np.searchsorted(-found[::-1], -found, "right") / count
    return float(max(np.abs(above - law).max(), np.abs(at_least - just_before).max()))


def draw(rows: Sequence[Row], options: Options) -> Page:
    count = UNITS[options.size]
    x = np.logspace(0, np.log10(FAR), 600)
    with style():
        fig = Figure(figsize=(8.4, 4.2))
        ax = fig.subplots()
        for start, colour, marker in zip(STARTS, COLOURS, MARKERS):
            law = start.beyond(x)
            ax.plot(x[law > 0], law[law > 0], color=colour, lw=1.6, alpha=0.7)
            found = timescales(start, count)
            marks = np.unique(np.quantile(found, 1 - np.logspace(0, -3, 13), method="nearest"))
            share = np.array([(found >= mark).mean() for mark in marks])
            ax.plot(marks, share, marker, ms=5, mfc=PAPER, mec=colour, mew=1.3, label=start.name)
        ax.set(xscale="log", yscale="log", xlim=(1, FAR), ylim=(1e-4, 1.3))
        ax.set(xlabel="timescale in steps, 1 / (1 − f)", ylabel="share of units beyond")
        for axis in (ax.xaxis, ax.yaxis):
            name_decades(axis)
        ax.grid(True)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        lay_out(fig)
    caption = f"Lines: the printed laws. Marks: {count:,} units as our layers start them."
    lines = []
    for start in STARTS:
        found = timescales(start, count)
        quarters = [number(float(q)) for q in np.quantile(found, (0.25, 0.5, 0.75, 0.99))]
        lines.append([start.name, start.printed, *quarters, f"{distance(start, found):.4f}"])
    header = ["initialisation", "printed law of D", "quarter", "half", "three quarters", "99 %", "largest distance"]
    return Page(
        "UR gates, Table 4: timescales at the start",
        "Uniform gates start with a few long timescales among many short ones; chrono gates with long ones mostly.",
        [Picture("timescales", fig, caption)],
        [TextTable("Quantiles of the timescale", header, lines)],
    )


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    count = UNITS[options.size]
    limit = float(stats.kstwo.ppf(0.99, count))
    found = []
    for start in STARTS:
        apart = distance(start, timescales(start, count))
        found.append(
            Claim(
                f"{start.name}: {start.printed} (our test: Kolmogorov and Smirnov's at 1 %, {count:,} units).",
                f"distance {apart:.4f}, {limit:.4f} allowed.",
                apart <= limit + 1 / count,
            )
        )
    pair = master_gates()
    return [
        *found,
        Claim(
            "Proposition 3: with cumax master gates, forget and input gate average to 5/6 together at the start (our "
            "test: zero maps, 0.01).",
            f"{pair.sum():.4f} together, {pair[0]:.4f} the forget gate alone.",
            bool(abs(pair.sum() - 5 / 6) < 0.01),
        ),
        Claim(
            "Proposition 4: tied and rescaled master gates are a refine gate (our test: random gates, 10⁻¹²).",
            f"largest difference {refined_masters():.1g}.",
            refined_masters() < 1e-12,
        ),
    ]


def master_gates(units: int = 512) -> np.ndarray:
    """Means over units of the effective pair of OM- at zero maps: forget, input."""
    gate: Gate = GATES["OM"]
    zeros, coarse = torch.zeros(units, dtype=torch.float64), torch.zeros(units // gate.downsize, dtype=torch.float64)
    return np.array([float(part.mean()) for part in gate(zeros, zeros, coarse, coarse)])


def refined_masters(count: int = 1_000) -> float:
    """The largest difference between equation 23 with tied gates and a refine gate."""
    generator = torch.Generator().manual_seed(0)
    master, f = torch.rand(2, count, generator=generator, dtype=torch.float64)
    overlap = master * (1 - master)
    effective = 2 * f * overlap + (master - overlap)
    return float((effective - (f * (1 - (1 - master) ** 2) + (1 - f) * master**2)).abs().max())


EXPERIMENTS = [
    Experiment(
        id="ur2020/table4",
        title="Table 4: timescales at the start, five initialisations",
        trainings=lambda options: [],
        show=picture_page(draw, claims, fewer={"units": UNITS}),
        about=about("ur2020", "table4"),
        reasons=reasons("ur2020", "table4"),
    )
]
