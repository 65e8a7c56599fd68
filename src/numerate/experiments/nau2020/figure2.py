"""Figure 2: the loss surface of NAC+ followed by NAC•, and of NAU followed by NMU, on (x1+x2)(x1+x2+x3+x4)."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from numerate.experiments.experiment import Experiment, Options
from numerate.experiments.pages import picture_page
from numerate.experiments.remarks import about, reasons
from numerate.report import Claim, Page, Picture
from numerate.report.figures import style
from numerate.report.surfaces import DEPTHS, colour_bar, heat_map, landscape, mark
from numerate.report.text import number, power
from numerate.results import Row
from numerate.units import nmu
from numerate.units.nac import exp_log

INPUT, FIRST = (1.0, 1.2, 1.8, 2.0), ((1.0, 1.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0))
SPAN, POINTS = 1.5, {"smoke": 31, "quick": 181, "paper": 301}
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "NAC•, ε = 10⁻⁷": lambda x, w: exp_log(x, w, 1e-7),
    "NAC•, ε = 0.1": lambda x, w: exp_log(x, w, 0.1),
    "NAC•, ε = 1": lambda x, w: exp_log(x, w, 1.0),
    "NMU": nmu,
}


def losses(points: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Weights, and RMS loss [w2, w1] of each product layer; both layers have a single free weight."""
    weights = torch.linspace(-SPAN, SPAN, points, dtype=torch.float64)
    x, first = torch.tensor(INPUT, dtype=torch.float64), torch.tensor(FIRST, dtype=torch.float64)
    hidden = weights[:, None] * (first @ x)  # (w1, 2)
    target = (first @ x).prod()
    seconds = [w.expand(1, 2) for w in weights]
    surfaces = {
        name: torch.stack([product(hidden, second).squeeze(-1) - target for second in seconds]).abs()
        for name, product in PRODUCTS.items()
    }
    return weights.numpy(), {name: loss.numpy() for name, loss in surfaces.items()}


def draw(rows: Sequence[Row], options: Options) -> Page:
    weights, surfaces = losses(POINTS[options.size])
    norm, ticks = Normalize(0, 3), (0.0, 1.0, 2.0, 3.0)
    with style():
        fig = Figure(figsize=(13.2, 6.6), dpi=130)
        maps, spaces = [], []
        for column, (name, loss) in enumerate(surfaces.items()):
            height = np.log10(np.maximum(loss, 1e-9))
            maps.append(fig.add_subplot(2, 4, column + 1))
            heat_map(maps[-1], weights, weights, height, norm)
            mark(maps[-1], 1, 1, "solution")
            maps[-1].set(title=name, xlabel="w₁", ylabel="w₂" if column == 0 else "")
            spaces.append(fig.add_subplot(2, 4, column + 5, projection="3d"))
            landscape(spaces[-1], weights, weights, height, norm)
            spaces[-1].set(xlabel="w₁", ylabel="w₂", zticks=ticks)
            spaces[-1].set_zticklabels([power(10.0**k) for k in ticks])
        maps[-1].add_patch(Rectangle((-1, 0), 2, 1, fill=False, ec="#fefeff", lw=1, ls=(0, (3, 2))))
        fig.subplots_adjust(left=0.04, right=0.92, top=0.93, bottom=0.03, wspace=0.2, hspace=0.16)
        labels = {k: power(10.0**k) for k in ticks}
        colour_bar(fig, (0.945, 0.56, 0.012, 0.35), norm, DEPTHS, "RMS loss", labels)
    caption = (
        "RMS loss over the one weight of each layer, for x = (1, 1.2, 1.8, 2); W₁ = [w₁ w₁ 0 0; w₁ w₁ w₁ w₁], "
        "W₂ = [w₂ w₂]. Colours and heights are logarithmic and end at 1 and 1000. Dashed: where NAU and NMU stay."
    )
    return Page("Neural Arithmetic Units, Figure 2", headline(surfaces), [Picture("surface", fig, caption)])


def headline(surfaces: dict[str, np.ndarray]) -> str:
    largest = ", ".join(f"{number(float(loss.max()))} for {name}" for name, loss in surfaces.items())
    return f"The largest loss on the square is {largest}."


def claims(rows: Sequence[Row], options: Options) -> list[Claim]:
    weights, surfaces = losses(POINTS[options.size])
    near_zero = np.abs(weights) < 0.15
    negative = weights < -0.2
    worst = {name: loss[np.ix_(negative, near_zero)].max() for name, loss in surfaces.items()}
    spot = "largest loss for |w₁| < 0.15 and w₂ < −0.2: "
    return [
        Claim(
            "If |z| is near zero, W is negative, and ε is small, then the output will explode; this is present even "
            "for a reasonably large ε (such as ε = 0.1).",
            spot + ", ".join(f"{number(float(worst[name]))} for {name}" for name in surfaces),
            worst["NAC•, ε = 10⁻⁷"] > 1e6 and worst["NAC•, ε = 0.1"] > worst["NMU"],
        )
    ]


EXPERIMENTS = [
    Experiment(
        id="nau2020/figure2",
        title="Figure 2: loss surface of NAC+ → NAC• and NAU → NMU, heat map and in space",
        trainings=lambda options: [],
        show=picture_page(draw, claims, fewer={"grid points": POINTS}),
        about=about("nau2020", "figure2"),
        reasons=reasons("nau2020", "figure2"),
    )
]
