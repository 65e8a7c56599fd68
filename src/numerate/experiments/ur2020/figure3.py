"""Figure 3: what the refine gate does to a forget gate, and to its gradient (equation 35)."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.recurrent import refine
from numerate.report import Claim, Page, Picture, TextTable
from numerate.report.figures import COLOURS, FAINT, PAPER, lay_out, name_decades, style
from numerate.report.text import scientific
from numerate.results import Row

POINTS = {"smoke": 201, "quick": 2_001, "paper": 20_001}
SHOWN = (0.5, 0.9, 0.99, 0.999)
BLUE, ORANGE = COLOURS[:2]


def squared_gradient(g: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Equation 35: |∇g|² by the two pre-activations, from the effective gate g and the forget gate f."""
    rest = g - f**2
    return (rest * (1 - 2 * f) + 2 * f**2 * (1 - f)) ** 2 + rest**2 * (1 - rest / (2 * f * (1 - f))) ** 2


def bounds(g: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest |∇g| over the forget gates that reach g, f² ≤ g ≤ 1 − (1 − f)²; each as g."""
    low, high = 1 - np.sqrt(1 - g), np.sqrt(g)
    f = low + (high - low) * np.linspace(0, 1, points)[:, None]
    norm = np.sqrt(squared_gradient(g, f.clip(1e-300, 1 - 1e-16)))
    return norm.min(0), norm.max(0)


def by_autograd(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random pre-activations of our gate: f, g, |∇g|²."""
    generator = torch.Generator().manual_seed(0)
    x, y = (6 * torch.randn(count, generator=generator, dtype=torch.float64) for _ in range(2))
    x.requires_grad_()
    y.requires_grad_()
    f = x.sigmoid()
    g = refine(f, y.sigmoid())
    by_x, by_y = torch.autograd.grad(g.sum(), (x, y))
    return f.detach().numpy(), g.detach().numpy(), (by_x.square() + by_y.square()).numpy()


def effective_picture(ax: Axes) -> None:
    f = np.linspace(0, 1, 201)
    ax.fill_between(f, f**2, 1 - (1 - f) ** 2, color=BLUE, alpha=0.14, lw=0)
    for r in (0, 0.25, 0.5, 0.75, 1):
        ax.plot(f, refine(torch.from_numpy(f), torch.tensor(r)).numpy(), color=BLUE, lw=1.9 if r in (0, 1) else 0.8)
        ax.annotate(
            f"r = {r:g}",
            (0.62, float(refine(torch.tensor(0.62), torch.tensor(r)))),
            fontsize=7.5,
            color=FAINT,
            bbox={"fc": PAPER, "ec": "none", "pad": 0.8, "alpha": 0.85},
            va="center",
        )
    ax.set(xlabel="forget gate f", ylabel="effective gate g", title="What is reached", xlim=(0, 1), ylim=(0, 1))
    ax.set_aspect("equal")


def gradient_picture(ax: Axes, points: int) -> None:
    g = np.linspace(1e-4, 1 - 1e-4, 401)
    low, high = bounds(g, points)
    ax.fill_between(g, low, high, color=BLUE, alpha=0.3, lw=0, label="refine gate")
    ax.plot(g, g * (1 - g), color=ORANGE, lw=1.8, label="sigmoid: g (1 − g)")
    ax.set(xlabel="effective gate g", ylabel="norm of its gradient", title="How fast it learns", xlim=(0, 1))
    ax.legend(loc="lower center")


def ratio_picture(ax: Axes, points: int) -> None:
    away = np.logspace(-5, np.log10(0.5), 201)
    low, high = bounds(1 - away, points)
    ax.fill_between(away, low / (away * (1 - away)), high / (away * (1 - away)), color=BLUE, alpha=0.3, lw=0)
    ax.axhline(1, color=ORANGE, lw=1.8)
    ax.axhline(2, color=FAINT, lw=0.9, ls=(0, (5, 3)))
    ax.set(
        xscale="log", xlabel="1 − g, one over the timescale", title="As a multiple of the sigmoid's", ylim=(0.9, 2.1)
    )
    ax.set_xlim(0.5, 1e-5)
    name_decades(ax.xaxis)


def draw(rows: Sequence[Row], options: Options) -> Page:
    points = POINTS[options.size]
    with style():
        fig = Figure(figsize=(11.4, 3.9))
        first, second, third = fig.subplots(1, 3, width_ratios=(1, 1.25, 1.25))
        effective_picture(first)
        gradient_picture(second, points)
        ratio_picture(third, points)
        lay_out(fig, w_pad=2.5)
    caption = (
        "Left: a refine gate r moves a forget gate f to g, anywhere in the band. Middle: the norm of the gradient of g "
        "by the two pre-activations, all values that some f and r with that g have, and the sigmoid's. Right: their "
        "ratio as g approaches 1; the dashed line is 2."
    )
    g = np.array(SHOWN)
    low, high = bounds(g, points)
    lines = [
        [f"{x:g}", *map(scientific, (x * (1 - x), a, b)), f"{b / (x * (1 - x)):.3f}"] for x, a, b in zip(g, low, high)
    ]
    table = TextTable("Gradients", ["g", "sigmoid", "refine, least", "refine, most", "most / sigmoid"], lines)
    most = high[-1] / (g[-1] * (1 - g[-1]))
    says = f"Near 1 a refined gate has up to {most:.2f} times the sigmoid's gradient, and never less."
    return Page(
        "UR gates, Figure 3: the refine gate and its gradient", says, [Picture("refine", fig, caption)], [table]
    )


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    f, g, squared = by_autograd(10_000)
    inside = (f > 1e-3) & (f < 1 - 1e-3)  # equation 35 divides by f (1 − f)
    apart = np.abs(np.sqrt(squared_gradient(g[inside], f[inside])) - np.sqrt(squared[inside])).max()
    within = bool(((g >= f**2 - 1e-12) & (g <= 1 - (1 - f) ** 2 + 1e-12)).all())
    old, new = 1 / (1 - f[inside]), 1 / (1 - g[inside])
    away = np.logspace(-6, np.log10(0.5), 400)
    low, _ = bounds(1 - away, POINTS[options.size])
    least = float((low / (away * (1 - away))).min())
    return [
        Claim(
            "Equation 35 is the norm of the gate's gradient (our test: automatic differentiation of our gate, 10⁻¹²).",
            f"largest difference {apart:.0e}.",
            bool(apart < 1e-12),
        ),
        Claim("The effective gate obeys f² ≤ g ≤ 1 − (1 − f)².", "10,000 random gates.", within),
        Claim(
            "Proposition 2: a forget gate of timescale D gets one in (D/2, D²).",
            f"D′/D from {(new / old).min():.3f}, log D′/log D to {(np.log(new) / np.log(old)).max():.3f}.",
            bool(((new > old / 2) & (new < old**2 * (1 + 1e-9))).all()),
        ),
        Claim(
            "The bounds of Figure 3b (our test: a refined gate near 1 never has a smaller gradient than the sigmoid).",
            f"least ratio {least:.6f}.",
            least >= 1 - 1e-9,
        ),
    ]


EXPERIMENTS = [
    Experiment(
        id="ur2020/figure3",
        title="Figure 3: the refine gate and its gradient, equation 35",
        trainings=lambda options: [],
        show=picture_page(draw, claims, fewer={"grid points": POINTS}),
        about=about("ur2020", "figure3"),
        reasons=reasons("ur2020", "figure3"),
    )
]
